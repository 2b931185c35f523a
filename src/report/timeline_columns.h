// A recorded run as columns, a row for every executed task: for arrays and data frames.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "forecast/forecast.h"

namespace weft {

// Rows are by rank, then in the order in which the host issued them. Times are picoseconds from the step's begin.
struct TimelineColumns {
  // Names of what the columns below them number.
  std::vector<std::string> operations;                         // "layers.3.attn.qkv", "all-gather over tp of …"
  std::vector<std::string> activities, streams, bodies;        // "compute", "tensor", …; "forward", "backward", …
  std::vector<std::int32_t> rank, pipeline_rank, micro_batch;  // micro_batch −1: of the step
  std::vector<std::int32_t> operation, activity, stream, body;
  std::vector<std::int64_t> issued, start, work, end;  // as in Span

  std::size_t rows() const { return rank.size(); }
};

// Of these ranks; none: one of each class. `played` is recorded. An error: no such rank. Cost: linear in the rows.
Result<TimelineColumns> timeline_columns(const Plan& plan, const PlayedPlan& played,
                                         std::vector<std::int64_t> ranks = {});

// "forward", "backward", "backward, inputs", "backward, weights", "step".
std::string_view body_name(const IssuedBody& issued);

}  // namespace weft
