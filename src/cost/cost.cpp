#include "cost/cost.h"

#include <algorithm>

#include "base/checked.h"
#include "graph/operators.h"
#include "graph/token_order.h"

namespace weft {

Picoseconds isolated_time(const CommunicateCost& cost) {
  if (cost.bytes == 0) return cost.latency;
  const __int128 work = static_cast<__int128>(cost.bytes) * 1'000'000'000'000;
  const __int128 moving = (work + cost.cap - 1) / cost.cap;
  constexpr Picoseconds most = Picoseconds{1} << 62;
  return cost.latency + (moving > most ? most : static_cast<Picoseconds>(moving));
}

std::string_view name_of(Origin origin) {
  static constexpr std::string_view names[kOrigins] = {"model", "measured", "interpolated", "scaled", "extrapolated"};
  return names[static_cast<std::size_t>(origin)];
}

ComputeCost CostModel::compute(const ComputeQuery& query) const {
  ComputeCost cost;
  compute(std::span(&query, 1), std::span(&cost, 1));
  return cost;
}

CommunicateCost CostModel::communicate(const CommunicateQuery& query) const {
  CommunicateCost cost;
  communicate(std::span(&query, 1), std::span(&cost, 1));
  return cost;
}

namespace {

// Σ over whole x ≥ 0 in [first, last) of min(x + 1, most): the keys below `most` that queries first … last−1 attend to.
double keys_seen(double first, double last, double most) {
  first = std::max(first, 0.0);
  last = std::max(last, first);
  const double ramp = std::min(std::max(most - first, 0.0), last - first);  // queries with fewer than `most` keys
  return ramp * (2 * first + ramp + 1) / 2 + (last - first - ramp) * most;
}

// Visits the ranges of token positions in a slice of an axis, in zigzag order over `parts` (graph/token_order.h).
template <class Visit>
void for_each_range(const AxisSlice& slice, std::int64_t size, std::int64_t parts, const Visit& visit) {
  const std::int64_t block = size / slice.outer, chunk = parts > 1 ? size / (2 * parts) : size;
  for (std::int64_t i = 0; i < slice.outer; ++i)
    for (std::int64_t place = i * block + slice.begin; place < i * block + slice.end;) {
      const std::int64_t end = std::min(i * block + slice.end, (place / chunk + 1) * chunk);
      const std::int64_t position = token_position(place, size, parts);
      visit(static_cast<double>(position), static_cast<double>(position + end - place));
      place = end;
    }
}

double attended_share(const Signature& signature, const AxisSlice& q, const AxisSlice& t) {
  const auto queries = static_cast<double>(signature.axes[static_cast<std::size_t>(signature.axis_named("q"))].size);
  const auto keys = static_cast<double>(signature.axes[static_cast<std::size_t>(signature.axis_named("t"))].size);
  const bool causal = signature.attrs.integer("causal", 0) != 0;
  const auto window = static_cast<double>(signature.attrs.integer("window", 0));
  if ((!causal && window <= 0) || q.size() == 0 || t.size() == 0) return 1;
  if (!causal) return std::min(1.0, window / keys);
  // The queries are the last positions of the keys: query i attends to the last `window` of keys 0 … i + keys −
  // queries. For a range of keys [low, high): the pairs below high, less those below low, less those outside the
  // window.
  const double behind = keys - queries;
  const std::int64_t parts = signature.attrs.integer("zigzag", 1);
  double pairs = 0;
  for_each_range(q, static_cast<std::int64_t>(queries), parts, [&](double first, double last) {
    for_each_range(t, static_cast<std::int64_t>(keys), parts, [&](double low, double high) {
      const auto seen = [&](double from, double to) { return keys_seen(from, to, high) - keys_seen(from, to, low); };
      pairs += seen(first + behind, last + behind) -
               (window > 0 ? seen(first + behind - window, last + behind - window) : 0);
    });
  });
  return std::clamp(pairs / (static_cast<double>(q.size()) * static_cast<double>(t.size())), 0.0, 1.0);
}

}  // namespace

double attended_share(const Signature& signature, const AxisSlices& slices) {
  if (signature.kind != OpKind::Attention) return 1;
  return attended_share(signature, slices[static_cast<std::size_t>(signature.axis_named("q"))],
                        slices[static_cast<std::size_t>(signature.axis_named("t"))]);
}

double attended_share(const Signature& signature) {
  if (signature.kind != OpKind::Attention) return 1;
  return attended_share(signature, whole_axis(signature.axes[static_cast<std::size_t>(signature.axis_named("q"))]),
                        whole_axis(signature.axes[static_cast<std::size_t>(signature.axis_named("t"))]));
}

CommunicateQuery query_of_parts(const Communicator& communicator, Parts parts, const PartSizes& bytes) {
  const auto members = static_cast<std::int64_t>(communicator.members.size());
  if (parts == Parts::Padded)
    return {.communicator = &communicator,
            .bytes = members * bytes.largest,
            .parts = parts,
            .repacked = bytes.largest + bytes.all};
  const std::int64_t busiest = bytes.all - bytes.smallest;
  return {.communicator = &communicator,
          .bytes = members > 1 ? busiest + ceil_div(busiest, members - 1) : bytes.all,
          .parts = parts};
}

}  // namespace weft
