// weft plan: the best strategy for a model on a cluster.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <csignal>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "ask/search.h"
#include "base/units.h"
#include "cli/commands.h"
#include "cli/cost_arguments.h"
#include "cli/plan_arguments.h"
#include "cli/progress.h"
#include "report/tree.h"
#include "search/sensitivity.h"

namespace weft {
namespace {

struct PlanArguments {
  SearchRequest request;
  std::string out;
  bool explain = false, timing = false, json = false;
};

// Ctrl-C asks the search to stop; the second one ends weft. A handler can reach only what is static.
class StopOnInterrupt {
 public:
  StopOnInterrupt() : before_(std::signal(SIGINT, stop)) { wish_ = false; }
  ~StopOnInterrupt() { std::signal(SIGINT, before_); }
  StopOnInterrupt(const StopOnInterrupt&) = delete;

  const std::atomic<bool>* wish() const { return &wish_; }

 private:
  static void stop(int signal) {
    wish_ = true;
    std::signal(signal, SIG_DFL);
  }
  inline static std::atomic<bool> wish_ = false;
  void (*before_)(int);
};

Result<Answer> run_search(const PlanArguments& arguments) {
  SearchRequest request = arguments.request;
  WEFT_TRY_OK(check(request));
  if (!arguments.out.empty()) {
    WEFT_TRY_OK(make_folder(arguments.out));
    request.tree_file = fmt::format("{}/{}", arguments.out, kFoundFiles[1]);
  }
  StopOnInterrupt interrupt;
  Progress progress;
  progress.now("searching");
  const auto show = [&](const SearchProgress& now) {
    progress.now(now.best_s > 0 ? fmt::format("searching, best {}", human(Seconds{now.best_s})) : "searching",
                 now.of > 0 ? static_cast<double>(now.done) / static_cast<double>(now.of) : -1);
  };
  WEFT_TRY(Searched searched, search_plans(std::move(request), {.cancelled = interrupt.wish(), .progress = show}));
  searched.table.seconds = arguments.timing || (!arguments.json && ::isatty(STDOUT_FILENO));
  const auto& [search, outcome] = searched.found;

  Answer answer{.feasible = !outcome.best.empty()};
  // The winner is simulated once more with its timeline recorded, for the full report.
  std::optional<Simulation> winner;
  if (answer.feasible && (arguments.json || !arguments.out.empty())) {
    progress.now("simulating the winner");
    WEFT_TRY(winner, simulate_found(searched, 0));
  }
  if (winner && !arguments.out.empty())
    if (const Status written = write_found(searched, *winner, arguments.out); !written.ok())
      answer.unwritten = written.error().at("--out");
  std::vector<Sensitivity> what_if;
  if (answer.feasible && arguments.explain && outcome.best.front().parallelism) {
    progress.now("asking what if");
    EnumerateOptions options = searched.options;
    options.budget.cancelled = interrupt.wish();
    WEFT_TRY(what_if, sensitivities(searched.problem, *searched.cost.model, options));
  }
  progress.done();
  if (arguments.json) {
    answer.text = to_text(to_json(searched, winner ? &*winner : nullptr));
    return answer;
  }
  answer.text =
      answer.feasible ? describe(searched.problem, outcome, searched.table) : describe_miss(searched.problem, outcome);
  if (answer.feasible && !outcome.best.front().parallelism)
    answer.text += "\noperators\n" + summarise_rules(outcome.best.front().tree);
  if (answer.feasible && arguments.explain)
    answer.text += "\n" + explain(outcome) + (what_if.empty() ? "" : "\n" + describe(what_if, outcome));
  if (winner && !answer.unwritten)
    answer.text += fmt::format("\nwritten: {0}/plan.json, {0}/trace.json, {0}/strategy.yaml\n", arguments.out);
  return answer;
}

}  // namespace

void add_plan(CLI::App& app, Chosen& chosen) {
  const auto arguments = std::make_shared<PlanArguments>();
  CLI::App* command = app.add_subcommand(
      "plan", "Find the best strategy for a model on a cluster, and say how good it is and what others lose to it.");
  command->footer(
      "\nEvery combination of tensor, pipeline, data, context and expert parallelism, interleaving, micro-batch, "
      "ZeRO,\n"
      "recomputation, sequence parallelism and stage split is considered; the most promising are simulated in full.\n"
      "On devices of several kinds so are every kind alone, pipelines of unequal stages on unequal groups, and "
      "replicas\n"
      "with samples in proportion to speed; devices may be left out (docs/heterogeneous.md).\n"
      "Data parallelism, FSDP and Megatron's rule of thumb are always among them. Ctrl-C gives the best so far. The "
      "exit\n"
      "code is 1 where nothing fits, with what comes closest.\n"
      "\nExamples:\n"
      "  weft plan --model llama3-70b --cluster dgx-h100:16 --global-batch 1024 --seq 8192\n"
      "  weft plan --model gpt3-175b --cluster dgx-a100:128 --global-batch 1536 --tokens 300B --explain\n"
      "  weft plan --model llama3-70b --cluster dgx-h100:2+dgx-a100:4          devices of two kinds\n"
      "  weft plan --model mixtral-8x7b --cluster dgx-h100:4 --budget 10s --top 10 --json\n"
      "  weft plan --model alexnet --cluster p100x4:4 --search mcmc --budget 20s\n");
  SearchRequest& search = arguments->request;
  PlanRequest& request = search.plan;
  command->add_option("--model", request.model, "zoo name with overrides, config.json or .onnx file")->required();
  command->add_option("--cluster", request.cluster, "preset:nodes, several joined by +, or a file")->required();
  add_device_count(*command, request);
  command->add_option("--global-batch", request.global_batch,
                      "samples per step (default: about 4 M tokens, or 32 per device)");
  command->add_option("--seq", request.seq, "tokens per sample (default: the model's, at most 8192)");
  command->add_option(
      "--dtype", request.dtype,
      "bf16, fp16, fp32, tf32, fp8, mxfp8, nvfp4, amp-bf16, amp-fp16 (default: the stack's, where devices have it)");
  command->add_option("--stack", request.stack,
                      "software stack (default: megatron-lm, for other than language models pytorch-ddp)");
  command->add_option("--freeze", request.freeze,
                      "parameters that are not trained: globs joined by +, !glob takes back: embed+layers.*.mlp");
  command
      ->add_option(
          "--search", search.search,
          "auto (enumerate, and mcmc for models without alike layers, hap on devices of several kinds), enumerate (hybrid "
          "parallelism), layerwise (a decision for every layer); exact, mcmc, symbolic (a decision for every operator); "
          "hap (programs with uneven shares for unequal devices), astar (the same, proved by A*)")
      ->capture_default_str();
  add_cost_arguments(*command, search.cost);
  command->add_option("--schedules", search.schedules,
                      "pipeline schedules to consider, of 1f1b,interleaved,zb-h1,zb-v,gpipe (default: all but gpipe)");
  command->add_option("--tokens", search.tokens, "tokens of the whole training, 300B or 15T: days and GPU-hours");
  command->add_option("--budget", search.budget,
                      "simulations (64) or a time (30s) to spend (default: until no plan is left that could win)");
  command->add_option("--seed", search.seed, "of searches that draw numbers")->capture_default_str();
  command->add_option("--top", search.top, "plans to show")->capture_default_str();
  command->add_option("--headroom", search.headroom, "per cent of a device's memory that stays free")
      ->capture_default_str();
  command->add_option("--threads", search.threads, "to search with (default: all; the plan does not depend on it)");
  command->add_option("--out", arguments->out, "write plan.json and trace.json into this folder");
  CLI::Option* why = command->add_flag("--explain", arguments->explain, "why the winner won, and what would change it");
  command->add_flag("--timing", arguments->timing, "also how long weft itself took");
  command->add_flag("--json", arguments->json, "one JSON object (docs/schema)")->excludes(why);
  command->callback([arguments, &chosen] { chosen = [arguments] { return finish(run_search(*arguments)); }; });
}

}  // namespace weft
