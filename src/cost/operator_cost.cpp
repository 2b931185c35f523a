#include "cost/operator_cost.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "cost/pass_share.h"
#include "cost/product.h"
#include "cost/rounding.h"
#include "graph/operators.h"

namespace weft {
namespace {

constexpr double kBytesPerUnit = 32768;  // that keep one compute unit busy when streaming
constexpr double kStreamUnits = 0.78;    // of the compute units, that keep memory busy (measurements/h200, rows hold)
constexpr double kAttentionUnits = 0.9;  // that attention needs: shorter blocks fill in (same rows)
constexpr double kMostWaves = 1 << 20;   // that are told apart
constexpr double kAttentionRows = 128;   // queries of one thread block of fused attention
constexpr double kBackwardProducts = 1.25;  // fused attention computes the scores once more: 5 products instead of 4
constexpr double kThinChannels = 8;         // as which fewer channels count in a convolution on tensor cores
constexpr double kNarrowColumns = 32, kWideColumns = 128;  // of tiles of plain convolutions
constexpr double kDirectRate = 0.12;     // of the fp32 peak that convolutions of many small groups reach
constexpr double kManyInstructions = 4;  // operations an element from which a function is no mere addition

class OperatorCost {
 public:
  OperatorCost(const ComputeQuery& query, const Tuning& tuning, const KernelChoice& fused)
      : signature_(*query.signature),
        extents_(query.extents),
        device_(*query.device),
        tuning_(tuning.of(*query.device)),
        fused_(fused),
        attended_(query.attended),
        memory_peak_(memory_rate(device_).peak.value),
        units_(compute_units(device_).count) {
    WEFT_CHECK(extents_.empty() || extents_.size() == signature_.axes.size(), "{} extents for {} axes of {}",
               extents_.size(), signature_.axes.size(), name_of(signature_.kind));
    if (query.arithmetic) {
      arithmetic_ = *query.arithmetic;
    } else if (!signature_.inputs.empty()) {
      // The narrower of the factors' types: autocast casts the wider one.
      DType narrow = signature_.inputs[0].dtype;
      if (signature_.inputs.size() > 1 && is_floating(signature_.inputs[1].dtype) &&
          bits_of(signature_.inputs[1].dtype) < bits_of(narrow))
        narrow = signature_.inputs[1].dtype;
      arithmetic_ = arithmetic_of(narrow);
    }
  }

  ComputeCost run() {
    run_kernels();
    ComputeCost cost;
    cost.time = picoseconds(seconds_);
    cost.flops = flops_;
    cost.bytes = static_cast<std::int64_t>(bytes_);
    if (seconds_ > 0) {
      cost.sm_share = share(busy_ / seconds_);
      cost.memory_share = share(bytes_ / seconds_ / memory_peak_);
      if (kernels_ == 1) cost.waves = static_cast<std::int32_t>(std::min(waves_, kMostWaves) * kWave + 0.5);
    }
    return cost;
  }

 private:
  bool backward() const { return !signature_.gradient.empty(); }
  // Under load the clock falls from its most to what power allows, over the time that a burst of calls lasts.
  double clock() const {
    const double low = tuning_.load_clock.value, delay = tuning_.load_delay.value.value;
    return fused_.burst > 0 ? low + (1 - low) * std::sqrt(delay / (delay + fused_.burst)) : low;
  }
  double extent(int axis) const {
    return static_cast<double>(extents_.empty() ? signature_.axes[static_cast<std::size_t>(axis)].size
                                                : extents_[static_cast<std::size_t>(axis)]);
  }
  double extent(std::string_view axis) const {
    const int found = signature_.axis_named(axis);
    return found < 0 ? 1 : extent(found);
  }

  double dim_extent(const DimIndex& dim) const {
    double size = 1;
    for (int axis : dim.factors) size *= extent(axis);
    if (!dim.windowed()) return size;
    const Axis& axis = signature_.axes[static_cast<std::size_t>(dim.factors[0])];
    const auto whole = static_cast<double>(dim.size);
    if (size >= static_cast<double>(axis.size)) return whole;
    const double reach = static_cast<double>(dim.window.dilation) * (extent(dim.window.kernel) - 1) + 1;
    return size == 0 ? 0 : std::min(whole, static_cast<double>(dim.window.stride) * (size - 1) + reach);
  }
  double elements(const Operand& operand) const {
    double count = 1;
    for (const DimIndex& dim : operand.dims) count *= dim_extent(dim);
    return count;
  }
  static double width(DType dtype) { return static_cast<double>(bits_of(dtype)) / 8; }
  double bytes_of_operand(const Operand& operand) const { return elements(operand) * width(operand.dtype); }
  double bytes_in() const {
    double sum = 0;
    for (const Operand& input : signature_.inputs) sum += bytes_of_operand(input);
    return sum;
  }
  double bytes_out() const {
    double sum = 0;
    for (const Operand& output : signature_.outputs) sum += bytes_of_operand(output);
    return sum;
  }

  // Every kernel adds its time, its traffic, and the share of the compute units it kept busy for that time.
  void add(KernelTime kernel, double flops, double bytes) {
    seconds_ += kernel.seconds;
    busy_ += kernel.busy * kernel.seconds;
    waves_ = kernel.waves;
    ++kernels_;
    flops_ += flops;
    bytes_ += bytes;
  }
  void add_product(Product product) { add_product(product, product.flops()); }
  void add_product(Product product, double flops) {
    if (flops <= 0) return;
    product.efficiency *= fused_.product_rate * clock();
    add(product_time(product, device_, tuning_, arithmetic_), flops, product.bytes);
  }
  // A kernel that passes these bytes through memory at a share of its bandwidth, with some arithmetic on the way.
  void add_stream(double bytes, double efficiency, double flops = 0) {
    const double vector_rate = product_rate(device_, Arithmetic::kFp32).peak.value * 0.5;
    const double moving = bytes / (memory_peak_ * efficiency);
    add({tuning_.kernel.value.value + std::max(moving, flops / vector_rate), busy_of(bytes), 0}, flops, bytes);
  }
  double busy_of(double bytes) const { return std::min(kStreamUnits, bytes / (kBytesPerUnit * units_)); }
  // One that was measured by itself, where it was. `units`: rows, elements of windows, indices.
  void add_pass(Pass pass, double bytes, double units = 0) { add_pass(pass, bytes, units, data_elements()); }
  void add_pass(Pass pass, double bytes, double units, double count) {
    const PassTuning& known = tuning_.passes[static_cast<std::size_t>(pass)].value;
    if (known.share <= 0) return add_stream(bytes, plain_share(pass, tuning_), pointwise_flops());
    double moving = std::max(known.least.value, bytes / (memory_peak_ * known.share));
    if (known.elements > 0) moving = std::max(moving, count / known.elements);
    if (known.units > 0) moving += units / known.units;
    add({tuning_.kernel.value.value + known.start.value + moving, busy_of(bytes), 0}, pointwise_flops(), bytes);
  }

  double share_of(Pass pass) const {
    const double known = tuning_.passes[static_cast<std::size_t>(pass)].value.share;
    return known > 0 ? known : plain_share(pass, tuning_);
  }

  double data_elements() const {
    double data = 1, any = 1;
    for (int i = 0; i < signature_.operand_count(); ++i) {
      const Operand& operand = signature_.operand(i);
      any = std::max(any, elements(operand));
      if (!operand.weight) data = std::max(data, elements(operand));
    }
    return data > 1 ? data : any;
  }
  double pointwise_flops() const { return signature_.pointwise_per_element * data_elements(); }
  // Of the largest tensor, along its last dimension.
  double data_rows() const {
    const Operand* largest = nullptr;
    for (int i = 0; i < signature_.operand_count(); ++i) {
      const Operand& operand = signature_.operand(i);
      if (!operand.dims.empty() && (!largest || elements(operand) > elements(*largest))) largest = &operand;
    }
    return largest ? elements(*largest) / std::max(1.0, dim_extent(largest->dims.back())) : 1;
  }

  static Alignment alignment_of(double bytes) {
    const auto whole = static_cast<std::int64_t>(bytes);
    return whole % 16 == 0 ? Alignment::Full : whole % 4 == 0 ? Alignment::Word : Alignment::None;
  }
  Alignment row_alignment(const Operand& operand) const {
    return operand.dims.empty() ? Alignment::Full
                                : alignment_of(dim_extent(operand.dims.back()) * width(operand.dtype));
  }

  // The product of inputs 0 and 1: an axis of both and of the output is a batch, of one and the output its rows or
  // columns, of both alone the sum. Kernel windows are part of the sum in whatever product they take part.
  Product product() const {
    const Operand &a = signature_.inputs[0], &b = signature_.inputs[1], &out = signature_.outputs[0];
    const AxisSet in_a = a.axes(), in_b = b.axes(), in_out = out.axes();
    AxisSet kernels;
    for (const DimIndex& dim : out.dims)
      if (dim.windowed()) kernels.insert(dim.window.kernel);
    Product product;
    for (int axis = 0; axis < static_cast<int>(signature_.axes.size()); ++axis) {
      const bool left = in_a.contains(axis), right = in_b.contains(axis);
      const double size = extent(axis);
      if (kernels.contains(axis) || !in_out.contains(axis))
        product.k *= left || right ? size : 1;
      else if (left && right)
        product.batch *= size;
      else if (left)
        product.m *= size;
      else if (right)
        product.n *= size;
    }
    product.bytes = bytes_in() + bytes_out();
    product.alignment = std::max({row_alignment(a), row_alignment(b), row_alignment(out)});
    for (const Operand* factor : {&a, &b})
      product.turned += !factor->dims.empty() && in_out.contains(factor->dims.back().factors[0]);
    return product;
  }

  void run_kernels() {
    switch (signature_.kind) {
      case OpKind::Linear:
      case OpKind::Matmul: {
        cast_factor();
        Product plain = product();
        if (accumulates()) plain.efficiency = tuning_.accumulating.value;
        return add_product(plain);
      }
      case OpKind::ExpertLinear: {
        cast_factor();
        Product grouped = product();
        grouped.efficiency = tuning_.grouped.value * (accumulates() ? tuning_.accumulating.value : 1);
        if (grouped.flops() > 0) seconds_ += grouped.batch * tuning_.grouped_start.value.value;
        return add_product(grouped);
      }
      case OpKind::Conv1d:
      case OpKind::Conv2d:
        return convolution();
      case OpKind::Attention:
        if (attended() == 0) return;  // the mask lets nothing through: nothing is started
        return fused_.attention ? fused_attention() : plain_attention();
      case OpKind::LstmCell:
        return lstm_cell();
      case OpKind::DotInteraction:
        return dot_interaction();
      case OpKind::BatchNorm: {
        // Statistics first, then the data once more.
        const double again = bytes_of_operand(signature_.inputs[backward() ? 1 : 0]) * (backward() ? 2 : 1);
        const Pass pass = fused_.channels_last ? backward() ? Pass::BatchNormBackward : Pass::BatchNorm
                          : backward()         ? Pass::BatchNormFirstBackward
                                               : Pass::BatchNormFirst;
        // A block takes a channel where channels come first.
        return add_pass(pass, bytes_in() + bytes_out() + again, data_elements() / std::max(1.0, extent("c")));
      }
      case OpKind::LayerNorm:
      case OpKind::RmsNorm:
        return norm();
      case OpKind::Softmax:
        return softmax();
      case OpKind::CrossEntropy:
        return add_pass(fused_.cross_entropy ? backward() ? Pass::CrossEntropyBackward : Pass::CrossEntropy
                        : backward()         ? Pass::PlainCrossEntropyBackward
                                             : Pass::PlainCrossEntropy,
                        bytes_in() + bytes_out(), data_rows());
      case OpKind::Pool2d: {
        const Pass pass = fused_.channels_last ? backward() ? Pass::PoolBackward : Pass::Pool
                          : backward()         ? Pass::PoolFirstBackward
                                               : Pass::PoolFirst;
        return add_pass(pass, bytes_in() + bytes_out(), window_elements());
      }
      case OpKind::Reduce:
      case OpKind::NllLoss:
      case OpKind::BceLoss:
      case OpKind::SumSquares:
      case OpKind::NonFinite:
      case OpKind::AuxLoss:
        return add_pass(Pass::Sums, bytes_in() + bytes_out(), data_rows());
      case OpKind::Bias:
        // Forward it is the epilogue of the product before it, in eager libraries too.
        if (backward()) add_pass(Pass::ColumnSums, bytes_in() + bytes_out());
        return;
      case OpKind::Embedding:
        return embedding();
      case OpKind::Router:
      case OpKind::Dispatch:
      case OpKind::DispatchWeights:
      case OpKind::Combine:
        return add_pass(Pass::Gather, bytes_in() + bytes_out());
      case OpKind::WeighRows:
        return weigh_rows();
      case OpKind::Sgd:
      case OpKind::Momentum:
      case OpKind::Adam:
      case OpKind::LambUpdate:
      case OpKind::LambApply:
        return add_pass(fused_.optimizer ? Pass::Optimizer : Pass::PlainOptimizer, bytes_in() + bytes_out());
      case OpKind::Opaque:
        flops_ += signature_.attrs.number("flops", 0);
        seconds_ += signature_.attrs.number("flops", 0) / product_rate(device_, arithmetic_).peak.value;
        return add_stream(bytes_in() + bytes_out(), tuning_.stream.value, pointwise_flops());
      case OpKind::Accumulate:
        // Done by the product that made the gradient; what is left are vectors.
        if (fused_.accumulation) return;
        return pass();
      case OpKind::Unary:
      case OpKind::Binary:
        // Of images: part of the batch norm before it.
        if (fused_.batch_norm && signature_.outputs[0].dims.size() == 4) return;
        return pass();
      case OpKind::Glu:
        if (fused_.bias_activation) return pass();
        return add_pass(backward() ? Pass::GluBackward : Pass::Glu, bytes_in() + bytes_out());
      case OpKind::Dropout:
        return backward() ? pass() : add_pass(Pass::Dropout, bytes_in() + bytes_out());
      case OpKind::Select:
      case OpKind::Rotary:
      case OpKind::Concat:
      case OpKind::Split:
      case OpKind::Slice:
      case OpKind::Pad:
      case OpKind::Reshape:
      case OpKind::Transpose:
      case OpKind::Expand:
      case OpKind::AddScalars:
      case OpKind::ClipCoefficient:
        return pass();
    }
  }

  // Activations are cast to fp8 for forward, their gradients for backward, each once for both uses: as it is, and
  // transposed for the weight's gradient (Transformer Engine's cast_transpose). Weights are cast once per step.
  void cast_factor() {
    if (arithmetic_ != Arithmetic::kFp8 || signature_.gradient == "grad_weight") return;
    const Operand& from = signature_.inputs[0];
    if (bits_of(from.dtype) > 8)
      add_pass(Pass::Convert, bytes_of_operand(from) + 2 * elements(from), 0, elements(from));
  }

  // A part of the activation's kernel, or plain ones: rows times fp32 weights are fp32 by PyTorch's promotion.
  void weigh_rows() {
    if (fused_.bias_activation) return;
    const double rows = bytes_of_operand(signature_.inputs[0]), wide = elements(signature_.inputs[0]) * 4;
    const auto convert = [&] {
      if (rows < wide) add_pass(Pass::Convert, rows + wide);
    };
    if (signature_.gradient == "grad_weights") {
      add_pass(Pass::Convert, wide + rows + wide);
      return add_pass(Pass::Sums, wide, data_rows());
    }
    if (backward()) convert();  // the incoming gradient
    add_pass(Pass::Convert, (backward() ? wide : rows) + wide);
    convert();
  }

  // Every operand through memory once.
  void pass() {
    if (is_view()) return;
    const double bytes = bytes_in() + bytes_out();
    if (mixes_types()) return add_pass(Pass::Convert, bytes);
    if (signature_.kind == OpKind::Unary && signature_.pointwise_per_element >= kManyInstructions)
      return add_pass(backward() ? Pass::ActivationBackward : Pass::Activation, bytes);
    add_stream(bytes, tuning_.stream.value, pointwise_flops());
  }

  // Reads something narrower than it writes: loads and stores differ in width.
  bool mixes_types() const {
    const DType written = signature_.outputs[0].dtype;
    return std::any_of(signature_.inputs.begin(), signature_.inputs.end(), [&](const Operand& input) {
      return is_floating(input.dtype) && bits_of(input.dtype) < bits_of(written);
    });
  }

  double window_elements() const {
    AxisSet kernels;
    // The smaller image is the output of the forward operator.
    double least = data_elements(), window = 1;
    for (int i = 0; i < signature_.operand_count(); ++i) {
      const Operand& operand = signature_.operand(i);
      if (operand.dims.size() == 4) least = std::min(least, elements(operand));
      for (const DimIndex& dim : operand.dims)
        if (dim.windowed()) kernels.insert(dim.window.kernel);
    }
    for (int axis = 0; axis < static_cast<int>(signature_.axes.size()); ++axis)
      if (kernels.contains(axis)) window *= extent(axis);
    return window * least;
  }

  // As an implicit product: windows gather rows, so those of the image need no alignment, channels do.
  void convolution() {
    Product implicit = product();
    const double flops = implicit.flops();  // those of channels that only fill up do not count
    const ProductRate rate = product_rate(device_, arithmetic_);
    const bool tensor_cores = rate.arithmetic != Arithmetic::kFp32;
    implicit.efficiency = tuning_.products[static_cast<std::size_t>(rate.arithmetic)].convolution.value;
    const double element = width(signature_.inputs[0].dtype);
    implicit.alignment = std::max(alignment_of(extent("c") * element), alignment_of(extent("o") * element));
    implicit.splits = backward() && signature_.outputs[0].weight;
    // With channels innermost, sums over output channels turn the weights, sums over images both factors.
    const bool of_weight = backward() && signature_.outputs[0].weight;
    implicit.turned = !backward() ? 0 : of_weight ? 2 : 1;
    if (const double channels = extent("c"); tensor_cores && channels < kThinChannels && implicit.batch == 1) {
      implicit.alignment = Alignment::Full;
      implicit.efficiency *= tuning_.convolution_thin.value;
      (of_weight || backward() ? implicit.n : implicit.k) *= kThinChannels / channels;
    }
    // Tensor cores want channels innermost: images are read and written once more each way. A window of one element at
    // stride 1 is a plain product in either layout, if rows of the image are aligned.
    if (!fused_.channels_last && tensor_cores && !is_pointwise_window())
      add_pass(Pass::Turn, 2 * (bytes_in() + bytes_out()));
    if (implicit.batch > 1 && implicit.batch > kThinChannels) return direct_convolution(implicit);
    if (!tensor_cores && !of_weight) lengthen(implicit);
    if (has_winograd()) {
      const KernelTime direct = product_time(implicit, device_, tuning_, arithmetic_), minimal = winograd();
      if (minimal.seconds < direct.seconds) return add(minimal, flops, implicit.bytes);
    }
    add_product(implicit, flops);
  }

  // Few columns: tiles as narrow as they are, and as much longer, do as well as wide ones.
  static void lengthen(Product& product) {
    if (product.n > kNarrowColumns) return;
    product.m = ceil_ratio(product.m * kNarrowColumns, kWideColumns);
    product.n = kWideColumns;
  }

  // Lavin and Gray 2015, F(4x4, 3x3): tiles of 6 × 6 pixels, transformed, are 36 products over the channels, a quarter
  // of the multiplications; tiles at the borders are part empty. Three kernels transform images, windows and results:
  // operands pass through memory once, and the products' factors and results once more.
  KernelTime winograd() const {
    const double in = extent("c"), out = extent("o"), images = extent("b");
    const double tiles = images * ceil_ratio(extent("h"), 4) * ceil_ratio(extent("w"), 4);
    Product product{.batch = 36, .m = tiles, .n = out, .k = in};
    product.bytes = 36 * 4 * (tiles * (in + out) + in * out);
    product.splits = false;
    product.efficiency = tuning_.winograd.value;
    lengthen(product);
    KernelTime time = product_time(product, device_, tuning_, arithmetic_);
    const double windows = 4 * in * out * (9 + 36), all = product.bytes + bytes_in() + bytes_out();
    time.seconds += 3 * tuning_.kernel.value.value + windows / (memory_peak_ * share_of(Pass::TransformWindows)) +
                    (all - windows) / (memory_peak_ * share_of(Pass::Transform));
    return time;
  }

  // Many groups of few channels each are not worth a tile: plain units go over the windows.
  void direct_convolution(const Product& implicit) {
    const double vector_rate = product_rate(device_, Arithmetic::kFp32).peak.value * kDirectRate;
    const KernelTime tiles = product_time(implicit, device_, tuning_, arithmetic_);
    const double seconds = tuning_.kernel.value.value + implicit.bytes / (memory_peak_ * tuning_.stream.value) +
                           implicit.flops() / vector_rate;
    add({std::min(seconds, tiles.seconds), 1, 0}, implicit.flops(), implicit.bytes);
  }

  bool is_pointwise_window() const {
    for (int i = 0; i < signature_.operand_count(); ++i)
      for (const DimIndex& dim : signature_.operand(i).dims)
        if (dim.windowed() && (dim.window.stride != 1 || extent(dim.window.kernel) > 1)) return false;
    const double pixels = extent("h") * extent("w");
    return alignment_of(pixels * width(signature_.inputs[0].dtype)) == Alignment::Full;
  }

  // Plain fp32 windows of 3 × 3 at stride 1, with channels enough to transform.
  bool has_winograd() const {
    if (signature_.kind != OpKind::Conv2d || product_rate(device_, arithmetic_).arithmetic != Arithmetic::kFp32)
      return false;
    int windows = 0;
    for (int i = 0; i < signature_.operand_count(); ++i)
      for (const DimIndex& dim : signature_.operand(i).dims)
        if (dim.windowed()) {
          const bool plain = dim.window.stride == 1 && dim.window.dilation == 1 && extent(dim.window.kernel) == 3;
          if (!plain) return false;
          ++windows;
        }
    return windows == 2 && extent("c") >= 16;
  }

  // The gradient of a weight, added to its accumulator by the product itself.
  bool accumulates() const { return fused_.accumulation && backward() && signature_.outputs[0].weight; }

  bool is_view() const {
    return signature_.pointwise_per_element == 0 &&
           std::all_of(signature_.outputs.begin(), signature_.outputs.end(),
                       [](const Operand& output) { return output.aliases >= 0; });
  }

  void softmax() {
    const Pass pass = backward() ? Pass::SoftmaxBackward : Pass::Softmax;
    const double bytes = bytes_in() + bytes_out();
    // Alone it is a softmax and no more; of scores it comes with their scale and mask.
    if (signature_.attrs.number("causal", 0) > 0)
      return add_softmax(pass, bytes, 2 * bytes_of_operand(signature_.outputs[0]), data_rows(), data_elements());
    add_pass(pass, bytes, data_rows());
  }

  void norm() {
    const bool layer = signature_.kind == OpKind::LayerNorm;
    const Pass whole = layer        ? backward() ? Pass::LayerNormBackward : Pass::LayerNorm
                       : backward() ? Pass::RmsNormBackward
                                    : Pass::RmsNorm;
    const Pass pass = fused_.norm ? whole : backward() ? Pass::PlainNormBackward : Pass::PlainNorm;
    // Kernels of their own work on a copy in fp32.
    const double widening = fused_.norm ? 1 : 4 / std::min(4.0, width(signature_.inputs[0].dtype));
    add_pass(pass, (bytes_in() + bytes_out()) * widening, data_rows());
    // Gradients of the weights are sums over all rows: a second, smaller kernel adds up partial ones.
    if (backward() && tuning_.passes[static_cast<std::size_t>(pass)].value.share <= 0)
      seconds_ += tuning_.kernel.value.value;
  }

  void embedding() {
    if (!backward()) {  // the rows that are looked up, not the table
      const double ids = bytes_of_operand(signature_.inputs[0]), row = extent("d") * width(signature_.inputs[1].dtype);
      return add_pass(Pass::Gather, ids + elements(signature_.inputs[0]) * row + bytes_out());
    }
    // The table's gradient is cleared, then rows are added to it: read, add, write.
    add_stream(bytes_out(), tuning_.stream.value);
    add_pass(Pass::Scatter, 3 * bytes_in(), data_rows_of_ids());
  }
  double data_rows_of_ids() const {
    for (const Operand& input : signature_.inputs)
      if (!is_floating(input.dtype)) return elements(input);
    return 0;
  }

  double attended() const { return attended_ >= 0 ? std::min(1.0, attended_) : attended_share(signature_); }

  // Blocks of queries walk along the keys they see; they end unevenly where a mask makes some shorter.
  void fused_attention() {
    const double heads = extent("b") * extent("g") * extent("r"), queries = extent("q"), keys = extent("t");
    const double e = extent("e"), d = extent("d"), products = 2 * heads * queries * keys * (e + d);
    const double share_of_pairs = attended();
    const double flops = products * (backward() ? 2 : 1);
    const ProductRate rate = product_rate(device_, arithmetic_);
    const ProductTuning& tile = tuning_.products[static_cast<std::size_t>(rate.arithmetic)];
    const double size = std::min(e, d);
    const double narrow = size >= 128 ? 1
                          : size >= 64
                              ? tuning_.attention_narrow.value + (1 - tuning_.attention_narrow.value) * (size - 64) / 64
                              : tuning_.attention_narrow.value * std::max(size, 1.0) / 64;
    const double generation = fused_.attention_generation <= 1   ? tuning_.attention_flash1.value
                              : fused_.attention_generation == 2 ? tuning_.attention_flash2.value
                                                                 : 1.0;
    const double unit_rate = rate.peak.value * tile.sustained.value * clock() *
                             (backward() ? tuning_.attention_backward : tuning_.attention_forward).value * narrow *
                             generation / units_;
    const double rows = std::min(queries, kAttentionRows), blocks = heads * ceil_ratio(queries, kAttentionRows);
    const double per_key = 2 * rows * (e + d) * (backward() ? 2 * kBackwardProducts : 1) / unit_rate;
    const double ramp = (backward() ? tuning_.attention_ramp_backward : tuning_.attention_ramp_forward).value;
    const bool masked = share_of_pairs < 1;
    // A block sees whole tiles of keys, half of one too many on the diagonal; the last one sees the most.
    const double seen = std::min(keys, keys * share_of_pairs + (masked ? kAttentionRows / 2 : 0));
    const double longest = (masked ? std::min(keys, 2 * keys * share_of_pairs + kAttentionRows) : keys) + ramp;
    const double waves = blocks / units_;
    const double tail =
        masked ? tuning_.attention_tail.value : tile.wave_quantisation.value * (ceil_ratio(blocks, units_) - waves);
    const double computing = per_key * std::max(longest, waves * (seen + ramp) + tail * longest);
    const double bytes = bytes_in() + bytes_out();
    const double seconds = std::max(computing, bytes / (memory_peak_ * tuning_.stream.value));
    add({tuning_.kernel.value.value * (backward() ? 3 : 1) + seconds, kAttentionUnits * std::min(1.0, waves), 0}, flops,
        bytes);
  }

  // One kernel scales, masks and takes the softmax; or each is one, and the mask fills a copy.
  void add_softmax(Pass pass, double bytes, double once, double rows, double scores) {
    if (!fused_.bias_activation) {
      add_stream(once, tuning_.stream.value);
      if (signature_.attrs.number("causal", 0) > 0) {
        add_stream(once, tuning_.stream.value);
        add_pass(Pass::Broadcast, once, 0, scores);
      }
    }
    add_pass(pass, bytes, rows, scores);
  }

  // Products of queries and keys, softmax over all scores, product with the values; nothing is saved by masks.
  void plain_attention() {
    const double heads = extent("b") * extent("g") * extent("r"), queries = extent("q"), keys = extent("t");
    const double e = extent("e"), d = extent("d"), bytes = width(signature_.inputs[0].dtype);
    const double scores = heads * queries * keys;
    const auto multiply = [&](double m, double n, double k) {
      Product product{.batch = heads, .m = m, .n = n, .k = k};
      product.bytes = heads * (m * k + k * n + m * n) * bytes;
      product.alignment = std::max(alignment_of(n * bytes), alignment_of(k * bytes));
      add_product(product);
    };
    const auto soften = [&](Pass pass, double passes) {
      add_softmax(pass, passes * scores * bytes, 2 * scores * bytes, heads * queries, scores);
    };
    const bool dropout = signature_.attrs.number("dropout", 0) > 0;
    if (!backward()) {
      multiply(queries, keys, e);
      soften(Pass::Softmax, 2);
      if (dropout) add_stream(scores * (2 * bytes + 1), tuning_.stream.value);
      multiply(queries, d, keys);
      return;
    }
    multiply(keys, d, queries);  // dv = pᵀ·dy
    multiply(queries, keys, d);  // dp = dy·vᵀ
    if (dropout) add_stream(scores * (2 * bytes + 1), tuning_.stream.value);
    soften(Pass::SoftmaxBackward, 3);
    multiply(queries, e, keys);  // dq = ds·k
    multiply(keys, e, queries);  // dk = dsᵀ·q
  }

  void lstm_cell() {
    const double b = extent("b"), gates = extent("a") * extent("n");
    const double bytes = width(signature_.inputs[0].dtype);
    const auto multiply = [&](double m, double n, double k) {
      Product product{.m = m, .n = n, .k = k, .bytes = (m * k + k * n + m * n) * bytes};
      product.alignment = std::max(alignment_of(n * bytes), alignment_of(k * bytes));
      add_product(product);
    };
    const double before = seconds_;
    int products = 0;
    for (double k : {extent("i"), extent("m")}) {
      if (!backward()) {
        multiply(b, gates, k);
      } else {
        multiply(b, k, gates);
        multiply(k, gates, b);
      }
      products += backward() ? 2 : 1;
    }
    // One library call: its kernels follow each other without the start of a launch.
    if (fused_.bias_activation) seconds_ = std::max(before, seconds_ - tuning_.kernel.value.value * products);
    add_pass(fused_.bias_activation ? Pass::LstmGates : Pass::PlainLstmGates, 6 * b * gates * bytes);
  }

  void dot_interaction() {
    const double bytes = width(signature_.inputs[0].dtype);
    Product product{.batch = extent("b"), .m = extent("f"), .n = extent("f2"), .k = extent("d")};
    product.bytes = product.batch * (2 * product.m * product.k + product.m * product.n) * bytes;
    if (backward()) std::swap(product.n, product.k);
    for (int times = backward() ? 2 : 1; times > 0; --times) add_product(product);
    add_stream(bytes_in() + bytes_out(), tuning_.gather.value);
  }

  const Signature& signature_;
  std::span<const std::int64_t> extents_;
  const DeviceSpec& device_;
  const DeviceTuning& tuning_;
  const KernelChoice fused_;
  double attended_;
  double memory_peak_, units_;
  Arithmetic arithmetic_ = Arithmetic::kFp32;
  double seconds_ = 0, busy_ = 0, flops_ = 0, bytes_ = 0;
  double waves_ = 0;  // of the last kernel
  int kernels_ = 0;
};

}  // namespace

KernelChoice kernels_of(const SoftwareStack& stack) {
  return {.attention = stack.fused_attention.value,
          .norm = stack.fused_norm.value,
          .cross_entropy = stack.fused_cross_entropy.value,
          .bias_activation = stack.fused_bias_activation.value,
          .optimizer = stack.fused_optimizer.value,
          .accumulation = stack.fused_accumulation.value,
          .batch_norm = stack.fused_batch_norm.value,
          .channels_last = stack.channels_last.value,
          .product_rate = stack.product_rate.value,
          .attention_generation = stack.attention_generation.value};
}

ComputeCost operator_cost(const ComputeQuery& query, const Tuning& tuning, const KernelChoice& fused) {
  return OperatorCost(query, tuning, fused).run();
}

}  // namespace weft
