// weft profile measure: what operators take where devices play their parts of a plan, one after the other as in a run.
#pragma once

#include <string>
#include <vector>

#include "plan/plan.h"
#include "profile/event.h"
#include "run/launch.h"

namespace weft {

struct PlayingOptions {
  std::string rank_program;
  std::int64_t ranks = 1;  // that play at once: two are timed, the others keep the machine busy
  std::int64_t threads = 1;
  std::int64_t beside = 0;  // busy loops on the cores of every rank
  Seconds at_most{2};       // for each device that plays a part of its own
};

struct PlayedSamples {
  std::vector<MeasuredEvent> events;  // without device, stack and variant
  runtime::LaunchOutcome outcome = {};
};
// One device of every class (program/rank_classes.h) plays.
Result<PlayedSamples> play_to_measure(const Plan& plan, const PlayingOptions& options);

}  // namespace weft
