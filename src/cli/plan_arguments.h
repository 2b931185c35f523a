// The words that name a plan, shared by every command that works on one.
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

// What --strategy understands, for the help of every such command.
extern const char* const kStrategyWords;

}  // namespace weft
