// Equality of workloads up to the numbering of tasks, works, meetings and links.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "simulate/workload.h"

namespace weft {

class WorkloadComparison {
 public:
  WorkloadComparison(const Workload& a, const Workload& b)
      : a_(a), b_(b), met_(a.meetings.size()), used_(b.meetings.size(), 0) {}

  std::string run() {
    if (a_.agents.size() != b_.agents.size()) return "agents";
    for (AgentId agent : a_.agents.ids())
      if (const std::string problem = compare(a_.agents[agent], b_.agents[agent]); !problem.empty())
        return fmt::format("agent {}: {}", agent.index(), problem);
    return "";
  }

 private:
  using Places = IdVec<TaskId, std::pair<std::size_t, std::size_t>>;

  static std::vector<std::vector<TaskId>> bodies_of(const Agent& agent, Places& places) {
    places.resize(agent.tasks.size(), {~0u, ~0u});
    std::vector<std::vector<TaskId>> bodies;
    for (const std::vector<TaskId>& body : agent.bodies) {
      std::vector<TaskId>& list = bodies.emplace_back();
      for (TaskId id : body) {
        places[id] = {bodies.size(), list.size()};
        list.push_back(id);
      }
    }
    return bodies;
  }
  // The tasks that a task waits for, in canonical form: without those of its own stream, and of those that another
  // stream executes in order only the last.
  static auto waits(const Agent& agent, TaskId id, const Places& places) {
    const Task& task = agent.tasks[id];
    std::vector<std::pair<std::size_t, std::size_t>> list;
    std::map<std::tuple<std::size_t, int, PlayedFor>, std::size_t> last;  // before it
    for (TaskId x : task.after) {
      if (agent.tasks[x].stream == task.stream) continue;
      if (places[x].first == places[id].first && places[x] > places[id]) {
        list.push_back(places[x]);
      } else {
        std::size_t& place = last[{places[x].first, agent.tasks[x].stream, agent.tasks[x].when}];
        place = std::max(place, places[x].second);
      }
    }
    for (const auto& [where, place] : last) list.emplace_back(std::get<0>(where), place);
    std::sort(list.begin(), list.end());
    return list;
  }
  std::string compare(WorkId x, WorkId y) const {
    if (x.valid() != y.valid()) return "work";
    if (!x.valid()) return "";
    Work a = a_.works[x], b = b_.works[y];
    const auto named = [](Work& work, const Workload& in) {
      for (LinkUse& use : work.links) use.link = FlowLinkId(in.links[use.link].label);
      std::sort(work.links.begin(), work.links.end(), [](auto& l, auto& r) { return l.link < r.link; });
    };
    named(a, a_);
    named(b, b_);
    if (a != b) return fmt::format("work of {} + {} against {} + {}", a.fixed, a.bytes, b.fixed, b.bytes);
    for (const LinkUse& use : a_.works[x].links)
      for (const LinkUse& other : b_.works[y].links)
        if (a_.links[use.link].label == b_.links[other.link].label && a_.links[use.link] != b_.links[other.link])
          return "link";
    return "";
  }
  std::string compare(MeetingId x, MeetingId y) {
    if (x.valid() != y.valid()) return "meeting";
    if (!x.valid()) return "";
    if (!met_[x].valid() && std::exchange(used_[y], 1) == 0) met_[x] = y;
    if (met_[x] != y) return "another meeting";
    if (a_.meetings[x].parties != b_.meetings[y].parties) return "parties";
    return compare(a_.meetings[x].work, b_.meetings[y].work);
  }
  std::string compare(const Agent& a, const Agent& b) {
    Places at_a, at_b;
    const auto bodies_a = bodies_of(a, at_a), bodies_b = bodies_of(b, at_b);
    if (bodies_a.size() != bodies_b.size() || a.plays != b.plays || a.run_ahead != b.run_ahead) return "plays";
    if (a_.interference[a.interference] != b_.interference[b.interference]) return "interference";
    for (std::size_t body = 0; body < bodies_a.size(); ++body) {
      if (bodies_a[body].size() != bodies_b[body].size())
        return fmt::format("body {}: {} tasks against {}", body, bodies_a[body].size(), bodies_b[body].size());
      for (std::size_t i = 0; i < bodies_a[body].size(); ++i) {
        const Task &x = a.tasks[bodies_a[body][i]], &y = b.tasks[bodies_b[body][i]];
        std::string problem = compare(x.work, y.work);
        if (problem.empty()) problem = compare(x.meeting, y.meeting);
        if (x.stream != y.stream || x.when != y.when || x.host != y.host || x.host_waits != y.host_waits)
          problem = "stream, guard or host";
        if (waits(a, bodies_a[body][i], at_a) != waits(b, bodies_b[body][i], at_b)) problem = "waits";
        if (!problem.empty()) return fmt::format("body {}, task {}: {}", body, i, problem);
      }
    }
    return "";
  }

  const Workload &a_, &b_;
  IdVec<MeetingId, MeetingId> met_;
  IdVec<MeetingId, char> used_;
};

// The first difference; empty: none.
inline std::string departure(const Workload& a, const Workload& b) { return WorkloadComparison(a, b).run(); }

}  // namespace weft
