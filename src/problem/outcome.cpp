#include "problem/outcome.h"

#include <algorithm>
#include <limits>

#include "base/check.h"
#include "problem/parallel.h"

namespace weft {
namespace {

// 1+62x2+1 has three.
int runs_of(const std::vector<std::int64_t>& counts) {
  int runs = counts.empty() ? 0 : 1;
  for (std::size_t i = 1; i < counts.size(); ++i) runs += counts[i] != counts[i - 1];
  return runs;
}

}  // namespace

int knobs_of(const Judged& judged, Abilities stack) {
  return judged.parallelism ? knobs_of(*judged.parallelism, stack) : std::numeric_limits<int>::max();
}

int knobs_of(const Parallelism& plan, Abilities stack) {
  constexpr int kNewCode = 3;
  int knobs = 0;
  for (const std::int64_t degree : {plan.tp, plan.cp, plan.pp, plan.dp, plan.ep, plan.vpp, plan.h, plan.w})
    knobs += degree > 1;
  knobs += plan.etp < plan.tp;
  knobs += plan.zero > 0;
  knobs += plan.fsdp < plan.dp;
  knobs += plan.tables;
  knobs += plan.tp > 1 && !plan.sequence_parallel;
  knobs += plan.cp > 1 && plan.cp_mode != ContextMode::Gather;
  knobs += plan.recompute != Recompute::None;
  knobs += runs_of(plan.recompute_layers);
  for (const Recomputed& each : plan.full) knobs += runs_of(each.layers);
  knobs += static_cast<int>(plan.full.size() + plan.offload.size());
  knobs += plan.schedule != "1f1b" && plan.schedule != "interleaved";
  knobs += runs_of(plan.stages);
  knobs += !plan.order.empty();
  return knobs + kNewCode * needed_by(plan).without(stack).count();
}

Parallelism recomputing_nothing(Parallelism plan) {
  plan.recompute = Recompute::None;
  plan.recompute_layers.clear();
  plan.full.clear();
  return plan;
}

const Judged& PlanOutcome::fastest() const {
  WEFT_CHECK(!best.empty());
  return *std::min_element(best.begin(), best.end(),
                           [](const Judged& a, const Judged& b) { return a.score() < b.score(); });
}

std::optional<double> PlanOutcome::gap() const {
  if (best.empty() || lower_bound_s <= 0 || beyond_bound) return std::nullopt;
  return std::max(0.0, fastest().forecast.step_s / lower_bound_s - 1);
}

void PlanOutcome::settle_order(std::size_t top, Abilities stack) {
  if (best.empty()) return;
  const auto knobs = [&](const Judged& judged) { return knobs_of(judged, stack); };
  std::stable_sort(best.begin(), best.end(), [](const Judged& a, const Judged& b) { return a.score() < b.score(); });
  // Of plans that differ only in what they recompute and where stages are cut, one within 1 % stands for the others: the
  // simplest, or the fastest of these. The fastest of all stays.
  const auto bare = [](const Judged& judged) {
    Parallelism plan = recomputing_nothing(*judged.parallelism);
    plan.stages.clear();
    return plan;
  };
  std::vector<Judged> distinct;
  for (std::size_t i = 0; i < best.size(); ++i) {
    const auto stands_for_it = [&](const Judged& other) {
      const bool simpler = knobs(other) < knobs(best[i]);
      const bool faster = knobs(other) == knobs(best[i]) && &other < &best[i];
      return (simpler || faster) && other.parallelism && other.forecast.step_s <= kTie * best[i].forecast.step_s &&
             bare(other) == bare(best[i]);
    };
    if (i == 0 || !best[i].parallelism || std::none_of(best.begin(), best.end(), stands_for_it))
      distinct.push_back(best[i]);
  }
  best = std::move(distinct);
  const double tie = kTie * best.front().forecast.step_s;
  auto simplest = best.begin();
  for (auto each = best.begin(); each != best.end() && each->forecast.step_s <= tie; ++each)
    if (knobs(*each) < knobs(*simplest)) simplest = each;
  std::rotate(best.begin(), simplest, simplest + 1);
  // Of two as good, both are shown.
  if (best.size() > top) best.resize(std::max<std::size_t>(top, simplest == best.begin() ? 1 : 2));
}

Status add_details(const PlanProblem& problem, const CostModel& cost, PlanOutcome& outcome, int threads) {
  std::vector<std::vector<Judged*>> plans;  // the same ones together
  const auto add = [&](Judged& judged) {
    if (judged.forecast.breakdown) return;
    const auto same = std::find_if(plans.begin(), plans.end(), [&](const std::vector<Judged*>& known) {
      return known.front()->strategy == judged.strategy && known.front()->tree == judged.tree;
    });
    (same == plans.end() ? plans.emplace_back() : *same).push_back(&judged);
  };
  for (Judged& each : outcome.best) add(each);
  for (Baseline& each : outcome.baselines)
    if (each.judged) add(*each.judged);
  const bool hurried = outcome.stopped_by == StoppedBy::Cancelled || outcome.stopped_by == StoppedBy::Time;
  if (hurried && !plans.empty()) plans.resize(1);
  std::vector<std::string> problems(plans.size());
  GraphCache graphs(4);
  for_each_index(plans.size(), threads, 1, [&](std::size_t i) {
    Result<StrategyChoice> choice = choice_of(*problem.job, *plans[i].front());
    Result<Judged> judged =
        choice.ok() ? judge_strategy(problem, cost, std::move(choice).value(), &graphs, Detail::WhereTimeGoes)
                    : Result<Judged>(choice.error());
    if (!judged.ok())
      problems[i] = judged.error().message;
    else
      for (Judged* each : plans[i]) each->forecast = judged->forecast;
  });
  for (const std::string& problem_of_one : problems)
    if (!problem_of_one.empty()) return error("{}", problem_of_one);
  return Ok{};
}

}  // namespace weft
