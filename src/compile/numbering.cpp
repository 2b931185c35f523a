// Numbers of buffers, instructions and transfers. What a group makes again when it is lowered again, for the same event
// and alike, keeps its number, so that a change to one operator leaves the rest of the program as it is.
#include <algorithm>

#include "base/check.h"
#include "compile/lowering.h"
#include "program/edit.h"

namespace weft {
namespace {

template <class Id, class Value>
Id take_or_add(std::vector<Id>& free, IdVec<Id, Value>& column) {
  if (free.empty()) return column.push_back({});
  const Id id = free.back();
  free.pop_back();
  return id;
}

template <class Id, class Value>
void give_back(const std::vector<Owned<Id>>& list, std::vector<Id>& free, IdVec<Id, Value>& column) {
  for (const auto& [id, shared, available] : list) {
    if (shared) continue;
    free.push_back(id);
    column[id] = {};
  }
}

}  // namespace

// Looks in the same passage of the group as it was.
template <class Id, class Matches>
Id Lowering::take(std::vector<Owned<Id>>& from, std::uint32_t Passage::At::*at, const Matches& matches) {
  constexpr std::uint32_t kFar = 16;  // farther apart they are rarely the same, and looking costs
  const std::uint32_t last = std::min(limit_.*at, next_.*at + kFar);
  for (std::uint32_t i = next_.*at; i < last; ++i)
    if (!from[i].shared && matches(from[i].id)) {
      next_.*at = i + 1;
      from[i].shared = true;
      return from[i].id;
    }
  return Id();
}

void Lowering::write_over(InstructionId id) {
  overwritten_->instructions.emplace_back(id, std::move(program_.instructions[id]));
  overwritten_->joined.emplace_back(id, std::exchange(joined_[id], InstructionId()));
}

// Room for so many buffers, and as many instructions.
void Lowering::reserve(std::size_t count) {
  program_.buffers.reserve(count);
  program_.instructions.reserve(count);
  writer_.reserve(count);
  last_use_at_.reserve(count);
  readers_.reserve(count);
  joined_.reserve(count);
  unsettled_.reserve(count);
}

InstructionId Lowering::new_instruction(Instruction instruction) {
  if (free_instructions_.empty()) {
    joined_.push_back({});
    unsettled_.push_back(0);
    return program_.instructions.push_back(std::move(instruction));
  }
  const InstructionId id = free_instructions_.back();
  free_instructions_.pop_back();
  joined_[id] = {};
  program_.instructions[id] = std::move(instruction);
  return id;
}

// Whoever adds to a gradient is told anew.
void Lowering::forget_adders(BufferId id) {
  const auto adders = adders_.find(id);
  if (adders == adders_.end()) return;
  if (overwritten_) overwritten_->adders.emplace_back(id, std::move(adders->second));
  adders_.erase(adders);
}

// One in the same layout is the same buffer.
BufferId Lowering::number_of(const Buffer& buffer) {
  BufferId id;
  if (before_)
    id = take(before_->buffers, &Passage::At::buffer, [&](BufferId old) {
      const Buffer& other = program_.buffers[old];
      return other.tensor == buffer.tensor && other.layout == buffer.layout && other.on_host == buffer.on_host;
    });
  const bool shared = id.valid();
  if (shared) {
    overwritten_->buffers.emplace_back(id, std::move(program_.buffers[id]));
    remember_origin(id);
    forget_adders(id);
  } else {
    id = take_or_add(free_buffers_, program_.buffers);
    if (!writer_.contains(id)) {
      writer_.push_back({});
      last_use_at_.push_back(0);
      readers_.push_back(Readers::All);
    }
    if (!adders_.empty()) adders_.erase(id);
  }
  code_->buffers.push_back({id, shared, {}});
  return id;
}

TransferId Lowering::number_of(const Transfer& transfer) {
  TransferId id;
  if (before_)
    id = take(before_->transfers, &Passage::At::transfer,
              [&](TransferId old) { return program_.transfers[old] == transfer; });
  const bool shared = id.valid();
  if (!shared) {
    id = take_or_add(free_transfers_, program_.transfers);
    program_.transfers[id] = transfer;
  }
  code_->transfers.push_back({id, shared, {}});
  return id;
}

// The instruction is the group's: one it had before, or a new one.
InstructionId Lowering::own(InstructionId id) {
  const bool shared = id.valid();
  if (shared)
    write_over(id);
  else
    id = new_instruction({});
  unsettled_[id] = 1;
  code_->instructions.push_back({id, shared, {}});
  return id;
}

InstructionId Lowering::number_of(const Instruction& instruction) {
  InstructionId id;
  if (before_)
    id = take(before_->instructions, &Passage::At::instruction,
              [&](InstructionId old) { return alike(program_, program_.instructions[old], instruction); });
  return own(id);
}

void Lowering::release(const GroupCode& code) {
  give_back(code.buffers, free_buffers_, program_.buffers);
  give_back(code.instructions, free_instructions_, program_.instructions);
  give_back(code.transfers, free_transfers_, program_.transfers);
}

// Of several changes to one thing the first is taken back last.
void Lowering::put_back(Overwritten& journal) {
  const auto backwards = [](auto& list, const auto& restore) {
    for (auto it = list.rbegin(); it != list.rend(); ++it) restore(it->first, it->second);
  };
  backwards(journal.instructions,
            [&](InstructionId id, Instruction& old) { program_.instructions[id] = std::move(old); });
  backwards(journal.joined, [&](InstructionId id, InstructionId old) { joined_[id] = old; });
  backwards(journal.buffers, [&](BufferId id, Buffer& old) { program_.buffers[id] = std::move(old); });
  backwards(journal.origins, [&](BufferId id, const Overwritten::Origin& old) {
    writer_[id] = old.writer;
    readers_[id] = static_cast<Readers>(old.readers);
  });
  backwards(journal.adders, [&](BufferId id, InstructionList& old) { adders_[id] = std::move(old); });
}

void share_nothing(GroupCode& code) {
  for (auto& each : code.buffers) each.shared = false;
  for (auto& each : code.instructions) each.shared = false;
  for (auto& each : code.transfers) each.shared = false;
}

}  // namespace weft
