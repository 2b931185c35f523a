// The commands of `weft`. Each adds itself to the parser and, if chosen, runs after parsing and returns the exit code.
#pragma once

#include <functional>

#include "cli/answer.h"

namespace CLI {
class App;
}

namespace weft {

// Runs the chosen command; empty until parsing has chosen one.
using Chosen = std::function<int()>;

void add_show(CLI::App& app, Chosen& chosen);
// The subcommands of `show` for plans (show_plan.cpp).
void add_show_strategy(CLI::App& show, Chosen& chosen);
void add_show_program(CLI::App& show, Chosen& chosen);
void add_plan(CLI::App& app, Chosen& chosen);
// Two plans side by side (compare.cpp).
void add_compare(CLI::App& app, Chosen& chosen);
void add_simulate(CLI::App& app, Chosen& chosen);
void add_calibrate(CLI::App& app, Chosen& chosen);
void add_validate(CLI::App& app, Chosen& chosen);
void add_profile(CLI::App& app, Chosen& chosen);
// The subcommand of `profile` that fills a database (measure.cpp).
void add_profile_measure(CLI::App& profile, Chosen& chosen);
void add_run(CLI::App& app, Chosen& chosen);
void add_doctor(CLI::App& app, Chosen& chosen);
// Both describe the whole of `app` (manual.cpp), which outlives `chosen`.
void add_completion(CLI::App& app, Chosen& chosen);
void add_man(CLI::App& app, Chosen& chosen);
void add_export(CLI::App& app, Chosen& chosen);
void add_show_profile(CLI::App& show, Chosen& chosen);

}  // namespace weft
