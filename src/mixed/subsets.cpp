#include "mixed/subsets.h"

#include <fmt/format.h>

namespace weft {

std::string name_alone(const DeviceKind& kind, std::int64_t nodes) {
  return fmt::format("{} {} alone", grouped(nodes * kind.per_node), kind.name);
}

Result<PlanOutcome> search_alone(const PlanProblem& problem, const CostModel& cost, const DeviceKind& kind,
                                 std::int64_t nodes, const EnumerateOptions& options) {
  const PlanProblem part = on_devices(problem, devices_in_nodes(problem, kind, nodes));
  WEFT_TRY(PlanOutcome outcome, enumerate(part, cost, options));
  const auto rename = [&](Judged& judged) {
    judged.strategy = fmt::format("{}: {}", name_alone(kind, nodes), judged.strategy);
    judged.parallelism.reset();
  };
  for (Judged& judged : outcome.best) rename(judged);
  if (outcome.closest) rename(*outcome.closest);
  return outcome;
}

}  // namespace weft
