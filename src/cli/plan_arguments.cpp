#include "cli/plan_arguments.h"

#include <CLI/CLI.hpp>

namespace weft {

const char* const kStrategyHelp =
    "\nThe strategy in one line: degrees tp cp pp dp (a missing dp fills the cluster), vpp=2 model chunks per "
    "pipeline\n"
    "rank, zero=0..3, fsdp=8,replicate=4 hybrid sharding, sp=0|1 sequence parallelism, cp_mode=gather|a2a|ring,\n"
    "recompute=none|selective|full|op, mbs= micro-batch, ga= micro-batches per step, schedule=, stages=8+8+7+9,\n"
    "order=tp-cp-ep-dp-pp, offload=optimizer+activations:layers.*.mlp, h= and w= of images, tables=1 for embedding\n"
    "tables.\n"
    "Experts lie over ep devices and are cut over etp of the tp devices (default tp); ep divides tp/etp*cp*dp and "
    "takes\n"
    "the nearest devices, of tp first, then cp, then dp: with tp=8,etp=1,ep=8 an ep group is a tp group.\n";

void add_device_count(CLI::App& command, PlanRequest& request) {
  command.add_option("--devices", request.device_count,
                     "use so many of the cluster's devices, evenly over its nodes (default: all)");
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
  command.add_option("--seq", request.seq, "tokens per sample (default: the model's, at most 8192)");
  command.add_option(
      "--dtype", request.dtype,
      "bf16, fp16, fp32, tf32, fp8, mxfp8, nvfp4, amp-bf16, amp-fp16 (default: the stack's, where devices have it)");
  command.add_option("--stack", request.stack,
                     "software stack (default: megatron-lm, for other than language models pytorch-ddp)");
  command.add_option("--freeze", request.freeze,
                     "parameters that are not trained: globs joined by +, !glob takes back: embed+layers.*.mlp");
}

}  // namespace weft
