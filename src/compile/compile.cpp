#include "compile/compile.h"

#include <algorithm>
#include <limits>
#include <map>
#include <unordered_set>

#include "base/check.h"
#include "compile/buckets.h"
#include "compile/liveness.h"
#include "compile/parameter_layout.h"

namespace weft {
namespace {

class Lowering {
 public:
  Lowering(const TrainingGraph& training, const Placing& placing, const ShardingPlan& plan,
           const CompileOptions& options, const RecomputeRegions& recompute)
      : training_(training),
        graph_(training.graph),
        plan_(plan),
        memory_(options.memory),
        gradients_(options.gradients),
        recompute_(recompute),
        available_(graph_.tensors().size()) {
    program_.meshes = placing.meshes;
    stage_of_ = placing.stage_of;
    for (int stage : stage_of_)
      program_.stages.resize(std::max(program_.stages.size(), static_cast<std::size_t>(stage) + 1));
  }

  Result<Program> run() {
    WEFT_TRY_OK(add_world());
    for (OpId op : forward_ops()) WEFT_TRY_OK(lower(op));
    backward_ = true;
    begin_backward();
    for (OpId op : backward_ops()) {
      if (const OpId forward = graph_.ops()[op].forward; forward.valid()) WEFT_TRY_OK(recompute_region_of(forward));
      weight_part_ = makes_weight_gradients_only(op);
      WEFT_TRY_OK(lower(op));
      weight_part_ = false;
    }
    body_ = &program_.step;
    weight_only_.clear();  // the step comes after all of backward
    forget_temporaries();
    WEFT_TRY_OK(sum_tied_gradients());
    WEFT_TRY_OK(lower_step());
    bucket_gradients(program_, graph_, gradients_.bucket);
    add_frees(program_);
    return std::move(program_);
  }

 private:
  IdRange<OpId> forward_ops() const { return IdRange<OpId>(training_.first_backward.index()); }
  IdRange<OpId> backward_ops() const { return {training_.first_backward, training_.first_step}; }
  IdRange<OpId> step_ops() const { return {training_.first_step, OpId(graph_.ops().size())}; }
  const Mesh& mesh(MeshId id) const { return program_.meshes[id]; }

  // All devices in a row: the mesh of what concerns everybody.
  Status add_world() {
    std::vector<DeviceId> devices;
    for (const Mesh& each : program_.meshes)
      devices.insert(devices.end(), each.devices().begin(), each.devices().end());
    std::sort(devices.begin(), devices.end());
    devices.erase(std::unique(devices.begin(), devices.end()), devices.end());
    const int size = static_cast<int>(devices.size());
    WEFT_TRY(Mesh world, Mesh::make({{"world", size}}, std::move(devices)));
    world_ = program_.world = program_.meshes.push_back(std::move(world));
    return Ok{};
  }

  BufferId add_buffer(TensorId tensor, Layout layout, BufferKind kind) {
    const BufferId id(program_.buffers.size());
    program_.buffers.push_back({tensor, std::move(layout), kind, id, id});
    return id;
  }
  BufferId keep(TensorId tensor, Layout layout, BufferKind kind) {
    const BufferId id = add_buffer(tensor, std::move(layout), kind);
    available_[tensor].push_back(id);
    if (weight_part_) weight_only_.insert(id);
    return id;
  }
  using What = decltype(Instruction::what);
  std::vector<InstructionId>& body_of(MeshId on) {
    if (body_) return *body_;
    StageProgram& stage = program_.stages[static_cast<std::size_t>(stage_of_[on])];
    return backward_ ? stage.backward : stage.forward;
  }
  void emit(MeshId on, What what) {
    body_of(on).push_back(program_.instructions.push_back({on, guard_, weight_part_, std::move(what)}));
  }

  // What only weight gradients made must not be read by others: in a split backward it comes later.
  bool usable(BufferId id) const { return weight_part_ || !weight_only_.contains(id); }

  struct Route {
    double cost = std::numeric_limits<double>::infinity();
    BufferId source;
    std::vector<ReshardStep> steps = {};
  };
  // The cheapest way to the layout from a buffer on the same mesh.
  Route cheapest(TensorId tensor, const Layout& wanted, std::optional<Error>& problem) const {
    Route best;
    for (BufferId id : available_[tensor]) {
      const Layout& from = program_.buffers[id].layout;
      if (from.mesh != wanted.mesh || !usable(id)) continue;
      Result<std::vector<ReshardStep>> steps = reshard(from, wanted, mesh(wanted.mesh));
      if (!steps.ok()) {
        problem = steps.error();
        continue;
      }
      double cost = 0;
      const Layout* before = &from;
      for (const ReshardStep& step : *steps) {
        cost += elements_sent(step, *before, mesh(wanted.mesh)) + 1e-6;
        before = &step.to;
      }
      if (cost < best.cost) best = {cost, id, std::move(steps).value()};
    }
    return best;
  }

  // A buffer of the tensor in the layout wanted (by value: buffers move while it is made): one that is there, made by
  // resharding, or brought from another mesh.
  Result<BufferId> as(TensorId tensor, Layout wanted) {
    for (BufferId id : available_[tensor])
      if (usable(id) && program_.buffers[id].layout == wanted) return id;
    std::optional<Error> problem;
    Route best = cheapest(tensor, wanted, problem);
    if (!best.source.valid()) {
      WEFT_TRY(const bool brought, bring(tensor, wanted));
      if (!brought)
        return problem ? problem->at(graph_.name(tensor)) : error("{}: nothing holds it here", graph_.name(tensor));
      best = cheapest(tensor, wanted, problem);
      WEFT_CHECK(best.source.valid(), "{} was brought and cannot be used", graph_.name(tensor));
    }
    for (ReshardStep& step : best.steps) {
      const BufferId next = keep(tensor, std::move(step.to), BufferKind::Temporary);
      std::vector<BufferId> inputs = {best.source};
      if (step.reducer == Reducer::SoftmaxMerge) {
        WEFT_TRY(const BufferId weights, merge_weights(tensor, program_.buffers[best.source].layout));
        inputs.push_back(weights);
      }
      emit(wanted.mesh, Communicate{step.collective, step.mesh_axis, step.reducer, std::move(inputs), {next}});
      best.source = next;
    }
    return best.source;
  }

  // What weighs the contributions of attention over split keys: the log-sum-exp of the same shards, as far reduced as
  // they are.
  Result<BufferId> merge_weights(TensorId tensor, Layout contributions) {
    const OpId producer = graph_.tensors()[tensor].producer;
    const Signature& signature = graph_.signature(producer);
    std::size_t lse = 0;
    while (signature.outputs[lse].reducer != Reducer::LogSumExp) ++lse;
    const OpSharding& sharding = plan_.ops[producer];
    Layout wanted = operand_layout(signature, true, lse, sharding, mesh(sharding.mesh));
    for (std::size_t axis = 0; axis < wanted.partial.size(); ++axis)
      if (!contributions.partial[axis]) wanted.partial[axis].reset();
    return as(graph_.outputs(producer)[lse], wanted);
  }

  // Moves a tensor onto the wanted layout's mesh: whole contributions only, so partial sums are reduced where they are,
  // onto the wanted cuts if the meshes are alike. False when no mesh holds it.
  Result<bool> bring(TensorId tensor, const Layout& wanted) {
    BufferId source;
    for (BufferId id : available_[tensor])
      if (usable(id) && program_.buffers[id].layout.mesh != wanted.mesh) {
        source = id;
        break;
      }
    if (!source.valid()) return false;
    const Layout from = program_.buffers[source].layout;
    const bool alike = mesh(from.mesh).axes() == mesh(wanted.mesh).axes();
    Layout there = without_halos(wanted), here = there;
    for (auto& reducer : there.partial) reducer.reset();
    if (alike) {  // same grid: the same cuts on both sides, each device sends to its counterpart
      if (!is_partial(from)) there.dims = without_halos(from).dims;
      here = there;
      here.mesh = from.mesh;
    } else {
      here = without_halos(from);
      for (auto& reducer : here.partial) reducer.reset();
    }
    WEFT_TRY(const BufferId ready, as(tensor, here));
    const BufferId arrived = keep(tensor, there, BufferKind::Temporary);
    const TransferId transfer = program_.transfers.push_back({ready, arrived});
    emit(from.mesh, Send{transfer});
    emit(wanted.mesh, Receive{transfer});
    return true;
  }

  Status lower(OpId op) {
    const Signature& signature = graph_.signature(op);
    const OpSharding& sharding = plan_.ops[op];
    if (signature.kind == OpKind::Accumulate) return lower_accumulate(op);
    Compute compute{op, sharding, {}, {}};
    const auto inputs = graph_.inputs(op), outputs = graph_.outputs(op);
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const Layout wanted = operand_layout(signature, false, i, sharding, mesh(sharding.mesh));
      given(inputs[i], wanted);
      WEFT_TRY(const BufferId input, as(inputs[i], wanted));
      compute.inputs.push_back(input);
    }
    for (std::size_t i = 0; i < outputs.size(); ++i)
      compute.outputs.push_back(
          keep(outputs[i], operand_layout(signature, true, i, sharding, mesh(sharding.mesh)), BufferKind::Temporary));
    for (std::size_t i = 0; i < outputs.size(); ++i)
      if (const int viewed = signature.outputs[i].aliases; viewed >= 0)
        program_.buffers[compute.outputs[i]].memory =
            program_.buffers[compute.inputs[static_cast<std::size_t>(viewed)]].memory;
    emit(sharding.mesh, std::move(compute));
    return Ok{};
  }

  // Inputs and parameters are there on every mesh that reads them.
  void given(TensorId tensor, const Layout& wanted) {
    const TensorKind kind = graph_.tensors()[tensor].kind;
    if (kind != TensorKind::Input && kind != TensorKind::Parameter) return;
    for (BufferId id : available_[tensor])
      if (program_.buffers[id].layout.mesh == wanted.mesh) return;
    if (kind == TensorKind::Input) {
      keep(tensor, without_halos(wanted), BufferKind::Input);
      return;
    }
    const bool weight_part = std::exchange(weight_part_, false);
    const BufferId home = keep(tensor, memory_.zero >= 3 ? split_over(wanted, mesh(wanted.mesh), memory_.over) : wanted,
                               BufferKind::Parameter);
    weight_part_ = weight_part;
    homes_[tensor].push_back({wanted.mesh, home, wanted, {}, {}});
  }

  struct Home {
    MeshId mesh;
    BufferId buffer;        // as it is kept
    Layout used;            // as its operators use it
    BufferId gradient;      // accumulated here
    BufferId reduced = {};  // the same as the optimizer reads it
  };
  Home& home(TensorId parameter, MeshId on) {
    for (Home& each : homes_.at(parameter))
      if (each.mesh == on) return each;
    WEFT_CHECK(false, "{} is not kept on mesh {}", graph_.name(parameter), on.index());
  }
  // How the optimizer state of a parameter is kept on a mesh.
  Layout step_layout(const Home& of) const {
    return memory_.zero >= 1 ? split_over(of.used, mesh(of.mesh), memory_.over) : of.used;
  }

  // Gradients accumulate in place, on each mesh for itself. ZeRO-2 and 3 keep the sum split, so each term is reduced
  // first.
  Status lower_accumulate(OpId op) {
    const Signature& signature = graph_.signature(op);
    const TensorId gradient = graph_.inputs(op)[1], sum = graph_.outputs(op)[0], buffer = graph_.tensors()[sum].storage;
    OpSharding sharding = plan_.ops[op];
    Home& kept = home(parameter_of(sum), sharding.mesh);
    Layout layout = memory_.zero >= 2 ? step_layout(kept) : common_layout(buffer, kept);
    if (kept.gradient.valid()) layout = program_.buffers[kept.gradient].layout;
    sharding = sharding_for(signature, layout);
    WEFT_TRY(const BufferId term, as(gradient, layout));
    if (!kept.gradient.valid()) kept.gradient = add_buffer(buffer, layout, BufferKind::State);
    emit(sharding.mesh, Compute{op, sharding, {kept.gradient, term}, {kept.gradient}});
    const bool tied = homes_.at(parameter_of(sum)).size() > 1;
    if (!gradients_.overlap || tied || terms_of(buffer).back() != op) return Ok{};
    // All terms are in: the optimizer's form of the gradient, once per step.
    guard_ = Guard::LastMicroBatch;
    available_[buffer] = {kept.gradient};
    const Result<BufferId> reduced = as(buffer, step_layout(kept));
    available_[buffer].clear();
    guard_ = Guard::Always;
    if (!reduced.ok()) return reduced.error();
    kept.reduced = *reduced;
    return Ok{};
  }

  // The accumulate operators of every accumulator, in order.
  const std::vector<OpId>& terms_of(TensorId accumulator) {
    if (terms_.empty())
      for (OpId op : backward_ops())
        if (graph_.kind(op) == OpKind::Accumulate)
          terms_[graph_.tensors()[graph_.outputs(op)[0]].storage].push_back(op);
    return terms_.at(accumulator);
  }

  // The form in which all terms of a gradient on one mesh can be added: as they are made if that is the same for all,
  // else cut like the parameter, and partial only where every term is.
  Layout common_layout(TensorId accumulator, const Home& kept) {
    std::vector<const Layout*> terms;
    for (OpId op : terms_of(accumulator))
      if (plan_.ops[op].mesh == kept.mesh) terms.push_back(&plan_.made[graph_.inputs(op)[1]]);
    const Layout& first = *terms.front();
    if (std::all_of(terms.begin(), terms.end(), [&](const Layout* term) { return *term == first; })) return first;
    Layout layout = kept.used;
    for (std::size_t axis = 0; axis < layout.partial.size(); ++axis)
      if ((split_axes(layout) >> axis & 1u) == 0 &&
          std::all_of(terms.begin(), terms.end(), [&](const Layout* term) { return term->partial[axis].has_value(); }))
        layout.partial[axis] = Reducer::Sum;
    return layout;
  }

  TensorId parameter_of(TensorId gradient) {
    if (parameters_.empty())
      for (const auto& [parameter, sum] : training_.accumulated) parameters_[graph_.tensors()[sum].storage] = parameter;
    return parameters_.at(graph_.tensors()[gradient].storage);
  }

  bool makes_weight_gradients_only(OpId op) const {
    if (graph_.kind(op) == OpKind::Accumulate) return true;
    if (!graph_.ops()[op].forward.valid()) return false;
    const Signature& signature = graph_.signature(op);
    return std::all_of(signature.outputs.begin(), signature.outputs.end(),
                       [](const Operand& output) { return output.weight; });
  }

  int region_of(OpId op) const { return op.valid() && recompute_.region.contains(op) ? recompute_.region[op] : -1; }

  // What backward reads of forward is saved on the mesh that reads it, as it was made there; what was partial, in the
  // first whole form it had. What a recomputed region makes is not kept, but what enters the region is.
  void begin_backward() {
    std::map<std::pair<TensorId, MeshId>, char> wanted;
    for (OpId op : backward_ops()) {
      const OpId forward = graph_.ops()[op].forward;
      for (TensorId input : graph_.inputs(op))
        if (region_of(forward) < 0 || region_of(graph_.tensors()[input].producer) != region_of(forward))
          wanted[{input, plan_.ops[op].mesh}] = 1;
    }
    for (OpId op : forward_ops())
      if (region_of(op) >= 0)
        for (TensorId input : graph_.inputs(op))
          if (region_of(graph_.tensors()[input].producer) != region_of(op)) wanted[{input, plan_.ops[op].mesh}] = 1;

    for (TensorId id : graph_.tensors().ids()) {
      if (graph_.tensors()[id].kind != TensorKind::Activation) {
        std::erase_if(available_[id],
                      [&](BufferId each) { return program_.buffers[each].kind == BufferKind::Temporary; });
        continue;
      }
      std::vector<BufferId> saved;
      for (MeshId on : program_.meshes.ids()) {
        if (!wanted.contains({id, on})) continue;
        BufferId chosen;
        for (BufferId each : available_[id]) {
          if (program_.buffers[each].layout.mesh != on) continue;
          if (!chosen.valid()) chosen = each;  // one that only ever was partial is reduced again
          if (!is_partial(program_.buffers[each].layout)) {
            chosen = each;
            break;
          }
        }
        if (!chosen.valid()) continue;
        program_.buffers[chosen].kind = BufferKind::Saved;
        saved.push_back(chosen);
      }
      available_[id] = std::move(saved);
    }
  }

  // Before the first backward product of a region, its forward operators run again, communication included.
  Status recompute_region_of(OpId forward) {
    const int region = region_of(forward);
    if (region < 0 || std::find(recomputed_.begin(), recomputed_.end(), region) != recomputed_.end()) return Ok{};
    recomputed_.push_back(region);
    for (OpId op : forward_ops())
      if (region_of(op) == region) WEFT_TRY_OK(lower(op));
    return Ok{};
  }

  void forget_temporaries() {
    for (std::vector<BufferId>& buffers : available_)
      std::erase_if(buffers, [&](BufferId id) {
        const BufferKind kind = program_.buffers[id].kind;
        return kind == BufferKind::Temporary || kind == BufferKind::Saved;
      });
  }

  // A parameter kept on several meshes (tied embeddings): every copy gets the terms of the others. The sums go to
  // buffers of their own, so that each copy sends what it had.
  Status sum_tied_gradients() {
    for (auto& [parameter, copies] : homes_) {
      if (copies.size() < 2) continue;
      const TensorId gradient = accumulator_of(parameter);
      const OpId op = accumulate_op(parameter);
      // What each copy has, whole on its mesh.
      std::vector<BufferId> own;
      for (Home& copy : copies) {
        Layout whole = program_.buffers[copy.gradient].layout;
        for (auto& reducer : whole.partial) reducer.reset();
        available_[gradient] = {copy.gradient};
        WEFT_TRY(const BufferId ready, as(gradient, whole));
        own.push_back(ready);
      }
      for (std::size_t i = 0; i < copies.size(); ++i) {
        const Layout layout = program_.buffers[own[i]].layout;
        BufferId total = own[i];
        for (std::size_t j = 0; j < copies.size(); ++j) {
          if (j == i) continue;
          available_[gradient] = {own[j]};
          WEFT_TRY(const BufferId term, as(gradient, layout));
          const BufferId next = add_buffer(gradient, layout, BufferKind::Temporary);
          emit(copies[i].mesh, Compute{op, sharding_for(graph_.signature(op), layout), {total, term}, {next}});
          total = next;
        }
        copies[i].gradient = total;
      }
      available_[gradient].clear();
    }
    return Ok{};
  }
  TensorId accumulator_of(TensorId parameter) const {
    for (const auto& [each, sum] : training_.accumulated)
      if (each == parameter) return graph_.tensors()[sum].storage;
    WEFT_CHECK(false, "{} has no gradient", graph_.name(parameter));
  }
  OpId accumulate_op(TensorId parameter) const { return graph_.uses(accumulator_of(parameter))[0].op; }

  // Optimizer operators run on every mesh that keeps the parameter, on the layout of its optimizer state.
  Status lower_step() {
    std::map<TensorId, TensorId> owner;  // what belongs to a parameter: its gradient, states and their updates
    for (const auto& [parameter, sum] : training_.accumulated)
      owner[graph_.tensors()[sum].storage] = owner[parameter] = parameter;
    for (OpId op : step_ops()) {
      const Signature& signature = graph_.signature(op);
      const auto inputs = graph_.inputs(op);
      if (signature.kind == OpKind::AddScalars) {
        WEFT_TRY_OK(lower_scalar_sum(op));
        continue;
      }
      if (signature.inputs.front().dims.empty()) {  // scalars only: the same everywhere
        WEFT_TRY_OK(lower_step_op(op, replicated(world_, mesh(world_), {}), nullptr));
        continue;
      }
      const TensorId parameter = owner.at(graph_.tensors()[inputs.front()].storage);
      for (TensorId input : inputs)
        if (!graph_.tensors()[input].producer.valid() && graph_.tensors()[input].kind == TensorKind::State)
          owner[input] = parameter;
      for (TensorId output : graph_.outputs(op)) owner[graph_.tensors()[output].storage] = parameter;
      for (Home& copy : homes_.at(parameter)) {
        const bool counts_once = signature.kind == OpKind::SumSquares || signature.kind == OpKind::NonFinite;
        if (counts_once && &copy != &homes_.at(parameter).front()) continue;
        WEFT_TRY_OK(lower_step_op(op, step_layout(copy), &copy));
      }
    }
    return Ok{};
  }

  Status lower_step_op(OpId op, const Layout& layout, Home* copy) {
    const Signature& signature = graph_.signature(op);
    const auto inputs = graph_.inputs(op), outputs = graph_.outputs(op);
    Compute compute{op, sharding_for(signature, layout), {}, {}};
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const Tensor& tensor = graph_.tensors()[inputs[i]];
      const Layout wanted = operand_layout(signature, false, i, compute.sharding, mesh(layout.mesh));
      const TensorId storage = tensor.storage;
      const bool gradient = copy && parameters_.contains(storage);
      if (gradient) {  // the accumulated gradient of this copy
        available_[inputs[i]] = {copy->gradient};
        if (copy->reduced.valid()) available_[inputs[i]].push_back(copy->reduced);
      } else if (tensor.kind == TensorKind::State && !tensor.producer.valid() && !on_mesh(inputs[i], layout.mesh)) {
        keep(inputs[i], wanted, BufferKind::State);
      }
      WEFT_TRY(const BufferId input, as_scalar_or(inputs[i], wanted));
      if (gradient) {
        copy->reduced = input;
        available_[inputs[i]].clear();
      }
      compute.inputs.push_back(input);
    }
    for (std::size_t i = 0; i < outputs.size(); ++i)
      compute.outputs.push_back(keep(
          outputs[i], operand_layout(signature, true, i, compute.sharding, mesh(layout.mesh)), BufferKind::Temporary));
    const std::vector<BufferId> made = compute.outputs, read = compute.inputs;
    emit(layout.mesh, std::move(compute));
    // Updates in place: states in their own memory; the parameter goes back to how it is kept.
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      const int aliased = signature.outputs[i].aliases;
      if (aliased < 0) continue;
      if (graph_.tensors()[inputs[static_cast<std::size_t>(aliased)]].kind != TensorKind::Parameter) {
        program_.buffers[made[i]].kind = BufferKind::State;
        update_in_place(made[i], read[static_cast<std::size_t>(aliased)]);
        continue;
      }
      available_[outputs[i]] = {made[i]};
      WEFT_TRY(const BufferId whole, as(outputs[i], program_.buffers[copy->buffer].layout));
      update_in_place(whole, copy->buffer);
      program_.buffers[whole].kind = BufferKind::Parameter;
    }
    return Ok{};
  }

  void update_in_place(BufferId written, BufferId target) {
    program_.buffers[written].storage = program_.buffers[target].storage;
    program_.buffers[written].memory = program_.buffers[target].memory;
  }

  bool on_mesh(TensorId tensor, MeshId on) const {
    return std::any_of(available_[tensor].begin(), available_[tensor].end(),
                       [&](BufferId id) { return program_.buffers[id].layout.mesh == on; });
  }

  // A scalar that the whole world has is on every mesh already.
  Result<BufferId> as_scalar_or(TensorId tensor, const Layout& wanted) {
    if (wanted.dims.empty() && wanted.mesh != world_ && !on_mesh(tensor, wanted.mesh))
      for (BufferId id : available_[tensor])
        if (program_.buffers[id].layout.mesh == world_ && !is_partial(program_.buffers[id].layout)) {
          // A transfer in which every device sends to itself.
          const BufferId local = keep(tensor, wanted, BufferKind::Temporary);
          const TransferId transfer = program_.transfers.push_back({id, local});
          emit(world_, Send{transfer});
          emit(wanted.mesh, Receive{transfer});
          return local;
        }
    return as(tensor, wanted);
  }

  Status lower_scalar_sum(OpId op) {
    SumScalars sum;
    for (TensorId input : graph_.inputs(op)) sum.inputs.push_back(available_[input].front());
    Layout partial = replicated(world_, mesh(world_), {});
    if (mesh(world_).size() > 1) partial.partial[0] = Reducer::Sum;
    sum.output = keep(graph_.outputs(op)[0], partial, BufferKind::Temporary);
    emit(world_, std::move(sum));
    return Ok{};
  }

  const TrainingGraph& training_;
  const Graph& graph_;
  const ShardingPlan& plan_;
  const MemoryPlan& memory_;
  const GradientSync& gradients_;
  const RecomputeRegions& recompute_;
  Program program_;
  IdVec<MeshId, int> stage_of_;
  MeshId world_;
  bool backward_ = false, weight_part_ = false;
  Guard guard_ = Guard::Always;
  std::vector<InstructionId>* body_ = nullptr;        // the step, once that is being lowered
  IdVec<TensorId, std::vector<BufferId>> available_;  // buffers of each tensor that hold it now
  std::unordered_set<BufferId> weight_only_;
  std::map<TensorId, std::vector<Home>> homes_;  // of every parameter, one per mesh that keeps it
  std::map<TensorId, TensorId> parameters_;      // storage of a gradient → its parameter
  std::map<TensorId, std::vector<OpId>> terms_;  // accumulator → what adds to it
  std::vector<int> recomputed_;
};

}  // namespace

Result<Program> compile(const TrainingGraph& training, const Placing& placing, const ShardingPlan& plan,
                        const CompileOptions& options, const RecomputeRegions& recompute) {
  return Lowering(training, placing, plan, options, recompute).run();
}

}  // namespace weft
