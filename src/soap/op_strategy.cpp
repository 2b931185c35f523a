#include "soap/op_strategy.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/check.h"

namespace weft {
namespace {

IdRange<OpId> forward_ops(const TrainingGraph& training) { return IdRange<OpId>(training.first_backward.index()); }

bool has_kind(const TrainingGraph& training, OpKind kind) {
  for (OpId op : forward_ops(training))
    if (training.graph.kind(op) == kind) return true;
  return false;
}

// Split by samples over the devices, or whole on the first of them.
OpConfig by_samples(const Signature& signature, const std::vector<DeviceId>& devices, SoapMeshes& meshes) {
  const int samples = sample_axis(signature), count = static_cast<int>(devices.size());
  if (samples < 0 || !divides(signature, samples, count))
    return meshes.config({1, 1, 1}, {-1, -1, -1}, {devices.front()});
  return meshes.config({count, 1, 1}, {samples, -1, -1}, devices);
}

// The depth of operators in a recurrent network: of a cell, the number of layers up to it; of others, of their deepest
// input.
IdVec<OpId, int> depths(const TrainingGraph& training) {
  const Graph& graph = training.graph;
  IdVec<OpId, int> depth(training.first_backward.index(), 0);
  std::map<TensorId, int> of_weight;  // cells of one layer share their weights
  for (OpId op : forward_ops(training)) {
    TensorId weight;
    for (TensorId input : graph.inputs(op)) {
      const Tensor& tensor = graph.tensors()[input];
      if (tensor.kind == TensorKind::Parameter && !weight.valid()) weight = input;
      if (tensor.producer.valid()) depth[op] = std::max(depth[op], depth[tensor.producer]);
    }
    if (!weight.valid() || graph.signature(op).contractions.empty()) continue;  // embeddings and biases are not layers
    const auto [found, fresh] = of_weight.try_emplace(weight, depth[op] + 1);
    depth[op] = found->second;
  }
  return depth;
}

}  // namespace

SoapMeshes::SoapMeshes(std::array<int, kSoapAxes> grid, std::vector<DeviceId> devices) : devices_(std::move(devices)) {
  id_of(grid, devices_);
}

MeshId SoapMeshes::id_of(std::array<int, kSoapAxes> sizes, const std::vector<DeviceId>& devices) {
  const auto [found, fresh] = known_.try_emplace({sizes, devices}, MeshId(meshes_.size()));
  if (fresh) {
    Result<Mesh> mesh = Mesh::make({{"x", sizes[0]}, {"y", sizes[1]}, {"z", sizes[2]}}, devices);
    WEFT_CHECK(mesh.ok(), "sizes multiply to the number of devices");
    meshes_.push_back(std::move(mesh).value());
  }
  return found->second;
}

OpConfig SoapMeshes::config(std::array<int, kSoapAxes> sizes, std::array<int, kSoapAxes> split,
                            const std::vector<DeviceId>& devices) {
  OpConfig config;
  std::size_t used = 0;
  for (std::size_t m = 0; m < kSoapAxes; ++m) {
    if (sizes[m] == 1) continue;
    sizes[used] = sizes[m];
    config.split[used++] = static_cast<std::int8_t>(split[m]);
  }
  for (std::size_t m = used; m < kSoapAxes; ++m) sizes[m] = 1;
  config.mesh = id_of(sizes, devices);
  return config;
}

int devices_per_node(const Cluster& cluster, const std::vector<DeviceId>& devices) {
  std::vector<std::size_t> runs;
  for (std::size_t i = 0; i < devices.size(); ++i) {
    const bool same = i > 0 && cluster.node_of(devices[i]) == cluster.node_of(devices[i - 1]);
    if (same)
      ++runs.back();
    else
      runs.push_back(1);
  }
  const bool even = !runs.empty() && std::all_of(runs.begin(), runs.end(), [&](auto run) { return run == runs[0]; });
  return even ? static_cast<int>(runs[0]) : 1;
}

int sample_axis(const Signature& signature) {
  for (std::size_t a = 0; a < signature.axes.size(); ++a)
    if (signature.axes[a].kind == AxisKind::Sample) return static_cast<int>(a);
  return -1;
}

bool divides(const Signature& signature, int axis, std::int64_t parts) {
  const Axis& of = signature.axes[static_cast<std::size_t>(axis)];
  return parts == 1 || (splittable(signature, axis) && of.size % parts == 0 && of.size / parts % of.granule == 0);
}

IdVec<OpId, OpConfig> renumbered(const SoapStrategy& strategy, SoapMeshes& meshes) {
  IdVec<MeshId, MeshId> now(strategy.meshes.size());
  IdVec<OpId, OpConfig> ops;
  for (const OpConfig& config : strategy.ops) {
    const Mesh& mesh = strategy.meshes[config.mesh];
    if (!now[config.mesh].valid())
      now[config.mesh] = meshes.id_of({mesh.axes()[0].size, mesh.axes()[1].size, mesh.axes()[2].size}, mesh.devices());
    ops.push_back({now[config.mesh], config.split});
  }
  return ops;
}

Placing placing_of(const SoapStrategy& strategy, const Graph& graph) {
  Placing placing;
  placing.meshes = strategy.meshes;
  placing.stage_of.resize(strategy.meshes.size(), 0);
  placing.mesh_of.resize(graph.ops().size(), MeshId(0));
  for (OpId op : strategy.ops.ids()) placing.mesh_of[op] = strategy.ops[op].mesh;
  return placing;
}

std::vector<std::optional<AxisChoice>> axes_of(const OpConfig& config, const Signature& signature, std::int64_t outer) {
  std::vector<std::optional<AxisChoice>> axes;
  for (std::int8_t axis : config.split) {
    AxisChoice& choice = axes.emplace_back(AxisChoice{}).value();
    if (axis < 0) continue;
    choice.axis = signature.axes[static_cast<std::size_t>(axis)].name;
    if (choice.axis == "n") choice.outer = outer;
  }
  return axes;
}

namespace {

std::int64_t outer_of(const SoapStrategy& strategy, OpId op) {
  const auto found = strategy.outer.find(op);
  return found == strategy.outer.end() || strategy.ops[op].mesh != MeshId(0) ? 1 : found->second;
}

}  // namespace

ShardingChoices choices_of(const SoapStrategy& strategy, const Graph& graph) {
  ShardingChoices choices;
  choices.ops.resize(kSoapAxes);
  choices.inputs.resize(kSoapAxes);
  choices.reduce_onto.resize(kSoapAxes);
  for (OpId op : strategy.ops.ids()) {
    const auto axes = axes_of(strategy.ops[op], graph.signature(op), outer_of(strategy, op));
    for (std::size_t m = 0; m < kSoapAxes; ++m) choices.ops[m][op] = *axes[m];
  }
  return choices;
}

namespace {

std::array<int, kSoapAxes> sizes_of(const Mesh& mesh) {
  return {mesh.axes()[0].size, mesh.axes()[1].size, mesh.axes()[2].size};
}

// Whether several mesh axes split the same axis of the operator.
bool repeats(const OpConfig& config, const Mesh& mesh) {
  for (std::size_t m = 0; m < kSoapAxes; ++m)
    for (std::size_t before = 0; before < m; ++before)
      if (config.split[m] >= 0 && config.split[m] == config.split[before] && mesh.axes()[m].size > 1 &&
          mesh.axes()[before].size > 1)
        return true;
  return false;
}

// The same parts on the same devices with mesh axes merged that split the same axis: from x and z along b and y along n
// to one axis of size x·z and one of size y, with devices reordered accordingly.
OpConfig merged(const OpConfig& config, const Mesh& mesh, SoapMeshes& meshes) {
  OpConfig result;
  std::array<int, kSoapAxes> sizes = {1, 1, 1};
  std::array<std::size_t, kSoapAxes> into{};  // by mesh axis: the merged axis that contains it
  // Starts at the second axis, so that the result differs from the grid even if it has the same shape.
  std::size_t used = 0;
  for (std::size_t m = 0; m < kSoapAxes; ++m) {
    if (mesh.axes()[m].size == 1) continue;
    std::size_t at = 1;
    while (at <= used && result.split[at] != config.split[m]) ++at;
    used = std::max(used, at);
    result.split[at] = config.split[m];
    sizes[at] *= mesh.axes()[m].size;
    into[m] = at;
  }
  std::vector<DeviceId> devices(mesh.devices().size());
  for (int position = 0; position < mesh.size(); ++position) {
    std::array<int, kSoapAxes> part = {0, 0, 0};
    for (std::size_t m = 0; m < kSoapAxes; ++m)
      part[into[m]] = part[into[m]] * mesh.axes()[m].size + mesh.coordinate(position, static_cast<int>(m));
    const int there = (part[0] * sizes[1] + part[1]) * sizes[2] + part[2];
    devices[static_cast<std::size_t>(there)] = mesh.devices()[static_cast<std::size_t>(position)];
  }
  result.mesh = meshes.id_of(sizes, devices);
  return result;
}

// The mesh that becomes the tree's grid of all devices: mesh 0 if operators need it, else the one with the most
// operators that have two mesh axes on one axis, which only the grid can express.
MeshId grid_to_write(const SoapStrategy& strategy) {
  if (!strategy.outer.empty()) return MeshId(0);
  IdVec<MeshId, int> needed(strategy.meshes.size(), 0);
  for (const OpConfig& config : strategy.ops) {
    const Mesh& mesh = strategy.meshes[config.mesh];
    for (std::size_t m = 0; m < kSoapAxes; ++m)
      if (config.split[m] < 0 && mesh.axes()[m].size > 1) return MeshId(0);
    if (repeats(config, mesh) && mesh.devices() == strategy.meshes[MeshId(0)].devices()) ++needed[config.mesh];
  }
  return MeshId(static_cast<std::size_t>(std::max_element(needed.begin(), needed.end()) - needed.begin()));
}

}  // namespace

SoapStrategy as_written(const SoapStrategy& strategy) {
  const MeshId grid = grid_to_write(strategy);
  SoapMeshes meshes(sizes_of(strategy.meshes[grid]), strategy.meshes[grid].devices());
  SoapStrategy written = strategy;
  for (OpConfig& config : written.ops) {
    if (config.mesh == grid) {
      config.mesh = MeshId(0);
      continue;
    }
    const Mesh& mesh = strategy.meshes[config.mesh];
    if (!repeats(config, mesh)) {
      config.mesh = meshes.id_of(sizes_of(mesh), mesh.devices());
      continue;
    }
    config = merged(config, mesh, meshes);
  }
  written.meshes = meshes.meshes();
  return written;
}

Strategy to_tree(const SoapStrategy& strategy, const Graph& graph) {
  Strategy tree;
  const Mesh& all = strategy.meshes[MeshId(0)];
  for (const MeshAxis& axis : all.axes())
    if (axis.size > 1 || tree.mesh.axes.empty()) tree.mesh.axes.push_back(axis);
  for (DeviceId device : all.devices()) tree.mesh.devices.push_back(device.index());
  tree.schedule.name = "gpipe";
  for (OpId op : strategy.ops.ids()) {
    const OpConfig& config = strategy.ops[op];
    const Mesh& mesh = strategy.meshes[config.mesh];
    Rule rule;
    rule.match = graph.name(op);
    const auto axes = axes_of(config, graph.signature(op), outer_of(strategy, op));
    if (config.mesh == MeshId(0)) {
      for (std::size_t m = 0; m < kSoapAxes; ++m)
        if (tree.mesh.size_of(mesh.axes()[m].name) > 1 || mesh.axes()[m].name == tree.mesh.axes.front().name)
          rule.compute[mesh.axes()[m].name] = {axes[m]->axis, axes[m]->outer, {}};
    } else {
      rule.place.emplace();
      for (std::size_t m = 0; m < kSoapAxes; ++m)
        if (mesh.axes()[m].size > 1) rule.place->degrees.push_back({axes[m]->axis, mesh.axes()[m].size});
      for (DeviceId device : mesh.devices()) rule.place->devices.push_back(device.index());
    }
    tree.rules.push_back(std::move(rule));
  }
  return tree;
}

SoapStrategy data_parallel_strategy(const TrainingGraph& training, SoapMeshes& meshes) {
  SoapStrategy strategy{"data parallel", {}, {}, {}};
  for (OpId op : forward_ops(training))
    strategy.ops.push_back(by_samples(training.graph.signature(op), meshes.devices(), meshes));
  strategy.meshes = meshes.meshes();
  return strategy;
}

SoapStrategy expert_strategy(const TrainingGraph& training, const Cluster& cluster, SoapMeshes& meshes) {
  SoapStrategy strategy = data_parallel_strategy(training, meshes);
  strategy.name = "expert";
  const Graph& graph = training.graph;
  const std::vector<DeviceId> all = meshes.devices();
  const int count = static_cast<int>(all.size());
  if (has_kind(training, OpKind::LstmCell)) {
    std::map<NodeId, std::vector<DeviceId>> nodes;
    for (DeviceId device : all) nodes[cluster.node_of(device)].push_back(device);
    std::size_t each = all.size();
    for (const auto& [node, devices] : nodes) each = std::min(each, devices.size());
    const IdVec<OpId, int> depth = depths(training);
    int deepest = 0;
    for (int d : depth) deepest = std::max(deepest, d);
    for (OpId op : forward_ops(training)) {
      // Layers in order over the devices of a node, as evenly as possible.
      const auto at = static_cast<std::size_t>(depth[op]) * each / static_cast<std::size_t>(deepest + 1);
      std::vector<DeviceId> devices;
      for (const auto& [node, members] : nodes) devices.push_back(members[at]);
      strategy.ops[op] = by_samples(graph.signature(op), devices, meshes);
    }
  } else if (has_kind(training, OpKind::Conv2d)) {
    for (OpId op : forward_ops(training)) {
      const Signature& signature = graph.signature(op);
      if (signature.kind != OpKind::Linear) continue;
      const int outputs = signature.axis_named("n");
      for (int parts = count; parts > 1; parts /= 2)
        if (divides(signature, outputs, parts) && count % parts == 0) {
          const std::vector<DeviceId> some(all.begin(), all.begin() + parts);
          strategy.ops[op] = {meshes.id_of({parts, 1, 1}, some), {static_cast<std::int8_t>(outputs), -1, -1}};
          break;
        }
    }
  }
  strategy.meshes = meshes.meshes();
  return strategy;
}

SoapStrategy strategy_of(const LayoutProblem& problem, const std::vector<std::uint32_t>& option,
                         const TrainingGraph& training, const SoapMeshes& meshes) {
  SoapStrategy strategy{"", meshes.meshes(), IdVec<OpId, OpConfig>(training.first_backward.index()), {}};
  for (VariableId v : problem.ops.ids()) {
    const std::vector<std::string>& split = problem.splits[v][option[v.index()]];
    for (OpId op : problem.ops[v]) {
      OpConfig& config = strategy.ops[op];
      for (std::size_t m = 0; m < split.size(); ++m)
        config.split[m] = split[m].empty()
                              ? std::int8_t{-1}
                              : static_cast<std::int8_t>(training.graph.signature(op).axis_named(split[m]));
      if (problem.outer[v] > 1) strategy.outer[op] = problem.outer[v];
    }
  }
  return strategy;
}

}  // namespace weft
