// Strategies in which groups of layers have devices of their own (FlexFlow's recurrent networks, GNMT): seeds that no
// change of one layer leads to.
//
// Layers that are alike (names but for numbers) go to groups by their place among themselves, in blocks or in turn, so
// that layers of one depth meet; a layer that does a good part of all work is a group by itself; the others go with
// whom they feed or read. Each group gets parts of all nodes, or whole nodes, about as its work; inside, every layer is
// split as moves least: its gradients, against copies of what it reads and what leaves it. Nothing of a device is
// asked.
#pragma once

#include "soap/proposals.h"

namespace weft {

// Each at most once; none where all layers are one group. Their times are for others to judge.
std::vector<SoapStrategy> grouped_strategies(const TrainingGraph& training, const Proposals& proposals,
                                             SoapMeshes& meshes);

}  // namespace weft
