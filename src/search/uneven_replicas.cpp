#include "search/uneven_replicas.h"

namespace weft {
namespace {

// The plan of a larger batch with the samples that there are; none where its replicas cannot differ.
std::optional<Parallelism> with_samples(Parallelism plan, std::int64_t samples) {
  if (plan.pp > 1 || plan.cp > 1 || plan.dp == 1 || plan.fsdp != plan.dp || plan.tables) return std::nullopt;
  if (samples % plan.micro_batches != 0 || samples / plan.micro_batches < plan.dp) return std::nullopt;
  plan.shares = reduced(nearest_shares(samples / plan.micro_batches, 1, Shares(static_cast<std::size_t>(plan.dp), 1)));
  if (plan.shares.front() == plan.shares.back()) return std::nullopt;
  plan.micro_batch = plan.last_micro_batch = 1;  // of all shares
  return plan;
}

}  // namespace

Result<PlanOutcome> search_uneven_replicas(const PlanProblem& problem, const CostModel& cost,
                                           const EnumerateOptions& options) {
  const std::int64_t most = (problem.global_batch + problem.devices - 1) / problem.devices;  // samples of a device
  TrainingJob larger = *problem.job;
  larger.words.global_batch = most * problem.devices;
  WEFT_TRY(const PlanProblem divided, pose(std::move(larger)));
  EnumerateOptions some = options;
  some.baselines = false;
  WEFT_TRY(const PlanOutcome found, enumerate(divided, cost, some));
  PlanOutcome outcome;
  outcome.counts = found.counts;
  outcome.dimensions = {"replicas of nearly the same number of samples (shares=)"};
  outcome.stopped_by = found.stopped_by;
  for (const Judged& each : found.best) {
    const auto plan = each.parallelism ? with_samples(*each.parallelism, problem.global_batch) : std::nullopt;
    if (!plan) continue;
    Result<Judged> judged = judge_strategy(problem, cost, choose_strategy(*plan));
    ++outcome.counts.considered;
    ++outcome.counts.simulated;
    if (judged.ok() && judged->score().fits()) outcome.best.push_back(std::move(judged).value());
  }
  if (outcome.best.empty()) return error("no plan of {} samples has replicas that can differ", problem.global_batch);
  outcome.seconds = found.seconds;
  return outcome;
}

}  // namespace weft
