#include "ask/validation.h"

#include <algorithm>

#include "strategy/stack.h"

namespace weft {

Result<MappingRules> rules_for(const std::vector<MeasuredFile>& files, const std::string& path, bool needed) {
  if (!path.empty()) {
    Result<MappingRules> rules = read_mapping_rules(path);
    if (!rules.ok()) return rules.error().at("--rules");
    return rules;
  }
  const auto published = std::find_if(files.begin(), files.end(), [](const MeasuredFile& file) {
    return !file.rows.empty() && !file.rows.front().typed;
  });
  if (needed || published != files.end())
    return error(
        "{}a table that names gpus, not a cluster and a strategy: add --rules FILE, which says what node, stack and "
        "model its words mean; tools/published_runs.yaml has those of the published tables",
        published != files.end() ? published->file + ": " : "");
  return MappingRules();
}

Result<ValidationTables> read_tables(const ValidationRequest& request) {
  if (!request.stack.empty()) {
    const Result<SoftwareStack> stack = find_stack(request.stack);
    if (!stack.ok()) return stack.error().at("--stack");
  }
  if (request.threads < 0 || request.threads > 1024)
    return error("--threads {}: from 1 to 1024, or 0 for all", request.threads);
  ValidationTables tables;
  for (const std::string& path : request.files) {
    WEFT_TRY(CsvTable table, read_csv(path));
    if (is_table_of_curves(table)) {
      tables.curves.emplace_back(path, std::move(table));
      continue;
    }
    if (is_table_of_layers(table)) {
      tables.layers.emplace_back(path, std::move(table));
      continue;
    }
    WEFT_TRY(MeasuredFile file, measured_rows(table, path));
    tables.runs.push_back(std::move(file));
  }
  WEFT_TRY(tables.rules, rules_for(tables.runs, request.rules, !tables.curves.empty() || !tables.layers.empty()));
  if (!request.calibration.empty()) {
    Result<Calibration> read = read_calibration(request.calibration);
    if (!read.ok()) return read.error().at("--calibration");
    tables.calibration = std::move(read).value();
  }
  return tables;
}

ValidateOptions options_of(const ValidationRequest& request, const ValidationTables& tables) {
  return {.rules = tables.rules,
          .stack = request.stack,
          .worst = request.worst,
          .threads = request.threads,
          .calibration = tables.calibration ? &*tables.calibration : nullptr};
}

Validation validate_tables(const ValidationRequest& request, const ValidationTables& tables,
                           const std::atomic<bool>* cancelled) {
  ValidateOptions options = options_of(request, tables);
  options.cancelled = cancelled;
  Validation validation = validate_measured(tables.runs, options);
  for (const auto& [path, table] : tables.curves)
    validation.curves.push_back(validate_curves(table, path, options.rules, options.calibration));
  for (const auto& [path, table] : tables.layers)
    validation.layers.push_back(validate_layers(table, path, options.rules, options.calibration));
  return validation;
}

}  // namespace weft
