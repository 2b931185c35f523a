// Recomputes as little as memory allows, stage by stage and layer by layer.
//
// A plan that recomputes the same in all layers does everywhere what its fullest stage needs, and in that stage all
// layers where some would do. What it recomputes is a chain: the mode, then modules in the order in which the menu
// (problem/recompute_menu.h) added them, each of which frees fewer bytes per second than the one before. Devices that
// share stages drop links from the end of the chain, layer by layer, until memory is full: the greedy solution of the
// knapsack of seconds and bytes, so its linear relaxation but for one layer's part of one link. Of a device's stages,
// those that hold the fewest micro-batches in flight drop first.
//
// Bytes are those of the compiled plan (forecast/memory.h), without prices, for all stages at once. Where composition
// knows the memory of every rank, it says where to begin.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "problem/problem.h"

namespace weft {

// The plan, then with its last link dropped in all layers, with the last two, … up to one that recomputes nothing.
std::vector<Parallelism> with_links_dropped(const PlanProblem& problem, const Parallelism& plan);

// Bytes that every pipeline rank has left (below 0: that it lacks) with so many links dropped in all layers.
using RoomByLinks = std::vector<std::vector<double>>;
// Of every link, last first: the share of layers in which ranks can drop it, on average.
std::vector<double> dropped_shares(const RoomByLinks& room);

// `plan` fits. None where nothing of what it recomputes can be dropped. `room`: of the plans above, as far as it is
// known; else empty. `interrupted`: asked between compilations; what is known to fit by then is returned. Whether the
// result is faster is for the judge to say. Cost: some two compilations, at most seven.
std::optional<Parallelism> recompute_by_stage(const PlanProblem& problem, const Parallelism& plan,
                                              const RoomByLinks& room, GraphCache* graphs,
                                              const std::function<bool()>& interrupted = {});

// The same number of layers in every stage: of each link the most that any stage needs. None where that is all of them.
std::optional<Parallelism> alike_in_all_stages(const PlanProblem& problem, const Parallelism& plan);

// Whole layers as the last link of a chain that begins with all but matrix products: recompute=op,full=layers.*.
// None where the plan does not recompute whole layers.
std::optional<Parallelism> layers_through_operators(const PlanProblem& problem, const Parallelism& plan);

}  // namespace weft
