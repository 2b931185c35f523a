#include "reference/one_device.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "base/random.h"
#include "program/verify.h"
#include "reference/interpreter.h"

namespace weft::reference {

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

namespace {

// Differs by more than 1e-9; where a step overflows, non-finite values count as equal.
bool differ(const Block& actual, const Block& expected) {
  for (std::size_t i = 0; i < actual.values().size(); ++i)
    if (!(std::fabs(actual.values()[i] - expected.values()[i]) <=
          1e-9 * std::max(1.0, std::fabs(expected.values()[i]))) &&
        std::isfinite(expected.values()[i]))
      return true;
  return false;
}

bool accumulates(OpKind kind) { return kind == OpKind::Accumulate || kind == OpKind::AccumulateLoss; }

// Compares the state after a step; empty, or the first difference.
std::string problem_of(const TrainingGraph& training, const Program& program, const Interpreter& interpreter,
                       const IdVec<TensorId, Block>& values) {
  const Graph& graph = training.graph;
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
        if (differ(interpreter.whole(id), values[buffer.tensor])) return graph.name(parameter) + " is updated wrongly";
        ++updates;
      }
    }
    if (accumulators == 0 || updates == 0) return graph.name(parameter) + " was not trained";
    if (differ(sum, values[gradient])) return graph.name(gradient) + " differs";
  }
  std::set<TensorId> results;
  for (BufferId id : program.buffers.ids()) {
    const Buffer& buffer = program.buffers[id];
    if (buffer.kind != BufferKind::Result) continue;
    results.insert(buffer.tensor);
    if (differ(interpreter.whole(id), values[buffer.tensor])) return graph.name(buffer.tensor) + " differs";
  }
  for (TensorId result : graph.results())
    if (graph.tensors()[result].kind == TensorKind::Update && !results.contains(result))
      return graph.name(result) + " is not told";
  return {};
}

}  // namespace

double OneDevice::share_of(int micro_batch) const {
  const auto samples = [](const Graph& graph) {
    for (const Tensor& tensor : graph.tensors())
      if (tensor.kind == TensorKind::Input && !tensor.type.shape.empty())
        return static_cast<double>(tensor.type.shape.front());
    return 1.0;
  };
  double all = 0;
  for (int m = 0; m < micro_batches_; ++m) all += samples(graph_of(m));
  return samples(graph_of(micro_batch)) / all;
}

Block OneDevice::given(TensorId id, int micro_batch) const {
  const Tensor& tensor = graph_of(micro_batch).tensors()[id];
  const int samples = played_ * micro_batches_ + micro_batch;
  const auto uniform = [&](int stream, std::size_t element) {
    return Rng(id.index() * 1000003ULL + static_cast<std::uint64_t>(stream)).split(element).uniform();
  };
  Block block(tensor.type.shape);
  for (std::size_t i = 0; i < block.values().size(); ++i) {
    double& value = block.values()[i];
    if (tensor.kind == TensorKind::Scalar)
      value = tensor.name == "step"            ? numbers_.step
              : tensor.name == "learning_rate" ? numbers_.learning_rate
                                               : numbers_.loss_scale;
    else if (tensor.name == "loss_weight")
      value = share_of(micro_batch);
    else if (tensor.name == "position_ids")
      value = static_cast<double>(static_cast<std::int64_t>(i) % tensor.type.shape.back());
    else if (tensor.kind == TensorKind::Input && !is_floating(tensor.type.dtype))
      value = std::floor(10 * uniform(samples, i));  // token ids below the smallest vocabulary
    else if (tensor.kind == TensorKind::Input)
      value = 2 * uniform(samples, i) - 1;
    else if (tensor.kind == TensorKind::Parameter)
      value = 0.8 * uniform(0, i) - 0.4;
  }
  return block;
}

Block OneDevice::kept(TensorId leaf) const {
  const auto changed = kept_.find(leaf);
  return changed != kept_.end() ? changed->second : given(leaf, 0);
}

// The same graph once per micro-batch, sums carried over; the optimizer's operators count the last time.
void OneDevice::play() {
  std::map<TensorId, Block> sums;
  for (int m = 0; m < micro_batches_; ++m) {
    const Graph& graph = graph_of(m);
    values_ = run_graph(
        graph,
        [&](TensorId id, Block& block) {
          const bool leaf_of_step =
              graph.tensors()[id].kind == TensorKind::Input || graph.tensors()[id].kind == TensorKind::Scalar;
          const auto sum = sums.find(id);
          block = sum != sums.end() ? sum->second : leaf_of_step ? given(id, m) : kept(id);
        },
        &graph == last_ ? last_shards_ : shards_);
    for (OpId op : graph.ops().ids())
      if (accumulates(graph.kind(op))) {
        const TensorId sum = graph.outputs(op)[0];
        sums.insert_or_assign(graph.tensors()[sum].storage, values_[sum]);
      }
  }
  const Graph& graph = training_.graph;
  for (TensorId id : graph.tensors().ids())
    if (graph.tensors()[id].kind == TensorKind::Update && graph.tensors()[id].storage != id)
      kept_.insert_or_assign(graph.tensors()[id].storage, values_[id]);
  ++played_;
}

std::string differs_from_one_device(const TrainingGraph& training, const Program& program, const Schedule& schedule,
                                    const std::vector<StepNumbers>& steps, std::optional<LastMicroBatch> last) {
  const Graph& graph = training.graph;
  if (last)
    if (const Status good = verify(last->program, last->graph, schedule); !good.ok())
      return "verifier of the last micro-batch: " + good.error().message;
  if (const Status good = verify(program, graph, schedule); !good.ok()) return "verifier: " + good.error().message;
  OneDevice one(training, schedule.micro_batches, shards_of(program, graph), last ? &last->graph : nullptr,
                last ? shards_of(last->program, last->graph) : Shards());
  Interpreter interpreter(
      program, graph, [&](TensorId id, int m) { return one.given(id, m); }, last);
  try {
    for (const StepNumbers& numbers : steps) {
      one.begin(numbers);
      interpreter.run(schedule);
      one.play();
      if (std::string problem = problem_of(training, program, interpreter, one.values()); !problem.empty())
        return problem;
    }
  } catch (const std::exception& problem) {
    return problem.what();
  }
  return {};
}

}  // namespace weft::reference
