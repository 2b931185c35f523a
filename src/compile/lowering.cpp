#include "compile/lowering.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/check.h"
#include "compile/parameter_layout.h"
#include "compile/uneven_parts.h"
#include "graph/routing.h"

namespace weft {

Lowering::Lowering(const TrainingGraph& training, const Sequence& sequence, const Placing& placing,
                   const ShardingPlan& plan, const CompileOptions& options, Program& program)
    : training_(training),
      graph_(training.graph),
      sequence_(sequence),
      placing_(placing),
      plan_(plan),
      options_(options),
      program_(program),
      mains_(sequence.turns().size()),
      parameter_of_(graph_.tensors().size()),
      gradient_of_(graph_.tensors().size()),
      optimized_by_(graph_.ops().size()),
      terms_of_(graph_.tensors().size()),
      memo_(graph_),
      splits_(graph_.ops().size()),
      changed_(graph_.ops().size(), 0),
      available_(graph_.tensors().size()),
      last_forward_(graph_.tensors().size()) {
  reserve(3 * sequence.turns().size());  // mostly more than there will be
  for (TurnId turn : sequence.turns().ids()) {
    const TurnKind kind = sequence.turns()[turn].kind;
    if (kind == TurnKind::Operator || kind == TurnKind::ScalarSum || kind == TurnKind::Scalar)
      mains_[turn] = new_instruction({});
    if (kind == TurnKind::Accumulate)
      terms_of_[graph_.tensors()[graph_.outputs(sequence.turns()[turn].op)[0]].storage].push_back(turn);
  }
  // What belongs to a parameter: its gradient, its states and their updates.
  IdVec<TensorId, TensorId> owner(graph_.tensors().size());
  for (const auto& [parameter, sum] : training.accumulated) {
    const TensorId gradient = graph_.tensors()[sum].storage;
    parameter_of_[gradient] = owner[gradient] = owner[parameter] = parameter;
    gradient_of_[parameter] = gradient;
  }
  for (TurnId turn : sequence.turns().ids()) {
    if (sequence.turns()[turn].kind != TurnKind::Optimizer) continue;
    const OpId op = sequence.turns()[turn].op;
    const TensorId parameter = owner[graph_.tensors()[graph_.inputs(op).front()].storage];
    WEFT_CHECK(parameter.valid(), "{} works on no parameter", graph_.name(op));
    for (TensorId input : graph_.inputs(op))
      if (!graph_.tensors()[input].producer.valid() && graph_.tensors()[input].kind == TensorKind::State)
        owner[input] = parameter;
    for (TensorId output : graph_.outputs(op)) owner[graph_.tensors()[output].storage] = parameter;
    optimized_by_[op] = parameter;
  }
}

MeshId Lowering::mesh_of(TurnId turn) const {
  const Turn& described = sequence_.turns()[turn];
  if (described.phase == Phase::Step) return program_.world;
  const MeshId mesh = plan_.ops[described.op].mesh;
  return described.route == 0 ? mesh : placing_.mirror[mesh];
}

const SplitOp& Lowering::split(TurnId turn) {
  const Turn& described = sequence_.turns()[turn];
  std::shared_ptr<const SplitOp>& known = splits_[described.op];
  if (described.phase == Phase::Step) {
    known = memo_.split_as(described.op, replicated(program_.world, mesh(program_.world), {}), mesh(program_.world));
    return *known;
  }
  const OpSharding& planned = plan_.ops[described.op];
  if (known && described.route == 0 && known->sharding == planned) return *known;
  if (described.route == 0) {
    known = memo_.split(described.op, planned, mesh(planned.mesh));
    return *known;
  }
  OpSharding wanted = planned;
  wanted.mesh = mesh_of(turn);
  known = memo_.split(described.op, wanted, mesh(wanted.mesh));
  return *known;
}

BufferId Lowering::add_buffer(TensorId tensor, Layout layout, BufferKind kind, bool on_host) {
  Buffer buffer{tensor, std::move(layout), kind, {}, {}, on_host};
  const BufferId id = number_of(buffer);
  buffer.storage = buffer.memory = id;
  program_.buffers[id] = std::move(buffer);
  writer_[id] = {};
  readers_[id] = weight_part_ ? Readers::WeightPart : Readers::All;
  return id;
}

BufferId Lowering::keep(TensorId tensor, Layout layout, BufferKind kind) {
  const BufferId id = add_buffer(tensor, std::move(layout), kind);
  code_->buffers.back().available = tensor;
  available_[tensor].push_back(id);
  return id;
}

// Nobody but the optimizer waits for what happens to parameters and gradients.
Stream Lowering::stream_of(const What& what) const {
  const bool back = phase_ != Phase::Forward;
  if (std::holds_alternative<Send>(what)) return back ? Stream::SendBack : Stream::Send;
  if (std::holds_alternative<Receive>(what)) return back ? Stream::ReceiveBack : Stream::Receive;
  if (const auto* copy = std::get_if<Copy>(&what))
    return program_.buffers[copy->to].on_host || copies_in_turn_ ? Stream::CopyOut : Stream::CopyIn;
  if (adds_reduced_) return Stream::Data;
  const auto* communicate = std::get_if<Communicate>(&what);
  if (!communicate || communicate->collective == Collective::Slice) return Stream::Compute;
  if (gathers_parts_ && phase_ == Phase::Step) return Stream::Tensor;
  if (of_parameter_ || phase_ == Phase::Step) return Stream::Data;
  return options_.tensor_overlap || communicate->collective == Collective::Shift ? Stream::Tensor : Stream::Compute;
}

// Gradients and parameters may be sent in a type of their own, routed tokens once to every device, uneven parts padded
// or grouped.
void Lowering::settle_sending(Communicate& communicate) const {
  if (communicate.collective == Collective::Slice) return;
  const TensorId tensor = program_.buffers[communicate.inputs[0]].tensor;
  if (of_parameter_) {
    const NumberTypes& types = options_.types;
    const auto& sent = communicate.collective == Collective::AllGather ? types.sent_parameters : types.sent_gradients;
    if (sent != graph_.tensors()[tensor].type.dtype) communicate.wire = sent;
  } else if (communicate.collective == Collective::AllToAll) {
    communicate.tokens_once = options_.tokens_once && routed_by(graph_, tensor).valid();
  }
  communicate.parts = settled_parts(program_, graph_, communicate, options_);
}

InstructionId Lowering::emit(MeshId on, What what, InstructionId as) {
  const Stream stream = stream_of(what);
  if (auto* communicate = std::get_if<Communicate>(&what)) settle_sending(*communicate);
  Instruction instruction{on, guard_, weight_part_, std::move(what), stream, {}};
  const InstructionId id = as.valid() ? as : number_of(instruction);
  program_.instructions[id] = std::move(instruction);
  add_waits(id);
  use_all(id);
  sink_->push_back(id);
  return id;
}

void Lowering::add_waits(InstructionId id) {
  Instruction& instruction = program_.instructions[id];
  instruction.after.clear();
  // Waited for once each; sums of scalars read hundreds of buffers.
  if (last_waiter_.size() < program_.instructions.size()) last_waiter_.resize(program_.instructions.size(), 0);
  ++waiter_;
  const auto wait_for = [&](InstructionId writer) {
    if (writer.valid() && program_.instructions[writer].stream != instruction.stream &&
        std::exchange(last_waiter_[writer], waiter_) != waiter_)
      instruction.after.push_back(writer);
  };
  for (BufferId read : reads_of(program_, instruction)) {
    if (!read.valid()) continue;  // comes later: a scalar of another group
    if (const auto adders = adders_.find(read); adders != adders_.end())
      for (InstructionId adder : adders->second) wait_for(adder);
    else
      wait_for(writer_[read]);
  }
}

// Whether the parts that an activation is gathered from, or scattered to, lie apart in it: something varies outside of
// the dimension that is cut. Samples and sequences do not: Megatron-LM lays activations out with sequences outermost,
// so that what sequence parallelism gathers lies together; those who gather samples, with samples outermost.
bool Lowering::lies_apart(const ReshardStep& step, const Layout& from) const {
  if (step.collective != Collective::AllGather && step.collective != Collective::ReduceScatter) return false;
  constexpr std::size_t kOuter = 2;  // samples, sequences
  std::size_t changed = kOuter;
  while (changed < from.dims.size() && from.dims[changed] == step.to.dims[changed]) ++changed;
  if (changed >= from.dims.size()) return false;
  const Mesh& on = mesh(from.mesh);
  const Shape before = local_shape(from, on, 0);
  return std::any_of(before.begin(), before.begin() + static_cast<std::ptrdiff_t>(changed),
                     [](std::int64_t size) { return size > 1; });
}

struct Lowering::Route {
  double cost = std::numeric_limits<double>::infinity();
  BufferId source;
  std::shared_ptr<const Resharding> way = nullptr;
};

// The cheapest way to the layout from a buffer on the same mesh.
Lowering::Route Lowering::cheapest(TensorId tensor, const Layout& wanted, std::optional<Error>& problem) {
  Route best;
  for (BufferId id : available_[tensor]) {
    const Buffer& buffer = program_.buffers[id];
    if (buffer.layout.mesh != wanted.mesh || !usable(id)) continue;
    std::shared_ptr<const Resharding> way =
        memo_.reshard(buffer.layout, wanted, mesh(wanted.mesh), of_parameter_ ? nullptr : options_.prices,
                      graph_.tensors()[tensor].type.dtype);
    if (way->problem) {
      problem = way->problem;
      continue;
    }
    double cost = buffer.on_host ? static_cast<double>(largest_local_elements(buffer.layout, mesh(wanted.mesh))) : 0;
    for (double sent : way->sent) cost += sent + 1e-6;
    if (cost < best.cost) best = {cost, id, std::move(way)};
  }
  return best;
}

// A buffer of the tensor in the layout wanted: one that is there, made by resharding, or brought from another mesh.
Result<BufferId> Lowering::as(TensorId tensor, const Layout& wanted) {
  for (BufferId id : available_[tensor])
    if (usable(id) && !program_.buffers[id].on_host && program_.buffers[id].layout == wanted) return id;
  return make_as(tensor, wanted);
}

// The layout by value: buffers move while it is made.
Result<BufferId> Lowering::make_as(TensorId tensor, Layout wanted) {
  std::optional<Error> problem;
  Route best = cheapest(tensor, wanted, problem);
  if (!best.source.valid()) {
    WEFT_TRY(const bool brought, bring(tensor, wanted));
    if (!brought)
      return problem ? problem->at(graph_.name(tensor)) : error("{}: nothing holds it here", graph_.name(tensor));
    best = cheapest(tensor, wanted, problem);
    WEFT_CHECK(best.source.valid(), "{} was brought and cannot be used", graph_.name(tensor));
  }
  if (program_.buffers[best.source].on_host) {
    const Layout layout = program_.buffers[best.source].layout;
    const BufferId loaded = keep(tensor, layout, BufferKind::Temporary);
    emit(wanted.mesh, Copy{best.source, loaded});
    best.source = loaded;
  }
  for (const ReshardStep& step : best.way->steps) {
    const BufferId next = keep(tensor, step.to, BufferKind::Temporary);
    BufferList inputs = {best.source};
    if (step.reducer == Reducer::SoftmaxMerge) {
      WEFT_TRY(const BufferId weights, merge_weights(tensor, program_.buffers[best.source].layout));
      inputs.push_back(weights);
    }
    // A part of a parameter or state is looked at where it lies; of what a micro-batch makes only by the step, or it
    // could not be freed by those that the step does not follow.
    const BufferId memory = program_.buffers[best.source].memory;
    const BufferKind kind = program_.buffers[memory].kind;
    if (in_place_ || (of_parameter_ && step.collective == Collective::Slice &&
                      (phase_ == Phase::Step || kind == BufferKind::Parameter || kind == BufferKind::State)))
      program_.buffers[next].memory = memory;
    // What a split backward gathers of an activation that it computed again, its weights' part gathers once more: the
    // zero-bubble fork of Megatron-LM keeps the part that sequence parallelism leaves with each device in its
    // WeightGradStore. (Gradients are kept as they were gathered for both parts there, and so here.)
    if (options_.split_backward && !options_.keep_gathered_input && phase_ == Phase::Backward && !weight_part_ &&
        step.collective == Collective::AllGather && graph_.tensors()[tensor].kind == TensorKind::Activation)
      readers_[next] = Readers::InputPart;
    Communicate what{step.collective, step.axes, step.reducer, std::move(inputs), {next}};
    // (Parameters are cut as flat tensors, and so is what is sent in parts: Megatron-LM's
    // split_tensor_into_1d_equal_chunks.)
    what.staged = !of_parameter_ && !gathers_parts_ && lies_apart(step, program_.buffers[best.source].layout);
    emit(wanted.mesh, std::move(what));
    best.source = next;
  }
  return best.source;
}

// What weighs the contributions of attention over split keys: the log-sum-exp of the same shards, as far reduced as
// they are.
Result<BufferId> Lowering::merge_weights(TensorId tensor, Layout contributions) {
  const OpId producer = graph_.tensors()[tensor].producer;
  const Signature& signature = graph_.signature(producer);
  std::size_t lse = 0;
  while (signature.outputs[lse].reducer != Reducer::LogSumExp) ++lse;
  OpSharding sharding = plan_.ops[producer];
  sharding.mesh = contributions.mesh;
  Layout wanted = operand_layout(signature, true, lse, sharding, mesh(sharding.mesh));
  for (std::size_t axis = 0; axis < wanted.partial.size(); ++axis)
    if (!contributions.partial[axis]) wanted.partial[axis].reset();
  return as(graph_.outputs(producer)[lse], wanted);
}

// Moves a tensor onto the wanted layout's mesh: whole contributions only, so partial sums are reduced where they are,
// onto the wanted cuts if the meshes are alike. False when no mesh holds it.
//
// A stage before waits for it even where only a weight gradient reads it first: in a split backward it goes with the
// input's part, unless the weights' part made it.
Result<bool> Lowering::bring(TensorId tensor, const Layout& wanted) {
  const bool weight_part = std::exchange(weight_part_, false);
  BufferId source = elsewhere(tensor, wanted.mesh);
  if (!source.valid()) {
    weight_part_ = weight_part;
    source = elsewhere(tensor, wanted.mesh);
  }
  passage_.depends = passage_.depends || passage_.source.valid();
  passage_.source = source;
  const Result<bool> brought = source.valid() ? bring_from(source, wanted) : Result<bool>(false);
  weight_part_ = weight_part;
  return brought;
}

Result<bool> Lowering::bring_from(BufferId source, const Layout& wanted) {
  const TensorId tensor = program_.buffers[source].tensor;
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
  WEFT_TRY(BufferId ready, as(tensor, here));
  const Layout part = in_parts(there);
  if (part != there && alike) {
    here.dims = part.dims;
    WEFT_TRY(ready, as(tensor, here));
  }
  const BufferId arrived =
      part == there ? keep(tensor, there, BufferKind::Temporary) : add_buffer(tensor, part, BufferKind::Temporary);
  const TransferId transfer = number_of(Transfer{ready, arrived});
  emit(from.mesh, Send{transfer});
  emit(wanted.mesh, Receive{transfer});
  if (part == there) return true;
  // Parts serve the way alone: what is read, and perhaps saved, is whole.
  available_[tensor].push_back(arrived);
  gathers_parts_ = true;
  const Result<BufferId> whole = as(tensor, there);
  gathers_parts_ = false;
  erase_if(available_[tensor], [&](BufferId id) { return id == arrived; });
  if (!whole.ok()) return whole.error();
  return true;
}

// The layout cut along the mesh axes over which devices of one node hold the same, as far as it divides.
Layout Lowering::in_parts(const Layout& layout) const {
  const std::vector<int>& node = options_.transfers.node;
  if (node.empty()) return layout;
  const Mesh& on = mesh(layout.mesh);
  const auto node_at = [&](int position) { return node[on.devices()[static_cast<std::size_t>(position)].index()]; };
  Layout part = layout;
  MeshAxes alike = 0;
  for (std::size_t axis = 0; axis < on.axes().size(); ++axis) {
    const MeshAxes one = MeshAxes{1} << axis;
    if (on.axes()[axis].size == 1 || (split_axes(layout) & one) != 0) continue;
    bool inside = true;
    for (int position = 0; position < on.size() && inside; ++position)
      inside = node_at(position) == node_at(on.group_leader(position, alike | one));
    if (!inside) continue;
    Layout cut = split_over(part, on, one);
    bool even = true;
    for (const DimLayout& dim : cut.dims)
      for (const Factor& factor : dim)
        for (const Cut& each : factor.cuts)
          even = even && (static_cast<std::size_t>(each.mesh_axis) != axis || each.shares.empty());
    if (!even) continue;
    part = std::move(cut);
    alike |= one;
  }
  return part;
}

// Inputs, scalars and parameters are there on every mesh that reads them, and so is what adds up losses.
void Lowering::given(TensorId tensor, const Layout& wanted) {
  const TensorKind kind = graph_.tensors()[tensor].kind;
  const bool leaf = !graph_.tensors()[tensor].producer.valid();
  if (!leaf || on_mesh(tensor, wanted.mesh)) return;
  if (kind != TensorKind::Parameter) {
    keep(tensor, without_halos(wanted),
         kind == TensorKind::Input    ? BufferKind::Input
         : kind == TensorKind::Scalar ? BufferKind::Scalar
                                      : BufferKind::State);
    return;
  }
  const bool weight_part = std::exchange(weight_part_, false);
  const BufferId buffer = keep(tensor, weight_layout(tensor, wanted), BufferKind::Parameter);
  program_.buffers[buffer].on_host = offloads(Stored::Weights, tensor);
  weight_part_ = weight_part;
  const Home* const was = home_before(tensor, wanted.mesh);
  const bool fresh = !was || was->buffer != buffer || was->used != wanted;
  code_->homes[tensor].push_back({.mesh = wanted.mesh, .buffer = buffer, .used = wanted, .fresh = fresh});
}

Status Lowering::need(const OperandUse& event, EventCode& code) {
  const Turn& turn = sequence_.turns()[event.turn];
  if (turn.kind == TurnKind::ScalarSum) {  // contributions are added where they are
    code.buffer = available_[event.tensor].front();
  } else if (turn.kind != TurnKind::Optimizer) {
    const Layout& wanted = split(event.turn).inputs[event.operand];
    given(event.tensor, wanted);
    if (gathers_in_units(event.tensor)) {
      Chain chain{event.turn, {}, event.tensor, {}, {}};
      InstructionList* const before = std::exchange(sink_, &chain.steps);
      const bool weight_part = std::exchange(weight_part_, false);
      ahead_ = true;
      // From what is kept, not from what another chain gathers: chains are issued in any order.
      BufferList others;
      for (BufferId id : available_[event.tensor])
        if (program_.buffers[id].kind != BufferKind::Parameter && program_.buffers[id].layout != wanted)
          others.push_back(id);
      erase_if(available_[event.tensor],
               [&](BufferId id) { return std::find(others.begin(), others.end(), id) != others.end(); });
      Result<BufferId> gathered = as(event.tensor, wanted);
      available_[event.tensor].append(others.begin(), others.end());
      ahead_ = false;
      weight_part_ = weight_part;
      sink_ = before;
      if (!gathered.ok()) return gathered.error();
      code.buffer = *gathered;
      if (!chain.steps.empty()) add_chain(std::move(chain), Chain::Purpose::Gather);
    } else {
      WEFT_TRY(code.buffer, as(event.tensor, wanted));
    }
  } else {  // a scalar that everybody has, read by an optimizer
    const Layout everywhere = replicated(program_.world, mesh(program_.world), {});
    given(event.tensor, everywhere);
    WEFT_TRY(code.buffer, as(event.tensor, everywhere));
    use(code.buffer, InstructionId(), kMain);
    return Ok{};
  }
  use(code.buffer, mains_[event.turn], kMain);
  return Ok{};
}

void Lowering::make(const OperandUse& event, EventCode& code) {
  const Turn& turn = sequence_.turns()[event.turn];
  const Signature& signature = graph_.signature(turn.op);
  if (turn.kind == TurnKind::ScalarSum) {
    Layout partial = replicated(program_.world, mesh(program_.world), {});
    if (mesh(program_.world).size() > 1) partial.partial[0] = Reducer::Sum;
    code.buffer = keep(event.tensor, partial, BufferKind::Temporary);
  } else {
    code.buffer = keep(event.tensor, split(event.turn).outputs[event.operand], BufferKind::Temporary);
    if (const int viewed = signature.outputs[event.operand].aliases; viewed >= 0) {
      const OperandRef of = sequence_.operands(event.turn)[static_cast<std::size_t>(viewed)];
      const BufferId target = code_->events[of.event].buffer;
      program_.buffers[code.buffer].memory = program_.buffers[target].memory;
      if (program_.buffers[target].kind == BufferKind::State) {  // the sum of losses, updated in place
        update_in_place(code.buffer, target);
        program_.buffers[code.buffer].kind = BufferKind::State;
      }
    }
  }
  const InstructionId by = maker(event);
  writer_[code.buffer] = by;
  use(code.buffer, by, kMain);
  if (turn.kind == TurnKind::ScalarSum && event.operand + 1 == signature.outputs.size()) reduce_scalars(event, code);
}

// The sums of all devices, in one collective; what is told to the player stays.
void Lowering::reduce_scalars(const OperandUse& last, EventCode& code) {
  const auto sums = graph_.outputs(sequence_.turns()[last.turn].op);
  const auto is_result = [&](TensorId tensor) {
    return std::find(graph_.results().begin(), graph_.results().end(), tensor) != graph_.results().end();
  };
  const Layout everywhere = replicated(program_.world, mesh(program_.world), {});
  BufferList parts, wholes;
  for (TensorId sum : sums) {
    parts.push_back(available_[sum].front());
    if (mesh(program_.world).size() > 1) wholes.push_back(keep(sum, everywhere, BufferKind::Temporary));
    if (is_result(sum)) program_.buffers[available_[sum].back()].kind = BufferKind::Result;
  }
  if (wholes.empty()) return;
  InstructionList* const before = std::exchange(sink_, &code.then);
  rank_ = kAfter;
  emit(program_.world,
       Communicate{Collective::AllReduce, axis_set(0), Reducer::Sum, std::move(parts), std::move(wholes)});
  rank_ = kBefore;
  sink_ = before;
}

Status Lowering::lower_events(GroupId group, GroupCode& code) {
  const std::span<const OperandUse> events = sequence_.events(group);
  code.events.assign(events.size(), {});
  code_ = &code;
  of_parameter_ = sequence_.is_parameter(group);
  phase_ = Phase::Forward;
  guard_ = Guard::Always;
  weight_part_ = false;
  for (TensorId tensor : sequence_.tensors(group)) available_[tensor].clear();
  for (std::size_t i = 0; i < events.size(); ++i) {
    const OperandUse& event = events[i];
    const Turn& turn = sequence_.turns()[event.turn];
    begin_event(static_cast<std::uint32_t>(i));
    if (turn.phase != phase_) {
      weight_part_ = false;
      if (phase_ == Phase::Forward) begin_backward(group, i);
      const bool step = turn.phase == Phase::Step;
      if (step) begin_step(group);
      phase_ = turn.phase;
      if (step && of_parameter_) {
        turn_ = event.turn;
        sink_ = &code.events[i].before;
        WEFT_TRY_OK(sum_tied_gradients());
      }
    }
    turn_ = event.turn;
    weight_part_ = turn.weight_part;
    sink_ = &code.events[i].before;
    if (phase_ == Phase::Forward) last_forward_[event.tensor] = static_cast<std::uint32_t>(i + 1);
    if (turn.kind == TurnKind::Optimizer && of_parameter_)
      WEFT_TRY_OK(optimize(event));
    else
      WEFT_TRY_OK(lower_event(event, code.events[i]));
    end_event();
  }
  weight_part_ = false;
  begin_event(static_cast<std::uint32_t>(events.size()));
  add_frees();
  return Ok{};
}

Status Lowering::lower_event(const OperandUse& event, EventCode& code) {
  const Turn& turn = sequence_.turns()[event.turn];
  const bool term = turn.kind == TurnKind::Accumulate;
  if (keeping_ && phase_ != Phase::Step)
    if (const Passage& old = before_->passages[event_begin_]; stays(event, old)) {
      code = before_->events[event_];
      keep_passage(old);
      if (term) keep_term(event, old);
      return Ok{};
    }
  begin_passage(0, mesh_of(event.turn));
  if (term)
    WEFT_TRY_OK(accumulate(event, code));
  else if (event.output)
    make(event, code);
  else
    WEFT_TRY_OK(need(event, code));
  end_passage();
  // A scalar that is found where it was.
  if (keeping_ && phase_ == Phase::Step && passage_.begin.buffer == passage_.end.buffer &&
      passage_.begin.instruction == passage_.end.instruction && code.buffer == before_->events[event_].buffer) {
    --lowered_;
    ++kept_;
  }
  return Ok{};
}

void Lowering::write_main(TurnId id, const IdVec<GroupId, GroupCode>& groups) {
  const Turn& turn = sequence_.turns()[id];
  if (turn.kind == TurnKind::Optimizer) {  // scalars of other groups, in every copy
    const auto refs = sequence_.operands(id);
    for (std::size_t r = 1; r < refs.size(); ++r)
      for (InstructionId each : groups[refs[0].group].events[refs[0].event].before)
        if (auto* compute = std::get_if<Compute>(&program_.instructions[each].what); compute && compute->op == turn.op)
          compute->inputs[sequence_.events(refs[r].group)[refs[r].event].operand] =
              groups[refs[r].group].events[refs[r].event].buffer;
  }
  if (!mains_[id].valid()) return;
  BufferList buffers;
  for (const OperandRef& ref : sequence_.operands(id)) buffers.push_back(groups[ref.group].events[ref.event].buffer);
  if (goes_around(id)) return write_ring(id, buffers);
  Instruction instruction{mesh_of(id), Guard::Always, turn.weight_part, {}, Stream::Compute, {}};
  if (turn.kind == TurnKind::ScalarSum) {
    const std::vector<std::int64_t> counts = graph_.signature(turn.op).attrs.integers("counts", {});
    SumScalars sum{{}, ShortVec<std::uint32_t>(counts.size()), {}};
    for (const OperandRef& ref : sequence_.operands(id)) {
      const OperandUse& event = sequence_.events(ref.group)[ref.event];
      const BufferId buffer = groups[ref.group].events[ref.event].buffer;
      (event.output ? sum.outputs : sum.inputs).push_back(buffer);
      if (event.output) continue;
      std::size_t at = 0;  // the sum that the term is of
      for (std::int64_t left = event.operand; left >= counts[at]; ++at) left -= counts[at];
      ++sum.counts[at];
    }
    instruction.what = std::move(sum);
  } else {
    const std::size_t outputs = buffers.size() - graph_.outputs(turn.op).size();
    instruction.what = Compute{turn.op,
                               split(id).sharding,
                               {buffers.begin(), buffers.begin() + outputs},
                               {buffers.begin() + outputs, buffers.end()},
                               products_of(options_.types, graph_, turn.op)};
  }
  program_.instructions[mains_[id]] = std::move(instruction);
  add_waits(mains_[id]);
}

}  // namespace weft
