// Writes buffers, instructions and chains of collectives into the program at the current position, as the current
// group's: with the stream, the wire type and the waits that follow from what they are.
#pragma once

#include "compile/compile.h"
#include "compile/liveness.h"

namespace weft {

class Emitter {
 public:
  using What = decltype(Instruction::what);

  // All are kept by reference.
  Emitter(const Graph& graph, const CompileOptions& options, Program& program, const CurrentGroup& group,
          const Position& position, Numbering& numbering, Origins& origins, Waits& waits, Liveness& liveness,
          const IdVec<TensorId, std::optional<DType>>& held)
      : graph_(graph),
        options_(options),
        program_(program),
        group_(group),
        position_(position),
        numbering_(numbering),
        origins_(origins),
        waits_(waits),
        liveness_(liveness),
        held_(held) {}

  // The narrower type in which every buffer of the tensor is held (number_types.h); none: its own.
  std::optional<DType> held_type(TensorId tensor) const { return held_.empty() ? std::nullopt : held_[tensor]; }
  // A buffer with memory of its own.
  BufferId add_buffer(TensorId tensor, Layout layout, BufferKind kind, bool on_host = false);
  TransferId add_transfer(BufferId from, BufferId to) { return numbering_.of(Transfer{from, to}); }

  // On the stream that is usual for it, or on the one given; appended to the position's list.
  InstructionId emit(MeshId on, What what) {
    const Stream stream = stream_of(what);
    return write(InstructionId(), on, std::move(what), stream);
  }
  InstructionId emit(MeshId on, What what, Stream stream) {
    return write(InstructionId(), on, std::move(what), stream);
  }
  // The same under a number that the instruction keeps through all changes.
  void emit_as(InstructionId id, MeshId on, What what) {
    const Stream stream = stream_of(what);
    write(id, on, std::move(what), stream);
  }

  // `written` is an update of `target` in its memory.
  void update_in_place(BufferId written, BufferId target);
  // Copies to the host what is stored there as `target`.
  void store_on_host(BufferId from, BufferId target);

  // Adds a chain whose steps have been emitted; its key follows from them.
  void add_chain(Chain chain, Chain::Purpose purpose);

 private:
  Stream stream_of(const What& what) const;
  void settle_sending(Communicate& communicate) const;
  InstructionId write(InstructionId id, MeshId on, What&& what, Stream stream);

  const Graph& graph_;
  const CompileOptions& options_;
  Program& program_;
  const CurrentGroup& group_;
  const Position& position_;
  Numbering& numbering_;
  Origins& origins_;
  Waits& waits_;
  Liveness& liveness_;
  const IdVec<TensorId, std::optional<DType>>& held_;  // narrower types of tensors (number_types.h); may be empty
};

}  // namespace weft
