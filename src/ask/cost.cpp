#include "ask/cost.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/suggest.h"
#include "cost/analytic.h"
#include "cost/measured.h"
#include "cost/symbolic.h"
#include "measure/machine.h"
#include "profile/database.h"

namespace weft {

Status check(const CostArguments& arguments) {
  const std::vector<std::string> models = {"analytic", "symbolic", "measured"};
  if (std::find(models.begin(), models.end(), arguments.model) == models.end())
    return error("--cost '{}': write analytic, symbolic or measured{}", arguments.model,
                 did_you_mean(arguments.model, models));
  if (arguments.model == "measured" && arguments.database.empty())
    return error("--cost measured: add --db FILE, a profile; weft profile import makes one");
  if (arguments.model != "measured" && !arguments.database.empty())
    return error("--db {}: only --cost measured reads a profile", arguments.database);
  if (arguments.model == "symbolic" && !arguments.calibration.empty())
    return error("--calibration {}: the symbolic model has no constants", arguments.calibration);
  return Ok{};
}

Result<Calibration> calibration_of(const CostArguments& arguments) {
  if (arguments.calibration.empty()) return Calibration{};
  Result<Calibration> read = read_calibration(arguments.calibration);
  if (!read.ok()) return read.error().at("--calibration");
  return read;
}

Result<ChosenCost> choose_cost(const CostArguments& arguments, const TrainingJob& job) {
  if (arguments.model == "measured") {
    WEFT_TRY(std::vector<MeasuredEvent> profile, read_profile(arguments.database));
    keep_nearest_load(profile, job.device_count());
    WEFT_TRY(std::unique_ptr<MeasuredCost> cost,
             MeasuredCost::make(profile, arguments.database, *job.cluster, job.stack, job.tuning));
    std::string assumed = fmt::format(
        "durations: measured, {} events of operators and {} of communications in {}; where it has none, the analytic "
        "cost model (--cost)",
        cost->operators(), cost->communications(), arguments.database);
    return ChosenCost{std::move(cost), {std::move(assumed)}};
  }
  if (arguments.model == "symbolic")
    return ChosenCost{std::make_unique<SymbolicCost>(),
                      {"durations: the symbolic cost model (--cost): relative units, one picosecond per byte sent or "
                       "per 1,000 FLOPs; they order plans and promise no seconds, rates or utilisation"}};
  ChosenCost analytic{std::make_unique<AnalyticCost>(job.stack, job.tuning),
                      {"durations: the analytic cost model (--cost)"}};
  if (!arguments.calibration.empty())
    analytic.assumptions.push_back(
        fmt::format("constants of {} over the built-in ones (--calibration)", arguments.calibration));
  return analytic;
}

}  // namespace weft
