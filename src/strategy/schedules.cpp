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

std::int64_t stage_count(const PipelineSchedule& schedule, std::int64_t ranks, std::int64_t chunks) {
  if (schedule.bidirectional) return ranks;
  return ranks * (schedule.chunks == 0 ? chunks : schedule.chunks);
}

std::string schedule_violation(const PipelineSchedule& schedule, std::int64_t ranks, std::int64_t micro_batches) {
  if (ranks == 1) return {};
  const auto up_to = [](std::int64_t value, std::int64_t unit) { return (value + unit - 1) / unit * unit; };
  if (schedule.even && ranks % 2 != 0)
    return fmt::format("schedule {} needs an even number of pipeline ranks, not pp={}", schedule.name, ranks);
  if (schedule.multiple_of_ranks && micro_batches % ranks != 0)
    return fmt::format("schedule {} needs micro-batches in multiples of pp={}, not {}; take {}", schedule.name, ranks,
                       micro_batches, up_to(micro_batches, ranks));
  if (schedule.fewest_per_rank > 1 && micro_batches < schedule.fewest_per_rank * ranks)
    return fmt::format("schedule {} needs at least {} micro-batches on pp={}, not {}; enlarge the global batch",
                       schedule.name, schedule.fewest_per_rank * ranks, ranks, micro_batches);
  if (schedule.even && micro_batches % 2 != 0)
    return fmt::format("schedule {} needs an even number of micro-batches, not {}; take {}", schedule.name,
                       micro_batches, up_to(micro_batches, 2));
  return {};
}

}  // namespace weft
