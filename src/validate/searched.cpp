#include "validate/searched.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>

#include "cost/analytic.h"
#include "validate/parallel_for.h"
#include "validate/planned.h"

namespace weft {
namespace {

// A published run with its prediction.
struct Published {
  PlanRequest request;
  Parallelism parallelism;
  double measured_s = 0;
  Forecast forecast;
};

Result<Published> predict(const MeasuredRow& row, const SearchedOptions& options, const Calibration& calibration) {
  WEFT_TRY(PlannedRow planned, plan_row(row, options.rules, options.stack, calibration));
  if (!planned.plan.parallelism) return error("its plan is not one of degrees");
  const Plan& plan = planned.plan;
  const AnalyticCost cost(plan.stack(), plan.job->tuning);
  WEFT_TRY(const PlayedPlan played, play_plan(plan, std::move(planned.compiled), cost));
  return Published{std::move(planned.mapped.request), *plan.parallelism, planned.measured_s, judge(plan, played)};
}

// The share of a device's memory that must stay free. Below 0 if the published plan exceeds the memory.
double headroom_for(const Published& published) {
  const ClassForecast* full = published.forecast.fullest();
  if (!full || full->fits()) return kHeadroom;
  return 1 - std::nextafter(full->device_total / full->capacity, 1e9);
}

// The same for all runs of one problem.
std::string problem_of(const PlanRequest& request) {
  return fmt::format("{}|{}|{}|{}|{}|{}|{}|{}", request.model, request.cluster, request.device_count.value_or(0),
                     request.global_batch.value_or(0), request.seq.value_or(0), request.dtype, request.stack,
                     request.headroom);
}

// A searched problem, with the data to explain why a published plan was missed.
class Searched {
 public:
  Searched(PlanRequest request, const Calibration& calibration)
      : request_(std::move(request)), calibration_(calibration) {}

  void run() {
    Result<PlanProblem> posed = pose(request_, calibration_);
    if (!posed.ok()) {
      fault = posed.error().message;
      return;
    }
    problem_ = std::move(posed).value();
    Result<PlanOutcome> found = enumerate(problem_, cost(), {.threads = 1, .top = 1});
    if (!found.ok())
      fault = found.error().message;
    else
      outcome = std::move(found).value();
  }

  std::string why_missed(const Published& published) const {
    const ClassForecast* full = published.forecast.fullest();
    const std::optional<HybridPlan> plan = hybrid_plan_of(published.parallelism, problem_.layers);
    if (!plan) return "not in the space: it has words that the space has not";
    const HybridSpace space = enumerate_space(problem_, {});
    if (std::find(space.plans.begin(), space.plans.end(), *plan) == space.plans.end()) return "not in the space";
    const AnalyticCost price = cost();
    Composer composer(problem_, price);
    composer.prepare({&*plan, 1}, 1);
    const std::optional<Composition> made = composer.compose(*plan);
    if (!made) return "its layers cannot be composed";
    if (!made->fits())
      return fmt::format("composition finds it too large: {:.1f} of {:.1f} GiB, simulated {:.1f}",
                         static_cast<double>(made->memory) / (1 << 30), static_cast<double>(made->budget) / (1 << 30),
                         static_cast<double>(full->device_total.value) / (1 << 30));
    return fmt::format("composition is off by {:+.1f} %", 100 * (made->step_s / published.forecast.step_s - 1));
  }

  std::string fault;
  PlanOutcome outcome;

 private:
  AnalyticCost cost() const { return AnalyticCost(problem_.stack(), problem_.job->tuning); }

  const PlanRequest request_;
  const Calibration& calibration_;
  PlanProblem problem_;
};

}  // namespace

SearchValidation validate_search(const std::vector<MeasuredFile>& files, const SearchedOptions& options) {
  const Calibration calibration = options.calibration ? *options.calibration : Calibration{};
  SearchValidation out;
  std::vector<const MeasuredRow*> rows;
  for (const MeasuredFile& file : files) {
    for (const MeasuredRow& row : file.rows) rows.push_back(&row);
    out.skipped.insert(out.skipped.end(), file.skipped.begin(), file.skipped.end());
  }
  std::vector<std::optional<Result<Published>>> published(rows.size());
  parallel_for(rows.size(), options.threads,
               [&](std::size_t i) { published[i] = predict(*rows[i], options, calibration); });

  std::vector<Searched> problems;
  std::vector<std::size_t> problem_of_row(rows.size(), 0);
  std::map<std::string, std::size_t> known;
  problems.reserve(rows.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (!published[i]->ok()) continue;
    PlanRequest request = published[i]->value().request;
    request.headroom = headroom_for(published[i]->value());
    const auto [found, fresh] = known.try_emplace(problem_of(request), problems.size());
    if (fresh) problems.emplace_back(std::move(request), calibration);
    problem_of_row[i] = found->second;
  }
  std::mutex mutex;
  std::size_t done = 0;
  parallel_for(problems.size(), options.threads, [&](std::size_t i) {
    problems[i].run();
    const std::lock_guard lock(mutex);
    if (options.progress) options.progress(++done, problems.size());
  });

  out.problems = problems.size();
  for (const Searched& each : problems) {
    out.considered += each.outcome.counts.considered;
    out.simulated += each.outcome.counts.simulated;
  }
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (!published[i]->ok()) {
      out.skipped.push_back({rows[i]->file, rows[i]->line, published[i]->error().message});
      continue;
    }
    const Published& run = published[i]->value();
    const Searched& searched = problems[problem_of_row[i]];
    const ClassForecast* full = run.forecast.fullest();
    SearchedRow row{.file = rows[i]->file,
                    .line = rows[i]->line,
                    .model = std::string(rows[i]->text("model")),
                    .request = run.request,
                    .measured_s = run.measured_s,
                    .published_s = run.forecast.step_s,
                    .published_bytes = full ? full->device_total.value : 0,
                    .budget = full ? full->budget.value : 0,
                    .published_fits = run.forecast.feasible};
    if (!searched.outcome.best.empty()) {
      row.found_s = searched.outcome.best.front().forecast.step_s;
      row.found = searched.outcome.best.front().strategy;
    }
    if (!row.holds()) {
      row.why = !searched.fault.empty() ? searched.fault : searched.why_missed(run);
    }
    out.rows.push_back(std::move(row));
  }
  std::map<std::string, std::size_t> order;
  for (const MeasuredFile& file : files) order.try_emplace(file.file, order.size());
  std::stable_sort(out.skipped.begin(), out.skipped.end(), [&](const SkippedRow& a, const SkippedRow& b) {
    return std::pair(order[a.file], a.line) < std::pair(order[b.file], b.line);
  });
  return out;
}

}  // namespace weft
