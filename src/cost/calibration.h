// Constants fitted to a cluster that override the built-in ones: of devices, links and protocols (tuning.h), and of
// named software stacks. `weft calibrate` writes such a file, `--calibration` reads it.
//
//   devices: {a100-80-sxm: {sustained: {bf16: [0.78, "why"]}}}
//   links: {nic: {efficiency: [0.9, "why"]}}
//   stacks: {megatron-lm: {host_per_operator: [5us, "why"]}}
//
// A path names a constant: devices/a100-80-sxm/sustained/bf16, stacks/megatron-lm/host_per_operator. Of a stack's knobs
// only shares and times are constants, not those that change which collectives there are.
#pragma once

#include <map>

#include "cost/tuning.h"
#include "strategy/stack.h"

namespace weft {

struct Calibration {
  Tuning tuning = built_in_tuning();
  std::map<std::string, std::map<std::string, Figure<double>>> stacks = {};  // stack, knob; times in seconds

  // The stack with its fitted constants; other knobs are unchanged.
  SoftwareStack over(SoftwareStack stack) const;

  // An error if there is no such constant or the value is out of range.
  Result<double> value(std::string_view path) const;
  Status set(std::string_view path, double value, const std::string& source);
};

// Whether the path names a constant that is a time.
bool is_time(std::string_view path);

Result<Calibration> parse_calibration(std::string_view text, std::string_view file);
Result<Calibration> read_calibration(const std::string& path);

}  // namespace weft
