#include "compile/waits.h"

#include <algorithm>

namespace weft {

void Waits::reserve(std::size_t instructions) {
  joined_.reserve(instructions);
  unsettled_.reserve(instructions);
}

void Waits::write(InstructionId id) {
  Instruction& instruction = program_.instructions[id];
  instruction.after.clear();
  // A mark per instruction rather than a search of the list: sums of scalars read hundreds of buffers.
  if (last_found_.size() < program_.instructions.size()) last_found_.resize(program_.instructions.size(), 0);
  ++call_;
  const auto wait_for = [&](InstructionId writer) {
    if (writer.valid() && program_.instructions[writer].stream != instruction.stream &&
        std::exchange(last_found_[writer], call_) != call_)
      instruction.after.push_back(writer);
  };
  for (BufferId read : reads_of(program_, instruction)) {
    if (!read.valid()) continue;  // a scalar of another group, which is filled in later (Lowering::write_main)
    if (const InstructionList* adders = origins_.adders(read))
      for (InstructionId adder : *adders) wait_for(adder);
    else
      wait_for(origins_.of(read).writer);
  }
}

void Waits::settle(const FreeAt& free) {
  if (!std::exchange(unsettled_[free.free], 0)) return;
  InstructionList& after = program_.instructions[free.free].after;
  after.clear();
  for (const auto& uses : free.uses)
    for (InstructionId use : uses) {
      if (!use.valid()) continue;
      if (joined_[use].valid()) use = joined_[use];
      if (std::find(after.begin(), after.end(), use) == after.end()) after.push_back(use);
    }
}

}  // namespace weft
