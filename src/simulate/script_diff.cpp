#include "simulate/script_diff.h"

#include <algorithm>

namespace weft::engine {

void ScriptDiff::note_patch() const {
  if (!std::exchange(to_note_, false)) return;
  for (const auto* list : {&patch_->removed(), &patch_->added(), &patch_->changed()})
    for (const ScriptPatch::At& at : *list)
      note(at.script, before_->scripts()[at.script].steps[at.position].stream, 2 * at.position + 2);
  sort();
}

// A step is kept if its task is in both, in the same order as the kept ones before it.
void ScriptDiff::note_order(const Script& before, const Script& after) {
  const std::size_t index = kept_.size();
  std::vector<std::uint32_t>& kept = kept_.emplace_back(before.steps.size(), kNoStep);
  std::size_t tasks = 0;
  for (const auto* list : {&before.tasks, &after.tasks})
    for (const TaskId task : *list)
      if (task.valid()) tasks = std::max<std::size_t>(tasks, task.index() + 1);
  moved_.resize(std::max(moved_.size(), tasks));
  std::vector<std::uint32_t> position(tasks, kNoStep);
  for (std::uint32_t q = 0; q < before.tasks.size(); ++q)
    if (before.tasks[q].valid()) position[before.tasks[q].index()] = q;

  std::uint32_t next = 0;            // old position after the last kept one
  std::vector<std::uint32_t> added;  // since then
  const auto place_added = [&](std::uint32_t before_step) {
    for (const std::uint32_t n : added) note(index, after.steps[n].stream, 2 * before_step + 1);
    added.clear();
  };
  for (std::uint32_t n = 0; n < after.tasks.size(); ++n) {
    if (!after.tasks[n].valid()) continue;
    const std::uint32_t q = position[after.tasks[n].index()];
    if (q == kNoStep || q < next) {
      if (q != kNoStep) moved_[after.tasks[n].index()] = 1;
      added.push_back(n);
      continue;
    }
    // What was before it and is not kept is removed; what came since stands before the first of those.
    place_added(next);
    kept[q] = n;
    next = q + 1;
  }
  place_added(next);
  for (std::uint32_t q = 0; q < before.steps.size(); ++q)
    if (kept[q] == kNoStep && before.tasks[q].valid()) note(index, before.steps[q].stream, 2 * q + 2);
}

bool ScriptDiff::same_waits(const Script& before, const Step& a, const Script& after, const Step& b) const {
  const auto old_waits = before.waits_of(a), new_waits = after.waits_of(b);
  return std::equal(old_waits.begin(), old_waits.end(), new_waits.begin(), new_waits.end(),
                    [&](const StepWait& x, const StepWait& y) {
                      return x.body == y.body && x.stream == y.stream && x.task == y.task &&
                             (x.task.index() >= moved_.size() || moved_[x.task.index()] == 0);
                    });
}

bool ScriptDiff::empty() const { return to_note_ ? patch_->empty() : edits_.empty(); }

bool ScriptDiff::edit_between(int stream, Mark from, Mark to) const {
  note_patch();
  for (std::uint32_t play = from.play; play <= to.play && play < before_->plays(); ++play) {
    const std::uint32_t script = before_->script_index(play), low = play == from.play ? from.at + 1 : 0;
    for (auto it = std::lower_bound(edits_.begin(), edits_.end(), Edit{script, low, 0});
         it != edits_.end() && it->script == script && (play < to.play || it->mark <= to.at); ++it)
      if (it->stream == stream || stream == kHost) return true;
  }
  return false;
}

}  // namespace weft::engine
