#include "cost/operator_cost.h"

#include <algorithm>

#include "base/check.h"
#include "cost/product.h"
#include "cost/rounding.h"
#include "graph/operators.h"

namespace weft {
namespace {

Arithmetic arithmetic_of(DType dtype) {
  switch (dtype) {
    case DType::BF16:
      return Arithmetic::kBf16;
    case DType::F16:
      return Arithmetic::kFp16;
    case DType::F8:
      return Arithmetic::kFp8;
    case DType::F4:
      return Arithmetic::kFp4;
    default:
      return Arithmetic::kFp32;
  }
}

// A tensor passes through memory this often, more where an operator is a sequence of plain kernels.
constexpr double kUnfusedNorm = 3;          // cast, statistics, scale and shift
constexpr double kUnfusedCrossEntropy = 3;  // fp32 copy, log-softmax, pick
constexpr double kUnfusedSoftmax = 2;       // mask, softmax; the product scales
constexpr double kUnfusedOptimizer = 3;     // each moment, the update and the weight in kernels of their own
constexpr double kBytesPerUnit = 32768;     // that keep one compute unit busy when streaming
constexpr double kAttentionRows = 128;      // queries of one thread block of fused attention
constexpr double kBackwardProducts = 1.25;  // fused attention computes the scores once more: 5 products instead of 4

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
    }
    return cost;
  }

 private:
  bool backward() const { return !signature_.gradient.empty(); }
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
    flops_ += flops;
    bytes_ += bytes;
  }
  void add_product(Product product) {
    if (product.flops() <= 0) return;
    product.efficiency *= fused_.product_rate;
    add(product_time(product, device_, tuning_, arithmetic_), product.flops(), product.bytes);
  }
  // A kernel that passes these bytes through memory at a share of its bandwidth, with some arithmetic on the way.
  void add_stream(double bytes, double efficiency, double flops = 0) {
    const double vector_rate = product_rate(device_, Arithmetic::kFp32).peak.value * 0.5;
    const double moving = bytes / (memory_peak_ * efficiency);
    add({tuning_.kernel.value.value + std::max(moving, flops / vector_rate),
         std::min(1.0, bytes / (kBytesPerUnit * units_))},
        flops, bytes);
  }

  double pointwise_flops() const {
    double data = 1, any = 1;
    for (int i = 0; i < signature_.operand_count(); ++i) {
      const Operand& operand = signature_.operand(i);
      any = std::max(any, elements(operand));
      if (!operand.weight) data = std::max(data, elements(operand));
    }
    return signature_.pointwise_per_element * (data > 1 ? data : any);
  }

  bool rows_aligned(const Operand& operand) const {
    if (operand.dims.empty()) return true;
    const double row = dim_extent(operand.dims.back()) * width(operand.dtype);
    return static_cast<std::int64_t>(row) % 16 == 0;
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
    product.aligned = rows_aligned(a) && rows_aligned(b) && rows_aligned(out);
    return product;
  }

  void run_kernels() {
    switch (signature_.kind) {
      case OpKind::Linear:
      case OpKind::Matmul: {
        Product plain = product();
        if (accumulates()) plain.efficiency = tuning_.accumulating.value;
        return add_product(plain);
      }
      case OpKind::ExpertLinear: {
        Product grouped = product();
        grouped.efficiency = tuning_.grouped.value * (accumulates() ? tuning_.accumulating.value : 1);
        return add_product(grouped);
      }
      case OpKind::Conv1d:
      case OpKind::Conv2d: {
        // As an implicit product; windows gather rows, so those of the image need no alignment, channels do.
        Product implicit = product();
        implicit.efficiency = tuning_.convolution.value * (has_winograd() ? tuning_.winograd.value : 1);
        implicit.aligned = true;
        // Tensor cores want channels innermost: images are read and written once more each way.
        if (!fused_.channels_last && product_rate(device_, arithmetic_).arithmetic != Arithmetic::kFp32)
          add_stream(2 * (bytes_in() + bytes_out()), tuning_.stream.value);
        return add_product(implicit);
      }
      case OpKind::Attention:
        if (attended() == 0) return;  // the mask lets nothing through: nothing is started
        return fused_.attention ? fused_attention() : plain_attention();
      case OpKind::LstmCell:
        return lstm_cell();
      case OpKind::DotInteraction:
        return dot_interaction();
      case OpKind::BatchNorm:
        // Statistics first, then the data once more.
        return add_stream(
            bytes_in() + bytes_out() + bytes_of_operand(signature_.inputs[backward() ? 1 : 0]) * (backward() ? 2 : 1),
            tuning_.rows.value, pointwise_flops());
      case OpKind::LayerNorm:
      case OpKind::RmsNorm:
        return norm();
      case OpKind::Softmax:
        return add_stream((bytes_in() + bytes_out()) * (fused_.bias_activation ? 1 : kUnfusedSoftmax),
                          tuning_.rows.value, pointwise_flops());
      case OpKind::CrossEntropy:
        return add_stream((bytes_in() + bytes_out()) * (fused_.cross_entropy ? 1 : kUnfusedCrossEntropy),
                          tuning_.rows.value, pointwise_flops());
      case OpKind::Pool2d:
        return add_stream(bytes_in() + bytes_out(), tuning_.windows.value, pointwise_flops());
      case OpKind::Reduce:
      case OpKind::NllLoss:
      case OpKind::BceLoss:
      case OpKind::SumSquares:
      case OpKind::NonFinite:
      case OpKind::AuxLoss:
        return add_stream(bytes_in() + bytes_out(), tuning_.reduction.value, pointwise_flops());
      case OpKind::Bias:
        // Part of its neighbour's kernel, where these are fused.
        if (!backward() && fused_.bias_activation) return;
        return add_stream(bytes_in() + bytes_out(), backward() ? tuning_.reduction.value : tuning_.stream.value,
                          pointwise_flops());
      case OpKind::Embedding:
        return embedding();
      case OpKind::Router:
      case OpKind::Dispatch:
      case OpKind::Combine:
        return add_stream(bytes_in() + bytes_out(), tuning_.gather.value, pointwise_flops());
      case OpKind::Sgd:
      case OpKind::Momentum:
      case OpKind::Adam:
      case OpKind::LambUpdate:
      case OpKind::LambApply:
        return add_stream((bytes_in() + bytes_out()) * (fused_.optimizer ? 1 : kUnfusedOptimizer),
                          tuning_.optimizer.value, pointwise_flops());
      case OpKind::Opaque:
        flops_ += signature_.attrs.number("flops", 0);
        seconds_ += signature_.attrs.number("flops", 0) / product_rate(device_, arithmetic_).peak.value;
        return add_stream(bytes_in() + bytes_out(), tuning_.stream.value, pointwise_flops());
      case OpKind::Accumulate:
        // Done by the product that made the gradient; what is left are vectors.
        if (fused_.accumulation) return;
        return add_stream(bytes_in() + bytes_out(), tuning_.stream.value, pointwise_flops());
      case OpKind::Unary:
      case OpKind::Binary:
        // Of images: part of the batch norm before it.
        if (fused_.batch_norm && signature_.outputs[0].dims.size() == 4) return;
        return pass();
      case OpKind::Select:
      case OpKind::Glu:
      case OpKind::Dropout:
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

  // Every operand through memory once.
  void pass() {
    if (!is_view()) add_stream(bytes_in() + bytes_out(), tuning_.stream.value, pointwise_flops());
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

  void norm() {
    const double passes = fused_.norm ? 1 : kUnfusedNorm;
    add_stream((bytes_in() + bytes_out()) * passes, tuning_.rows.value, pointwise_flops());
    // Gradients of the weights are sums over all rows: a second, smaller kernel adds up partial ones.
    if (backward()) seconds_ += tuning_.kernel.value.value;
  }

  void embedding() {
    if (!backward()) {  // the rows that are looked up, not the table
      const double ids = bytes_of_operand(signature_.inputs[0]), row = extent("d") * width(signature_.inputs[1].dtype);
      return add_stream(ids + elements(signature_.inputs[0]) * row + bytes_out(), tuning_.gather.value,
                        pointwise_flops());
    }
    // The table's gradient is cleared, then rows are added to it: read, add, write.
    add_stream(bytes_out(), tuning_.stream.value);
    add_stream(3 * bytes_in(), tuning_.scatter.value, pointwise_flops());
  }

  double attended() const { return attended_ >= 0 ? std::min(1.0, attended_) : attended_share(signature_); }

  void fused_attention() {
    const double heads = extent("b") * extent("g") * extent("r"), queries = extent("q"), keys = extent("t");
    const double e = extent("e"), d = extent("d"), products = 2 * heads * queries * keys * (e + d);
    const double flops = backward() ? 2 * products : products;
    const double share_of_pairs = attended();
    const double done = flops * share_of_pairs * (backward() ? kBackwardProducts : 1);
    const ProductRate rate = product_rate(device_, arithmetic_);
    const double size = std::min(e, d);
    const double narrow = size >= 128 ? 1
                          : size >= 64
                              ? tuning_.attention_narrow.value + (1 - tuning_.attention_narrow.value) * (size - 64) / 64
                              : tuning_.attention_narrow.value * std::max(size, 1.0) / 64;
    const double blocks = heads * ceil_ratio(queries, kAttentionRows);
    const double waves = blocks / units_, full = ceil_ratio(blocks, units_);
    // Masked blocks end early, so half of the last wave's gap is filled.
    const double use = waves / std::max(1.0, waves + 0.5 * tuning_.wave_quantisation.value * (full - waves));
    const double ramp = (backward() ? tuning_.attention_ramp_backward : tuning_.attention_ramp_forward).value;
    // Seen keys per query, twice over where a mask hides half: the diagonal is half empty.
    const double seen = std::max(1.0, 2 * keys * share_of_pairs);
    const double generation = fused_.attention_generation <= 1   ? tuning_.attention_flash1.value
                              : fused_.attention_generation == 2 ? tuning_.attention_flash2.value
                                                                 : 1.0;
    const double sustained = rate.peak.value * tuning_.sustained[static_cast<std::size_t>(rate.arithmetic)].value *
                             (backward() ? tuning_.attention_backward : tuning_.attention_forward).value * narrow *
                             generation * seen / (seen + ramp);
    const double bytes = bytes_in() + bytes_out();
    const double seconds =
        std::max(done / (sustained * std::max(use, 1e-6)), bytes / (memory_peak_ * tuning_.stream.value));
    add({tuning_.kernel.value.value * (backward() ? 3 : 1) + seconds, std::min(1.0, waves)}, flops, bytes);
  }

  // Products of queries and keys, softmax over all scores, product with the values; nothing is saved by masks.
  void plain_attention() {
    const double heads = extent("b") * extent("g") * extent("r"), queries = extent("q"), keys = extent("t");
    const double e = extent("e"), d = extent("d"), bytes = width(signature_.inputs[0].dtype);
    const double scores = heads * queries * keys;
    const auto multiply = [&](double m, double n, double k) {
      Product product{.batch = heads, .m = m, .n = n, .k = k};
      product.bytes = heads * (m * k + k * n + m * n) * bytes;
      product.aligned =
          static_cast<std::int64_t>(n * bytes) % 16 == 0 && static_cast<std::int64_t>(k * bytes) % 16 == 0;
      add_product(product);
    };
    const double passes = fused_.bias_activation ? 1 : kUnfusedSoftmax;
    const bool dropout = signature_.attrs.number("dropout", 0) > 0;
    if (!backward()) {
      multiply(queries, keys, e);
      add_stream(2 * scores * bytes * passes, tuning_.rows.value, 5 * scores);
      if (dropout) add_stream(scores * (2 * bytes + 1), tuning_.stream.value);
      multiply(queries, d, keys);
      return;
    }
    multiply(keys, d, queries);  // dv = pᵀ·dy
    multiply(queries, keys, d);  // dp = dy·vᵀ
    if (dropout) add_stream(scores * (2 * bytes + 1), tuning_.stream.value);
    add_stream(3 * scores * bytes * passes, tuning_.rows.value, 5 * scores);
    multiply(queries, e, keys);  // dq = ds·k
    multiply(keys, e, queries);  // dk = dsᵀ·q
  }

  void lstm_cell() {
    const double b = extent("b"), gates = extent("a") * extent("n");
    const double bytes = width(signature_.inputs[0].dtype);
    const auto multiply = [&](double m, double n, double k) {
      Product product{.m = m, .n = n, .k = k, .bytes = (m * k + k * n + m * n) * bytes};
      product.aligned =
          static_cast<std::int64_t>(n * bytes) % 16 == 0 && static_cast<std::int64_t>(k * bytes) % 16 == 0;
      add_product(product);
    };
    for (double k : {extent("i"), extent("m")}) {
      if (!backward()) {
        multiply(b, gates, k);
      } else {
        multiply(b, k, gates);
        multiply(k, gates, b);
      }
    }
    add_stream(6 * b * gates * bytes, tuning_.stream.value, pointwise_flops());
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
