// What each kind of device does in a plan: its layers, its share of the batch, how long it computes and what it waits
// for, its memory; and which devices the plan leaves out, with the reason.
// Cost: one recorded simulation of the plan.
#pragma once

#include <span>

#include "mixed/device_kinds.h"
#include "problem/outcome.h"

namespace weft {

// `others`: simulated plans, from which the reason for leaving devices out is read.
Result<std::vector<KindUse>> use_of_kinds(const PlanProblem& problem, const CostModel& cost, const Judged& plan,
                                          std::span<const Judged> others);

}  // namespace weft
