#include "hybrid/compose.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include "problem/parallel.h"

namespace weft {

namespace {

// Every device of a node copies to the host at once.
double host_rate(const PlanProblem& problem) {
  const Cluster& cluster = problem.cluster();
  std::map<LinkId, int> users;
  std::vector<LinkId> path;
  for (std::int64_t rank = 0; rank < problem.per_node; ++rank) {
    path.clear();
    cluster.append_host_path(problem.device_at(rank), path);
    for (LinkId link : path) ++users[link];
  }
  double rate = std::numeric_limits<double>::infinity();
  for (const auto& [link, count] : users) rate = std::min(rate, cluster.link(link).bandwidth.value / count);
  return rate;
}

}  // namespace

Composer::Composer(const PlanProblem& problem, const CostModel& cost)
    : problem_(problem),
      cost_(cost),
      interference_(cost.interference(problem.cluster().spec(problem.device_at(0)))),
      groups_(problem, cost) {
  const Bytes budget = problem.job->memory_budget_of(problem.device_at(0));
  budget_ = budget.value > 0 ? budget.value : std::numeric_limits<std::int64_t>::max();
  host_rate_ = host_rate(problem);
}

BlockShape Composer::shape_of(const HybridPlan& plan) {
  // Recomputation that gathers activations compiles differently in schedules that split the backward pass.
  const bool split = splits_backward(plan.schedule);
  const bool differs = split && plan.recompute != PlanRecompute::None && plan.tp * plan.cp > 1;
  return {plan.tp, plan.cp, plan.ep, plan.micro_batch, plan.sequence_parallel, plan.recompute, plan.cp_mode, differs};
}

void Composer::prepare(std::span<const HybridPlan> plans, int threads, const SearchClock* clock) {
  std::set<BlockShape> fresh;
  for (const HybridPlan& plan : plans)
    if (const BlockShape shape = shape_of(plan); !blocks_.contains(shape)) fresh.insert(shape);
  const std::vector<BlockShape> shapes(fresh.begin(), fresh.end());
  std::vector<std::optional<BlockCosts>> found(shapes.size());
  std::vector<char> probed(shapes.size(), 0);
  for_each_index(shapes.size(), threads, 1, [&](std::size_t i) {
    if (clock && clock->after(0) != StoppedBy::Itself) return;
    probed[i] = 1;
    if (Result<BlockCosts> costs = probe_block(problem_, cost_, shapes[i], graphs_); costs.ok())
      found[i] = std::move(costs).value();
  });
  for (std::size_t i = 0; i < shapes.size(); ++i)
    if (probed[i]) blocks_.emplace(shapes[i], std::move(found[i]));
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

bool Composer::assign_sections(const HybridPlan& plan, const BlockCosts& block, Stages& stages) const {
  const std::int64_t count = std::int64_t{plan.pp} * plan.vpp;
  if (!composes(plan)) return false;
  stages.sections.resize(static_cast<std::size_t>(count));
  stages.sent.assign(static_cast<std::size_t>(count), 0);
  for (std::vector<std::int32_t>& list : stages.sections) list.clear();
  if (count == 1) {
    for (const Section& section : problem_.layers.sections) stages.sections.front().push_back(section.kind);
    return true;
  }
  const std::vector<std::int64_t> layers = stage_layers(problem_.layers, count, plan.split);
  if (layers.empty()) return false;
  thread_local std::vector<std::int64_t> first_after;  // by stage: the first layer of a later one
  first_after.clear();
  for (const std::int64_t of : layers) first_after.push_back(of + (first_after.empty() ? 0 : first_after.back()));
  std::size_t stage = 0;
  for (const Section& section : problem_.layers.sections) {
    std::size_t of = stage;
    if (section.layer < 0) {
      of = 0;
      if (layers.front() == 0)  // nothing but such pieces
        stages.sent.front() =
            std::max(stages.sent.front(), block.kinds[static_cast<std::size_t>(section.kind)].sent_bytes);
    } else if (section.layer >= problem_.layers.count()) {
      of = stages.sections.size() - 1;
    } else {
      while (section.layer >= first_after[stage]) ++stage;
      of = stage;
      stages.sent[of] = block.kinds[static_cast<std::size_t>(section.kind)].sent_bytes;
    }
    stages.sections[of].push_back(section.kind);
  }
  return true;
}

bool Composer::shares_table(const PipelineTable& table) const {
  const auto rank_of = [&](int stage) {
    for (int place = 0; place < table.ranks() * table.chunks(); ++place)
      if (table.stage_at(place / table.chunks(), place % table.chunks()) == stage) return place / table.chunks();
    return 0;
  };
  return problem_.model().tied_embeddings && rank_of(0) != rank_of(table.ranks() * table.chunks() - 1);
}

const Composer::RankBuckets& Composer::buckets_of(const HybridPlan& plan, const DataParallelCosts& data,
                                                  const Stages& stages, const PipelineTable& table) const {
  const std::lock_guard lock(mutex_);
  const auto [found, fresh] =
      buckets_.try_emplace(std::tuple(&data, plan.schedule, plan.pp, plan.vpp, plan.split, stages.part), RankBuckets());
  RankBuckets& made = found->second;
  if (!fresh || plan.dp * plan.cp == 1 || plan.zero >= 2) return made;
  // The gradient of a table that two ranks share is exchanged by them instead.
  const std::int32_t left_out = shares_table(table) ? problem_.layers.sections.front().kind : -1;
  std::vector<const std::vector<std::int32_t>*> chunks;
  for (int rank = 0; rank < table.ranks(); ++rank) {
    chunks.clear();
    for (int chunk = 0; chunk < table.chunks(); ++chunk)
      chunks.push_back(&stages.sections[static_cast<std::size_t>(table.stage_at(rank, chunk))]);
    made.push_back(gradient_buckets(problem_.stack(), groups_, data, chunks, left_out));
  }
  return made;
}

std::optional<std::int64_t> Composer::memory(const HybridPlan& plan) const {
  const BlockCosts* block = block_of(plan);
  thread_local Stages stages;
  if (!block || !assign_sections(plan, *block, stages)) return std::nullopt;
  const PipelineClock& clock = clock_of(plan);
  if (!clock.valid()) return std::nullopt;
  return memory_of(plan, *block, stages, clock.table()).memory;
}

std::vector<std::int64_t> Composer::memory_by_rank(const HybridPlan& plan) const {
  const BlockCosts* block = block_of(plan);
  thread_local Stages stages;
  if (!block || !assign_sections(plan, *block, stages)) return {};
  const PipelineClock& clock = clock_of(plan);
  if (!clock.valid()) return {};
  std::vector<Need> needs;
  memory_of_ranks(plan, *block, stages, clock.table(), 0, needs);
  std::vector<std::int64_t> found;
  for (const Need& each : needs) found.push_back(each.memory);
  return found;
}

std::optional<Composition> Composer::compose(const HybridPlan& plan, double bound_above) const {
  const BlockCosts* block = block_of(plan);
  thread_local Stages stages;
  if (!block || !assign_sections(plan, *block, stages)) return std::nullopt;
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
  stages.sent.assign(1, 0);
  stages.part = stages.sections.front();
  Composition whole;
  set_times(alone, *block, data_of(alone, *block), stages, clock, 0, whole);
  StageComposition made;
  made.micro_batch_s = (whole.compute_s + whole.communication_s) / plan.micro_batches;
  made.once_s = whole.step_s - whole.compute_s - whole.communication_s;
  made.boundary_bytes = block->kinds[static_cast<std::size_t>(sections.back())].sent_bytes;
  // Among other stages: with a communicator for transfers, and with a tied embedding in the last one too.
  const std::int32_t table = problem_.layers.sections.front().kind;
  const bool copy = problem_.model().tied_embeddings && sections.front() != table &&
                    sections.back() == problem_.layers.sections.back().kind;
  if (copy) stages.sections.front().insert(stages.sections.front().begin(), table);
  alone.pp = 2;
  made.memory = memory_of(alone, *block, stages, clock.table(), in_flight).memory;
  return made;
}

}  // namespace weft
