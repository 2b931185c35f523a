#include "simulate/workload.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "simulate/engine.h"
#include "simulate/test_workload.h"

namespace weft {
namespace {

using testing::kBytePerPs;
using testing::Maker;

// Two agents with a compute task and a transfer between them over one link.
Maker small() {
  Maker maker;
  const MeetingId m = maker.meeting(maker.transfer(10, {maker.link()}));
  const WorkId work = maker.compute(5);
  for (int i = 0; i < 2; ++i) {
    const AgentId a = maker.agent();
    maker.meet(a, m, 1, {maker.task(a, work)});
  }
  return maker;
}

std::string fault(const std::function<void(Workload&)>& spoil) {
  Maker maker = small();
  spoil(maker.workload);
  const auto run = simulate(maker.workload);
  return run.ok() ? "" : run.error().message;
}

TEST(Check, NamesWhatIsWrong) {
  const AgentId a(0);
  const WorkId transfer(0), compute(1);
  EXPECT_EQ(fault([](Workload&) {}), "");
  EXPECT_EQ(fault([](Workload& w) { w.micro_batches = 0; }), "0 micro-batches: 1 at least");
  EXPECT_EQ(fault([](Workload& w) { w.links[FlowLinkId(0)].capacity = 0; }),
            "work 0: link 0 has capacity 0: give it some, or route around it");
  EXPECT_EQ(fault([](Workload& w) { w.links.push_back({.capacity = -1}); }), "link 1: capacity -1 B/s: not below 0");
  EXPECT_EQ(fault([&](Workload& w) { w.works[compute].fixed = -1; }),
            "work 1: fixed time -1 ps: between 0 and 1152921504606846976");
  EXPECT_EQ(fault([&](Workload& w) { w.works[transfer].bytes = -1; }), "work 0: -1 bytes: not below 0");
  EXPECT_EQ(fault([&](Workload& w) { w.works[transfer].cap = -1; }), "work 0: cap -1 B/s: not below 0 (0: none)");
  EXPECT_EQ(fault([&](Workload& w) { w.works[transfer].links[0].link = FlowLinkId(7); }),
            "work 0: link 7 does not exist");
  EXPECT_EQ(fault([&](Workload& w) {
              w.works[transfer].links.push_back({FlowLinkId(0), 1});
            }),
            "work 0: link 0 twice: once, with the sum of its coefficients");
  EXPECT_EQ(fault([&](Workload& w) { w.works[transfer].links[0].coefficient = 0; }),
            "work 0: coefficient 0 on link 0: between 1 and 1099511627776");
  EXPECT_EQ(fault([&](Workload& w) { w.works[transfer].links.clear(); }),
            "work 0: has bytes but neither links nor a cap: nothing says how fast they go");
  EXPECT_EQ(fault([&](Workload& w) { w.works[transfer].bytes = std::numeric_limits<std::int64_t>::max(); }),
            "work 0: takes longer than 1152921504606846976 ps alone");
  EXPECT_EQ(fault([&](Workload& w) { w.works[compute].sm_share = kOne + 1; }),
            "work 1: share 65537: between 0 and 65536");
  EXPECT_EQ(fault([](Workload& w) { w.meetings[MeetingId(0)].work = WorkId(9); }),
            "meeting 0: its work does not exist");
  EXPECT_EQ(fault([](Workload& w) { w.meetings[MeetingId(0)].parties = 3; }),
            "meeting 0: has 3 parties but 2 agents come to it");
  EXPECT_EQ(fault([](Workload& w) { w.meetings[MeetingId(0)].parties = 0; }), "meeting 0: 0 parties: 1 at least");
  EXPECT_EQ(fault([&](Workload& w) { w.agents[a].tasks[TaskId(1)].stream = 16; }),
            "agent 0: task 1: stream 16: below 16");
  EXPECT_EQ(fault([&](Workload& w) { w.agents[a].tasks[TaskId(0)].work = WorkId(9); }),
            "agent 0: task 0: work 9 does not exist");
  EXPECT_EQ(fault([&](Workload& w) { w.agents[a].tasks[TaskId(1)].meeting = MeetingId(9); }),
            "agent 0: task 1: meeting 9 does not exist");
  EXPECT_EQ(fault([&](Workload& w) { w.agents[a].tasks[TaskId(1)].work = WorkId(0); }),
            "agent 0: task 1: names a work and a meeting: one of the two");
  EXPECT_EQ(fault([&](Workload& w) { w.agents[a].tasks[TaskId(0)].host = -1; }),
            "agent 0: task 0: host time -1 ps: between 0 and 1152921504606846976");
  EXPECT_EQ(fault([&](Workload& w) { w.agents[a].tasks[TaskId(1)].after = {TaskId(5)}; }),
            "agent 0: task 1: after task 5, which does not exist");
  EXPECT_EQ(fault([&](Workload& w) { w.agents[a].bodies[BodyId(0)].push_back(TaskId(5)); }),
            "agent 0: body 0: task 5 does not exist");
  EXPECT_EQ(fault([&](Workload& w) {
              w.agents[a].plays.push_back({BodyId(1), 0});
            }),
            "agent 0: plays body 1, which does not exist");
  EXPECT_EQ(fault([&](Workload& w) {
              w.agents[a].plays.push_back({BodyId(0), 1});
            }),
            "agent 0: plays micro-batch 1 of 1");
  EXPECT_EQ(fault([&](Workload& w) { w.agents[a].run_ahead = -1; }),
            "agent 0: run_ahead -1: not below 0 (0: no limit)");
  EXPECT_EQ(fault([&](Workload& w) { w.agents[a].stands_for = 0; }), "agent 0: stands for 0 devices: 1 at least");
  EXPECT_EQ(fault([&](Workload& w) { w.agents[a].interference = 1; }), "agent 0: interference 1 does not exist");
  EXPECT_EQ(fault([](Workload& w) { w.interference[0].memory_weight = -1; }),
            "interference weight -1: between 0 and 1099511627776");
  EXPECT_EQ(fault([&](Workload& w) {
              w.agents[a].tasks.push_back({.meeting = MeetingId(0), .stream = 2});
              w.agents[a].bodies[BodyId(0)].push_back(TaskId(2));
            }),
            "agent 0: comes to meeting 0 on streams 1 and 2: all its times on one");
}

// 7 ps, then 10 bytes at ⌊10¹²/3⌋ bytes per second: ⌈30.00000000009⌉ = 31 ps.
TEST(IsolatedTime, RoundsUpOnce) {
  IdVec<FlowLinkId, FlowLink> links;
  links.push_back({.capacity = kBytePerPs});
  const Work work{.fixed = 7, .bytes = 10, .links = {{FlowLinkId(0), 3 * kOne}}};
  EXPECT_EQ(isolated_rate(work, links), 333'333'333'333);
  EXPECT_EQ(isolated_time(work, links), 38);
  EXPECT_EQ(isolated_time({.fixed = 7}, links), 7);
  EXPECT_EQ(isolated_time({.bytes = 10, .cap = kBytePerPs / 5, .links = {{FlowLinkId(0), kOne}}}, links), 50);
}

// Four waves; an eighth of the units is held and an eighth lost: 4 / (3/4) = 5.33, six waves instead of four.
TEST(ComputeSpeed, LosesUnitsToWhatItCannotUse) {
  const Interference law{.wave_loss = kOne / 8};
  EXPECT_EQ(compute_speed(law, {.sm = kOne, .waves = 4 * kWave}, {.sm = kOne / 8}), kOne * 4 / 6);
  // A single wave has no wave loss, but 7/8 of the units are still too few.
  EXPECT_EQ(compute_speed(law, {.sm = kOne, .waves = kWave}, {.sm = kOne / 8}), kOne / 2);
  EXPECT_EQ(compute_speed(law, {.sm = kOne, .waves = kWave * 7 / 8}, {.sm = kOne / 8}), kOne);
}

// Work that needs three quarters of the units is not slowed by the loss of the last quarter.
TEST(ComputeSpeed, HasUnitsToSpare) {
  EXPECT_EQ(compute_speed({}, {.sm = kOne * 3 / 4}, {.sm = kOne / 4}), kOne);
  EXPECT_EQ(compute_speed({}, {.sm = kOne * 3 / 4}, {.sm = kOne / 2}), kOne * 2 / 3);
}

}  // namespace
}  // namespace weft
