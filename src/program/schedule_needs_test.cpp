// The checks of schedules in src/strategy agree with those of src/program, which makes the tables.
#include <gtest/gtest.h>

#include "program/schedule.h"
#include "strategy/schedules.h"

namespace weft {
namespace {

TEST(ScheduleNeeds, StrategyAndProgramKnowTheSameNames) { EXPECT_EQ(pipeline_schedule_names(), schedule_names()); }

TEST(ScheduleNeeds, StrategyAndProgramAgreeOnEverySizeAndOnTheStages) {
  int accepted = 0, refused = 0;
  for (const std::string& name : schedule_names())
    for (std::int32_t ranks = 1; ranks <= 6; ++ranks)
      for (std::int32_t interleave = 1; interleave <= 4; ++interleave)
        for (std::int32_t micro_batches = 0; micro_batches <= 16; ++micro_batches) {
          const PipelineSchedule& schedule = *find_schedule(name);
          const std::vector<std::string> needs = schedule_violations(schedule, ranks, interleave, micro_batches);
          // A strategy without interleaving has 1; for src/program 0 means the schedule's own number of chunks.
          const Result<Schedule> made = make_schedule({name, ranks, micro_batches, interleave == 1 ? 0 : interleave});
          ASSERT_EQ(needs.empty(), made.ok()) << name << " p=" << ranks << " v=" << interleave << " m=" << micro_batches
                                              << ": " << (made.ok() ? needs.front() : made.error().message);
          made.ok() ? ++accepted : ++refused;
          if (!made.ok()) continue;
          EXPECT_EQ(made->chunks, chunk_count(schedule, interleave)) << name;
          EXPECT_EQ(made->stages(), stage_count(schedule, ranks, interleave)) << name;
          for (std::int32_t stage = 0; stage < made->stages(); ++stage)
            EXPECT_EQ(made->place_of(0, stage).rank, rank_of_stage(schedule, ranks, stage)) << name;
        }
  for (const std::int32_t ranks : {1 << 12, (1 << 23) + 1, 1 << 25})
    EXPECT_EQ(schedule_violations(*find_schedule("1f1b"), ranks, 1, 2).empty(), make_schedule({"1f1b", ranks, 2}).ok());
  EXPECT_GT(accepted, 500);
  EXPECT_GT(refused, 500);
}

}  // namespace
}  // namespace weft
