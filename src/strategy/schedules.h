// Properties of pipeline schedules by name, needed before src/program makes their tables: the number of stages and the
// micro-batches they need. (This folder cannot include src/program; src/program/schedule_needs_test.cpp checks that the
// tables of both agree.)
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
  std::int64_t fewest_per_rank;  // at least this many micro-batches per rank
  bool multiple_of_ranks;        // the micro-batches are a multiple of the ranks
  bool even;                     // ranks and micro-batches are even
};

const PipelineSchedule* find_schedule(std::string_view name);  // null when there is none
std::vector<std::string> pipeline_schedule_names();

// Model chunks per rank; `interleave` is the strategy's, 1 by default.
std::int64_t chunk_count(const PipelineSchedule& schedule, std::int64_t interleave);
std::int64_t stage_count(const PipelineSchedule& schedule, std::int64_t ranks, std::int64_t interleave);
// The rank that holds a stage; if the schedule holds each stage twice, the one that runs micro-batch 0.
std::int64_t rank_of_stage(const PipelineSchedule& schedule, std::int64_t ranks, std::int64_t stage);
// Every need of the schedule that is not met, with the values and the remedy.
std::vector<std::string> schedule_violations(const PipelineSchedule& schedule, std::int64_t ranks,
                                             std::int64_t interleave, std::int64_t micro_batches);

}  // namespace weft
