#include "report/timeline_columns.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "cost/analytic.h"

namespace weft {
namespace {

struct Played {
  Plan plan;
  PlayedPlan played;
};
Played play(const std::string& strategy, bool record = true) {
  Plan plan = make_plan({.model = "gpt2-124m:layers=4",
                         .cluster = "dgx-a100:1",
                         .strategy = strategy,
                         .global_batch = 16,
                         .seq = 128})
                  .value();
  PlayedPlan played = play_plan(plan, AnalyticCost(plan.stack()), {.record = record}).value();
  return {std::move(plan), std::move(played)};
}

TEST(TimelineColumns, HaveEveryTaskOfEveryRankInItsTime) {
  const Played of = play("pp=2,tp=2,dp=2");
  const TimelineColumns columns = timeline_columns(of.plan, of.played, {0, 1, 2, 3, 4, 5, 6, 7}).value();
  Picoseconds last = 0;
  std::map<std::int32_t, std::size_t> rows;
  for (std::size_t i = 0; i < columns.rows(); ++i) {
    ++rows[columns.rank[i]];
    EXPECT_LE(columns.issued[i], columns.start[i]);
    EXPECT_LE(columns.start[i], columns.work[i]);
    EXPECT_LE(columns.work[i], columns.end[i]);
    last = std::max(last, columns.end[i]);
    EXPECT_EQ(columns.micro_batch[i] < 0, columns.bodies[static_cast<std::size_t>(columns.body[i])] == "step");
    EXPECT_LT(static_cast<std::size_t>(columns.operation[i]), columns.operations.size());
  }
  EXPECT_EQ(last, of.played.run.makespan);
  ASSERT_EQ(rows.size(), 8u);
  for (const AgentId agent : of.played.priced.agents.ids())
    for (const DeviceId device : of.played.priced.agents[agent].devices)
      EXPECT_EQ(rows[static_cast<std::int32_t>(device.index())], of.played.run.agents[agent].tasks.size());
  const std::set<std::string> names(columns.operations.begin(), columns.operations.end());
  EXPECT_EQ(names.size(), columns.operations.size());
}

TEST(TimelineColumns, ByDefaultShowOneRankOfEachClass) {
  const Played of = play("pp=2,dp=4");
  const TimelineColumns columns = timeline_columns(of.plan, of.played).value();
  std::set<std::int32_t> stages, ranks;
  for (std::size_t i = 0; i < columns.rows(); ++i) {
    stages.insert(columns.pipeline_rank[i]);
    ranks.insert(columns.rank[i]);
  }
  EXPECT_EQ(stages, (std::set<std::int32_t>{0, 1}));
  EXPECT_EQ(ranks.size(), representatives(of.plan, of.played).size());
}

TEST(TimelineColumns, NeedARecordedRunAndRanksThatThereAre) {
  const Played of = play("dp=8", false);
  EXPECT_EQ(timeline_columns(of.plan, of.played).error().message, "the run has no timeline: it was not recorded");
  const Played recorded = play("dp=8");
  EXPECT_EQ(timeline_columns(recorded.plan, recorded.played, {8}).error().message, "rank 8: the plan has ranks 0 to 7");
}

}  // namespace
}  // namespace weft
