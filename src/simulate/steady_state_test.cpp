// Repetitions that are counted give the run that is simulated.
#include "simulate/steady_state.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "simulate/random_workload.h"
#include "simulate/test_workload.h"

namespace weft {
namespace {

using engine::Machine;
using engine::SteadyState;
using testing::Maker;
using testing::RandomWorkload;

struct Counted {
  Run run;
  std::int64_t skipped = 0;
};

Counted counted(const Workload& workload, Network network) {
  Machine machine(workload, {.network = network});
  SteadyState steady(machine);
  EXPECT_TRUE(steady.run());
  return {machine.take_result(), steady.skipped()};
}

Run simulated(const Workload& workload, Network network) {
  Machine machine(workload, {.network = network});
  EXPECT_TRUE(machine.run());
  return machine.take_result();
}

// Pipelines of random stages: 1F1B, warm-ups of random lengths, a body in front or behind now and then.
RC_GTEST_PROP(SteadyState, CountingIsSimulating, (std::uint64_t seed)) {
  for (const bool host : {false, true})
    for (const bool interference : {false, true}) {
      RandomWorkload random(Rng(seed), {.host = host, .interference = interference, .plain = 3, .micro_batches = 60});
      for (const Network network : {Network::Fair, Network::Fifo}) {
        const Run whole = simulated(random.workload(), network);
        RC_ASSERT(counted(random.workload(), network).run == whole);
      }
    }
}

TEST(SteadyState, RandomRunsOfManyMicroBatchesBecomeSteady) {
  std::int64_t tasks = 0, skipped = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    RandomWorkload random(Rng(seed), {.host = false, .micro_batches = 200});
    const Counted run = counted(random.workload(), Network::Fair);
    EXPECT_EQ(run.run, simulated(random.workload(), Network::Fair)) << seed;
    tasks += run.run.tasks;
    skipped += run.skipped;
  }
  // Where streams of an agent do not wait for one another, they drift apart and no state comes again.
  EXPECT_GT(skipped, tasks / 5) << tasks;
}

// 1F1B over stages of different speed with transfers of different length between them.
Workload pipeline(int stages, int micro_batches, std::int32_t run_ahead) {
  Maker maker;
  maker.workload.micro_batches = micro_batches;
  std::vector<MeetingId> down, up;
  for (int i = 0; i + 1 < stages; ++i)
    for (auto* way : {&down, &up})
      way->push_back(
          maker.meeting(maker.transfer(10'000'000 + 1'000'003 * i, {maker.link(25'000'000'000)}, 5'000'000)));
  for (int stage = 0; stage < stages; ++stage) {
    const AgentId a = maker.agent();
    maker.workload.agents[a].run_ahead = run_ahead;
    const auto s = static_cast<std::size_t>(stage);
    const auto body = [&](BodyId id, const MeetingId* from, const MeetingId* to, std::uint8_t stream) {
      ShortVec<TaskId> after;
      if (from != nullptr) after = {maker.meet(a, *from, stream, {}, id)};
      for (int t = 0; t < 20; ++t) {
        const WorkId work = maker.compute(50'000'000 + 700'001 * ((stage * 7 + t) % 5));
        after = {maker.task(a, Task{.work = work, .host = 5'000'000, .after = after}, id)};
      }
      if (to != nullptr) maker.meet(a, *to, static_cast<std::uint8_t>(stream + 1), after, id);
    };
    body(BodyId(0), stage > 0 ? &down[s - 1] : nullptr, stage + 1 < stages ? &down[s] : nullptr, 1);
    body(BodyId(1), stage + 1 < stages ? &up[s] : nullptr, stage > 0 ? &up[s - 1] : nullptr, 3);
    maker.workload.agents[a].plays = testing::one_forward_one_backward(stages, stage, micro_batches);
  }
  return std::move(maker.workload);
}

TEST(SteadyState, APipelineIsSimulatedUntilItsQueuesAreFull) {
  for (const int stages : {1, 2, 8})
    for (const std::int32_t run_ahead : {0, 30, 1000}) {
      std::int64_t at_500 = 0;
      for (const int micro_batches : {500, 2000}) {
        const Workload workload = pipeline(stages, micro_batches, run_ahead);
        const Counted run = counted(workload, Network::Fair);
        EXPECT_EQ(run.run, simulated(workload, Network::Fair)) << stages << " " << micro_batches << " " << run_ahead;
        const std::int64_t played = run.run.tasks - run.skipped;
        if (run_ahead == 0) continue;  // a host without limit is never again where it was
        if (micro_batches == 500)
          at_500 = played;
        else
          EXPECT_LT(played, 1.2 * static_cast<double>(at_500)) << stages << " " << run_ahead;
        EXPECT_GT(run.skipped, run.run.tasks / 2) << stages << " " << micro_batches << " " << run_ahead;
      }
    }
}

TEST(SteadyState, ARunThatTakesTooLongIsRefused) {
  Workload workload = pipeline(2, 2000, 30);
  for (Work& work : workload.works) work.fixed = kTimeLimit / 60'000;
  EXPECT_FALSE(simulate(workload).ok());
  EXPECT_FALSE(simulate(workload, {.record = true}).ok());
}

}  // namespace
}  // namespace weft
