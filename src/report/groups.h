// The communication groups of a plan, and the links between their members.
#pragma once

#include <string>
#include <vector>

#include "cluster/group.h"
#include "plan/plan.h"

namespace weft {

// Groups of devices that differ along the mesh axes of one degree; for the pipeline, the devices that a micro-batch
// passes.
struct GroupKind {
  std::string degree;             // "ep"
  std::vector<std::string> over;  // its mesh axes: a degree of experts refines others, ep = ecp·eptp
  int size = 1;
  std::int64_t count = 0;                // groups of this kind
  std::vector<std::int64_t> first = {};  // ranks of the first of them
  int most_nodes = 1;                    // most nodes of a group of the kind
  bool crosses_fabric = false;           // some path leaves its leaf or rail switch
  LinkKind slowest = LinkKind::kMemory;
  BytesPerSecond alone = {}, together = {};  // of a ring over the slowest group: alone, and with all groups of the kind
};

// Degrees of more than one device, innermost ranks first, the pipeline last; with experts also the devices that hold
// replicas of one (edp). If stages have meshes of their own, the sizes are the largest.
std::vector<GroupKind> group_kinds(const Plan& plan);

// "tp", or "ep = ecp·eptp" if the degree is not a mesh axis of its own
std::string label_of(const GroupKind& kind);

// "NVSwitch, inside a node"
std::string links_of(const GroupKind& kind);

}  // namespace weft
