#include "compile/differences.h"

#include <algorithm>

namespace weft {

void Differences::begin_group() {
  places_.clear();
  rewritten_.clear();
}

void Differences::begin_passage() {
  if (!group_.journal) return;
  buffers_begin_ = group_.journal->buffers.size();
  origins_begin_ = group_.journal->origins.size();
}

void Differences::note(const Passage& passage, const Passage* old) {
  const auto add = [&](BufferId id) {
    const std::pair at(program_.buffers[id].tensor, program_.buffers[id].layout.mesh);
    if (std::find(places_.begin(), places_.end(), at) == places_.end()) places_.push_back(at);
  };
  const Overwritten& journal = *group_.journal;
  for (std::size_t i = origins_begin_; i < journal.origins.size(); ++i)
    if (const auto& [id, origin] = journal.origins[i]; origin != origins_.of(id)) {
      add(id);
      rewritten_.push_back(id);
    }
  for (std::size_t i = buffers_begin_; i < journal.buffers.size(); ++i)
    if (const auto& [id, buffer] = journal.buffers[i];
        buffer.memory != program_.buffers[id].memory || buffer.storage != program_.buffers[id].storage) {
      add(id);
      rewritten_.push_back(id);
    }
  // From the first available buffer that is another than before, all are.
  const std::vector<Owned<BufferId>>&before = group_.before->buffers, &now = group_.code->buffers;
  std::uint32_t was = old ? old->begin.buffer : 0, is = passage.begin.buffer;
  const std::uint32_t was_end = old ? old->end.buffer : 0, is_end = passage.end.buffer;
  while (true) {
    while (was < was_end && !before[was].available.valid()) ++was;
    while (is < is_end && !now[is].available.valid()) ++is;
    if (was == was_end || is == is_end || before[was].id != now[is].id) break;
    ++was;
    ++is;
  }
  for (; was < was_end; ++was)
    if (before[was].available.valid()) add(before[was].id);
  for (; is < is_end; ++is)
    if (now[is].available.valid()) add(now[is].id);
}

bool Differences::at(TensorId tensor, MeshId on) const {
  return std::any_of(places_.begin(), places_.end(), [&](const auto& place) {
    return place.second == on && (!group_.of_parameter || place.first == tensor);
  });
}

bool Differences::rewritten(BufferId id) const {
  return std::find(rewritten_.begin(), rewritten_.end(), id) != rewritten_.end();
}

}  // namespace weft
