#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "simulate/breakdown.h"
#include "simulate/critical_path.h"
#include "simulate/random_workload.h"

namespace weft {
namespace {

using testing::Maker;
using testing::RandomWorkload;

// a computes 10 and arrives at the meeting; b arrives at 25: its host takes 5 to issue its first task, which computes
// 20. The transfer of 100 bytes runs from 25 to 125.
struct Example {
  Maker maker;
  AgentId a = maker.agent(), b = maker.agent();
  Example() {
    const MeetingId m = maker.meeting(maker.transfer(100, {maker.link(2 * testing::kBytePerPs), maker.link()}));
    const TaskId on_a = maker.task(a, maker.compute(10));
    maker.meet(a, m, 1, {on_a});
    maker.task(a, maker.compute(30));
    const TaskId on_b = maker.task(b, Task{.work = maker.compute(20), .host = 5});
    maker.meet(b, m, 2, {on_b});
  }
};

TEST(Breakdown, CountsEveryPicosecondOnce) {
  const Example example;
  const auto run = simulate(example.maker.workload, {.record = true}).value();
  const Recorded recorded(example.maker.workload, run);
  EXPECT_EQ(break_down(recorded, example.a), (Breakdown{.compute = 40, .communication = {0, 85}}));
  EXPECT_EQ(break_down(recorded, example.b), (Breakdown{.compute = 20, .communication = {0, 0, 100}, .host_bound = 5}));
  const auto used = link_utilisation(example.maker.workload, run);
  EXPECT_EQ(used[FlowLinkId(0)], 0.4);  // 100 bytes of 250
  EXPECT_EQ(used[FlowLinkId(1)], 0.8);
}

TEST(CriticalPath, GoesThroughTheLastPartyAndItsHost) {
  const Example example;
  const auto run = simulate(example.maker.workload, {.record = true}).value();
  const Recorded recorded(example.maker.workload, run);
  const ExecutedTask meet_a{example.a, {0, 1}}, first_b{example.b, {0, 0}};
  EXPECT_EQ(critical_path(recorded), (std::vector<Stretch>{{Spent::Host, Waited::Nothing, first_b, 0, 5},
                                                           {Spent::Compute, Waited::Host, first_b, 5, 25},
                                                           {Spent::Communication, Waited::Party, meet_a, 25, 125}}));
}

// Two transfers of 100 bytes share a link: each takes 100 alone and 100 more.
TEST(CriticalPath, ShowsWhatSharingCosts) {
  Maker maker;
  const FlowLinkId link = maker.link();
  const AgentId a = maker.agent(), b = maker.agent();
  maker.task(a, maker.transfer(100, {link}));
  maker.task(b, maker.transfer(100, {link}));
  const auto run = simulate(maker.workload, {.record = true}).value();
  const ExecutedTask task{a, {0, 0}};
  EXPECT_EQ(critical_path(Recorded(maker.workload, run)),
            (std::vector<Stretch>{{Spent::Communication, Waited::Nothing, task, 0, 100},
                                  {Spent::Sharing, Waited::Work, task, 100, 200}}));
}

RC_GTEST_PROP(Analysis, BreakdownsSumToTheMakespan, (std::uint64_t seed)) {
  RandomWorkload random(Rng(seed), {});
  for (const Network network : {Network::Fair, Network::Fifo}) {
    const Run run = simulate(random.workload(), {.network = network, .record = true}).value();
    const Recorded recorded(random.workload(), run);
    for (const AgentId agent : random.workload().agents.ids()) {
      const Breakdown breakdown = break_down(recorded, agent);
      RC_ASSERT(breakdown.total() == run.makespan);
      RC_ASSERT(breakdown.compute == run.agents[agent].busy);
      RC_ASSERT(breakdown.host_bound == run.agents[agent].host_bound);
    }
  }
}

RC_GTEST_PROP(Analysis, TheCriticalPathHasNoGaps, (std::uint64_t seed)) {
  RandomWorkload random(Rng(seed), {});
  for (const Network network : {Network::Fair, Network::Fifo}) {
    const Run run = simulate(random.workload(), {.network = network, .record = true}).value();
    const Recorded recorded(random.workload(), run);
    const std::vector<Stretch> path = critical_path(recorded);
    Picoseconds now = 0;
    for (const Stretch& stretch : path) {
      RC_ASSERT(stretch.from == now);
      RC_ASSERT((stretch.from == 0) == (stretch.waited == Waited::Nothing));
      now = stretch.to;
    }
    RC_ASSERT(now == run.makespan);
  }
}

}  // namespace
}  // namespace weft
