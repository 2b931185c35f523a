#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>

#include "base/yaml_node.h"
#include "calibrate/calibrate.h"
#include "calibrate/percent.h"
#include "report/table.h"

namespace weft {
namespace {

std::string shown(const FittedConstant& constant, double value) {
  return is_time(constant.places.front()) ? fmt::format("{:.4g}us", value * 1e6) : fmt::format("{:.4g}", value);
}

std::vector<std::string> parts_of(const std::string& path) {
  std::vector<std::string> parts(1);
  for (char c : path)
    if (c == '/')
      parts.emplace_back();
    else
      parts.back() += c;
  return parts;
}

nlohmann::json score_json(const FitScore& score) {
  return {{"name", score.name},
          {"rows", score.rows},
          {"mape_present", score.present},
          {"mape_pulled_to", score.pulled_to},
          {"mape_fitted", score.fitted}};
}

void add_scores(std::string& text, const std::string& title, const std::vector<FitScore>& scores) {
  if (scores.empty()) return;
  Table table{{{}, {true}, {true}, {true}, {true}}};
  table.add({title, "rows", "present", "start", "fitted"});
  for (const FitScore& score : scores)
    table.add({score.name, fmt::format("{}", score.rows), percent(score.present), percent(score.pulled_to),
               percent(score.fitted)});
  text += "\n" + table.print();
}

}  // namespace

std::string overlay_of(const CalibrationResult& result) {
  using Items = std::vector<std::string>;
  std::map<std::string, std::map<std::string, Items>> sections;      // by section and name; empty: the section's own
  std::map<std::pair<std::string, std::string>, Items> of_products;  // by device and key: values of each arithmetic
  for (const FittedValue& value : result.constants)
    for (const std::string& place : value.constant.places) {
      const std::vector<std::string> parts = parts_of(place);
      Items& items =
          parts.size() == 4 ? of_products[{parts[1], parts[2]}] : sections[parts[0]][parts.size() == 3 ? parts[1] : ""];
      items.push_back(
          fmt::format("{}: [{}, {}]", parts.back(), shown(value.constant, value.fitted), value.constant.name));
    }
  for (const auto& [key, items] : of_products)
    sections["devices"][key.first].push_back(fmt::format("{}: {{{}}}", key.second, fmt::join(items, ", ")));

  std::string text =
      "# Constants fitted by `weft calibrate`, laid over the built-in ones: weft simulate, validate … --calibration "
      "FILE.\n";
  const FitScore& all = result.files.back();
  text += fmt::format("# Mean error of time over the {} rows fitted: {}; before {}.\n", result.rows,
                      percent(all.fitted), percent(all.present));
  for (const FitScore& score : result.left_out)
    text += fmt::format("#   {}: {} over the {} rows left out\n", score.name, percent(score.fitted), score.rows);
  text += "sources:\n";
  for (const FittedValue& value : result.constants) {
    const bool prior = value.pulled_to == value.constant.prior.value;
    text +=
        fmt::format("  {}: {}\n", value.constant.name,
                    yaml_quoted(fmt::format("weft calibrate: {} (time goes with its power {:.2f}); pulled to {}, {}",
                                            value.evidence, value.power, shown(value.constant, value.pulled_to),
                                            prior ? value.constant.prior.source : "the value before")));
  }
  for (const auto& [section, names] : sections) {
    text += section + ":\n";
    for (const auto& [name, items] : names) {
      if (name.empty())
        for (const std::string& item : items) text += "  " + item + "\n";
      else
        text += fmt::format("  {}: {{{}}}\n", name, fmt::join(items, ", "));
    }
  }
  return text;
}

std::string describe(const CalibrationResult& result) {
  Table table{{{}, {true}, {true}, {true}, {}, {true}, {true}}};
  table.add({"constant", "present", "start", "fitted", "bounds", "rows", "power"});
  for (const FittedValue& value : result.constants)
    table.add({value.constant.name, shown(value.constant, value.present), shown(value.constant, value.pulled_to),
               shown(value.constant, value.fitted),
               fmt::format(
                   "{} … {}{}", shown(value.constant, value.constant.least), shown(value.constant, value.constant.most),
                   value.fitted <= value.constant.least || value.fitted >= value.constant.most ? " (at one)" : ""),
               fmt::format("{}", value.rows), fmt::format("{:.2f}", value.power)});
  std::string text = fmt::format("{} constants fitted to {} rows\n", result.constants.size(), result.rows);
  text += table.print();
  add_scores(text, "errors of time", result.files);
  add_scores(text, "not seen by the fit", result.left_out);
  if (!result.untouched.empty())
    text += fmt::format("\nconstants that no row feels: {}\n", fmt::join(result.untouched, ", "));
  if (!result.skipped.empty()) text += "\nskipped\n";
  for (const SkippedRow& row : result.skipped) text += fmt::format("  {}:{}: {}\n", row.file, row.line, row.reason);
  return text;
}

std::string json_of(const CalibrationResult& result) {
  nlohmann::json json = {{"rows", result.rows}, {"untouched", result.untouched}};
  for (const char* list : {"constants", "files", "left_out", "skipped"}) json[list] = nlohmann::json::array();
  for (const FittedValue& value : result.constants)
    json["constants"].push_back({{"name", value.constant.name},
                                 {"places", value.constant.places},
                                 {"present", value.present},
                                 {"pulled_to", value.pulled_to},
                                 {"fitted", value.fitted},
                                 {"least", value.constant.least},
                                 {"most", value.constant.most},
                                 {"rows", value.rows},
                                 {"power", value.power},
                                 {"evidence", value.evidence}});
  for (const FitScore& score : result.files) json["files"].push_back(score_json(score));
  for (const FitScore& score : result.left_out) json["left_out"].push_back(score_json(score));
  for (const SkippedRow& row : result.skipped)
    json["skipped"].push_back({{"file", row.file}, {"line", row.line}, {"reason", row.reason}});
  return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace weft
