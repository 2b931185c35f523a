#include "ask/search.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/suggest.h"
#include "base/units.h"
#include "base/whole_file.h"
#include "report/trace.h"
#include "strategy/yaml.h"

namespace weft {
namespace {

// "15T", "300B", "2e12".
Result<double> parse_tokens(const std::string& text) {
  double value = 0;
  const auto [rest, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  const std::string_view unit(rest, static_cast<std::size_t>(text.data() + text.size() - rest));
  const double scale = unit.empty()  ? 1
                       : unit == "k" ? 1e3
                       : unit == "M" ? 1e6
                       : unit == "B" ? 1e9
                       : unit == "T" ? 1e12
                                     : 0;
  if (status != std::errc() || scale == 0 || !(value > 0 && value * scale < 1e18))
    return error("--tokens '{}': a number of tokens, 300B or 15T", text);
  return value * scale;
}

Result<SearchBudget> parse_budget(const std::string& text) {
  SearchBudget budget;
  if (text.empty()) return budget;
  if (text.find_first_not_of("0123456789") == std::string::npos) {
    WEFT_TRY(budget.evaluations, parse_integer(text, "--budget"));
    if (budget.evaluations < 1) return error("--budget {}: at least one simulation; or a time, 30s", text);
    return budget;
  }
  const Result<Seconds> seconds = parse_seconds(text);
  if (!seconds.ok() || seconds->value < 0)
    return error("--budget '{}': a time, 30s, or a number of simulations, 64", text);
  budget.seconds = std::max(seconds->value, 1e-9);  // 0 s: only the baselines are simulated
  return budget;
}

Result<std::vector<PlanSchedule>> parse_schedules(const std::string& text) {
  std::vector<PlanSchedule> schedules;
  std::vector<std::string> known;
  for (int i = 0; i < kPlanSchedules; ++i) known.emplace_back(name_of(static_cast<PlanSchedule>(i)));
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find(',', at), text.size());
    const std::string word = text.substr(at, end - at);
    const auto found = std::find(known.begin(), known.end(), word);
    if (found == known.end()) return error("--schedules '{}': unknown{}", word, did_you_mean(word, known));
    schedules.push_back(static_cast<PlanSchedule>(found - known.begin()));
    at = end + 1;
  }
  return schedules;
}

Status write_file(const std::string& path, std::string_view text) {
  WEFT_TRY(WholeFile file, WholeFile::create(path));
  file.write(text);
  return file.finish();
}

}  // namespace

Status check(const SearchRequest& request) {
  const std::vector<std::string> known(kSearchNames.begin(), kSearchNames.end());
  if (std::find(known.begin(), known.end(), request.search) == known.end())
    return error("--search '{}': unknown{}", request.search, did_you_mean(request.search, known));
  WEFT_TRY_OK(check(request.cost));
  if (request.cost.model == "symbolic")
    return error(
        "--cost symbolic: its times have no seconds to compare plans by; --search symbolic is a search by volumes");
  if (request.top < 1 || request.top > 100) return error("--top {}: from 1 to 100 plans", request.top);
  if (request.threads < 0 || request.threads > 1024)
    return error("--threads {}: from 1 to 1024, or 0 for all", request.threads);
  if (!(request.headroom >= 0 && request.headroom < 100))
    return error("--headroom {}: a share of the device's memory, from 0 to less than 100 %", request.headroom);
  if (const auto budget = parse_budget(request.budget); !budget.ok()) return budget.error();
  if (const auto tokens = parse_tokens(request.tokens); !request.tokens.empty() && !tokens.ok()) return tokens.error();
  if (const auto schedules = parse_schedules(request.schedules); !request.schedules.empty() && !schedules.ok())
    return schedules.error();
  return Ok{};
}

Result<Searched> search_plans(SearchRequest request, const SearchHooks& hooks) {
  WEFT_TRY_OK(check(request));
  FindOptions finding;
  finding.search =
      static_cast<Search>(std::find(kSearchNames.begin(), kSearchNames.end(), request.search) - kSearchNames.begin());
  finding.seed = static_cast<std::uint64_t>(request.seed);
  finding.tree_file = request.tree_file;
  EnumerateOptions& options = finding.enumerate;
  PlanTableOptions table;
  WEFT_TRY(options.budget, parse_budget(request.budget));
  if (!request.tokens.empty()) {
    WEFT_TRY(table.tokens, parse_tokens(request.tokens));
  }
  if (!request.schedules.empty()) {
    WEFT_TRY(options.space.schedules, parse_schedules(request.schedules));
  }
  options.top = static_cast<std::size_t>(request.top);
  options.threads = request.threads;
  const EnumerateOptions unhooked = options;
  options.budget.cancelled = hooks.cancelled;
  options.progress = hooks.progress;

  request.plan.headroom = request.headroom / 100;
  WEFT_TRY(const Calibration calibration, calibration_of(request.cost));
  WEFT_TRY(PlanProblem problem, pose(request.plan, calibration));
  WEFT_TRY(ChosenCost cost, choose_cost(request.cost, *problem.job));
  WEFT_TRY(FoundPlan found, find_plan(problem, *cost.model, finding));
  if (request.cost.model == "measured")
    for (Judged& judged : found.outcome.best) judged.forecast.interval.reasons.emplace_back(kMeasuredInterval);
  return Searched{std::move(request), std::move(problem), std::move(cost), unhooked, table, std::move(found)};
}

Result<Simulation> simulate_found(const Searched& searched, std::size_t index) {
  const PlanProblem& problem = searched.problem;
  const std::vector<Judged>& best = searched.found.outcome.best;
  if (index >= best.size()) return error("plan {}: the search has found {}", index, best.size());
  WEFT_TRY(StrategyChoice choice, choice_of(*problem.job, best[index]));
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

Status make_folder(const std::string& folder) {
  std::error_code problem;
  std::filesystem::create_directories(folder, problem);
  if (problem || !std::filesystem::is_directory(folder))
    return error("--out {}: no folder can be made there{}", folder, problem ? ": " + problem.message() : "");
  for (const std::string_view file : kFoundFiles)
    if (const auto created = WholeFile::create(fmt::format("{}/{}", folder, file)); !created.ok())
      return created.error().at("--out");
  return Ok{};
}

Status write_found(const Searched& searched, const Simulation& plan, const std::string& folder) {
  PlanFile file = plan_file(plan.plan, plan.played, plan.forecast, searched.found.outcome, searched.found.by,
                            searched.request.seed);
  file.calibration = searched.request.cost.calibration;
  WEFT_TRY_OK(write_file(fmt::format("{}/{}", folder, kFoundFiles[0]), print(file)));
  WEFT_TRY_OK(write_file(fmt::format("{}/{}", folder, kFoundFiles[1]), file.tree));
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
