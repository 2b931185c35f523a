// The proof that the compiler is right: the program of all ranks, played with real numbers, trains as the single device
// does.
#include <gtest/gtest.h>

#include <cmath>

#include "base/random.h"
#include "compile/compile.h"
#include "models/models.h"
#include "reference/interpreter.h"
#include "reference/run_graph.h"

namespace weft {
namespace {

using reference::Block;

struct Degrees {
  int dp = 1, tp = 1, cp = 1, ep = 1, pp = 1;
  bool sequence_parallel = false;
  int zero = 0;
  std::string schedule = "1f1b";
  int chunks = 0;
  int micro_batches = 2;
  std::string recompute = "none";
};

// Megatron's choices for the models of the zoo, by operator name.
ShardingChoices megatron(const Graph& graph, const Mesh& mesh, const Degrees& degrees) {
  ShardingChoices choices;
  choices.ops.resize(mesh.axes().size());
  choices.inputs.resize(mesh.axes().size());
  choices.reduce_onto.resize(mesh.axes().size());
  const auto dp = static_cast<std::size_t>(mesh.axis_named("dp")), ep = static_cast<std::size_t>(mesh.axis_named("ep"));
  const auto cp = static_cast<std::size_t>(mesh.axis_named("cp")), tp = static_cast<std::size_t>(mesh.axis_named("tp"));
  for (TensorId id : graph.tensors().ids()) {
    const Tensor& tensor = graph.tensors()[id];
    if (tensor.kind != TensorKind::Input || tensor.type.shape.size() < 2) continue;
    if (tensor.type.shape[0] > 1) choices.inputs[dp][id] = choices.inputs[ep][id] = 0;
    if (tensor.type.shape[1] > 1) choices.inputs[cp][id] = 1;
  }
  if (degrees.sequence_parallel) choices.reduce_onto[tp] = "s";
  for (OpId op : graph.ops().ids()) {
    if (graph.ops()[op].phase != Phase::Forward) break;
    const std::string name = graph.name(op);
    const auto ends = [&](std::string_view suffix) { return name.ends_with(suffix); };
    if (ends("attn.qkv") || ends("mlp.up") || ends("head.logits")) choices.ops[tp][op] = {"n"};
    if (ends("mlp.gate_up")) choices.ops[tp][op] = {"n", 2};
    if (ends("attn.out") || ends("mlp.down")) choices.ops[tp][op] = {"k"};
    if (name == "embed.tokens") choices.ops[tp][op] = {"v"};
    if (graph.kind(op) == OpKind::ExpertLinear) choices.ops[ep][op] = {"e"};
  }
  return choices;
}

double uniform(TensorId id, int stream, std::size_t element) {
  return Rng(id.index() * 1000003ULL + static_cast<std::uint64_t>(stream)).split(element).uniform();
}

// Values of everything that is given: small weights, token ids below the vocabulary, zero states.
Block leaf_value(const Graph& graph, TensorId id, int micro_batch, int micro_batches) {
  const Tensor& tensor = graph.tensors()[id];
  Block block(tensor.type.shape);
  for (std::size_t i = 0; i < block.values().size(); ++i) {
    double& value = block.values()[i];
    if (tensor.name == "loss_scale")
      value = 1.0 / micro_batches;  // the mean over micro-batches
    else if (tensor.name == "position_ids")
      value = static_cast<double>(static_cast<std::int64_t>(i) % tensor.type.shape.back());
    else if (tensor.kind == TensorKind::Input && !is_floating(tensor.type.dtype))
      value = std::floor(16 * uniform(id, micro_batch, i));
    else if (tensor.kind == TensorKind::Input)
      value = 2 * uniform(id, micro_batch, i) - 1;
    else if (tensor.kind == TensorKind::Parameter || tensor.name.ends_with("_master"))
      value = tensor.kind == TensorKind::Parameter ? 0.8 * uniform(id, 0, i) - 0.4 : 0.0;
  }
  return block;
}

struct Outcome {
  std::string problem;
  int parameters = 0, gradients = 0;
};

// Layers in equal runs over the stages; what comes before them on the first, what comes after on the last.
IdVec<OpId, MeshId> cut_into_stages(const Graph& graph, int layers, int stages) {
  IdVec<OpId, MeshId> mesh_of(graph.ops().size(), MeshId(0));
  std::size_t stage = 0;
  for (OpId op : graph.ops().ids()) {
    if (graph.ops()[op].phase != Phase::Forward) break;
    const std::string name = graph.name(op);
    if (name.starts_with("layers.")) stage = static_cast<std::size_t>(std::stoi(name.substr(7)) * stages / layers);
    if (name.starts_with("head")) stage = static_cast<std::size_t>(stages - 1);
    mesh_of[op] = MeshId(stage);
  }
  return mesh_of;
}

// full: each layer is a region; selective: the core of attention.
RecomputeRegions regions_of(const Graph& graph, const std::string& how) {
  RecomputeRegions regions = RecomputeRegions::none(graph);
  for (OpId op : graph.ops().ids()) {
    const std::string name = graph.name(op);
    if (graph.ops()[op].phase != Phase::Forward || !name.starts_with("layers.")) continue;
    const int layer = std::stoi(name.substr(7));
    if (how == "full" || (how == "selective" && name.ends_with("attn.core"))) regions.region[op] = layer;
  }
  return regions;
}

// Trains one step on one device and on the mesh, and compares every updated parameter and accumulated gradient.
Outcome compare(const std::string& model, const ModelOptions& options, const Degrees& degrees) {
  Result<Model> loaded = load_model(model, options);
  if (!loaded.ok()) return {loaded.error().message};
  const int layers = static_cast<int>(loaded->info.layers), micro_batches = degrees.micro_batches;
  const TrainingGraph training = make_training_graph(std::move(loaded->graph), {.master_weights = false}).value();
  const Graph& graph = training.graph;
  const Result<Schedule> schedule = make_schedule({degrees.schedule, degrees.pp, micro_batches, degrees.chunks});
  if (!schedule.ok()) return {schedule.error().message};

  Placing placing;
  const int group = degrees.dp * degrees.ep * degrees.cp * degrees.tp;
  for (std::int32_t stage = 0; stage < schedule->stages(); ++stage) {
    std::vector<DeviceId> devices;
    for (int i = 0; i < group; ++i)
      devices.emplace_back(static_cast<std::size_t>(schedule->place_of(0, stage).rank * group + i));
    placing.meshes.push_back(
        Mesh::make({{"dp", degrees.dp}, {"ep", degrees.ep}, {"cp", degrees.cp}, {"tp", degrees.tp}}, devices).value());
  }
  placing.mesh_of = cut_into_stages(graph, layers, schedule->stages());
  const Result<ShardingPlan> plan =
      plan_sharding(training, placing, megatron(graph, placing.meshes[MeshId(0)], degrees));
  if (!plan.ok()) return {plan.error().message};
  const Result<Program> program =
      compile(training, placing, *plan, {degrees.zero, 0b111}, regions_of(graph, degrees.recompute));
  if (!program.ok()) return {program.error().message};

  // One device: the same graph once per micro-batch, gradients carried over; the optimizer's operators count the last
  // time.
  IdVec<TensorId, Block> values;
  std::map<TensorId, Block> carried;
  for (int m = 0; m < micro_batches; ++m) {
    values = reference::run_graph(graph, [&](TensorId id, Block& block) {
      const auto kept = carried.find(id);
      block = kept != carried.end() ? kept->second : leaf_value(graph, id, m, micro_batches);
    });
    for (const auto& [parameter, gradient] : training.accumulated)
      carried.insert_or_assign(graph.tensors()[gradient].storage, values[gradient]);
  }

  reference::Interpreter interpreter(*program, graph,
                                     [&](TensorId id, int m) { return leaf_value(graph, id, m, micro_batches); });
  Outcome outcome;
  const auto differs = [](const Block& actual, const Block& expected) {
    for (std::size_t i = 0; i < actual.values().size(); ++i)
      if (!(std::fabs(actual.values()[i] - expected.values()[i]) <=
            1e-9 * std::max(1.0, std::fabs(expected.values()[i]))))
        return true;
    return false;
  };
  try {
    interpreter.run(*schedule);
    for (const auto& [parameter, gradient] : training.accumulated) {
      // Tied parameters have an accumulator per stage; together they are the gradient.
      Block sum(graph.tensors()[parameter].type.shape);
      int copies = 0;
      for (BufferId id : program->buffers.ids()) {
        const Buffer& buffer = program->buffers[id];
        if (buffer.kind == BufferKind::State && buffer.tensor == graph.tensors()[gradient].storage &&
            buffer.storage == id) {
          const Block whole = interpreter.whole(id);
          for (std::size_t i = 0; i < sum.values().size(); ++i) sum.values()[i] += whole.values()[i];
          ++copies;
        }
        // The updated parameter, on every mesh that keeps it.
        const Tensor& tensor = graph.tensors()[buffer.tensor];
        if (buffer.kind == BufferKind::Parameter && tensor.kind == TensorKind::Update && tensor.storage == parameter) {
          ++outcome.parameters;
          if (differs(interpreter.whole(id), values[buffer.tensor]))
            return {graph.name(parameter) + " is updated wrongly"};
        }
      }
      if (copies > 0) ++outcome.gradients;
      if (differs(sum, values[gradient])) return {graph.name(gradient) + " differs"};
    }
  } catch (const std::exception& problem) {
    return {problem.what()};
  }
  const int expected = static_cast<int>(training.accumulated.size());
  if (outcome.parameters < expected || outcome.gradients != expected)
    outcome.problem = "not every parameter was compared";
  return outcome;
}

const char* const kLlama = "llama3-8b:layers=2,hidden=16,heads=4,kv_heads=2,ffn=24,vocab=16";
const char* const kGpt = "gpt2-124m:layers=2,hidden=16,heads=4,vocab=16,dropout=0.1";
const char* const kMoe =
    "mixtral-8x7b:layers=2,hidden=16,heads=4,kv_heads=2,ffn=8,vocab=16,experts=4,capacity_factor=2";

void expect_equal(const char* model, const Degrees& degrees) {
  const Outcome outcome = compare(model, {.batch = 4, .seq = 4}, degrees);
  EXPECT_EQ(outcome.problem, "") << model << " dp=" << degrees.dp << " tp=" << degrees.tp << " cp=" << degrees.cp
                                 << " ep=" << degrees.ep << " pp=" << degrees.pp << " sp=" << degrees.sequence_parallel
                                 << " zero=" << degrees.zero << " " << degrees.schedule
                                 << " recompute=" << degrees.recompute;
  EXPECT_GT(outcome.parameters, 0);
}

TEST(CompiledProgram, DataParallelTrainsAsOneDevice) {
  for (const char* model : {kLlama, kGpt, kMoe}) expect_equal(model, {.dp = 2});
}
TEST(CompiledProgram, ZeroTrainsAsOneDevice) {
  for (int zero : {1, 2, 3})
    for (const char* model : {kLlama, kGpt, kMoe}) expect_equal(model, {.dp = 4, .zero = zero});
}
TEST(CompiledProgram, TensorParallelTrainsAsOneDevice) {
  for (const char* model : {kLlama, kGpt, kMoe})
    for (bool sequence_parallel : {false, true}) expect_equal(model, {.tp = 2, .sequence_parallel = sequence_parallel});
}
TEST(CompiledProgram, ContextParallelTrainsAsOneDevice) {
  for (const char* model : {kLlama, kGpt}) expect_equal(model, {.cp = 2});
}
TEST(CompiledProgram, ExpertParallelTrainsAsOneDevice) { expect_equal(kMoe, {.ep = 2}); }
TEST(CompiledProgram, AllTogetherTrainsAsOneDevice) {
  for (int zero : {0, 1, 2, 3}) {
    expect_equal(kLlama, {.dp = 2, .tp = 2, .cp = 2, .sequence_parallel = true, .zero = zero});
    expect_equal(kMoe, {.dp = 2, .tp = 2, .ep = 2, .sequence_parallel = true, .zero = zero});
  }
}

TEST(CompiledProgram, PipelinesTrainAsOneDeviceUnderEverySchedule) {
  const char* const four_layers = "gpt2-124m:layers=4,hidden=8,heads=2,vocab=16,dropout=0";
  for (const char* schedule : {"gpipe", "1f1b", "zb-h1", "zb-h2"}) {
    expect_equal(four_layers, {.pp = 2, .schedule = schedule, .micro_batches = 4});
    expect_equal(four_layers, {.pp = 4, .schedule = schedule, .micro_batches = 8});
  }
  expect_equal(four_layers, {.pp = 2, .schedule = "interleaved", .chunks = 2, .micro_batches = 4});
  expect_equal(four_layers, {.pp = 2, .schedule = "zb-v", .micro_batches = 4});
}
TEST(CompiledProgram, RecomputationChangesNothing) {
  for (const char* how : {"full", "selective"})
    for (const char* model : {kLlama, kGpt, kMoe}) {
      expect_equal(model, {.recompute = how});
      expect_equal(model, {.dp = 2, .tp = 2, .sequence_parallel = true, .zero = 3, .recompute = how});
    }
}
TEST(CompiledProgram, ThreeDimensionsTrainAsOneDevice) {
  for (const char* model : {kLlama, kGpt, kMoe})
    expect_equal(
        model,
        {.dp = 2, .tp = 2, .pp = 2, .sequence_parallel = true, .zero = 1, .micro_batches = 3, .recompute = "full"});
}

}  // namespace
}  // namespace weft
