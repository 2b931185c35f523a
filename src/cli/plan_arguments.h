// The options that describe a plan, shared by every command that takes one.
#pragma once

#include "plan/plan.h"

namespace CLI {
class App;
}

namespace weft {

// Adds --model, --cluster, --strategy and what refines them; parsing fills the request.
void add_plan_arguments(CLI::App& command, PlanRequest& request);

// Adds what refines the job: --seq, --dtype, --stack, --optimizer, --reduce-dtype, --train and --freeze.
void add_job_options(CLI::App& command, PlanRequest& request);

// Adds --seq, which takes 4096 and 8k.
void add_sequence(CLI::App& command, std::optional<std::int64_t>& seq);

// Adds --as, which says how a config.json of an unknown type is read.
void add_as(CLI::App& command, std::string& model);

// Adds --devices.
void add_device_count(CLI::App& command, PlanRequest& request);

// An error where `request` has words for what `file`, a plan.json, says.
Status check_file_alone(const PlanRequest& request, const std::string& file);

// The syntax of --strategy, for the help of these commands.
extern const char* const kStrategyHelp;

}  // namespace weft
