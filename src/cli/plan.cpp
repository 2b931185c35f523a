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
#include "cli/imported.h"
#include "cli/progress.h"
#include "cli/search_words.h"
#include "cli/sweep.h"
#include "report/tree.h"
#include "search/sensitivity.h"

namespace weft {
namespace {

struct PlanArguments {
  SearchRequest request;
  TrainerArguments trainer;
  std::string out, sweep;
  bool weak = false;
  bool trace = false, explain = false, timing = false, json = false;
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

Status check(const PlanArguments& arguments) {
  if (arguments.trace && arguments.out.empty()) return error("--trace writes into the folder of --out; add --out DIR");
  if (arguments.weak && arguments.sweep.empty()) return error("--weak says how --sweep scales the batch; add --sweep");
  if (!arguments.sweep.empty() && !arguments.out.empty())
    return error("--out: a sweep has several plans; ask for one of them without --sweep, or use --json");
  if (!arguments.sweep.empty() && !(arguments.trainer.trainer + arguments.trainer.against).empty())
    return error("--sweep: not with --for or --against, which are about one run");
  const SearchRequest& search = arguments.request;
  if (search.plan.model.empty() && arguments.trainer.against.empty())
    return error("--model is required\nTry 'weft plan --help'.");
  if (!(arguments.trainer.trainer + arguments.trainer.against).empty() && search.search != "auto" &&
      search.search != "enumerate")
    return error("--search {}: trainers take degrees; leave it out with --for and --against", search.search);
  if (!arguments.sweep.empty() && arguments.explain) return error("--explain: of one plan; ask for it without --sweep");
  return Ok{};
}

Result<Answer> run_search(const PlanArguments& arguments) {
  WEFT_TRY_OK(check(arguments));
  SearchRequest request = arguments.request;
  StopOnInterrupt interrupt;
  Progress progress;
  if (!arguments.sweep.empty()) {
    WEFT_TRY(SettledSearch settled, settle_search(std::move(request)));
    return run_sweep({.search = std::move(settled),
                      .over = arguments.sweep,
                      .weak = arguments.weak,
                      .json = arguments.json,
                      .cancelled = interrupt.wish()},
                     progress);
  }
  WEFT_TRY(const std::optional<Target> trainer, trainer_of(arguments.trainer));
  std::optional<PresentRun> present;
  if (trainer) request.search = "enumerate";
  if (!arguments.trainer.against.empty()) {
    WEFT_TRY(const SettledSearch settled, settle_search(request));
    WEFT_TRY(present, read_present_run(arguments.trainer, *trainer, settled.request.plan, settled.calibration));
    request.plan = present->run.request;
  }
  if (!arguments.out.empty()) {
    WEFT_TRY_OK(settle_search(request));
    WEFT_TRY_OK(make_folder(arguments.out, arguments.trace));
    request.tree_file = fmt::format("{}/{}", arguments.out, kFoundFiles[1]);
  }
  progress.now("searching");
  const auto show = [&](const SearchProgress& now) {
    progress.now(now.best_s > 0 ? fmt::format("searching, best {}", human(Seconds{now.best_s})) : "searching",
                 now.of > 0 ? static_cast<double>(now.done) / static_cast<double>(now.of) : -1);
  };
  const auto admit = [&](const PlanProblem& problem, SpaceOptions& space) -> Status {
    return trainer ? admit_only(*trainer, *problem.job, space) : Status(Ok{});
  };
  WEFT_TRY(Searched searched,
           search_plans(std::move(request), {.cancelled = interrupt.wish(), .progress = show, .admit = admit}));
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
    if (const Status written = write_found(searched, *winner, arguments.out, arguments.trace); !written.ok())
      answer.unwritten = written.error().at("--out");
  std::vector<Sensitivity> what_if;
  if (answer.feasible && arguments.explain && outcome.best.front().parallelism) {
    progress.now("asking what if");
    EnumerateOptions options = searched.options;
    options.budget.cancelled = interrupt.wish();
    WEFT_TRY(what_if,
             sensitivities(searched.problem, *searched.cost.model, options, *outcome.best.front().parallelism));
  }
  progress.done();
  if (arguments.json) {
    nlohmann::json json = to_json(searched, winner ? &*winner : nullptr);
    if (present) add_change(*present, searched.problem, answer.feasible ? &outcome.best.front() : nullptr, json);
    answer.text = to_text(json);
    return answer;
  }
  answer.text = answer.feasible ? describe(searched.problem, outcome, searched.table)
                                : describe_miss(searched.problem, outcome, searched.table);
  if (answer.feasible && !outcome.best.front().parallelism)
    answer.text += "\noperators\n" + summarise_rules(outcome.best.front().tree);
  if (answer.feasible && arguments.explain)
    answer.text += "\n" + explain(outcome) + (what_if.empty() ? "" : "\n" + describe(what_if, outcome));
  if (present)
    answer.text += describe_change(*present, searched.problem, answer.feasible ? &outcome.best.front() : nullptr);
  if (winner && !answer.unwritten)
    answer.text += fmt::format("\nwritten: {0}/plan.json, {0}/strategy.yaml{1}\n", arguments.out,
                               arguments.trace ? fmt::format(", {}/trace.json", arguments.out) : "");
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
      "  weft plan --model llama3-70b --cluster dgx-h100:16 --fix tp=8 --without cp,zero3 --max-memory 70GiB\n"
      "  weft plan --model llama3-70b --cluster dgx-h100:8 --sweep nodes=8..64 --price 2.5\n"
      "  weft plan --model alexnet --cluster p100x4:4 --search mcmc --budget 20s\n"
      "  weft plan --model llama3-8b --cluster dgx-h100:2 --for megatron        plans that weft export can write\n"
      "  weft plan --against args.txt --cluster dgx-h100:2       a present Megatron run, and what would be faster\n");
  add_search_words(*command, arguments->request);
  add_trainer_arguments(*command, arguments->trainer);
  command->add_option("--sweep", arguments->sweep,
                      "one search for each of nodes=4..64 (doubling), devices=, batch=, seq=8k,32k or cluster=A,B");
  command->add_flag("--weak", arguments->weak, "with --sweep nodes=: the batch grows with the devices");
  command->add_option("--out", arguments->out, "write plan.json and strategy.yaml into this folder");
  command->add_flag("--trace", arguments->trace, "with --out: a trace.json of the step too, for ui.perfetto.dev");
  CLI::Option* why = command->add_flag("--explain", arguments->explain, "why the winner won, and what would change it");
  command->add_flag("--timing", arguments->timing, "also how long weft itself took");
  command->add_flag("--json", arguments->json, "one JSON object (docs/schema)")->excludes(why);
  command->callback([arguments, &chosen] { chosen = [arguments] { return finish(run_search(*arguments)); }; });
}

}  // namespace weft
