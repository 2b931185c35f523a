// Executes one operator, or one shard of it, in fp64.
#pragma once

#include <span>

#include "reference/block.h"

namespace weft::reference {

// Runs the part of the operator given by `slices`; outputs must be blocks of exactly that part and hold zeros.
// Partial results are what the shard contributes. Throws std::out_of_range when a shard reads what it does not hold.
void run_kernel(const Signature& signature, const AxisSlices& slices, std::span<const Block> inputs,
                std::span<Block> outputs);

// The whole operator.
std::vector<Block> run_whole(const Signature& signature, std::span<const Block> inputs);

}  // namespace weft::reference
