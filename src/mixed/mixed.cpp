#include "mixed/mixed.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "mixed/pipelines.h"
#include "mixed/replicas.h"
#include "mixed/routes.h"
#include "mixed/stage_tree.h"
#include "mixed/subsets.h"
#include "models/models.h"
#include "problem/parallel.h"

namespace weft {
namespace {

constexpr double kNear = 1.03;  // factor by which composed candidates may be slower than the best to be simulated
constexpr double kNearReplicas = 1.08;  // the same for replicas and routes of several kinds, composed less exactly
constexpr double kGain = 0.001;         // a gain that is not worth another simulation
constexpr std::size_t kPipelines = 12;  // most candidates of a sort that are simulated
// Simulations for one kind alone, unless the budget gives another number, and for fewer of its nodes: composition of
// even plans is near, and one plan is wanted.
constexpr std::int64_t kAlone = 8, kFewer = 4;
constexpr int kTurns = 3;           // searches for pipelines, each within less memory
constexpr std::size_t kAtOnce = 4;  // simulated before the best is known anew, on any number of threads

class MixedSearch {
 public:
  MixedSearch(const PlanProblem& problem, const CostModel& cost, const EnumerateOptions& options)
      : problem_(problem), cost_(cost), options_(options), clock_(options.budget), kinds_(kinds_of(problem)) {}

  Result<PlanOutcome> run() {
    for (const DeviceKind& kind : kinds_) search_kind(kind, kind.count() / kind.per_node, true);
    if (go_on()) WEFT_TRY_OK(problem_.layers.simple ? search_pipelines() : search_whole_models());
    std::stable_sort(outcome_.best.begin(), outcome_.best.end(),
                     [](const Judged& a, const Judged& b) { return a.score() < b.score(); });
    if (!outcome_.best.empty()) outcome_.closest.reset();
    outcome_.seconds = clock_.seconds();
    return std::move(outcome_);
  }

 private:
  bool go_on() {
    const StoppedBy reason = clock_.after(outcome_.counts.simulated);
    if (reason != StoppedBy::Itself) outcome_.stopped_by = reason;
    return reason == StoppedBy::Itself;
  }

  double best_s() const {
    double best = std::numeric_limits<double>::infinity();
    for (const Judged& judged : outcome_.best) best = std::min(best, judged.forecast.step_s);
    return best;
  }

  void add(Judged judged) {
    if (judged.score().fits())
      outcome_.best.push_back(std::move(judged));
    else if (!outcome_.closest || judged.score() < outcome_.closest->score())
      outcome_.closest = std::move(judged);
  }

  void count(const SearchCounts& counts) {
    outcome_.counts.considered += counts.considered;
    outcome_.counts.composed += counts.composed;
    outcome_.counts.simulated += counts.simulated;
    for (const auto& [reason, number] : counts.pruned) outcome_.counts.pruned[reason] += number;
  }

  // `baseline`: named beside the winner, however it compares.
  void search_kind(const DeviceKind& kind, std::int64_t nodes, bool baseline) {
    Baseline made{name_alone(kind, nodes), "the best plan of these devices alone", {}, {}};
    EnumerateOptions options = options_;
    options.top = 1;
    options.baselines = false;
    options.budget = share_of(options_.budget, 1, kinds_.size() + 1);
    if (options.budget.evaluations == 0) options.budget.evaluations = baseline ? kAlone : kFewer;
    Result<PlanOutcome> found = search_alone(problem_, cost_, kind, nodes, options);
    if (found.ok()) {
      count(found->counts);
      if (!found->best.empty()) {
        made.judged = found->best.front();
        add(std::move(found->best.front()));
      } else {
        made.why_not = "out of memory";
        if (found->closest) add(std::move(*found->closest));
      }
    } else {
      made.why_not = found.error().message;
    }
    if (baseline) outcome_.baselines.push_back(std::move(made));
  }

  Status search_pipelines() {
    WEFT_TRY(const Model model, load_model(problem_.job->words.model, {.batch = 1, .seq = problem_.job->words.seq}));
    MixedPipelines pipelines(problem_, cost_, kinds_, options_.space, options_.threads);
    outcome_.lower_bound_s = pipelines.bound();
    outcome_.dimensions = {
        "stages of any number of layers on groups of each kind, each with tp, dp and recompute (1f1b, zero=1)",
        "routes of one or several kinds, with micro-batches by speed",
        "replicas of several kinds, with samples by speed"};
    // Composed memory is near what compiling gives, and not the same: where that does not fit, with less.
    double memory = 1;
    for (int turn = 0; turn < kTurns && go_on(); ++turn) {
      std::vector<Named> named;
      for (const MixedPipeline& each : pipelines.find(kNear, memory))
        named.push_back(
            {print(each, kinds_, problem_.layers), tree_of(each, kinds_, problem_.layers, model.graph), each.seconds});
      if (turn == 0) count(pipelines.counts());
      const double lacks = simulate(named, kNear);
      if (lacks <= 1) break;
      memory /= lacks * 1.005;
    }
    if (!go_on()) return Ok{};
    std::vector<Named> routes;
    for (const MixedRoutes& each : find_routes(pipelines, problem_, cost_, kinds_, options_.threads,
                                               best_s() * kNearReplicas, memory, kPipelines))
      routes.push_back({print(each, kinds_, problem_.layers),
                        tree_of(each.routes, kinds_, problem_.layers, model.graph), each.seconds});
    simulate(routes, kNearReplicas);
    if (!go_on()) return Ok{};
    std::vector<double> least;
    for (std::size_t k = 0; k < kinds_.size(); ++k)
      least.push_back(pipelines.bound_alone(k) / static_cast<double>(problem_.global_batch));
    std::vector<Named> named;
    for (const MixedReplicas& each : find_replicas(problem_, cost_, kinds_, options_.space, least, options_.threads,
                                                   best_s() * kNearReplicas, kPipelines))
      named.push_back(
          {print(each, kinds_, problem_.layers), tree_of(each, problem_, kinds_, model.graph), each.seconds});
    simulate(named, kNearReplicas);
    for (std::size_t k = 0; k < kinds_.size(); ++k) search_fewer(k, pipelines.bound_alone(k));
    return Ok{};
  }

  // Replicas at the speeds that each kind has alone.
  Status search_whole_models() {
    std::vector<double> seconds;
    for (std::size_t k = 0; k < kinds_.size(); ++k) {
      const std::optional<Judged>& alone = outcome_.baselines[k].judged;
      if (!alone) return Ok{};
      seconds.push_back(static_cast<double>(kinds_[k].count()) / alone->forecast.samples_per_s);
    }
    WEFT_TRY(const Model model, load_model(problem_.job->words.model, {.batch = 1, .seq = problem_.job->words.seq}));
    std::vector<Named> named;
    for (const MixedReplicas& each :
         replicas_in_proportion(problem_, cost_, kinds_, seconds, best_s() * kNearReplicas, kPipelines))
      named.push_back(
          {print(each, kinds_, problem_.layers), tree_of(each, problem_, kinds_, model.graph), each.seconds});
    simulate(named, kNearReplicas);
    return Ok{};
  }

  // A kind on fewer of its nodes, the batch then dividing over more of its devices, where their speed would do.
  void search_fewer(std::size_t k, double alone) {
    const std::int64_t per_node = kinds_[k].per_node, all = kinds_[k].count() / per_node;
    std::int64_t divides = std::gcd(all * per_node, problem_.global_batch);
    for (std::int64_t nodes = all - 1; nodes > 0 && go_on(); --nodes) {
      if (alone <= 0 || alone / static_cast<double>(nodes * per_node) >= best_s()) break;
      const std::int64_t more = std::gcd(nodes * per_node, problem_.global_batch);
      if (more <= divides) continue;
      divides = more;
      search_kind(kinds_[k], nodes, false);
    }
  }

  void count(const PipelineCounts& counts) {
    outcome_.counts.considered += counts.considered;
    outcome_.counts.composed += counts.solved;
    outcome_.counts.pruned["bound"] += counts.bounded;
    if (counts.too_many > 0) outcome_.counts.pruned["too many groups"] += counts.too_many;
  }

  // A candidate with its composed time.
  struct Named {
    std::string name;
    Strategy tree;
    double seconds = 0;
  };

  // Simulates them in order, until none wins even if composition overestimates it as much as any of those before it.
  // Returns by how much the memory of those that do not fit exceeds the budget, at most; 1: all fit.
  double simulate(const std::vector<Named>& found, double near) {
    double lacks = 1;
    double least = 1 / near;  // simulated over composed, of those that were simulated
    const std::size_t most = std::min(found.size(), kPipelines);
    for (std::size_t from = 0; from < most && go_on(); from += kAtOnce) {
      if (found[from].seconds * least > best_s() * (1 - kGain)) break;
      const std::size_t count = std::min(kAtOnce, most - from);
      std::vector<Result<Judged>> judged(count, error("not judged"));
      for_each_index(count, options_.threads, 1, [&](std::size_t i) {
        const auto& [name, tree, seconds] = found[from + i];
        Result<StrategyChoice> choice = choose_strategy(*problem_.job, name, tree);
        judged[i] = choice.ok() ? judge_strategy(problem_, cost_, std::move(choice).value(), &graphs_)
                                : Result<Judged>(choice.error());
      });
      for (std::size_t i = 0; i < count; ++i) {
        ++outcome_.counts.simulated;
        if (!judged[i].ok()) {
          ++outcome_.counts.pruned["does not compile"];
          continue;
        }
        const double ratio = judged[i]->forecast.step_s / found[from + i].seconds;
        least = from + i == 0 ? ratio : std::min(least, ratio);
        if (const ClassForecast* full = judged[i]->forecast.fullest(); full && !full->fits())
          lacks =
              std::max(lacks, static_cast<double>(full->device_total.value) / static_cast<double>(full->budget.value));
        add(std::move(judged[i]).value());
      }
    }
    return lacks;
  }

  const PlanProblem& problem_;
  const CostModel& cost_;
  const EnumerateOptions& options_;
  const SearchClock clock_;
  const std::vector<DeviceKind> kinds_;
  GraphCache graphs_{16};
  PlanOutcome outcome_;
};

}  // namespace

Result<PlanOutcome> search_mixed(const PlanProblem& problem, const CostModel& cost, const EnumerateOptions& options) {
  return MixedSearch(problem, cost, options).run();
}

}  // namespace weft
