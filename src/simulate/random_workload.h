// Random workloads that cannot deadlock: one sequence of operations over all agents, of which each agent's issue order
// is a subsequence. For property tests.
#pragma once

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "base/random.h"
#include "simulate/delta.h"
#include "simulate/test_workload.h"

namespace weft::testing {

struct RandomOptions {
  int agents = 5;       // at most
  int operations = 14;  // per body, at most
  bool host = true;     // host times, run-ahead, waits of the host
  bool interference = true;
  int plain = 0;          // of ten operations, how many compute on one stream without waits
  int micro_batches = 4;  // at most
};

class RandomWorkload {
 public:
  RandomWorkload(Rng rng, RandomOptions options) : rng_(rng), options_(options) {
    const int links = static_cast<int>(rng_.between(1, 6));
    for (int i = 0; i < links; ++i) maker_.link(rng_.between(1, 40) * 50'000'000'000 + rng_.between(0, 6));
    workload().micro_batches = static_cast<std::int32_t>(rng_.between(1, options_.micro_batches));
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
      WorkloadEdit ignored;
      for (std::int64_t i = 0; i < operations; ++i) put_in(body, operations_[body.index()].size(), ignored);
    }
  }

  Workload& workload() { return maker_.workload; }

  // A work of computation or of communication, sometimes degenerate (no time, no bytes).
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

  // A task of the agent that is not in a body yet. It waits for some tasks with smaller ids, of any body.
  Task random_task(AgentId agent) {
    Task task{.stream = static_cast<std::uint8_t>(rng_.below(3))};
    const std::size_t tasks = workload().agents[agent].tasks.size();
    for (std::uint64_t n = rng_.below(3); n > 0 && tasks > 0; --n)
      task.after.push_back(TaskId(tasks - 1 - rng_.below(std::min<std::size_t>(tasks, 6))));
    if (options_.host) {
      task.host = rng_.below(2) == 0 ? 0 : rng_.between(0, 60);
      task.host_waits = rng_.below(20) == 0;
    }
    return task;
  }

  PlayedFor random_guard() {
    const std::uint64_t draw = rng_.below(8);
    return draw == 0   ? PlayedFor::FirstMicroBatch
           : draw == 1 ? PlayedFor::LastMicroBatch
           : draw == 2 ? PlayedFor::AllButLastMicroBatch
           : draw == 3 ? PlayedFor::AfterFirst
                       : PlayedFor::EveryMicroBatch;
  }

  // An edit that keeps the workload free of deadlock: operations inserted, removed, exchanged, moved; a work, meeting,
  // link or task replaced. It is applied to the workload here too.
  WorkloadEdit random_edit() {
    const Workload before = workload();
    unused_from_ = &before;
    WorkloadEdit edit;
    for (std::uint64_t n = 1 + rng_.below(2); n > 0; --n) {
      const BodyId body(rng_.below(2));
      std::vector<Operation>& operations = operations_[body.index()];
      const std::uint64_t kind = rng_.below(12);
      if (kind == 0 && !before.works.empty()) {
        const WorkId id(rng_.below(before.works.size()));
        Work work = workload().works[id];
        work.fixed = rng_.between(0, 300);
        if (work.bytes > 0) work.bytes = rng_.between(1, 400);
        workload().works[id] = work;
        edit.works.emplace_back(id, work);
      } else if (kind == 1) {
        const FlowLinkId id(rng_.below(workload().links.size() + 1));
        const FlowLink link{.capacity = rng_.between(1, 40) * 50'000'000'000};
        if (id.index() == workload().links.size()) workload().links.push_back({});
        workload().links[id] = link;
        edit.links.emplace_back(id, link);
      } else if (kind == 2 && !before.meetings.empty()) {
        const MeetingId id(rng_.below(before.meetings.size()));
        workload().meetings[id].work = random_work(true);
        edit.meetings.emplace_back(id, workload().meetings[id]);
      } else if (kind == 10) {
        change_task(edit);
      } else if (kind == 11 && !operations.empty()) {
        move(body, rng_.below(operations.size()), rng_.below(operations.size()), edit);
      } else {
        const std::size_t index = rng_.below(operations.size() + 1);
        if (kind < 7 && index < operations.size()) take_out(body, index, edit);
        if (kind > 4) put_in(body, std::min(index, operations.size()), edit);
      }
    }
    if (options_.plain > 0) {
      if (rng_.below(3) == 0) {
        const BodyId body(rng_.below(2));
        const std::size_t index = rng_.below(operations_[body.index()].size() + 1);
        for (std::uint64_t n = rng_.below(30); n > 0; --n) put_in(body, index, edit);
      }
      join(edit.agents);
    }
    // Works and meetings made meanwhile are additions.
    for (std::size_t i = before.works.size(); i < workload().works.size(); ++i)
      edit.works.emplace_back(WorkId(i), workload().works[WorkId(i)]);
    for (std::size_t i = before.meetings.size(); i < workload().meetings.size(); ++i)
      edit.meetings.emplace_back(MeetingId(i), workload().meetings[MeetingId(i)]);
    unused_from_ = nullptr;
    return edit;
  }

  // A computation, a communication of one agent, or a meeting, as operation `index` of the body.
  void put_in(BodyId body, std::size_t index, WorkloadEdit& edit) {
    PlayedFor when = random_guard();
    const std::size_t agents = workload().agents.size();
    const bool plain = options_.plain > 0 && rng_.below(10) < static_cast<std::uint64_t>(options_.plain);
    const std::uint64_t kind = plain ? 0 : rng_.below(4);
    if (kind == 3 && when == PlayedFor::AfterFirst) when = PlayedFor::EveryMicroBatch;
    Operation operation;
    const auto add = [&](AgentId id, Task task) {
      task.when = when;
      Agent& agent = workload().agents[id];
      const std::uint32_t position = position_of(id, body, index);
      // Sometimes with the id of a task that is in no body any more.
      TaskId made = unused_task(id);
      if (made.valid()) {
        erase_if(task.after, [&](TaskId after) { return after >= made; });
        agent.tasks[made] = task;
        edit.agents.push_back({id, {}, {{body, position, 0, {made}}}, {{made, task}}});
      } else {
        made = agent.tasks.push_back(task);
        edit.agents.push_back({id, {task}, {{body, position, 0, {made}}}});
      }
      agent.bodies[body].insert(agent.bodies[body].begin() + position, made);
      operation.emplace_back(id, made);
    };
    if (kind < 3) {
      const AgentId agent(rng_.below(agents));
      Task task = plain ? Task{} : random_task(agent);
      if (rng_.below(12) != 0) task.work = random_work(kind == 2);
      add(agent, std::move(task));
    } else {
      std::vector<AgentId> parties;
      for (const AgentId agent : workload().agents.ids())
        if (rng_.below(2) == 0) parties.push_back(agent);
      if (parties.empty()) parties.emplace_back(rng_.below(agents));
      const MeetingId meeting = maker_.meeting(random_work(true), static_cast<std::int32_t>(parties.size()));
      for (const AgentId agent : parties) {
        Task task = random_task(agent);
        task.meeting = meeting;
        add(agent, std::move(task));
      }
    }
    std::vector<Operation>& operations = operations_[body.index()];
    operations.insert(operations.begin() + static_cast<std::ptrdiff_t>(index), std::move(operation));
  }

  // New work, host time and waits of a task without a meeting.
  void change_task(WorkloadEdit& edit) {
    const AgentId id(rng_.below(workload().agents.size()));
    Agent& agent = workload().agents[id];
    const std::vector<TaskId>& body = agent.bodies[BodyId(rng_.below(2))];
    if (body.empty()) return;
    const TaskId changed = body[rng_.below(body.size())];
    Task& task = agent.tasks[changed];
    if (task.meeting.valid()) return;
    Task next = random_task(id);
    next.work = random_work(rng_.below(3) == 0);
    next.stream = task.stream;
    next.when = task.when;
    erase_if(next.after, [&](TaskId after) { return after >= changed; });
    task = next;
    edit.agents.push_back({id, {}, {}, {{changed, std::move(next)}}});
  }

  void take_out(BodyId body, std::size_t index, WorkloadEdit& edit) {
    std::vector<Operation>& operations = operations_[body.index()];
    for (const auto& [id, task] : operations[index]) {
      std::vector<TaskId>& tasks = workload().agents[id].bodies[body];
      const auto it = std::find(tasks.begin(), tasks.end(), task);
      edit.agents.push_back({id, {}, {{body, static_cast<std::uint32_t>(it - tasks.begin()), 1, {}}}});
      tasks.erase(it);
    }
    operations.erase(operations.begin() + static_cast<std::ptrdiff_t>(index));
  }

  void move(BodyId body, std::size_t from, std::size_t to, WorkloadEdit& edit) {
    std::vector<Operation>& operations = operations_[body.index()];
    Operation moved = std::move(operations[from]);
    operations.erase(operations.begin() + static_cast<std::ptrdiff_t>(from));
    for (const auto& [id, task] : moved) {
      std::vector<TaskId>& tasks = workload().agents[id].bodies[body];
      const auto it = std::find(tasks.begin(), tasks.end(), task);
      const auto before = static_cast<std::uint32_t>(it - tasks.begin());
      const std::uint32_t after = position_of(id, body, to);
      tasks.erase(it);
      tasks.insert(tasks.begin() + after, task);
      // In either order: removal first, or insertion first.
      if (rng_.below(2) == 0)
        edit.agents.push_back({id, {}, {{body, before, 1, {}}, {body, after, 0, {task}}}});
      else
        edit.agents.push_back(
            {id,
             {},
             {{body, after + (after > before ? 1 : 0), 0, {task}}, {body, before + (after > before ? 0 : 1), 1, {}}}});
    }
    operations.insert(operations.begin() + static_cast<std::ptrdiff_t>(to), std::move(moved));
  }

  Rng& rng() { return rng_; }
  Maker& maker() { return maker_; }

 private:
  // Both bodies for every micro-batch, the first body some micro-batches ahead.
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

  // Joins several edits of one agent into one.
  static void join(std::vector<AgentEdit>& edits) {
    std::vector<AgentEdit> joined;
    for (AgentEdit& edit : edits) {
      const auto same = std::find_if(joined.rbegin(), joined.rend(),
                                     [&](const AgentEdit& other) { return other.agent == edit.agent; });
      if (same == joined.rend() || !same->changed.empty() || !edit.changed.empty()) {
        joined.push_back(std::move(edit));
        continue;
      }
      same->added.insert(same->added.end(), edit.added.begin(), edit.added.end());
      same->splices.insert(same->splices.end(), edit.splices.begin(), edit.splices.end());
    }
    edits = std::move(joined);
  }

  using Operation = std::vector<std::pair<AgentId, TaskId>>;

  // A task that was in no body before the current edit; none in half of the cases.
  TaskId unused_task(AgentId id) {
    const Agent& agent = workload().agents[id];
    if (unused_from_ == nullptr || rng_.below(2) == 0) return {};
    std::vector<char> used(agent.tasks.size(), 0);
    for (const Agent* from : {&agent, &unused_from_->agents[id]})
      for (const std::vector<TaskId>& body : from->bodies)
        for (const TaskId task : body) used[task.index()] = 1;
    for (std::size_t i = 0; i < unused_from_->agents[id].tasks.size(); ++i)
      if (used[i] == 0) return TaskId(i);
    return {};
  }

  // The position of a task of operation `index` in the agent's body: after those of earlier operations.
  std::uint32_t position_of(AgentId agent, BodyId body, std::size_t index) const {
    std::uint32_t position = 0;
    for (std::size_t i = 0; i < index; ++i)
      for (const auto& [id, task] : operations_[body.index()][i]) position += id == agent ? 1 : 0;
    return position;
  }

  Rng rng_;
  RandomOptions options_;
  Maker maker_;
  std::array<std::vector<Operation>, 2> operations_;
  const Workload* unused_from_ = nullptr;
};

}  // namespace weft::testing
