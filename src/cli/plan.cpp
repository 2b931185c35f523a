// weft plan: the best strategy for a model on a cluster.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <array>
#include <atomic>
#include <csignal>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>

#include "base/units.h"
#include "base/whole_file.h"
#include "cli/commands.h"
#include "cli/progress.h"
#include "cli/search_words.h"
#include "cli/sweep.h"
#include "report/plan_file.h"
#include "report/plan_search.h"
#include "report/simulation.h"
#include "report/trace.h"
#include "report/tree.h"
#include "search/find_plan.h"
#include "strategy/yaml.h"

namespace weft {
namespace {

struct PlanArguments {
  SearchWords words;
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

Status write_file(const std::string& path, std::string_view text) {
  WEFT_TRY(WholeFile file, WholeFile::create(path));
  file.write(text);
  return file.finish();
}

constexpr std::array kFiles = {"plan.json", "strategy.yaml", "trace.json"};

// Writes the plan, its tree for weft simulate --strategy, and if asked for a trace of the step.
Status write_out(const std::string& folder, const PlanFile& file, const Plan& plan, const PlayedPlan& played,
                 bool traced) {
  WEFT_TRY_OK(write_file(fmt::format("{}/{}", folder, kFiles[0]), print(file)));
  WEFT_TRY_OK(write_file(fmt::format("{}/{}", folder, kFiles[1]), file.tree));
  if (!traced) return Ok{};
  WEFT_TRY(WholeFile trace, WholeFile::create(fmt::format("{}/{}", folder, kFiles[2])));
  WEFT_TRY_OK(write_trace(trace, plan, played));
  return trace.finish();
}

// Makes the folder and checks, before the search, that the files can be written.
Status make_folder(const std::string& folder, bool traced) {
  std::error_code problem;
  std::filesystem::create_directories(folder, problem);
  if (problem || !std::filesystem::is_directory(folder))
    return error("--out {}: no folder can be made there{}", folder, problem ? ": " + problem.message() : "");
  for (const char* file : std::span(kFiles).first(traced ? 3 : 2))
    if (const auto created = WholeFile::create(fmt::format("{}/{}", folder, file)); !created.ok())
      return created.error().at("--out");
  return Ok{};
}

Status check(const PlanArguments& arguments) {
  if (arguments.trace && arguments.out.empty()) return error("--trace writes into the folder of --out; add --out DIR");
  if (arguments.weak && arguments.sweep.empty()) return error("--weak says how --sweep scales the batch; add --sweep");
  if (!arguments.sweep.empty() && !arguments.out.empty())
    return error("--out: a sweep has several plans; ask for one of them without --sweep, or use --json");
  if (!arguments.sweep.empty() && arguments.explain) return error("--explain: of one plan; ask for it without --sweep");
  return Ok{};
}

Result<Answer> run_search(const PlanArguments& arguments) {
  WEFT_TRY_OK(check(arguments));
  const SearchWords& words = arguments.words;
  WEFT_TRY(SearchRequest settled, settle(words));
  if (settled.prices.size() > 1 && arguments.sweep.empty())
    return error("--price {}: one price; several are for --sweep cluster=A,B", words.price);
  FindOptions& finding = settled.finding;
  if (!arguments.out.empty()) finding.tree_file = arguments.out + "/strategy.yaml";
  EnumerateOptions& options = finding.enumerate;
  PlanTableOptions& table = settled.table;
  if (!arguments.out.empty()) WEFT_TRY_OK(make_folder(arguments.out, arguments.trace));
  table.seconds = arguments.timing || (!arguments.json && ::isatty(STDOUT_FILENO));

  StopOnInterrupt interrupt;
  options.budget.cancelled = interrupt.wish();
  Progress progress;
  if (!arguments.sweep.empty())
    return run_sweep({.words = words,
                      .search = std::move(settled),
                      .over = arguments.sweep,
                      .weak = arguments.weak,
                      .json = arguments.json,
                      .cancelled = interrupt.wish()},
                     progress);
  progress.now("reading the model");
  WEFT_TRY(const PlanProblem problem, pose(settled.request, settled.calibration));
  WEFT_TRY(const ChosenCost chosen, choose_cost(words.cost, *problem.job));
  const CostModel& cost = *chosen.model;
  options.progress = [&](const SearchProgress& now) {
    progress.now(now.best_s > 0 ? fmt::format("searching, best {}", human(Seconds{now.best_s})) : "searching",
                 now.of > 0 ? static_cast<double>(now.done) / static_cast<double>(now.of) : -1);
  };
  progress.now("searching");
  WEFT_TRY(FoundPlan searched, find_plan(problem, cost, finding));
  if (words.cost.model == "measured")
    for (Judged& judged : searched.outcome.best) judged.forecast.interval.reasons.emplace_back(kMeasuredInterval);
  const auto& [search, outcome] = searched;

  Answer answer{.feasible = !outcome.best.empty()};
  // The winner is simulated once more with its timeline recorded, for the full report.
  std::optional<Plan> plan;
  std::optional<PlayedPlan> played;
  std::optional<Forecast> found;
  if (answer.feasible && (arguments.json || !arguments.out.empty())) {
    progress.now("simulating the winner");
    WEFT_TRY(StrategyChoice winner, choice_of(*problem.job, outcome.best.front()));
    const ForecastOptions all{.record = true};
    WEFT_TRY(plan, make_plan(problem.job, std::move(winner)));
    WEFT_TRY(played, play_plan(*plan, cost, all));
    found = judge(*plan, *played, all);
    found->assumptions.insert(found->assumptions.end(), problem.assumptions.begin(), problem.assumptions.end());
    if (words.cost.model == "measured") {
      found->assumptions.insert(found->assumptions.end(), chosen.assumptions.begin(), chosen.assumptions.end());
      found->interval.reasons.emplace_back(kMeasuredInterval);
    }
  }
  if (plan && !arguments.out.empty()) {
    PlanFile file = plan_file(*plan, *played, *found, outcome, search, words.seed);
    file.calibration = words.cost.calibration;
    if (const Status written = write_out(arguments.out, file, *plan, *played, arguments.trace); !written.ok())
      answer.unwritten = written.error().at("--out");
  }
  std::vector<Sensitivity> what_if;
  if (answer.feasible && arguments.explain && outcome.best.front().parallelism) {
    progress.now("asking what if");
    WEFT_TRY(what_if, sensitivities(problem, cost, options));
  }
  progress.done();
  if (arguments.json) {
    nlohmann::json json = to_json(problem, outcome, table);
    json["search"] = search;
    json["seed"] = words.seed;
    json["best"] = plan ? to_json(*plan, *played, *found) : nlohmann::json();
    if (plan) json["best"]["network"] = "fair", json["best"]["cost"] = words.cost.model;
    const bool named = plan && (plan->parallelism || !arguments.out.empty());
    json["shorthand"] = named ? nlohmann::json(plan->name) : nlohmann::json();
    json["tree"] = plan ? nlohmann::json(to_yaml(outcome.best.front().tree)) : nlohmann::json();
    answer.text = to_text(json);
    return answer;
  }
  answer.text = answer.feasible ? describe(problem, outcome, table) : describe_miss(problem, outcome, table);
  if (answer.feasible && !outcome.best.front().parallelism)
    answer.text += "\noperators\n" + summarise_rules(outcome.best.front().tree);
  if (answer.feasible && arguments.explain)
    answer.text += "\n" + explain(outcome) + (what_if.empty() ? "" : "\n" + describe(what_if, outcome));
  if (plan && !answer.unwritten)
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
      "Data parallelism, FSDP and Megatron's rule of thumb are always among them. Ctrl-C gives the best so far. The "
      "exit\n"
      "code is 1 where nothing fits, with what comes closest.\n"
      "\nExamples:\n"
      "  weft plan --model llama3-70b --cluster dgx-h100:16 --global-batch 1024 --seq 8192\n"
      "  weft plan --model gpt3-175b --cluster dgx-a100:128 --global-batch 1536 --tokens 300B --explain\n"
      "  weft plan --model mixtral-8x7b --cluster dgx-h100:4 --budget 10s --top 10 --json\n"
      "  weft plan --model llama3-70b --cluster dgx-h100:16 --fix tp=8 --without cp,zero3 --max-memory 70GiB\n"
      "  weft plan --model llama3-70b --cluster dgx-h100:8 --sweep nodes=8..64 --price 2.5\n"
      "  weft plan --model alexnet --cluster p100x4:4 --search mcmc --budget 20s\n");
  add_search_words(*command, arguments->words);
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
