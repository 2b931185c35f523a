// Which instructions wrote what a buffer holds, and who may read it.
#pragma once

#include <unordered_map>

#include "compile/group_code.h"

namespace weft {

class Origins {
 public:
  void reserve(std::size_t buffers) { of_.reserve(buffers); }
  // A buffer number taken into use, new or again.
  void add(BufferId id) {
    if (!of_.contains(id)) of_.push_back({});
    if (!adders_.empty()) adders_.erase(id);
  }
  const BufferOrigin& of(BufferId id) const { return of_[id]; }
  void set(BufferId id, const BufferOrigin& origin) { of_[id] = origin; }
  void set_writer(BufferId id, InstructionId writer) { of_[id].writer = writer; }
  void set_readers(BufferId id, Readers readers) { of_[id].readers = readers; }
  // The position's part of backward may read it.
  bool usable(BufferId id, Phase phase, bool weight_part) const {
    return phase == Phase::Step || of_[id].readers != (weight_part ? Readers::InputPart : Readers::WeightPart);
  }

  // All instructions that add to a gradient of several terms, in place of its one writer; null of other buffers.
  const InstructionList* adders(BufferId id) const {
    const auto found = adders_.find(id);
    return found == adders_.end() ? nullptr : &found->second;
  }
  void add_adder(BufferId sum, InstructionId adder) { adders_[sum].push_back(adder); }
  void set_adders(BufferId sum, InstructionList adders) { adders_[sum] = std::move(adders); }
  void forget_adders(BufferId sum, Overwritten* journal) {
    const auto found = adders_.find(sum);
    if (found == adders_.end()) return;
    if (journal) journal->adders.emplace_back(sum, std::move(found->second));
    adders_.erase(found);
  }

 private:
  IdVec<BufferId, BufferOrigin> of_;
  std::unordered_map<BufferId, InstructionList> adders_;
};

}  // namespace weft
