// Laws of layers of experts and of recipes of low precision, over whole forecasts.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cost/analytic.h"
#include "forecast/forecast.h"
#include "plan/plan.h"
#include "price/instruction_pricer.h"

namespace weft {
namespace {

using testing::Contains;
using testing::HasSubstr;

constexpr const char* kExperts = "mixtral-8x7b:layers=2,hidden=1024,ffn=2048,experts=16,top_k=2,vocab=32000";

struct Of {
  Plan plan;
  Forecast forecast;
};
Of of(const std::string& model, const std::string& strategy = "dp=8,ep=8,mbs=1", const std::string& dtype = "",
      const std::string& stack = "", const std::string& cluster = "dgx-h100:1") {
  PlanRequest request{.model = model, .cluster = cluster, .strategy = strategy};
  request.seq = 2048;
  request.global_batch = 32;
  request.dtype = dtype;
  request.stack = stack;
  Plan plan = make_plan(request).value();
  const AnalyticCost cost(plan.stack(), plan.job->tuning);
  Forecast made = forecast(plan, cost).value();
  return {std::move(plan), std::move(made)};
}
std::int64_t activations(const Of& each) { return each.forecast.memory.front().allocated.activations.value; }
std::int64_t parameters(const Of& each) { return each.forecast.memory.front().allocated.parameters.value; }

// Without the first line, which names the model.
std::string program_text(const Plan& plan) {
  const std::string text = print(compile_plan(plan).value().program, plan.graph());
  return text.substr(text.find('\n'));
}

std::string with_imbalance(double imbalance) { return fmt::format("{},imbalance={}", kExperts, imbalance); }

TEST(Imbalance, TimeAndMemoryRiseWithIt) {
  for (const char* dtype : {"bf16", "fp8"}) {
    const Of even = of(with_imbalance(1), "dp=8,ep=8,mbs=1", dtype);
    Of before = of(kExperts, "dp=8,ep=8,mbs=1", dtype);
    EXPECT_EQ(even.forecast.step, before.forecast.step);
    EXPECT_EQ(activations(even), activations(before));
    EXPECT_TRUE(program_text(even.plan) == program_text(before.plan));
    for (const double imbalance : {1.25, 1.5, 2.0, 4.0}) {
      Of now = of(with_imbalance(imbalance), "dp=8,ep=8,mbs=1", dtype);
      EXPECT_GT(now.forecast.step, before.forecast.step) << imbalance;
      EXPECT_GT(activations(now), activations(before)) << imbalance;
      EXPECT_EQ(now.forecast.flops.model, even.forecast.flops.model) << imbalance;
      EXPECT_LT(now.forecast.mfu, before.forecast.mfu) << imbalance;
      before = std::move(now);
    }
  }
}

// A device with all experts has all rows, whichever are chosen; of two, one has at most twice the mean.
TEST(Imbalance, IsAtMostTheNumberOfDevicesThatExpertsAreOn) {
  const Of alone = of(with_imbalance(4), "dp=8,mbs=1");
  EXPECT_EQ(alone.forecast.step, of(kExperts, "dp=8,mbs=1").forecast.step);
  EXPECT_THAT(alone.plan.assumptions, Contains(HasSubstr("on 1 device, of which one has at most 1 times the mean")));
  EXPECT_EQ(of(with_imbalance(4), "dp=8,ep=2,mbs=1").forecast.step,
            of(with_imbalance(2), "dp=8,ep=2,mbs=1").forecast.step);
}

TEST(Imbalance, IsStatedAndBounded) {
  EXPECT_THAT(of(kExperts).plan.assumptions, Contains(HasSubstr("balanced routing, imbalance 1")));
  EXPECT_THAT(of(with_imbalance(1.5)).plan.assumptions, Contains(HasSubstr("1.5 times the mean rows")));
  const auto fault = [](const std::string& words) {
    const auto plan = make_plan({.model = std::string(kExperts) + words, .cluster = "dgx-h100:1", .strategy = "dp=8"});
    return plan.ok() ? "planned" : plan.error().message;
  };
  EXPECT_THAT(fault(",imbalance=0.5"), HasSubstr("imbalance=0.5: must be between 1 (balanced) and experts/top_k=8"));
  EXPECT_THAT(fault(",imbalance=9"), HasSubstr("imbalance=9: must be between 1"));
  EXPECT_THAT(fault(",imbalance=1.5,capacity_factor=2"), HasSubstr("leave one out"));
}

// What is chosen is read back in every layer's forward pass; a capacity needs no counts.
TEST(Experts, TheHostWaitsForCountsOfDroplessRows) {
  const auto waits = [](const std::string& model, const std::string& stack) {
    const Of each = of(model, "dp=8,ep=8,mbs=1", "bf16", stack);
    const CompiledStrategy compiled = compile_plan(each.plan).value();
    const AnalyticCost cost(each.plan.stack(), each.plan.job->tuning);
    const InstructionPricer pricer(compiled.program, each.plan.graph(), each.plan.cluster(), cost, each.plan.stack());
    int count = 0;
    for (const StageProgram& stage : compiled.program.stages)
      for (const auto& body : {stage.forward, stage.backward})
        for (InstructionId id : body) {
          Task task;
          pricer.add_host(task, compiled.program.instructions[id], DeviceId(0));
          count += task.host_waits;
        }
    return count;
  };
  EXPECT_EQ(waits(kExperts, "megatron-lm"), 2);  // of two layers
  EXPECT_EQ(waits(kExperts, "megatron-lm:sync_on_counts=false"), 0);
  EXPECT_EQ(waits(std::string(kExperts) + ",capacity_factor=1", "megatron-lm"), 0);
}

TEST(Experts, ElementaryKernelsTakeLongerThanFusedOnes) {
  const auto step = [](const char* knobs) {
    return of(kExperts, "dp=8,ep=8,mbs=1", "bf16", std::string("megatron-lm:") + knobs).forecast.step;
  };
  const auto fused = step("fused_router=true,fused_permutation=true");
  EXPECT_GT(step("fused_router=false,fused_permutation=true"), fused);
  EXPECT_GT(step("fused_router=true,fused_permutation=false"), fused);
}

// Rows of experts are copied to be padded for fp8 where no capacity says how many there are.
TEST(Experts, PaddingByCopiesTakesTimeAndMemory) {
  const auto padded = [](const std::string& model, const char* dtype, const char* copies) {
    const Of each = of(model, "dp=8,ep=8,mbs=1", dtype, fmt::format("megatron-lm:pads_by_copy={}", copies));
    return std::pair(each.forecast.step, each.forecast.memory.front().allocated.total().value);
  };
  const auto copied = padded(kExperts, "fp8", "true"), moved = padded(kExperts, "fp8", "false");
  EXPECT_GT(copied.first, moved.first);
  EXPECT_GE(copied.second, moved.second);
  EXPECT_EQ(padded(kExperts, "bf16", "true"), padded(kExperts, "bf16", "false"));
  const std::string limited = std::string(kExperts) + ",capacity_factor=1";
  EXPECT_EQ(padded(limited, "fp8", "true"), padded(limited, "fp8", "false"));
}

constexpr const char* kDense = "llama3-8b:layers=2,hidden=2048,ffn=8192,vocab=32000";

TEST(Recipes, WhatTheyReadAndWriteTakesTime) {
  const auto step = [](const char* dtype, const char* cluster = "dgx-h100:1") {
    return of(kDense, "dp=8,mbs=1", dtype, "megatron-lm", cluster).forecast.step;
  };
  EXPECT_EQ(step("fp8"), step("fp8-delayed"));
  EXPECT_GT(step("fp8-current"), step("fp8-delayed"));    // a pass for the maximum
  EXPECT_GT(step("fp8-blockwise"), step("fp8-delayed"));  // sums scaled between tensor cores' products
  EXPECT_GT(step("fp8-rowwise"), step("fp8-delayed"));    // cast again in backward
  EXPECT_GT(step("bf16"), step("fp8-blockwise"));
  // Blackwell's units scale blocks: what is left is the scales.
  EXPECT_LT(step("mxfp8", "dgx-b200:1"), step("fp8-current", "dgx-b200:1"));
}

TEST(Recipes, ScalesAndCopiesTakeMemory) {
  const auto at = [](const char* dtype, const char* stack = "megatron-lm") {
    return of(kDense, "dp=8,mbs=1", dtype, stack, "dgx-b200:1");
  };
  const Of delayed = at("fp8-delayed"), blockwise = at("fp8-blockwise"), mx = at("mxfp8"), rows = at("fp8-rowwise");
  EXPECT_EQ(activations(delayed), activations(at("fp8-current")));
  EXPECT_GT(activations(blockwise), activations(delayed));
  EXPECT_GE(activations(mx), activations(blockwise));  // 1 byte for 32 elements, as 4 for 128
  EXPECT_LT(activations(at("nvfp4")), activations(delayed));
  EXPECT_EQ(parameters(blockwise), parameters(delayed));  // of weights 128 x 128 share a scale
  EXPECT_GT(parameters(mx), parameters(delayed));
  // Tensors are kept as they were, and no copies of weights.
  const Of bf16 = at("bf16");
  EXPECT_EQ(activations(rows), activations(bf16));
  EXPECT_EQ(parameters(rows), parameters(bf16));
  EXPECT_EQ(activations(at("fp8", "torchtitan")), activations(at("bf16", "torchtitan")));
}

TEST(Recipes, AreSaidWithWhatStandsInForThem) {
  const auto said = [](const char* dtype, const char* stack, const char* cluster = "dgx-h100:1") {
    return of(kDense, "dp=8,mbs=1", dtype, stack, cluster).plan.assumptions;
  };
  EXPECT_THAT(said("fp8", "megatron-lm"), Contains(HasSubstr("megatron-lm's recipe (fp8-delayed)")));
  EXPECT_THAT(said("fp8", "torchtitan"), Contains(HasSubstr("torchtitan's recipe (fp8-current)")));
  EXPECT_THAT(said("mxfp8", "megatron-lm"), Contains(HasSubstr("mxfp8: h100-sxm has no units for scales of 32")));
  EXPECT_THAT(said("mxfp8", "megatron-lm", "dgx-b200:1"), Not(Contains(HasSubstr("has no units"))));
  for (const char* dtype : {"fp8-delayed", "fp8-current", "fp8-blockwise", "fp8-rowwise", "fp8-rowwise-gw-hp", "mxfp8"})
    EXPECT_THAT(said(dtype, "megatron-lm", "dgx-a100:1"), Contains(HasSubstr("fp8: a100-80-sxm has no fp8 units")))
        << dtype;
}

}  // namespace
}  // namespace weft
