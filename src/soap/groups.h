// Strategies in which groups of layers run on disjoint devices (FlexFlow's recurrent networks, GNMT): starting points
// that no change of a single layer leads to.
//
// Similar layers (equal names but for numbers) are assigned to groups by their position among themselves, in blocks or
// round-robin, so that layers of one depth share a group; a layer with a large part of all FLOPs may be a group by
// itself; the others join the group of a layer that they read or feed. Each group gets a part of every node, or whole
// nodes, roughly in proportion to its FLOPs; inside, every layer has the split that moves the fewest bytes: its
// gradients, against copies of its inputs and its outputs. Costs of devices are not used.
#pragma once

#include "soap/proposals.h"

namespace weft {

// Distinct strategies, not yet judged; none where all layers are one group.
std::vector<SoapStrategy> grouped_strategies(const TrainingGraph& training, const Proposals& proposals,
                                             SoapMeshes& meshes);

}  // namespace weft
