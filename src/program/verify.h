// An independent check of a program: what a compiler may get wrong and a player cannot repair.
#pragma once

#include "base/result.h"
#include "program/program.h"

namespace weft {

// Every read has a write before it in the same micro-batch; nothing is used after it was freed; everything that is made
// is freed exactly once; every transfer is sent once and received once, on the meshes of its buffers; the inputs and
// outputs of a collective lie on its mesh and cover the same elements; and the ranks, each playing its actions in the
// schedule's order, come to the end. An error names the instruction, the buffer and, for a deadlock, the ranks that
// wait. Cost: linear in instructions times micro-batches.
Status verify(const Program& program, const Graph& graph, const Schedule& schedule);

}  // namespace weft
