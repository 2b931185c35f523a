#include "layout/split_memo.h"

#include <gtest/gtest.h>

namespace weft {
namespace {

TEST(SharedVec, CopiesAreOneUntilOneIsChanged) {
  SharedVec<int> one = {1, 2, 3};
  SharedVec<int> other = one;
  EXPECT_EQ(std::as_const(one).begin(), std::as_const(other).begin());
  other[1] = 7;
  EXPECT_EQ(one, (SharedVec<int>{1, 2, 3}));
  EXPECT_EQ(other, (SharedVec<int>{1, 7, 3}));
  EXPECT_NE(one, other);
}
TEST(SharedVec, WhatNobodySharesIsChangedInPlace) {
  SharedVec<int> list = {1, 2, 3};
  const int* const before = std::as_const(list).begin();
  for (int& each : list) each *= 2;
  EXPECT_EQ(std::as_const(list).begin(), before);
  EXPECT_EQ(list, (SharedVec<int>{2, 4, 6}));
}
TEST(SharedVec, NothingIsEqualToNothingHoweverItCameAbout) {
  SharedVec<int> emptied = {1};
  emptied.resize(0);
  EXPECT_EQ(emptied, SharedVec<int>());
  EXPECT_EQ(SharedVec<int>(), emptied);
  EXPECT_TRUE(emptied.empty());
  SharedVec<int> grown;
  grown.push_back(1);
  EXPECT_NE(grown, emptied);
}

// Two equal layers, and a third of another shape.
struct ThreeLayers {
  ThreeLayers() {
    GraphBuilder b("three");
    TensorId x = b.input("x", DType::F32, {8, 4, 16});
    for (const std::int64_t width : {16, 16, 32}) {
      const auto scope = b.scope("layer" + std::to_string(ops++));
      x = b.op1(OpKind::Linear, "fc", {x, b.parameter("w", DType::F32, {b.shape(x).back(), width})});
    }
    graph = std::move(b).freeze().value();
  }
  // The columns of the weight over the mesh's one axis.
  OpSharding columns(OpId op) const {
    OpSharding sharding{MeshId(0), SharedVec<std::vector<Cut>>(graph.signature(op).axes.size())};
    sharding.axes[static_cast<std::size_t>(graph.signature(op).axis_named("n"))] = {Cut{0}};
    return sharding;
  }

  Graph graph;
  int ops = 0;
  Mesh mesh = Mesh::make({{"tp", 2}}, {DeviceId(0), DeviceId(1)}).value();
};

TEST(SplitMemo, WorksOutWhatIsAlikeOnce) {
  const ThreeLayers net;
  SplitMemo memo(net.graph);
  const auto split = [&](std::size_t op) { return memo.split(OpId(op), net.columns(OpId(op)), net.mesh); };
  EXPECT_EQ(split(0), split(1));
  EXPECT_NE(split(0), split(2));
  EXPECT_NE(split(0), memo.split(OpId(0), {MeshId(0), SharedVec<std::vector<Cut>>(4)}, net.mesh));
}
TEST(SplitMemo, TellsWhatTheLayoutsOfTheOperandsAre) {
  const ThreeLayers net;
  SplitMemo memo(net.graph);
  for (OpId op : net.graph.ops().ids()) {
    const OpSharding sharding = net.columns(op);
    const std::shared_ptr<const SplitOp> split = memo.split(op, sharding, net.mesh);
    EXPECT_EQ(split->sharding, sharding);
    ASSERT_EQ(split->inputs.size(), 2u);
    for (std::size_t i = 0; i < 2; ++i)
      EXPECT_EQ(split->inputs[i], operand_layout(net.graph.signature(op), false, i, sharding, net.mesh));
    EXPECT_EQ(split->outputs[0], operand_layout(net.graph.signature(op), true, 0, sharding, net.mesh));
  }
}
// A mesh with the same axes shares memoised splits; one with other axes does not.
TEST(SplitMemo, TellsMeshesApart) {
  const ThreeLayers net;
  SplitMemo memo(net.graph);
  const Mesh same = Mesh::make({{"tp", 2}}, {DeviceId(2), DeviceId(3)}).value();
  const Mesh wider = Mesh::make({{"tp", 4}}, {DeviceId(4), DeviceId(5), DeviceId(6), DeviceId(7)}).value();
  const OpId op(0);
  OpSharding sharding = net.columns(op);
  std::vector<std::shared_ptr<const SplitOp>> splits;
  for (const Mesh* mesh : {&net.mesh, &same, &wider, &net.mesh}) {
    sharding.mesh = MeshId(mesh == &same ? 1 : mesh == &wider ? 2 : 0);
    splits.push_back(memo.split(op, sharding, *mesh));
    EXPECT_EQ(splits.back()->sharding, sharding);
    for (std::size_t i = 0; i < 2; ++i)
      EXPECT_EQ(splits.back()->inputs[i], operand_layout(net.graph.signature(op), false, i, sharding, *mesh));
    EXPECT_EQ(splits.back()->outputs[0], operand_layout(net.graph.signature(op), true, 0, sharding, *mesh));
  }
  EXPECT_EQ(splits[0], splits[3]);
  EXPECT_EQ(splits[0]->outputs[0].dims.begin(), splits[1]->outputs[0].dims.begin());
  EXPECT_NE(splits[0]->outputs[0].dims.begin(), splits[2]->outputs[0].dims.begin());
}
TEST(SplitMemo, TellsTheWayBetweenLayoutsOrWhyThereIsNone) {
  const ThreeLayers net;
  SplitMemo memo(net.graph);
  const Layout cut = memo.split(OpId(0), net.columns(OpId(0)), net.mesh)->outputs[0];
  const Layout whole = replicated(MeshId(0), net.mesh, {8, 4, 16});
  for (int asked = 0; asked < 2; ++asked) {
    const std::shared_ptr<const Resharding> way = memo.reshard(cut, whole, net.mesh);
    EXPECT_FALSE(way->problem);
    EXPECT_EQ(way->steps, reshard(cut, whole, net.mesh).value());
    EXPECT_EQ(way->sent, std::vector<double>{256});  // an all-gather: half of 8·4·16 elements
  }
  Layout partial = whole;
  partial.partial[0] = Reducer::Sum;
  EXPECT_EQ(memo.reshard(whole, partial, net.mesh)->problem->message,
            reshard(whole, partial, net.mesh).error().message);
}

}  // namespace
}  // namespace weft
