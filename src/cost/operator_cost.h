// The time of one operator's local part: the kernels that execute it, and their times.
#pragma once

#include "cost/cost.h"
#include "cost/kernel_choice.h"
#include "cost/tuning.h"

namespace weft {

ComputeCost operator_cost(const ComputeQuery& query, const Tuning& tuning, const KernelChoice& choice);

}  // namespace weft
