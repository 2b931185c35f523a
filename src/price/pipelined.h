// Collectives that a stack moves in chunks beside the product they belong to, as Transformer Engine's userbuffers do
// for tensor parallelism: the product starts with the chunks that are there, and sends the chunks that it has made.
#pragma once

#include "cost/cost.h"
#include "program/program.h"

namespace weft {

// By instruction: the product in chunks of which a collective on activations moves; invalid: it moves by itself.
// Pairs are an all-gather and the forward product, or the product of an input gradient, that first reads it, and a
// forward product and the reduce-scatter of what it makes. Other gathers and scatters of a layer need no chunks to be
// hidden: they run beside products that do not depend on them.
IdVec<InstructionId, InstructionId> pipelined_products(const Program& program, const Graph& graph);

// What is left of a communication in chunks beside a product that takes that long. The pair takes the longer of the two
// and one chunk of the shorter.
CommunicateCost exposed_beside(const CommunicateCost& cost, Picoseconds product, int chunks);

// An all-gather has a chunk for every member (a ring exchange), a reduce-scatter four (NeMo's userbuffer configuration
// of 24.09: num_splits 4).
int chunks_of(Collective collective, std::size_t members);

}  // namespace weft
