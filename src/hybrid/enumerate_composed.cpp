// Lower bounds on all plans, and composition of those that may be among the fastest, each with the first set of modules to
// recompute that fits.
#include <algorithm>
#include <map>
#include <numeric>
#include <span>
#include <tuple>
#include <utility>

#include "hybrid/plan_enumeration.h"
#include "problem/parallel.h"

namespace weft {
namespace {

constexpr std::size_t kBatch = 8192;    // plans composed with one threshold, before it is updated
constexpr std::size_t kShapes = 64;     // shapes probed between two looks at the clock
constexpr double kKeep = 1.15;          // plans whose bound is at most this factor above the best time are composed
constexpr double kNearly = 1.02;        // by how much composition may overestimate memory
constexpr double kFirst = 0.01;         // share of the plans, of least bounds, that are composed before the others, …
constexpr std::size_t kFewFirst = 256;  // … at least

}  // namespace

HybridPlan PlanEnumeration::any_micro_batch(HybridPlan plan) {
  plan.micro_batches = plan.micro_batch = 0;
  return plan;
}

HybridPlan PlanEnumeration::with_set(std::size_t plan, std::size_t set) const {
  HybridPlan made = plans_[plan];
  made.recompute = sets_[set];
  return made;
}

void PlanEnumeration::compose_all() {
  number_kinds();
  outcome_.lower_bound_s = kNever;
  fastest_ = std::min(best_, wanted());
  bound_without_probes();
  std::vector<std::size_t> open(plans_.size());
  std::iota(open.begin(), open.end(), std::size_t{0});
  std::stable_sort(open.begin(), open.end(), [&](std::size_t a, std::size_t b) { return least_[a] < least_[b]; });
  const auto first = static_cast<std::ptrdiff_t>(
      std::min(open.size(), std::max(kFewFirst, static_cast<std::size_t>(kFirst * static_cast<double>(open.size())))));
  compose_group({open.begin(), open.begin() + first});
  compose_group({open.begin() + first, open.end()});
  outcome_.lower_bound_s = outcome_.lower_bound_s == kNever ? 0 : outcome_.lower_bound_s * kSafe;
}

void PlanEnumeration::prune(const char* reason, std::size_t sets) {
  const std::size_t count = sets > 0 ? sets : sets_.size();
  outcome_.counts.pruned[reason] += static_cast<std::int64_t>(count);
}

void PlanEnumeration::number_kinds() {
  std::map<HybridPlan, std::size_t> known;
  for (const HybridPlan& plan : plans_) {
    const auto [found, fresh] = known.try_emplace(any_micro_batch(plan), kinds_.size());
    kind_of_.push_back(found->second);
    if (!fresh) continue;
    Kind& kind = kinds_.emplace_back();
    kind.smallest = plan;
    kind.smallest.micro_batches *= plan.micro_batch;
    kind.smallest.micro_batch = 1;
    kind.smallest.recompute = sets_.back();
  }
}

void PlanEnumeration::measure_kinds(const std::vector<std::size_t>& kinds) {
  std::vector<HybridPlan> smallest;
  for (std::size_t kind : kinds) smallest.push_back(kinds_[kind].smallest);
  prepare(smallest);
  for_each_index(kinds.size(), options_.threads, 64, [&](std::size_t i) {
    if (interrupted()) return;
    Kind& kind = kinds_[kinds[i]];
    const std::optional<Composition> made = composer_.compose(kind.smallest, 1e-30);
    kind.measured = true;
    if (!made) return;
    kind.hopeless = !made->fits();
    kind.saved = static_cast<double>(made->saved);
    kind.fixed = static_cast<double>(made->memory) - kind.saved;
  });
}

void PlanEnumeration::prepare(std::vector<HybridPlan> plans) {
  const auto shape = [](const HybridPlan& plan) {
    const bool split = splits_backward(plan.schedule);
    return std::tuple(plan.tp, plan.cp, plan.ep, plan.micro_batch, plan.sequence_parallel, plan.recompute, plan.cp_mode,
                      split);
  };
  std::sort(plans.begin(), plans.end(), [&](const HybridPlan& a, const HybridPlan& b) { return shape(a) < shape(b); });
  plans.erase(std::unique(plans.begin(), plans.end(),
                          [&](const HybridPlan& a, const HybridPlan& b) { return shape(a) == shape(b); }),
              plans.end());
  for (std::size_t from = 0; from < plans.size() && !interrupted(); from += kShapes)
    composer_.prepare(std::span(plans).subspan(from, std::min(kShapes, plans.size() - from)), options_.threads);
}

void PlanEnumeration::bound_without_probes() {
  least_.assign(plans_.size(), 0);
  std::int32_t largest = 1;
  for (const HybridPlan& plan : plans_) largest = std::max(largest, plan.micro_batch);
  std::vector<HybridPlan> shapes;
  for (const HybridPlan& plan : plans_) shapes.push_back(Composer::relaxed(plan, largest));
  prepare(std::move(shapes));
  for_each_index(plans_.size(), options_.threads, 64, [&](std::size_t i) {
    if (!interrupted()) least_[i] = kSafe * composer_.bound(plans_[i], largest).value_or(0);
  });
}

void PlanEnumeration::compose_group(const std::vector<std::size_t>& group) {
  std::vector<std::size_t> kinds;
  for (std::size_t i : group)
    if (!too_slow(i) && !kinds_[kind_of_[i]].measured) kinds.push_back(kind_of_[i]);
  std::sort(kinds.begin(), kinds.end());
  kinds.erase(std::unique(kinds.begin(), kinds.end()), kinds.end());
  measure_kinds(kinds);
  std::map<std::int32_t, std::vector<std::size_t>> by_size;
  for (std::size_t i : group) by_size[plans_[i].micro_batch].push_back(i);
  for (const auto& [size, members] : by_size)
    for (std::size_t from = 0; from < members.size(); from += kBatch) {
      const std::vector<std::size_t> batch(
          members.begin() + static_cast<std::ptrdiff_t>(from),
          members.begin() + static_cast<std::ptrdiff_t>(std::min(members.size(), from + kBatch)));
      if (go_on() && !interrupted()) {
        compose_batch(batch);
      } else {
        for (std::size_t i : batch) bound_unseen(i);
      }
      report_progress(outcome_.counts.composed, static_cast<std::int64_t>(plans_.size()));
    }
}

bool PlanEnumeration::too_slow(std::size_t plan) const { return fastest_ != kNever && least_[plan] > fastest_ * kKeep; }

void PlanEnumeration::bound_unseen(std::size_t plan) {
  prune("no time");
  outcome_.lower_bound_s = std::min(outcome_.lower_bound_s, least_[plan] / kSafe);
}

void PlanEnumeration::compose_batch(const std::vector<std::size_t>& batch) {
  const auto budget = static_cast<double>(composer_.budget());
  std::vector<Bracket> open;
  for (std::size_t i : batch) {
    const Kind& kind = kinds_[kind_of_[i]];
    if (!composer_.composes(plans_[i]))
      prune("layers take turns");
    else if (too_slow(i))
      prune("bound");
    else if (kind.hopeless || kind.least(plans_[i]) > budget)
      prune("memory");
    else
      open.push_back({.plan = i, .too_large = std::max<std::size_t>(kind.first_set, 1) - 1, .fits = kind.first_set});
  }
  // First with the set that saves most, …
  compose_brackets(open, [](const Bracket& each) { return each.fits; });
  std::vector<Bracket> larger;
  for (Bracket& each : open) {
    if (!each.made && interrupted()) {
      bound_unseen(each.plan);
    } else if (!each.made) {
      prune("does not compile");
    } else if (each.made->fits()) {
      record(each);
    } else {
      each.too_large = each.fits;
      each.more = static_cast<double>(each.made->memory);
      larger.push_back(each);
    }
  }
  // … where it does not fit, with the one that saves least, and between them by interpolation.
  compose_brackets(larger, [&](const Bracket&) { return sets_.size() - 1; });
  open.clear();
  for (Bracket& each : larger) {
    Kind& kind = kinds_[kind_of_[each.plan]];
    if (!each.made || !each.made->fits() || each.too_large + 1 >= sets_.size()) {
      if (!each.made && interrupted()) {
        bound_unseen(each.plan);
        continue;
      }
      kind.hopeless = kind.hopeless || (each.made && !each.made->fits());
      if (each.made && static_cast<double>(each.made->memory) < kNearly * budget) nearly_fits(each.plan);
      prune("memory");
      continue;
    }
    each.fits = sets_.size() - 1;
    each.less = static_cast<double>(each.made->memory);
    open.push_back(each);
  }
  for (std::vector<Bracket> next; !open.empty(); open.swap(next), next.clear()) {
    const auto middle = [&](const Bracket& each) { return between(each, budget); };
    std::vector<Bracket> asked;
    for (Bracket& each : open) {
      if (each.fits - each.too_large > 1 && !interrupted()) {
        asked.push_back(each);
        continue;
      }
      kinds_[kind_of_[each.plan]].first_set = std::max(kinds_[kind_of_[each.plan]].first_set, each.too_large + 1);
      record(each);
    }
    std::vector<std::optional<Composition>> before;
    std::vector<std::size_t> middles;
    for (const Bracket& each : asked) before.push_back(each.made), middles.push_back(middle(each));
    compose_brackets(asked, middle);
    for (std::size_t i = 0; i < asked.size(); ++i) {
      Bracket& each = asked[i];
      const bool fits = each.made && each.made->fits();
      (fits ? each.fits : each.too_large) = middles[i];
      if (each.made) (fits ? each.less : each.more) = static_cast<double>(each.made->memory);
      if (!fits) each.made = before[i];
      next.push_back(each);
    }
  }
}

std::size_t PlanEnumeration::between(const Bracket& each, double budget) const {
  const auto saved = [&](std::size_t set) {
    return problem_.layers.recompute.sets[static_cast<std::size_t>(sets_[set])].saved;
  };
  const double share = each.more > each.less ? (budget - each.less) / (each.more - each.less) : 0;
  const double wanted = saved(each.fits) + share * (saved(each.too_large) - saved(each.fits));
  std::size_t set = each.too_large + 1;
  while (set + 1 < each.fits && saved(set) > wanted) ++set;
  return set;
}

template <class Set>
void PlanEnumeration::compose_brackets(std::vector<Bracket>& open, const Set& set) {
  std::vector<HybridPlan> plans;
  for (const Bracket& each : open) plans.push_back(with_set(each.plan, set(each)));
  prepare(plans);
  const double above = fastest_ == kNever ? 0 : fastest_ * kKeep;
  for_each_index(open.size(), options_.threads, 64, [&](std::size_t i) {
    open[i].made = interrupted() ? std::nullopt : composer_.compose(plans[i], above);
  });
}

void PlanEnumeration::record(const Bracket& each) {
  const std::size_t sets = sets_.size();
  if (each.fits > 0) prune("memory", each.fits);
  if (each.fits + 1 < sets) prune("recomputes more", sets - each.fits - 1);
  if (!allowed(with_set(each.plan, each.fits))) {
    prune("not allowed", 1);
    return;
  }
  const Composition& made = *each.made;
  outcome_.lower_bound_s = std::min(outcome_.lower_bound_s, relaxed_bound(each));
  if (made.step_s == 0) {
    prune("bound", 1);
    return;
  }
  ++outcome_.counts.composed;
  fastest_ = std::min(fastest_, made.step_s);
  candidates_.push_back({with_set(each.plan, each.fits), made});
}

double PlanEnumeration::relaxed_bound(const Bracket& each) {
  const double bound = each.made->bound_s;
  if (each.fits == 0 || each.fits != each.too_large + 1 || least_[each.plan] >= outcome_.lower_bound_s) return bound;
  HybridPlan none = plans_[each.plan];
  none.recompute = PlanRecompute::None;
  const HybridPlan fits = with_set(each.plan, each.fits), before = with_set(each.plan, each.too_large);
  prepare({before, none});
  return std::min(bound, composer_.bound_by_stage(fits, before, none).value_or(bound));
}

void PlanEnumeration::nearly_fits(std::size_t plan) {
  const std::optional<Composition> made = composer_.compose(with_set(plan, sets_.size() - 1));
  if (made && made->bound_s < outcome_.lower_bound_s) outcome_.bound_is_estimate = true;
}

}  // namespace weft
