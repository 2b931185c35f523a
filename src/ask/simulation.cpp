#include "ask/simulation.h"

#include <fmt/format.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "base/units.h"
#include "forecast/evidence.h"
#include "report/simulation.h"

namespace weft {
namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

}  // namespace

Status check(const SimulationRequest& request) {
  WEFT_TRY_OK(check(request.cost));
  if (request.network != "fair" && request.network != "fifo")
    return error("--network '{}': write fair or fifo", request.network);
  if (const double headroom = request.headroom.value_or(0); !(headroom >= 0 && headroom < 100))
    return error("--headroom {}: a share of the device's memory, from 0 to less than 100 %", headroom);
  return Ok{};
}

Result<SettledSimulation> settle_simulation(SimulationRequest request) {
  WEFT_TRY_OK(check(request));
  const auto start = Clock::now();
  std::optional<PlanFile> planned;
  if (!request.plan_file.empty()) {
    WEFT_TRY(planned, read_plan_file(request.plan_file));
    if (request.cost.calibration.empty()) request.cost.calibration = planned->calibration;
    request.plan = planned->request();
  }
  if (request.headroom) request.plan.headroom = *request.headroom / 100;
  WEFT_TRY(const Calibration calibration, calibration_of(request.cost));
  WEFT_TRY(Plan plan, make_plan(request.plan, calibration));
  return SettledSimulation{std::move(request), std::move(plan), std::move(planned), seconds_since(start)};
}

Result<Simulation> simulate(SettledSimulation settled, const std::function<void(std::string_view)>& now) {
  Simulation made{.request = std::move(settled.request),
                  .plan = std::move(settled.plan),
                  .planned = std::move(settled.planned),
                  .same_program = {},
                  .played = {},
                  .forecast = {},
                  .times = {.plan = settled.seconds, .play = {}, .judge = 0}};
  const std::string& cost_model = made.request.cost.model;
  WEFT_TRY(const ChosenCost cost, choose_cost(made.request.cost, *made.plan.job));
  const ForecastOptions options{.network = made.request.network == "fair" ? Network::Fair : Network::Fifo,
                                .fold = made.request.fold,
                                .record = made.request.record,
                                .host = cost_model != "symbolic"};
  if (now) now("simulating");
  WEFT_TRY(made.played, play_plan(made.plan, *cost.model, options, &made.times.play));
  if (now) now("judging");
  const auto start = Clock::now();
  Forecast& found = made.forecast;
  found = judge(made.plan, made.played, options);
  found.assumptions.insert(found.assumptions.end(), cost.assumptions.begin(), cost.assumptions.end());
  found.relative = cost_model == "symbolic";
  if (made.planned) {
    made.same_program = fingerprint(made.played.compiled.program, made.plan.training().graph) == made.planned->program;
    found.assumptions.push_back(
        fmt::format("{}: {}, predicted to take {} when it was found", made.request.plan_file,
                    *made.same_program ? "compiled to the same program" : "now compiled to another program",
                    human(Seconds{made.planned->predicted_s()})));
  }
  if (cost_model == "measured") {
    found.evidence = evidence_of(made.plan, made.played, *cost.model);
    found.interval.reasons.emplace_back(kMeasuredInterval);
  }
  made.times.judge = seconds_since(start);
  return made;
}

nlohmann::json to_json(const Simulation& simulation) {
  nlohmann::json json = to_json(simulation.plan, simulation.played, simulation.forecast);
  json["network"] = simulation.request.network;
  json["cost"] = simulation.request.cost.model;
  if (simulation.planned)
    json["plan_file"] = {{"path", simulation.request.plan_file},
                         {"same_program", *simulation.same_program},
                         {"step_time_s", simulation.planned->predicted_s()}};
  return json;
}

}  // namespace weft
