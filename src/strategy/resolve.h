// A strategy applied to a model and a cluster: for every operator its mesh, the axes it is split on, its stage and
// whether it is recomputed. The compiler starts from it.
//
// Given a strategy, the training graph of one micro-batch of all replicas, and a cluster, it makes the input of
// plan_sharding and compile. Operators without a rule are split by propagation (layout/sharding.h).
// Cost: rules with wildcards × forward operators, plus the devices of the meshes.
#pragma once

#include <algorithm>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "cluster/cluster.h"
#include "graph/training.h"
#include "layout/sharding.h"
#include "strategy/violations.h"

namespace weft {

// Mesh axes over which each kind is sharded beyond the split of the computation, and what is offloaded to the host.
struct StorageChoice {
  std::array<MeshAxes, kStoredKinds> over = {};
  std::array<bool, kStoredKinds> offload = {};
  std::map<int, Shares> ratio = {};  // by mesh axis: uneven shares, of all kinds that are sharded over it

  MeshAxes axes_of(Stored kind) const { return over[static_cast<std::size_t>(kind)]; }
  // ZeRO stage: 0 nothing is sharded, 1 optimizer state, 2 gradients too, 3 weights too.
  int zero() const;
  bool operator==(const StorageChoice&) const = default;
};

// How operators are split and parameters stored on a mesh with these axes: the axes of all meshes, of size 1 if this
// mesh lacks the axis.
struct MeshChoices {
  std::vector<MeshAxis> axes;
  ShardingChoices sharding;
  StorageChoice storage;                         // of the root
  std::map<TensorId, StorageChoice> parameters;  // those whose storage differs from it
};

// The arguments of make_schedule (program/schedule.h), of all routes together.
struct ScheduleChoice {
  std::string name;
  std::int64_t ranks = 1, chunks = 1, micro_batches = 1;

  bool operator==(const ScheduleChoice&) const = default;
};

// The pipeline that some of the micro-batches take.
struct RouteChoice {
  std::int64_t first = 0, stages = 1;  // of ResolvedStrategy::meshes
  std::int64_t micro_batches = 1;
  IdVec<OpId, int> stage;  // forward operators, counted from `first`; −1 others
  RecomputeRegions recompute;
};

struct StageMesh {
  Mesh mesh;
  std::size_t choices = 0;  // index into ResolvedStrategy::choices
};

struct ResolvedStrategy {
  std::vector<StageMesh> meshes;     // by stage; stages of one pipeline rank have the same devices
  std::vector<MeshChoices> choices;  // one for all stages unless their meshes differ
  ScheduleChoice schedule;
  std::int64_t stages = 1;          // of all routes
  std::vector<RouteChoice> routes;  // at least one
  std::vector<OpId> saved_on_host;  // forward operators whose saved outputs are offloaded to the host, in order
  ContextMode context = ContextMode::Gather;
  MeshAxes ring = 0;  // with ContextMode::Ring: mesh axes of choices[0] around which keys and values rotate
  // Meshes of individually placed operators; their axes have the names of the operator's axes that they split.
  std::vector<Mesh> placements;
  std::map<OpId, std::size_t> placed;

  // The mesh of the first stage of each pipeline rank, which has all devices of the rank.
  std::span<const StageMesh> ranks() const {
    return std::span(meshes).first(std::min(meshes.size(), static_cast<std::size_t>(schedule.ranks)));
  }
};

// All violations; `file` names the strategy in their places. Cost: that of resolve.
std::vector<Violation> validate(const Strategy& strategy, const TrainingGraph& training, const Cluster& cluster,
                                std::string_view file = "strategy");
// The error is the first violation, with the number of others.
Result<ResolvedStrategy> resolve(const Strategy& strategy, const TrainingGraph& training, const Cluster& cluster,
                                 std::string_view file = "strategy");

}  // namespace weft
