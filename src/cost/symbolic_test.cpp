#include "cost/symbolic.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "graph/operators.h"
#include "graph/placement.h"

namespace weft {
namespace {

Expression s(const char* name, int power = 1) { return Expression::symbol(name, power); }

TEST(SymbolicExpression, PrintsAndEvaluatesExactly) {
  const Expression volume = Expression(2) * Expression::less_one("tp") * s("tp", -1) * s("b") * s("s") * s("dp", -1);
  EXPECT_EQ(print(volume), "2·(tp−1)·b·s/(dp·tp)");
  EXPECT_EQ(volume.at({{"tp", 4}, {"b", 8}, {"s", 10}, {"dp", 2}}), Rational(60));        // 2·3·80/8
  EXPECT_EQ(volume.at({{"tp", 3}, {"b", 1}, {"s", 5}, {"dp", 2}}), Rational::of(10, 3));  // 2·2·5/6
  EXPECT_EQ(print(volume - volume), "0");
  EXPECT_EQ(print(s("h") * Expression(Rational::of(1, 2)) - Expression(3)), "−3 + h/2");
  EXPECT_EQ(print(s("h") * s("h")), "h^2");
  EXPECT_EQ(print(Rational::of(-6, 4)), "-3/2");
}

Expression any_expression(int depth = 0) {
  switch (*rc::gen::inRange(0, depth < 3 ? 6 : 3)) {
    case 0:
      return Expression(Rational::of(*rc::gen::inRange(-9, 10), *rc::gen::inRange(1, 6)));
    case 1:
      return Expression::symbol(*rc::gen::element<std::string>("a", "b", "c"), *rc::gen::element(1, 2, -1));
    case 2:
      return Expression::less_one(*rc::gen::element<std::string>("a", "b"));
    case 3:
      return any_expression(depth + 1) + any_expression(depth + 1);
    case 4:
      return any_expression(depth + 1) - any_expression(depth + 1);
    default:
      return any_expression(depth + 1) * any_expression(depth + 1);
  }
}

RC_GTEST_PROP(SymbolicExpressionLaws, SumsAndProductsEvaluateAsTheirParts, ()) {
  const Expression x = any_expression(), y = any_expression(), z = any_expression();
  const Bindings at = {{"a", *rc::gen::inRange(1, 9)}, {"b", *rc::gen::inRange(1, 9)}, {"c", *rc::gen::inRange(1, 9)}};
  RC_ASSERT((x + y).at(at) == x.at(at) + y.at(at));
  RC_ASSERT((x - y).at(at) == x.at(at) - y.at(at));
  RC_ASSERT((x * y).at(at) == x.at(at) * y.at(at));
  RC_ASSERT(x * (y + z) == x * y + x * z);
  RC_ASSERT(x + y == y + x);
  RC_ASSERT(print(x - x) == "0");
}

TEST(Symbolic, ASplitCostsTheTensorsThatLackTheAxis) {
  const Signature linear =
      make_signature(OpKind::Linear, {},
                     std::vector<TensorType>{{DType::BF16, {4, 8, 16}}, {DType::BF16, {16, 32}, true}})
          .value();
  const OperatorVolumes volumes = operator_volumes(linear);
  std::map<std::string, const AxisVolume*> by_axis;
  for (const AxisVolume& split : volumes.splits) by_axis[split.axis] = &split;
  ASSERT_EQ(by_axis.size(), 4u);
  const auto at = [&](const Expression& expression, std::int64_t ways) {
    Bindings bindings = volumes.sizes;
    bindings["ways"] = ways;
    return expression.at(bindings);
  };
  // Two bytes each. Columns: the input's gradient, [4,8,16]; rows: the output, [4,8,32]; samples: the weight's,
  // [16,32].
  EXPECT_EQ(at(by_axis.at("n")->sent, 4), Rational(2 * 3 * 4 * 8 * 16 * 2 / 4));
  EXPECT_EQ(at(by_axis.at("k")->sent, 4), Rational(2 * 3 * 4 * 8 * 32 * 2 / 4));
  for (const auto& [axis, split] : by_axis) {
    if (axis == "n" || axis == "k") continue;
    EXPECT_EQ(at(split->sent, 2), Rational(2 * 1 * 16 * 32 * 2 / 2)) << axis;
  }
  EXPECT_EQ(at(by_axis.at("k")->compute, 2), Rational(2 * 4 * 8 * 16 * 32 / 2));
}

TEST(Symbolic, HalosOfWindowsCountOnTheWayThereAndBack) {
  const Signature conv =
      make_signature(OpKind::Conv2d, {{"pad", std::vector<std::int64_t>{1, 1}}},
                     std::vector<TensorType>{{DType::F32, {2, 3, 8, 8}}, {DType::F32, {5, 3, 3, 3}, true}})
          .value();
  const OperatorVolumes volumes = operator_volumes(conv);
  int found = 0;
  for (const AxisVolume& split : volumes.splits) {
    if (split.axis != "h") continue;
    ++found;
    Bindings bindings = volumes.sizes;
    bindings["ways"] = 2;
    // The weight's gradient, 2·1/2·5·3·3·3, and two rows of the image, 2·3·8 each, and of its gradient; four bytes
    // each.
    EXPECT_EQ(split.sent.at(bindings).value(), 4 * split_volume(conv, conv.axis_named("h")).elements_sent(2));
    EXPECT_EQ(split.sent.at(bindings), Rational(4 * (135 + 2 * 2 * 48)));
  }
  EXPECT_EQ(found, 1);
}

TEST(Symbolic, ElementwiseOperatorsSplitForNothing) {
  const TensorType x{DType::BF16, {4, 8}};
  for (const AxisVolume& split :
       operator_volumes(make_signature(OpKind::Binary, {{"fn", "add"}}, std::vector{x, x}).value()).splits)
    EXPECT_EQ(print(split.sent), "0");
}

TEST(Symbolic, CommunicationCountsByTheBytesARankSends) {
  const Cluster cluster = parse_cluster("dgx-h100:2").value();
  const SymbolicCost cost({.between_nodes = 4});
  const auto time = [&](Collective collective, std::size_t members) {
    std::vector<DeviceId> devices;
    for (std::size_t i = 0; i < members; ++i) devices.emplace_back(i);
    const Communicator group = make_communicator(cluster, devices, collective);
    return isolated_time(cost.communicate(CommunicateQuery{&group, 1 << 20}));
  };
  EXPECT_EQ(time(Collective::AllReduce, 8), 2 * 7 * (1 << 20) / 8);
  EXPECT_EQ(time(Collective::ReduceScatter, 8), 7 * (1 << 20) / 8);
  EXPECT_EQ(time(Collective::AllGather, 4), 3 * (1 << 20) / 4);
  EXPECT_EQ(time(Collective::AllToAll, 4), 3 * (1 << 20) / 4);
  EXPECT_EQ(time(Collective::AllReduce, 1), 0);
  EXPECT_EQ(time(Collective::AllGather, 16), 4 * 15 * (1 << 20) / 16);  // over two nodes
}

}  // namespace
}  // namespace weft
