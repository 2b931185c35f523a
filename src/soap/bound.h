// A step time that no strategy of the SOAP space can beat.
//
//   work   every operator at the split that wastes least: Σ min over splits (time · parts) / devices
//   path   every operator at the split that is fastest, along the longest path of the training graph
//
// The larger of the two. Communication and hosts take no time, devices are all as fast as the fastest: admissible.
// Splits: into any number of parts that divides that of the devices, along up to three axes.
#pragma once

#include "soap/judge.h"

namespace weft {

struct SoapBound {
  Picoseconds work = 0, path = 0;

  Picoseconds value() const { return std::max(work, path); }
};

SoapBound lower_bound(const SoapProblem& problem, const std::vector<DeviceId>& devices);

}  // namespace weft
