// Measured operators, read from the tables that hold them:
//
//   tools/measure_gpu.py             measurements/NAME/operators.csv, one device
//   SimuMax, efficiencies            aux/gemm_attention_efficiency_simumax.csv: products and attention, A100 and B200
//   NeuSight, fp32 forward times     aux/op_times_fp32_neusight.csv: seven devices
//
// Tables are recognised by their headers. Rows without an equivalent operator in Weft are counted by reason.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "cost/operator_cost.h"

namespace weft {

struct MeasuredOperator {
  std::string device_name, set, family, label, shapes;  // set: which table; label: operator, direction, type, variant
  std::shared_ptr<const DeviceSpec> device;
  std::shared_ptr<const Signature> signature;
  std::optional<Arithmetic> arithmetic;
  KernelChoice kernels;
  double seconds = 0;   // measured
  double calls = 1;     // calls of the operator in `seconds`
  double overhead = 0;  // of measuring, included in `seconds`: the time between two events with nothing between
  double least = 0;     // the shortest measurable time: the host's
  bool held_out = false;

  ComputeQuery query() const {
    return {.signature = signature.get(), .device = device.get(), .arithmetic = arithmetic};
  }
};

struct MeasuredTable {
  std::vector<MeasuredOperator> rows;
  std::map<std::string, int> skipped;  // reason → rows
};

// `device`: of rows written by tools/measure_gpu.py. Held out by a hash of what a row measures: a tenth of those, a
// third of other tables.
Result<MeasuredTable> read_measured_operators(const std::string& path, std::string_view device);

// One table of interference (tools/measure_gpu.py --only interference).
struct MeasuredInterference {
  MeasuredOperator alone;                      // `seconds`: without the other kernel
  std::string beside;                          // the other kernel: copy, reduce, hold, copy_to_host, …
  double units = 0;                            // compute units that the other kernel occupies
  double bytes_per_second = 0;                 // of the other kernel alone, read and written
  double slowdown = 1, slowdown_of_other = 0;  // 0: not measured
};
Result<std::vector<MeasuredInterference>> read_measured_interference(const std::string& path, std::string_view device);

}  // namespace weft
