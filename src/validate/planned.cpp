#include "validate/planned.h"

#include <charconv>
#include <cmath>

#include "cost/analytic.h"
#include "cost/step_prices.h"

namespace weft {
namespace {

// Tables of 2021 and before include recomputation in their FLOP/s, as Narayanan et al. 2021 do; later ones count the
// model's FLOPs alone.
bool counts_recomputation(const MeasuredRow& row) {
  int year = 0;
  const std::string_view date = row.text("date");
  std::from_chars(date.data(), date.data() + date.size(), year);
  return year > 0 && year <= 2021;
}

Result<double> measured_seconds(const MeasuredRow& row, const Plan& plan, const CompiledStrategy& compiled) {
  const auto batch = static_cast<double>(plan.batch.global_batch);
  const auto ranks = static_cast<double>(plan.ranks().size());
  switch (row.measure) {
    case Measure::Time:
      return row.value;
    case Measure::Tokens:
      return batch * static_cast<double>(*row.number("seq")) / row.value;
    case Measure::Samples:
      return batch / row.value;
    case Measure::Tflops: {
      const StepFlops flops = flops_of(plan, compiled);
      return (flops.model.value + (counts_recomputation(row) ? flops.recomputed.value : 0)) /
             (row.value * 1e12 * ranks);
    }
    case Measure::Mfu:
      return flops_of(plan, compiled).model.value / (row.value * peak_of(plan).value);
  }
  return error("nothing measured");
}

}  // namespace

Result<PlannedRow> plan_row(const MeasuredRow& row, const MappingRules& rules, const std::string& stack,
                            const Calibration& calibration) {
  WEFT_TRY(MappedRow mapped, rules.map(row, stack));
  WEFT_TRY(Plan plan, make_plan(mapped.request, calibration));
  const AnalyticCost cost(plan.stack(), plan.job->tuning);
  const StepPrices prices(plan.cluster(), cost, plan.stack().uneven_parts.value);
  WEFT_TRY(CompiledStrategy compiled, compile_plan(plan, &prices));
  WEFT_TRY(const double measured, measured_seconds(row, plan, compiled));
  if (!(measured > 0) || !std::isfinite(measured))
    return error("{} cannot be compared: the model has no products to count", name_of(row.measure));
  return PlannedRow{std::move(mapped), std::move(plan), std::move(compiled), measured};
}

Result<double> predicted_seconds(const PlannedRow& row, const Calibration& calibration) {
  const SoftwareStack stack = calibration.over(row.plan.stack());
  const AnalyticCost cost(stack, calibration.tuning);
  WEFT_TRY(const PlayedProgram played, play_compiled(row.plan, stack, row.compiled, cost));
  return seconds_of(played.run.makespan);
}

}  // namespace weft
