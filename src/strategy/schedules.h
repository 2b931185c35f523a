// What a strategy must know of a pipeline schedule by name, before src/program makes its table: how many stages it has
// and how many micro-batches it needs.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace weft {

struct PipelineSchedule {
  std::string_view name;
  std::int64_t chunks;           // model chunks per pipeline rank; 0: as many as asked for, at least 2
  bool bidirectional;            // every stage is held twice: as many stages as ranks
  std::int64_t fewest_per_rank;  // micro-batches: at least so many times the ranks
  bool multiple_of_ranks;        // and a multiple of them
  bool even;                     // ranks and micro-batches even
};

const PipelineSchedule* find_schedule(std::string_view name);  // null when there is none
std::vector<std::string> pipeline_schedule_names();

std::int64_t stage_count(const PipelineSchedule& schedule, std::int64_t ranks, std::int64_t chunks);
// Empty, or which need of the schedule is not met, with the values and the remedy.
std::string schedule_violation(const PipelineSchedule& schedule, std::int64_t ranks, std::int64_t micro_batches);

}  // namespace weft
