#include <gtest/gtest.h>

#include "plan/plan.h"
#include "strategy/yaml.h"

namespace weft {
namespace {

Result<Plan> with_cache(const PlanRequest& request, GraphCache& graphs) {
  WEFT_TRY(TrainingJob settled, settle(request));
  const auto job = std::make_shared<const TrainingJob>(std::move(settled));
  WEFT_TRY(StrategyChoice choice, choose_strategy(*job, request));
  return make_plan(job, std::move(choice), &graphs);
}

// Plans that share a graph are those that make_plan gives by itself: same graph, same strategy, same assumptions.
TEST(GraphCache, PlansAreAsTheyWouldBeByThemselves) {
  GraphCache graphs(4);
  PlanRequest request{.model = "llama3-8b:layers=4", .cluster = "dgx-h100:2", .global_batch = 32, .seq = 8192};
  const TrainedModel* shared_before = nullptr;
  int shared_again = 0;
  for (const char* strategy :
       {"tp=2,pp=2,dp=4,zero=1,sp=1,mbs=2", "tp=2,pp=2,dp=4,zero=0,sp=0,mbs=2",
        "tp=2,pp=1,dp=8,zero=0,sp=0,mbs=1,recompute=full", "tp=2,pp=1,dp=8,zero=3,sp=1,mbs=1",
        "tp=2,cp=2,pp=1,dp=4,zero=1,sp=1,mbs=2,cp_mode=a2a", "tp=2,cp=2,pp=1,dp=4,zero=1,sp=1,mbs=2,cp_mode=gather",
        "tp=2,cp=2,pp=1,dp=4,zero=1,sp=1,mbs=2,cp_mode=ring"}) {
    request.strategy = strategy;
    const Result<Plan> shared = with_cache(request, graphs), own = make_plan(request);
    ASSERT_TRUE(shared.ok() && own.ok()) << strategy;
    EXPECT_EQ(to_yaml(shared->strategy), to_yaml(own->strategy)) << strategy;
    EXPECT_EQ(shared->parallelism, own->parallelism) << strategy;
    EXPECT_EQ(shared->batch, own->batch) << strategy;
    EXPECT_EQ(shared->assumptions, own->assumptions) << strategy;
    EXPECT_TRUE(shared->graph() == own->graph()) << strategy;
    shared_again += shared->model.get() == shared_before ? 1 : 0;
    shared_before = shared->model.get();
  }
  EXPECT_EQ(shared_again, 5);  // of seven: all have 8 samples and tp=2, and two a zigzag over cp=2
}

// Experts route the tokens of every part of the sequence by themselves: such plans have graphs of their own.
TEST(GraphCache, ModelsWithExpertsAreKeyedByTheirRouting) {
  GraphCache graphs(4);
  PlanRequest request{.model = "mixtral-8x7b:layers=1", .cluster = "dgx-h100:1", .global_batch = 32, .seq = 1024};
  const auto graph_of = [&](const char* strategy) {
    request.strategy = strategy;
    return with_cache(request, graphs).value().model;
  };
  EXPECT_NE(graph_of("tp=2,dp=4,sp=1,mbs=1"), graph_of("tp=2,dp=4,sp=0,mbs=1"));
  EXPECT_EQ(graph_of("tp=2,dp=4,sp=1,mbs=1,zero=1"), graph_of("tp=2,dp=4,sp=1,mbs=1,ep=2"));
}

}  // namespace
}  // namespace weft
