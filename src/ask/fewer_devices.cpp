#include "ask/fewer_devices.h"

#include <algorithm>
#include <set>

#include "ask/words.h"

namespace weft {
namespace {

// Powers of two below a number, and the largest below it that divides `batch` when multiplied by `each`.
std::set<std::int64_t, std::greater<>> smaller_counts(std::int64_t count, std::int64_t each, std::int64_t batch) {
  std::set<std::int64_t, std::greater<>> found;
  for (std::int64_t power = 1; power < count; power *= 2) found.insert(power);
  for (std::int64_t divisor = count - 1; divisor > 1; --divisor)
    if (batch % (divisor * each) == 0) {
      found.insert(divisor);
      break;
    }
  return found;
}

}  // namespace

std::vector<PlanRequest> on_fewer_devices(const PlanRequest& request, const PlanProblem& problem) {
  std::vector<PlanRequest> found;
  if (!problem.regular || request.device_count || !request.devices.empty()) return found;
  PlanRequest settled = request;
  settled.global_batch = problem.global_batch;
  const std::int64_t nodes = problem.devices / problem.per_node;
  for (const std::int64_t fewer : smaller_counts(nodes, problem.per_node, problem.global_batch)) {
    const std::optional<std::string> cluster = with_nodes(request.cluster, fewer);
    if (!cluster) return found;
    settled.cluster = *cluster;
    found.push_back(settled);
  }
  for (const std::int64_t devices : smaller_counts(problem.per_node, 1, problem.global_batch)) {
    settled.device_count = devices;
    found.push_back(settled);
  }
  return found;
}

bool may_be_faster(const PlanOutcome& outcome, std::int64_t devices, std::int64_t fewer) {
  constexpr double kGain = 0.99;
  if (outcome.best.empty()) return true;
  const Forecast& best = outcome.fastest().forecast;
  if (!best.breakdown) return false;
  const double computes = seconds_of((*best.breakdown)[Activity::Compute]);
  return computes * static_cast<double>(devices) / static_cast<double>(fewer) < kGain * best.step_s;
}

}  // namespace weft
