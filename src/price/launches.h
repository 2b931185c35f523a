// What the host does to issue an operator: how many kernels it launches, and how long that takes.
#pragma once

#include "graph/graph.h"
#include "strategy/stack.h"

namespace weft {

// One, unless the stack runs the operator as a sequence of elementary kernels, each an operation of the framework's.
int launches_of(const Signature& signature, const SoftwareStack& stack);
// Casts of weights by autocast: to the type of a product before it, of its weight's gradient after it.
int weight_casts_of(const Signature& signature, const SoftwareStack& stack);

// The time a usual host takes for an operator of the graph.
Seconds host_time_of(const Graph& graph, OpId op, const SoftwareStack& stack);

}  // namespace weft
