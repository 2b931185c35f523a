// What good engineers would run, simulated before anything else.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <tuple>

#include "hybrid/plan_enumeration.h"

namespace weft {
namespace {

constexpr double kSurely = 1.1;  // a plan composed to need this factor more memory than available is hopeless

}  // namespace

std::vector<HybridPlan> PlanEnumeration::usual_plans() const {
  std::vector<HybridPlan> usual;
  std::vector<PlanRecompute> named =
      composed_ ? std::vector{PlanRecompute::None, PlanRecompute::Selective, PlanRecompute::Op, PlanRecompute::Full}
                : sets_;
  if (composed_ && !space_.recompute.empty())
    std::erase_if(named,
                  [&](PlanRecompute each) { return std::find(sets_.begin(), sets_.end(), each) == sets_.end(); });
  for (HybridPlan plan : plans_) {
    if (plan.cp > 1 || plan.schedule != PlanSchedule::OneForwardOneBackward || plan.split != StageSplit::Even) continue;
    for (const PlanRecompute each : named) {
      plan.recompute = each;
      if (allowed(plan)) usual.push_back(plan);
    }
  }
  return usual;
}

void PlanEnumeration::simulate_baselines() {
  const std::vector<BaselineRule> rules = baseline_rules(problem_);
  const std::vector<HybridPlan> usual = usual_plans();
  std::vector<std::vector<std::size_t>> members;
  std::vector<HybridPlan> shapes;
  for (const BaselineRule& rule : rules) {
    members.push_back(rule.members(usual));
    for (std::size_t i : members.back()) shapes.push_back(usual[i]);
  }
  if (composed_ && !cancelled()) composer_.prepare(shapes, options_.threads);  // however little time there is
  std::vector<Trial> chosen;
  std::vector<std::string> names(rules.size());
  std::vector<char> too_large(rules.size(), 0);
  for (std::size_t r = 0; r < rules.size(); ++r) {
    const std::optional<std::size_t> found =
        composed_ ? choose(rules[r], usual, members[r]) : most_usual(usual, members[r]);
    if (!found) continue;
    if (composed_ &&
        static_cast<double>(*composer_.memory(usual[*found])) > kSurely * static_cast<double>(composer_.budget())) {
      too_large[r] = 1;
      continue;
    }
    Trial trial = trial_of(usual[*found]);
    names[r] = name_of(trial.parallelism);
    if (std::find(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(r), names[r]) ==
        names.begin() + static_cast<std::ptrdiff_t>(r))
      chosen.push_back(std::move(trial));
  }
  simulate(chosen, true);
  for (std::size_t r = 0; r < rules.size(); ++r) {
    Baseline baseline{std::string(rules[r].name), std::string(rules[r].description), {}, {}};
    const auto found = tried_.find(names[r]);
    if (names[r].empty()) {
      baseline.why_not = too_large[r] ? "out of memory" : members[r].empty() ? why_empty(rules[r]) : "does not compile";
    } else if (found == tried_.end()) {
      baseline.why_not = "not simulated: stopped before";
    } else if (found->second != Found::Fits) {
      baseline.why_not = found->second == Found::TooLarge ? "out of memory" : "does not compile";
    } else {
      for (const Judged& judged : simulated_)
        if (judged.strategy == names[r]) baseline.judged = judged;
    }
    outcome_.baselines.push_back(std::move(baseline));
  }
}

std::string PlanEnumeration::why_empty(const BaselineRule& rule) const {
  if (problem_.global_batch % problem_.devices != 0 && rule.best)
    return fmt::format("{} devices do not divide {} samples", problem_.devices, problem_.global_batch);
  if (!options_.space.constraints.empty()) return "not among what was asked for";
  return "no such plan";
}

std::optional<std::size_t> PlanEnumeration::choose(const BaselineRule& rule, const std::vector<HybridPlan>& plans,
                                                   const std::vector<std::size_t>& members) const {
  std::optional<std::size_t> found, smallest;
  double fastest = kNever;
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  for (std::size_t i : members) {
    const std::optional<Composition> made = composer_.compose(plans[i]);
    if (!made) continue;
    if (made->memory < least) least = made->memory, smallest = i;
    if (!made->fits() || made->step_s >= fastest) continue;
    found = i;
    if (!rule.best) break;
    fastest = made->step_s;
  }
  return found ? found : smallest;
}

std::optional<std::size_t> PlanEnumeration::most_usual(const std::vector<HybridPlan>& plans,
                                                       const std::vector<std::size_t>& members) {
  const auto better = [&](std::size_t a, std::size_t b) {
    const auto key = [](const HybridPlan& plan) { return std::tuple(plan.pp, plan.recompute, -plan.micro_batch); };
    return key(plans[a]) < key(plans[b]);
  };
  const auto found = std::min_element(members.begin(), members.end(), better);
  return found == members.end() ? std::nullopt : std::optional(*found);
}

}  // namespace weft
