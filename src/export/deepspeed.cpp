// DeepSpeed 0.19.6 (deepspeedai/DeepSpeed edaa72212): a strategy as a ds_config, and back. The model stands in the
// user's script, not in the configuration; neither do pipelines and recomputation, which the script calls.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/suggest.h"
#include "base/yaml_node.h"
#include "export/arguments.h"
#include "export/targets.h"

namespace weft {
namespace {

// The stack of a type: with fp16 gradients stay in fp16, with bf16 they are added up in fp32.
std::string usual_stack(std::string_view dtype) {
  return dtype == "fp16" ? "megatron-deepspeed" : "megatron-deepspeed-bf16";
}

std::string_view type_word(DType dtype) {
  return dtype == DType::F32 ? "fp32" : dtype == DType::BF16 ? "bf16" : dtype == DType::F16 ? "fp16" : "";
}

bool offloads(const Parallelism& plan, Stored kind) {
  return std::any_of(plan.offload.begin(), plan.offload.end(), [&](const Offload& each) { return each.kind == kind; });
}

std::optional<std::string> no_deepspeed_strategy(const ExportSubject& subject) {
  const std::string& dtype = subject.job.precision.name;
  if (dtype != "bf16" && dtype != "fp16") return fmt::format("--dtype {}: ds_config has fp16 and bf16", dtype);
  const SoftwareStack& stack = subject.job.stack;
  if (!stack.gradient_dtype.value || !stack.gradient_communication_dtype.value ||
      type_word(*stack.gradient_dtype.value).empty() || type_word(*stack.gradient_communication_dtype.value).empty())
    return "gradients in types other than fp16, bf16 and fp32";
  const std::int64_t bytes = stack.scatter_bucket.value.value;
  if (bytes <= 0 || bytes % bytes_of(*stack.gradient_communication_dtype.value, 1) != 0)
    return fmt::format("stack {}: plan with --stack megatron-deepspeed", stack.name);
  return {};
}

std::optional<std::string> why_not_deepspeed(const ExportSubject& subject, const Parallelism& plan) {
  const TrainingJob& job = subject.job;
  if (plan.pp > 1)
    return "pipelines: their stages are arguments of PipelineModule in the training script, not of ds_config";
  if (plan.recompute != Recompute::None || !plan.full.empty())
    return "recomputation: the training script calls deepspeed.checkpointing, ds_config does not";
  if (plan.sequence_parallel) return "sequence parallelism over tp: ds_config has none; write sp=0";
  if (plan.cp > 1 && plan.cp_mode != ContextMode::AllToAll)
    return fmt::format("cp_mode={}: DeepSpeed's sequence parallelism is Ulysses', cp_mode=a2a", name_of(plan.cp_mode));
  if (plan.cp > 1 && plan.tp > 1)
    return "context beside tensor parallelism: an mpu object of the script's would be needed";
  if (plan.cp > 1 && subject.decoder && subject.decoder->heads % plan.cp != 0)
    return fmt::format("{} heads do not divide by cp={}", subject.decoder->heads, plan.cp);
  if (!plan.order.empty()) return "order=: ds_config has no order of ranks";
  if (plan.zero == 0 && job.stack.gradient_dtype.value != job.precision.stored)
    return "zero=0 with gradients in fp32: DeepSpeed refuses another type of accumulation without ZeRO";
  if (plan.fsdp < plan.dp && plan.cp * plan.tp > 1)
    return "hybrid sharding (MiCS) beside tensor or context parallelism";
  for (const Offload& offload : plan.offload) {
    if (!offload.modules.empty()) return "offloading of some modules only";
    if (offload.kind == Stored::Activations || offload.kind == Stored::Gradients)
      return fmt::format("offload={}", name_of(offload.kind));
    if (offload.kind == Stored::Weights && plan.zero != 3) return "offload=weights without zero=3";
    if (offload.kind == Stored::Optimizer && plan.zero == 0) return "offload=optimizer without ZeRO";
  }
  if (offloads(plan, Stored::Weights) && offloads(plan, Stored::Optimizer) &&
      plan.offload.front().kind != Stored::Optimizer)
    return "offload=weights+optimizer: write optimizer+weights";
  if (plan.ep > 1 || plan.etp < plan.tp) {
    if (plan.etp > 1) return "experts cut over devices: AutoEP has whole experts, etp=1";
    if (plan.tp > 1 && (plan.ep == 1 || plan.zero == 3 || !plan.offload.empty()))
      return "experts with tensor parallelism need ep > 1, ZeRO below 3 and no offloading";
    if (plan.cp > 1) return "experts beside Ulysses";
    if (plan.fsdp < plan.dp) return "experts beside hybrid sharding";
  }
  const SoftwareStack& stack = job.stack;
  return other_stack(
      job, plan,
      fmt::format("{}:gradient_overlap={},scatter_bucket={}B,gradient_dtype={},gradient_communication_dtype={}",
                  usual_stack(job.precision.name), stack.gradient_overlap.value, stack.scatter_bucket.value.value,
                  name_of(*stack.gradient_dtype.value), name_of(*stack.gradient_communication_dtype.value)),
      "megatron-deepspeed");
}

Result<std::string> write_deepspeed(const ExportSubject& subject, const Parallelism& plan, const ExportOptions&) {
  const TrainingJob& job = subject.job;
  const SoftwareStack& stack = job.stack;
  std::string text = "{\n";
  // With AutoTP DeepSpeed counts every rank as a replica: the total is then left to it.
  if (plan.tp == 1) text += fmt::format("  \"train_batch_size\": {},\n", plan.global_batch());
  text += fmt::format("  \"train_micro_batch_size_per_gpu\": {},\n  \"gradient_accumulation_steps\": {},\n",
                      plan.micro_batch, plan.micro_batches);
  text += fmt::format("  \"{}\": {{\"enabled\": true}},\n", job.precision.name);
  text += fmt::format("  \"data_types\": {{\"grad_accum_dtype\": \"{}\"}},\n", type_word(*stack.gradient_dtype.value));
  text += fmt::format("  \"communication_data_type\": \"{}\",\n", type_word(*stack.gradient_communication_dtype.value));
  if (plan.cp > 1) text += fmt::format("  \"sequence_parallel_size\": {},\n", plan.cp);
  if (plan.tp > 1) text += fmt::format("  \"tensor_parallel\": {{\"autotp_size\": {}}},\n", plan.tp);
  if (plan.ep > 1) text += fmt::format("  \"expert_parallel\": {{\"enabled\": true, \"autoep_size\": {}}},\n", plan.ep);
  text += fmt::format(
      "  \"gradient_clipping\": 1.0,\n  \"zero_optimization\": {{\n    \"stage\": {},\n    \"overlap_comm\": {},\n",
      plan.zero, stack.gradient_overlap.value);
  for (const auto& [kind, name] :
       {std::pair{Stored::Optimizer, "offload_optimizer"}, std::pair{Stored::Weights, "offload_param"}})
    if (offloads(plan, kind)) text += fmt::format("    \"{}\": {{\"device\": \"cpu\"}},\n", name);
  if (plan.fsdp < plan.dp) text += fmt::format("    \"mics_shard_size\": {},\n", plan.fsdp);
  text += fmt::format("    \"reduce_bucket_size\": {}\n  }}\n}}\n",
                      stack.scatter_bucket.value.value / bytes_of(*stack.gradient_communication_dtype.value, 1));
  return text;
}

struct Value {
  std::string text;
  YamlNode node;
};
using Keys = std::map<std::string, Value>;

// Every key of the objects, dotted.
Status collect(const YamlNode& node, const std::string& prefix, int depth, Keys& keys,
               std::vector<std::string>& unmodelled) {
  if (depth > 8) return node.fail("objects within too many objects");
  WEFT_TRY(const YamlMap map, node.map(prefix.empty() ? "ds_config" : prefix));
  const std::vector<KnownArgument>& table = deepspeed_keys();
  for (const YamlMap::Entry& entry : map.entries()) {
    const std::string name = prefix.empty() ? entry.key : prefix + "." + entry.key;
    const auto known =
        std::find_if(table.begin(), table.end(), [&](const KnownArgument& each) { return each.flag == name; });
    const bool object = std::any_of(table.begin(), table.end(),
                                    [&](const KnownArgument& each) { return each.flag.starts_with(name + "."); });
    if (known == table.end() && object) {
      WEFT_TRY_OK(collect(entry.value, name, depth + 1, keys, unmodelled));
      continue;
    }
    if (known == table.end()) {
      std::vector<std::string> names;
      for (const KnownArgument& each : table) names.push_back(each.flag);
      return entry.key_node.fail("{}: no key of DeepSpeed 0.19.6{}", name.substr(0, 60),
                                 did_you_mean(name.substr(0, 60), names));
    }
    switch (known->role) {
      case ArgumentRole::Elsewhere:
        break;
      case ArgumentRole::Unmodelled:
        unmodelled.push_back(name);
        break;
      case ArgumentRole::Gone:
        return entry.key_node.fail("{}: deprecated or without effect in DeepSpeed 0.19.6; instead: {}", name,
                                   known->remark);
      case ArgumentRole::Refused: {
        const Result<bool> on = entry.value.boolean(name);
        if (on.ok() && !*on) break;  // switched off
        return entry.key_node.fail("{}: {}", name, known->remark);
      }
      case ArgumentRole::Read: {
        WEFT_TRY(std::string text, entry.value.text(name));
        if (text == "auto") return entry.value.fail("{}: auto is filled in by the trainer; write the number", name);
        if (known->type == "int" && text.find_first_of("eE.") != std::string::npos) {
          // 5e8 is a whole number too.
          const Result<double> number = entry.value.number(name);
          if (number.ok() && *number >= 0 && *number < 1e15 &&
              *number == static_cast<double>(static_cast<std::int64_t>(*number)))
            text = fmt::format("{}", static_cast<std::int64_t>(*number));
        }
        if (const std::string why = misfit(*known, {text}); !why.empty()) return entry.value.fail("{}: {}", name, why);
        keys.emplace(name, Value{std::move(text), entry.value});
        break;
      }
    }
  }
  return Ok{};
}

Result<ImportedRun> import_deepspeed(std::string_view text, std::string_view file) {
  WEFT_TRY(const YamlNode root, YamlNode::load(text, file, {"a ds_config", "{\"train_micro_batch_size_per_gpu\": 1}"}));
  Keys keys;
  std::vector<std::string> unmodelled;
  WEFT_TRY_OK(collect(root, "", 0, keys, unmodelled));
  ImportedRun run;
  const auto find = [&](const char* key) -> const Value* {
    const auto found = keys.find(key);
    return found == keys.end() ? nullptr : &found->second;
  };
  const auto word = [&](const char* key, std::string_view otherwise) {
    const Value* found = find(key);
    return found ? found->text : std::string(otherwise);
  };
  const auto integer = [&](const char* key, std::int64_t otherwise) {
    const Value* found = find(key);
    return found ? std::stoll(found->text) : otherwise;
  };
  for (const char* key :
       {"train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "sequence_parallel_size"})
    if (const Value* found = find(key); found && (integer(key, 0) < 1 || integer(key, 0) > (std::int64_t{1} << 19)))
      return found->node.fail("{}: from 1 to 524,288", key);
  Shorthand words;
  const bool fp16 = word("fp16.enabled", "false") == "true", bf16 = word("bf16.enabled", "false") == "true";
  if (fp16 && bf16) return find("bf16.enabled")->node.fail("bf16.enabled contradicts fp16.enabled; keep one");
  if (!fp16 && !bf16)
    return error("{}: neither fp16 nor bf16 is enabled: Weft has no stack of DeepSpeed in fp32", file);
  run.request.dtype = fp16 ? "fp16" : "bf16";
  words.zero = integer("zero_optimization.stage", 0);
  // Batch: two of the three, or the micro-batch alone.
  const Value* micro = find("train_micro_batch_size_per_gpu");
  if (micro) words.mbs = integer("train_micro_batch_size_per_gpu", 1);
  const bool total = find("train_batch_size") != nullptr, steps = find("gradient_accumulation_steps") != nullptr;
  if (!micro && !total) return error("{}: train_micro_batch_size_per_gpu or train_batch_size is missing", file);
  if (steps) words.ga = integer("gradient_accumulation_steps", 1);
  if (!steps && (!micro || !total)) words.ga = 1;
  words.tp = std::max<std::int64_t>(integer("tensor_parallel.autotp_size", 1), 1);
  if (*words.tp > 1) words.sp = 0;
  if (const Value* size = find("tensor_parallel.tp.tp_size");
      size && size->text != "1" && std::stoll(size->text) != *words.tp)
    return size->node.fail("tensor_parallel.tp.tp_size must be 1 or autotp_size");
  if (total && *words.tp == 1) run.request.global_batch = integer("train_batch_size", 1);
  if (total && *words.tp > 1)
    return find("train_batch_size")
        ->node.fail(
            "train_batch_size counts every rank as a replica where autotp_size is set; leave it out and write "
            "gradient_accumulation_steps");
  if (const std::int64_t cp = integer("sequence_parallel_size", 1); cp > 1)
    words.cp = cp, words.cp_mode = ContextMode::AllToAll;
  if (word("expert_parallel.enabled", "false") == "true") {
    words.ep = integer("expert_parallel.autoep_size", 1);
    if (*words.tp > 1) words.etp = 1;
    if (integer("expert_parallel.expert_tensor_parallel_size", 1) != 1)
      return find("expert_parallel.expert_tensor_parallel_size")->node.fail("expert_tensor_parallel_size must be 1");
  }
  if (const std::int64_t shards = integer("zero_optimization.mics_shard_size", -1); shards > 0) {
    if (*words.zero != 3) return find("zero_optimization.mics_shard_size")->node.fail("mics_shard_size is of stage 3");
    words.fsdp = shards;
    words.zero.reset();
  }
  for (const auto& [kind, name, least] :
       {std::tuple{Stored::Optimizer, "zero_optimization.offload_optimizer.device", 1},
        std::tuple{Stored::Weights, "zero_optimization.offload_param.device", 3}}) {
    const std::string device = word(name, "none");
    if (device == "none") continue;
    if (device == "nvme") return find(name)->node.fail("{}: Weft offloads to the host's memory, not to disks", name);
    if (words.zero.value_or(3) < least) return find(name)->node.fail("{}: is for stage {} and above", name, least);
    words.offload.push_back({kind});
  }
  if (const Value* ratio = find("zero_optimization.offload_optimizer.ratio");
      ratio && ratio->text != "1" && ratio->text != "1.0")
    return ratio->node.fail("offload_optimizer.ratio: Weft offloads all of the optimizer or nothing");
  // Habits.
  const DType half = fp16 ? DType::F16 : DType::BF16;
  const auto type = [&](const char* key, DType otherwise) {
    const std::string name = word(key, "");
    return name == "fp32" ? DType::F32 : name == "fp16" ? DType::F16 : name == "bf16" ? DType::BF16 : otherwise;
  };
  const DType gradients = type("data_types.grad_accum_dtype", half), sent = type("communication_data_type", half);
  if (gradients != half && words.zero.value_or(3) == 0)
    return find("data_types.grad_accum_dtype")->node.fail("grad_accum_dtype must be the model's type at stage 0");
  const bool overlap = word("zero_optimization.overlap_comm", words.zero.value_or(3) == 3 ? "true" : "false") == "true";
  const std::int64_t bucket = integer("zero_optimization.reduce_bucket_size", 500'000'000);
  if (bucket < 1 || bucket > (std::int64_t{1} << 40))
    return find("zero_optimization.reduce_bucket_size")->node.fail("reduce_bucket_size: a number of elements");
  const std::string base = usual_stack(run.request.dtype);
  WEFT_TRY(const SoftwareStack usual, find_stack(base));
  std::vector<std::string> items;
  if (overlap != usual.gradient_overlap.value) items.push_back(fmt::format("gradient_overlap={}", overlap));
  if (const std::int64_t bytes = bucket * bytes_of(sent, 1); bytes != usual.scatter_bucket.value.value)
    items.push_back(fmt::format("scatter_bucket={}B", bytes));
  if (usual.gradient_dtype.value != gradients) items.push_back(fmt::format("gradient_dtype={}", name_of(gradients)));
  if (usual.gradient_communication_dtype.value != sent)
    items.push_back(fmt::format("gradient_communication_dtype={}", name_of(sent)));
  run.request.stack = items.empty() ? base : fmt::format("{}:{}", base, fmt::join(items, ","));
  run.request.strategy = print(words);
  run.notes.emplace_back("recomputation and pipelines stand in the training script: none is assumed");
  if (!unmodelled.empty()) run.notes.push_back(fmt::format("predictions do not know {}", fmt::join(unmodelled, ", ")));
  return run;
}

}  // namespace

const TargetFunctions kDeepSpeed = {no_deepspeed_strategy, why_not_deepspeed, write_deepspeed, import_deepspeed};

}  // namespace weft
