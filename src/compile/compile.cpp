#include "compile/compile.h"

#include <algorithm>
#include <limits>
#include <map>

#include "base/check.h"

namespace weft {
namespace {

constexpr MeshId kMesh{0};

// The layout with the data-parallel axes cutting it too: the dimension with the largest part that divides takes all of
// them, else the longest one, unevenly.
Layout split_over(const Layout& layout, const Mesh& mesh, MeshAxes over) {
  Layout result = layout;
  over &= ~split_axes(layout);
  for (int axis = 0; axis < static_cast<int>(mesh.axes().size()); ++axis) {
    const std::int64_t parts = mesh.axes()[static_cast<std::size_t>(axis)].size;
    if ((over >> axis & 1u) == 0 || parts == 1 || result.dims.empty()) continue;
    Factor* best = nullptr;
    std::int64_t best_size = 0;
    bool best_divides = false;
    for (DimLayout& dim : result.dims) {
      if (dim.empty()) continue;
      Factor& factor = dim.back();  // the innermost factor can always be cut again
      std::int64_t part = factor.size;
      bool even = true;
      for (const Cut& cut : factor.cuts) {
        even = even && cut.sizes.empty();
        part /= mesh.axes()[static_cast<std::size_t>(cut.mesh_axis)].size;
      }
      if (!even) continue;
      const bool divides = part % parts == 0;
      if (std::pair(divides, part) > std::pair(best_divides, best_size)) {
        best = &factor;
        best_size = part;
        best_divides = divides;
      }
    }
    if (!best) continue;
    Cut cut{axis, {}};
    if (!best_divides)
      for (const AxisSlice& slice : split_evenly(Axis{"", best_size, AxisKind::Attribute, 1}, static_cast<int>(parts)))
        cut.sizes.push_back(slice.size());
    best->cuts.push_back(std::move(cut));
  }
  canonicalize(result, mesh);
  return result;
}

// How an operator on parameter-shaped tensors (one axis per dimension) is split to work on this layout.
OpSharding sharding_for(const Signature& signature, const Layout& layout) {
  OpSharding sharding;
  sharding.mesh = layout.mesh;
  sharding.axes.resize(signature.axes.size());
  sharding.outer.assign(signature.axes.size(), 1);
  const Operand& shaped = signature.inputs.front();
  for (std::size_t d = 0; d < layout.dims.size(); ++d) {
    if (layout.dims[d].empty()) continue;
    const auto axis = static_cast<std::size_t>(shaped.dims[d].factors.at(0));
    const DimLayout& dim = layout.dims[d];
    WEFT_CHECK(dim.size() <= 2 && (dim.size() == 1 || dim[0].cuts.empty()), "a parameter cut on two levels");
    if (dim.size() == 2) sharding.outer[axis] = dim[0].size;
    sharding.axes[axis] = dim.back().cuts;
  }
  return sharding;
}

class Lowering {
 public:
  Lowering(const TrainingGraph& training, const Mesh& mesh, const ShardingPlan& plan, const MemoryPlan& memory)
      : training_(training),
        graph_(training.graph),
        mesh_(mesh),
        plan_(plan),
        memory_(memory),
        available_(graph_.tensors().size()) {
    program_.meshes.push_back(mesh);
    program_.stages.resize(1);
  }

  Result<Program> run() {
    for (TensorId id : graph_.tensors().ids()) {
      const TensorKind kind = graph_.tensors()[id].kind;
      if (kind == TensorKind::Parameter) keep(id, home(id), BufferKind::Parameter);
      if (kind == TensorKind::Input) keep(id, plan_.made[id], BufferKind::Input);
    }
    body_ = &program_.stages[0].forward;
    for (OpId op : IdRange<OpId>(training_.first_backward.index())) WEFT_TRY_OK(lower(op));
    begin_backward();
    for (OpId op : IdRange<OpId>(training_.first_backward, training_.first_step)) WEFT_TRY_OK(lower(op));
    body_ = &program_.step;
    forget_temporaries();
    WEFT_TRY_OK(lower_step());
    return std::move(program_);
  }

 private:
  // How a parameter is kept: as its operators need it, or split (ZeRO-3).
  Layout home(TensorId parameter) const {
    return memory_.zero >= 3 ? split_over(plan_.made[parameter], mesh_, memory_.over) : plan_.made[parameter];
  }
  // How its optimizer state is kept.
  Layout step_layout(TensorId parameter) const {
    return memory_.zero >= 1 ? split_over(plan_.made[parameter], mesh_, memory_.over) : plan_.made[parameter];
  }

  BufferId add_buffer(TensorId tensor, Layout layout, BufferKind kind) {
    const BufferId id(program_.buffers.size());
    program_.buffers.push_back({tensor, std::move(layout), kind, id});
    return id;
  }
  BufferId keep(TensorId tensor, Layout layout, BufferKind kind) {
    const BufferId id = add_buffer(tensor, std::move(layout), kind);
    available_[tensor].push_back(id);
    return id;
  }
  void emit(std::variant<Compute, Communicate, Free> what, Guard guard = Guard::Always) {
    body_->push_back(program_.instructions.push_back({kMesh, guard, std::move(what)}));
  }

  // A buffer of the tensor in the layout wanted: one that is there, or made by resharding the cheapest to start from.
  Result<BufferId> as(TensorId tensor, const Layout& wanted, Guard guard = Guard::Always) {
    double best_cost = std::numeric_limits<double>::infinity();
    BufferId source;
    std::vector<ReshardStep> best;
    std::optional<Error> problem;
    for (BufferId id : available_[tensor]) {
      const Layout& from = program_.buffers[id].layout;
      if (from == wanted) return id;
      Result<std::vector<ReshardStep>> steps = reshard(from, wanted, mesh_);
      if (!steps.ok()) {
        problem = steps.error();
        continue;
      }
      double cost = 0;
      const Layout* before = &from;
      for (const ReshardStep& step : *steps) {
        cost += elements_sent(step, *before, mesh_) + 1e-6;
        before = &step.to;
      }
      if (cost < best_cost) {
        best_cost = cost;
        source = id;
        best = std::move(steps).value();
      }
    }
    if (!source.valid())
      return problem ? problem->at(graph_.name(tensor)) : error("{}: nothing holds it here", graph_.name(tensor));
    for (ReshardStep& step : best) {
      const BufferId next = add_buffer(tensor, std::move(step.to), BufferKind::Temporary);
      emit(Communicate{step.collective, step.mesh_axis, step.reducer, {source}, {next}}, guard);
      if (guard == Guard::Always) available_[tensor].push_back(next);
      source = next;
    }
    return source;
  }

  Status lower(OpId op) {
    const Signature& signature = graph_.signature(op);
    const OpSharding& sharding = plan_.ops[op];
    if (signature.kind == OpKind::Accumulate) return lower_accumulate(op);
    Compute compute{op, sharding, {}, {}};
    const auto inputs = graph_.inputs(op), outputs = graph_.outputs(op);
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      WEFT_TRY(const BufferId input, as(inputs[i], operand_layout(signature, false, i, sharding, mesh_)));
      compute.inputs.push_back(input);
    }
    for (TensorId output : outputs) compute.outputs.push_back(keep(output, plan_.made[output], BufferKind::Temporary));
    emit(std::move(compute));
    return Ok{};
  }

  // acc += g in place. ZeRO-2 and 3 keep the accumulator split, so the gradient is reduced before it is added, every
  // micro-batch.
  Status lower_accumulate(OpId op) {
    const Signature& signature = graph_.signature(op);
    const auto inputs = graph_.inputs(op);
    const TensorId accumulator = inputs[0], gradient = inputs[1], sum = graph_.outputs(op)[0];
    OpSharding sharding = plan_.ops[op];
    Layout layout = plan_.made[sum];
    if (memory_.zero >= 2) {
      layout = step_layout(parameter_of(sum));
      sharding = sharding_for(signature, layout);
    }
    if (available_[accumulator].empty()) keep(accumulator, layout, BufferKind::State);
    WEFT_TRY(const BufferId acc, as(accumulator, layout));
    WEFT_TRY(const BufferId term, as(gradient, layout));
    const BufferId out = keep(sum, layout, BufferKind::State);
    program_.buffers[out].storage = program_.buffers[acc].storage;
    emit(Compute{op, sharding, {acc, term}, {out}});
    return Ok{};
  }

  TensorId parameter_of(TensorId sum) {
    if (parameters_.empty())
      for (const auto& [parameter, gradient] : training_.accumulated)
        parameters_[graph_.tensors()[gradient].storage] = parameter;
    return parameters_.at(graph_.tensors()[sum].storage);
  }

  // What backward reads of forward is saved as it was made; what was partial, in the first whole form it had.
  void begin_backward() {
    IdVec<TensorId, char> read(graph_.tensors().size(), 0);
    for (OpId op : IdRange<OpId>(training_.first_backward, training_.first_step))
      for (TensorId input : graph_.inputs(op)) read[input] = 1;
    body_ = &program_.stages[0].backward;
    for (TensorId id : graph_.tensors().ids()) {
      if (graph_.tensors()[id].kind != TensorKind::Activation) {
        // Of parameters and inputs only what is kept survives the forward body.
        std::erase_if(available_[id],
                      [&](BufferId buffer) { return program_.buffers[buffer].kind == BufferKind::Temporary; });
        continue;
      }
      std::vector<BufferId> saved;
      if (read[id])
        for (BufferId buffer : available_[id])
          if (!is_partial(program_.buffers[buffer].layout)) {
            program_.buffers[buffer].kind = BufferKind::Saved;
            saved = {buffer};
            break;
          }
      // A tensor that only ever was partial: keep the contributions, reduce again.
      if (read[id] && saved.empty() && !available_[id].empty()) {
        saved = {available_[id].front()};
        program_.buffers[saved[0]].kind = BufferKind::Saved;
      }
      available_[id] = std::move(saved);
    }
  }

  void forget_temporaries() {
    for (std::vector<BufferId>& buffers : available_)
      std::erase_if(buffers, [&](BufferId id) {
        const BufferKind kind = program_.buffers[id].kind;
        return kind == BufferKind::Temporary || kind == BufferKind::Saved;
      });
  }

  // Optimizer operators work on the layout of the optimizer state; scalars are reduced to be the same everywhere.
  Status lower_step() {
    std::map<TensorId, TensorId> owner;  // state → parameter, by the first operator that reads both
    for (OpId op : IdRange<OpId>(training_.first_step, OpId(graph_.ops().size()))) {
      const Signature& signature = graph_.signature(op);
      const auto inputs = graph_.inputs(op), outputs = graph_.outputs(op);
      const TensorId first = inputs.front();
      const bool shaped = !signature.inputs.front().dims.empty();
      TensorId parameter = graph_.tensors()[first].kind == TensorKind::Parameter ? first : TensorId();
      if (!parameter.valid() && shaped) {
        const TensorId storage = graph_.tensors()[first].storage;
        parameter = owner.contains(storage) ? owner.at(storage) : parameter_of(first);
      }
      const Layout layout = shaped ? step_layout(parameter) : replicated(kMesh, mesh_, {});
      Compute compute{op, {}, {}, {}};
      if (shaped) {
        compute.sharding = sharding_for(signature, layout);
      } else {
        compute.sharding.mesh = kMesh;
        compute.sharding.axes.resize(signature.axes.size());
      }
      for (std::size_t i = 0; i < inputs.size(); ++i) {
        const Tensor& tensor = graph_.tensors()[inputs[i]];
        if (tensor.kind == TensorKind::State && !tensor.producer.valid() && available_[inputs[i]].empty()) {
          keep(inputs[i], layout, BufferKind::State);
          owner[inputs[i]] = parameter;
        }
        WEFT_TRY(const BufferId input, as(inputs[i], operand_layout(signature, false, i, compute.sharding, mesh_)));
        compute.inputs.push_back(input);
      }
      for (std::size_t i = 0; i < outputs.size(); ++i) {
        const BufferId output =
            keep(outputs[i], operand_layout(signature, true, i, compute.sharding, mesh_), BufferKind::Temporary);
        if (shaped) owner[graph_.tensors()[outputs[i]].storage] = parameter;
        compute.outputs.push_back(output);
      }
      const std::vector<BufferId> made = compute.outputs, read = compute.inputs;
      emit(std::move(compute));
      // Updates in place: the state's own memory; the parameter goes back to how it is kept.
      for (std::size_t i = 0; i < outputs.size(); ++i) {
        const int aliased = signature.outputs[i].aliases;
        if (aliased < 0) continue;
        const TensorId target = inputs[static_cast<std::size_t>(aliased)];
        if (graph_.tensors()[target].kind == TensorKind::Parameter) {
          WEFT_TRY(const BufferId whole, as(outputs[i], home(target)));
          updated_.emplace_back(available_[target].front(), whole);
        } else {
          program_.buffers[made[i]].kind = BufferKind::State;
          program_.buffers[made[i]].storage = program_.buffers[read[static_cast<std::size_t>(aliased)]].storage;
        }
      }
    }
    for (const auto& [parameter, value] : updated_)
      program_.buffers[value].storage = program_.buffers[parameter].storage;
    return Ok{};
  }

  const TrainingGraph& training_;
  const Graph& graph_;
  const Mesh& mesh_;
  const ShardingPlan& plan_;
  const MemoryPlan& memory_;
  Program program_;
  std::vector<InstructionId>* body_ = nullptr;
  IdVec<TensorId, std::vector<BufferId>> available_;  // buffers of each tensor that hold it now
  std::map<TensorId, TensorId> parameters_;           // storage of a gradient → its parameter
  std::vector<std::pair<BufferId, BufferId>> updated_;
};

}  // namespace

Result<Program> compile(const TrainingGraph& training, const Mesh& mesh, const ShardingPlan& plan,
                        const MemoryPlan& memory) {
  return Lowering(training, mesh, plan, memory).run();
}

}  // namespace weft
