// Layouts by number on one mesh, and what it costs to get from one to another, when all groups of the mesh communicate at
// once as they do in a program: each pair is priced once.
#pragma once

#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "cost/step_prices.h"
#include "soap/elimination.h"

namespace weft {

using LayoutNumber = std::uint32_t;
inline constexpr LayoutNumber kNoLayout = ~0u;

class PricedLayouts {
 public:
  // All are kept by reference. `bucket`: of gradients that travel together, in bytes; 0: all.
  PricedLayouts(const Cluster& cluster, const CostModel& cost, const Mesh& mesh, Bytes bucket)
      : cluster_(cluster), cost_(cost), mesh_(mesh), steps_(cluster, cost), bucket_(bucket) {}

  LayoutNumber number(Layout layout, DType dtype);
  const Layout& layout(LayoutNumber number) const { return layouts_[number].first; }
  // The cheapest sequence of collectives; kNever: there is none.
  Picoseconds moved(LayoutNumber from, LayoutNumber to);
  // Of a parameter or its gradient: it travels with others, and has the latency of its share of a bucket.
  Picoseconds in_bucket(const Layout& from, const Layout& to, DType dtype) { return price(from, to, dtype, true); }

 private:
  Picoseconds price(const Layout& from, const Layout& to, DType dtype, bool bucketed);
  Picoseconds latency(const ReshardStep& step);

  double slowed(const ReshardStep& step);

  const Cluster& cluster_;
  const CostModel& cost_;
  const Mesh& mesh_;
  const StepPrices steps_;
  const Bytes bucket_;
  std::vector<std::pair<Layout, DType>> layouts_;
  std::map<std::string, LayoutNumber> numbers_;
  std::unordered_map<std::uint64_t, Picoseconds> moves_;
  std::map<std::pair<Collective, MeshAxes>, Picoseconds> latencies_;
  std::map<std::pair<Collective, MeshAxes>, double> slowed_;
};

inline Picoseconds sum_of(Picoseconds a, Picoseconds b) { return std::min<Picoseconds>(kNever, a + b); }

}  // namespace weft
