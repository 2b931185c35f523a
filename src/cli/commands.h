// The commands of `weft`. Each adds itself to the parser and runs, when chosen, after parsing; it returns the exit
// code.
#pragma once

#include <functional>

#include "cli/answer.h"

namespace CLI {
class App;
}

namespace weft {

// What the chosen command will do; empty until parsing has chosen one.
using Chosen = std::function<int()>;

void add_show(CLI::App& app, Chosen& chosen);
// Its parts that show plans (show_plan.cpp).
void add_show_strategy(CLI::App& show, Chosen& chosen);
void add_show_program(CLI::App& show, Chosen& chosen);
void add_plan(CLI::App& app, Chosen& chosen);
void add_simulate(CLI::App& app, Chosen& chosen);
void add_calibrate(CLI::App& app, Chosen& chosen);
void add_validate(CLI::App& app, Chosen& chosen);
void add_profile(CLI::App& app, Chosen& chosen);
void add_run(CLI::App& app, Chosen& chosen);
void add_show_profile(CLI::App& show, Chosen& chosen);

}  // namespace weft
