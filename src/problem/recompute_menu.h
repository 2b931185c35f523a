// What the backward pass may compute again: sets of modules between nothing and whole layers.
//
// Every set is a point (bytes that stay saved, seconds of recomputation), read from the training graph of a short model
// that has every kind of layer, as the stack builds it. Chains lead from the point that saves most to the one that
// saves least: modules added to `none` and to `selective`, and matrix products added to `op`, in each step the one that
// frees the most bytes per second added. That is the greedy solution of a knapsack, so the points of a chain are the corners of its
// linear relaxation. Bytes and seconds are those of one sample on one device: only their order counts, and degrees
// divide both alike; dispatching tokens to experts costs what it does inside a node.
// Not here: which set a plan takes (src/hybrid, by the memory that there is). Cost: some 10 ms, once per problem.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plan/plan.h"

namespace weft {

struct RecomputeSet {
  Recompute base = Recompute::None;
  std::vector<std::string> full = {};  // globs of modules that are recomputed as a whole
  double saved = 0;                    // bytes
  double seconds = 0;                  // of recomputation

  bool same_modules(const RecomputeSet& other) const { return base == other.base && full == other.full; }
};

struct RecomputeMenu {
  // none, selective, full and op (in the order of `Recompute`), then the sets of the chains.
  std::vector<RecomputeSet> sets = {{Recompute::None}, {Recompute::Selective}, {Recompute::Full}, {Recompute::Op}};
  // Indices of the sets that none dominates, from the most bytes saved to the least.
  std::vector<std::uint8_t> front;
  // Every module that a set may name, by itself: globs over all layers.
  std::vector<std::string> modules, products;
};

// `plan`: of the short model on one device with the whole batch as one micro-batch. `times[i]`: how many layers of the
// whole model the i-th layer of the short one stands for. `experts`: devices among which tokens are dispatched.
RecomputeMenu recompute_menu(const Plan& plan, const std::vector<double>& times, const std::vector<DeviceId>& experts);

}  // namespace weft
