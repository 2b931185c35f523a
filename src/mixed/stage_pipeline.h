// The best cut of a chain of layers into pipeline stages on groups of devices of several kinds, in any order.
//
//   minimise  (m − 1) · C + S      over the order of groups, how many of each kind are used, and the layers of each
//     S = Σ t_i + 2 Σ x_i                               the way of one micro-batch through the pipeline and back
//     C = max over i of max(t_i, (Σ_{j ≥ i} t_j + 2 x_j) / (stages from i to the end))
//
// t_i is a stage's time for one of m micro-batches, x_i that of the transfer from stage i to the next. C is the time
// between micro-batches in 1F1B: that of the slowest stage, or of a way from some stage to the end and back divided by
// the micro-batches that the stage may have in flight (no more than m). The n-th stage from the end holds min(m, n)
// micro-batches, which decides whether it fits.
//
// A dynamic programme from the last stage to the first over (groups used of each kind, layers placed, kind of the front
// stage). Both C and S only grow, so of the ways into a state those are kept for which no other has both smaller
// (exact; compared with trying everything in stage_pipeline_test.cpp).
// Cost: at most Π (most_k + 1) · layers² · kinds · ways kept; a bound on what is left prunes most of it.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <vector>

namespace weft {

struct StagePipelineProblem {
  std::int64_t layers = 1;
  std::vector<std::int64_t> most;  // groups of each kind that there are
  std::int64_t micro_batches = 1;
  // Seconds of a micro-batch in a stage of `count` layers from `first` that has `from_end` stages from itself to the
  // end; infinite: it does not fit.
  std::function<double(std::size_t kind, std::int64_t first, std::int64_t count, std::int64_t from_end)> stage;
  std::function<double(std::size_t from, std::size_t to)> transfer;  // seconds, by kind
  // By kind, no more than stage(kind, …) / count; 0: unknown.
  std::vector<double> least_per_layer = {};
};

struct StagePipeline {
  struct Stage {
    std::size_t kind = 0;
    std::int64_t first = 0, count = 0;

    bool operator==(const Stage&) const = default;
  };
  std::vector<Stage> stages;
  double seconds = 0;
  double cycle = 0, way = 0;  // C and S
};

inline constexpr double kNoPipeline = std::numeric_limits<double>::infinity();

// The objective for given stages.
double pipeline_seconds(const StagePipelineProblem& problem, const std::vector<StagePipeline::Stage>& stages);

// None where nothing fits, or nothing takes less than `below` seconds.
std::optional<StagePipeline> best_pipeline(const StagePipelineProblem& problem, double below = kNoPipeline);

}  // namespace weft
