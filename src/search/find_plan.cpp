#include "search/find_plan.h"

#include <algorithm>

#include "soap/layer_table.h"
#include "soap/layerwise_tree.h"
#include "soap/soap.h"
#include "synthesis/synthesis.h"

namespace weft {
namespace {

constexpr std::int64_t kAutoProposals = 2000, kAutoDevices = 64;  // limits of MCMC in Search::Auto

bool by_score(const Judged& a, const Judged& b) { return a.score() < b.score(); }

std::string name_of_tree(const FindOptions& options, std::string_view what, std::string_view search) {
  return options.tree_file.empty() ? fmt::format("{} ({})", what, search) : options.tree_file;
}

// The whole batch as one micro-batch, divided over all devices.
Result<StrategyChoice> data_parallel(const PlanProblem& problem) {
  PlanRequest request;
  request.strategy = fmt::format("dp={},mbs={}", problem.devices, problem.global_batch / problem.devices);
  return choose_strategy(*problem.job, request);
}

Result<Judged> judge_tree(const PlanProblem& problem, const CostModel& cost, const std::string& name,
                          const Strategy& tree) {
  WEFT_TRY(StrategyChoice choice, choose_strategy(*problem.job, name, tree));
  return judge_strategy(problem, cost, std::move(choice));
}

// The plan that a search over strategy trees found, compared with data parallelism.
Result<PlanOutcome> compared(const PlanProblem& problem, const CostModel& cost, Judged winner) {
  PlanOutcome outcome;
  WEFT_TRY(StrategyChoice replicas, data_parallel(problem));
  Baseline baseline{"data parallel", replicas.name, {}, {}};
  if (Result<Judged> judged = judge_strategy(problem, cost, std::move(replicas)); judged.ok())
    baseline.judged = std::move(judged).value();
  else
    baseline.why_not = judged.error().message;
  for (const std::optional<Judged>& each : {std::optional(winner), baseline.judged})
    if (each && each->score().fits()) outcome.best.push_back(*each);
  std::stable_sort(outcome.best.begin(), outcome.best.end(), by_score);
  if (outcome.best.empty()) outcome.closest = std::move(winner);
  outcome.baselines.push_back(std::move(baseline));
  return outcome;
}

// A decision for every operator, with one micro-batch.
Result<PlanOutcome> search_operators(const PlanProblem& problem, const CostModel& cost, SoapSearch search,
                                     const FindOptions& options, bool alone) {
  if (problem.global_batch % problem.devices != 0)
    return error("--search {}: a global batch of {} does not divide over {} devices; use a multiple", name_of(search),
                 grouped(problem.global_batch), grouped(problem.devices));
  const SearchClock clock(options.enumerate.budget);
  WEFT_TRY(StrategyChoice replicas, data_parallel(problem));
  WEFT_TRY(const Plan whole, make_plan(problem.job, std::move(replicas)));
  SoapRequest asked{.search = search,
                    .budget = options.enumerate.budget,
                    .seed = options.seed,
                    .threads = options.enumerate.threads,
                    .headroom = problem.job->words.headroom,
                    .types = number_types(problem.job->precision, problem.stack()),
                    .on_progress = options.enumerate.progress};
  for (std::int64_t rank = 0; rank < problem.devices; ++rank) asked.devices.push_back(problem.device_at(rank));
  WEFT_TRY(const SoapOutcome found, search_soap(whole.training(), problem.cluster(), cost, problem.stack(), asked));
  const std::string name = name_of_tree(options, "a decision for every operator", name_of(search));
  WEFT_TRY(Judged winner, judge_tree(problem, cost, name, found.tree));
  WEFT_TRY(PlanOutcome outcome, compared(problem, cost, std::move(winner)));
  // A pipeline of micro-batches may be faster than the longest path of the whole batch, but does not have less work.
  outcome.lower_bound_s = seconds_of(alone ? found.bound.value() : found.bound.work);
  outcome.counts = found.counts;
  outcome.stopped_by = found.stopped_by;
  outcome.seconds = clock.seconds();
  return outcome;
}

// A decision for every layer (tensor and data parallelism, recomputation), in pipeline stages each with its own mesh.
Result<PlanOutcome> search_layers(const PlanProblem& problem, const CostModel& cost, const FindOptions& options) {
  constexpr Bytes kQuantum{64 << 20};  // of memory: finer ones take time and do not change plans
  if (!problem.layers.simple)
    return error("--search layerwise: {} has no layers that are alike; use mcmc or auto", problem.job->words.model);
  const SearchClock clock(options.enumerate.budget);
  const LayerTableRequest request{problem.job, cost, static_cast<int>(problem.devices)};
  std::map<std::int64_t, LayerTable> tables;
  std::vector<std::int64_t> micro_batches;
  StoppedBy stopped = StoppedBy::Itself;
  std::string why = "no option of a layer compiles";
  for (std::int64_t m = 1; m <= problem.global_batch && stopped == StoppedBy::Itself; m *= 2) {
    if (problem.global_batch % m != 0) break;
    Result<LayerTable> table = make_layer_table(request, m);
    stopped = clock.after(static_cast<std::int64_t>(tables.size()));
    if (!table.ok()) {
      why = table.error().message;
      continue;
    }
    tables.emplace(m, std::move(table).value());
    micro_batches.push_back(m);
  }
  if (tables.empty()) return error("--search layerwise: {}", why);
  WEFT_TRY(const Bytes limit, layer_memory_limit(request, problem.memory_budget()));
  const std::optional<ExpressiblePlan> found =
      best_expressible({static_cast<int>(problem.devices), micro_batches, [&](std::int64_t m) { return &tables.at(m); },
                        limit, kQuantum, static_cast<std::size_t>(problem.devices)});
  if (!found)
    return error("--search layerwise: nothing fits the {} that a device has for layers; use auto", human(limit));
  WEFT_TRY(const Model model, load_model(problem.job->words.model, {.batch = 1, .seq = problem.job->words.seq}));
  WEFT_TRY(const Strategy tree, to_tree(found->pipeline, found->tables.at(found->pipeline.micro_batches), model.graph));
  const std::string name = name_of_tree(options, "a decision for every layer", name_of(options.search));
  WEFT_TRY(Judged winner, judge_tree(problem, cost, name, tree));
  WEFT_TRY(PlanOutcome outcome, compared(problem, cost, std::move(winner)));
  for (const auto& [m, table] : tables) outcome.counts.composed += static_cast<std::int64_t>(table.options.size());
  outcome.counts.considered = outcome.counts.composed;
  outcome.counts.simulated = 1;
  outcome.stopped_by = stopped;
  outcome.seconds = clock.seconds();
  return outcome;
}

constexpr std::size_t kJudgedPrograms = 24;  // of those that synthesis finds

// A program for unequal devices, with shares: found by stage sums, the best of them judged.
Result<PlanOutcome> search_programs(const PlanProblem& problem, const CostModel& cost, const FindOptions& options) {
  const SearchClock clock(options.enumerate.budget);
  Strategy whole;  // nothing is split yet: for the graph of the whole batch
  whole.mesh.axes = {{"dp", static_cast<int>(problem.devices)}};
  whole.schedule.name = "gpipe";
  WEFT_TRY(StrategyChoice choice, choose_strategy(*problem.job, "one step", whole));
  WEFT_TRY(const Plan plan, make_plan(problem.job, std::move(choice)));
  SynthesisRequest asked{.devices = {}, .memory_budget = {}, .rules = {}, .budget = options.enumerate.budget};
  asked.rules.bucket = problem.stack().gradient_bucket.value;
  asked.overlaps_gradients = problem.stack().gradient_overlap.value;
  asked.astar = options.search == Search::AStar;
  for (std::int64_t rank = 0; rank < problem.devices; ++rank) {
    asked.devices.push_back(problem.device_at(rank));
    asked.memory_budget.push_back(problem.job->memory_budget_of(asked.devices.back()).value);
  }
  SynthesisOutcome found = synthesise(plan.training(), problem.cluster(), cost, asked);
  if (found.programs.empty())
    return error("--search {}: no operator of {} divides over {} devices; use auto", name_of(options.search),
                 problem.job->words.model, grouped(problem.devices));
  PlanOutcome outcome;
  std::string why;
  for (std::size_t i = 0; i < found.programs.size() && i < kJudgedPrograms; ++i) {
    const Synthesised& program = found.programs[i];
    Result<Judged> judged =
        judge_tree(problem, cost,
                   fmt::format("program on {}: stages {:.4g} s (at least {:.4g} s)", program.name,
                               seconds_of(program.program.sum.total), seconds_of(program.program.lower_bound)),
                   program.tree);
    if (!judged.ok()) {
      why = judged.error().message;
      continue;
    }
    if (judged->score().fits())
      outcome.best.push_back(std::move(judged).value());
    else if (!outcome.closest || judged->score() < outcome.closest->score())
      outcome.closest = std::move(judged).value();
    ++outcome.counts.simulated;
  }
  if (outcome.best.empty() && !outcome.closest) return error("--search {}: {}", name_of(options.search), why);
  Baseline baseline{"data parallel", "", {}, {}};
  if (Result<StrategyChoice> replicas = data_parallel(problem); !replicas.ok()) {
    baseline.why_not = replicas.error().message;
  } else {
    baseline.description = replicas->name;
    if (Result<Judged> judged = judge_strategy(problem, cost, std::move(replicas).value()); judged.ok()) {
      if (judged->score().fits()) outcome.best.push_back(*judged);
      baseline.judged = std::move(judged).value();
    } else {
      baseline.why_not = judged.error().message;
    }
  }
  std::stable_sort(outcome.best.begin(), outcome.best.end(), by_score);
  if (!outcome.best.empty()) outcome.closest.reset();
  if (outcome.best.size() > options.enumerate.top) outcome.best.resize(options.enumerate.top);
  if (Judged* const first = outcome.best.empty() ? nullptr : &outcome.best.front();
      first && !options.tree_file.empty() && first->strategy.starts_with("program on"))
    first->strategy = options.tree_file;
  outcome.baselines.push_back(std::move(baseline));
  outcome.counts.considered += found.counts.considered;
  outcome.counts.composed += found.counts.composed;
  for (const auto& [reason, count] : found.counts.pruned) outcome.counts.pruned[reason] += count;
  outcome.stopped_by = found.stopped_by;
  outcome.seconds = clock.seconds();
  return outcome;
}

// Merges the outcome of another search of the same problem.
void join(PlanOutcome& outcome, PlanOutcome other, std::size_t top) {
  for (Judged& each : other.best) outcome.best.push_back(std::move(each));
  std::stable_sort(outcome.best.begin(), outcome.best.end(), by_score);
  // A plan found by both is kept once, with the name that the first gave it.
  const auto known = [&](std::size_t i) {
    return std::any_of(outcome.best.begin(), outcome.best.begin() + static_cast<std::ptrdiff_t>(i),
                       [&](const Judged& before) { return before.tree == outcome.best[i].tree; });
  };
  for (std::size_t i = outcome.best.size(); i-- > 1;)
    if (known(i)) outcome.best.erase(outcome.best.begin() + static_cast<std::ptrdiff_t>(i));
  if (outcome.best.size() > top) outcome.best.resize(top);
  if (other.closest && (!outcome.closest || other.closest->score() < outcome.closest->score()))
    outcome.closest = std::move(other.closest);
  if (!outcome.best.empty()) outcome.closest.reset();
  outcome.counts.considered += other.counts.considered;
  outcome.counts.composed += other.counts.composed;
  outcome.counts.simulated += other.counts.simulated;
  for (const auto& [reason, count] : other.counts.pruned) outcome.counts.pruned[reason] += count;
  if (outcome.stopped_by == StoppedBy::Itself) outcome.stopped_by = other.stopped_by;
  outcome.lower_bound_s = other.lower_bound_s;
  outcome.seconds += other.seconds;
}

// Whether devices are of several kinds, and the model needs no pipeline: weights, gradients and optimizer state fit on
// every device. (16 bytes a parameter: Rajbhandari et al. 2020, section 3.1.)
bool needs_programs(const PlanProblem& problem) {
  constexpr std::int64_t kBytesPerParameter = 16;
  const DeviceSpec* const first = &problem.cluster().spec(problem.device_at(0));
  bool several = false;
  for (std::int64_t rank = 0; rank < problem.devices; ++rank)
    several = several || &problem.cluster().spec(problem.device_at(rank)) != first;
  return several && problem.devices <= kAutoDevices &&
         (problem.memory_budget().value == 0 ||
          problem.parameters * kBytesPerParameter <= problem.memory_budget().value);
}

// Enumeration; on devices of several kinds also synthesis of programs; for models without equal layers, whose hybrid space is small, also MCMC over operators.
Result<FoundPlan> search_hybrid(const PlanProblem& problem, const CostModel& cost, const FindOptions& options) {
  const bool both = options.search == Search::Auto && !problem.layers.simple && problem.devices > 1 &&
                    problem.devices <= kAutoDevices && problem.global_batch % problem.devices == 0;
  FindOptions part = options;
  if (both) part.enumerate.budget.seconds /= 2;
  const bool programs = options.search == Search::Auto && needs_programs(problem);
  if (programs) part.enumerate.budget.seconds /= 2;
  WEFT_TRY(PlanOutcome outcome, enumerate(problem, cost, part.enumerate));
  if (programs && outcome.stopped_by != StoppedBy::Cancelled) {
    FindOptions other = part;
    other.search = Search::Hap;
    Result<PlanOutcome> found = search_programs(problem, cost, other);
    if (!found.ok()) return FoundPlan{"enumerate", std::move(outcome)};  // e.g. nothing divides
    join(outcome, std::move(found).value(), options.enumerate.top);
    return FoundPlan{"enumerate and hap", std::move(outcome)};
  }
  if (!both || outcome.stopped_by == StoppedBy::Cancelled) return FoundPlan{"enumerate", std::move(outcome)};
  if (part.enumerate.budget.evaluations == 0) part.enumerate.budget.evaluations = kAutoProposals;
  Result<PlanOutcome> operators = search_operators(problem, cost, SoapSearch::Mcmc, part, false);
  if (!operators.ok()) return FoundPlan{"enumerate", std::move(outcome)};  // e.g. an operator that it does not support
  join(outcome, std::move(operators).value(), options.enumerate.top);
  return FoundPlan{"enumerate and mcmc", std::move(outcome)};
}

}  // namespace

Result<FoundPlan> find_plan(const PlanProblem& problem, const CostModel& cost, const FindOptions& options) {
  const auto alone = [&](Result<PlanOutcome> outcome) -> Result<FoundPlan> {
    if (!outcome.ok()) return outcome.error();
    return FoundPlan{std::string(name_of(options.search)), std::move(outcome).value()};
  };
  switch (options.search) {
    case Search::Auto:
    case Search::Enumerate:
      return search_hybrid(problem, cost, options);
    case Search::Exact:
      return alone(search_operators(problem, cost, SoapSearch::Exact, options, true));
    case Search::Mcmc:
      return alone(search_operators(problem, cost, SoapSearch::Mcmc, options, true));
    case Search::Symbolic:
      return alone(search_operators(problem, cost, SoapSearch::Symbolic, options, true));
    case Search::Layerwise:
      return alone(search_layers(problem, cost, options));
    case Search::Hap:
    case Search::AStar:
      return alone(search_programs(problem, cost, options));
  }
  return error("no such search");
}

}  // namespace weft
