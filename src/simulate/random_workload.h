// Random workloads that cannot deadlock: one sequence of operations over all agents, of which each agent's order of
// issue is a part. For the laws.
#pragma once

#include <algorithm>
#include <vector>

#include "base/random.h"
#include "simulate/test_workload.h"

namespace weft::testing {

struct RandomOptions {
  int agents = 5;       // at most
  int operations = 14;  // per body, at most
  bool host = true;     // host times, run-ahead, waits of the host
  bool interference = true;
};

class RandomWorkload {
 public:
  RandomWorkload(Rng rng, RandomOptions options) : rng_(rng), options_(options) {
    const int links = static_cast<int>(rng_.between(1, 6));
    for (int i = 0; i < links; ++i) maker_.link(rng_.between(1, 40) * 50'000'000'000 + rng_.between(0, 6));
    workload().micro_batches = static_cast<std::int32_t>(rng_.between(1, 4));
    if (options_.interference)
      workload().interference = {{.compute_per_sm = rng_.between(0, 2 * kOne),
                                  .memory_weight = rng_.between(0, 2 * kOne),
                                  .communication_weight = rng_.between(0, 2 * kOne)}};
    const std::vector<Play> plays = random_plays();
    const int agents = static_cast<int>(rng_.between(1, options_.agents));
    for (int i = 0; i < agents; ++i) {
      Agent& agent = workload().agents[maker_.agent()];
      agent.bodies.push_back({});
      agent.plays = plays;
      if (options_.host && rng_.below(3) == 0) agent.run_ahead = static_cast<std::int32_t>(rng_.between(1, 4));
    }
    for (const BodyId body : {BodyId(0), BodyId(1)}) {
      const std::int64_t operations = rng_.between(1, options_.operations);
      for (std::int64_t i = 0; i < operations; ++i) add_operation(body);
    }
  }

  Workload& workload() { return maker_.workload; }

  // A work of compute, of communication, or of neither kind's usual sort (no time, no bytes).
  WorkId random_work(bool communicates) {
    Work work{.fixed = rng_.below(4) == 0 ? 0 : rng_.between(1, 300)};
    if (communicates) {
      work.bytes = rng_.below(8) == 0 ? 0 : rng_.between(1, 400);
      for (const FlowLinkId link : workload().links.ids())
        if (rng_.below(3) == 0) work.links.push_back({link, rng_.below(2) == 0 ? kOne : rng_.between(1, 3 * kOne)});
      if (work.links.empty() || rng_.below(4) == 0) work.cap = rng_.between(1, 20) * 100'000'000'000;
    }
    if (options_.interference) {
      work.sm_share = static_cast<std::int32_t>(rng_.between(0, kOne));
      work.memory_share = static_cast<std::int32_t>(rng_.between(0, kOne));
    }
    return maker_.work(std::move(work));
  }

  // A task of the agent that is not in a body yet. It comes after some tasks with smaller ids, whichever body has them.
  Task random_task(AgentId agent) {
    Task task{.stream = static_cast<std::uint8_t>(rng_.below(3))};
    const std::size_t tasks = workload().agents[agent].tasks.size();
    for (std::uint64_t n = rng_.below(3); n > 0 && tasks > 0; --n)
      task.after.emplace_back(tasks - 1 - rng_.below(std::min<std::size_t>(tasks, 6)));
    if (options_.host) {
      task.host = rng_.below(2) == 0 ? 0 : rng_.between(0, 60);
      task.host_waits = rng_.below(20) == 0;
    }
    return task;
  }

  PlayedFor random_guard() {
    const std::uint64_t draw = rng_.below(8);
    return draw == 0 ? PlayedFor::FirstMicroBatch : draw == 1 ? PlayedFor::LastMicroBatch : PlayedFor::EveryMicroBatch;
  }

  // At the end of the body: a computation, a communication of one agent, or a meeting.
  void add_operation(BodyId body) {
    const PlayedFor when = random_guard();
    const std::size_t agents = workload().agents.size();
    const std::uint64_t kind = rng_.below(4);
    if (kind < 3) {
      const AgentId agent(rng_.below(agents));
      Task task = random_task(agent);
      task.when = when;
      if (rng_.below(12) != 0) task.work = random_work(kind == 2);
      maker_.task(agent, std::move(task), body);
      return;
    }
    std::vector<AgentId> parties;
    for (const AgentId agent : workload().agents.ids())
      if (rng_.below(2) == 0) parties.push_back(agent);
    if (parties.empty()) parties.emplace_back(rng_.below(agents));
    const MeetingId meeting = maker_.meeting(random_work(true), static_cast<std::int32_t>(parties.size()));
    for (const AgentId agent : parties) {
      Task task = random_task(agent);
      task.when = when;
      task.meeting = meeting;
      maker_.task(agent, std::move(task), body);
    }
  }

  Rng& rng() { return rng_; }
  Maker& maker() { return maker_; }

 private:
  // Both bodies for every micro-batch, some micro-batches ahead with the first.
  std::vector<Play> random_plays() {
    std::vector<Play> plays;
    const std::int32_t n = workload().micro_batches;
    const auto ahead = static_cast<std::int32_t>(rng_.between(0, n));
    for (std::int32_t i = 0; i < n + ahead; ++i) {
      if (i < n) plays.push_back({BodyId(0), i});
      if (i >= ahead) plays.push_back({BodyId(1), i - ahead});
    }
    return plays;
  }

  Rng rng_;
  RandomOptions options_;
  Maker maker_;
};

}  // namespace weft::testing
