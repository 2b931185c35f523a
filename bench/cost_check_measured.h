// The measured model (cost/measured_points.h) on held-out rows: the other rows of the same table are its profile.
// Ratios are of whole rows, including host time.
#pragma once

#include <tuple>

#include "cost/measured_points.h"
#include "cost_check_rows.h"

namespace weft {

class MeasuredRows {
 public:
  MeasuredRows(const std::vector<MeasuredOperator>& rows, const Tuning& tuning);

  // Seconds of a row that takes `analytic` seconds by the analytic model; `analytic` if no row has its operator.
  double predict(const MeasuredOperator& op, double analytic) const;

 private:
  // Variants of a kernel are separate: the stack determines which of them runs.
  using Key = std::tuple<std::string, std::string, std::string, OperatorFamily>;  // device, table, label
  std::map<Key, FamilyPoints> families_;
};

}  // namespace weft
