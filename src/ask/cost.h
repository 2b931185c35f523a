// The cost model that a user names: where the durations of a plan come from.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cost/calibration.h"
#include "cost/cost.h"
#include "plan/job.h"

namespace weft {

// As in --cost, --db and --calibration.
struct CostArguments {
  std::string model = "analytic", database, calibration;
};
// Errors name the option and the remedy.
Status check(const CostArguments& arguments);

// What a forecast's interval is worth with the measured model, which no whole run was compared with.
inline constexpr std::string_view kMeasuredInterval =
    "no run was compared with measured costs: the interval is the analytic model's";

struct ChosenCost {
  std::unique_ptr<const CostModel> model;
  std::vector<std::string> assumptions;
};
// The built-in constants, or those of --calibration over them.
Result<Calibration> calibration_of(const CostArguments& arguments);
// For one job, which must outlive the model.
Result<ChosenCost> choose_cost(const CostArguments& arguments, const TrainingJob& job);

}  // namespace weft
