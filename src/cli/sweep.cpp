#include "cli/sweep.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <set>

#include "ask/words.h"
#include "base/suggest.h"
#include "base/units.h"
#include "report/plan_search.h"
#include "report/sweep.h"
#include "search/find_plan.h"

namespace weft {
namespace {

constexpr std::size_t kMostPoints = 64;

struct SweptValues {
  std::string over;
  std::vector<std::string> values;
};

// The commas of cluster options do not separate clusters: "dgx-h100:2,net=800Gbps,dgx-a100:2" are two.
std::vector<std::string> split_values(std::string_view text, bool clusters) {
  std::vector<std::string> values;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find(',', at), text.size());
    const std::string_view part = text.substr(at, end - at);
    at = end + 1;
    if (clusters && !values.empty() && part.find('=') != std::string_view::npos)
      values.back() += fmt::format(",{}", part);
    else
      values.emplace_back(part);
  }
  return values;
}

Result<std::int64_t> parse_value(const std::string& over, const std::string& text) {
  if (over == "seq") {
    const Result<std::int64_t> seq = parse_sequence(text);
    if (!seq.ok()) return error("--sweep seq={}: a number of tokens, 4096 or 8k", text);
    return seq;
  }
  const Result<std::int64_t> number = parse_integer(text, over);
  if (!number.ok() || *number < 1) return error("--sweep {}={}: a whole number from 1", over, text);
  return number;
}

// "nodes=4..64" → 4 8 16 32 64.
Result<SweptValues> parse_sweep(const std::string& text) {
  const std::vector<std::string> known = {"nodes", "devices", "batch", "seq", "cluster"};
  const std::size_t equals = text.find('=');
  SweptValues swept{.over = text.substr(0, equals), .values = {}};
  if (std::find(known.begin(), known.end(), swept.over) == known.end())
    return error("--sweep '{}': write one of nodes=4..64, devices=, batch=, seq=4k..128k, cluster=A,B{}",
                 text.substr(0, 60), did_you_mean(swept.over, known));
  if (equals == std::string::npos || equals + 1 == text.size())
    return error("--sweep {}: write the values, {}", swept.over,
                 swept.over == "cluster" ? "cluster=A,B" : "nodes=4..64");
  for (std::string& value : split_values(text.substr(equals + 1), swept.over == "cluster")) {
    const std::size_t dots = value.find("..");
    if (swept.over == "cluster" || dots == std::string::npos) {
      if (swept.over != "cluster") WEFT_TRY_OK(parse_value(swept.over, value));
      swept.values.push_back(std::move(value));
      continue;
    }
    WEFT_TRY(const std::int64_t from, parse_value(swept.over, value.substr(0, dots)));
    WEFT_TRY(const std::int64_t to, parse_value(swept.over, value.substr(dots + 2)));
    if (from > to) return error("--sweep {}={}: from more to less; write {}..{}", swept.over, value, to, from);
    const bool thousands = swept.over == "seq" && from % 1024 == 0;
    for (std::int64_t each = from; each <= to && swept.values.size() <= kMostPoints; each *= 2)
      swept.values.push_back(thousands ? fmt::format("{}k", each / 1024) : fmt::format("{}", each));
  }
  std::set<std::string> seen;
  for (const std::string& value : swept.values) {
    if (value.empty()) return error("--sweep {}: a value is missing between commas", text.substr(0, 60));
    if (!seen.insert(value).second) return error("--sweep {}: {} is given twice", text.substr(0, 60), value);
  }
  if (swept.values.size() > kMostPoints)
    return error("--sweep {}: more than {} points", text.substr(0, 60), kMostPoints);
  return swept;
}

Status check_prices(const SweepArguments& arguments, const SweptValues& swept) {
  const std::size_t count = arguments.search.prices.size();
  if (count > 1 && (swept.over != "cluster" || count != swept.values.size()))
    return error("--price {}: one price for all, or with --sweep cluster=A,B one for each",
                 arguments.search.request.price);
  return Ok{};
}

Result<PlanRequest> request_at(const SweepArguments& arguments, const SweptValues& swept, std::size_t i) {
  PlanRequest request = arguments.search.request.plan;
  const std::string& value = swept.values[i];
  if (swept.over == "cluster") {
    request.cluster = value;
    return request;
  }
  WEFT_TRY(const std::int64_t number, parse_value(swept.over, value));
  if (swept.over == "nodes") {
    const std::optional<std::string> cluster = with_nodes(request.cluster, number);
    if (!cluster)
      return error("--sweep nodes=: {} has a number of nodes of its own; sweep cluster=A,B over files or mixtures",
                   request.cluster);
    request.cluster = *cluster;
  }
  if (swept.over == "devices") request.device_count = number;
  if (swept.over == "batch") request.global_batch = number;
  if (swept.over == "seq") request.seq = number;
  return request;
}

Status check(const SweepArguments& arguments, const SweptValues& swept) {
  const PlanRequest& request = arguments.search.request.plan;
  if (swept.over == "batch" && request.global_batch)
    return error("--global-batch: --sweep batch= says it; leave one out");
  if (swept.over == "seq" && request.seq) return error("--seq: --sweep seq= says it; leave one out");
  if (swept.over == "devices" && request.device_count)
    return error("--devices: --sweep devices= says it; leave one out");
  if (swept.over == "nodes" && request.device_count)
    return error("--devices: --sweep nodes= takes whole nodes; leave it out, or sweep devices=");
  if (arguments.weak && swept.over != "nodes" && swept.over != "devices")
    return error("--weak: the batch grows with nodes= or devices=; --sweep {}= leaves them as they are", swept.over);
  return Ok{};
}

void note_conventions(const PlanProblem& problem, const PlanOutcome& outcome, const PlanTableOptions& table,
                      Sweep& sweep) {
  std::vector<std::string> lines = conventions(problem, outcome, table);
  lines.insert(lines.begin(), fmt::format("{} · stack {}", problem.job->precision.name, problem.stack().name));
  for (std::string& line : lines)
    if (std::find(sweep.conventions.begin(), sweep.conventions.end(), line) == sweep.conventions.end())
      sweep.conventions.push_back(std::move(line));
}

}  // namespace

Result<Answer> run_sweep(const SweepArguments& arguments, Progress& progress) {
  WEFT_TRY(const SweptValues swept, parse_sweep(arguments.over));
  WEFT_TRY_OK(check(arguments, swept));
  WEFT_TRY_OK(check_prices(arguments, swept));
  const std::vector<double>& prices = arguments.search.prices;
  Sweep sweep;
  sweep.over = swept.over;
  sweep.model = arguments.search.request.plan.model;
  sweep.weak = arguments.weak;
  sweep.tokens = arguments.search.table.tokens;
  std::optional<Error> first_error;
  std::optional<std::int64_t> batch = arguments.search.request.plan.global_batch;  // of the first point
  std::int64_t first_devices = 0;
  for (std::size_t i = 0; i < swept.values.size(); ++i) {
    if (arguments.cancelled && arguments.cancelled->load()) {
      sweep.cancelled = true;
      break;
    }
    const std::string name = fmt::format("{}={} ({} of {})", swept.over, swept.values[i], i + 1, swept.values.size());
    progress.now(name);
    WEFT_TRY(PlanRequest request, request_at(arguments, swept, i));
    SweepPoint& point = sweep.points.emplace_back();
    point.value = swept.values[i];
    point.cluster = request.cluster;
    if (!prices.empty()) point.price = prices[std::min(i, prices.size() - 1)];
    const auto fail = [&](const Error& problem) {
      point.why_not = problem.message;
      if (!first_error) first_error = problem;
    };
    // What a sweep compares has one batch; in weak scaling, one per device.
    Result<TrainingJob> job = weft::settle(request, arguments.search.calibration);
    if (!job.ok()) {
      fail(job.error());
      continue;
    }
    if (swept.over != "batch" && swept.over != "seq" && batch && first_devices > 0)
      job->words.global_batch =
          arguments.weak ? std::max<std::int64_t>(1, *batch * job->device_count() / first_devices) : *batch;
    Result<PlanProblem> problem = pose(std::move(job).value());
    if (!problem.ok()) {
      fail(problem.error());
      continue;
    }
    point.devices = problem->devices;
    point.global_batch = problem->global_batch;
    point.seq = problem->model().seq;
    sweep.model = problem->model().name;
    sweep.counts_tokens = problem->tokens_per_step() > 0;
    if (first_devices == 0) first_devices = problem->devices, batch = problem->global_batch;
    WEFT_TRY(const ChosenCost cost, choose_cost(arguments.search.request.cost, *problem->job));
    FindOptions finding = arguments.search.finding;
    finding.enumerate.budget.cancelled = arguments.cancelled;
    finding.enumerate.progress = [&](const SearchProgress& now) {
      progress.now(now.best_s > 0 ? fmt::format("{}, best {}", name, human(Seconds{now.best_s})) : name,
                   now.of > 0 ? static_cast<double>(now.done) / static_cast<double>(now.of) : -1);
    };
    Result<FoundPlan> found = find_plan(*problem, *cost.model, finding);
    if (!found.ok()) {
      fail(found.error());
      continue;
    }
    PlanOutcome& outcome = found->outcome;
    note_conventions(*problem, outcome, arguments.search.table, sweep);
    point.lower_bound_s = outcome.lower_bound_s;
    if (!outcome.best.empty()) {
      point.best = std::move(outcome.best.front());
    } else if (outcome.closest) {
      const ClassForecast& full = *outcome.closest->forecast.fullest();
      point.why_not =
          fmt::format("nothing fits: the closest needs {} of {}", human(full.device_total), human(full.budget));
    } else {
      point.why_not = "nothing was simulated";
    }
  }
  progress.done();
  const bool any =
      std::any_of(sweep.points.begin(), sweep.points.end(), [](const auto& point) { return point.best.has_value(); });
  if (!any && first_error) return *first_error;
  if (sweep.points.empty()) return error("--sweep {}: stopped before the first point", arguments.over);
  return Answer{.text = arguments.json ? to_text(to_json(sweep)) : describe(sweep), .feasible = any};
}

}  // namespace weft
