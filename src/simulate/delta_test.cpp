#include "simulate/delta.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "simulate/random_workload.h"

namespace weft {
namespace {

using testing::Maker;
using testing::RandomOptions;
using testing::RandomWorkload;

void expect_like_a_full_run(const Simulator& simulator, const Workload& workload, Network network) {
  RC_ASSERT(simulator.workload() == workload);
  const auto full = simulate(workload, {.network = network});
  if (!full.ok()) RC_FAIL(full.error().message);
  RC_ASSERT(simulator.makespan() == full->makespan);
  for (const AgentId agent : workload.agents.ids())
    RC_ASSERT(simulator.ends()[agent.index()] == full->agents[agent].end);
}

void play_edits(std::uint64_t seed, const RandomOptions& options, Network network) {
  RandomWorkload random(Rng(seed), options);
  const int checkpoints = static_cast<int>(random.rng().between(1, 60));
  Simulator simulator = Simulator::make(random.workload(), {network, checkpoints}).value();
  expect_like_a_full_run(simulator, random.workload(), network);
  std::vector<RandomWorkload> before;
  for (int i = 0; i < 12; ++i) {
    if (!before.empty() && random.rng().below(3) == 0) {
      const Rng rng = random.rng();
      simulator.undo();
      random = before.back();
      random.rng() = rng;
      before.pop_back();
    } else {
      before.push_back(random);
      const WorkloadEdit edit = random.random_edit();
      const auto outcome = simulator.apply(edit);
      if (!outcome.ok()) RC_FAIL(outcome.error().message);
      RC_ASSERT(outcome->makespan == simulator.makespan());
      if (options.plain > 0 && random.rng().below(2) == 0) {
        simulator.commit();
        before.clear();
      }
    }
    expect_like_a_full_run(simulator, random.workload(), network);
  }
}

RC_GTEST_PROP(Delta, GivesWhatAFullRunGivesUnderFair, (std::uint64_t seed)) { play_edits(seed, {}, Network::Fair); }
RC_GTEST_PROP(Delta, GivesWhatAFullRunGivesUnderFifo, (std::uint64_t seed)) { play_edits(seed, {}, Network::Fifo); }
RC_GTEST_PROP(Delta, GivesWhatAFullRunGivesWithFreeHosts, (std::uint64_t seed)) {
  play_edits(seed, {.operations = 30, .host = false}, seed % 2 == 0 ? Network::Fair : Network::Fifo);
}

// Long enough for hops, and for edits to need more places than there are between two steps.
RC_GTEST_PROP(Delta, GivesWhatAFullRunGivesInLongRows, (std::uint64_t seed)) {
  const RandomOptions options{.agents = 3, .operations = 200, .host = false, .interference = false, .plain = 8};
  play_edits(seed, options, seed % 2 == 0 ? Network::Fair : Network::Fifo);
}

// Four agents with the same steps, most of them with the same work, until edits make them different: one or all of them
// get tasks on two streams that wait for earlier ones, sometimes more at one place than fit or on an unused stream,
// lose or move a task, and get other work in a kept one. Edits of all agents are identical, or identical except for the
// work, which may be a communication of one agent alone. Works and meetings change too.
RC_GTEST_PROP(Delta, GivesWhatAFullRunGivesWhereAgentsAreAlike, (std::uint64_t seed)) {
  constexpr std::size_t kAgents = 4;
  Rng rng(seed);
  const Network network = seed % 2 == 0 ? Network::Fair : Network::Fifo;
  Maker maker;
  for (std::size_t a = 0; a < kAgents; ++a) maker.agent();
  const FlowLinkId link = maker.link();
  const WorkId exchange = maker.transfer(50, {link}), alone = maker.transfer(30, {link});
  const bool all_alike = rng.below(2) == 0, some_alone = rng.below(4) == 0;
  for (int i = 0; i < 100; ++i) {
    const WorkId work = some_alone && i % 30 == 7 ? alone : maker.compute(1 + i % 7), other = maker.compute(3 + i % 5);
    std::optional<MeetingId> meeting;
    if (i % 20 == 19) meeting = maker.meeting(exchange, kAgents);
    for (const AgentId agent : maker.workload.agents.ids()) {
      const TaskId last = maker.task(agent, !all_alike && i % 11 == 3 && agent.index() % 2 == 1 ? other : work);
      if (i % 9 == 0) maker.task(agent, work, 1, {last});
      if (meeting) maker.meet(agent, *meeting, 2, {last});
    }
  }
  Simulator simulator = Simulator::make(maker.workload, {network, 20, 3}).value();
  std::vector<Workload> before;
  for (int i = 0; i < 16; ++i) {
    if (!before.empty() && rng.below(3) == 0) {
      simulator.undo();
      expect_like_a_full_run(simulator, before.back(), network);
      before.pop_back();
      continue;
    }
    const WorkId work(simulator.workload().works.size());
    const WorkId other(work.index() + 1);
    const Work transfer{.bytes = rng.between(1, 60), .links = {{link}}};
    WorkloadEdit edit{.works = {{work, rng.below(8) == 0 ? transfer : Work{.fixed = rng.between(1, 40)}},
                                {other, {.fixed = rng.between(1, 40)}}}};
    if (rng.below(16) == 0) edit.works.emplace_back(WorkId(2 + rng.below(20)), transfer);
    if (rng.below(6) == 0) {
      edit.works.emplace_back(other.index() + 1, transfer);
      edit.meetings.emplace_back(MeetingId(rng.below(5)), Meeting{WorkId(other.index() + 1), kAgents});
    }
    const std::uint8_t streams = rng.below(12) == 0 ? 4 : 2;
    const bool exact = rng.below(2) == 0, moves = rng.below(3) == 0, changes = rng.below(2) == 0;
    const std::size_t changed = 70 + rng.below(20);
    const std::size_t position = rng.below(60), count = rng.below(5) == 0 ? 70 : 1 + rng.below(4);
    const std::size_t first = rng.below(kAgents), last = rng.below(2) == 0 ? kAgents - 1 : first;
    for (std::size_t a = rng.below(2) == 0 ? 0 : first; a <= last; ++a) {
      const Agent& agent = simulator.workload().agents[AgentId(a)];
      const std::vector<TaskId>& body = agent.bodies[BodyId(0)];
      AgentEdit& of_agent = edit.agents.emplace_back();
      of_agent.agent = AgentId(a);
      Splice& splice = of_agent.splices.emplace_back();
      splice.position = static_cast<std::uint32_t>(position);
      splice.removed = agent.tasks[body[position]].meeting.valid() ? 0 : 1;
      for (std::size_t k = 0; k < count; ++k) {
        splice.inserted.push_back(TaskId(agent.tasks.size() + k));
        Task& task = of_agent.added.emplace_back();
        task.work = exact || a % 2 == 0 ? work : other;
        task.stream = k % 3 == 1 ? static_cast<std::uint8_t>(streams - 1) : 0;
        if (position > 0) task.after = {body[position - 1], body[position / 2]};
      }
      splice.body = BodyId(0);
      if (const Task& stays = agent.tasks[body[changed]]; changes && !stays.meeting.valid()) {
        of_agent.changed.emplace_back(body[changed], stays);
        // Or the work that the first agent already has there.
        const auto& firsts = simulator.workload().agents[AgentId(0)].tasks;
        const bool taken = exact && firsts.contains(body[changed]) && firsts[body[changed]].work.valid();
        of_agent.changed.back().second.work = taken ? firsts[body[changed]].work : work;
        if (rng.below(4) == 0) of_agent.changed.back().second.after = {body[changed - 3]};
      }
      if (moves && splice.removed == 1)
        of_agent.splices.push_back({BodyId(0), static_cast<std::uint32_t>(position + count + 5), 0, {body[position]}});
    }
    before.push_back(simulator.workload());
    const auto outcome = simulator.apply(edit);
    if (!outcome.ok()) RC_FAIL(outcome.error().message);
    if (rng.below(3) == 0) {  // before the workload is read
      simulator.undo();
      expect_like_a_full_run(simulator, before.back(), network);
      before.pop_back();
      continue;
    }
    expect_like_a_full_run(simulator, Workload(simulator.workload()), network);
    if (rng.below(3) == 0) {
      simulator.commit();
      before.clear();
    }
  }
}

// An edit gives both agents what the first one already has: it changes only the other.
TEST(Delta, AnEditOfTwoThatAreAlikeMayChangeOne) {
  Maker maker;
  const AgentId a = maker.agent(), b = maker.agent();
  const WorkId work = maker.compute(10), longer = maker.compute(50);
  TaskId differs;
  for (int i = 0; i < 20; ++i) {
    const TaskId task = maker.task(a, work);
    maker.task(b, i == 10 ? longer : work);
    if (i == 10) differs = task;
  }
  Simulator simulator = Simulator::make(maker.workload).value();
  EXPECT_EQ(simulator.makespan(), 240);
  const Task same{.work = work};
  EXPECT_EQ(simulator.apply({.agents = {{a, {}, {}, {{differs, same}}}, {b, {}, {}, {{differs, same}}}}})->makespan,
            200);
  simulator.undo();
  EXPECT_EQ(simulator.makespan(), 240);
  EXPECT_EQ(simulator.workload(), maker.workload);
}

// An edit whose run exceeds the bound leaves no trace.
RC_GTEST_PROP(Delta, AnAbandonedEditLeavesNothing, (std::uint64_t seed)) {
  RandomWorkload random(Rng(seed), {});
  Simulator simulator = Simulator::make(random.workload()).value();
  const Workload before = random.workload();
  const WorkloadEdit edit = random.random_edit();
  const Picoseconds makespan = simulate(random.workload()).value().makespan;
  const auto bound = static_cast<Picoseconds>(random.rng().below(static_cast<std::uint64_t>(2 * makespan + 1)));
  const Outcome outcome = simulator.apply(edit, bound).value();
  RC_ASSERT(outcome.abandoned == (makespan > bound));
  RC_ASSERT((outcome.abandoned ? outcome.makespan <= makespan : outcome.makespan == makespan));
  expect_like_a_full_run(simulator, outcome.abandoned ? before : random.workload(), Network::Fair);
}

// 100 tasks of 10 ps on each of two agents with a meeting after every tenth. Task 55 of the first is replaced by one of
// 3 ps: everything before it is kept, and from the next meeting on the run is as before, unshifted, as the other agent
// takes as long as ever. So few tasks are replayed.
struct Row {
  Maker maker;
  AgentId a = maker.agent(), b = maker.agent();
  Row() {
    const WorkId work = maker.compute(10), exchange = maker.transfer(5, {maker.link()});
    for (int i = 0; i < 100; ++i) {
      maker.task(a, work);
      maker.task(b, work);
      if (i % 10 != 9) continue;
      const MeetingId meeting = maker.meeting(exchange);
      maker.meet(a, meeting, 0);
      maker.meet(b, meeting, 0);
    }
  }
};

TEST(Delta, ReplaysLittleWhereLittleChanges) {
  for (const Network network : {Network::Fair, Network::Fifo}) {
    Row row;
    Simulator simulator = Simulator::make(row.maker.workload, {network, 110}).value();
    EXPECT_EQ(simulator.makespan(), 1050);  // 10·(100 + 5)
    const auto exchange_55 = [&](Picoseconds time) {
      const WorkId work(simulator.workload().works.size());
      const TaskId task(simulator.workload().agents[row.a].tasks.size());
      WorkloadEdit edit{.works = {{work, {.fixed = time}}},
                        .agents = {{row.a, {Task{.work = work}}, {{BodyId(0), 60, 1, {task}}}}}};
      return simulator.apply(edit).value();
    };
    const Outcome shorter = exchange_55(3);
    EXPECT_EQ(shorter.makespan, 1050);
    EXPECT_LT(shorter.replayed, 50);
    const Outcome longer = exchange_55(1000);  // shifts all later tasks of both agents by 990
    EXPECT_EQ(longer.makespan, 2040);
    EXPECT_LT(longer.replayed, 50);
    simulator.undo();
    simulator.undo();
    EXPECT_EQ(simulator.workload(), row.maker.workload);
    EXPECT_EQ(simulator.makespan(), 1050);
  }
}

TEST(Delta, AFaultyEditIsAnErrorAndLeavesNothing) {
  Row row;
  Simulator simulator = Simulator::make(row.maker.workload).value();
  const auto fault = [&](const WorkloadEdit& edit) {
    const auto outcome = simulator.apply(edit);
    EXPECT_EQ(simulator.workload(), row.maker.workload);
    EXPECT_EQ(simulator.makespan(), 1050);
    return outcome.ok() ? "" : outcome.error().message;
  };
  EXPECT_EQ(fault({.works = {{WorkId(7), {}}}}), "work 7: add it as 2, or replace one before");
  EXPECT_EQ(fault({.works = {{WorkId(2), {.fixed = -1}}}}),
            "work 2: fixed time -1 ps: between 0 and 1152921504606846976");
  EXPECT_EQ(fault({.links = {{FlowLinkId(0), {}}}}), "work 1: link 0 has capacity 0: give it some, or route around it");
  EXPECT_EQ(fault({.agents = {{AgentId(2), {}, {}}}}), "agent 2 does not exist");
  EXPECT_EQ(fault({.agents = {{row.a, {Task{.work = WorkId(9)}}, {}}}}), "agent 0: task 110: work 9 does not exist");
  EXPECT_EQ(fault({.agents = {{row.a, {}, {{BodyId(1), 0, 0, {}}}}}}), "agent 0: body 1 does not exist");
  EXPECT_EQ(fault({.agents = {{row.a, {}, {{BodyId(0), 109, 2, {}}}}}}), "agent 0: body 0: no 2 tasks at 109 of 110");
  EXPECT_EQ(fault({.agents = {{row.a, {}, {{BodyId(0), 0, 0, {TaskId(110)}}}}}}),
            "agent 0: body 0: task 110 does not exist");
  // One party is removed.
  EXPECT_EQ(fault({.agents = {{row.a, {}, {{BodyId(0), 10, 1, {}}}}}}),
            "meeting 0: has 2 parties but 1 agents come to it");
  // The meetings of one agent are swapped: a deadlock.
  EXPECT_EQ(fault({.agents = {{row.a, {}, {{BodyId(0), 10, 1, {TaskId(21)}}, {BodyId(0), 21, 1, {TaskId(10)}}}}}})
                .substr(0, 42),
            "deadlock at 100 ps: nothing can go on\n  ag");
}

}  // namespace
}  // namespace weft
