#include "strategy/sharding.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "base/suggest.h"

namespace weft {
namespace {

// What an operator does along one mesh axis.
struct Decision {
  int axis = -1;  // the operator's axis that is split; −1: none
  std::int64_t outer = 1;
  std::vector<std::int64_t> sizes = {};
  std::uint64_t partial_inputs = 0;  // not 0: these inputs are partial sums and so are the outputs
};

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

// Settles one mesh axis: the placement of every tensor along it, in the order of the operators.
class AxisPropagation {
 public:
  AxisPropagation(const Graph& graph, const IdVec<MeshId, Mesh>& meshes, int mesh_axis, const ShardingChoices& choices,
                  const IdVec<OpId, OpSharding>& settled)
      : graph_(graph),
        mesh_axis_(mesh_axis),
        ops_(choices.ops[static_cast<std::size_t>(mesh_axis)]),
        inputs_(choices.inputs[static_cast<std::size_t>(mesh_axis)]),
        reduce_onto_(choices.reduce_onto[static_cast<std::size_t>(mesh_axis)]),
        meshes_(meshes),
        settled_(settled),
        placed_(graph.tensors().size()),
        sizes_(graph.tensors().size()),
        decided_(graph.ops().size()) {
    for (const auto& [tensor, choice] : inputs_) {
      placed_[tensor] = Placement::split(choice.dim);
      sizes_[tensor] = choice.sizes;
    }
  }

  Result<IdVec<OpId, Decision>> run() {
    for (OpId op : graph_.ops().ids()) {
      if (graph_.ops()[op].phase == Phase::Step) break;
      WEFT_TRY(Decision decision, decide(op));
      place_outputs(op, decision);
      decided_[op] = std::move(decision);
    }
    return std::move(decided_);
  }

 private:
  // A window's parts overlap their neighbours', so one mesh axis at most cuts it.
  static bool windowed(const Signature& signature, int axis) {
    for (int i = 0; i < signature.operand_count(); ++i)
      for (const DimIndex& dim : signature.operand(i).dims)
        if (dim.windowed() && dim.factors[0] == axis) return true;
    return false;
  }

  // Elements along an axis that are still to be divided, when the mesh axes settled before have taken their share.
  bool divides(const Signature& signature, OpId op, int axis, std::int64_t outer) const {
    std::int64_t size = signature.axes[static_cast<std::size_t>(axis)].size / outer;
    if (windowed(signature, axis) && !settled_[op].axes[static_cast<std::size_t>(axis)].empty()) return false;
    for (const Cut& cut : settled_[op].axes[static_cast<std::size_t>(axis)]) {
      const int parts = meshes_[settled_[op].mesh].axes()[static_cast<std::size_t>(cut.mesh_axis)].size;
      if (size % parts != 0) return false;
      size /= parts;
    }
    return size % degree(op) == 0;
  }

  int degree(OpId op) const { return meshes_[settled_[op].mesh].axes()[static_cast<std::size_t>(mesh_axis_)].size; }

  Result<Decision> decide(OpId op) {
    if (degree(op) == 1) return Decision{};
    const Signature& signature = graph_.signature(op);
    if (const auto chosen = ops_.find(op); chosen != ops_.end()) return explicit_choice(op, chosen->second);
    if (graph_.ops()[op].forward.valid()) return as_forward(op);
    return follow_inputs(op, signature);
  }

  Result<Decision> explicit_choice(OpId op, const AxisChoice& choice) const {
    if (choice.axis.empty()) return Decision{};
    const Signature& signature = graph_.signature(op);
    const int axis = signature.axis_named(choice.axis);
    std::vector<std::string> names;
    for (const Axis& known : signature.axes) names.push_back(known.name);
    if (axis < 0)
      return error("{}: {} has no axis '{}' ({})", graph_.name(op), name_of(signature.kind), choice.axis,
                   fmt::join(names, ", "));
    if (!splittable(signature, axis))
      return error("{}: axis {} of {} cannot be split", graph_.name(op), choice.axis, name_of(signature.kind));
    const std::int64_t size = signature.axes[static_cast<std::size_t>(axis)].size;
    if (choice.sizes.empty() && !divides(signature, op, axis, choice.outer))
      return error("{}: axis {} of size {} does not divide over {} devices", graph_.name(op), choice.axis, size,
                   degree(op));
    if (!choice.sizes.empty()) {
      std::int64_t total = 0;
      for (std::int64_t share : choice.sizes) total += share;
      if (static_cast<int>(choice.sizes.size()) != degree(op) || total * choice.outer != size)
        return error("{}: axis {} of size {} is not cut into {} by shares {}", graph_.name(op), choice.axis, size,
                     degree(op), fmt::join(choice.sizes, ":"));
      if (!settled_[op].axes[static_cast<std::size_t>(axis)].empty())
        return error("{}: axis {} is cut by two mesh axes, one of them unevenly", graph_.name(op), choice.axis);
    }
    return Decision{axis, choice.outer, choice.sizes, 0};
  }

  // A backward product has its forward operator's axes. Where partial sums went through forward, the gradient that
  // comes back is whole, and so are its products.
  Decision as_forward(OpId op) const {
    const Decision& forward = decided_[graph_.ops()[op].forward];
    return forward.partial_inputs != 0 ? Decision{} : forward;
  }

  Result<Decision> follow_inputs(OpId op, const Signature& signature) const {
    const auto inputs = graph_.inputs(op);
    bool any_partial = false;
    for (TensorId input : inputs) any_partial = any_partial || placed_[input].kind == Placement::Kind::Partial;
    if (any_partial)
      for (std::uint64_t mask : signature.linear_in) {
        bool passes = mask != 0;
        for (std::size_t i = 0; i < inputs.size(); ++i) {
          const Placement& placement = placed_[inputs[i]];
          // Partial sums are passed on only to their sole reader, on the same devices: another reader, or a border,
          // needs the sum itself, and then so may this one.
          const OpId producer = graph_.tensors()[inputs[i]].producer;
          const bool sum = placement.kind == Placement::Kind::Partial && placement.reducer == Reducer::Sum &&
                           producer.valid() && graph_.uses(inputs[i]).size() == 1 &&
                           settled_[producer].mesh == settled_[op].mesh;
          // A state that nothing has written yet (a gradient accumulator) takes the form of what is added to it.
          const bool open =
              graph_.tensors()[inputs[i]].kind == TensorKind::State && !graph_.tensors()[inputs[i]].producer.valid();
          passes = passes && (has_input(mask, i) ? sum || open : placement.kind == Placement::Kind::Replicated);
        }
        if (passes) return Decision{-1, 1, {}, mask};
      }
    std::optional<Decision> best;
    const auto consider = [&](int axis, std::int64_t outer, std::vector<std::int64_t> sizes) {
      const AxisKind kind = signature.axes[static_cast<std::size_t>(axis)].kind;
      const bool cut_before = !settled_[op].axes[static_cast<std::size_t>(axis)].empty();
      if (!splittable(signature, axis) || (sizes.empty() ? !divides(signature, op, axis, outer) : cut_before)) return;
      if (!best || preference(kind) < preference(signature.axes[static_cast<std::size_t>(best->axis)].kind))
        best = Decision{axis, outer, std::move(sizes), 0};
    };
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const Placement& placement = placed_[inputs[i]];
      if (placement.kind != Placement::Kind::Split) continue;
      for (int axis = 0; axis < static_cast<int>(signature.axes.size()); ++axis) {
        const auto split = operand_split(signature, signature.inputs[i], axis);
        if (!split || split->dim != placement.dim) continue;
        // The tensor's blocks may lie outside the axis (equal) or inside it (a cut within blocks of the axis).
        if (placement.outer % split->outer != 0) continue;
        const std::int64_t outer = placement.outer / split->outer;
        const std::int64_t size = signature.axes[static_cast<std::size_t>(axis)].size;
        if (outer >= size || size % outer != 0) continue;
        if (const auto sizes = axis_sizes(inputs[i], signature.inputs[i].dims[static_cast<std::size_t>(placement.dim)],
                                          placement.outer, size / outer))
          consider(axis, outer, *sizes);
      }
    }
    if (!best && any_partial && !reduce_onto_.empty()) {
      const int axis = signature.axis_named(reduce_onto_);
      if (axis >= 0) consider(axis, 1, {});
    }
    return best.value_or(Decision{});
  }

  // Shares of an axis block of `size` elements that follow from those of a tensor's dimension; none when they do not
  // fit it.
  std::optional<std::vector<std::int64_t>> axis_sizes(TensorId tensor, const DimIndex& dim, std::int64_t outer,
                                                      std::int64_t size) const {
    std::vector<std::int64_t> sizes = sizes_[tensor];
    if (sizes.empty()) return sizes;
    const std::int64_t unit = dim.windowed() ? dim.window.stride : dim.size / outer / size;
    std::int64_t total = 0;
    for (std::int64_t& share : sizes) {
      if (share % unit != 0) return std::nullopt;
      total += share /= unit;
    }
    if (total != size) return std::nullopt;
    return sizes;
  }

  void place_outputs(OpId op, const Decision& decision) {
    const Signature& signature = graph_.signature(op);
    const auto outputs = graph_.outputs(op);
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      Placement& placement = placed_[outputs[i]];
      if (decision.partial_inputs != 0) {
        placement = Placement::partial();
      } else if (decision.axis >= 0) {
        placement = split_rule(signature, decision.axis).outputs[i];
        placement.outer *= decision.outer;
        placement.halo_low = placement.halo_high = 0;
        if (placement.kind == Placement::Kind::Split && !decision.sizes.empty()) {
          const DimIndex& dim = signature.outputs[i].dims[static_cast<std::size_t>(placement.dim)];
          const std::int64_t block = signature.axes[static_cast<std::size_t>(decision.axis)].size / decision.outer;
          // A window's parts begin at its stride; the layout of the operand says exactly where, and nothing follows
          // them.
          if (!dim.windowed()) {
            sizes_[outputs[i]] = decision.sizes;
            for (std::int64_t& share : sizes_[outputs[i]]) share *= dim.size / placement.outer / block;
          }
        }
      }
    }
  }

  const Graph& graph_;
  int mesh_axis_;
  const std::map<OpId, AxisChoice>& ops_;
  const std::map<TensorId, InputChoice>& inputs_;
  const std::string& reduce_onto_;
  const IdVec<MeshId, Mesh>& meshes_;
  const IdVec<OpId, OpSharding>& settled_;
  IdVec<TensorId, Placement> placed_;
  IdVec<TensorId, std::vector<std::int64_t>>
      sizes_;  // of uneven splits: elements of a block of the dimension, per coordinate
  IdVec<OpId, Decision> decided_;
};

}  // namespace

Placing on_one_mesh(const Graph& graph, Mesh mesh) {
  Placing placing;
  const MeshId id = placing.meshes.push_back(std::move(mesh));
  placing.stage_of.push_back(0);
  placing.mesh_of.resize(graph.ops().size(), id);
  return placing;
}

namespace {

// The mesh of every operator up to the step: forward as given, the rest by what they belong to.
IdVec<OpId, MeshId> all_meshes(const Graph& graph, const Placing& placing) {
  IdVec<OpId, MeshId> mesh_of(graph.ops().size(), MeshId(0));
  for (OpId op : graph.ops().ids()) {
    const Op& described = graph.ops()[op];
    if (described.phase == Phase::Forward) mesh_of[op] = placing.mesh_of[op];
    if (described.forward.valid()) mesh_of[op] = mesh_of[described.forward];
  }
  // A parameter's gradient accumulates where it is made; other gradients are summed where they are read, which is where
  // the tensor was made. Readers stand later, so going backwards finds them settled.
  for (std::size_t i = graph.ops().size(); i-- > 0;) {
    const OpId op(i);
    if (graph.ops()[op].phase != Phase::Backward || graph.ops()[op].forward.valid()) continue;
    if (graph.kind(op) == OpKind::Accumulate)
      mesh_of[op] = mesh_of[graph.tensors()[graph.inputs(op)[1]].producer];
    else if (const auto uses = graph.uses(graph.outputs(op)[0]); !uses.empty())
      mesh_of[op] = mesh_of[uses[0].op];
  }
  return mesh_of;
}

}  // namespace

Result<ShardingPlan> plan_sharding(const TrainingGraph& training, const Placing& placing,
                                   const ShardingChoices& choices) {
  const Graph& graph = training.graph;
  const IdVec<MeshId, Mesh>& meshes = placing.meshes;
  WEFT_CHECK(!meshes.empty());
  const IdVec<OpId, MeshId> mesh_of = all_meshes(graph, placing);
  ShardingPlan plan;
  for (OpId op : graph.ops().ids()) {
    OpSharding whole;
    whole.mesh = mesh_of[op];
    whole.axes.resize(graph.signature(op).axes.size());
    plan.ops.push_back(std::move(whole));
  }
  for (int axis = 0; axis < static_cast<int>(meshes[MeshId(0)].axes().size()); ++axis) {
    AxisPropagation propagation(graph, meshes, axis, choices, plan.ops);
    WEFT_TRY(const auto decisions, propagation.run());
    for (OpId op : decisions.ids()) {
      const Decision& decision = decisions[op];
      OpSharding& sharding = plan.ops[op];
      if (decision.partial_inputs != 0) {
        sharding.partial |= MeshAxes{1} << axis;
        sharding.partial_inputs = decision.partial_inputs;
      } else if (decision.axis >= 0) {
        const auto a = static_cast<std::size_t>(decision.axis);
        sharding.axes[a].push_back(Cut{axis, decision.sizes});
        if (decision.outer > 1) {
          if (sharding.outer.empty()) sharding.outer.assign(sharding.axes.size(), 1);
          sharding.outer[a] = decision.outer;
        }
      }
    }
  }
  // The layouts that follow: outputs as made; inputs and parameters as their first reader needs them.
  for (TensorId id : graph.tensors().ids())
    plan.made.push_back(replicated(MeshId(0), meshes[MeshId(0)], graph.tensors()[id].type.shape));
  IdVec<TensorId, char> known(graph.tensors().size(), 0);
  for (OpId op : graph.ops().ids()) {
    if (graph.ops()[op].phase == Phase::Step) break;
    const Signature& signature = graph.signature(op);
    const Mesh& mesh = meshes[plan.ops[op].mesh];
    const auto inputs = graph.inputs(op), outputs = graph.outputs(op);
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      if (graph.tensors()[inputs[i]].producer.valid() || known[inputs[i]]) continue;
      plan.made[inputs[i]] = operand_layout(signature, false, i, plan.ops[op], mesh);
      known[inputs[i]] = 1;
    }
    for (std::size_t i = 0; i < outputs.size(); ++i)
      plan.made[outputs[i]] = operand_layout(signature, true, i, plan.ops[op], mesh);
  }
  return plan;
}

}  // namespace weft
