// The sequence of kernels that executes an operator's local part, and their total time.
//
// Every kernel adds its time, its traffic, and the share of the compute units it keeps busy. Kernels are products
// (product.h), passes with measured constants of their own, and ordinary streams through memory.
#pragma once

#include <algorithm>

#include "cost/cost.h"
#include "cost/kernel_choice.h"
#include "cost/local_part.h"
#include "cost/tuning.h"

namespace weft {

class KernelSequence {
 public:
  KernelSequence(const ComputeQuery& query, const Tuning& tunings, const KernelChoice& chosen);

  const LocalPart part;
  const DeviceSpec& device;
  const DeviceTuning& tuning;
  const KernelChoice choice;
  const Arithmetic arithmetic;  // of matrix products
  const double memory_peak;     // bytes per second
  const double units;           // compute units

  // Under load the clock falls from its maximum to what the power limit allows, during a burst of calls.
  double clock() const;
  // Passes through memory between products draw less: where they take as long as the product, its clock is the highest.
  double clock(const Product& product) const;
  double launch() const { return tuning.kernel.value.value; }  // seconds to launch a kernel
  double share_of(Pass pass) const;                            // of the memory bandwidth
  double cast() const { return cast_; }                        // share of the first factor that is cast here
  double attended() const;                                     // unmasked share of (query, key) pairs of attention
  KernelTime time_of(const Product& product) const { return product_time(product, device, tuning, arithmetic); }

  void add(KernelTime kernel, double flops, double bytes);
  void add_product(Product product) { add_product(product, product.flops()); }
  void add_product(Product product, double flops);
  // A kernel that streams `bytes` at a share of the memory bandwidth, with some arithmetic.
  void add_stream(double bytes, double efficiency, double flops = 0);
  // The same with the measured constants of the pass, if any. `rows`: number of rows, elements of windows or indices.
  void add_pass(Pass pass, double bytes, double rows = 0) { add_pass(pass, bytes, rows, part.data_elements()); }
  void add_pass(Pass pass, double bytes, double rows, double elements);
  // Time outside of kernels.
  void add_time(double seconds, double flops = 0);
  // Subtracts launches that one library call saves, down to a total of `least`.
  void spare(double seconds, double least) { seconds_ = std::max(least, seconds_ - seconds); }

  double seconds() const { return seconds_; }
  ComputeCost cost() const;

 private:
  double busy_of(double bytes) const;

  double cast_;
  double attended_;
  double seconds_ = 0, busy_ = 0, flops_ = 0, bytes_ = 0;
  double waves_ = 0;  // of the last kernel
  int kernels_ = 0;
};

}  // namespace weft
