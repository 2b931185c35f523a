#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/units.h"
#include "report/table.h"
#include "validate/searched.h"

namespace weft {
namespace {

std::string short_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

struct Sum {
  std::string file;
  std::size_t rows = 0, held = 0, unfit = 0;  // unfit: the published plan does not fit by the memory model
  std::vector<double> ratios;                 // found over published time, of rows that hold
  double worst = 0;

  void add(const SearchedRow& row) {
    ++rows;
    held += row.holds();
    unfit += !row.published_fits;
    if (row.holds()) ratios.push_back(row.found_s / row.published_s);
    worst = std::max(worst, row.over());
  }
  double median() const { return weft::median(ratios); }
};

std::vector<Sum> sums_of(const SearchValidation& validation, Sum& total) {
  std::vector<Sum> files;
  for (const SearchedRow& row : validation.rows) {
    if (files.empty() || files.back().file != row.file) files.emplace_back().file = row.file;
    files.back().add(row);
    total.add(row);
  }
  return files;
}

nlohmann::json json_of(const Sum& sum) {
  return {{"rows", sum.rows},
          {"hold", sum.held},
          {"published_does_not_fit", sum.unfit},
          {"median_found_over_published", sum.median()},
          {"worst_regret", sum.worst}};
}

}  // namespace

std::string describe(const SearchValidation& validation, std::size_t worst) {
  Sum total;
  Table table{{{}, {true}, {true}, {true}, {true}, {true}}};
  table.add({"", "rows", "as fast or faster", "found / published", "worst", "with more memory"});
  const auto add = [&](const Sum& sum, const std::string& name) {
    table.add({name, fmt::format("{}", sum.rows), fmt::format("{}", sum.held), fmt::format("{:.2f}", sum.median()),
               sum.worst > 0 ? fmt::format("{:+.1f} %", 100 * sum.worst) : "", fmt::format("{}", sum.unfit)});
  };
  const std::vector<Sum> files = sums_of(validation, total);
  for (const Sum& sum : files) add(sum, short_name(sum.file));
  if (files.size() > 1) add(total, "all");
  std::string text = fmt::format(
      "plans that were run against those that weft plan finds for the same model, cluster and batch: predicted times\n"
      "{}{}\n{} problems searched: {} plans considered, {} simulated\n",
      table.print(),
      total.unfit > 0 ? "with more memory: what was run does not fit by the memory model; the search may fill devices "
                        "as far\n"
                      : "",
      validation.problems, grouped(validation.considered), grouped(validation.simulated));
  std::vector<const SearchedRow*> missed;
  for (const SearchedRow& row : validation.rows)
    if (!row.holds()) missed.push_back(&row);
  std::stable_sort(missed.begin(), missed.end(),
                   [](const SearchedRow* a, const SearchedRow* b) { return a->over() > b->over(); });
  if (!missed.empty()) {
    Table rows{{{}, {}, {true}, {}, {true}, {}}};
    rows.add({"slower", "published", "predicted", "found", "slower by", "why"});
    for (std::size_t i = 0; i < std::min(worst, missed.size()); ++i) {
      const SearchedRow& row = *missed[i];
      rows.add({fmt::format("{}:{}", short_name(row.file), row.line),
                fmt::format("{} {} {}", row.model, row.request.cluster, row.request.strategy),
                fmt::format("{:.4g} s", row.published_s), row.found.empty() ? "nothing" : row.found,
                row.found.empty() ? "" : fmt::format("{:+.1f} %", 100 * row.over()), row.why});
    }
    rows.columns[1].most = rows.columns[3].most = 32;
    rows.columns[5].most = 40;
    text += "\n" + rows.print();
    if (missed.size() > worst) text += fmt::format("… and {} more (--top)\n", missed.size() - worst);
  }
  if (!validation.skipped.empty()) text += "\nskipped\n";
  for (const SkippedRow& row : validation.skipped)
    text += fmt::format("  {}:{}: {}\n", short_name(row.file), row.line, row.reason);
  return text;
}

std::string json_of(const SearchValidation& validation) {
  Sum total;
  nlohmann::json json;
  json["files"] = nlohmann::json::array();
  for (const Sum& sum : sums_of(validation, total)) {
    json["files"].push_back(json_of(sum));
    json["files"].back()["file"] = sum.file;
  }
  json["total"] = json_of(total);
  json["problems"] = validation.problems;
  json["considered"] = validation.considered;
  json["simulated"] = validation.simulated;
  json["rows"] = nlohmann::json::array();
  for (const SearchedRow& row : validation.rows) {
    json["rows"].push_back({{"file", row.file},
                            {"line", row.line},
                            {"model", row.model},
                            {"measured_s", row.measured_s},
                            {"published",
                             {{"cluster", row.request.cluster},
                              {"strategy", row.request.strategy},
                              {"predicted_s", row.published_s},
                              {"device_bytes", row.published_bytes},
                              {"feasible", row.published_fits}}},
                            {"found", nullptr},
                            {"holds", row.holds()}});
    if (!row.found.empty()) json["rows"].back()["found"] = {{"strategy", row.found}, {"predicted_s", row.found_s}};
    if (!row.why.empty()) json["rows"].back()["why"] = row.why;
  }
  json["skipped"] = nlohmann::json::array();
  for (const SkippedRow& row : validation.skipped)
    json["skipped"].push_back({{"file", row.file}, {"line", row.line}, {"reason", row.reason}});
  return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace weft
