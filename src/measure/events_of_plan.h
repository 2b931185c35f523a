// The distinct events of a plan: every computation and communication that the measured cost model is asked for when the
// plan is simulated, once each (DistSim).
//
// The program is compiled as `weft run` does. Two parts of operators are one event if the measured cost model cannot tell
// them apart (cost/measured_points.h), two communications if traffic, group and bytes are the same. What takes no time
// (views) is no event. Events come in one order: computations, then communications, each as Event compares.
// Cost: instructions times the devices of their meshes, a few microseconds each.
#pragma once

#include <vector>

#include "plan/plan.h"
#include "profile/event.h"
#include "run/timeline.h"

namespace weft {

struct EventUse {
  Event event;                    // without device, stack and variant
  std::int64_t instructions = 0;  // that it is the time of, on one device or more

  bool operator==(const EventUse&) const = default;
};

Result<std::vector<EventUse>> events_of(const Plan& plan);
// The same of several plans, each event once.
std::vector<EventUse> merged(const std::vector<std::vector<EventUse>>& lists);

// What a device's computations took where it played its part of a plan, as its timeline has it: a sample of every event,
// the median over steps (but the first ones, which fill caches) of the mean of its instructions. `compiled` is the plan's.
std::vector<MeasuredEvent> played_events(const Plan& plan, const CompiledStrategy& compiled, DeviceId device,
                                         const runtime::RankTimeline& timeline);

// Whether a computation is in both lists, in the measured cost model's eyes.
bool has_computation_of(const std::vector<EventUse>& events, const std::vector<EventUse>& others);

// Events whose times the profile has under this device and stack, in the measured cost model's eyes, with at least
// `runs` runs, are taken out.
void drop_measured(std::vector<EventUse>& events, const std::vector<MeasuredEvent>& profile, std::string_view device,
                   std::string_view stack, std::int64_t runs);

}  // namespace weft
