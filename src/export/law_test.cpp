// Export → import gives the same strategy and the same predicted time to the picosecond, for every plan that a search
// for the trainer returns: twelve models and clusters each.
#include <gtest/gtest.h>

#include "export_law.h"
#include "search/find_plan.h"

namespace weft {
namespace {

struct Pair {
  const char* model;
  const char* cluster;
  std::int64_t batch;
  const char* dtype = "";
  std::int64_t seq = 4096;
};

// How many plans a search returned.
int expect_law(Target target, const char* stack, std::initializer_list<Pair> pairs) {
  int plans = 0;
  for (const Pair& pair : pairs) {
    SCOPED_TRACE(fmt::format("{} on {} for {}", pair.model, pair.cluster, name_of(target)));
    PlanRequest request{.model = pair.model, .cluster = pair.cluster};
    request.global_batch = pair.batch;
    request.seq = pair.seq;
    request.dtype = pair.dtype;
    request.stack = stack;
    const auto problem = pose(request);
    if (!problem.ok()) {
      ADD_FAILURE() << problem.error().message;
      continue;
    }
    const AnalyticCost cost(problem->stack(), problem->job->tuning);
    const auto subject = std::make_shared<const Expressible>(target, *problem->job);
    FindOptions options{.search = Search::Enumerate};
    options.enumerate.budget.evaluations = 4;
    options.enumerate.space.allows = [subject](const Parallelism& strategy) { return !subject->why_not(strategy); };
    const auto found = find_plan(*problem, cost, options);
    if (!found.ok() || found->outcome.best.empty()) {
      ADD_FAILURE() << (found.ok() ? "nothing fits" : found.error().message);
      continue;
    }
    for (const Judged& judged : found->outcome.best) {
      SCOPED_TRACE(judged.strategy);
      const auto plan = make_plan(problem->job, choice_of(*problem->job, judged).value());
      if (!plan.ok()) {
        ADD_FAILURE() << plan.error().message;
        continue;
      }
      EXPECT_EQ(step_of(*plan), judged.forecast.step);
      expect_reads_back(target, *plan);
      ++plans;
    }
  }
  return plans;
}

TEST(ExportLaw, EveryPlanFoundForMegatronReadsBack) {
  EXPECT_GE(expect_law(Target::Megatron, "",
                       {{"llama3-8b", "dgx-h100:2", 128},
                        {"llama3-70b", "dgx-h100:8", 256},
                        {"llama2-13b", "dgx-a100:2", 128},
                        {"gpt3-1.3b", "dgx-a100:1", 64, "", 2048},
                        {"gpt3-13b", "dgx-a100:4", 128, "fp16", 2048},
                        {"megatron-22b", "dgx-a100:4", 128, "", 2048},
                        {"qwen2.5-7b", "dgx-h200:1", 64},
                        {"qwen3-8b", "dgx-h100:2", 64, "fp8"},
                        {"mixtral-8x7b", "dgx-h100:4", 128},
                        {"deepseek-v2-lite", "dgx-h100:2", 128},
                        {"nemotron-4-15b", "dgx-h100:4", 128},
                        {"mistral-7b", "dgx-a100:2", 64}}),
            24);
}

// Models that torchtitan registers.
TEST(ExportLaw, EveryPlanFoundForTorchtitanReadsBack) {
  EXPECT_GE(expect_law(Target::Torchtitan, "torchtitan",
                       {{"llama3.2-1b", "dgx-a100:1", 64},
                        {"llama3.2-3b", "dgx-h100:1", 64},
                        {"llama3.1-8b", "dgx-h100:2", 128},
                        {"llama3.1-8b", "dgx-a100:2", 64, "", 8192},
                        {"llama3.1-70b", "dgx-h100:8", 256},
                        {"llama3-8b", "dgx-h200:1", 64, "fp8"},
                        {"qwen3-0.6b", "dgx-a100:1", 64},
                        {"qwen3-8b", "dgx-h100:2", 128, "fp8"},
                        {"qwen3-14b", "dgx-h100:2", 64},
                        {"qwen3-32b", "dgx-h200:4", 128},
                        {"qwen3-30b-a3b", "dgx-h100:4", 128},
                        {"deepseek-v2-lite", "dgx-h100:2", 128}}),
            24);
}

TEST(ExportLaw, EveryPlanFoundForDeepSpeedReadsBack) {
  EXPECT_GE(expect_law(Target::DeepSpeed, "megatron-deepspeed",
                       {{"gpt3-1.3b", "dgx-a100:1", 64, "fp16", 2048},
                        {"gpt3-1.3b", "dgx-a100:1", 64, "bf16", 2048},
                        {"gpt3-2.7b", "dgx-a100:2", 64, "fp16", 2048},
                        {"gpt3-6.7b", "dgx-h100:2", 64, "bf16", 2048},
                        {"gpt2-xl", "dgx1-v100:2", 64, "fp16", 1024},
                        {"llama3-8b", "dgx-h100:4", 128, "bf16"},
                        {"llama2-7b", "dgx-a100:4", 128, "bf16"},
                        {"llama2-13b", "dgx-h100:4", 128, "bf16", 2048},
                        {"mistral-7b", "dgx-h200:1", 64, "bf16"},
                        {"qwen2.5-7b", "dgx-h200:2", 64, "bf16"},
                        {"qwen3-0.6b", "dgx-a100:1", 64, "bf16"},
                        {"mixtral-8x7b", "dgx-h200:8", 256, "bf16", 2048}}),
            24);
}

}  // namespace
}  // namespace weft
