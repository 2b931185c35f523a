// weft plan --sweep: the same question for several sizes or clusters.
//
//   nodes=4..64         4, 8, 16, 32, 64 nodes of the cluster's preset; also nodes=4,6,12
//   devices=8..64       so many of the cluster's devices
//   batch=256..4096     samples per step
//   seq=4k..128k        tokens per sample
//   cluster=A,B,C       other clusters
//
// Strong scaling unless asked otherwise: every point has the same batch, by default that of the first. Weak: the batch
// grows with the devices.
#pragma once

#include <atomic>
#include <string>

#include "cli/answer.h"
#include "cli/progress.h"
#include "cli/search_words.h"

namespace weft {

struct SweepArguments {
  SettledSearch search;
  std::string over;  // "nodes=4..64"
  bool weak = false, json = false;
  const std::atomic<bool>* cancelled = nullptr;
};

Result<Answer> run_sweep(const SweepArguments& arguments, Progress& progress);

}  // namespace weft
