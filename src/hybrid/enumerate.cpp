#include "hybrid/enumerate.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <tuple>

#include "hybrid/baselines.h"
#include "hybrid/compose_spread.h"
#include "problem/parallel.h"

namespace weft {
namespace {

constexpr std::size_t kBatch = 8192;       // plans composed with one threshold, before it is updated
constexpr std::size_t kRound = 4;          // plans simulated likewise
constexpr std::int64_t kSimulations = 40;  // of a search, unless the budget gives another number
constexpr double kKeep = 1.25;             // plans whose bound is at most this factor above the best time are composed
constexpr double kSafe = 0.99;             // by how much simulated sections may be below those of bounds
constexpr double kSurely = 1.1;            // a plan composed to need this factor more memory than available is hopeless
constexpr std::size_t kFamilies = 8;       // other combinations of degrees whose best plan is simulated
constexpr double kNever = std::numeric_limits<double>::infinity();

class Enumeration {
 public:
  Enumeration(const PlanProblem& problem, const CostModel& cost, const EnumerateOptions& options)
      : problem_(problem),
        cost_(cost),
        options_(options),
        clock_(options.budget),
        composer_(problem, cost),
        composed_(problem.regular) {}

  Result<PlanOutcome> run() {
    SpaceOptions space_options = options_.space;
    if (!composed_) space_options = without_composition(space_options);
    // Samples that are not sequences are small: as many as memory takes.
    if (!problem_.model().counts_tokens)
      space_options.most_micro_batch = std::max(space_options.most_micro_batch, problem_.global_batch);
    HybridSpace space = enumerate_space(problem_, space_options);
    plans_ = std::move(space.plans);
    outcome_.counts.considered = static_cast<std::int64_t>(plans_.size()) + space.left_out;
    if (space.left_out > 0) outcome_.counts.pruned["does not divide"] = space.left_out;
    if (plans_.empty())
      return error(
          "no plan: {} samples on {} devices; no data-parallel degree divides both, with the {} layers that pipelines "
          "are cut from: choose a --global-batch with more divisors in common with {}",
          problem_.global_batch, problem_.devices, problem_.layers.count(), problem_.devices);
    results_.resize(plans_.size());
    done_.assign(plans_.size(), 0);
    WEFT_TRY_OK(simulate_baselines());
    if (go_on()) {
      if (composed_) {
        compose_all();
        simulate_promising();
      } else {
        simulate_all();
      }
    }
    if (simulated_.empty() && !outcome_.closest && !problem_of_first_.empty()) return Error{problem_of_first_};
    finish();
    return std::move(outcome_);
  }

 private:
  // A smaller space, where every plan is simulated.
  SpaceOptions without_composition(SpaceOptions options) const {
    options.schedules = {PlanSchedule::OneForwardOneBackward};
    options.zero = {0, 1, 3};
    options.recompute = {PlanRecompute::None};
    if (problem_.layers.count() > 0) options.recompute.push_back(PlanRecompute::Full);  // layer by layer
    options.context = {ContextMode::Gather};
    options.least_context = problem_.model().seq;
    options.light_ends = options.hybrid_sharding = false;
    return options;
  }

  bool go_on() {
    const StoppedBy reason = clock_.after(outcome_.counts.simulated);
    if (reason != StoppedBy::Itself) outcome_.stopped_by = reason;
    return reason == StoppedBy::Itself;
  }

  void report_progress(std::int64_t done, std::int64_t of) const {
    if (options_.progress) options_.progress({done, of, best_ == kNever ? 0 : best_});
  }

  // Simulates these plans and records the results in their order.
  void simulate(const std::vector<std::size_t>& indices) {
    std::vector<std::optional<Judged>> judged(indices.size());
    std::vector<std::string> problems(indices.size());
    for_each_index(indices.size(), options_.threads, 1, [&](std::size_t i) {
      const Parallelism parallelism = parallelism_of(plans_[indices[i]], problem_.layers);
      Result<Judged> result = judge_strategy(problem_, cost_, choose_strategy(parallelism), &graphs_);
      if (result.ok())
        judged[i] = std::move(result).value();
      else
        problems[i] = result.error().message;
    });
    for (std::size_t i = 0; i < indices.size(); ++i) {
      done_[indices[i]] = 1;
      ++outcome_.counts.simulated;
      if (!judged[i]) {
        ++outcome_.counts.pruned["does not compile"];
        done_[indices[i]] = kFailed;
        if (problem_of_first_.empty()) problem_of_first_ = problems[i];
        continue;
      }
      if (judged[i]->score().fits()) {
        best_ = std::min(best_, judged[i]->forecast.step_s);
        simulated_.push_back({indices[i], std::move(*judged[i])});
      } else if (!outcome_.closest || judged[i]->score() < outcome_.closest->score()) {
        outcome_.closest = std::move(judged[i]);
      }
    }
  }

  Status simulate_baselines() {
    const std::vector<BaselineRule> rules = baseline_rules(problem_);
    std::vector<std::vector<std::size_t>> members;
    std::vector<HybridPlan> shapes;
    for (const BaselineRule& rule : rules) {
      members.push_back(rule.members(plans_));
      for (std::size_t i : members.back()) shapes.push_back(plans_[i]);
    }
    if (composed_) composer_.prepare(shapes, options_.threads);
    std::vector<std::size_t> chosen;
    std::vector<int> at(rules.size(), -1);
    std::vector<char> too_large(rules.size(), 0);
    for (std::size_t r = 0; r < rules.size(); ++r) {
      const std::optional<std::size_t> found = composed_ ? choose(rules[r], members[r]) : usual(members[r]);
      if (!found) continue;
      if (composed_ &&
          static_cast<double>(*composer_.memory(plans_[*found])) > kSurely * static_cast<double>(composer_.budget())) {
        too_large[r] = 1;
        continue;
      }
      const auto same = std::find(chosen.begin(), chosen.end(), *found);
      at[r] = static_cast<int>(same - chosen.begin());
      if (same == chosen.end()) chosen.push_back(*found);
    }
    simulate(chosen);
    for (std::size_t r = 0; r < rules.size(); ++r) {
      Baseline baseline{std::string(rules[r].name), std::string(rules[r].description), {}, {}};
      if (at[r] < 0) {
        baseline.why_not = too_large[r]         ? "out of memory"
                           : members[r].empty() ? why_empty(rules[r])
                                                : "does not compile";
      } else {
        for (const auto& [index, judged] : simulated_)
          if (index == chosen[static_cast<std::size_t>(at[r])]) baseline.judged = judged;
        if (!baseline.judged)
          baseline.why_not =
              done_[chosen[static_cast<std::size_t>(at[r])]] == kFailed ? "does not compile" : "out of memory";
      }
      outcome_.baselines.push_back(std::move(baseline));
    }
    return Ok{};
  }

  std::string why_empty(const BaselineRule& rule) const {
    if (problem_.global_batch % problem_.devices != 0 && rule.best)
      return fmt::format("{} devices do not divide {} samples", problem_.devices, problem_.global_batch);
    return "no such plan";
  }

  std::optional<std::size_t> choose(const BaselineRule& rule, const std::vector<std::size_t>& members) const {
    std::optional<std::size_t> found, smallest;
    double fastest = kNever;
    std::int64_t least = std::numeric_limits<std::int64_t>::max();
    for (std::size_t i : members) {
      const std::optional<Composition> made = composer_.compose(plans_[i]);
      if (!made) continue;
      if (made->memory < least) least = made->memory, smallest = i;
      if (!made->fits()) continue;
      if (!rule.best) return i;
      if (made->step_s < fastest) fastest = made->step_s, found = i;
    }
    return found ? found : smallest;
  }
  // Without composition: the largest micro-batch, nothing recomputed.
  std::optional<std::size_t> usual(const std::vector<std::size_t>& members) const {
    const auto better = [&](std::size_t a, std::size_t b) {
      const auto key = [](const HybridPlan& plan) { return std::tuple(plan.pp, plan.recompute, -plan.micro_batch); };
      return key(plans_[a]) < key(plans_[b]);
    };
    const auto found = std::min_element(members.begin(), members.end(), better);
    return found == members.end() ? std::nullopt : std::optional(*found);
  }

  // Of the plans that differ only in recomputation and micro-batch, the one that needs the least memory.
  static HybridPlan leanest(HybridPlan plan) {
    plan.micro_batches *= plan.micro_batch;
    plan.micro_batch = 1;
    plan.recompute = PlanRecompute::Full;
    return plan;
  }
  // Equal for plans that differ only in the micro-batch.
  static HybridPlan any_micro_batch(HybridPlan plan) {
    plan.micro_batches = plan.micro_batch = 0;
    return plan;
  }

  // The distinct values of common(plan), sorted; `number` gets each plan's index in that list.
  template <class Common>
  std::vector<HybridPlan> numbered_by(const Common& common, std::vector<std::size_t>& number) const {
    std::vector<HybridPlan> list;
    for (const HybridPlan& plan : plans_) list.push_back(common(plan));
    std::sort(list.begin(), list.end());
    list.erase(std::unique(list.begin(), list.end()), list.end());
    for (const HybridPlan& plan : plans_)
      number.push_back(
          static_cast<std::size_t>(std::lower_bound(list.begin(), list.end(), common(plan)) - list.begin()));
    return list;
  }

  // The memory of a plan as composed with a smaller micro-batch.
  struct Smaller {
    std::int64_t memory = 0, saved = 0;
    std::int32_t size = 1;

    // A lower bound on its memory with a larger micro-batch: saved activations grow with the samples.
    double least(std::int32_t larger) const {
      return static_cast<double>(memory) + kSafe * static_cast<double>(saved) * (1.0 * larger / size - 1);
    }
  };

  // For every kind of plan with OpAndWide, the kind that differs from it only in having `recompute` instead; otherwise
  // kinds.size().
  static std::vector<std::size_t> relatives(const std::vector<HybridPlan>& kinds, PlanRecompute recompute) {
    std::vector<std::size_t> found(kinds.size(), kinds.size());
    for (std::size_t kind = 0; kind < kinds.size(); ++kind) {
      if (kinds[kind].recompute != PlanRecompute::OpAndWide) continue;
      HybridPlan plan = kinds[kind];
      plan.recompute = recompute;
      const auto at = std::lower_bound(kinds.begin(), kinds.end(), plan);
      if (at != kinds.end() && *at == plan) found[kind] = static_cast<std::size_t>(at - kinds.begin());
    }
    return found;
  }

  // In order of growing micro-batches: where one does not fit, larger ones do not fit either and are pruned.
  void compose_all() {
    std::vector<std::size_t> lean_of, kind_of;
    const std::vector<HybridPlan> lean = numbered_by(leanest, lean_of), kinds = numbered_by(any_micro_batch, kind_of);
    composer_.prepare(lean, options_.threads, &clock_);
    std::vector<char> hopeless(lean.size(), 0);
    for_each_index(lean.size(), options_.threads, 64, [&](std::size_t i) {
      const std::optional<std::int64_t> memory = composer_.memory(lean[i]);
      hopeless[i] = memory && *memory > composer_.budget();
    });
    std::map<std::int32_t, std::vector<std::size_t>> by_size;
    for (std::size_t i = 0; i < plans_.size(); ++i) {
      if (hopeless[lean_of[i]])
        ++outcome_.counts.pruned["memory"];
      else
        by_size[plans_[i].micro_batch].push_back(i);
    }
    outcome_.lower_bound_s = kNever;
    fastest_ = best_;
    const auto budget = static_cast<double>(composer_.budget());
    const std::vector<double> least = bounds_without_probes(by_size);
    std::vector<Smaller> smaller(kinds.size() + 1);  // the last: for no kind
    const auto keeping_more = relatives(kinds, PlanRecompute::Op), keeping_less = relatives(kinds, PlanRecompute::Full);
    for (const auto& same_size : by_size) {
      const auto size = same_size.first;
      const std::vector<std::size_t>& members = same_size.second;
      std::vector<std::size_t> kept, between;
      for (std::size_t i : members) {
        if (smaller[kind_of[i]].least(size) > budget)
          ++outcome_.counts.pruned["memory"];
        else if (fastest_ != kNever && least[i] > fastest_ * kKeep)
          ++outcome_.counts.pruned["bound"];
        else
          (plans_[i].recompute == PlanRecompute::OpAndWide ? between : kept).push_back(i);
      }
      const auto compose = [&](const std::vector<std::size_t>& these) {
        prepare(these);
        compose_batches(these);
        for (std::size_t i : these)
          if (results_[i]) smaller[kind_of[i]] = {results_[i]->memory, results_[i]->saved, size};
      };
      if (!go_on()) break;
      compose(kept);
      // OpAndWide is between Op and Full in memory and in time: useful only where Op does not surely fit and Full does.
      std::erase_if(between, [&](std::size_t i) {
        const Smaller &more = smaller[keeping_more[kind_of[i]]], &less = smaller[keeping_less[kind_of[i]]];
        const bool faster_fits =
            more.size == size && more.memory > 0 && kSurely * static_cast<double>(more.memory) < budget;
        const bool too_large = less.least(size) > budget;
        if (faster_fits || too_large) ++outcome_.counts.pruned[too_large ? "memory" : "recomputes more"];
        return faster_fits || too_large;
      });
      if (!go_on()) break;
      compose(between);
    }
    std::stable_sort(order_.begin(), order_.end(), [&](std::size_t a, std::size_t b) {
      return std::pair(results_[a]->step_s, a) < std::pair(results_[b]->step_s, b);
    });
    outcome_.lower_bound_s = outcome_.lower_bound_s == kNever ? 0 : outcome_.lower_bound_s * kSafe;
  }

  void prepare(const std::vector<std::size_t>& indices) {
    std::vector<HybridPlan> shapes;
    for (std::size_t i : indices) shapes.push_back(plans_[i]);
    composer_.prepare(shapes, options_.threads, &clock_);
  }

  // Lower bounds on all plans from probes of the largest micro-batch only, by its time per sample: many shapes are too
  // slow at any micro-batch and need no probes of their own.
  std::vector<double> bounds_without_probes(const std::map<std::int32_t, std::vector<std::size_t>>& by_size) {
    std::vector<double> least(plans_.size(), 0);
    if (by_size.empty() || fastest_ == kNever) return least;
    const std::int32_t largest = by_size.rbegin()->first;
    std::vector<HybridPlan> shapes;
    std::vector<std::size_t> open;
    for (const auto& [size, members] : by_size)
      for (std::size_t i : members) {
        open.push_back(i);
        shapes.push_back(Composer::relaxed(plans_[i], largest));
      }
    composer_.prepare(shapes, options_.threads, &clock_);
    for_each_index(open.size(), options_.threads, 64, [&](std::size_t i) {
      least[open[i]] = kSafe * composer_.bound(plans_[open[i]], largest).value_or(0);
    });
    return least;
  }

  void compose_batches(const std::vector<std::size_t>& indices) {
    for (std::size_t from = 0; from < indices.size(); from += kBatch) {
      if (!go_on()) break;
      const std::size_t count = std::min(kBatch, indices.size() - from);
      const double above = fastest_ == kNever ? 0 : fastest_ * kKeep;
      for_each_index(count, options_.threads, 64, [&](std::size_t i) {
        results_[indices[from + i]] = composer_.compose(plans_[indices[from + i]], above);
      });
      for (std::size_t i = from; i < from + count; ++i) count_composed(indices[i]);
      report_progress(outcome_.counts.composed, static_cast<std::int64_t>(plans_.size()));
    }
  }

  void count_composed(std::size_t index) {
    const std::optional<Composition>& made = results_[index];
    if (!composer_.composes(plans_[index])) {
      ++outcome_.counts.pruned["layers take turns"];
    } else if (!made) {
      ++outcome_.counts.pruned["does not compile"];
    } else if (!made->fits()) {
      ++outcome_.counts.pruned["memory"];
    } else {
      outcome_.lower_bound_s = std::min(outcome_.lower_bound_s, made->bound_s);
      if (made->step_s == 0) {
        ++outcome_.counts.pruned["bound"];
      } else {
        ++outcome_.counts.composed;
        fastest_ = std::min(fastest_, made->step_s);
        order_.push_back(index);
      }
    }
  }

  using Family = std::tuple<std::int32_t, std::int32_t, std::int32_t, std::int32_t>;
  static Family family_of(const HybridPlan& plan) { return {plan.tp, plan.cp, plan.ep, plan.pp}; }

  // Pricing is linear in devices, so thousands of them get fewer simulations.
  std::int64_t usual_simulations() const {
    return std::clamp<std::int64_t>(kSimulations * 2048 / problem_.devices, 10, kSimulations);
  }

  void simulate_promising() {
    const std::int64_t most = options_.budget.evaluations > 0 ? options_.budget.evaluations : usual_simulations();
    const auto left = [&] { return most - outcome_.counts.simulated; };
    // The factor by which composition may exceed simulation.
    const auto doubt = [&](std::size_t i) {
      return 1 + composition_spread(composition_kind(problem_, plans_[i])).above;
    };
    double most_doubt = 1;
    for (std::size_t i : order_) most_doubt = std::max(most_doubt, doubt(i));
    std::size_t next = 0;
    const auto take_round = [&] {
      std::vector<std::size_t> round;
      for (; next < order_.size() && round.size() < kRound && static_cast<std::int64_t>(round.size()) < left();
           ++next) {
        const double hopes = results_[order_[next]]->step_s / best_;
        if (best_ != kNever && hopes > most_doubt) break;
        if (!done_[order_[next]] && (best_ == kNever || hopes <= doubt(order_[next]))) round.push_back(order_[next]);
      }
      return round;
    };
    while (go_on()) {
      const std::vector<std::size_t> round = take_round();
      if (round.empty()) break;
      simulate(round);
      report_progress(outcome_.counts.simulated, most);
    }
    // The best plans with other degrees, for comparison.
    std::set<Family> seen;
    for (const auto& [index, judged] : simulated_) seen.insert(family_of(plans_[index]));
    std::vector<std::size_t> others;
    for (std::size_t i : order_) {
      if (others.size() >= std::min<std::size_t>(kFamilies, static_cast<std::size_t>(most) / 3) ||
          static_cast<std::int64_t>(others.size()) >= left())
        break;
      if (!done_[i] && seen.insert(family_of(plans_[i])).second) others.push_back(i);
    }
    if (go_on() && !others.empty()) simulate(others);
    simulate_uncomposed(left());
    // Nothing fits: find the plan that comes closest.
    if (simulated_.empty() && go_on()) {
      std::vector<std::pair<std::int64_t, std::size_t>> needs;
      for (std::size_t i = 0; i < plans_.size(); ++i)
        if (!done_[i] && leanest(plans_[i]) == plans_[i])
          if (const std::optional<std::int64_t> memory = composer_.memory(plans_[i])) needs.emplace_back(*memory, i);
      std::sort(needs.begin(), needs.end());
      std::vector<std::size_t> least;
      for (std::size_t i = 0; i < std::min<std::size_t>(needs.size(), 4); ++i) least.push_back(needs[i].second);
      simulate(least);
    }
  }

  // Plans that are not composed: as many as there are simulations left. There is no bound on the others.
  void simulate_uncomposed(std::int64_t left) {
    std::vector<std::size_t> these = in_usual_order([&](std::size_t i) { return !composer_.composes(plans_[i]); });
    if (these.size() > static_cast<std::size_t>(std::max<std::int64_t>(0, left))) outcome_.lower_bound_s = 0;
    these.resize(std::min(these.size(), static_cast<std::size_t>(std::max<std::int64_t>(0, left))));
    for (std::size_t from = 0; from < these.size() && go_on(); from += kRound) {
      const std::size_t to = std::min(these.size(), from + kRound);
      simulate({these.begin() + static_cast<std::ptrdiff_t>(from), these.begin() + static_cast<std::ptrdiff_t>(to)});
    }
  }

  // Plans that split less and recompute less come first.
  template <class Keep>
  std::vector<std::size_t> in_usual_order(const Keep& keep) const {
    std::vector<std::size_t> all;
    for (std::size_t i = 0; i < plans_.size(); ++i)
      if (!done_[i] && keep(i)) all.push_back(i);
    std::stable_sort(all.begin(), all.end(), [&](std::size_t a, std::size_t b) {
      const auto key = [](const HybridPlan& plan) {
        return std::tuple(plan.tp * plan.pp * plan.cp, plan.recompute, -plan.micro_batch);
      };
      return key(plans_[a]) < key(plans_[b]);
    });
    return all;
  }

  void simulate_all() {
    const std::vector<std::size_t> all = in_usual_order([](std::size_t) { return true; });
    const std::int64_t most = options_.budget.evaluations > 0 ? options_.budget.evaluations : 2 * kSimulations;
    for (std::size_t from = 0; from < all.size(); from += kRound) {
      if (!go_on()) return;
      if (outcome_.counts.simulated >= most) {
        outcome_.stopped_by = StoppedBy::Evaluations;
        return;
      }
      const std::size_t left = static_cast<std::size_t>(most - outcome_.counts.simulated);
      const std::size_t to = std::min({all.size(), from + kRound, from + left});
      simulate({all.begin() + static_cast<std::ptrdiff_t>(from), all.begin() + static_cast<std::ptrdiff_t>(to)});
      report_progress(outcome_.counts.simulated, std::min<std::int64_t>(most, static_cast<std::int64_t>(all.size())));
    }
  }

  void finish() {
    std::stable_sort(simulated_.begin(), simulated_.end(), [](const auto& a, const auto& b) {
      return std::pair(a.second.score(), a.first) < std::pair(b.second.score(), b.first);
    });
    set_front();
    // The best plan of each combination of degrees; others only to fill up the list.
    std::vector<std::size_t> shown, rest;
    std::set<Family> seen;
    for (std::size_t i = 0; i < simulated_.size(); ++i)
      (seen.insert(family_of(plans_[simulated_[i].first])).second ? shown : rest).push_back(i);
    for (std::size_t i : rest)
      if (shown.size() < options_.top) shown.push_back(i);
    if (shown.size() > options_.top) shown.resize(options_.top);
    std::sort(shown.begin(), shown.end());
    if (!simulated_.empty() && composed_)
      if (const auto made = composer_.compose(plans_[simulated_.front().first]))
        outcome_.composition_error = made->step_s / simulated_.front().second.forecast.step_s - 1;
    for (std::size_t i : shown) outcome_.best.push_back(std::move(simulated_[i].second));
    outcome_.seconds = clock_.seconds();
  }

  void set_front() {
    std::int64_t least = std::numeric_limits<std::int64_t>::max();
    for (std::size_t i : order_) {  // fastest first
      if (results_[i]->memory >= least) continue;
      least = results_[i]->memory;
      outcome_.front.push_back(
          {print(shorthand_of(parallelism_of(plans_[i], problem_.layers))), results_[i]->step_s, least});
    }
  }

  const PlanProblem& problem_;
  const CostModel& cost_;
  const EnumerateOptions& options_;
  const SearchClock clock_;
  Composer composer_;
  GraphCache graphs_{4};  // of whole models
  const bool composed_;
  PlanOutcome outcome_;
  std::vector<HybridPlan> plans_;
  std::vector<std::optional<Composition>> results_;
  static constexpr char kFailed = 2;
  std::vector<char> done_;          // 1: simulated
  std::vector<std::size_t> order_;  // composed plans that fit, fastest first
  std::vector<std::pair<std::size_t, Judged>> simulated_;
  std::string problem_of_first_;
  double best_ = kNever;     // simulated
  double fastest_ = kNever;  // composed, or simulated
};

}  // namespace

Result<PlanOutcome> enumerate(const PlanProblem& problem, const CostModel& cost, const EnumerateOptions& options) {
  return Enumeration(problem, cost, options).run();
}

}  // namespace weft
