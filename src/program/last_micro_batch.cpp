#include "program/last_micro_batch.h"

#include <algorithm>

#include "base/check.h"

namespace weft {
namespace {

// The axis of a dimension that has fewer elements.
struct Shrunk {
  std::int64_t stride = 1;             // elements of the dimension from one index of the axis to the next
  std::int64_t before = 1, after = 1;  // size of the axis
};

class Shrinker {
 public:
  Shrinker(const Program& program, const Graph& graph, const Graph& smaller)
      : program_(program), graph_(graph), smaller_(smaller) {}

  Result<Program> run() {
    if (graph_.tensors().size() != smaller_.tensors().size() || graph_.ops().size() != smaller_.ops().size())
      return error("the last micro-batch has another network than the others");
    Program made = program_;
    for (BufferId id : made.buffers.ids()) {
      const Status shrunk = shrink(made.buffers[id]);
      if (!shrunk.ok()) return shrunk.error();
    }
    for (const Instruction& instruction : made.instructions)
      if (const auto* compute = std::get_if<Compute>(&instruction.what)) WEFT_TRY_OK(check(*compute));
    return made;
  }

 private:
  // The axis by which a dimension of a tensor shrinks, among those that index it in the operator that makes it.
  Result<Shrunk> axis_of(TensorId id, std::size_t dim) const {
    const Tensor& tensor = graph_.tensors()[id];
    const std::int64_t before = tensor.type.shape[dim], after = smaller_.tensors()[id].type.shape[dim];
    if (!tensor.producer.valid()) return Shrunk{1, before, after};
    const Signature &of = graph_.signature(tensor.producer), &to = smaller_.signature(tensor.producer);
    const std::vector<int>& factors = of.outputs[tensor.output].dims[dim].factors;
    Shrunk found;
    std::int64_t stride = 1;
    int changed = 0;
    for (auto factor = factors.rbegin(); factor != factors.rend(); ++factor) {
      const auto axis = static_cast<std::size_t>(*factor);
      if (of.axes[axis].size != to.axes[axis].size) {
        found = {stride, of.axes[axis].size, to.axes[axis].size};
        ++changed;
      }
      stride *= of.axes[axis].size;
    }
    if (changed != 1)
      return error("{}: dimension {} does not shrink by its samples alone in a smaller last micro-batch",
                   graph_.name(id), dim);
    return found;
  }

  // Whether the cuts, whose shares are relative, give every device a whole number of elements of this size.
  static bool divides(std::int64_t size, const std::vector<Cut>& cuts, const Mesh& mesh) {
    for (const Cut& cut : cuts) {
      const std::int64_t units = units_of(cut.shares, mesh.axes()[static_cast<std::size_t>(cut.mesh_axis)].size);
      if (size % units != 0) return false;
      size /= units;
    }
    return true;
  }
  Error does_not_divide(TensorId id) const {
    return error("{}: the samples of the last micro-batch do not divide over the devices that share them",
                 graph_.name(id));
  }

  Status shrink(Buffer& buffer) const {
    const Shape &before = graph_.tensors()[buffer.tensor].type.shape,
                &after = smaller_.tensors()[buffer.tensor].type.shape;
    if (before == after) return Ok{};
    const Mesh& mesh = program_.meshes[buffer.layout.mesh];
    for (std::size_t d = 0; d < before.size(); ++d) {
      if (before[d] == after[d]) continue;
      WEFT_TRY(const Shrunk by, axis_of(buffer.tensor, d));
      // The factor of the dimension that has the axis's outermost elements.
      DimLayout& dim = buffer.layout.dims[d];
      std::int64_t inside = 1;
      std::size_t at = dim.size() - 1;
      while (at > 0 && inside * dim[at].size < by.stride * by.before) inside *= dim[at--].size;
      Factor& factor = dim[at];
      if (factor.size * by.after % by.before != 0) return does_not_divide(buffer.tensor);
      factor.size = factor.size * by.after / by.before;
      if (!divides(factor.size, factor.cuts, mesh)) return does_not_divide(buffer.tensor);
    }
    canonicalize(buffer.layout, mesh);
    return Ok{};
  }

  // An error where the operator's sharding does not divide the axes of the smaller graph.
  Status check(const Compute& compute) const {
    const Signature &of = graph_.signature(compute.op), &to = smaller_.signature(compute.op);
    for (std::size_t a = 0; a < of.axes.size(); ++a) {
      if (of.axes[a].size == to.axes[a].size || compute.sharding.axes[a].empty()) continue;
      const std::int64_t outer = compute.sharding.outer.empty() ? 1 : compute.sharding.outer[a];
      if (!divides(to.axes[a].size / outer, compute.sharding.axes[a], program_.meshes[compute.sharding.mesh]))
        return does_not_divide(graph_.outputs(compute.op).front());
    }
    return Ok{};
  }

  const Program& program_;
  const Graph &graph_, &smaller_;
};

}  // namespace

Result<Program> for_last_micro_batch(const Program& program, const Graph& graph, const Graph& smaller) {
  return Shrinker(program, graph, smaller).run();
}

}  // namespace weft
