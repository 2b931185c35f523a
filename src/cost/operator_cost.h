// The time of one operator's local part: which kernels it runs as, and how long they take.
#pragma once

#include "cost/cost.h"
#include "cost/kernel_choice.h"
#include "cost/tuning.h"

namespace weft {

ComputeCost operator_cost(const ComputeQuery& query, const Tuning& tuning, const KernelChoice& choice);

}  // namespace weft
