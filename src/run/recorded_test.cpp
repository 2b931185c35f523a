// What ranks record when they run for real: every instruction once, in order; clocks of one machine; memory; and the
// prediction of the same plan beside it.
#include <gtest/gtest.h>

#include <set>

#include "cost/analytic.h"
#include "run/counted_memory.h"
#include "run_ranks.h"
#include "validate/run_comparison.h"

namespace weft {
namespace {

using runtime::RankTimeline;

struct Planned {
  Plan plan;
  CompiledStrategy compiled;
  Bundle bundle;
};

Planned planned(const std::string& strategy, std::int64_t ranks) {
  Plan plan = make_plan({.model = "gpt2-124m:layers=4,hidden=64,heads=4,vocab=256,dropout=0.1",
                         .cluster = "cpu-node:1",
                         .strategy = strategy,
                         .global_batch = 4,
                         .seq = 32,
                         .dtype = "fp32",
                         .device_count = ranks,
                         .stack = "weft"})
                  .value();
  CompiledStrategy compiled = compile_plan(plan).value();
  Bundle bundle{.model = "test",
                .strategy = strategy,
                .graph = plan.graph(),
                .program = numbered_by_rank(compiled.program),
                .schedule = compiled.schedule};
  return {std::move(plan), std::move(compiled), std::move(bundle)};
}

std::vector<RankTimeline> recorded(const Bundle& bundle, int recorded_steps, int steps) {
  const runtime::Rendezvous rendezvous = runtime::Rendezvous::in_process();
  const runtime::LeafValues values = runtime::synthetic_values(bundle);
  std::vector<RankTimeline> timelines(static_cast<std::size_t>(bundle.world_size()));
  const std::string problem = on_all_ranks(bundle.world_size(), [&](int rank) -> std::string {
    auto executor = runtime::Executor::make(
        bundle, rank, rendezvous, values,
        {.timeout = Seconds{30}, .mask_seed = 7, .progress = {}, .recorded_steps = recorded_steps});
    if (!executor.ok()) return executor.error().message;
    for (int step = 1; step <= steps; ++step)
      if (const Status played = (*executor)->step({static_cast<double>(step), 1e-3, 1}); !played.ok())
        return played.error().message;
    timelines[static_cast<std::size_t>(rank)] = (*executor)->timeline();
    return {};
  });
  EXPECT_EQ(problem, "");
  return timelines;
}

Forecast predicted(const Planned& of, PlayedPlan& played) {
  const ForecastOptions options{.fold = false, .record = true};
  played = play_plan(of.plan, of.compiled, AnalyticCost(of.plan.stack()), options).value();
  return judge(of.plan, played, options);
}

TEST(Recorded, EveryInstructionOnceInOrder) {
  for (const char* strategy : {"tp=2,pp=2", "dp=2,tp=2,zero=1", "dp=4,zero=3"}) {
    const Planned of = planned(strategy, 4);
    const Program& program = of.bundle.program;
    for (const RankTimeline& rank : recorded(of.bundle, 2, 3)) {
      ASSERT_EQ(rank.steps.size(), 2u);  // of three
      for (const runtime::RecordedStep& step : rank.steps) {
        std::set<std::pair<std::uint32_t, std::int32_t>> seen;
        std::vector<int> waits(step.issued.size(), 0);
        for (const runtime::HostWait& wait : step.waits) {
          ++waits[wait.issue];
          EXPECT_LE(step.issued[wait.issue].begin, wait.begin);
          EXPECT_LE(wait.begin, wait.end);
          EXPECT_LE(wait.end, wait.unpacked);
          // c10d tells before a wait ends. A log-sum-exp is two reductions, one after the other, and the host waits for
          // both while it plays it.
          EXPECT_LE(step.issued[wait.issue].complete, std::max(wait.end, step.issued[wait.issue].end));
          EXPECT_LE(wait.unpacked, step.end);
        }
        runtime::Nanoseconds before = step.begin;
        for (std::size_t i = 0; i < step.issued.size(); ++i) {
          const runtime::IssuedInstruction& each = step.issued[i];
          EXPECT_TRUE(seen.emplace(each.instruction.index(), each.micro_batch).second);
          EXPECT_LE(before, each.begin);
          EXPECT_LE(each.begin, each.end);
          EXPECT_LE(each.end, each.complete);
          before = each.end;
          const bool computes = std::holds_alternative<Compute>(program.instructions[each.instruction].what);
          EXPECT_LE(waits[i], computes ? 0 : 2);
        }
        EXPECT_EQ(step.issued.size(), rank.steps.front().issued.size());
        for (const InstructionId id : program.step) {
          const Mesh& mesh = program.meshes[program.instructions[id].mesh];
          const bool own = mesh.position_of(DeviceId(static_cast<std::size_t>(rank.rank))) >= 0;
          EXPECT_EQ(std::count_if(step.issued.begin(), step.issued.end(),
                                  [&](const auto& each) { return each.instruction == id; }),
                    own ? 1 : 0);
        }
      }
    }
  }
}

// The true offset is 0, so an estimate is off by itself; half of the round trip is what it may be off.
TEST(Recorded, ClocksOfOneMachineAreOne) {
  const std::vector<RankTimeline> ranks = recorded(planned("dp=4", 4).bundle, 3, 3);
  for (const RankTimeline& rank : ranks)
    for (const runtime::RecordedStep& step : rank.steps) {
      EXPECT_GT(step.clock.round_trip, 0);
      EXPECT_LE(std::abs(step.clock.ahead), step.clock.round_trip / 2);
      EXPECT_TRUE(rank.rank > 0 || step.clock.ahead == 0);
    }
}

TEST(Recorded, NothingIsRecordedUnlessAsked) {
  for (const RankTimeline& rank : recorded(planned("dp=2", 2).bundle, 0, 2)) EXPECT_TRUE(rank.steps.empty());
}

TEST(Recorded, LiesBesideThePrediction) {
  for (const char* strategy : {"tp=2,pp=2", "dp=2,tp=2,zero=1", "pp=4"}) {
    const Planned of = planned(strategy, 4);
    PlayedPlan played;
    const Forecast forecast = predicted(of, played);
    const Result<RunComparison> compared = compare_run(of.plan, played, forecast, recorded(of.bundle, 4, 4));
    ASSERT_TRUE(compared.ok()) << compared.error().message;
    EXPECT_EQ(compared->steps.size(), 3u);
    for (const RunComparison::Rank& rank : compared->ranks) {
      const RankParts& parts = rank.measured;
      EXPECT_GT(parts.busy.value, 0);
      EXPECT_NEAR((parts.busy + parts.communication + parts.waiting + parts.idle).value, compared->measured.value,
                  1e-9);
    }
  }
}

// One rank of one process: what tensors hold is what the program says, kernels' workspace and rounding apart.
TEST(Recorded, PeakMemoryIsTheProgramsOwnAccount) {
  runtime::count_memory();
  const Planned of = planned("dp=1,ga=2", 1);
  PlayedPlan played;
  const Forecast forecast = predicted(of, played);
  const Bytes before = runtime::counted_memory().held;
  const std::vector<RankTimeline> ranks = recorded(of.bundle, 3, 3);
  EXPECT_EQ(runtime::counted_memory().held, before);  // all is given back
  const HeldBytes& held = forecast.memory.front().allocated;
  const double all = static_cast<double>(held.total().value);
  const double kept = all - static_cast<double>(held.buffers.value);  // what cannot be elsewhere at the peak
  for (std::size_t step = 1; step < 3; ++step) {
    const double measured = static_cast<double>((ranks.front().steps[step].peak - before).value);
    EXPECT_GE(measured, kept);
    EXPECT_LE(measured, 1.5 * all);
    for (const auto& each : ranks.front().steps[step].issued) EXPECT_LE(each.held, ranks.front().steps[step].peak);
  }
}

}  // namespace
}  // namespace weft
