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

std::vector<std::vector<HybridPlan>> PlanEnumeration::usual_plans(const std::vector<BaselineRule>& rules) const {
  std::vector<PlanRecompute> named =
      composed_ ? std::vector{PlanRecompute::None, PlanRecompute::Selective, PlanRecompute::Op, PlanRecompute::Full}
                : sets_;
  if (composed_ && !space_.recompute.empty())
    std::erase_if(named,
                  [&](PlanRecompute each) { return std::find(sets_.begin(), sets_.end(), each) == sets_.end(); });
  std::vector<std::vector<HybridPlan>> usual(rules.size());
  for (HybridPlan plan : plans_)
    for (const PlanRecompute each : named) {
      plan.recompute = each;
      for (std::size_t r = 0; r < rules.size(); ++r)
        if (rules[r].follows(plan) && allowed(plan)) usual[r].push_back(plan);
    }
  for (std::size_t r = 0; r < rules.size(); ++r)
    std::stable_sort(usual[r].begin(), usual[r].end(),
                     [&](const HybridPlan& a, const HybridPlan& b) { return rules[r].rank(a) < rules[r].rank(b); });
  return usual;
}

void PlanEnumeration::simulate_baselines() {
  const std::vector<BaselineRule> rules = baseline_rules(problem_, plans_);
  const std::vector<std::vector<HybridPlan>> members = usual_plans(rules);
  std::vector<HybridPlan> shapes;
  for (const std::vector<HybridPlan>& each : members) shapes.insert(shapes.end(), each.begin(), each.end());
  if (composed_ && !cancelled()) composer_.prepare(shapes, options_.threads);  // however little time there is
  std::vector<Trial> chosen;
  std::vector<std::string> names(rules.size());
  std::vector<char> too_large(rules.size(), 0);
  for (std::size_t r = 0; r < rules.size(); ++r) {
    const std::optional<HybridPlan> found = composed_ ? choose(rules[r], members[r]) : most_usual(rules[r], members[r]);
    if (!found) continue;
    if (composed_ &&
        static_cast<double>(*composer_.memory(*found)) > kSurely * static_cast<double>(composer_.budget())) {
      too_large[r] = 1;
      continue;
    }
    Trial trial = trial_of(*found);
    names[r] = name_of(trial.parallelism);
    if (std::find(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(r), names[r]) ==
        names.begin() + static_cast<std::ptrdiff_t>(r))
      chosen.push_back(std::move(trial));
  }
  simulate(chosen, true);
  for (std::size_t r = 0; r < rules.size(); ++r) {
    Baseline baseline{rules[r].name, rules[r].description, {}, {}};
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
  return options_.space.constraints.empty() ? rule.why_none : "not among what was asked for";
}

std::optional<HybridPlan> PlanEnumeration::choose(const BaselineRule& rule,
                                                  const std::vector<HybridPlan>& members) const {
  std::optional<HybridPlan> found, smallest;
  double fastest = kNever;
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  for (const HybridPlan& plan : members) {
    if (found && rule.rank(plan) > rule.rank(*found)) break;
    const std::optional<Composition> made = composer_.compose(plan);
    if (!made) continue;
    if (made->memory < least) least = made->memory, smallest = plan;
    if (!made->fits() || made->step_s >= fastest) continue;
    fastest = made->step_s, found = plan;
  }
  return found ? found : smallest;
}

std::optional<HybridPlan> PlanEnumeration::most_usual(const BaselineRule& rule,
                                                      const std::vector<HybridPlan>& members) {
  const auto found = std::min_element(members.begin(), members.end(), [&](const HybridPlan& a, const HybridPlan& b) {
    const auto key = [&](const HybridPlan& plan) {
      return std::tuple(rule.rank(plan), plan.recompute, -plan.micro_batch);
    };
    return key(a) < key(b);
  });
  return found == members.end() ? std::nullopt : std::optional(*found);
}

}  // namespace weft
