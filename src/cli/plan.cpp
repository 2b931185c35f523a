// weft plan: the best strategy for a model on a cluster.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <csignal>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/suggest.h"
#include "base/units.h"
#include "base/whole_file.h"
#include "cli/commands.h"
#include "cli/cost_arguments.h"
#include "cli/imported.h"
#include "cli/plan_arguments.h"
#include "cli/progress.h"
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
  PlanRequest request;
  std::string search = "auto", budget, tokens, out, schedules;
  CostArguments cost;
  TrainerArguments trainer;
  std::int64_t seed = 1, top = 5;
  int threads = 0;
  double headroom = 100 * kHeadroom;  // per cent
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

// "15T", "300B", "2e12".
Result<double> parse_tokens(const std::string& text) {
  double value = 0;
  const auto [rest, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  const std::string_view unit(rest, static_cast<std::size_t>(text.data() + text.size() - rest));
  const double scale = unit.empty()  ? 1
                       : unit == "k" ? 1e3
                       : unit == "M" ? 1e6
                       : unit == "B" ? 1e9
                       : unit == "T" ? 1e12
                                     : 0;
  if (status != std::errc() || scale == 0 || !(value > 0 && value * scale < 1e18))
    return error("--tokens '{}': a number of tokens, 300B or 15T", text);
  return value * scale;
}

Result<SearchBudget> parse_budget(const std::string& text) {
  SearchBudget budget;
  if (text.empty()) return budget;
  if (text.find_first_not_of("0123456789") == std::string::npos) {
    WEFT_TRY(budget.evaluations, parse_integer(text, "--budget"));
    if (budget.evaluations < 1) return error("--budget {}: at least one simulation; or a time, 30s", text);
    return budget;
  }
  const Result<Seconds> seconds = parse_seconds(text);
  if (!seconds.ok() || seconds->value < 0)
    return error("--budget '{}': a time, 30s, or a number of simulations, 64", text);
  budget.seconds = std::max(seconds->value, 1e-9);  // 0 s: only the baselines are simulated
  return budget;
}

Result<std::vector<PlanSchedule>> parse_schedules(const std::string& text) {
  std::vector<PlanSchedule> schedules;
  std::vector<std::string> known;
  for (int i = 0; i < kPlanSchedules; ++i) known.emplace_back(name_of(static_cast<PlanSchedule>(i)));
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find(',', at), text.size());
    const std::string word = text.substr(at, end - at);
    const auto found = std::find(known.begin(), known.end(), word);
    if (found == known.end()) return error("--schedules '{}': unknown{}", word, did_you_mean(word, known));
    schedules.push_back(static_cast<PlanSchedule>(found - known.begin()));
    at = end + 1;
  }
  return schedules;
}

Status check(const PlanArguments& arguments) {
  if (arguments.search == "hap") return error("--search hap: not there yet; {} are", fmt::join(kSearchNames, ", "));
  const std::vector<std::string> known(kSearchNames.begin(), kSearchNames.end());
  if (std::find(known.begin(), known.end(), arguments.search) == known.end())
    return error("--search '{}': unknown{}", arguments.search, did_you_mean(arguments.search, known));
  WEFT_TRY_OK(check(arguments.cost));
  if (arguments.cost.model == "symbolic")
    return error(
        "--cost symbolic: its times have no seconds to compare plans by; --search symbolic is a search by volumes");
  if (arguments.top < 1 || arguments.top > 100) return error("--top {}: from 1 to 100 plans", arguments.top);
  if (arguments.threads < 0 || arguments.threads > 1024)
    return error("--threads {}: from 1 to 1024, or 0 for all", arguments.threads);
  if (!(arguments.headroom >= 0 && arguments.headroom < 100))
    return error("--headroom {}: a share of the device's memory, from 0 to less than 100 %", arguments.headroom);
  return Ok{};
}

Status write_file(const std::string& path, std::string_view text) {
  WEFT_TRY(WholeFile file, WholeFile::create(path));
  file.write(text);
  return file.finish();
}

constexpr std::array kFiles = {"plan.json", "strategy.yaml", "trace.json"};

// Writes the plan, its tree for weft simulate --strategy, and a trace of the step.
Status write_out(const std::string& folder, const PlanFile& file, const Plan& plan, const PlayedPlan& played) {
  WEFT_TRY_OK(write_file(fmt::format("{}/{}", folder, kFiles[0]), print(file)));
  WEFT_TRY_OK(write_file(fmt::format("{}/{}", folder, kFiles[1]), file.tree));
  WEFT_TRY(WholeFile trace, WholeFile::create(fmt::format("{}/{}", folder, kFiles[2])));
  WEFT_TRY_OK(write_trace(trace, plan, played));
  return trace.finish();
}

// Makes the folder and checks, before the search, that the files can be written.
Status make_folder(const std::string& folder) {
  std::error_code problem;
  std::filesystem::create_directories(folder, problem);
  if (problem || !std::filesystem::is_directory(folder))
    return error("--out {}: no folder can be made there{}", folder, problem ? ": " + problem.message() : "");
  for (const char* file : kFiles)
    if (const auto created = WholeFile::create(fmt::format("{}/{}", folder, file)); !created.ok())
      return created.error().at("--out");
  return Ok{};
}

Result<Answer> run_search(const PlanArguments& arguments) {
  WEFT_TRY_OK(check(arguments));
  if (arguments.request.model.empty() && arguments.trainer.against.empty())
    return error("--model is required\nTry 'weft plan --help'.");
  FindOptions finding;
  finding.search =
      static_cast<Search>(std::find(kSearchNames.begin(), kSearchNames.end(), arguments.search) - kSearchNames.begin());
  finding.seed = static_cast<std::uint64_t>(arguments.seed);
  if (!arguments.out.empty()) finding.tree_file = arguments.out + "/strategy.yaml";
  EnumerateOptions& options = finding.enumerate;
  PlanTableOptions table;
  WEFT_TRY(options.budget, parse_budget(arguments.budget));
  if (!arguments.tokens.empty()) {
    WEFT_TRY(table.tokens, parse_tokens(arguments.tokens));
  }
  if (!arguments.schedules.empty()) {
    WEFT_TRY(options.space.schedules, parse_schedules(arguments.schedules));
  }
  if (!arguments.out.empty()) WEFT_TRY_OK(make_folder(arguments.out));
  options.top = static_cast<std::size_t>(arguments.top);
  options.threads = arguments.threads;
  table.seconds = arguments.timing || (!arguments.json && ::isatty(STDOUT_FILENO));

  StopOnInterrupt interrupt;
  options.budget.cancelled = interrupt.wish();
  Progress progress;
  progress.now("reading the model");
  WEFT_TRY(const Calibration calibration, calibration_of(arguments.cost));
  PlanRequest request = arguments.request;
  request.headroom = arguments.headroom / 100;
  WEFT_TRY(const std::optional<Target> trainer, trainer_of(arguments.trainer));
  std::optional<PresentRun> present;
  if (!arguments.trainer.against.empty()) {
    WEFT_TRY(present, read_present_run(arguments.trainer, *trainer, request, calibration));
    request = present->run.request;
  }
  WEFT_TRY(const PlanProblem problem, pose(request, calibration));
  if (trainer) {
    if (finding.search != Search::Auto && finding.search != Search::Enumerate)
      return error("--search {}: trainers take degrees; leave it out with --for and --against", arguments.search);
    finding.search = Search::Enumerate;
    WEFT_TRY_OK(admit_only(*trainer, *problem.job, options.space));
  }
  WEFT_TRY(const ChosenCost chosen, choose_cost(arguments.cost, *problem.job));
  const CostModel& cost = *chosen.model;
  options.progress = [&](const SearchProgress& now) {
    progress.now(now.best_s > 0 ? fmt::format("searching, best {}", human(Seconds{now.best_s})) : "searching",
                 now.of > 0 ? static_cast<double>(now.done) / static_cast<double>(now.of) : -1);
  };
  progress.now("searching");
  WEFT_TRY(FoundPlan searched, find_plan(problem, cost, finding));
  if (arguments.cost.model == "measured")
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
    if (arguments.cost.model == "measured") {
      found->assumptions.insert(found->assumptions.end(), chosen.assumptions.begin(), chosen.assumptions.end());
      found->interval.reasons.emplace_back(kMeasuredInterval);
    }
  }
  if (plan && !arguments.out.empty()) {
    PlanFile file = plan_file(*plan, *played, *found, outcome, search, arguments.seed);
    file.calibration = arguments.cost.calibration;
    if (const Status written = write_out(arguments.out, file, *plan, *played); !written.ok())
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
    json["seed"] = arguments.seed;
    json["best"] = plan ? to_json(*plan, *played, *found) : nlohmann::json();
    if (plan) json["best"]["network"] = "fair", json["best"]["cost"] = arguments.cost.model;
    const bool named = plan && (plan->parallelism || !arguments.out.empty());
    json["shorthand"] = named ? nlohmann::json(plan->name) : nlohmann::json();
    json["tree"] = plan ? nlohmann::json(to_yaml(outcome.best.front().tree)) : nlohmann::json();
    if (present) add_change(*present, problem, answer.feasible ? &outcome.best.front() : nullptr, json);
    answer.text = to_text(json);
    return answer;
  }
  answer.text = answer.feasible ? describe(problem, outcome, table) : describe_miss(problem, outcome);
  if (answer.feasible && !outcome.best.front().parallelism)
    answer.text += "\noperators\n" + summarise_rules(outcome.best.front().tree);
  if (answer.feasible && arguments.explain)
    answer.text += "\n" + explain(outcome) + (what_if.empty() ? "" : "\n" + describe(what_if, outcome));
  if (present) answer.text += describe_change(*present, problem, answer.feasible ? &outcome.best.front() : nullptr);
  if (plan && !answer.unwritten)
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
      "Data parallelism, FSDP and Megatron's rule of thumb are always among them. Ctrl-C gives the best so far. The "
      "exit\n"
      "code is 1 where nothing fits, with what comes closest.\n"
      "\nExamples:\n"
      "  weft plan --model llama3-70b --cluster dgx-h100:16 --global-batch 1024 --seq 8192\n"
      "  weft plan --model gpt3-175b --cluster dgx-a100:128 --global-batch 1536 --tokens 300B --explain\n"
      "  weft plan --model mixtral-8x7b --cluster dgx-h100:4 --budget 10s --top 10 --json\n"
      "  weft plan --model alexnet --cluster p100x4:4 --search mcmc --budget 20s\n"
      "  weft plan --model llama3-8b --cluster dgx-h100:2 --for megatron        plans that weft export can write\n"
      "  weft plan --against args.txt --cluster dgx-h100:2       a present Megatron run, and what would be faster\n");
  PlanRequest& request = arguments->request;
  command->add_option("--model", request.model, "zoo name with overrides, config.json or .onnx file");
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
          "--search", arguments->search,
          "auto (enumerate, and mcmc for models without alike layers), enumerate (hybrid parallelism), layerwise (a "
          "decision for every layer); exact, mcmc, symbolic (a decision for every operator)")
      ->capture_default_str();
  add_trainer_arguments(*command, arguments->trainer);
  add_cost_arguments(*command, arguments->cost);
  command->add_option("--schedules", arguments->schedules,
                      "pipeline schedules to consider, of 1f1b,interleaved,zb-h1,zb-v,gpipe (default: the first two)");
  command->add_option("--tokens", arguments->tokens, "tokens of the whole training, 300B or 15T: days and GPU-hours");
  command->add_option("--budget", arguments->budget,
                      "simulations (64) or a time (30s) to spend (default: until no plan is left that could win)");
  command->add_option("--seed", arguments->seed, "of searches that draw numbers")->capture_default_str();
  command->add_option("--top", arguments->top, "plans to show")->capture_default_str();
  command->add_option("--headroom", arguments->headroom, "per cent of a device's memory that stays free")
      ->capture_default_str();
  command->add_option("--threads", arguments->threads, "to search with (default: all; the plan does not depend on it)");
  command->add_option("--out", arguments->out, "write plan.json and trace.json into this folder");
  CLI::Option* why = command->add_flag("--explain", arguments->explain, "why the winner won, and what would change it");
  command->add_flag("--timing", arguments->timing, "also how long weft itself took");
  command->add_flag("--json", arguments->json, "one JSON object (docs/schema)")->excludes(why);
  command->callback([arguments, &chosen] { chosen = [arguments] { return finish(run_search(*arguments)); }; });
}

}  // namespace weft
