#include "strategy/tree.h"

#include <algorithm>
#include <numeric>
#include <tuple>

#include "layout/layout.h"

namespace weft {
namespace {

constexpr std::array<std::string_view, kStoredKinds> kStoredNames = {"weights", "gradients", "optimizer",
                                                                     "activations"};
constexpr std::array<std::string_view, 4> kRecomputeNames = {"none", "selective", "full", "op"};
constexpr std::array<std::string_view, 3> kContextNames = {"gather", "a2a", "ring"};

template <class Enum, std::size_t n>
std::optional<Enum> named(const std::array<std::string_view, n>& names, std::string_view name) {
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) return std::nullopt;
  return static_cast<Enum>(found - names.begin());
}

void inherit(const Rule& rule, std::size_t index, int depth, NodeConfig& config) {
  for (const auto& [mesh_axis, split] : rule.compute)
    config.compute.insert_or_assign(mesh_axis, Inherited<Split>{split, index, depth});
  for (const auto& [mesh_axis, split] : rule.inputs)
    config.inputs.insert_or_assign(mesh_axis, Inherited<InputSplit>{split, index, depth});
  for (std::size_t kind = 0; kind < kStoredKinds; ++kind) {
    const Storage& storage = rule.memory[kind];
    if (storage.over) config.over[kind] = {*storage.over, index, depth};
    if (storage.offload) config.offload[kind] = {*storage.offload, index, depth};
    for (const auto& [mesh_axis, ratio] : storage.ratio)
      config.ratio[kind].insert_or_assign(mesh_axis, Inherited<std::vector<std::int64_t>>{ratio, index, depth});
  }
  if (rule.recompute) config.recompute = {*rule.recompute, index, depth};
  if (rule.place) config.place = {*rule.place, index, depth};
}

}  // namespace

std::string_view name_of(Stored kind) { return kStoredNames[static_cast<std::size_t>(kind)]; }
std::string_view name_of(Recompute recompute) { return kRecomputeNames[static_cast<std::size_t>(recompute)]; }
std::optional<Recompute> recompute_named(std::string_view name) { return named<Recompute>(kRecomputeNames, name); }
std::string_view name_of(ContextMode mode) { return kContextNames[static_cast<std::size_t>(mode)]; }
std::optional<ContextMode> context_mode_named(std::string_view name) { return named<ContextMode>(kContextNames, name); }

int MeshDeclaration::size_of(std::string_view axis) const {
  for (const MeshAxis& known : axes)
    if (known.name == axis) return known.size;
  return 1;
}

namespace {

// How a mesh axis splits the tokens of inputs; null if it does not.
const InputSplit* tokens_over(const Strategy& strategy, const std::string& axis) {
  for (const Rule& rule : strategy.rules)
    if (const auto found = rule.inputs.find(axis); found != rule.inputs.end() && found->second.dim == 1)
      return &found->second;
  return nullptr;
}

}  // namespace

std::vector<std::int64_t> sequence_cuts(const Strategy& strategy) {
  enum class Cutting : std::uint8_t { None, Context, Sums };
  const auto cutting = [&](const std::string& axis) {
    if (const auto found = strategy.reduce_onto.find(axis); found != strategy.reduce_onto.end() && found->second == "s")
      return Cutting::Sums;
    return tokens_over(strategy, axis) ? Cutting::Context : Cutting::None;
  };
  std::vector<std::int64_t> cuts;
  Cutting last = Cutting::None;
  for (const MeshAxis& axis : strategy.mesh.axes) {
    std::int64_t size = axis.size;  // the least common multiple over all stages' meshes
    if (const InputSplit* const tokens = tokens_over(strategy, axis.name))
      size = units_of(reduced(tokens->ratio), axis.size);
    for (const Stage& stage : strategy.schedule.stages)
      if (stage.mesh) size = std::lcm(size, std::max(1, stage.mesh->size_of(axis.name)));
    const Cutting now = cutting(axis.name);
    if (now == Cutting::None || size == 1) continue;
    if (now == last)
      cuts.back() *= size;
    else
      cuts.push_back(size);
    last = now;
  }
  return cuts;
}

Inheritance::Inheritance(const Strategy& strategy, std::optional<std::int64_t> route) : strategy_(strategy) {
  for (std::size_t i = 0; i < strategy.rules.size(); ++i) {
    if (strategy.rules[i].route && strategy.rules[i].route != route) continue;
    Glob glob(strategy.rules[i].match);
    if (glob.literal())
      literal_[strategy.rules[i].match].push_back(i);
    else
      globs_.emplace_back(std::move(glob), i);
  }
}

NodeConfig Inheritance::of(std::string_view name) const {
  const std::vector<std::string_view> parts = components(name);
  const bool product = name.find('@') != std::string_view::npos;
  std::vector<std::tuple<int, int, std::size_t>> covering;  // depth, components without a wildcard, rule
  for (const auto& [glob, rule] : globs_)
    if (const std::optional<int> depth = glob.covers(parts)) covering.emplace_back(*depth, glob.literals(), rule);
  if (!literal_.empty()) {
    std::size_t end = 0;
    for (int depth = 0; depth <= static_cast<int>(parts.size()); ++depth) {
      if (depth > 0) end = static_cast<std::size_t>(parts[static_cast<std::size_t>(depth) - 1].end() - name.begin());
      if (product && depth < static_cast<int>(parts.size())) continue;
      const auto found = literal_.find(name.substr(0, end));
      if (found == literal_.end()) continue;
      for (std::size_t rule : found->second) covering.emplace_back(depth, depth, rule);
    }
  }
  std::sort(covering.begin(), covering.end());
  NodeConfig config;
  for (const auto& [depth, literals, rule] : covering) inherit(strategy_.rules[rule], rule, depth, config);
  return config;
}

}  // namespace weft
