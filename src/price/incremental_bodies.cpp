// The order of tasks in the bodies of agents, as the program's bodies change.
#include <algorithm>

#include "price/incremental.h"

namespace weft {

// Visits the bodies of agents that contain the instruction, with its task there.
template <class Visit>
void PricedProgram::each_place(const Entry& of, std::size_t source, const Visit& visit) const {
  for (std::size_t p = 0; p < of.tasks.size(); ++p) {
    const std::uint32_t agent = members_[of.mesh][p];
    const auto rank = static_cast<std::size_t>(rank_[agent]);
    for (BodyId body : played_[rank][source])
      if (ranks_.plays(rank_[agent]).bodies[body].takes(of.weight_part)) visit(agent, body, of.tasks[p]);
  }
}

void PricedProgram::count(const CountChange& change) {
  projections_[change.agent][change.body].behind.emplace_back(change.slot, change.change);
  journal_.counts.push_back(change);
}

std::uint32_t PricedProgram::tasks_before(std::uint32_t agent, BodyId body, std::uint32_t slot) {
  Projection& since = projections_[agent][body];
  std::erase_if(since.behind, [&](const auto& change) {
    if (change.first >= slot) return false;
    since.ahead += change.second;
    return true;
  });
  return static_cast<std::uint32_t>(counts_[agent][body].before(slot) + since.ahead);
}

std::uint32_t PricedProgram::body_of(const BodyEdit& edit) const {
  return static_cast<std::uint32_t>(
      edit.stage < 0 ? body_count(program_) - 1 : 2 * static_cast<std::size_t>(edit.stage) + (edit.backward ? 1 : 0));
}

// Slots are assigned when everything is priced for the first time, one for each place of a body, and are non-decreasing
// along it: an inserted instruction shares the slot of the removed one, or of its predecessor. So the position of a
// task in its agent's body is the number of tasks in earlier slots plus those before it in its own slot.
void PricedProgram::assign_slots(const BodyEdit& edit, std::uint32_t stamp) {
  const std::uint32_t source = body_of(edit);
  std::uint32_t slot = first_slots_.emplace_back(reached_[source] = std::max(reached_[source], first_slot(edit)));
  for (InstructionId id : edit.removed) removed_at_[id] = stamp;
  for (InstructionId id : edit.added) {
    const InstructionId before = before_[id].valid() ? before_[id] : id;
    const bool kept = removed_at_[before] == stamp && entries_[before].slot >= slot;
    slot = kept ? entries_[before].slot : slot;
    if (entry(id).slot != slot || entry(id).body != source) {
      if (next_of_[id] == 0) moved_.push_back(id);
      Entry& moves = writable(id);
      moves.slot = slot;
      moves.body = source;
    }
    if (kept && entry(id).mesh == entries_[before].mesh) same_[id] = same_[before] = stamp;
    if (initial_) ++slot;
  }
}

// The slot of the removed instruction, else that of the predecessor. The predecessor may have been moved there by
// another edit from an earlier place: then the largest slot reached so far is used, as slots must not decrease.
std::uint32_t PricedProgram::first_slot(const BodyEdit& edit) const {
  if (!edit.removed.empty()) return entries_[edit.removed.front()].slot;
  return edit.position > 0 ? entry(body_at(program_, body_of(edit))[edit.position - 1]).slot : 0;
}

// Waits depend on slots, so followers of kept instructions with another slot (which is rare) are priced again.
void PricedProgram::begin_all_after_moved() {
  if (moved_.empty()) return;
  std::sort(moved_.begin(), moved_.end());
  for (std::uint32_t source = 0; source < body_count(program_); ++source)
    for (InstructionId id : body_at(program_, source)) {
      const auto& after = program_.instructions[id].after;
      if (std::any_of(after.begin(), after.end(),
                      [&](InstructionId before) { return std::binary_search(moved_.begin(), moved_.end(), before); }))
        begin(id, id, source);
    }
  moved_.clear();
}

void PricedProgram::splice(const BodyEdit& edit, std::uint32_t stamp) {
  const std::size_t source = body_of(edit);
  const std::vector<InstructionId>& body = body_at(program_, source);
  const std::uint32_t first = first_slots_[stamp - 1];
  touched_.clear();
  const auto touch = [&](std::uint32_t agent, BodyId at) -> Projection& {
    Projection& projection = projections_[agent][at];
    if (!std::exchange(projection.touched, true)) touched_.emplace_back(agent, at);
    return projection;
  };
  for (InstructionId id : edit.removed) {
    const Entry& old = entries_[id];
    each_place(old, source, [&](std::uint32_t agent, BodyId at, TaskId task) {
      touch(agent, at).out.push_back(task);
      if (same_[id] == stamp) return;
      count({agent, at, old.slot, -1});
    });
  }
  for (InstructionId id : edit.added) {
    const Entry& now = entry(id);
    each_place(now, source, [&](std::uint32_t agent, BodyId at, TaskId task) {
      touch(agent, at).in.push_back(task);
      if (same_[id] == stamp) return;
      count({agent, at, now.slot, 1});
    });
  }
  for (std::size_t i = edit.position; i-- > 0;) {
    const Entry& before = entry(body[i]);
    if (before.slot != first) break;
    each_place(before, source, [&](std::uint32_t agent, BodyId at, TaskId) {
      if (projections_[agent][at].touched) ++projections_[agent][at].before;
    });
  }
  for (const auto& [agent, at] : touched_) {
    Projection& projection = projections_[agent][at];
    auto &out = projection.out, &in = projection.in;
    const auto shorter = static_cast<std::ptrdiff_t>(std::min(out.size(), in.size()));
    const auto head = std::mismatch(out.begin(), out.begin() + shorter, in.begin()).first - out.begin();
    std::ptrdiff_t tail = 0;
    while (tail < shorter - head && out.end()[-1 - tail] == in.end()[-1 - tail]) ++tail;
    if (out.size() != in.size() || head < shorter) {
      edit_of(agent).splices.push_back(
          {at, tasks_before(agent, at, first) + projection.before + static_cast<std::uint32_t>(head),
           static_cast<std::uint32_t>(static_cast<std::ptrdiff_t>(out.size()) - head - tail),
           ShortVec<TaskId>(in.begin() + head, in.end() - tail)});
    }
    out.clear();
    in.clear();
    projection.before = 0;
    projection.touched = false;
  }
}

}  // namespace weft
