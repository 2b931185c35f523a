// weft simulate: a step of training in simulated time.
#include <sys/ioctl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <array>
#include <chrono>
#include <csignal>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <tuple>

#include "ask/simulation.h"
#include "base/units.h"
#include "cli/commands.h"
#include "cli/cost_arguments.h"
#include "cli/imported.h"
#include "cli/plan_arguments.h"
#include "cli/progress.h"
#include "report/gantt.h"
#include "report/simulation.h"
#include "report/trace.h"

namespace weft {
namespace {

struct SimulateArguments {
  SimulationRequest request;
  FromArguments import;  // a trainer's configuration, instead of the request
  std::string trace, trace_ranks;
  std::optional<std::int64_t> trace_tasks;
  bool no_fold = false, gantt = false, timing = false, json = false;
};

// During its lifetime, Ctrl-C removes the unfinished file before weft ends. A handler can reach only what is static.
class RemoveOnInterrupt {
 public:
  explicit RemoveOnInterrupt(const std::string& path) {
    if (path.empty() || path.size() >= sizeof unfinished_) return;
    std::memcpy(unfinished_, path.c_str(), path.size() + 1);
    for (std::size_t i = 0; i < kSignals.size(); ++i) before_[i] = std::signal(kSignals[i], remove_and_end);
  }
  ~RemoveOnInterrupt() {
    for (std::size_t i = 0; i < kSignals.size(); ++i)
      if (before_[i]) std::signal(kSignals[i], before_[i]);
  }
  RemoveOnInterrupt(const RemoveOnInterrupt&) = delete;

 private:
  static constexpr std::array kSignals = {SIGINT, SIGTERM};
  static void remove_and_end(int signal) {
    ::unlink(unfinished_);
    ::_exit(128 + signal);
  }

  inline static char unfinished_[4096] = {};
  std::array<void (*)(int), kSignals.size()> before_{};
};

// The width of the terminal, if there is one.
std::size_t terminal_width() {
  winsize size{};
  if (::isatty(STDOUT_FILENO) && ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return 100;
}

// Either a plan file or the options that describe a plan.
Status check_options(const SimulateArguments& arguments) {
  const PlanRequest& request = arguments.request.plan;
  const std::string& file = arguments.request.plan_file;
  if (!file.empty() && !arguments.import.from.empty())
    return error("--from: {} says what is simulated; leave one out", file);
  if (!file.empty()) return check_file_alone(request, file);
  const std::pair<std::string_view, bool> needed[] = {{"--model", !request.model.empty()},
                                                      {"--cluster", !request.cluster.empty()},
                                                      {"--strategy", !request.strategy.empty()}};
  for (const auto& [option, given] : needed)
    if (!given && (arguments.import.from.empty() || option == "--cluster"))
      return error("{} is required\nTry 'weft simulate --help'.", option);
  return Ok{};
}

Status check(const SimulateArguments& arguments) {
  WEFT_TRY_OK(check_options(arguments));
  WEFT_TRY_OK(check(arguments.request));
  if (arguments.trace.empty() && (!arguments.trace_ranks.empty() || arguments.trace_tasks))
    return error("--trace-ranks and --trace-tasks say what --trace FILE writes; add it");
  if (arguments.trace_tasks && *arguments.trace_tasks < 0)
    return error("--trace-tasks {}: 0 (all) or more", *arguments.trace_tasks);
  return Ok{};
}

Result<Answer> run_simulation(const SimulateArguments& arguments) {
  WEFT_TRY_OK(check(arguments));
  std::optional<WholeFile> file;
  std::optional<RemoveOnInterrupt> guarded;
  if (!arguments.trace.empty()) {
    Result<WholeFile> created = WholeFile::create(arguments.trace);
    if (!created.ok()) return created.error().at("--trace");
    file.emplace(std::move(created).value());
    guarded.emplace(file->unfinished());
  }
  Progress progress;
  progress.now("making the plan");
  const auto start = std::chrono::steady_clock::now();
  SimulationRequest request = arguments.request;
  request.fold = !arguments.no_fold;
  std::vector<std::string> notes;
  if (!arguments.import.from.empty()) {
    WEFT_TRY(const ImportedRun imported, imported_run(arguments.import, request.plan));
    request.plan = imported.request;
    notes = imported.notes;
    notes.push_back(fmt::format("{}: --model {} --strategy {} --dtype {} --stack {}", arguments.import.from[1],
                                request.plan.model, request.plan.strategy, request.plan.dtype, request.plan.stack));
  }
  WEFT_TRY(SettledSimulation settled, settle_simulation(std::move(request)));
  TraceOptions trace;
  if (!arguments.trace_ranks.empty()) {
    WEFT_TRY(trace.ranks, parse_ranks(arguments.trace_ranks, static_cast<std::int64_t>(settled.plan.ranks().size())));
  }
  if (arguments.trace_tasks) trace.most_tasks = *arguments.trace_tasks;
  WEFT_TRY(Simulation simulated, simulate(std::move(settled), [&](std::string_view part) { progress.now(part); }));
  std::vector<std::string>& assumed = simulated.forecast.assumptions;
  assumed.insert(assumed.end(), notes.begin(), notes.end());
  const auto& [plan, played, found] = std::tie(simulated.plan, simulated.played, simulated.forecast);
  const auto judged = std::chrono::steady_clock::now();
  Answer answer{.feasible = found.feasible};
  std::optional<TraceCounts> traced;
  if (file) {
    trace.progress = [&](double share) {
      progress.now("writing the trace", share);
      return true;
    };
    WEFT_TRY(traced, write_trace(*file, plan, played, trace));
    if (const Status finished = file->finish(); !finished.ok()) answer.unwritten = finished.error().at("--trace");
    guarded.reset();
  }
  const auto written = std::chrono::steady_clock::now();
  progress.done();

  const auto seconds = [](auto from, auto to) { return std::chrono::duration<double>(to - from).count(); };
  const Simulation::Times& times = simulated.times;
  const std::vector<std::pair<const char*, double>> timing = {{"plan", times.plan},
                                                              {"compile", times.play.compile},
                                                              {"price", times.play.price},
                                                              {"simulate", times.play.simulate},
                                                              {"judge", times.judge},
                                                              {"trace", seconds(judged, written)},
                                                              {"all", seconds(start, written)}};
  if (arguments.json) {
    nlohmann::json json = to_json(simulated);
    if (arguments.timing)
      for (const auto& [part, time] : timing) json["timing_s"][part] = time;
    answer.text = to_text(json);
    return answer;
  }
  answer.text = describe(plan, played, found);
  if (arguments.gantt) answer.text += "\n" + draw_gantt(plan, played, terminal_width());
  if (traced && !answer.unwritten) {
    answer.text += fmt::format("\ntrace: {}, {} events of {} process{}", arguments.trace, grouped(traced->events),
                               traced->processes, traced->processes == 1 ? "" : "es");
    if (traced->detailed_micro_batches < played.priced.workload.micro_batches)
      answer.text += fmt::format("; {} of {} micro-batches operator by operator (--trace-tasks 0: all)",
                                 traced->detailed_micro_batches, played.priced.workload.micro_batches);
    answer.text += "\n  open it at https://ui.perfetto.dev or chrome://tracing\n";
  }
  if (arguments.timing) {
    answer.text += "\ntook";
    for (const auto& [part, time] : timing) answer.text += fmt::format(" · {} {:.3f} s", part, time);
    answer.text += "\n";
  }
  return answer;
}

}  // namespace

void add_simulate(CLI::App& app, Chosen& chosen) {
  const auto arguments = std::make_shared<SimulateArguments>();
  CLI::App* command = app.add_subcommand(
      "simulate", "Play one training step in simulated time: step time, throughput, MFU, memory, where time goes.");
  command->footer(
      std::string(kStrategyHelp) +
      "\nEvery operator, collective and transfer gets a duration from the cost model and is played on its device's\n"
      "streams; communications that meet on a link share it. Devices that do the same are simulated once. A plan that\n"
      "does not fit its devices' memory is answer all the same, with what is too much; the exit code is then 1.\n"
      "\nExamples:\n"
      "  weft simulate --model llama3-8b --cluster dgx-h100:2 --strategy tp=4,pp=2,dp=2,zero=1\n"
      "  weft simulate --model gpt3-175b --cluster dgx-a100:128 --strategy tp=8,pp=16,dp=8 --global-batch 1536 \\\n"
      "                --seq 2048 --trace t.json                           a trace for ui.perfetto.dev\n"
      "  weft simulate --model gpt2-xl --cluster dgx-a100:1 --strategy pp=4,dp=2,ga=8 --gantt\n"
      "                                                                    the pipeline, drawn in the terminal\n"
      "  weft simulate --model resnet50 --cluster dgx-a100:1 --strategy dp=8 --json\n"
      "  weft simulate found/plan.json                                     what weft plan --out found wrote\n"
      "  weft simulate --from megatron args.txt --cluster dgx-h100:2      a present run, as its launch command says "
      "it\n"
      "  weft simulate --model gpt2-124m --cluster dgx-h200:1 --strategy dp=8 --cost measured --db h200.db\n");
  command->add_option("plan,--plan", arguments->request.plan_file,
                      "a plan.json of weft plan --out, instead of what follows");
  add_from_argument(*command, arguments->import);
  add_plan_arguments(*command, arguments->request.plan);
  for (const char* option : {"--model", "--cluster", "--strategy"}) command->get_option(option)->required(false);
  add_cost_arguments(*command, arguments->request.cost);
  command
      ->add_option("--network", arguments->request.network,
                   "fair: communications share links; fifo: a link serves one at a time")
      ->capture_default_str();
  command->add_flag("--no-fold", arguments->no_fold, "simulate every device, also those that do the same");
  command->add_option("--headroom", arguments->request.headroom,
                      "per cent of a device's memory that stays free (default: 4, or the plan's)");
  CLI::Option* gantt = command->add_flag("--gantt", arguments->gantt, "draw the timeline, one line per stage");
  command->add_option("--trace", arguments->trace, "write a Chrome trace (JSON) to this file");
  command->add_option("--trace-ranks", arguments->trace_ranks,
                      "what it shows: 0,8,16-23, or all (default: one rank of each class)");
  command->add_option("--trace-tasks", arguments->trace_tasks,
                      "beyond this many tasks show micro-batches in the middle body by body; 0: never (default: "
                      "100,000)");
  command->add_flag("--timing", arguments->timing, "also how long weft itself took");
  command->add_flag("--json", arguments->json, "one JSON object (docs/schema)")->excludes(gantt);
  command->callback([arguments, &chosen] { chosen = [arguments] { return finish(run_simulation(*arguments)); }; });
}

}  // namespace weft
