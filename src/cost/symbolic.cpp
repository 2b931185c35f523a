#include "cost/symbolic.h"

#include <algorithm>

#include "base/check.h"
#include "cost/rounding.h"
#include "graph/operators.h"
#include "graph/placement.h"

namespace weft {
namespace {

// One byte takes a picosecond of relative time.
constexpr std::int64_t kBytesPerSecond = 1'000'000'000'000;

const std::string kWays = "ways";

// Bytes that a member sends, rounded up.
std::int64_t sent_of(Traffic traffic, std::int64_t n, std::int64_t bytes) {
  const auto part = [&](std::int64_t passes) {
    const __int128 all = static_cast<__int128>(bytes) * passes * (n - 1);
    return static_cast<std::int64_t>((all + n - 1) / n);
  };
  switch (traffic) {
    case Traffic::AllReduce:
      return part(2);
    case Traffic::ReduceScatter:
    case Traffic::AllGather:
    case Traffic::AllToAll:
      return part(1);
    default:
      return bytes;
  }
}

Expression product(const Signature& signature, const AxisSet& axes) {
  Expression made(1);
  for (std::size_t axis = 0; axis < signature.axes.size(); ++axis)
    if (axes.contains(static_cast<int>(axis))) made = made * Expression::symbol(signature.axes[axis].name);
  return made;
}

// Elements of an operand; the size of a windowed dimension follows from its axes.
Expression elements(const Signature& signature, const Operand& operand) {
  Expression made(1);
  for (const DimIndex& dim : operand.dims) {
    if (dim.windowed()) {
      made = made * Expression(dim.size);
      continue;
    }
    for (int axis : dim.factors) made = made * Expression::symbol(signature.axes[static_cast<std::size_t>(axis)].name);
  }
  return made;
}

}  // namespace

Expression volume_factor(Collective collective, const std::vector<std::string>& degrees) {
  Expression part;  // (n − 1) / n
  if (degrees.size() == 1) {
    part = Expression::less_one(degrees[0]) * Expression::symbol(degrees[0], -1);
  } else {
    Expression own(1);
    for (const std::string& degree : degrees) own = own * Expression::symbol(degree, -1);
    part = Expression(1) - own;
  }
  switch (collective) {
    case Collective::AllReduce:
      return Expression(2) * part;
    case Collective::ReduceScatter:
    case Collective::AllGather:
    case Collective::AllToAll:
      return part;
    case Collective::Slice:
      return {};
    case Collective::HaloExchange:
    case Collective::HaloSum:
    case Collective::Shift:
      return Expression(1);
  }
  return {};
}

OperatorVolumes operator_volumes(const Signature& forward) {
  OperatorVolumes found;
  for (const Axis& axis : forward.axes) found.sizes[axis.name] = axis.size;
  Expression flops;
  for (const AxisSet& contraction : forward.contractions) flops += Expression(2) * product(forward, contraction);
  const Expression all_reduce = volume_factor(Collective::AllReduce, {kWays});
  // An output by its name, the gradient of an input by "d" and its name.
  const auto operand_named = [&](const std::string& name) -> const Operand& {
    for (int i = 0; i < forward.operand_count(); ++i) {
      const Operand& operand = forward.operand(i);
      if (operand.name == name || "d" + operand.name == name) return operand;
    }
    WEFT_CHECK(false, "{} has no operand {}", name_of(forward.kind), name);
    return forward.operand(0);
  };
  for (std::size_t i = 0; i < forward.axes.size(); ++i) {
    const Axis& axis = forward.axes[i];
    if (!splittable(forward, static_cast<int>(i))) continue;
    AxisVolume split{axis.name,
                     axis.kind,
                     axis.size / std::max<std::int64_t>(1, axis.granule),
                     flops * Expression::symbol(kWays, -1),
                     {}};
    const SplitVolume volume = split_volume(forward, static_cast<int>(i));
    const auto bytes = [](const Operand& operand) { return Expression(Rational::of(bits_of(operand.dtype), 8)); };
    for (const VolumeTerm& term : volume.all_reduced) {
      const Operand& operand = operand_named(term.operand);
      split.sent += all_reduce * elements(forward, operand) * bytes(operand);
    }
    for (const VolumeTerm& term : volume.halo)
      split.sent += Expression(term.elements) * bytes(operand_named(term.operand));
    found.splits.push_back(std::move(split));
  }
  return found;
}

void SymbolicCost::compute(std::span<const ComputeQuery> queries, std::span<ComputeCost> costs) const {
  WEFT_CHECK(queries.size() == costs.size(), "{} queries, {} costs", queries.size(), costs.size());
  for (std::size_t i = 0; i < queries.size(); ++i) {
    const Signature& signature = *queries[i].signature;
    ComputeCost cost;
    for (const AxisSet& contraction : signature.contractions) {
      double flops = 2;
      for (std::size_t axis = 0; axis < signature.axes.size(); ++axis)
        if (contraction.contains(static_cast<int>(axis)))
          flops *=
              static_cast<double>(queries[i].extents.empty() ? signature.axes[axis].size : queries[i].extents[axis]);
      cost.flops += flops;
    }
    cost.time = picoseconds(cost.flops / options_.flops_per_byte / static_cast<double>(kBytesPerSecond));
    costs[i] = cost;
  }
}

void SymbolicCost::communicate(std::span<const CommunicateQuery> queries, std::span<CommunicateCost> costs) const {
  WEFT_CHECK(queries.size() == costs.size(), "{} queries, {} costs", queries.size(), costs.size());
  for (std::size_t i = 0; i < queries.size(); ++i) {
    const Communicator& group = *queries[i].communicator;
    costs[i] = {};
    if (group.routes.empty()) continue;
    costs[i].bytes = sent_of(group.traffic, static_cast<std::int64_t>(group.members.size()), queries[i].bytes);
    const double weight = group.nodes > 1 ? options_.between_nodes : 1;
    costs[i].cap = static_cast<std::int64_t>(static_cast<double>(kBytesPerSecond) / weight);
  }
}

// More than all concurrent communications can use, without overflow of the engine's products with coefficients.
std::int64_t SymbolicCost::capacity(const Link&) const { return std::int64_t{1} << 61; }

}  // namespace weft
