// Agents that are alike.
//
// *Twins* are, but for what they work on: they have the same tasks in the same order, with the same streams and waits.
// Their scripts have the same places, and go on having them as long as they are edited alike, so what is found out for
// one of them holds for all. Twins that also do the same work and come to the same meetings, and communicate nowhere
// else, are *the same*: always in the same state. The first of them leads.
#pragma once

#include <cstdint>
#include <vector>

#include "simulate/delta.h"

namespace weft::engine {

class Twins {
 public:
  Twins() = default;
  // Cost: one look at everything, and one at every agent per set of twins.
  explicit Twins(const Workload& workload);

  // Agents that are edited alike stay what they are, others part. For each edit: which one, it or an earlier one, is
  // the same, of a twin. Of the workload, works are as the edit leaves them.
  std::vector<std::uint32_t> edit(const std::vector<AgentEdit>& edits, const IdVec<WorkId, Work>& works);
  // The agent is nobody's twin any more.
  void part(AgentId agent);

  // Of those that are the same, the first.
  const IdVec<AgentId, AgentId>& leaders() const { return leader_; }
  bool leads(AgentId agent) const { return leader_[agent] == agent; }

 private:
  IdVec<AgentId, std::uint32_t> set_;
  IdVec<AgentId, AgentId> leader_;
  std::uint32_t sets_ = 0;  // that have been told apart
};

}  // namespace weft::engine
