// Plans of one problem that differ in how a graph is split, not in the graph: the model is built and differentiated
// once, and each plan splits a copy. What comes back is what make_plan gives, save for which defaults it tells.
//
// A graph depends on the samples of a micro-batch of all replicas, the vocabulary's padding (tp), the order of tokens
// (cp) and, with experts, the parts of the sequence that route theirs (cp, sp). Safe from several threads. Cost: a
// third to a half of make_plan's where the graph is known.
#pragma once

#include <cstddef>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "plan/plan.h"

namespace weft {

class SharedPlans {
 public:
  // Remembers so many graphs, the latest.
  explicit SharedPlans(std::size_t most) : most_(most) {}

  Result<Plan> make(const PlanRequest& request);

 private:
  bool has_experts(const PlanRequest& request);

  const std::size_t most_;
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<const Plan>> known_;
  std::deque<std::string> order_;
  std::map<std::string, bool> has_experts_;  // by model
};

}  // namespace weft
