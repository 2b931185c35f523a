// A plan's prediction beside what its ranks measured (weft run --compare): where the two part.
//
// Both sides are runs of one workload, the simulated one and that of the ranks' timelines (forecast/measured_run.h), and
// every figure is counted from either by the same function, so a word means the same on both:
//   step           from the first rank's begin to the last one's end; simulated ranks begin together, recorded ones too
//   busy           a rank computes, whatever else is under way
//   communication  a communication works and nothing computes: exposed
//   waiting        nothing works, a communication waits for another rank: a slower one, or another stage (a bubble)
//   idle           none of these: the host has not issued anything, or the rank is done
// A communication lasts from the moment the host begins to pack it (in a meeting: the last party's) until it is complete;
// where the host waits for it then, until it is unpacked. Communications of one stream are one after the other.
// The four parts of a rank sum to the step. Peaks are of allocated memory on both sides.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "forecast/forecast.h"
#include "forecast/measured_run.h"
#include "run/timeline.h"

namespace weft {

struct RankParts {
  Seconds busy, communication, waiting, idle;
};

// What one sort of instruction takes in a step, the mean of all ranks.
struct InstructionTimes {
  std::string name;  // of operators: "layers.*.mlp.up"; otherwise what is communicated
  std::string sort;  // "linear", "all-reduce over dp"
  double count = 0;  // of a rank, in a step
  Seconds predicted, measured;

  Seconds difference() const { return measured - predicted; }
};

struct RunComparison {
  // After the first, which fills caches and allocates; the first too if it is the only one.
  std::vector<Seconds> steps;
  std::int64_t first_step = 0, step = 0;  // that `steps` begins with; of median time. From 0
  Seconds predicted, measured;            // of a step; measured: the median, of `step`, as all that follows
  struct Rank {
    RankParts predicted, measured;
    Bytes predicted_peak, measured_peak;  // measured: the most of `steps`
    Seconds clock_ahead, round_trip;      // of its clock, that times were corrected by, and how sure that is
  };
  std::vector<Rank> ranks;
  std::vector<InstructionTimes> instructions;  // the largest difference first
  std::vector<std::string> assumptions = {};   // of the prediction
  MeasuredRun run;                             // of `step`
};

// A step of ranks' timelines, in the simulator's terms. `played` is recorded and not folded. An error names the
// instruction at which a rank and the program part, or a rank whose timeline has no such step.
Result<MeasuredRun> measured_run(const Plan& plan, const PlayedPlan& played,
                                 const std::vector<runtime::RankTimeline>& timelines, std::size_t step);

// `timelines` by rank.
Result<RunComparison> compare_run(const Plan& plan, const PlayedPlan& played, const Forecast& forecast,
                                  const std::vector<runtime::RankTimeline>& timelines);

// A page of at most 120 columns, with as many instructions as are asked for; docs/schema/run.schema.json, "comparison".
std::string describe(const RunComparison& comparison, std::size_t instructions = 8);
nlohmann::json to_json(const RunComparison& comparison, std::size_t instructions = 8);

}  // namespace weft
