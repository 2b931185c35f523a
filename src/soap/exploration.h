// What if: a strategy, its program, its price and its run, kept in step while a search changes a few operators at a
// time. The way a search asks for step times.
//
//   Exploration exploration = Exploration::make(training, placing, choices, …).value();
//   exploration.add_mesh(mesh);
//   exploration.propose({op, axes, mesh})        exactly the makespan of planning, compiling, pricing and simulating
//   anew exploration.accept();  or  exploration.reject();
//
// Every device is an agent of its own. An error (the split does not divide, nothing leads from one layout to another, a
// deadlock) leaves all as it was. Same proposals, same answers.
//
// Cost of a proposal: what it changes (the operator, those it shares tensors with, its gradient buckets) on its
// devices, and the tasks that are replayed; fastest where hosts take no time (`simulate/README.md`). Not here: which
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
  // Training graph, schedule, cluster, cost model and stack are kept by reference. Devices that no mesh has yet join
  // only if `placing` has a world with them.
  static Result<Exploration> make(const TrainingGraph& training, Placing placing, ShardingChoices choices,
                                  const Schedule& schedule, const Cluster& cluster, const CostModel& cost,
                                  const SoftwareStack& stack, const ExploreOptions& options = {});
  Exploration(Exploration&&) noexcept;
  Exploration& operator=(Exploration&&) noexcept;
  ~Exploration();

  // As they are, an open proposal included.
  const ShardingPlanner& planner() const;
  const Program& program() const;
  const Workload& workload() const;
  Picoseconds makespan() const;
  // How gradients are bucketed, for a full compilation to do it the same way.
  std::vector<int> buckets() const;

  // One more mesh for operators to move to, with the axes of the others, of devices in the world.
  Result<MeshId> add_mesh(Mesh mesh, int stage = 0);

  // Makes the change and says what comes of it; it is then open until accepted or rejected, unless it was abandoned
  // because its makespan is sure to pass `bound`.
  Result<Outcome> propose(const ShardingEdit& edit, std::optional<Picoseconds> bound = std::nullopt) {
    return propose(std::span(&edit, 1), bound);
  }
  // Several operators, each once, changed together: one proposal.
  Result<Outcome> propose(std::span<const ShardingEdit> edits, std::optional<Picoseconds> bound = std::nullopt);
  void accept();
  void reject();

 private:
  struct State;
  explicit Exploration(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace weft
