#include "hybrid/enumerate.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <set>
#include <tuple>
#include <utility>

#include "hybrid/compose_spread.h"
#include "hybrid/neighbours.h"
#include "hybrid/plan_enumeration.h"
#include "problem/parallel.h"

namespace weft {
namespace {

constexpr std::int64_t kSimulations = 40;  // until it is given up that a plan fits; twice as many without composition
constexpr double kClose = 1.03;            // plans within this factor of the fastest may lead to a faster one
constexpr std::int64_t kNeighbours = 16;   // simulated because they cannot be composed
constexpr std::int64_t kPricedSlowly = 8192;  // devices that take so long to price that recording costs little
constexpr std::size_t kMostStages = 4096;     // ways to cut stages that are tried besides those of the space

// What a plan recomputes, in however many layers.
RecomputeSet modules_of(const Parallelism& plan) {
  RecomputeSet set{plan.recompute};
  for (const Recomputed& each : plan.full) set.full.push_back(each.modules);
  return set;
}

bool contains(const std::vector<RecomputeSet>& sets, const RecomputeSet& wanted) {
  return std::any_of(sets.begin(), sets.end(), [&](const RecomputeSet& each) { return each.same_modules(wanted); });
}

}  // namespace

PlanEnumeration::PlanEnumeration(const PlanProblem& problem, const CostModel& cost, const EnumerateOptions& options)
    : posed_(problem),
      problem_(problem),
      cost_(cost),
      options_(options),
      clock_(options.budget),
      composer_(problem_, cost),
      composed_(problem.regular),
      space_(
          opened(composed_ ? options.space : without_composition(options.space), options.space.constraints, problem)),
      expectation_(problem.model().tied_embeddings) {}

Result<PlanOutcome> PlanEnumeration::run() {
  sets_ = recomputations(problem_, space_);
  if (sets_.empty()) return why_all_are_excluded(space_);
  SpaceOptions first = space_;
  first.recompute = {sets_.front()};
  HybridSpace space = enumerate_space(problem_, first);
  plans_ = std::move(space.plans);
  const auto sets = static_cast<std::int64_t>(sets_.size());
  outcome_.dimensions = dimensions_of(problem_, space_);
  outcome_.counts.considered = static_cast<std::int64_t>(plans_.size()) * sets + space.left_out + space.not_allowed;
  if (space.left_out > 0) outcome_.counts.pruned["does not divide"] = space.left_out;
  if (space.not_allowed > 0) outcome_.counts.pruned["not allowed"] = space.not_allowed;
  if (plans_.empty() && space.not_allowed > 0) return why_all_are_excluded(first);
  if (plans_.empty())
    return error(
        "no plan: {} samples on {} devices; no data-parallel degree divides both, with the {} layers that pipelines "
        "are cut from: choose a --global-batch with more divisors in common with {}",
        problem_.global_batch, problem_.devices, problem_.layers.count(), problem_.devices);
  leave_out_sets_not_allowed();
  if (options_.baselines) simulate_baselines();
  if (go_on()) {
    if (composed_) {
      compose_all();
      simulate_promising(3 * kPatience);
      if (best_ < kClose * wanted() || wanted() == kNever) {
        recompute_less();
        improve();
        simulate_simpler();
        if (simulated_.empty()) simulate_smallest();
      }
      // Plans that are not composed: as many as are usual. There is no bound on the others.
      if (!simulate_those([&](std::size_t plan) { return !composer_.composes(plans_[plan]); }))
        outcome_.lower_bound_s = 0;
    } else {
      simulate_those([](std::size_t) { return true; });
    }
  }
  if (simulated_.empty() && !outcome_.closest && !problem_of_first_.empty()) return Error{problem_of_first_};
  finish();
  return std::move(outcome_);
}

void PlanEnumeration::leave_out_sets_not_allowed() {
  constexpr std::size_t kSample = 64;
  const std::size_t step = std::max<std::size_t>(1, plans_.size() / kSample);
  const std::size_t before = sets_.size();
  std::erase_if(sets_, [&](PlanRecompute set) {
    HybridPlan plan;
    for (std::size_t i = 0; i < plans_.size(); i += step) {
      plan = plans_[i];
      plan.recompute = set;
      if (allowed(plan)) return false;
    }
    return true;
  });
  if (sets_.size() < before) prune("not allowed", (before - sets_.size()) * plans_.size());
}

Error PlanEnumeration::why_all_are_excluded(SpaceOptions options) const {
  const Constraints constraints = std::exchange(options.constraints, {});
  std::vector<Parallelism> all;
  for (const HybridPlan& plan : enumerate_space(problem_, options).plans)
    all.push_back(parallelism_of(plan, problem_.layers));
  if (all.empty() || constraints.empty())
    return error(
        "no plan: the trainer can express none of those that divide; choose another batch, or leave --for out");
  return why_nothing(constraints, all, problem_);
}

SpaceOptions PlanEnumeration::without_composition(SpaceOptions options) const {
  options.schedules = {PlanSchedule::OneForwardOneBackward};
  options.zero = {0, 1, 3};
  options.recompute = {PlanRecompute::None};
  if (problem_.layers.count() > 0) options.recompute.push_back(PlanRecompute::Full);  // layer by layer
  options.context = {ContextMode::Gather};
  options.least_context = problem_.model().seq;
  options.uneven_stages = options.hybrid_sharding = false;
  const bool tokens = problem_.model().counts_tokens && problem_.model().seq > 0;
  options.most_micro_batch = tokens ? std::max<std::int64_t>(16, 65536 / problem_.model().seq) : 512;
  return options;
}

bool PlanEnumeration::go_on() {
  const StoppedBy reason = clock_.after(outcome_.counts.simulated);
  if (reason != StoppedBy::Itself) outcome_.stopped_by = reason;
  return reason == StoppedBy::Itself;
}

void PlanEnumeration::report_progress(std::int64_t done, std::int64_t of) const {
  if (options_.progress) options_.progress({done, of, best_ == kNever ? 0 : best_});
}

void PlanEnumeration::simulate(const std::vector<Trial>& trials, bool surely) {
  std::vector<std::optional<Judged>> judged(trials.size());
  std::vector<std::string> problems(trials.size());
  std::vector<char> left_out(trials.size(), 0);
  const Detail detail = problem_.devices > kPricedSlowly ? Detail::WhereTimeGoes : Detail::None;
  for_each_index(trials.size(), options_.threads, 1, [&](std::size_t i) {
    if (surely ? cancelled() : i > 0 && interrupted()) {
      left_out[i] = 1;
      return;
    }
    Result<Judged> result = judge_strategy(problem_, cost_, choose_strategy(trials[i].parallelism), &graphs_, detail);
    if (result.ok())
      judged[i] = std::move(result).value();
    else
      problems[i] = result.error().message;
  });
  for (std::size_t i = 0; i < trials.size(); ++i) {
    if (left_out[i]) continue;
    Found& found = tried_[name_of(trials[i].parallelism)];
    ++outcome_.counts.simulated;
    if (!judged[i]) {
      found = Found::DoesNotCompile;
      if (problem_of_first_.empty()) problem_of_first_ = problems[i];
      continue;
    }
    if (trials[i].plan && composed_) learn(*trials[i].plan, judged[i]->forecast.step_s);
    if (judged[i]->score().fits()) {
      found = Found::Fits;
      best_ = std::min(best_, judged[i]->forecast.step_s);
      simulated_.push_back(std::move(*judged[i]));
      continue;
    }
    found = Found::TooLarge;
    if (trials[i].plan && composed_) recompute_more(*trials[i].plan);
    if (!outcome_.closest || judged[i]->score() < outcome_.closest->score()) outcome_.closest = std::move(judged[i]);
  }
}

void PlanEnumeration::learn(const HybridPlan& plan, double simulated_s) {
  const std::optional<Composition> made = composer_.compose(plan);
  if (!made || made->step_s <= 0) return;
  expectation_.learn(plan, made->step_s, simulated_s);
  if (kSafe * made->bound_s > simulated_s) outcome_.bound_is_estimate = true;
}

void PlanEnumeration::recompute_more(HybridPlan plan) {
  auto at = std::find(sets_.begin(), sets_.end(), plan.recompute);
  if (at == sets_.end()) return;
  do {
    if (++at == sets_.end()) return;
    plan.recompute = *at;
  } while (!allowed(plan));
  add_composed({plan});
}

std::vector<HybridPlan> PlanEnumeration::add_composed(const std::vector<HybridPlan>& plans) {
  constexpr double kNearly = 1.06;  // by how much composition may overestimate memory
  prepare(plans);
  std::vector<HybridPlan> nearly;
  for (const HybridPlan& plan : plans) {
    const std::optional<Composition> made = composer_.compose(plan);
    if (!made) continue;
    if (made->fits())
      candidates_.push_back({plan, *made});
    else if (static_cast<double>(made->memory) < kNearly * static_cast<double>(made->budget) &&
             made->step_s * expectation_.factor(plan) < best_)
      nearly.push_back(plan);
  }
  return nearly;
}

std::int64_t PlanEnumeration::usual_simulations_of_all() const {
  constexpr std::int64_t kFew = 128;  // devices
  return problem_.regular ? 2 * kSimulations
                          : std::clamp<std::int64_t>(2 * kSimulations * kFew / problem_.devices, 10, 2 * kSimulations);
}

void PlanEnumeration::simulate_promising(int patience) {
  // Where composition is wrong about memory, not every candidate is tried.
  const auto none_fits = [&] { return simulated_.empty() && outcome_.counts.simulated >= kSimulations; };
  for (int fruitless = 0; fruitless < patience && go_on() && !none_fits();) {
    const std::vector<Trial> round = next_round();
    if (round.empty()) break;
    const double before = best_;
    simulate(round);
    fruitless = best_ < before * (1 - kGain) ? 0 : fruitless + 1;
    report_progress(outcome_.counts.simulated, 0);
  }
}

double PlanEnumeration::spread_of(const HybridPlan& plan) const {
  return composition_spread(composition_kind(problem_, plan)).above / 2;
}

std::vector<PlanEnumeration::Trial> PlanEnumeration::next_round() {
  // Even with all their doubt, slower ones are not worth a look.
  constexpr double kLook = 1.3;
  std::vector<double> times;
  for (const Judged& judged : simulated_) times.push_back(judged.forecast.step_s);
  std::sort(times.begin(), times.end());
  const double last = times.size() < options_.top ? kNever : times[options_.top - 1];
  struct Hoped {
    double expected;
    std::size_t candidate;
  };
  std::vector<Hoped> hopes;
  const double least = times.empty() ? fastest_ : times.front();
  for (std::size_t i = 0; i < candidates_.size(); ++i) {
    Candidate& each = candidates_[i];
    if (each.done) continue;
    if (last != kNever && each.made.step_s > kLook * last) continue;
    if (last == kNever && each.made.step_s > kLook * least && candidates_.size() > 64) continue;
    const double expected = each.made.step_s * expectation_.factor(each.plan);
    const double hoped = expected * (1 - expectation_.doubt(each.plan, spread_of(each.plan)));
    if (hoped < wanted() && (expected < last || hoped < least * (1 - kGain))) hopes.push_back({hoped, i});
  }
  std::stable_sort(hopes.begin(), hopes.end(), [](const Hoped& a, const Hoped& b) { return a.expected < b.expected; });
  const std::int64_t most = most_simulations();
  std::vector<Trial> round;
  for (const Hoped& hope : hopes) {
    if (round.size() == kRound || outcome_.counts.simulated + static_cast<std::int64_t>(round.size()) >= most) break;
    candidates_[hope.candidate].done = true;
    Trial trial = trial_of(candidates_[hope.candidate].plan);
    if (!tried(trial)) round.push_back(std::move(trial));
  }
  return round;
}

std::int64_t PlanEnumeration::most_simulations() const {
  constexpr std::int64_t kMany = 16384, kLeast = 6;
  if (options_.budget.evaluations > 0) return options_.budget.evaluations;
  if (problem_.devices <= kMany) return std::numeric_limits<std::int64_t>::max();
  return std::max(kLeast, kSimulations * kMany / problem_.devices);
}

std::int64_t PlanEnumeration::most_neighbours() const {
  return std::clamp<std::int64_t>(kNeighbours * 512 / problem_.devices, 4, 4 * kNeighbours);
}

void PlanEnumeration::improve() {
  constexpr int kMostFruitless = 3;  // starts that lead to none, one after the other
  std::int64_t left = most_neighbours();
  std::set<std::string> starts;
  for (int fruitless = 0; fruitless < kMostFruitless && go_on() && !simulated_.empty();) {
    // The fastest that was no start yet; what recomputes by stage stands for the plan that it came from.
    const Judged* start = nullptr;
    const auto plan_of = [&](const Judged& judged) -> const Parallelism& {
      const auto alike = alike_of_.find(judged.strategy);
      return alike == alike_of_.end() ? *judged.parallelism : alike->second;
    };
    for (const Judged& each : simulated_)
      if (each.forecast.step_s <= kClose * best_ && !starts.contains(name_of(recomputing_nothing(plan_of(each)))) &&
          (!start || each.score() < start->score()))
        start = &each;
    if (!start) return;
    const Parallelism from = plan_of(*start);
    starts.insert(name_of(recomputing_nothing(from)));
    const double before = best_;
    std::vector<HybridPlan> composable;
    std::vector<Trial> others;
    for (Parallelism& each : one_knob_changed(problem_, space_, from)) {
      if (tried_.contains(name_of(each))) continue;
      make_known(each);
      if (const std::optional<HybridPlan> plan = hybrid_plan_of(each, problem_.layers))
        composable.push_back(*plan);
      else
        others.push_back({std::move(each)});
    }
    // First those that keep something elsewhere. What they recompute is otherwise left to recompute_less.
    const auto alike = [&](const Trial& other, bool wherever) {
      Parallelism one = recomputing_nothing(other.parallelism), start_one = recomputing_nothing(from);
      if (wherever) one.offload.clear(), start_one.offload.clear();
      return one == start_one;
    };
    std::erase_if(others, [&](const Trial& other) { return alike(other, false); });
    std::stable_partition(others.begin(), others.end(), [&](const Trial& other) { return alike(other, true); });
    for (const HybridPlan& nearly : add_composed(composable)) others.insert(others.begin(), trial_of(nearly));
    simulate_promising(kPatience);
    std::vector<Trial> close = closest_of(composable, from);
    others.insert(others.begin(), std::make_move_iterator(close.begin()), std::make_move_iterator(close.end()));
    for (std::size_t at = 0;
         at < others.size() && left > 0 && outcome_.counts.simulated < most_simulations() && go_on();
         at += kRound, left -= kRound)
      simulate({others.begin() + static_cast<std::ptrdiff_t>(at),
                others.begin() + static_cast<std::ptrdiff_t>(std::min(others.size(), at + kRound))});
    recompute_less();
    fruitless = best_ < before * (1 - kGain) ? 0 : fruitless + 1;
  }
}

void PlanEnumeration::simulate_simpler() {
  constexpr int kRounds = 3;
  const Abilities can = problem_.stack().can.value;
  const auto rank = [&](const Parallelism& plan, double seconds) { return std::pair(knobs_of(plan, can), seconds); };
  for (int i = 0; i < kRounds && go_on() && !simulated_.empty(); ++i) {
    std::pair simplest(std::numeric_limits<int>::max(), kNever);
    for (const Judged& each : simulated_)
      if (each.forecast.step_s <= kTie * best_)
        simplest = std::min(simplest, rank(*each.parallelism, each.forecast.step_s));
    std::vector<std::pair<std::pair<int, double>, std::size_t>> simpler;
    for (std::size_t c = 0; c < candidates_.size(); ++c) {
      const Candidate& each = candidates_[c];
      const double expected = each.made.step_s * expectation_.factor(each.plan);
      if (each.done || expected > kTie * best_) continue;
      const auto own = rank(parallelism_of(each.plan, problem_.layers), expected);
      if (own < simplest) simpler.emplace_back(own, c);
    }
    std::sort(simpler.begin(), simpler.end());
    std::vector<Trial> round;
    for (const auto& [own, c] : simpler) {
      if (round.size() == kRound || outcome_.counts.simulated + std::ssize(round) >= most_simulations()) break;
      candidates_[c].done = true;
      if (Trial trial = trial_of(candidates_[c].plan); !tried(trial)) round.push_back(std::move(trial));
    }
    if (round.empty()) return;
    simulate(round);
  }
}

std::vector<PlanEnumeration::Trial> PlanEnumeration::closest_of(const std::vector<HybridPlan>& plans,
                                                                const Parallelism& start) const {
  constexpr double kClose = 1.02;
  const std::optional<HybridPlan> known = hybrid_plan_of(start, problem_.layers);
  const std::optional<Composition> start_made = known ? composer_.compose(*known) : std::nullopt;
  if (!start_made) return {};
  std::vector<std::pair<double, std::size_t>> times;
  for (std::size_t i = 0; i < plans.size(); ++i) {
    const std::optional<Composition> made = composer_.compose(plans[i]);
    if (!made || !made->fits() || tried(trial_of(plans[i]))) continue;
    if (made->step_s < kClose * start_made->step_s) times.emplace_back(made->step_s, i);
  }
  std::sort(times.begin(), times.end());
  std::vector<Trial> closest;
  for (const auto& [time, i] : times) closest.push_back(trial_of(plans[i]));
  return closest;
}

void PlanEnumeration::make_known(const Parallelism& parallelism) {
  std::vector<RecomputeSet>& sets = problem_.layers.recompute.sets;
  const RecomputeSet wanted = modules_of(parallelism);
  if (!contains(sets, wanted) && sets.size() < std::numeric_limits<std::uint8_t>::max()) sets.push_back(wanted);
  auto& stages = problem_.layers.other_stages;
  if (!parallelism.stages.empty() && !hybrid_plan_of(parallelism, problem_.layers) && stages.size() < kMostStages &&
      std::find(stages.begin(), stages.end(), parallelism.stages) == stages.end())
    stages.push_back(parallelism.stages);
}

void PlanEnumeration::simulate_smallest() {
  std::vector<std::pair<std::int64_t, std::size_t>> needs;
  std::vector<std::size_t> all(kinds_.size());
  std::iota(all.begin(), all.end(), std::size_t{0});
  measure_kinds(all);
  for (std::size_t i : all)
    if (const std::optional<std::int64_t> memory = composer_.memory(kinds_[i].smallest);
        memory && allowed(kinds_[i].smallest))
      needs.emplace_back(*memory, i);
  std::sort(needs.begin(), needs.end());
  std::vector<Trial> least;
  for (std::size_t i = 0; i < needs.size() && least.size() < kRound; ++i)
    if (Trial trial = trial_of(kinds_[needs[i].second].smallest); !tried(trial)) least.push_back(std::move(trial));
  if (go_on()) simulate(least);
}

template <class Keep>
bool PlanEnumeration::simulate_those(const Keep& keep) {
  std::vector<Trial> all;
  for (std::size_t i = 0; i < plans_.size(); ++i)
    for (std::size_t set = 0; set < sets_.size() && keep(i); ++set)
      if (Trial trial = trial_of(with_set(i, set)); !tried(trial) && space_.allow(trial.parallelism))
        all.push_back(std::move(trial));
  // Plans that split less and recompute less come first.
  std::stable_sort(all.begin(), all.end(), [&](const Trial& a, const Trial& b) {
    const auto key = [](const HybridPlan& plan) {
      return std::tuple(plan.tp * plan.pp * plan.cp, plan.recompute, -plan.micro_batch);
    };
    return key(*a.plan) < key(*b.plan);
  });
  const std::int64_t most = options_.budget.evaluations > 0 ? options_.budget.evaluations
                            : options_.budget.seconds > 0   ? std::numeric_limits<std::int64_t>::max()
                                                            : usual_simulations_of_all();
  for (std::size_t from = 0; from < all.size(); from += kRound) {
    if (!go_on()) return false;
    if (outcome_.counts.simulated >= most) {
      outcome_.stopped_by = StoppedBy::Evaluations;
      return false;
    }
    const std::size_t left = static_cast<std::size_t>(most - outcome_.counts.simulated);
    const std::size_t to = std::min({all.size(), from + kRound, from + std::min(left, kRound)});
    simulate({all.begin() + static_cast<std::ptrdiff_t>(from), all.begin() + static_cast<std::ptrdiff_t>(to)});
    report_progress(outcome_.counts.simulated, std::min<std::int64_t>(most, static_cast<std::int64_t>(all.size())));
  }
  return true;
}

void PlanEnumeration::finish() {
  set_front();
  leave_out_other_orders();
  outcome_.best = std::move(simulated_);
  outcome_.settle_order(options_.top, problem_.stack().can.value);
  if (!outcome_.best.empty() && composed_)
    if (const auto plan = hybrid_plan_of(*outcome_.fastest().parallelism, problem_.layers)) {
      add_composed({*plan});
      if (const auto made = composer_.compose(*plan))
        outcome_.composition_error = made->step_s / outcome_.fastest().forecast.step_s - 1;
    }
  if (!outcome_.best.empty() && outcome_.fastest().forecast.step_s < outcome_.lower_bound_s) {
    outcome_.beyond_bound = beyond_dimensions(*outcome_.fastest().parallelism);
    if (!outcome_.beyond_bound) outcome_.lower_bound_s = 0;  // it is refuted
  }
  outcome_.seconds = clock_.seconds();
}

bool PlanEnumeration::beyond_dimensions(const Parallelism& plan) const {
  const std::optional<HybridPlan> bare = hybrid_plan_of(recomputing_nothing(plan), posed_.layers);
  const auto& schedules = space_.schedules;
  return !bare || (bare->offload && !space_.offload) ||
         std::find(schedules.begin(), schedules.end(), bare->schedule) == schedules.end() ||
         !contains(posed_.layers.recompute.sets, modules_of(plan));
}

void PlanEnumeration::leave_out_other_orders() {
  const std::vector<Judged> all = simulated_;
  std::erase_if(simulated_, [&](const Judged& one) {
    if (one.parallelism->order.empty()) return false;
    Parallelism usual = *one.parallelism;
    usual.order.clear();
    return std::any_of(all.begin(), all.end(), [&](const Judged& other) {
      return *other.parallelism == usual && other.score() <= one.score();
    });
  });
}

void PlanEnumeration::set_front() {
  std::stable_sort(candidates_.begin(), candidates_.end(),
                   [](const Candidate& a, const Candidate& b) { return a.made.step_s < b.made.step_s; });
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  for (const Candidate& each : candidates_) {
    if (each.made.memory >= least) continue;
    least = each.made.memory;
    outcome_.front.push_back({name_of(parallelism_of(each.plan, problem_.layers)), each.made.step_s, least});
  }
}

Result<PlanOutcome> enumerate(const PlanProblem& problem, const CostModel& cost, const EnumerateOptions& options) {
  Result<PlanOutcome> found = PlanEnumeration(problem, cost, options).run();
  if (!found.ok() || !found->best.empty() || found->stopped_by != StoppedBy::Itself || !problem.regular) return found;
  // Nothing fits on the devices alone.
  EnumerateOptions offloading = options;
  offloading.space.offload = true;
  offloading.baselines = false;
  if (options.budget.seconds > 0) offloading.budget.seconds = std::max(1e-3, options.budget.seconds - found->seconds);
  Result<PlanOutcome> offloaded = PlanEnumeration(problem, cost, offloading).run();
  if (!offloaded.ok() || offloaded->best.empty()) return found;
  offloaded->baselines = std::move(found->baselines);
  offloaded->counts.considered += found->counts.considered;
  offloaded->counts.composed += found->counts.composed;
  offloaded->counts.simulated += found->counts.simulated;
  for (const auto& [reason, count] : found->counts.pruned) offloaded->counts.pruned[reason] += count;
  offloaded->seconds += found->seconds;
  return offloaded;
}

}  // namespace weft
