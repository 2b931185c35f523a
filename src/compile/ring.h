// Attention around a ring (Liu, Zaharia, Abbeel: Ring Attention with Blockwise Transformers, 2023).
//
// Where a mesh axis splits both the queries and the keys, each device has one part of either, and every part of the
// queries must be computed with every part of the keys. In n steps the keys and values are shifted from device to
// device; a step computes on the parts that are there while the next ones are on their way:
//
//   k₁, v₁ = shift(k₀, v₀)     y₀, lse₀ = attention(q, k₀, v₀)
//   k₂, v₂ = shift(k₁, v₁)     y₁, lse₁ = attention(q, k₁, v₁)     y, lse = combine(y₀, lse₀, y₁, lse₁) …
//
// The backward operator does the same with the final y and lse. The gradient of the keys travels with them: after each
// step the sum so far is shifted on, and one shift after the last step it is complete, on the device that has the keys.
// Several mesh axes are rings in rings: the keys are shifted along the innermost until they have been around, then once
// along the next (a modular Gray code). No device ever holds all keys.
#pragma once

#include <unordered_map>

#include "compile/emitter.h"
#include "compile/turn_splits.h"

namespace weft {

class Rings {
 public:
  // All are kept by reference.
  Rings(const Graph& graph, const Sequence& sequence, const CompileOptions& options, const Program& program,
        CurrentGroup& group, Position& position, Numbering& numbering, Waits& waits, Liveness& liveness,
        TurnSplits& splits, Emitter& emitter)
      : graph_(graph),
        sequence_(sequence),
        options_(options),
        program_(program),
        group_(group),
        position_(position),
        numbering_(numbering),
        waits_(waits),
        liveness_(liveness),
        splits_(splits),
        emitter_(emitter) {}

  // Whether the plan has a turn go around a ring.
  bool is_ring(TurnId turn) const;
  // The instruction that makes an output of the turn: `main`, the combination of what stays in place; of what travels
  // around the ring the last shift, which keeps its number through all changes as `main` does.
  InstructionId maker(const OperandUse& output, InstructionId main);
  InstructionId last_shift(TurnId turn) const {
    const auto found = last_shifts_.find(turn);
    return found == last_shifts_.end() ? InstructionId() : found->second;
  }

  // Writes the turn's instructions; `operands` are its inputs and outputs.
  void write(TurnId turn, const BufferList& operands, InstructionId main);
  // As written; null: the turn is no ring.
  const RingCode* code(TurnId turn) const {
    const auto found = written_.find(turn);
    return found == written_.end() ? nullptr : &found->second;
  }
  // Takes out the code of a turn that is to be written anew, or puts it back in place of what was written.
  RingCode take(TurnId turn);
  void put(TurnId turn, RingCode code);

 private:
  const Graph& graph_;
  const Sequence& sequence_;
  const CompileOptions& options_;
  const Program& program_;
  CurrentGroup& group_;
  Position& position_;
  Numbering& numbering_;
  Waits& waits_;
  Liveness& liveness_;
  TurnSplits& splits_;
  Emitter& emitter_;
  std::unordered_map<TurnId, RingCode> written_;
  std::unordered_map<TurnId, InstructionId> last_shifts_;
};

}  // namespace weft
