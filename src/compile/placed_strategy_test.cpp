// Strategies from YAML with stages of different shapes and individually placed operators train as one device does.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/random.h"
#include "compile/from_strategy.h"
#include "models/models.h"
#include "program/verify.h"
#include "reference/one_device.h"
#include "strategy/layers.h"
#include "strategy/placing.h"
#include "strategy/presets.h"
#include "strategy/yaml.h"

namespace weft {
namespace {

TrainingGraph zoo(const std::string& spec, std::int64_t batch, std::optional<std::int64_t> seq) {
  return make_training_graph(build_model(spec, {.batch = batch, .seq = seq}).value(), {.master_weights = false})
      .value();
}

Result<CompiledStrategy> compiled(const TrainingGraph& training, const Strategy& strategy) {
  static const Cluster cluster = parse_cluster("dgx-h100:1").value();
  WEFT_TRY(const ResolvedStrategy resolved, resolve(strategy, training, cluster, "plan.yaml"));
  return compile_strategy(training, resolved, {.gradients = {.bucket = Bytes{200}}});
}
std::string problem(const TrainingGraph& training, const Strategy& strategy) {
  const Result<CompiledStrategy> plan = compiled(training, strategy);
  if (!plan.ok()) return plan.error().message;
  return reference::differs_from_one_device(training, plan->program, plan->schedule);
}
std::string problem(const TrainingGraph& training, const std::string& yaml) {
  const Result<Strategy> strategy = parse_strategy(yaml, "plan.yaml");
  return strategy.ok() ? problem(training, *strategy) : strategy.error().message;
}

const char* const kGpt = "gpt2-124m:layers=2,hidden=12,heads=6,vocab=12,dropout=0.1";
const char* const kLlama = "llama3-8b:layers=2,hidden=12,heads=6,kv_heads=6,ffn=12,vocab=12";

TEST(PlacedStrategy, ATensorParallelStageFeedsADataParallelOne) {
  for (const char* model : {kGpt, kLlama})
    for (const char* zero : {"", ", memory: {optimizer: {over: [dp]}}",
                             ", memory: {optimizer: {over: [dp]}, gradients: {over: [dp]}, weights: {over: [dp]}}"})
      for (const char* sequence : {"", "sequence_parallel: {tp: s}\n"}) {
        const std::string yaml = fmt::format(
            "mesh: {{axes: {{pp: 2, dp: 4}}}}\n"
            "schedule:\n"
            "  micro_batches: 3\n"
            "  stages:\n"
            "    - {{layers: 1, mesh: {{axes: {{tp: 2}}, devices: [0, 1]}}}}\n"
            "    - {{layers: 1, mesh: {{axes: {{dp: 4}}, devices: [2..5]}}}}\n"
            "{}"
            "rules:\n"
            "  - {{match: '**', inputs: {{dp: 0}}{}}}\n"
            "  - {{match: embed.tokens, compute: {{tp: v}}}}\n"
            "  - {{match: layers.*.attn.qkv, compute: {{tp: n}}}}\n"
            "  - {{match: layers.*.attn.out, compute: {{tp: k}}}}\n"
            "  - {{match: layers.*.mlp.down, compute: {{tp: k}}}}\n",
            sequence, zero);
        EXPECT_EQ(problem(zoo(model, 4, 4), yaml), "") << model << "\n" << yaml;
      }
}

// The first stage splits heads over two devices, the second samples over four.
TEST(PlacedStrategy, EveryStageSplitsWhatItsMeshHas) {
  const TrainingGraph training = zoo(kGpt, 4, 4);
  const Strategy strategy = parse_strategy(
                                "mesh: {axes: {pp: 2, dp: 2, tp: 2}}\n"
                                "schedule:\n"
                                "  stages:\n"
                                "    - {layers: 1, mesh: {axes: {tp: 2}, devices: [0, 1]}}\n"
                                "    - {layers: 1, mesh: {axes: {tp: 1, dp: 4}, devices: [5, 4, 3, 2]}}\n"
                                "rules:\n"
                                "  - {match: '**', inputs: {dp: 0}}\n"
                                "  - {match: layers.*.mlp.up, compute: {tp: n}}\n",
                                "plan.yaml")
                                .value();
  const Cluster cluster = parse_cluster("dgx-h100:1").value();
  const PlacedStrategy placed = place(resolve(strategy, training, cluster).value(), training.graph).value();
  ASSERT_EQ(placed.placing.meshes.size(), 2u);
  EXPECT_EQ(placed.placing.meshes[MeshId(0)].axes(), (std::vector<MeshAxis>{{"dp", 1}, {"tp", 2}}));
  EXPECT_EQ(placed.placing.meshes[MeshId(1)].axes(), (std::vector<MeshAxis>{{"dp", 4}, {"tp", 1}}));
  EXPECT_EQ(placed.placing.meshes[MeshId(1)].devices().front(), DeviceId(5));
  const ShardingPlan plan = plan_sharding(training, placed.placing, placed.routes.front().choices).value();
  for (OpId op : training.graph.ops().ids()) {
    const std::string name = training.graph.name(op);
    if (!name.ends_with("mlp.up")) continue;
    const Signature& signature = training.graph.signature(op);
    const std::vector<Cut>& columns = plan.ops[op].axes[static_cast<std::size_t>(signature.axis_named("n"))];
    const std::vector<Cut>& samples = plan.ops[op].axes[static_cast<std::size_t>(signature.axis_named("b"))];
    EXPECT_EQ(columns, name.starts_with("layers.0") ? std::vector<Cut>{{1}} : std::vector<Cut>{}) << name;
    EXPECT_EQ(samples, name.starts_with("layers.1") ? std::vector<Cut>{{0}} : std::vector<Cut>{}) << name;
  }
}

TEST(PlacedStrategy, UnequalGroupsWithSharesInARatio) {
  // Three devices with samples 3:2:1 of six, then two of different speed with heads and columns 2:1 of six, four with
  // tensor and data parallelism.
  const char* const stages =
      "mesh: {axes: {pp: 3, dp: 2}}\n"
      "schedule:\n"
      "  name: SCHEDULE\n"
      "  micro_batches: 3\n"
      "  stages:\n"
      "    - {layers: 1, mesh: {axes: {dp: 3}, devices: [0, 1, 2]}}\n"
      "    - {layers: 1, mesh: {axes: {tp: 2}, devices: [3, 4]}}\n"
      "    - {layers: 1, mesh: {axes: {dp: 2, tp: 1}, devices: [6, 5]}}\n"
      "rules:\n"
      "MEMORY"
      "  - {match: embed, compute: {dp: {axis: b, ratio: [3, 2, 1]}}}\n"
      "  - {match: layers.0, compute: {dp: {axis: b, ratio: [3, 2, 1]}}}\n"
      "  - {match: layers.*.attn.qkv, compute: {tp: {axis: n, ratio: [2, 1]}}}\n"
      "  - {match: layers.*.attn.out, compute: {tp: {axis: k, ratio: [2, 1]}}}\n"
      "  - {match: layers.*.mlp.down, compute: {tp: {axis: k, ratio: [2, 1]}}}\n"
      "  - {match: head.labels, inputs: {dp: 0}}\n"
      "  - {match: head.logits, compute: {dp: b}}\n";
  for (const char* model : {"gpt2-124m:layers=3,hidden=12,heads=6,vocab=12,dropout=0.1",
                            "llama3-8b:layers=3,hidden=12,heads=6,kv_heads=6,ffn=12,vocab=12"})
    for (const char* schedule : {"1f1b", "gpipe", "zb-h1"})
      for (const char* memory :
           {"", "  - {match: '**', memory: {optimizer: {over: [dp]}}}\n",
            "  - {match: '**', memory: {optimizer: {over: [dp]}, gradients: {over: [dp]}, weights: {over: [dp]}}}\n"}) {
        std::string yaml = stages;
        yaml.replace(yaml.find("SCHEDULE"), 8, schedule);
        yaml.replace(yaml.find("MEMORY"), 6, memory);
        EXPECT_EQ(problem(zoo(model, 6, 4), yaml), "") << model << "\n" << yaml;
      }
}

// A convolutional network with a window of every kind, BatchNorm and a residual sum.
TrainingGraph small_cnn() {
  GraphBuilder b("cnn");
  const auto conv = [&](const std::string& name, TensorId x, std::int64_t out, std::int64_t stride) {
    auto scope = b.scope(name);
    const TensorId w = b.parameter("weight", DType::F32, {out, b.shape(x)[1], 3, 3});
    return b.op1(OpKind::Conv2d, "conv", {x, w},
                 {{"stride", std::vector<std::int64_t>{stride, stride}}, {"pad", std::vector<std::int64_t>{1, 1}}});
  };
  TensorId x = b.op1(OpKind::Unary, "relu1", {conv("conv1", b.input("image", DType::F32, {4, 2, 8, 8}), 4, 1)},
                     {{"fn", "relu"}});
  {
    auto scope = b.scope("norm");
    x = b.op1(OpKind::BatchNorm, "norm",
              {x, b.parameter("weight", DType::F32, {4}), b.parameter("bias", DType::F32, {4})});
  }
  const TensorId left = b.op1(OpKind::Unary, "relu2", {conv("conv2", x, 4, 1)}, {{"fn", "relu"}});
  const TensorId right = conv("conv3", x, 4, 1);
  x = b.op1(OpKind::Binary, "add", {left, right}, {{"fn", "add"}});
  x = b.op1(OpKind::Pool2d, "pool", {x}, {{"fn", "max"}, {"kernel", std::vector<std::int64_t>{2, 2}}});
  x = b.op1(OpKind::Reduce, "average", {conv("conv4", x, 6, 2)},
            {{"fn", "mean"}, {"dims", std::vector<std::int64_t>{2, 3}}});
  auto scope = b.scope("head");
  x = b.op1(OpKind::Linear, "linear", {x, b.parameter("weight", DType::F32, {6, 8})});
  x = b.op1(OpKind::Bias, "bias", {x, b.parameter("bias", DType::F32, {8})});
  const auto terms = b.op(OpKind::CrossEntropy, "entropy", {x, b.input("labels", DType::I64, {4})});
  b.result(b.op1(OpKind::NllLoss, "loss", {terms[0], terms[1]}));
  return make_training_graph(std::move(b).freeze().value(), {.master_weights = false}).value();
}

TEST(PlacedStrategy, OperatorsOfACnnOnDevicesOfTheirOwn) {
  EXPECT_EQ(problem(small_cnn(),
                    "mesh: {axes: {dp: 4}}\n"
                    "rules:\n"
                    "  - {match: '**', inputs: {dp: 0}}\n"
                    "  - {match: conv1, place: {degrees: {h: 2, w: 2}, devices: [3, 1, 0, 2]}}\n"
                    "  - {match: norm, place: {degrees: {b: 2}, devices: [4, 5]}}\n"
                    "  - {match: conv2, place: {degrees: {b: 2, o: 2}, devices: [0..3]}}\n"
                    "  - {match: conv3, place: {degrees: {o: 2}, devices: [6, 7]}}\n"
                    "  - {match: head.linear, place: {degrees: {n: 4}, devices: [7, 0, 3, 1]}}\n"
                    "  - {match: head.loss, place: {degrees: {}, devices: [5]}}\n"),
            "");
}
TEST(PlacedStrategy, EveryOperatorOfACnnByItself) {
  // FlexFlow's start: samples over all devices; then layers one by one elsewhere and otherwise.
  const TrainingGraph training = small_cnn();
  Strategy strategy;
  strategy.mesh.axes = {{"dp", 1}};
  const std::vector<std::int64_t> devices = {2, 0, 3, 1};
  strategy.rules = placed_data_parallel(training.graph, devices);
  EXPECT_EQ(problem(training, strategy), "");
  for (Rule& rule : strategy.rules) {
    if (rule.match == "conv2.conv") rule.place = OpPlacement{{{"c", 2}}, {1, 4}};
    if (rule.match == "conv3.conv") rule.place = OpPlacement{{{"h", 4}}, {0, 1, 2, 3}};
    if (rule.match == "pool") rule.place = OpPlacement{{{"w", 2}, {"b", 2}}, {5, 6, 7, 0}};
    if (rule.match == "head.linear") rule.place = OpPlacement{{{"k", 2}, {"n", 2}}, {3, 2, 1, 0}};
  }
  EXPECT_EQ(problem(training, strategy), "");
}

TEST(PlacedStrategy, LayersOfAnRnnOnDevicesOfTheirOwn) {
  const TrainingGraph training = zoo("rnnlm:hidden=4,vocab=12", 4, 3);
  // The embedding on one device, cells by samples or by gates, the softmax by its classes: FlexFlow's finding for NMT.
  std::set<std::string> names;
  std::string yaml = "mesh: {axes: {dp: 2}}\nrules:\n  - {match: '**', inputs: {dp: 0}}\n";
  int next = 0;
  for (OpId op : training.graph.ops().ids()) {
    if (training.graph.ops()[op].phase != Phase::Forward) break;
    const std::string name = training.graph.name(op);
    const Signature& signature = training.graph.signature(op);
    if (signature.kind == OpKind::Embedding) yaml += fmt::format("  - {{match: {}, place: {{devices: [5]}}}}\n", name);
    if (signature.kind == OpKind::LstmCell)
      yaml += next++ % 2 == 0
                  ? fmt::format("  - {{match: {}, place: {{degrees: {{b: 2}}, devices: [2, 3]}}}}\n", name)
                  : fmt::format("  - {{match: {}, place: {{degrees: {{n: 2, b: 2}}, devices: [4..7]}}}}\n", name);
    if (signature.kind == OpKind::Linear)
      yaml += fmt::format("  - {{match: {}, place: {{degrees: {{n: 3}}, devices: [6, 0, 4]}}}}\n", name);
  }
  EXPECT_GT(next, 3);
  EXPECT_EQ(problem(training, yaml), "") << yaml;
}

TEST(PlacedStrategy, PlacementsInsideAPipeline) {
  EXPECT_EQ(problem(zoo(kGpt, 4, 4),
                    "mesh: {axes: {pp: 2, dp: 2, tp: 2}}\n"
                    "schedule: {micro_batches: 4}\n"
                    "rules:\n"
                    "  - {match: '**', inputs: {dp: 0}, recompute: full}\n"
                    "  - {match: layers.*.attn.qkv, compute: {tp: n}}\n"
                    "  - {match: layers.*.attn.out, compute: {tp: k}}\n"
                    "  - {match: embed.tokens, place: {devices: [2]}}\n"
                    "  - {match: layers.0.mlp.up, place: {degrees: {n: 4}, devices: [0, 3, 1, 2]}}\n"
                    "  - {match: layers.1.mlp.up, place: {degrees: {b: 2, s: 2}, devices: [7, 6, 5, 4]}}\n"),
            "");
}

// Any strategy: meshes of any shape, in one stage or two of their own, operators split on any axis and placed anywhere
// among the devices of their stage.
Strategy any_strategy(const TrainingGraph& training, bool stages, Rng& rng) {
  const Graph& graph = training.graph;
  const auto any_mesh = [&](std::int64_t first, std::int64_t most) {
    MeshDeclaration mesh;
    const auto x = rng.between(1, 3), y = rng.between(1, std::min<std::int64_t>(3, most / x));
    mesh.axes = {{"x", static_cast<int>(x)}};
    if (rng.below(3) > 0) mesh.axes.push_back({"y", static_cast<int>(y)});
    if (rng.below(2) == 0) std::reverse(mesh.axes.begin(), mesh.axes.end());
    std::int64_t size = 1;
    for (const MeshAxis& axis : mesh.axes) size *= axis.size;
    for (std::int64_t device = first + size; device-- > first;) mesh.devices.push_back(device);
    return mesh;
  };
  Strategy strategy;
  strategy.schedule.micro_batches = 2;
  std::vector<MeshDeclaration> meshes;
  if (stages) {
    strategy.mesh.axes = {{"pp", 2}};
    for (int s = 0; s < 2; ++s) {
      meshes.push_back(any_mesh(4 * s, 4));
      strategy.schedule.stages.push_back(Stage{.layers = 1, .mesh = meshes.back()});
    }
  } else {
    strategy.mesh = any_mesh(0, 6);
    meshes.push_back(strategy.mesh);
  }
  Rule root;
  root.match = "**";
  const std::vector<std::string> axes = {"x", "y"};
  const bool has_y = std::any_of(meshes.begin(), meshes.end(), [](const auto& mesh) { return mesh.axes.size() == 2; });
  for (std::size_t m = 0; m < (has_y ? 2u : 1u); ++m) {
    if (rng.below(2) == 0) root.inputs[axes[m]] = {0};
    if (rng.below(3) == 0 && graph.signature(OpId(0)).axis_named("s") >= 0) strategy.reduce_onto[axes[m]] = "s";
  }
  for (std::size_t kind : {2u, 1u, 0u})  // optimizer state, gradients, weights: each only with the one before
    if ((kind == 2u || root.memory[kind + 1].over) && rng.below(2) == 0)
      root.memory[kind].over = std::vector<std::string>{"x"};
  if (rng.below(3) == 0) root.recompute = Recompute::Full;
  strategy.rules.push_back(root);
  const Layers layers = find_layers(graph);
  for (OpId op : graph.ops().ids()) {
    if (graph.ops()[op].phase != Phase::Forward) break;
    const Signature& signature = graph.signature(op);
    const std::string& mesh_axis = axes[has_y ? rng.below(2) : 0];
    std::vector<std::string> possible = {""}, halves = {""};
    for (int axis = 0; axis < static_cast<int>(signature.axes.size()); ++axis) {
      if (!splittable(signature, axis)) continue;
      const Axis& described = signature.axes[static_cast<std::size_t>(axis)];
      if (described.size % 2 == 0) halves.push_back(described.name);
      if (std::all_of(meshes.begin(), meshes.end(),
                      [&](const auto& mesh) { return described.size % mesh.size_of(mesh_axis) == 0; }))
        possible.push_back(described.name);
    }
    Rule rule;
    rule.match = graph.name(op);
    if (rng.below(5) == 0) {
      // Operators of the second stage are those of the second layer and what follows.
      const bool late = stages && (layers.of[op] == 1 || rule.match.starts_with("head"));
      OpPlacement placement;
      const std::vector<std::int64_t>& devices = meshes[late ? 1 : 0].devices;
      const std::string axis = devices.size() == 1 ? "" : halves[rng.below(halves.size())];
      if (!axis.empty()) placement.degrees = {{axis, 2}};
      const std::size_t first = rng.below(devices.size());
      for (std::size_t i = 0; i < (axis.empty() ? 1u : 2u); ++i)
        placement.devices.push_back(devices[(first + i) % devices.size()]);
      rule.place = placement;
    } else if (rng.below(3) == 0) {
      rule.compute[mesh_axis] = Split{possible[rng.below(possible.size())]};
    } else {
      continue;
    }
    strategy.rules.push_back(std::move(rule));
  }
  return strategy;
}

TEST(PlacedStrategy, RandomStrategiesWithoutViolationsTrainAsOneDevice) {
  const Cluster cluster = parse_cluster("dgx-h100:1").value();
  const TrainingGraph models[] = {small_cnn(), zoo("rnnlm:hidden=4,vocab=12", 12, 3),
                                  zoo("gpt2-124m:layers=2,hidden=12,heads=6,vocab=12,dropout=0.1", 12, 2),
                                  zoo("llama3-8b:layers=2,hidden=12,heads=6,kv_heads=6,ffn=12,vocab=12", 12, 2)};
  const char* const wanted = std::getenv("WEFT_RANDOM_PLANS");  // fewer in sanitizer builds
  const std::uint64_t plans = (wanted ? std::strtoull(wanted, nullptr, 10) : 2100) / 10;
  int played = 0, refused = 0;
  for (std::uint64_t seed = 0; seed < plans; ++seed) {
    const TrainingGraph& training = models[seed % 4];
    Rng rng(seed);
    const Strategy strategy = any_strategy(training, seed % 4 >= 2 && rng.below(2) == 0, rng);
    if (!validate(strategy, training, cluster).empty()) {
      ++refused;
      continue;
    }
    ++played;
    EXPECT_EQ(problem(training, strategy), "") << "seed " << seed << "\n" << to_yaml(strategy);
  }
  fmt::print("{} random strategies played, {} refused\n", played, refused);
  EXPECT_GT(played, refused);
}

// Every ZeRO stage for some module, under every stage for the rest, in one stage and in two.
TEST(PlacedStrategy, ModulesStoreTheirParametersInWaysOfTheirOwn) {
  const TrainingGraph training = zoo(kGpt, 8, 4);
  const char* const kinds[] = {"optimizer: {over: []}, gradients: {over: []}, weights: {over: []}",
                               "optimizer: {over: [dp]}, gradients: {over: []}, weights: {over: []}",
                               "optimizer: {over: [dp]}, gradients: {over: [dp]}, weights: {over: []}",
                               "optimizer: {over: [dp]}, gradients: {over: [dp]}, weights: {over: [dp]}"};
  for (const char* mesh : {"mesh: {axes: {dp: 2}}", "mesh: {axes: {pp: 2, dp: 2}}"})
    for (std::size_t rest = 0; rest < 4; ++rest)
      for (std::size_t own = 0; own < 4; ++own) {
        const std::string text = fmt::format(
            "{}\nschedule: {{name: 1f1b, micro_batches: 2}}\nrules:\n"
            "  - {{match: '**', memory: {{{}}}}}\n  - {{match: '**', inputs: {{dp: 0}}}}\n"
            "  - {{match: embed.tokens, memory: {{{}}}}}\n  - {{match: 'layers.0.**', memory: {{{}}}}}\n",
            mesh, kinds[rest], kinds[own], kinds[(own + 1) % 4]);
        EXPECT_EQ(problem(training, text), "") << text;
      }
}

// Model chunks of one pipeline rank with different grids: rank 0 has stages 0 and 2 (of a V, 0 and 3) with tp=4 and
// with dp=2, tp=2, rank 1 the others with dp=2 and with tp=2.
TEST(PlacedStrategy, ChunksOfARankHaveMeshesOfDifferentShapes) {
  const auto rules = [](const char* zero) {
    return fmt::format(
        "rules:\n"
        "  - {{match: '**', inputs: {{dp: 0}}{}}}\n"
        "  - {{match: embed.tokens, compute: {{tp: v}}}}\n"
        "  - {{match: layers.*.attn.qkv, compute: {{tp: n}}}}\n"
        "  - {{match: layers.*.attn.out, compute: {{tp: k}}}}\n"
        "  - {{match: layers.*.mlp.down, compute: {{tp: k}}}}\n",
        zero);
  };
  const std::string tensor = "{layers: 1, mesh: {axes: {tp: 4}, devices: [0..3]}}",
                    both = "{layers: 1, mesh: {axes: {dp: 2, tp: 2}, devices: [1, 0, 3, 2]}}",
                    data = "{layers: 1, mesh: {axes: {dp: 2}, devices: [4, 5]}}",
                    narrow = "{layers: 1, mesh: {axes: {tp: 2}, devices: [5, 4]}}", as_the_other = "{layers: 1}";
  const TrainingGraph training = zoo("llama3-8b:layers=4,hidden=16,heads=8,kv_heads=8,ffn=16,vocab=16", 4, 4);
  const TrainingGraph tied = zoo("gpt2-124m:layers=4,hidden=16,heads=8,vocab=16", 4, 4);
  for (const char* zero : {"", ", memory: {optimizer: {over: [dp]}}",
                           ", memory: {optimizer: {over: [dp]}, gradients: {over: [dp]}, weights: {over: [dp]}}"}) {
    const auto yaml = [&](const char* schedule, const std::vector<std::string>& stages) {
      return fmt::format(
          "mesh: {{axes: {{pp: 2, dp: 2}}}}\nschedule:\n  name: {}\n  micro_batches: 4\n  stages: [{}]\n{}", schedule,
          fmt::join(stages, ", "), rules(zero));
    };
    for (const TrainingGraph* model : {&training, &tied}) {
      EXPECT_EQ(problem(*model, yaml("interleaved\n  interleave: 2", {tensor, data, both, narrow})), "") << zero;
      EXPECT_EQ(problem(*model, yaml("interleaved\n  interleave: 2", {tensor, data, as_the_other, as_the_other})), "")
          << zero;
      EXPECT_EQ(problem(*model, yaml("zb-v", {tensor, data, narrow, both})), "") << zero;
      EXPECT_EQ(problem(*model, yaml("dualpipe-v", {both, narrow, data, tensor})), "") << zero;
    }
  }
}

// A class token is a parameter that an operator shows as an activation: what is sent out of its memory has left before
// the optimizer writes there, also where sends overlap computation.
TEST(PlacedStrategy, AParameterThatIsSentIsNotOverwrittenOnTheWay) {
  const TrainingGraph training = zoo("vit-b:layers=1", 4, {});
  const Strategy strategy = parse_strategy(
                                "mesh: {axes: {dp: 1}}\n"
                                "rules:\n"
                                "  - {match: embed.class_token, place: {degrees: {}, devices: [1]}}\n",
                                "plan.yaml")
                                .value();
  const Cluster cluster = parse_cluster("dgx-h100:1").value();
  const ResolvedStrategy resolved = resolve(strategy, training, cluster, "plan.yaml").value();
  for (const bool overlap : {true, false}) {
    CompileOptions options;
    options.transfers.overlap = overlap;
    const CompiledStrategy plan = compile_strategy(training, resolved, options).value();
    const Status verified = verify(plan.program, training.graph, plan.schedule);
    EXPECT_TRUE(verified.ok()) << verified.error().message;
  }
}

}  // namespace
}  // namespace weft
