// Gradient buckets: collectives on gradients that are alike travel together.
#pragma once

#include "program/program.h"

namespace weft {

// In every backward body, joins the collectives of the last micro-batch that reduce gradients the same way (steps, mesh
// axes, element type), in the order in which they become ready, until a bucket holds `bytes`; a bucket starts when its
// last gradient is there. Fixed by the order of the graph, so a change to one operator changes only its own bucket.
// Cost: linear.
void bucket_gradients(Program& program, const Graph& graph, Bytes bytes);

}  // namespace weft
