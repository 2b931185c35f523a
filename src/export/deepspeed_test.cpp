#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "export_law.h"

namespace weft {
namespace {

using testing::HasSubstr;

Result<Plan> plan_of(const char* model, const char* strategy, const char* dtype,
                     const char* stack = "megatron-deepspeed") {
  PlanRequest request{.model = model, .cluster = "dgx-a100:1", .strategy = strategy};
  request.global_batch = 32;
  request.seq = 1024;
  request.dtype = dtype;
  request.stack = stack;
  return make_plan(request);
}

TEST(DeepSpeedLaw, WhatIsWrittenReadsBackAsTheSamePlanAndTime) {
  for (const auto& [model, strategy, dtype, stack] : {
           std::tuple{"gpt3-1.3b:layers=2", "dp=8,zero=2,mbs=2", "fp16", "megatron-deepspeed"},
           std::tuple{"gpt3-1.3b:layers=2", "dp=8,zero=1,offload=optimizer", "bf16", "megatron-deepspeed"},
           std::tuple{"gpt3-1.3b:layers=2", "tp=2,sp=0,dp=4,zero=3", "fp16",
                      "megatron-deepspeed:gradient_overlap=true"},
           std::tuple{"gpt3-1.3b:layers=2", "cp=2,cp_mode=a2a,dp=4,zero=1", "bf16", "megatron-deepspeed"},
           std::tuple{"gpt3-1.3b:layers=2", "fsdp=4,replicate=2", "fp16",
                      "megatron-deepspeed:scatter_bucket=400000000B"},
           std::tuple{"mixtral-8x7b:layers=2,ffn=1024,expert_ffn=1024", "dp=8,ep=4,zero=2", "bf16",
                      "megatron-deepspeed"},
       }) {
    SCOPED_TRACE(fmt::format("{} {}", strategy, stack));
    const auto plan = plan_of(model, strategy, dtype, stack);
    ASSERT_TRUE(plan.ok()) << plan.error().message;
    expect_reads_back(Target::DeepSpeed, *plan);
  }
}

TEST(DeepSpeed, WhatItCannotSayIsRefusedWithTheNearestPlanThatItCan) {
  const auto refusal = [](const char* strategy) {
    const auto plan = plan_of("gpt3-1.3b:layers=4", strategy, "fp16");
    if (!plan.ok()) return plan.error().message;
    const auto text = export_plan(Target::DeepSpeed, *plan);
    return text.ok() ? *text : text.error().message;
  };
  EXPECT_THAT(refusal("pp=2,dp=4"), HasSubstr("pipelines: their stages are arguments of PipelineModule"));
  EXPECT_THAT(refusal("dp=8,zero=1,recompute=full"), HasSubstr("can express: tp=1,pp=1,dp=8,zero=1,mbs=1"));
  EXPECT_THAT(refusal("tp=2,dp=4"), HasSubstr("can express: tp=2,pp=1,dp=4,zero=0,sp=0,mbs=1"));
}

std::string fault(std::string_view text) {
  const auto read = import_run(Target::DeepSpeed, text, "ds.json");
  return read.ok() ? "read: " + read->request.strategy + " " + read->request.stack : read.error().message;
}

TEST(DeepSpeedImport, FaultsAreNamedByLineAndNothingIsGuessed) {
  const std::string rest = "\"fp16\": {\"enabled\": true}}";
  EXPECT_THAT(
      fault("{\"train_micro_batch_size_per_gpu\": 2,\n \"zero_optimization\": {\"stge\": 1}, " + rest),
      HasSubstr("ds.json:2: zero_optimization.stge: no key of DeepSpeed 0.19.6; did you mean zero_optimization.stage"));
  EXPECT_EQ(fault("{\"train_micro_batch_size_per_gpu\": \"auto\", " + rest),
            "ds.json:1: train_micro_batch_size_per_gpu: auto is filled in by the trainer; write the number");
  EXPECT_THAT(fault("{\"train_micro_batch_size_per_gpu\": 1,\n\"bf16\": {\"enabled\": true}, " + rest),
              HasSubstr("contradicts fp16.enabled"));
  EXPECT_THAT(fault("{\"train_micro_batch_size_per_gpu\": 1,\n\"train_micro_batch_size_per_gpu\": 1, " + rest),
              HasSubstr("ds.json:2"));
  EXPECT_THAT(fault("{\"train_micro_batch_size_per_gpu\": 1, \"zero_optimization\": {\"stage\": 4}, " + rest),
              HasSubstr("none of 0, 1, 2, 3"));
  EXPECT_THAT(fault("--num-layers 4"), HasSubstr("ds.json"));
  // Stage 3 overlaps communication unless told otherwise.
  EXPECT_EQ(fault("{\"train_micro_batch_size_per_gpu\": 2, \"zero_optimization\": {\"stage\": 3, "
                  "\"reduce_bucket_size\": 5e8}, " +
                  rest),
            "read: tp=1,zero=3,mbs=2,ga=1 megatron-deepspeed:gradient_overlap=true");
}

}  // namespace
}  // namespace weft
