#include "compile/passages.h"

#include "base/check.h"

namespace weft {

std::uint32_t Passages::part_of(MeshId a, MeshId b) {
  constexpr std::uint32_t kMeshes = 1 << 16;
  WEFT_CHECK(a.index() + 1 < kMeshes && (!b.valid() || b.index() + 1 < kMeshes), "{} meshes", a.index());
  return (a.index() + 1) * kMeshes + (b.valid() ? b.index() + 1 : 0);
}

Passage::At Passages::here() const {
  const GroupCode& code = *group_.code;
  const auto count = [](const auto& list) { return static_cast<std::uint32_t>(list.size()); };
  return {count(code.buffers), count(code.instructions), count(code.transfers), count(code.uses), count(code.chains)};
}

void Passages::begin_event(std::uint32_t event) {
  event_.number = event;
  event_.kept = event_.lowered = 0;
  if (!group_.before) return;
  const std::vector<Passage>& passages = group_.before->passages;
  event_.begin = event_.end;
  while (event_.end < passages.size() && passages[event_.end].event == event) ++event_.end;
  event_.next = event_.begin;
}

void Passages::end_event() {
  if (!group_.before || (event_.lowered == 0 && event_.kept == event_.end - event_.begin)) return;
  group_.touched->turns.push_back(position_.turn);
  if (position_.phase == Phase::Step) group_.touched->step = true;
}

// Parts mostly come in the order they had, so the search goes on where the last one ended.
const Passage* Passages::before(std::uint32_t part) {
  if (!group_.before) return nullptr;
  for (std::size_t n = event_.end - event_.begin; n > 0; --n) {
    if (event_.next == event_.end) event_.next = event_.begin;
    const Passage& passage = group_.before->passages[event_.next++];
    if (passage.part == part) return &passage;
  }
  return nullptr;
}

void Passages::begin(std::uint32_t part, MeshId on) {
  passage_ = {};
  if (group_.once) return;
  passage_.event = event_.number;
  passage_.part = part;
  passage_.begin = here();
  passage_.mesh = on;
  old_ = before(part);
  numbering_.take_over_from(old_);
  differences_.begin_passage();
}

void Passages::end() {
  if (group_.once) return;
  passage_.end = here();
  group_.code->passages.push_back(passage_);
  ++event_.lowered;
  if (!group_.before) return;
  if (passage_.begin.chain != passage_.end.chain || (old_ && old_->begin.chain != old_->end.chain))
    group_.touched->chains = true;
  if (position_.phase != Phase::Step) differences_.note(passage_, old_);
}

void Passages::count_as_kept() {
  --event_.lowered;
  ++event_.kept;
}

void Passages::keep(const Passage& old, const Passage::At& begin) {
  Passage& kept = group_.code->passages.emplace_back(old);
  kept.begin = begin;
  kept.end = here();
  ++event_.kept;
}

}  // namespace weft
