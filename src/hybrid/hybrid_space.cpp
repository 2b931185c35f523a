#include "hybrid/hybrid_space.h"

#include <algorithm>

namespace weft {
namespace {

std::vector<std::int64_t> divisors(std::int64_t number, std::int64_t most) {
  std::vector<std::int64_t> found;
  for (std::int64_t i = 1; i <= std::min(number, most); ++i)
    if (number % i == 0) found.push_back(i);
  return found;
}

// Whether groups of this many neighbours fill whole nodes, or whole groups fill a node.
bool on_node_boundaries(std::int64_t group, std::int64_t node) { return node % group == 0 || group % node == 0; }

class Enumeration {
 public:
  Enumeration(const PlanProblem& problem, const SpaceOptions& options) : problem_(problem), options_(options) {}

  HybridSpace run() {
    const bool layered = problem_.layers.count() > 0;
    for (std::int64_t tp : divisors(problem_.devices, most_tensor())) {
      if (!on_node_boundaries(tp, problem_.per_node) || problem_.heads % tp != 0) {
        ++space_.left_out;
        continue;
      }
      for (std::int64_t cp : divisors(problem_.devices / tp, most_context())) {
        if (!on_node_boundaries(tp * cp, problem_.per_node) || problem_.model().seq % (2 * cp * tp) != 0) {
          ++space_.left_out;
          continue;
        }
        for (std::int64_t pp : divisors(problem_.devices / tp / cp, layered ? problem_.layers.count() : 1)) {
          plan_ = {};
          plan_.tp = static_cast<std::int32_t>(tp);
          plan_.cp = static_cast<std::int32_t>(cp);
          plan_.pp = static_cast<std::int32_t>(pp);
          plan_.dp = static_cast<std::int32_t>(problem_.devices / tp / cp / pp);
          if (problem_.global_batch % plan_.dp != 0) {
            ++space_.left_out;
            continue;
          }
          experts();
        }
      }
    }
    return std::move(space_);
  }

 private:
  std::int64_t most_tensor() const {
    if (!problem_.splits_tensors) return 1;
    return options_.most_tensor > 0 ? options_.most_tensor : problem_.per_node;
  }
  std::int64_t most_context() const {
    if (!problem_.splits_tensors || !problem_.model().counts_tokens) return 1;
    return std::max<std::int64_t>(1, problem_.model().seq / std::max<std::int64_t>(1, options_.least_context));
  }

  std::int64_t most_micro_batch() const {
    const bool tokens = problem_.model().counts_tokens && problem_.model().seq > 0;
    return std::max(options_.most_micro_batch, tokens ? options_.most_tokens / problem_.model().seq : 0);
  }

  void experts() {
    for (std::int64_t ep : divisors(problem_.experts, std::int64_t{plan_.dp} * plan_.cp)) {
      if (std::int64_t{plan_.dp} * plan_.cp % ep != 0) {
        ++space_.left_out;
        continue;
      }
      plan_.ep = static_cast<std::int32_t>(ep);
      micro_batches();
    }
  }

  void micro_batches() {
    const std::int64_t each = problem_.global_batch / plan_.dp;
    for (std::int64_t size : divisors(each, most_micro_batch())) {
      plan_.micro_batch = static_cast<std::int32_t>(size);
      plan_.micro_batches = static_cast<std::int32_t>(each / size);
      schedules();
    }
  }

  void schedules() {
    const std::int64_t layers = problem_.layers.count();
    for (PlanSchedule schedule : options_.schedules) {
      plan_.schedule = schedule;
      const bool chunked = schedule == PlanSchedule::Interleaved || schedule == PlanSchedule::ZeroBubbleV;
      if (schedule != PlanSchedule::OneForwardOneBackward && plan_.pp == 1) continue;
      if (schedule == PlanSchedule::Interleaved && plan_.micro_batches % plan_.pp != 0) {
        ++space_.left_out;
        continue;
      }
      const std::int64_t most = !chunked ? 1 : schedule == PlanSchedule::ZeroBubbleV ? 2 : layers / plan_.pp;
      for (std::int64_t vpp = chunked ? 2 : 1; vpp <= most; ++vpp) {
        plan_.vpp = static_cast<std::int32_t>(vpp);
        const std::int64_t stages = plan_.pp * vpp;
        const bool even = stages == 1 || layers % stages == 0;
        const bool light = options_.light_ends && stages > 1 && (layers + 2) % stages == 0;
        // Chunks of different sizes only with one chunk per rank.
        if (!even && !light && chunked) {
          ++space_.left_out;
          continue;
        }
        const bool cut_evenly = even || !chunked;
        if (cut_evenly) add_with(StageSplit::Even);
        const bool same = cut_evenly && stage_layers(layers, stages, StageSplit::Even) ==
                                            stage_layers(layers, stages, StageSplit::LightEnds);
        if (stages > 1 && !same && (light || (!even && options_.light_ends))) add_with(StageSplit::LightEnds);
      }
    }
  }

  void add_with(StageSplit split) {
    const std::int64_t stages = std::int64_t{plan_.pp} * plan_.vpp;
    if (stages > 1 && stage_layers(problem_.layers.count(), stages, split).empty()) return;
    plan_.split = split;
    const bool has_replicas = std::int64_t{plan_.dp} * plan_.cp > 1;
    for (int zero : options_.zero) {
      if (zero > 0 && !has_replicas) continue;
      // No stack combines sharded gradients and weights with a pipeline.
      if (zero >= 2 && plan_.pp > 1 && !options_.pipelined_zero) continue;
      plan_.zero = static_cast<std::int8_t>(zero);
      for (std::int64_t copies : numbers_of_copies()) {
        plan_.copies = static_cast<std::int32_t>(copies);
        add_variants();
      }
    }
  }

  // Every copy on whole nodes of its own. Only for stacks that prefetch weights: in others, all-reduces over copies
  // would delay the next gather.
  std::vector<std::int64_t> numbers_of_copies() const {
    const bool ahead = problem_.stack().gathers_in_flight.value >= 2;
    if (!options_.hybrid_sharding || !ahead || plan_.zero != 3 || plan_.pp > 1 || plan_.ep > 1) return {1};
    std::vector<std::int64_t> found;
    for (std::int64_t copies : divisors(plan_.dp, std::max<std::int64_t>(1, problem_.devices / problem_.per_node)))
      if (copies == 1 || problem_.devices / copies % problem_.per_node == 0) found.push_back(copies);
    if (found.back() == plan_.dp && plan_.dp > 1) found.pop_back();  // nothing would be sharded
    return found;
  }

  void add_variants() {
    for (PlanRecompute recompute : options_.recompute) {
      if (recompute == PlanRecompute::OpAndWide && problem_.layers.widest.empty()) continue;
      plan_.recompute = recompute;
      for (ContextMode mode : options_.context) {
        if (plan_.cp == 1 && mode != ContextMode::Gather) continue;
        if (mode == ContextMode::AllToAll && problem_.heads % (std::int64_t{plan_.tp} * plan_.cp) != 0) {
          ++space_.left_out;
          continue;
        }
        plan_.cp_mode = mode;
        for (bool sequence : {true, false}) {
          if (plan_.tp == 1 && sequence) continue;
          plan_.sequence_parallel = sequence;
          space_.plans.push_back(plan_);
        }
      }
    }
  }

  const PlanProblem& problem_;
  const SpaceOptions& options_;
  HybridPlan plan_;
  HybridSpace space_;
};

}  // namespace

SpaceOptions SpaceOptions::whole() {
  SpaceOptions options;
  options.schedules = {PlanSchedule::OneForwardOneBackward, PlanSchedule::Interleaved, PlanSchedule::ZeroBubbleH1,
                       PlanSchedule::ZeroBubbleV, PlanSchedule::GPipe};
  options.most_micro_batch = 64;
  options.least_context = 1024;
  options.most_tensor = 64;
  options.pipelined_zero = true;
  return options;
}

HybridSpace enumerate_space(const PlanProblem& problem, const SpaceOptions& options) {
  HybridSpace space = Enumeration(problem, options).run();
  if (options.admits)
    space.not_admitted = static_cast<std::int64_t>(std::erase_if(
        space.plans, [&](const HybridPlan& plan) { return !options.admits(parallelism_of(plan, problem.layers)); }));
  return space;
}

}  // namespace weft
