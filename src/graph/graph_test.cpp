#include "graph/graph.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "base/random.h"
#include "graph/dot.h"
#include "graph/text.h"
#include "graph/training.h"

namespace weft {
namespace {

using testing::HasSubstr;
using I = std::int64_t;

// A two-layer perceptron with a residual and a tied head: views, shared parameters and broadcasts in one small graph.
Graph tiny_model() {
  GraphBuilder b("tiny");
  const TensorId ids = b.input("ids", DType::I64, {2, 4}), labels = b.input("labels", DType::I64, {2, 4});
  const TensorId table = [&] {
    auto scope = b.scope("embed");
    return b.parameter("weight", DType::BF16, {16, 8});
  }();
  TensorId x;
  {
    auto scope = b.scope("embed");
    x = b.op1(OpKind::Embedding, "lookup", {ids, table});
  }
  for (int layer = 0; layer < 2; ++layer) {
    auto scope = b.scope(fmt::format("layers.{}", layer));
    const TensorId w = b.parameter("weight", DType::BF16, {8, 8}), bias = b.parameter("bias", DType::BF16, {8});
    TensorId y = b.op1(OpKind::Linear, "linear", {x, w});
    y = b.op1(OpKind::Bias, "bias", {y, bias});
    y = b.op1(OpKind::Unary, "act", {y}, {{"fn", "gelu"}});
    x = b.op1(OpKind::Binary, "residual", {x, y}, {{"fn", "add"}});
  }
  auto scope = b.scope("head");
  const TensorId logits = b.op1(OpKind::Linear, "linear", {x, table}, {{"transposed", I{1}}});
  const auto terms = b.op(OpKind::CrossEntropy, "entropy", {logits, labels});
  b.result(b.op1(OpKind::NllLoss, "loss", {terms[0], terms[1]}));
  return std::move(b).freeze().value();
}

TEST(Graph, NamesFollowTheModuleTree) {
  const Graph graph = tiny_model();
  EXPECT_EQ(graph.name(OpId(1)), "layers.0.linear");
  EXPECT_EQ(graph.name(graph.outputs(OpId(1))[0]), "layers.0.linear.y");
  EXPECT_EQ(graph.name(graph.inputs(OpId(1))[1]), "layers.0.weight");
  EXPECT_EQ(graph.parameter_count(), 16 * 8 + 2 * (8 * 8 + 8));
}

TEST(Graph, SameLayersShareSignatures) {
  const Graph graph = tiny_model();
  EXPECT_EQ(graph.ops()[OpId(1)].signature, graph.ops()[OpId(5)].signature);
  EXPECT_EQ(graph.signatures().size(), 8u);  // lookup, linear, bias, act, residual, tied head, entropy, loss
}

TEST(Graph, UsesListEveryReader) {
  const Graph graph = tiny_model();
  for (OpId op : graph.ops().ids())
    for (std::uint32_t i = 0; i < graph.inputs(op).size(); ++i)
      EXPECT_THAT(graph.uses(graph.inputs(op)[i]), testing::Contains(Use{op, i}));
}

TEST(GraphBuilder, TheFirstErrorSticksWithTheOperatorsName) {
  GraphBuilder b("bad");
  auto scope = b.scope("layers.3");
  const TensorId x = b.input("x", DType::F32, {2, 3}), w = b.parameter("w", DType::F32, {4, 5});
  const TensorId y = b.op1(OpKind::Linear, "fc1", {x, w});
  EXPECT_FALSE(y.valid());
  b.op1(OpKind::Unary, "act", {y}, {{"fn", "nonsense"}});
  EXPECT_EQ(std::move(b).freeze().error().message, "layers.3.fc1: linear: dimension 0 of w is 4, but k = 3");
}

TEST(GraphBuilder, RefusesNamesThatDoNotSurviveTheTextForm) {
  for (const char* name : {"", "a b", "a.b", "x@y", "q,r", "s#t", "k=v"}) {
    GraphBuilder b("bad");
    b.input(name, DType::F32, {2});
    EXPECT_FALSE(std::move(b).freeze().ok()) << name;
  }
  GraphBuilder b("twice");
  b.input("x", DType::F32, {2});
  b.input("x", DType::F32, {2});
  EXPECT_THAT(std::move(b).freeze().error().message, HasSubstr("defined twice"));
}

TEST(Training, AddsBackwardAccumulationAndStep) {
  const TrainingGraph training = make_training_graph(tiny_model()).value();
  const Graph& graph = training.graph;
  std::vector<std::string> names;
  for (OpId op : graph.ops().ids())
    if (graph.ops()[op].phase == Phase::Backward) names.push_back(graph.name(op));
  EXPECT_THAT(names, testing::ElementsAre(
                         "head.loss@accumulate", "head.loss@grad", "head.entropy@grad", "head.linear@grad_input",
                         "head.linear@grad_weight", "embed.weight@accumulate", "layers.1.act@grad",
                         "layers.1.bias@grad_bias", "layers.1.bias@accumulate", "layers.1.linear@grad_input",
                         "layers.1.linear@grad_weight", "layers.1.weight@accumulate", "layers.0.residual@sum_dy1",
                         "layers.0.act@grad", "layers.0.bias@grad_bias", "layers.0.bias@accumulate",
                         "layers.0.linear@grad_input", "layers.0.linear@grad_weight", "layers.0.weight@accumulate",
                         "embed.lookup@sum_dy1", "embed.lookup@grad_weight", "embed.weight@accumulate2"));
  // AdamW with clipping: one norm per parameter (5), their sum, the factor, one step per parameter.
  EXPECT_EQ(graph.ops().size() - training.first_step.index(), 5 + 1 + 1 + 5u);
  for (OpId op : IdRange<OpId>(training.first_step, OpId(graph.ops().size())))
    EXPECT_EQ(graph.ops()[op].phase, Phase::Step);
}

TEST(Training, UpdatesShareTheStorageOfWhatTheyUpdate) {
  const TrainingGraph training = make_training_graph(tiny_model()).value();
  const Graph& graph = training.graph;
  for (OpId op : graph.ops().ids())
    if (graph.kind(op) == OpKind::Adam) {
      EXPECT_EQ(graph.tensors()[graph.outputs(op)[0]].storage, graph.inputs(op)[0]);
      EXPECT_EQ(graph.tensors()[graph.inputs(op)[2]].type.dtype, DType::F32);  // master weights
    }
}

TEST(Training, OptimizersKeepTheirStates) {
  const auto state_bytes = [](OptimizerKind optimizer, bool master) {
    const TrainingGraph training =
        make_training_graph(tiny_model(), {.optimizer = optimizer, .master_weights = master}).value();
    I bytes = 0;
    for (TensorId id : training.graph.tensors().ids())
      if (training.graph.tensors()[id].kind == TensorKind::State) bytes += training.graph.bytes(id).value;
    return bytes;
  };
  const I parameters = tiny_model().parameter_count();
  // bf16 gradients 2 bytes; fp32 master 4; Adam's moments 8, momentum 4. Besides one fp32 number that adds up losses.
  EXPECT_EQ(state_bytes(OptimizerKind::AdamW, true), parameters * (2 + 4 + 8) + 4);
  EXPECT_EQ(state_bytes(OptimizerKind::Adam, false), parameters * (2 + 8) + 4);
  EXPECT_EQ(state_bytes(OptimizerKind::Lamb, true), parameters * (2 + 4 + 8) + 4);
  EXPECT_EQ(state_bytes(OptimizerKind::Momentum, true), parameters * (2 + 4 + 4) + 4);
  EXPECT_EQ(state_bytes(OptimizerKind::Sgd, true), parameters * (2 + 4) + 4);
}

TEST(Training, NeedsAScalarLossThatDependsOnAParameter) {
  GraphBuilder no_loss("no-loss");
  const TensorId x = no_loss.input("x", DType::F32, {2});
  no_loss.result(no_loss.op1(OpKind::Unary, "act", {x}, {{"fn", "relu"}}));
  EXPECT_THAT(make_training_graph(std::move(no_loss).freeze().value()).error().message, HasSubstr("scalar loss"));
  GraphBuilder no_parameter("no-parameter");
  const TensorId z = no_parameter.input("x", DType::F32, {2});
  no_parameter.result(no_parameter.op1(OpKind::Reduce, "sum", {z}));
  EXPECT_THAT(make_training_graph(std::move(no_parameter).freeze().value()).error().message,
              HasSubstr("depends on no parameter"));
}

TEST(Training, SavesWhatBackwardReadsAndRegionsSaveTheirInputs) {
  const TrainingGraph training = make_training_graph(tiny_model()).value();
  const Graph& graph = training.graph;
  const auto names = [&](const RecomputeRegions& regions) {
    std::vector<std::string> list;
    for (TensorId id : saved_tensors(training, regions)) list.push_back(graph.name(id));
    return list;
  };
  RecomputeRegions regions = RecomputeRegions::none(graph);
  EXPECT_THAT(names(regions),
              testing::ElementsAre("embed.lookup.y", "layers.0.bias.y", "layers.0.residual.y", "layers.1.bias.y",
                                   "layers.1.residual.y", "head.linear.y", "head.entropy.lse", "head.loss.loss"));
  // Both layers recomputed: only their inputs stay. The gelu inputs (the bias outputs) go.
  for (OpId op : IdRange<OpId>(training.first_backward.index())) {
    const std::string name = graph.name(op);
    if (name.starts_with("layers.0.")) regions.region[op] = 0;
    if (name.starts_with("layers.1.")) regions.region[op] = 1;
  }
  EXPECT_THAT(names(regions), testing::ElementsAre("embed.lookup.y", "layers.0.residual.y", "layers.1.residual.y",
                                                   "head.linear.y", "head.entropy.lse", "head.loss.loss"));
  // Products are kept: what they make stays, what they read is computed again.
  for (OpId op : IdRange<OpId>(training.first_backward.index()))
    regions.kept[op] = regions.region[op] >= 0 && !graph.signature(op).contractions.empty();
  EXPECT_THAT(names(regions),
              testing::ElementsAre("embed.lookup.y", "layers.0.linear.y", "layers.0.residual.y", "layers.1.linear.y",
                                   "layers.1.residual.y", "head.linear.y", "head.entropy.lse", "head.loss.loss"));
}

TEST(Text, ParseUndoesPrint) {
  const Graph forward = tiny_model();
  EXPECT_EQ(parse_graph(print(forward), "tiny").value(), forward);
  for (OptimizerKind optimizer : {OptimizerKind::Sgd, OptimizerKind::AdamW, OptimizerKind::Lamb}) {
    const Graph training = make_training_graph(forward, {.optimizer = optimizer, .loss_scaling = true}).value().graph;
    const std::string text = print(training, {.axes = true});
    const Result<Graph> again = parse_graph(text, "tiny");
    ASSERT_TRUE(again.ok()) << again.error().message;
    EXPECT_EQ(*again, training);
    EXPECT_EQ(print(*again, {.axes = true}), text);
  }
}

TEST(Text, ReadsAsAPersonWouldWrite) {
  const std::string text = print(tiny_model(), {.axes = true});
  EXPECT_THAT(text, HasSubstr("graph tiny\ninput ids i64[2,4]\n"));
  EXPECT_THAT(text, HasSubstr("op layers.0.linear = linear(embed.lookup.y, layers.0.weight) -> bf16[2,4,8]  # x[b,s,k] "
                              "w[k,n] -> y[b,s,n]; b=2 s=4 k=8 n=8\n"));
  EXPECT_THAT(text,
              HasSubstr("op head.linear = linear(layers.1.residual.y, embed.weight) {transposed=1} -> bf16[2,4,16]"));
}

TEST(Text, ErrorsNameFileLineAndRemedy) {
  const auto message = [](std::string_view text) { return parse_graph(text, "g.weft").error().message; };
  EXPECT_EQ(message(""), "g.weft:0: no 'graph NAME' line");
  EXPECT_EQ(message("input x f32[2]"), "g.weft:1: the first line must be 'graph NAME'");
  EXPECT_EQ(message("graph g\ninput x f33[2]"), "g.weft:2: type 'f33[2]': unknown element type 'f33'");
  EXPECT_EQ(message("graph g\ninput x f32[2,0]"), "g.weft:2: type 'f32[2,0]': dimensions must be positive");
  EXPECT_EQ(message("graph g\ninput x f32[2]\nop y = unary(z) {fn=\"relu\"} -> f32[2]"),
            "g.weft:3: tensor 'z' is not defined above");
  EXPECT_EQ(message("graph g\ninput x f32[2]\nop y = unarry(x) {fn=\"relu\"} -> f32[2]"),
            "g.weft:3: unknown operator 'unarry'; did you mean unary?");
  EXPECT_EQ(message("graph g\ninput x f32[2]\nop y = unary(x) {fn=\"relu\"} -> f32[3]"),
            "g.weft:3: y makes f32[2], but the line says f32[3]");
  EXPECT_EQ(message("graph g\nfrob x"),
            "g.weft:2: 'frob': a line starts with input, scalar, param, state, op, grad, back, step or result");
}

// Any damage to a valid text is an error or another valid graph, never a crash.
RC_GTEST_PROP(Text, DamagedTextNeverCrashes, ()) {
  static const std::string text = print(make_training_graph(tiny_model()).value().graph);
  std::string damaged = text;
  const int edits = *rc::gen::inRange(1, 5);
  for (int i = 0; i < edits; ++i) {
    const auto at = static_cast<std::size_t>(*rc::gen::inRange(0, static_cast<int>(damaged.size())));
    switch (*rc::gen::inRange(0, 3)) {
      case 0:
        damaged[at] = *rc::gen::elementOf(std::string(" ,()[]{}=@:.#-0a\n\""));
        break;
      case 1:
        damaged.erase(at, static_cast<std::size_t>(*rc::gen::inRange(1, 40)));
        break;
      default:
        damaged.insert(at, damaged.substr(damaged.size() / 2, 30));
        break;
    }
  }
  const Result<Graph> parsed = parse_graph(damaged, "damaged");
  if (parsed.ok()) RC_ASSERT(parse_graph(print(*parsed), "again").value() == *parsed);
}

TEST(Dot, DrawsEveryOperatorInItsModule) {
  const std::string dot = to_dot(tiny_model());
  EXPECT_THAT(dot, HasSubstr("subgraph cluster_"));
  EXPECT_THAT(dot, HasSubstr("label=\"residual\\nbinary\""));
  EXPECT_EQ(std::count(dot.begin(), dot.end(), '{'), std::count(dot.begin(), dot.end(), '}'));
}

}  // namespace
}  // namespace weft
