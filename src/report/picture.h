// A drawing of the cluster's nodes with the ranks on their devices.
#pragma once

#include <string>

#include "plan/plan.h"

namespace weft {

// Boxes are groups of the innermost degree, labelled with the other coordinates. Nodes beyond a few are left out.
std::string draw_ranks(const Plan& plan);

}  // namespace weft
