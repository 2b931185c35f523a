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
  for (const auto& [id, event, part, shared] : list) {
    if (shared) continue;
    free.push_back(id);
    column[id] = {};
  }
}

}  // namespace

Result<GroupCode> Lowering::lower(GroupId group, GroupCode* before, Overwritten* journal) {
  GroupCode code;
  before_ = before;
  overwritten_ = journal;
  end_parts();
  const auto each_free_before = [&](const auto& visit) {
    if (!before_) return;
    const auto frees = static_cast<std::uint32_t>(before_->events.size());  // made after all events
    for (std::size_t i = before_->instructions.size(); i-- > 0 && before_->instructions[i].event == frees;)
      visit(std::get<Free>(program_.instructions[before_->instructions[i].id].what).buffer, i);
  };
  free_before_.resize(program_.buffers.size());
  each_free_before([&](BufferId buffer, std::size_t i) { free_before_[buffer] = static_cast<std::uint32_t>(i + 1); });
  const Status done = lower_events(group, code);
  std::stable_sort(code.frees.begin(), code.frees.end(),
                   [](const FreeAt& a, const FreeAt& b) { return a.turn < b.turn; });
  each_free_before([&](BufferId buffer, std::size_t) { free_before_[buffer] = 0; });
  code_ = before_ = nullptr;
  overwritten_ = nullptr;
  if (done.ok()) return code;
  release(code);
  if (before) share_nothing(*before);
  return done.error();
}

template <class Id, class Matches>
Id Lowering::take(std::vector<Owned<Id>>& from, std::size_t& next, const Matches& matches) {
  if (part_ == 0)
    while (next < from.size() && (from[next].event < event_ || (from[next].event == event_ && from[next].part != 0)))
      ++next;
  constexpr std::size_t kFar = 16;  // farther apart they are rarely the same, and looking costs
  for (std::size_t i = next; i < std::min(from.size(), next + kFar) && from[i].event == event_ && from[i].part == part_;
       ++i)
    if (!from[i].shared && matches(from[i].id)) {
      next = i + 1;
      from[i].shared = true;
      return from[i].id;
    }
  return Id();
}

// What is made for each of many pairs of meshes is found by its pair: one mesh more or less leaves the others' as they
// are.
void Lowering::begin_part(MeshId a, MeshId b) {
  constexpr std::uint32_t kMeshes = 1 << 16;
  WEFT_CHECK(a.index() + 1 < kMeshes && b.index() + 1 < kMeshes, "{} meshes", program_.meshes.size());
  part_ = (a.index() + 1) * kMeshes + b.index() + 1;
  if (!before_) return;
  if (part_begins_.empty()) {
    const auto note = [&](const auto& list, std::size_t PartBegin::*begin) {
      for (std::size_t i = list.size(); i-- > 0;)
        if (list[i].event == event_ && list[i].part != 0) part_begins_[list[i].part].*begin = i;
    };
    note(before_->buffers, &PartBegin::buffer);
    note(before_->instructions, &PartBegin::instruction);
    note(before_->transfers, &PartBegin::transfer);
  }
  const auto found = part_begins_.find(part_);
  const PartBegin begin = found == part_begins_.end() ? PartBegin{} : found->second;
  next_buffer_ = begin.buffer;
  next_instruction_ = begin.instruction;
  next_transfer_ = begin.transfer;
}

void Lowering::end_parts() {
  part_ = 0;
  part_begins_.clear();
  next_buffer_ = next_instruction_ = next_transfer_ = 0;
}

void Lowering::write_over(InstructionId id) {
  overwritten_->instructions.emplace_back(id, std::move(program_.instructions[id]));
  overwritten_->joined.emplace_back(id, std::exchange(joined_[id], InstructionId()));
}

InstructionId Lowering::new_instruction(Instruction instruction) {
  const InstructionId id = take_or_add(free_instructions_, program_.instructions);
  joined_.resize(program_.instructions.size());
  joined_[id] = {};
  program_.instructions[id] = std::move(instruction);
  return id;
}

// One in the same layout is the same buffer.
BufferId Lowering::number_of(const Buffer& buffer) {
  BufferId id;
  if (before_)
    id = take(before_->buffers, next_buffer_, [&](BufferId old) {
      const Buffer& other = program_.buffers[old];
      return other.tensor == buffer.tensor && other.layout == buffer.layout && other.on_host == buffer.on_host;
    });
  const bool shared = id.valid();
  if (shared) {
    const auto adders = adders_.find(id);
    overwritten_->buffers.push_back(
        {id, std::move(program_.buffers[id]), writer_[id],
         adders == adders_.end() ? std::vector<InstructionId>() : std::move(adders->second)});
  } else {
    id = take_or_add(free_buffers_, program_.buffers);
    writer_.resize(program_.buffers.size());
    last_use_.resize(program_.buffers.size());
    weight_only_.resize(program_.buffers.size());
  }
  adders_.erase(id);
  code_->buffers.push_back({id, event_, part_, shared});
  return id;
}

TransferId Lowering::number_of(const Transfer& transfer) {
  TransferId id;
  if (before_)
    id = take(before_->transfers, next_transfer_, [&](TransferId old) { return program_.transfers[old] == transfer; });
  const bool shared = id.valid();
  if (!shared) {
    id = take_or_add(free_transfers_, program_.transfers);
    program_.transfers[id] = transfer;
  }
  code_->transfers.push_back({id, event_, part_, shared});
  return id;
}

// The instruction is the group's: one it had before, or a new one.
InstructionId Lowering::own(InstructionId id) {
  const bool shared = id.valid();
  if (shared)
    write_over(id);
  else
    id = new_instruction({});
  code_->instructions.push_back({id, event_, part_, shared});
  return id;
}

InstructionId Lowering::number_of(const Instruction& instruction) {
  InstructionId id;
  if (before_)
    id = take(before_->instructions, next_instruction_,
              [&](InstructionId old) { return alike(program_, program_.instructions[old], instruction); });
  return own(id);
}

// Of the free of a buffer.
InstructionId Lowering::number_of_free(const Instruction& instruction) {
  InstructionId id;
  const BufferId buffer = std::get<Free>(instruction.what).buffer;
  const std::uint32_t at = before_ && free_before_.contains(buffer) ? free_before_[buffer] : 0;
  if (at > 0)
    if (Owned<InstructionId>& old = before_->instructions[at - 1];
        alike(program_, program_.instructions[old.id], instruction)) {
      old.shared = true;
      id = old.id;
    }
  return own(id);
}

void Lowering::release(const GroupCode& code) {
  give_back(code.buffers, free_buffers_, program_.buffers);
  give_back(code.instructions, free_instructions_, program_.instructions);
  give_back(code.transfers, free_transfers_, program_.transfers);
}

void Lowering::put_back(Overwritten& journal) {
  for (auto it = journal.instructions.rbegin(); it != journal.instructions.rend(); ++it)
    program_.instructions[it->first] = std::move(it->second);
  for (const auto& [id, joined] : journal.joined) joined_[id] = joined;
  for (Overwritten::OfBuffer& old : journal.buffers) {
    program_.buffers[old.id] = std::move(old.buffer);
    writer_[old.id] = old.writer;
    adders_.erase(old.id);
    if (!old.adders.empty()) adders_[old.id] = std::move(old.adders);
  }
}

void share_nothing(GroupCode& code) {
  for (auto& each : code.buffers) each.shared = false;
  for (auto& each : code.instructions) each.shared = false;
  for (auto& each : code.transfers) each.shared = false;
}

}  // namespace weft
