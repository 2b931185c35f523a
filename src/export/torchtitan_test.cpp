#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "export/python_config.h"
#include "export_law.h"

namespace weft {
namespace {

using testing::HasSubstr;

Result<Plan> plan_of(const char* model, const char* strategy, const char* dtype, const char* stack = "torchtitan") {
  PlanRequest request{.model = model, .cluster = "dgx-h100:2", .strategy = strategy};
  request.global_batch = 64;
  request.seq = 2048;
  request.dtype = dtype;
  request.stack = stack;
  return make_plan(request);
}

TEST(TorchtitanLaw, WhatIsWrittenReadsBackAsTheSamePlanAndTime) {
  for (const auto& [model, strategy, dtype, stack] : {
           std::tuple{"llama3-8b", "dp=16,zero=3,recompute=full,mbs=2", "bf16", "torchtitan"},
           std::tuple{"llama3-8b", "fsdp=8,replicate=2,mbs=1", "fp8", "torchtitan"},
           std::tuple{"llama3-8b", "dp=16,zero=3", "fp8", "torchtitan:narrow_gathers=false"},
           std::tuple{"llama3-8b", "dp=16,zero=3", "fp8-rowwise", "torchtitan"},
           std::tuple{"llama3-8b", "dp=16,zero=3", "fp8-rowwise-gw-hp", "torchtitan"},
           std::tuple{"llama3-8b", "dp=16,zero=3", "mxfp8", "torchtitan"},
           std::tuple{"llama3-8b", "tp=2,dp=8,zero=2,sp=0", "bf16", "torchtitan:graph_capture=true"},
           std::tuple{"llama3.1-8b", "tp=2,cp=2,dp=4,zero=3", "bf16", "torchtitan"},
           std::tuple{"llama3-8b", "tp=2,pp=2,dp=4,zero=0,vpp=2,stages=8+9+8+7", "bf16", "torchtitan"},
           std::tuple{"qwen3-30b-a3b", "dp=16,ep=8,zero=3,recompute=full", "bf16", "torchtitan"},
       }) {
    SCOPED_TRACE(fmt::format("{} {} {}", model, strategy, stack));
    const auto plan = plan_of(model, strategy, dtype, stack);
    ASSERT_TRUE(plan.ok()) << plan.error().message;
    expect_reads_back(Target::Torchtitan, *plan);
  }
}

TEST(Torchtitan, WhatItCannotSayIsRefusedWithTheNearestPlanThatItCan) {
  const auto refusal = [](const char* model, const char* strategy) {
    const auto plan = plan_of(model, strategy, "bf16");
    if (!plan.ok()) return plan.error().message;
    const auto text = export_plan(Target::Torchtitan, *plan);
    return text.ok() ? *text : text.error().message;
  };
  EXPECT_THAT(refusal("llama3-8b", "dp=16,zero=1"), HasSubstr("can express: tp=1,pp=1,dp=16,zero=2,mbs=1"));
  EXPECT_THAT(refusal("llama3-8b:layers=4", "dp=16"), HasSubstr("none of the models that torchtitan registers"));
  EXPECT_THAT(refusal("llama3-8b", "dp=16,zero=3,recompute=op"),
              HasSubstr("recompute=op: torchtitan recomputes whole layers"));
  const auto blocks = export_plan(Target::Torchtitan, plan_of("llama3-8b", "dp=16,zero=3", "fp8-blockwise").value());
  ASSERT_FALSE(blocks.ok());
  EXPECT_THAT(blocks.error().message, HasSubstr("torchtitan's converters do not cast by a scale for 128 elements"));
}

std::string fault(const std::string& body) {
  const auto read = import_run(Target::Torchtitan,
                               "from torchtitan.models.llama3.config_registry import llama3_8b\n"
                               "def plan():\n  c = llama3_8b()\n  c.activation_checkpoint = None\n" +
                                   body + "  return c\n",
                               "plan.py");
  return read.ok() ? "read: " + read->request.model + " " + read->request.strategy + " " + read->request.stack
                   : read.error().message;
}

TEST(TorchtitanImport, AModuleOfUsersOwnIsReadWithoutRunningIt) {
  EXPECT_EQ(fault("  p, t = c.parallelism, c.training\n"
                  "  p.tensor_parallel_degree, p.data_parallel_shard_degree = 2, 4  # of 8\n"
                  "  t.num_tokens_per_microbatch_per_dp_rank, t.max_context_length = 2 * 4096, 4_096\n"
                  "  t.num_tokens_per_train_step = 4096 * 8 * 4\n"
                  "  t.disable_cuda_graphs = True\n  c.compile.enable = True\n"),
            "read: llama3.1-8b tp=2,pp=1,dp=4,zero=3,sp=1,mbs=2 torchtitan");
}

TEST(TorchtitanImport, FaultsAreNamedByLineAndNothingIsGuessed) {
  EXPECT_THAT(fault("  c.parallelism.tensor_paralel_degree = 2\n"),
              HasSubstr("plan.py:5: parallelism.tensor_paralel_degree: no field"));
  EXPECT_THAT(fault("  c.training.local_batch_size = 2\n"), HasSubstr("plan.py:5: training.local_batch_size: "));
  EXPECT_THAT(fault("  x = compute()\n"), HasSubstr("plan.py:5: x = "));
  EXPECT_THAT(fault("  c.compile.enable = 3\n"), HasSubstr("plan.py:5: compile.enable: True or False"));
  EXPECT_THAT(fault("  for i in range(3): pass\n"), HasSubstr("plan.py:5: "));
  EXPECT_THAT(fault("  c.compile.enable = True\n  c.compile.enable = True\n"),
              HasSubstr("plan.py:6: compile.enable: set twice, on line 5 too"));
  EXPECT_THAT(fault("  c.parallelism.pipeline_parallel_degree = 2\n"), HasSubstr("the stages are missing"));
  EXPECT_FALSE(import_run(Target::Torchtitan, "{\"a\": 1}", "x").ok());
}

}  // namespace
}  // namespace weft
