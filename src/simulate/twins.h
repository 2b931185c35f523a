// Devices with identical schedules.
//
// *Twins* are agents with the same tasks in the same order, on the same streams and with the same waits; only their
// work may differ. Their scripts have the same places, and keep them as long as their edits are the same, so an edit of
// the script is computed once for all. Twins that also do the same work, take part in the same meetings and communicate
// nowhere else are *identical*: always in the same state. The first of them is their *leader* and is simulated for all.
#pragma once

#include <cstdint>
#include <vector>

#include "simulate/delta.h"

namespace weft::engine {

class Twins {
 public:
  Twins() = default;
  // Cost: linear in the workload, plus agents × sets of twins.
  explicit Twins(const Workload& workload);

  // Agents with the same edit stay twins or identical, others are separated. For each edit: the index of the first edit
  // of a twin that is the same, or its own. `works` are those after the edit.
  std::vector<std::uint32_t> edit(const std::vector<AgentEdit>& edits, const IdVec<WorkId, Work>& works);
  // Separates the agent from all others.
  void separate(AgentId agent);

  // The leader of each agent: the first of the identical ones.
  const IdVec<AgentId, AgentId>& leaders() const { return leader_; }
  bool leads(AgentId agent) const { return leader_[agent] == agent; }

 private:
  IdVec<AgentId, std::uint32_t> set_;
  IdVec<AgentId, AgentId> leader_;
  std::uint32_t sets_ = 0;  // the number of the next set
};

}  // namespace weft::engine
