// A standalone script on torch.distributed that trains a decoder by data, tensor and pipeline parallelism under
// torchrun: presets/targets/train_decoder.py with a model and a plan filled in. Scripts are written, never read back.
#include "export/pytorch.h"

#include <fmt/format.h>

#include "base/embedded.h"

namespace weft {

std::span<const EmbeddedFile> target_scripts();  // written by cmake/embed.cmake

std::string filled_script(std::string_view path, std::string_view settings) {
  constexpr std::string_view kPlace = "# SETTINGS";
  for (const EmbeddedFile& file : target_scripts()) {
    if (file.path != path) continue;
    const std::size_t at = file.text.find(kPlace);
    WEFT_CHECK(at != std::string_view::npos, "{} has no place for settings", path);
    return fmt::format("{}{}{}", file.text.substr(0, at), settings, file.text.substr(at + kPlace.size()));
  }
  WEFT_CHECK(false, "no script {}", path);
  return {};
}

namespace {

std::optional<std::string> no_pytorch_strategy(const ExportSubject& subject) {
  if (!subject.decoder) return no_network_strategy(subject);
  if (subject.job.optimizer.value_or(OptimizerKind::AdamW) != OptimizerKind::AdamW)
    return fmt::format("--optimizer {}: the script of decoders has AdamW", name_of(*subject.job.optimizer));
  const TransformerConfig& config = *subject.decoder;
  const std::pair<bool, const char*> lacking[] = {
      {subject.job.precision.name != "fp32", "the script trains in fp32; write --dtype fp32"},
      {config.moe.experts > 0, "experts"},
      {config.mla.kv_lora > 0, "latent attention"},
      {config.dropout > 0, "dropout; override dropout=0"},
      {config.window > 0, "sliding windows"},
      {config.qk_norm || config.post_norms || config.embedding_norm || config.norm == Norm::LayerNoBias,
       "norms other than those before attention and feed-forward layer"},
      {config.parallel_residual || config.shared_norm, "attention and feed-forward side by side"},
      {config.embedding_scale != 1 || config.attention_scale != 0 || config.attention_softcap != 0 ||
           config.logit_softcap != 0 || config.head_bias,
       "scales, soft caps and a bias of the head"},
      {config.positions == Positions::Alibi || config.positions == Positions::Relative, "ALiBi or relative positions"},
      {config.position_rows > 0 && config.position_rows != config.context, "positions beyond the context"},
      {config.zigzag != 1, "an order of tokens set by hand"},
      {config.activation != Activation::Gelu && config.activation != Activation::GeluTanh &&
           config.activation != Activation::Relu2 && config.activation != Activation::SwiGlu,
       "activations other than GELU, squared ReLU and SwiGLU"}};
  for (const auto& [lacks, what] : lacking)
    if (lacks) return std::string(what);
  return {};
}

std::optional<std::string> why_not_pytorch(const ExportSubject& subject, const Parallelism& plan) {
  if (!subject.decoder) return why_not_network(plan);
  const TransformerConfig& config = *subject.decoder;
  if (plan.cp > 1) return "context parallelism";
  if (plan.sequence_parallel)
    return "sequence parallelism: the script's tensor parallelism sums whole activations; write sp=0";
  if (plan.zero == 1) return "zero=1: FSDP2 shards weights, gradients and optimizer state, zero=2 or 3, or nothing";
  if (plan.zero > 0 && plan.pp > 1) return "pipelines with ZeRO: the script of FSDP2 has none";
  if (plan.zero > 0 && plan.dp == 1) return "zero= without replicas to shard over";
  if (plan.vpp > 1 || (plan.pp > 1 && plan.schedule != "1f1b")) return "pipeline schedules other than 1f1b";
  if (plan.recompute != Recompute::None && plan.recompute != Recompute::Full)
    return fmt::format("recompute={}: the script recomputes all layers or nothing", name_of(plan.recompute));
  if (!plan.full.empty() || !plan.recompute_layers.empty())
    return "recompute=: the script recomputes all layers or nothing";
  if (!plan.offload.empty()) return "offloading";
  if (!plan.order.empty()) return "order=: ranks are numbered tp, dp, pp";
  for (const auto& [size, what] :
       {std::pair{config.kv_heads, "key and value heads"}, std::pair{config.ffn, "columns of the feed-forward layer"},
        std::pair{config.vocab, "rows of the vocabulary"}})
    if (size % plan.tp != 0) return fmt::format("tp={} does not divide {} {}", plan.tp, size, what);
  if (plan.stages.empty() && config.layers % plan.pp != 0) return "layers that do not divide over stages";
  return {};
}

std::string truth(bool value) { return value ? "True" : "False"; }

Result<std::string> write_pytorch(const ExportSubject& subject, const Parallelism& plan, const ExportOptions&) {
  if (!subject.decoder) return write_network(subject, plan);
  const TransformerConfig& config = *subject.decoder;
  const char* activation = config.activation == Activation::SwiGlu  ? "swiglu"
                           : config.activation == Activation::Relu2 ? "relu2"
                           : config.activation == Activation::Gelu  ? "gelu"
                                                                    : "gelu_tanh";
  std::vector<std::int64_t> stages = plan.stages;
  if (stages.empty()) stages.assign(static_cast<std::size_t>(plan.pp), config.layers / plan.pp);
  std::string settings = fmt::format("# {}: {}\nMODEL = {{\n", subject.job.words.model, print(shorthand_of(plan)));
  const auto number = [&](const char* name, std::int64_t value) {
    settings += fmt::format("    \"{}\": {},\n", name, value);
  };
  const auto flag = [&](const char* name, bool value) {
    settings += fmt::format("    \"{}\": {},\n", name, truth(value));
  };
  number("layers", config.layers);
  number("hidden", config.hidden);
  number("heads", config.heads);
  number("kv_heads", config.kv_heads);
  number("head_dim", config.head_dim);
  number("ffn", config.ffn);
  number("vocab", config.vocab);
  number("context", config.context);
  settings += fmt::format("    \"activation\": \"{}\",\n", activation);
  flag("gated", is_gated(config.activation));
  flag("rms", config.norm == Norm::Rms);
  flag("learned", config.positions == Positions::Learned);
  flag("rotary", config.positions == Positions::Rotary);
  number("rotary_dim", config.rotary_dim);
  settings += fmt::format("    \"rotary_base\": {},\n", config.rotary_base);
  flag("qkv_bias", config.qkv_bias);
  flag("out_bias", config.out_bias);
  flag("mlp_bias", config.mlp_bias);
  flag("tied", config.tied);
  settings += "}\nPLAN = {\n";
  number("tp", plan.tp);
  number("pp", plan.pp);
  number("dp", plan.dp);
  settings += fmt::format("    \"stages\": [{}],\n", fmt::join(stages, ", "));
  if (plan.zero > 0) {
    number("zero", plan.zero);
    number("fsdp", plan.fsdp);
  }
  number("seq", subject.job.model.seq);
  number("micro_batch", plan.micro_batch);
  number("micro_batches", plan.micro_batches);
  flag("recompute", plan.recompute == Recompute::Full);
  settings += "}";
  return filled_script(plan.zero > 0 ? "presets/targets/train_decoder_fsdp.py" : "presets/targets/train_decoder.py",
                       settings);
}

Result<ImportedRun> import_pytorch(std::string_view, std::string_view file) {
  return error("{}: scripts for pytorch are written, not read; megatron, deepspeed and torchtitan are", file);
}

}  // namespace

const TargetFunctions kPyTorch = {no_pytorch_strategy, why_not_pytorch, write_pytorch, import_pytorch};

}  // namespace weft
