#include "cli/cost_arguments.h"

#include <CLI/CLI.hpp>

namespace weft {

void add_cost_arguments(CLI::App& command, CostArguments& arguments) {
  command
      .add_option("--cost", arguments.model,
                  "where durations come from: analytic, measured (a profile, --db) or symbolic (volumes alone)")
      ->capture_default_str();
  command.add_option("--db", arguments.database, "profile database of --cost measured (weft profile import)");
  command.add_option("--calibration", arguments.calibration,
                     "constants over the built-in ones, as weft calibrate writes them");
}

}  // namespace weft
