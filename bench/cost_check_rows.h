// Measured operators, read from the tables that hold them:
//
//   tools/measure_gpu.py             measurements/NAME/operators.csv, one device
//   SimuMax, efficiencies            aux/gemm_attention_efficiency_simumax.csv: products and attention, A100 and B200
//   NeuSight, fp32 forward times     aux/op_times_fp32_neusight.csv: seven devices
//
// A table is known by its header. Rows that are no operator of Weft are counted by their reason.
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
  double calls = 1;     // of the operator in it
  double overhead = 0;  // of measuring, in `seconds`: what two events around nothing take
  double least = 0;     // that is measured however short the kernels are: the host's time
  bool held_out = false;

  ComputeQuery query() const {
    return {.signature = signature.get(), .device = device.get(), .arithmetic = arithmetic};
  }
};

struct MeasuredTable {
  std::vector<MeasuredOperator> rows;
  std::map<std::string, int> skipped;  // reason → rows
};

// `device`: whose rows tools/measure_gpu.py wrote. Held out, by a hash of what the row measures: a tenth of those, a
// third of the other tables'.
Result<MeasuredTable> read_measured_operators(const std::string& path, std::string_view device);

// One table of interference (tools/measure_gpu.py --only interference).
struct MeasuredInterference {
  MeasuredOperator alone;                      // its `seconds` are those alone
  std::string beside;                          // copy, reduce, hold, copy_to_host, …
  double units = 0;                            // compute units held
  double bytes_per_second = 0;                 // of the other alone, read and written
  double slowdown = 1, slowdown_of_other = 0;  // 0: not measured
};
Result<std::vector<MeasuredInterference>> read_measured_interference(const std::string& path, std::string_view device);

}  // namespace weft
