// The plans that differ from a plan in one knob, in the words of the shorthand: whatever it can say, also where the
// hybrid space has no such plan (ranks in another order, experts' own tensor degree, offload, bidirectional schedules).
//
// A knob: one degree moved to another by a prime factor · a degree of experts · micro-batch · ZeRO stage or the shards
// of hybrid sharding · schedule and chunks per rank · sequence parallelism, kind of context parallelism · how stages
// are cut, or a layer moved from one to another · another set of modules to recompute, or one module more or fewer ·
// order of ranks · offload of one kind of tensors, with what is recomputed in the room that it makes. Devices and samples
// per step stay as they are.
#pragma once

#include <vector>

#include "hybrid/hybrid_space.h"

namespace weft {

// In a fixed order, each once, valid as far as the shorthand can tell, without the plan itself. Those that
// `options.allows` refuses are left out, and so are degrees, schedules and stages outside of the options. Schedules that
// the space does not know (DualPipe) come with DualPipe-V.
std::vector<Parallelism> one_knob_changed(const PlanProblem& problem, const SpaceOptions& options,
                                          const Parallelism& plan);

}  // namespace weft
