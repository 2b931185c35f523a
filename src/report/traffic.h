// The bytes that a program's instructions send per device, and their sums over a step.
//
// Bytes are those of ring algorithms (layout/reshard.h): an all-reduce of V sends 2(n−1)/n·V. Of uneven parts the
// largest counts.
#pragma once

#include <compare>
#include <string>
#include <vector>

#include "compile/from_strategy.h"
#include "plan/plan.h"

namespace weft {

// The kind of data that is moved.
enum class Cargo : std::uint8_t { Activations, Gradients, Weights, Scalars };  // gradients: of weights
std::string_view name_of(Cargo cargo);

// Bytes sent by one device of the instruction's mesh per execution.
Bytes bytes_sent(const Program& program, const Graph& graph, const Communicate& communicate);
Bytes bytes_sent(const Program& program, const Graph& graph, const Send& send);
Cargo cargo_of(const Graph& graph, TensorId tensor);

// The traffic of one cargo by one collective in one kind of group, per device of a pipeline rank and step.
struct StepTraffic {
  Cargo cargo{};
  std::string how;                  // "all-gather", "send"
  std::string group;                // mesh axis, "pp" between stages, "world"
  std::vector<std::int64_t> times;  // by pipeline rank
  std::vector<Bytes> bytes;         // by pipeline rank
};

// In the order of cargo, group and name. Slices are left out: they send nothing.
std::vector<StepTraffic> traffic_of(const Plan& plan, const CompiledStrategy& compiled);

// The pipeline ranks that execute the instructions of a mesh: one, or all of them for the world.
std::vector<std::int32_t> ranks_of_mesh(const CompiledStrategy& compiled, MeshId mesh);

}  // namespace weft
