// The difference between two scripts of an agent, stream by stream.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "simulate/script_patch.h"

namespace weft::engine {

// A mark between or on steps of the old script: 2q + 1 is just before step q, 2q + 2 is step q itself.
struct Mark {
  std::uint32_t play = 0;
  std::uint32_t at = 0;

  auto operator<=>(const Mark&) const = default;
};

inline Mark mark_of(Place step) { return {step.play, 2 * step.position + 2}; }

class ScriptDiff {
 public:
  static constexpr int kHost = kMaxStreams;  // the host, which passes the steps of all streams

  // `replaced(step)`: whether a kept task's work or meeting has changed.
  template <class Replaced>
  ScriptDiff(const AgentScript& before, const AgentScript& after, const Replaced& replaced) : before_(&before) {
    for (std::size_t i = 0; i < before.scripts().size(); ++i) note_order(before.scripts()[i], after.scripts()[i]);
    for (std::size_t i = 0; i < before.scripts().size(); ++i)
      note_content(before.scripts()[i], after.scripts()[i], i, replaced);
    sort();
  }

  // For an unchanged script; changed steps are added by `note_changed`.
  explicit ScriptDiff(const AgentScript& script) : before_(&script), in_place_(true) {}
  // For a script patched in place.
  ScriptDiff(const AgentScript& script, const ScriptPatch& patch)
      : before_(&script), in_place_(true), patch_(&patch), as_patched_(true) {}
  // A step has changed because its meeting has.
  void note_changed(std::uint32_t script, std::uint32_t position, int stream) {
    if (std::exchange(as_patched_, false)) edits_ = patch_->edits(*before_);
    note(script, stream, 2 * position + 2);
    sort();
  }

  // The old script has been moved to `before`.
  void rebase(const AgentScript& before) { before_ = &before; }

  bool empty() const;
  // The new place of a step of the old script; kNowhere if it was removed or moved.
  Place now(Place step) const {
    if (in_place_) {
      const ScriptPatch::At at{before_->script_index(step.play), step.position};
      const bool gone = patch_ != nullptr && std::binary_search(patch_->removed().begin(), patch_->removed().end(), at);
      return gone ? kNowhere : step;
    }
    const std::uint32_t position = kept_at(before_->script_index(step.play), step.position);
    return position == kNoStep ? kNowhere : Place{step.play, position};
  }
  // Whether the stream (or the host) reaches an edit on its way from `from` to `to`.
  bool edit_between(int stream, Mark from, Mark to) const;
  bool is_edited(int stream, Place step) const {
    return edit_between(stream, {step.play, 2 * step.position + 1}, mark_of(step));
  }

 private:
  using Edit = ScriptPatch::Edit;

  const std::vector<Edit>& edits() const { return as_patched_ ? patch_->edits(*before_) : edits_; }
  void note_order(const Script& before, const Script& after);
  bool same_waits(std::span<const StepWait> before, std::span<const StepWait> after) const;
  template <class Replaced>
  void note_content(const Script& before, const Script& after, std::size_t index, const Replaced& replaced) {
    for (const auto& [q, n] : kept_[index]) {
      const Step &a = before.step(q), &b = after.step(n);
      if (a.duration != b.duration || a.host != b.host || a.kind != b.kind || a.subject != b.subject || replaced(a) ||
          !same_waits(before.waits_at(q), after.waits_at(n)))
        note(index, a.stream, 2 * q + 2);
    }
  }
  // The new position of a step; kNoStep: it is not kept.
  std::uint32_t kept_at(std::uint32_t script, std::uint32_t position) const {
    const auto& kept = kept_[script];
    const auto at = std::lower_bound(kept.begin(), kept.end(), std::pair(position, 0u));
    return at != kept.end() && at->first == position ? at->second : kNoStep;
  }
  void note(std::size_t script, int stream, std::uint32_t mark) {
    edits_.push_back({static_cast<std::uint32_t>(script), mark, stream});
  }
  void sort() { std::sort(edits_.begin(), edits_.end()); }

  const AgentScript* before_;
  bool in_place_ = false;  // positions are unchanged; only `edits_` is used
  const ScriptPatch* patch_ = nullptr;
  bool as_patched_ = false;  // the edits are the patch's
  std::vector<Edit> edits_;
  std::vector<std::vector<std::pair<std::uint32_t, std::uint32_t>>> kept_;  // old position, new one; per script
  std::vector<char> moved_;                                                 // per task: its order has changed
};

}  // namespace weft::engine
