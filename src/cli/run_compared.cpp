#include "cli/run_compared.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "base/units.h"
#include "report/trace.h"

namespace weft {

void add_compare_arguments(CLI::App& command, CompareArguments& arguments) {
  command.add_flag("--compare", arguments.compare,
                   "record every rank and show the prediction beside it: step, ranks, memory, where they part");
  command.add_option("--trace", arguments.trace,
                     "the same, and write both timelines as one Chrome trace (JSON) to this file");
  add_cost_arguments(command, arguments.cost);
}

Status check(const CompareArguments& arguments) {
  WEFT_TRY_OK(check(arguments.cost));
  const CostArguments none;
  const bool costs = arguments.cost.model != none.model || !arguments.cost.calibration.empty();
  if (costs && !arguments.wanted())
    return error("--cost, --db and --calibration say how --compare or --trace FILE predicts; add one of them");
  if (arguments.cost.model == "symbolic")
    return error("--cost symbolic: its times are no seconds, there is nothing to compare; write analytic or measured");
  return Ok{};
}

Result<PredictedRun> PredictedRun::make(const CompareArguments& arguments, Plan plan, CompiledStrategy compiled) {
  std::optional<WholeFile> file;
  if (!arguments.trace.empty()) {
    Result<WholeFile> created = WholeFile::create(arguments.trace);
    if (!created.ok()) return created.error().at("--trace");
    file.emplace(std::move(created).value());
  }
  WEFT_TRY(const ChosenCost cost, choose_cost(arguments.cost, *plan.job));
  const ForecastOptions options{.fold = false, .record = true};
  WEFT_TRY(PlayedPlan played, play_plan(plan, std::move(compiled), *cost.model, options));
  Forecast forecast = judge(plan, played, options);
  forecast.assumptions.insert(forecast.assumptions.end(), cost.assumptions.begin(), cost.assumptions.end());
  return PredictedRun(std::move(plan), std::move(played), std::move(forecast), cost.assumptions, arguments.trace,
                      std::move(file));
}

Result<PredictedRun::Compared> PredictedRun::compare(const std::string& directory) {
  const auto ranks = static_cast<std::int64_t>(plan_.ranks().size());
  WEFT_TRY(const std::vector<runtime::RankTimeline> timelines,
           runtime::read_timelines(directory, static_cast<int>(ranks)));
  Compared made;
  WEFT_TRY(made.comparison, compare_run(plan_, played_, forecast_, timelines));
  if (!file_) return made;
  WEFT_TRY(const std::vector<std::int64_t> all, parse_ranks("all", ranks));
  WEFT_TRY(const TraceCounts traced,
           write_trace(*file_, plan_, played_, {.ranks = all, .most_tasks = 0}, &made.comparison.run));
  if (const Status finished = file_->finish(); !finished.ok()) return finished.error().at("--trace");
  made.trace = fmt::format(
      "trace: {}, {} events: a predicted and a measured process of every rank\n"
      "  open it at https://ui.perfetto.dev or chrome://tracing\n",
      path_, grouped(traced.events));
  return made;
}

}  // namespace weft
