// Loops that compute nothing beside the ranks of a run: one on the cores of a rank leaves that rank half of its time, two a
// third. So equal cores become unequal devices whose speeds are known. They are threads of this process and end with it.
#pragma once

#include <atomic>
#include <string_view>
#include <thread>
#include <vector>

#include "base/result.h"
#include "run/pinning.h"

namespace weft::runtime {

// "1" for all ranks, or one number for each: "0,1". An error for ranks that have no cores of their own to share.
Result<std::vector<int>> loops_of_ranks(std::string_view words, const std::vector<Cores>& pinned);

class BusyLoops {
 public:
  // By rank, on each of its cores. They run until this is destroyed.
  BusyLoops(const std::vector<int>& loops, const std::vector<Cores>& pinned);
  ~BusyLoops();
  BusyLoops(const BusyLoops&) = delete;

 private:
  std::atomic<bool> ended_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace weft::runtime
