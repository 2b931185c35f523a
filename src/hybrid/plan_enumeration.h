// The state of one enumeration (enumerate.h): plans, what is known of them, what was simulated.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "hybrid/baselines.h"
#include "hybrid/compose.h"
#include "hybrid/enumerate.h"
#include "hybrid/expectation.h"
#include "hybrid/recompute_by_stage.h"

namespace weft {

class PlanEnumeration {
 public:
  PlanEnumeration(const PlanProblem& problem, const CostModel& cost, const EnumerateOptions& options);

  Result<PlanOutcome> run();

 private:
  // A plan that is simulated, and its numbers where it is one of the hybrid space.
  struct Trial {
    Parallelism parallelism;
    std::optional<HybridPlan> plan = {};
  };
  enum class Found : std::uint8_t { Fits, TooLarge, DoesNotCompile };
  static constexpr double kNever = std::numeric_limits<double>::infinity();
  static constexpr std::size_t kRound = 4;  // plans simulated between two looks at the clock
  static constexpr double kGain = 0.002;    // a gain that is not worth another simulation
  static constexpr int kPatience = 3;       // rounds that gain nothing, after which the rest of a kind is left
  static constexpr double kSafe = 0.985;    // by how much simulated sections may be below those of bounds

  // enumerate.cpp: the order of work, and simulations.

  bool allowed(const HybridPlan& plan) const { return space_.allow(parallelism_of(plan, problem_.layers)); }

  // Sets of modules that no plan may recompute (a trainer has no word for them), by a sample of the plans: otherwise they
  // would stand in the way of sets that save more and are allowed.
  void leave_out_sets_not_allowed();

  Error why_all_are_excluded(SpaceOptions options) const;

  // A smaller space, where every plan is simulated.
  SpaceOptions without_composition(SpaceOptions options) const;

  // Whether neither time nor simulations are used up; otherwise the outcome says what stopped the search.
  bool go_on();
  // Inside of loops: whether time is up, or a user stops the search. Simulations do not count.
  bool interrupted() const { return clock_.after(0) != StoppedBy::Itself; }
  bool cancelled() const { return clock_.after(0) == StoppedBy::Cancelled; }

  void report_progress(std::int64_t done, std::int64_t of) const;

  Trial trial_of(const HybridPlan& plan) const { return {parallelism_of(plan, problem_.layers), plan}; }
  static std::string name_of(const Parallelism& parallelism) { return print(shorthand_of(parallelism)); }
  bool tried(const Trial& trial) const { return tried_.contains(name_of(trial.parallelism)); }

  // Simulates these plans and records the results in their order; all of them, though time is up, if `surely`.
  void simulate(const std::vector<Trial>& trials, bool surely = false);

  void learn(const HybridPlan& plan, double simulated_s);

  // Composition found that a plan fits, simulation that it does not: the next set of the menu that is allowed may.
  void recompute_more(HybridPlan plan);

  // Composes plans outside of the enumeration, all of them allowed; they are candidates if they fit. Returned: those that
  // nearly do, and would be the fastest.
  std::vector<HybridPlan> add_composed(const std::vector<HybridPlan>& plans);

  // enumerate_baselines.cpp

  // Of every rule those that follow it, by rank. Plans that people choose have no sets of modules.
  std::vector<std::vector<HybridPlan>> usual_plans(const std::vector<BaselineRule>& rules) const;

  void simulate_baselines();

  std::string why_empty(const BaselineRule& rule) const;

  // The fastest that fits of the least rank; where none fits, the smallest. `members`: sorted by rank.
  std::optional<HybridPlan> choose(const BaselineRule& rule, const std::vector<HybridPlan>& members) const;
  // Without composition: of the least rank the largest micro-batch, nothing recomputed.
  static std::optional<HybridPlan> most_usual(const BaselineRule& rule, const std::vector<HybridPlan>& members);

  // enumerate_composed.cpp: every plan gets a bound, and a time and memory where it may be among the fastest.

  // Equal for plans that differ only in the micro-batch.
  static HybridPlan any_micro_batch(HybridPlan plan);
  HybridPlan with_set(std::size_t plan, std::size_t set) const;

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
  void compose_all();

  void prune(const char* reason, std::size_t sets = 0);

  void number_kinds();

  // The memory of these kinds' smallest plans.
  void measure_kinds(const std::vector<std::size_t>& kinds);

  // Probes the shapes of these plans, as far as time allows.
  void prepare(std::vector<HybridPlan> plans);

  // Lower bounds on all plans from probes of the largest micro-batch only, by its time per sample: many shapes are too
  // slow at any micro-batch and need no probes of their own.
  void bound_without_probes();

  void compose_group(const std::vector<std::size_t>& group);

  bool too_slow(std::size_t plan) const;

  void bound_unseen(std::size_t plan);

  // A plan between the last set known not to fit and the first known to fit.
  struct Bracket {
    std::size_t plan = 0, too_large = 0, fits = 0;
    double more = 0, less = 0;  // bytes of both
    std::optional<Composition> made = {};
  };

  void compose_batch(const std::vector<std::size_t>& batch);

  // The set whose bytes in the menu are where the budget is between those of both ends.
  std::size_t between(const Bracket& each, double budget) const;

  template <class Set>
  void compose_brackets(std::vector<Bracket>& open, const Set& set);

  // Recomputing modules that fit is never faster; those of the sets before did not fit.
  void record(const Bracket& each);

  // Between the set that fits and the one before, modules may be recomputed in some layers and not in others: the
  // linear relaxation of the knapsack.
  double relaxed_bound(const Bracket& each);

  // Composition finds a plan too large by less than it may be wrong: if it fits, the bound is too high.
  void nearly_fits(std::size_t plan);

  // enumerate.cpp again: what is simulated of the candidates, and of their neighbours.

  // Without composition, of devices that differ (which other searches know better) or of models that are small.
  std::int64_t usual_simulations_of_all() const;

  // What plans must be faster than.
  double wanted() const { return options_.faster_than_s > 0 ? options_.faster_than_s : kNever; }

  // Simulates, a few at a time, the candidates that are expected to be faster than the best, or the best of `top`, until
  // none is left or as many rounds as `patience` gain nothing.
  void simulate_promising(int patience);

  // One standard deviation of composition's errors, before any plan was simulated: the largest ones are two.
  double spread_of(const HybridPlan& plan) const;

  std::vector<Trial> next_round();

  // Of the candidates, the budget's, or as many as it takes; a simulation of tens of thousands of devices takes seconds.
  std::int64_t most_simulations() const;

  // Pricing is linear in devices, so thousands of them get fewer simulations of plans that cannot be composed.
  std::int64_t most_neighbours() const;

  // Changes one knob of the fastest plan at a time until none helps.
  void improve();

  // Simulates the simplest candidates that may be as good as the fastest plan: one of them is the answer.
  void simulate_simpler();

  // Those of the plans that fit, were not simulated, and are composed to take little more than `start`, one change away;
  // fastest first. Composition's errors differ by more than the times of plans so alike.
  std::vector<Trial> closest_of(const std::vector<HybridPlan>& plans, const Parallelism& start) const;

  // enumerate_recompute.cpp

  // Lets those of the simulated plans and candidates that may then be the fastest recompute as little as memory allows,
  // stage by stage, and simulates them.
  void recompute_less();

  // What a plan that may recompute less is expected to take then.
  struct Hope {
    double expected = 0;
    Parallelism chain = {};      // the plan, or its recomputation as a longer chain
    RoomByLinks room = {};       // as composed; empty: not known
    std::string plan = {};       // its name without recomputation
    Parallelism simulated = {};  // the plan as it is
  };
  std::vector<Hope> hopes_of_recomputing_less();
  // None where composition does not know the chain.
  std::optional<Hope> composed_hope(const Parallelism& chain, double simulated_s);

  // enumerate.cpp

  // A set of modules that the menu does not have, or stages that nobody else has, so that plans with them can be
  // composed.
  void make_known(const Parallelism& parallelism);

  // Nothing fits: the plans that come closest.
  void simulate_smallest();

  // Whether all of them were.
  template <class Keep>
  bool simulate_those(const Keep& keep);

  void finish();

  // Whether the bound does not count such plans: changes of the fastest ones that are not enumerated.
  bool beyond_dimensions(const Parallelism& plan) const;

  // Orders of ranks that change nothing are not plans of their own.
  void leave_out_other_orders();

  void set_front();

  struct Candidate {
    HybridPlan plan;
    Composition made;
    bool done = false;  // simulated
  };

  const PlanProblem& posed_;
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
  // Plans that recompute by stage and those that they came from; and all that were tried, without recomputation.
  std::map<std::string, Parallelism> alike_of_;
  std::set<std::string> by_stage_;
  std::size_t left_to_measure_ = 2;  // of plans whose memory is not composed: each takes several compilations
  std::vector<Judged> simulated_;    // those that fit
  std::string problem_of_first_;
  double best_ = kNever;     // simulated
  double fastest_ = kNever;  // composed, or simulated
};

}  // namespace weft
