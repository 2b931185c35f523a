#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/units.h"
#include "report/interval.h"
#include "report/table.h"
#include "validate/validate.h"

namespace weft {
namespace {

std::string percent(double share) { return fmt::format("{:.1f} %", 100 * share); }
std::string signed_percent(double share) { return fmt::format("{:+.1f} %", 100 * share); }

std::string short_name(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  return slash == std::string::npos ? path : path.substr(slash + 1);
}

void add_score(Table& table, const TableScore& score) {
  const bool timed = score.rows > score.untimed;
  table.add({score.name.empty() ? "all" : short_name(score.name), fmt::format("{}", score.rows),
             fmt::format("{}", score.skipped), timed ? percent(score.mape) : "", timed ? percent(score.median_ape) : "",
             timed ? signed_percent(score.bias) : "",
             score.order.pairs() > 0 ? fmt::format("{:.2f}", score.order.tau()) : "",
             score.worst_regret > 0 ? percent(score.worst_regret) : "",
             score.memory_rows > 0 ? fmt::format("{}", score.memory_rows) : "",
             score.memory_rows > 0 ? percent(score.memory_mape) : "",
             score.untimed > 0 && score.scaling_pairs > 0 ? percent(score.scaling_mape) : "",
             score.untimed > 0 ? percent(score.untimed_mape) : ""});
}

std::string where(const Prediction& row) { return fmt::format("{}:{}", short_name(row.file), row.line); }

// The strategy, truncated if it names many layers.
std::string plan_text(const Prediction& row) {
  constexpr std::size_t kMost = 100;
  const std::string& strategy = row.request.strategy;
  return fmt::format("{} {} {}{}", row.model, row.request.cluster, strategy.substr(0, kMost),
                     strategy.size() > kMost ? "…" : "");
}

std::string parts_of(const Prediction& row) {
  std::vector<std::string> parts;
  const StepBreakdown& breakdown = *row.breakdown;
  const auto add = [&](std::string_view name, Picoseconds time) {
    const double share = seconds_of(time) / row.predicted_s;
    if (share >= 0.005) parts.push_back(fmt::format("{} {:.0f} %", name, 100 * share));
  };
  for (int i = 0; i < kActivities; ++i) {
    const auto activity = static_cast<Activity>(i);
    add(name_of(activity), breakdown[activity]);
  }
  add("bubble", breakdown.bubble + breakdown.imbalance);
  add("waiting", breakdown.waiting);
  add("host", breakdown.host_bound);
  add("done", breakdown.done);
  return fmt::format("{}", fmt::join(parts, ", "));
}

// The distinct sentences of all rows, each with its file and the number of its rows; empty if there are none.
std::string distinct_lines(const Validation& validation, std::vector<std::string> Prediction::*of,
                           std::string_view title) {
  std::vector<std::pair<std::string, int>> lines;
  for (const Prediction& row : validation.predictions)
    for (const std::string& sentence : row.*of) {
      std::string line = short_name(row.file) + ": " + sentence;
      const auto known = std::find_if(lines.begin(), lines.end(), [&](const auto& each) { return each.first == line; });
      if (known == lines.end())
        lines.emplace_back(std::move(line), 1);
      else
        ++known->second;
    }
  if (lines.empty()) return "";
  std::string text = fmt::format("\n{}\n", title);
  for (const auto& [line, count] : lines) text += fmt::format("  {} ({} row{})\n", line, count, count == 1 ? "" : "s");
  return text;
}

nlohmann::json score_json(const TableScore& score) {
  nlohmann::json json = {{"rows", score.rows},
                         {"mape", score.mape},
                         {"median_ape", score.median_ape},
                         {"bias", score.bias},
                         {"pairs", score.order.pairs()},
                         {"within_interval", score.within},
                         {"median_half_width", score.half_width},
                         {"called_out_of_memory", score.called_out},
                         {"memory_rows", score.memory_rows},
                         {"memory_mape", score.memory_mape},
                         {"memory_median_ape", score.memory_median_ape},
                         {"worst_regret", score.worst_regret}};
  if (score.untimed > 0) {
    json["untimed_rows"] = score.untimed;
    json["untimed_mape"] = score.untimed_mape;
  }
  if (score.scaling_pairs > 0) {
    json["scaling_pairs"] = score.scaling_pairs;
    json["scaling_mape"] = score.scaling_mape;
  }
  json["kendall_tau"] = score.order.pairs() > 0 ? nlohmann::json(score.order.tau()) : nlohmann::json();
  return json;
}

nlohmann::json skipped_json(const std::vector<SkippedRow>& skipped, const std::string& file) {
  nlohmann::json list = nlohmann::json::array();
  for (const SkippedRow& row : skipped)
    if (file.empty() || row.file == file)
      list.push_back({{"file", row.file}, {"line", row.line}, {"reason", row.reason}});
  return list;
}

nlohmann::json prediction_json(const Prediction& row) {
  nlohmann::json json = {{"file", row.file},
                         {"line", row.line},
                         {"source", row.source},
                         {"model", row.model},
                         {"gpu", row.gpu},
                         {"gpus", row.gpus},
                         {"compared", name_of(row.measure)},
                         {"measured_s", row.measured_s},
                         {"predicted_s", row.predicted_s},
                         {"error", row.error},
                         {"interval", to_json(row.interval)},
                         {"feasible", row.feasible},
                         {"memory_verdict", name_of(row.fit)},
                         {"publication", row.publication},
                         {"group", row.group},
                         {"timed", row.timed},
                         {"overrides", row.overrides},
                         {"notes", row.notes},
                         {"plan",
                          {{"model", row.request.model},
                           {"cluster", row.request.cluster},
                           {"strategy", row.request.strategy},
                           {"global_batch", *row.request.global_batch},
                           {"dtype", row.request.dtype},
                           {"stack", row.request.stack}}}};
  if (row.request.device_count) json["plan"]["devices"] = *row.request.device_count;
  if (row.request.micro_batch) json["plan"]["micro_batch"] = *row.request.micro_batch;
  if (row.request.seq) json["plan"]["seq"] = *row.request.seq;
  if (row.predicted_gib)
    json["memory"] = {{"kind", name_of(row.memory)},
                      {"measured_gib", *row.measured_gib},
                      {"predicted_gib", *row.predicted_gib},
                      {"error", row.memory_error}};
  if (row.breakdown) {
    nlohmann::json& breakdown = json["breakdown_s"];
    for (int i = 0; i < kActivities; ++i) {
      const auto activity = static_cast<Activity>(i);
      breakdown[std::string(name_of(activity))] = seconds_of((*row.breakdown)[activity]);
    }
    breakdown["bubble"] = seconds_of(row.breakdown->bubble + row.breakdown->imbalance);
    breakdown["waiting"] = seconds_of(row.breakdown->waiting);
    breakdown["host"] = seconds_of(row.breakdown->host_bound);
    breakdown["done"] = seconds_of(row.breakdown->done);
    for (const auto& [what, time] : row.path) json["critical_path_s"][what] = time;
  }
  return json;
}

}  // namespace

std::string describe(const Validation& validation) {
  Table table{{{}, {true}, {true}, {true}, {true}, {true}, {true}, {true}, {true}, {true}, {true}, {true}}};
  table.add({"", "rows", "skipped", "MAPE", "median", "bias", "τ", "regret", "memory rows", "MAPE", "scaling 1→8",
             "untimed"});
  for (const TableScore& score : validation.files) add_score(table, score);
  for (const TableScore& score : validation.sets) add_score(table, score);
  if (validation.files.size() > 1) add_score(table, validation.total);
  std::string text = "predicted against measured: errors of time, predicted over measured\n" + table.print();

  if (validation.total.rows > validation.total.untimed)
    text += fmt::format("{} of the times are within their {:.0f} % interval; its median is {}\n",
                        percent(validation.total.within), 100 * built_in_spread().level,
                        half_width_text(validation.total.half_width));
  if (validation.total.called_out > 0)
    text += fmt::format("{} of the runs are said not to fit their devices' memory\n", validation.total.called_out);
  if (validation.files.empty()) text.clear();
  if (!validation.curves.empty()) {
    Table curves{{{}, {true}, {true}, {true}, {true}}};
    curves.add({"all-reduces", "points", "skipped", "median", "MAPE"});
    for (const CurveValidation& each : validation.curves)
      curves.add({short_name(each.file), fmt::format("{}", each.points.size()), fmt::format("{}", each.skipped.size()),
                  percent(each.median_ape), percent(each.mape)});
    text += "\n" + curves.print();
  }

  if (!validation.layers.empty()) {
    Table layers{{{}, {true}, {true}, {true}, {true}, {true}}};
    layers.add({"layers of experts", "points", "skipped", "forward", "backward", "memory"});
    for (const LayerValidation& each : validation.layers) {
      layers.add({short_name(each.file), fmt::format("{}", each.points.size()), fmt::format("{}", each.skipped.size()),
                  percent(each.forward_mape), percent(each.backward_mape), percent(each.memory_mape)});
      for (const LayerPoint& point : each.points)
        layers.add({"  " + point.name, "", "", signed_percent(point.forward_error()),
                    signed_percent(point.backward_error()), signed_percent(point.memory_error())});
    }
    text += "\n" + layers.print();
  }

  if (!validation.worst.empty()) {
    Table rows{{{}, {}, {true}, {true}, {true}, {}}};
    rows.add({"worst", "plan", "measured", "predicted", "error", "where the time goes"});
    for (std::size_t index : validation.worst) {
      const Prediction& row = validation.predictions[index];
      rows.add({where(row), plan_text(row), fmt::format("{:.4g} s", row.measured_s),
                fmt::format("{:.4g} s", row.predicted_s), signed_percent(row.error),
                row.breakdown ? parts_of(row) : ""});
    }
    rows.columns[1].most = 34;
    rows.columns[5].most = 36;
    text += "\n" + rows.print();
  }
  text += distinct_lines(validation, &Prediction::overrides, "cells that a source's own pages correct");
  text += distinct_lines(validation, &Prediction::notes, "noted");
  if (!validation.skipped.empty()) text += "\nskipped\n";
  for (const SkippedRow& row : validation.skipped)
    text += fmt::format("  {}:{}: {}\n", short_name(row.file), row.line, row.reason);
  return text;
}

std::string markdown_of(const Validation& validation) {
  std::string text =
      "| table or set | rows | MAPE | median | bias | τ | regret | memory MAPE (rows) | scaling 1→8 |\n"
      "|---|---:|---:|---:|---:|---:|---:|---:|---:|\n";
  const auto add = [&](const TableScore& score, const std::string& name) {
    const bool timed = score.rows > score.untimed;
    text +=
        fmt::format("| {} | {} | {} | {} | {} | {} | {} | {} | {} |\n", name, score.rows,
                    timed ? percent(score.mape) : "not scored", timed ? percent(score.median_ape) : "",
                    timed ? signed_percent(score.bias) : "",
                    score.order.pairs() > 0 ? fmt::format("{:.2f}", score.order.tau()) : "",
                    score.worst_regret > 0 ? percent(score.worst_regret) : "",
                    score.memory_rows > 0 ? fmt::format("{} ({})", percent(score.memory_mape), score.memory_rows) : "",
                    score.scaling_pairs > 0 ? percent(score.scaling_mape) : "");
  };
  for (const TableScore& score : validation.files) add(score, short_name(score.name));
  for (const TableScore& score : validation.sets) add(score, "*" + score.name + "*");
  if (!validation.files.empty()) add(validation.total, "**all**");
  for (const CurveValidation& each : validation.curves)
    text += fmt::format("| {}: all-reduces | {} | {} | {} | | | | | |\n", short_name(each.file), each.points.size(),
                        percent(each.mape), percent(each.median_ape));
  for (const LayerValidation& each : validation.layers)
    text += fmt::format("| {}: forward / backward | {} | {} / {} | | | | | {} ({}) | |\n", short_name(each.file),
                        each.points.size(), percent(each.forward_mape), percent(each.backward_mape),
                        percent(each.memory_mape), each.points.size());
  return text;
}

nlohmann::json to_json(const Validation& validation) {
  nlohmann::json json;
  json["files"] = nlohmann::json::array();
  for (const TableScore& score : validation.files) {
    nlohmann::json file = score_json(score);
    file["file"] = score.name;
    file["skipped"] = score.skipped;
    json["files"].push_back(std::move(file));
  }
  json["sets"] = nlohmann::json::array();
  for (const TableScore& score : validation.sets) {
    nlohmann::json set = score_json(score);
    set["set"] = score.name;
    json["sets"].push_back(std::move(set));
  }
  json["curves"] = nlohmann::json::array();
  for (const CurveValidation& each : validation.curves)
    json["curves"].push_back({{"file", each.file},
                              {"points", each.points.size()},
                              {"median_ape", each.median_ape},
                              {"mape", each.mape},
                              {"skipped", skipped_json(each.skipped, "")}});
  json["layers"] = nlohmann::json::array();
  for (const LayerValidation& each : validation.layers)
    json["layers"].push_back({{"file", each.file},
                              {"points", each.points.size()},
                              {"forward_mape", each.forward_mape},
                              {"backward_mape", each.backward_mape},
                              {"memory_mape", each.memory_mape},
                              {"skipped", skipped_json(each.skipped, "")}});
  json["total"] = score_json(validation.total);
  json["total"]["skipped"] = skipped_json(validation.skipped, "");
  json["predictions"] = nlohmann::json::array();
  for (const Prediction& row : validation.predictions) json["predictions"].push_back(prediction_json(row));
  return json;
}

}  // namespace weft
