// Measured runs, planned and compiled once, to be simulated with many sets of constants.
#pragma once

#include <vector>

#include "calibrate/constants.h"
#include "validate/planned.h"

namespace weft {

struct FitRow {
  const MeasuredRow* row = nullptr;
  PlannedRow planned;
  std::string device;  // name of the constants of its devices (cost/tuning.h)
  int nodes = 1;
  bool fitted = true;  // otherwise it is predicted and nothing is fitted to it
};

class FitRows {
 public:
  // Rows that cannot be planned are added to `skipped`; those whose time is not scored are left out. Rows of the files
  // named in `held_out`, and those that the rules say not to fit, are kept where `keep_unfitted` says so.
  FitRows(const std::vector<MeasuredFile>& files, const MappingRules& rules, const std::vector<std::string>& held_out,
          bool keep_unfitted, int threads, std::vector<SkippedRow>& skipped);

  std::size_t size() const { return rows_.size(); }
  const FitRow& operator[](std::size_t row) const { return rows_[row]; }
  // Fitted rows whose time may depend on the constant, judged by device, stack and links, without simulating.
  std::vector<std::size_t> touched_by(const FittedConstant& constant) const;

  // log(predicted / measured) of each of these (row, constants) pairs.
  struct Try {
    std::size_t row = 0;
    const Calibration* with = nullptr;
  };
  std::vector<double> errors(const std::vector<Try>& tries) const;

 private:
  std::vector<FitRow> rows_;
  int threads_ = 0;
};

}  // namespace weft
