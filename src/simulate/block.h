// A part of a script that changes: a few steps at places with room between them. Blocks are never changed once others
// see them: an edit changes a copy, so agents that do the same have them in common, and taking an edit back puts the
// old ones where they were.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "simulate/step.h"

namespace weft::engine {

class BlockPool;

struct Block {
  static constexpr std::uint32_t kPlaces = 1024;  // of a script, that a block covers
  static constexpr std::uint32_t kRoom = 48;      // for so many steps
  static constexpr std::uint32_t kAtFirst = 8;    // so many are there at first, evenly spread

  static std::uint32_t place_of(std::uint32_t step) {
    return step / kAtFirst * kPlaces + (2 * (step % kAtFirst) + 1) * (kPlaces / kAtFirst / 2);
  }

  BlockPool* home = nullptr;
  std::uint32_t users = 0;
  std::uint32_t count = 0;  // of steps, in order
  std::uint64_t stamp = 0;  // who made it
  Hop hop;
  std::array<std::uint16_t, kRoom> places;
  std::array<TaskId, kRoom> tasks;
  std::array<Step, kRoom> steps;
  std::array<StepWait, 16> few;  // waits of the steps, if they are no more than that
  std::vector<StepWait> many;    // else
  std::uint32_t wait_count = 0;

  // Which step stands at a place of the script; `count`: none does.
  std::uint32_t at(std::uint32_t position) const {
    const std::uint32_t place = position % kPlaces;
    if (count == 0) return 0;
    std::uint32_t i = std::min(place / (kPlaces / kAtFirst), count - 1);  // where it was at first
    if (places[i] < place) {
      while (++i < count && places[i] < place) {
      }
    } else {
      while (i > 0 && places[i - 1] >= place) --i;
    }
    return i < count && places[i] == place ? i : count;
  }
  const StepWait* waits() const { return many.empty() ? few.data() : many.data(); }
  std::span<const StepWait> waits_of(const Step& step) const { return {waits() + step.first_wait, step.wait_count}; }
  // Which step that stands there now; it has no waits yet. There is room for it.
  std::uint32_t insert(std::uint32_t position, const Step& step, TaskId task);
  void erase(std::uint32_t step);
  void set_waits(std::uint32_t step, std::span<const StepWait> list);
  // For a block at this index of a script.
  void make_hop(std::uint32_t index);
  // The same steps.
  bool operator==(const Block& other) const;
};

class BlockRef {
 public:
  BlockRef() = default;
  explicit BlockRef(Block* block) : block_(block) { ++block->users; }
  BlockRef(const BlockRef& other) : block_(other.block_) {
    if (block_ != nullptr) ++block_->users;
  }
  BlockRef(BlockRef&& other) noexcept : block_(std::exchange(other.block_, nullptr)) {}
  BlockRef& operator=(BlockRef other) noexcept {
    std::swap(block_, other.block_);
    return *this;
  }
  ~BlockRef();

  Block& operator*() const { return *block_; }
  Block* operator->() const { return block_; }
  bool operator==(const BlockRef&) const = default;

 private:
  Block* block_ = nullptr;
};

// Outlives all references to its blocks.
class BlockPool {
 public:
  BlockPool() = default;
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  BlockRef make();
  BlockRef copy(const Block& block);
  std::uint64_t new_stamp() { return ++stamps_; }
  void take(Block* block) { free_.push_back(block); }

 private:
  static constexpr std::size_t kChunk = 64;
  std::vector<std::unique_ptr<Block[]>> chunks_;
  std::vector<Block*> free_;
  std::uint64_t stamps_ = 0;
};

inline BlockRef::~BlockRef() {
  if (block_ != nullptr && --block_->users == 0) block_->home->take(block_);
}

// The hop over the steps of the first stream, of `count` in order. Step i is at `position(i)`, waits for `waits(i)`.
template <class PositionOf, class StepOf, class WaitsOf>
Hop make_hop(std::uint32_t count, const PositionOf& position, const StepOf& step_of, const WaitsOf& waits_of) {
  Hop hop;
  hop.stream = 0xff;
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::uint8_t stream = step_of(i).stream;
    hop.streams = static_cast<StreamMask>(hop.streams | 1u << stream);
    hop.stream = std::min(hop.stream, stream);
  }
  for (std::uint32_t i = 0; i < count; ++i) {
    const Step& step = step_of(i);
    if (step.stream != hop.stream) continue;
    if (step.kind != StepKind::Compute || step.duration > kTimeLimit - hop.duration ||
        (step.wait_count != 0 && !hop.add(waits_of(i)))) {
      if (hop.first != kNoStep) break;
      continue;
    }
    if (hop.first == kNoStep) hop.first = position(i);
    hop.duration += step.duration;
    ++hop.steps;
    hop.last = position(i);
    hop.next = step.next;
  }
  return hop;
}

}  // namespace weft::engine
