#include "layout/axis_decision.h"

#include <fmt/format.h>

#include <algorithm>

namespace weft {
namespace {

int preference(AxisKind kind) {
  switch (kind) {
    case AxisKind::Sample:
      return 0;
    case AxisKind::Attribute:
      return 1;
    case AxisKind::Parameter:
      return 2;
    case AxisKind::Reduction:
      return 3;
    case AxisKind::Whole:
      break;
  }
  return 4;
}

bool has_input(std::uint64_t mask, std::size_t input) {
  return mask == ~std::uint64_t{0} || (input < 64 && (mask >> input & 1u) != 0);
}

// How splitting the axis splits the operand, not counting blocks of which each device has one (see AxisPlacement).
std::optional<Placement> split_of(const Signature& signature, const Operand& operand, int axis,
                                  const OpSharding& settled, const Mesh& mesh) {
  std::optional<Placement> split = operand_split(signature, operand, axis);
  if (!split || split->outer == 1) return split;
  for (int factor : operand.dims[static_cast<std::size_t>(split->dim)].factors) {
    if (factor == axis) break;
    const auto at = static_cast<std::size_t>(factor);
    std::int64_t parts = settled.outer.empty() || settled.outer[at] == 1 ? 1 : 0;
    for (const Cut& cut : settled.axes[at])
      parts *= cut.shares.empty() ? mesh.axes()[static_cast<std::size_t>(cut.mesh_axis)].size : 0;
    if (parts != signature.axes[at].size) break;
    split->outer /= parts;
  }
  return split;
}

class Decider {
 public:
  Decider(const AxisContext& context, OpId op, const OpSharding& settled, std::span<const AxisChoice* const> chosen)
      : context_(context),
        graph_(context.graph),
        op_(op),
        signature_(context.graph.signature(op)),
        settled_(settled),
        chosen_(chosen),
        mesh_(context.meshes[settled.mesh]),
        degree_(mesh_.axes()[static_cast<std::size_t>(context.mesh_axis)].size) {}

  Result<AxisDecision> explicit_choice(const AxisChoice& choice) const {
    if (choice.axis.empty()) return AxisDecision{};
    const int axis = signature_.axis_named(choice.axis);
    if (axis < 0) {
      std::vector<std::string> names;
      for (const Axis& known : signature_.axes) names.push_back(known.name);
      return error("{}: {} has no axis '{}' ({})", graph_.name(op_), name_of(signature_.kind), choice.axis,
                   fmt::join(names, ", "));
    }
    const Shares shares = reduced(choice.shares);
    if (degree_ == 1)
      return splittable(signature_, axis) ? AxisDecision{axis, choice.outer, shares, 0} : AxisDecision{};
    if (!splittable(signature_, axis))
      return error("{}: axis {} of {} cannot be split", graph_.name(op_), choice.axis, name_of(signature_.kind));
    const std::int64_t size = signature_.axes[static_cast<std::size_t>(axis)].size;
    if (shares.empty() && !divides(axis, choice.outer, degree_))
      return error("{}: axis {} of size {} does not divide over {} devices", graph_.name(op_), choice.axis, size,
                   degree_);
    if (!shares.empty() &&
        (static_cast<int>(shares.size()) != degree_ || !divides(axis, choice.outer, units_of(shares, degree_))))
      return error("{}: axis {} of size {} is not cut into {} by shares {}", graph_.name(op_), choice.axis, size,
                   degree_, fmt::join(choice.shares, ":"));
    return AxisDecision{axis, choice.outer, shares, 0};
  }

  // A backward product is split like its forward operator. Where partial sums passed through the forward operator, the
  // incoming gradient is replicated, and so are the products.
  AxisDecision as_forward() const {
    const AxisDecision& forward = context_.state.decided[graph_.ops()[op_].forward];
    if (forward.partial_inputs != 0 || forward.axis < 0) return {};
    return fits(forward.axis, forward.outer, forward.shares) ? forward : AxisDecision{};
  }

  AxisDecision follow_inputs() {
    const auto inputs = graph_.inputs(op_);
    bool any_partial = false;
    for (std::size_t i = 0; i < inputs.size(); ++i)
      any_partial = any_partial || (!is_running_sum(i) && placed(inputs[i]).placement.kind == Placement::Kind::Partial);
    if (any_partial)
      for (std::uint64_t mask : signature_.linear_in)
        if (passes_partial(mask)) return AxisDecision{-1, 1, {}, mask};
    for (std::size_t i = 0; i < inputs.size(); ++i)
      if (!is_running_sum(i)) follow(i);
    if (!best_ && any_partial && !context_.reduce_onto.empty()) {
      const int axis = signature_.axis_named(context_.reduce_onto);
      if (axis >= 0) consider(axis, 1, {});
    }
    return best_.value_or(AxisDecision{});
  }

  // Adds the keys' axis as the ring axis if the queries of attention are split along a ring and the keys can be split
  // in the same way.
  AxisDecision around_ring(AxisDecision decision) const {
    if (!context_.ring || signature_.kind != OpKind::Attention || decision.axis < 0) return decision;
    if (decision.axis != signature_.axis_named("q")) return decision;
    const int keys = signature_.axis_named("t");
    if (degree_ == 1 || divides(keys, decision.outer, units_of(decision.shares, degree_))) decision.ring = keys;
    return decision;
  }

 private:
  const AxisPlacement& placed(TensorId tensor) const { return context_.state.placed[tensor]; }
  const std::vector<Cut>& cuts(int axis) const { return settled_.axes[static_cast<std::size_t>(axis)]; }

  // Whether the parts that earlier mesh axes leave of an axis divide into `units` equal units.
  bool divides(int axis, std::int64_t outer, std::int64_t units) const {
    std::int64_t size = signature_.axes[static_cast<std::size_t>(axis)].size / outer;
    if (!cuts(axis).empty() && windowed(signature_, axis)) return false;
    for (const Cut& cut : cuts(axis)) {
      const std::int64_t taken = units_of(cut.shares, mesh_.axes()[static_cast<std::size_t>(cut.mesh_axis)].size);
      if (size % taken != 0) return false;
      size /= taken;
    }
    return size % units == 0;
  }

  // Whether propagation can cut the axis, given the earlier cuts and those chosen for later mesh axes.
  bool fits(int axis, std::int64_t outer, const Shares& shares) const {
    if (degree_ == 1) return true;
    std::int64_t units = units_of(shares, degree_);
    for (std::size_t later = static_cast<std::size_t>(context_.mesh_axis) + 1; later < chosen_.size(); ++later) {
      const int degree = mesh_.axes()[later].size;
      if (!chosen_[later] || degree == 1 || signature_.axis_named(chosen_[later]->axis) != axis) continue;
      if (windowed(signature_, axis)) return false;
      units *= units_of(reduced(chosen_[later]->shares), degree);
    }
    return divides(axis, outer, units);
  }

  // A gradient accumulator has the layout of the term being added, whatever was added before: the terms of a weight
  // that many operators share stay independent of one another.
  bool is_running_sum(std::size_t input) const {
    return input == 0 && (signature_.kind == OpKind::Accumulate || signature_.kind == OpKind::AccumulateLoss);
  }

  // Whether the inputs of a linear group are partial sums that the operator may pass on.
  bool passes_partial(std::uint64_t mask) const {
    if (mask == 0) return false;
    const auto inputs = graph_.inputs(op_);
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const Placement& placement = placed(inputs[i]).placement;
      if (!has_input(mask, i)) {
        if (placement.kind != Placement::Kind::Replicated) return false;
        continue;
      }
      // Only if it is their sole reader and on the same devices: another reader, or a transfer to another mesh, needs
      // the reduced tensor, and then this operator can read it too.
      const Tensor& tensor = graph_.tensors()[inputs[i]];
      const bool sum = placement.kind == Placement::Kind::Partial && placement.reducer == Reducer::Sum &&
                       tensor.producer.valid() && graph_.uses(inputs[i]).size() == 1 &&
                       context_.mesh_of[tensor.producer] == settled_.mesh;
      if (!sum && !is_running_sum(i)) return false;
    }
    return true;
  }

  void consider(int axis, std::int64_t outer, Shares shares) {
    if (!splittable(signature_, axis) || !fits(axis, outer, shares)) return;
    const auto rank = [&](int each) { return preference(signature_.axes[static_cast<std::size_t>(each)].kind); };
    if (!best_ || rank(axis) < rank(best_->axis)) best_ = AxisDecision{axis, outer, std::move(shares), 0};
  }

  // Considers the axes that the input is already split on.
  void follow(std::size_t input) {
    const AxisPlacement& from = placed(graph_.inputs(op_)[input]);
    if (from.placement.kind != Placement::Kind::Split) return;
    const Operand& operand = signature_.inputs[input];
    for (int axis = 0; axis < static_cast<int>(signature_.axes.size()); ++axis) {
      const auto split = split_of(signature_, operand, axis, settled_, mesh_);
      if (!split || split->dim != from.placement.dim) continue;
      // The tensor's blocks may be outside the axis (then both are equal) or inside it (a cut within blocks of the
      // axis).
      if (from.placement.outer % split->outer != 0) continue;
      const std::int64_t outer = from.placement.outer / split->outer;
      const std::int64_t size = signature_.axes[static_cast<std::size_t>(axis)].size;
      if (outer >= size || size % outer != 0) continue;
      if (auto shares = axis_shares(from, operand.dims[static_cast<std::size_t>(from.placement.dim)], size))
        consider(axis, outer, std::move(*shares));
    }
  }

  // Shares of an axis of `size` elements that follow from those of a tensor's dimension; none if they do not fit it.
  // Shares for another number of devices are ignored; a mesh with a single device passes them on.
  std::optional<Shares> axis_shares(const AxisPlacement& from, const DimIndex& dim, std::int64_t size) const {
    if (from.shares.empty() || degree_ == 1) return from.shares;
    if (static_cast<int>(from.shares.size()) != degree_) return Shares{};
    if (dim.windowed() && size * dim.window.stride != dim.size) return std::nullopt;
    return from.shares;
  }

  const AxisContext& context_;
  const Graph& graph_;
  OpId op_;
  const Signature& signature_;
  const OpSharding& settled_;
  std::span<const AxisChoice* const> chosen_;
  const Mesh& mesh_;
  int degree_;
  std::optional<AxisDecision> best_;
};

}  // namespace

Result<AxisDecision> decide(const AxisContext& context, OpId op, const OpSharding& settled,
                            std::span<const AxisChoice* const> chosen) {
  Decider decider(context, op, settled, chosen);
  if (const AxisChoice* choice = chosen[static_cast<std::size_t>(context.mesh_axis)]) {
    WEFT_TRY(AxisDecision decision, decider.explicit_choice(*choice));
    return decider.around_ring(std::move(decision));
  }
  if (context.graph.ops()[op].forward.valid()) return decider.as_forward();
  return decider.around_ring(decider.follow_inputs());
}

bool windowed(const Signature& signature, int axis) {
  for (int i = 0; i < signature.operand_count(); ++i)
    for (const DimIndex& dim : signature.operand(i).dims)
      if (dim.windowed() && dim.factors[0] == axis) return true;
  return false;
}

AxisPlacement output_placement(const Signature& signature, std::size_t output, const AxisDecision& decision,
                               const OpSharding& settled, const Mesh& mesh) {
  if (decision.partial_inputs != 0) return {Placement::partial(), {}};
  if (decision.axis < 0) return {};
  const Operand& operand = signature.outputs[output];
  auto split = split_of(signature, operand, decision.axis, settled, mesh);
  if (!split && decision.ring >= 0) split = split_of(signature, operand, decision.ring, settled, mesh);
  if (!split) {
    Placement local;
    local.kind = Placement::Kind::Local;
    return {operand.local.contains(decision.axis) ? local : Placement::partial(operand.reducer), {}};
  }
  AxisPlacement result{Placement::split(split->dim, split->outer * decision.outer), {}};
  // Parts of a windowed dimension begin at multiples of the stride (operand_layout computes them); readers do not
  // follow their shares.
  if (!operand.dims[static_cast<std::size_t>(split->dim)].windowed()) result.shares = decision.shares;
  return result;
}

}  // namespace weft
