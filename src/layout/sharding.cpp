#include "layout/sharding.h"

#include <algorithm>
#include <array>
#include <functional>
#include <queue>
#include <unordered_map>

#include "base/check.h"
#include "layout/axis_decision.h"
#include "layout/split_memo.h"

namespace weft {

Placing on_one_mesh(const Graph& graph, Mesh mesh) {
  Placing placing;
  const MeshId id = placing.meshes.push_back(std::move(mesh));
  placing.stage_of.push_back(0);
  placing.mesh_of.resize(graph.ops().size(), id);
  return placing;
}

class ShardingPlanner::Settler {
 public:
  Settler(const TrainingGraph& training, Placing placing, ShardingChoices choices)
      : graph_(training.graph),
        first_step_(training.first_step),
        placing_(std::move(placing)),
        choices_(std::move(choices)),
        axes_(choices_.ops.size()),
        memo_(graph_),
        waits_(graph_.ops().size(), 0) {
    WEFT_CHECK(!placing_.meshes.empty());
    WEFT_CHECK(axes_.size() == placing_.meshes[MeshId(0)].axes().size() && axes_.size() <= kMaxMeshAxes);
    for (const auto& [parameter, sum] : training.accumulated) parameter_of_[graph_.tensors()[sum].storage] = parameter;
    for (OpId op : IdRange<OpId>(first_step_.index()))
      if (const TensorId parameter = accumulated_by(op); parameter.valid()) accumulations_of_[parameter].push_back(op);
    find_products();
    find_meshes();
    for (std::size_t m = 0; m < axes_.size(); ++m) {
      axes_[m].decided.resize(graph_.ops().size());
      axes_[m].placed.resize(graph_.tensors().size());
      for (const auto& [tensor, choice] : choices_.inputs[m])
        axes_[m].placed[tensor] = {Placement::split(choice.dim), reduced(choice.shares)};
    }
    for (const Signature& signature : graph_.signatures())
      uncut_.push_back(SharedVec<std::vector<Cut>>(signature.axes.size()));
    last_.resize(graph_.signatures().size());
    plan_.ops.resize(graph_.ops().size());
    plan_.made.resize(graph_.tensors().size());
  }

  const ShardingPlan& plan() const { return plan_; }
  ShardingPlan take_plan() { return std::move(plan_); }
  const Placing& placing() const { return placing_; }
  const ShardingChoices& choices() const { return choices_; }

  Status settle_all() {
    for (OpId op : IdRange<OpId>(first_step_.index())) WEFT_TRY_OK(settle(op));
    for (OpId op : IdRange<OpId>(first_step_, OpId(graph_.ops().size()))) plan_.ops[op] = whole(op);
    std::map<Shape, Layout> unsplit;
    for (TensorId id : graph_.tensors().ids()) {
      if (plan_.made[id].mesh.valid()) continue;
      const Shape& shape = graph_.tensors()[id].type.shape;
      const auto [known, added] = unsplit.try_emplace(shape);
      if (added) known->second = replicated(MeshId(0), mesh(MeshId(0)), shape);
      plan_.made[id] = known->second;
    }
    return Ok{};
  }

  MeshId add_mesh(Mesh added, int stage) {
    WEFT_CHECK(added.axes().size() == axes_.size(), "all meshes have the same axes");
    placing_.stage_of.push_back(stage);
    return placing_.meshes.push_back(std::move(added));
  }

  Result<ShardingDelta> change(std::span<const ShardingEdit> edits) {
    Changed changed;
    changed_ = &changed;
    for (const ShardingEdit& edit : edits) apply(edit);
    const Status settled = settle_waiting();
    changed_ = nullptr;
    if (!settled.ok()) {
      undo(changed);
      return settled.error();
    }
    ShardingDelta delta;
    for (const auto& [op, before] : changed.ops) delta.ops.push_back(op);
    for (const auto& [tensor, before] : changed.made) delta.tensors.push_back(tensor);
    std::sort(delta.tensors.begin(), delta.tensors.end());
    return delta;
  }

 private:
  // The values that an edit replaced, for the report and for undo.
  struct Changed {
    std::vector<std::pair<OpId, OpSharding>> ops;
    std::vector<std::pair<TensorId, Layout>> made;
    std::vector<std::pair<OpId, MeshId>> meshes, placed;
    std::vector<std::tuple<std::size_t, OpId, std::optional<AxisChoice>>> choices;
    std::vector<std::tuple<std::size_t, OpId, AxisDecision>> decided;
    std::vector<std::tuple<std::size_t, TensorId, AxisPlacement>> tensors;
  };

  // The decisions of an operator, mesh axis by mesh axis, with the cuts so far. The next operator with the same
  // signature mostly has the same ones, so they are reused.
  struct Splitting {
    struct Step {
      AxisDecision decision;
      OpSharding after;
    };
    OpSharding before;
    std::vector<Step> steps;
  };

  const Mesh& mesh(MeshId id) const { return placing_.meshes[id]; }
  OpSharding whole(OpId op) const {
    OpSharding sharding;
    sharding.mesh = mesh_of_[op];
    sharding.axes = uncut_[graph_.ops()[op].signature];
    return sharding;
  }

  // Backward products by forward operator.
  void find_products() {
    product_start_.resize(graph_.ops().size() + 1, 0);
    for (const Op& op : graph_.ops())
      if (op.forward.valid()) ++product_start_[op.forward.index() + 1];
    for (std::size_t i = 1; i < product_start_.size(); ++i) product_start_[i] += product_start_[i - 1];
    products_.resize(product_start_.back());
    std::vector<std::uint32_t> next(product_start_.begin(), product_start_.end() - 1);
    for (OpId op : graph_.ops().ids())
      if (const OpId forward = graph_.ops()[op].forward; forward.valid()) products_[next[forward.index()]++] = op;
  }
  std::span<const OpId> products(OpId forward) const {
    return {products_.data() + product_start_[forward.index()], products_.data() + product_start_[forward.index() + 1]};
  }

  // Operators of the backward pass that belong to no forward operator. A parameter's gradient is accumulated on the
  // mesh that stores the parameter, and the loss on the mesh that makes it; the loss is scaled where backward begins.
  // Other gradients are summed on the mesh of their terms, so that one tensor is transferred and not each term; if the
  // terms are on different meshes, on the mesh that reads the sum.
  bool accumulates(OpId op) const {
    return graph_.kind(op) == OpKind::Accumulate || graph_.kind(op) == OpKind::AccumulateLoss;
  }
  bool scales_loss(OpId op) const { return graph_.kind(op) == OpKind::ScaleLoss; }
  bool sums(OpId op) const {
    const Op& described = graph_.ops()[op];
    return described.phase == Phase::Backward && !described.forward.valid() && !accumulates(op) && !scales_loss(op);
  }

  // The mesh of every operator before the step: of forward operators as given, of the others by the rules above.
  void find_meshes() {
    mesh_of_.resize(graph_.ops().size(), MeshId(0));
    for (OpId op : graph_.ops().ids()) {
      const Op& described = graph_.ops()[op];
      if (described.phase == Phase::Forward) mesh_of_[op] = placing_.mesh_of[op];
      if (described.forward.valid()) mesh_of_[op] = mesh_of_[described.forward];
    }
    for (OpId op : IdRange<OpId>(first_step_.index()))
      if (sums(op)) mesh_of_[op] = mesh_of_sum(op);
    for (OpId op : IdRange<OpId>(first_step_.index()))
      if (scales_loss(op)) mesh_of_[op] = mesh_of_[graph_.uses(graph_.outputs(op)[0]).front().op];
    for (OpId op : IdRange<OpId>(first_step_.index()))
      if (accumulates(op)) mesh_of_[op] = mesh_of_accumulation(op);
  }

  // The parameter whose gradient an operator accumulates; invalid: none.
  TensorId accumulated_by(OpId op) const {
    if (graph_.kind(op) != OpKind::Accumulate) return TensorId();
    const auto found = parameter_of_.find(graph_.tensors()[graph_.inputs(op)[0]].storage);
    return found == parameter_of_.end() ? TensorId() : found->second;
  }
  // A gradient is mostly made by a backward product of an operator that reads the parameter, and accumulated beside it.
  // Where that operator only adds the parameter, what it is handed is the gradient, and may come from another mesh.
  MeshId mesh_of_accumulation(OpId op) const {
    const OpId producer = graph_.tensors()[graph_.inputs(op)[1]].producer;
    const TensorId parameter = accumulated_by(op);
    if (!parameter.valid()) return mesh_of_[producer];
    OpId reader;
    for (const Use& use : graph_.uses(parameter)) {
      if (graph_.ops()[use.op].phase != Phase::Forward) continue;
      if (mesh_of_[use.op] == mesh_of_[producer]) return mesh_of_[producer];
      if (!reader.valid()) reader = use.op;
    }
    return mesh_of_[reader.valid() ? reader : producer];
  }
  MeshId mesh_by_rule(OpId op) const { return accumulates(op) ? mesh_of_accumulation(op) : mesh_of_sum(op); }

  MeshId mesh_of_sum(OpId op) const {
    const auto terms = graph_.inputs(op);
    const OpId first = graph_.tensors()[terms[0]].producer, second = graph_.tensors()[terms[1]].producer;
    if (mesh_of_[first] == mesh_of_[second]) return mesh_of_[first];
    OpId reader = op;
    while (sums(reader)) {
      const auto uses = graph_.uses(graph_.outputs(reader)[0]);
      if (uses.empty()) return mesh_of_[first];
      reader = uses[0].op;
    }
    return mesh_of_[reader];
  }

  // Moves an operator to another mesh, with all operators that must be on its mesh.
  void move(OpId first, MeshId to) {
    std::vector<std::pair<OpId, MeshId>> moving = {{first, to}};
    const auto add_sum = [&](OpId op) {
      if (op.valid() && sums(op)) moving.emplace_back(op, MeshId());
    };
    while (!moving.empty()) {
      const OpId op = moving.back().first;
      const MeshId there = moving.back().second.valid() ? moving.back().second : mesh_by_rule(op);
      moving.pop_back();
      if (mesh_of_[op] == there) {
        // The mesh of a chain of sums may depend on the reader at its end.
        if (sums(op)) add_sum(graph_.tensors()[graph_.inputs(op)[0]].producer);
        continue;
      }
      changed_->meshes.emplace_back(op, mesh_of_[op]);
      mesh_of_[op] = there;
      wait(op);
      wait_for_readers(op);  // partial sums pass on within one mesh only
      if (!sums(op))
        for (OpId product : products(op)) moving.emplace_back(product, there);
      for (TensorId input : graph_.inputs(op)) {
        const OpId producer = graph_.tensors()[input].producer;
        add_sum(producer);
        if (producer.valid() && scales_loss(producer) && graph_.uses(input).front().op == op)
          moving.emplace_back(producer, there);
      }
      for (TensorId output : graph_.outputs(op))
        for (const Use& use : graph_.uses(output)) {
          add_sum(use.op);
          if (use.input == 1 && accumulates(use.op)) moving.emplace_back(use.op, MeshId());
        }
      if (graph_.ops()[op].phase == Phase::Forward)
        for (TensorId input : graph_.inputs(op))
          if (const auto found = accumulations_of_.find(input); found != accumulations_of_.end())
            for (OpId accumulation : found->second) moving.emplace_back(accumulation, MeshId());
    }
  }

  void apply(const ShardingEdit& edit) {
    for (std::size_t m = 0; m < edit.axes.size(); ++m) {
      auto& chosen = choices_.ops[m];
      const auto found = chosen.find(edit.op);
      std::optional<AxisChoice> before;
      if (found != chosen.end()) before = found->second;
      if (before == edit.axes[m]) continue;
      changed_->choices.emplace_back(m, edit.op, std::move(before));
      set_choice(m, edit.op, edit.axes[m]);
      wait(edit.op);
    }
    if (!edit.mesh.valid() || placing_.mesh_of[edit.op] == edit.mesh) return;
    WEFT_CHECK(graph_.ops()[edit.op].phase == Phase::Forward && placing_.meshes.contains(edit.mesh));
    changed_->placed.emplace_back(edit.op, placing_.mesh_of[edit.op]);
    placing_.mesh_of[edit.op] = edit.mesh;
    move(edit.op, edit.mesh);
  }
  void set_choice(std::size_t mesh_axis, OpId op, const std::optional<AxisChoice>& choice) {
    if (choice)
      choices_.ops[mesh_axis][op] = *choice;
    else
      choices_.ops[mesh_axis].erase(op);
  }

  void wait(OpId op) {
    if (op >= first_step_ || waits_[op]) return;
    waits_[op] = 1;
    waiting_.push(op);
  }
  void wait_for_readers(OpId op) {
    for (TensorId output : graph_.outputs(op))
      for (const Use& use : graph_.uses(output)) wait(use.op);
  }
  // In the order of operators: an operator comes after all that it depends on, so each is decided once.
  Status settle_waiting() {
    while (!waiting_.empty()) {
      const OpId op = waiting_.top();
      waiting_.pop();
      waits_[op] = 0;
      WEFT_TRY_OK(settle(op));
    }
    return Ok{};
  }

  // Decides every mesh axis of an operator; if a decision changes, its readers and backward products are queued.
  Status settle(OpId op) {
    Splitting& splitting = last_[graph_.ops()[op].signature];
    if (splitting.before.mesh != mesh_of_[op]) splitting = {whole(op), {}};
    splitting.steps.reserve(axes_.size());
    const OpSharding* sharding = &splitting.before;
    std::array<const AxisChoice*, kMaxMeshAxes> chosen = {};
    for (std::size_t m = 0; m < axes_.size(); ++m)
      if (const auto found = choices_.ops[m].find(op); found != choices_.ops[m].end()) chosen[m] = &found->second;
    bool placement_changed = false, decision_changed = false;
    for (std::size_t m = 0; m < axes_.size(); ++m) {
      AxisState& state = axes_[m];
      WEFT_TRY(AxisDecision decision, decide({graph_, placing_.meshes, mesh_of_, static_cast<int>(m),
                                              choices_.reduce_onto[m], (choices_.ring >> m & 1u) != 0, state},
                                             op, *sharding, std::span(chosen).first(axes_.size())));
      if (m == splitting.steps.size() || splitting.steps[m].decision != decision) {
        Splitting::Step step{decision, *sharding};
        add_cut(step.after, static_cast<int>(m), decision);
        splitting.steps.resize(m);
        splitting.steps.push_back(std::move(step));
      }
      sharding = &splitting.steps[m].after;
      const auto outputs = graph_.outputs(op);
      for (std::size_t i = 0; i < outputs.size(); ++i) {
        AxisPlacement placement = output_placement(graph_.signature(op), i, decision, *sharding, mesh(sharding->mesh));
        AxisPlacement& placed = state.placed[outputs[i]];
        if (placement == placed) continue;
        if (changed_) changed_->tensors.emplace_back(m, outputs[i], std::move(placed));
        placed = std::move(placement);
        placement_changed = true;
      }
      if (decision == state.decided[op]) continue;
      if (changed_) changed_->decided.emplace_back(m, op, std::move(state.decided[op]));
      state.decided[op] = std::move(decision);
      decision_changed = true;
    }
    if (changed_) {
      if (placement_changed) wait_for_readers(op);
      if (decision_changed)
        for (OpId product : products(op)) wait(product);
      if (*sharding == plan_.ops[op]) return Ok{};
      changed_->ops.emplace_back(op, std::move(plan_.ops[op]));
    }
    const std::shared_ptr<const SplitOp> split = memo_.split(op, *sharding, mesh(sharding->mesh));
    plan_.ops[op] = split->sharding;
    take_layouts(op, *split);
    return Ok{};
  }

  // A mesh axis of one device cuts nothing.
  void add_cut(OpSharding& sharding, int mesh_axis, const AxisDecision& decision) const {
    if (mesh(sharding.mesh).axes()[static_cast<std::size_t>(mesh_axis)].size == 1) return;
    if (decision.partial_inputs != 0) {
      sharding.partial |= MeshAxes{1} << mesh_axis;
      sharding.partial_inputs = decision.partial_inputs;
    } else if (decision.axis >= 0) {
      for (int each : {decision.axis, decision.ring}) {
        if (each < 0) continue;
        const auto axis = static_cast<std::size_t>(each);
        sharding.axes[axis].push_back(Cut{mesh_axis, decision.shares});
        if (decision.outer > 1) {
          if (sharding.outer.empty()) sharding.outer.assign(sharding.axes.size(), 1);
          sharding.outer[axis] = decision.outer;
        }
      }
    }
  }

  // Sets the layouts that follow: outputs as made; inputs and parameters as their first reader needs them.
  void take_layouts(OpId op, const SplitOp& split) {
    const auto inputs = graph_.inputs(op), outputs = graph_.outputs(op);
    for (std::size_t i = 0; i < inputs.size(); ++i)
      if (!graph_.tensors()[inputs[i]].producer.valid() &&
          graph_.uses(inputs[i])[0] == Use{op, static_cast<std::uint32_t>(i)})
        set_layout(inputs[i], split.inputs[i]);
    for (std::size_t i = 0; i < outputs.size(); ++i) set_layout(outputs[i], split.outputs[i]);
  }
  void set_layout(TensorId tensor, const Layout& layout) {
    Layout& made = plan_.made[tensor];
    if (changed_) {
      if (layout == made) return;
      changed_->made.emplace_back(tensor, std::move(made));
    }
    made = layout;
  }

  // In reverse order, so that of several changes to one entry the first is undone last.
  void undo(Changed& changed) {
    while (!waiting_.empty()) {
      waits_[waiting_.top()] = 0;
      waiting_.pop();
    }
    for (auto& [op, before] : changed.ops) plan_.ops[op] = std::move(before);
    for (auto& [tensor, before] : changed.made) plan_.made[tensor] = std::move(before);
    for (auto& [m, op, before] : changed.decided) axes_[m].decided[op] = std::move(before);
    for (auto& [m, tensor, before] : changed.tensors) axes_[m].placed[tensor] = std::move(before);
    for (auto each = changed.meshes.rbegin(); each != changed.meshes.rend(); ++each)
      mesh_of_[each->first] = each->second;
    for (auto each = changed.placed.rbegin(); each != changed.placed.rend(); ++each)
      placing_.mesh_of[each->first] = each->second;
    for (auto each = changed.choices.rbegin(); each != changed.choices.rend(); ++each)
      set_choice(std::get<0>(*each), std::get<1>(*each), std::get<2>(*each));
  }

  const Graph& graph_;
  OpId first_step_;
  Placing placing_;
  ShardingChoices choices_;
  IdVec<OpId, MeshId> mesh_of_;  // of every operator
  std::vector<AxisState> axes_;  // by mesh axis
  ShardingPlan plan_;
  SplitMemo memo_;
  IdVec<SignatureId, SharedVec<std::vector<Cut>>> uncut_;
  IdVec<SignatureId, Splitting> last_;
  std::vector<std::uint32_t> product_start_;
  std::vector<OpId> products_;
  std::unordered_map<TensorId, TensorId> parameter_of_;                   // by the tensor that stores its gradient
  std::unordered_map<TensorId, std::vector<OpId>> accumulations_of_;      // by parameter
  std::priority_queue<OpId, std::vector<OpId>, std::greater<>> waiting_;  // operators to decide again, in their order
  IdVec<OpId, char> waits_;
  Changed* changed_ = nullptr;  // while an edit is applied
};

ShardingPlanner::ShardingPlanner(std::unique_ptr<Settler> settler) : settler_(std::move(settler)) {}
ShardingPlanner::ShardingPlanner(ShardingPlanner&&) noexcept = default;
ShardingPlanner& ShardingPlanner::operator=(ShardingPlanner&&) noexcept = default;
ShardingPlanner::~ShardingPlanner() = default;

Result<ShardingPlanner> ShardingPlanner::make(const TrainingGraph& training, Placing placing, ShardingChoices choices) {
  auto settler = std::make_unique<Settler>(training, std::move(placing), std::move(choices));
  WEFT_TRY_OK(settler->settle_all());
  return ShardingPlanner(std::move(settler));
}
const ShardingPlan& ShardingPlanner::plan() const& { return settler_->plan(); }
ShardingPlan ShardingPlanner::plan() && { return settler_->take_plan(); }
const Placing& ShardingPlanner::placing() const { return settler_->placing(); }
const ShardingChoices& ShardingPlanner::choices() const { return settler_->choices(); }
MeshId ShardingPlanner::add_mesh(Mesh mesh, int stage) { return settler_->add_mesh(std::move(mesh), stage); }
Result<ShardingDelta> ShardingPlanner::change(std::span<const ShardingEdit> edits) { return settler_->change(edits); }

Result<ShardingPlan> plan_sharding(const TrainingGraph& training, const Placing& placing,
                                   const ShardingChoices& choices) {
  WEFT_TRY(ShardingPlanner planner, ShardingPlanner::make(training, placing, choices));
  return std::move(planner).plan();
}

}  // namespace weft
