#include "cost/operator_cost.h"

#include <algorithm>

#include "cost/attention_kernels.h"
#include "cost/convolution_kernels.h"
#include "cost/kernel_sequence.h"
#include "cost/routing_kernels.h"
#include "graph/autocast.h"
#include "graph/operators.h"

namespace weft {
namespace {

constexpr double kManyInstructions = 4;  // operations per element from which a function counts as an activation

// Whether the operator is a weight-gradient product that adds to its accumulator.
bool accumulates(const KernelSequence& kernels) {
  return kernels.choice.accumulation && kernels.part.backward() && kernels.part.signature().outputs[0].weight;
}

// Makes copies of an operand, or of a share of it, in the type of the products. `looks_first`: it is read once before,
// for its maximum.
void cast(KernelSequence& kernels, const Operand& from, int copies, bool looks_first, double share = 1) {
  if (bits_of(from.dtype) <= 8) return;
  const double elements = kernels.part.elements(from) * share, read = kernels.part.bytes(from) * share;
  const double narrow = (kernels.arithmetic == Arithmetic::kFp4 ? 0.5 : 1) + scale_bytes_of(kernels.choice.recipe);
  if (looks_first) kernels.add_pass(Pass::Sums, read, 1, elements);
  kernels.add_pass(Pass::Convert, read + copies * narrow * elements, 0, elements);
}

// Whether one cast serves products along its rows and its columns: it has one scale, and the units read it either way.
// Those of Blackwell do (Transformer Engine, is_non_tn_fp8_gemm_supported), which came with fp4; Hopper's read rows only.
bool reads_either_way(const KernelSequence& kernels) {
  const RecipeTraits& recipe = traits_of(kernels.choice.recipe);
  return recipe.block == 0 && !recipe.of_rows && kernels.arithmetic == Arithmetic::kFp8 &&
         product_rate(kernels.device, Arithmetic::kFp4).arithmetic == Arithmetic::kFp4;
}

// Activations are cast to fp8 for forward, their gradients for backward. Where casts are kept, each once with a turned
// copy for the weight gradient (Transformer Engine's cast_transpose); of what was gathered each device has cast its part,
// and turns the whole. Where tensors are kept, the weight gradient casts the input again; with scales of rows, whose
// turned copy has others, the output's gradient too. Weights are cast once per step.
void cast_factors(KernelSequence& kernels) {
  if (kernels.arithmetic != Arithmetic::kFp8 && kernels.arithmetic != Arithmetic::kFp4) return;
  const LocalPart& part = kernels.part;
  const std::vector<Operand>& inputs = part.signature().inputs;
  const RecipeTraits& recipe = traits_of(kernels.choice.recipe);
  const bool of_weight = part.signature().gradient == "grad_weight";
  const bool turned = !reads_either_way(kernels);
  if (kernels.choice.keeps_casts) {
    if (of_weight) return;
    cast(kernels, inputs[0], turned ? 2 : 1, recipe.looks_first, kernels.cast());
    if (kernels.cast() < 1 && turned) kernels.add_stream(2 * part.elements(inputs[0]), kernels.tuning.stream.value);
  } else if (!of_weight) {
    // The scales of a gradient serve its turned copy too, unless they are of rows.
    const bool both = part.backward() && !recipe.of_rows && turned;
    cast(kernels, inputs[0], both ? 2 : 1, recipe.looks_first, kernels.cast());
  } else {
    const bool looks_first = recipe.looks_first || recipe.of_rows;
    cast(kernels, inputs[1], 1, looks_first);
    if (recipe.of_rows) cast(kernels, inputs[0], 1, looks_first);
  }
}

// Products whose sums are scaled block by block.
double scaled_rate(const KernelSequence& kernels) {
  const bool blocks = kernels.arithmetic == Arithmetic::kFp8 && traits_of(kernels.choice.recipe).block_products;
  return blocks ? kernels.tuning.blockwise.value : 1;
}

// Autocast casts a weight to the type of the product before it, and the gradient of the weight to fp32 after it.
void cast_weight(KernelSequence& kernels) {
  constexpr double kWide = 4;
  const LocalPart& part = kernels.part;
  const Signature& signature = part.signature();
  if (!kernels.choice.autocast || !casts_weight(signature)) return;
  for (const Operand& operand : part.backward() ? signature.outputs : signature.inputs) {
    if (!operand.weight) continue;
    const double elements = part.elements(operand);
    kernels.add_pass(Pass::Convert, elements * (kWide + width_of(operand.dtype)), 0, elements);
  }
}

// Heads that lie side by side are copied so that those of each lie together, for a batched product.
void copy_heads(KernelSequence& kernels) {
  if (!kernels.choice.head_copies) return;
  const LocalPart& part = kernels.part;
  const Operand& head = part.signature().inputs[1];  // keys, values; queries and results are as large
  for (int i = head_copies_of(part.signature()); i > 0; --i) kernels.add_pass(Pass::Turn, 2 * part.bytes(head));
}

void add_linear(KernelSequence& kernels) {
  cast_factors(kernels);
  cast_weight(kernels);
  copy_heads(kernels);
  Product plain = kernels.part.product();
  plain.efficiency = scaled_rate(kernels) * (accumulates(kernels) ? kernels.tuning.accumulating.value : 1);
  kernels.add_product(plain);
}

void add_expert_linear(KernelSequence& kernels) {
  const DeviceTuning& tuning = kernels.tuning;
  pad_rows(kernels);
  cast_factors(kernels);
  cast_weight(kernels);
  Product grouped = kernels.part.product();
  grouped.efficiency =
      scaled_rate(kernels) * tuning.grouped.value * (accumulates(kernels) ? tuning.accumulating.value : 1);
  if (grouped.flops() > 0) kernels.add_time(grouped.batch * tuning.grouped_start.value.value);
  kernels.add_product(grouped);
}

bool is_view(const Signature& signature) {
  return signature.pointwise_per_element == 0 && std::all_of(signature.outputs.begin(), signature.outputs.end(),
                                                             [](const Operand& output) { return output.aliases >= 0; });
}

// Whether an input is narrower than an output: loads and stores then differ in width.
bool mixes_types(const Signature& signature) {
  const DType written = signature.outputs[0].dtype;
  return std::any_of(signature.inputs.begin(), signature.inputs.end(), [&](const Operand& input) {
    return is_floating(input.dtype) && bits_of(input.dtype) < bits_of(written);
  });
}

// Reads or writes every operand once.
void add_plain_pass(KernelSequence& kernels) {
  const LocalPart& part = kernels.part;
  const Signature& signature = part.signature();
  if (is_view(signature)) return;
  if (mixes_types(signature)) return kernels.add_pass(Pass::Convert, part.bytes());
  if (signature.kind == OpKind::Unary && signature.pointwise_per_element >= kManyInstructions)
    return kernels.add_pass(part.backward() ? Pass::ActivationBackward : Pass::Activation, part.bytes());
  kernels.add_stream(part.bytes(), kernels.tuning.stream.value, part.pointwise_flops());
}

// Fused with the activation, or elementary kernels: rows times fp32 weights are fp32 by PyTorch's promotion.
void weigh_rows(KernelSequence& kernels) {
  if (kernels.choice.bias_activation) return;
  const LocalPart& part = kernels.part;
  const Operand& input = part.signature().inputs[0];
  const bool backward = part.backward();
  const double rows = part.bytes(input), wide = part.elements(input) * 4;
  const auto convert = [&] {
    if (rows < wide) kernels.add_pass(Pass::Convert, rows + wide);
  };
  if (part.signature().gradient == "grad_weights") {
    kernels.add_pass(Pass::Convert, wide + rows + wide);
    return kernels.add_pass(Pass::Sums, wide, part.data_rows());
  }
  if (backward) convert();  // the incoming gradient
  kernels.add_pass(Pass::Convert, (backward ? wide : rows) + wide);
  convert();
}

// Eager PyTorch: x·cos, the turned half negated, joined, times sin, and the sum.
void add_rotary(KernelSequence& kernels) {
  if (kernels.choice.rotary) return add_plain_pass(kernels);
  kernels.add_pass(Pass::PlainRotary, kernels.part.bytes());
}

void add_batch_norm(KernelSequence& kernels) {
  const LocalPart& part = kernels.part;
  const bool backward = part.backward();
  // Statistics first, then the data once more.
  const double again = part.bytes(part.signature().inputs[backward ? 1 : 0]) * (backward ? 2 : 1);
  const Pass pass = kernels.choice.channels_last ? backward ? Pass::BatchNormBackward : Pass::BatchNorm
                    : backward                   ? Pass::BatchNormFirstBackward
                                                 : Pass::BatchNormFirst;
  // With channels first, a thread block processes one channel.
  kernels.add_pass(pass, part.bytes() + again, part.data_elements() / std::max(1.0, part.extent("c")));
}

void add_norm(KernelSequence& kernels) {
  const LocalPart& part = kernels.part;
  const bool layer = part.signature().kind == OpKind::LayerNorm, backward = part.backward();
  const bool fused = kernels.choice.norm;
  const Pass whole = layer      ? backward ? Pass::LayerNormBackward : Pass::LayerNorm
                     : backward ? Pass::RmsNormBackward
                                : Pass::RmsNorm;
  const Pass pass = fused ? whole : backward ? Pass::PlainNormBackward : Pass::PlainNorm;
  // Unfused kernels work on an fp32 copy.
  const double widening = fused ? 1 : 4 / std::min(4.0, width_of(part.signature().inputs[0].dtype));
  kernels.add_pass(pass, part.bytes() * widening, part.data_rows());
  // Gradients of the weights are sums over all rows: a second, smaller kernel adds up partial ones.
  if (backward && kernels.tuning.passes[static_cast<std::size_t>(pass)].value.share <= 0)
    kernels.add_time(kernels.launch());
}

// log_softmax and nll_loss on the logits as they are: the first reads them twice and writes their logarithms, its backward
// reads the gradient of the second, which was cleared before, twice and the logarithms once. Autocast gives nll_loss an
// fp32 copy.
void add_narrow_cross_entropy(KernelSequence& kernels) {
  constexpr double kWide = 4;
  const LocalPart& part = kernels.part;
  const std::vector<Operand>& inputs = part.signature().inputs;
  const Operand& logits =
      *std::find_if(inputs.begin(), inputs.end(), [](const Operand& each) { return each.name == "x"; });
  const double elements = part.elements(logits), width = width_of(logits.dtype), stream = kernels.tuning.stream.value;
  const bool copies = kernels.choice.autocast && width < kWide;
  if (copies) kernels.add_pass(Pass::Convert, elements * (width + kWide), 0, elements);
  if (!part.backward()) {
    kernels.add_stream(3 * elements * width, stream);
    return kernels.add_pass(Pass::Sums, part.data_rows() * kWide);
  }
  kernels.add_stream(elements * (copies ? kWide : width), stream);
  kernels.add_stream(4 * elements * width, stream);
}

void add_cross_entropy(KernelSequence& kernels) {
  if (!kernels.choice.cross_entropy && !kernels.choice.wide_logits) return add_narrow_cross_entropy(kernels);
  const LocalPart& part = kernels.part;
  const Pass pass = kernels.choice.cross_entropy ? part.backward() ? Pass::CrossEntropyBackward : Pass::CrossEntropy
                    : part.backward()            ? Pass::PlainCrossEntropyBackward
                                                 : Pass::PlainCrossEntropy;
  kernels.add_pass(pass, part.bytes(), part.data_rows());
}

void add_pool(KernelSequence& kernels) {
  const LocalPart& part = kernels.part;
  const Pass pass = kernels.choice.channels_last ? part.backward() ? Pass::PoolBackward : Pass::Pool
                    : part.backward()            ? Pass::PoolFirstBackward
                                                 : Pass::PoolFirst;
  kernels.add_pass(pass, part.bytes(), part.window_elements());
}

void add_embedding(KernelSequence& kernels) {
  const LocalPart& part = kernels.part;
  if (!part.backward()) {  // the rows that are looked up, not the table
    const Operand &ids = part.signature().inputs[0], &table = part.signature().inputs[1];
    const double row = part.extent("d") * width_of(table.dtype);
    return kernels.add_pass(Pass::Gather, part.bytes(ids) + part.elements(ids) * row + part.bytes_out());
  }
  // The table's gradient is zeroed, then rows are added to it: read, add, write.
  kernels.add_stream(part.bytes_out(), kernels.tuning.stream.value);
  kernels.add_pass(Pass::Scatter, 3 * part.bytes_in(), part.indices());
}

void add_lstm_cell(KernelSequence& kernels) {
  const LocalPart& part = kernels.part;
  const bool one_call = kernels.choice.bias_activation;
  const double b = part.extent("b"), gates = part.extent("a") * part.extent("n");
  const double bytes = width_of(part.signature().inputs[0].dtype);
  const auto multiply = [&](double m, double n, double k) {
    Product product{.m = m, .n = n, .k = k, .bytes = (m * k + k * n + m * n) * bytes};
    product.alignment = std::max(alignment_of(n * bytes), alignment_of(k * bytes));
    kernels.add_product(product);
  };
  const double before = kernels.seconds();
  int products = 0;
  for (double k : {part.extent("i"), part.extent("m")}) {
    if (!part.backward()) {
      multiply(b, gates, k);
    } else {
      multiply(b, k, gates);
      multiply(k, gates, b);
    }
    products += part.backward() ? 2 : 1;
  }
  // One library call: its kernels run without launch latency between them.
  if (one_call) kernels.spare(kernels.launch() * products, before);
  kernels.add_pass(one_call ? Pass::LstmGates : Pass::PlainLstmGates, 6 * b * gates * bytes);
}

void add_dot_interaction(KernelSequence& kernels) {
  const LocalPart& part = kernels.part;
  const double bytes = width_of(part.signature().inputs[0].dtype);
  Product product{.batch = part.extent("b"), .m = part.extent("f"), .n = part.extent("f2"), .k = part.extent("d")};
  product.bytes = product.batch * (2 * product.m * product.k + product.m * product.n) * bytes;
  if (part.backward()) std::swap(product.n, product.k);
  for (int times = part.backward() ? 2 : 1; times > 0; --times) kernels.add_product(product);
  kernels.add_stream(part.bytes(), kernels.tuning.gather.value);
}

void add_opaque(KernelSequence& kernels) {
  const double flops = kernels.part.signature().attrs.number("flops", 0);
  kernels.add_time(flops / product_rate(kernels.device, kernels.arithmetic).peak.value, flops);
  kernels.add_stream(kernels.part.bytes(), kernels.tuning.stream.value, kernels.part.pointwise_flops());
}

// One kernel works on some sixteen tensors (multi_tensor_apply; measurements/h200/steps_kernels.csv: 18 updates of 292).
void share_kernel(KernelSequence& kernels, Pass pass) {
  constexpr double kTensorsOfKernel = 16;
  const double start = kernels.launch() + kernels.tuning.passes[static_cast<std::size_t>(pass)].value.start.value;
  kernels.spare(start * (1 - 1 / kTensorsOfKernel), 0);
}

// Under autocast the weights are fp32: the narrow copies beside them are not the optimizer's.
void add_update(KernelSequence& kernels) {
  const LocalPart& part = kernels.part;
  const Signature& signature = part.signature();
  const bool copies = kernels.choice.autocast && signature.attrs.integer("master", 0) != 0;
  kernels.add_pass(kernels.choice.optimizer ? Pass::Optimizer : Pass::PlainOptimizer,
                   part.bytes() - (copies ? 2 * part.bytes(signature.inputs[0]) : 0));
  if (kernels.choice.optimizer) share_kernel(kernels, Pass::Optimizer);
}

// Part of the kernel before it: what that has not read already.
void add_fused_pointwise(KernelSequence& kernels) {
  const LocalPart& part = kernels.part;
  const Signature& signature = part.signature();
  if (signature.kind != OpKind::Binary || is_cast(signature)) return;
  const double bytes = part.bytes() - part.bytes(signature.inputs[0]);
  kernels.add_time(bytes / (kernels.memory_peak * kernels.tuning.stream.value));
}

void run_kernels(KernelSequence& kernels) {
  const LocalPart& part = kernels.part;
  const KernelChoice& choice = kernels.choice;
  switch (part.signature().kind) {
    case OpKind::Linear:
    case OpKind::Matmul:
      return add_linear(kernels);
    case OpKind::ExpertLinear:
      return add_expert_linear(kernels);
    case OpKind::Conv1d:
    case OpKind::Conv2d:
      cast_weight(kernels);
      return add_convolution(kernels);
    case OpKind::Attention:
      return add_attention(kernels);
    case OpKind::LstmCell:
      return add_lstm_cell(kernels);
    case OpKind::DotInteraction:
      return add_dot_interaction(kernels);
    case OpKind::BatchNorm:
      return add_batch_norm(kernels);
    case OpKind::LayerNorm:
    case OpKind::RmsNorm:
      return add_norm(kernels);
    case OpKind::Softmax:
      return add_softmax(kernels);
    case OpKind::CrossEntropy:
      return add_cross_entropy(kernels);
    case OpKind::Pool2d:
      return add_pool(kernels);
    case OpKind::Reduce:
    case OpKind::NllLoss:
    case OpKind::BceLoss:
    case OpKind::AuxLoss:
      return kernels.add_pass(Pass::Sums, part.bytes(), part.data_rows());
    case OpKind::SumSquares:
    case OpKind::NonFinite:
      kernels.add_pass(Pass::Sums, part.bytes(), part.data_rows());
      if (choice.optimizer) share_kernel(kernels, Pass::Sums);
      return;
    case OpKind::Bias:
      // Forward, it is the epilogue of the product before it, in eager mode too; not where every operator is a kernel.
      cast_weight(kernels);
      if (part.backward()) return kernels.add_pass(Pass::ColumnSums, part.bytes());
      if (choice.weft) return add_plain_pass(kernels);
      // Convolutions leave it to a kernel of its own.
      if (adds_bias(part.signature()) && !choice.bias_activation)
        kernels.add_stream(part.bytes(), kernels.tuning.stream.value);
      return;
    case OpKind::Embedding:
      return add_embedding(kernels);
    case OpKind::Dispatch:
    case OpKind::Combine:
      return add_permutation(kernels);
    case OpKind::Router:
      return add_router(kernels);
    case OpKind::DispatchWeights:
      return kernels.add_pass(Pass::Gather, part.bytes());
    case OpKind::WeighRows:
      return weigh_rows(kernels);
    case OpKind::Sgd:
    case OpKind::Momentum:
    case OpKind::Adam:
    case OpKind::LambUpdate:
    case OpKind::LambApply:
      return add_update(kernels);
    case OpKind::Opaque:
      return add_opaque(kernels);
    case OpKind::Accumulate:
      // Done by the product that makes the gradient; only vectors remain.
      if (choice.accumulation) return;
      return add_plain_pass(kernels);
    case OpKind::Unary:
    case OpKind::Binary:
      // On images it is fused with the batch norm before it.
      if (choice.batch_norm && part.signature().outputs[0].dims.size() == 4) return;
      if (choice.pointwise && (part.signature().kind == OpKind::Binary || is_cast(part.signature())))
        return add_fused_pointwise(kernels);
      return add_plain_pass(kernels);
    case OpKind::Glu:
      if (choice.bias_activation) return add_plain_pass(kernels);
      return kernels.add_pass(part.backward() ? Pass::GluBackward : Pass::Glu, part.bytes());
    case OpKind::Dropout:
      if (choice.pointwise) return;
      return part.backward() ? add_plain_pass(kernels) : kernels.add_pass(Pass::Dropout, part.bytes());
    case OpKind::Rotary:
      return add_rotary(kernels);
    case OpKind::Select:
    case OpKind::Concat:
    case OpKind::Split:
    case OpKind::Slice:
    case OpKind::Pad:
    case OpKind::Reshape:
    case OpKind::Transpose:
    case OpKind::Expand:
    case OpKind::AccumulateLoss:
    case OpKind::ScaleLoss:
    case OpKind::AddScalars:
    case OpKind::ClipCoefficient:
      return add_plain_pass(kernels);
  }
}

}  // namespace

ComputeCost operator_cost(const ComputeQuery& query, const Tuning& tuning, const KernelChoice& choice) {
  KernelSequence kernels(query, tuning, choice);
  run_kernels(kernels);
  return kernels.cost();
}

}  // namespace weft
