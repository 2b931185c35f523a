// What an instruction asks of one device: stream, guard, host time, the cost of its computation, the group in which it
// communicates. Who numbers works and meetings, folded (price.cpp) or not (incremental.cpp), is told the same.
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
  // All are kept by reference.
  InstructionPricer(const Program& program, const Graph& graph, const Cluster& cluster, const CostModel& cost,
                    const SoftwareStack& stack)
      : program_(program),
        graph_(graph),
        cluster_(cluster),
        cost_(cost),
        stack_(stack),
        communications_(program, graph, cluster, cost) {}

  Communications& communications() { return communications_; }
  const Communications& communications() const { return communications_; }

  // A task for the instruction that takes no time yet.
  Task blank(InstructionId id) const;
  // Adds what it takes to issue the instruction, to a task with work.
  void add_host(Task& task, const Instruction& instruction) const;

  // Whether every device of the mesh has the same amount of the operator to do.
  bool is_uniform(const Compute& compute, const Mesh& mesh) const;
  ComputeCost compute_cost(const Compute& compute, const Mesh& mesh, int position);
  // One pass over memory: reads both terms, writes the result. Uneven parts count by the largest.
  const ComputeCost& combine_cost(const Combine& combine, const Mesh& mesh, const DeviceSpec& device);
  // The group in which the device, at a position of the instruction's mesh, takes part by it. None: it has nothing to
  // wait for, or comes by its own send.
  CommGroupId group_of(const Instruction& instruction, KindId kind, DeviceId device, int position) const;

  // An agent without tasks.
  Agent agent(DeviceId device, Workload& workload);

 private:
  const Program& program_;
  const Graph& graph_;
  const Cluster& cluster_;
  const CostModel& cost_;
  const SoftwareStack& stack_;
  Communications communications_;
  std::vector<std::int64_t> extents_;
  std::map<const DeviceSpec*, std::uint32_t> interference_;
  std::map<std::tuple<const DeviceSpec*, DType, std::int64_t>, ComputeCost> combine_costs_;  // by elements
};

}  // namespace weft
