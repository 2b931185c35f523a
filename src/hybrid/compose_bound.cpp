// A lower bound on a plan's step time: the work of its busiest rank, and communication that it always waits for.
#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "hybrid/compose.h"
#include "hybrid/compose_spread.h"

namespace weft {

namespace {

// A collective and its moment in the pass: a gather before its first use, a reduction after its gradients are ready.
struct TimedCollective {
  double at, seconds;
};

// Collectives in the order of their moments.
template <class Moment>
const std::vector<TimedCollective>& sorted_by_time(const std::vector<FusedCollective>& pieces,
                                                   std::vector<TimedCollective>& list, const Moment& moment) {
  list.clear();
  for (const FusedCollective& piece : pieces) {
    const TimedCollective timed{moment(piece), piece.seconds};
    list.insert(std::upper_bound(list.begin(), list.end(), timed,
                                 [](const TimedCollective& a, const TimedCollective& b) { return a.at < b.at; }),
                timed);
  }
  return list;
}

// The least time of a pass whose gathers start when the section before has ended, from the first gather until the pass
// is computed up to `end` and its reductions are done: the longest path through gathers, uses and reductions.
double longest_path(const std::vector<TimedCollective>& gathers, const std::vector<TimedCollective>& reduces,
                    double end) {
  double most = end, before = 0;
  for (const TimedCollective& gather : gathers) {
    before += gather.seconds;
    most = std::max(most, before + end - gather.at);
    double after = 0;
    for (auto reduce = reduces.rbegin(); reduce != reduces.rend(); ++reduce) {
      after += reduce->seconds;
      if (reduce->at >= gather.at) most = std::max(most, before + reduce->at - gather.at + after);
    }
  }
  return most;
}

}  // namespace

// In DualPipe's pairs each pass hides the other's communication. Where stacks of different layers meet, a collective of one section may be waited for by the next: which of two stages
// would wait is not known from a probe without stages, so only computation counts.
std::pair<double, double> Composer::least_passes(const HybridPlan& plan, const SectionCost& cost) const {
  const bool waits = plan.schedule != PlanSchedule::DualPipeV && problem_.layers.simple;
  if (waits || plan.pp == 1) return {cost.forward, cost.backward};
  return {std::min(cost.forward, cost.compute_forward), std::min(cost.backward, cost.compute_backward)};
}

Composer::MinimumTime Composer::minimum_of(const HybridPlan& plan, const SectionCost& cost, const SectionSync& sync,
                                           double scale) const {
  const bool every_time = plan.dp * plan.cp > 1 && plan.zero >= 2;
  const auto [whole_forward, whole_backward] = least_passes(plan, cost);
  const double differentiated = whole_backward - (every_time ? cost.accumulate : 0);
  double forward = scale * whole_forward, backward = scale * differentiated;
  if (!every_time) return {forward + backward, 0, 0};
  const SoftwareStack& stack = problem_.stack();
  const double alone = forward + backward;
  const bool again = plan.zero == 3 && stack.reshard_after_forward.value;
  thread_local std::vector<TimedCollective> gathers, reduces;
  const auto first_use = [&](double ParameterCost::*use) {
    return [&cost, scale, use](const FusedCollective& piece) {
      double first = std::numeric_limits<double>::infinity();
      for (std::int32_t each : piece.parameters)
        first = std::min(first, cost.parameters[static_cast<std::size_t>(each)].*use);
      return scale * first;
    };
  };
  // A section is gathered only when the one before it needs its parameters no more.
  if (plan.zero == 3 && !stack.prefetch_forward.value && stack.gathers_in_flight.value <= 1)
    forward =
        std::max(forward, longest_path(sorted_by_time(sync.gathers, gathers, first_use(&ParameterCost::forward_use)),
                                       {}, scale * cost.forward_done));
  const bool behind =
      again && !stack.prefetch_backward.value;  // a gather is queued behind the previous section's reductions
  if (behind || !stack.gradient_overlap.value) {
    sorted_by_time(sync.reduces, reduces, [&](const FusedCollective& piece) {
      double ready = 0;
      for (std::int32_t each : piece.parameters)
        ready = std::max(ready, cost.parameters[static_cast<std::size_t>(each)].backward_ready);
      return scale * std::min(ready, differentiated);
    });
    gathers.clear();
    if (behind) sorted_by_time(sync.gathers, gathers, first_use(&ParameterCost::backward_use));
    if (gathers.empty()) gathers.push_back({0, 0});
    backward = std::max(backward, longest_path(gathers, reduces, 0));
  }
  double gathered = plan.zero == 3 ? sync.gather : 0;
  if (again)
    for (const FusedCollective& piece : sync.gathers)
      if (used_backward(cost, piece)) gathered += piece.seconds;
  return {forward + backward, sync.reduce + gathered, forward + backward - alone};
}

// No schedule of these stages is faster than its busiest rank's work plus the first micro-batch's way there and back.
double Composer::bound_of(const HybridPlan& plan, const BlockCosts& block, const DataParallelCosts& data,
                          const Stages& stages, const PipelineTable& table, double scale,
                          std::vector<RankBound>* ranks) const {
  const auto sections = static_cast<std::int32_t>(block.kinds.size());
  const auto at = [&](std::int32_t i) -> const SectionCost& { return block.kinds[static_cast<std::size_t>(i)]; };
  const bool has_replicas = plan.dp * plan.cp > 1;
  thread_local std::vector<MinimumTime> takes;
  takes.clear();
  for (std::int32_t i = 0; i < sections; ++i) {
    takes.push_back(minimum_of(plan, at(i), data.sections[static_cast<std::size_t>(i)], scale));
    // Parameters of no layer are not gathered or reduced between layers.
    if (!at(i).is_layer) takes.back().own -= std::exchange(takes.back().waits, 0);
  }
  const RankBuckets& buckets = buckets_of(plan, data, stages, table);
  const double micro_batches = plan.micro_batches;
  double bound = 0, lead = 0, least_tail = std::numeric_limits<double>::infinity();
  for (int rank = 0; rank < table.ranks(); ++rank) {
    double own = 0, stream = 0;                    // of a micro-batch that accumulates gradients, …
    double skipped = 0;                            // … which the first does not: seconds that it saves
    double reduce = 0, gather = 0, optimizer = 0;  // once per step; reductions after the last micro-batch
    if (!buckets.empty())
      for (const GradientBucket& bucket : buckets[static_cast<std::size_t>(rank)]) reduce += bucket.seconds;
    for (int chunk = 0; chunk < table.chunks(); ++chunk) {
      double most_waits = 0;
      for (std::int32_t section : stages.sections[static_cast<std::size_t>(table.stage_at(rank, chunk))]) {
        const SectionSync& sync = data.sections[static_cast<std::size_t>(section)];
        const MinimumTime& least = takes[static_cast<std::size_t>(section)];
        own += least.own;
        stream += least.communication;
        most_waits = std::max(most_waits, least.waits);
        if (has_replicas && plan.zero > 0 && plan.zero < 3) gather += sync.gather;
        optimizer += at(section).optimizer;
        if (!has_replicas || plan.zero < 2) skipped += scale * at(section).accumulate;
      }
      own -= most_waits;  // one section's wait may overlap another pass
    }
    own = std::max(own, stream);
    if (plan.zero > 0) optimizer /= static_cast<double>(plan.dp / plan.copies) * plan.cp;
    least_tail = std::min(least_tail, std::max(optimizer, gather));
    // The last micro-batch of a chunk may end a round of micro-batches before the step does.
    const double before = std::max(0.0, micro_batches - (table.chunks() > 1 ? table.ranks() : 1));
    const double work = std::max(micro_batches * own, before * own + reduce) - skipped;
    if (ranks) ranks->push_back({lead, work});
    bound = std::max(bound, lead + work);
    // With a split backward pass, a rank may end with gradients of weights, which nothing waits for.
    const bool split = splits_backward(plan.schedule);
    for (std::int32_t section : stages.sections[static_cast<std::size_t>(table.stage_at(rank, 0))]) {
      const auto [forward, backward] = least_passes(plan, at(section));
      lead += scale * (forward + (split ? 0 : backward - at(section).recompute_head - at(section).accumulate));
    }
  }
  return (bound + least_tail) / (1 + composition_spread(composition_kind(problem_, plan)).bound);
}

std::optional<double> Composer::bound_by_stage(const HybridPlan& fits, const HybridPlan& before,
                                               const HybridPlan& none) const {
  const PipelineClock& clock = clock_of(fits);
  if (!clock.valid()) return std::nullopt;
  std::array<std::vector<RankBound>, 3> ranks;
  std::array<const HybridPlan*, 3> plans = {&fits, &before, &none};
  double whole = 0, work = 0;
  for (std::size_t i = 0; i < plans.size(); ++i) {
    const BlockCosts* block = block_of(*plans[i]);
    thread_local Stages stages;
    if (!block || !assign_sections(*plans[i], *block, stages)) return std::nullopt;
    const double bound = bound_of(*plans[i], *block, data_of(*plans[i], *block), stages, clock.table(), 1, &ranks[i]);
    if (i > 0) continue;
    whole = bound * (1 + composition_spread(composition_kind(problem_, fits)).bound);
    for (const RankBound& rank : ranks[0]) work = std::max(work, rank.lead + rank.work);
  }
  const double tail = whole - work;
  const std::vector<std::int64_t> needed = memory_by_rank(fits), more = memory_by_rank(before);
  double bound = 0;
  for (std::size_t rank = 0; rank < needed.size(); ++rank) {
    const double room = std::max(0.0, static_cast<double>(budget_ - needed[rank]));
    const double bytes = static_cast<double>(more[rank] - needed[rank]);
    const double least = ranks[2][rank].work;
    const double gained = bytes > 0 ? room / bytes * (ranks[0][rank].work - ranks[1][rank].work) : 0;
    const double own = bytes > 0 ? std::max(least, ranks[0][rank].work - std::max(0.0, gained)) : least;
    bound = std::max(bound, ranks[2][rank].lead + own);
  }
  const std::optional<Composition> without = compose(none);
  bound = (bound + tail) / (1 + composition_spread(composition_kind(problem_, fits)).bound);
  return std::max(bound, without ? without->bound_s : 0);
}

HybridPlan Composer::relaxed(HybridPlan plan, std::int32_t micro_batch) {
  plan.recompute = PlanRecompute::None;
  plan.micro_batch = micro_batch;
  return plan;
}

std::optional<double> Composer::bound(const HybridPlan& plan, std::int32_t micro_batch) const {
  const BlockCosts* block = block_of(relaxed(plan, micro_batch));
  thread_local Stages stages;
  if (!block || !assign_sections(plan, *block, stages)) return std::nullopt;
  const PipelineClock& clock = clock_of(plan);
  if (!clock.valid()) return std::nullopt;
  const double scale = static_cast<double>(plan.micro_batch) / micro_batch;
  return bound_of(plan, *block, data_of(plan, *block), stages, clock.table(), scale);
}

}  // namespace weft
