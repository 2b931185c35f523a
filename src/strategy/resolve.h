// A strategy applied to a model and a cluster: for every operator the mesh, the axes it is split on, its stage and
// whether it is computed again. The front door to the compiler.
//
// Given a strategy, the training graph of one micro-batch of all replicas, and a cluster; back comes what
// plan_sharding and compile take. What no rule says is left open: propagation (sharding.h) settles it.
// Cost: rules with wildcards × forward operators; does not depend on the number of devices but for the meshes' lists.
#pragma once

#include <algorithm>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "layout/sharding.h"
#include "strategy/validate.h"

namespace weft {

// Mesh axes that each kind is spread over beyond what the computation splits, and what lives on the host.
struct StorageChoice {
  std::array<MeshAxes, kStoredKinds> over = {};
  std::array<bool, kStoredKinds> offload = {};
  std::map<int, Shares> ratio = {};  // by mesh axis: uneven shares, of all kinds that are spread over it

  MeshAxes axes_of(Stored kind) const { return over[static_cast<std::size_t>(kind)]; }
  // ZeRO stage: 0 nothing is spread, 1 optimizer state, 2 gradients too, 3 weights too.
  int zero() const;
  bool operator==(const StorageChoice&) const = default;
};

// How operators are split and parameters stored on a mesh with these axes: those of all meshes, of size 1 where this
// one has not the axis.
struct MeshChoices {
  std::vector<MeshAxis> axes;
  ShardingChoices sharding;
  StorageChoice storage;                         // of the root
  std::map<TensorId, StorageChoice> parameters;  // those whose storage differs from it
};

// What src/program's make_schedule takes.
struct ScheduleChoice {
  std::string name;
  std::int64_t ranks = 1, chunks = 1, micro_batches = 1;

  bool operator==(const ScheduleChoice&) const = default;
};

struct StageMesh {
  Mesh mesh;
  std::size_t choices = 0;  // index into ResolvedStrategy::choices
};

struct ResolvedStrategy {
  std::vector<StageMesh> meshes;     // by stage; those of one pipeline rank are of the same devices
  std::vector<MeshChoices> choices;  // one for all stages unless their meshes differ
  ScheduleChoice schedule;
  std::int64_t stages = 1;
  IdVec<OpId, int> stage;  // forward operators; −1 others
  RecomputeRegions recompute;
  std::vector<OpId> saved_on_host;  // forward operators whose results wait for backward in the host's memory, in order
  ContextMode context = ContextMode::Gather;
  MeshAxes ring = 0;  // with ContextMode::Ring: the mesh axes, of choices[0], that attention passes keys around
  // Operators placed by themselves: their own mesh, whose axes are named like the operator's axes they split.
  std::vector<Mesh> placements;
  std::map<OpId, std::size_t> placed;

  // By pipeline rank: its first stage's, which has all its devices.
  std::span<const StageMesh> ranks() const {
    return std::span(meshes).first(std::min(meshes.size(), static_cast<std::size_t>(schedule.ranks)));
  }
};

// The first violation is the error, with the number of others.
Result<ResolvedStrategy> resolve(const Strategy& strategy, const TrainingGraph& training, const Cluster& cluster,
                                 std::string_view file = "strategy");

}  // namespace weft
