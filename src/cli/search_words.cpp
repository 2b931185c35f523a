#include "cli/search_words.h"

#include <CLI/CLI.hpp>

#include "cli/cost_arguments.h"
#include "cli/plan_arguments.h"

namespace weft {

void add_search_words(CLI::App& command, SearchRequest& search) {
  PlanRequest& request = search.plan;
  command.add_option("--model", request.model, "zoo name with overrides, config.json or .onnx file");
  command.add_option("--cluster", request.cluster, "preset:nodes, several joined by +, or a file")->required();
  add_device_count(command, request);
  command.add_option("--global-batch", request.global_batch,
                     "samples per step (default: about 4 M tokens, or 32 per device)");
  add_job_options(command, request);
  command.add_option("--fix", search.constraints.fix, "only plans with these values: tp=8,cp=1,recompute=full")
      ->join(',');
  command.add_option("--limit", search.constraints.limit, "only plans with values up to these: vpp=4,mbs=2")->join(',');
  command
      .add_option("--without", search.constraints.without,
                  "only plans without these: cp, zero3, recompute=full, offload, uneven, …")
      ->join(',');
  command.add_flag("--any-stack", search.any_stack, "also plans that the stack of --stack has no code for");
  command.add_option("--max-memory", search.max_memory, "of every device, less than it has: 70GiB");
  command.add_option("--headroom", search.headroom, "per cent of a device's memory that stays free")
      ->capture_default_str();
  command
      .add_option("--search", search.search,
                  "auto (enumerate, and mcmc for models without alike layers, hap on devices of several kinds), "
                  "enumerate (hybrid "
                  "parallelism), layerwise (a decision for every layer); exact, mcmc, symbolic (a decision for every "
                  "operator); "
                  "hap (programs with uneven shares for unequal devices), astar (the same, proved by A*)")
      ->capture_default_str();
  add_cost_arguments(command, search.cost);
  command.add_option("--schedules", search.schedules,
                     "pipeline schedules to consider, of 1f1b,interleaved,zb-h1,zb-v,gpipe (default: all but gpipe)");
  command.add_option("--tokens", search.tokens, "tokens of the whole training, 300B or 15T: days and GPU-hours");
  command.add_option("--price", search.price, "dollars per GPU-hour, 2.5: what a step and the training cost");
  command.add_option("--budget", search.budget,
                     "simulations (64) or a time (30s) to spend (default: until no plan is left that could win)");
  command.add_option("--seed", search.seed, "of searches that draw numbers")->capture_default_str();
  command.add_option("--top", search.top, "plans to show")->capture_default_str();
  command.add_option("--threads", search.threads, "to search with (default: all; the plan does not depend on it)");
}

}  // namespace weft
