#include "run/check.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

namespace weft::runtime {
namespace {

double norm_of(const std::vector<double>& values) {
  double sum = 0;
  for (double value : values) sum += value * value;
  return std::sqrt(sum);
}

// Trained parameters and their gradients: what the optimizers read.
std::vector<std::pair<TensorId, TensorId>> trained(const Graph& graph) {
  std::vector<std::pair<TensorId, TensorId>> list;
  for (OpId op : graph.ops().ids()) {
    if (graph.ops()[op].phase != Phase::Step) continue;
    const Signature& signature = graph.signature(op);
    if (signature.inputs.size() >= 2 && signature.inputs[0].name == "p" && signature.inputs[1].name == "g")
      list.emplace_back(graph.inputs(op)[0], graph.inputs(op)[1]);
  }
  return list;
}

// What device 0 has put together, and what one device has.
struct Compared {
  std::string name;
  std::vector<double> actual, expected;
  double spread = 0;
};

void add(std::vector<double>& sum, const std::vector<double>& values) {
  sum.resize(values.size(), 0.0);
  for (std::size_t i = 0; i < values.size(); ++i) sum[i] += values[i];
}

// Relative to a tensor's norm, or, where that is next to nothing (a bias that began at zero), to that share of the largest.
void compare(const std::vector<Compared>& kind, double bound, double least, std::vector<Comparison>& list) {
  double largest = 0;
  for (const Compared& each : kind) largest = std::max(largest, norm_of(each.expected));
  for (const Compared& each : kind) {
    std::vector<double> off = each.actual;
    for (std::size_t i = 0; i < off.size(); ++i) off[i] -= each.expected[i];
    const double size = std::max(norm_of(each.expected), least * largest), apart = norm_of(off);
    list.push_back({each.name, size > 0 ? apart / size : apart, bound, each.spread});
  }
}

}  // namespace

namespace {

bool has_narrow(const Graph& graph) {
  return std::any_of(graph.tensors().begin(), graph.tensors().end(), [](const Tensor& tensor) {
    return tensor.type.dtype == DType::BF16 || tensor.type.dtype == DType::F16;
  });
}

}  // namespace

double check_bound(const Bundle& bundle) {
  if (bundle.numbers == Numbers::Float64) return 1e-9;
  return has_narrow(bundle.graph) ? 5e-2 : 1e-4;
}

Result<std::vector<Comparison>> check_step(Executor& executor, Unsharded* one_device, const Bundle& bundle, int device,
                                           const StepNumbers& numbers) {
  const Graph& graph = bundle.graph;
  const Program& program = bundle.program;
  const double bound = check_bound(bundle);
  if (device == 0) WEFT_TRY_OK(one_device->step(numbers));
  std::vector<Compared> losses, gradients, weights;
  const auto gather = [&](BufferId id, Compared& into) -> Status {
    WEFT_TRY(const std::optional<WholeTensor> whole, executor.gather(id));
    if (!whole) return Ok{};
    add(into.actual, whole->values);
    into.spread = std::max(into.spread, whole->spread);
    return Ok{};
  };
  for (BufferId id : program.buffers.ids()) {
    const Buffer& buffer = program.buffers[id];
    if (buffer.kind != BufferKind::Result) continue;
    Compared& each = losses.emplace_back();
    each.name = graph.name(buffer.tensor);
    WEFT_TRY_OK(gather(id, each));
    if (device == 0) each.expected = one_device->value(buffer.tensor);
  }
  for (const auto& [parameter, gradient] : trained(graph)) {
    // A parameter that is kept on several meshes has an accumulator on each; together they are the gradient.
    Compared sum{"gradient of " + graph.name(parameter), {}, {}, 0};
    for (BufferId id : program.buffers.ids()) {
      const Buffer& buffer = program.buffers[id];
      if (buffer.kind == BufferKind::State && buffer.storage == id &&
          buffer.tensor == graph.tensors()[gradient].storage)
        WEFT_TRY_OK(gather(id, sum));
    }
    if (device == 0) sum.expected = one_device->value(gradient);
    for (BufferId id : program.buffers.ids()) {
      const Buffer& buffer = program.buffers[id];
      const Tensor& tensor = graph.tensors()[buffer.tensor];
      if (buffer.kind != BufferKind::Parameter || tensor.kind != TensorKind::Update || tensor.storage != parameter)
        continue;
      Compared updated{graph.name(parameter), {}, {}, 0};
      WEFT_TRY_OK(gather(id, updated));
      if (device == 0) {
        updated.expected = one_device->value(parameter);
        if (bundle.numbers != Numbers::Float64) {
          // An optimizer that divides by the gradient's size moves a weight as far for rounding errors as for a gradient.
          const double rounding = has_narrow(graph) ? 0.1 : 1e-3;
          const double noise = rounding * norm_of(sum.expected) / std::sqrt(static_cast<double>(sum.expected.size()));
          for (std::size_t i = 0; i < updated.actual.size(); ++i)
            if (std::fabs(sum.expected[i]) <= noise) updated.actual[i] = updated.expected[i];
        }
      }
      weights.push_back(std::move(updated));
    }
    gradients.push_back(std::move(sum));
  }
  std::vector<Comparison> list;
  if (device != 0) return list;
  for (const std::vector<Compared>* kind : {&losses, &gradients, &weights})
    compare(*kind, bound, has_narrow(graph) ? 1e-2 : 1e-4, list);
  return list;
}

}  // namespace weft::runtime
