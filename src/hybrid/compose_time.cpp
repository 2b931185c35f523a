// The step time of a plan: sections become stages, stages a pipeline; then gradients that are still to be reduced and
// the optimizer's step.
#include <algorithm>
#include <cstdlib>
#include <limits>
#include <utility>

#include "hybrid/compose.h"
#include "hybrid/compose_spread.h"

namespace weft {

// Of a transfer from every device to the one `distance` ranks further. Where the receiving group of one node `alike`
// will hold the same tensor, the stack may send a part to each, and they all-gather the parts.
double Composer::transfer_time(std::int64_t distance, std::int64_t bytes, const StridedGroup& alike) const {
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
  std::vector<StreamTimes> streams;  // by stage, with data-parallel communication in every micro-batch; else empty
};

double Composer::skipped_accumulation(const HybridPlan& plan, const SectionCost& cost) {
  return cost.accumulate / plan.micro_batches;
}

void Composer::play_data_parallel(const HybridPlan& plan, const BlockCosts& block, const DataParallelCosts& data,
                                  const Stages& stages, StageWork& work) const {
  const SoftwareStack& stack = problem_.stack();
  const auto sections = static_cast<std::int32_t>(block.kinds.size());
  const auto at = [&](std::int32_t i) -> const SectionCost& { return block.kinds[static_cast<std::size_t>(i)]; };
  const ReplicaGroups groups = replica_groups(plan);
  const std::vector<SectionOverlap>& sharing = sharing_of(block, data);
  const bool overlap = stack.gradient_overlap.value;
  thread_local std::vector<StreamSection> streamed;
  streamed.resize(static_cast<std::size_t>(sections));
  for (std::int32_t i = 0; i < sections; ++i) {
    const SectionCost& cost = at(i);
    const SectionSync& sync = data.sections[static_cast<std::size_t>(i)];
    StreamSection& made = streamed[static_cast<std::size_t>(i)];
    made.forward = cost.forward;
    made.backward = cost.backward - cost.accumulate;
    made.forward_overlap = sharing[static_cast<std::size_t>(i)].forward;
    made.backward_overlap = sharing[static_cast<std::size_t>(i)].backward;
    made.forward_spans = sharing[static_cast<std::size_t>(i)].forward_spans;
    made.backward_spans = sharing[static_cast<std::size_t>(i)].backward_spans;
    // Reduced gradients are accumulated in shards: on the communication stream or, where computation waits for
    // reductions, on the computation stream.
    const double adds = (cost.accumulate - skipped_accumulation(plan, cost)) / static_cast<double>(groups.shards());
    if (!overlap) made.adds = adds;
    made.forward_done = cost.forward_done;
    made.backward_done = std::min(cost.backward_done, made.backward);
    made.gathers.clear();
    made.reduces.clear();
    if (plan.zero == 3)
      for (const FusedCollective& piece : sync.gathers) {
        StreamGather& of = made.gathers.emplace_back();
        of.forward = piece.seconds;
        if (stack.reshard_after_forward.value && used_backward(cost, piece)) of.backward = piece.seconds;
        of.forward_use = of.backward_use = std::numeric_limits<double>::infinity();
        for (std::int32_t parameter : piece.parameters) {
          const ParameterCost& each = cost.parameters[static_cast<std::size_t>(parameter)];
          of.forward_use = std::min(of.forward_use, each.forward_use);
          of.backward_use = std::min(of.backward_use, each.backward_use);
        }
      }
    for (const FusedCollective& piece : sync.reduces) {
      StreamReduce& of = made.reduces.emplace_back();
      of.takes = piece.seconds;
      if (overlap) of.takes += adds * piece.seconds / sync.reduce;
      for (std::int32_t parameter : piece.parameters)
        of.ready = std::max(of.ready, cost.parameters[static_cast<std::size_t>(parameter)].backward_ready);
      of.ready = std::min(of.ready, made.backward);
    }
  }
  // Parameters of no layer are one unit, gathered where the first of them is used and reduced at the end.
  const bool rest = plan.zero == 3 && stages.sections.size() == 1;
  std::int32_t first_piece = -1;
  for (std::int32_t kind : stages.sections.front())
    if (!at(kind).is_layer && !at(kind).parameters.empty() && first_piece < 0) first_piece = kind;
  if (rest && first_piece >= 0) {
    StreamSection& first = streamed[static_cast<std::size_t>(first_piece)];
    const std::vector<StreamGather> own = first.gathers;
    for (std::int32_t kind = 0; kind < sections; ++kind) {
      if (kind == first_piece || at(kind).is_layer) continue;
      StreamSection& other = streamed[static_cast<std::size_t>(kind)];
      if (kind == stages.sections.front().back() && problem_.model().tied_embeddings &&
          stack.reshard_after_forward.value)
        for (const StreamGather& piece : own) other.gathers.push_back({0, piece.forward, 0, 0});
      for (StreamGather& piece : other.gathers)
        if (piece.forward > 0) first.gathers.push_back({std::exchange(piece.forward, 0), 0, 0, 0});
      for (const StreamReduce& piece : other.reduces) first.reduces.push_back({piece.takes, first.backward});
      other.reduces.clear();
    }
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

// What a stage reads of an earlier one that is not its neighbour is sent from there in every micro-batch, and its
// gradient is sent back: beside the computation of the sender, or before it goes on.
void Composer::add_distant_transfers(const HybridPlan& plan, const BlockCosts& block, const Stages& stages,
                                     std::vector<StageTimes>& times) const {
  const StridedGroup alike{plan.sequence_parallel ? 1 : plan.tp, 1};
  const std::int64_t of_stage = problem_.devices / plan.pp;
  thread_local std::vector<double> forward, backward;  // by stage: seconds of what it sends
  forward.assign(times.size(), 0);
  backward.assign(times.size(), 0);
  thread_local std::vector<DistantRead> read;
  for (std::size_t stage = 1; stage < times.size(); ++stage) {
    distant_reads(stages.sections[stage], block, read);
    for (const DistantRead& each : read) {
      std::size_t maker = 0;
      while (std::find(stages.sections[maker].begin(), stages.sections[maker].end(), each.kind) ==
             stages.sections[maker].end())
        ++maker;
      const std::int64_t apart = (static_cast<std::int64_t>(stage) - static_cast<std::int64_t>(maker)) % plan.pp;
      if (apart == 0) continue;  // chunks of one rank
      const double transfer = transfer_time(std::abs(apart) * of_stage, each.bytes, alike);
      forward[maker] += transfer;
      backward[stage] += transfer;
    }
  }
  const bool beside = problem_.stack().p2p_overlap.value;
  for (std::size_t stage = 0; stage < times.size(); ++stage) {
    StageTimes& of = times[stage];
    of.forward = beside ? std::max(of.forward, forward[stage]) : of.forward + forward[stage];
    of.backward_input = beside ? std::max(of.backward_input, backward[stage]) : of.backward_input + backward[stage];
  }
}

const Composer::StageWork& Composer::work_of(const HybridPlan& plan, const BlockCosts& block,
                                             const DataParallelCosts& data, const Stages& stages) const {
  const SoftwareStack& stack = problem_.stack();
  const auto sections = static_cast<std::int32_t>(block.kinds.size());
  const auto at = [&](std::int32_t i) -> const SectionCost& { return block.kinds[static_cast<std::size_t>(i)]; };
  const bool has_replicas = plan.dp * plan.cp > 1;
  thread_local StageWork work;
  std::vector<StageWork::Effective>& effective = work.sections;
  effective.clear();
  work.streams.clear();
  const std::vector<SectionOverlap>* const sharing =
      has_replicas && plan.zero < 2 ? &device_sharing(block, data) : nullptr;
  for (std::int32_t i = 0; i < sections; ++i) {
    const SectionCost& cost = at(i);
    double slow = 1;
    if (sharing && cost.backward > 0)
      slow += (1 / (*sharing)[static_cast<std::size_t>(i)].backward.compute - 1) *
              std::min(1.0, cost.compute_backward / cost.backward);
    const double backward = cost.backward - skipped_accumulation(plan, cost);
    const double weight =
        std::min(std::max(0.0, cost.backward_weight - skipped_accumulation(plan, cost)), 0.9 * backward);
    effective.push_back({cost.forward, backward - weight, weight, slow});
  }

  std::vector<StageTimes>& times = work.stages;
  times.assign(stages.sections.size(), {});
  if (has_replicas && plan.zero >= 2) {
    play_data_parallel(plan, block, data, stages, work);
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
  for (std::size_t stage = 0; plan.pp > 1 && stage + 1 < times.size(); ++stage) {
    const double transfer =
        transfer_time(problem_.devices / plan.pp, stages.sent[stage], {plan.sequence_parallel ? 1 : plan.tp, 1});
    if (stack.p2p_overlap.value) {
      times[stage].sends = transfer;
    } else {  // the sender waits
      times[stage].forward += transfer;
      times[stage + 1].backward_input += transfer;
    }
  }
  if (plan.pp > 1) add_distant_transfers(plan, block, stages, times);
  return work;
}

void Composer::set_times(const HybridPlan& plan, const BlockCosts& block, const DataParallelCosts& data,
                         const Stages& stages, const PipelineClock& clock, double bound_above,
                         Composition& made) const {
  const SoftwareStack& stack = problem_.stack();
  const PipelineTable& table = clock.table();
  const auto at = [&](std::int32_t i) -> const SectionCost& { return block.kinds[static_cast<std::size_t>(i)]; };
  const bool has_replicas = plan.dp * plan.cp > 1;
  made.bound_s = bound_of(plan, block, data, stages, table, 1);
  if (bound_above > 0 && made.bound_s > bound_above) return;
  const StageWork& stage_work = work_of(plan, block, data, stages);
  const std::vector<StageWork::Effective>& effective = stage_work.sections;
  const std::vector<StageTimes>& times = stage_work.stages;

  const double micro_batches = plan.micro_batches;
  double busiest = 0, exposed_data = 0;
  thread_local std::vector<double> work;  // by rank, of one micro-batch
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
    clock.play(times, played);
  }

  // The gradient of a tied embedding is reduced on the first and on the last stage after backward, then exchanged.
  const int last_stage = static_cast<int>(stages.sections.size()) - 1;
  const auto rank_of = [&](int stage) {
    for (int place = 0; place < table.ranks() * table.chunks(); ++place)
      if (table.stage_at(place / table.chunks(), place % table.chunks()) == stage) return place / table.chunks();
    return 0;
  };
  const int first_rank = rank_of(0), last_rank = rank_of(last_stage);
  const std::int32_t table_kind = problem_.layers.sections.front().kind;
  const SectionCost& shared = at(table_kind);
  const bool tied = shares_table(table) && shared.dense.gradients > 0;
  double summed = 0;

  // Gradients are reduced during the last micro-batch's backward pass, or after it.
  const ReplicaGroups groups = replica_groups(plan);
  const RankBuckets& buckets = buckets_of(plan, data, stages, table);
  double finish = 0, step_tail = 0;
  for (int rank = 0; rank < table.ranks(); ++rank) {
    static const std::vector<GradientBucket> kNone;
    const std::vector<GradientBucket>& own_buckets = buckets.empty() ? kNone : buckets[static_cast<std::size_t>(rank)];
    double data_free = 0, end = played.rank_end[static_cast<std::size_t>(rank)], optimizer = 0, gather = 0;
    double offloaded = 0;  // bytes
    int operators = 0;
    thread_local std::vector<std::pair<double, int>> order;
    order.clear();
    for (int chunk = 0; chunk < table.chunks(); ++chunk)
      order.emplace_back(played.chunk_end[static_cast<std::size_t>(rank * table.chunks() + chunk)], chunk);
    std::sort(order.begin(), order.end());
    double late = 0;
    const bool split = !table.in_flight_split(rank).empty();  // the last pass computes gradients of weights only
    for (const auto& [chunk_end, chunk] : order) {
      const auto place = static_cast<std::size_t>(rank * table.chunks() + chunk);
      const auto& list = stages.sections[static_cast<std::size_t>(table.stage_at(rank, chunk))];
      double now = chunk_end - played.chunk_last[place] + late;
      auto bucket = std::find_if(own_buckets.begin(), own_buckets.end(),
                                 [chunk = chunk](const GradientBucket& each) { return each.chunk == chunk; });
      for (std::size_t position = list.size(); position-- > 0;) {
        const StageWork::Effective& of = effective[static_cast<std::size_t>(list[position])];
        const double alone = split ? of.weight : of.input + of.weight;
        double computed = 0;  // of this pass
        const auto compute_until = [&](double until) {
          const double takes = until - computed, busy = std::clamp(data_free - now, 0.0, takes);
          const double extra = plan.zero < 2 ? busy * (of.slow - 1) / std::max(of.slow, 1.0) : 0;
          now += takes + extra;
          late += extra;
          computed = until;
        };
        const SectionCost& cost = at(list[position]);
        for (; bucket != own_buckets.end() && bucket->chunk == chunk &&
               bucket->position == static_cast<std::int32_t>(position);
             ++bucket) {
          const double ready = cost.parameters[static_cast<std::size_t>(bucket->parameter)].backward_ready;
          compute_until(split ? alone : std::max(computed, std::min(ready, alone)));
          data_free = std::max(stack.gradient_overlap.value ? now : end + late, data_free) + bucket->seconds;
        }
        compute_until(alone);
        optimizer += cost.optimizer;
        operators += cost.optimizer_operators;
        if (plan.offload) offloaded += static_cast<double>(cost.dense.optimizer + cost.expert.optimizer);
        gather += data.sections[static_cast<std::size_t>(list[position])].gather;
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
        optimizer += shared.optimizer;
        operators += shared.optimizer_operators;
      }
    }
    finish = std::max(finish, std::max(end, data_free));
    exposed_data = std::max(exposed_data, std::max(0.0, data_free - end));
    double step = plan.zero > 0 ? optimizer / static_cast<double>(groups.shards()) : optimizer;
    step = std::max(step, operators * block.host_per_update);
    // Copied to the device and back while others are updated.
    if (plan.zero > 0) offloaded /= static_cast<double>(groups.shards());
    step = std::max(step, offloaded / host_rate_);
    if (plan.zero == 1 || plan.zero == 2) {
      // Buckets are gathered while others are still being updated; a quarter of the shorter one is not hidden.
      if (has_replicas) step = std::max(step, gather) + 0.25 * std::min(step, gather);
    }
    step_tail = std::max(step_tail, step);
  }
  if (tied) {
    const std::int64_t of_stage = problem_.devices / plan.pp;
    const StridedGroup replicas{of_stage <= problem_.per_node ? plan.dp * plan.cp : 1, plan.tp};
    // The last stage ends first: its gradient arrives while the first stage still reduces, over the same links.
    const double ways = has_replicas ? 2 : 1;
    const double exchanged =
        summed + ways * transfer_time((last_rank - first_rank) * of_stage, shared.dense.gradients, replicas);
    exposed_data += std::max(0.0, exchanged - finish);
    finish = std::max(finish, exchanged);
  }
  // The schedule's actions with these times, in the order that it gives them, take no less; of the sum of sections'
  // times a part may be hidden in other sections: as much as composition may be above simulation, 3 % at least.
  if (stage_work.streams.empty()) {
    const double above = std::max(0.03, composition_spread(composition_kind(problem_, plan)).above);
    made.bound_s = std::max(made.bound_s, played.makespan / (1 + above));
  }
  const double norm = data.world_all_reduce + block.step_fixed;
  made.step_s = finish + norm + step_tail;
  // The host issues all of it, and the first forward pass no sooner than that takes it.
  for (int rank = 0; rank < table.ranks(); ++rank) {
    double issued = 0, first = 0, forward = 0;
    for (int chunk = 0; chunk < table.chunks(); ++chunk)
      for (std::int32_t section : stages.sections[static_cast<std::size_t>(table.stage_at(rank, chunk))]) {
        const SectionCost& of = at(section);
        issued += micro_batches * (of.host_forward + of.host_backward) - of.host_accumulate +
                  of.optimizer_operators * block.host_per_update;
        first += of.host_forward;
        forward += of.forward;
      }
    if (plan.pp == 1) issued = std::max(issued, made.step_s + first - forward);
    made.step_s = std::max(made.step_s, issued);
  }
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

}  // namespace weft
