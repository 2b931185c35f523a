#include "cli/search_words.h"

#include <CLI/CLI.hpp>
#include <algorithm>

#include "base/suggest.h"
#include "cli/plan_arguments.h"
#include "cli/plan_words.h"

namespace weft {
namespace {

Status check(const SearchWords& words) {
  if (words.search == "hap") return error("--search hap: not there yet; {} are", fmt::join(kSearchNames, ", "));
  const std::vector<std::string> known(kSearchNames.begin(), kSearchNames.end());
  if (std::find(known.begin(), known.end(), words.search) == known.end())
    return error("--search '{}': unknown{}", words.search, did_you_mean(words.search, known));
  WEFT_TRY_OK(check(words.cost));
  if (words.cost.model == "symbolic")
    return error(
        "--cost symbolic: its times have no seconds to compare plans by; --search symbolic is a search by volumes");
  if (words.top < 1 || words.top > 100) return error("--top {}: from 1 to 100 plans", words.top);
  if (words.threads < 0 || words.threads > 1024)
    return error("--threads {}: from 1 to 1024, or 0 for all", words.threads);
  if (!(words.headroom >= 0 && words.headroom < 100))
    return error("--headroom {}: a share of the device's memory, from 0 to less than 100 %", words.headroom);
  return Ok{};
}

// What the user demands, and what the stack can run where the user names one.
Result<Constraints> constraints_of(const SearchWords& words) {
  WEFT_TRY(Constraints constraints, parse_constraints(words.constraints));
  if (words.any_stack || words.request.stack.empty()) return constraints;
  const Result<SoftwareStack> stack = find_stack(words.request.stack);
  if (!stack.ok()) return stack.error().at("--stack");
  constraints.stack = stack->name;
  constraints.abilities = stack->can.value;
  return constraints;
}

}  // namespace

void add_search_words(CLI::App& command, SearchWords& words) {
  PlanRequest& request = words.request;
  command.add_option("--model", request.model, "zoo name with overrides, config.json or .onnx file")->required();
  command.add_option("--cluster", request.cluster, "preset:nodes, several joined by +, or a file")->required();
  add_device_count(command, request);
  command.add_option("--global-batch", request.global_batch,
                     "samples per step (default: about 4 M tokens, or 32 per device)");
  add_job_options(command, request);
  command.add_option("--fix", words.constraints.fix, "only plans with these values: tp=8,cp=1,recompute=full");
  command.add_option("--limit", words.constraints.limit, "only plans with values up to these: vpp=4,mbs=2");
  command.add_option("--without", words.constraints.without,
                     "only plans without these: cp, zero3, recompute=full, offload, uneven, …");
  command.add_flag("--any-stack", words.any_stack, "also plans that the stack of --stack has no code for");
  command.add_option("--max-memory", words.max_memory, "of every device, less than it has: 70GiB");
  command.add_option("--headroom", words.headroom, "per cent of a device's memory that stays free")
      ->capture_default_str();
  command
      .add_option(
          "--search", words.search,
          "auto (enumerate, and mcmc for models without alike layers), enumerate (hybrid parallelism), layerwise (a "
          "decision for every layer); exact, mcmc, symbolic (a decision for every operator)")
      ->capture_default_str();
  add_cost_arguments(command, words.cost);
  command.add_option("--schedules", words.schedules,
                     "pipeline schedules to consider, of 1f1b,interleaved,zb-h1,zb-v,gpipe (default: the first two)");
  command.add_option("--tokens", words.tokens, "tokens of the whole training, 300B or 15T: days and GPU-hours");
  command.add_option("--price", words.price, "dollars per GPU-hour, 2.5: what a step and the training cost");
  command.add_option("--budget", words.budget,
                     "simulations (64) or a time (30s) to spend (default: until no plan is left that could win)");
  command.add_option("--seed", words.seed, "of searches that draw numbers")->capture_default_str();
  command.add_option("--top", words.top, "plans to show")->capture_default_str();
  command.add_option("--threads", words.threads, "to search with (default: all; the plan does not depend on it)");
}

Result<SearchRequest> settle(const SearchWords& words) {
  WEFT_TRY_OK(check(words));
  SearchRequest settled;
  FindOptions& finding = settled.finding;
  finding.search =
      static_cast<Search>(std::find(kSearchNames.begin(), kSearchNames.end(), words.search) - kSearchNames.begin());
  finding.seed = static_cast<std::uint64_t>(words.seed);
  EnumerateOptions& options = finding.enumerate;
  WEFT_TRY(options.budget, parse_budget(words.budget));
  if (!words.tokens.empty()) {
    WEFT_TRY(settled.table.tokens, parse_tokens(words.tokens));
  }
  WEFT_TRY(settled.prices, parse_prices(words.price));
  if (settled.prices.size() == 1) settled.table.price = settled.prices.front();
  if (!words.schedules.empty()) {
    WEFT_TRY(options.space.schedules, parse_schedules(words.schedules));
  }
  WEFT_TRY(options.space.constraints, constraints_of(words));
  settled.table.constraints = options.space.constraints.words();
  options.top = static_cast<std::size_t>(words.top);
  options.threads = words.threads;
  settled.request = words.request;
  settled.request.headroom = words.headroom / 100;
  if (!words.max_memory.empty()) {
    const Result<Bytes> most = parse_bytes(words.max_memory);
    if (!most.ok() || most->value <= 0)
      return error("--max-memory '{}': a size with its unit, 70GiB or 80GB", words.max_memory.substr(0, 40));
    settled.request.max_memory = *most;
    settled.table.constraints.push_back("--max-memory " + words.max_memory);
  }
  WEFT_TRY(settled.calibration, calibration_of(words.cost));
  return settled;
}

}  // namespace weft
