// What every rank of a run is at, in memory that ranks and their launcher share: when one dies or hangs, it is known
// where. A rank writes a few words before each instruction.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "base/result.h"

namespace weft::runtime {

struct alignas(64) ProgressSlot {
  std::atomic<std::uint64_t> beats;  // instructions begun and waits
  std::atomic<std::int64_t> step;    // from 0
  std::atomic<std::int32_t> micro_batch;
  std::atomic<std::uint32_t> instruction;  // kNoInstruction: it has not begun
  std::atomic<std::uint32_t> waiting;      // for others
  static constexpr std::uint32_t kNoInstruction = 0xffffffffU;
};

class ProgressPage {
 public:
  // A file of this many slots; everything in it is zero but that no instruction has begun.
  static Result<ProgressPage> create(const std::string& path, int ranks);
  static Result<ProgressPage> open(const std::string& path, int ranks);
  ProgressPage(ProgressPage&& other) noexcept;
  ProgressPage& operator=(ProgressPage&&) = delete;
  ~ProgressPage();

  ProgressSlot& of(int rank) const { return slots_[rank]; }

 private:
  ProgressPage(ProgressSlot* slots, int ranks) : slots_(slots), ranks_(ranks) {}

  ProgressSlot* slots_ = nullptr;
  int ranks_ = 0;
};

}  // namespace weft::runtime
