#include "ask/search.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <span>

#include "ask/fewer_devices.h"
#include "ask/words.h"
#include "base/suggest.h"
#include "base/units.h"
#include "base/whole_file.h"
#include "report/trace.h"
#include "strategy/yaml.h"

namespace weft {
namespace {

Status write_file(const std::string& path, std::string_view text) {
  WEFT_TRY(WholeFile file, WholeFile::create(path));
  file.write(text);
  return file.finish();
}

Status check(const SearchRequest& request) {
  const std::vector<std::string> known(kSearchNames.begin(), kSearchNames.end());
  if (std::find(known.begin(), known.end(), request.search) == known.end())
    return error("--search '{}': write one of {}{}", request.search, fmt::join(known, ", "),
                 did_you_mean(request.search, known));
  WEFT_TRY_OK(check(request.cost));
  if (request.cost.model == "symbolic")
    return error(
        "--cost symbolic: its times have no seconds to compare plans by; --search symbolic is a search by volumes");
  if (request.top < 1 || request.top > 100) return error("--top {}: from 1 to 100 plans", request.top);
  if (request.threads < 0 || request.threads > 1024)
    return error("--threads {}: from 1 to 1024, or 0 for all", request.threads);
  if (!(request.headroom >= 0 && request.headroom < 100))
    return error("--headroom {}: a share of the device's memory, from 0 to less than 100 %", request.headroom);
  return Ok{};
}

// What the user demands, and what the stack can run where the user names one.
Result<Constraints> constraints_of(const SearchRequest& request) {
  WEFT_TRY(Constraints constraints, parse_constraints(request.constraints));
  if (request.any_stack || request.plan.stack.empty()) return constraints;
  const Result<SoftwareStack> stack = find_stack(request.plan.stack);
  if (!stack.ok()) return stack.error().at("--stack");
  constraints.stack = stack->name;
  constraints.abilities = stack->can.value;
  return constraints;
}

}  // namespace

Result<SettledSearch> settle_search(SearchRequest request) {
  WEFT_TRY_OK(check(request));
  SettledSearch settled;
  FindOptions& finding = settled.finding;
  finding.search =
      static_cast<Search>(std::find(kSearchNames.begin(), kSearchNames.end(), request.search) - kSearchNames.begin());
  finding.seed = static_cast<std::uint64_t>(request.seed);
  finding.tree_file = request.tree_file;
  EnumerateOptions& options = finding.enumerate;
  WEFT_TRY(options.budget, parse_budget(request.budget));
  if (!request.tokens.empty()) {
    WEFT_TRY(settled.table.tokens, parse_tokens(request.tokens));
  }
  WEFT_TRY(settled.prices, parse_prices(request.price));
  if (settled.prices.size() == 1) settled.table.price = settled.prices.front();
  if (!request.schedules.empty()) {
    WEFT_TRY(options.space.schedules, parse_schedules(request.schedules));
  }
  WEFT_TRY(options.space.constraints, constraints_of(request));
  settled.table.constraints = options.space.constraints.words();
  options.top = static_cast<std::size_t>(request.top);
  options.threads = request.threads;
  request.plan.headroom = request.headroom / 100;
  if (!request.max_memory.empty()) {
    const Result<Bytes> most = parse_bytes(request.max_memory);
    if (!most.ok() || most->value <= 0)
      return error("--max-memory '{}': a size with its unit, 70GiB or 80GB", request.max_memory.substr(0, 40));
    request.plan.max_memory = *most;
    settled.table.constraints.push_back("--max-memory " + request.max_memory);
  }
  WEFT_TRY(settled.calibration, calibration_of(request.cost));
  settled.request = std::move(request);
  return settled;
}

namespace {

// Searches on fewer devices while that is faster, or nothing is found; problem, cost and plan become those of the best.
Status try_fewer_devices(SettledSearch& settled, const SearchHooks& hooks, FindOptions finding, PlanProblem& problem,
                         ChosenCost& cost, Result<FoundPlan>& found) {
  constexpr int kMostFruitless = 3;            // searches that found no plan at all
  constexpr std::int64_t kMostDevices = 4096;  // a search on more of them takes seconds
  constexpr double kGain = 0.99;               // of the time on all of them, for which some are left out
  const SearchBudget& budget = finding.enumerate.budget;
  const bool by_degrees = finding.search == Search::Auto || finding.search == Search::Enumerate;
  if (!by_degrees || budget.evaluations > 0 || problem.devices > kMostDevices) return Ok{};
  if (!found.ok() && !finding.enumerate.space.constraints.empty()) return Ok{};
  const std::int64_t all = problem.devices;
  const SearchClock clock(budget);
  const double spent = found.ok() ? found->outcome.seconds : 0;
  const double on_all = found.ok() && !found->outcome.best.empty() ? found->outcome.fastest().forecast.step_s : 0;
  int fruitless = 0;
  for (PlanRequest& request : on_fewer_devices(settled.request.plan, problem)) {
    if (found.ok() && found->outcome.stopped_by != StoppedBy::Itself) break;
    WEFT_TRY(PlanProblem fewer, pose(request, settled.calibration));
    const bool known = found.ok() && !found->outcome.best.empty();
    if (known && !may_be_faster(found->outcome, problem.devices, fewer.devices)) break;
    if (fruitless == kMostFruitless) break;
    FindOptions part = finding;
    if (known) part.enumerate.faster_than_s = kGain * found->outcome.fastest().forecast.step_s;
    if (hooks.admit) WEFT_TRY_OK(hooks.admit(fewer, part.enumerate.space));
    if (budget.seconds > 0) part.enumerate.budget.seconds = std::max(1e-3, budget.seconds - spent - clock.seconds());
    WEFT_TRY(ChosenCost own, choose_cost(settled.request.cost, *fewer.job));
    Result<FoundPlan> other = find_plan(fewer, *own.model, part);
    if (!other.ok() || other->outcome.best.empty()) {
      ++fruitless;
      continue;
    }
    const double step = other->outcome.fastest().forecast.step_s;
    if (known && step >= kGain * found->outcome.fastest().forecast.step_s) break;
    const std::string why = on_all > 0   ? fmt::format("on all of them the best plan found takes {}, {:.1f} % more",
                                                       human(Seconds(on_all)), 100 * (on_all / step - 1))
                            : found.ok() ? "no plan found on all of them fits"
                                         : found.error().message;
    TrainingJob job = *fewer.job;
    job.notes.push_back(fmt::format("{} of the {} devices: {}", fewer.devices, all, why));
    fewer.job = std::make_shared<const TrainingJob>(std::move(job));
    if (found.ok()) other->outcome.seconds += found->outcome.seconds;
    fewer.assumptions.insert(fewer.assumptions.begin(), problem.assumptions.begin(), problem.assumptions.end());
    settled.request.plan = std::move(request);
    problem = std::move(fewer);
    WEFT_TRY(cost, choose_cost(settled.request.cost, *problem.job));  // of the job's own cluster
    found = std::move(other);
  }
  return Ok{};
}

}  // namespace

Result<Searched> search_plans(SearchRequest request, const SearchHooks& hooks) {
  WEFT_TRY(SettledSearch settled, settle_search(std::move(request)));
  if (settled.prices.size() > 1)
    return error("--price {}: one price; several are for --sweep cluster=A,B", settled.request.price);
  FindOptions finding = settled.finding;
  finding.enumerate.budget.cancelled = hooks.cancelled;
  finding.enumerate.progress = hooks.progress;
  WEFT_TRY(PlanProblem problem, pose(settled.request.plan, settled.calibration));
  if (hooks.admit) WEFT_TRY_OK(hooks.admit(problem, finding.enumerate.space));
  WEFT_TRY(ChosenCost cost, choose_cost(settled.request.cost, *problem.job));
  Result<FoundPlan> searched = find_plan(problem, *cost.model, finding);
  WEFT_TRY_OK(try_fewer_devices(settled, hooks, finding, problem, cost, searched));
  WEFT_TRY(FoundPlan found, std::move(searched));
  if (settled.request.cost.model == "measured")
    for (Judged& judged : found.outcome.best) judged.forecast.interval.reasons.emplace_back(kMeasuredInterval);
  return Searched{.request = std::move(settled.request),
                  .problem = std::move(problem),
                  .cost = std::move(cost),
                  .options = settled.finding.enumerate,
                  .table = settled.table,
                  .found = std::move(found)};
}

Result<Simulation> simulate_found(const Searched& searched, std::size_t index) {
  const PlanProblem& problem = searched.problem;
  const std::vector<Judged>& best = searched.found.outcome.best;
  if (index >= best.size()) return error("plan {}: the search has found {}", index, best.size());
  WEFT_TRY(StrategyChoice choice, choice_of(*problem.job, best[index]));
  if (index == 0 && !choice.parallelism && !searched.request.tree_file.empty())
    choice.name = searched.request.tree_file;  // what reads it finds it there
  const ForecastOptions all{.record = true};
  WEFT_TRY(Plan plan, make_plan(problem.job, std::move(choice)));
  WEFT_TRY(PlayedPlan played, play_plan(plan, *searched.cost.model, all));
  Forecast forecast = judge(plan, played, all);
  std::vector<std::string>& assumed = forecast.assumptions;
  assumed.insert(assumed.end(), problem.assumptions.begin(), problem.assumptions.end());
  if (searched.request.cost.model == "measured") {
    assumed.insert(assumed.end(), searched.cost.assumptions.begin(), searched.cost.assumptions.end());
    forecast.interval.reasons.emplace_back(kMeasuredInterval);
  }
  return Simulation{.request = {.plan = searched.request.plan, .cost = searched.request.cost},
                    .plan = std::move(plan),
                    .planned = {},
                    .same_program = {},
                    .played = std::move(played),
                    .forecast = std::move(forecast)};
}

Status make_folder(const std::string& folder, bool trace) {
  std::error_code problem;
  std::filesystem::create_directories(folder, problem);
  if (problem || !std::filesystem::is_directory(folder))
    return error("--out {}: no folder can be made there{}", folder, problem ? ": " + problem.message() : "");
  for (const std::string_view file : std::span(kFoundFiles).first(trace ? 3 : 2))
    if (const auto created = WholeFile::create(fmt::format("{}/{}", folder, file)); !created.ok())
      return created.error().at("--out");
  return Ok{};
}

Status write_found(const Searched& searched, const Simulation& plan, const std::string& folder, bool traced) {
  PlanFile file = plan_file(plan.plan, plan.played, plan.forecast, searched.found.outcome, searched.found.by,
                            searched.request.seed);
  file.calibration = searched.request.cost.calibration;
  WEFT_TRY_OK(write_file(fmt::format("{}/{}", folder, kFoundFiles[0]), print(file)));
  WEFT_TRY_OK(write_file(fmt::format("{}/{}", folder, kFoundFiles[1]), file.tree));
  if (!traced) return Ok{};
  WEFT_TRY(WholeFile trace, WholeFile::create(fmt::format("{}/{}", folder, kFoundFiles[2])));
  WEFT_TRY_OK(write_trace(trace, plan.plan, plan.played));
  return trace.finish();
}

nlohmann::json to_json(const Searched& searched, const Simulation* winner) {
  nlohmann::json json = to_json(searched.problem, searched.found.outcome, searched.table);
  json["search"] = searched.found.by;
  json["seed"] = searched.request.seed;
  json["best"] = winner ? to_json(*winner) : nlohmann::json();
  const bool named = winner && (winner->plan.parallelism || !searched.request.tree_file.empty());
  json["shorthand"] = named ? nlohmann::json(winner->plan.name) : nlohmann::json();
  json["tree"] = winner ? nlohmann::json(to_yaml(searched.found.outcome.best.front().tree)) : nlohmann::json();
  return json;
}

}  // namespace weft
