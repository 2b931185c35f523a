#include "search/sensitivity.h"

namespace weft {
namespace {

// The same costs with twice the bandwidth of every link and algorithm.
class TwiceTheBandwidth final : public CostModel {
 public:
  explicit TwiceTheBandwidth(const CostModel& cost) : cost_(cost) {}

  void compute(std::span<const ComputeQuery> queries, std::span<ComputeCost> costs) const override {
    cost_.compute(queries, costs);
  }
  void communicate(std::span<const CommunicateQuery> queries, std::span<CommunicateCost> costs) const override {
    cost_.communicate(queries, costs);
    for (CommunicateCost& cost : costs) cost.cap *= 2;
  }
  std::int64_t capacity(const Link& link) const override { return 2 * cost_.capacity(link); }
  Interference interference(const DeviceSpec& device) const override { return cost_.interference(device); }

 private:
  const CostModel& cost_;
};

constexpr std::int64_t kSimulations = 5;

// No degree of one is more than twice that of the other. The number of replicas follows from the others.
bool near(const Parallelism& a, const Parallelism& b) {
  const auto close = [](std::int64_t x, std::int64_t y) { return x <= 2 * y && y <= 2 * x; };
  return close(a.tp, b.tp) && close(a.cp, b.cp) && close(a.pp, b.pp) && close(a.ep, b.ep) && close(a.vpp, b.vpp) &&
         close(a.micro_batch, b.micro_batch);
}

}  // namespace

Result<std::vector<Sensitivity>> sensitivities(const PlanProblem& problem, const CostModel& cost,
                                               const EnumerateOptions& options, const Parallelism& best) {
  EnumerateOptions few = options;
  few.space.allows = [&](const Parallelism& plan) {
    return near(plan, best) && (!options.space.allows || options.space.allows(plan));
  };
  few.budget.evaluations = kSimulations;
  few.top = 1;
  std::vector<Sensitivity> found;
  const auto add = [&](std::string what, const Result<PlanOutcome>& outcome) -> Status {
    if (!outcome.ok()) return outcome.error();
    Sensitivity& made = found.emplace_back();
    made.what = std::move(what);
    if (outcome->best.empty()) return Ok{};
    made.strategy = outcome->best.front().strategy;
    made.step_s = outcome->best.front().forecast.step_s;
    made.samples_per_s = outcome->best.front().forecast.samples_per_s;
    return Ok{};
  };
  const TwiceTheBandwidth faster(cost);
  WEFT_TRY_OK(add("bandwidth × 2", enumerate(problem, faster, few)));
  TrainingJob roomier = *problem.job;
  roomier.words.headroom = 1 - 2 * (1 - roomier.words.headroom);  // a negative headroom: more memory than there is
  if (roomier.words.max_memory) roomier.words.max_memory = *roomier.words.max_memory * 2;
  PlanProblem roomy = problem;
  roomy.job = std::make_shared<const TrainingJob>(std::move(roomier));
  WEFT_TRY_OK(add("memory × 2", enumerate(roomy, cost, few)));
  TrainingJob larger = *problem.job;
  larger.words.global_batch = 2 * problem.global_batch;
  WEFT_TRY(const PlanProblem twice, pose(std::move(larger)));
  WEFT_TRY_OK(add("batch × 2", enumerate(twice, cost, few)));
  return found;
}

}  // namespace weft
