// A lower bound on the step time of every strategy of the SOAP space.
//
//   work   every operator at its most efficient split: Σ min over splits (time · parts) / devices
//   path   every operator at its fastest split, along the longest path of the training graph
//
// The bound is the larger of the two. It is admissible: communication and hosts take no time, and all devices are as
// fast as the fastest. Splits are into any number of parts that divides the number of devices, along up to three axes.
#pragma once

#include "soap/judge.h"

namespace weft {

struct SoapBound {
  Picoseconds work = 0, path = 0;

  Picoseconds value() const { return std::max(work, path); }
};

SoapBound lower_bound(const SoapProblem& problem, const std::vector<DeviceId>& devices);

}  // namespace weft
