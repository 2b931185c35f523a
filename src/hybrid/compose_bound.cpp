// What no plan is faster than: work that its busiest rank has, and communication that it always waits for.
#include <algorithm>
#include <limits>
#include <utility>

#include "hybrid/compose.h"

namespace weft {

namespace {

// Something said, and the moment of the pass it stands at: before its first use, or after it is ready.
struct Said {
  double at, seconds;
};

// Pieces in the order in which they are said.
template <class Moment>
const std::vector<Said>& in_order(const std::vector<SaidPiece>& pieces, std::vector<Said>& list, const Moment& moment) {
  list.clear();
  for (const SaidPiece& piece : pieces) {
    const Said said{moment(piece), piece.seconds};
    list.insert(
        std::upper_bound(list.begin(), list.end(), said, [](const Said& a, const Said& b) { return a.at < b.at; }),
        said);
  }
  return list;
}

// A pass whose gathers begin when nothing is left of the one before, from the first gather until `end` of the pass has
// been computed and what is reduced by then has been said: the longest way through uses and gradients.
double longest(const std::vector<Said>& gathers, const std::vector<Said>& reduces, double end) {
  double most = end, before = 0;
  for (const Said& gather : gathers) {
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

Composer::Least Composer::least_of(const HybridPlan& plan, const SectionCost& cost, const SectionData& said,
                                   double scale) const {
  const bool every_time = plan.dp * plan.cp > 1 && plan.zero >= 2;
  const double differentiated = cost.backward - (every_time ? cost.accumulate : 0);
  double forward = scale * cost.forward, backward = scale * differentiated;
  if (!every_time) return {forward + backward, 0, 0};
  const SoftwareStack& stack = problem_.stack();
  const double alone = forward + backward;
  const bool again = plan.zero == 3 && stack.reshard_after_forward.value;
  thread_local std::vector<Said> gathers, reduces;
  const auto first_use = [&](double ParameterCost::*use) {
    return [&cost, scale, use](const SaidPiece& piece) {
      double first = std::numeric_limits<double>::infinity();
      for (std::int32_t each : piece.parameters)
        first = std::min(first, cost.parameters[static_cast<std::size_t>(each)].*use);
      return scale * first;
    };
  };
  // Gathered only when the one before needs its own no more.
  if (plan.zero == 3 && !stack.prefetch_forward.value && stack.gathers_in_flight.value <= 1)
    forward = std::max(forward, longest(in_order(said.gathers, gathers, first_use(&ParameterCost::forward_use)), {},
                                        scale * cost.forward_done));
  const bool behind = again && !stack.prefetch_backward.value;  // the gradients of the one before
  if (behind || !stack.gradient_overlap.value) {
    in_order(said.reduces, reduces, [&](const SaidPiece& piece) {
      double ready = 0;
      for (std::int32_t each : piece.parameters)
        ready = std::max(ready, cost.parameters[static_cast<std::size_t>(each)].backward_ready);
      return scale * std::min(ready, differentiated);
    });
    gathers.clear();
    if (behind) in_order(said.gathers, gathers, first_use(&ParameterCost::backward_use));
    if (gathers.empty()) gathers.push_back({0, 0});
    backward = std::max(backward, longest(gathers, reduces, 0));
  }
  const double gathered = plan.zero == 3 ? (again ? 2 : 1) * said.gather : 0;
  return {forward + backward, said.reduce + gathered, forward + backward - alone};
}

// No schedule of these stages is faster than its busiest rank and the first micro-batch's way there and back.
double Composer::bound_of(const HybridPlan& plan, const BlockCosts& block, const ReplicaData& data,
                          const Stages& stages, const PipelineTable& table, double scale) const {
  const auto sections = static_cast<std::int32_t>(block.kinds.size()) + 2;
  const auto at = [&](std::int32_t i) -> const SectionCost& {
    return i == 0 ? block.before : i + 1 == sections ? block.after : block.kinds[static_cast<std::size_t>(i) - 1];
  };
  const bool spread = plan.dp * plan.cp > 1;
  thread_local std::vector<Least> takes;
  takes.clear();
  for (std::int32_t i = 0; i < sections; ++i) {
    takes.push_back(least_of(plan, at(i), data.sections[static_cast<std::size_t>(i)], scale));
    // What belongs to no layer is neither gathered nor reduced between layers; backward needs no table.
    if (i == 0 || i + 1 == sections) takes.back().own -= std::exchange(takes.back().waits, 0);
    if (i == 0 && plan.zero == 3) takes.back().said -= data.sections.front().gather;
  }
  const double micro_batches = plan.micro_batches;
  double bound = 0, lead = 0, least_tail = std::numeric_limits<double>::infinity();
  for (int rank = 0; rank < table.ranks(); ++rank) {
    double own = 0, stream = 0;                    // of a micro-batch that adds to gradients, …
    double begun = 0;                              // … which the first does not
    double reduce = 0, gather = 0, optimizer = 0;  // once per step; gradients after the last micro-batch has come
    for (int chunk = 0; chunk < table.chunks(); ++chunk) {
      double most_waits = 0;
      for (std::int32_t section : stages.sections[static_cast<std::size_t>(table.stage_at(rank, chunk))]) {
        const SectionData& said = data.sections[static_cast<std::size_t>(section)];
        const Least& least = takes[static_cast<std::size_t>(section)];
        own += least.own;
        stream += least.said;
        most_waits = std::max(most_waits, least.waits);
        if (spread && plan.zero < 2) reduce += said.reduce;
        if (spread && plan.zero > 0 && plan.zero < 3) gather += said.gather;
        optimizer += at(section).optimizer;
        if (!spread || plan.zero < 2) begun += scale * at(section).accumulate;
      }
      own -= most_waits;  // one section may wait beside another pass
    }
    own = std::max(own, stream);
    if (plan.zero > 0) optimizer /= static_cast<double>(plan.dp / plan.copies) * plan.cp;
    least_tail = std::min(least_tail, std::max(optimizer, gather));
    // The last micro-batch of a chunk may come a round of micro-batches before the end.
    const double before = std::max(0.0, micro_batches - (table.chunks() > 1 ? table.ranks() : 1));
    bound = std::max(bound, lead + std::max(micro_batches * own, before * own + reduce) - begun);
    if (plan.schedule != PlanSchedule::ZeroBubbleV && plan.schedule != PlanSchedule::ZeroBubbleH1)
      for (std::int32_t section : stages.sections[static_cast<std::size_t>(table.stage_at(rank, 0))])
        lead +=
            scale * (at(section).forward + at(section).backward - at(section).recompute_head - at(section).accumulate);
  }
  return bound + least_tail;
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

}  // namespace weft
