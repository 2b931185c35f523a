#include "graph/operators.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "graph/placement.h"

namespace weft {
namespace {

using testing::HasSubstr;

Signature linear(std::int64_t b, std::int64_t s, std::int64_t k, std::int64_t n) {
  return make_signature(OpKind::Linear, {},
                        std::vector<TensorType>{{DType::BF16, {b, s, k}}, {DType::BF16, {k, n}, true}})
      .value();
}

std::string kinds_of(const Signature& signature) {
  std::string text;
  for (const Axis& axis : signature.axes)
    text += fmt::format("{}{}:{}", text.empty() ? "" : " ", axis.name, name_of(axis.kind));
  return text;
}

std::string rule_text(const Signature& signature, std::string_view axis) {
  const LayoutRule rule = split_rule(signature, signature.axis_named(axis));
  std::string text;
  for (const Placement& input : rule.inputs) text += print(input) + " ";
  text += "->";
  for (const Placement& output : rule.outputs) text += " " + print(output);
  return text;
}

TEST(Operators, LinearIsItsNotation) {
  const Signature signature = linear(2, 3, 4, 5);
  EXPECT_EQ(notation_of(signature), "x[b,s,k] w[k,n] -> y[b,s,n]");
  EXPECT_EQ(axis_sizes_of(signature), "b=2 s=3 k=4 n=5");
  EXPECT_EQ(kinds_of(signature), "b:sample s:sample k:reduction n:parameter");
  EXPECT_EQ(contraction_flops(signature).value, 2.0 * 2 * 3 * 4 * 5);
  EXPECT_EQ(bytes_read(signature).value, 2 * (2 * 3 * 4 + 4 * 5));  // bf16: two bytes each
  EXPECT_EQ(bytes_written(signature).value, 2 * (2 * 3 * 5));
  EXPECT_EQ(rule_text(signature, "b"), "S(0) R -> S(0)");
  EXPECT_EQ(rule_text(signature, "n"), "R S(1) -> S(2)");
  EXPECT_EQ(rule_text(signature, "k"), "S(2) S(0) -> P");
}

TEST(Operators, BackwardProductsAreTheSameAxesWithAnotherOutput) {
  const Signature forward = linear(2, 3, 4, 5);
  const std::vector<Gradient> gradients = gradients_of(forward);
  ASSERT_EQ(gradients.size(), 2u);
  const Signature input = gradient_signature(forward, gradients[0]), weight = gradient_signature(forward, gradients[1]);
  EXPECT_EQ(notation_of(input), "dy[b,s,n] w[k,n] -> dx[b,s,k]");
  EXPECT_EQ(notation_of(weight), "dy[b,s,n] x[b,s,k] -> dw[k,n]");
  EXPECT_EQ(kinds_of(weight), "b:reduction s:reduction k:parameter n:parameter");
  EXPECT_EQ(rule_text(weight, "b"), "S(0) S(0) -> P");
  EXPECT_EQ(rule_text(input, "n"), "S(2) S(1) -> P");
  EXPECT_EQ(contraction_flops(weight).value, contraction_flops(forward).value);
}

TEST(Operators, SplittingAnInnerFactorIsAStridedShard) {
  // Four groups of two query heads of size 8: splitting the heads inside a group leaves 4 blocks, each cut.
  const Signature attention =
      make_signature(
          OpKind::Attention, {{"heads", std::int64_t{8}}, {"kv_heads", std::int64_t{4}}, {"causal", std::int64_t{1}}},
          std::vector<TensorType>{{DType::BF16, {1, 16, 64}}, {DType::BF16, {1, 16, 32}}, {DType::BF16, {1, 16, 32}}})
          .value();
  EXPECT_EQ(kinds_of(attention), "g:parameter r:parameter b:sample q:attribute e:whole t:reduction d:whole");
  EXPECT_EQ(rule_text(attention, "g"), "S(2) S(2) S(2) -> S(2) S(1)");
  EXPECT_EQ(rule_text(attention, "r"), "S(2/4) R R -> S(2/4) S(1/4)");
  EXPECT_EQ(rule_text(attention, "t"), "R S(1) S(1) -> P(softmax-merge) P(logsumexp)");
  // QKᵀ and PV: 2·(b·heads·q·t·size) each.
  EXPECT_EQ(contraction_flops(attention).value, 2 * 2.0 * 8 * 16 * 16 * 8);
}

TEST(Operators, ConvolutionsHaveHalos) {
  const Signature conv =
      make_signature(OpKind::Conv2d,
                     {{"stride", std::vector<std::int64_t>{2, 2}}, {"pad", std::vector<std::int64_t>{3, 3}}},
                     std::vector<TensorType>{{DType::F32, {8, 3, 224, 224}}, {DType::F32, {64, 3, 7, 7}, true}})
          .value();
  EXPECT_EQ(conv.outputs[0].shape(), (Shape{8, 64, 112, 112}));
  // A device owns rows 2h … 2h+1 of its outputs; a window reaches 3 above and 7−1−3−(2−1) = 2 below.
  EXPECT_EQ(rule_text(conv, "h"), "S(2,-3+2) R -> S(2)");
  EXPECT_EQ(rule_text(conv, "o"), "R S(0) -> S(1)");
  EXPECT_EQ(rule_text(conv, "c"), "S(1) S(1) -> P");
  EXPECT_FALSE(splittable(conv, conv.axis_named("kh")));
  // 8 samples · 64 · 112² outputs · 3·7² products.
  EXPECT_EQ(contraction_flops(conv).value, 2.0 * 8 * 64 * 112 * 112 * 3 * 49);
}

TEST(Operators, GroupedExpertBuffersTurnAnAllToAllIntoARename) {
  const auto dispatch = [](std::vector<std::int64_t> groups) {
    return make_signature(OpKind::Dispatch,
                          {{"experts", std::int64_t{8}}, {"capacity", std::int64_t{4}}, {"groups", std::move(groups)}},
                          std::vector<TensorType>{{DType::BF16, {2, 32, 16}}, {DType::I64, {2, 32, 2}}})
        .value();
  };
  const Signature plain = dispatch({2}), nested = dispatch({2, 4});
  EXPECT_EQ(notation_of(plain), "x[b,n0.t,k] index[b,n0.t,j] -> y[e,b,n0,c,k]");
  EXPECT_EQ(rule_text(plain, "b"), "S(0) S(0) -> S(1)");
  EXPECT_EQ(rule_text(plain, "n0"), "S(1) S(1) -> S(2)");
  EXPECT_EQ(rule_text(plain, "e"), "R R -> S(0)");
  // Two parts of the sequence, each in four: every cut has a dimension of its own.
  EXPECT_EQ(notation_of(nested), "x[b,n0.n1.t,k] index[b,n0.n1.t,j] -> y[e,b,n0,n1,c,k]");
  EXPECT_EQ(rule_text(nested, "n1"), "S(1/2) S(1/2) -> S(3)");
}

TEST(Operators, ReshapeFindsTheCommonFactors) {
  const auto notation = [](Shape from, Shape to) {
    return notation_of(
        make_signature(OpKind::Reshape, {{"shape", to}}, std::vector<TensorType>{{DType::F32, from}}).value());
  };
  EXPECT_EQ(notation({2, 12}, {2, 3, 4}), "x[b,i1.i2] -> y[b,i1,i2]");
  EXPECT_EQ(notation({2, 3, 4}, {6, 4}), "x[b,i1,i2] -> y[b.i1,i2]");
  EXPECT_EQ(notation({4, 1, 3}, {4, 3}), "x[b,1,i1] -> y[b,i1]");
  EXPECT_EQ(notation({2, 4, 6}, {2, 6, 4}),
            "x[b,u1,u2] -> y[b,v1,v2]");  // 4·6 against 6·4: opaque, only b can be split
}

TEST(Operators, VolumeOfASplitIsEveryTensorThatLacksTheAxis) {
  const Signature signature = linear(2, 3, 4, 5);
  const auto volume = [&](std::string_view axis) { return print(split_volume(signature, signature.axis_named(axis))); };
  EXPECT_EQ(volume("b"), "2(n-1)/n·(k·n)");    // the weight's gradient
  EXPECT_EQ(volume("n"), "2(n-1)/n·(b·s·k)");  // the input's gradient
  EXPECT_EQ(volume("k"), "2(n-1)/n·(b·s·n)");  // the output
  // SMSG: halving an axis costs half of what lacks it, each way: 2·(1/2)·20 = 20 elements sent.
  EXPECT_EQ(split_volume(signature, signature.axis_named("b")).elements_sent(2), 20);
  const Signature relu =
      make_signature(OpKind::Unary, {{"fn", "relu"}}, std::vector<TensorType>{{DType::F32, {2, 3}}}).value();
  EXPECT_EQ(print(split_volume(relu, relu.axis_named("b"))), "0");
}

TEST(Operators, RuleForFindsTheOutputsOfGivenInputs) {
  const Signature signature = linear(2, 3, 4, 5);
  const Placement column[] = {Placement::replicated(), Placement::split(1)};
  EXPECT_EQ(print(rule_for(signature, column)->outputs[0]), "S(2)");
  const Placement partial[] = {Placement::partial(), Placement::replicated()};
  EXPECT_EQ(print(rule_for(signature, partial)->outputs[0]), "P");
  const Placement mismatch[] = {Placement::split(0), Placement::split(1)};
  EXPECT_FALSE(rule_for(signature, mismatch).has_value());
}

TEST(Operators, ErrorsNameTheAxisAndTheSizes) {
  const auto message = [](OpKind kind, Attrs attrs, std::vector<TensorType> inputs) {
    const Result<Signature> result = make_signature(kind, attrs, inputs);
    return result.ok() ? "no error" : result.error().message;
  };
  EXPECT_EQ(message(OpKind::Linear, {}, {{DType::F32, {2, 3}}, {DType::F32, {4, 5}}}),
            "linear: dimension 0 of w is 4, but k = 3");
  EXPECT_EQ(message(OpKind::Linear, {}, {{DType::F32, {2, 3}}}),
            "linear: takes 2 inputs (x[...,k] w[k,n] -> y[...,n]), not 1");
  EXPECT_EQ(message(OpKind::Linear, {{"transpose", std::int64_t{1}}}, {{DType::F32, {2, 3}}, {DType::F32, {3, 5}}}),
            "linear: unknown attribute 'transpose'; did you mean transposed?");
  EXPECT_EQ(message(OpKind::Attention, {{"heads", std::int64_t{6}}, {"kv_heads", std::int64_t{4}}}, {}),
            "attention: heads=6 must be a positive multiple of kv_heads=4");
  EXPECT_EQ(message(OpKind::Conv2d, {}, {{DType::F32, {1, 3, 4, 4}}, {DType::F32, {8, 3, 5, 5}}}),
            "conv2d: a kernel of 5 (dilation 1) does not fit 4 elements padded by 0 and 0");
  EXPECT_EQ(message(OpKind::Conv2d, {{"stride", std::vector<std::int64_t>{0, 1}}},
                    {{DType::F32, {1, 3, 4, 4}}, {DType::F32, {8, 3, 1, 1}}}),
            "conv2d: stride 0 and dilation 1 must be positive and sane");
  EXPECT_EQ(message(OpKind::Reshape, {{"shape", std::vector<std::int64_t>{7}}}, {{DType::F32, {2, 3}}}),
            "reshape: f32[2,3] has other elements than [7]");
  EXPECT_THAT(message(OpKind::Binary, {{"fn", "add"}}, {{DType::F32, {2, 3}}, {DType::F32, {2, 4}}}),
              HasSubstr("do not broadcast: 3 against 4"));
  EXPECT_THAT(message(OpKind::Unary, {{"fn", "gelo"}}, {{DType::F32, {2}}}), HasSubstr("did you mean gelu"));
  EXPECT_THAT(message(OpKind::Linear, {}, {{DType::F32, {1LL << 40, 1LL << 40}}, {DType::F32, {4, 5}}}),
              HasSubstr("overflows"));
  EXPECT_THAT(message(OpKind::Linear, {}, {{DType::F32, {-1, 4}}, {DType::F32, {4, 5}}}), HasSubstr("dimension of -1"));
}

TEST(Operators, EveryKindHasAName) {
  for (const std::string& name : op_kind_names()) EXPECT_EQ(name_of(*op_kind_named(name)), name);
  EXPECT_EQ(op_kind_named("no such operator"), std::nullopt);
}

}  // namespace
}  // namespace weft
