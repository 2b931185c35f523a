// Graph + sharding → program: every operator on its shards, every change of layout as explicit collectives, saved
// tensors, gradient synchronisation and the optimizer step.
//
// Given a training graph of one micro-batch, meshes and how each operator is split; back comes the complete program.
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

// How a parameter, its gradient and its optimizer state are stored. Each is sharded beyond what the operators need
// (ZeRO, Rajbhandari et al. 2020) by the data-parallel mesh axes given here: weights by no more of them than gradients,
// gradients by no more than optimizer state. Each is on the device or on the host.
struct ParameterStorage {
  MeshAxes weights = 0;                         // gathered where they are used
  MeshAxes gradients = 0;                       // reduce-scattered every micro-batch
  MeshAxes optimizer = 0;                       // each device updates its shard
  std::map<int, Shares> ratio = {};             // by mesh axis: uneven shares
  std::array<bool, kStoredKinds> offload = {};  // by Stored: in the host's memory

  ParameterStorage() = default;
  // ZeRO stage `zero` over these axes: 1 optimizer state, 2 gradients too, 3 weights too.
  ParameterStorage(int zero, MeshAxes over)
      : weights(zero >= 3 ? over : 0), gradients(zero >= 2 ? over : 0), optimizer(zero >= 1 ? over : 0) {}
  int zero() const { return weights != 0 ? 3 : gradients != 0 ? 2 : optimizer != 0 ? 1 : 0; }
};
// How all parameters are stored, and where saved tensors are.
struct MemoryPlan : ParameterStorage {
  std::vector<std::pair<TensorId, ParameterStorage>> parameters = {};  // stored unlike the rest, by id
  // Forward operators, by id, whose results are saved for backward in the host's memory. All are if `offload` has
  // activations.
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
  // The highest ZeRO stage of any parameter.
  int most_zero() const {
    int most = zero();
    for (const auto& [parameter, own] : parameters) most = std::max(most, own.zero());
    return most;
  }
};

// How gradients are synchronised.
struct GradientSync {
  // A gradient is reduced as soon as its last term is added, in the backward body of the last micro-batch, while earlier
  // layers are still being differentiated; otherwise all are reduced together after backward.
  bool overlap = true;
  // Gradients with the same collectives share a bucket until it has this many bytes; 0: all of them. 25 MiB is the
  // default of PyTorch's DistributedDataParallel.
  Bytes bucket{25 << 20};
  // The same of what a micro-batch adds to sharded gradients (ZeRO-2): so many bytes of it are held unreduced. 0: as
  // `bucket`.
  Bytes term_bucket{0};
  // Gradients are stored contiguously in the buckets they are reduced in; otherwise they are copied there
  // (Communicate::staged).
  bool flat = true;
};

// How parameters are gathered: sharded ones where they are used (ZeRO-3, FSDP), others after the optimizer has updated
// their shards (ZeRO-1, 2).
struct ParameterSync {
  // By tensor, of parameters: the unit with which it is gathered (a layer, or all outside the layers); −1: none. Empty:
  // each is gathered where it is used first.
  IdVec<TensorId, int> unit = {};
  // A unit is gathered while the one before it computes; otherwise when it is needed.
  bool prefetch_forward = true, prefetch_backward = true;
  int in_flight = 2;                  // units gathered and still in use, at most
  bool reshard_after_forward = true;  // otherwise what forward gathered is kept for backward
  bool flat = true;                   // as GradientSync::flat
};

// How tensors are sent from mesh to mesh.
struct TransferSync {
  // Computation overlaps with what a body sends; otherwise it waits, at the body's end, until all that has arrived.
  bool overlap = true;
  // By device, its node: where receivers in one node will hold the same, each is sent a part, and they gather it among
  // them (scatter/gather, Narayanan et al. 2021, section 4.1). Empty: every receiver is sent all that it needs.
  std::vector<int> node = {};
};

struct CompileOptions {
  MemoryPlan memory = {};
  GradientSync gradients = {};
  ParameterSync parameters = {};
  bool keep_gathered_input = false;  // what forward gathered of an activation is saved, not gathered again for backward
  bool split_backward = false;       // a schedule plays the weights' part of backward later than the input's
  std::vector<int> buckets = {};     // bucket of every accumulation, in order; empty: by GradientSync::bucket
  // Collectives on activations have a stream of their own; otherwise they run on the compute stream. (Ring attention
  // always overlaps.)
  bool tensor_overlap = true;
  bool tokens_once = false;  // Communicate::tokens_once, wherever tokens are routed
  // How parts of different sizes are gathered and scattered: padded or grouped. None: whichever is cheaper by `prices`;
  // without prices, grouped, which sends fewer bytes.
  std::optional<Parts> uneven_parts = {};
  NumberTypes types = {};
  // The cost by which activations are resharded, where sending fewer bytes takes more collectives; null: bytes.
  // Parameters and gradients are always resharded by bytes: they share collectives with others (buckets), so the price
  // of one alone misleads. How uneven parts are executed is settled for the whole bucket, by its price.
  const StepPrice* prices = nullptr;
  TransferSync transfers = {};
};

// How operators are split on one route of micro-batches, and which run again in the backward body instead of keeping what
// they made (graph/training.h). Both are kept by reference.
struct RouteSplit {
  const ShardingPlan& plan;
  const RecomputeRegions& recompute;
};
// A pipeline of several routes (Placing::route_of) holds the model once for each; gradients are summed over all.
Result<Program> compile(const TrainingGraph& training, const Placing& placing, std::vector<RouteSplit> routes,
                        const CompileOptions& options);
Result<Program> compile(const TrainingGraph& training, const Placing& placing, const ShardingPlan& plan,
                        const CompileOptions& options, const RecomputeRegions& recompute);

}  // namespace weft
