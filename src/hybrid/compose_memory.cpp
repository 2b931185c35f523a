// The memory of a plan's fullest rank: what it keeps from step to step, what micro-batches in flight hold, and the
// largest temporary memory above both.
#include <algorithm>

#include "forecast/memory.h"
#include "hybrid/compose.h"

namespace weft {
namespace {

// Memory of a pass over a stage: the change from its beginning to its end, and its peak above its beginning.
struct Passed {
  std::int64_t net = 0, most = 0;

  void add(std::int64_t above, std::int64_t left) {
    most = std::max(most, net + above);
    net += left;
  }
};
struct Chunk {
  Passed forward, backward, input, weight;

  const Passed& of(Body body) const {
    return body == Body::Forward         ? forward
           : body == Body::Backward      ? backward
           : body == Body::BackwardInput ? input
                                         : weight;
  }
};

}  // namespace

void Composer::distant_reads(const std::vector<std::int32_t>& stage, const BlockCosts& block,
                             std::vector<DistantRead>& read) {
  read.clear();
  for (std::int32_t section : stage)
    for (const DistantRead& each : block.kinds[static_cast<std::size_t>(section)].reads) {
      const bool made_here = std::find(stage.begin(), stage.end(), each.kind) != stage.end();
      const bool known =
          std::any_of(read.begin(), read.end(), [&](const DistantRead& other) { return other.kind == each.kind; });
      if (!made_here && !known) read.push_back(each);
    }
}

Composer::Need Composer::memory_of(const HybridPlan& plan, const BlockCosts& block, const Stages& stages,
                                   const PipelineTable& table, std::int32_t in_flight) const {
  thread_local std::vector<Need> needs;
  memory_of_ranks(plan, block, stages, table, in_flight, needs);
  return *std::max_element(needs.begin(), needs.end(),
                           [](const Need& a, const Need& b) { return a.memory < b.memory; });
}

void Composer::memory_of_ranks(const HybridPlan& plan, const BlockCosts& block, const Stages& stages,
                               const PipelineTable& table, std::int32_t in_flight, std::vector<Need>& needs) const {
  const ReplicaGroups groups = replica_groups(plan);
  const auto sections = static_cast<std::int32_t>(block.kinds.size());
  const auto at = [&](std::int32_t i) -> const SectionCost& { return block.kinds[static_cast<std::size_t>(i)]; };
  const SoftwareStack& stack = problem_.stack();
  const bool tied = problem_.model().tied_embeddings && plan.pp > 1;
  int communicators = (plan.tp > 1) + (plan.pp > 1) + (tied ? 1 : 0);
  // Communicators: context parallelism, expert parallelism, gradients over all replicas (dense and expert ones), and
  // copies of hybrid sharding.
  communicators += plan.cp > 1;
  communicators += plan.ep > 1;
  communicators += groups.shards() > std::max(plan.cp, plan.ep);
  communicators += plan.ep > 1 && groups.expert_shards() > 1;
  communicators += plan.copies > 1;
  const bool one_axis =
      plan.tp == problem_.devices || plan.dp / plan.copies == problem_.devices || plan.cp == problem_.devices;
  if (problem_.devices > 1 && !one_axis) ++communicators;  // of all devices
  const MemoryOverheads overheads = memory_overheads(stack);
  // What a device keeps of a section, sharded by the plan's ZeRO stage. gathered: bytes that ZeRO-3 gathers for it.
  struct Kept {
    HeldBytes held;
    std::int64_t elements = 0, gathered = 0;
  };
  const std::int64_t units = std::max<std::int64_t>(1, problem_.layers.count());
  thread_local std::vector<Kept> kept_of;
  kept_of.clear();
  for (std::int32_t i = 0; i < sections; ++i) {
    const SectionCost& section = at(i);
    Kept& made = kept_of.emplace_back();
    for (const bool expert : {false, true}) {
      const KeptBytes& kept = expert ? section.expert : section.dense;
      const std::int64_t shards = expert ? groups.expert_shards() : groups.shards();
      made.held.parameters.value += plan.zero >= 3 ? kept.parameters / shards : kept.parameters;
      made.held.gradients.value += plan.zero >= 2 ? kept.gradients / shards : kept.gradients;
      if (!plan.offload) made.held.optimizer.value += plan.zero >= 1 ? kept.optimizer / shards : kept.optimizer;
      made.elements +=
          (expert ? section.stored_expert_elements : section.stored_elements) / (plan.zero >= 3 ? shards : 1);
    }
    // While a layer is computed, its weights and those of the next ones are gathered; nothing is beside what is outside of
    // layers, unless there is nothing else.
    if (plan.zero >= 3 && groups.shards() > 1 && (section.is_layer || units == 1))
      made.gathered = std::clamp<std::int64_t>(stack.gathers_in_flight.value, 1, units) *
                      (section.dense.parameters + section.expert.parameters);
  }
  needs.clear();
  for (int rank = 0; rank < table.ranks(); ++rank) {
    HeldBytes held;
    std::int64_t saved_all = 0, above = 0, elements = 0;
    const auto keep = [&](std::int32_t section) {
      const Kept& kept = kept_of[static_cast<std::size_t>(section)];
      held.parameters += kept.held.parameters;
      held.gradients += kept.held.gradients;
      held.optimizer += kept.held.optimizer;
      elements += kept.elements;
    };
    thread_local std::vector<Chunk> chunks;
    chunks.clear();
    for (int chunk = 0; chunk < table.chunks(); ++chunk) {
      const int stage = table.stage_at(rank, chunk);
      const std::vector<std::int32_t>& list = stages.sections[static_cast<std::size_t>(stage)];
      for (std::int32_t section : list) keep(section);
      if (tied && stage + 1 == plan.pp * plan.vpp) keep(problem_.layers.sections.front().kind);
      Chunk& of = chunks.emplace_back();
      const auto gathered = [&](std::int32_t section) { return kept_of[static_cast<std::size_t>(section)].gathered; };
      for (std::int32_t section : list)
        of.forward.add(at(section).most_forward + gathered(section), at(section).net_forward);
      thread_local std::vector<DistantRead> read;
      distant_reads(list, block, read);
      for (const DistantRead& each : read) of.forward.add(0, each.bytes);
      const bool split = !table.in_flight_split(rank).empty();
      for (auto section = list.rbegin(); section != list.rend(); ++section) {
        const SectionCost& cost = at(*section);
        if (!split) of.backward.add(cost.most_backward + gathered(*section), -cost.net_forward);
        if (split) of.input.add(cost.most_input + gathered(*section), cost.net_input);
        if (split) of.weight.add(cost.most_weight + gathered(*section), -cost.net_forward - cost.net_input);
      }
    }
    if (table.in_flight_split(rank).empty()) {
      const std::vector<std::int32_t>& by_table = table.in_flight(rank);
      for (std::size_t chunk = 0; chunk < chunks.size(); ++chunk) {
        const Chunk& of = chunks[chunk];
        // A short table may stand for more micro-batches than it has; GPipe keeps all of them.
        const std::int32_t alive = in_flight > 0                          ? in_flight
                                   : plan.schedule == PlanSchedule::GPipe ? plan.micro_batches
                                                                          : by_table[chunk];
        saved_all += alive * of.forward.net;
        // The peak above all that is in flight: in the last one's forward pass or in the first one's backward pass.
        above = std::max({above, of.forward.most - of.forward.net, of.backward.most});
      }
    } else {
      for (const InFlight& moment : table.in_flight_split(rank)) {
        std::int64_t saved = 0;
        for (std::size_t chunk = 0; chunk < chunks.size(); ++chunk)
          saved += moment.whole[chunk] * chunks[chunk].forward.net +
                   moment.half[chunk] * (chunks[chunk].forward.net + chunks[chunk].input.net);
        const std::int64_t most = chunks[static_cast<std::size_t>(moment.chunk)].of(moment.body).most;
        if (saved + most <= saved_all + above) continue;
        saved_all = saved;
        above = most;
      }
    }
    held.activations.value = saved_all;
    held.buffers.value = above;
    // Flat copies that a sharded optimizer keeps, in proportion to the parameters that the device holds.
    const std::int64_t flat_copies = plan.zero > 0 ? stack.kept_for(elements).value : 0;
    const std::int64_t total = reserved_estimate(held, stack).value + flat_copies + overheads.context.value.value +
                               overheads.communicator.value.value * communicators;
    needs.push_back({total, saved_all});
  }
}

}  // namespace weft
