#include "hybrid/enumerate.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>

#include "hybrid/baselines.h"
#include "hybrid/compose_spread.h"
#include "hybrid/expectation.h"
#include "hybrid/neighbours.h"
#include "problem/parallel.h"

namespace weft {
namespace {

constexpr std::size_t kBatch = 8192;       // plans composed with one threshold, before it is updated
constexpr std::size_t kShapes = 64;        // shapes probed between two looks at the clock
constexpr std::size_t kRound = 4;          // plans simulated likewise
constexpr std::int64_t kSimulations = 40;  // until it is given up that a plan fits; twice as many without composition
constexpr std::int64_t kNeighbours = 16;   // simulated because they cannot be composed
constexpr double kKeep = 1.15;             // plans whose bound is at most this factor above the best time are composed
constexpr double kSafe = 0.99;             // by how much simulated sections may be below those of bounds
constexpr double kSurely = 1.1;            // a plan composed to need this factor more memory than available is hopeless
constexpr double kNearly = 1.02;           // by how much composition may overestimate memory
constexpr double kGain = 0.001;            // a gain that is not worth another simulation
constexpr double kFirst = 0.01;         // share of the plans, of least bounds, that are composed before the others, …
constexpr std::size_t kFewFirst = 256;  // … at least
constexpr double kNever = std::numeric_limits<double>::infinity();

// A plan that is simulated, and its numbers where it is one of the hybrid space.
struct Trial {
  Parallelism parallelism;
  std::optional<HybridPlan> plan = {};
};
enum class Found : std::uint8_t { Fits, TooLarge, DoesNotCompile };

class Enumeration {
 public:
  Enumeration(const PlanProblem& problem, const CostModel& cost, const EnumerateOptions& options)
      : problem_(problem),
        cost_(cost),
        options_(options),
        clock_(options.budget),
        composer_(problem_, cost),
        composed_(problem.regular),
        space_(
            opened(composed_ ? options.space : without_composition(options.space), options.space.constraints, problem)),
        expectation_(problem.model().tied_embeddings) {}

  Result<PlanOutcome> run() {
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
        simulate_promising();
        improve();
        if (simulated_.empty()) simulate_smallest();
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

 private:
  bool allowed(const HybridPlan& plan) const { return space_.allow(parallelism_of(plan, problem_.layers)); }

  // Sets of modules that no plan may recompute (a trainer has no word for them), by a sample of the plans: otherwise they
  // would stand in the way of sets that save more and are allowed.
  void leave_out_sets_not_allowed() {
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

  Error why_all_are_excluded(SpaceOptions options) const {
    const Constraints constraints = std::exchange(options.constraints, {});
    std::vector<Parallelism> all;
    for (const HybridPlan& plan : enumerate_space(problem_, options).plans)
      all.push_back(parallelism_of(plan, problem_.layers));
    if (all.empty() || constraints.empty())
      return error(
          "no plan: the trainer can express none of those that divide; choose another batch, or leave --for out");
    return why_nothing(constraints, all, problem_);
  }

  // A smaller space, where every plan is simulated.
  SpaceOptions without_composition(SpaceOptions options) const {
    options.schedules = {PlanSchedule::OneForwardOneBackward};
    options.zero = {0, 1, 3};
    options.recompute = {PlanRecompute::None};
    if (problem_.layers.count() > 0) options.recompute.push_back(PlanRecompute::Full);  // layer by layer
    options.context = {ContextMode::Gather};
    options.least_context = problem_.model().seq;
    options.light_ends = options.hybrid_sharding = false;
    const bool tokens = problem_.model().counts_tokens && problem_.model().seq > 0;
    options.most_micro_batch = tokens ? std::max<std::int64_t>(16, 65536 / problem_.model().seq) : 512;
    return options;
  }

  bool go_on() {
    const StoppedBy reason = clock_.after(outcome_.counts.simulated);
    if (reason != StoppedBy::Itself) outcome_.stopped_by = reason;
    return reason == StoppedBy::Itself;
  }
  // Inside of loops: whether time is up, or a user stops the search. Simulations do not count.
  bool interrupted() const { return clock_.after(0) != StoppedBy::Itself; }
  bool cancelled() const { return clock_.after(0) == StoppedBy::Cancelled; }

  void report_progress(std::int64_t done, std::int64_t of) const {
    if (options_.progress) options_.progress({done, of, best_ == kNever ? 0 : best_});
  }

  Trial trial_of(const HybridPlan& plan) const { return {parallelism_of(plan, problem_.layers), plan}; }
  static std::string name_of(const Parallelism& parallelism) { return print(shorthand_of(parallelism)); }
  bool tried(const Trial& trial) const { return tried_.contains(name_of(trial.parallelism)); }

  // Simulates these plans and records the results in their order; all of them, though time is up, if `surely`.
  void simulate(const std::vector<Trial>& trials, bool surely = false) {
    std::vector<std::optional<Judged>> judged(trials.size());
    std::vector<std::string> problems(trials.size());
    std::vector<char> left_out(trials.size(), 0);
    for_each_index(trials.size(), options_.threads, 1, [&](std::size_t i) {
      if (surely ? cancelled() : i > 0 && interrupted()) {
        left_out[i] = 1;
        return;
      }
      Result<Judged> result = judge_strategy(problem_, cost_, choose_strategy(trials[i].parallelism), &graphs_);
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

  void learn(const HybridPlan& plan, double simulated_s) {
    const std::optional<Composition> made = composer_.compose(plan);
    if (!made || made->step_s <= 0) return;
    expectation_.learn(plan, made->step_s, simulated_s);
    if (kSafe * made->bound_s > simulated_s) outcome_.bound_is_estimate = true;
  }

  // Composition found that a plan fits, simulation that it does not: the next set of the menu that is allowed may.
  void recompute_more(HybridPlan plan) {
    auto at = std::find(sets_.begin(), sets_.end(), plan.recompute);
    if (at == sets_.end()) return;
    do {
      if (++at == sets_.end()) return;
      plan.recompute = *at;
    } while (!allowed(plan));
    add_composed({plan});
  }

  // Composes plans outside of the enumeration, all of them allowed; they are candidates if they fit.
  void add_composed(const std::vector<HybridPlan>& plans) {
    prepare(plans);
    for (const HybridPlan& plan : plans)
      if (const std::optional<Composition> made = composer_.compose(plan); made && made->fits())
        candidates_.push_back({plan, *made});
  }

  // Plans that people choose have no sets of modules, and no context parallelism.
  std::vector<HybridPlan> usual_plans() const {
    std::vector<HybridPlan> usual;
    std::vector<PlanRecompute> named =
        composed_ ? std::vector{PlanRecompute::None, PlanRecompute::Selective, PlanRecompute::Op, PlanRecompute::Full}
                  : sets_;
    if (composed_ && !space_.recompute.empty())
      std::erase_if(named,
                    [&](PlanRecompute each) { return std::find(sets_.begin(), sets_.end(), each) == sets_.end(); });
    for (HybridPlan plan : plans_) {
      if (plan.cp > 1 || plan.schedule != PlanSchedule::OneForwardOneBackward || plan.split != StageSplit::Even)
        continue;
      for (const PlanRecompute each : named) {
        plan.recompute = each;
        if (allowed(plan)) usual.push_back(plan);
      }
    }
    return usual;
  }

  void simulate_baselines() {
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
        baseline.why_not = too_large[r]         ? "out of memory"
                           : members[r].empty() ? why_empty(rules[r])
                                                : "does not compile";
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

  std::string why_empty(const BaselineRule& rule) const {
    if (problem_.global_batch % problem_.devices != 0 && rule.best)
      return fmt::format("{} devices do not divide {} samples", problem_.devices, problem_.global_batch);
    if (!options_.space.constraints.empty()) return "not among what was asked for";
    return "no such plan";
  }

  // The fastest that fits, or the first; where none fits, the smallest.
  std::optional<std::size_t> choose(const BaselineRule& rule, const std::vector<HybridPlan>& plans,
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
  // Without composition: the largest micro-batch, nothing recomputed.
  static std::optional<std::size_t> most_usual(const std::vector<HybridPlan>& plans,
                                               const std::vector<std::size_t>& members) {
    const auto better = [&](std::size_t a, std::size_t b) {
      const auto key = [](const HybridPlan& plan) { return std::tuple(plan.pp, plan.recompute, -plan.micro_batch); };
      return key(plans[a]) < key(plans[b]);
    };
    const auto found = std::min_element(members.begin(), members.end(), better);
    return found == members.end() ? std::nullopt : std::optional(*found);
  }

  // Equal for plans that differ only in the micro-batch.
  static HybridPlan any_micro_batch(HybridPlan plan) {
    plan.micro_batches = plan.micro_batch = 0;
    return plan;
  }
  HybridPlan with_set(std::size_t plan, std::size_t set) const {
    HybridPlan made = plans_[plan];
    made.recompute = sets_[set];
    return made;
  }

  // What is known of the plans of a kind, which differ only in micro-batch and recomputation.
  struct Kind {
    HybridPlan smallest;          // one sample per micro-batch, the last set of the menu
    double fixed = 0, saved = 0;  // bytes: of its memory, those that grow with the samples in flight, and the others
    std::size_t first_set = 0;    // earlier ones do not fit, nor with more samples
    bool hopeless = false;        // no larger micro-batch fits
    bool measured = false;

    // A lower bound on the memory of a plan: with more samples per micro-batch, fewer of these are in flight.
    double least(const HybridPlan& plan) const {
      const double more = static_cast<double>(plan.micro_batch);
      const double in_flight =
          plan.pp == 1 ? more : std::max(1.0, static_cast<double>(smallest.micro_batches) / (2.0 * plan.pp));
      return fixed + kSafe * saved * std::min(more, in_flight);
    }
  };

  // Every plan with the first set of the menu that fits: earlier ones do not, later ones recompute more. The plans of
  // least bounds come first, then by growing micro-batches.
  void compose_all() {
    number_kinds();
    outcome_.lower_bound_s = kNever;
    fastest_ = best_;
    bound_without_probes();
    std::vector<std::size_t> open(plans_.size());
    std::iota(open.begin(), open.end(), std::size_t{0});
    std::stable_sort(open.begin(), open.end(), [&](std::size_t a, std::size_t b) { return least_[a] < least_[b]; });
    const auto first = static_cast<std::ptrdiff_t>(std::min(
        open.size(), std::max(kFewFirst, static_cast<std::size_t>(kFirst * static_cast<double>(open.size())))));
    compose_group({open.begin(), open.begin() + first});
    compose_group({open.begin() + first, open.end()});
    outcome_.lower_bound_s = outcome_.lower_bound_s == kNever ? 0 : outcome_.lower_bound_s * kSafe;
  }

  void prune(const char* reason, std::size_t sets = 0) {
    const std::size_t count = sets > 0 ? sets : sets_.size();
    outcome_.counts.pruned[reason] += static_cast<std::int64_t>(count);
  }

  void number_kinds() {
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

  // The memory of these kinds' smallest plans.
  void measure_kinds(const std::vector<std::size_t>& kinds) {
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

  // Probes the shapes of these plans, as far as time allows.
  void prepare(std::vector<HybridPlan> plans) {
    const auto shape = [](const HybridPlan& plan) {
      const bool split = plan.schedule == PlanSchedule::ZeroBubbleH1 || plan.schedule == PlanSchedule::ZeroBubbleV;
      return std::tuple(plan.tp, plan.cp, plan.ep, plan.micro_batch, plan.sequence_parallel, plan.recompute,
                        plan.cp_mode, split);
    };
    std::sort(plans.begin(), plans.end(),
              [&](const HybridPlan& a, const HybridPlan& b) { return shape(a) < shape(b); });
    plans.erase(std::unique(plans.begin(), plans.end(),
                            [&](const HybridPlan& a, const HybridPlan& b) { return shape(a) == shape(b); }),
                plans.end());
    for (std::size_t from = 0; from < plans.size() && !interrupted(); from += kShapes)
      composer_.prepare(std::span(plans).subspan(from, std::min(kShapes, plans.size() - from)), options_.threads);
  }

  // Lower bounds on all plans from probes of the largest micro-batch only, by its time per sample: many shapes are too
  // slow at any micro-batch and need no probes of their own.
  void bound_without_probes() {
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

  void compose_group(const std::vector<std::size_t>& group) {
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

  bool too_slow(std::size_t plan) const { return fastest_ != kNever && least_[plan] > fastest_ * kKeep; }

  void bound_unseen(std::size_t plan) {
    prune("no time");
    outcome_.lower_bound_s = std::min(outcome_.lower_bound_s, least_[plan] / kSafe);
  }

  // A plan between the last set known not to fit and the first known to fit.
  struct Bracket {
    std::size_t plan = 0, too_large = 0, fits = 0;
    double more = 0, less = 0;  // bytes of both
    std::optional<Composition> made = {};
  };

  void compose_batch(const std::vector<std::size_t>& batch) {
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

  // The set whose bytes in the menu are where the budget is between those of both ends.
  std::size_t between(const Bracket& each, double budget) const {
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
  void compose_brackets(std::vector<Bracket>& open, const Set& set) {
    std::vector<HybridPlan> plans;
    for (const Bracket& each : open) plans.push_back(with_set(each.plan, set(each)));
    prepare(plans);
    const double above = fastest_ == kNever ? 0 : fastest_ * kKeep;
    for_each_index(open.size(), options_.threads, 64, [&](std::size_t i) {
      open[i].made = interrupted() ? std::nullopt : composer_.compose(plans[i], above);
    });
  }

  // Recomputing modules that fit is never faster; those of the sets before did not fit.
  void record(const Bracket& each) {
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

  // Between the set that fits and the one before, modules may be recomputed in some layers and not in others: the
  // linear relaxation of the knapsack.
  double relaxed_bound(const Bracket& each) const {
    const double bound = each.made->bound_s;
    if (each.fits == 0 || each.fits != each.too_large + 1 || least_[each.plan] >= outcome_.lower_bound_s) return bound;
    const std::optional<Composition> before = composer_.compose(with_set(each.plan, each.too_large));
    const double budget = static_cast<double>(composer_.budget()), fits = static_cast<double>(each.made->memory);
    if (!before || static_cast<double>(before->memory) <= fits) return bound;
    const double share = std::clamp((budget - fits) / (static_cast<double>(before->memory) - fits), 0.0, 1.0);
    return std::min(bound, bound + share * (before->bound_s - bound));
  }

  // Composition finds a plan too large by less than it may be wrong: if it fits, the bound is too high.
  void nearly_fits(std::size_t plan) {
    const std::optional<Composition> made = composer_.compose(with_set(plan, sets_.size() - 1));
    if (made && made->bound_s < outcome_.lower_bound_s) outcome_.bound_is_estimate = true;
  }

  // Simulates, a few at a time, the candidates that are expected to be faster than the best, or the best of `top`.
  // Without composition, of devices that differ (which other searches know better) or of models that are small.
  std::int64_t usual_simulations_of_all() const {
    constexpr std::int64_t kFew = 128;  // devices
    return problem_.regular
               ? 2 * kSimulations
               : std::clamp<std::int64_t>(2 * kSimulations * kFew / problem_.devices, 10, 2 * kSimulations);
  }

  void simulate_promising() {
    // Where composition is wrong about memory, not every candidate is tried.
    const auto none_fits = [&] { return simulated_.empty() && outcome_.counts.simulated >= kSimulations; };
    while (go_on() && !none_fits()) {
      const std::vector<Trial> round = next_round();
      if (round.empty()) break;
      simulate(round);
      report_progress(outcome_.counts.simulated, 0);
    }
  }

  // One standard deviation of composition's errors, before any plan was simulated: the largest ones are two.
  double spread_of(const HybridPlan& plan) const {
    return composition_spread(composition_kind(problem_, plan)).above / 2;
  }

  std::vector<Trial> next_round() {
    // Even with all their doubt, slower ones are not worth a look.
    constexpr double kLook = 1.3;
    std::vector<double> times;
    for (const Judged& judged : simulated_) times.push_back(judged.forecast.step_s);
    std::sort(times.begin(), times.end());
    const double last = times.size() < options_.top ? kNever : times[options_.top - 1];
    struct Hope {
      double expected;
      std::size_t candidate;
    };
    std::vector<Hope> hopes;
    const double least = times.empty() ? fastest_ : times.front();
    for (std::size_t i = 0; i < candidates_.size(); ++i) {
      Candidate& each = candidates_[i];
      if (each.done) continue;
      if (last != kNever && each.made.step_s > kLook * last) continue;
      if (last == kNever && each.made.step_s > kLook * least && candidates_.size() > 64) continue;
      const double expected = each.made.step_s * expectation_.factor(each.plan);
      const double hoped = expected * (1 - expectation_.doubt(each.plan, spread_of(each.plan)));
      if (expected < last || hoped < least * (1 - kGain)) hopes.push_back({hoped, i});
    }
    std::stable_sort(hopes.begin(), hopes.end(), [](const Hope& a, const Hope& b) { return a.expected < b.expected; });
    const std::int64_t most = options_.budget.evaluations;
    std::vector<Trial> round;
    for (const Hope& hope : hopes) {
      if (round.size() == kRound ||
          (most > 0 && outcome_.counts.simulated + static_cast<std::int64_t>(round.size()) >= most))
        break;
      candidates_[hope.candidate].done = true;
      Trial trial = trial_of(candidates_[hope.candidate].plan);
      if (!tried(trial)) round.push_back(std::move(trial));
    }
    return round;
  }

  // Pricing is linear in devices, so thousands of them get fewer simulations of plans that cannot be composed.
  std::int64_t most_neighbours() const {
    return std::clamp<std::int64_t>(kNeighbours * 512 / problem_.devices, 4, kNeighbours);
  }

  // Changes one knob of the fastest plan at a time until none helps.
  void improve() {
    std::int64_t left = most_neighbours();
    for (double before = kNever; go_on() && best_ < before * (1 - kGain);) {
      before = best_;
      const auto fastest = std::min_element(simulated_.begin(), simulated_.end(),
                                            [](const Judged& a, const Judged& b) { return a.score() < b.score(); });
      std::vector<HybridPlan> composable;
      std::vector<Trial> others;
      for (Parallelism& each : one_knob_changed(problem_, space_, *fastest->parallelism)) {
        if (tried_.contains(name_of(each))) continue;
        add_to_menu(each);
        if (const std::optional<HybridPlan> plan = hybrid_plan_of(each, problem_.layers))
          composable.push_back(*plan);
        else
          others.push_back({std::move(each)});
      }
      add_composed(composable);
      simulate_promising();
      for (std::size_t from = 0; from < others.size() && left > 0 && go_on(); from += kRound, left -= kRound)
        simulate({others.begin() + static_cast<std::ptrdiff_t>(from),
                  others.begin() + static_cast<std::ptrdiff_t>(std::min(others.size(), from + kRound))});
    }
  }

  // A set of modules that the menu does not have, so that plans with it can be composed.
  void add_to_menu(const Parallelism& parallelism) {
    std::vector<RecomputeSet>& sets = problem_.layers.recompute.sets;
    const RecomputeSet wanted{parallelism.recompute, parallelism.full};
    const bool known =
        std::any_of(sets.begin(), sets.end(), [&](const RecomputeSet& each) { return each.same_modules(wanted); });
    if (!known && sets.size() < std::numeric_limits<std::uint8_t>::max()) sets.push_back(wanted);
  }

  // Nothing fits: the plans that come closest.
  void simulate_smallest() {
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

  // Whether all of them were.
  template <class Keep>
  bool simulate_those(const Keep& keep) {
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

  void finish() {
    set_front();
    leave_out_other_orders();
    outcome_.best = std::move(simulated_);
    outcome_.settle_order(options_.top);
    if (!outcome_.best.empty() && composed_)
      if (const auto plan = hybrid_plan_of(*outcome_.fastest().parallelism, problem_.layers)) {
        add_composed({*plan});
        if (const auto made = composer_.compose(*plan))
          outcome_.composition_error = made->step_s / outcome_.fastest().forecast.step_s - 1;
      }
    // The bound is over the plans of the enumeration; one that was changed beyond them may be faster.
    if (!outcome_.best.empty() && outcome_.fastest().forecast.step_s < outcome_.lower_bound_s) {
      outcome_.lower_bound_s = outcome_.fastest().forecast.step_s;
      outcome_.bound_is_estimate = true;
    }
    outcome_.seconds = clock_.seconds();
  }

  // Orders of ranks that change nothing are not plans of their own.
  void leave_out_other_orders() {
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

  void set_front() {
    std::stable_sort(candidates_.begin(), candidates_.end(),
                     [](const Candidate& a, const Candidate& b) { return a.made.step_s < b.made.step_s; });
    std::int64_t least = std::numeric_limits<std::int64_t>::max();
    for (const Candidate& each : candidates_) {
      if (each.made.memory >= least) continue;
      least = each.made.memory;
      outcome_.front.push_back({name_of(parallelism_of(each.plan, problem_.layers)), each.made.step_s, least});
    }
  }

  struct Candidate {
    HybridPlan plan;
    Composition made;
    bool done = false;  // simulated
  };

  PlanProblem problem_;  // its menu grows at the end of the search
  const CostModel& cost_;
  const EnumerateOptions& options_;
  const SearchClock clock_;
  Composer composer_;
  GraphCache graphs_{4};  // of whole models
  const bool composed_;
  const SpaceOptions space_;
  PlanOutcome outcome_;
  std::vector<PlanRecompute> sets_;  // from the most bytes saved to the least
  std::vector<HybridPlan> plans_;    // of the space, without recomputation
  std::vector<std::size_t> kind_of_;
  std::vector<Kind> kinds_;
  std::vector<double> least_;          // lower bounds on plans_, whatever they recompute
  std::vector<Candidate> candidates_;  // composed plans that fit
  Expectation expectation_;
  std::map<std::string, Found> tried_;  // simulated plans, by name
  std::vector<Judged> simulated_;       // those that fit
  std::string problem_of_first_;
  double best_ = kNever;     // simulated
  double fastest_ = kNever;  // composed, or simulated
};

}  // namespace

Result<PlanOutcome> enumerate(const PlanProblem& problem, const CostModel& cost, const EnumerateOptions& options) {
  return Enumeration(problem, cost, options).run();
}

}  // namespace weft
