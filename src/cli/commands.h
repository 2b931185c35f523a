// The commands of `weft`. Each adds itself to the parser and runs, when chosen, after parsing; it returns the exit
// code.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

#include "base/result.h"

namespace weft {

inline constexpr int kDone = 0, kNotFeasible = 1, kBadInput = 2;

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
void add_show_profile(CLI::App& show, Chosen& chosen);

// Prints "weft: message" on stderr and returns exit code 2.
int report(const Error& error);
// Prints the text on stdout; an unwritable stdout (a closed pipe) is not our error.
int say(std::string_view text);

}  // namespace weft
