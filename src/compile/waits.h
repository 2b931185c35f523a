// Which instructions of other streams an instruction waits for (Instruction::after): those that wrote what it reads;
// of a free, the last use of its buffer on every stream.
//
// What is waited for may be joined into a bucket after the waiting instruction has been written (buckets.h). So an
// instruction that is written while its group is lowered is unsettled, and settled when it takes its place in a body.
#pragma once

#include <utility>

#include "compile/origins.h"

namespace weft {

class Waits {
 public:
  // Both are kept by reference.
  Waits(Program& program, const Origins& origins) : program_(program), origins_(origins) {}

  void reserve(std::size_t instructions);
  // An instruction number taken into use, new or again.
  void add(InstructionId id) {
    if (joined_.contains(id)) {
      joined_[id] = {};
      return;
    }
    joined_.push_back({});
    unsettled_.push_back(0);
  }
  // Writes anew what the instruction waits for. Cost: linear in what it reads.
  void write(InstructionId id);

  void unsettle(InstructionId id) { unsettled_[id] = 1; }
  void settle(InstructionId id) {
    if (std::exchange(unsettled_[id], 0)) write(id);
  }
  void settle(const FreeAt& free);

  // The collective of several gradients that a collective of one has become part of; invalid: none.
  InstructionId joined(InstructionId own) const { return joined_[own]; }
  void set_joined(InstructionId own, InstructionId joined) { joined_[own] = joined; }

 private:
  Program& program_;
  const Origins& origins_;
  IdVec<InstructionId, InstructionId> joined_;
  IdVec<InstructionId, char> unsettled_;
  // The last call of `write` that found an instruction, by number: each is waited for once.
  IdVec<InstructionId, std::uint64_t> last_found_;
  std::uint64_t call_ = 0;
};

}  // namespace weft
