// A simulation, from a user's words to its forecast: what `weft simulate` prints and what `weft.simulate` returns.
//
//   settle_simulation(request)           words to a plan, and what it was found with if it came from a file
//   simulate(settled)                    the plan played and judged
//   to_json(simulation)                  docs/schema/simulate.schema.json
//
// Errors name the option at fault and the remedy. Out of memory is an answer, `forecast.feasible`.
// Not here: printing (src/report), options of a command line (src/cli).
// Cost: forecast() of the plan; with `record`, also its timeline.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "ask/cost.h"
#include "forecast/forecast.h"
#include "report/plan_file.h"

namespace weft {

struct SimulationRequest {
  PlanRequest plan = {};
  std::string plan_file = {};  // a plan.json, which says all of `plan`
  CostArguments cost = {};
  std::string network = "fair";  // or "fifo"
  std::optional<double> headroom =
      {};              // per cent of a device's memory that stays free; none: the default, or the file's
  bool fold = true;    // devices that do the same are simulated once
  bool record = true;  // keep every task's times, for breakdowns and timelines
};
Status check(const SimulationRequest& request);

// `plan` is settled; `planned` is the file it came from.
struct SettledSimulation {
  SimulationRequest request;
  Plan plan;
  std::optional<PlanFile> planned;
  double seconds = 0;  // wall-clock
};
Result<SettledSimulation> settle_simulation(SimulationRequest request);

struct Simulation {
  SimulationRequest request;
  Plan plan;
  std::optional<PlanFile> planned;
  std::optional<bool> same_program;  // as when the file was written, if there is one
  PlayedPlan played;
  Forecast forecast;
  // Wall-clock seconds of each part.
  struct Times {
    double plan = 0;
    PlayTimes play;
    double judge = 0;
  } times = {};
};
// `now` is told what is being done: "simulating", "judging".
Result<Simulation> simulate(SettledSimulation settled, const std::function<void(std::string_view)>& now = {});

// docs/schema/simulate.schema.json
nlohmann::json to_json(const Simulation& simulation);

}  // namespace weft
