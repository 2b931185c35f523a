// Rank classes: devices that execute the same instructions.
//
// What a device executes follows from the meshes it belongs to, so classes are the sets of devices with the same
// memberships; a program for 16,384 devices in 16 stages has 16. Cost: linear in the meshes' devices and in the
// instructions, not in their product.
#pragma once

#include <vector>

#include "base/result.h"
#include "program/program.h"

namespace weft {

struct RankClass {
  std::vector<DeviceId> devices;  // in order
  std::int32_t rank = -1;         // the pipeline rank whose actions it plays; −1: of no stage, it plays the step only
  std::vector<std::int32_t> stages;  // whose bodies it plays, in order: one per chunk
  std::vector<MeshId> meshes;        // it belongs to, of those that execute something

  bool operator==(const RankClass&) const = default;
};

// By the first device of each. An error where a device would have to play the actions of several pipeline ranks: then
// its order is nobody's, and collectives need not meet.
Result<std::vector<RankClass>> rank_classes(const Program& program, const Schedule& schedule);

}  // namespace weft
