#include "simulate/twins.h"

#include <algorithm>
#include <functional>

namespace weft::engine {
namespace {

bool same_shape(const Task& a, const Task& b) {
  return a.stream == b.stream && a.when == b.when && a.host_waits == b.host_waits && a.host == b.host &&
         a.after == b.after;
}

// A communication of one agent alone, whose time depends on concurrent communications: such agents are not identical.
bool communicates_alone(const Task& task, const IdVec<WorkId, Work>& works) {
  return task.work.valid() && works.contains(task.work) && is_communication(works[task.work]);
}

bool same_shape(const Agent& a, const Agent& b) {
  return a.bodies == b.bodies && a.plays == b.plays && a.run_ahead == b.run_ahead &&
         std::equal(a.tasks.begin(), a.tasks.end(), b.tasks.begin(), b.tasks.end(),
                    [](const Task& x, const Task& y) { return same_shape(x, y); });
}

// Whether `alike(task, task)` holds for all added and changed tasks.
template <class Alike>
bool same_edit(const AgentEdit& a, const AgentEdit& b, const Alike& alike) {
  return a.splices == b.splices &&
         std::equal(a.changed.begin(), a.changed.end(), b.changed.begin(), b.changed.end(),
                    [&](const auto& x, const auto& y) { return x.first == y.first && alike(x.second, y.second); }) &&
         std::equal(a.added.begin(), a.added.end(), b.added.begin(), b.added.end(), alike);
}

}  // namespace

Twins::Twins(const Workload& workload) : set_(workload.agents.size()), leader_(workload.agents.size()) {
  std::vector<AgentId> firsts, leaders;
  for (const AgentId id : workload.agents.ids()) {
    const Agent& agent = workload.agents[id];
    const auto first = std::find_if(firsts.begin(), firsts.end(),
                                    [&](AgentId other) { return same_shape(workload.agents[other], agent); });
    set_[id] = static_cast<std::uint32_t>(first - firsts.begin());
    if (first == firsts.end()) firsts.push_back(id);

    leader_[id] = id;
    if (std::any_of(agent.tasks.begin(), agent.tasks.end(),
                    [&](const Task& task) { return communicates_alone(task, workload.works); }))
      continue;
    const auto leader = std::find_if(leaders.begin(), leaders.end(), [&](AgentId other) {
      return set_[other] == set_[id] && workload.agents[other] == agent;
    });
    if (leader == leaders.end())
      leaders.push_back(id);
    else
      leader_[id] = *leader;
  }
  sets_ = static_cast<std::uint32_t>(firsts.size());
}

std::vector<std::uint32_t> Twins::edit(const std::vector<AgentEdit>& edits, const IdVec<WorkId, Work>& works) {
  struct Set {
    std::uint32_t first = 0;  // index of an edit
    std::uint32_t before = 0, now = 0;
  };
  std::vector<Set> same_shapes, sames;
  std::vector<std::uint32_t> result;
  // Agents with the same key and the same old leader have the same new leader. Key 0: no edit; else 1 + index in
  // `sames`.
  constexpr std::uint32_t kAlone = 0xffffffff;
  IdVec<AgentId, std::uint32_t> keys(set_.size());
  IdVec<AgentId, char> seen(set_.size());
  for (std::uint32_t i = 0; i < edits.size(); ++i) {
    result.push_back(i);
    const AgentId agent = edits[i].agent;
    if (!set_.contains(agent)) continue;  // an unknown agent, reported elsewhere
    if (std::exchange(seen[agent], 1) != 0) {
      set_[agent] = sets_++;
      keys[agent] = kAlone;
      continue;
    }
    const std::uint32_t before = set_[agent];
    const auto find = [&](const std::vector<Set>& sets, const auto& alike) {
      return std::find_if(sets.begin(), sets.end(), [&](const Set& set) {
        return set.before == before && same_edit(edits[set.first], edits[i], alike);
      });
    };
    const auto found = find(sames, std::equal_to<Task>());
    keys[agent] = static_cast<std::uint32_t>(found - sames.begin()) + 1;
    const auto alone = [&](const Task& task) { return communicates_alone(task, works); };
    if (std::any_of(edits[i].added.begin(), edits[i].added.end(), alone) ||
        std::any_of(edits[i].changed.begin(), edits[i].changed.end(),
                    [&](const auto& each) { return alone(each.second); }))
      keys[agent] = kAlone;
    if (found != sames.end()) {
      result.back() = found->first;
      set_[agent] = found->now;
      continue;
    }
    const auto shape = find(same_shapes, [](const Task& a, const Task& b) { return same_shape(a, b); });
    if (shape == same_shapes.end()) {
      set_[agent] = sets_++;
      same_shapes.push_back({i, before, set_[agent]});
    } else {
      set_[agent] = shape->now;
    }
    sames.push_back({i, before, set_[agent]});
  }

  // New leaders, by key and old leader.
  std::vector<std::vector<std::pair<AgentId, AgentId>>> leader_of(sames.size() + 1);
  for (const AgentId agent : leader_.ids()) {
    const AgentId before = std::exchange(leader_[agent], agent);
    if (keys[agent] == kAlone) continue;
    auto& known = leader_of[keys[agent]];
    const auto at = std::find_if(known.begin(), known.end(), [&](const auto& each) { return each.first == before; });
    if (at == known.end())
      known.emplace_back(before, agent);
    else
      leader_[agent] = at->second;
  }
  return result;
}

void Twins::separate(AgentId agent) {
  set_[agent] = sets_++;
  leader_[agent] = agent;
  AgentId next;
  for (const AgentId other : leader_.ids()) {
    if (other == agent || leader_[other] != agent) continue;
    if (!next.valid()) next = other;
    leader_[other] = next;
  }
}

}  // namespace weft::engine
