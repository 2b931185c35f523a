// How many times the host launches a kernel for an operator.
#pragma once

#include "graph/signature.h"
#include "strategy/stack.h"

namespace weft {

// One, unless the stack runs the operator as a sequence of elementary kernels, each an operation of the framework's.
int launches_of(const Signature& signature, const SoftwareStack& stack);

}  // namespace weft
