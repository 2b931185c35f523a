// How gathers and scatters of parts of different sizes are executed: padded or grouped (docs/decisions/0008-*).
#pragma once

#include "compile/compile.h"

namespace weft {

// The choice for one collective, by the bytes of all its buffers together; that of a bucket is made when it is joined.
// Parts::Even where all parts have one size. Cost of that: one look at each cut.
Parts settled_parts(const Program& program, const Graph& graph, const Communicate& communicate,
                    const CompileOptions& options);

}  // namespace weft
