// How far the analytic and the measured model are from measured operators.
//
//   cost_check [--device h200] [--tuning FILE.yaml] [--all|--fitted] [--by-label] [--rows] [--json] [FILE.csv…]
//   cost_check --fit ENTRY [--only GROUP] [--source NAME] FILE.csv…
//
// Predicts the operators of measured tables (cost_check_rows.h) and prints, for each device and operator, the error on
// rows held out of fits; with --all all rows, with --fitted the others, by the analytic model only.
// The profile of the measured model are the rows that are not held out (cost_check_measured.h). Without files:
// measurements/h200 and those of $MEASURED/aux (default ../shared/measured) that exist; missing ones are reported.
// --tuning overrides built-in constants. --fit prints the fitted constants of an entry (cost_check_fit.h).
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cost_check_fit.h"
#include "cost_check_measured.h"
#include "cost_check_rows.h"
#include "graph/operators.h"

namespace weft {
namespace {

// Predicted / measured, of the rows of one kind.
class Ratios {
 public:
  void add(double ratio) { ratios_.push_back(ratio); }
  std::size_t count() const { return ratios_.size(); }

  double quantile(double share) const {
    std::vector<double> sorted = ratios_;
    std::sort(sorted.begin(), sorted.end());
    return at(sorted, share);
  }
  double median_error() const {
    std::vector<double> wrong = errors();
    std::sort(wrong.begin(), wrong.end());
    return at(wrong, 0.5);
  }
  double mean_error() const {
    double sum = 0;
    for (double w : errors()) sum += w;
    return sum / static_cast<double>(ratios_.size());
  }

 private:
  static double at(const std::vector<double>& sorted, double share) {
    return sorted[static_cast<std::size_t>(share * static_cast<double>(sorted.size() - 1))];
  }
  std::vector<double> errors() const {
    std::vector<double> wrong;
    for (double ratio : ratios_) wrong.push_back(std::abs(ratio - 1));
    return wrong;
  }

  std::vector<double> ratios_;
};

struct Errors {
  Ratios analytic, measured;  // measured: only of held-out rows, and not of interference

  void print(std::string_view name) const {
    fmt::print("{:<64} {:>5} {:>7.3f} {:>7.3f} {:>7.3f} {:>8.1f} {:>8.1f}", name, analytic.count(),
               analytic.quantile(0.1), analytic.quantile(0.5), analytic.quantile(0.9), 100 * analytic.median_error(),
               100 * analytic.mean_error());
    if (measured.count() > 0)
      fmt::print(" {:>8.1f} {:>8.1f}", 100 * measured.median_error(), 100 * measured.mean_error());
    fmt::print("\n");
  }
  nlohmann::ordered_json json() const {
    nlohmann::ordered_json out = {{"rows", analytic.count()},
                                  {"median_ape", analytic.median_error()},
                                  {"mape", analytic.mean_error()},
                                  {"bias", analytic.quantile(0.5)}};
    if (measured.count() > 0) {
      out["measured_median_ape"] = measured.median_error();
      out["measured_mape"] = measured.mean_error();
    }
    return out;
  }
};

enum class Share : std::uint8_t { HeldOut, Fitted, All };

struct Options {
  std::string device = "h200", tuning, fit, only, source = "fit";
  Share share = Share::HeldOut;
  bool rows = false, labels = false, json = false;
  std::vector<std::string> files;
};

bool counts(bool held_out, Share share) { return share == Share::All || held_out == (share == Share::HeldOut); }

// The repository's own tables, then those that may exist outside of it.
std::vector<std::string> default_files(std::vector<std::string>& absent) {
  const char* named = std::getenv("MEASURED");
  const std::filesystem::path shared = named ? named : "../shared/measured";
  std::vector<std::string> files;
  for (const std::filesystem::path& path :
       {std::filesystem::path("measurements/h200/operators.csv"),
        std::filesystem::path("measurements/h200/interference.csv"),
        shared / "aux/gemm_attention_efficiency_simumax.csv", shared / "aux/op_times_fp32_neusight.csv"}) {
    if (std::filesystem::exists(path))
      files.push_back(path.string());
    else
      absent.push_back(path.string());
  }
  return files;
}

Result<Tuning> tuning_of(const Options& options) {
  if (options.tuning.empty()) return built_in_tuning();
  std::ifstream file(options.tuning);
  if (!file) return error("{}: cannot be read", options.tuning);
  std::stringstream text;
  text << file.rdbuf();
  return parse_tuning(text.str(), options.tuning);
}

struct Report {
  std::map<std::string, Errors> labels, families, sets;
  std::map<std::string, int> skipped;
  std::vector<std::string> absent;

  void add(const std::string& set, const std::string& family, const std::string& label, double ratio,
           std::optional<double> measured = std::nullopt) {
    for (Errors* errors : {&labels[fmt::format("{}: {}: {}", set, family, label)],
                           &families[fmt::format("{}: {}", set, family)], &sets[set]}) {
      errors->analytic.add(ratio);
      if (measured) errors->measured.add(*measured);
    }
  }

  void print(bool by_label) const {
    fmt::print("{:<64} {:>5} {:>7} {:>7} {:>7} {:>8} {:>8} {:>17}\n", "", "", "", "", "", "", "", "--cost measured:");
    fmt::print("{:<64} {:>5} {:>7} {:>7} {:>7} {:>8} {:>8} {:>8} {:>8}\n", "predicted / measured", "rows", "p10",
               "median", "p90", "median %", "mean %", "median %", "mean %");
    if (by_label)
      for (const auto& [name, errors] : labels) errors.print(name);
    for (const auto& [name, errors] : families) errors.print(name);
    fmt::print("\n");
    for (const auto& [name, errors] : sets) errors.print(name);
    for (const auto& [reason, count] : skipped) fmt::print("skipped {}: {}\n", count, reason);
    for (const std::string& path : absent) fmt::print("absent: {}\n", path);
  }
  nlohmann::ordered_json json() const {
    nlohmann::ordered_json out;
    for (const auto& [name, errors] : sets) out["sets"][name] = errors.json();
    for (const auto& [name, errors] : families) out["operators"][name] = errors.json();
    out["skipped"] = nlohmann::ordered_json::array();
    for (const auto& [reason, count] : skipped) out["skipped"].push_back({{"reason", reason}, {"rows", count}});
    out["absent"] = absent;
    return out;
  }
};

Status score_operators(const std::vector<MeasuredOperator>& rows, const Options& options, const Tuning& tuning,
                       Report& report) {
  const MeasuredRows profile(rows, tuning);
  for (const MeasuredOperator& op : rows) {
    if (!counts(op.held_out, options.share)) continue;
    const double predicted = predicted_seconds(op, tuning);
    if (predicted <= op.overhead) {
      ++report.skipped[fmt::format("{} takes no time: a view, or part of its neighbour", op.family)];
      continue;
    }
    std::optional<double> by_profile;
    if (options.share == Share::HeldOut) by_profile = profile.predict(op, predicted) / op.seconds;
    report.add(fmt::format("{} ({})", op.device_name, op.set), op.family, op.label, predicted / op.seconds, by_profile);
    if (options.rows)
      fmt::print("{:.4f} {:.2f} {:.2f} {} {} {} {}\n", predicted / op.seconds, predicted * 1e6, op.seconds * 1e6,
                 op.device_name, op.family, op.label, op.shapes);
  }
  return Ok{};
}

void score_interference(const std::vector<MeasuredInterference>& rows, const Options& options, const Tuning& tuning,
                        Report& report) {
  for (const MeasuredInterference& row : rows) {
    if (!counts(row.alone.held_out, options.share)) continue;
    const std::string set = fmt::format("{} (interference)", row.alone.device_name);
    const double ratio = predicted_slowdown(row, tuning) / row.slowdown;
    const std::string family(name_of(row.alone.signature->kind));
    report.add(set, family, fmt::format("{} beside {}", row.alone.label, row.beside), ratio);
    if (row.slowdown_of_other > 0)
      report.add(fmt::format("{} (the other kernel)", set), fmt::format("beside {}", family), row.beside,
                 predicted_slowdown_of_other(row, tuning) / row.slowdown_of_other);
    if (options.rows)
      fmt::print("{:.4f} {:.3f} {:.3f} {} {} {} {}\n", ratio, predicted_slowdown(row, tuning), row.slowdown, row.beside,
                 row.units, row.alone.label, row.alone.shapes);
  }
}

Status run(const Options& options) {
  Report report;
  const std::vector<std::string> files = options.files.empty() ? default_files(report.absent) : options.files;
  WEFT_TRY(const Tuning tuning, tuning_of(options));
  std::vector<MeasuredOperator> operators;
  std::vector<MeasuredInterference> beside;
  for (const std::string& path : files) {
    if (path.find("interference") != std::string::npos) {
      WEFT_TRY(std::vector<MeasuredInterference> rows, read_measured_interference(path, options.device));
      std::move(rows.begin(), rows.end(), std::back_inserter(beside));
      continue;
    }
    WEFT_TRY(MeasuredTable table, read_measured_operators(path, options.device));
    std::move(table.rows.begin(), table.rows.end(), std::back_inserter(operators));
    for (const auto& [reason, count] : table.skipped) report.skipped[reason] += count;
  }
  if (!options.fit.empty() && operators.empty()) {
    WEFT_TRY(const FittedDevice fitted, fit_interference(beside, tuning, options.fit, options.source));
    fmt::print("  {}:\n{}", options.fit, fitted.yaml);
    return Ok{};
  }
  if (!options.fit.empty()) {
    WEFT_TRY(const FittedDevice fitted, fit_device(operators, tuning, options.fit, options.only, options.source));
    fmt::print("  {}:\n{}", options.fit, fitted.yaml);
    return Ok{};
  }
  WEFT_TRY_OK(score_operators(operators, options, tuning, report));
  score_interference(beside, options, tuning, report);
  if (options.rows) return Ok{};
  if (options.json)
    fmt::print("{}\n", report.json().dump(1));
  else
    report.print(options.labels);
  return Ok{};
}

int start(int count, char** arguments) {
  Options options;
  for (int i = 1; i < count; ++i) {
    const std::string_view argument = arguments[i];
    const bool more = i + 1 < count;
    if (argument == "--rows")
      options.rows = true;
    else if (argument == "--json")
      options.json = true;
    else if (argument == "--by-label")
      options.labels = true;
    else if (argument == "--all")
      options.share = Share::All;
    else if (argument == "--fitted")
      options.share = Share::Fitted;
    else if (argument == "--device" && more)
      options.device = arguments[++i];
    else if (argument == "--tuning" && more)
      options.tuning = arguments[++i];
    else if (argument == "--fit" && more)
      options.fit = arguments[++i];
    else if (argument == "--only" && more)
      options.only = arguments[++i];
    else if (argument == "--source" && more)
      options.source = arguments[++i];
    else if (argument.starts_with("--")) {
      std::cerr << "usage: cost_check [--device h200] [--tuning FILE] [--all|--fitted] [--by-label] [--rows] [--json] "
                   "[--fit ENTRY [--only GROUP] [--source NAME]] [FILE.csv…]\n";
      return 2;
    } else
      options.files.emplace_back(argument);
  }
  const Status status = run(options);
  if (status.ok()) return 0;
  std::cerr << status.error().message << "\n";
  return 1;
}

}  // namespace
}  // namespace weft

int main(int count, char** arguments) { return weft::start(count, arguments); }
