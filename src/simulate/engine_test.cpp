#include "simulate/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "simulate/test_workload.h"

namespace weft {
namespace {

using testing::kBytePerPs;
using testing::Maker;

Run play(const Maker& maker, Network network = Network::Fair) {
  return simulate(maker.workload, {.network = network, .record = true}).value();
}

// (start, end) of an agent's tasks in issue order.
std::vector<std::pair<Picoseconds, Picoseconds>> spans(const Run& run, AgentId agent) {
  std::vector<std::pair<Picoseconds, Picoseconds>> result;
  for (const TaskTimes& t : run.agents[agent].tasks) result.emplace_back(t.start, t.end);
  return result;
}

std::vector<Picoseconds> issues(const Run& run, AgentId agent) {
  std::vector<Picoseconds> result;
  for (const TaskTimes& t : run.agents[agent].tasks) result.push_back(t.issued);
  return result;
}

using Spans = std::vector<std::pair<Picoseconds, Picoseconds>>;

TEST(Engine, AnEmptyWorkloadTakesNoTime) {
  EXPECT_EQ(play({}).makespan, 0);
  Maker maker;
  maker.agent();
  EXPECT_EQ(play(maker).makespan, 0);
}

TEST(Engine, TasksOnOneStreamRunBackToBack) {
  Maker maker;
  const AgentId a = maker.agent();
  maker.task(a, maker.compute(3));
  maker.task(a, maker.compute(4));
  const auto run = play(maker);
  EXPECT_EQ(run.makespan, 7);  // 3 + 4
  EXPECT_EQ(spans(run, a), (Spans{{0, 3}, {3, 7}}));
  EXPECT_EQ(run.agents[a].busy, 7);
  EXPECT_EQ(run.tasks, 2);
}

TEST(Engine, StreamsRunSideBySide) {
  Maker maker;
  const AgentId a = maker.agent();
  maker.task(a, maker.compute(3), 0);
  maker.task(a, maker.compute(4), 1);
  const auto run = play(maker);
  EXPECT_EQ(spans(run, a), (Spans{{0, 3}, {0, 4}}));
  EXPECT_EQ(run.agents[a].busy, 4);  // together, not 7
}

TEST(Engine, ATaskWaitsForWhatItComesAfter) {
  Maker maker;
  const AgentId a = maker.agent();
  const TaskId first = maker.task(a, maker.compute(3), 0);
  maker.task(a, maker.compute(10), 0);
  const TaskId third = maker.task(a, maker.compute(4), 1, {first});
  maker.task(a, maker.compute(1), 0, {third, first});
  EXPECT_EQ(spans(play(maker), a), (Spans{{0, 3}, {3, 13}, {3, 7}, {13, 14}}));
}

TEST(Engine, AMarkerTakesNoTime) {
  Maker maker;
  const AgentId a = maker.agent();
  const TaskId first = maker.task(a, maker.compute(3), 0);
  const TaskId marker = maker.task(a, Task{.stream = 2, .after = {first}});
  maker.task(a, maker.compute(2), 1, {marker});
  EXPECT_EQ(spans(play(maker), a), (Spans{{0, 3}, {3, 3}, {3, 5}}));
}

// Bodies: 0 forward (f on stream 0), 1 backward (b on stream 1, after f). Plays F0 F1 F2 B0 B1 B2: B0 waits for f of
// micro-batch 0, though f of 1 and 2 were issued since.
TEST(Engine, AfterMeansTheSameMicroBatch) {
  Maker maker;
  maker.workload.micro_batches = 3;
  const AgentId a = maker.agent();
  const TaskId f = maker.task(a, maker.compute(10));
  maker.task(a, Task{.work = maker.compute(4), .stream = 1, .after = {f}}, BodyId(1));
  maker.workload.agents[a].plays = {{BodyId(0), 0}, {BodyId(0), 1}, {BodyId(0), 2},
                                    {BodyId(1), 0}, {BodyId(1), 1}, {BodyId(1), 2}};
  EXPECT_EQ(spans(play(maker), a), (Spans{{0, 10}, {10, 20}, {20, 30}, {10, 14}, {20, 24}, {30, 34}}));
}

// The same body twice for micro-batch 0: the wait is for the last earlier play, not for a later one.
TEST(Engine, AfterMeansTheLastTimeBefore) {
  Maker maker;
  const AgentId a = maker.agent();
  const TaskId f = maker.task(a, maker.compute(10));
  maker.task(a, Task{.work = maker.compute(4), .stream = 1, .after = {f}}, BodyId(1));
  maker.workload.agents[a].plays = {{BodyId(0), 0}, {BodyId(1), 0}, {BodyId(0), 0}, {BodyId(1), 0}};
  EXPECT_EQ(spans(play(maker), a), (Spans{{0, 10}, {10, 14}, {10, 20}, {20, 24}}));
}

// Of 3 micro-batches the first runs g, the last runs h; a task skipped by its guard counts as complete.
TEST(Engine, GuardsChooseMicroBatches) {
  Maker maker;
  maker.workload.micro_batches = 3;
  const AgentId a = maker.agent();
  const TaskId g = maker.task(a, Task{.work = maker.compute(5), .when = PlayedFor::FirstMicroBatch});
  maker.task(a, maker.compute(2), 1, {g});
  maker.task(a, Task{.work = maker.compute(7), .stream = 2, .when = PlayedFor::LastMicroBatch});
  maker.workload.agents[a].plays = {{BodyId(0), 0}, {BodyId(0), 1}, {BodyId(0), 2}};
  // g, then task 1 three times on stream 1; the last micro-batch's third task can start at 0.
  EXPECT_EQ(spans(play(maker), a), (Spans{{0, 5}, {5, 7}, {7, 9}, {9, 11}, {0, 7}}));
}

TEST(Host, IssuesOneTaskAfterTheOther) {
  Maker maker;
  const AgentId a = maker.agent();
  for (const Picoseconds time : {1, 1, 20, 1}) maker.task(a, Task{.work = maker.compute(time), .host = 5});
  const auto run = play(maker);
  EXPECT_EQ(issues(run, a), (std::vector<Picoseconds>{5, 10, 15, 20}));
  EXPECT_EQ(spans(run, a), (Spans{{5, 6}, {10, 11}, {15, 35}, {35, 36}}));
  EXPECT_EQ(run.agents[a].host_bound, 13);  // 0–5, 6–10, 11–15
  EXPECT_EQ(run.agents[a].busy, 23);
}

// At most 2 tasks issued and not begun. The first begins at 1; 2 and 3 are issued at 2 and 3; the host starts to issue
// the fourth when the second begins, at 11, and the fifth when the third does, at 21.
TEST(Host, RunsAheadOnlySoFar) {
  Maker maker;
  const AgentId a = maker.agent();
  maker.workload.agents[a].run_ahead = 2;
  for (int i = 0; i < 5; ++i) maker.task(a, Task{.work = maker.compute(10), .host = 1});
  const auto run = play(maker);
  EXPECT_EQ(issues(run, a), (std::vector<Picoseconds>{1, 2, 3, 12, 22}));
  EXPECT_EQ(run.makespan, 51);  // 1 + 5·10
}

TEST(Host, WaitsForATask) {
  Maker maker;
  const AgentId a = maker.agent();
  maker.task(a, Task{.work = maker.compute(10), .host_waits = true, .host = 1});
  maker.task(a, Task{.work = maker.compute(10), .host = 2});
  const auto run = play(maker);
  EXPECT_EQ(issues(run, a), (std::vector<Picoseconds>{1, 13}));  // 1 + 10, then 2
  EXPECT_EQ(run.agents[a].host_bound, 3);
  EXPECT_EQ(run.makespan, 23);
}

// b arrives at 5, a at 2: the transfer of 100 bytes starts at 5. a's stream is occupied from 2, so a's next task on the
// same stream waits, and its compute stream does not.
TEST(Meeting, StartsWhenAllHaveComeAndEndsForAll) {
  Maker maker;
  const AgentId a = maker.agent(), b = maker.agent();
  const MeetingId m = maker.meeting(maker.transfer(100, {maker.link()}, 7));
  const TaskId wait_a = maker.task(a, maker.compute(2));
  maker.meet(a, m, 1, {wait_a});
  maker.task(a, maker.compute(50), 0);
  maker.task(a, maker.compute(1), 1);
  const TaskId wait_b = maker.task(b, maker.compute(5));
  maker.meet(b, m, 3, {wait_b});
  for (const Network network : {Network::Fair, Network::Fifo}) {
    const auto run = play(maker, network);
    EXPECT_EQ(spans(run, a), (Spans{{0, 2}, {2, 112}, {2, 52}, {112, 113}}));  // 5 + 7 + 100
    EXPECT_EQ(spans(run, b), (Spans{{0, 5}, {5, 112}}));
    EXPECT_EQ(run.carried[FlowLinkId(0)], 100);
  }
}

TEST(Meeting, TheNthTimeMeetsTheNthTime) {
  Maker maker;
  maker.workload.micro_batches = 2;
  const AgentId a = maker.agent(), b = maker.agent();
  const MeetingId m = maker.meeting(maker.compute(10));
  for (const AgentId agent : {a, b}) {
    maker.task(agent, maker.compute(agent == a ? 1 : 8), 1);
    maker.meet(agent, m);
    maker.workload.agents[agent].plays = {{BodyId(0), 0}, {BodyId(0), 1}};
  }
  // b is at the meeting at 8, and again 8 after its end at 18.
  EXPECT_EQ(spans(play(maker), a), (Spans{{0, 1}, {1, 18}, {18, 19}, {19, 36}}));
}

// A (100 bytes) and B (300) share a link of one byte per ps: both at 1/2 until A ends at 200; B has 200 left, to 400.
TEST(Fair, TwoShareALink) {
  Maker maker;
  const FlowLinkId link = maker.link();
  const AgentId a = maker.agent(), b = maker.agent();
  maker.task(a, maker.transfer(100, {link}));
  maker.task(b, maker.transfer(300, {link}));
  const auto run = play(maker);
  EXPECT_EQ(run.agents[a].end, 200);
  EXPECT_EQ(run.agents[b].end, 400);
  EXPECT_EQ(run.carried[link], 400);
}

// B does not use the link during its latency: A has it alone for 50 ps.
TEST(Fair, LatencyUsesNoLink) {
  Maker maker;
  const FlowLinkId link = maker.link();
  const AgentId a = maker.agent(), b = maker.agent();
  maker.task(a, maker.transfer(100, {link}));
  maker.task(b, maker.transfer(100, {link}, 50));
  const auto run = play(maker);
  EXPECT_EQ(run.agents[a].end, 150);  // 50, then 50 at half rate
  EXPECT_EQ(run.agents[b].end, 200);  // 50 + 50 done by 150, then 50
}

// Max-min: A on links 0 and 1, B on 0, C on 1 (twice the capacity): A and B get 1/2 on link 0, C the rest of 1: 3/2.
TEST(Fair, WhatOneCannotUseOthersGet) {
  Maker maker;
  const FlowLinkId narrow = maker.link(), wide = maker.link(2 * kBytePerPs);
  const AgentId a = maker.agent(), b = maker.agent(), c = maker.agent();
  maker.task(a, maker.transfer(100, {narrow, wide}));
  maker.task(b, maker.transfer(100, {narrow}));
  maker.task(c, maker.transfer(300, {wide}));
  const auto run = play(maker);
  EXPECT_EQ(run.agents[a].end, 200);
  EXPECT_EQ(run.agents[b].end, 200);
  EXPECT_EQ(run.agents[c].end, 200);
}

// A's cap of 1/4 leaves 3/4 to B.
TEST(Fair, ACapBindsAndLeavesTheRest) {
  Maker maker;
  const FlowLinkId link = maker.link();
  const AgentId a = maker.agent(), b = maker.agent();
  maker.task(a, maker.work({.bytes = 100, .cap = kBytePerPs / 4, .links = {{link, kOne}}}));
  maker.task(b, maker.transfer(300, {link}));
  const auto run = play(maker);
  EXPECT_EQ(run.agents[a].end, 400);
  EXPECT_EQ(run.agents[b].end, 400);
}

// A loads the link 3 bytes for each of its own: 3r + r = 1 → r = 1/4 each.
TEST(Fair, CoefficientsWeighOnLinks) {
  Maker maker;
  const FlowLinkId link = maker.link();
  const AgentId a = maker.agent(), b = maker.agent();
  maker.task(a, maker.work({.bytes = 100, .links = {{link, 3 * kOne}}}));
  maker.task(b, maker.transfer(100, {link}));
  const auto run = play(maker);
  EXPECT_EQ(run.agents[a].end, 400);
  EXPECT_EQ(run.agents[b].end, 400);
  EXPECT_EQ(run.carried[link], 400);  // 3·100 + 100
}

// Five flows over 3 bytes per second: the floor would be 0; each goes at 1 byte per second.
TEST(Fair, NobodyStarves) {
  Maker maker;
  const FlowLinkId link = maker.link(3);
  const WorkId work = maker.transfer(2, {link});
  for (int i = 0; i < 5; ++i) maker.task(maker.agent(), work);
  EXPECT_EQ(play(maker).makespan, 2'000'000'000'000);
}

TEST(Fair, ASlowCollectiveNeverSpeedsUpBySharing) {
  Maker maker;
  const FlowLinkId slow = maker.link(kBytePerPs / 10), shared = maker.link();
  const AgentId a = maker.agent(), b = maker.agent();
  const WorkId work = maker.transfer(1000, {slow, shared});
  maker.task(a, work);
  const Picoseconds alone = play(maker).makespan;
  maker.task(b, maker.transfer(5000, {shared}));
  EXPECT_GE(play(maker).agents[a].end, alone);
  EXPECT_EQ(alone, isolated_time(maker.workload.works[work], maker.workload.links));
}

// Two nodes, each with two transfers through its own NIC: both nodes have the same times.
TEST(Fair, EqualNodesGetEqualShares) {
  Maker maker;
  for (int node = 0; node < 2; ++node) {
    const FlowLinkId nic = maker.link(kBytePerPs / 2);
    const FlowLinkId first = maker.link(), second = maker.link();
    maker.task(maker.agent(), maker.transfer(1000, {first, nic}));
    maker.task(maker.agent(), maker.transfer(600, {second, nic}));
  }
  const auto run = play(maker);
  EXPECT_EQ(run.agents[AgentId(0)].end, 3200);  // 1/4 each until 600 are through at 2400; 400 left at 1/2
  EXPECT_EQ(run.agents[AgentId(1)].end, 2400);
  EXPECT_EQ(run.agents[AgentId(2)].end, run.agents[AgentId(0)].end);
  EXPECT_EQ(run.agents[AgentId(3)].end, run.agents[AgentId(1)].end);
}

// A arrives at 0, B (both links) at 1, C (the other link) at 2: C waits behind B, though its link is free.
TEST(Fifo, ServesInOrderOfArrival) {
  Maker maker;
  const FlowLinkId x = maker.link(), y = maker.link();
  const AgentId a = maker.agent(), b = maker.agent(), c = maker.agent();
  maker.task(a, maker.transfer(100, {x}, 5));
  maker.task(b, maker.compute(1));
  maker.task(b, maker.transfer(10, {x, y}));
  maker.task(c, maker.compute(2));
  maker.task(c, maker.transfer(20, {y}));
  const auto run = play(maker, Network::Fifo);
  EXPECT_EQ(run.agents[a].end, 105);
  EXPECT_EQ(run.agents[b].end, 115);
  EXPECT_EQ(run.agents[c].end, 135);
}

// All arrive at 0: those of the first agent go first, those of one agent in issue order, whatever their ids: a's
// transfer (100), b's (10), the meeting (100), c's (10).
TEST(Fifo, TiesGoByAgentAndIssue) {
  Maker maker;
  const FlowLinkId link = maker.link();
  const WorkId first = maker.transfer(10, {link}), second = maker.transfer(100, {link});
  const AgentId a = maker.agent(), b = maker.agent(), c = maker.agent();
  maker.task(a, second);
  maker.task(b, first);
  maker.task(c, first);
  const MeetingId m = maker.meeting(second);
  maker.meet(b, m);
  maker.meet(c, m);
  const auto run = play(maker, Network::Fifo);
  EXPECT_EQ(run.agents[a].end, 100);
  EXPECT_EQ(spans(run, b), (Spans{{0, 110}, {0, 210}}));
  EXPECT_EQ(spans(run, c), (Spans{{0, 220}, {0, 210}}));
}

TEST(Fifo, KnowsNoInterference) {
  Maker maker;
  const AgentId a = maker.agent();
  maker.task(a, maker.work({.fixed = 100, .sm_share = kOne, .memory_share = kOne}), 0);
  maker.task(a, maker.work({.bytes = 80, .links = {{maker.link(), kOne}}, .sm_share = kOne, .memory_share = kOne}), 1);
  EXPECT_EQ(spans(play(maker, Network::Fifo), a), (Spans{{0, 100}, {0, 80}}));
}

// Computation takes S = 1, M = 0; the transfer s = 1/4, m = 1/2. Together: computation at 1 − 1/4 = 3/4, the transfer
// as fast as alone. It ends at 90; by then 67.5 of 100 are done: 32.5 left, ends at ⌈122.5⌉ = 123.
TEST(Interference, TakesComputeUnits) {
  Maker maker;
  const AgentId a = maker.agent();
  maker.task(a, maker.work({.fixed = 100, .sm_share = kOne}), 0);
  maker.task(
      a, maker.work({.bytes = 90, .links = {{maker.link(), kOne}}, .sm_share = kOne / 4, .memory_share = kOne / 2}), 1);
  EXPECT_EQ(spans(play(maker), a), (Spans{{0, 123}, {0, 90}}));
}

// M = 1, m = 1/2: computation at 1/(1 + 1/2), ⌊65536·2/3⌋ = 43690 of 65536; the transfer's cap at 1/(1 + 1) = 1/2. It
// ends at 80; computation has done 80·43690/65536 = 53.33 of 100, and ends at 80 + ⌈46.67⌉ = 127.
TEST(Interference, SharesMemoryBandwidth) {
  Maker maker;
  const AgentId a = maker.agent();
  maker.task(a, maker.work({.fixed = 100, .memory_share = kOne}), 0);
  maker.task(a, maker.work({.bytes = 40, .links = {{maker.link(), kOne}}, .memory_share = kOne / 2}), 1);
  EXPECT_EQ(spans(play(maker), a), (Spans{{0, 127}, {0, 80}}));
}

// One full wave of blocks concurrent with a transfer that holds a quarter of the units: a third of the blocks begin a
// second wave, and the speed is 1/2. Half a wave still fits.
TEST(Interference, BlocksThatNoLongerFitBeginAnotherWave) {
  const auto end = [](std::int32_t waves) {
    Maker maker;
    const AgentId a = maker.agent();
    maker.task(a, maker.work({.fixed = 100, .sm_share = kOne, .waves = waves}), 0);
    maker.task(a, maker.work({.bytes = 500, .links = {{maker.link(), kOne}}, .sm_share = kOne / 4}), 1);
    return spans(play(maker), a)[0];
  };
  EXPECT_EQ(end(256), (Spans{{0, 200}})[0]);
  EXPECT_EQ(end(128), (Spans{{0, 100}})[0]);
}

// The meeting of a (memory-bound) and b (idle) runs at a's speed, 1/2, until a's computation ends; a's computation is
// not slowed, as memory_weight is 0. 100 ps at 1/2, then the other 50 bytes at full rate.
TEST(Interference, AMeetingGoesByItsSlowestParty) {
  Maker maker;
  maker.workload.interference = {{.memory_weight = 0}};
  const AgentId a = maker.agent(), b = maker.agent();
  const MeetingId m = maker.meeting(maker.transfer(100, {maker.link()}));
  maker.task(a, maker.work({.fixed = 100, .memory_share = kOne}), 0);
  maker.meet(a, m);
  maker.meet(b, m);
  const auto run = play(maker);
  EXPECT_EQ(spans(run, a), (Spans{{0, 100}, {0, 150}}));
  EXPECT_EQ(run.agents[b].end, 150);
}

// p = 4 stages, m = 8 micro-batches, forward 10, backward 20, free communication: (m + p − 1)(F + B) in all, of which
// each stage computes m(F + B): bubble share (p − 1)/(m + p − 1).
TEST(Pipeline, OneForwardOneBackwardHasItsBubble) {
  constexpr int kStages = 4, kMicroBatches = 8;
  Maker maker;
  maker.workload.micro_batches = kMicroBatches;
  const WorkId forward = maker.compute(10), backward = maker.compute(20), free = maker.compute(0);
  std::vector<MeetingId> down, up;
  for (int i = 0; i + 1 < kStages; ++i) {
    down.push_back(maker.meeting(free));
    up.push_back(maker.meeting(free));
  }
  for (int stage = 0; stage < kStages; ++stage) {
    const AgentId a = maker.agent();
    const auto body = [&](BodyId id, WorkId work, const MeetingId* from, const MeetingId* to, std::uint8_t stream) {
      ShortVec<TaskId> after;
      if (from != nullptr) after.push_back(maker.meet(a, *from, stream, {}, id));
      const TaskId done = maker.task(a, Task{.work = work, .after = after}, id);
      if (to != nullptr) maker.meet(a, *to, static_cast<std::uint8_t>(stream + 1), {done}, id);
    };
    const auto s = static_cast<std::size_t>(stage);
    body(BodyId(0), forward, stage > 0 ? &down[s - 1] : nullptr, stage + 1 < kStages ? &down[s] : nullptr, 1);
    body(BodyId(1), backward, stage + 1 < kStages ? &up[s] : nullptr, stage > 0 ? &up[s - 1] : nullptr, 3);
    maker.workload.agents[a].plays = testing::one_forward_one_backward(kStages, stage, kMicroBatches);
  }
  for (const Network network : {Network::Fair, Network::Fifo}) {
    const auto run = play(maker, network);
    EXPECT_EQ(run.makespan, (kMicroBatches + kStages - 1) * 30);
    for (const AgentRun& agent : run.agents) EXPECT_EQ(run.makespan - agent.busy, (kStages - 1) * 30);
  }
}

// a waits for b in meeting 0, b for a in meeting 1.
TEST(Deadlock, SaysWhoWaitsForWhat) {
  Maker maker;
  const AgentId a = maker.agent(), b = maker.agent();
  const WorkId work = maker.compute(1);
  const MeetingId first = maker.meeting(work), second = maker.meeting(work);
  maker.meet(a, first);
  const TaskId last = maker.meet(a, second);
  maker.task(a, Task{.work = work, .stream = 0, .label = 9, .after = {last}});
  maker.meet(b, second);
  maker.meet(b, first);
  EXPECT_EQ(
      simulate(maker.workload).error().message,
      "deadlock at 0 ps: nothing can go on\n"
      "  agent 0, stream 0: task 2 (label 9, body 0, micro-batch 0) waits for task 1 (label 0, body 0, micro-batch "
      "0) on stream 1\n"
      "  agent 0, stream 1: task 0 (label 0, body 0, micro-batch 0) waits in meeting 0 for agent 1\n"
      "  agent 1, stream 1: task 0 (label 0, body 0, micro-batch 0) waits in meeting 1 for agent 0");
}

TEST(Deadlock, AHostThatWaitsForAMeetingBlocksTheRest) {
  Maker maker;
  const AgentId a = maker.agent(), b = maker.agent();
  const MeetingId m = maker.meeting(maker.compute(1));
  maker.task(a, Task{.meeting = m, .stream = 1, .host_waits = true});
  maker.task(a, maker.compute(1));
  maker.meet(b, m);
  maker.workload.agents[b].plays.clear();
  EXPECT_THAT(simulate(maker.workload).error().message,
              ::testing::HasSubstr("task 1 (label 0, body 0, micro-batch 0) waits to be issued: the host stands before "
                                   "task 1 (label 0, body 0, micro-batch 0)"));
}

TEST(Time, ThatRunsOutIsAnError) {
  Maker maker;
  const AgentId a = maker.agent();
  const WorkId long_one = maker.compute(kTimeLimit / 2);
  for (int i = 0; i < 3; ++i) maker.task(a, long_one);
  EXPECT_EQ(simulate(maker.workload).error().message,
            "time runs past 2305843009213693952 ps (26 days): scale the workload down");
}

// The last micro-batch of one body is the only one, and so the first, of another that waits for a task of it.
TEST(Engine, ATaskIsAwaitedWhereItIsThoughItsBodyIsOfAnotherKindOfMicroBatch) {
  Maker maker;
  maker.workload.micro_batches = 2;
  const AgentId a = maker.agent();
  maker.task(a, Task{.work = maker.compute(5), .when = PlayedFor::FirstMicroBatch});
  const TaskId awaited = maker.task(a, Task{.work = maker.compute(10)});
  maker.task(a, Task{.work = maker.compute(100)});
  maker.task(a, Task{.work = maker.compute(1), .stream = 1, .after = {awaited}}, BodyId(1));
  maker.workload.agents[a].plays = {{BodyId(0), 0}, {BodyId(0), 1}, {BodyId(1), 1}};
  const auto run = simulate(maker.workload, {.record = true}).value();
  EXPECT_EQ(run.agents[a].tasks.back().start, 125);  // not 225, when the task after it has ended
  EXPECT_EQ(run.makespan, 225);
}

}  // namespace
}  // namespace weft
