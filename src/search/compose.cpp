#include "search/compose.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <set>

#include "base/check.h"
#include "forecast/memory.h"
#include "search/parallel.h"

namespace weft {
namespace {

// Mesh axes that gradients are summed over, in the order in which they are.
struct Chain {
  std::vector<GroupShape> axes;

  std::int64_t size() const {
    std::int64_t product = 1;
    for (const GroupShape& axis : axes) product *= axis.size;
    return product;
  }
};

struct Chains {
  Chain dense, expert;
  GroupShape copies;  // of what is spread: sums of parts are added up over them
};

// Ranks are numbered tp, cp, ep, dp, copies, innermost first; ep is a part of dp, beyond that of cp.
Chains chains_of(const HybridPlan& plan) {
  const std::int64_t ep_of_dp = std::gcd<std::int64_t>(plan.ep, plan.dp), ep_of_cp = plan.ep / ep_of_dp;
  const std::int64_t tp = plan.tp, cp = plan.cp;
  const GroupShape copies{plan.copies, tp * cp * plan.dp / plan.copies};
  const GroupShape data{plan.dp / ep_of_dp / plan.copies, tp * cp * ep_of_dp}, experts{ep_of_dp, tp * cp};
  const GroupShape context{cp / ep_of_cp, tp * ep_of_cp}, expert_context{ep_of_cp, tp};
  return {{{data, experts, context, expert_context}}, {{data, context}}, copies};
}

}  // namespace

// The sections of every stage. Indices: 0 before the layers, 1 + kind, the last after them.
struct Composer::Stages {
  std::vector<std::vector<std::int32_t>> sections;
};

Composer::Composer(const PlanProblem& problem, const CostModel& cost, double headroom)
    : problem_(problem),
      cost_(cost),
      interference_(cost.interference(problem.cluster.spec(DeviceId(0)))),
      groups_(problem, cost) {
  const DeviceSpec& spec = problem.cluster.spec(DeviceId(0));
  const Bytes capacity = spec.memory_usable.value.value > 0 ? spec.memory_usable.value : spec.memory.value;
  budget_ = capacity.value > 0 ? static_cast<std::int64_t>(static_cast<double>(capacity.value) * (1 - headroom))
                               : std::numeric_limits<std::int64_t>::max();
}

BlockShape Composer::shape_of(const HybridPlan& plan) {
  return {plan.tp, plan.cp, plan.ep, plan.micro_batch, plan.sequence_parallel, plan.recompute, plan.cp_mode};
}

void Composer::prepare(std::span<const HybridPlan> plans, int threads) {
  std::set<BlockShape> fresh;
  for (const HybridPlan& plan : plans)
    if (const BlockShape shape = shape_of(plan); !blocks_.contains(shape)) fresh.insert(shape);
  const std::vector<BlockShape> shapes(fresh.begin(), fresh.end());
  std::vector<std::optional<BlockCosts>> found(shapes.size());
  for_each_index(shapes.size(), threads, 1, [&](std::size_t i) {
    if (Result<BlockCosts> costs = probe_block(problem_, cost_, shapes[i], plans_); costs.ok())
      found[i] = std::move(costs).value();
  });
  for (std::size_t i = 0; i < shapes.size(); ++i) blocks_.emplace(shapes[i], std::move(found[i]));
}

const Composer::Data& Composer::data_of(const HybridPlan& plan, const BlockCosts& block) const {
  const DataKey key{plan.tp, plan.cp, plan.ep, plan.dp, plan.zero, plan.copies};
  const std::lock_guard lock(mutex_);
  std::unique_ptr<const Data>& known = data_[key];
  if (!known) known = std::make_unique<Data>(make_data(plan, block));
  return *known;
}

Composer::Data Composer::make_data(const HybridPlan& plan, const BlockCosts& block) const {
  const Chains chains = chains_of(plan);
  const SoftwareStack& stack = problem_.stack;
  Data data;
  const auto add = [&](GroupCost::Taken taken) {
    data.sm_share = std::max(data.sm_share, taken.sm_share);
    data.memory_share = std::max(data.memory_share, taken.memory_share);
    return taken.seconds;
  };
  const auto reduce = [&](std::int64_t bytes, const Chain& chain) {
    double seconds = 0;
    for (const GroupShape& axis : chain.axes) {
      seconds +=
          add(groups_.collective(plan.zero > 0 ? Collective::ReduceScatter : Collective::AllReduce, axis, bytes));
      if (plan.zero > 0) bytes /= axis.size;
    }
    if (plan.copies > 1) seconds += add(groups_.collective(Collective::AllReduce, chains.copies, bytes));
    return seconds;
  };
  const auto gather = [&](std::int64_t bytes, const Chain& chain) {
    double seconds = 0;
    std::int64_t part = bytes / chain.size();
    for (auto axis = chain.axes.rbegin(); axis != chain.axes.rend(); ++axis) {
      part *= axis->size;
      seconds += add(groups_.collective(Collective::AllGather, *axis, part));
    }
    return seconds;
  };
  // Small sections travel together until a bucket is full; each has its share of the time.
  const std::int64_t bucket = stack.gradient_bucket.value.value > 0 ? stack.gradient_bucket.value.value : 1LL << 30;
  const auto joined = [&](std::int64_t bytes, const Chain& chain, const auto& take) {
    if (bytes == 0) return 0.0;
    const std::int64_t together =
        std::clamp<std::int64_t>(bucket / bytes, 1, std::max<std::int64_t>(1, problem_.layers.count() / plan.pp));
    return take(bytes * together, chain) / static_cast<double>(together);
  };
  const auto width = [](const std::optional<DType>& sent, std::int64_t bytes, std::int64_t elements) {
    return sent ? bytes_of(*sent, elements) : bytes;
  };
  const bool wide = problem_.request.dtype == "fp32" || problem_.request.dtype == "tf32";
  const std::optional<DType> sent_gradients = wide ? std::nullopt : stack.gradient_communication_dtype.value;
  const std::optional<DType> sent_weights = wide ? std::nullopt : stack.weight_communication_dtype.value;
  const auto add_section = [&](const SectionCost& section) {
    SectionData& made = data.sections.emplace_back();
    for (const bool expert : {false, true}) {
      const KeptBytes& kept = expert ? section.expert : section.dense;
      const std::int64_t elements = expert ? section.stored_expert_elements : section.stored_elements;
      const Chain& chain = expert ? chains.expert : chains.dense;
      made.reduce += joined(width(sent_gradients, kept.gradients, elements), chain, reduce);
      const double gathered = joined(width(sent_weights, kept.parameters, elements), chain, gather);
      made.gather += gathered;
      // Experts that are spread by themselves are gathered while what comes before them is computed.
      if (!expert || plan.ep == 1) made.gather_first += gathered;
    }
    const std::int64_t bytes = section.dense.gradients + section.expert.gradients;
    // Buckets end anywhere in a section: half of one is left on average when the section is done, or all of a small
    // one.
    made.last_reduce = made.reduce * std::min(0.5, static_cast<double>(bucket) /
                                                       static_cast<double>(std::max<std::int64_t>(1, bytes)));
  };
  add_section(block.before);
  for (const SectionCost& kind : block.kinds) add_section(kind);
  add_section(block.after);
  if (problem_.model.tied_embeddings) {
    const KeptBytes& table = block.before.dense;
    std::int64_t bytes = width(sent_gradients, table.gradients, block.before.stored_elements);
    for (const GroupShape& axis : chains.dense.axes)
      data.tied_reduce += groups_.collective(Collective::AllReduce, axis, bytes).seconds;
    if (plan.copies > 1) data.tied_reduce += groups_.collective(Collective::AllReduce, chains.copies, bytes).seconds;
  }
  data.whole_world = groups_.collective(Collective::AllReduce, {problem_.devices, 1}, 8).seconds;
  return data;
}

// How much longer computation takes beside data-parallel communication: a factor, at least 1.
double Composer::slowdown(const std::vector<ComputeShare>& shares, const Data& data) const {
  const double one = static_cast<double>(kOne);
  const double s = std::min(1.0, data.sm_share / one), m = data.memory_share / one;
  double alone = 0, beside = 0;
  for (const ComputeShare& share : shares) {
    const double by_units =
        1 - static_cast<double>(interference_.compute_per_sm) / one * std::min(s, share.sm_share / one);
    const double by_memory =
        1 / std::max(1.0, share.memory_share / one + static_cast<double>(interference_.memory_weight) / one * m);
    alone += share.time;
    beside += share.time / std::max(1.0 / 64, std::min(by_units, by_memory));
  }
  return alone > 0 ? beside / alone : 1;
}

Composer::Need Composer::memory_of(const HybridPlan& plan, const BlockCosts& block, const Stages& stages,
                                   const PipelineTable& table) const {
  const Chains chains = chains_of(plan);
  const auto sections = static_cast<std::int32_t>(block.kinds.size()) + 2;
  const auto at = [&](std::int32_t i) -> const SectionCost& {
    return i == 0 ? block.before : i + 1 == sections ? block.after : block.kinds[static_cast<std::size_t>(i) - 1];
  };
  const SoftwareStack& stack = problem_.stack;
  const bool tied = problem_.model.tied_embeddings && plan.pp > 1;
  int communicators = (plan.tp > 1) + (plan.pp > 1) + (tied ? 1 : 0);
  for (const GroupShape& axis : chains.dense.axes) communicators += axis.size > 1;
  if (plan.copies > 1) ++communicators;
  const bool one_axis =
      plan.tp == problem_.devices || plan.dp / plan.copies == problem_.devices || plan.cp == problem_.devices;
  if (problem_.devices > 1 && !one_axis) ++communicators;  // of all devices
  const MemoryOverheads& overheads = memory_overheads();
  Need fullest;
  for (int rank = 0; rank < table.ranks(); ++rank) {
    HeldBytes held;
    std::int64_t largest_unit = 0, saved_all = 0, above = 0, elements = 0;
    const auto keep = [&](const SectionCost& section, bool layer) {
      for (const bool expert : {false, true}) {
        const KeptBytes& kept = expert ? section.expert : section.dense;
        const std::int64_t shards = (expert ? chains.expert : chains.dense).size();
        held.parameters.value += plan.zero >= 3 ? kept.parameters / shards : kept.parameters;
        held.gradients.value += plan.zero >= 2 ? kept.gradients / shards : kept.gradients;
        held.optimizer.value += plan.zero >= 1 ? kept.optimizer / shards : kept.optimizer;
        elements += (expert ? section.stored_expert_elements : section.stored_elements) / (plan.zero >= 3 ? shards : 1);
      }
      if (layer) largest_unit = std::max(largest_unit, section.dense.parameters + section.expert.parameters);
    };
    const std::vector<std::int32_t>& in_flight = table.in_flight(rank);
    for (int chunk = 0; chunk < table.chunks(); ++chunk) {
      const int stage = table.stage_at(rank, chunk);
      std::int64_t saved = 0;
      for (std::int32_t section : stages.sections[static_cast<std::size_t>(stage)]) {
        keep(at(section), section > 0 && section + 1 < sections);
        saved += at(section).net_forward;
      }
      if (tied && stage + 1 == plan.pp * plan.vpp) keep(block.before, false);
      // A table may be a short one that stands for many micro-batches; GPipe keeps them all.
      saved_all +=
          (plan.schedule == PlanSchedule::GPipe ? plan.micro_batches : in_flight[static_cast<std::size_t>(chunk)]) *
          saved;
      // Above all that is in flight: in the forward pass of the last, in the backward pass of the first.
      std::int64_t run = -saved, most = 0;
      for (std::int32_t section : stages.sections[static_cast<std::size_t>(stage)]) {
        most = std::max(most, run + at(section).most_forward);
        run += at(section).net_forward;
      }
      run = 0;
      const auto& list = stages.sections[static_cast<std::size_t>(stage)];
      for (auto section = list.rbegin(); section != list.rend(); ++section) {
        most = std::max(most, run + at(*section).most_backward);
        run += at(*section).net_backward;
      }
      above = std::max(above, most);
    }
    held.activations.value = saved_all;
    held.buffers.value = above;
    if (plan.zero >= 3 && chains.dense.size() > 1)
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
double Composer::sent(std::int64_t distance, std::int64_t bytes, const GroupShape& alike) const {
  const GroupShape gathering = problem_.stack.p2p_in_parts.value ? alike : GroupShape{};
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
  double transfer = 0;  // between stages, where nobody waits for it
};

const Composer::StageWork& Composer::work_of(const HybridPlan& plan, const BlockCosts& block, const Data& data,
                                             const Stages& stages) const {
  const SoftwareStack& stack = problem_.stack;
  const auto sections = static_cast<std::int32_t>(block.kinds.size()) + 2;
  const auto at = [&](std::int32_t i) -> const SectionCost& {
    return i == 0 ? block.before : i + 1 == sections ? block.after : block.kinds[static_cast<std::size_t>(i) - 1];
  };
  const bool spread = plan.dp * plan.cp > 1;
  // One unit is gathered while another is in use: the host runs ahead, whether it prefetches or not.
  const bool ahead = stack.gathers_in_flight.value >= 2;

  thread_local StageWork work;
  std::vector<StageWork::Effective>& effective = work.sections;
  effective.clear();
  // ZeRO-2 reduces with every micro-batch, ZeRO-3 gathers too.
  for (std::int32_t i = 0; i < sections; ++i) {
    const SectionCost& cost = at(i);
    const SectionData& said = data.sections[static_cast<std::size_t>(i)];
    double forward = cost.forward, backward = cost.backward;
    if (spread && plan.zero >= 2) backward -= cost.accumulate;
    const double slow = spread ? slowdown(cost.backward_shares, data) : 1;
    const auto beside = [](double own, double compute, double factor, double communication, bool overlaps) {
      if (!overlaps) return own + communication;
      const double slowed = own + compute * (factor - 1) * std::min(1.0, communication / std::max(own, 1e-12));
      return std::max(slowed, communication);
    };
    if (spread && plan.zero == 3) {
      const double slow_forward = slowdown(cost.forward_shares, data);
      forward = beside(forward, cost.compute_forward, slow_forward, said.gather, ahead);
      // A unit is gathered behind the gradients of the one before: behind their last bucket, where the others are done.
      if (stack.reshard_after_forward.value && !ahead) backward += said.gather + said.last_reduce;
    }
    if (spread && plan.zero >= 2) {
      const bool gathers = plan.zero == 3 && stack.reshard_after_forward.value && ahead;
      backward = beside(backward, cost.compute_backward, slow, said.reduce + (gathers ? said.gather : 0),
                        stack.gradient_overlap.value);
    }
    const double weight = std::min(cost.backward_weight, 0.9 * backward);
    effective.push_back({forward, backward - weight, weight, slow});
  }

  std::vector<StageTimes>& times = work.stages;
  times.assign(stages.sections.size(), {});
  for (std::size_t stage = 0; stage < times.size(); ++stage)
    for (std::int32_t section : stages.sections[stage]) {
      const StageWork::Effective& of = effective[static_cast<std::size_t>(section)];
      times[stage].forward += of.forward;
      times[stage].backward_input += of.input;
      times[stage].backward_weight += of.weight;
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

double Composer::alone(const HybridPlan& plan, const SectionCost& cost, const SectionData& said, double scale) const {
  const bool every_time = plan.dp * plan.cp > 1 && plan.zero >= 2;
  const double own = scale * (cost.forward + cost.backward - (every_time ? cost.accumulate : 0));
  if (!every_time) return own;
  const SoftwareStack& stack = problem_.stack;
  const double times = plan.zero == 3 ? (stack.reshard_after_forward.value ? 2 : 1) : 0;
  const double gathers = times * said.gather;
  return stack.gathers_in_flight.value >= 2 ? std::max(own, said.reduce + gathers)
                                            : std::max({own + times * said.gather_first, gathers, said.reduce});
}

// No schedule of these stages is faster than its busiest rank and the first micro-batch's way there and back.
double Composer::bound_of(const HybridPlan& plan, const BlockCosts& block, const Data& data, const Stages& stages,
                          const PipelineTable& table, double scale) const {
  const auto sections = static_cast<std::int32_t>(block.kinds.size()) + 2;
  const auto at = [&](std::int32_t i) -> const SectionCost& {
    return i == 0 ? block.before : i + 1 == sections ? block.after : block.kinds[static_cast<std::size_t>(i) - 1];
  };
  const bool spread = plan.dp * plan.cp > 1;
  thread_local std::vector<double> takes;
  takes.clear();
  for (std::int32_t i = 0; i < sections; ++i)
    takes.push_back(alone(plan, at(i), data.sections[static_cast<std::size_t>(i)], scale));
  const double micro_batches = plan.micro_batches;
  double bound = 0, lead = 0, least_tail = std::numeric_limits<double>::infinity();
  for (int rank = 0; rank < table.ranks(); ++rank) {
    double own = 0;                                // of a micro-batch, without the replicas' data
    double reduce = 0, gather = 0, optimizer = 0;  // once per step; gradients after the last micro-batch has come
    for (int chunk = 0; chunk < table.chunks(); ++chunk)
      for (std::int32_t section : stages.sections[static_cast<std::size_t>(table.stage_at(rank, chunk))]) {
        const SectionData& said = data.sections[static_cast<std::size_t>(section)];
        own += takes[static_cast<std::size_t>(section)];
        if (spread && plan.zero < 2) reduce += said.reduce;
        if (spread && plan.zero > 0 && plan.zero < 3) gather += said.gather;
        optimizer += at(section).optimizer;
      }
    if (plan.zero > 0) optimizer /= static_cast<double>(plan.dp / plan.copies) * plan.cp;
    least_tail = std::min(least_tail, std::max(optimizer, gather));
    // The last micro-batch of a chunk may come a round of micro-batches before the end.
    const double before = std::max(0.0, micro_batches - (table.chunks() > 1 ? table.ranks() : 1));
    bound = std::max(bound, lead + std::max(micro_batches * own, before * own + reduce));
    if (plan.schedule != PlanSchedule::ZeroBubbleV && plan.schedule != PlanSchedule::ZeroBubbleH1)
      for (std::int32_t section : stages.sections[static_cast<std::size_t>(table.stage_at(rank, 0))])
        lead += takes[static_cast<std::size_t>(section)] - scale * at(section).recompute_head;
  }
  return bound + least_tail;
}

void Composer::set_times(const HybridPlan& plan, const BlockCosts& block, const Data& data, const Stages& stages,
                         const PipelineClock& clock, double bound_above, Composition& made) const {
  const SoftwareStack& stack = problem_.stack;
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
  clock.play(times, stage_work.transfer, played);

  // A table that the first and the last stage have is summed after the backward pass, by both, and exchanged.
  const int last_stage = static_cast<int>(stages.sections.size()) - 1;
  const auto rank_of = [&](int stage) {
    for (int place = 0; place < table.ranks() * table.chunks(); ++place)
      if (table.stage_at(place / table.chunks(), place % table.chunks()) == stage) return place / table.chunks();
    return 0;
  };
  const int first_rank = rank_of(0), last_rank = rank_of(last_stage);
  const bool tied = problem_.model.tied_embeddings && first_rank != last_rank;
  double summed = 0;

  // Gradients: reduced beside the last micro-batch's backward pass, or after it.
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
    for (const auto& [chunk_end, chunk] : order) {
      const auto place = static_cast<std::size_t>(rank * table.chunks() + chunk);
      const auto& list = stages.sections[static_cast<std::size_t>(table.stage_at(rank, chunk))];
      double now = chunk_end - played.chunk_last[place] + late;
      for (auto section = list.rbegin(); section != list.rend(); ++section) {
        const StageWork::Effective& of = effective[static_cast<std::size_t>(*section)];
        const SectionData& said = data.sections[static_cast<std::size_t>(*section)];
        const double alone = of.input + of.weight;
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
    const Chains chains = chains_of(plan);
    double step = plan.zero > 0 ? optimizer / static_cast<double>(chains.dense.size()) : optimizer;
    if (!stack.graph_capture.value) step = std::max(step, operators * stack.host_per_operator.value.value);
    if (plan.zero == 1 || plan.zero == 2) {
      // Buckets are gathered while others are still updated.
      if (spread) step = std::max(step, gather) + 0.25 * std::min(step, gather);
    }
    step_tail = std::max(step_tail, step);
  }
  if (tied) {
    const std::int64_t of_stage = problem_.devices / plan.pp;
    const GroupShape replicas{of_stage <= problem_.per_node ? plan.dp * plan.cp : 1, plan.tp};
    // The last stage is done first: what it sends arrives while the first one still reduces, over the same links.
    const double ways = spread ? 2 : 1;
    const double exchanged =
        summed + ways * sent((last_rank - first_rank) * of_stage, block.before.dense.gradients, replicas);
    exposed_data += std::max(0.0, exchanged - finish);
    finish = std::max(finish, exchanged);
  }
  const double norm = 2 * data.whole_world + block.step_fixed;
  made.step_s = finish + norm + step_tail;
  made.optimizer_s = norm + step_tail;
  made.data_s = exposed_data;
  const auto busiest_rank = static_cast<int>(std::max_element(work.begin(), work.end()) - work.begin());
  for (int chunk = 0; chunk < table.chunks(); ++chunk)
    for (std::int32_t section : stages.sections[static_cast<std::size_t>(table.stage_at(busiest_rank, chunk))])
      made.compute_s += micro_batches * (at(section).compute_forward + at(section).compute_backward);
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

HybridPlan Composer::relaxed(HybridPlan plan, std::int32_t micro_batch) {
  plan.recompute = PlanRecompute::None;
  plan.micro_batch = micro_batch;
  return plan;
}

std::optional<double> Composer::bound(const HybridPlan& plan, std::int32_t micro_batch) const {
  const BlockCosts* block = block_of(relaxed(plan, micro_batch));
  thread_local Stages stages;
  if (!block || !deal_sections(plan, stages)) return std::nullopt;
  const PipelineClock& clock = clock_of(plan);
  if (!clock.valid()) return std::nullopt;
  const double scale = static_cast<double>(plan.micro_batch) / micro_batch;
  return bound_of(plan, *block, data_of(plan, *block), stages, clock.table(), scale);
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
