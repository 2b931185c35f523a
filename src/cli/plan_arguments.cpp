#include "cli/plan_arguments.h"

#include <CLI/CLI.hpp>
#include <memory>

#include "ask/words.h"

namespace weft {

const char* const kStrategyHelp =
    "\nThe strategy in one line: degrees tp cp pp dp (a missing dp fills the cluster), vpp=2 model chunks per "
    "pipeline\n"
    "rank, zero=0..3, fsdp=8,replicate=4 hybrid sharding, sp=0|1 sequence parallelism, cp_mode=gather|a2a|ring,\n"
    "recompute=none|selective|full|op, mbs= micro-batch, ga= micro-batches per step, schedule=, stages=8+8+7+9 or "
    "1+6x5+1,\n"
    "shares=3+3+1+1 of the samples, by replica, of mbs= each,\n"
    "order=tp-cp-ep-dp-pp, offload=optimizer+activations:layers.*.mlp, h= and w= of images, tables=1 for embedding\n"
    "tables.\n"
    "Experts lie over ep devices and are cut over etp of the tp devices (default tp); ep divides tp/etp*cp*dp and "
    "takes\n"
    "the nearest devices, of tp first, then cp, then dp: with tp=8,etp=1,ep=8 an ep group is a tp group.\n";

void add_device_count(CLI::App& command, PlanRequest& request) {
  command.add_option("--devices", request.device_count,
                     "use so many of the cluster's devices, evenly over its nodes (default: all)");
}

void add_sequence(CLI::App& command, std::optional<std::int64_t>& seq) {
  command.add_option_function<std::string>(
      "--seq",
      [&seq](const std::string& text) {
        const Result<std::int64_t> parsed = parse_sequence(text);
        if (!parsed.ok()) throw CLI::ValidationError(parsed.error().message);
        seq = *parsed;
      },
      "tokens per sample, 4096 or 8k (default: the model's, at most 8192)");
}

// The type is a part of the model's words, so that files of plans keep it.
void add_as(CLI::App& command, std::string& model) {
  const auto type = std::make_shared<std::string>();
  command.add_option("--as", *type, "read a config.json of an unknown model_type as this one: llama");
  command.parse_complete_callback([type, &model] {
    if (!type->empty()) model = with_override(model, "as", *type);
  });
}

void add_job_options(CLI::App& command, PlanRequest& request) {
  add_as(command, request.model);
  add_sequence(command, request.seq);
  command.add_option(
      "--dtype", request.dtype,
      "bf16, fp16, fp32, tf32, amp-bf16, amp-fp16; fp8 by the stack's recipe, fp8-delayed, fp8-current, fp8-blockwise, "
      "fp8-rowwise, fp8-rowwise-gw-hp, mxfp8, nvfp4 (default: the stack's, where devices have it)");
  command.add_option("--stack", request.stack,
                     "software stack (default: megatron-lm, for other than language models pytorch-ddp)");
  command.add_option("--optimizer", request.optimizer,
                     "adamw, adam, lamb, momentum or sgd; adamw:moments=bf16 (default: the model's usual one)");
  command.add_option("--reduce-dtype", request.reduce_dtype,
                     "type in which gradients are reduced: fp32, bf16 or fp16 (default: the stack's)");
  command.add_option("--train", request.train,
                     "what is trained: all, or lora:r=16,targets=attn, adapters beside frozen weights");
  command.add_option("--freeze", request.freeze,
                     "parameters that are not trained: globs joined by +, !glob takes back: embed+layers.*.mlp");
}

void add_plan_arguments(CLI::App& command, PlanRequest& request) {
  command.add_option("--model", request.model, "zoo name with overrides, config.json or .onnx file")->required();
  command.add_option("--cluster", request.cluster, "preset:nodes, several joined by +, or a file")->required();
  add_device_count(command, request);
  command.add_option("--strategy", request.strategy, "tp=8,pp=2,dp=4,zero=1,... or a strategy-tree .yaml file")
      ->required();
  command.add_option("--global-batch", request.global_batch,
                     "samples per step (default: about 4 M tokens, or 32 per device)");
  command.add_option("--micro-batch", request.micro_batch,
                     "samples per micro-batch and replica (default: 1, or what 32 per device leave)");
  add_job_options(command, request);
}

Status check_file_alone(const PlanRequest& request, const std::string& file) {
  const std::pair<const char*, bool> options[] = {{"--model", !request.model.empty()},
                                                  {"--cluster", !request.cluster.empty()},
                                                  {"--strategy", !request.strategy.empty()},
                                                  {"--devices", request.device_count.has_value()},
                                                  {"--global-batch", request.global_batch.has_value()},
                                                  {"--micro-batch", request.micro_batch.has_value()},
                                                  {"--seq", request.seq.has_value()},
                                                  {"--dtype", !request.dtype.empty()},
                                                  {"--stack", !request.stack.empty()},
                                                  {"--optimizer", !request.optimizer.empty()},
                                                  {"--reduce-dtype", !request.reduce_dtype.empty()},
                                                  {"--train", !request.train.empty()},
                                                  {"--freeze", !request.freeze.empty()}};
  for (const auto& [option, given] : options)
    if (given) return error("{}: {} says it; leave one out", option, file);
  return Ok{};
}

}  // namespace weft
