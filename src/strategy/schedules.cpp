#include "strategy/schedules.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace weft {
namespace {

constexpr std::array<PipelineSchedule, 8> kSchedules = {{
    {"gpipe", 1, false, 1, false, false},
    {"1f1b", 1, false, 1, false, false},
    {"interleaved", 0, false, 1, true, false},
    {"zb-h1", 1, false, 1, false, false},
    {"zb-h2", 1, false, 1, false, false},
    {"zb-v", 2, false, 1, false, false},
    {"dualpipe", 2, true, 2, false, true},
    {"dualpipe-v", 2, false, 2, false, false},
}};

// Ranks · chunks · micro-batches that a table holds (program/schedule.h).
constexpr std::int64_t kMostWork = std::int64_t{1} << 24;

}  // namespace

const PipelineSchedule* find_schedule(std::string_view name) {
  const auto found = std::find_if(kSchedules.begin(), kSchedules.end(), [&](const auto& s) { return s.name == name; });
  return found == kSchedules.end() ? nullptr : &*found;
}

std::vector<std::string> pipeline_schedule_names() {
  std::vector<std::string> names;
  for (const PipelineSchedule& schedule : kSchedules) names.emplace_back(schedule.name);
  return names;
}

std::int64_t chunk_count(const PipelineSchedule& schedule, std::int64_t interleave) {
  return schedule.chunks == 0 ? interleave : schedule.chunks;
}

std::int64_t stage_count(const PipelineSchedule& schedule, std::int64_t ranks, std::int64_t interleave) {
  return schedule.bidirectional ? ranks : ranks * chunk_count(schedule, interleave);
}

std::int64_t rank_of_stage(const PipelineSchedule& schedule, std::int64_t ranks, std::int64_t stage) {
  const bool folded = schedule.chunks == 2 && !schedule.bidirectional;  // down the ranks and back: a V
  return folded && stage >= ranks ? 2 * ranks - 1 - stage : stage % ranks;
}

std::vector<std::string> schedule_violations(const PipelineSchedule& schedule, std::int64_t ranks,
                                             std::int64_t interleave, std::int64_t micro_batches) {
  const auto up_to = [](std::int64_t value, std::int64_t unit) { return (value + unit - 1) / unit * unit; };
  std::vector<std::string> needs;
  if (schedule.chunks == 0 && interleave < 2)
    needs.push_back(
        fmt::format("schedule {} needs interleave, model chunks per rank, of 2 or more, not {}; for 1 take 1f1b",
                    schedule.name, interleave));
  if (schedule.chunks > 0 && interleave != 1 && interleave != schedule.chunks)
    needs.push_back(fmt::format("schedule {} has {} model chunk{} per rank, not interleave {}; take interleaved",
                                schedule.name, schedule.chunks, schedule.chunks == 1 ? "" : "s", interleave));
  if (schedule.even && ranks % 2 != 0)
    needs.push_back(fmt::format("schedule {} needs an even number of pipeline ranks, not pp={}", schedule.name, ranks));
  if (micro_batches < 1) {
    needs.push_back(fmt::format("micro_batches {}: at least 1", micro_batches));
    return needs;
  }
  const std::int64_t chunks = std::max<std::int64_t>(chunk_count(schedule, interleave), 1);
  if (micro_batches > kMostWork / chunks / ranks)
    needs.push_back(fmt::format("pp={} with {} chunks and {} micro-batches: at most {} in all", ranks, chunks,
                                micro_batches, kMostWork));
  if (schedule.multiple_of_ranks && micro_batches % ranks != 0)
    needs.push_back(fmt::format("schedule {} needs micro-batches in multiples of pp={}, not {}; take {}", schedule.name,
                                ranks, micro_batches, up_to(micro_batches, ranks)));
  const std::int64_t fewest = schedule.fewest_per_rank * ranks;
  if (schedule.fewest_per_rank > 1 && micro_batches < fewest)
    needs.push_back(
        fmt::format("schedule {} needs at least {} micro-batches on pp={}, not {}; enlarge the global batch",
                    schedule.name, fewest, ranks, micro_batches));
  else if (schedule.even && micro_batches % 2 != 0)
    needs.push_back(fmt::format("schedule {} needs an even number of micro-batches, not {}; take {}", schedule.name,
                                micro_batches, up_to(micro_batches, 2)));
  return needs;
}

}  // namespace weft
