#include "simulate/script_diff.h"

#include <algorithm>

namespace weft::engine {

// A step is kept if its task is in both, in the same order as the kept ones before it.
void ScriptDiff::note_order(const Script& before, const Script& after) {
  const std::size_t index = kept_.size();
  auto& kept = kept_.emplace_back();
  std::vector<std::uint32_t> position;  // by task
  before.each([&](std::uint32_t q, const Step&, TaskId task) {
    if (task.index() >= position.size()) position.resize(task.index() + 1, kNoStep);
    position[task.index()] = q;
  });
  moved_.resize(std::max(moved_.size(), position.size()));

  std::uint32_t next = 0;           // old position after the last kept one
  std::vector<std::uint8_t> added;  // streams of the steps added since then
  const auto place_added = [&](std::uint32_t before_step) {
    for (const std::uint8_t stream : added) note(index, stream, 2 * before_step + 1);
    added.clear();
  };
  after.each([&](std::uint32_t n, const Step& step, TaskId task) {
    const std::uint32_t q = task.index() < position.size() ? position[task.index()] : kNoStep;
    if (q == kNoStep || q < next) {
      if (q != kNoStep) moved_[task.index()] = 1;
      added.push_back(step.stream);
      return;
    }
    // Earlier steps that are not kept are removed; added steps are placed before the first of those.
    place_added(next);
    kept.emplace_back(q, n);
    next = q + 1;
  });
  place_added(next);
  auto at = kept.begin();
  before.each([&](std::uint32_t q, const Step& step, TaskId) {
    if (at != kept.end() && at->first == q)
      ++at;
    else
      note(index, step.stream, 2 * q + 2);
  });
}

bool ScriptDiff::same_waits(std::span<const StepWait> before, std::span<const StepWait> after) const {
  return std::equal(before.begin(), before.end(), after.begin(), after.end(),
                    [&](const StepWait& x, const StepWait& y) {
                      return x.body == y.body && x.stream == y.stream && x.task == y.task &&
                             (x.task.index() >= moved_.size() || moved_[x.task.index()] == 0);
                    });
}

bool ScriptDiff::empty() const { return as_patched_ ? patch_->empty() : edits_.empty(); }

bool ScriptDiff::edit_between(int stream, Mark from, Mark to) const {
  const std::vector<Edit>& all = edits();
  for (std::uint32_t play = from.play; play <= to.play && play < before_->plays(); ++play) {
    const std::uint32_t script = before_->script_index(play), low = play == from.play ? from.at + 1 : 0;
    for (auto it = std::lower_bound(all.begin(), all.end(), Edit{script, low, 0});
         it != all.end() && it->script == script && (play < to.play || it->mark <= to.at); ++it)
      if (it->stream == stream || stream == kHost) return true;
  }
  return false;
}

}  // namespace weft::engine
