#include "compile/emitter.h"

#include "compile/uneven_parts.h"
#include "graph/routing.h"

namespace weft {

BufferId Emitter::add_buffer(TensorId tensor, Layout layout, BufferKind kind, bool on_host) {
  Buffer buffer{tensor, std::move(layout), kind, {}, {}, on_host, held_type(tensor)};
  const BufferId id = numbering_.of(buffer);
  buffer.storage = buffer.memory = id;
  program_.buffers[id] = std::move(buffer);
  origins_.set(id, {InstructionId(), position_.weight_part ? Readers::WeightPart : Readers::All});
  return id;
}

// Collectives on parameters and gradients are on the data-parallel stream: only the optimizer waits for them.
Stream Emitter::stream_of(const What& what) const {
  const bool back = position_.phase != Phase::Forward;
  if (std::holds_alternative<Send>(what)) return back ? Stream::SendBack : Stream::Send;
  if (std::holds_alternative<Receive>(what)) return back ? Stream::ReceiveBack : Stream::Receive;
  if (const auto* copy = std::get_if<Copy>(&what))
    return program_.buffers[copy->to].on_host ? Stream::CopyOut : Stream::CopyIn;
  const auto* communicate = std::get_if<Communicate>(&what);
  if (!communicate || communicate->collective == Collective::Slice) return Stream::Compute;
  if (group_.of_parameter || position_.phase == Phase::Step) return Stream::Data;
  return options_.tensor_overlap || communicate->collective == Collective::Shift ? Stream::Tensor : Stream::Compute;
}

// Gradients and parameters may be sent in a type of their own, routed tokens once to every device, uneven parts padded
// or grouped.
void Emitter::settle_sending(Communicate& communicate) const {
  if (communicate.collective == Collective::Slice) return;
  const TensorId tensor = program_.buffers[communicate.inputs[0]].tensor;
  if (group_.of_parameter) {
    const NumberTypes& types = options_.types;
    const bool gathers = communicate.collective == Collective::AllGather;
    std::optional<DType> sent = gathers ? types.sent_parameters : types.sent_gradients;
    if (gathers)
      if (const auto narrow = gathered_weight_type(types, graph_, tensor)) sent = narrow;
    if (sent != graph_.tensors()[tensor].type.dtype) communicate.wire = sent;
  } else if (communicate.collective == Collective::AllToAll) {
    communicate.tokens_once = options_.tokens_once && routed_by(graph_, tensor).valid();
  }
  communicate.parts = settled_parts(program_, graph_, communicate, options_);
}

InstructionId Emitter::write(InstructionId id, MeshId on, What&& what, Stream stream) {
  if (auto* communicate = std::get_if<Communicate>(&what)) settle_sending(*communicate);
  Instruction instruction{on, position_.guard, position_.weight_part, std::move(what), stream, {}};
  if (!id.valid()) id = numbering_.of(instruction);
  Instruction& written = program_.instructions[id];
  written = std::move(instruction);
  waits_.write(id);
  for (BufferId read : reads_of(program_, written))
    if (read.valid()) liveness_.use(read, id, position_.in_turn);
  for (BufferId made : writes_of(program_, written)) {
    liveness_.use(made, id, position_.in_turn);
    origins_.set_writer(made, id);
  }
  position_.sink->push_back(id);
  return id;
}

void Emitter::update_in_place(BufferId written, BufferId target) {
  program_.buffers[written].storage = program_.buffers[target].storage;
  program_.buffers[written].memory = program_.buffers[target].memory;
}

void Emitter::store_on_host(BufferId from, BufferId target) {
  const Buffer made = program_.buffers[from];
  const BufferId stored = add_buffer(made.tensor, made.layout, program_.buffers[target].kind, true);
  update_in_place(stored, target);
  emit(made.layout.mesh, Copy{from, stored});
}

void Emitter::add_chain(Chain chain, Chain::Purpose purpose) {
  chain.key.purpose = purpose;
  for (InstructionId id : chain.steps) {
    const Instruction& instruction = program_.instructions[id];
    const auto& step = std::get<Communicate>(instruction.what);
    // What is cast before it is sent is not joined with what is sent as it is.
    const TensorId sent = program_.buffers[step.inputs[0]].tensor;
    const auto narrow =
        step.collective == Collective::AllGather ? gathered_weight_type(options_.types, graph_, sent) : std::nullopt;
    chain.key.steps.emplace_back(instruction.mesh, step.collective, step.axes, step.reducer,
                                 narrow.value_or(graph_.tensors()[sent].type.dtype));
  }
  group_.code->chains.push_back(std::move(chain));
}

}  // namespace weft
