// The proof that the compiler is right: the program of all ranks, played with real numbers, trains as the single device
// does.
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <thread>

#include "base/random.h"
#include "cluster/cluster.h"
#include "compile/compilation.h"
#include "compile/from_strategy.h"
#include "models/models.h"
#include "program/verify.h"
#include "reference/interpreter.h"
#include "reference/run_graph.h"
#include "strategy/shorthand.h"

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
    if (tensor.type.shape[0] > 1) choices.inputs[dp][id] = choices.inputs[ep][id] = {0};
    if (tensor.type.shape[1] > 1) choices.inputs[cp][id] = {1};
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
      value = std::floor(12 * uniform(id, micro_batch, i));  // below the smallest vocabulary
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

// How a training graph is spread over devices.
struct Plan {
  Placing placing;
  ShardingChoices choices;
  MemoryPlan memory = {};
  RecomputeRegions recompute;
  Schedule schedule;
  GradientSync gradients = {.bucket = Bytes{200}};
  ParameterSync parameters = {};
  bool keep_gathered_input = false;

  CompileOptions options() const { return {memory, gradients, parameters, keep_gathered_input, {}}; }
};

// Trains one step on one device and by the program, and compares every updated parameter and accumulated gradient.
Outcome compare(const TrainingGraph& training, const Program& program, const Schedule& schedule,
                const reference::Shards& shards = {}) {
  const Graph& graph = training.graph;
  const int micro_batches = schedule.micro_batches;
  if (const Status good = verify(program, graph, schedule); !good.ok()) return {"verifier: " + good.error().message};

  // One device: the same graph once per micro-batch, gradients carried over; the optimizer's operators count the last
  // time.
  IdVec<TensorId, Block> values;
  std::map<TensorId, Block> carried;
  for (int m = 0; m < micro_batches; ++m) {
    values = reference::run_graph(
        graph,
        [&](TensorId id, Block& block) {
          const auto kept = carried.find(id);
          block = kept != carried.end() ? kept->second : leaf_value(graph, id, m, micro_batches);
        },
        shards);
    for (const auto& [parameter, gradient] : training.accumulated)
      carried.insert_or_assign(graph.tensors()[gradient].storage, values[gradient]);
  }

  reference::Interpreter interpreter(program, graph,
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
    interpreter.run(schedule);
    for (const auto& [parameter, gradient] : training.accumulated) {
      // Tied parameters have an accumulator per stage; together they are the gradient.
      Block sum(graph.tensors()[parameter].type.shape);
      int copies = 0;
      for (BufferId id : program.buffers.ids()) {
        const Buffer& buffer = program.buffers[id];
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

Outcome compare(const TrainingGraph& training, const Plan& spread, const ShardingPlan& plan, const Program& program);

// The same of a plan.
Outcome compare(const TrainingGraph& training, const Plan& spread) {
  const Result<ShardingPlan> plan = plan_sharding(training, spread.placing, spread.choices);
  if (!plan.ok()) return {plan.error().message};
  const Result<Program> program = compile(training, spread.placing, *plan, spread.options(), spread.recompute);
  if (!program.ok()) return {program.error().message};
  return compare(training, spread, *plan, *program);
}

Outcome compare(const TrainingGraph& training, const Plan& spread, const ShardingPlan& plan, const Program& program) {
  const Graph& graph = training.graph;
  // BatchNorm's statistics are a shard's own: one device groups samples, positions and channels the same way.
  const auto shards = [&](OpId op) {
    const OpSharding& sharding = plan.ops[op];
    const Mesh& mesh = spread.placing.meshes[sharding.mesh];
    std::vector<AxisSlices> distinct;
    for (int position = 0; position < mesh.size(); ++position) {
      AxisSlices slices = axis_slices(graph.signature(op), sharding, mesh, position);
      if (std::find(distinct.begin(), distinct.end(), slices) == distinct.end()) distinct.push_back(std::move(slices));
    }
    return distinct;
  };
  return compare(training, program, spread.schedule, shards);
}

// A model of the zoo under Megatron's rules.
Outcome compare(const std::string& model, const ModelOptions& options, const Degrees& degrees) {
  Result<Model> loaded = load_model(model, options);
  if (!loaded.ok()) return {loaded.error().message};
  const int layers = static_cast<int>(loaded->info.layers);
  const TrainingGraph training = make_training_graph(std::move(loaded->graph), {.master_weights = false}).value();
  const Graph& graph = training.graph;
  const Result<Schedule> schedule =
      make_schedule({degrees.schedule, degrees.pp, degrees.micro_batches, degrees.chunks});
  if (!schedule.ok()) return {schedule.error().message};
  Placing placing;
  const int group = degrees.dp * degrees.ep * degrees.cp * degrees.tp;
  for (std::int32_t stage = 0; stage < schedule->stages(); ++stage) {
    std::vector<DeviceId> devices;
    for (int i = 0; i < group; ++i)
      devices.emplace_back(static_cast<std::size_t>(schedule->place_of(0, stage).rank * group + i));
    placing.meshes.push_back(
        Mesh::make({{"dp", degrees.dp}, {"ep", degrees.ep}, {"cp", degrees.cp}, {"tp", degrees.tp}}, devices).value());
    placing.stage_of.push_back(stage);
  }
  placing.mesh_of = cut_into_stages(graph, layers, schedule->stages());
  ShardingChoices choices = megatron(graph, placing.meshes[MeshId(0)], degrees);
  return compare(
      training,
      {std::move(placing), std::move(choices), {degrees.zero, 0b111}, regions_of(graph, degrees.recompute), *schedule});
}

const char* const kLlama = "llama3-8b:layers=2,hidden=16,heads=4,kv_heads=2,ffn=24,vocab=16";
const char* const kZigzag = "llama3-8b:layers=2,hidden=16,heads=4,kv_heads=2,ffn=24,vocab=16,zigzag=2";
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

// Small networks of other kinds.
Graph small_cnn() {
  GraphBuilder b("cnn");
  const auto conv = [&](const std::string& name, TensorId x, std::int64_t out, std::int64_t kernel, std::int64_t stride,
                        std::int64_t pad) {
    auto scope = b.scope(name);
    const TensorId w = b.parameter("weight", DType::F32, {out, b.shape(x)[1], kernel, kernel});
    return b.op1(OpKind::Conv2d, "conv", {x, w},
                 {{"stride", std::vector<std::int64_t>{stride, stride}}, {"pad", std::vector<std::int64_t>{pad, pad}}});
  };
  TensorId x = b.input("image", DType::F32, {4, 2, 12, 8});
  x = b.op1(OpKind::Unary, "relu1", {conv("conv1", x, 4, 3, 1, 1)}, {{"fn", "relu"}});
  {
    auto scope = b.scope("norm");
    const TensorId gamma = b.parameter("weight", DType::F32, {4}), beta = b.parameter("bias", DType::F32, {4});
    x = b.op1(OpKind::BatchNorm, "norm", {x, gamma, beta});
  }
  const TensorId skip = x;
  x = b.op1(OpKind::Unary, "relu2", {conv("conv2", x, 4, 3, 1, 1)}, {{"fn", "relu"}});
  x = b.op1(OpKind::Binary, "add", {x, skip}, {{"fn", "add"}});
  x = b.op1(OpKind::Pool2d, "pool", {x}, {{"fn", "max"}, {"kernel", std::vector<std::int64_t>{2, 2}}});
  x = b.op1(OpKind::Unary, "relu3", {conv("conv3", x, 6, 3, 2, 1)}, {{"fn", "relu"}});
  x = b.op1(OpKind::Reduce, "average", {x}, {{"fn", "mean"}, {"dims", std::vector<std::int64_t>{2, 3}}});
  auto scope = b.scope("head");
  const TensorId w = b.parameter("weight", DType::F32, {6, 8}), bias = b.parameter("bias", DType::F32, {8});
  x = b.op1(OpKind::Bias, "bias", {b.op1(OpKind::Linear, "linear", {x, w}), bias});
  const auto terms = b.op(OpKind::CrossEntropy, "entropy", {x, b.input("labels", DType::I64, {4})});
  b.result(b.op1(OpKind::NllLoss, "loss", {terms[0], terms[1]}));
  return std::move(b).freeze().value();
}

Graph small_dlrm() {
  GraphBuilder b("dlrm");
  const auto dense = [&](const std::string& name, TensorId x, std::int64_t out) {
    auto scope = b.scope(name);
    const TensorId w = b.parameter("weight", DType::F32, {b.shape(x)[1], out}),
                   bias = b.parameter("bias", DType::F32, {out});
    return b.op1(OpKind::Bias, "bias", {b.op1(OpKind::Linear, "linear", {x, w}), bias});
  };
  std::vector<TensorId> features = {
      b.op1(OpKind::Unary, "relu", {dense("bottom", b.input("dense", DType::F32, {4, 6}), 4)}, {{"fn", "relu"}})};
  for (int table = 0; table < 3; ++table) {
    auto scope = b.scope(fmt::format("tables.{}", table));
    const TensorId ids = b.input("ids", DType::I64, {4, 2}), rows = b.parameter("weight", DType::F32, {16, 4});
    features.push_back(b.op1(OpKind::Embedding, "lookup", {ids, rows}, {{"pool", "sum"}}));
  }
  const TensorId joined = b.op(OpKind::Concat, "joined", features, {{"dim", std::int64_t{1}}}).front();
  const TensorId grid = b.op1(OpKind::Reshape, "grid", {joined}, {{"shape", std::vector<std::int64_t>{4, 4, 4}}});
  const TensorId pairs = b.op1(OpKind::DotInteraction, "pairs", {grid});
  const TensorId all = b.op(OpKind::Concat, "all", {features[0], pairs}, {{"dim", std::int64_t{1}}}).front();
  const TensorId x = b.op1(OpKind::Unary, "top_relu", {dense("top", all, 6)}, {{"fn", "relu"}});
  b.result(b.op1(OpKind::BceLoss, "loss", {dense("score", x, 1), b.input("clicked", DType::F32, {4, 1})}));
  return std::move(b).freeze().value();
}

struct SmallModel {
  const char* name;
  TrainingGraph training;
};
std::vector<SmallModel> small_models() {
  const auto train = [](Graph graph) {
    return make_training_graph(std::move(graph), {.master_weights = false}).value();
  };
  const auto zoo = [&](const char* spec, std::optional<std::int64_t> seq) {
    return train(build_model(spec, {.batch = 4, .seq = seq}).value());
  };
  std::vector<SmallModel> models;
  models.push_back({"cnn", train(small_cnn())});
  models.push_back({"gpt", zoo("gpt2-124m:layers=1,hidden=8,heads=4,vocab=16,dropout=0.1", 4)});
  models.push_back({"gqa", zoo("llama3-8b:layers=1,hidden=8,heads=4,kv_heads=2,ffn=12,vocab=16", 4)});
  models.push_back({"unfused", zoo("gpt2-124m:layers=1,hidden=8,heads=4,vocab=16,fused_attention=0", 4)});
  models.push_back(
      {"moe", zoo("mixtral-8x7b:layers=1,hidden=8,heads=4,kv_heads=2,ffn=4,vocab=16,experts=4,capacity_factor=2", 4)});
  models.push_back({"moe of weighed rows", zoo("mixtral-8x7b:layers=1,hidden=8,heads=4,kv_heads=2,ffn=4,vocab=16,"
                                               "experts=4,capacity_factor=2,weigh_rows=1",
                                               4)});
  models.push_back({"rnn", zoo("rnnlm:hidden=4,vocab=16", 3)});
  models.push_back({"dlrm", train(small_dlrm())});
  return models;
}

// Every operator on a mesh of its own choice among a few, of different devices and shapes: FlexFlow's placement.
Placing random_placing(const Graph& graph, Rng& rng) {
  Placing placing;
  const auto add = [&](int x, int y, std::vector<std::size_t> devices) {
    std::vector<DeviceId> ids;
    for (std::size_t device : devices) ids.emplace_back(device);
    placing.meshes.push_back(Mesh::make({{"x", x}, {"y", y}}, ids).value());
    placing.stage_of.push_back(0);
  };
  add(2, 2, {0, 1, 2, 3});
  add(2, 1, {3, 0});
  add(1, 2, {1, 2});
  add(1, 1, {2});
  placing.mesh_of.resize(graph.ops().size(), MeshId(0));
  for (MeshId& mesh : placing.mesh_of) mesh = MeshId(rng.below(4));
  return placing;
}

// A mesh of up to two axes, and for some operators any axis that divides; inputs split here and there.
Plan random_plan(const TrainingGraph& training, Rng& rng, bool placed) {
  const Graph& graph = training.graph;
  std::vector<MeshAxis> axes = {{"x", static_cast<int>(rng.between(1, 3))}, {"y", static_cast<int>(rng.between(1, 2))}};
  std::vector<DeviceId> devices;
  for (int i = 0; i < axes[0].size * axes[1].size; ++i) devices.emplace_back(static_cast<std::size_t>(i));
  Plan plan{on_one_mesh(graph, Mesh::make(axes, devices).value()),
            {},
            {static_cast<int>(rng.between(0, 3)), 0b01},
            RecomputeRegions::none(graph),
            make_schedule({"gpipe", 1, 2, 0}).value()};
  if (placed) {
    axes = {{"x", 2}, {"y", 2}};
    plan.placing = random_placing(graph, rng);
  }
  plan.keep_gathered_input = rng.below(4) == 0;
  if (plan.memory.zero == 3 && rng.below(2) == 0) {  // gathered in units of three parameters, ahead of their use
    plan.parameters.unit.resize(graph.tensors().size(), -1);
    int parameters = 0;
    for (TensorId id : graph.tensors().ids())
      if (graph.tensors()[id].kind == TensorKind::Parameter) plan.parameters.unit[id] = parameters++ / 3;
    plan.parameters.prefetch_backward = rng.below(2) == 0;
    plan.parameters.reshard_after_forward = rng.below(2) == 0;
  }
  plan.gradients.overlap = rng.below(4) != 0;
  plan.choices.ops.resize(2);
  plan.choices.inputs.resize(2);
  plan.choices.reduce_onto.resize(2);
  for (std::size_t m = 0; m < 2; ++m) {
    if (rng.below(2) == 0) plan.choices.reduce_onto[m] = "s";
    for (TensorId id : graph.tensors().ids()) {
      const Tensor& tensor = graph.tensors()[id];
      if (tensor.kind == TensorKind::Input && !tensor.type.shape.empty() && rng.below(2) == 0 &&
          tensor.type.shape[0] % (axes[0].size * axes[1].size) == 0)
        plan.choices.inputs[m][id] = {0};
    }
    for (OpId op : graph.ops().ids()) {
      if (graph.ops()[op].phase != Phase::Forward) break;
      if (rng.below(3) != 0) continue;
      const Signature& signature = graph.signature(op);
      std::vector<std::string> possible = {""};
      for (int a = 0; a < static_cast<int>(signature.axes.size()); ++a) {
        const bool windowed_twice = graph.kind(op) == OpKind::Conv2d || graph.kind(op) == OpKind::Pool2d;
        if (splittable(signature, a) &&
            signature.axes[static_cast<std::size_t>(a)].size % (axes[0].size * axes[1].size) == 0 &&
            !(windowed_twice && m == 1 &&
              (signature.axes[static_cast<std::size_t>(a)].name == "h" ||
               signature.axes[static_cast<std::size_t>(a)].name == "w")))
          possible.push_back(signature.axes[static_cast<std::size_t>(a)].name);
      }
      plan.choices.ops[m][op] = {possible[rng.below(possible.size())]};
    }
  }
  // Attention around rings, some of them in one another; a source of its own, so that nothing else depends on it.
  Rng rings = rng.split(1);
  plan.choices.ring = static_cast<MeshAxes>(rings.below(4));
  for (OpId op : graph.ops().ids())
    if (graph.kind(op) == OpKind::Attention && graph.ops()[op].phase == Phase::Forward)
      for (std::size_t m = 0; m < 2; ++m)
        if ((plan.choices.ring >> m & 1u) != 0 && 4 % (axes[0].size * axes[1].size) == 0 && rings.below(3) != 0)
          plan.choices.ops[m][op] = {"q"};
  return plan;
}

// Changes how one forward operator is split (and sometimes where it runs), any legal way.
void change_one_operator(const TrainingGraph& training, Plan& plan, Rng& rng) {
  const Graph& graph = training.graph;
  const OpId op(rng.below(training.first_backward.index()));
  const Signature& signature = graph.signature(op);
  for (std::size_t m = 0; m < plan.choices.ops.size(); ++m) {
    std::vector<std::string> possible = {""};
    for (int a = 0; a < static_cast<int>(signature.axes.size()); ++a)
      if (splittable(signature, a)) possible.push_back(signature.axes[static_cast<std::size_t>(a)].name);
    plan.choices.ops[m][op] = {possible[rng.below(possible.size())]};
  }
  if (plan.placing.meshes.size() > 2) plan.placing.mesh_of[op] = MeshId(rng.below(plan.placing.meshes.size() - 1));
}

struct EditCounts {
  std::atomic<int> edits = 0, instructions = 0, all = 0;
};

// The law of recompilation: after any edit the program is the one a full compilation gives; undone, the one before.
// The edited program is then played.
std::string recompile_and_compare(const TrainingGraph& training, Plan plan, Rng& rng, EditCounts& counts) {
  plan.placing = with_world(plan.placing).value();
  Result<ShardingPlan> planned = plan_sharding(training, plan.placing, plan.choices);
  if (!planned.ok()) return planned.error().message;
  ShardingPlan current = std::move(planned).value();
  CompileOptions options = plan.options();
  Compilation compilation(training, plan.placing, current, options, plan.recompute);
  if (const Status done = compilation.compile(); !done.ok()) return done.error().message;
  options.buckets = compilation.buckets();
  for (int edit = 0; edit < 3; ++edit) {
    const Program before = compacted(compilation.program());
    const Plan plan_before = plan;
    const ShardingPlan current_before = current;
    change_one_operator(training, plan, rng);
    Result<ShardingPlan> next = plan_sharding(training, plan.placing, plan.choices);
    if (!next.ok()) {  // does not divide
      plan = plan_before;
      continue;
    }
    std::vector<OpId> changed;
    for (OpId op : next->ops.ids())
      if (next->ops[op] != current.ops[op]) changed.push_back(op);
    current = std::move(next).value();
    const Result<Program> full = compile(training, plan.placing, current, options, plan.recompute);
    const Result<ProgramEdit> edited = compilation.recompile(changed);
    if (full.ok() != edited.ok())
      return "full and incremental compilation differ in whether they succeed: " +
             (full.ok() ? edited.error().message : full.error().message);
    if (edited.ok() && compacted(compilation.program()).instructions != full->instructions)
      return "a recompiled program differs from a full compilation in its instructions";
    if (edited.ok() && compacted(compilation.program()) != *full)
      return "a recompiled program differs from a full compilation";
    if (edited.ok()) {
      ++counts.edits;
      counts.all += static_cast<int>(full->instructions.size());
      for (const BodyEdit& body : edited->bodies) counts.instructions += static_cast<int>(body.added.size());
    }
    if (!edited.ok() || edit == 1) {
      compilation.undo();
      plan = plan_before;
      current = current_before;
      if (compacted(compilation.program()) != before) return "an undone edit leaves another program";
    }
  }
  return compare(training, plan, current, compacted(compilation.program())).problem;
}

// Operators that a plan sends around rings: a mesh axis splits two of their axes.
int ring_turns(const TrainingGraph& training, const ShardingPlan& plan, const Placing& placing) {
  int rings = 0;
  for (OpId op : training.graph.ops().ids()) {
    std::vector<int> used(placing.meshes[plan.ops[op].mesh].axes().size(), 0);
    for (const std::vector<Cut>& cuts : plan.ops[op].axes)
      for (const Cut& cut : cuts) rings += ++used[static_cast<std::size_t>(cut.mesh_axis)] == 2;
  }
  return rings;
}

// WEFT_RANDOM_PLANS sets how many; sanitizer builds play fewer.
TEST(CompiledProgram, RandomStrategiesTrainAsOneDevice) {
  const char* const wanted = std::getenv("WEFT_RANDOM_PLANS");
  const int plans = wanted ? std::atoi(wanted) : 2100;
  const std::vector<SmallModel> models = small_models();
  std::vector<std::string> problems(static_cast<std::size_t>(plans));
  std::atomic<int> next = 0, rings = 0;
  EditCounts counts;
  const auto play = [&] {
    for (int i = next++; i < plans; i = next++) {
      const SmallModel& model = models[static_cast<std::size_t>(i) % models.size()];
      Rng rng = Rng(99).split(static_cast<std::uint64_t>(i));
      const Plan plan = random_plan(model.training, rng, i % 2 == 1);
      if (const Result<ShardingPlan> sharding = plan_sharding(model.training, plan.placing, plan.choices);
          sharding.ok() && ring_turns(model.training, *sharding, plan.placing) > 0)
        ++rings;
      problems[static_cast<std::size_t>(i)] =
          i % 4 < 2 ? compare(model.training, plan).problem : recompile_and_compare(model.training, plan, rng, counts);
    }
  };
  std::thread other(play);
  play();
  other.join();
  int mismatches = 0;
  for (std::size_t i = 0; i < problems.size(); ++i) {
    mismatches += problems[i].empty() ? 0 : 1;
    EXPECT_EQ(problems[i], "") << models[i % models.size()].name << " plan " << i;
  }
  EXPECT_GT(rings, plans / 20);
  fmt::print(
      "{} random strategies played, {} of them with rings, {} mismatches; {} edits recompiled, {} of {} instructions "
      "written anew\n",
      plans, rings.load(), mismatches, counts.edits.load(), counts.instructions.load(), counts.all.load());
}

// One mesh axis of three devices that get 3, 2 and 1 shares.
Plan uneven_plan(const TrainingGraph& training, int zero) {
  std::vector<DeviceId> devices = {DeviceId(0), DeviceId(1), DeviceId(2)};
  Plan plan{on_one_mesh(training.graph, Mesh::make({{"x", 3}}, devices).value()),
            {},
            {zero, 0b1},
            RecomputeRegions::none(training.graph),
            make_schedule({"gpipe", 1, 2, 0}).value()};
  plan.choices.ops.resize(1);
  plan.choices.inputs.resize(1);
  plan.choices.reduce_onto.resize(1);
  return plan;
}

TEST(CompiledProgram, UnevenSharesTrainAsOneDevice) {
  const auto load = [](const char* spec, std::int64_t batch) {
    return make_training_graph(build_model(spec, {.batch = batch, .seq = 4}).value(), {.master_weights = false})
        .value();
  };
  for (int zero : {0, 1, 2, 3}) {
    // Samples 3:2:1 of six.
    for (const char* model :
         {"gpt2-124m:layers=1,hidden=8,heads=4,vocab=16,dropout=0.1",
          "mixtral-8x7b:layers=1,hidden=8,heads=4,kv_heads=2,ffn=4,vocab=16,experts=4,capacity_factor=2",
          "mixtral-8x7b:layers=1,hidden=8,heads=4,kv_heads=2,ffn=4,vocab=16,experts=4,capacity_factor=2,weigh_rows="
          "1"}) {
      const TrainingGraph training = load(model, 6);
      Plan plan = uneven_plan(training, zero);
      for (TensorId id : training.graph.tensors().ids())
        if (training.graph.tensors()[id].kind == TensorKind::Input &&
            training.graph.tensors()[id].type.shape.size() == 2 && training.graph.tensors()[id].type.shape[0] == 6)
          plan.choices.inputs[0][id] = {0, {3, 2, 1}};
      EXPECT_EQ(compare(training, plan).problem, "") << model << " zero=" << zero;
    }
    // Heads and columns 3:2:1 (six heads of 2, twelve columns of the MLP), experts 3:2:1 of six.
    const TrainingGraph training =
        load("mixtral-8x7b:layers=1,hidden=12,heads=6,kv_heads=6,ffn=4,vocab=12,experts=6,capacity_factor=2", 2);
    Plan plan = uneven_plan(training, zero);
    for (OpId op : training.graph.ops().ids()) {
      const std::string name = training.graph.name(op);
      if (name.ends_with("attn.qkv")) plan.choices.ops[0][op] = {"n", 1, {18, 12, 6}};  // a head has 3 · 2 columns
      if (name.ends_with("attn.out")) plan.choices.ops[0][op] = {"k", 1, {6, 4, 2}};
      if (name.ends_with("head.logits")) plan.choices.ops[0][op] = {"n", 1, {6, 4, 2}};
      if (training.graph.kind(op) == OpKind::ExpertLinear && training.graph.ops()[op].phase == Phase::Forward)
        plan.choices.ops[0][op] = {"e", 1, {3, 2, 1}};
    }
    EXPECT_EQ(compare(training, plan).problem, "") << "heads and experts, zero=" << zero;
    // Tokens 3:2:1 of six, keys around a ring: parts of all sizes pass every device.
    const TrainingGraph tokens =
        make_training_graph(
            build_model("llama3-8b:layers=1,hidden=8,heads=4,kv_heads=2,ffn=12,vocab=16", {.batch = 2, .seq = 6})
                .value(),
            {.master_weights = false})
            .value();
    Plan ring = uneven_plan(tokens, zero);
    ring.choices.ring = 0b1;
    for (TensorId id : tokens.graph.tensors().ids())
      if (const Tensor& tensor = tokens.graph.tensors()[id];
          tensor.kind == TensorKind::Input && tensor.type.shape.size() == 2 && tensor.type.shape[1] == 6)
        ring.choices.inputs[0][id] = {1, {3, 2, 1}};
    EXPECT_EQ(compare(tokens, ring).problem, "") << "tokens around a ring, zero=" << zero;
    EXPECT_GT(ring_turns(tokens, plan_sharding(tokens, ring.placing, ring.choices).value(), ring.placing), 0);
    // Rows of an image 6:4:2 of twelve: windows with halos over uneven parts.
    const TrainingGraph cnn = make_training_graph(small_cnn(), {.master_weights = false}).value();
    Plan rows = uneven_plan(cnn, zero);
    for (OpId op : cnn.graph.ops().ids())
      if (cnn.graph.name(op) == "conv1.conv" || cnn.graph.name(op) == "conv2.conv")
        rows.choices.ops[0][op] = {"h", 1, {6, 4, 2}};
    EXPECT_EQ(compare(cnn, rows).problem, "") << "rows, zero=" << zero;
  }
}

// Strategies as people write them, through shorthand, presets and resolution.
TEST(CompiledProgram, ShorthandStrategiesTrainAsOneDevice) {
  const std::pair<const char*, const char*> cases[] = {
      {kLlama, "dp=4"},
      {kLlama, "dp=4,zero=1"},
      {kLlama, "dp=4,zero=3"},
      {kLlama, "fsdp=2,replicate=2,zero=3"},
      {kGpt, "tp=2,dp=2,sp=0"},
      {kGpt, "tp=2,dp=2"},
      {kLlama, "tp=2,pp=2,ga=4"},
      {kLlama, "tp=2,pp=2,dp=2,zero=1,recompute=full,ga=3"},
      {kLlama, "tp=2,pp=2,dp=2,zero=1,recompute=selective,schedule=zb-h1,ga=4"},
      {kLlama, "tp=2,dp=2,zero=1,recompute=op,full=layers.*.mlp.gate_up,ga=2"},
      {kMoe, "ep=2,dp=4,recompute=op"},
      {kLlama, "cp=2,dp=2"},
      {kLlama, "cp=2,dp=2,cp_mode=a2a"},
      {kLlama, "cp=2,dp=2,cp_mode=ring"},
      {kGpt, "cp=2,dp=2,cp_mode=ring"},
      {kLlama, "cp=4,cp_mode=ring"},
      {kGpt, "cp=4,cp_mode=ring,recompute=full"},
      {kLlama, "cp=4,cp_mode=ring,recompute=selective"},
      {kLlama, "tp=2,cp=2,pp=2,cp_mode=ring,ga=4"},
      {kGpt, "tp=2,cp=2,pp=2,cp_mode=ring,ga=4,recompute=selective"},
      {kLlama, "cp=2,dp=2,zero=1,cp_mode=ring"},
      {kLlama, "tp=2,cp=2,dp=2,zero=3,cp_mode=ring,recompute=full"},
      {kGpt, "tp=4,cp=2,sp=0,cp_mode=ring"},
      {kMoe, "dp=2,cp=2,ep=4,cp_mode=ring"},
      {kLlama, "cp=2,pp=2,cp_mode=ring,schedule=dualpipe,ga=4"},
      {kLlama, "cp=2,pp=2,cp_mode=ring,schedule=zb-h1,ga=4"},
      {kLlama, "cp=2,dp=2,cp_mode=ring,offload=activations"},
      // Tokens in zigzag order.
      {kZigzag, "cp=2,dp=2"},
      {kZigzag, "cp=2,dp=2,cp_mode=ring"},
      {kZigzag, "tp=2,cp=2,pp=2,cp_mode=ring,ga=4,recompute=full"},
      {kMoe, "dp=4,ep=2"},
      {kMoe, "tp=2,dp=2,ep=2,zero=1"},
      {kMoe, "dp=2,cp=2,ep=4"},
      {"gpt2-124m:layers=4,hidden=8,heads=2,vocab=16,dropout=0", "pp=2,vpp=2,ga=4"},
      // Every stage held twice, gradients of the two copies summed.
      {kLlama, "pp=2,schedule=dualpipe,ga=4"},
      {"gpt2-124m:layers=4,hidden=8,heads=2,vocab=16,dropout=0", "pp=4,dp=2,zero=1,schedule=dualpipe,ga=8"},
      {"gpt2-124m:layers=4,hidden=8,heads=2,vocab=16,dropout=0", "tp=2,pp=2,schedule=dualpipe-v,ga=4,recompute=full"},
      // On the host: what the optimizer keeps, then everything.
      {kLlama, "dp=2,zero=1,offload=optimizer"},
      {kLlama, "dp=2,zero=3,offload=optimizer+gradients+weights+activations"},
      {kLlama, "tp=2,pp=2,ga=4,recompute=full,offload=activations+gradients"},
  };
  const Cluster cluster = parse_cluster("dgx-h100:1").value();
  for (const auto& [model, text] : cases) {
    const Result<Shorthand> shorthand = parse_shorthand(text);
    ASSERT_TRUE(shorthand.ok()) << text << ": " << shorthand.error().message;
    std::int64_t devices = 1;
    for (const auto& degree :
         {shorthand->tp, shorthand->pp, shorthand->cp, shorthand->dp, shorthand->fsdp, shorthand->replicate})
      devices *= degree.value_or(1);
    const Result<Parallelism> parallelism = complete(*shorthand, devices);
    ASSERT_TRUE(parallelism.ok()) << text << ": " << parallelism.error().message;
    Graph graph = build_model(model, {.batch = parallelism->graph_batch(), .seq = 4}).value();
    const Strategy strategy = expand(*parallelism, graph);
    const TrainingGraph training = make_training_graph(std::move(graph), {.master_weights = false}).value();
    const Result<ResolvedStrategy> resolved = resolve(strategy, training, cluster);
    ASSERT_TRUE(resolved.ok()) << text << ": " << resolved.error().message;
    const Result<CompiledStrategy> compiled = compile_strategy(training, *resolved);
    ASSERT_TRUE(compiled.ok()) << text << ": " << compiled.error().message;
    EXPECT_EQ(compare(training, compiled->program, compiled->schedule).problem, "") << model << " " << text;
  }
}

// Collectives of one layer and micro-batch over the tensor-parallel axis, by kind.
std::map<Collective, int> layer_collectives(const char* model, const Degrees& degrees,
                                            const CompileOptions& options = {}) {
  Result<Model> loaded = load_model(model, {.batch = 2, .seq = 4});
  const TrainingGraph training = make_training_graph(std::move(loaded->graph)).value();
  std::vector<DeviceId> devices;
  for (int i = 0; i < degrees.tp; ++i) devices.emplace_back(static_cast<std::size_t>(i));
  const Mesh mesh = Mesh::make({{"dp", 1}, {"ep", 1}, {"cp", 1}, {"tp", degrees.tp}}, devices).value();
  const Placing placing = on_one_mesh(training.graph, mesh);
  const ShardingPlan plan = plan_sharding(training, placing, megatron(training.graph, mesh, degrees)).value();
  const Program program =
      compile(training, placing, plan, options, regions_of(training.graph, degrees.recompute)).value();
  std::map<Collective, int> counts;
  for (const auto* body : {&program.stages[0].forward, &program.stages[0].backward})
    for (InstructionId id : *body)
      if (const auto* collective = std::get_if<Communicate>(&program.instructions[id].what))
        // Tensors of the second of three layers, and what its neighbours hand it: activations only.
        for (BufferId output : collective->outputs) {
          const Tensor& tensor = training.graph.tensors()[program.buffers[output].tensor];
          if (training.graph.name(program.buffers[output].tensor).starts_with("layers.1.") &&
              tensor.type.shape.size() == 3)
            ++counts[collective->collective];
        }
  return counts;
}

// Korthikanti et al. 2022, and how frameworks count: two all-reduces forward and two backward per layer; a full
// recomputation repeats the forward ones. With sequence parallelism each all-reduce is a reduce-scatter and an
// all-gather, and column-parallel linears gather their input again for the weight gradient.
TEST(CompiledProgram, TensorParallelCollectivesPerLayerAreMegatrons) {
  const char* const model = "gpt2-124m:layers=3,hidden=16,heads=4,vocab=16,dropout=0";
  using Counts = std::map<Collective, int>;
  EXPECT_EQ(layer_collectives(model, {.tp = 2}), (Counts{{Collective::AllReduce, 4}}));
  EXPECT_EQ(layer_collectives(model, {.tp = 2, .recompute = "selective"}), (Counts{{Collective::AllReduce, 4}}));
  EXPECT_EQ(layer_collectives(model, {.tp = 2, .recompute = "full"}), (Counts{{Collective::AllReduce, 6}}));
  EXPECT_EQ(layer_collectives(model, {.tp = 2, .sequence_parallel = true}),
            (Counts{{Collective::AllGather, 6}, {Collective::ReduceScatter, 4}}));
  // Unless the stack keeps the gathered input.
  EXPECT_EQ(layer_collectives(model, {.tp = 2, .sequence_parallel = true}, {.keep_gathered_input = true}),
            (Counts{{Collective::AllGather, 4}, {Collective::ReduceScatter, 4}}));
}

// FSDP: a layer is gathered once in forward and once in backward, its gradients leave together; no more than two layers
// are gathered at a time.
TEST(CompiledProgram, ShardedParametersAreGatheredLayerByLayer) {
  const Cluster cluster = parse_cluster("dgx-h100:1").value();
  const Parallelism parallelism = complete(parse_shorthand("fsdp=4").value(), 4).value();
  Graph graph = build_model("gpt2-124m:layers=4,hidden=16,heads=4,vocab=16,dropout=0", {.batch = 4, .seq = 4}).value();
  const Strategy strategy = expand(parallelism, graph);
  const TrainingGraph training = make_training_graph(std::move(graph)).value();
  const ResolvedStrategy resolved = resolve(strategy, training, cluster).value();
  const auto count = [&](const ParameterSync& sync) {
    const Program program = compile_strategy(training, resolved, {}, sync).value().program;
    const auto in = [&](const std::vector<InstructionId>& body, Collective collective) {
      int found = 0;
      for (InstructionId id : body)
        if (const auto* each = std::get_if<Communicate>(&program.instructions[id].what))
          found += each->collective == collective ? 1 : 0;
      return found;
    };
    const StageProgram& stage = program.stages[0];
    return std::array{in(stage.forward, Collective::AllGather), in(stage.backward, Collective::AllGather),
                      in(stage.backward, Collective::ReduceScatter)};
  };
  // Four layers and the rest.
  EXPECT_EQ(count({}), (std::array{5, 5, 5}));
  EXPECT_EQ(count({.reshard_after_forward = false}), (std::array{5, 0, 5}));
}

}  // namespace
}  // namespace weft
