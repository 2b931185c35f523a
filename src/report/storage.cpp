#include "report/storage.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "report/traffic.h"

namespace weft {

namespace {

// Weights, gradients or optimizer state; none: it is not kept between steps, or accumulates losses.
std::optional<Stored> kind_of(const TrainingGraph& training, const std::set<TensorId>& gradients, TensorId id) {
  const TensorKind kind = training.graph.tensors()[id].kind;
  if (kind == TensorKind::Parameter) return Stored::Weights;
  if (kind != TensorKind::State || sums_losses(training.graph, id)) return std::nullopt;
  return gradients.contains(id) ? Stored::Gradients : Stored::Optimizer;
}

std::set<TensorId> gradient_sums(const TrainingGraph& training) {
  std::set<TensorId> gradients;
  for (const auto& [parameter, sum] : training.accumulated) gradients.insert(training.graph.tensors()[sum].storage);
  return gradients;
}

double elements_of(const Graph& graph, TensorId id) {
  double count = 1;
  for (std::int64_t size : graph.tensors()[id].type.shape) count *= static_cast<double>(size);
  return count;
}

}  // namespace

std::string KeptTypes::names() const {
  std::vector<std::string> types;
  for (const auto& [dtype, count] : elements) {
    const auto copies = static_cast<int>(count / std::max(parameters, 1.0) + 0.5);
    types.push_back(copies > 1 ? fmt::format("{} ×{}", name_of(dtype), copies) : std::string(name_of(dtype)));
  }
  return fmt::format("{}", fmt::join(types, ", "));
}

double KeptTypes::bytes_each() const {
  double bytes = 0;
  for (const auto& [dtype, count] : elements) bytes += count * bits_of(dtype) / 8;
  return parameters > 0 ? bytes / parameters : 0;
}

KeptTypes kept_types(const TrainingGraph& training, Stored kind) {
  const Graph& graph = training.graph;
  const std::set<TensorId> gradients = gradient_sums(training);
  KeptTypes kept;
  for (TensorId id : graph.tensors().ids())
    if (!graph.tensors()[id].producer.valid() && kind_of(training, gradients, id) == kind)
      kept.elements[graph.tensors()[id].type.dtype] += elements_of(graph, id);
  if (kind == Stored::Weights)
    for (const auto& [dtype, count] : kept.elements) kept.parameters += count;
  else
    for (const auto& [parameter, sum] : training.accumulated) kept.parameters += elements_of(graph, parameter);
  return kept;
}

std::vector<HeldKind> held_kinds(const Plan& plan, const CompiledStrategy& compiled) {
  const Program& program = compiled.program;
  const Graph& graph = plan.training().graph;
  const std::set<TensorId> gradients = gradient_sums(plan.training());
  std::map<MeshId, std::vector<std::int32_t>> ranks_of;

  struct Sum {
    std::vector<Bytes> bytes;
    std::map<std::vector<std::string>, double> cuts;
  };
  std::map<Stored, Sum> sums;
  for (BufferId id : program.buffers.ids()) {
    const Buffer& buffer = program.buffers[id];
    if (buffer.memory != id || (buffer.kind != BufferKind::Parameter && buffer.kind != BufferKind::State)) continue;
    const Tensor& tensor = graph.tensors()[buffer.tensor];
    const std::optional<Stored> kind = kind_of(plan.training(), gradients, buffer.tensor);
    if (!kind) continue;
    const Mesh& mesh = program.meshes[buffer.layout.mesh];
    Sum& sum = sums[*kind];
    sum.bytes.resize(static_cast<std::size_t>(compiled.schedule.ranks));
    const auto [known, fresh] = ranks_of.try_emplace(buffer.layout.mesh);
    if (fresh) known->second = ranks_of_mesh(compiled, buffer.layout.mesh);
    const DType dtype = tensor.type.dtype;
    for (std::int32_t rank : known->second)
      sum.bytes[static_cast<std::size_t>(rank)] += Bytes{bytes_of(dtype, largest_local_elements(buffer.layout, mesh))};
    std::vector<std::string> axes;
    for (std::size_t axis = mesh.axes().size(); axis-- > 0;)
      if ((split_axes(buffer.layout) >> axis & 1u) != 0 && mesh.axes()[axis].size > 1)
        axes.push_back(mesh.axes()[axis].name);
    sum.cuts[axes] += static_cast<double>(graph.bytes(buffer.tensor).value);
  }

  std::vector<HeldKind> kinds;
  for (auto& [kind, sum] : sums) {
    HeldKind held{kind, kept_types(plan.training(), kind).names(), sum.bytes, {}};
    double all = 0;
    for (const auto& [axes, bytes] : sum.cuts) all += bytes;
    for (const auto& [axes, bytes] : sum.cuts) held.cuts.emplace_back(axes, bytes / all);
    std::stable_sort(held.cuts.begin(), held.cuts.end(),
                     [](const auto& a, const auto& b) { return a.second > b.second; });
    kinds.push_back(std::move(held));
  }
  return kinds;
}

std::string describe_cuts(const HeldKind& held) {
  std::vector<std::string> parts;
  for (const auto& [axes, share] : held.cuts) {
    if (parts.size() == 3) break;
    const std::string what = axes.empty() ? "whole on every device" : fmt::format("cut over {}", fmt::join(axes, ", "));
    if (held.cuts.size() == 1)
      parts.push_back(what);
    else
      parts.push_back(share < 0.001 ? fmt::format("{} (< 0.1 %)", what)
                                    : fmt::format("{} ({:.1f} %)", what, 100 * share));
  }
  return fmt::format("{}", fmt::join(parts, "; "));
}

}  // namespace weft
