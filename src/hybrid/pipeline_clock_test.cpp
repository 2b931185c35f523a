#include "hybrid/pipeline_clock.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace weft {
namespace {

// Stages with random costs, the same in both forms.
std::vector<StageTimes> times_of(const std::vector<StageCost>& costs) {
  std::vector<StageTimes> times;
  for (const StageCost& cost : costs)
    times.push_back({static_cast<double>(cost.forward), static_cast<double>(cost.backward_input),
                     static_cast<double>(cost.backward_weight), 0});
  return times;
}

struct Shape {
  std::string schedule;
  int ranks = 1, chunks = 1, micro_batches = 1;
};

Shape random_shape() {
  Shape shape;
  shape.schedule = *rc::gen::element<std::string>("1f1b", "interleaved", "zb-h1", "zb-v");
  shape.ranks = *rc::gen::inRange(2, 7);
  shape.chunks = shape.schedule == "interleaved" ? *rc::gen::inRange(2, 4) : shape.schedule == "zb-v" ? 2 : 1;
  const int times = *rc::gen::inRange(1, 12);
  shape.micro_batches = shape.schedule == "interleaved" ? shape.ranks * times : shape.ranks * 2 + times;
  return shape;
}

std::vector<StageCost> random_costs(const Shape& shape, Ticks least) {
  std::vector<StageCost> costs;
  for (int stage = 0; stage < shape.ranks * shape.chunks; ++stage)
    costs.push_back({*rc::gen::inRange<Ticks>(least, 100), *rc::gen::inRange<Ticks>(least, 100),
                     *rc::gen::inRange<Ticks>(least, 100)});
  return costs;
}

// The same step by the clock and by the schedule itself.
struct Both {
  PipelineTimes found;
  Playback played;
};
Both play_both(const Shape& shape, const std::vector<StageCost>& costs, Ticks transfer) {
  const Result<Schedule> schedule = make_schedule({shape.schedule, shape.ranks, shape.micro_batches, shape.chunks});
  RC_PRE(schedule.ok());
  PipelineTables tables;
  const PipelineClock clock(tables, shape.schedule, shape.ranks, shape.chunks, shape.micro_batches);
  RC_ASSERT(clock.valid());
  Both both;
  std::vector<StageTimes> times = times_of(costs);
  for (StageTimes& stage : times) stage.sends = static_cast<double>(transfer);
  clock.play(times, both.found);
  Result<Playback> played = play(*schedule, {costs, transfer, 0});
  RC_ASSERT(played.ok());
  both.played = std::move(played).value();
  return both;
}

// src/program plays the whole table with integers; the clock plays a part of it and extrapolates linearly.
RC_GTEST_PROP(PipelineClock, PlaysAShortStepAsTheScheduleItself, ()) {
  Shape shape = random_shape();
  shape.micro_batches = std::min(shape.micro_batches, 3 * shape.ranks);
  const std::vector<StageCost> costs = random_costs(shape, 1);
  const Ticks transfer = *rc::gen::inRange<Ticks>(0, 20);
  const auto [found, played] = play_both(shape, costs, transfer);
  RC_ASSERT(found.makespan == static_cast<double>(played.makespan));
  for (std::size_t rank = 0; rank < played.ranks.size(); ++rank)
    RC_ASSERT(found.rank_end[rank] == static_cast<double>(played.ranks[rank].end));
}

RC_GTEST_PROP(PipelineClock, GoesOnInAStraightLineWithinTwoPercent, ()) {
  Shape shape = random_shape();
  RC_PRE(shape.schedule == "1f1b" || shape.schedule == "interleaved");  // zero-bubble schedules become periodic later
  shape.micro_batches = shape.ranks * *rc::gen::inRange(8, 20);
  const std::vector<StageCost> costs =
      random_costs(shape, 50);  // the more uneven, the later the schedule becomes periodic
  const Ticks transfer = *rc::gen::inRange<Ticks>(0, 5);
  const auto [found, played] = play_both(shape, costs, transfer);
  const double whole = static_cast<double>(played.makespan);
  RC_ASSERT(std::abs(found.makespan - whole) <= 0.02 * whole);
}

// Of 1F1B with p ranks, rank r has min(m, p − r) micro-batches in flight.
TEST(PipelineClock, CountsMicroBatchesInFlight) {
  PipelineTables tables;
  const PipelineClock clock(tables, "1f1b", 4, 1, 16);
  ASSERT_TRUE(clock.valid());
  for (int rank = 0; rank < 4; ++rank) EXPECT_EQ(clock.table().in_flight(rank).front(), 4 - rank);
}

// Recomputation before the gradient arrives is hidden by the wait for it: 2 ranks, 1 micro-batch, F = 1, B = 3 of
// which 1 is recomputation. Rank 0: F 0–1; rank 1: F 1–2, B 2–5; rank 0 recomputes from 4 on and ends at 5 + 2 = 7.
TEST(PipelineClock, RecomputesWhileItWaits) {
  PipelineTables tables;
  const PipelineClock clock(tables, "1f1b", 2, 1, 1);
  PipelineTimes found;
  clock.play({{1, 3, 0, 1}, {1, 3, 0, 1}}, found);
  EXPECT_EQ(found.makespan, 7);
}

// A transfer between two stages takes its own time: 3 ranks, 1 micro-batch, F = B = 1, 5 from the first stage to the
// second and back, 2 from the second to the third: 6 computations + 2 · (5 + 2) = 20.
TEST(PipelineClock, EveryBoundaryHasATransferOfItsOwn) {
  PipelineTables tables;
  const PipelineClock clock(tables, "1f1b", 3, 1, 1);
  PipelineTimes found;
  clock.play({{1, 1, 0, 0, 5}, {1, 1, 0, 0, 2}, {1, 1, 0, 0, 100}}, found);
  EXPECT_EQ(found.makespan, 20);
}

// For every action of a split schedule some recorded moment holds at least as many micro-batches of every chunk.
RC_GTEST_PROP(PipelineClock, MomentsOfASplitScheduleHoldAllThatIsInFlight, ()) {
  Shape shape = random_shape();
  shape.schedule = *rc::gen::element<std::string>("zb-h1", "zb-v");
  shape.chunks = shape.schedule == "zb-v" ? 2 : 1;
  const Result<Schedule> schedule = make_schedule({shape.schedule, shape.ranks, 2 * shape.ranks, shape.chunks});
  RC_PRE(schedule.ok());
  const PipelineTable table(*schedule);
  for (int rank = 0; rank < shape.ranks; ++rank) {
    const std::vector<InFlight>& moments = table.in_flight_split(rank);
    const auto chunks = static_cast<std::size_t>(shape.chunks);
    std::vector<std::int32_t> whole(chunks, 0), half(chunks, 0);
    for (const Action& action : schedule->actions[static_cast<std::size_t>(rank)]) {
      RC_ASSERT(std::any_of(moments.begin(), moments.end(), [&](const InFlight& moment) {
        bool holds = moment.body == action.body && moment.chunk == action.chunk;
        for (std::size_t chunk = 0; chunk < chunks; ++chunk)
          holds = holds && moment.whole[chunk] >= whole[chunk] && moment.half[chunk] >= half[chunk];
        return holds;
      }));
      const auto chunk = static_cast<std::size_t>(action.chunk);
      whole[chunk] += action.body == Body::Forward ? 1 : action.body == Body::BackwardInput ? -1 : 0;
      half[chunk] += action.body == Body::BackwardInput ? 1 : action.body == Body::BackwardWeight ? -1 : 0;
    }
  }
}

// Rank 0 of two, four micro-batches: F F I W F I W F I W I W holds at most two, one of them with gradients of weights
// left to compute.
TEST(PipelineClock, ASplitScheduleOfTwoRanksHoldsTwo) {
  const Result<Schedule> schedule = make_schedule({"zb-h1", 2, 4, 1});
  ASSERT_TRUE(schedule.ok());
  const PipelineTable table(*schedule);
  std::int32_t most = 0;
  for (const InFlight& moment : table.in_flight_split(0)) most = std::max(most, moment.whole[0] + moment.half[0]);
  EXPECT_EQ(most, 2);
  EXPECT_TRUE(PipelineTable(*make_schedule({"1f1b", 2, 4, 1})).in_flight_split(0).empty());
}

}  // namespace
}  // namespace weft
