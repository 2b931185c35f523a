#include "graph/autocast.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "graph/training.h"

namespace weft {
namespace {

// Pre-norm: x + dropout(linear(norm(x))), logits, loss.
Graph block() {
  GraphBuilder b("block");
  const DType narrow = DType::BF16;
  TensorId x =
      b.op1(OpKind::Embedding, "tokens", {b.input("ids", DType::I64, {2, 4}), b.parameter("table", narrow, {16, 8})});
  {
    const auto scope = b.scope("layer");
    const TensorId normed =
        b.op1(OpKind::LayerNorm, "norm", {x, b.parameter("gamma", narrow, {8}), b.parameter("beta", narrow, {8})});
    TensorId y = b.op1(OpKind::Linear, "fc", {normed, b.parameter("weight", narrow, {8, 8})});
    y = b.op1(OpKind::Bias, "fc_bias", {y, b.parameter("bias", narrow, {8})});
    y = b.op1(OpKind::Dropout, "dropout", {y}, {{"p", 0.1}});
    x = b.op1(OpKind::Binary, "add", {x, y}, {{"fn", "add"}});
  }
  const TensorId logits = b.op1(OpKind::Linear, "logits", {x, b.parameter("head", narrow, {8, 16})});
  const auto terms = b.op(OpKind::CrossEntropy, "entropy", {logits, b.input("labels", DType::I64, {2, 4})});
  b.result(b.op1(OpKind::NllLoss, "loss", {terms[0], terms[1]}));
  return std::move(b).freeze().value();
}

OpId op_named(const Graph& graph, std::string_view name) {
  for (OpId op : graph.ops().ids())
    if (graph.name(op) == name) return op;
  return {};
}

DType type_of(const Graph& graph, std::string_view op) {
  return graph.tensors()[graph.outputs(op_named(graph, op))[0]].type.dtype;
}

TEST(Autocast, TheResidualStreamIsWideAndProductsReadNarrowCopies) {
  const Graph graph = with_autocast(block(), DType::BF16).value();
  EXPECT_EQ(type_of(graph, "tokens"), DType::F32);
  EXPECT_EQ(type_of(graph, "layer.norm"), DType::F32);
  EXPECT_EQ(type_of(graph, "layer.fc_x_cast"), DType::BF16);
  EXPECT_EQ(type_of(graph, "layer.fc"), DType::BF16);
  EXPECT_EQ(type_of(graph, "layer.dropout"), DType::BF16);
  EXPECT_EQ(type_of(graph, "layer.add"), DType::F32);
  EXPECT_EQ(type_of(graph, "logits"), DType::BF16);
  EXPECT_EQ(graph.parameter_count(), block().parameter_count());
}

// As in measurements/h200/steps_kernels.csv: two casts before products, forward; backward those and the narrow term's.
TEST(Autocast, CastsAreOperatorsInBothDirections) {
  const TrainingGraph training =
      make_training_graph(with_autocast(block(), DType::BF16).value(), {.gradient_dtype = DType::F32}).value();
  int forward = 0, backward = 0, weights = 0;
  for (OpId op : training.graph.ops().ids()) {
    const Signature& signature = training.graph.signature(op);
    weights += casts_weight(signature);
    if (!is_cast(signature)) continue;
    (training.graph.ops()[op].phase == Phase::Forward ? forward : backward) += 1;
  }
  EXPECT_EQ(forward, 2);
  EXPECT_EQ(backward, 3);
  EXPECT_EQ(weights, 6);  // fc, its bias, the head; their gradients
  EXPECT_EQ(type_of(training.graph, "layer.add@grad_b"), DType::BF16);
}

TEST(Autocast, AWideGraphIsLeftAlone) {
  GraphBuilder b("wide");
  const TensorId x = b.input("x", DType::F32, {2, 8});
  const TensorId y = b.op1(OpKind::Binary, "add", {x, x}, {{"fn", "add"}});
  b.result(y);
  const Graph graph = std::move(b).freeze().value();
  EXPECT_TRUE(with_autocast(graph, DType::BF16).value() == graph);
}

}  // namespace
}  // namespace weft
