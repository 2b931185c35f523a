// The kernels that an operator's local part runs as, one after another, and what they take together.
//
// Every kernel adds its time, its traffic, and the share of the compute units it keeps busy for that time. Kernels are
// products (product.h), passes that were measured by themselves, and plain streams through memory.
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
  const Arithmetic arithmetic;  // of products
  const double memory_peak;     // bytes per second
  const double units;           // that compute

  // Under load the clock falls from its most to what power allows, over the time that a burst of calls lasts.
  double clock() const;
  double launch() const { return tuning.kernel.value.value; }  // seconds that starting a kernel takes
  double share_of(Pass pass) const;                            // of the memory bandwidth
  double attended() const;  // share of (query, key) pairs that the mask of attention lets through
  KernelTime time_of(const Product& product) const { return product_time(product, device, tuning, arithmetic); }

  void add(KernelTime kernel, double flops, double bytes);
  void add_product(Product product) { add_product(product, product.flops()); }
  void add_product(Product product, double flops);
  // Passes these bytes through memory at a share of its bandwidth, with some arithmetic on the way.
  void add_stream(double bytes, double efficiency, double flops = 0);
  // The same, measured by itself where it was. `rows`: or elements of windows, or indices.
  void add_pass(Pass pass, double bytes, double rows = 0) { add_pass(pass, bytes, rows, part.data_elements()); }
  void add_pass(Pass pass, double bytes, double rows, double elements);
  // What belongs to no kernel.
  void add_time(double seconds, double flops = 0);
  // Launches that a library call spares, down to the time `least`.
  void spare(double seconds, double least) { seconds_ = std::max(least, seconds_ - seconds); }

  double seconds() const { return seconds_; }
  ComputeCost cost() const;

 private:
  double busy_of(double bytes) const;

  double attended_;
  double seconds_ = 0, busy_ = 0, flops_ = 0, bytes_ = 0;
  double waves_ = 0;  // of the last kernel
  int kernels_ = 0;
};

}  // namespace weft
