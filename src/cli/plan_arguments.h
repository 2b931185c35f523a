// The options that describe a plan, shared by every command that takes one.
#pragma once

#include "plan/plan.h"

namespace CLI {
class App;
}

namespace weft {

// Adds --model, --cluster, --strategy and what refines them; parsing fills the request.
void add_plan_arguments(CLI::App& command, PlanRequest& request);

// Adds --devices.
void add_device_count(CLI::App& command, PlanRequest& request);

// The syntax of --strategy, for the help of these commands.
extern const char* const kStrategyHelp;

}  // namespace weft
