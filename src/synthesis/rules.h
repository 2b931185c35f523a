// The ways to distribute a training graph over a mesh, as choices (program_choices.h), and a choice as a strategy tree.
//
// Per mesh axis every tensor is replicated, sharded along a dimension or partial. What splitting an operator needs and
// gives follows from its axes (layout/layout.h); no operator has a rule of its own:
//
//   a forward operator    splits any of its axes along each mesh axis, or none; its backward products split alike
//   a weight gradient     splits any of its own axes: the reduced one, and the gradient is partial (to be reduced or
//                         reduce-scattered), or none, and both factors are gathered (sufficient factor broadcasting)
//   an update             is sharded along any subset of the mesh axes that do not split the weight already; so may be
//                         the stored gradient, and the stored weight, which is then gathered for both passes
//   a tensor that several operators read   is communicated once, into a layout from which they take what they need;
//                         their contributions to its gradient are added up before they are reduced
//
// A mesh axis has shares, of samples and of everything else, which are rounded to whole granules of each axis.
// Communications are the cheapest sequences of collectives (layout/reshard.h), uneven parts padded or grouped, whichever
// is cheaper. Gradients and weights travel in buckets: of their latency each has its share.
//
// Cost: per distinct signature, its splits² (weight gradients); per distinct pair of layouts, one query.
#pragma once

#include <memory>

#include "cost/cost.h"
#include "graph/training.h"
#include "layout/sharding.h"
#include "strategy/tree.h"
#include "synthesis/program_choices.h"

namespace weft {

// A mesh with the shares of its axes; empty: equal ones. Any scale: shares are rounded for every size that is cut.
struct SharedMesh {
  struct Ratios {
    Shares samples, others, stored;

    bool operator==(const Ratios&) const = default;
  };
  Mesh mesh;
  std::vector<Ratios> ratio;  // by mesh axis
};

// Devices of one kind with the same shares.
struct DeviceClass {
  const DeviceSpec* spec = nullptr;
  std::vector<int> positions;  // in the mesh
};
std::vector<DeviceClass> device_classes(const SharedMesh& mesh, const Cluster& cluster);

// What an option of a variable means.
struct Distribution {
  std::vector<AxisChoice> split;                           // by mesh axis
  std::optional<std::vector<AxisChoice>> weight_gradient;  // none: as the operator
  MeshAxes optimizer = 0, gradients = 0, weights = 0;      // sharded over these axes beyond the split

  bool operator==(const Distribution&) const = default;
};

struct ProgramSpace {
  SharedMesh mesh;
  std::vector<DeviceClass> classes;
  ProgramChoices choices;
  IdVec<VariableId, std::vector<OpId>> ops;            // forward operators; none: a tensor
  IdVec<VariableId, TensorId> tensor;                  // otherwise
  IdVec<VariableId, SharedVec<Distribution>> meaning;  // by option; of a tensor none
};

struct ProgramRules {
  Bytes bucket{25 << 20};  // of gradients that travel together; 0: all
  // The share of the time of gradients' reductions that counts: what is not hidden beside backward. 1: HAP's stages,
  // which overlap nothing.
  double exposed = 1;
  // Whether weights, gradients and optimizer state may be sharded beyond the split of their operator (ZeRO 1, 2, 3).
  bool shards_stored = true;
};

// `only`: by variable (of operators), the one way to distribute it, for which the shares are chosen anew.
ProgramSpace make_program_space(const TrainingGraph& training, SharedMesh mesh, const Cluster& cluster,
                                const CostModel& cost, const ProgramRules& rules = {},
                                const IdVec<VariableId, Distribution>* only = nullptr);

// Shares of an axis of the mesh for `size` elements that come in granules; none: they do not divide, or leave a device
// nothing.
std::optional<Shares> rounded_shares(std::int64_t size, std::int64_t granule, std::int64_t inner, int parts,
                                     const Shares& ratio);

// A product that makes nothing but gradients of weights, by a contraction.
bool makes_weight_gradients(const Signature& signature);

// One rule per operator and sharded parameter.
Strategy to_tree(const ProgramSpace& space, const std::vector<std::uint32_t>& option, const TrainingGraph& training);

}  // namespace weft
