#include "search/find_plan.h"

#include <algorithm>
#include <limits>

#include "mixed/kind_use.h"
#include "mixed/mixed.h"
#include "search/uneven_replicas.h"
#include "soap/layer_table.h"
#include "soap/layerwise_tree.h"
#include "soap/soap.h"
#include "synthesis/synthesis.h"

namespace weft {
namespace {

// Devices up to which Auto looks for programs of unequal devices, and for a decision for every operator.
constexpr std::int64_t kProgramDevices = 64, kOperatorDevices = 1024;
// Devices × operators up to which Auto walks over operators, by so many proposals, which take about a millisecond for
// each of them. Beyond, it takes the exact plan of one layout per operator, and walks from there in as much time where
// that is better than what else is known; not by fewer than the least proposals.
constexpr std::int64_t kAutoWork = 4096, kAutoProposals = 2000, kLeastProposals = 200;
constexpr std::int64_t kAlike =
    4;  // a model has many equal layers if it has this many times as many as kinds of layers

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

// The share of memory that stays free, with what --max-memory leaves unused of the smallest device.
double headroom_of(const PlanProblem& problem) {
  if (!problem.job->words.max_memory) return problem.job->words.headroom;
  Bytes least = capacity_of(problem.cluster().spec(problem.device_at(0)));
  for (std::int64_t rank = 1; rank < problem.devices; ++rank)
    least = std::min(least, capacity_of(problem.cluster().spec(problem.device_at(rank))));
  return least.value > 0 ? 1 - problem.memory_budget() / least : problem.job->words.headroom;
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
                    .headroom = headroom_of(problem),
                    .types = number_types(problem.job->precision, problem.stack()),
                    .on_progress = options.enumerate.progress};
  for (std::int64_t rank = 0; rank < problem.devices; ++rank) asked.devices.push_back(problem.device_at(rank));
  WEFT_TRY(const SoapOutcome found, search_soap(whole.training(), problem.cluster(), cost, problem.stack(), asked));
  const std::string name = name_of_tree(options, "a decision for every operator", name_of(search));
  WEFT_TRY(Judged winner, judge_tree(problem, cost, name, found.tree));
  // The judge of plans counts host time, which that of the search does not.
  for (const auto& [by, tree] : found.close) {
    if (clock.after(0) != StoppedBy::Itself) break;
    if (Result<Judged> other = judge_tree(problem, cost, name, tree); other.ok() && other->score() < winner.score())
      winner = std::move(other).value();
  }
  WEFT_TRY(PlanOutcome outcome, compared(problem, cost, std::move(winner)));
  // A pipeline of micro-batches may be faster than the longest path of the whole batch, but does not have less work.
  outcome.lower_bound_s = seconds_of(alone ? found.bound.value() : found.bound.work);
  outcome.dimensions = {"a split of its own for every operator, on any devices, in one micro-batch"};
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
  const LayerTableRequest request{problem.job, cost, static_cast<int>(problem.devices), &clock};
  std::map<std::int64_t, LayerTable> tables;
  std::vector<std::int64_t> micro_batches;
  StoppedBy stopped = StoppedBy::Itself;
  std::string why = "no option of a layer compiles";
  for (std::int64_t m = 1; m <= problem.global_batch && stopped == StoppedBy::Itself; m *= 2) {
    if (problem.global_batch % m != 0) break;
    if (options.enumerate.progress) options.enumerate.progress({m, problem.global_batch, 0});
    Result<LayerTable> table = make_layer_table(request, m);
    stopped = clock.after(static_cast<std::int64_t>(tables.size()));
    if (!table.ok()) {
      why = table.error().message;
      continue;
    }
    tables.emplace(m, std::move(table).value());
    micro_batches.push_back(m);
  }
  const auto out_of_time = [&]() -> Result<PlanOutcome> {  // data parallelism is what there is
    WEFT_TRY(StrategyChoice replicas, data_parallel(problem));
    WEFT_TRY(Judged judged, judge_strategy(problem, cost, std::move(replicas)));
    WEFT_TRY(PlanOutcome outcome, compared(problem, cost, std::move(judged)));
    outcome.stopped_by = clock.after(0);
    outcome.seconds = clock.seconds();
    return outcome;
  };
  const auto stops = [&] { return clock.after(0) != StoppedBy::Itself; };
  if (tables.empty() && stops()) return out_of_time();
  if (tables.empty()) return error("--search layerwise: {}", why);
  WEFT_TRY(const Bytes limit, layer_memory_limit(request, problem.memory_budget()));
  const std::optional<ExpressiblePlan> found =
      best_expressible({.devices = static_cast<int>(problem.devices),
                        .micro_batches = micro_batches,
                        .table_of = [&](std::int64_t m) { return &tables.at(m); },
                        .limit = limit,
                        .quantum = kQuantum,
                        .most_stages = static_cast<std::size_t>(problem.devices),
                        .clock = &clock});
  if (!found && stops()) return out_of_time();
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
  outcome.stopped_by = stopped == StoppedBy::Itself ? clock.after(0) : stopped;
  outcome.seconds = clock.seconds();
  return outcome;
}

constexpr std::size_t kJudgedPrograms = 36;  // all that synthesis finds: six objectives, two meshes, three starts
constexpr double kCloseToBound = 0.02;       // shares further above what linear programming reaches say so

std::string name_of_program(const Synthesised& program) {
  std::string name = fmt::format("program on {}: stages {:.4g} s (at least {:.4g} s", program.name,
                                 seconds_of(program.program.sum.total), seconds_of(program.program.lower_bound));
  if (program.above_bound() > kCloseToBound)
    name += fmt::format("; {:.0f} % above shares that need not be whole", 100 * program.above_bound());
  return name + ")";
}

// Whole replicas with the samples in the shares that a program has along its one axis: what is not hidden beside backward
// may make the plainest plan the best.
std::optional<Strategy> as_replicas(const Synthesised& program, std::int64_t samples) {
  if (program.mesh.mesh.axes().size() != 1) return std::nullopt;
  Strategy tree;
  tree.mesh = program.tree.mesh;
  tree.schedule.name = "gpipe";
  Rule all{.match = "**"};
  Shares shares = program.mesh.ratio.front().samples;
  if (!shares.empty()) shares = reduced(nearest_shares(samples, 1, shares));
  const auto [least, most] = std::minmax_element(shares.begin(), shares.end());
  if (!shares.empty() && *least < 1) return std::nullopt;
  if (!shares.empty() && *least == *most) shares.clear();
  all.inputs[tree.mesh.axes.front().name] = {0, std::move(shares)};
  tree.rules.push_back(std::move(all));
  return tree;
}

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
  outcome.dimensions = {"every operator's splits, and those of its weight's gradient, on one and two mesh axes",
                        "where weights, gradients and optimizer state are sharded",
                        "shares of samples and of everything else that is split, one set for each mesh axis",
                        "padded and grouped collectives", "one micro-batch; no pipeline, no recomputation"};
  std::string why;
  const auto judge = [&](const std::string& name, const Strategy& tree) {
    Result<Judged> judged = judge_tree(problem, cost, name, tree);
    if (!judged.ok()) {
      why = judged.error().message;
      return;
    }
    if (judged->score().fits())
      outcome.best.push_back(std::move(judged).value());
    else if (!outcome.closest || judged->score() < outcome.closest->score())
      outcome.closest = std::move(judged).value();
    ++outcome.counts.simulated;
  };
  std::vector<Strategy> alike;
  for (std::size_t i = 0; i < found.programs.size() && i < kJudgedPrograms; ++i) {
    if (i > 0 && clock.after(0) != StoppedBy::Itself) break;  // the first has the least sum of its stages
    const Synthesised& program = found.programs[i];
    judge(name_of_program(program), program.tree);
    const std::optional<Strategy> plain = as_replicas(program, problem.global_batch);
    if (!plain || std::find(alike.begin(), alike.end(), *plain) != alike.end()) continue;
    alike.push_back(*plain);
    judge(fmt::format("replicas on {}", program.name), *plain);
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
      first && !options.tree_file.empty() && !first->parallelism && first->strategy.find(" on ") != std::string::npos)
    first->strategy = options.tree_file;
  outcome.baselines.push_back(std::move(baseline));
  outcome.counts.considered += found.counts.considered;
  outcome.counts.composed += found.counts.composed;
  for (const auto& [reason, count] : found.counts.pruned) outcome.counts.pruned[reason] += count;
  outcome.stopped_by = found.stopped_by;
  outcome.seconds = clock.seconds();
  return outcome;
}

// What recommendation models are usually trained with: embedding tables divided over all devices, the rest data
// parallel (Naumov et al. 2019).
Result<PlanOutcome> divided_tables(const PlanProblem& problem, const CostModel& cost) {
  PlanRequest request;
  request.strategy = fmt::format("dp={},mbs={},tables=1", problem.devices, problem.global_batch / problem.devices);
  WEFT_TRY(StrategyChoice choice, choose_strategy(*problem.job, request));
  Baseline baseline{"divided tables", choice.name, {}, {}};
  WEFT_TRY(Judged judged, judge_strategy(problem, cost, std::move(choice)));
  PlanOutcome outcome;
  (judged.score().fits() ? outcome.best.emplace_back(judged) : outcome.closest.emplace(judged));
  baseline.judged = std::move(judged);
  outcome.baselines.push_back(std::move(baseline));
  outcome.dimensions = {"divided tables with the rest data parallel (tables=1)"};
  outcome.counts.considered = outcome.counts.simulated = 1;
  return outcome;
}

// Merges the outcome of another search of the same problem.
void join(PlanOutcome& outcome, PlanOutcome other) {
  if (!other.best.empty() && other.best.front().forecast.step_s < outcome.lower_bound_s) outcome.lower_bound_s = 0;
  for (Judged& each : other.best) outcome.best.push_back(std::move(each));
  std::stable_sort(outcome.best.begin(), outcome.best.end(), by_score);
  // A plan found by both is kept once, with the name that the first gave it; the same times and bytes are the same plan
  // in other words.
  const auto same = [](const Judged& a, const Judged& b) {
    return a.tree == b.tree || (a.forecast.step == b.forecast.step &&
                                a.forecast.fullest()->device_total == b.forecast.fullest()->device_total);
  };
  const auto known = [&](std::size_t i) {
    return std::any_of(outcome.best.begin(), outcome.best.begin() + static_cast<std::ptrdiff_t>(i),
                       [&](const Judged& before) { return same(before, outcome.best[i]); });
  };
  for (std::size_t i = outcome.best.size(); i-- > 1;)
    if (known(i)) outcome.best.erase(outcome.best.begin() + static_cast<std::ptrdiff_t>(i));
  if (other.closest && (!outcome.closest || other.closest->score() < outcome.closest->score()))
    outcome.closest = std::move(other.closest);
  if (!outcome.best.empty()) outcome.closest.reset();
  outcome.counts.considered += other.counts.considered;
  outcome.counts.composed += other.counts.composed;
  outcome.counts.simulated += other.counts.simulated;
  for (const auto& [reason, count] : other.counts.pruned) outcome.counts.pruned[reason] += count;
  if (outcome.stopped_by == StoppedBy::Itself) outcome.stopped_by = other.stopped_by;
  // The later search's space is larger; where it proves no bound, that of the earlier one may be too high.
  outcome.bound_is_estimate = other.bound_is_estimate || (other.lower_bound_s == 0 && outcome.lower_bound_s > 0);
  if (other.lower_bound_s > 0)
    outcome.lower_bound_s =
        outcome.lower_bound_s > 0 ? std::min(outcome.lower_bound_s, other.lower_bound_s) : other.lower_bound_s;
  outcome.beyond_bound =
      outcome.beyond_bound && !outcome.best.empty() && outcome.fastest().forecast.step_s < outcome.lower_bound_s;
  for (std::string& dimension : other.dimensions) outcome.dimensions.push_back(std::move(dimension));
  for (Baseline& baseline : other.baselines)
    if (std::none_of(outcome.baselines.begin(), outcome.baselines.end(),
                     [&](const Baseline& each) { return each.name == baseline.name; }))
      outcome.baselines.push_back(std::move(baseline));
  outcome.seconds += other.seconds;
}

// Whether weights, gradients and optimizer state fit on every device, so that the model needs no pipeline. (16 bytes a
// parameter: Rajbhandari et al. 2020, section 3.1.)
bool fits_everywhere(const PlanProblem& problem) {
  constexpr std::int64_t kBytesPerParameter = 16;
  return problem.memory_budget().value == 0 || problem.parameters * kBytesPerParameter <= problem.memory_budget().value;
}

// Enumeration of even cuts; on devices of several kinds also unequal pipelines and, of small models, programs; for
// models whose layers mostly differ or stand side by side also a decision for every operator: in a chain of alike layers
// degrees for all of them are as good, and there are too many operators to walk over.
Result<FoundPlan> search_hybrid(const PlanProblem& problem, const CostModel& cost, const FindOptions& options) {
  const bool alike = problem.layers.chained && problem.layers.count() >= kAlike * problem.layers.kinds;
  const std::size_t kinds = kinds_of(problem).size();
  // Trees have no degrees that could be demanded.
  const bool free = options.enumerate.space.constraints.empty() && !options.enumerate.space.allows;
  const bool trees =
      free && options.search == Search::Auto && problem.devices > 1 && problem.devices <= kOperatorDevices;
  const bool mixed = free && kinds > 1;
  const bool programs = trees && mixed && problem.devices <= kProgramDevices && fits_everywhere(problem);
  const bool divides = !mixed && problem.global_batch % problem.devices == 0;
  const bool operators = trees && !alike && divides;
  const bool uneven = trees && !mixed && !divides && problem.global_batch > problem.devices && fits_everywhere(problem);
  const bool tables =
      free && divides && options.search == Search::Auto && problem.model().kind == ModelKind::Recommender;
  // Of a budget, one part for even cuts, one for every kind alone and for what knows all kinds, one for trees.
  const std::size_t parts = 1 + (mixed ? kinds + 1 : 0) + (programs || operators ? 1 : 0);
  const SearchClock clock(options.enumerate.budget);
  const auto with = [&](std::size_t share) {
    EnumerateOptions part = options.enumerate;
    part.budget = share_of(part.budget, share, parts);
    return part;
  };
  // What the time of the budget leaves.
  FindOptions rest = options;
  const auto spend_rest = [&] {
    rest.enumerate = with(1);
    if (options.enumerate.budget.seconds > 0)
      rest.enumerate.budget.seconds = std::max(1e-3, options.enumerate.budget.seconds - clock.seconds());
  };
  std::string by = "enumerate";
  Result<PlanOutcome> found = enumerate(problem, cost, with(1));
  const auto cancelled = [&] { return found.ok() && found->stopped_by == StoppedBy::Cancelled; };
  const auto add = [&](Result<PlanOutcome> other, std::string_view name) {
    if (!other.ok()) return;  // e.g. nothing divides, or an operator that it does not support
    if (found.ok())
      join(*found, std::move(other).value());
    else if (!other->best.empty() || other->closest)  // otherwise the error tells more
      found = std::move(other);
    by += fmt::format(" and {}", name);
  };
  const bool unfinished = found.ok() && found->stopped_by == StoppedBy::Time;
  if (mixed && !cancelled()) add(search_mixed(problem, cost, with(kinds + 1)), "mixed");
  spend_rest();
  if (programs && !cancelled()) {
    rest.search = Search::Hap;
    add(search_programs(problem, cost, rest), "hap");
  }
  if (uneven && !cancelled()) add(search_uneven_replicas(problem, cost, rest.enumerate), "uneven replicas");
  if (tables && !cancelled()) add(divided_tables(problem, cost), "divided tables");
  if (operators && !cancelled()) {
    constexpr double kGain = 0.99;
    const std::int64_t work = problem.devices * problem.operators;
    const bool few = work <= kAutoWork;
    const std::int64_t proposals = few ? kAutoProposals : kAutoProposals * kAutoWork / work;
    const auto fastest = [&] {
      return found.ok() && !found->best.empty() ? found->fastest().forecast.step_s
                                                : std::numeric_limits<double>::infinity();
    };
    const double before = fastest();
    if (!few) {
      add(search_operators(problem, cost, SoapSearch::Exact, rest, false), "exact");
      spend_rest();
    }
    if (few || (proposals >= kLeastProposals && fastest() < kGain * before && !cancelled())) {
      const SearchBudget& budget = rest.enumerate.budget;
      if (budget.evaluations == 0 && budget.seconds <= 0) rest.enumerate.budget.evaluations = proposals;
      add(search_operators(problem, cost, SoapSearch::Mcmc, rest, false), "mcmc");
    }
  }
  spend_rest();
  // Even cuts had one part of the time; with more than that left they are searched again.
  if (unfinished && mixed && !cancelled() && rest.enumerate.budget.seconds > with(1).budget.seconds) {
    if (Result<PlanOutcome> longer = enumerate(problem, cost, rest.enumerate); longer.ok()) {
      longer->dimensions.clear();  // those of the first time
      if (longer->lower_bound_s == 0) longer->lower_bound_s = found->lower_bound_s;
      join(*found, std::move(longer).value());
    }
  }
  if (!found.ok()) return found.error();
  found->settle_order(options.enumerate.top, problem.stack().can.value);
  if (mixed && !found->best.empty()) {
    WEFT_TRY(found->kinds, use_of_kinds(problem, cost, found->best.front(), found->best));
  }
  return FoundPlan{std::move(by), std::move(found).value()};
}

Result<FoundPlan> search(const PlanProblem& problem, const CostModel& cost, const FindOptions& options) {
  const Constraints& demanded = options.enumerate.space.constraints;
  const bool by_degrees = options.search == Search::Auto || options.search == Search::Enumerate;
  if (!by_degrees && !demanded.clauses.empty())
    return error("{}: --search {} decides for every operator or layer and has no such key; use --search enumerate",
                 demanded.clauses.front().words, name_of(options.search));
  if (!by_degrees && !demanded.abilities.has(Ability::EveryOperator))
    return error(
        "--search {}: {} has no splits of its own for every operator or layer (presets/stacks.yaml); use "
        "--search enumerate, or --any-stack",
        name_of(options.search), demanded.stack);
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

}  // namespace

Result<FoundPlan> find_plan(const PlanProblem& problem, const CostModel& cost, const FindOptions& options) {
  WEFT_TRY(FoundPlan found, search(problem, cost, options));
  WEFT_TRY_OK(add_details(problem, cost, found.outcome, options.enumerate.threads));
  return found;
}

}  // namespace weft
