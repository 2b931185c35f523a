// How sure a forecast is, by how far it is from the runs that predictions were compared with.
//
//   built_in_spread().interval(kind_of(plan), seconds)      58.3 s ± 15 %, and what was never compared
//   built_in_spread().fit_of(total, budget, capacity)       fits, tight or does not fit
//
// A distance says which of a run's device, software stack, arithmetic and number of devices are among the runs compared.
// Its half-width is the one that holds a share `level` of |log(measured / predicted)| over runs at that distance, each
// predicted with its publication left out (calibrate/leave_out.h, which writes presets/cost/spread.yaml). Runs with layers
// of experts, and those whose nodes another network than InfiniBand joins, have a half-width of their own, which holds that
// share of their errors, where it is the larger. No figure belongs to a model or a plan.
// Not here: uncertainty of single operators that were measured (evidence.h).
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/units.h"
#include "cluster/device.h"

namespace weft {

struct Plan;

// What decides how far a run is from others.
struct RunKind {
  std::vector<std::string> devices;  // names of the kinds of devices: "h100-sxm"
  std::string stack, arithmetic;     // "megatron-lm"; of matrix products, "fp8"
  std::int64_t count = 1;            // of devices
  // What such runs were predicted less well for, whatever of them was seen: "layers of experts", "nodes joined by efa".
  std::vector<std::string> doubts = {};
};
RunKind kind_of(const Plan& plan);

enum class Distance : std::uint8_t {
  AllSeen,       // stack, device, its arithmetic and as many devices are among the runs
  OneUnseen,     // but for one of stack, arithmetic and number of devices
  MoreUnseen,    // but for more of them
  DeviceUnseen,  // no run on such a device
};
inline constexpr std::size_t kDistances = 4;

// The runs that were compared, counted.
class SeenRuns {
 public:
  struct OnDevice {
    std::int64_t runs = 0, most = 0;    // `most`: the largest number of devices
    std::set<std::string> arithmetics;  //

    bool operator==(const OnDevice&) const = default;
  };
  std::map<std::string, OnDevice> devices = {};
  std::map<std::string, std::int64_t> stacks = {};  // runs of each

  void add(const RunKind& kind);
  Distance distance(const RunKind& kind) const;
  // What was not seen, in words: "no run on gb300 was compared".
  std::vector<std::string> unseen(const RunKind& kind) const;

  bool operator==(const SeenRuns&) const = default;
};

// The interval that holds the measured time with probability `level`.
struct TimeInterval {
  double low_s = 0, high_s = 0;
  double half_width = 0;  // in logarithms: close to a share of the time
  double level = 0;
  std::vector<std::string> reasons;  // why it is wide: what was not seen, and doubts
};

// Whether a device's memory suffices. Tight: the interval of what is needed contains what there is.
enum class Fit : std::uint8_t { Fits, Tight, DoesNotFit };
std::string_view name_of(Fit fit);

struct Spread {
  double level = 0.8;                           // share of the runs within the half-widths
  std::array<Figure<double>, kDistances> time;  // half-widths of log(measured / predicted), by distance
  Figure<double> doubtful;                      // of runs with doubts, at the least
  Figure<double> memory;                        // the same of a device's memory
  SeenRuns seen;

  TimeInterval interval(const RunKind& kind, double seconds) const;
  // `budget`: the capacity less the headroom. A capacity of 0 is unknown, and everything fits.
  Fit fit_of(Bytes total, Bytes budget, Bytes capacity) const;
};

// The smallest half-width that holds a share `level` of the errors; 0 of none.
double half_width(std::vector<double> errors, double level);
// The half-width at every distance. It does not shrink with distance: where errors do, neighbours are pooled. A
// distance without errors has that of the one before, or after if there is none.
std::array<double, kDistances> half_widths(const std::array<std::vector<double>, kDistances>& errors, double level);

Result<Spread> parse_spread(std::string_view text, std::string_view file);
std::string print(const Spread& spread);  // a file that parse_spread reads
const Spread& built_in_spread();          // presets/cost/spread.yaml, read once per process

}  // namespace weft
