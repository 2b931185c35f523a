// Whether a run of many ranks trains as one device does: loss, gradients and updated weights, tensor by tensor.
#pragma once

#include <string>
#include <vector>

#include "run/executor.h"
#include "run/unsharded.h"

namespace weft::runtime {

struct Comparison {
  std::string name;       // "loss", "gradient of layers.0.fc1.weight", "layers.0.fc1.weight"
  double difference = 0;  // the norm of the difference over the norm of what is expected
  double bound = 0;
  double spread = 0;  // between ranks that should hold the same

  bool ok() const { return difference <= bound && spread <= bound; }  // not: NaN
};

// Of a bundle's numbers. fp64: sums in another order. fp32 and narrower: unit roundoffs times what a network of some
// hundred layers makes of them; gradients' noise is at the level of their smallest parts.
double check_bound(const Bundle& bundle);

// Plays the step that the executors have just played on one device as well, on device 0, and compares there; elsewhere
// the list is empty. All ranks must call it after every step.
//
// A norm is at least a ten-thousandth of the largest of its kind: what is nothing but rounding (the gradient of a key's
// bias) has none of its own. Of weights in narrow types those elements are left out whose gradients are such: Adam takes
// their sign alone.
Result<std::vector<Comparison>> check_step(Executor& executor, Unsharded* one_device, const Bundle& bundle, int device,
                                           const StepNumbers& numbers);

}  // namespace weft::runtime
