// A part of an editable script: a few steps at places with gaps between them, for insertions. Blocks are immutable once
// shared: an edit changes a copy, so equal agents share blocks, and undoing an edit restores the old ones.
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
  static constexpr std::uint32_t kPlaces = 1024;     // places of a script that a block covers
  static constexpr std::uint32_t kCapacity = 48;     // most steps of a block
  static constexpr std::uint32_t kInitialSteps = 8;  // initial steps of a block, at even distances

  static std::uint32_t place_of(std::uint32_t step) {
    return step / kInitialSteps * kPlaces + (2 * (step % kInitialSteps) + 1) * (kPlaces / kInitialSteps / 2);
  }

  BlockPool* pool = nullptr;
  std::uint32_t users = 0;
  std::uint32_t count = 0;  // number of steps, in order
  std::uint64_t stamp = 0;  // the edit that made it
  Hop hop;
  std::array<std::uint16_t, kCapacity> places;
  std::array<TaskId, kCapacity> tasks;
  std::array<Step, kCapacity> steps;
  std::array<StepWait, 16> few;  // waits of the steps if they fit
  std::vector<StepWait> many;    // waits of the steps otherwise
  std::uint32_t wait_count = 0;

  // The index of the step at a place of the script; `count` if there is none.
  std::uint32_t at(std::uint32_t position) const {
    const std::uint32_t place = position % kPlaces;
    if (count == 0) return 0;
    std::uint32_t i = std::min(place / (kPlaces / kInitialSteps), count - 1);  // its initial index
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
  // Inserts a step without waits and returns its index. The block must not be full.
  std::uint32_t insert(std::uint32_t position, const Step& step, TaskId task);
  void erase(std::uint32_t step);
  void set_waits(std::uint32_t step, std::span<const StepWait> list);
  // Computes the hop of the block at this index of a script.
  void make_hop(std::uint32_t index);
  // Equality of steps.
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

// Allocates blocks; must outlive all references to them.
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
  if (block_ != nullptr && --block_->users == 0) block_->pool->take(block_);
}

// The hop over the steps of the first stream among `count` steps in order. Step i is at `position(i)` and waits for
// `waits(i)`.
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
