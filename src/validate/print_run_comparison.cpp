#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/units.h"
#include "report/table.h"
#include "validate/run_comparison.h"

namespace weft {
namespace {

constexpr std::size_t kRanksShown = 16;

std::string signed_text(Seconds time) {
  return fmt::format("{}{}", time.value < 0 ? "−" : "+", human(Seconds{std::abs(time.value)}));
}

nlohmann::json to_json(const RankParts& parts) {
  return {{"busy", parts.busy.value},
          {"communication", parts.communication.value},
          {"waiting", parts.waiting.value},
          {"idle", parts.idle.value}};
}

}  // namespace

std::string describe(const RunComparison& comparison, std::size_t instructions) {
  const auto [least, most] = std::minmax_element(comparison.steps.begin(), comparison.steps.end());
  std::string text = fmt::format(
      "predicted {} a step, measured {} (the prediction is off by {:+.1f} %): the median of {} step{}{}, {} to {}\n",
      human(comparison.predicted), human(comparison.measured), 100 * (comparison.predicted / comparison.measured - 1),
      comparison.steps.size(), comparison.steps.size() == 1 ? "" : "s",
      comparison.first_step > 0 ? " after the first" : "", human(*least), human(*most));

  const auto pair = [](std::vector<std::string>& row, auto predicted, auto measured) {
    for (const auto& each : {predicted, measured}) row.push_back(each.value == 0 ? "0" : human(each));
  };
  Table ranks{std::vector<Column>(11, Column{.right = true})};
  ranks.add({"", "busy", "", "communication", "", "waiting", "", "idle", "", "peak memory", ""});
  ranks.add({"rank", "pred.", "meas.", "pred.", "meas.", "pred.", "meas.", "pred.", "meas.", "pred.", "meas."});
  for (std::size_t rank = 0; rank < std::min(comparison.ranks.size(), kRanksShown); ++rank) {
    const RunComparison::Rank& of = comparison.ranks[rank];
    std::vector<std::string> row = {fmt::format("{}", rank)};
    pair(row, of.predicted.busy, of.measured.busy);
    pair(row, of.predicted.communication, of.measured.communication);
    pair(row, of.predicted.waiting, of.measured.waiting);
    pair(row, of.predicted.idle, of.measured.idle);
    pair(row, of.predicted_peak, of.measured_peak);
    ranks.add(std::move(row));
  }
  text += fmt::format("\nwhere the time of step {} goes\n", comparison.step + 1) + ranks.print();
  if (comparison.ranks.size() > kRanksShown)
    text += fmt::format("  and {} more ranks (--json)\n", comparison.ranks.size() - kRanksShown);
  const auto furthest = std::max_element(
      comparison.ranks.begin(), comparison.ranks.end(),
      [](const auto& a, const auto& b) { return std::abs(a.clock_ahead.value) < std::abs(b.clock_ahead.value); });
  if (furthest != comparison.ranks.end() && comparison.ranks.size() > 1)
    text += fmt::format("  clocks differ by at most {}, known to {}\n",
                        human(Seconds{std::abs(furthest->clock_ahead.value)}), human(furthest->round_trip / 2));

  text += "\nwhere prediction and measurement part most, a rank's mean in a step\n";
  Table parts{{{.most = 44}, {.most = 26}, {.right = true}, {.right = true}, {.right = true}, {.right = true}}};
  parts.add({"operator or tensor", "what", "times", "predicted", "measured", "difference"});
  for (std::size_t i = 0; i < std::min(instructions, comparison.instructions.size()); ++i) {
    const InstructionTimes& each = comparison.instructions[i];
    parts.add({each.name, each.sort, fmt::format("{:.4g}", each.count), human(each.predicted), human(each.measured),
               signed_text(each.difference())});
  }
  return text + parts.print();
}

nlohmann::json to_json(const RunComparison& comparison, std::size_t instructions) {
  nlohmann::json json = {{"predicted_step_s", comparison.predicted.value},
                         {"measured_step_s", comparison.measured.value},
                         {"measured_steps_s", nlohmann::json::array()},
                         {"first_step", comparison.first_step + 1},
                         {"median_step", comparison.step + 1},
                         {"ranks", nlohmann::json::array()},
                         {"instructions", nlohmann::json::array()},
                         {"assumptions", comparison.assumptions}};
  for (Seconds step : comparison.steps) json["measured_steps_s"].push_back(step.value);
  for (std::size_t rank = 0; rank < comparison.ranks.size(); ++rank) {
    const RunComparison::Rank& of = comparison.ranks[rank];
    json["ranks"].push_back({{"rank", rank},
                             {"predicted_s", to_json(of.predicted)},
                             {"measured_s", to_json(of.measured)},
                             {"predicted_peak_bytes", of.predicted_peak.value},
                             {"measured_peak_bytes", of.measured_peak.value},
                             {"clock_ahead_s", of.clock_ahead.value},
                             {"clock_round_trip_s", of.round_trip.value}});
  }
  for (std::size_t i = 0; i < std::min(instructions, comparison.instructions.size()); ++i) {
    const InstructionTimes& each = comparison.instructions[i];
    json["instructions"].push_back({{"name", each.name},
                                    {"sort", each.sort},
                                    {"count", each.count},
                                    {"predicted_s", each.predicted.value},
                                    {"measured_s", each.measured.value}});
  }
  return json;
}

}  // namespace weft
