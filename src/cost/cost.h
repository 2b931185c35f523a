// How long a piece takes, alone on its devices. Start here.
//
// Given pieces — an operator's local part on a device, bytes moved along a communicator's routes — a cost model gives
// each its time and what it asks of the machine while it runs. It sees no programs: src/price takes a program apart,
// asks for each distinct piece once, in batches, and keeps the answers.
//
//   ComputeQuery  (signature, local extents, device)     → picoseconds, shares of the device
//   CommunicateQuery  (communicator, bytes)              → latency, bytes, rate cap, shares; links by its route
//
// Durations and rates leave this folder as integers, rounded once, so that the engine's integer arithmetic gives
// exactly the time promised here (`isolated_time`). Only + − × ÷ √ lie on the way to them.
//
// Not here: how pieces share links and devices (src/simulate), host time (the stack's), memory.
// Cost: a query of the analytic model takes well under a microsecond and allocates nothing.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "cluster/cluster.h"
#include "cost/communicator.h"
#include "graph/signature.h"
#include "simulate/workload.h"

namespace weft {

// Where a time comes from.
enum class Origin : std::uint8_t {
  Model,         // computed
  Measured,      // the same event was measured
  Interpolated,  // between events that were
  Scaled,        // computed, times measured over computed of the nearest event
  Extrapolated,  // a group larger than those measured, by a fit to them
};
inline constexpr int kOrigins = 5;
std::string_view name_of(Origin origin);

struct Evidence {
  Origin origin = Origin::Model;
  float spread = 0;  // standard deviation of the time as a share of it; 0: not known

  bool operator==(const Evidence&) const = default;
};

// An operator's part on one device. Forward or backward, and which product, is in the signature.
struct ComputeQuery {
  const Signature* signature = nullptr;
  std::span<const std::int64_t> extents = {};  // of the local part, by axis; empty: all of every axis
  const DeviceSpec* device = nullptr;
  std::optional<Arithmetic> arithmetic = {};  // of matrix products (tf32, fp8); none: their operands' own
  double attended = -1;  // share of (query, key) pairs that the mask lets through; below 0: as if the part were whole
};

struct ComputeCost {
  Picoseconds time = 0;           // 0: nothing to do (a view)
  double flops = 0;               // of contractions, counted in full, and of other arithmetic
  std::int64_t bytes = 0;         // read and written
  std::int32_t sm_share = 0;      // of the compute units it keeps busy, in 1/kOne
  std::int32_t memory_share = 0;  // of the memory bandwidth, over its time, in 1/kOne
  std::int32_t waves = 0;         // of a product's tiles over the compute units, in 1/kWave; 0: no single product
  Evidence evidence = {};

  bool operator==(const ComputeCost&) const = default;
};

// The share of (query, key) pairs that an attention's mask lets through in a part: causal masks and windows make the
// first queries cheaper than the last. 1 for every other operator.
double attended_share(const Signature& signature, const AxisSlices& slices);
double attended_share(const Signature& signature);  // of the whole

struct CommunicateQuery {
  const Communicator* communicator = nullptr;
  // Of the largest member: as in elements_sent (layout/reshard.h), the larger of its local sizes before and after;
  // for an all-to-all its local size; for halos and transfers what it sends; for block moves the sum over all of them.
  std::int64_t bytes = 0;
  // Padded: `bytes` are members times the largest part. Grouped: those of the even collective whose busiest link would
  // carry as much.
  Parts parts = Parts::Even;
  std::int64_t arranged = 0;  // bytes put in order in memory before or after
};
// Of an all-gather or a reduce-scatter of parts of different sizes, in bytes. Padded: each member copies its part into
// one of the largest's size, and all of them out of the padded ones (or the reverse, of a reduce-scatter). Grouped: on
// the way around the ring from each member to the one before it, the link into a member carries all parts but its own.
CommunicateQuery query_of_parts(const Communicator& communicator, Parts parts, const PartSizes& bytes);

struct CommunicateCost {
  Picoseconds latency = 0;  // before bytes move at the full rate
  std::int64_t bytes = 0;   // that the route's busiest link carries
  std::int64_t cap = 0;     // bytes per second alone: of the algorithm and protocol, and of the links
  std::uint32_t route = 0;  // index into the communicator's routes; its links have the coefficients
  Protocol protocol = Protocol::Simple;
  std::int32_t sm_share = 0, memory_share = 0;  // of each member, in 1/kOne
  Evidence evidence = {};

  bool operator==(const CommunicateCost&) const = default;
};

// latency + ceil(bytes / cap): what the engine takes for it alone.
Picoseconds isolated_time(const CommunicateCost& cost);

class CostModel {
 public:
  virtual ~CostModel() = default;

  // costs[i] answers queries[i]; both have one size. Safe to call from several threads.
  virtual void compute(std::span<const ComputeQuery> queries, std::span<ComputeCost> costs) const = 0;
  virtual void communicate(std::span<const CommunicateQuery> queries, std::span<CommunicateCost> costs) const = 0;
  // What a link carries in practice, in bytes per second; the engine shares this.
  virtual std::int64_t capacity(const Link& link) const = 0;
  // How work on a device slows what runs beside it.
  virtual Interference interference(const DeviceSpec& device) const = 0;

  ComputeCost compute(const ComputeQuery& query) const;
  CommunicateCost communicate(const CommunicateQuery& query) const;
};

}  // namespace weft
