// weft run: a plan for real, every rank a process of this machine, or one of those that a launcher has started.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "bundle/bundle.h"
#include "cli/commands.h"
#include "cli/plan_arguments.h"
#include "cli/run_compared.h"
#include "cli/run_request.h"
#include "cli/temporary_directory.h"
#include "report/plan_file.h"
#include "run/busy_loops.h"
#include "run/environment.h"
#include "run/launch.h"
#include "run/rank_process.h"

namespace weft {
namespace {

struct RunArguments {
  PlanRequest request;
  std::string plan;    // a file that has all of it
  std::string data;    // tokens
  std::string bundle;  // where to write what ranks read, instead of running it
  std::string device, backend;
  runtime::RunFiles files;
  std::int64_t ranks = 0, steps = 5;
  std::string threads, pin = "auto", beside = "0";
  std::uint64_t seed = 1;
  double learning_rate = 1e-3, timeout = 60;
  bool check = false, timing = false, json = false;
  CompareArguments compared;
};

Status check_words(const RunArguments& arguments) {
  if (arguments.plan.empty() && arguments.request.model.empty())
    return error("--model or a plan.json is required\nTry 'weft run --help'.");
  if (!arguments.plan.empty() && !(arguments.request.model + arguments.request.strategy).empty())
    return error("--model and --strategy: {} says them; leave one out", arguments.plan);
  if (arguments.ranks < 0 || arguments.ranks > 1024) return error("--ranks {}: from 1 to 1024", arguments.ranks);
  if (arguments.steps < 1) return error("--steps {}: at least 1", arguments.steps);
  if (arguments.files.save_every < 0) return error("--save-every {}: at least 1", arguments.files.save_every);
  if (arguments.files.save.empty() && (arguments.files.save_every > 0 || arguments.files.resume))
    return error("{}: --save DIR says where", arguments.files.resume ? "--resume" : "--save-every");
  if (arguments.files.resume && !arguments.files.load.empty())
    return error("--resume goes on from --save {}; leave --load out", arguments.files.save);
  if (!(arguments.timeout > 0)) return error("--timeout {}: seconds, more than 0", arguments.timeout);
  return check(arguments.compared);
}

Result<PlanRequest> settled(const RunArguments& arguments, std::int64_t ranks, std::vector<std::string>& assumptions) {
  if (arguments.plan.empty()) return as_run(arguments.request, ranks, assumptions);
  WEFT_TRY(const PlanFile planned, read_plan_file(arguments.plan));
  PlanRequest from_file = planned.request();
  if (!arguments.request.dtype.empty()) from_file.dtype = arguments.request.dtype;
  return from_file;
}

struct Made {
  Plan plan;
  CompiledStrategy compiled;
  Bundle bundle = {};  // the same, its devices numbered by rank
  std::vector<std::string> assumptions = {};
};

Result<Made> make_bundle(const RunArguments& arguments, std::int64_t ranks) {
  std::vector<std::string> assumptions;
  WEFT_TRY(PlanRequest request, settled(arguments, ranks, assumptions));
  // fp64 is a way to hold the numbers of an fp32 plan.
  const bool exact = request.dtype == "fp64" || request.dtype == "float64";
  if (exact) request.dtype = "fp32";
  WEFT_TRY(const Calibration calibration, calibration_of(arguments.compared.cost));
  WEFT_TRY(Plan made_plan, make_plan(request, calibration));
  WEFT_TRY(CompiledStrategy compiled, compile_plan(made_plan));
  Made made{.plan = std::move(made_plan), .compiled = std::move(compiled), .assumptions = std::move(assumptions)};
  const Plan& plan = made.plan;
  if (const auto world = static_cast<std::int64_t>(plan.ranks().size());
      arguments.ranks > 0 && world != arguments.ranks)
    return error("--ranks {}: the plan is for {} ranks", arguments.ranks, world);
  const auto any_operator = [&](std::string_view attribute) {
    const auto& signatures = plan.graph().signatures();
    return std::any_of(signatures.begin(), signatures.end(),
                       [&](const Signature& each) { return each.attrs.number(attribute, 0) > 0; });
  };
  for (const Instruction& instruction : made.compiled.program.instructions)
    if (const auto* compute = std::get_if<Compute>(&instruction.what);
        compute && (compute->products == Arithmetic::kFp8 || compute->products == Arithmetic::kFp4))
      return error("--dtype {}: ranks have no kernels for {} products; bf16, fp16, fp32 and fp64 are run",
                   request.dtype, name(*compute->products));
  if (any_operator("dropless"))
    made.assumptions.push_back(
        "dropless routing is run with the capacity of balanced experts: tokens beyond it are dropped "
        "(capacity_factor=)");
  if (any_operator("dropout")) made.assumptions.push_back("no dropout of attention's weights; other dropout as it is");
  made.bundle = bundle_of(plan, made.compiled);
  made.bundle.numbers = exact ? Numbers::Float64 : Numbers::AsStored;
  made.bundle.learning_rate = arguments.learning_rate;
  made.bundle.seed = arguments.seed;
  if (arguments.compared.wanted() && exact) made.assumptions.push_back("run in fp64, predicted in fp32");
  if (arguments.compared.wanted() && arguments.device == "cuda")
    made.assumptions.push_back(
        "measured times of single instructions are the host's, which is ahead of the GPU; steps and memory are the "
        "GPU's");
  if (arguments.compared.wanted() && arguments.check)
    made.assumptions.push_back("the measured memory of rank 0 includes the one device that --check trains on");
  return made;
}

// What the launcher has set stays, unless it is said otherwise: it knows what else runs on this machine.
Status take_cores(const RunArguments& arguments, const runtime::RankPlace& place) {
  if (arguments.threads.empty() && arguments.pin == "auto") return Ok{};
  WEFT_TRY(const std::vector<int> threads,
           runtime::threads_of_ranks(arguments.threads.empty() ? "1" : arguments.threads, place.world));
  const auto rank = static_cast<std::size_t>(place.rank);
  if (!arguments.threads.empty()) ::setenv("OMP_NUM_THREADS", std::to_string(threads[rank]).c_str(), 1);
  if (arguments.pin == "auto") return Ok{};
  WEFT_TRY(const std::vector<runtime::Cores> pinned,
           runtime::pinned_cores(arguments.pin, threads, runtime::allowed_cores()));
  if (const cpu_set_t allowed = runtime::as_set(pinned[rank]); !pinned[rank].empty())
    ::sched_setaffinity(0, sizeof allowed, &allowed);
  return Ok{};
}

// This process becomes the rank that a launcher has started.
Result<Answer> become_rank(const RunArguments& arguments, const runtime::RankPlace& place) {
  if (arguments.ranks > 0 && arguments.ranks != place.world)
    return error("--ranks {}: the launcher has started {}", arguments.ranks, place.world);
  if (arguments.compared.wanted())
    return error("--compare and --trace: of ranks that weft starts itself; leave them out under a launcher");
  WEFT_TRY(std::string program, runtime::rank_program());
  WEFT_TRY(const Made made, make_bundle(arguments, place.world));
  WEFT_TRY_OK(take_cores(arguments, place));
  std::string path = (std::filesystem::temp_directory_path() / "weft-bundle-XXXXXX").string();
  const int file = ::mkstemp(path.data());
  if (file < 0) return error("{}: {}", path, std::strerror(errno));
  ::close(file);
  WEFT_TRY_OK(write_bundle(made.bundle, path));
  std::string steps = std::to_string(arguments.steps), timeout = fmt::format("{}", arguments.timeout);
  std::vector<std::string> words = {program, path, "--remove-bundle", "--steps", steps, "--timeout", timeout};
  if (arguments.check) words.emplace_back("--check");
  if (!arguments.data.empty()) words.insert(words.end(), {"--data", arguments.data});
  if (!arguments.device.empty()) words.insert(words.end(), {"--device", arguments.device});
  if (!arguments.backend.empty()) words.insert(words.end(), {"--backend", arguments.backend});
  for (std::string& word : arguments.files.words()) words.push_back(std::move(word));
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  if (const std::string kind = runtime::blas_core_type(); !kind.empty()) ::setenv("OPENBLAS_CORETYPE", kind.c_str(), 1);
  ::execv(program.c_str(), argv.data());
  return error("{}: {}", program, std::strerror(errno));
}

int run(const RunArguments& arguments) {
  if (const Status good = check_words(arguments); !good.ok()) return report(good.error());
  const auto place = runtime::place_in([](const char* name) { return std::getenv(name); });
  if (!place.ok()) return report(place.error());
  if (*place && (*place)->world > 1) return finish(become_rank(arguments, **place));

  Result<Made> made = make_bundle(arguments, std::max<std::int64_t>(arguments.ranks, 1));
  if (!made.ok()) return report(made.error());
  const Bundle& bundle = made->bundle;
  if (!arguments.bundle.empty()) {
    if (const Status written = write_bundle(bundle, arguments.bundle); !written.ok())
      return report(written.error().at("--bundle"));
    return print_text(fmt::format("{}: {} ranks, {} instructions; run it with weft-rank\n", arguments.bundle,
                                  bundle.world_size(), bundle.program.instructions.size()));
  }
  const Result<std::string> program = runtime::rank_program();
  if (!program.ok()) return report(program.error());
  std::optional<PredictedRun> predicted;
  if (arguments.compared.wanted()) {
    Result<PredictedRun> prediction =
        PredictedRun::make(arguments.compared, std::move(made->plan), std::move(made->compiled));
    if (!prediction.ok()) return report(prediction.error());
    predicted.emplace(std::move(prediction).value());
    for (const std::string& each : predicted->assumptions()) made->assumptions.push_back(each);
  }
  const Result<TemporaryDirectory> directory = TemporaryDirectory::make("weft-run");
  if (!directory.ok()) return report(directory.error());
  const std::string file = directory->path() + "/bundle";
  if (const Status written = write_bundle(bundle, file); !written.ok()) return report(written.error());

  nlohmann::json json = {{"model", bundle.model},
                         {"strategy", bundle.strategy},
                         {"ranks", bundle.world_size()},
                         {"numbers", name_of(bundle.numbers)},
                         {"steps", nlohmann::json::array()},
                         {"assumptions", made->assumptions}};
  if (!arguments.json) {
    print_text(fmt::format("{} · {} · {} ranks · {} micro-batches a step\n", bundle.model, bundle.strategy,
                           bundle.world_size(), bundle.schedule.micro_batches));
    for (const std::string& each : made->assumptions) print_text(fmt::format("  assumed: {}\n", each));
  }
  const auto threads =
      runtime::threads_of_ranks(arguments.threads.empty() ? "1" : arguments.threads, bundle.world_size());
  if (!threads.ok()) return report(threads.error());
  const auto pinned = runtime::pinned_cores(arguments.pin, *threads, runtime::allowed_cores());
  if (!pinned.ok()) return report(pinned.error());
  const auto beside = runtime::loops_of_ranks(arguments.beside, *pinned);
  if (!beside.ok()) return report(beside.error());
  bool passed = true;
  runtime::LaunchOptions options{.rank_program = *program,
                                 .bundle = file,
                                 .data = arguments.data,
                                 .files = arguments.files,
                                 .steps = arguments.steps,
                                 .check = arguments.check,
                                 .timeout = Seconds{arguments.timeout},
                                 .threads = *threads,
                                 .pinned = *pinned,
                                 .beside = *beside,
                                 .device = arguments.device,
                                 .backend = arguments.backend,
                                 .record = predicted.has_value()};
  options.on_step = [&](const runtime::StepReport& step) {
    nlohmann::json each = {{"step", step.step}, {"loss", step.loss}};
    if (arguments.timing) each["time_s"] = step.time.value;
    json["steps"].push_back(std::move(each));
    if (!arguments.json)
      print_text(fmt::format("step {:<4} loss {:<10.6f} {:.3f} s\n", step.step, step.loss, step.time.value));
  };
  options.on_check = [&](const runtime::CheckReport& check) {
    const bool good = check.difference <= check.bound;
    passed = passed && good;
    json["check"].push_back({{"step", check.step},
                             {"tensor", check.name},
                             {"difference", check.difference},
                             {"bound", check.bound},
                             {"ok", good}});
    if (!arguments.json)
      print_text(fmt::format("  as on one device to {:.1e}, bound {:.0e}{}: {}\n", check.difference, check.bound,
                             good ? "" : "  FAILED", check.name));
  };
  const Result<runtime::LaunchOutcome> outcome = runtime::launch(bundle, directory->path(), options);
  if (!outcome.ok()) return report(outcome.error());
  using Kind = runtime::LaunchOutcome::Kind;
  if (outcome->kind == Kind::BadInput) return report({outcome->message});
  if (outcome->kind != Kind::Done) {
    report({outcome->message});
    return outcome->kind == Kind::Interrupted ? 128 + SIGINT : kFailed;
  }
  if (predicted) {
    const Result<PredictedRun::Compared> compared = predicted->compare(directory->path());
    if (!compared.ok()) return report(compared.error());
    json["comparison"] = to_json(compared->comparison);
    if (!arguments.json) print_text("\n" + describe(compared->comparison) + compared->trace);
  }
  if (arguments.json) {
    if (const int said = print_text(to_text(json)); said != kDone) return said;
  }
  return passed ? kDone : kFailed;
}

}  // namespace

void add_run(CLI::App& app, Chosen& chosen) {
  const auto arguments = std::make_shared<RunArguments>();
  CLI::App* command =
      app.add_subcommand("run", "Train for real by a plan: every rank a process, on libtorch and Gloo.");
  command->footer(
      std::string(kStrategyHelp) +
      "\nRanks are started on this machine, or by torchrun --no-python, mpirun or srun, whose variables are honoured.\n"
      "Samples and weights are drawn from a seed, by name and index, so that any strategy trains the same function.\n"
      "Checkpoints hold whole tensors, so that any strategy goes on from them; --save DIR --resume is the same command "
      "before\n"
      "and after a failure. Each rank keeps to its own cores where there are enough (--pin).\n"
      "--check trains on one device beside it and compares loss, gradients and weights; the exit code is then 1 where\n"
      "they differ by more than the type's rounding.\n"
      "--compare and --trace record what every rank does and when, and show the prediction of the same plan beside it\n"
      "(--cluster, --cost, --db; weft profile measure describes this machine): step, ranks, memory, instructions.\n"
      "\nExamples:\n"
      "  weft run --model gpt2-124m:layers=2,hidden=64,heads=4,vocab=512 --strategy tp=2,dp=2 --ranks 4 --check\n"
      "  weft run --model resnet18 --strategy dp=2 --ranks 2 --steps 3 --dtype fp64 --check\n"
      "  weft run found/plan.json --ranks 8                    what weft plan --out found wrote\n"
      "  weft run --model gpt2-124m:layers=2,hidden=64,heads=4,vocab=512 --strategy tp=2 --ranks 2 --trace t.json \\\n"
      "      --cluster here.yaml --cost measured --db here.db  predicted beside measured\n"
      "  weft run --model gpt2-124m --strategy dp=8 --ranks 8 --bundle run.weft   for weft-rank elsewhere\n");
  command->add_option("plan,--plan", arguments->plan, "a plan.json of weft plan --out, instead of what follows");
  add_plan_arguments(*command, arguments->request);
  for (const char* word : {"--model", "--cluster", "--strategy"}) command->get_option(word)->required(false);
  command->add_option("--ranks", arguments->ranks, "processes (default: 1; a plan's own)");
  command->add_option("--steps", arguments->steps, "of training in all, with those of a checkpoint")
      ->capture_default_str();
  command->add_option("--data", arguments->data,
                      "tokens to train on: 16 bits each, 32 beyond 65,536 words (default: random ones)");
  command->add_option("--save", arguments->files.save,
                      "write checkpoints there, after the last step: safetensors files with an index");
  command->add_option("--save-every", arguments->files.save_every, "also after every so many steps");
  command->add_flag("--resume", arguments->files.resume, "go on from the last checkpoint in --save, if there is one");
  command->add_option("--load", arguments->files.load,
                      "go on from a checkpoint, or from the last one in a directory; of any strategy");
  command->add_option("--log", arguments->files.log, "write step, loss, time and tokens there, a JSON object a line");
  command->add_option("--lr", arguments->learning_rate, "learning rate")->capture_default_str();
  command->add_option("--seed", arguments->seed, "of samples and weights")->capture_default_str();
  command->add_flag("--check", arguments->check, "compare every step with one device, unsharded");
  command->add_option("--timeout", arguments->timeout, "seconds after which a rank that does not answer ends the run")
      ->capture_default_str();
  command->add_option("--threads", arguments->threads,
                      "threads of a rank, or of each: 1,1,2,4 makes unequal devices (default: 1)");
  command
      ->add_option("--pin", arguments->pin,
                   "cores of each rank: auto divides those of this process, where they are enough; none; or a list "
                   "by rank, 0,1,2-3")
      ->capture_default_str();
  command
      ->add_option("--beside", arguments->beside,
                   "busy loops on the cores of each rank: 0,1 leaves the second half of its time, an unequal device")
      ->capture_default_str();
  command->add_option("--device", arguments->device, "cpu or cuda (default: a GPU where weft-rank can use one)");
  command->add_option("--backend", arguments->backend,
                      "gloo or nccl (default: NCCL where every rank has a GPU of its own)");
  command->add_option("--bundle", arguments->bundle, "write what ranks read to this file, and run nothing");
  add_compare_arguments(*command, arguments->compared);
  command->add_flag("--timing", arguments->timing, "also how long steps took, in --json");
  command->add_flag("--json", arguments->json, "one JSON object");
  command->callback([arguments, &chosen] { chosen = [arguments] { return run(*arguments); }; });
}

}  // namespace weft
