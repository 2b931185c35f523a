// The step time of a strategy that changes a few operators at a time: sharding plan, program, workload and run are kept
// up to date incrementally.
//
//   Exploration exploration = Exploration::make(training, placing, choices, …).value();
//   exploration.add_mesh(mesh);
//   exploration.propose({op, axes, mesh})     exactly the makespan of planning, compiling, pricing and simulating anew
//   exploration.accept();  or  exploration.reject();
//
// Every device is an agent of its own. An error (the split does not divide, no resharding exists between two layouts, a
// deadlock) leaves everything unchanged. The same proposals give the same answers.
//
// Cost of a proposal: what it changes (the operator, those it shares tensors with, its gradient buckets) on its
// devices, and the tasks that are replayed; least where hosts take no time (`simulate/README.md`). Not here: which
// proposals to make, which to accept.
#pragma once

#include <memory>
#include <optional>
#include <span>

#include "compile/compile.h"
#include "cost/cost.h"
#include "layout/sharding.h"
#include "simulate/delta.h"
#include "strategy/stack.h"

namespace weft {

struct ExploreOptions {
  Network network = Network::Fifo;
  int checkpoints = 256;
  CompileOptions compile = {};
};

class Exploration {
 public:
  // Training graph, schedule, cluster, cost model and stack are kept by reference. Devices that are in
  // no mesh yet can be used later only if the world of `placing` contains them.
  static Result<Exploration> make(const TrainingGraph& training, Placing placing, ShardingChoices choices,
                                  const Schedule& schedule, const Cluster& cluster, const CostModel& cost,
                                  const SoftwareStack& stack, const ExploreOptions& options = {});
  Exploration(Exploration&&) noexcept;
  Exploration& operator=(Exploration&&) noexcept;
  ~Exploration();

  // The current state, including an open proposal.
  const ShardingPlanner& planner() const;
  const Program& program() const;
  const Workload& workload() const;
  Picoseconds makespan() const;
  // The assignment of gradients to buckets, to repeat it in a full compilation.
  std::vector<int> buckets() const;

  // Adds a mesh to which operators can move; it has the axes of the others and devices of the world.
  Result<MeshId> add_mesh(Mesh mesh, int stage = 0);

  // Makes the change and simulates it. It is then open until accepted or rejected, unless it was abandoned because its
  // makespan certainly exceeds `bound`.
  Result<Outcome> propose(const ShardingEdit& edit, std::optional<Picoseconds> bound = std::nullopt) {
    return propose(std::span(&edit, 1), bound);
  }
  // One proposal that changes several operators, each once.
  Result<Outcome> propose(std::span<const ShardingEdit> edits, std::optional<Picoseconds> bound = std::nullopt);
  void accept();
  void reject();

 private:
  struct State;
  explicit Exploration(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace weft
