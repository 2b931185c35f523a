// Plans that recompute as little as memory allows, stage by stage (recompute_by_stage.h).
#include <algorithm>
#include <utility>

#include "hybrid/plan_enumeration.h"
#include "problem/parallel.h"

namespace weft {
namespace {

constexpr double kLook = 1.1;  // factor above the fastest plan up to which others may come first by recomputing less

}  // namespace

std::optional<PlanEnumeration::Hope> PlanEnumeration::composed_hope(const Parallelism& chain, double simulated_s) {
  std::vector<HybridPlan> plans;
  for (const Parallelism& dropped : with_links_dropped(problem_, chain)) {
    make_known(dropped);
    const std::optional<HybridPlan> plan = hybrid_plan_of(dropped, problem_.layers);
    if (!plan) return std::nullopt;
    plans.push_back(*plan);
  }
  prepare(plans);
  Hope hope{.chain = chain};
  std::vector<double> times;
  for (const HybridPlan& plan : plans) {
    const std::optional<Composition> made = composer_.compose(plan);
    if (!made) return std::nullopt;
    times.push_back(made->step_s);
    std::vector<double>& room = hope.room.emplace_back();
    for (const std::int64_t bytes : composer_.memory_by_rank(plan))
      room.push_back(static_cast<double>(composer_.budget() - bytes));
  }
  const std::vector<double> shares = dropped_shares(hope.room);
  double gained = 0;
  for (std::size_t link = 0; link < shares.size(); ++link) gained += shares[link] * (times[link] - times[link + 1]);
  hope.expected = simulated_s > 0 ? simulated_s * (1 - gained / times.front())
                                  : (times.front() - gained) * expectation_.factor(plans.front());
  return hope;
}

std::vector<PlanEnumeration::Hope> PlanEnumeration::hopes_of_recomputing_less() {
  struct Known {
    double time = 0, simulated = 0;
    Parallelism plan;
  };
  std::map<std::string, Known> fastest;  // of plans that differ only in what they recompute
  const auto consider = [&](const Parallelism& plan, double expected, double simulated) {
    if (expected > kLook * best_) return;
    const std::string name = name_of(recomputing_nothing(plan));
    if (by_stage_.contains(name)) return;
    Known& known = fastest[name];
    if (known.time > 0 && known.time <= expected) return;
    known = {expected, simulated, plan};
  };
  for (const Judged& each : simulated_)
    if (each.parallelism && !alike_of_.contains(each.strategy))
      consider(*each.parallelism, each.forecast.step_s, each.forecast.step_s);
  for (const Candidate& each : candidates_)
    if (!each.done) consider(trial_of(each.plan).parallelism, each.made.step_s * expectation_.factor(each.plan), 0);
  std::vector<Hope> hopes;
  for (const auto& each : fastest) {
    const std::string& name = each.first;
    const Known& known = each.second;
    if (known.plan.recompute == Recompute::None && known.plan.full.empty()) continue;
    const auto add = [&](const Parallelism& chain) {
      std::optional<Hope> hope = composed_hope(chain, known.simulated);
      if (!hope && known.simulated > 0) hope = Hope{.expected = known.time, .chain = chain};
      if (!hope || !space_.allow(chain) || hope->expected >= best_ * (1 - kGain)) return false;
      hope->plan = name;
      hope->simulated = known.plan;
      hopes.push_back(std::move(*hope));
      return true;
    };
    const std::optional<Parallelism> longer = layers_through_operators(problem_, known.plan);
    if (!longer || !add(*longer)) add(known.plan);
  }
  std::stable_sort(hopes.begin(), hopes.end(), [](const Hope& a, const Hope& b) { return a.expected < b.expected; });
  return hopes;
}

void PlanEnumeration::recompute_less() {
  for (int fruitless = 0;
       fruitless < kPatience && go_on() && !simulated_.empty() && outcome_.counts.simulated < most_simulations();) {
    const double before = best_;
    std::vector<Hope> hopes = hopes_of_recomputing_less();
    std::erase_if(hopes, [&, unknown = std::size_t{0}](const Hope& each) mutable {
      return each.room.empty() && (left_to_measure_ == 0 || ++unknown > left_to_measure_);
    });
    if (hopes.empty()) return;
    hopes.resize(std::min(hopes.size(), kRound));
    std::vector<std::optional<Parallelism>> made(hopes.size());
    for_each_index(hopes.size(), options_.threads, 1, [&](std::size_t i) {
      if (interrupted()) return;
      made[i] = recompute_by_stage(problem_, hopes[i].chain, hopes[i].room, &graphs_, [&] { return interrupted(); });
      if (made[i] && !space_.allow(*made[i])) made[i] = alike_in_all_stages(problem_, *made[i]);
    });
    std::vector<Trial> trials;
    for (std::size_t i = 0; i < hopes.size(); ++i) {
      by_stage_.insert(hopes[i].plan);
      left_to_measure_ -= hopes[i].room.empty() ? 1 : 0;
      if (!made[i] || !space_.allow(*made[i]) || tried_.contains(name_of(*made[i]))) continue;
      alike_of_.emplace(name_of(*made[i]), hopes[i].simulated);
      trials.push_back({*made[i]});
    }
    simulate(trials);
    fruitless = best_ < before * (1 - kGain) ? 0 : fruitless + 1;
  }
}

}  // namespace weft
