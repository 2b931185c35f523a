// What an edit changes in the order of an agent's steps, stream by stream.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "simulate/script.h"

namespace weft {

// A mark between or on steps of the old script: 2q + 1 is just before step q, 2q + 2 is step q itself.
struct Mark {
  std::uint32_t play = 0;
  std::uint32_t at = 0;

  auto operator<=>(const Mark&) const = default;
};

inline Mark mark_of(Place step) { return {step.play, 2 * step.position + 2}; }

class ScriptDiff {
 public:
  static constexpr int kHost = kMaxStreams;  // passes the steps of all streams

  // `replaced(step)`: the same task, but its work or meeting is another now.
  template <class Replaced>
  ScriptDiff(const AgentScript& before, const AgentScript& after, const Replaced& replaced) : before_(&before) {
    for (std::size_t i = 0; i < before.scripts().size(); ++i) note_order(before.scripts()[i], after.scripts()[i]);
    for (std::size_t i = 0; i < before.scripts().size(); ++i)
      note_content(before.scripts()[i], after.scripts()[i], i, replaced);
    for (auto& script : edits_)
      for (std::vector<std::uint32_t>& edits : script) sort(edits);
  }

  // The old script has been moved there.
  void rebase(const AgentScript& before) { before_ = &before; }

  bool empty() const;
  // Where a step of the old script stands now; kNowhere if it was taken out or moved.
  Place now(Place step) const {
    const std::uint32_t position = kept_[before_->script_index(step.play)][step.position];
    return position == kNoStep ? kNowhere : Place{step.play, position};
  }
  // Does the stream (or the host) come to an edit when it goes on from `from` to `to`?
  bool edit_between(int stream, Mark from, Mark to) const;
  bool is_edited(int stream, Place step) const {
    return edit_between(stream, {step.play, 2 * step.position + 1}, mark_of(step));
  }

 private:
  using Edits = std::array<std::vector<std::uint32_t>, kMaxStreams + 1>;

  void note_order(const Script& before, const Script& after);
  bool same_waits(const Script& before, const Step& a, const Script& after, const Step& b) const;
  template <class Replaced>
  void note_content(const Script& before, const Script& after, std::size_t index, const Replaced& replaced) {
    for (std::uint32_t q = 0; q < before.steps.size(); ++q) {
      const std::uint32_t n = kept_[index][q];
      if (n == kNoStep) continue;
      const Step &a = before.steps[q], &b = after.steps[n];
      if (a.duration != b.duration || a.host != b.host || a.kind != b.kind || a.subject != b.subject || replaced(a) ||
          !same_waits(before, a, after, b))
        note(index, a.stream, 2 * q + 2);
    }
  }
  void note(std::size_t script, int stream, std::uint32_t mark) {
    edits_[script][static_cast<std::size_t>(stream)].push_back(mark);
    edits_[script][kHost].push_back(mark);
  }
  static void sort(std::vector<std::uint32_t>& edits);

  const AgentScript* before_;
  std::vector<Edits> edits_;                      // per script
  std::vector<std::vector<std::uint32_t>> kept_;  // old position → new, per script
  std::vector<char> moved_;                       // per task: stands elsewhere in the order
};

}  // namespace weft
