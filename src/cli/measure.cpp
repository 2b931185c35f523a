// weft profile measure: the events of plans, measured on this machine by the ranks that would run them.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <ctime>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/units.h"
#include "base/whole_file.h"
#include "cli/commands.h"
#include "cli/measure_played.h"
#include "cli/plan_arguments.h"
#include "cli/progress.h"
#include "cli/run_request.h"
#include "cli/temporary_directory.h"
#include "cluster/cluster.h"
#include "measure/events_of_plan.h"
#include "measure/machine.h"
#include "profile/database.h"
#include "profile/event_list.h"
#include "run/measure_launch.h"

namespace weft {
namespace {

struct MeasureArguments {
  PlanRequest request;
  std::vector<std::string> models, strategies;
  std::string database, cluster_out, budget = "60s", device = "cpu", device_name;
  std::int64_t ranks = 0, threads = 1, beside = 0;
  bool alone = false, list = false, json = false;

  // On a GPU the host only gives out the work: what it takes is not on the host's timeline.
  bool plays() const { return !alone && device == "cpu"; }
};

constexpr std::int64_t kMostRanks = 256;
constexpr std::int64_t kLargestGroup = 8;  // that is measured; larger ones are extrapolated
constexpr double kMostPlayed = 4;          // seconds that a device plays
constexpr std::int64_t kEnoughRuns = 4;    // of an event that is not measured again
constexpr std::size_t kSavedAtOnce = 32;   // samples: a commit waits for the disk, which would disturb what is measured

Result<Seconds> checked_budget(const MeasureArguments& arguments) {
  const Result<Seconds> budget = parse_seconds(arguments.budget);
  if (!budget.ok() || !(budget->value > 0)) return error("--budget '{}': a time, 60s or 5min", arguments.budget);
  if (arguments.ranks < 0 || arguments.ranks > kMostRanks)
    return error("--ranks {}: from 1 to {}", arguments.ranks, kMostRanks);
  if (arguments.threads < 1) return error("--threads {}: at least 1", arguments.threads);
  if (arguments.beside < 0 || arguments.beside > 64) return error("--beside {}: from 0 to 64", arguments.beside);
  if (arguments.beside > 0 && arguments.device_name.empty())
    return error("--beside {}: name the slower device that is measured (--device-name)", arguments.beside);
  if (arguments.models.empty() != arguments.strategies.empty() && arguments.models.empty())
    return error("--strategy {}: of which --model?", arguments.strategies.front());
  if (arguments.models.empty() && arguments.cluster_out.empty())
    return error("--model or --cluster-out is required\nTry 'weft profile measure --help'.");
  if (arguments.database.empty() && !arguments.list)
    return error("--db is required: the database that samples are added to");
  return budget;
}

// What is to be measured, of all models under all strategies.
struct Wanted {
  std::vector<Plan> plans;
  std::vector<EventUse> events;
  std::int64_t elsewhere = 0;  // communications between nodes, or of several ranks where only one measures
  std::vector<std::string> assumptions;
};

Result<Wanted> wanted(const MeasureArguments& arguments, std::int64_t ranks) {
  Wanted wanted;
  std::vector<std::vector<EventUse>> lists;
  const std::vector<std::string> by_default = {""};
  for (const std::string& model : arguments.models)
    for (const std::string& strategy : arguments.strategies.empty() ? by_default : arguments.strategies) {
      PlanRequest request = arguments.request;
      request.model = model;
      request.strategy = strategy;
      std::vector<std::string> assumptions;
      WEFT_TRY(request, as_run(request, request.device_count.value_or(ranks), assumptions));
      WEFT_TRY(Plan plan, make_plan(request));
      WEFT_TRY(std::vector<EventUse> events, events_of(plan));
      lists.push_back(std::move(events));
      wanted.plans.push_back(plan);
      for (const std::string& each : assumptions)
        if (std::find(wanted.assumptions.begin(), wanted.assumptions.end(), each) == wanted.assumptions.end())
          wanted.assumptions.push_back(each);
    }
  // Of larger groups than are measured, the same bytes in those that are: what a fit extrapolates from.
  std::vector<EventUse> possible;
  for (std::vector<EventUse>& list : lists)
    for (EventUse& use : list) {
      if (use.event.nodes > 1 || (ranks == 1 && use.event.members > 1)) {
        ++wanted.elsewhere;
        continue;
      }
      const std::int64_t largest = std::min(ranks, kLargestGroup);
      if (use.event.members <= largest) {
        possible.push_back(std::move(use));
        continue;
      }
      for (std::int64_t members = 2; members <= largest; members *= 2) {
        EventUse smaller = use;
        smaller.event.members = smaller.event.most_per_node = members;
        possible.push_back(std::move(smaller));
      }
    }
  for (const Event& probe : machine_probes(static_cast<int>(ranks))) possible.push_back({probe, 0});
  wanted.events = merged({possible});
  // The machine first: a cluster file needs all of it, whatever the budget.
  std::stable_partition(wanted.events.begin(), wanted.events.end(),
                        [](const EventUse& use) { return use.instructions == 0; });
  return wanted;
}

std::string today() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  char text[32];
  return std::string(text, std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts));
}

struct Measured {
  std::size_t measured = 0;  // events
  runtime::LaunchOutcome outcome;
};

// Samples are in the database as they come, a few at a time.
class Filing {
 public:
  Filing(ProfileDatabase database, const Machine& machine, std::int64_t ranks)
      : database_(std::move(database)), machine_(machine), stack_(measuring_stack(static_cast<int>(ranks))) {}

  void add(Event event, Sample sample) {
    if (!check(sample).ok()) return;
    event.device = machine_.name;
    event.stack = stack_;
    event.variant = kWeftVariant;
    sample.date = date_;
    sample.source = "weft profile measure";
    unsaved_.push_back({std::move(event), {std::move(sample)}});
    ++filed_;
    if (unsaved_.size() >= kSavedAtOnce) save();
  }
  std::size_t filed() const { return filed_; }
  // What is left of them.
  Status finish() {
    save();
    return status_;
  }

 private:
  void save() {
    if (const Result<std::int64_t> added = database_.add(unsaved_); !added.ok() && status_.ok())
      status_ = added.error();
    unsaved_.clear();
  }

  ProfileDatabase database_;
  const Machine& machine_;
  const std::string stack_, date_ = today();
  std::vector<MeasuredEvent> unsaved_;
  std::size_t filed_ = 0;
  Status status_ = Ok{};
};

// Devices play their parts of the plans that have an operator which is still to be measured; such events are taken from
// the list. Half of the budget is for it.
Result<runtime::LaunchOutcome> play(const std::vector<Plan>& plans, std::vector<EventUse>& events,
                                    const MeasureArguments& arguments, std::int64_t ranks, Seconds budget,
                                    Filing& filing, Progress& progress) {
  WEFT_TRY(const std::string program, runtime::rank_program());
  const auto begun = std::chrono::steady_clock::now();
  for (std::size_t i = 0; i < plans.size(); ++i) {
    progress.now(fmt::format("playing {} plans", plans.size()),
                 static_cast<double>(i) / static_cast<double>(plans.size()));
    WEFT_TRY(std::vector<EventUse> own, events_of(plans[i]));
    if (!has_computation_of(events, own)) continue;
    const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - begun;
    const double left = budget.value / 2 - spent.count();
    if (left <= 0) break;
    const Seconds share{std::min(kMostPlayed, left / static_cast<double>(plans.size() - i))};
    WEFT_TRY(PlayedSamples played, play_to_measure(plans[i], {.rank_program = program,
                                                              .ranks = ranks,
                                                              .threads = arguments.threads,
                                                              .beside = arguments.beside,
                                                              .at_most = share}));
    if (played.outcome.kind != runtime::LaunchOutcome::Kind::Done) return played.outcome;
    drop_measured(events, played.events, "", "", 1);
    for (MeasuredEvent& each : played.events) filing.add(std::move(each.event), each.samples.front());
  }
  return runtime::LaunchOutcome{};
}

// Each event by itself.
Result<runtime::LaunchOutcome> measure(const std::vector<EventUse>& events, const MeasureArguments& arguments,
                                       std::int64_t ranks, Seconds budget, Filing& filing, Progress& progress) {
  WEFT_TRY(const std::string program, runtime::rank_program());
  WEFT_TRY(const TemporaryDirectory directory, TemporaryDirectory::make("weft-measure"));
  std::vector<Event> list;
  for (const EventUse& use : events) list.push_back(use.event);
  const std::string path = directory.path() + "/events";
  WEFT_TRY_OK(write_whole(path, print_events(list)));
  progress.now(fmt::format("measuring {} events", events.size()), 0);
  runtime::MeasureLaunchOptions options{.rank_program = program,
                                        .events = path,
                                        .directory = directory.path(),
                                        .ranks = static_cast<int>(ranks),
                                        .threads = static_cast<int>(arguments.threads),
                                        .beside = static_cast<int>(arguments.beside),
                                        .budget = budget,
                                        .device = arguments.device};
  options.on_sample = [&](std::size_t at, const Sample& sample) {
    if (at >= list.size()) return;
    filing.add(list[at], sample);
    progress.now(fmt::format("measuring {} events", events.size()),
                 static_cast<double>(at + 1) / static_cast<double>(events.size()));
  };
  return runtime::launch_measuring(options);
}

Result<Measured> measure_all(const std::vector<Plan>& plans, std::vector<EventUse> events,
                             const MeasureArguments& arguments, const Machine& machine, std::int64_t ranks,
                             Seconds budget) {
  WEFT_TRY(ProfileDatabase database, ProfileDatabase::to_write(arguments.database));
  Filing filing(std::move(database), machine, ranks);
  Progress progress;
  const auto begun = std::chrono::steady_clock::now();
  const std::size_t wanted = events.size();
  Measured done;
  const auto all = [&]() -> Result<runtime::LaunchOutcome> {
    if (arguments.plays()) {
      WEFT_TRY(runtime::LaunchOutcome played, play(plans, events, arguments, ranks, budget, filing, progress));
      if (played.kind != runtime::LaunchOutcome::Kind::Done) return played;
    }
    done.measured = wanted - events.size();
    const std::size_t before = filing.filed();
    const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - begun;
    WEFT_TRY(runtime::LaunchOutcome measured,
             measure(events, arguments, ranks, Seconds{std::max(budget.value - spent.count(), budget.value / 4)},
                     filing, progress));
    done.measured += filing.filed() - before;
    return measured;
  };
  const Result<runtime::LaunchOutcome> outcome = all();
  WEFT_TRY_OK(filing.finish());
  if (!outcome.ok()) return outcome.error();
  done.outcome = *outcome;
  return done;
}

// Reads back what it writes.
Status write_cluster(const MeasureArguments& arguments, const Machine& machine, std::int64_t ranks) {
  WEFT_TRY(const std::vector<MeasuredEvent> profile, read_profile(arguments.database));
  WEFT_TRY(const std::string text, cluster_file(machine, static_cast<int>(ranks), profile));
  WEFT_TRY_OK(parse_cluster_yaml(text, arguments.cluster_out));
  return write_whole(arguments.cluster_out, text);
}

std::string listed(const std::vector<EventUse>& events) {
  std::string text;
  for (const EventUse& use : events) {
    const Event& event = use.event;
    text += is_communication(event)
                ? fmt::format("{:>6}  {} {} bytes among {}\n", use.instructions, event.op, event.bytes, event.members)
                : fmt::format("{:>6}  {} {} {} {} {}\n", use.instructions, event.op, event.direction, event.shapes,
                              event.attributes, event.part);
  }
  return text;
}

int run_measure(const MeasureArguments& arguments) {
  const Result<Seconds> budget = checked_budget(arguments);
  if (!budget.ok()) return report(budget.error());
  if (arguments.device != "cpu" && arguments.device != "cuda")
    return report({fmt::format("--device '{}': cpu or cuda", arguments.device)});
  const Result<Machine> here =
      arguments.device == "cuda" ? this_gpu() : this_machine(static_cast<int>(arguments.threads));
  if (!here.ok()) return report(here.error());
  Machine machine = *here;
  if (!arguments.device_name.empty()) machine.name = arguments.device_name;
  const std::int64_t ranks = arguments.ranks > 0 ? arguments.ranks : std::min(2, machine.cores);
  Result<Wanted> found = wanted(arguments, ranks);
  if (!found.ok()) return report(found.error());
  std::int64_t instructions = 0;
  for (const EventUse& use : found->events) instructions += use.instructions;
  if (arguments.list) return print_text(listed(found->events));

  std::vector<EventUse> events = found->events;
  if (std::filesystem::exists(arguments.database)) {
    const Result<std::vector<MeasuredEvent>> known = read_profile(arguments.database);
    if (!known.ok()) return report(known.error());
    drop_measured(events, *known, machine.name, measuring_stack(static_cast<int>(ranks)), kEnoughRuns);
  }
  const auto begun = std::chrono::steady_clock::now();
  Measured done;
  if (!events.empty()) {
    const Result<Measured> measured = measure_all(found->plans, events, arguments, machine, ranks, *budget);
    if (!measured.ok()) return report(measured.error());
    done = *measured;
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begun;
  using Kind = runtime::LaunchOutcome::Kind;
  if (done.outcome.kind == Kind::BadInput) return report({done.outcome.message});
  if (done.outcome.kind == Kind::Failed) report({done.outcome.message});
  const std::size_t left = events.size() - done.measured, before = found->events.size() - events.size();
  if (arguments.json) {
    const nlohmann::json json = {{"database", arguments.database},
                                 {"device", machine.name},
                                 {"ranks", ranks},
                                 {"events", found->events.size()},
                                 {"instructions", instructions},
                                 {"measured_before", before},
                                 {"measured", done.measured},
                                 {"left", left},
                                 {"not_here", found->elsewhere},
                                 {"interrupted", done.outcome.kind == Kind::Interrupted},
                                 {"assumptions", found->assumptions}};
    if (const int said = print_text(to_text(json)); said != kDone) return said;
  } else {
    std::string text = fmt::format("{}, {} rank{} at once\n", machine.title, ranks, ranks == 1 ? "" : "s");
    for (const std::string& each : found->assumptions) text += fmt::format("  assumed: {}\n", each);
    text += fmt::format("{} events of {} instructions: {} measured in {}, {} before", found->events.size(),
                        grouped(instructions), done.measured, human(Seconds{took.count()}), before);
    if (left > 0)
      text += fmt::format(", {} left{}; the same command goes on with them", left,
                          done.outcome.kind == Kind::Interrupted ? " (interrupted)" : " (--budget)");
    if (found->elsewhere > 0)
      text += fmt::format("; {} communications need more nodes or ranks than measure here", found->elsewhere);
    if (const int said = print_text(fmt::format("{}\n{}: device {}\n", text, arguments.database, machine.name));
        said != kDone)
      return said;
  }
  if (!arguments.cluster_out.empty() && done.outcome.kind == Kind::Done)
    if (const Status written = write_cluster(arguments, machine, ranks); !written.ok())
      return report(written.error().at("--cluster-out"));
  return done.outcome.kind == Kind::Done ? kDone : kFailed;
}

}  // namespace

void add_profile_measure(CLI::App& profile, Chosen& chosen) {
  const auto arguments = std::make_shared<MeasureArguments>();
  CLI::App* command = profile.add_subcommand(
      "measure", "Measure what plans consist of, on this machine, by the kernels and communicators of weft run.");
  command->footer(
      "\nEvery plan is compiled as weft run does. Devices play their parts of it by themselves, nothing is sent, and "
      "each\n"
      "operator is timed where it stands, caches as they are there; --alone times each distinct one by itself "
      "instead.\n"
      "Communications are measured once for each size and group, of up to 8 ranks; larger groups are extrapolated.\n"
      "All the while every one of --ranks does the same, so that the machine is as busy as in a run. What the "
      "database\n"
      "has is not measured again; Ctrl-C and a spent budget keep what was measured.\n"
      "\nExamples:\n"
      "  weft profile measure --model gpt2-124m:layers=2,hidden=64,heads=4,vocab=512 --strategy tp=2 --strategy dp=2 "
      "\\\n"
      "      --ranks 2 --db here.db --cluster-out here.yaml\n"
      "  weft simulate --model gpt2-124m:layers=2,hidden=64,heads=4,vocab=512 --strategy tp=2 --cluster here.yaml \\\n"
      "      --seq 128 --global-batch 1 --dtype fp32 --stack weft --cost measured --db here.db\n");
  PlanRequest& request = arguments->request;
  command
      ->add_option("--model", arguments->models, "zoo name with overrides, config.json or .onnx file; may be repeated")
      ->allow_extra_args(false);
  command
      ->add_option("--strategy", arguments->strategies, "tp=2,dp=2,... or a .yaml file; may be repeated (default: dp)")
      ->allow_extra_args(false);
  command->add_option("--cluster", request.cluster, "what the plans are for (default: cpu-node)");
  command->add_option("--devices", request.device_count, "of the plans (default: --ranks)");
  command->add_option("--global-batch", request.global_batch, "samples per step (default: as weft run)");
  command->add_option("--micro-batch", request.micro_batch, "samples per micro-batch and replica (default: 1)");
  command->add_option("--seq", request.seq, "tokens per sample (default: as weft run)");
  command->add_option("--dtype", request.dtype, "fp32, bf16, fp16 (default: fp32)");
  command->add_option("--stack", request.stack, "software stack (default: weft)");
  command->add_option("--db", arguments->database, "the database; made where there is none");
  command->add_option("--ranks", arguments->ranks, "processes that measure at once (default: 2)");
  command->add_option("--threads", arguments->threads, "threads of a rank")->capture_default_str();
  command
      ->add_option("--beside", arguments->beside,
                   "busy loops on the cores of every rank: 1 measures a device of half the speed (--device-name)")
      ->capture_default_str();
  command->add_option("--budget", arguments->budget, "time to spend on measuring")->capture_default_str();
  command->add_option("--device", arguments->device, "cpu or cuda: where operators run")->capture_default_str();
  command->add_option("--device-name", arguments->device_name,
                      "what it is called in the database and in clusters (default: after its product name)");
  command->add_option("--cluster-out", arguments->cluster_out, "write this machine as a cluster file");
  command->add_flag("--alone", arguments->alone, "time each operator by itself, not where it stands in plans");
  command->add_flag("--list", arguments->list, "show the events and the instructions of each, and measure nothing");
  command->add_flag("--json", arguments->json, "one JSON object");
  command->callback([arguments, &chosen] { chosen = [arguments] { return run_measure(*arguments); }; });
}

}  // namespace weft
