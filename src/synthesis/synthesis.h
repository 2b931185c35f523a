// Synthesis of the distributed program of a training step on unequal devices (HAP, Zhang et al. 2024). Start here.
//
//   synthesise(training, cluster, cost, {.devices = …})
//
// Two choices in turn until neither gains: the program, given the shares of the devices (rules.h; by elimination,
// solve.h, or by A*, astar.h), and the shares, given the program (ratios.h). From several starts: equal shares, by speed,
// by memory; on several meshes: all devices along one axis, nodes × devices of a node; with and without weights sharded
// beyond their operators' splits. The results are strategy trees, best stage sum first, for the one judge
// (problem/judge.h) to compare: a stage sum knows no overlap of computation and communication.
//
// Not here: pipelines and micro-batches, placement of operators on some of the devices, compilation, judgement.
#pragma once

#include <algorithm>
#include <string>

#include "problem/budget.h"
#include "synthesis/rules.h"
#include "synthesis/solve.h"

namespace weft {

struct SynthesisRequest {
  std::vector<DeviceId> devices;            // in the order of ranks
  std::vector<std::int64_t> memory_budget;  // by device, in that order; 0: unknown
  ProgramRules rules = {};
  SearchBudget budget = {};
  bool overlaps_gradients = true;  // whether programs are sought, too, whose gradients are reduced beside backward
  int most_axes = 2;               // of a mesh; 1: all devices along one axis, as HAP
  bool astar = false;              // prove or improve each program by A* (astar.h), within the budget
};

struct Synthesised {
  Strategy tree;
  std::string name;  // "64 from shares by speed"
  SharedMesh mesh;
  SolvedProgram program;
  // What shares without rounding could reach, in seconds of stages, linearised where they are; 0: equal shares stayed.
  double ratio_bound = 0;
  double exposed = 1;                  // of the time of gradients' reductions, what its stage sum counts
  std::vector<Picoseconds> busy;       // by class of devices: all that it computes
  std::vector<std::int64_t> capacity;  // by class: bytes; 0: unknown
  double seconds = 0;                  // of its search

  // How far the whole granules of the shares are above what linear programming could reach; 0: not known.
  double above_bound() const {
    return ratio_bound > 0 ? std::max(0.0, 1e-12 * static_cast<double>(program.sum.total) / ratio_bound - 1) : 0;
  }
};

struct SynthesisOutcome {
  std::vector<Synthesised> programs;  // those that fit first, then by stage sum
  SearchCounts counts;
  StoppedBy stopped_by = StoppedBy::Itself;
};

SynthesisOutcome synthesise(const TrainingGraph& training, const Cluster& cluster, const CostModel& cost,
                            const SynthesisRequest& request);

}  // namespace weft
