// Measured times of single all-reduces against the cost model's: curves over sizes, as nccl-tests prints them.
//
// A table has gpu, ngpus (or ngpus_single_node), size_bytes or size_mb, and time_ms or out_of_place_time_ns; `op` names
// the collective if there are several. The first devices of one node take part, without NVLS (in-switch reductions), as
// in NCCL before 2.17.
#pragma once

#include "cost/calibration.h"
#include "validate/mapping.h"

namespace weft {

struct CurvePoint {
  int line = 0;
  std::string gpu;
  std::int64_t devices = 0, bytes = 0;
  double measured_s = 0, predicted_s = 0;
  double error = 0;
};

struct CurveValidation {
  std::string file;
  std::vector<CurvePoint> points;
  std::vector<SkippedRow> skipped;
  double mape = 0, median_ape = 0;
};

bool is_table_of_curves(const CsvTable& table);
CurveValidation validate_curves(const CsvTable& table, const std::string& file, const MappingRules& rules,
                                const Calibration* calibration = nullptr);

}  // namespace weft
