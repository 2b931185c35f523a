// What the measured model (cost/measured_points.h) makes of held-out rows, from the rows of the same table that are
// not: a profile of these shapes, asked for others. Ratios are of whole rows, the host's time in them included.
#pragma once

#include <tuple>

#include "cost/measured_points.h"
#include "cost_check_rows.h"

namespace weft {

class MeasuredRows {
 public:
  MeasuredRows(const std::vector<MeasuredOperator>& rows, const Tuning& tuning);

  // Seconds for a row that takes `analytic` by the model; as many where no row has its operator.
  double predict(const MeasuredOperator& op, double analytic) const;

 private:
  // Variants of a kernel apart: the stack says which of them runs.
  using Key = std::tuple<std::string, std::string, std::string, OperatorFamily>;  // device, table, label
  std::map<Key, FamilyPoints> families_;
};

}  // namespace weft
