#include "compile/tensor_buffers.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/check.h"
#include "compile/parameter_layout.h"

namespace weft {

BufferId TensorBuffers::add(TensorId tensor, Layout layout, BufferKind kind) {
  const BufferId id = emitter_.add_buffer(tensor, std::move(layout), kind);
  group_.code->buffers.back().available = tensor;
  available_[tensor].push_back(id);
  return id;
}

bool TensorBuffers::on_mesh(TensorId tensor, MeshId on) const {
  return std::any_of(available_[tensor].begin(), available_[tensor].end(),
                     [&](BufferId id) { return program_.buffers[id].layout.mesh == on; });
}

BufferId TensorBuffers::elsewhere(TensorId tensor, MeshId on, bool weight_part) const {
  for (BufferId id : available_[tensor])
    if (origins_.usable(id, position_.phase, weight_part) && program_.buffers[id].layout.mesh != on && !is_factor(id))
      return id;
  return BufferId();
}

// Whether a collective on an activation needs a copy before or after it, because the parts that it gathers or scatters
// are not contiguous: a dimension outside of the one that is cut is longer than 1. Samples and sequences do not count:
// Megatron-LM lays activations out with sequences outermost, so that what sequence parallelism gathers is contiguous;
// frameworks that gather samples have samples outermost.
bool TensorBuffers::needs_staging(const ReshardStep& step, const Layout& from) const {
  if (step.collective != Collective::AllGather && step.collective != Collective::ReduceScatter) return false;
  constexpr std::size_t kOuter = 2;  // samples, sequences
  std::size_t changed = kOuter;
  while (changed < from.dims.size() && from.dims[changed] == step.to.dims[changed]) ++changed;
  if (changed >= from.dims.size()) return false;
  const Shape before = local_shape(from, splits_.mesh(from.mesh), 0);
  return std::any_of(before.begin(), before.begin() + static_cast<std::ptrdiff_t>(changed),
                     [](std::int64_t size) { return size > 1; });
}

struct TensorBuffers::Route {
  double cost = std::numeric_limits<double>::infinity();  // elements sent, or the price of sending them
  BufferId source;
  std::shared_ptr<const Resharding> way = nullptr;
};

// The cheapest way to the layout from a buffer on the same mesh.
TensorBuffers::Route TensorBuffers::cheapest(TensorId tensor, const Layout& wanted, const ReshardManner& manner,
                                             std::optional<Error>& problem) {
  Route best;
  const Mesh& mesh = splits_.mesh(wanted.mesh);
  for (BufferId id : available_[tensor]) {
    const Buffer& buffer = program_.buffers[id];
    if (buffer.layout.mesh != wanted.mesh || !readable(id, manner)) continue;
    std::shared_ptr<const Resharding> way = splits_.reshard(
        buffer.layout, wanted, group_.of_parameter ? nullptr : options_.prices, graph_.tensors()[tensor].type.dtype);
    if (way->problem) {
      problem = way->problem;
      continue;
    }
    double cost = buffer.on_host ? static_cast<double>(largest_local_elements(buffer.layout, mesh)) : 0;
    for (double sent : way->sent) cost += sent + 1e-6;  // of equal ways the one with fewer steps
    if (cost < best.cost) best = {cost, id, std::move(way)};
  }
  return best;
}

Result<BufferId> TensorBuffers::as(TensorId tensor, const Layout& wanted, ReshardManner manner) {
  for (BufferId id : available_[tensor])
    if (readable(id, manner) && !program_.buffers[id].on_host && program_.buffers[id].layout == wanted) return id;
  return make_as(tensor, wanted, manner);
}

// The layout is taken by value, because it may be that of a buffer, and buffers move when one is added.
Result<BufferId> TensorBuffers::make_as(TensorId tensor, Layout wanted, ReshardManner manner) {
  std::optional<Error> problem;
  Route best = cheapest(tensor, wanted, manner, problem);
  if (!best.source.valid()) {
    WEFT_TRY(const bool brought, bring(tensor, wanted, manner));
    if (!brought)
      return problem ? problem->at(graph_.name(tensor)) : error("{}: nothing holds it here", graph_.name(tensor));
    best = cheapest(tensor, wanted, manner, problem);
    WEFT_CHECK(best.source.valid(), "{} was brought and cannot be used", graph_.name(tensor));
  }
  if (program_.buffers[best.source].on_host) {
    const Layout layout = program_.buffers[best.source].layout;
    const BufferId loaded = add(tensor, layout, BufferKind::Temporary);
    emitter_.emit(wanted.mesh, Copy{best.source, loaded});
    best.source = loaded;
  }
  for (const ReshardStep& step : best.way->steps) {
    const BufferId next = add(tensor, step.to, BufferKind::Temporary);
    BufferList inputs = {best.source};
    if (step.reducer == Reducer::SoftmaxMerge) {
      WEFT_TRY(const BufferId weights, merge_weights(tensor, program_.buffers[best.source].layout, manner));
      inputs.push_back(weights);
    }
    // A slice of a parameter or state is a view. A slice of what a micro-batch made is a view in the step only:
    // micro-batches that no step follows could not free it otherwise.
    const BufferId memory = program_.buffers[best.source].memory;
    const BufferKind kind = program_.buffers[memory].kind;
    const bool step_phase = position_.phase == Phase::Step;
    if (manner.in_place || (group_.of_parameter && step.collective == Collective::Slice &&
                            (step_phase || kind == BufferKind::Parameter || kind == BufferKind::State)))
      program_.buffers[next].memory = memory;
    // What a split backward gathers of a recomputed activation, its weight part gathers once more: the zero-bubble fork
    // of Megatron-LM keeps the part that sequence parallelism leaves with each device in its WeightGradStore.
    // (Gradients are kept as they were gathered for both parts there, and so here.)
    if (options_.split_backward && !options_.keep_gathered_input && position_.phase == Phase::Backward &&
        !position_.weight_part && step.collective == Collective::AllGather &&
        graph_.tensors()[tensor].kind == TensorKind::Activation)
      origins_.set_readers(next, Readers::InputPart);
    Communicate what{step.collective, step.axes, step.reducer, std::move(inputs), {next}};
    // A factor is rounded before it is gathered, and stays rounded (Transformer Engine).
    std::optional<DType>& narrow = program_.buffers[next].narrow;
    if (!narrow) narrow = program_.buffers[best.source].narrow;
    if (!narrow && manner.factor && step.collective == Collective::AllGather) narrow = what.wire = manner.factor;
    // Parameters are cut as flat tensors, and so is what is sent in parts (Megatron-LM's
    // split_tensor_into_1d_equal_chunks): their parts are contiguous.
    what.staged =
        !group_.of_parameter && !manner.of_transfer && needs_staging(step, program_.buffers[best.source].layout);
    if (manner.of_transfer && step_phase && step.collective != Collective::Slice)
      emitter_.emit(wanted.mesh, std::move(what), Stream::Tensor);
    else
      emitter_.emit(wanted.mesh, std::move(what));
    best.source = next;
  }
  return best.source;
}

// What weighs the contributions of attention over split keys: the log-sum-exp of the same shards, reduced over the mesh
// axes over which they are.
Result<BufferId> TensorBuffers::merge_weights(TensorId tensor, Layout contributions, ReshardManner manner) {
  const OpId producer = graph_.tensors()[tensor].producer;
  const Signature& signature = graph_.signature(producer);
  std::size_t lse = 0;
  while (signature.outputs[lse].reducer != Reducer::LogSumExp) ++lse;
  OpSharding sharding = splits_.planned(producer, contributions.mesh);
  sharding.mesh = contributions.mesh;
  Layout wanted = operand_layout(signature, true, lse, sharding, splits_.mesh(sharding.mesh));
  for (std::size_t axis = 0; axis < wanted.partial.size(); ++axis)
    if (!contributions.partial[axis]) wanted.partial[axis].reset();
  return as(graph_.outputs(producer)[lse], wanted, manner);
}

// Sends a tensor onto the wanted layout's mesh. False where no mesh holds it.
Result<bool> TensorBuffers::bring(TensorId tensor, const Layout& wanted, ReshardManner manner) {
  bool weight_part = false;
  BufferId source = elsewhere(tensor, wanted.mesh, false);
  if (!source.valid()) {
    weight_part = position_.weight_part;
    source = elsewhere(tensor, wanted.mesh, weight_part);
  }
  passages_.add_source(source);
  if (!source.valid()) return false;
  const Temporarily part(position_.weight_part, weight_part);
  manner.factor.reset();  // what is sent from mesh to mesh may have other readers there
  return bring_from(source, wanted, manner);
}

// Partial sums are reduced before they are sent: where both meshes have the same axes onto the wanted cuts, so that
// each device sends to its counterpart.
Result<bool> TensorBuffers::bring_from(BufferId source, const Layout& wanted, ReshardManner manner) {
  const TensorId tensor = program_.buffers[source].tensor;
  const Layout from = program_.buffers[source].layout;
  const bool alike = splits_.mesh(from.mesh).axes() == splits_.mesh(wanted.mesh).axes();
  Layout there = without_halos(wanted), here = there;
  for (auto& reducer : there.partial) reducer.reset();
  if (alike) {
    if (!is_partial(from)) there.dims = without_halos(from).dims;
    here = there;
    here.mesh = from.mesh;
  } else {
    here = without_halos(from);
    for (auto& reducer : here.partial) reducer.reset();
  }
  WEFT_TRY(BufferId ready, as(tensor, here, manner));
  const Layout part = in_parts(there);
  if (part != there && alike) {
    here.dims = part.dims;
    WEFT_TRY(ready, as(tensor, here, manner));
  }
  const BufferId arrived = part == there ? add(tensor, there, BufferKind::Temporary)
                                         : emitter_.add_buffer(tensor, part, BufferKind::Temporary);
  const TransferId transfer = emitter_.add_transfer(ready, arrived);
  emitter_.emit(from.mesh, Send{transfer});
  emitter_.emit(wanted.mesh, Receive{transfer});
  if (part == there) return true;
  // What arrives in parts is gathered at once: what is read, and perhaps saved, is whole.
  available_[tensor].push_back(arrived);
  manner.of_transfer = true;
  const Result<BufferId> whole = as(tensor, there, manner);
  erase_if(available_[tensor], [&](BufferId id) { return id == arrived; });
  if (!whole.ok()) return whole.error();
  return true;
}

// The layout cut along the mesh axes over which devices of one node hold the same, as far as it divides evenly.
Layout TensorBuffers::in_parts(const Layout& layout) const {
  const std::vector<int>& node = options_.transfers.node;
  if (node.empty()) return layout;
  const Mesh& on = splits_.mesh(layout.mesh);
  const auto node_at = [&](int position) { return node[on.devices()[static_cast<std::size_t>(position)].index()]; };
  Layout part = layout;
  MeshAxes alike = 0;
  for (std::size_t axis = 0; axis < on.axes().size(); ++axis) {
    const MeshAxes one = MeshAxes{1} << axis;
    if (on.axes()[axis].size == 1 || (split_axes(layout) & one) != 0) continue;
    bool inside = true;
    for (int position = 0; position < on.size() && inside; ++position)
      inside = node_at(position) == node_at(on.group_leader(position, alike | one));
    if (!inside) continue;
    Layout cut = split_over(part, on, one);
    bool even = true;
    for (const DimLayout& dim : cut.dims)
      for (const Factor& factor : dim)
        for (const Cut& each : factor.cuts)
          even = even && (static_cast<std::size_t>(each.mesh_axis) != axis || each.shares.empty());
    if (!even) continue;
    part = std::move(cut);
    alike |= one;
  }
  return part;
}

}  // namespace weft
