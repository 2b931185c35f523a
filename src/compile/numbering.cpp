#include "compile/numbering.h"

#include <algorithm>

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

void Numbering::reserve(std::size_t count) {
  program_.buffers.reserve(count);
  program_.instructions.reserve(count);
  origins_.reserve(count);
  waits_.reserve(count);
}

InstructionId Numbering::new_instruction(Instruction instruction) {
  InstructionId id;
  if (free_instructions_.empty()) {
    id = program_.instructions.push_back(std::move(instruction));
  } else {
    id = free_instructions_.back();
    free_instructions_.pop_back();
    program_.instructions[id] = std::move(instruction);
  }
  waits_.add(id);
  return id;
}

template <class Id, class Matches>
Id Numbering::take_over(std::vector<Owned<Id>>& from, std::uint32_t Passage::At::*at, const Matches& matches) {
  constexpr std::uint32_t kFar = 16;  // farther on, little is found that matches, and the search would cost
  const std::uint32_t last = std::min(limit_.*at, next_.*at + kFar);
  for (std::uint32_t i = next_.*at; i < last; ++i)
    if (!from[i].shared && matches(from[i].id)) {
      next_.*at = i + 1;
      from[i].shared = true;
      return from[i].id;
    }
  return Id();
}

// Buffers of one tensor in the same layout and memory are alike.
BufferId Numbering::of(const Buffer& buffer) {
  BufferId id;
  if (group_.before)
    id = take_over(group_.before->buffers, &Passage::At::buffer, [&](BufferId old) {
      const Buffer& other = program_.buffers[old];
      return other.tensor == buffer.tensor && other.layout == buffer.layout && other.on_host == buffer.on_host;
    });
  const bool shared = id.valid();
  if (shared) {
    group_.journal->buffers.emplace_back(id, std::move(program_.buffers[id]));
    remember_origin(id);
    origins_.forget_adders(id, group_.journal);
  } else {
    id = take_or_add(free_buffers_, program_.buffers);
    origins_.add(id);
  }
  group_.code->buffers.push_back({id, shared, {}});
  return id;
}

TransferId Numbering::of(const Transfer& transfer) {
  TransferId id;
  if (group_.before)
    id = take_over(group_.before->transfers, &Passage::At::transfer,
                   [&](TransferId old) { return program_.transfers[old] == transfer; });
  const bool shared = id.valid();
  if (!shared) {
    id = take_or_add(free_transfers_, program_.transfers);
    program_.transfers[id] = transfer;
  }
  group_.code->transfers.push_back({id, shared, {}});
  return id;
}

InstructionId Numbering::of(const Instruction& instruction) {
  InstructionId id;
  if (group_.before)
    id = take_over(group_.before->instructions, &Passage::At::instruction,
                   [&](InstructionId old) { return alike(program_, program_.instructions[old], instruction); });
  return own(id);
}

InstructionId Numbering::own(InstructionId id) {
  const bool shared = id.valid();
  if (shared) {
    group_.journal->instructions.emplace_back(id, std::move(program_.instructions[id]));
    group_.journal->joined.emplace_back(id, waits_.joined(id));
    waits_.set_joined(id, {});
  } else {
    id = new_instruction({});
  }
  waits_.unsettle(id);
  group_.code->instructions.push_back({id, shared, {}});
  return id;
}

void Numbering::set_kind(BufferId id, BufferKind kind) {
  Buffer& buffer = program_.buffers[id];
  if (buffer.kind == kind) return;
  if (group_.journal) group_.journal->buffers.emplace_back(id, buffer);
  buffer.kind = kind;
}

void Numbering::release(const GroupCode& code) {
  give_back(code.buffers, free_buffers_, program_.buffers);
  give_back(code.instructions, free_instructions_, program_.instructions);
  give_back(code.transfers, free_transfers_, program_.transfers);
}

// From the last to the first: of several changes to one thing the first is undone last.
void Numbering::put_back(Overwritten& journal) {
  const auto backwards = [](auto& list, const auto& restore) {
    for (auto it = list.rbegin(); it != list.rend(); ++it) restore(it->first, it->second);
  };
  backwards(journal.instructions,
            [&](InstructionId id, Instruction& old) { program_.instructions[id] = std::move(old); });
  backwards(journal.joined, [&](InstructionId id, InstructionId old) { waits_.set_joined(id, old); });
  backwards(journal.buffers, [&](BufferId id, Buffer& old) { program_.buffers[id] = std::move(old); });
  backwards(journal.origins, [&](BufferId id, const BufferOrigin& old) { origins_.set(id, old); });
  backwards(journal.adders, [&](BufferId id, InstructionList& old) { origins_.set_adders(id, std::move(old)); });
}

void share_nothing(GroupCode& code) {
  for (auto& each : code.buffers) each.shared = false;
  for (auto& each : code.instructions) each.shared = false;
  for (auto& each : code.transfers) each.shared = false;
}

}  // namespace weft
