// A validation, from files of measured runs to their scores: what `weft validate` prints and `weft.validate` returns.
//
//   read_tables(request)                  the tables, told apart by their columns, and the rules to read them by
//   validate_tables(request, tables)      every row predicted and compared
//
// Errors name the file, the line or the option at fault, and the remedy.
// Not here: scores (src/validate), options of a command line (src/cli).
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/csv.h"
#include "validate/validate.h"

namespace weft {

struct ValidationRequest {
  std::vector<std::string> files;
  std::string rules = {};        // what the words of published tables mean; empty: tables have those of weft simulate
  std::string stack = {};        // overrides rows and rules
  std::string calibration = {};  // constants over the built-in ones
  std::size_t worst = 10;        // number of worst rows with a breakdown
  int threads = 0;               // 0: all cores
};

struct ValidationTables {
  std::vector<MeasuredFile> runs;
  std::vector<std::pair<std::string, CsvTable>> curves, layers;
  MappingRules rules;
  std::optional<Calibration> calibration;
};
Result<ValidationTables> read_tables(const ValidationRequest& request);

// Refers to the tables.
ValidateOptions options_of(const ValidationRequest& request, const ValidationTables& tables);

Validation validate_tables(const ValidationRequest& request, const ValidationTables& tables,
                           const std::atomic<bool>* cancelled = nullptr);

// The rules of the file; empty rules without a file. An error: published tables without a file.
Result<MappingRules> rules_for(const std::vector<MeasuredFile>& files, const std::string& path, bool needed = false);

}  // namespace weft
