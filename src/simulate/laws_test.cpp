// Properties of every workload.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <numeric>

#include "simulate/engine.h"
#include "simulate/random_workload.h"
#include "simulate/script.h"
#include "simulate/wide.h"

namespace weft {
namespace {

using engine::AgentScript;
using testing::RandomWorkload;

Run play(const Workload& workload, Network network) {
  auto run = simulate(workload, {.network = network, .record = true});
  if (!run.ok()) RC_FAIL(run.error().message);
  return std::move(run).value();
}

Network random_network(Rng& rng) { return rng.below(2) == 0 ? Network::Fair : Network::Fifo; }

RC_GTEST_PROP(Laws, AStreamTakesAtLeastItsWorkAlone, (std::uint64_t seed)) {
  RandomWorkload random(Rng(seed), {});
  const Workload& workload = random.workload();
  const Run run = play(workload, random_network(random.rng()));
  Picoseconds busiest = 0;
  for (const AgentId id : workload.agents.ids()) {
    const AgentScript script(workload, workload.agents[id]);
    std::array<Picoseconds, kMaxStreams> alone{};
    const IdVec<BodyId, PlayedRange> ranges = played_ranges(workload.agents[id]);
    for (std::uint32_t p = 0; p < script.plays(); ++p)
      for (const TaskId task_id : script.script(p).tasks) {
        const Task& task = workload.agents[id].tasks[task_id];
        if (!works_in(task, ranges[script.play(p).body], script.play(p).micro_batch)) continue;
        const WorkId work = task.meeting.valid() ? workload.meetings[task.meeting].work : task.work;
        if (work.valid()) alone[task.stream] += isolated_time(workload.works[work], workload.links);
      }
    RC_ASSERT(run.makespan >= *std::max_element(alone.begin(), alone.end()));
    busiest = std::max(busiest, *std::max_element(alone.begin(), alone.end()));
    RC_ASSERT(run.agents[id].tasks.size() == script.executed());
    RC_ASSERT(run.agents[id].busy + run.agents[id].host_bound <= run.agents[id].end);
  }
  RC_ASSERT(busiest == busiest_stream(workload));
}

RC_GTEST_PROP(Laws, BytesOnLinksAreThoseOfTheTasks, (std::uint64_t seed)) {
  RandomWorkload random(Rng(seed), {});
  const Workload& workload = random.workload();
  IdVec<FlowLinkId, Wide> expected(workload.links.size());
  for (const Agent& agent : workload.agents) {
    const IdVec<BodyId, PlayedRange> ranges = played_ranges(agent);
    for (const Play& p : agent.plays)
      for (const TaskId id : agent.bodies[p.body]) {
        const Task& task = agent.tasks[id];
        if (!works_in(task, ranges[p.body], p.micro_batch)) continue;
        const WorkId work = task.meeting.valid() ? workload.meetings[task.meeting].work : task.work;
        if (!work.valid()) continue;
        // Each party of a meeting counts a fraction of it; there are at most 5 parties, and 60 is divisible by 1 … 5.
        const int part = task.meeting.valid() ? 60 / workload.meetings[task.meeting].parties : 60;
        for (const LinkUse& load : workload.works[work].links)
          expected[load.link] += Wide{part} * workload.works[work].bytes * load.coefficient;
      }
  }
  const Run run = play(workload, random_network(random.rng()));
  for (const FlowLinkId id : workload.links.ids()) {
    RC_ASSERT(run.carried[id] == static_cast<std::int64_t>(expected[id] / 60 / kOne));
    // No link carries more than its capacity allows in that time.
    RC_ASSERT(Wide{run.carried[id]} * kPerByte <= Wide{workload.links[id].capacity} * run.makespan);
  }
}

RC_GTEST_PROP(Laws, ACommunicationAloneTakesItsIsolatedTime, (std::uint64_t seed)) {
  RandomWorkload random(Rng(seed), {});
  const WorkId work = random.random_work(true);
  testing::Maker maker;
  maker.workload.links = random.workload().links;
  maker.workload.works = random.workload().works;
  maker.workload.interference = random.workload().interference;
  const MeetingId meeting = maker.meeting(work, 2);
  for (int i = 0; i < 2; ++i) maker.meet(maker.agent(), meeting);
  const Picoseconds expected = isolated_time(maker.workload.works[work], maker.workload.links);
  for (const Network network : {Network::Fair, Network::Fifo}) {
    RC_ASSERT(play(maker.workload, network).makespan == expected);
    // More bandwidth never slows it.
    Workload wider = maker.workload;
    const FlowLinkId link(random.rng().below(wider.links.size()));
    wider.links[link].capacity += random.rng().between(0, 1'000'000'000'000);
    RC_ASSERT(play(wider, network).makespan <= expected);
  }
}

RC_GTEST_PROP(Laws, SameInputGivesTheSameBytes, (std::uint64_t seed)) {
  RandomWorkload random(Rng(seed), {});
  for (const Network network : {Network::Fair, Network::Fifo})
    RC_ASSERT(play(random.workload(), network) == play(random.workload(), network));
}

// A recorded run goes step by step, an unrecorded one in hops.
RC_GTEST_PROP(Laws, HopsLeadWhereStepsDo, (std::uint64_t seed)) {
  RandomWorkload random(Rng(seed),
                        {.agents = 3, .operations = 200, .host = false, .interference = seed % 2 == 0, .plain = 8});
  const Network network = random_network(random.rng());
  const Run steps = play(random.workload(), network);
  const Run hops = simulate(random.workload(), {.network = network}).value();
  RC_ASSERT(hops.makespan == steps.makespan);
  for (const AgentId id : random.workload().agents.ids()) {
    RC_ASSERT(hops.agents[id].end == steps.agents[id].end);
    RC_ASSERT(hops.agents[id].busy == steps.agents[id].busy);
  }
}

// Every host waits for a first task of T: all later events are shifted by T.
RC_GTEST_PROP(Laws, ARunMovedInTimeIsTheSameRun, (std::uint64_t seed)) {
  RandomWorkload random(Rng(seed), {});
  const Network network = random_network(random.rng());
  const Run before = play(random.workload(), network);
  Workload& workload = random.workload();
  const Picoseconds shift = random.rng().between(1, 1'000'000'007);
  const WorkId wait = workload.works.push_back({.fixed = shift});
  for (Agent& agent : workload.agents) {
    const BodyId body =
        agent.bodies.push_back({agent.tasks.push_back({.work = wait, .stream = 7, .host_waits = true})});
    agent.plays.insert(agent.plays.begin(), {body, 0});
  }
  const Run after = play(workload, network);
  for (const AgentId id : workload.agents.ids()) {
    std::vector<TaskTimes> expected = before.agents[id].tasks;
    for (TaskTimes& t : expected) t = {t.issued + shift, t.start + shift, t.end + shift};
    expected.insert(expected.begin(), {0, 0, shift});
    RC_ASSERT(after.agents[id].tasks == expected);
  }
}

// Under `fair` nothing depends on numbering: agents, works and links renumbered give the same times.
RC_GTEST_PROP(Laws, NumberingDoesNotMatterUnderFair, (std::uint64_t seed)) {
  RandomWorkload random(Rng(seed), {});
  const Workload& workload = random.workload();
  const auto permutation = [&](std::size_t n) {
    std::vector<std::size_t> p(n);
    std::iota(p.begin(), p.end(), 0);
    for (std::size_t i = n; i > 1; --i) std::swap(p[i - 1], p[random.rng().below(i)]);
    return p;
  };
  const auto agents = permutation(workload.agents.size()), works = permutation(workload.works.size()),
             links = permutation(workload.links.size()), meetings = permutation(workload.meetings.size());
  Workload other = workload;
  for (const AgentId id : workload.agents.ids()) {
    Agent agent = workload.agents[id];
    for (Task& task : agent.tasks) {
      if (task.work.valid()) task.work = WorkId(works[task.work.index()]);
      if (task.meeting.valid()) task.meeting = MeetingId(meetings[task.meeting.index()]);
    }
    other.agents[AgentId(agents[id.index()])] = agent;
  }
  for (const WorkId id : workload.works.ids()) {
    Work work = workload.works[id];
    for (LinkUse& load : work.links) load.link = FlowLinkId(links[load.link.index()]);
    std::reverse(work.links.begin(), work.links.end());
    other.works[WorkId(works[id.index()])] = work;
  }
  for (const FlowLinkId id : workload.links.ids()) other.links[FlowLinkId(links[id.index()])] = workload.links[id];
  for (const MeetingId id : workload.meetings.ids()) {
    Meeting meeting = workload.meetings[id];
    meeting.work = WorkId(works[meeting.work.index()]);
    other.meetings[MeetingId(meetings[id.index()])] = meeting;
  }
  const Run run = play(workload, Network::Fair), renumbered = play(other, Network::Fair);
  for (const AgentId id : workload.agents.ids())
    RC_ASSERT(run.agents[id] == renumbered.agents[AgentId(agents[id.index()])]);
}

}  // namespace
}  // namespace weft
