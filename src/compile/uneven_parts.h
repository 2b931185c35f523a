// How gathers and scatters of parts of different sizes are executed: padded or grouped (docs/decisions/0008-*).
#pragma once

#include "compile/compile.h"

namespace weft {

// Of one collective with all its buffers, by what it moves in all: so a bucket is settled when it is joined. Even parts
// have no choice. Cost where parts are even: one look at each cut.
Parts settled_parts(const Program& program, const Graph& graph, const Communicate& communicate,
                    const CompileOptions& options);

}  // namespace weft
