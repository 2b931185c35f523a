// Everything that is wrong with a strategy for a model and a cluster, by name and place: all of it, not the first.
//
//   unknown-module   a glob that covers nothing           does-not-divide    a degree on heads, ffn, vocabulary, …
//   unknown-axis     of the mesh or of an operator        mesh               malformed, or larger than the cluster
//   schedule         unknown, or its needs are not met    stages             layers that do not fit them
//   contradiction    configurations that exclude each other
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cluster/cluster.h"
#include "graph/training.h"
#include "strategy/tree.h"

namespace weft {

struct Violation {
  std::string name;
  std::string place;    // "plan.yaml:12" where the line is known, else the rule or the operator
  std::string message;  // with the values and the remedy

  bool operator==(const Violation&) const = default;
};
std::string print(const Violation& violation);  // "plan.yaml:12: … [does-not-divide]"

// `file` names the strategy in places. Cost: that of resolve.
std::vector<Violation> validate(const Strategy& strategy, const TrainingGraph& training, const Cluster& cluster,
                                std::string_view file = "strategy");

}  // namespace weft
