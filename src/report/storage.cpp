#include "report/storage.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "report/traffic.h"

namespace weft {

std::vector<HeldKind> held_kinds(const Plan& plan, const CompiledStrategy& compiled) {
  const Program& program = compiled.program;
  const Graph& graph = plan.training.graph;
  std::set<TensorId> gradients;
  for (const auto& [parameter, sum] : plan.training.accumulated) gradients.insert(graph.tensors()[sum].storage);
  std::map<MeshId, std::vector<std::int32_t>> ranks_of;

  struct Sum {
    std::vector<Bytes> bytes;
    std::map<std::vector<std::string>, double> cuts;
    std::map<DType, double> elements;  // by type
  };
  std::map<Stored, Sum> sums;
  for (BufferId id : program.buffers.ids()) {
    const Buffer& buffer = program.buffers[id];
    if (buffer.memory != id || (buffer.kind != BufferKind::Parameter && buffer.kind != BufferKind::State)) continue;
    if (buffer.kind == BufferKind::State && sums_losses(graph, buffer.tensor)) continue;
    const Tensor& tensor = graph.tensors()[buffer.tensor];
    const Stored kind = buffer.kind == BufferKind::Parameter ? Stored::Weights
                        : gradients.contains(buffer.tensor)  ? Stored::Gradients
                                                             : Stored::Optimizer;
    const Mesh& mesh = program.meshes[buffer.layout.mesh];
    Sum& sum = sums[kind];
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
    sum.elements[dtype] += static_cast<double>(graph.bytes(buffer.tensor).value) * 8 / bits_of(dtype);
  }

  std::vector<HeldKind> kinds;
  const double parameters = sums.contains(Stored::Weights) ? [&] {
    double all = 0;
    for (const auto& [dtype, elements] : sums[Stored::Weights].elements) all += elements;
    return all;
  }() : 0;
  for (auto& [kind, sum] : sums) {
    HeldKind held{kind, "", sum.bytes, {}};
    std::vector<std::string> types;
    for (const auto& [dtype, elements] : sum.elements) {
      const auto copies = static_cast<int>(elements / std::max(parameters, 1.0) + 0.5);
      types.push_back(copies > 1 ? fmt::format("{} ×{}", name_of(dtype), copies) : std::string(name_of(dtype)));
    }
    held.types = fmt::format("{}", fmt::join(types, ", "));
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
