// The parts of the verifier, inside the folder. Each takes what the parts before it have found sound.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "program/issue_order.h"
#include "program/rank_classes.h"
#include "program/verify.h"

namespace weft {

std::string described(const Program& program, const Graph& graph,
                      BufferId buffer);  // "buffer b12 of layers.0.mlp.up.y"

// verify_layouts.cpp: layouts cut their tensors into whole parts; operands lie on their instruction's mesh and, on the
// host, are only copied; what a collective gives follows from what it takes.
Status check_layouts(const Program& program, const Graph& graph);

// One instruction for one micro-batch, as a rank class issues it.
struct Played {
  InstructionId instruction;
  std::int32_t micro_batch = 0;
};

// By stream: how many of its instructions are complete.
using Clock = std::array<std::uint32_t, kStreams>;

// All that a rank class plays in a step of training.
struct ClassPlay {
  std::vector<Played> order;                                 // without frees
  std::vector<Clock> before;                                 // by place in `order`: complete before it starts
  std::array<std::vector<std::uint32_t>, kStreams> streams;  // places in `order`, of each stream
};

// verify_order.cpp: plays one class in issue order. Every read has a write before it, nothing is used after it was
// freed, everything is freed once; conflicting uses of a memory, and its free, are ordered by streams and waits.
Result<ClassPlay> play_class(const Program& program, const Graph& graph, const std::vector<IssuedBody>& issued,
                             std::int32_t micro_batches, const RankClass& of);

// verify_meetings.cpp: plays all classes together with zero durations. A collective is one meeting of all devices of
// its mesh, a transfer one of those that send and those that receive.
Status check_meetings(const Program& program, const Graph& graph, const std::vector<RankClass>& classes,
                      const std::vector<ClassPlay>& plays, std::int32_t micro_batches);

}  // namespace weft
