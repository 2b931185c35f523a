#include "simulate/block.h"

namespace weft::engine {

std::uint32_t Block::insert(std::uint32_t position, const Step& step, TaskId task) {
  const auto place = static_cast<std::uint16_t>(position % kPlaces);
  std::uint32_t i = count++;
  for (; i > 0 && places[i - 1] > place; --i) {
    places[i] = places[i - 1];
    tasks[i] = tasks[i - 1];
    steps[i] = steps[i - 1];
  }
  places[i] = place;
  tasks[i] = task;
  steps[i] = step;
  steps[i].wait_count = 0;
  return i;
}

void Block::erase(std::uint32_t step) {
  --count;
  for (std::uint32_t i = step; i < count; ++i) {
    places[i] = places[i + 1];
    tasks[i] = tasks[i + 1];
    steps[i] = steps[i + 1];
  }
}

void Block::set_waits(std::uint32_t step, std::span<const StepWait> list) {
  steps[step].first_wait = wait_count;
  steps[step].wait_count = static_cast<std::uint16_t>(list.size());
  if (many.empty() && wait_count + list.size() <= few.size()) {
    std::copy(list.begin(), list.end(), few.begin() + wait_count);
  } else {
    if (many.empty()) many.assign(few.begin(), few.begin() + wait_count);
    many.insert(many.end(), list.begin(), list.end());
  }
  wait_count += static_cast<std::uint32_t>(list.size());
}

void Block::make_hop(std::uint32_t index) {
  hop = engine::make_hop(
      count, [&](std::uint32_t i) { return index * kPlaces + places[i]; },
      [&](std::uint32_t i) -> const Step& { return steps[i]; }, [&](std::uint32_t i) { return waits_of(steps[i]); });
}

bool Block::operator==(const Block& other) const {
  if (count != other.count || !std::equal(places.begin(), places.begin() + count, other.places.begin()) ||
      !std::equal(tasks.begin(), tasks.begin() + count, other.tasks.begin()))
    return false;
  for (std::uint32_t i = 0; i < count; ++i) {
    Step mine = steps[i];
    mine.first_wait = other.steps[i].first_wait;
    const auto a = waits_of(steps[i]), b = other.waits_of(other.steps[i]);
    if (mine != other.steps[i] || !std::equal(a.begin(), a.end(), b.begin(), b.end())) return false;
  }
  return true;
}

BlockRef BlockPool::make() {
  if (free_.empty()) {
    chunks_.push_back(std::make_unique<Block[]>(kChunk));
    for (std::size_t i = kChunk; i-- > 0;) free_.push_back(&chunks_.back()[i]);
  }
  Block* const block = free_.back();
  free_.pop_back();
  block->pool = this;
  block->count = 0;
  block->stamp = 0;
  block->hop = {};
  block->many.clear();
  block->wait_count = 0;
  return BlockRef(block);
}

BlockRef BlockPool::copy(const Block& block) {
  BlockRef made = make();
  made->count = block.count;
  made->hop = block.hop;
  std::copy_n(block.places.begin(), block.count, made->places.begin());
  std::copy_n(block.tasks.begin(), block.count, made->tasks.begin());
  std::copy_n(block.steps.begin(), block.count, made->steps.begin());
  for (std::uint32_t i = 0; i < block.count; ++i)
    if (block.steps[i].wait_count != 0) made->set_waits(i, block.waits_of(block.steps[i]));
  return made;
}

}  // namespace weft::engine
