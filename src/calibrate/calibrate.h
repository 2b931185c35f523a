// Constants fitted to measured runs: of devices, links and named software stacks. Start here.
//
//   read_measured(path) for each file, then calibrate(files, options)
//
// Every row is planned and compiled once. At a point, each constant is moved a little and the rows it touches are
// priced and simulated again: that gives every row's time as a product of powers (fit.h), on which a pattern search
// finds the least of a robust loss with a pull towards priors. The rows are simulated there; a point that is no better
// halves how far the next one may be. A few such rounds.
//
// How well: the same is fitted without the rows of each table (of each source, if there is one table), and to runs of
// at most 4 devices, and what was left out is predicted with that.
//
// The outcome depends on the files and options alone. Cost: a few hundred to a thousand simulations of rows.
// Not here: constants of single operators, which runs cannot tell apart (tools/, src/cost).
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "calibrate/constants.h"
#include "validate/mapping.h"

namespace weft {

struct CalibrateOptions {
  MappingRules rules = {};             // what rows of publications mean
  std::vector<std::string> only = {};  // names of constants, or beginnings and a star; none: all
  bool from_priors = false;            // pull to the list's priors; else to the present constants
  bool cross_validate = true;
  int rounds = 4;
  int threads = 0;         // 0: as many as the machine has
  Calibration start = {};  // the present constants
  std::function<void(const std::string&)> progress = [](const std::string&) {};
};

struct FittedValue {
  FittedConstant constant;
  double present = 0, pulled_to = 0, fitted = 0;
  int rows = 0;          // that it touches and that were fitted
  double power = 0;      // mean over those rows of |d log time / d log constant|
  std::string evidence;  // "41 rows of a.csv, 8 of b.csv"
};

// Errors of time of some rows: with the present constants, with those pulled to, and with fitted ones.
struct FitScore {
  std::string name;
  int rows = 0;
  double present = 0, pulled_to = 0, fitted = 0;
};

struct CalibrationResult {
  std::vector<FittedValue> constants;  // in the order of the list; those no row touches are left out
  std::vector<std::string> untouched;  // names
  std::vector<FitScore> files;         // all rows fitted
  std::vector<FitScore> left_out;  // rows that the fit did not see: "without a.csv", "at most 4 devices → 64 and more"
  std::vector<SkippedRow> skipped;  // cells that could not be read, rows that could not be planned
  int rows = 0, simulations = 0;
  Calibration calibration;
};

// An error: nothing to fit, or no row touches a constant.
Result<CalibrationResult> calibrate(const std::vector<MeasuredFile>& files, const CalibrateOptions& options = {});

std::string overlay_of(const CalibrationResult& result);  // the file for --calibration
std::string describe(const CalibrationResult& result);    // for people
std::string json_of(const CalibrationResult& result);

}  // namespace weft
