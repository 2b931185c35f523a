// What a stack decides about a program: the types in which it sends and multiplies, the stream of collectives on
// activations, tokens that are sent once. The program contains these decisions, and the reference interpreter executes
// them.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "base/random.h"
#include "program/program_text.h"
#include "program/verify.h"
#include "program_cases.h"
#include "reference/interpreter.h"
#include "reference/one_device.h"
#include "reference/rounding.h"

namespace weft {
namespace {

using reference::Block;
using reference::rounded;

// bf16 has 7 bits after the point: 1 + 2⁻⁸ lies halfway between 1 and 1 + 2⁻⁷ and goes to the even one, 1 + 3·2⁻⁸ to
// 1 + 2⁻⁶. fp8 (e4m3) ends at 448 and has steps of 2⁻⁵ from ¼ on; fp16's least step is 2⁻²⁴.
TEST(Rounding, GoesToTheNearestValueOfTheType) {
  EXPECT_EQ(rounded(1 + std::ldexp(1, -8), DType::BF16), 1);
  EXPECT_EQ(rounded(1 + 3 * std::ldexp(1, -8), DType::BF16), 1 + std::ldexp(1, -6));
  EXPECT_EQ(rounded(-1 - 1.5 * std::ldexp(1, -8), DType::BF16), -1 - std::ldexp(1, -7));
  EXPECT_EQ(rounded(500, DType::F8), 448);
  EXPECT_EQ(rounded(0.3, DType::F8), 0.3125);
  EXPECT_EQ(rounded(std::ldexp(1, -25), DType::F16), 0);
  EXPECT_EQ(rounded(3 * std::ldexp(1, -26), DType::F16), std::ldexp(1, -24));
  EXPECT_EQ(rounded(1 + std::ldexp(1, -11), Arithmetic::kTf32), 1);
  EXPECT_EQ(rounded(1 + std::ldexp(1, -10), Arithmetic::kTf32), 1 + std::ldexp(1, -10));
  EXPECT_EQ(rounded(5, Arithmetic::kFp4), 4);
  EXPECT_EQ(rounded(0.1, DType::I64), 0.1);
}

ProgramCase sgd_case(const std::string& model, const std::string& strategy, const CompileOptions& options) {
  return program_case(model, strategy, 4, "dgx-h100:2", options, DType::F32,
                      {.optimizer = OptimizerKind::Sgd, .master_weights = false, .gradient_dtype = DType::F32});
}

double leaf(const Tensor& tensor, TensorId id, int micro_batch, std::size_t i) {
  Rng rng = Rng(7).split(id.index() * 1000003 + static_cast<std::uint64_t>(micro_batch) * 7919 + i);
  if (tensor.type.dtype == DType::I64 || tensor.type.dtype == DType::I32) return static_cast<double>(rng.below(16));
  if (tensor.kind == TensorKind::Scalar || tensor.type.shape.empty()) return 1;  // learning rate, weight of the loss
  if (tensor.kind == TensorKind::Parameter) return 0.8 * rng.uniform() - 0.4;
  return tensor.kind == TensorKind::Input ? 2 * rng.uniform() - 1 : 0;
}

// The largest difference that rounding makes to the change of a parameter, as a share of the largest change.
double rounding_error(const ProgramCase& each) {
  const Graph& graph = each.training.graph;
  const auto value = [&](TensorId id, int micro_batch) {
    Block block(graph.tensors()[id].type.shape);
    for (std::size_t i = 0; i < block.values().size(); ++i)
      block.values()[i] = leaf(graph.tensors()[id], id, micro_batch, i);
    return block;
  };
  reference::Interpreter exact(each.program, graph, value), typed(each.program, graph, value);
  typed.round_as_typed();
  exact.run(each.schedule);
  typed.run(each.schedule);
  double change = 0, error = 0;
  for (BufferId id : each.program.buffers.ids()) {
    const Buffer& buffer = each.program.buffers[id];
    const Tensor& tensor = graph.tensors()[buffer.tensor];
    if (buffer.kind != BufferKind::Parameter || tensor.kind != TensorKind::Update) continue;
    const Block a = exact.whole(id), b = typed.whole(id), before = value(tensor.storage, 0);
    for (std::size_t i = 0; i < a.values().size(); ++i) {
      change = std::max(change, std::fabs(a.values()[i] - before.values()[i]));
      error = std::max(error, std::fabs(a.values()[i] - b.values()[i]));
    }
  }
  return error / change;
}

template <class F>
void for_each_collective(const ProgramCase& each, const F& look) {
  for (const Instruction& instruction : each.program.instructions)
    if (const auto* what = std::get_if<Communicate>(&instruction.what); what && what->collective != Collective::Slice)
      look(instruction, *what, each.training.graph.tensors()[each.program.buffers[what->inputs[0]].tensor]);
}

void expect_sound(const ProgramCase& each) {
  EXPECT_TRUE(verify(each.program, each.training.graph, each.schedule).ok());
  EXPECT_EQ(parse_program(print(each.program, each.training.graph), each.training.graph, "text").value(), each.program);
  EXPECT_EQ(reference::differs_from_one_device(each.training, each.program, each.schedule), "");
}

// Two contributions, each rounded to 8 significant bits, and their sum again: at most 3·2⁻⁹ of the larger ones.
TEST(SentTypes, OfGradientsStandInTheProgramAndRoundThem) {
  const ProgramCase plain = sgd_case(kSmallLlama, "dp=2,tp=2", {});
  const ProgramCase each = sgd_case(kSmallLlama, "dp=2,tp=2", {.types = {.sent_gradients = DType::BF16}});
  expect_sound(each);
  int gradients = 0;
  for_each_collective(each, [&](const Instruction& instruction, const Communicate& what, const Tensor&) {
    EXPECT_EQ(what.wire.has_value(), instruction.stream == Stream::Data && instruction.mesh != each.program.world);
    gradients += what.wire.has_value();
  });
  EXPECT_GT(gradients, 0);
  EXPECT_EQ(rounding_error(plain), 0);
  EXPECT_GT(rounding_error(each), 1e-5);
  EXPECT_LT(rounding_error(each), std::ldexp(1, -7));
}

// ZeRO-3 gathers every weight; weights of at most 0.4 rounded to fp8 are off by up to 2⁻⁴ of themselves.
TEST(SentTypes, OfParametersStandInTheProgramAndRoundThem) {
  const ProgramCase each = sgd_case(kSmallLlama, "dp=2,zero=3", {.types = {.sent_parameters = DType::F8}});
  expect_sound(each);
  int gathers = 0;
  for_each_collective(each, [&](const Instruction&, const Communicate& what, const Tensor& tensor) {
    EXPECT_EQ(what.wire.has_value(), what.collective == Collective::AllGather && tensor.kind == TensorKind::Parameter);
    gathers += what.wire.has_value();
  });
  EXPECT_GT(gathers, 0);
  EXPECT_GT(rounding_error(each), 1e-3);
  EXPECT_LT(rounding_error(each), 0.5);
}

TEST(SentTypes, AreTheStoredOnesWhereTheseAreTheSame) {
  const ProgramCase each = sgd_case(kSmallLlama, "dp=2", {.types = {.sent_gradients = DType::F32}});
  for_each_collective(each,
                      [&](const Instruction&, const Communicate& what, const Tensor&) { EXPECT_FALSE(what.wire); });
}

TEST(ProductTypes, OfTf32AreThoseOfAllProducts) {
  const ProgramCase each = sgd_case(kSmallLlama, "tp=2", {.types = {.products = Arithmetic::kTf32}});
  expect_sound(each);
  int products = 0;
  for (const Instruction& instruction : each.program.instructions)
    if (const auto* compute = std::get_if<Compute>(&instruction.what)) {
      const Signature& signature = each.training.graph.signature(compute->op);
      EXPECT_EQ(compute->products.has_value(), !signature.contractions.empty())
          << each.training.graph.name(compute->op);
      products += compute->products.has_value();
    }
  EXPECT_GT(products, 0);
  EXPECT_GT(rounding_error(each), 1e-6);
  EXPECT_LT(rounding_error(each), 1e-2);  // 11 significant bits, a few products deep
}

TEST(ProductTypes, OfFp8AreThoseOfTheBlocksLinears) {
  const ProgramCase each = sgd_case(kSmallLlama, "tp=2", {.types = {.products = Arithmetic::kFp8}});
  expect_sound(each);
  for (const Instruction& instruction : each.program.instructions)
    if (const auto* compute = std::get_if<Compute>(&instruction.what)) {
      const std::string name = each.training.graph.name(compute->op);
      const bool linear = each.training.graph.kind(compute->op) == OpKind::Linear && name.find("layers.") == 0;
      EXPECT_EQ(compute->products.has_value(), linear) << name;
    }
  EXPECT_GT(rounding_error(each), 1e-3);
}

// Transformer Engine saves and gathers what it has cast: the normalised input of a block's first linear, the activation
// of its last, and the gradient that is gathered for the linears after a reduce-scatter. Residuals stay as they are.
TEST(ProductTypes, OfFp8AreHeldAndGatheredSo) {
  const ProgramCase each = sgd_case(kSmallLlama, "tp=2", {.types = {.products = Arithmetic::kFp8}});
  const Graph& graph = each.training.graph;
  std::map<std::string, int> held;
  for (BufferId id : each.program.buffers.ids()) {
    const Buffer& buffer = each.program.buffers[id];
    if (!buffer.narrow) continue;
    EXPECT_EQ(*buffer.narrow, DType::F8);
    EXPECT_EQ(stored_type(each.program, graph, id), DType::F8);
    ++held[graph.name(buffer.tensor)];
    EXPECT_NE(graph.tensors()[buffer.tensor].kind, TensorKind::Parameter);
  }
  EXPECT_GT(held["layers.0.mlp.act.y"], 0);
  EXPECT_GT(held["layers.0.attn_norm.y"], 0);
  EXPECT_EQ(held.count("layers.0.attn.core.y"), 0U);  // attention's own gradient reads it too
  int gathers = 0, other = 0;
  for_each_collective(each, [&](const Instruction& instruction, const Communicate& what, const Tensor&) {
    if (instruction.stream == Stream::Data || instruction.mesh == each.program.world) return;
    const bool narrow = sent_type(each.program, graph, what, what.inputs[0]) == DType::F8;
    EXPECT_FALSE(narrow && what.collective != Collective::AllGather);
    (narrow ? gathers : other) += 1;
  });
  EXPECT_GE(gathers, 2 * 6);  // of two layers: two forward, two once more for weight gradients, two of gradients
  EXPECT_GE(other, 2 * 4);    // reduce-scatters
}

TEST(ProductTypes, OfFp8AreNotThoseThatChooseExperts) {
  const ProgramCase each = sgd_case(kSmallMoe, "dp=4,ep=2", {.types = {.products = Arithmetic::kFp8}});
  expect_sound(each);
  int routers = 0, experts = 0;
  for (const Instruction& instruction : each.program.instructions)
    if (const auto* compute = std::get_if<Compute>(&instruction.what)) {
      const std::string name = each.training.graph.name(compute->op);
      if (name.find(".router") != std::string::npos) {
        ++routers;
        EXPECT_FALSE(compute->products) << name;
      }
      experts += each.training.graph.kind(compute->op) == OpKind::ExpertLinear && compute->products.has_value();
    }
  EXPECT_GT(routers, 0);
  EXPECT_GT(experts, 0);
}

// Scales of rows serve one product of the two that read a tensor: it is kept and gathered as it was (torchao).
TEST(ProductTypes, OfRowsAreNeitherHeldNorGatheredSo) {
  const ProgramCase each = sgd_case(
      kSmallLlama, "tp=2", {.types = {.products = Arithmetic::kFp8, .keeps_casts = false, .gathers_casts = false}});
  expect_sound(each);
  for (const Buffer& buffer : each.program.buffers) EXPECT_FALSE(buffer.narrow);
  for_each_collective(each,
                      [&](const Instruction&, const Communicate& what, const Tensor&) { EXPECT_FALSE(what.wire); });
  EXPECT_GT(rounding_error(each), 1e-3);
}

// One scale a tensor: gathered as it was cast, kept as it was.
TEST(ProductTypes, ThatAreCastAgainAreGatheredCastAndKeptAsTheyWere) {
  const ProgramCase each =
      sgd_case(kSmallLlama, "tp=2", {.types = {.products = Arithmetic::kFp8, .keeps_casts = false}});
  expect_sound(each);
  int gathers = 0;
  for_each_collective(each, [&](const Instruction&, const Communicate& what, const Tensor&) {
    gathers += what.collective == Collective::AllGather && what.wire == DType::F8;
  });
  EXPECT_GE(gathers, 2 * 4);
  for (const Buffer& buffer : each.program.buffers)
    EXPECT_FALSE(buffer.narrow && buffer.kind == BufferKind::Saved) << each.training.graph.name(buffer.tensor);
}

// Weights that only products in fp8 read are gathered in fp8, apart from those that norms, tables and the head read.
TEST(ProductTypes, OfWeightsAreWhatTheyAreGatheredIn) {
  for (const char* strategy : {"dp=2,zero=3", "dp=2,zero=1"}) {
    const ProgramCase each =
        sgd_case(kSmallLlama, strategy, {.types = {.products = Arithmetic::kFp8, .gathers_weights = true}});
    expect_sound(each);
    int narrow = 0, other = 0;
    for_each_collective(each, [&](const Instruction&, const Communicate& what, const Tensor&) {
      if (what.collective != Collective::AllGather) return;
      for (BufferId input : what.inputs) {
        const std::string name = each.training.graph.name(each.program.buffers[input].tensor);
        const bool linear = name.find("layers.") == 0 && name.find("norm") == std::string::npos;
        EXPECT_EQ(what.wire == DType::F8, linear) << name;
      }
      (what.wire == DType::F8 ? narrow : other) += 1;
    });
    EXPECT_GT(narrow, 0) << strategy;
    EXPECT_GT(other, 0) << strategy;
  }
}

TEST(ProductTypes, OfWideWeightGradientsAreTheOthers) {
  const ProgramCase each = sgd_case(
      kSmallLlama, "tp=2",
      {.types = {
           .products = Arithmetic::kFp8, .keeps_casts = false, .gathers_casts = false, .wide_weight_gradients = true}});
  expect_sound(each);
  int wide = 0, narrow = 0;
  for (const Instruction& instruction : each.program.instructions)
    if (const auto* compute = std::get_if<Compute>(&instruction.what)) {
      const Signature& signature = each.training.graph.signature(compute->op);
      if (signature.kind != OpKind::Linear || each.training.graph.name(compute->op).find("layers.") != 0) continue;
      EXPECT_EQ(compute->products.has_value(), signature.gradient != "grad_weight");
      (compute->products ? narrow : wide) += 1;
    }
  EXPECT_GT(wide, 0);
  EXPECT_GT(narrow, wide);
}

// A program that reads a rounded factor as something else is wrong.
TEST(ProductTypes, OfFp8AreNoOthersOperands) {
  ProgramCase each = sgd_case(kSmallLlama, "tp=2", {.types = {.products = Arithmetic::kFp8}});
  for (Instruction& instruction : each.program.instructions)
    if (auto* compute = std::get_if<Compute>(&instruction.what)) compute->products.reset();
  const Status verified = verify(each.program, each.training.graph, each.schedule);
  ASSERT_FALSE(verified.ok());
  EXPECT_NE(verified.error().message.find("does not round its factors"), std::string::npos);
}

// Without overlap, collectives on activations are on the compute stream, except those of rings.
TEST(TensorOverlap, IsAStreamOfItsOwn) {
  for (const char* strategy : {"tp=2,dp=2", "tp=2,cp=2,cp_mode=ring", "tp=2,pp=2"})
    for (const bool overlap : {true, false}) {
      const ProgramCase each = sgd_case(kSmallLlama, strategy, {.tensor_overlap = overlap});
      expect_sound(each);
      for_each_collective(each, [&](const Instruction& instruction, const Communicate& what, const Tensor&) {
        if (instruction.stream == Stream::Data) return;
        const bool beside = overlap || what.collective == Collective::Shift;
        EXPECT_EQ(instruction.stream, beside ? Stream::Tensor : Stream::Compute) << strategy;
      });
    }
}

TEST(TokensOnce, IsSaidOfRowsThatAreRouted) {
  const ProgramCase each = sgd_case(kSmallMoe, "dp=4,ep=2", {.tokens_once = true});
  expect_sound(each);
  int once = 0;
  for_each_collective(each, [&](const Instruction&, const Communicate& what, const Tensor&) {
    EXPECT_EQ(what.tokens_once, what.collective == Collective::AllToAll);
    once += what.tokens_once;
  });
  EXPECT_EQ(once, 2 * 4);  // of two layers: to the experts and back, forward and backward
}

}  // namespace
}  // namespace weft
