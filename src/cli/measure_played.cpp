#include "cli/measure_played.h"

#include <algorithm>

#include "cli/run_request.h"
#include "cli/temporary_directory.h"
#include "measure/events_of_plan.h"
#include "program/rank_classes.h"
#include "run/measure_launch.h"

namespace weft {
namespace {

constexpr std::size_t kTimed = 2;  // ranks of a launch

}  // namespace

Result<PlayedSamples> play_to_measure(const Plan& plan, const PlayingOptions& options) {
  WEFT_TRY(const CompiledStrategy compiled, compile_plan(plan));
  const Bundle bundle = bundle_of(plan, compiled);
  WEFT_TRY(const std::vector<RankClass> classes, rank_classes(bundle.program, bundle.schedule));
  WEFT_TRY(const TemporaryDirectory directory, TemporaryDirectory::make("weft-measure"));
  const std::string file = directory.path() + "/bundle";
  WEFT_TRY_OK(write_bundle(bundle, file));
  PlayedSamples played;
  const auto ranks = static_cast<std::size_t>(options.ranks);
  for (std::size_t at = 0; at < classes.size(); at += std::min(ranks, kTimed)) {
    const std::size_t timed = std::min({ranks, kTimed, classes.size() - at});
    runtime::PlayLaunchOptions launch{.rank_program = options.rank_program,
                                      .bundle = file,
                                      .directory = directory.path(),
                                      .devices = {},
                                      .timed = static_cast<int>(timed),
                                      .threads = static_cast<int>(options.threads),
                                      .beside = static_cast<int>(options.beside),
                                      .at_most = options.at_most};
    for (std::size_t i = 0; i < ranks; ++i)
      launch.devices.push_back(static_cast<int>(classes[(at + i) % classes.size()].devices[0].index()));
    WEFT_TRY(played.outcome, runtime::launch_playing(launch));
    if (played.outcome.kind != runtime::LaunchOutcome::Kind::Done) return played;
    WEFT_TRY(const std::vector<runtime::RankTimeline> timelines,
             runtime::read_timelines(directory.path(), launch.timed));
    for (std::size_t i = 0; i < timelines.size(); ++i) {
      const DeviceId device = plan.ranks()[static_cast<std::size_t>(launch.devices[i])];
      const std::vector<MeasuredEvent> events = played_events(plan, compiled, device, timelines[i]);
      played.events.insert(played.events.end(), events.begin(), events.end());
    }
  }
  return played;
}

}  // namespace weft
