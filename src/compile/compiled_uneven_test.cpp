// Parts of different sizes: samples, heads, experts, tokens around a ring and rows of images in uneven shares train as
// one device does.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <thread>

#include "base/random.h"
#include "compile/from_strategy.h"
#include "layout/axis_decision.h"
#include "models/models.h"
#include "sharded_plan.h"
#include "small_networks.h"
#include "strategy/yaml.h"

namespace weft {
namespace {

// One mesh axis of three devices that get 3, 2 and 1 shares.
ShardedPlan uneven_plan(const TrainingGraph& training, int zero) {
  std::vector<DeviceId> devices = {DeviceId(0), DeviceId(1), DeviceId(2)};
  ShardedPlan plan{on_one_mesh(training.graph, Mesh::make({{"x", 3}}, devices).value()),
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
      ShardedPlan plan = uneven_plan(training, zero);
      for (TensorId id : training.graph.tensors().ids())
        if (training.graph.tensors()[id].kind == TensorKind::Input &&
            training.graph.tensors()[id].type.shape.size() == 2 && training.graph.tensors()[id].type.shape[0] == 6)
          plan.choices.inputs[0][id] = {0, {3, 2, 1}};
      EXPECT_EQ(problem_of(training, plan), "") << model << " zero=" << zero;
    }
    // Heads and columns 3:2:1 (six heads of 2, twelve columns of the MLP), experts 3:2:1 of six.
    const TrainingGraph training =
        load("mixtral-8x7b:layers=1,hidden=12,heads=6,kv_heads=6,ffn=4,vocab=12,experts=6,capacity_factor=2", 2);
    ShardedPlan plan = uneven_plan(training, zero);
    for (OpId op : training.graph.ops().ids()) {
      const std::string name = training.graph.name(op);
      if (name.ends_with("attn.qkv")) plan.choices.ops[0][op] = {"n", 1, {18, 12, 6}};  // a head has 3 · 2 columns
      if (name.ends_with("attn.out")) plan.choices.ops[0][op] = {"k", 1, {6, 4, 2}};
      if (name.ends_with("head.logits")) plan.choices.ops[0][op] = {"n", 1, {6, 4, 2}};
      if (training.graph.kind(op) == OpKind::ExpertLinear && training.graph.ops()[op].phase == Phase::Forward)
        plan.choices.ops[0][op] = {"e", 1, {3, 2, 1}};
    }
    EXPECT_EQ(problem_of(training, plan), "") << "heads and experts, zero=" << zero;
    // Tokens 3:2:1 of six, keys around a ring: parts of all sizes pass every device.
    const TrainingGraph tokens =
        make_training_graph(
            build_model("llama3-8b:layers=1,hidden=8,heads=4,kv_heads=2,ffn=12,vocab=16", {.batch = 2, .seq = 6})
                .value(),
            {.master_weights = false})
            .value();
    ShardedPlan ring = uneven_plan(tokens, zero);
    ring.choices.ring = 0b1;
    for (TensorId id : tokens.graph.tensors().ids())
      if (const Tensor& tensor = tokens.graph.tensors()[id];
          tensor.kind == TensorKind::Input && tensor.type.shape.size() == 2 && tensor.type.shape[1] == 6)
        ring.choices.inputs[0][id] = {1, {3, 2, 1}};
    EXPECT_EQ(problem_of(tokens, ring), "") << "tokens around a ring, zero=" << zero;
    EXPECT_GT(ring_turns(tokens, plan_sharding(tokens, ring.placing, ring.choices).value(), ring.placing), 0);
    // Rows of an image 6:4:2 of twelve: windows with halos over uneven parts.
    const TrainingGraph cnn = make_training_graph(small_cnn(), {.master_weights = false}).value();
    ShardedPlan rows = uneven_plan(cnn, zero);
    for (OpId op : cnn.graph.ops().ids())
      if (cnn.graph.name(op) == "conv1.conv" || cnn.graph.name(op) == "conv2.conv")
        rows.choices.ops[0][op] = {"h", 1, {6, 4, 2}};
    EXPECT_EQ(problem_of(cnn, rows), "") << "rows, zero=" << zero;
  }
}

// Where an axis of an operator is cut more than once, and not everywhere evenly.
struct CutTwice {
  int uneven_even = 0, even_uneven = 0, uneven_uneven = 0;
  int samples = 0, heads = 0, experts = 0, rings = 0;

  void count(const TrainingGraph& training, const ShardingPlan& plan) {
    for (OpId op : training.graph.ops().ids()) {
      const Signature& signature = training.graph.signature(op);
      for (std::size_t a = 0; a < plan.ops[op].axes.size(); ++a) {
        const std::vector<Cut>& cuts = plan.ops[op].axes[a];
        if (cuts.size() != 2 || (cuts[0].shares.empty() && cuts[1].shares.empty())) continue;
        ++(cuts[1].shares.empty() ? uneven_even : cuts[0].shares.empty() ? even_uneven : uneven_uneven);
        const std::string& name = signature.axes[a].name;
        samples += name == "b";
        heads += signature.kind == OpKind::Attention && name == "g";
        experts += signature.kind == OpKind::ExpertLinear && name == "e";
        rings += signature.kind == OpKind::Attention && name == "t";
      }
    }
  }
};

// Shares for an axis of `left` elements that a mesh axis of so many devices can be given; none: it does not divide.
std::optional<Shares> random_shares(std::int64_t left, int parts, Rng& rng) {
  Shares shares;
  for (int part = 0; part < parts; ++part) shares.push_back(rng.between(1, 3));
  if (rng.below(3) == 0) shares.assign(static_cast<std::size_t>(parts), 1);
  shares = reduced(shares);
  if (left % units_of(shares, parts) != 0) return std::nullopt;
  return shares;
}

// Two mesh axes: most splits are by both of them in random shares; storage is sharded by random shares over random
// subsets of them; one stage or two.
ShardedPlan random_uneven_plan(const TrainingGraph& training, Rng& rng) {
  const Graph& graph = training.graph;
  const std::vector<MeshAxis> axes = {{"x", static_cast<int>(rng.between(2, 3))}, {"y", 2}};
  const int stages = static_cast<int>(rng.between(1, 2)), devices = axes[0].size * axes[1].size;
  ShardedPlan plan{{}, {}, {}, RecomputeRegions::none(graph), make_schedule({"1f1b", stages, 2, 0}).value()};
  for (int stage = 0; stage < stages; ++stage) {
    std::vector<DeviceId> own;
    for (int i = 0; i < devices; ++i) own.emplace_back(static_cast<std::size_t>(stage * devices + i));
    plan.placing.meshes.push_back(Mesh::make(axes, own).value());
    plan.placing.stage_of.push_back(stage);
  }
  const std::size_t border = training.first_backward.index() / 4 + rng.below(training.first_backward.index() / 2);
  plan.placing.mesh_of.resize(graph.ops().size(), MeshId(0));
  for (OpId op : graph.ops().ids())
    if (stages == 2 && op.index() >= border) plan.placing.mesh_of[op] = MeshId(1);

  // Weights over no more axes than gradients, those over no more than optimizer state.
  ParameterStorage storage;
  storage.optimizer = static_cast<MeshAxes>(rng.below(4));
  storage.gradients = storage.optimizer & static_cast<MeshAxes>(rng.below(4));
  storage.weights = storage.gradients & static_cast<MeshAxes>(rng.below(4));
  for (int axis : {0, 1})
    if (rng.below(2) == 0)
      for (int i = 0; i < axes[static_cast<std::size_t>(axis)].size; ++i)
        storage.ratio[axis].push_back(rng.between(1, 3));
  plan.memory = storage;

  plan.choices.ops.resize(2);
  plan.choices.inputs.resize(2);
  plan.choices.reduce_onto.resize(2);
  plan.choices.ring = rng.below(2) == 0 ? 0b11 : static_cast<MeshAxes>(rng.below(4));
  // Both mesh axes split one dimension of the inputs: samples or tokens, of which there are more.
  int dim = 0;
  for (const Tensor& tensor : graph.tensors())
    if (tensor.kind == TensorKind::Input && tensor.type.shape.size() == 2 &&
        tensor.type.shape[1] > tensor.type.shape[0])
      dim = 1;
  std::map<std::pair<std::size_t, std::int64_t>, Shares> of_inputs;  // by mesh axis and extent
  for (TensorId id : graph.tensors().ids()) {
    const Tensor& tensor = graph.tensors()[id];
    if (tensor.kind != TensorKind::Input || tensor.type.shape.size() != 2) continue;
    std::int64_t left = tensor.type.shape[static_cast<std::size_t>(dim)];
    for (std::size_t m = 0; m < 2; ++m) {
      const auto known = of_inputs.find({m, tensor.type.shape[static_cast<std::size_t>(dim)]});
      std::optional<Shares> shares =
          known == of_inputs.end() ? random_shares(left, axes[m].size, rng) : std::optional(known->second);
      if (!shares || (known == of_inputs.end() && rng.below(4) == 0)) continue;
      of_inputs[{m, tensor.type.shape[static_cast<std::size_t>(dim)]}] = *shares;
      left /= units_of(*shares, axes[m].size);
      plan.choices.inputs[m][id] = {dim, *shares};
    }
  }
  // Some operators are split differently: along any axis, by both mesh axes where it divides.
  for (OpId op : graph.ops().ids()) {
    if (graph.ops()[op].phase != Phase::Forward) break;
    const Signature& signature = graph.signature(op);
    std::string named;  // an axis that is to be met often
    if (signature.kind == OpKind::Attention && rng.below(2) == 0) named = dim == 1 ? "q" : "g";
    if (signature.kind == OpKind::ExpertLinear && rng.below(2) == 0) named = "e";
    if (named.empty() && rng.below(4) != 0) continue;
    const int a = named.empty() ? static_cast<int>(rng.below(signature.axes.size())) : signature.axis_named(named);
    if (!splittable(signature, a) || windowed(signature, a)) continue;
    const Axis& axis = signature.axes[static_cast<std::size_t>(a)];
    std::int64_t left = axis.size;
    for (std::size_t m = 0; m < 2; ++m)
      if (const std::optional<Shares> shares = random_shares(left, axes[m].size, rng)) {
        plan.choices.ops[m][op] = {axis.name, 1, *shares};
        left /= units_of(*shares, axes[m].size);
      } else {
        plan.choices.ops[m][op] = {""};
      }
  }
  return plan;
}

// WEFT_UNEVEN_PLANS sets how many.
TEST(CompiledProgram, RandomUnevenSharesOfTwoMeshAxesTrainAsOneDevice) {
  const char* const wanted = std::getenv("WEFT_UNEVEN_PLANS");
  const int plans = wanted ? std::atoi(wanted) : 400;
  std::vector<TrainingGraph> models;
  for (const auto& [spec, batch, seq] : std::vector<std::tuple<const char*, std::int64_t, std::int64_t>>{
           {"gpt2-124m:layers=1,hidden=12,heads=12,ffn=12,vocab=12,dropout=0.1", 12, 2},
           {"llama3-8b:layers=1,hidden=12,heads=6,kv_heads=6,ffn=12,vocab=12", 2, 12},
           {"mixtral-8x7b:layers=1,hidden=12,heads=6,kv_heads=6,ffn=2,vocab=12,experts=12,capacity_factor=2", 12, 2},
           {"mixtral-8x7b:layers=1,hidden=12,heads=6,kv_heads=6,ffn=4,vocab=12,experts=6,capacity_factor=2,"
            "weigh_rows=1",
            6, 2}})
    models.push_back(
        make_training_graph(build_model(spec, {.batch = batch, .seq = seq}).value(), {.master_weights = false})
            .value());
  std::vector<std::string> problems(static_cast<std::size_t>(plans));
  std::atomic<int> next = 0;
  std::array<CutTwice, 2> cut_twice;
  const auto play = [&](CutTwice& seen) {
    for (int i = next++; i < plans; i = next++) {
      const TrainingGraph& training = models[static_cast<std::size_t>(i) % models.size()];
      Rng rng = Rng(31).split(static_cast<std::uint64_t>(i));
      ShardedPlan plan = random_uneven_plan(training, rng);
      plan.uneven_parts = i / 4 % 2 == 0 ? Parts::Padded : Parts::Grouped;
      problems[static_cast<std::size_t>(i)] = problem_of(training, plan);
      if (const auto sharding = plan_sharding(training, plan.placing, plan.choices); sharding.ok())
        seen.count(training, *sharding);
    }
  };
  std::thread other([&] { play(cut_twice[1]); });
  play(cut_twice[0]);
  other.join();
  int mismatches = 0;
  for (std::size_t i = 0; i < problems.size(); ++i) {
    mismatches += problems[i].empty() ? 0 : 1;
    EXPECT_EQ(problems[i], "") << "plan " << i;
  }
  const auto both = [&](int CutTwice::*count) { return cut_twice[0].*count + cut_twice[1].*count; };
  for (int CutTwice::*count : {&CutTwice::uneven_even, &CutTwice::even_uneven, &CutTwice::uneven_uneven,
                               &CutTwice::samples, &CutTwice::heads, &CutTwice::experts, &CutTwice::rings})
    EXPECT_GT(both(count), plans / 20);
  fmt::print(
      "{} plans played, {} mismatches; axes cut twice: {} uneven × even, {} even × uneven, {} uneven × uneven; {} of "
      "samples, {} of heads, {} of experts, {} of keys in rings\n",
      plans, mismatches, both(&CutTwice::uneven_even), both(&CutTwice::even_uneven), both(&CutTwice::uneven_uneven),
      both(&CutTwice::samples), both(&CutTwice::heads), both(&CutTwice::experts), both(&CutTwice::rings));
}

// From a strategy file: eight samples in shares 3:1, two replicas of which one keeps three quarters of the optimizer
// state, each halved by a second axis.
TEST(CompiledProgram, RatiosOfInputsAndOfStorageAreWhatTheFileSays) {
  const Cluster cluster = parse_cluster("dgx-h100:1").value();
  const TrainingGraph training =
      make_training_graph(build_model("gpt2-124m:layers=1,hidden=24,heads=4,vocab=24", {.batch = 8, .seq = 4}).value(),
                          {.master_weights = false})
          .value();
  for (const char* memory :
       {"", "optimizer: {over: [dp], ratio: {dp: [3, 1]}}",
        "optimizer: {over: [dp, ep], ratio: {dp: [3, 1]}}, gradients: {over: [dp]}",
        "optimizer: {over: [dp, ep]}, gradients: {over: [dp, ep], ratio: {dp: [3, 1]}}, weights: {over: [ep]}"}) {
    const Result<Strategy> strategy = parse_strategy(
        fmt::format("mesh: {{axes: {{dp: 2, ep: 2}}}}\nschedule: {{micro_batches: 2}}\nrules:\n"
                    "  - {{match: '**', inputs: {{dp: {{dim: 0, ratio: [3, 1]}}, ep: 0}}, memory: {{{}}}}}\n",
                    memory),
        "plan.yaml");
    ASSERT_TRUE(strategy.ok()) << strategy.error().message;
    const Result<ResolvedStrategy> resolved = resolve(*strategy, training, cluster, "plan.yaml");
    ASSERT_TRUE(resolved.ok()) << resolved.error().message;
    const Result<CompiledStrategy> compiled = compile_strategy(training, *resolved);
    ASSERT_TRUE(compiled.ok()) << compiled.error().message;
    EXPECT_EQ(reference::differs_from_one_device(training, compiled->program, compiled->schedule), "") << memory;
    const Program& program = compiled->program;
    std::int64_t samples = 0, moments = 0, shared = 0;
    for (const Buffer& buffer : program.buffers) {
      const Mesh& mesh = program.meshes[buffer.layout.mesh];
      if (buffer.kind == BufferKind::Input && local_shape(buffer.layout, mesh, 0).size() == 2) {
        EXPECT_EQ(print(buffer.layout, mesh), "[8:dp(3+1),ep][4]");  // 3, 3 and 1, 1 samples
        ++samples;
      }
      if (buffer.kind != BufferKind::State || buffer.storage != buffer.memory) continue;
      ++moments;
      shared += print(buffer.layout, mesh).find("dp(3+1)") != std::string::npos;
    }
    EXPECT_GT(samples, 0);
    EXPECT_TRUE(memory[0] == 0 || shared > moments / 4) << memory;
  }
}

}  // namespace
}  // namespace weft
