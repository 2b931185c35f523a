#include "simulate/twins.h"

#include <algorithm>

namespace weft::engine {
namespace {

bool same_shape(const Task& a, const Task& b) {
  return a.stream == b.stream && a.when == b.when && a.host_waits == b.host_waits && a.host == b.host &&
         a.after == b.after;
}

bool same(const Task& a, const Task& b) { return a.work == b.work && a.meeting == b.meeting && same_shape(a, b); }

bool same_shape(const Agent& a, const Agent& b) {
  return a.bodies == b.bodies && a.plays == b.plays && a.run_ahead == b.run_ahead &&
         std::equal(a.tasks.begin(), a.tasks.end(), b.tasks.begin(), b.tasks.end(),
                    [](const Task& x, const Task& y) { return same_shape(x, y); });
}

// `alike(task, task)` of tasks that are added or changed.
template <class Alike>
bool same_edit(const AgentEdit& a, const AgentEdit& b, const Alike& alike) {
  return a.splices == b.splices &&
         std::equal(a.changed.begin(), a.changed.end(), b.changed.begin(), b.changed.end(),
                    [&](const auto& x, const auto& y) { return x.first == y.first && alike(x.second, y.second); }) &&
         std::equal(a.added.begin(), a.added.end(), b.added.begin(), b.added.end(), alike);
}

}  // namespace

Twins::Twins(const Workload& workload) : set_(workload.agents.size()) {
  std::vector<AgentId> firsts;
  for (const AgentId id : workload.agents.ids()) {
    const auto first = std::find_if(firsts.begin(), firsts.end(), [&](AgentId other) {
      return same_shape(workload.agents[other], workload.agents[id]);
    });
    set_[id] = static_cast<std::uint32_t>(first - firsts.begin());
    if (first == firsts.end()) firsts.push_back(id);
  }
  sets_ = static_cast<std::uint32_t>(firsts.size());
}

std::vector<std::uint32_t> Twins::edit(const std::vector<AgentEdit>& edits) {
  struct Set {
    std::uint32_t first = 0;  // edit
    std::uint32_t before = 0, now = 0;
  };
  std::vector<Set> same_shapes, sames;
  std::vector<std::uint32_t> result;
  IdVec<AgentId, char> seen(set_.size());
  for (std::uint32_t i = 0; i < edits.size(); ++i) {
    result.push_back(i);
    const AgentId agent = edits[i].agent;
    if (!set_.contains(agent)) continue;  // a fault, as others will say
    if (std::exchange(seen[agent], 1) != 0) {
      part(agent);
      continue;
    }
    const std::uint32_t before = set_[agent];
    const auto find = [&](const std::vector<Set>& sets, const auto& alike) {
      return std::find_if(sets.begin(), sets.end(), [&](const Set& set) {
        return set.before == before && same_edit(edits[set.first], edits[i], alike);
      });
    };
    if (const auto found = find(sames, [](const Task& a, const Task& b) { return same(a, b); }); found != sames.end()) {
      result.back() = found->first;
      set_[agent] = found->now;
      continue;
    }
    const auto shape = find(same_shapes, [](const Task& a, const Task& b) { return same_shape(a, b); });
    if (shape == same_shapes.end()) {
      part(agent);
      same_shapes.push_back({i, before, set_[agent]});
    } else {
      set_[agent] = shape->now;
    }
    sames.push_back({i, before, set_[agent]});
  }
  return result;
}

}  // namespace weft::engine
