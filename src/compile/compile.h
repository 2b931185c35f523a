// Graph + sharding → program: every operator on its shards, every change of layout as explicit collectives, saved
// tensors, gradient synchronisation and the optimizer step.
//
// Given a training graph of one micro-batch, a mesh and how each operator is split; back comes the complete program.
// Where a tensor is needed in another layout than it has, the cheapest sequence of collectives is inserted, once per
// body and layout. Cost: linear in operators; does not depend on the number of devices.
#pragma once

#include <algorithm>
#include <array>
#include <vector>

#include "base/result.h"
#include "compile/number_types.h"
#include "program/program.h"
#include "strategy/reshard.h"
#include "strategy/sharding.h"
#include "strategy/tree.h"

namespace weft {

// Where parameters, gradients and optimizer state are kept, beyond what the operators need (ZeRO).
struct Spread {
  // 0: everywhere alike. 1: optimizer state split over `over`. 2: gradients too, reduced every micro-batch. 3:
  // parameters too, gathered where they are used.
  int zero = 0;
  MeshAxes over = 0;  // the data-parallel mesh axes
};
struct MemoryPlan : Spread {
  std::array<bool, kStoredKinds> offload = {};               // what lives in the host's memory
  std::vector<std::pair<TensorId, Spread>> parameters = {};  // kept in another way than the rest, in order

  Spread of(TensorId parameter) const {
    const auto own = std::lower_bound(parameters.begin(), parameters.end(), parameter,
                                      [](const auto& each, TensorId id) { return each.first < id; });
    return own == parameters.end() || own->first != parameter ? Spread(*this) : own->second;
  }
  // Of all parameters.
  int most_zero() const {
    int most = zero;
    for (const auto& [parameter, own] : parameters) most = std::max(most, own.zero);
    return most;
  }
};

// How gradients are synchronised.
struct GradientSync {
  // Reduce a gradient as soon as its last term is in, in the backward body of the last micro-batch, while earlier
  // layers are still being differentiated; otherwise all together after backward.
  bool overlap = true;
  // Gradients that are reduced alike travel together until they reach this many bytes. PyTorch's DDP: 25 MiB.
  Bytes bucket{25 << 20};
};

// How parameters that are kept in parts (ZeRO-3, FSDP) come together, and those that are updated in parts (ZeRO-1, 2).
struct ParameterSync {
  // Of every tensor: the unit with which a parameter is gathered (a block of the network, or the rest of it); −1: none.
  // Empty: each is gathered where it is used first.
  IdVec<TensorId, int> unit = {};
  // A unit is gathered while the one before it computes; otherwise when it is needed.
  bool prefetch_forward = true, prefetch_backward = true;
  int in_flight = 2;                  // units gathered and not yet done with, at most
  bool reshard_after_forward = true;  // otherwise what forward gathered is kept for backward
};

struct CompileOptions {
  MemoryPlan memory = {};
  GradientSync gradients = {};
  ParameterSync parameters = {};
  bool keep_gathered_input = false;  // what forward gathered of an activation is saved, not gathered again for backward
  std::vector<int> buckets = {};     // of every accumulation, in order; empty: by GradientSync::bucket
  // Collectives on activations have a stream of their own; otherwise they take their turn among the computations.
  // (Rings always overlap: that is what they are for.)
  bool tensor_overlap = true;
  bool tokens_once = false;  // Communicate::tokens_once, wherever tokens are routed
  NumberTypes types = {};
  // Decides how activations get from one layout to another where fewer bytes take more steps; none: bytes do.
  // Parameters and gradients travel with others (buckets), which bytes tell better than the price of one alone.
  const StepPrice* prices = nullptr;
};

// `recompute`: forward operators that run again in the backward body instead of keeping what they made
// (graph/training.h).
Result<Program> compile(const TrainingGraph& training, const Placing& placing, const ShardingPlan& plan,
                        const CompileOptions& options, const RecomputeRegions& recompute);

}  // namespace weft
