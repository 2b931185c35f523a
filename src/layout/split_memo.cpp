#include "layout/split_memo.h"

#include "base/check.h"

namespace weft {
namespace {

// Bounds the memory of searches that try millions of splits: at this size the cache is cleared.
constexpr std::size_t kMostKnown = 20'000;

void mix(std::size_t& hash, std::uint64_t value) {
  hash = (hash ^ static_cast<std::size_t>(value)) * 0x9E3779B97F4A7C15u;
  hash ^= hash >> 32;
}

void mix(std::size_t& hash, const std::vector<Cut>& cuts) {
  mix(hash, cuts.size());
  for (const Cut& cut : cuts) {
    mix(hash, static_cast<std::uint64_t>(cut.mesh_axis));
    for (std::int64_t share : cut.shares) mix(hash, static_cast<std::uint64_t>(share));
  }
}

void mix(std::size_t& hash, const Layout& layout) {
  for (const DimLayout& dim : layout.dims)
    for (const Factor& factor : dim) {
      mix(hash, static_cast<std::uint64_t>(factor.size));
      mix(hash, factor.cuts);
    }
  for (std::size_t axis = 0; axis < layout.partial.size(); ++axis)
    if (layout.partial[axis]) mix(hash, axis);
}

// The entry of `key`, made if there is none.
template <class Map, class Key, class Make>
typename Map::mapped_type known(Map& map, const Key& key, const Make& make) {
  if (const auto found = map.find(key); found != map.end()) return found->second;
  if (map.size() >= kMostKnown) map.clear();
  return map.emplace(key, make()).first->second;
}

OpSharding sharding_for(const Signature& signature, const Layout& layout) {
  OpSharding sharding;
  sharding.mesh = layout.mesh;
  sharding.axes.resize(signature.axes.size());
  sharding.outer.assign(signature.axes.size(), 1);
  for (std::size_t axis = 0; axis < layout.partial.size(); ++axis)
    if (layout.partial[axis]) {  // partial sums pass through: every operator here is linear in all its inputs
      sharding.partial |= MeshAxes{1} << axis;
      sharding.partial_inputs = ~std::uint64_t{0};
    }
  const Operand& shaped = signature.inputs.front();
  for (std::size_t d = 0; d < layout.dims.size(); ++d) {
    if (layout.dims[d].empty()) continue;
    const auto axis = static_cast<std::size_t>(shaped.dims[d].factors.at(0));
    const DimLayout& dim = layout.dims[d];
    WEFT_CHECK(dim.size() <= 2 && (dim.size() == 1 || dim[0].cuts.empty()), "a parameter cut on two levels");
    if (dim.size() == 2) sharding.outer[axis] = dim[0].size;
    sharding.axes[axis] = dim.back().cuts;
  }
  return sharding;
}

}  // namespace

std::size_t SplitMemo::Hash::operator()(const SplitKey& key) const {
  std::size_t hash = key.signature.index();
  mix(hash, key.sharding.mesh.index());
  for (const std::vector<Cut>& cuts : key.sharding.axes) mix(hash, cuts);
  mix(hash, key.sharding.partial);
  return hash;
}

std::size_t SplitMemo::Hash::operator()(const LayoutKey& key) const {
  std::size_t hash = key.signature.index();
  mix(hash, key.layout.mesh.index());
  mix(hash, key.layout);
  return hash;
}

std::size_t SplitMemo::Hash::operator()(const ReshardKey& key) const {
  std::size_t hash = key.from.mesh.index();
  mix(hash, key.from);
  mix(hash, key.to);
  return hash;
}

MeshId SplitMemo::first_with_axes(MeshId id, const Mesh& mesh) {
  if (!with_axes_.contains(id)) with_axes_.resize(id.index() + 1);
  MeshId& found = with_axes_[id];
  if (found.valid()) return found;
  for (const auto& [first, axes] : shapes_)
    if (axes == mesh.axes()) return found = first;
  shapes_.emplace_back(id, mesh.axes());
  return found = id;
}

std::shared_ptr<const SplitOp> SplitMemo::split(OpId op, const OpSharding& sharding, const Mesh& mesh) {
  std::shared_ptr<const SplitOp>& last = last_split_[graph_.ops()[op].signature];
  if (last && last->sharding == sharding) return last;
  return last = known(splits_, SplitKey{graph_.ops()[op].signature, sharding}, [&] {
           const Signature& signature = graph_.signature(op);
           if (const MeshId first = first_with_axes(sharding.mesh, mesh); first != sharding.mesh) {
             OpSharding there = sharding;
             there.mesh = first;
             SplitOp same = *split(op, there, mesh);
             same.sharding.mesh = sharding.mesh;
             for (std::vector<Layout>* const layouts : {&same.inputs, &same.outputs})
               for (Layout& layout : *layouts) layout.mesh = sharding.mesh;
             return std::make_shared<const SplitOp>(std::move(same));
           }
           SplitOp made{sharding, {}, {}};
           made.inputs.reserve(signature.inputs.size());
           made.outputs.reserve(signature.outputs.size());
           for (std::size_t i = 0; i < signature.inputs.size(); ++i)
             made.inputs.push_back(operand_layout(signature, false, i, sharding, mesh));
           for (std::size_t i = 0; i < signature.outputs.size(); ++i)
             made.outputs.push_back(operand_layout(signature, true, i, sharding, mesh));
           return std::make_shared<const SplitOp>(std::move(made));
         });
}

std::shared_ptr<const SplitOp> SplitMemo::split_as(OpId op, const Layout& layout, const Mesh& mesh) {
  auto& [as, last] = last_split_as_[graph_.ops()[op].signature];
  if (last && as == layout) return last;
  last = known(splits_as_, LayoutKey{graph_.ops()[op].signature, layout},
               [&] { return split(op, sharding_for(graph_.signature(op), layout), mesh); });
  as = layout;
  return last;
}

std::shared_ptr<const Resharding> SplitMemo::reshard(const Layout& from, const Layout& to, const Mesh& mesh,
                                                     const StepPrice* price, DType dtype) {
  return known(reshardings_, ReshardKey{from, to, price ? bits_of(dtype) : 0}, [&] {
    Resharding made;
    Result<std::vector<ReshardStep>> steps = weft::reshard(from, to, mesh, price, dtype);
    if (!steps.ok()) {
      made.problem = steps.error();
      return std::make_shared<const Resharding>(std::move(made));
    }
    made.steps = std::move(steps).value();
    const Layout* before = &from;
    for (const ReshardStep& step : made.steps) {
      made.sent.push_back(elements_sent(step, *before, mesh));
      before = &step.to;
    }
    return std::make_shared<const Resharding>(std::move(made));
  });
}

}  // namespace weft
