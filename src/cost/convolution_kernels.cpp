#include "cost/convolution_kernels.h"

#include <algorithm>

#include "cost/rounding.h"
#include "graph/operators.h"

namespace weft {
namespace {

constexpr double kThinChannels = 8;                        // fewer channels are padded to this many on tensor cores
constexpr double kNarrowColumns = 32, kWideColumns = 128;  // columns of tiles of fp32 convolutions
constexpr double kDirectRate = 0.12;  // share of the fp32 peak that convolutions of many small groups reach

// With few columns, tiles are narrower and longer by the same factor, and as efficient as wide ones.
void lengthen(Product& product) {
  if (product.n > kNarrowColumns) return;
  product.m = ceil_ratio(product.m * kNarrowColumns, kWideColumns);
  product.n = kWideColumns;
}

bool is_pointwise_window(const LocalPart& part) {
  const Signature& signature = part.signature();
  for (int i = 0; i < signature.operand_count(); ++i)
    for (const DimIndex& dim : signature.operand(i).dims)
      if (dim.windowed() && (dim.window.stride != 1 || part.extent(dim.window.kernel) > 1)) return false;
  const double pixels = part.extent("h") * part.extent("w");
  return alignment_of(pixels * width_of(signature.inputs[0].dtype)) == Alignment::Full;
}

// Whether Winograd applies: fp32 windows of 3 × 3 at stride 1, with enough channels.
bool has_winograd(const KernelSequence& kernels) {
  const LocalPart& part = kernels.part;
  const Signature& signature = part.signature();
  if (signature.kind != OpKind::Conv2d ||
      product_rate(kernels.device, kernels.arithmetic).arithmetic != Arithmetic::kFp32)
    return false;
  int windows = 0;
  for (int i = 0; i < signature.operand_count(); ++i)
    for (const DimIndex& dim : signature.operand(i).dims)
      if (dim.windowed()) {
        const bool plain = dim.window.stride == 1 && dim.window.dilation == 1 && part.extent(dim.window.kernel) == 3;
        if (!plain) return false;
        ++windows;
      }
  return windows == 2 && part.extent("c") >= 16;
}

// Lavin and Gray 2015, F(4x4, 3x3): tiles of 6 × 6 pixels, transformed, are 36 products over the channels, a quarter
// of the multiplications; tiles at the borders are part empty. Three kernels transform images, windows and results:
// operands pass through memory once, and the products' factors and results once more.
KernelTime winograd(const KernelSequence& kernels) {
  const LocalPart& part = kernels.part;
  const double in = part.extent("c"), out = part.extent("o"), images = part.extent("b");
  const double tiles = images * ceil_ratio(part.extent("h"), 4) * ceil_ratio(part.extent("w"), 4);
  Product product{.batch = 36, .m = tiles, .n = out, .k = in};
  product.bytes = 36 * 4 * (tiles * (in + out) + in * out);
  product.splits = false;
  product.efficiency = kernels.tuning.winograd.value;
  lengthen(product);
  KernelTime time = kernels.time_of(product);
  const double windows = 4 * in * out * (9 + 36), all = product.bytes + part.bytes_in() + part.bytes_out();
  time.seconds += 3 * kernels.launch() + windows / (kernels.memory_peak * kernels.share_of(Pass::TransformWindows)) +
                  (all - windows) / (kernels.memory_peak * kernels.share_of(Pass::Transform));
  return time;
}

// Many groups of few channels each do not fill a tile: direct convolution without tensor cores.
void add_direct(KernelSequence& kernels, const Product& implicit) {
  const double vector_rate = product_rate(kernels.device, Arithmetic::kFp32).peak.value * kDirectRate;
  const KernelTime tiles = kernels.time_of(implicit);
  const double seconds = kernels.launch() + implicit.bytes / (kernels.memory_peak * kernels.tuning.stream.value) +
                         implicit.flops() / vector_rate;
  kernels.add({std::min(seconds, tiles.seconds), 1, 0}, implicit.flops(), implicit.bytes);
}

}  // namespace

// An implicit product: rows are gathered from windows, so rows of the image need no alignment, channels do.
void add_convolution(KernelSequence& kernels) {
  const LocalPart& part = kernels.part;
  const Signature& signature = part.signature();
  const DeviceTuning& tuning = kernels.tuning;
  const bool backward = part.backward();
  Product implicit = part.product();
  const double flops = implicit.flops();  // without the padding of channels
  const ProductRate rate = product_rate(kernels.device, kernels.arithmetic);
  const bool tensor_cores = rate.arithmetic != Arithmetic::kFp32;
  implicit.efficiency = tuning.products[static_cast<std::size_t>(rate.arithmetic)].convolution.value;
  const double element = width_of(signature.inputs[0].dtype);
  implicit.alignment = std::max(alignment_of(part.extent("c") * element), alignment_of(part.extent("o") * element));
  const bool of_weight = backward && signature.outputs[0].weight;
  implicit.splits = of_weight;
  // With channels innermost, sums over output channels transpose the weights, sums over images both factors.
  implicit.turned = !backward ? 0 : of_weight ? 2 : 1;
  if (const double channels = part.extent("c"); tensor_cores && channels < kThinChannels && implicit.batch == 1) {
    implicit.alignment = Alignment::Full;
    implicit.efficiency *= tuning.convolution_thin.value;
    (backward ? implicit.n : implicit.k) *= kThinChannels / channels;
  }
  // Tensor cores need channels innermost: otherwise inputs and outputs are transposed. A window of one element at
  // stride 1 is an ordinary product in either layout, if rows of the image are aligned.
  if (!kernels.choice.channels_last && tensor_cores && !is_pointwise_window(part))
    kernels.add_pass(Pass::Turn, 2 * part.bytes());
  if (implicit.batch > 1 && implicit.batch > kThinChannels) return add_direct(kernels, implicit);
  if (!tensor_cores && !of_weight) lengthen(implicit);
  if (has_winograd(kernels)) {
    const KernelTime direct = kernels.time_of(implicit), minimal = winograd(kernels);
    if (minimal.seconds < direct.seconds) return kernels.add(minimal, flops, implicit.bytes);
  }
  kernels.add_product(implicit, flops);
}

}  // namespace weft
