#include "problem/outcome.h"

#include <algorithm>

namespace weft {

double PlanOutcome::gap() const {
  if (best.empty() || lower_bound_s <= 0) return 0;
  return std::max(0.0, best.front().forecast.step_s / lower_bound_s - 1);
}

}  // namespace weft
