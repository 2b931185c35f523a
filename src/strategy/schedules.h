// What a strategy must know of a pipeline schedule by name, before src/program makes its table: how many stages it has
// and how many micro-batches it needs. (src/program stands after this folder and says the same of its own tables;
// tests/schedule_needs_test.cpp holds the two to one another.)
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

// Model chunks per rank; `interleave` is what the strategy asks for, 1 where it says nothing.
std::int64_t chunk_count(const PipelineSchedule& schedule, std::int64_t interleave);
std::int64_t stage_count(const PipelineSchedule& schedule, std::int64_t ranks, std::int64_t interleave);
// The rank that holds a stage; of a schedule that holds each twice, the one that micro-batch 0 goes through.
std::int64_t rank_of_stage(const PipelineSchedule& schedule, std::int64_t ranks, std::int64_t stage);
// Every need of the schedule that is not met, with the values and the remedy.
std::vector<std::string> schedule_violations(const PipelineSchedule& schedule, std::int64_t ranks,
                                             std::int64_t interleave, std::int64_t micro_batches);

}  // namespace weft
