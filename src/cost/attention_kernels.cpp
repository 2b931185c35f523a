#include "cost/attention_kernels.h"

#include <algorithm>
#include <cmath>

#include "cost/rounding.h"

namespace weft {
namespace {

constexpr double kAttentionUnits = 0.9;     // share of units that attention keeps busy (measurements/h200, rows hold)
constexpr double kAttentionRows = 128;      // queries of one thread block of fused attention
constexpr double kBackwardProducts = 1.25;  // fused attention computes the scores once more: 5 products instead of 4

double heads_of(const LocalPart& part) { return part.extent("b") * part.extent("g") * part.extent("r"); }

// Thread blocks of queries iterate over the keys that they attend to; a mask makes some shorter, so they end unevenly.
void add_fused(KernelSequence& kernels) {
  const LocalPart& part = kernels.part;
  const DeviceTuning& tuning = kernels.tuning;
  const double heads = heads_of(part), queries = part.extent("q"), keys = part.extent("t"), units = kernels.units;
  const double e = part.extent("e"), d = part.extent("d"), products = 2 * heads * queries * keys * (e + d);
  const double share_of_pairs = kernels.attended();
  const bool backward = part.backward();
  const double flops = products * (backward ? 2 : 1);
  const ProductRate rate = product_rate(kernels.device, kernels.arithmetic);
  const ProductTuning& tile = tuning.products[static_cast<std::size_t>(rate.arithmetic)];
  const double size = std::min(e, d);
  const double narrow = size >= 128 ? 1
                        : size >= 64
                            ? tuning.attention_narrow.value + (1 - tuning.attention_narrow.value) * (size - 64) / 64
                            : tuning.attention_narrow.value * std::max(size, 1.0) / 64;
  const double generation = kernels.choice.attention_generation <= 1   ? tuning.attention_flash1.value
                            : kernels.choice.attention_generation == 2 ? tuning.attention_flash2.value
                                                                       : 1.0;
  const double unit_rate = rate.peak.value * tile.sustained.value * kernels.clock() *
                           (backward ? tuning.attention_backward : tuning.attention_forward).value * narrow *
                           generation / units;
  const double rows = std::min(queries, kAttentionRows), blocks = heads * ceil_ratio(queries, kAttentionRows);
  const double per_key = 2 * rows * (e + d) * (backward ? 2 * kBackwardProducts : 1) / unit_rate;
  const double ramp = (backward ? tuning.attention_ramp_backward : tuning.attention_ramp_forward).value;
  const bool masked = share_of_pairs < 1;
  // A block computes whole tiles of keys, half a tile too many on the diagonal; the last block has the most keys.
  const double seen = std::min(keys, keys * share_of_pairs + (masked ? kAttentionRows / 2 : 0));
  const double longest = (masked ? std::min(keys, 2 * keys * share_of_pairs + kAttentionRows) : keys) + ramp;
  const double waves = blocks / units;
  const double tail =
      masked ? tuning.attention_tail.value : tile.wave_quantisation.value * (ceil_ratio(blocks, units) - waves);
  const double computing = per_key * std::max(longest, waves * (seen + ramp) + tail * longest);
  const double bytes = part.bytes();
  const double seconds = std::max(computing, bytes / (kernels.memory_peak * tuning.stream.value));
  kernels.add({kernels.launch() * (backward ? 3 : 1) + seconds, kAttentionUnits * std::min(1.0, waves), 0}, flops,
              bytes);
}

// Megatron-LM's scaled_masked_softmax kernels take rows of 17 keys to a limit (2,048 at first, 4,096 later), and their
// thread blocks so many rows that queries and matrices must divide by four (fused_softmax.py, is_kernel_available).
// Compilers fuse rows of any size.
bool is_one_softmax(const KernelSequence& kernels, double matrices, double queries, double keys) {
  constexpr double kFewestKeys = 17, kTogether = 4;
  const int most = kernels.choice.softmax_keys;
  return most >= kAnySoftmaxKeys || (keys >= kFewestKeys && keys <= most && std::fmod(queries, kTogether) == 0 &&
                                     std::fmod(matrices, kTogether) == 0);
}

// One fused kernel scales, masks and takes the softmax; or each is a kernel, and masking writes a copy. `once`: bytes
// of reading and writing the scores once.
void add_softmax_of_scores(KernelSequence& kernels, Pass pass, double bytes, double once, double rows, double scores,
                           bool fused) {
  if (!fused) {
    kernels.add_stream(once, kernels.tuning.stream.value);
    if (kernels.part.signature().attrs.number("causal", 0) > 0) {
      kernels.add_stream(once, kernels.tuning.stream.value);
      kernels.add_pass(Pass::Broadcast, once, 0, scores);
    }
  }
  kernels.add_pass(pass, bytes, rows, scores);
}

// Product of queries and keys, softmax over all scores, product with the values; masks save no work.
void add_plain(KernelSequence& kernels) {
  const LocalPart& part = kernels.part;
  const Signature& signature = part.signature();
  const double heads = heads_of(part), queries = part.extent("q"), keys = part.extent("t");
  const double e = part.extent("e"), d = part.extent("d"), bytes = width_of(signature.inputs[0].dtype);
  const double scores = heads * queries * keys;
  const auto multiply = [&](double m, double n, double k) {
    Product product{.batch = heads, .m = m, .n = n, .k = k};
    product.bytes = heads * (m * k + k * n + m * n) * bytes;
    product.alignment = std::max(alignment_of(n * bytes), alignment_of(k * bytes));
    kernels.add_product(product);
  };
  const auto soften = [&](Pass pass, double passes) {
    add_softmax_of_scores(kernels, pass, passes * scores * bytes, 2 * scores * bytes, heads * queries, scores,
                          is_one_softmax(kernels, heads, queries, keys));
  };
  const auto drop = [&] {
    if (signature.attrs.number("dropout", 0) > 0)
      kernels.add_stream(scores * (2 * bytes + 1), kernels.tuning.stream.value);
  };
  if (!part.backward()) {
    multiply(queries, keys, e);
    soften(Pass::Softmax, 2);
    drop();
    multiply(queries, d, keys);
    return;
  }
  multiply(keys, d, queries);  // dv = pᵀ·dy
  multiply(queries, keys, d);  // dp = dy·vᵀ
  drop();
  soften(Pass::SoftmaxBackward, 3);
  multiply(queries, e, keys);  // dq = ds·k
  multiply(keys, e, queries);  // dk = dsᵀ·q
}

}  // namespace

void add_attention(KernelSequence& kernels) {
  if (kernels.attended() == 0) return;  // every pair is masked: no kernel is launched
  if (kernels.choice.attention)
    add_fused(kernels);
  else
    add_plain(kernels);
}

void add_softmax(KernelSequence& kernels) {
  const LocalPart& part = kernels.part;
  const Pass pass = part.backward() ? Pass::SoftmaxBackward : Pass::Softmax;
  const Operand& scores = part.signature().outputs[0];
  if (part.signature().attrs.number("causal", 0) > 0) {
    const double rows = part.data_rows(), queries = part.extent(scores.dims[scores.dims.size() - 2]);
    const bool fused = is_one_softmax(kernels, rows / queries, queries, part.extent(scores.dims.back()));
    return add_softmax_of_scores(kernels, pass, part.bytes(), 2 * part.bytes(scores), rows, part.data_elements(),
                                 fused);
  }
  // BertSelfAttention divides the scores and adds the padding mask, each by a kernel; backward the former again.
  if (kernels.choice.head_copies && !kernels.choice.bias_activation) {
    const double once = 2 * part.bytes(part.signature().outputs[0]);
    for (int i = part.backward() ? 1 : 2; i > 0; --i) kernels.add_stream(once, kernels.tuning.stream.value);
  }
  kernels.add_pass(pass, part.bytes(), part.data_rows());
}

}  // namespace weft
