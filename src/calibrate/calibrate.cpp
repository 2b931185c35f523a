#include "calibrate/calibrate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/check.h"
#include "base/suggest.h"
#include "calibrate/fit.h"
#include "calibrate/leave_out.h"
#include "calibrate/rows.h"
#include "validate/score.h"

namespace weft {
namespace {

constexpr double kPerturbation = 0.03;                  // perturbation of a constant, in logarithms
constexpr double kLeastPower = 1e-4;                    // a smaller power counts as 0
constexpr double kFirstReach = 0.3, kLastReach = 0.02;  // trust region of a round, in logarithms
constexpr double kWorthwhile = 1e-3;                    // a smaller gain of the loss ends the rounds
constexpr std::int64_t kFew = 4, kMany = 64;            // devices of the fold by scale

std::string short_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

// Rounds to four digits, so that the values in the file are those simulated.
double rounded(double value) {
  const std::string text = fmt::format("{:.4g}", value);
  return std::stod(text);
}

class Calibrator {
 public:
  Calibrator(const std::vector<MeasuredFile>& files, const CalibrateOptions& options,
             std::vector<FittedConstant> constants, bool keep_unfitted)
      : options_(options),
        rows_(files, options.rules, options.held_out, keep_unfitted, options.threads, result_.skipped),
        one_table_(files.size() == 1) {
    for (FittedConstant& constant : constants) {
      std::vector<std::size_t> touched = rows_.touched_by(constant);
      if (touched.empty()) {
        result_.untouched.push_back(constant.name);
        continue;
      }
      constants_.push_back(std::move(constant));
      touched_.push_back(std::move(touched));
    }
  }

  Result<CalibrationResult> run() {
    if (constants_.empty())
      return error("none of the constants is used by any of the {} rows: {}", rows_.size(),
                   fmt::join(result_.untouched, ", "));
    WEFT_TRY_OK(read_values());
    const std::vector<double> present_errors = all_errors(options_.start);
    const std::vector<double> target_errors = all_errors(with(target_));
    Point point{target_, target_errors, {}};
    const std::vector<double> weights = weights_of([](std::size_t) { return true; });
    improve(point, weights);
    for (double& value : point.values) value = rounded(value);
    point.errors = all_errors(with(point.values));
    if (options_.cross_validate) leave_out(point, present_errors, target_errors);
    finish(point, present_errors, target_errors);
    return std::move(result_);
  }

  // Every row's errors with its publication, and with its device, left out.
  Result<std::vector<LeftOutRow>> left_out_rows() {
    WEFT_TRY_OK(read_values());
    Point point{present_, all_errors(options_.start), {}};
    options_.progress("how each constant moves the rows");
    measure_slopes(point);
    const auto publication = [&](std::size_t r) { return publication_of(*rows_[r].row); };
    const std::vector<double> others = errors_without_own(point, publication);
    const std::vector<double> devices = errors_without_own(point, [&](std::size_t r) { return kin_of(r); });
    std::vector<LeftOutRow> rows;
    for (std::size_t r = 0; r < rows_.size(); ++r)
      rows.push_back(
          {publication(r), kind_of(rows_[r].planned.plan), -point.errors[r], -others[r], -devices[r], {}, 0});
    return rows;
  }

 private:
  Status read_values() {
    for (const FittedConstant& constant : constants_) {
      WEFT_TRY(const double present, options_.start.value(constant.places.front()));
      present_.push_back(present);
      target_.push_back(
          std::clamp(options_.from_priors ? constant.prior.value : present, constant.least, constant.most));
    }
    return Ok{};
  }

  // Values of the constants, the rows' errors there, and their slopes by constant.
  struct Point {
    std::vector<double> values, errors;
    std::vector<std::vector<FitProblem::Slope>> slopes;
  };

  Calibration with(const std::vector<double>& values) const {
    Calibration calibration = options_.start;
    for (std::size_t c = 0; c < constants_.size(); ++c) put(calibration, c, values[c]);
    return calibration;
  }
  void put(Calibration& calibration, std::size_t c, double value, const std::string& source = "weft calibrate") const {
    for (const std::string& place : constants_[c].places) {
      const Status set = calibration.set(place, value, source);
      WEFT_CHECK(set.ok(), "{}", set.error().message);  // the list's bounds lie within the constants' own
    }
  }

  std::vector<double> errors_of(const std::vector<FitRows::Try>& tries) {
    result_.simulations += static_cast<int>(tries.size());
    return rows_.errors(tries);
  }
  std::vector<double> all_errors(const Calibration& calibration) {
    std::vector<FitRows::Try> tries;
    for (std::size_t r = 0; r < rows_.size(); ++r) tries.push_back({r, &calibration});
    return errors_of(tries);
  }

  // Rows of one table have correlated errors: ten times the rows have about three times the weight.
  template <class Keep>
  std::vector<double> weights_of(const Keep& keep) const {
    std::map<std::string, int> counts;
    for (std::size_t r = 0; r < rows_.size(); ++r)
      if (rows_[r].fitted && keep(r)) ++counts[group_of(r)];
    std::vector<double> weights(rows_.size(), 0);
    for (std::size_t r = 0; r < rows_.size(); ++r)
      if (rows_[r].fitted && keep(r)) weights[r] = 1 / std::sqrt(static_cast<double>(counts[group_of(r)]));
    return weights;
  }
  std::string group_of(std::size_t r) const {
    return one_table_ ? std::string(rows_[r].row->text("source")) : rows_[r].row->file;
  }

  // Perturbs every constant and simulates the rows that depend on it. Rows with slope 0 are not simulated again.
  void measure_slopes(Point& point) {
    std::vector<Calibration> nudged;
    std::vector<double> by;
    nudged.reserve(constants_.size());
    std::vector<FitRows::Try> tries;
    for (std::size_t c = 0; c < constants_.size(); ++c) {
      const double up = point.values[c] * (1 + kPerturbation);
      const double value = up <= constants_[c].most ? up : point.values[c] / (1 + kPerturbation);
      by.push_back(std::log(value / point.values[c]));
      nudged.push_back(with(point.values));
      put(nudged.back(), c, value);
      for (std::size_t r : touched_[c]) tries.push_back({r, &nudged.back()});
    }
    const std::vector<double> errors = errors_of(tries);
    point.slopes.assign(constants_.size(), {});
    std::size_t next = 0;
    for (std::size_t c = 0; c < constants_.size(); ++c) {
      std::vector<std::size_t> sensitive;
      for (std::size_t r : touched_[c]) {
        const double slope = (errors[next++] - point.errors[r]) / by[c];
        if (std::abs(slope) < kLeastPower) continue;
        point.slopes[c].push_back({r, slope});
        sensitive.push_back(r);
      }
      touched_[c] = std::move(sensitive);
    }
  }

  FitProblem problem_at(const Point& point, const std::vector<double>& weights, double reach) const {
    FitProblem problem{point.errors, weights, point.slopes, {}, {}, {}, {}};
    for (std::size_t c = 0; c < constants_.size(); ++c) {
      const FittedConstant& constant = constants_[c];
      problem.low.push_back(std::max(-reach, std::min(0.0, std::log(constant.least / point.values[c]))));
      problem.high.push_back(std::min(reach, std::max(0.0, std::log(constant.most / point.values[c]))));
      problem.from_prior.push_back(std::log(point.values[c] / target_[c]));
      problem.spread.push_back(std::log1p(constant.spread));
    }
    return problem;
  }

  std::vector<double> moved(const Point& point, const std::vector<double>& x) const {
    std::vector<double> values;
    for (std::size_t c = 0; c < constants_.size(); ++c)
      values.push_back(std::clamp(point.values[c] * std::exp(x[c]), constants_[c].least, constants_[c].most));
    return values;
  }

  double loss_at(const Point& point, const std::vector<double>& weights) const {
    return problem_at({point.values, point.errors, std::vector<std::vector<FitProblem::Slope>>(constants_.size())},
                      weights, 0)
        .loss(std::vector<double>(constants_.size(), 0));
  }

  void improve(Point& point, const std::vector<double>& weights) {
    double loss = loss_at(point, weights);
    double reach = kFirstReach;
    for (int round = 1; round <= options_.rounds && reach >= kLastReach; ++round) {
      options_.progress(fmt::format("round {}: {} constants, loss {:.4g}", round, constants_.size(), loss));
      measure_slopes(point);
      bool better = false;
      while (!better && reach >= kLastReach) {
        Point next;
        next.values = moved(point, pattern_search(problem_at(point, weights, reach)));
        next.errors = all_errors(with(next.values));
        const double there = loss_at(next, weights);
        better = there < loss * (1 - kWorthwhile);
        if (!better) {
          reach /= 2;
          continue;
        }
        point.values = std::move(next.values);
        point.errors = std::move(next.errors);
        loss = there;
      }
    }
    measure_slopes(point);
  }

  // Every row's error with constants fitted, by the slopes at the point, to rows with another key.
  template <class Key>
  std::vector<double> errors_without_own(const Point& point, const Key& key_of) {
    std::map<std::string, std::vector<std::size_t>> groups;
    for (std::size_t r = 0; r < rows_.size(); ++r) groups[key_of(r)].push_back(r);
    std::vector<double> errors = point.errors;
    for (const auto& [key, rows] : groups) {
      // Where nothing was fitted to the rows, the present constants are fitted to others.
      if (std::none_of(rows.begin(), rows.end(), [&](std::size_t r) { return rows_[r].fitted; })) continue;
      options_.progress("without " + key);
      const std::vector<double> weights = weights_of([&](std::size_t r) { return key_of(r) != key; });
      const Calibration fitted = with(moved(point, pattern_search(problem_at(point, weights, 1))));
      std::vector<FitRows::Try> tries;
      for (std::size_t r : rows) tries.push_back({r, &fitted});
      const std::vector<double> found = errors_of(tries);
      for (std::size_t i = 0; i < rows.size(); ++i) errors[rows[i]] = found[i];
    }
    return errors;
  }
  // Devices that share a fitted constant are of one kin, named after the first such constant.
  std::string kin_of(std::size_t r) const {
    const std::string prefix = "devices/" + rows_[r].device + "/";
    for (const FittedConstant& constant : constants_)
      for (const std::string& place : constant.places)
        if (place.starts_with(prefix)) return constant.name;
    return rows_[r].device;
  }

  // Fits to some rows with the slopes at the point, and simulates those that were left out.
  template <class Fitted, class Tested>
  void fold(const std::string& name, const Point& point, const std::vector<double>& present,
            const std::vector<double>& target, const Fitted& fitted, const Tested& tested) {
    std::vector<FitRows::Try> tries;
    for (std::size_t r = 0; r < rows_.size(); ++r)
      if (tested(r)) tries.push_back({r, nullptr});
    const std::vector<double> weights = weights_of(fitted);
    if (tries.empty() || std::all_of(weights.begin(), weights.end(), [](double each) { return each == 0; })) return;
    options_.progress(name);
    const Calibration calibration = with(moved(point, pattern_search(problem_at(point, weights, 1))));
    for (FitRows::Try& each : tries) each.with = &calibration;
    const std::vector<double> errors = errors_of(tries);
    std::vector<std::size_t> rows;
    for (const FitRows::Try& each : tries) rows.push_back(each.row);
    FitScore score = scored(name, rows, present, target);
    score.fitted = mape(errors);
    result_.left_out.push_back(std::move(score));
  }

  void leave_out(const Point& point, const std::vector<double>& present, const std::vector<double>& target) {
    std::vector<std::string> groups;
    for (std::size_t r = 0; r < rows_.size(); ++r)
      if (std::find(groups.begin(), groups.end(), group_of(r)) == groups.end()) groups.push_back(group_of(r));
    if (groups.size() > 1)
      for (const std::string& group : groups)
        fold(
            fmt::format("without {}", one_table_ ? group : short_name(group)), point, present, target,
            [&](std::size_t r) { return group_of(r) != group; }, [&](std::size_t r) { return group_of(r) == group; });
    const auto devices = [&](std::size_t r) { return std::ssize(rows_[r].planned.plan.ranks()); };
    fold(
        fmt::format("from at most {} devices to {} and more", kFew, kMany), point, present, target,
        [&](std::size_t r) { return devices(r) <= kFew; }, [&](std::size_t r) { return devices(r) >= kMany; });
  }

  static double mape(const std::vector<double>& log_errors) {
    std::vector<double> errors;
    for (double each : log_errors) errors.push_back(std::abs(std::exp(each) - 1));
    return mean(errors);
  }
  static FitScore scored(const std::string& name, const std::vector<std::size_t>& rows,
                         const std::vector<double>& present, const std::vector<double>& target) {
    std::vector<double> a, b;
    for (std::size_t r : rows) {
      a.push_back(present[r]);
      b.push_back(target[r]);
    }
    return {name, static_cast<int>(rows.size()), mape(a), mape(b), 0};
  }

  std::string evidence_for(const std::vector<FitProblem::Slope>& slopes) const {
    std::vector<std::string> files;
    std::map<std::string, int> counts;
    for (const FitProblem::Slope& each : slopes) {
      const std::string file = short_name(rows_[each.row].row->file);
      if (counts[file]++ == 0) files.push_back(file);
    }
    std::string text;
    for (const std::string& file : files)
      text +=
          fmt::format("{}{} row{} of {}", text.empty() ? "" : ", ", counts[file], counts[file] == 1 ? "" : "s", file);
    return text;
  }

  void finish(const Point& point, const std::vector<double>& present, const std::vector<double>& target) {
    result_.calibration = options_.start;
    for (std::size_t c = 0; c < constants_.size(); ++c) {
      if (point.slopes[c].empty()) {
        result_.untouched.push_back(constants_[c].name);
        continue;
      }
      FittedValue value{constants_[c], present_[c], target_[c], point.values[c], 0, 0, {}};
      value.rows = static_cast<int>(point.slopes[c].size());
      for (const FitProblem::Slope& each : point.slopes[c]) value.power += std::abs(each.slope) / value.rows;
      value.evidence = evidence_for(point.slopes[c]);
      put(result_.calibration, c, point.values[c],
          fmt::format("weft calibrate: {}; {} {:.4g}, {}", value.evidence, options_.from_priors ? "prior" : "before",
                      target_[c], options_.from_priors ? constants_[c].prior.source : "the present value"));
      result_.constants.push_back(std::move(value));
    }
    result_.rows = static_cast<int>(rows_.size());
    std::vector<std::string> files;
    for (std::size_t r = 0; r < rows_.size(); ++r)
      if (std::find(files.begin(), files.end(), rows_[r].row->file) == files.end()) files.push_back(rows_[r].row->file);
    files.emplace_back();  // all
    for (const std::string& file : files) {
      std::vector<std::size_t> rows;
      std::vector<double> errors;
      for (std::size_t r = 0; r < rows_.size(); ++r)
        if (file.empty() || rows_[r].row->file == file) {
          rows.push_back(r);
          errors.push_back(point.errors[r]);
        }
      FitScore score = scored(file.empty() ? "all" : short_name(file), rows, present, target);
      score.fitted = mape(errors);
      result_.files.push_back(std::move(score));
    }
  }

  const CalibrateOptions& options_;
  CalibrationResult result_;
  FitRows rows_;
  bool one_table_ = false;
  std::vector<FittedConstant> constants_;
  std::vector<std::vector<std::size_t>> touched_;  // rows that depend on each constant
  std::vector<double> present_, target_;
};

// A misspelt table would be fitted to in silence.
Status check_held_out(const std::vector<MeasuredFile>& files, const std::vector<std::string>& held_out) {
  std::vector<std::string> names;
  for (const MeasuredFile& file : files) names.push_back(short_name(file.file));
  for (const std::string& name : held_out)
    if (std::find(names.begin(), names.end(), name) == names.end())
      return error("--held-out '{}': not among the tables{}", name, did_you_mean(name, names));
  return Ok{};
}

}  // namespace

Result<CalibrationResult> calibrate(const std::vector<MeasuredFile>& files, const CalibrateOptions& options) {
  WEFT_TRY_OK(check_held_out(files, options.held_out));
  WEFT_TRY(std::vector<FittedConstant> constants, chosen_constants(built_in_fitted_constants(), options.only));
  return Calibrator(files, options, std::move(constants), false).run();
}

Result<LeftOut> leave_out(const std::vector<MeasuredFile>& files, const Validation& validation,
                          CalibrateOptions options) {
  WEFT_TRY_OK(check_held_out(files, options.held_out));
  options.from_priors = true;
  WEFT_TRY(std::vector<LeftOutRow> rows, Calibrator(files, options, built_in_fitted_constants(), true).left_out_rows());
  if (rows.empty() || std::all_of(rows.begin(), rows.end(),
                                  [&](const LeftOutRow& row) { return row.publication == rows.front().publication; }))
    return error("nothing to leave out: the rows are not of two publications or more");
  std::vector<double> memory;
  for (const Prediction& each : validation.predictions)
    if (each.predicted_gib) memory.push_back(std::log(*each.measured_gib / *each.predicted_gib));
  return scored(std::move(rows), memory);
}

}  // namespace weft
