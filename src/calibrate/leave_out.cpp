#include "calibrate/leave_out.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "calibrate/percent.h"
#include "report/interval.h"
#include "report/table.h"
#include "validate/score.h"

namespace weft {
namespace {

// Half-widths from the rows of all publications but one: by distance, and of rows with doubts.
struct Widths {
  std::array<double, kDistances> by_distance;
  double doubtful = 0;

  double of(const LeftOutRow& row) const {
    const double seen = by_distance[static_cast<std::size_t>(row.distance)];
    return row.kind.doubts.empty() ? seen : std::max(seen, doubtful);
  }
};

// Errors of the rows without their device are at the largest distance, where publications alone leave few. Rows with
// doubts count among themselves; where they are all there is, among the others too.
Widths widths_without(const std::vector<LeftOutRow>& rows, const std::string& publication, double level) {
  std::array<std::vector<double>, kDistances> errors;
  std::vector<double> doubtful;
  const bool all_doubtful =
      std::none_of(rows.begin(), rows.end(), [](const LeftOutRow& row) { return row.kind.doubts.empty(); });
  for (const LeftOutRow& row : rows) {
    if (row.publication == publication) continue;
    if (!row.kind.doubts.empty()) doubtful.push_back(row.left_out);
    if (!row.kind.doubts.empty() && !all_doubtful) continue;
    errors[static_cast<std::size_t>(row.distance)].push_back(row.left_out);
    errors[static_cast<std::size_t>(Distance::DeviceUnseen)].push_back(row.device_left_out);
  }
  return {half_widths(errors, level), half_width(doubtful, level)};
}

LeftOutScore score_of(const std::string& name, const std::vector<const LeftOutRow*>& rows) {
  std::vector<double> present, left_out, widths;
  int within = 0;
  for (const LeftOutRow* row : rows) {
    present.push_back(std::abs(std::exp(-row->present) - 1));
    left_out.push_back(std::abs(std::exp(-row->left_out) - 1));
    widths.push_back(row->half_width);
    within += row->within() ? 1 : 0;
  }
  return {name,
          static_cast<int>(rows.size()),
          mean(present),
          mean(left_out),
          within / std::max(1.0, static_cast<double>(rows.size())),
          median(widths)};
}

std::string source_of(const std::vector<LeftOutRow>& rows, Distance distance) {
  std::set<std::string> publications;
  int count = 0;
  for (const LeftOutRow& row : rows)
    if (row.distance == distance && row.kind.doubts.empty()) {
      ++count;
      publications.insert(row.publication);
    }
  return fmt::format("{} runs of {} publication{}, each left out of the fit", count, publications.size(),
                     publications.size() == 1 ? "" : "s");
}

Spread spread_of(const std::vector<LeftOutRow>& rows, const std::vector<double>& memory) {
  Spread spread;
  const auto [widths, doubtful] = widths_without(rows, "", spread.level);
  const auto with_doubts = static_cast<std::size_t>(
      std::count_if(rows.begin(), rows.end(), [](const LeftOutRow& row) { return !row.kind.doubts.empty(); }));
  for (std::size_t i = 0; i < kDistances; ++i) {
    std::string source = source_of(rows, static_cast<Distance>(i));
    if (static_cast<Distance>(i) == Distance::DeviceUnseen)
      source += fmt::format("; {} runs without all runs on their device", rows.size() - with_doubts);
    const bool pooled = (i > 0 && widths[i] == widths[i - 1]) || (i + 1 < kDistances && widths[i] == widths[i + 1]);
    spread.time[i] = {widths[i], source + (pooled ? "; pooled with neighbours of the same width" : "")};
  }
  spread.doubtful = {doubtful, fmt::format("{} runs, each left out of the fit", with_doubts)};
  spread.memory = {half_width(memory, spread.level),
                   fmt::format("{} runs with measured memory, to which weft calibrate fits nothing", memory.size())};
  for (const LeftOutRow& row : rows) spread.seen.add(row.kind);
  return spread;
}

nlohmann::json score_json(const LeftOutScore& score) {
  return {{"rows", score.rows},
          {"mape_present", score.present},
          {"mape_left_out", score.left_out},
          {"within_interval", score.within},
          {"median_half_width", score.half_width}};
}

}  // namespace

bool LeftOutRow::within() const { return std::abs(left_out) <= half_width; }

LeftOut scored(std::vector<LeftOutRow> rows, const std::vector<double>& memory) {
  LeftOut out;
  std::vector<std::string> names;
  for (const LeftOutRow& row : rows)
    if (std::find(names.begin(), names.end(), row.publication) == names.end()) names.push_back(row.publication);
  for (const std::string& name : names) {
    SeenRuns others;
    for (const LeftOutRow& row : rows)
      if (row.publication != name) others.add(row.kind);
    for (LeftOutRow& row : rows)
      if (row.publication == name) row.distance = others.distance(row.kind);
  }
  out.spread = spread_of(rows, memory);
  for (const std::string& name : names) {
    const Widths widths = widths_without(rows, name, out.spread.level);
    for (LeftOutRow& row : rows)
      if (row.publication == name) row.half_width = widths.of(row);
  }
  out.rows = std::move(rows);
  std::vector<const LeftOutRow*> all;
  for (const std::string& name : names) {
    std::vector<const LeftOutRow*> own;
    for (const LeftOutRow& row : out.rows)
      if (row.publication == name) own.push_back(&row);
    out.publications.push_back(score_of(name, own));
    all.insert(all.end(), own.begin(), own.end());
  }
  out.all = score_of("all rows", all);
  out.mean.name = "mean over publications";
  for (const LeftOutScore& score : out.publications) {
    const auto count = static_cast<double>(out.publications.size());
    out.mean.rows += score.rows;
    out.mean.present += score.present / count;
    out.mean.left_out += score.left_out / count;
    out.mean.within += score.within / count;
    out.mean.half_width += score.half_width / count;
  }
  return out;
}

std::string describe(const LeftOut& found) {
  Table table{{{}, {true}, {true}, {true}, {true}, {true}}};
  table.add({"left out", "rows", "known", "left out", "within interval", "median half-width"});
  const auto add = [&](const LeftOutScore& score) {
    table.add({score.name, fmt::format("{}", score.rows), percent(score.present), percent(score.left_out),
               percent(score.within), percent(score.half_width)});
  };
  for (const LeftOutScore& score : found.publications) add(score);
  add(found.mean);
  add(found.all);
  return "errors of time with each publication left out of the fit\n" + table.print();
}

std::string markdown_of(const LeftOut& found) {
  std::string text =
      "| publication left out | rows | error, known | error, left out | within the 80 % interval | median half-width "
      "|\n"
      "|---|---:|---:|---:|---:|---:|\n";
  const auto add = [&](const LeftOutScore& score, const std::string& name) {
    text += fmt::format("| {} | {} | {} | {} | {} | {} |\n", name, score.rows, percent(score.present),
                        percent(score.left_out), percent(score.within), percent(score.half_width));
  };
  for (const LeftOutScore& score : found.publications) add(score, score.name);
  add(found.mean, "**mean over publications**");
  add(found.all, "**all rows**");
  return text;
}

nlohmann::json to_json(const LeftOut& found) {
  nlohmann::json json = {{"level", found.spread.level}, {"publications", nlohmann::json::array()}};
  for (const LeftOutScore& score : found.publications) {
    nlohmann::json each = score_json(score);
    each["publication"] = score.name;
    json["publications"].push_back(std::move(each));
  }
  json["mean"] = score_json(found.mean);
  json["all"] = score_json(found.all);
  json["half_widths"] = nlohmann::json::array();
  for (const Figure<double>& each : found.spread.time) json["half_widths"].push_back(each.value);
  json["doubtful_half_width"] = found.spread.doubtful.value;
  json["memory_half_width"] = found.spread.memory.value;
  return json;
}

}  // namespace weft
