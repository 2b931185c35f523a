// weft calibrate: constants fitted to measured runs.
#include "calibrate/calibrate.h"

#include <CLI/CLI.hpp>
#include <memory>

#include "ask/validation.h"
#include "base/whole_file.h"
#include "cli/commands.h"
#include "cli/progress.h"
#include "cli/rules_argument.h"

namespace weft {
namespace {

struct CalibrateArguments {
  std::vector<std::string> files;
  std::string out, calibration, rules;
  CalibrateOptions options;
  bool no_folds = false, json = false;
};

Result<Answer> run_calibration(const CalibrateArguments& arguments) {
  CalibrateOptions options = arguments.options;
  options.cross_validate = !arguments.no_folds;
  if (options.rounds < 1 || options.rounds > 100) return error("--rounds {}: from 1 to 100", options.rounds);
  if (!arguments.calibration.empty()) {
    Result<Calibration> read = read_calibration(arguments.calibration);
    if (!read.ok()) return read.error().at("--calibration");
    options.start = std::move(read).value();
  }
  std::vector<MeasuredFile> files;
  for (const std::string& path : arguments.files) {
    WEFT_TRY(MeasuredFile file, read_measured(path));
    files.push_back(std::move(file));
  }
  WEFT_TRY(options.rules, rules_for(files, arguments.rules));
  Result<WholeFile> file = WholeFile::create(arguments.out);
  if (!file.ok()) return file.error().at("--out");
  Progress progress;
  options.progress = [&](const std::string& what) { progress.now(what); };
  progress.now("planning the rows");
  WEFT_TRY(const CalibrationResult result, calibrate(files, options));
  progress.done();
  file->write(overlay_of(result));
  Answer answer{arguments.json ? json_of(result) : describe(result)};
  if (const Status finished = file->finish(); !finished.ok()) answer.unwritten = finished.error().at("--out");
  return answer;
}

}  // namespace

void add_calibrate(CLI::App& app, Chosen& chosen) {
  const auto arguments = std::make_shared<CalibrateArguments>();
  CLI::App* command =
      app.add_subcommand("calibrate", "Fit constants of devices, links and stacks to measured runs, and say how well.");
  command->footer(
      "\nTables have the columns of `weft validate`. A row that cannot be read or planned is told by its line and\n"
      "skipped. What is fitted, with bounds and priors, is listed in\n"
      "presets/calibration.yaml; each constant is pulled to its present value, so that few rows move it little.\n"
      "FILE is for --calibration of `weft simulate` and `weft validate`. The same input gives the same bytes.\n"
      "\nExamples:\n"
      "  weft calibrate my-runs.csv --out my-cluster.yaml\n"
      "  weft validate my-runs.csv --calibration my-cluster.yaml\n"
      "  weft calibrate ../shared/measured/*.csv --rules tools/published_runs.yaml --from-priors \\\n"
      "      --out presets/cost/fitted.yaml                                             the built-in ones\n");
  command->add_option("files", arguments->files, "tables of measured runs (.csv)")->required();
  command->add_option("--out", arguments->out, "the file of fitted constants (YAML)")->required();
  command->add_option("--only", arguments->options.only, "constants to fit: names, or beginnings and a star")
      ->delimiter(',');
  command->add_option("--held-out", arguments->options.held_out, "tables that nothing is fitted to, by name")
      ->delimiter(',');
  add_rules_argument(*command, arguments->rules);
  command->add_option("--calibration", arguments->calibration, "begin with the constants of this file");
  command->add_flag("--from-priors", arguments->options.from_priors,
                    "pull to the priors of the list instead of the present values");
  command->add_flag("--no-folds", arguments->no_folds, "do not leave rows out to see how well it generalises");
  command->add_option("--rounds", arguments->options.rounds, "rounds of fitting and simulating")->capture_default_str();
  command->add_flag("--json", arguments->json, "one JSON object (docs/schema)");
  command->callback([arguments, &chosen] { chosen = [arguments] { return finish(run_calibration(*arguments)); }; });
}

}  // namespace weft
