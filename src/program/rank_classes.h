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
  std::vector<DeviceId> devices;     // in order
  std::int32_t rank = -1;            // the pipeline rank whose actions it plays; −1: it plays the step only
  std::vector<std::int32_t> stages;  // whose bodies it plays, in order: one per chunk
  std::vector<MeshId> meshes;        // that it belongs to and that execute something

  bool operator==(const RankClass&) const = default;
};

// In the order of their first devices. An error where a device would have to play the actions of several pipeline ranks:
// then the schedule gives no order of its instructions, and members might come to collectives in different orders.
Result<std::vector<RankClass>> rank_classes(const Program& program, const Schedule& schedule);

}  // namespace weft
