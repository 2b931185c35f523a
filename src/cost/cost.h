// The time of one operator or one communication, alone on its devices. Start here.
//
// Given an operator's local part on a device, or bytes moved along a communicator's routes, a cost model gives the time
// and the shares of the device in use meanwhile. It does not depend on programs: src/price queries each distinct
// instruction of a program once, in batches, and caches the answers.
//
//   ComputeQuery  (signature, local extents, device)     → picoseconds, shares of the device
//   CommunicateQuery  (communicator, bytes)              → latency, bytes, rate cap, shares; links by its route
//
// Durations and rates are integers, rounded once, so that the engine's integer arithmetic gives exactly the time
// predicted here (`isolated_time`). They are computed with + − × ÷ √ only, for the same bits on every machine.
//
// Not here: how tasks share links and devices (src/simulate), host time (the stack's), memory.
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
  Interpolated,  // between measured events
  Scaled,        // computed, times the measured-to-computed ratio of the nearest event
  Extrapolated,  // a group larger than those measured, by a fit to them
};
inline constexpr int kOrigins = 5;
std::string_view name_of(Origin origin);

struct Evidence {
  Origin origin = Origin::Model;
  float spread = 0;  // standard deviation of the time as a share of it; 0: not known

  bool operator==(const Evidence&) const = default;
};

// An operator's part on one device. The signature distinguishes forward and the backward products.
struct ComputeQuery {
  const Signature* signature = nullptr;
  std::span<const std::int64_t> extents = {};  // of the local part, by axis; empty: all of every axis
  const DeviceSpec* device = nullptr;
  std::optional<Arithmetic> arithmetic = {};  // of matrix products (tf32, fp8); none: that of their operands' type
  double cast = 1;       // share of a product's first factor that is cast to its type here; the rest comes cast
  double attended = -1;  // unmasked share of (query, key) pairs; below 0: that of the whole operator
};

struct ComputeCost {
  Picoseconds time = 0;           // 0: no kernel (a view)
  double flops = 0;               // of contractions, counted in full, and of other arithmetic
  std::int64_t bytes = 0;         // read and written
  std::int32_t sm_share = 0;      // share of the compute units in use, in 1/kOne
  std::int32_t memory_share = 0;  // share of the memory bandwidth over its time, in 1/kOne
  std::int32_t waves = 0;         // waves of a product's tiles, in 1/kWave; 0: not a single product
  Evidence evidence = {};

  bool operator==(const ComputeCost&) const = default;
};

// The unmasked share of (query, key) pairs in a part of attention: causal masks and windows make the first queries
// cheaper than the last. 1 for every other operator.
double attended_share(const Signature& signature, const AxisSlices& slices);
double attended_share(const Signature& signature);  // of the whole

struct CommunicateQuery {
  const Communicator* communicator = nullptr;
  // Bytes of the largest member, as in elements_sent (layout/reshard.h): the larger of its local sizes before and
  // after; for an all-to-all its local size; for halos and transfers those it sends; for block moves the sum of all.
  std::int64_t bytes = 0;
  // Padded: `bytes` is members × the largest part. Grouped: `bytes` is that of an even collective with the same load on
  // the busiest link.
  Parts parts = Parts::Even;
  std::int64_t repacked = 0;  // bytes copied in memory before or after, to pad or permute blocks
};
// The query for an all-gather or a reduce-scatter of parts of different sizes, in bytes. Padded: each member copies its
// part into a padded buffer and all parts out of the padded result (a reduce-scatter the reverse). Grouped: a ring
// broadcast from each member ends at the one before it, so the link into a member carries all parts but its own.
CommunicateQuery query_of_parts(const Communicator& communicator, Parts parts, const PartSizes& bytes);

struct CommunicateCost {
  Picoseconds latency = 0;  // before bytes move at the full rate
  std::int64_t bytes = 0;   // bytes on the route's busiest link
  std::int64_t cap = 0;     // bytes per second when alone: the least of algorithm, protocol and links
  std::uint32_t route = 0;  // index into the communicator's routes; its links have the coefficients
  Protocol protocol = Protocol::Simple;
  std::int32_t sm_share = 0, memory_share = 0;  // shares of each member's device, in 1/kOne
  Evidence evidence = {};

  bool operator==(const CommunicateCost&) const = default;
};

// latency + ceil(bytes / cap): the engine's time for the communication alone.
Picoseconds isolated_time(const CommunicateCost& cost);

class CostModel {
 public:
  virtual ~CostModel() = default;

  // costs[i] answers queries[i]; both have one size. Safe to call from several threads.
  virtual void compute(std::span<const ComputeQuery> queries, std::span<ComputeCost> costs) const = 0;
  virtual void communicate(std::span<const CommunicateQuery> queries, std::span<CommunicateCost> costs) const = 0;
  // The effective bandwidth of a link in bytes per second, which the engine divides among communications.
  virtual std::int64_t capacity(const Link& link) const = 0;
  // How concurrent computation and communication on a device slow each other.
  virtual Interference interference(const DeviceSpec& device) const = 0;

  ComputeCost compute(const ComputeQuery& query) const;
  CommunicateCost communicate(const CommunicateQuery& query) const;
};

}  // namespace weft
