#include "hybrid/compose.h"

#include <limits>
#include <set>
#include <utility>

#include "problem/parallel.h"

namespace weft {

Composer::Composer(const PlanProblem& problem, const CostModel& cost)
    : problem_(problem),
      cost_(cost),
      interference_(cost.interference(problem.cluster().spec(problem.device_at(0)))),
      groups_(problem, cost) {
  const Bytes budget = problem.job->memory_budget_of(problem.device_at(0));
  budget_ = budget.value > 0 ? budget.value : std::numeric_limits<std::int64_t>::max();
}

BlockShape Composer::shape_of(const HybridPlan& plan) {
  // Recomputation that gathers activations compiles differently in schedules that split the backward pass.
  const bool split = plan.schedule == PlanSchedule::ZeroBubbleH1 || plan.schedule == PlanSchedule::ZeroBubbleV;
  const bool differs = split && plan.recompute != PlanRecompute::None && plan.tp * plan.cp > 1;
  return {plan.tp, plan.cp, plan.ep, plan.micro_batch, plan.sequence_parallel, plan.recompute, plan.cp_mode, differs};
}

void Composer::prepare(std::span<const HybridPlan> plans, int threads) {
  std::set<BlockShape> fresh;
  for (const HybridPlan& plan : plans)
    if (const BlockShape shape = shape_of(plan); !blocks_.contains(shape)) fresh.insert(shape);
  const std::vector<BlockShape> shapes(fresh.begin(), fresh.end());
  std::vector<std::optional<BlockCosts>> found(shapes.size());
  for_each_index(shapes.size(), threads, 1, [&](std::size_t i) {
    if (Result<BlockCosts> costs = probe_block(problem_, cost_, shapes[i], graphs_); costs.ok())
      found[i] = std::move(costs).value();
  });
  for (std::size_t i = 0; i < shapes.size(); ++i) blocks_.emplace(shapes[i], std::move(found[i]));
}

const DataParallelCosts& Composer::data_of(const HybridPlan& plan, const BlockCosts& block) const {
  const DataKey key{plan.tp, plan.cp, plan.ep, plan.dp, plan.zero, plan.copies, plan.sequence_parallel};
  const std::lock_guard lock(mutex_);
  std::unique_ptr<const DataParallelCosts>& known = data_[key];
  if (!known) known = std::make_unique<DataParallelCosts>(data_parallel_costs(problem_, groups_, plan, block));
  return *known;
}

const BlockCosts* Composer::block_of(const HybridPlan& plan) const {
  const auto found = blocks_.find(shape_of(plan));
  return found == blocks_.end() || !found->second ? nullptr : &*found->second;
}

const PipelineClock& Composer::clock_of(const HybridPlan& plan) const {
  const std::lock_guard lock(mutex_);
  return clocks_
      .try_emplace(std::tuple(plan.schedule, plan.pp, plan.vpp, plan.micro_batches), tables_,
                   std::string(name_of(plan.schedule)), plan.pp, plan.vpp, plan.micro_batches)
      .first->second;
}

bool Composer::assign_sections(const HybridPlan& plan, Stages& stages) const {
  const std::int64_t count = std::int64_t{plan.pp} * plan.vpp;
  const std::vector<std::int64_t> layers = stage_layers(problem_.layers.count(), count, plan.split);
  if (layers.empty()) return false;
  stages.sections.resize(static_cast<std::size_t>(count));
  std::size_t layer = 0;
  for (std::size_t stage = 0; stage < stages.sections.size(); ++stage) {
    std::vector<std::int32_t>& list = stages.sections[stage];
    list.clear();
    if (stage == 0) list.push_back(0);
    for (std::int64_t i = 0; i < layers[stage]; ++i) list.push_back(1 + problem_.layers.kind[layer++]);
    if (stage + 1 == stages.sections.size()) list.push_back(problem_.layers.kinds + 1);
  }
  return true;
}

std::optional<std::int64_t> Composer::memory(const HybridPlan& plan) const {
  const BlockCosts* block = block_of(plan);
  thread_local Stages stages;
  if (!block || !assign_sections(plan, stages)) return std::nullopt;
  const PipelineClock& clock = clock_of(plan);
  if (!clock.valid()) return std::nullopt;
  return memory_of(plan, *block, stages, clock.table()).memory;
}

std::optional<Composition> Composer::compose(const HybridPlan& plan, double bound_above) const {
  const BlockCosts* block = block_of(plan);
  thread_local Stages stages;
  if (!block || !assign_sections(plan, stages)) return std::nullopt;
  const PipelineClock& clock = clock_of(plan);
  if (!clock.valid()) return std::nullopt;
  Composition made;
  made.budget = budget_;
  const Need need = memory_of(plan, *block, stages, clock.table());
  made.memory = need.memory;
  made.saved = need.saved;
  if (!made.fits() && bound_above > 0) return made;
  set_times(plan, *block, data_of(plan, *block), stages, clock, bound_above, made);
  return made;
}

std::optional<StageComposition> Composer::compose_stage(const HybridPlan& plan, std::span<const std::int32_t> sections,
                                                        std::int32_t in_flight) const {
  HybridPlan alone = plan;
  alone.pp = alone.vpp = 1;
  alone.schedule = PlanSchedule::OneForwardOneBackward;
  const BlockCosts* block = block_of(alone);
  if (!block) return std::nullopt;
  const PipelineClock& clock = clock_of(alone);
  if (!clock.valid()) return std::nullopt;
  thread_local Stages stages;
  stages.sections.resize(1);
  stages.sections.front().assign(sections.begin(), sections.end());
  Composition whole;
  set_times(alone, *block, data_of(alone, *block), stages, clock, 0, whole);
  StageComposition made;
  made.micro_batch_s = (whole.compute_s + whole.communication_s) / plan.micro_batches;
  made.once_s = whole.step_s - whole.compute_s - whole.communication_s;
  made.boundary_bytes = block->boundary_bytes;
  // Among other stages: with a communicator for transfers, and with a tied embedding in the last one too.
  const bool copy = problem_.model().tied_embeddings && sections.front() != 0 &&
                    sections.back() == static_cast<std::int32_t>(block->kinds.size()) + 1;
  if (copy) stages.sections.front().insert(stages.sections.front().begin(), 0);
  alone.pp = 2;
  made.memory = memory_of(alone, *block, stages, clock.table(), in_flight).memory;
  return made;
}

}  // namespace weft
