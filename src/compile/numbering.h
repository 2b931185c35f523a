// Numbers of buffers, instructions and transfers. What a group makes when it is lowered again, in the same passage and
// alike, keeps its number, so that a change to one operator leaves the rest of the program as it is; what is written
// over goes to the journal of the change, to be put back if it is undone. Numbers that are given back are used again.
#pragma once

#include <vector>

#include "compile/current_group.h"
#include "compile/waits.h"

namespace weft {

class Numbering {
 public:
  // All are kept by reference. New numbers belong to `group`.
  Numbering(Program& program, const CurrentGroup& group, Origins& origins, Waits& waits)
      : program_(program), group_(group), origins_(origins), waits_(waits) {}

  // Room for so many buffers, and as many instructions.
  void reserve(std::size_t count);

  // An instruction of no group.
  InstructionId new_instruction(Instruction instruction);
  void drop_instruction(InstructionId id) { free_instructions_.push_back(id); }

  // From here on the group's numbers are taken over from this passage of its code before, as far as things are alike;
  // null: from none.
  void take_over_from(const Passage* old) {
    next_ = old ? old->begin : Passage::At();
    limit_ = old ? old->end : Passage::At();
  }
  BufferId of(const Buffer& buffer);                 // the contents are still to be written
  InstructionId of(const Instruction& instruction);  // likewise
  TransferId of(const Transfer& transfer);
  // The instruction is the group's: one that it had before, to be written over, or if invalid a new one.
  InstructionId own(InstructionId id);

  // Changes a buffer's kind; recorded in the journal of the change.
  void set_kind(BufferId id, BufferKind kind);
  void remember_origin(BufferId id) { group_.journal->origins.emplace_back(id, origins_.of(id)); }

  // Gives back the numbers of a group's code that no other code of the group shares.
  void release(const GroupCode& code);
  // Undoes what the journal has recorded.
  void put_back(Overwritten& journal);

 private:
  template <class Id, class Matches>
  Id take_over(std::vector<Owned<Id>>& from, std::uint32_t Passage::At::*at, const Matches& matches);

  Program& program_;
  const CurrentGroup& group_;
  Origins& origins_;
  Waits& waits_;
  std::vector<BufferId> free_buffers_;
  std::vector<InstructionId> free_instructions_;
  std::vector<TransferId> free_transfers_;
  Passage::At next_, limit_;  // of group_.before: what has not been taken over yet
};

}  // namespace weft
