// From requests to plans: defaults and contradictions.
#include "plan/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>

#include "program/verify.h"
#include "strategy/yaml.h"

namespace weft {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kSmall = "llama3-8b:layers=4,hidden=64,heads=4,kv_heads=2,ffn=128,vocab=1000";

PlanRequest small(const std::string& strategy) {
  PlanRequest request{.model = kSmall, .cluster = "dgx-h100:2", .strategy = strategy};
  request.seq = 64;
  return request;
}
std::string fault(const PlanRequest& request) {
  const Result<Plan> plan = make_plan(request);
  return plan.ok() ? "no error" : plan.error().message;
}

TEST(Plan, ALanguageModelTakesAboutFourMillionTokensByDefault) {
  const Plan plan =
      make_plan({.model = "llama3-8b", .cluster = "dgx-h100:2", .strategy = "tp=4,pp=2,dp=2,zero=1"}).value();
  EXPECT_EQ(plan.model->info.seq, 8192);
  EXPECT_EQ(plan.batch, (BatchPlan{2, 1, 256, 1, 512}));  // 512 · 8,192 = 4,194,304
  EXPECT_EQ(plan.tokens_per_step(), 1 << 22);
  EXPECT_EQ(plan.stack().name, "megatron-lm");
  // 128,256 to a multiple of 128·4 = 512: 251 · 512. Two tables, of 4,096 columns.
  EXPECT_EQ(plan.model->vocabulary, (Vocabulary{128256, 128512}));
  EXPECT_EQ(plan.model->parameters, 8030261248);
  EXPECT_EQ(plan.stored_parameters() - plan.model->parameters, 2 * 4096 * (128512 - 128256));
  EXPECT_THAT(plan.assumptions, Contains(HasSubstr("--global-batch")));
  EXPECT_THAT(plan.assumptions, Contains(HasSubstr("vocabulary padded")));
}

// Padding of the vocabulary is not counted, whatever the stack.
TEST(Plan, ParametersAreThePublishedOnes) {
  for (const std::string& model : model_names()) {
    if (describe_model(model).value().kind != ModelKind::Language) continue;
    const Plan plan = make_plan({.model = model, .cluster = "dgx-h100:1", .strategy = "dp=8"}).value();
    EXPECT_EQ(plan.model->parameters, build_model(model).value().parameter_count()) << model;
  }
}

TEST(Plan, AStrategyIsReadAsATablePrintsIt) {
  const Plan plan =
      make_plan(small("tp=2 pp=2 mbs=1 recompute=op\n     full=layers.*.attn.qkv+\n     layers.*.mlp.gate_up "))
          .value();
  EXPECT_EQ(plan.name, "tp=2 pp=2 mbs=1 recompute=op full=layers.*.attn.qkv+layers.*.mlp.gate_up");
  EXPECT_EQ(print_modules(plan.parallelism->full), "layers.*.attn.qkv+layers.*.mlp.gate_up");
}

TEST(Plan, WhatWasGivenIsNoAssumption) {
  PlanRequest request = small("tp=2,pp=2,dp=4,sp=1,mbs=2,schedule=1f1b,order=tp-dp-pp");
  request.global_batch = 32;
  request.dtype = "bf16";
  request.stack = "megatron-lm";
  const Plan plan = make_plan(request).value();
  EXPECT_EQ(plan.batch, (BatchPlan{4, 2, 4, 2, 32}));
  for (const char* word :
       {"--global-batch", "--micro-batch", "--seq", "--dtype", "--stack", "schedule=", "order=", "sp=0"})
    EXPECT_THAT(plan.assumptions, Not(Contains(HasSubstr(word)))) << word;
}

TEST(Plan, AnImageModelTakesThirtyTwoSamplesPerDevice) {
  const Plan plan = make_plan({.model = "resnet50", .cluster = "dgx-a100:1", .strategy = "dp=8"}).value();
  EXPECT_EQ(plan.batch, (BatchPlan{8, 32, 1, 32, 256}));
  EXPECT_EQ(plan.model->options.optimizer, OptimizerKind::Momentum);
  EXPECT_EQ(plan.stack().name, "pytorch-ddp");
  // Two devices of a replica share its 64 samples.
  const Plan spatial = make_plan({.model = "resnet50", .cluster = "dgx-a100:1", .strategy = "dp=4,h=2"}).value();
  EXPECT_EQ(spatial.batch, (BatchPlan{4, 64, 1, 64, 256}));
}

// Interleaving needs a multiple of the pipeline's ranks: 4,194,304 / (8 · 8,192) = 64 samples per replica, and with 3
// ranks the nearest multiple is 63.
TEST(Plan, TheDefaultBatchFitsTheSchedule) {
  const Plan plan =
      make_plan({.model = "llama3-8b:layers=12", .cluster = "dgx-h100:3", .strategy = "pp=3,dp=8,vpp=2"}).value();
  EXPECT_EQ(plan.batch.micro_batches, 63);
}

TEST(Plan, AFileSaysTheSameAsTheShorthandItCameFrom) {
  PlanRequest request = small("tp=2,pp=2,dp=4,zero=1,ga=4");
  const Plan plan = make_plan(request).value();
  const std::string path = ::testing::TempDir() + "weft_plan_test.yaml";
  std::ofstream(path) << to_yaml(plan.strategy);
  request.strategy = path;
  const Plan again = make_plan(request).value();
  std::remove(path.c_str());
  EXPECT_EQ(again.strategy, plan.strategy);
  EXPECT_EQ(again.batch, plan.batch);
  EXPECT_EQ(again.training().graph, plan.training().graph);
}

TEST(Plan, TypesFollowTheOptionAndTheStack) {
  const auto types = [](const std::string& dtype, const std::string& stack) {
    PlanRequest request = small("dp=16");
    request.dtype = dtype;
    request.stack = stack;
    const Precision precision = make_plan(request).value().job->precision;
    return std::tuple(precision.stored, precision.gradients, precision.masters);
  };
  EXPECT_EQ(types("", "megatron-lm"), std::tuple(DType::BF16, DType::F32, true));             // 2 + 4 + 12
  EXPECT_EQ(types("", "nemo-24.09"), std::tuple(DType::BF16, DType::BF16, true));             // 2 + 2 + 12
  EXPECT_EQ(types("", "megatron-deepspeed"), std::tuple(DType::F16, DType::F16, true));       // fp16 throughout
  EXPECT_EQ(types("bf16", "megatron-deepspeed"), std::tuple(DType::BF16, DType::F32, true));  // another optimizer
  EXPECT_EQ(types("fp8", "megatron-lm"), std::tuple(DType::BF16, DType::F32, true));  // only products are narrow
  EXPECT_EQ(types("fp8-blockwise", "megatron-lm"), types("fp8", "megatron-lm"));
  EXPECT_EQ(types("fp32", "pytorch-ddp"), std::tuple(DType::F32, DType::F32, false));
  EXPECT_EQ(types("amp-fp16", "megatron-lm"), std::tuple(DType::F16, DType::F32, true));
}

// V100 and P100 have fp16 units but none for bf16, the K80 has only fp32; a mixed job takes what all devices have.
TEST(Plan, TheDefaultTypeIsOneThatAllDevicesHave) {
  const auto made = [](const std::string& cluster, const std::string& stack = "", const std::string& dtype = "") {
    PlanRequest request = small("dp=2,tp=1");
    request.cluster = cluster;
    request.device_count = 2;
    request.stack = stack;
    request.dtype = dtype;
    return make_plan(request).value();
  };
  const auto type = [&](const std::string& cluster, const std::string& stack = "") {
    return made(cluster, stack).job->precision.name;
  };
  EXPECT_EQ(type("dgx-h100:1"), "bf16");
  EXPECT_EQ(type("dgx-a100:1"), "bf16");
  EXPECT_EQ(type("dgx-a100:1", "megatron-deepspeed"), "fp16");  // the stack's own
  EXPECT_EQ(type("dgx1-v100:1"), "fp16");
  EXPECT_EQ(type("p100x8:1"), "fp16");
  EXPECT_EQ(type("k80x4:1"), "fp32");
  EXPECT_EQ(type("dgx-a100:1+dgx1-v100:1"), "fp16");
  EXPECT_THAT(made("dgx1-v100:1").assumptions, Contains("dtype fp16: v100-16 has no bf16 units (--dtype)"));
  EXPECT_THAT(made("dgx-a100:1").assumptions, Contains("dtype bf16 (--dtype)"));
  EXPECT_TRUE(made("dgx1-v100:1").job->notes.empty());
}

TEST(Plan, ATypeThatADeviceLacksNamesWhatStandsIn) {
  const auto notes = [](const std::string& cluster, const std::string& dtype) {
    PlanRequest request = small("dp=2,tp=1");
    request.cluster = cluster;
    request.device_count = 2;
    request.dtype = dtype;
    const Plan plan = make_plan(request).value();
    std::vector<std::string> found;
    for (const std::string& note : plan.job->notes) {
      EXPECT_THAT(plan.assumptions, Contains(note));
      if (note.find("units") != std::string::npos) found.push_back(note);  // not the network between nodes
    }
    return found;
  };
  using Notes = std::vector<std::string>;
  EXPECT_EQ(notes("dgx1-v100:1", "bf16"), Notes{"bf16: v100-16 has no bf16 units, products run in fp32"});
  EXPECT_EQ(notes("dgx-a100:1", "fp8"), Notes{"fp8: a100-80-sxm has no fp8 units, products run in bf16"});
  EXPECT_EQ(notes("dgx1-v100:1", "tf32"), Notes{"tf32: v100-16 has no tf32 units, products run in fp32"});
  EXPECT_EQ(notes("dgx1-v100:1", "fp8"), (Notes{"fp8: v100-16 has no fp8 units, products run in fp32",
                                                "bf16: v100-16 has no bf16 units, products run in fp32"}));
  EXPECT_EQ(notes("dgx-a100:1+dgx1-v100:1", "bf16"), Notes{"bf16: v100-16 has no bf16 units, products run in fp32"});
  EXPECT_EQ(notes("dgx-h100:1", "fp8"), Notes{});
  EXPECT_EQ(notes("dgx1-v100:1", "fp32"), Notes{});
}

TEST(Plan, TheNetworkBetweenNodesIsNamed) {
  PlanRequest request = small("dp=16");
  request.dtype = "bf16";
  EXPECT_THAT(make_plan(request).value().assumptions, Contains(HasSubstr("fabric infiniband")));
  request.cluster = "dgx-h100:2,network=roce";
  EXPECT_THAT(make_plan(request).value().assumptions, Contains(HasSubstr("fabric roce: collisions")));
  request.cluster = "dgx-h100:1";
  request.strategy = "dp=8";
  EXPECT_THAT(make_plan(request).value().assumptions, Not(Contains(HasSubstr("fabric"))));
}

TEST(Plan, UnfusedStacksHaveAttentionInSeveralKernels) {
  const auto attention = [](const std::string& stack) {
    PlanRequest request = small("dp=16");
    request.stack = stack;
    const Plan plan = make_plan(request).value();
    for (OpId op : plan.training().graph.ops().ids())
      if (plan.training().graph.kind(op) == OpKind::Attention) return true;
    return false;
  };
  EXPECT_TRUE(attention("megatron-lm"));
  EXPECT_FALSE(attention("megatron-2020"));
}

TEST(Plan, ContradictionsAndUnknownWordsAreErrors) {
  PlanRequest request = small("dp=16,mbs=2");
  request.micro_batch = 4;
  EXPECT_THAT(fault(request), HasSubstr("mbs=2 contradicts --micro-batch 4"));
  request = small("dp=16");
  request.model += ",batch=3";
  EXPECT_THAT(fault(request), HasSubstr("batch= contradicts"));
  request = small("dp=16");
  request.global_batch = 33;
  EXPECT_THAT(fault(request), HasSubstr("32 or 48"));
  request = small("dp=16");
  request.stack = "megatron";
  EXPECT_THAT(fault(request), HasSubstr("did you mean megatron-lm"));
  request = small("dp=16");
  request.micro_batch = 0;
  EXPECT_THAT(fault(request), HasSubstr("--micro-batch 0"));
  EXPECT_THAT(fault(small("tp=4,dp=8")), HasSubstr("more than the cluster's 16 devices"));
}

// Every violation of a strategy, one per line.
TEST(Plan, AllViolationsAreTold) {
  const std::string path = ::testing::TempDir() + "weft_plan_violations.yaml";
  std::ofstream(path) << "mesh: {axes: {dp: 2, tp: 3}}\n"
                         "rules:\n"
                         "  - {match: \"**\", inputs: {dp: 0}}\n"
                         "  - {match: layers.*.attn.qvk, compute: {tp: n}}\n"
                         "  - {match: layers.*.mlp.down, compute: {tq: k}}\n";
  const std::string message = fault(small(path));
  std::remove(path.c_str());
  EXPECT_THAT(message, HasSubstr("2 violations"));
  EXPECT_THAT(message, HasSubstr(":4: 'layers.*.attn.qvk' covers no module"));
  EXPECT_THAT(message, HasSubstr(":5: the mesh has no axis 'tq'"));
}

TEST(Plan, CompiledPlansPassTheVerifier) {
  for (const char* strategy : {"dp=16", "tp=2,pp=2,dp=4,zero=1", "fsdp=8,replicate=2", "tp=2,cp=2,dp=4,recompute=full",
                               "pp=4,tp=2,schedule=zb-h1", "pp=2,vpp=2,dp=8,recompute=selective"}) {
    PlanRequest request = small(strategy);
    request.global_batch = 64;
    const Result<Plan> plan = make_plan(request);
    ASSERT_TRUE(plan.ok()) << plan.error().message;
    const Result<CompiledStrategy> compiled = compile_plan(*plan);
    ASSERT_TRUE(compiled.ok()) << compiled.error().message;
    const Status status = verify(compiled->program, plan->training().graph, compiled->schedule);
    EXPECT_TRUE(status.ok()) << strategy << ": " << status.error().message;
  }
}

}  // namespace
}  // namespace weft
