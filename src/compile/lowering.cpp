#include "compile/lowering.h"

#include <algorithm>
#include <utility>

namespace weft {

Lowering::Lowering(const TrainingGraph& training, const Sequence& sequence, const Placing& placing,
                   std::span<const RouteSplit> routes, const CompileOptions& options, Program& program)
    : graph_(training.graph),
      sequence_(sequence),
      options_(options),
      program_(program),
      mains_(sequence.turns().size()),
      held_(held_types(options.types, training.graph)),
      waits_(program, origins_),
      numbering_(program, group_, origins_, waits_),
      differences_(graph_, program, group_, origins_),
      passages_(group_, position_, numbering_, differences_),
      liveness_(program, group_, position_, numbering_, passages_),
      splits_(graph_, sequence, placing, routes, program),
      emitter_(graph_, options, program, group_, position_, numbering_, origins_, waits_, liveness_, held_),
      buffers_(graph_, options, program, group_, position_, origins_, passages_, splits_, emitter_),
      saved_(graph_, sequence, options, program, group_, position_, numbering_, differences_, splits_, emitter_,
             buffers_),
      rings_(graph_, sequence, options, program, group_, position_, numbering_, waits_, liveness_, splits_, emitter_),
      parameter_tensors_(training, sequence),
      homes_(graph_, options, program, group_, position_, emitter_, buffers_),
      reuse_(graph_, sequence, program, group_, position_, differences_, passages_, liveness_, buffers_, homes_),
      gradient_sums_(graph_, sequence, options, program, group_, position_, origins_, differences_, passages_, splits_,
                     emitter_, buffers_, parameter_tensors_, homes_),
      tied_gradients_(sequence, program, group_, origins_, numbering_, passages_, splits_, emitter_, buffers_,
                      parameter_tensors_, homes_, reuse_),
      optimizer_step_(graph_, sequence, program, group_, position_, splits_, emitter_, buffers_, parameter_tensors_,
                      homes_, reuse_) {
  const std::size_t expected = 3 * sequence.turns().size();  // mostly more than there will be
  numbering_.reserve(expected);
  liveness_.reserve(expected);
  for (TurnId turn : sequence.turns().ids()) {
    const TurnKind kind = sequence.turns()[turn].kind;
    if (kind == TurnKind::Operator || kind == TurnKind::ScalarSum || kind == TurnKind::Scalar)
      mains_[turn] = numbering_.new_instruction({});
  }
}

Result<GroupCode> Lowering::lower(GroupId group) {
  // Its lists keep their memory, and are copied as long as they have become.
  GroupCode& made = lowered_;
  made.collector = made.first_term = MeshId();
  made.total = BufferId();
  made.summed = InstructionId();
  made.homes.clear();
  made.chains.clear();
  made.frees.clear();
  made.passages.clear();
  made.buffers.clear();
  made.instructions.clear();
  made.transfers.clear();
  made.uses.clear();
  liveness_.begin_code();
  const Status done = lower_events(group, made);
  group_.code = nullptr;
  if (!done.ok()) {
    numbering_.release(made);
    return done.error();
  }
  if (group_.once)
    return GroupCode{
        std::move(made.events), made.frees, {}, std::move(made.chains), {}, {}, {}, {}, {}, {}, {}, {}, {}};
  return GroupCode{std::move(made.events),
                   made.frees,
                   std::move(made.homes),
                   std::move(made.chains),
                   made.collector,
                   made.first_term,
                   made.total,
                   made.summed,
                   made.passages,
                   made.buffers,
                   made.instructions,
                   made.transfers,
                   made.uses};
}

Result<GroupCode> Lowering::lower_again(GroupId group, GroupCode& before, Overwritten& journal, Touched& touched) {
  group_.before = &before;
  group_.journal = &journal;
  group_.touched = &touched;
  group_.keeps =
      options_.memory.most_zero() == 0 && !options_.keep_gathered_input && !options_.memory.offloads_anything();
  if (!group_.keeps) touched.chains = touched.step = true;
  differences_.begin_group();
  gradient_sums_.begin_change(group);
  passages_.begin_group();
  liveness_.begin_change();
  Result<GroupCode> code = lower(group);
  liveness_.end_change();
  group_.before = nullptr;
  group_.journal = nullptr;
  group_.touched = nullptr;
  group_.keeps = false;
  if (!code.ok()) share_nothing(before);
  return code;
}

Status Lowering::lower_events(GroupId group, GroupCode& code) {
  const std::span<const OperandUse> events = sequence_.events(group);
  code.events.assign(events.size(), {});
  group_.code = &code;
  group_.of_parameter = sequence_.is_parameter(group);
  position_ = {};
  for (TensorId tensor : sequence_.tensors(group)) buffers_.of(tensor).clear();
  for (std::size_t i = 0; i < events.size(); ++i) {
    const OperandUse& event = events[i];
    const Turn& turn = sequence_.turns()[event.turn];
    passages_.begin_event(static_cast<std::uint32_t>(i));
    if (turn.phase != position_.phase) {
      position_.weight_part = false;
      if (position_.phase == Phase::Forward) saved_.begin_backward(group, i);
      const bool step = turn.phase == Phase::Step;
      if (step) saved_.begin_step(group);
      position_.phase = turn.phase;
      if (step && group_.of_parameter) {
        position_.turn = event.turn;
        position_.sink = &code.events[i].before;
        WEFT_TRY_OK(tied_gradients_.sum());
      }
    }
    position_.turn = event.turn;
    position_.weight_part = turn.weight_part;
    position_.sink = &code.events[i].before;
    if (turn.kind == TurnKind::Optimizer && group_.of_parameter)
      WEFT_TRY_OK(optimizer_step_.optimize(event.turn));
    else
      WEFT_TRY_OK(lower_event(event, code.events[i]));
    passages_.end_event();
  }
  position_.weight_part = false;
  passages_.begin_event(static_cast<std::uint32_t>(events.size()));
  liveness_.add_frees();
  return Ok{};
}

Status Lowering::lower_event(const OperandUse& event, EventCode& code) {
  const bool term = sequence_.turns()[event.turn].kind == TurnKind::Accumulate;
  const bool step = position_.phase == Phase::Step;
  if (group_.keeps && !step)
    if (const Passage& old = passages_.before(); term ? gradient_sums_.stays(event, old) : reuse_.stays(event, old)) {
      code = group_.before->events[passages_.event()];
      reuse_.keep(old);
      if (term) gradient_sums_.keep(event, old);
      return Ok{};
    }
  passages_.begin(0, splits_.mesh_of(event.turn));
  if (term)
    WEFT_TRY_OK(gradient_sums_.accumulate(event, code));
  else if (event.output)
    make(event, code);
  else
    WEFT_TRY_OK(need(event, code));
  passages_.end();
  // In the step, a scalar that is found where it was.
  const Passage& lowered = passages_.lowered();
  if (group_.keeps && step && lowered.begin.buffer == lowered.end.buffer &&
      lowered.begin.instruction == lowered.end.instruction &&
      code.buffer == group_.before->events[passages_.event()].buffer)
    passages_.count_as_kept();
  return Ok{};
}

// Inputs, scalars, parameters and states (the sum of losses) are given on every mesh that reads them.
void Lowering::add_given(TensorId tensor, const Layout& wanted) {
  const TensorKind kind = graph_.tensors()[tensor].kind;
  if (graph_.tensors()[tensor].producer.valid() || buffers_.on_mesh(tensor, wanted.mesh)) return;
  if (kind == TensorKind::Parameter) return homes_.add(tensor, wanted);
  buffers_.add(tensor, without_halos(wanted),
               kind == TensorKind::Input    ? BufferKind::Input
               : kind == TensorKind::Scalar ? BufferKind::Scalar
                                            : BufferKind::State);
}

Status Lowering::need(const OperandUse& event, EventCode& code) {
  const TurnKind kind = sequence_.turns()[event.turn].kind;
  if (kind == TurnKind::Optimizer) {  // a scalar that all optimizers read
    const Layout everywhere = replicated(program_.world, splits_.mesh(program_.world), {});
    add_given(event.tensor, everywhere);
    WEFT_TRY(code.buffer, buffers_.as(event.tensor, everywhere));
    liveness_.use(code.buffer, InstructionId(), InTurn::Own);
    return Ok{};
  }
  if (kind == TurnKind::ScalarSum) {  // contributions are added on the devices that have them
    code.buffer = buffers_.of(event.tensor).front();
  } else {
    const Layout& wanted = splits_.of(event.turn).inputs[event.operand];
    add_given(event.tensor, wanted);
    ReshardManner manner;
    if (!group_.of_parameter) manner.factor = gathered_type(options_.types, graph_, sequence_.turns()[event.turn].op);
    WEFT_TRY(code.buffer, homes_.gathers_in_units(event.tensor) ? homes_.gather(event.tensor, event.turn, wanted)
                                                                : buffers_.as(event.tensor, wanted, manner));
  }
  liveness_.use(code.buffer, mains_[event.turn], InTurn::Own);
  return Ok{};
}

void Lowering::make(const OperandUse& event, EventCode& code) {
  const Turn& turn = sequence_.turns()[event.turn];
  const Signature& signature = graph_.signature(turn.op);
  const bool scalar_sum = turn.kind == TurnKind::ScalarSum;
  if (scalar_sum) {
    const Mesh& world = splits_.mesh(program_.world);
    Layout partial = replicated(program_.world, world, {});
    if (world.size() > 1) partial.partial[0] = Reducer::Sum;
    code.buffer = buffers_.add(event.tensor, partial, BufferKind::Temporary);
  } else {
    code.buffer = buffers_.add(event.tensor, splits_.of(event.turn).outputs[event.operand], BufferKind::Temporary);
    if (const int viewed = signature.outputs[event.operand].aliases; viewed >= 0) {
      const OperandRef of = sequence_.operands(event.turn)[static_cast<std::size_t>(viewed)];
      const BufferId target = group_.code->events[of.event].buffer;
      program_.buffers[code.buffer].memory = program_.buffers[target].memory;
      if (program_.buffers[target].kind == BufferKind::State) {  // the sum of losses, updated in place
        emitter_.update_in_place(code.buffer, target);
        program_.buffers[code.buffer].kind = BufferKind::State;
      }
    }
  }
  const InstructionId by = rings_.maker(event, mains_[event.turn]);
  origins_.set_writer(code.buffer, by);
  liveness_.use(code.buffer, by, InTurn::Own);
  if (scalar_sum && event.operand + 1 == signature.outputs.size()) reduce_scalars(event.turn, code);
}

// The sums of all devices, in one collective; results of the step (graph.results) outlive it.
void Lowering::reduce_scalars(TurnId turn, EventCode& code) {
  const auto is_result = [&](TensorId tensor) {
    return std::find(graph_.results().begin(), graph_.results().end(), tensor) != graph_.results().end();
  };
  const Mesh& world = splits_.mesh(program_.world);
  const Layout everywhere = replicated(program_.world, world, {});
  BufferList parts, wholes;
  for (TensorId sum : graph_.outputs(sequence_.turns()[turn].op)) {
    parts.push_back(buffers_.of(sum).front());
    if (world.size() > 1) wholes.push_back(buffers_.add(sum, everywhere, BufferKind::Temporary));
    if (is_result(sum)) program_.buffers[buffers_.of(sum).back()].kind = BufferKind::Result;
  }
  if (wholes.empty()) return;
  const Temporarily sink(position_.sink, &code.then);
  const Temporarily in_turn(position_.in_turn, InTurn::After);
  emitter_.emit(program_.world,
                Communicate{Collective::AllReduce, axis_set(0), Reducer::Sum, std::move(parts), std::move(wholes)});
}

// Optimizer operators read scalars of other groups, on every home of their parameter.
void Lowering::write_scalar_inputs(TurnId turn, const IdVec<GroupId, GroupCode>& groups) {
  const auto refs = sequence_.operands(turn);
  for (std::size_t r = 1; r < refs.size(); ++r)
    for (InstructionId each : groups[refs[0].group].events[refs[0].event].before)
      if (auto* compute = std::get_if<Compute>(&program_.instructions[each].what);
          compute && compute->op == sequence_.turns()[turn].op)
        compute->inputs[sequence_.events(refs[r].group)[refs[r].event].operand] =
            groups[refs[r].group].events[refs[r].event].buffer;
}

SumScalars Lowering::sum_of_scalars(TurnId turn, const IdVec<GroupId, GroupCode>& groups) const {
  const std::vector<std::int64_t> counts = graph_.signature(sequence_.turns()[turn].op).attrs.integers("counts", {});
  SumScalars sum{{}, ShortVec<std::uint32_t>(counts.size()), {}};
  for (const OperandRef& ref : sequence_.operands(turn)) {
    const OperandUse& event = sequence_.events(ref.group)[ref.event];
    const BufferId buffer = groups[ref.group].events[ref.event].buffer;
    (event.output ? sum.outputs : sum.inputs).push_back(buffer);
    if (event.output) continue;
    std::size_t at = 0;  // the sum that the term belongs to
    for (std::int64_t left = event.operand; left >= counts[at]; ++at) left -= counts[at];
    ++sum.counts[at];
  }
  return sum;
}

void Lowering::write_main(TurnId id, const IdVec<GroupId, GroupCode>& groups) {
  const Turn& turn = sequence_.turns()[id];
  if (turn.kind == TurnKind::Optimizer) write_scalar_inputs(id, groups);
  if (!mains_[id].valid()) return;
  Instruction instruction{splits_.mesh_of(id), Guard::Always, turn.weight_part, {}, Stream::Compute, {}};
  if (turn.kind == TurnKind::ScalarSum) {
    instruction.what = sum_of_scalars(id, groups);
  } else {
    BufferList buffers;
    for (const OperandRef& ref : sequence_.operands(id)) buffers.push_back(groups[ref.group].events[ref.event].buffer);
    if (rings_.is_ring(id)) return rings_.write(id, buffers, mains_[id]);
    const std::size_t outputs = buffers.size() - graph_.outputs(turn.op).size();
    instruction.what = Compute{turn.op,
                               splits_.of(id).sharding,
                               {buffers.begin(), buffers.begin() + outputs},
                               {buffers.begin() + outputs, buffers.end()},
                               products_of(options_.types, graph_, turn.op)};
  }
  program_.instructions[mains_[id]] = std::move(instruction);
  waits_.write(mains_[id]);
}

}  // namespace weft
