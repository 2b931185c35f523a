// Small workloads for tests and benchmarks, made by hand or at random.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "simulate/engine.h"
#include "simulate/workload.h"

namespace weft::testing {

// At this capacity a link carries one byte per picosecond.
inline constexpr std::int64_t kBytePerPs = 1'000'000'000'000;

struct Maker {
  Workload workload;

  // Adds an agent with one body, played once for micro-batch 0 unless its plays are changed.
  AgentId agent() {
    const AgentId id = workload.agents.push_back({});
    workload.agents[id].bodies.push_back({});
    workload.agents[id].plays = {{BodyId(0), 0}};
    return id;
  }
  FlowLinkId link(std::int64_t capacity = kBytePerPs) { return workload.links.push_back({.capacity = capacity}); }
  WorkId work(Work work) { return workload.works.push_back(std::move(work)); }
  WorkId compute(Picoseconds time) { return work({.fixed = time}); }
  WorkId transfer(std::int64_t bytes, const std::vector<FlowLinkId>& links, Picoseconds latency = 0) {
    Work made{.fixed = latency, .bytes = bytes};
    for (const FlowLinkId link : links) made.links.push_back({link, kOne});
    return work(std::move(made));
  }
  MeetingId meeting(WorkId work, std::int32_t parties = 2) { return workload.meetings.push_back({work, parties}); }
  TaskId task(AgentId agent, Task task, BodyId body = BodyId(0)) {
    Agent& a = workload.agents[agent];
    while (!a.bodies.contains(body)) a.bodies.push_back({});
    const TaskId id = a.tasks.push_back(std::move(task));
    a.bodies[body].push_back(id);
    return id;
  }
  TaskId task(AgentId agent, WorkId work, std::uint8_t stream = 0, ShortVec<TaskId> after = {}) {
    return task(agent, Task{.work = work, .stream = stream, .after = std::move(after)});
  }
  TaskId meet(AgentId agent, MeetingId meeting, std::uint8_t stream = 1, ShortVec<TaskId> after = {},
              BodyId body = BodyId(0)) {
    return task(agent, Task{.meeting = meeting, .stream = stream, .after = std::move(after)}, body);
  }
};

// 1F1B: body 0 is a stage's forward pass of a micro-batch, body 1 its backward pass.
inline std::vector<Play> one_forward_one_backward(int stages, int stage, int micro_batches) {
  std::vector<Play> plays;
  const int warm_up = std::min(micro_batches, stages - 1 - stage);
  for (int i = 0; i < warm_up; ++i) plays.push_back({BodyId(0), i});
  for (int i = 0; i < micro_batches; ++i) {
    if (i + warm_up < micro_batches) plays.push_back({BodyId(0), i + warm_up});
    plays.push_back({BodyId(1), i});
  }
  return plays;
}

}  // namespace weft::testing
