#include "export/megatron.h"

#include <fmt/format.h>

#include "base/units.h"
#include "export/targets.h"
#include "models/model_words.h"

namespace weft {
namespace {

std::string array(std::string_view name, const std::vector<std::string>& lines) {
  std::string text = fmt::format("{}=(\n", name);
  for (const std::string& line : lines) text += "  " + line + "\n";
  return text + ")\n";
}

}  // namespace

Result<Arguments> megatron_arguments_of(const TrainingJob& job, const TransformerConfig& config,
                                        const Parallelism& strategy) {
  Arguments arguments;
  WEFT_TRY_OK(write_shape(config, arguments));
  WEFT_TRY_OK(write_habits(job.stack, job.precision, config, strategy, arguments));
  write_strategy(config, job.model.seq, strategy, arguments);
  return arguments;
}

std::string megatron_script(const TrainingJob& job, const Parallelism& strategy, const Arguments& arguments,
                            const std::vector<std::string>& kept) {
  const std::int64_t per_node = devices_per_node(job).value();
  const std::int64_t nodes = job.device_count() / per_node;
  std::string text = "#!/bin/bash\n# Megatron-LM core 0.20.0 (NVIDIA/Megatron-LM d98e8a64dd, 2026-08-22).\n";
  text += fmt::format(
      "# {}\n# {}\n# {} devices, {} a step. Run it on every node, in Megatron-LM's folder, with NODE_RANK, "
      "MASTER_ADDR\n"
      "# and MASTER_PORT set; arguments of your own may follow.\n",
      job.words.model, print(shorthand_of(strategy)), grouped(job.device_count()),
      fmt::format("{} samples", grouped(strategy.global_batch())));
  // Before Blackwell, tensor and context parallelism overlap only with one hardware queue; FSDP must not have it.
  if (strategy.zero < 2 && strategy.tp * strategy.cp > 1) text += "export CUDA_DEVICE_MAX_CONNECTIONS=1\n";
  const auto section_of = [](std::string_view flag) -> std::size_t {
    for (std::string_view word : {"parallel", "fsdp", "distributed-optimizer", "expert-tensor", "cp-comm", "mapping",
                                  "sharding", "ckpt", "pipeline"})
      if (flag.find(word) != std::string_view::npos && flag.find("batch") == std::string_view::npos &&
          flag.find("overlap") == std::string_view::npos)
        return 1;
    for (std::string_view word : {"batch", "seq-length", "recompute", "offload", "precision-aware"})
      if (flag.find(word) != std::string_view::npos) return 2;
    for (std::string_view word : {"bf16", "fp16", "fp8", "fp4", "grads-in", "exp-avg", "overlap", "bucket", "fusion",
                                  "backend", "graph", "dispatcher"})
      if (flag.find(word) != std::string_view::npos) return 3;
    return 0;
  };
  const char* const names[] = {"MODEL", "STRATEGY", "BATCH", "EXECUTION"};
  std::vector<std::string> lines[4];
  for (const Argument& argument : arguments.all()) {
    std::string line = argument.flag;
    for (const std::string& value : argument.values) line += " " + shell_quoted(value);
    lines[section_of(argument.flag)].push_back(std::move(line));
  }
  std::string used;
  for (std::size_t i = 0; i < 4; ++i) {
    text += array(names[i], lines[i]);
    used += fmt::format(" \"${{{}[@]}}\"", names[i]);
  }
  if (kept.empty()) {
    text += "# Stand-ins for your data, tokenizer and schedule.\n";
    text += array("YOURS", {"--mock-data", "--tokenizer-type NullTokenizer", "--train-iters 50", "--lr 1e-4",
                            "--log-interval 1", "--log-throughput", "--eval-iters 0"});
  } else {
    text += "# What was no part of the plan, as it was.\n";
    text += array("YOURS", kept);
  }
  text += fmt::format(
      "torchrun --nnodes {} --nproc-per-node {} --node-rank \"${{NODE_RANK:-0}}\" \\\n"
      "  --master-addr \"${{MASTER_ADDR:-localhost}}\" --master-port \"${{MASTER_PORT:-29500}}\" \\\n"
      "  pretrain_gpt.py{} \"${{YOURS[@]}}\" \"$@\"\n",
      nodes, per_node, used);
  return text;
}

Result<ImportedRun> import_megatron(std::string_view text, std::string_view file) {
  WEFT_TRY(const LaunchCommand command, read_launch_command(text, file));
  if (command.arguments.empty()) return error("{}: no arguments; is it a launch command of Megatron-LM?", file);
  WEFT_TRY(const Arguments arguments, Arguments::read(command.arguments, file));
  ImportedRun run;
  WEFT_TRY(const TransformerConfig shape, read_shape(arguments, run.notes));
  const Status sound = check(shape);
  if (!sound.ok()) return sound.error().at(file);
  const std::optional<std::string> words = words_of(shape);
  if (!words) return error("{}: no model of the zoo becomes this one by overrides", file);
  run.request.model = *words;
  WEFT_TRY(const MegatronHabits habits, read_habits(arguments, run.notes));
  run.request.dtype = habits.dtype;
  run.request.stack = habits.stack;
  WEFT_TRY(Shorthand strategy, read_strategy_arguments(arguments, shape));
  // The number of devices, where the launcher has it.
  std::map<std::string, std::int64_t> launched;
  for (std::size_t i = 0; i < command.launcher.size(); ++i) {
    std::string name = command.launcher[i].text, value;
    if (const std::size_t equals = name.find('='); equals != std::string::npos) {
      value = name.substr(equals + 1);
      name = name.substr(0, equals);
    } else if (i + 1 < command.launcher.size() && command.launcher[i + 1].unset.empty()) {
      value = command.launcher[i + 1].text;
    }
    std::replace(name.begin(), name.end(), '_', '-');
    if (const auto count = parse_integer(value, ""); count.ok() && *count > 0 && *count < (1 << 24))
      launched[name] = *count;
  }
  if (launched.contains("--nnodes") && launched.contains("--nproc-per-node"))
    run.request.device_count = launched["--nnodes"] * launched["--nproc-per-node"];
  if (strategy.replicate) {
    // Weft counts the devices of a copy, Megatron-LM the copies.
    const std::int64_t others = *strategy.tp * strategy.cp.value_or(1) * *strategy.pp * *strategy.replicate;
    if (!run.request.device_count || *run.request.device_count % others != 0)
      return arguments.fail(
          "--num-distributed-optimizer-instances",
          fmt::format("needs the number of devices, a multiple of {}: launch with torchrun --nnodes N "
                      "--nproc-per-node N in this file",
                      others));
    strategy.fsdp = *run.request.device_count / others;
  }
  run.request.strategy = print(strategy);
  if (arguments.has("--global-batch-size")) run.request.global_batch = arguments.integer("--global-batch-size", 1);
  run.request.seq = arguments.integer("--seq-length", 0);
  if (*run.request.seq < 1) return arguments.fail("--seq-length", "missing, or not at least 1");
  if (*run.request.seq > shape.context)
    return arguments.fail("--seq-length", fmt::format("longer than --max-position-embeddings {}", shape.context));
  if (shape.moe.experts > 0 && strategy.tp.value_or(1) > 1 && strategy.sp.value_or(0) == 0)
    return arguments.fail("--tensor-model-parallel-size",
                          "Megatron-LM trains experts with tensor parallelism only with --sequence-parallel; add it");
  std::vector<std::string> unmodelled;
  for (const Argument& argument : arguments.all()) {
    const ArgumentRole role = find_megatron_argument(argument.flag)->role;
    if (role == ArgumentRole::Unmodelled) unmodelled.push_back(argument.flag);
    if (role == ArgumentRole::Read && argument.flag != "--tokenizer-type" && argument.flag != "--optimizer") continue;
    std::string line = argument.flag;
    for (const std::string& value : argument.values)
      line += " " + (value.starts_with('$') ? fmt::format("\"{}\"", value) : shell_quoted(value));
    run.kept.push_back(std::move(line));
  }
  if (!unmodelled.empty()) run.notes.push_back(fmt::format("predictions do not know {}", fmt::join(unmodelled, ", ")));
  return run;
}

namespace {

std::optional<std::string> no_megatron_strategy(const ExportSubject& subject) {
  if (!subject.decoder) return fmt::format("{} is no decoder-only transformer", subject.job.words.model);
  Arguments shape;
  const Status written = write_shape(*subject.decoder, shape);
  return written.ok() ? std::nullopt : std::optional(written.error().message);
}

std::optional<std::string> why_not_megatron(const ExportSubject& subject, const Parallelism& strategy) {
  const TrainingJob& job = subject.job;
  if (auto broken = megatron_rule_broken(*subject.decoder, job.model.seq, strategy)) return broken;
  const Result<Arguments> arguments = megatron_arguments_of(job, *subject.decoder, strategy);
  if (!arguments.ok()) return arguments.error().message;
  std::vector<std::string> notes;
  const Result<MegatronHabits> habits = read_habits(*arguments, notes);
  if (!habits.ok()) return habits.error().message;
  return other_stack(job, strategy, habits->stack, "megatron-lm");
}

Result<std::string> write_megatron(const ExportSubject& subject, const Parallelism& strategy,
                                   const ExportOptions& options) {
  WEFT_TRY(const Arguments arguments, megatron_arguments_of(subject.job, *subject.decoder, strategy));
  return megatron_script(subject.job, strategy, arguments, options.kept);
}

}  // namespace

const TargetFunctions kMegatron = {no_megatron_strategy, why_not_megatron, write_megatron, import_megatron};

}  // namespace weft
