#include "hybrid/compose.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <set>
#include <utility>

#include "base/check.h"
#include "forecast/memory.h"
#include "problem/parallel.h"

namespace weft {
namespace {

constexpr double kShortSpan = 0.02;  // of a pass: communication that is not looked at by itself

}  // namespace

Composer::Composer(const PlanProblem& problem, const CostModel& cost)
    : problem_(problem),
      cost_(cost),
      interference_(cost.interference(problem.cluster().spec(DeviceId(0)))),
      groups_(problem, cost) {
  const Bytes budget = problem.job->memory_budget_of(problem.device_at(0));
  budget_ = budget.value > 0 ? budget.value : std::numeric_limits<std::int64_t>::max();
}

BlockShape Composer::shape_of(const HybridPlan& plan) {
  // Where something is computed again and gathered, programs of schedules that split backward are not the others'.
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

const ReplicaData& Composer::data_of(const HybridPlan& plan, const BlockCosts& block) const {
  const DataKey key{plan.tp, plan.cp, plan.ep, plan.dp, plan.zero, plan.copies, plan.sequence_parallel};
  const std::lock_guard lock(mutex_);
  std::unique_ptr<const ReplicaData>& known = data_[key];
  if (!known) known = std::make_unique<ReplicaData>(make_replica_data(problem_, groups_, plan, block));
  return *known;
}

Beside Composer::device_sharing(const std::vector<ComputeShare>& shares, const ReplicaData& data) const {
  const auto one = static_cast<double>(kOne);
  const DeviceLoad said{data.sm_share, data.memory_share, 0};
  double alone = 0, beside = 0, moved = 0;
  for (const ComputeShare& share : shares) {
    const DeviceLoad load{share.sm_share, share.memory_share, share.waves};
    const double takes = share.time * one / compute_speed(interference_, load, said);
    alone += share.time;
    beside += takes;
    moved += takes * communication_speed(interference_, load, said) / one;
  }
  return alone > 0 ? Beside{alone / beside, moved / beside} : Beside{};
}

const std::vector<Composer::BesideData>& Composer::device_sharing(const BlockCosts& block,
                                                                  const ReplicaData& data) const {
  const std::lock_guard lock(mutex_);
  std::vector<BesideData>& known = device_sharing_[{&block, data.sm_share, data.memory_share}];
  if (!known.empty()) return known;
  const auto add = [&](const SectionCost& of) {
    known.push_back({device_sharing(of.forward_shares, data), device_sharing(of.backward_shares, data)});
  };
  add(block.before);
  for (const SectionCost& kind : block.kinds) add(kind);
  add(block.after);
  return known;
}

const std::vector<Composer::BesideData>& Composer::sharing_of(const BlockCosts& block, const ReplicaData& data) const {
  const std::vector<BesideData>& device = device_sharing(block, data);
  const std::lock_guard lock(mutex_);
  std::vector<BesideData>& known = sharing_[{&block, &data}];
  if (!known.empty()) return known;
  // What communication inside a section leaves to the replicas' and they to it.
  const auto share = [&](const LinkLoads& inside) {
    Beside beside{0, 0};
    for (const ReplicaData::Step& step : data.steps) {
      const Sharing sharing = share_links(inside, step.links);
      beside.compute += step.part * sharing.one;
      beside.say += step.part * sharing.other;
    }
    return data.steps.empty() ? Beside{} : beside;
  };
  const auto add_pass = [&](double takes, double compute, Beside own, const std::vector<Communicating>& said,
                            const std::vector<Beside>& loads, std::vector<StreamSpan>& spans) {
    if (takes <= 0) return Beside{};
    double say = data.steps.empty() ? 1 : 0;
    for (const ReplicaData::Step& step : data.steps) say += step.part * std::min(1.0, own.say * step.spare);
    double rest = takes, longer = 0, lost = 0;  // seconds that are in no span
    for (const Communicating& each : said) {
      const Beside& beside = loads[each.loads];
      const double start = std::max(each.start, spans.empty() ? 0 : spans.back().end), end = each.start + each.takes;
      if (end <= start || beside.compute + beside.say >= 2) continue;
      const bool short_one = end - start < kShortSpan * takes;
      if (short_one) {  // counted in the mean
        longer += (end - start) * (1 / beside.compute - 1);
        lost += (end - start) / beside.compute * (1 - beside.say);
      } else {
        spans.push_back({start, end, beside});
        rest -= end - start;
      }
    }
    compute = std::min(compute, rest);
    longer += compute * (1 / own.compute - 1);
    lost += compute / own.compute * (1 - say);
    rest = std::max(rest, 1e-12);
    return Beside{rest / (rest + longer), std::max(1.0 / 64, 1 - lost / (rest + longer))};
  };
  const auto add = [&](const SectionCost& of) {
    const BesideData& alone = device[known.size()];
    std::vector<Beside> loads;
    for (const LinkLoads& each : of.loads) loads.push_back(share(each));
    BesideData& made = known.emplace_back();
    made.forward = add_pass(of.forward, of.compute_forward, alone.forward, of.forward_said, loads, made.forward_spans);
    made.backward =
        add_pass(of.backward, of.compute_backward, alone.backward, of.backward_said, loads, made.backward_spans);
  };
  add(block.before);
  for (const SectionCost& kind : block.kinds) add(kind);
  add(block.after);
  return known;
}

namespace {

// What a pass over a stage leaves behind, and the most above what was held before it.
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

Composer::Need Composer::memory_of(const HybridPlan& plan, const BlockCosts& block, const Stages& stages,
                                   const PipelineTable& table) const {
  const ReplicaGroups groups = replica_groups(plan);
  const auto sections = static_cast<std::int32_t>(block.kinds.size()) + 2;
  const auto at = [&](std::int32_t i) -> const SectionCost& {
    return i == 0 ? block.before : i + 1 == sections ? block.after : block.kinds[static_cast<std::size_t>(i) - 1];
  };
  const SoftwareStack& stack = problem_.stack();
  const bool tied = problem_.model().tied_embeddings && plan.pp > 1;
  int communicators = (plan.tp > 1) + (plan.pp > 1) + (tied ? 1 : 0);
  // Of activations over the context, of tokens over the experts, of gradients over all replicas (dense ones, and those
  // of experts) and over the copies.
  communicators += plan.cp > 1;
  communicators += plan.ep > 1;
  communicators += groups.shards() > std::max(plan.cp, plan.ep);
  communicators += plan.ep > 1 && groups.expert_shards() > 1;
  communicators += plan.copies > 1;
  const bool one_axis =
      plan.tp == problem_.devices || plan.dp / plan.copies == problem_.devices || plan.cp == problem_.devices;
  if (problem_.devices > 1 && !one_axis) ++communicators;  // of all devices
  const MemoryOverheads& overheads = memory_overheads();
  // What a device keeps of a section, spread as the plan says.
  struct Kept {
    HeldBytes held;
    std::int64_t elements = 0, unit = 0;
  };
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
      made.held.optimizer.value += plan.zero >= 1 ? kept.optimizer / shards : kept.optimizer;
      made.elements +=
          (expert ? section.stored_expert_elements : section.stored_elements) / (plan.zero >= 3 ? shards : 1);
    }
    if (i > 0 && i + 1 < sections) made.unit = section.dense.parameters + section.expert.parameters;
  }
  Need fullest;
  for (int rank = 0; rank < table.ranks(); ++rank) {
    HeldBytes held;
    std::int64_t largest_unit = 0, saved_all = 0, above = 0, elements = 0;
    const auto keep = [&](std::int32_t section) {
      const Kept& kept = kept_of[static_cast<std::size_t>(section)];
      held.parameters += kept.held.parameters;
      held.gradients += kept.held.gradients;
      held.optimizer += kept.held.optimizer;
      elements += kept.elements;
      largest_unit = std::max(largest_unit, kept.unit);
    };
    thread_local std::vector<Chunk> chunks;
    chunks.clear();
    for (int chunk = 0; chunk < table.chunks(); ++chunk) {
      const int stage = table.stage_at(rank, chunk);
      const std::vector<std::int32_t>& list = stages.sections[static_cast<std::size_t>(stage)];
      for (std::int32_t section : list) keep(section);
      if (tied && stage + 1 == plan.pp * plan.vpp) keep(0);
      Chunk& of = chunks.emplace_back();
      for (std::int32_t section : list) of.forward.add(at(section).most_forward, at(section).net_forward);
      const bool split = !table.in_flight_split(rank).empty();
      for (auto section = list.rbegin(); section != list.rend(); ++section) {
        const SectionCost& cost = at(*section);
        if (!split) of.backward.add(cost.most_backward, -cost.net_forward);
        if (split) of.input.add(cost.most_input, cost.net_input);
        if (split) of.weight.add(cost.most_weight, -cost.net_forward - cost.net_input);
      }
    }
    if (table.in_flight_split(rank).empty()) {
      const std::vector<std::int32_t>& in_flight = table.in_flight(rank);
      for (std::size_t chunk = 0; chunk < chunks.size(); ++chunk) {
        const Chunk& of = chunks[chunk];
        // A table may be a short one that stands for many micro-batches; GPipe keeps them all.
        saved_all += (plan.schedule == PlanSchedule::GPipe ? plan.micro_batches : in_flight[chunk]) * of.forward.net;
        // Above all that is in flight: in the forward pass of the last, in the backward pass of the first.
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
    if (plan.zero >= 3 && groups.shards() > 1)
      held.buffers.value += std::max(1, stack.gathers_in_flight.value) * largest_unit;
    // Flat copies of a spread optimizer, by the parameters that the device holds.
    const std::int64_t beside = plan.zero > 0 ? elements * stack.kept_per_parameter.value : 0;
    const std::int64_t total = reserved_estimate(held).value + beside + overheads.context.value.value +
                               overheads.communicator.value.value * communicators;
    if (total > fullest.memory) fullest = {total, saved_all};
  }
  return fullest;
}

// From every device to the one `distance` ranks further. What a group of them in one node will hold alike may be sent
// to each in part, while they gather it from one another.
double Composer::sent(std::int64_t distance, std::int64_t bytes, const StridedGroup& alike) const {
  const StridedGroup gathering = problem_.stack().p2p_in_parts.value ? alike : StridedGroup{};
  const std::lock_guard lock(mutex_);
  const auto [found, fresh] = transfers_.try_emplace({distance, bytes, gathering}, 0);
  if (fresh)
    found->second = std::max(groups_.transfer(distance, bytes / gathering.size).seconds,
                             groups_.collective(Collective::AllGather, gathering, bytes).seconds);
  return found->second;
}

struct Composer::StageWork {
  struct Effective {
    double forward, input, weight, slow;
  };
  std::vector<Effective> sections;
  std::vector<StageTimes> stages;
  std::vector<StreamTimes> streams;  // of stages whose replicas talk in every micro-batch; empty: they do not
  double transfer = 0;               // between stages, where nobody waits for it
};

// Of the time of adding to gradients, what a micro-batch saves on the average: in the first, sums begin.
double Composer::begun(const HybridPlan& plan, const SectionCost& cost) { return cost.accumulate / plan.micro_batches; }

void Composer::play_replicas(const HybridPlan& plan, const BlockCosts& block, const ReplicaData& data,
                             const Stages& stages, StageWork& work) const {
  const SoftwareStack& stack = problem_.stack();
  const auto sections = static_cast<std::int32_t>(block.kinds.size()) + 2;
  const auto at = [&](std::int32_t i) -> const SectionCost& {
    return i == 0 ? block.before : i + 1 == sections ? block.after : block.kinds[static_cast<std::size_t>(i) - 1];
  };
  const ReplicaGroups groups = replica_groups(plan);
  const std::vector<BesideData>& sharing = sharing_of(block, data);
  const bool overlap = stack.gradient_overlap.value;
  thread_local std::vector<StreamSection> streamed;
  streamed.resize(static_cast<std::size_t>(sections));
  for (std::int32_t i = 0; i < sections; ++i) {
    const SectionCost& cost = at(i);
    const SectionData& said = data.sections[static_cast<std::size_t>(i)];
    StreamSection& made = streamed[static_cast<std::size_t>(i)];
    made.forward = cost.forward;
    made.backward = cost.backward - cost.accumulate;
    made.forward_beside = sharing[static_cast<std::size_t>(i)].forward;
    made.backward_beside = sharing[static_cast<std::size_t>(i)].backward;
    made.forward_spans = sharing[static_cast<std::size_t>(i)].forward_spans;
    made.backward_spans = sharing[static_cast<std::size_t>(i)].backward_spans;
    // What was reduced is added in parts, on the stream that reduced it or, where computation waits for it, by that.
    const double adds = (cost.accumulate - begun(plan, cost)) / static_cast<double>(groups.shards());
    if (!overlap) made.adds = adds;
    made.forward_done = cost.forward_done;
    made.backward_done = std::min(cost.backward_done, made.backward);
    made.gathers.clear();
    made.reduces.clear();
    if (plan.zero == 3)
      for (const SaidPiece& piece : said.gathers) {
        StreamGather& of = made.gathers.emplace_back();
        of.forward = piece.seconds;
        if (stack.reshard_after_forward.value && i > 0) of.backward = piece.seconds;
        of.forward_use = of.backward_use = std::numeric_limits<double>::infinity();
        for (std::int32_t parameter : piece.parameters) {
          const ParameterCost& each = cost.parameters[static_cast<std::size_t>(parameter)];
          of.forward_use = std::min(of.forward_use, each.forward_use);
          of.backward_use = std::min(of.backward_use, each.backward_use);
        }
      }
    for (const SaidPiece& piece : said.reduces) {
      StreamReduce& of = made.reduces.emplace_back();
      of.takes = piece.seconds;
      if (overlap) of.takes += adds * piece.seconds / said.reduce;
      for (std::int32_t parameter : piece.parameters)
        of.ready = std::max(of.ready, cost.parameters[static_cast<std::size_t>(parameter)].backward_ready);
      of.ready = std::min(of.ready, made.backward);
    }
  }
  // What belongs to no layer is a unit of its own: gathered at the beginning, reduced in the end.
  const bool rest = plan.zero == 3 && stages.sections.size() == 1;
  if (rest) {
    StreamSection &first = streamed.front(), &last = streamed.back();
    if (problem_.model().tied_embeddings && stack.reshard_after_forward.value)
      for (const StreamGather& piece : first.gathers) last.gathers.push_back({0, piece.forward, 0, 0});
    for (StreamGather& piece : last.gathers)
      if (piece.forward > 0) first.gathers.push_back({std::exchange(piece.forward, 0), 0, 0, 0});
    for (const StreamReduce& piece : last.reduces) first.reduces.push_back({piece.takes, first.backward});
    last.reduces.clear();
  }
  const StreamRules rules{stack.prefetch_forward.value, stack.prefetch_backward.value, stack.gathers_in_flight.value,
                          overlap, rest};
  const int micro_batches = stages.sections.size() == 1 ? plan.micro_batches : std::min(plan.micro_batches, 2);
  for (std::size_t stage = 0; stage < stages.sections.size(); ++stage) {
    const bool same = stage > 0 && stages.sections[stage] == stages.sections[stage - 1];
    work.streams.push_back(same ? work.streams.back()
                                : play_streams(streamed, stages.sections[stage], rules, micro_batches));
    double weight = 0;
    for (std::int32_t section : stages.sections[stage]) weight += at(section).backward_weight;
    const StreamTimes& of = work.streams.back();
    weight = std::min(weight, 0.9 * of.backward);
    StageTimes& times = work.stages[stage];
    times.forward = of.forward;
    times.backward_input = of.backward - weight;
    times.backward_weight = weight;
  }
}

const Composer::StageWork& Composer::work_of(const HybridPlan& plan, const BlockCosts& block, const ReplicaData& data,
                                             const Stages& stages) const {
  const SoftwareStack& stack = problem_.stack();
  const auto sections = static_cast<std::int32_t>(block.kinds.size()) + 2;
  const auto at = [&](std::int32_t i) -> const SectionCost& {
    return i == 0 ? block.before : i + 1 == sections ? block.after : block.kinds[static_cast<std::size_t>(i) - 1];
  };
  const bool spread = plan.dp * plan.cp > 1;
  thread_local StageWork work;
  std::vector<StageWork::Effective>& effective = work.sections;
  effective.clear();
  work.streams.clear();
  const std::vector<BesideData>* const sharing = spread && plan.zero < 2 ? &device_sharing(block, data) : nullptr;
  for (std::int32_t i = 0; i < sections; ++i) {
    const SectionCost& cost = at(i);
    double slow = 1;
    if (sharing && cost.backward > 0)
      slow += (1 / (*sharing)[static_cast<std::size_t>(i)].backward.compute - 1) *
              std::min(1.0, cost.compute_backward / cost.backward);
    const double backward = cost.backward - begun(plan, cost);
    const double weight = std::min(std::max(0.0, cost.backward_weight - begun(plan, cost)), 0.9 * backward);
    effective.push_back({cost.forward, backward - weight, weight, slow});
  }

  std::vector<StageTimes>& times = work.stages;
  times.assign(stages.sections.size(), {});
  if (spread && plan.zero >= 2) {
    play_replicas(plan, block, data, stages, work);
  } else {
    for (std::size_t stage = 0; stage < times.size(); ++stage)
      for (std::int32_t section : stages.sections[stage]) {
        const StageWork::Effective& of = effective[static_cast<std::size_t>(section)];
        times[stage].forward += of.forward;
        times[stage].backward_input += of.input;
        times[stage].backward_weight += of.weight;
      }
  }
  for (std::size_t stage = 0; stage < times.size(); ++stage)
    times[stage].backward_head = at(stages.sections[stage].back()).recompute_head;
  double& transfer = work.transfer;
  transfer = 0;
  if (plan.pp > 1) {
    transfer = sent(problem_.devices / plan.pp, block.boundary_bytes, {plan.sequence_parallel ? 1 : plan.tp, 1});
    if (!stack.p2p_overlap.value)  // who sends waits
      for (std::size_t stage = 0; stage < times.size(); ++stage) {
        if (stage + 1 < times.size()) times[stage].forward += transfer;
        if (stage > 0) times[stage].backward_input += transfer;
      }
    if (!stack.p2p_overlap.value) transfer = 0;  // in the sender's time
  }
  return work;
}

void Composer::set_times(const HybridPlan& plan, const BlockCosts& block, const ReplicaData& data, const Stages& stages,
                         const PipelineClock& clock, double bound_above, Composition& made) const {
  const SoftwareStack& stack = problem_.stack();
  const PipelineTable& table = clock.table();
  const auto sections = static_cast<std::int32_t>(block.kinds.size()) + 2;
  const auto at = [&](std::int32_t i) -> const SectionCost& {
    return i == 0 ? block.before : i + 1 == sections ? block.after : block.kinds[static_cast<std::size_t>(i) - 1];
  };
  const bool spread = plan.dp * plan.cp > 1;
  made.bound_s = bound_of(plan, block, data, stages, table, 1);
  if (bound_above > 0 && made.bound_s > bound_above) return;
  const StageWork& stage_work = work_of(plan, block, data, stages);
  const std::vector<StageWork::Effective>& effective = stage_work.sections;
  const std::vector<StageTimes>& times = stage_work.stages;

  const double micro_batches = plan.micro_batches;
  double busiest = 0, exposed_data = 0;
  thread_local std::vector<double> work;  // of a rank and micro-batch
  work.assign(static_cast<std::size_t>(table.ranks()), 0);
  for (int rank = 0; rank < table.ranks(); ++rank) {
    double& own = work[static_cast<std::size_t>(rank)];
    for (int chunk = 0; chunk < table.chunks(); ++chunk) {
      const StageTimes& of = times[static_cast<std::size_t>(table.stage_at(rank, chunk))];
      own += of.forward + of.backward_input + of.backward_weight;
    }
    busiest = std::max(busiest, own);
  }

  thread_local PipelineTimes played;
  if (!stage_work.streams.empty() && times.size() == 1) {
    const double all = stage_work.streams.front().all;
    played = {all, {all}, {all}, {times.front().backward_input + times.front().backward_weight}};
    busiest = work.front() = all / micro_batches;
  } else {
    clock.play(times, stage_work.transfer, played);
  }

  // A table that the first and the last stage have is summed after the backward pass, by both, and exchanged.
  const int last_stage = static_cast<int>(stages.sections.size()) - 1;
  const auto rank_of = [&](int stage) {
    for (int place = 0; place < table.ranks() * table.chunks(); ++place)
      if (table.stage_at(place / table.chunks(), place % table.chunks()) == stage) return place / table.chunks();
    return 0;
  };
  const int first_rank = rank_of(0), last_rank = rank_of(last_stage);
  const bool tied = problem_.model().tied_embeddings && first_rank != last_rank && block.before.dense.gradients > 0;
  double summed = 0;

  // Gradients: reduced beside the last micro-batch's backward pass, or after it.
  const ReplicaGroups groups = replica_groups(plan);
  double finish = 0, step_tail = 0;
  for (int rank = 0; rank < table.ranks(); ++rank) {
    double data_free = 0, end = played.rank_end[static_cast<std::size_t>(rank)], optimizer = 0, gather = 0;
    int operators = 0;
    thread_local std::vector<std::pair<double, int>> order;
    order.clear();
    for (int chunk = 0; chunk < table.chunks(); ++chunk)
      order.emplace_back(played.chunk_end[static_cast<std::size_t>(rank * table.chunks() + chunk)], chunk);
    std::sort(order.begin(), order.end());
    double late = 0;
    const bool split = !table.in_flight_split(rank).empty();  // the last pass has the weights' part alone
    for (const auto& [chunk_end, chunk] : order) {
      const auto place = static_cast<std::size_t>(rank * table.chunks() + chunk);
      const auto& list = stages.sections[static_cast<std::size_t>(table.stage_at(rank, chunk))];
      double now = chunk_end - played.chunk_last[place] + late;
      for (auto section = list.rbegin(); section != list.rend(); ++section) {
        const StageWork::Effective& of = effective[static_cast<std::size_t>(*section)];
        const SectionData& said = data.sections[static_cast<std::size_t>(*section)];
        const double alone = split ? of.weight : of.input + of.weight;
        const double busy = std::clamp(data_free - now, 0.0, alone);
        const double extra = plan.zero < 2 ? busy * (of.slow - 1) / std::max(of.slow, 1.0) : 0;
        now += alone + extra;
        late += extra;
        if (spread && plan.zero < 2 && !(tied && *section == 0))
          data_free = std::max(stack.gradient_overlap.value ? now : end + late, data_free) + said.reduce;
        const SectionCost& cost = at(*section);
        optimizer += cost.optimizer;
        operators += cost.optimizer_operators;
        gather += said.gather;
      }
      if (!stage_work.streams.empty())
        data_free = std::max(data_free,
                             chunk_end + stage_work.streams[static_cast<std::size_t>(table.stage_at(rank, chunk))].lag);
    }
    end += late;
    if (tied && (rank == first_rank || rank == last_rank)) {
      data_free = std::max(end, data_free) + data.tied_reduce;
      summed = std::max(summed, data_free);
      if (rank == last_rank) {
        optimizer += block.before.optimizer;
        operators += block.before.optimizer_operators;
      }
    }
    finish = std::max(finish, std::max(end, data_free));
    exposed_data = std::max(exposed_data, std::max(0.0, data_free - end));
    double step = plan.zero > 0 ? optimizer / static_cast<double>(groups.shards()) : optimizer;
    if (!stack.graph_capture.value) step = std::max(step, operators * stack.host_per_operator.value.value);
    if (plan.zero == 1 || plan.zero == 2) {
      // Buckets are gathered while others are still updated.
      if (spread) step = std::max(step, gather) + 0.25 * std::min(step, gather);
    }
    step_tail = std::max(step_tail, step);
  }
  if (tied) {
    const std::int64_t of_stage = problem_.devices / plan.pp;
    const StridedGroup replicas{of_stage <= problem_.per_node ? plan.dp * plan.cp : 1, plan.tp};
    // The last stage is done first: what it sends arrives while the first one still reduces, over the same links.
    const double ways = spread ? 2 : 1;
    const double exchanged =
        summed + ways * sent((last_rank - first_rank) * of_stage, block.before.dense.gradients, replicas);
    exposed_data += std::max(0.0, exchanged - finish);
    finish = std::max(finish, exchanged);
  }
  const double norm = data.whole_world + block.step_fixed;
  made.step_s = finish + norm + step_tail;
  made.optimizer_s = norm + step_tail;
  made.data_s = exposed_data;
  const auto busiest_rank = static_cast<int>(std::max_element(work.begin(), work.end()) - work.begin());
  for (int chunk = 0; chunk < table.chunks(); ++chunk)
    for (std::int32_t section : stages.sections[static_cast<std::size_t>(table.stage_at(busiest_rank, chunk))])
      made.compute_s +=
          micro_batches * (at(section).compute_forward + at(section).compute_backward) - at(section).accumulate;
  made.communication_s = micro_batches * busiest - made.compute_s;
  made.bubble_s = played.makespan - micro_batches * busiest;
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

bool Composer::deal_sections(const HybridPlan& plan, Stages& stages) const {
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
  if (!block || !deal_sections(plan, stages)) return std::nullopt;
  const PipelineClock& clock = clock_of(plan);
  if (!clock.valid()) return std::nullopt;
  return memory_of(plan, *block, stages, clock.table()).memory;
}

std::optional<Composition> Composer::compose(const HybridPlan& plan, double bound_above) const {
  const BlockCosts* block = block_of(plan);
  thread_local Stages stages;
  if (!block || !deal_sections(plan, stages)) return std::nullopt;
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

}  // namespace weft
