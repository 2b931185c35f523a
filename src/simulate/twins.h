// Agents that are alike but for what they work on: the same tasks in the same order, with the same streams and waits.
// Their scripts have the same places, and go on having them as long as they are edited alike, so what is found out for
// one of them holds for all.
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

  // Agents that are edited alike stay twins, others part. For each edit: which one, it or an earlier one, is the same,
  // of a twin.
  std::vector<std::uint32_t> edit(const std::vector<AgentEdit>& edits);
  // The agent is nobody's twin any more.
  void part(AgentId agent) { set_[agent] = sets_++; }

 private:
  IdVec<AgentId, std::uint32_t> set_;
  std::uint32_t sets_ = 0;  // that have been told apart
};

}  // namespace weft::engine
