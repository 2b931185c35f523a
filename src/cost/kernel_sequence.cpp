#include "cost/kernel_sequence.h"

#include <cmath>

#include "cost/pass_share.h"
#include "cost/rounding.h"

namespace weft {
namespace {

constexpr double kBytesPerUnit = 32768;  // bytes that keep one compute unit busy when streaming
constexpr double kStreamUnits = 0.78;    // share of units that saturates memory (measurements/h200, rows hold)
constexpr double kMostWaves = 1 << 20;   // more waves are not distinguished

Arithmetic arithmetic_of_products(const ComputeQuery& query) {
  const Signature& signature = *query.signature;
  if (query.arithmetic) return *query.arithmetic;
  if (signature.inputs.empty()) return Arithmetic::kFp32;
  // The narrower of the factors' types: autocast casts the wider one.
  DType narrow = signature.inputs[0].dtype;
  if (signature.inputs.size() > 1 && is_floating(signature.inputs[1].dtype) &&
      bits_of(signature.inputs[1].dtype) < bits_of(narrow))
    narrow = signature.inputs[1].dtype;
  return arithmetic_of(narrow);
}

}  // namespace

KernelSequence::KernelSequence(const ComputeQuery& query, const Tuning& tunings, const KernelChoice& chosen)
    : part(*query.signature, query.extents),
      device(*query.device),
      tuning(tunings.of(*query.device)),
      choice(chosen),
      arithmetic(arithmetic_of_products(query)),
      memory_peak(memory_rate(device).peak.value),
      units(compute_units(device).count),
      cast_(query.cast),
      attended_(query.attended) {}

double KernelSequence::clock() const {
  const double low = tuning.load_clock.value, delay = tuning.load_delay.value.value;
  return choice.burst > 0 ? low + (1 - low) * std::sqrt(delay / (delay + choice.burst)) : low;
}

double KernelSequence::clock(const Product& product) const {
  const double low = clock(), shortest = std::min({product.m, product.n, product.k});
  if (choice.passes <= 0 || choice.burst > 0 || shortest <= 0) return low;
  // A pass over the m·n results takes as long as so many multiplications along the sum.
  const ProductRate rate = product_rate(device, arithmetic);
  const double sustained = rate.peak.value * tuning.products[static_cast<std::size_t>(rate.arithmetic)].sustained.value;
  const double width = width_of(part.signature().inputs[0].dtype);
  const double pass = width / (memory_peak * tuning.stream.value) * sustained / 2;
  return low + (1 - low) * std::min(1.0, choice.passes * pass / shortest);
}

double KernelSequence::share_of(Pass pass) const {
  const double known = tuning.passes[static_cast<std::size_t>(pass)].value.share;
  return known > 0 ? known : plain_share(pass, tuning);
}

double KernelSequence::attended() const {
  return attended_ >= 0 ? std::min(1.0, attended_) : attended_share(part.signature());
}

void KernelSequence::add(KernelTime kernel, double flops, double bytes) {
  seconds_ += kernel.seconds;
  busy_ += kernel.busy * kernel.seconds;
  waves_ = kernel.waves;
  ++kernels_;
  flops_ += flops;
  bytes_ += bytes;
}

void KernelSequence::add_product(Product product, double flops) {
  if (flops <= 0) return;
  product.efficiency *= choice.product_rate * clock(product);
  add(time_of(product), flops, product.bytes);
}

double KernelSequence::busy_of(double bytes) const { return std::min(kStreamUnits, bytes / (kBytesPerUnit * units)); }

void KernelSequence::add_stream(double bytes, double efficiency, double flops) {
  const double vector_rate = product_rate(device, Arithmetic::kFp32).peak.value * 0.5;
  const double moving = bytes / (memory_peak * efficiency);
  add({launch() + std::max(moving, flops / vector_rate), busy_of(bytes), 0}, flops, bytes);
}

void KernelSequence::add_pass(Pass pass, double bytes, double rows, double elements) {
  const PassTuning& known = tuning.passes[static_cast<std::size_t>(pass)].value;
  if (known.share <= 0) return add_stream(bytes, plain_share(pass, tuning), part.pointwise_flops());
  double moving = std::max(known.least.value, bytes / (memory_peak * known.share));
  if (known.elements > 0) moving = std::max(moving, elements / known.elements);
  if (known.units > 0) moving += rows / known.units;
  add({launch() + known.start.value + moving, busy_of(bytes), 0}, part.pointwise_flops(), bytes);
}

void KernelSequence::add_time(double seconds, double flops) {
  seconds_ += seconds;
  flops_ += flops;
}

ComputeCost KernelSequence::cost() const {
  ComputeCost cost;
  cost.time = picoseconds(seconds_);
  cost.flops = flops_;
  cost.bytes = static_cast<std::int64_t>(bytes_);
  if (seconds_ > 0) {
    cost.sm_share = share(busy_ / seconds_);
    cost.memory_share = share(bytes_ / seconds_ / memory_peak);
    if (kernels_ == 1) cost.waves = static_cast<std::int32_t>(std::min(waves_, kMostWaves) * kWave + 0.5);
  }
  return cost;
}

}  // namespace weft
