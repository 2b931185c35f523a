// The task of an instruction on one device: stream, guard, host time, the cost of its computation, the group in which
// it communicates. Shared by folded (price.cpp) and incremental (incremental.cpp) pricing, which number works and
// meetings.
#pragma once

#include <map>
#include <tuple>

#include "cost/cost.h"
#include "price/communications.h"
#include "program/program.h"
#include "strategy/stack.h"

namespace weft {

class InstructionPricer {
 public:
  // Refers to all arguments.
  InstructionPricer(const Program& program, const Graph& graph, const Cluster& cluster, const CostModel& cost,
                    const SoftwareStack& stack)
      : program_(program),
        graph_(graph),
        cluster_(cluster),
        cost_(cost),
        stack_(stack),
        communications_(program, graph, cluster, cost),
        slowdown_(slowdown_of(cluster)) {}
  // Tells what is gathered of parts that were cast; the program does not change after that.
  void note_gathers();

  Communications& communications() { return communications_; }
  const Communications& communications() const { return communications_; }

  // A task for the instruction, without work and host time.
  Task blank(InstructionId id) const;
  // Adds the host time to issue the instruction to a task with work on that device.
  void add_host(Task& task, const Instruction& instruction, DeviceId device) const;

  // The share of an fp8 product's first factor that a device casts itself: of what was gathered, its part.
  double cast_share(const Compute& compute) const;
  // Whether every device of the mesh has the same amount of work of the operator.
  bool is_uniform(const Compute& compute, const Mesh& mesh) const;
  ComputeCost compute_cost(const Compute& compute, const Mesh& mesh, int position);
  // One pass over memory: reads both terms, writes the result. Of uneven parts the largest counts.
  const ComputeCost& combine_cost(const Combine& combine, const Mesh& mesh, const DeviceSpec& device);
  // The addition that it is priced as.
  Signature combine_signature(const Combine& combine, const Mesh& mesh) const;
  // The group of the instruction to which the device, at a position of its mesh, belongs. None: it has no data to wait
  // for, or takes part by its own send.
  CommGroupId group_of(const Instruction& instruction, KindId kind, DeviceId device, int position) const;

  // Whether the host waits for what the operator makes.
  bool is_read_back(const Compute& compute) const;

  // An agent without tasks.
  Agent agent(DeviceId device, Workload& workload);

 private:
  static double slowdown_of(const Cluster& cluster);
  ComputeCost on_the_slowest(ComputeCost cost) const;
  // Type and elements of what a Combine gives, all outputs together.
  std::pair<DType, std::int64_t> combined(const Combine& combine, const Mesh& mesh) const;

  const Program& program_;
  const Graph& graph_;
  const Cluster& cluster_;
  const CostModel& cost_;
  const SoftwareStack& stack_;
  Communications communications_;
  IdVec<BufferId, int> gathered_of_;  // by buffer: of how many parts it was gathered; 0: it was not
  double slowdown_;                   // of the slowest device (NetworkTraits::slowdown)
  std::vector<std::int64_t> extents_;
  std::map<const DeviceSpec*, std::uint32_t> interference_;
  std::map<std::tuple<const DeviceSpec*, DType, std::int64_t>, ComputeCost> combine_costs_;  // by elements
};

}  // namespace weft
