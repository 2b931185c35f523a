// An independent check of a program: what a compiler may get wrong and a player cannot repair.
#pragma once

#include "base/result.h"
#include "program/program.h"

namespace weft {

// Holds of a program that passes, under this schedule:
//   names      everything named is there; an instruction stands in one body; a transfer is sent once, received once
//              and in the same body
//   layouts    parts make up their tensors; a collective's outputs follow from its inputs (an all-gather takes a cut
//              away, a reduce-scatter makes a cut of a partial sum, …); only copies touch the host's memory
//   scalars    what is given with a step is not written; a result is one number, written once, in the step, for all
//   values     every read has a write before it in the same micro-batch; nothing is used after it was freed; everything
//              that is made is freed exactly once
//   streams    uses of one memory of which one writes, and its free, are ordered as they are issued, by the order on
//              streams and by waits; waits name what the micro-batch has issued already
//   meetings   every device plays for one pipeline rank, so members of a group meet in the same order; and played with
//              zero durations, streams, collectives and transfers (rendezvous) come to the end
// An error names the instruction and the buffer; for a deadlock, the circle of who waits for whom. Meetings are played
// for whole rank classes: a collective of several groups as if all of its mesh met, which no compiled program needs to
// do without. The order between one step and the next is not looked at.
// Cost: linear in instructions, micro-batches and rank classes that share a mesh; some 40 bytes for each instruction
// played.
Status verify(const Program& program, const Graph& graph, const Schedule& schedule);

// An instruction in words, for messages: "#7 (all-reduce over tp of layers.0.mlp.down.y)".
std::string described(const Program& program, const Graph& graph, InstructionId instruction);

}  // namespace weft
