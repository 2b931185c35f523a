// Graph + sharding → program: every operator on its shards, every change of layout as explicit collectives, saved
// tensors, gradient synchronisation and the optimizer step.
//
// Given a training graph of one micro-batch, a mesh and how each operator is split; back comes the complete program.
// Where a tensor is needed in another layout than it has, the cheapest sequence of collectives is inserted, once per
// body and layout. Cost: linear in operators; does not depend on the number of devices.
#pragma once

#include <algorithm>
#include <array>
#include <map>
#include <vector>

#include "base/result.h"
#include "compile/number_types.h"
#include "layout/reshard.h"
#include "layout/sharding.h"
#include "program/program.h"
#include "strategy/tree.h"

namespace weft {

// How a parameter, its gradient and its optimizer state are kept: sharded beyond what the operators need (ZeRO), by the
// data-parallel mesh axes that cut each — weights by no more of them than gradients, those by no more than optimizer
// state —, and on the device or on the host.
struct ParameterStorage {
  MeshAxes weights = 0;                         // gathered where they are used
  MeshAxes gradients = 0;                       // reduced every micro-batch
  MeshAxes optimizer = 0;                       // updated in parts
  std::map<int, Shares> ratio = {};             // by mesh axis: uneven shares
  std::array<bool, kStoredKinds> offload = {};  // what lives in the host's memory

  ParameterStorage() = default;
  // Optimizer state over these axes; from stage 2 gradients too, from 3 weights too.
  ParameterStorage(int zero, MeshAxes over)
      : weights(zero >= 3 ? over : 0), gradients(zero >= 2 ? over : 0), optimizer(zero >= 1 ? over : 0) {}
  int zero() const { return weights != 0 ? 3 : gradients != 0 ? 2 : optimizer != 0 ? 1 : 0; }
};
struct MemoryPlan : ParameterStorage {
  std::vector<std::pair<TensorId, ParameterStorage>> parameters = {};  // kept in another way than the rest, in order
  // Forward operators whose results wait for backward in the host's memory, in order; where `offload` says so, all do.
  std::vector<OpId> saved_on_host = {};

  MemoryPlan() = default;
  MemoryPlan(ParameterStorage rest) : ParameterStorage(std::move(rest)) {}
  MemoryPlan(int zero, MeshAxes over) : ParameterStorage(zero, over) {}

  const ParameterStorage& of(TensorId parameter) const {
    const auto own = std::lower_bound(parameters.begin(), parameters.end(), parameter,
                                      [](const auto& each, TensorId id) { return each.first < id; });
    return own == parameters.end() || own->first != parameter ? *this : own->second;
  }
  bool saves_on_host(OpId maker) const {
    return offload[static_cast<std::size_t>(Stored::Activations)] ||
           std::binary_search(saved_on_host.begin(), saved_on_host.end(), maker);
  }
  bool offloads_anything() const {
    const auto any = [](const ParameterStorage& storage) {
      return std::find(storage.offload.begin(), storage.offload.end(), true) != storage.offload.end();
    };
    return any(*this) || !saved_on_host.empty() ||
           std::any_of(parameters.begin(), parameters.end(), [&](const auto& each) { return any(each.second); });
  }
  // Of all parameters.
  int most_zero() const {
    int most = zero();
    for (const auto& [parameter, own] : parameters) most = std::max(most, own.zero());
    return most;
  }
};

// How gradients are synchronised.
struct GradientSync {
  // Reduce a gradient as soon as its last term is in, in the backward body of the last micro-batch, while earlier
  // layers are still being differentiated; otherwise all together after backward.
  bool overlap = true;
  // Gradients that are reduced alike travel together until they reach this many bytes; 0: all of them. PyTorch's DDP:
  // 25 MiB.
  Bytes bucket{25 << 20};
  // The same of what a micro-batch adds to gradients that are kept in parts (ZeRO-2): so much of it is held whole. 0:
  // as `bucket`.
  Bytes term_bucket{0};
  bool flat =
      true;  // gradients lie in the buckets they travel in; otherwise they are copied there (Communicate::staged)
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
  bool flat = true;                   // as gradients
};

// How tensors go from mesh to mesh.
struct TransferSync {
  // Computation goes on while what a body sends is on its way; otherwise it waits, at the body's end, until all that
  // has arrived.
  bool overlap = true;
  // Of every device, its node: what receivers in one node will hold alike is sent to each in part and gathered among
  // them (Megatron-LM's scatter and gather). Empty: every receiver is sent all that it needs.
  std::vector<int> node = {};
};

struct CompileOptions {
  MemoryPlan memory = {};
  GradientSync gradients = {};
  ParameterSync parameters = {};
  bool keep_gathered_input = false;  // what forward gathered of an activation is saved, not gathered again for backward
  bool split_backward = false;       // a schedule plays the weights' part of backward later than the input's
  std::vector<int> buckets = {};     // of every accumulation, in order; empty: by GradientSync::bucket
  // Collectives on activations have a stream of their own; otherwise they take their turn among the computations.
  // (Rings always overlap: that is what they are for.)
  bool tensor_overlap = true;
  bool tokens_once = false;  // Communicate::tokens_once, wherever tokens are routed
  // How parts of different sizes are gathered and scattered: padded or grouped. None: whichever `prices` say takes
  // less; without prices, grouped, which sends fewer bytes.
  std::optional<Parts> uneven_parts = {};
  NumberTypes types = {};
  // Decides how activations get from one layout to another where fewer bytes take more steps; none: bytes do.
  // Parameters and gradients travel with others (buckets), which bytes tell better than the price of one alone; how
  // uneven parts are executed is settled for the whole bucket, by its price.
  const StepPrice* prices = nullptr;
  TransferSync transfers = {};
};

// `recompute`: forward operators that run again in the backward body instead of keeping what they made
// (graph/training.h).
Result<Program> compile(const TrainingGraph& training, const Placing& placing, const ShardingPlan& plan,
                        const CompileOptions& options, const RecomputeRegions& recompute);

}  // namespace weft
