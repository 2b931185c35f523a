// Export → import gives the same strategy and the same predicted time to the picosecond, for every plan that a search
// for the trainer returns.
#include <gtest/gtest.h>

#include "cost/analytic.h"
#include "export/export.h"
#include "search/find_plan.h"

namespace weft {
namespace {

struct Pair {
  const char* model;
  const char* cluster;
  std::int64_t batch;
  const char* dtype = "";
};

TEST(ExportLaw, EveryPlanFoundForMegatronReadsBackOnTwelveModelsAndClusters) {
  int plans = 0;
  for (const Pair& pair : {Pair{"llama3-8b", "dgx-h100:2", 128}, Pair{"llama3-70b", "dgx-h100:8", 256},
                           Pair{"llama2-13b", "dgx-a100:2", 128}, Pair{"gpt3-1.3b", "dgx-a100:1", 64},
                           Pair{"gpt3-13b", "dgx-a100:4", 128, "fp16"}, Pair{"megatron-22b", "dgx-a100:4", 128},
                           Pair{"qwen2.5-7b", "dgx-h200:1", 64}, Pair{"qwen3-8b", "dgx-h100:2", 64, "fp8"},
                           Pair{"mixtral-8x7b", "dgx-h100:4", 128}, Pair{"deepseek-v2-lite", "dgx-h100:2", 128},
                           Pair{"nemotron-4-15b", "dgx-h100:4", 128}, Pair{"mistral-7b", "dgx-a100:2", 64}}) {
    SCOPED_TRACE(fmt::format("{} on {}", pair.model, pair.cluster));
    PlanRequest request{.model = pair.model, .cluster = pair.cluster};
    request.global_batch = pair.batch;
    request.seq = 4096;
    if (std::string_view(pair.model).starts_with("gpt3") || std::string_view(pair.model).starts_with("megatron"))
      request.seq = 2048;
    request.dtype = pair.dtype;
    const auto problem = pose(request);
    ASSERT_TRUE(problem.ok()) << problem.error().message;
    const AnalyticCost cost(problem->stack(), problem->job->tuning);
    const auto subject = std::make_shared<const Expressible>(Target::Megatron, *problem->job);
    FindOptions options{.search = Search::Enumerate};
    options.enumerate.budget.evaluations = 4;
    options.enumerate.space.allows = [subject](const Parallelism& strategy) { return !subject->why_not(strategy); };
    const auto found = find_plan(*problem, cost, options);
    ASSERT_TRUE(found.ok()) << found.error().message;
    ASSERT_FALSE(found->outcome.best.empty());
    for (const Judged& judged : found->outcome.best) {
      SCOPED_TRACE(judged.strategy);
      const auto plan = make_plan(problem->job, choice_of(*problem->job, judged).value());
      ASSERT_TRUE(plan.ok());
      const auto text = export_plan(Target::Megatron, *plan);
      ASSERT_TRUE(text.ok()) << text.error().message;
      // No comment carries the answer: they are struck out.
      std::string bare;
      for (std::size_t at = 0; at < text->size();) {
        const std::size_t end = std::min(text->find('\n', at), text->size());
        if ((*text)[at] != '#') bare += text->substr(at, end - at) + "\n";
        at = end + 1;
      }
      const auto read = import_run(Target::Megatron, bare, "train.sh");
      ASSERT_TRUE(read.ok()) << read.error().message;
      PlanRequest back = read->request;
      back.cluster = pair.cluster;
      const auto again = make_plan(back);
      ASSERT_TRUE(again.ok()) << again.error().message;
      EXPECT_EQ(again->parallelism, plan->parallelism);
      EXPECT_EQ(again->strategy, plan->strategy);
      EXPECT_EQ(forecast(*again, AnalyticCost(again->stack(), again->job->tuning)).value().step, judged.forecast.step);
      ++plans;
    }
  }
  EXPECT_GE(plans, 24);
}

}  // namespace
}  // namespace weft
