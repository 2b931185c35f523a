#include "reference/one_device.h"

#include <algorithm>
#include <cmath>

#include "base/random.h"
#include "program/verify.h"
#include "reference/interpreter.h"
#include "reference/run_graph.h"

namespace weft::reference {
namespace {

// Values of everything that is given: small weights, token ids below the smallest vocabulary, zero states.
Block leaf_value(const Graph& graph, TensorId id, int micro_batch, int micro_batches) {
  const Tensor& tensor = graph.tensors()[id];
  const auto uniform = [&](int stream, std::size_t element) {
    return Rng(id.index() * 1000003ULL + static_cast<std::uint64_t>(stream)).split(element).uniform();
  };
  Block block(tensor.type.shape);
  for (std::size_t i = 0; i < block.values().size(); ++i) {
    double& value = block.values()[i];
    if (tensor.name == "loss_scale")
      value = 1.0 / micro_batches;
    else if (tensor.name == "position_ids")
      value = static_cast<double>(static_cast<std::int64_t>(i) % tensor.type.shape.back());
    else if (tensor.kind == TensorKind::Input && !is_floating(tensor.type.dtype))
      value = std::floor(10 * uniform(micro_batch, i));
    else if (tensor.kind == TensorKind::Input)
      value = 2 * uniform(micro_batch, i) - 1;
    else if (tensor.kind == TensorKind::Parameter)
      value = 0.8 * uniform(0, i) - 0.4;
  }
  return block;
}

// The parts in which the program computes each operator.
Shards shards_of(const Program& program, const Graph& graph) {
  IdVec<OpId, const Compute*> computed(graph.ops().size(), nullptr);
  for (const Instruction& instruction : program.instructions)
    if (const auto* compute = std::get_if<Compute>(&instruction.what)) computed[compute->op] = compute;
  return [&program, &graph, computed = std::move(computed)](OpId op) {
    std::vector<AxisSlices> distinct;
    if (!computed[op]) return distinct;
    const OpSharding& sharding = computed[op]->sharding;
    const Mesh& mesh = program.meshes[sharding.mesh];
    for (int position = 0; position < mesh.size(); ++position) {
      AxisSlices slices = axis_slices(graph.signature(op), sharding, mesh, position);
      if (std::find(distinct.begin(), distinct.end(), slices) == distinct.end()) distinct.push_back(std::move(slices));
    }
    return distinct;
  };
}

bool differ(const Block& actual, const Block& expected) {
  for (std::size_t i = 0; i < actual.values().size(); ++i)
    if (!(std::fabs(actual.values()[i] - expected.values()[i]) <=
          1e-9 * std::max(1.0, std::fabs(expected.values()[i]))))
      return true;
  return false;
}

}  // namespace

std::string differs_from_one_device(const TrainingGraph& training, const Program& program, const Schedule& schedule) {
  const Graph& graph = training.graph;
  const int micro_batches = schedule.micro_batches;
  if (const Status good = verify(program, graph, schedule); !good.ok()) return "verifier: " + good.error().message;

  // The same graph once per micro-batch, gradients carried over; the optimizer's operators count the last time.
  IdVec<TensorId, Block> values;
  std::map<TensorId, Block> carried;
  for (int m = 0; m < micro_batches; ++m) {
    values = run_graph(
        graph,
        [&](TensorId id, Block& block) {
          const auto kept = carried.find(id);
          block = kept != carried.end() ? kept->second : leaf_value(graph, id, m, micro_batches);
        },
        shards_of(program, graph));
    for (const auto& [parameter, gradient] : training.accumulated)
      carried.insert_or_assign(graph.tensors()[gradient].storage, values[gradient]);
  }

  Interpreter interpreter(program, graph, [&](TensorId id, int m) { return leaf_value(graph, id, m, micro_batches); });
  try {
    interpreter.run(schedule);
    for (const auto& [parameter, gradient] : training.accumulated) {
      // A parameter kept on several meshes has an accumulator on each; together they are the gradient.
      Block sum(graph.tensors()[parameter].type.shape);
      int accumulators = 0, updates = 0;
      for (BufferId id : program.buffers.ids()) {
        const Buffer& buffer = program.buffers[id];
        const Tensor& tensor = graph.tensors()[buffer.tensor];
        if (buffer.kind == BufferKind::State && buffer.storage == id &&
            buffer.tensor == graph.tensors()[gradient].storage) {
          const Block whole = interpreter.whole(id);
          for (std::size_t i = 0; i < sum.values().size(); ++i) sum.values()[i] += whole.values()[i];
          ++accumulators;
        }
        if (buffer.kind == BufferKind::Parameter && tensor.kind == TensorKind::Update && tensor.storage == parameter) {
          if (differ(interpreter.whole(id), values[buffer.tensor]))
            return graph.name(parameter) + " is updated wrongly";
          ++updates;
        }
      }
      if (accumulators == 0 || updates == 0) return graph.name(parameter) + " was not trained";
      if (differ(sum, values[gradient])) return graph.name(gradient) + " differs";
    }
  } catch (const std::exception& problem) {
    return problem.what();
  }
  return {};
}

}  // namespace weft::reference
