#include <fmt/format.h>

#include "export/megatron.h"

namespace weft {
namespace {

constexpr std::string_view kStack = "megatron-lm";

// Megatron-LM counts buckets in parameters, Weft in bytes of the type that gradients travel in.
std::int64_t gradient_bytes(const SoftwareStack& stack) {
  return bytes_of(stack.gradient_communication_dtype.value.value_or(DType::F32), 1);
}

bool is_gelu(const TransformerConfig& config) {
  return config.activation == Activation::Gelu || config.activation == Activation::GeluTanh;
}

// --fp8-recipe by what Transformer Engine does.
struct RecipeName {
  Recipe recipe;
  std::string_view megatron;
};
constexpr RecipeName kFp8Recipes[] = {{Recipe::Delayed, "delayed"},
                                      {Recipe::Current, "tensorwise"},
                                      {Recipe::Blockwise, "blockwise"},
                                      {Recipe::Mx, "mxfp8"}};

// The types of products: the arguments of a Weft type.
Status write_types(const Precision& precision, Arguments& into) {
  const std::string& dtype = precision.name;
  if (dtype == "fp32") return Ok{};
  if (dtype == "fp16") {
    into.add("--fp16");
    return Ok{};
  }
  if (dtype != "bf16" && !precision.recipe) return error("--dtype {}", dtype);
  into.add("--bf16");
  if (dtype == "bf16") return Ok{};
  if (precision.recipe == Recipe::Nv) {
    into.add("--fp4-format", "e2m1");
    into.add("--fp4-recipe", "nvfp4");
    return Ok{};
  }
  const auto found = std::find_if(std::begin(kFp8Recipes), std::end(kFp8Recipes),
                                  [&](const RecipeName& each) { return each.recipe == precision.recipe; });
  if (found == std::end(kFp8Recipes))
    return error("--dtype {}: Transformer Engine does not cast by {}", dtype, traits_of(*precision.recipe).what);
  into.add("--fp8-format", "hybrid");
  into.add("--fp8-recipe", std::string(found->megatron));
  return Ok{};
}

Result<std::string> read_types(const Arguments& given) {
  if (given.has("--fp16") && given.has("--bf16")) return given.fail("--fp16", "contradicts --bf16; keep one");
  if (given.has("--fp8-format") && given.has("--fp4-format"))
    return given.fail("--fp4-format", "contradicts --fp8-format; keep one");
  for (const char* narrow : {"--fp8-format", "--fp4-format"})
    if (given.has(narrow) && !given.has("--bf16"))
      return given.fail(narrow, "Weft has narrow products beside --bf16 only");
  for (const auto& [recipe, format] :
       {std::pair{"--fp8-recipe", "--fp8-format"}, std::pair{"--fp4-recipe", "--fp4-format"},
        std::pair{"--fp8-param-gather", "--fp8-format"}})
    if (given.has(recipe) && !given.has(format)) return given.fail(recipe, fmt::format("needs {}", format));
  if (given.has("--fp4-format")) {
    if (given.word("--fp4-recipe", "nvfp4") != "nvfp4") return given.fail("--fp4-recipe", "Weft knows nvfp4");
    return std::string("nvfp4");
  }
  if (given.has("--fp8-format")) {
    const std::string recipe = given.word("--fp8-recipe", "delayed");
    const auto found = std::find_if(std::begin(kFp8Recipes), std::end(kFp8Recipes),
                                    [&](const RecipeName& each) { return each.megatron == recipe; });
    if (found == std::end(kFp8Recipes))
      return given.fail("--fp8-recipe", "Weft knows tensorwise, delayed, blockwise and mxfp8");
    return std::string(traits_of(found->recipe).dtype);
  }
  return std::string(given.has("--bf16") ? "bf16" : given.has("--fp16") ? "fp16" : "fp32");
}

}  // namespace

Status write_habits(const SoftwareStack& stack, const Precision& precision, const TransformerConfig& config,
                    const Parallelism& strategy, Arguments& into) {
  WEFT_TRY(const SoftwareStack usual, find_stack(kStack));
  WEFT_TRY_OK(write_types(precision, into));
  const bool bf16 = precision.name != "fp16" && precision.name != "fp32";
  const DType half = bf16 ? DType::BF16 : DType::F16;
  const auto gradients = stack.gradient_dtype.value;
  if (gradients != stack.gradient_communication_dtype.value)
    return error("gradients that travel in a type of their own");
  if (gradients == DType::F32) {
    if (!bf16 && precision.name != "fp32") into.add("--accumulate-allreduce-grads-in-fp32");
  } else if (gradients == half && bf16) {
    into.add("--grad-reduce-in-bf16");
  } else if (gradients != half) {
    return error("gradients in {}", gradients ? name_of(*gradients) : "no type");
  }
  if (stack.moment_dtype.value == DType::BF16) {
    if (strategy.zero != 1) return error("moments in bf16 without the distributed optimizer (zero=1)");
    into.add("--use-precision-aware-optimizer");
    into.add("--exp-avg-dtype", "bf16");
    into.add("--exp-avg-sq-dtype", "bf16");
  }
  if (stack.narrow_weights.value && precision.products) {
    if (strategy.zero == 0) return error("weights gathered in fp8 without the distributed optimizer");
    into.add("--fp8-param-gather");
  }
  if (stack.gradient_overlap.value) into.add("--overlap-grad-reduce");
  if (strategy.zero >= 1 && stack.prefetch_forward.value) {
    if (!stack.gradient_overlap.value) return error("gathering weights ahead without overlapping gradients");
    into.add("--overlap-param-gather");
  }
  if (stack.gradient_bucket.value != usual.gradient_bucket.value) {
    const std::int64_t bytes = stack.gradient_bucket.value.value;
    if (bytes <= 0 || bytes % gradient_bytes(stack) != 0) return error("one bucket for all gradients");
    into.add("--ddp-bucket-size", bytes / gradient_bytes(stack));
  }
  if (strategy.tp > 1 && strategy.sequence_parallel && stack.tensor_chunks.value) into.add("--tp-comm-overlap");
  if (!stack.p2p_overlap.value) {
    if (strategy.vpp > 1 && strategy.pp == 2)
      return error("interleaving over two pipeline ranks without overlapping sends");
    into.add("--no-overlap-p2p-communication");
  }
  if (stack.fused_cross_entropy.value) into.add("--cross-entropy-loss-fusion");
  if (is_gelu(config) && config.mlp_bias) {
    if (stack.fused_bias_activation.value != (config.activation == Activation::GeluTanh))
      return error("GELU of one form with the kernel of the other: the fused kernel is the tanh form");
    if (!stack.fused_bias_activation.value) into.add("--no-bias-gelu-fusion");
  }
  if (is_gelu(config) && !config.mlp_bias && config.activation == Activation::GeluTanh)
    return error("the tanh form of GELU without biases");
  if (config.activation == Activation::SwiGlu && !stack.fused_bias_activation.value)
    into.add("--no-bias-swiglu-fusion");
  if (!stack.fused_accumulation.value) into.add("--no-gradient-accumulation-fusion");
  if (!stack.fused_attention.value) into.add("--attention-backend", "unfused");
  if (stack.graph_capture.value) {
    if (strategy.recompute == Recompute::Full) return error("CUDA graphs of layers with full recomputation");
    into.add("--cuda-graph-impl", "local");
  }
  if (stack.vocabulary_multiple.value == 0) {
    into.add("--no-pad-vocab-size");
  } else {
    into.add("--make-vocab-size-divisible-by", std::int64_t{stack.vocabulary_multiple.value});
  }
  if (config.moe.experts > 0) {
    into.add("--moe-token-dispatcher-type", stack.tokens_once.value ? "flex" : "alltoall");
    if (stack.tokens_once.value) into.add("--moe-flex-dispatcher-backend", "deepep");
    if (stack.fused_permutation.value) into.add("--moe-permute-fusion");
    if (stack.fused_router.value) into.add("--moe-router-fusion");
  }
  return Ok{};
}

Result<MegatronHabits> read_habits(const Arguments& given, std::vector<std::string>& notes) {
  MegatronHabits habits;
  WEFT_TRY(habits.dtype, read_types(given));
  WEFT_TRY(const SoftwareStack usual, find_stack(kStack));
  std::vector<std::string> items;
  const auto flag = [&](std::string_view knob, bool value, bool by_default) {
    if (value != by_default) items.push_back(fmt::format("{}={}", knob, value));
  };
  if (given.has("--grad-reduce-in-bf16") && habits.dtype == "fp16")
    return given.fail("--grad-reduce-in-bf16", "contradicts --fp16");
  DType gradients = DType::F32;
  if (given.has("--grad-reduce-in-bf16") && habits.dtype != "fp32") gradients = DType::BF16;
  if (habits.dtype == "fp16" && !given.has("--accumulate-allreduce-grads-in-fp32")) gradients = DType::F16;
  if (gradients != DType::F32) {
    items.push_back(fmt::format("gradient_dtype={}", name_of(gradients)));
    items.push_back(fmt::format("gradient_communication_dtype={}", name_of(gradients)));
  }
  const std::string first = given.word("--exp-avg-dtype", "fp32"), second = given.word("--exp-avg-sq-dtype", "fp32");
  if (first != second)
    return given.fail("--exp-avg-sq-dtype", "Weft has one type for both moments; --exp-avg-dtype differs");
  if (first != "fp32") {
    if (first != "bf16") return given.fail("--exp-avg-dtype", "Weft knows fp32 and bf16 moments");
    if (!given.has("--use-precision-aware-optimizer"))
      return given.fail("--exp-avg-dtype", "needs --use-precision-aware-optimizer");
    items.emplace_back("moment_dtype=bf16");
  }
  if (given.word("--optimizer", "adam") != "adam")
    notes.push_back(fmt::format("--optimizer {}: predicted as adam", given.word("--optimizer", "adam")));
  const bool sharded = given.has("--use-distributed-optimizer") || given.has("--use-megatron-fsdp");
  flag("gradient_overlap", given.has("--overlap-grad-reduce"), usual.gradient_overlap.value);
  if (given.has("--overlap-param-gather") && !(sharded && given.has("--overlap-grad-reduce")))
    return given.fail("--overlap-param-gather", "needs --overlap-grad-reduce and a distributed optimizer");
  // Without a distributed optimizer nothing is gathered; what would be if there was one follows the gradients.
  flag("prefetch_forward", given.has(sharded ? "--overlap-param-gather" : "--overlap-grad-reduce"),
       usual.prefetch_forward.value);
  if (given.has("--fp8-format") || given.has("--fp4-format"))
    for (const auto& [knob, value] : {std::pair{"narrow_weights", usual.narrow_weights.value},
                                      std::pair{"narrow_gathers", usual.narrow_gathers.value}})
      flag(knob, given.has("--fp8-param-gather"), value);
  if (const Argument* bucket = given.find("--ddp-bucket-size")) {
    const std::int64_t parameters = given.integer(bucket->flag, 0);
    if (parameters < 1 || parameters > (std::int64_t{1} << 40))
      return given.fail(bucket->flag, "a number of parameters");
    items.push_back(fmt::format("gradient_bucket={}B", parameters * bytes_of(gradients, 1)));
  }
  if (given.has("--tp-comm-overlap")) {
    if (!given.has("--sequence-parallel")) return given.fail("--tp-comm-overlap", "needs --sequence-parallel");
    flag("tensor_chunks", true, usual.tensor_chunks.value);
  }
  flag("p2p_overlap", !given.has("--no-overlap-p2p-communication"), usual.p2p_overlap.value);
  flag("fused_cross_entropy", given.has("--cross-entropy-loss-fusion"), usual.fused_cross_entropy.value);
  const bool gated = given.has("--swiglu"), squared = given.has("--squared-relu"),
             biased = !given.has("--disable-bias-linear");
  if (gated) flag("fused_bias_activation", !given.has("--no-bias-swiglu-fusion"), usual.fused_bias_activation.value);
  if (!gated && !squared && biased)
    flag("fused_bias_activation", !given.has("--no-bias-gelu-fusion"), usual.fused_bias_activation.value);
  flag("fused_accumulation", !given.has("--no-gradient-accumulation-fusion"), usual.fused_accumulation.value);
  const std::string attention = given.word("--attention-backend", "auto");
  flag("fused_attention", attention != "unfused" && attention != "local", usual.fused_attention.value);
  flag("graph_capture", given.word("--cuda-graph-impl", "none") != "none", usual.graph_capture.value);
  const std::int64_t multiple =
      given.has("--no-pad-vocab-size") ? 0 : given.integer("--make-vocab-size-divisible-by", 128);
  if (multiple < 0 || multiple > 1'000'000) return given.fail("--make-vocab-size-divisible-by", "from 1 to 1,000,000");
  if (multiple != usual.vocabulary_multiple.value) items.push_back(fmt::format("vocabulary_multiple={}", multiple));
  const std::string dispatcher = given.word("--moe-token-dispatcher-type", "allgather");
  if (given.has("--num-experts") && given.integer("--expert-model-parallel-size", 1) > 1 && dispatcher == "allgather")
    return given.fail("--moe-token-dispatcher-type",
                      "Weft sends tokens to experts by all-to-all; write alltoall or flex (allgather is the default)");
  if (dispatcher == "flex") flag("tokens_once", true, usual.tokens_once.value);
  if (given.has("--num-experts")) {
    flag("fused_permutation", given.has("--moe-permute-fusion"), usual.fused_permutation.value);
    flag("fused_router", given.has("--moe-router-fusion"), usual.fused_router.value);
  }
  habits.stack = items.empty() ? std::string(kStack) : fmt::format("{}:{}", kStack, fmt::join(items, ","));
  return habits;
}

}  // namespace weft
