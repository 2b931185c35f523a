#include "hybrid/hybrid_space.h"

#include <fmt/format.h>

#include <algorithm>

#include "strategy/schedules.h"

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

std::int64_t most_tensor_of(const PlanProblem& problem, const SpaceOptions& options) {
  if (!problem.splits_tensors) return 1;
  return options.most_tensor > 0 ? options.most_tensor : problem.per_node;
}

std::int64_t most_context_of(const PlanProblem& problem, const SpaceOptions& options) {
  if (!problem.splits_tensors || !problem.model().counts_tokens) return 1;
  return std::max<std::int64_t>(1, problem.model().seq / std::max<std::int64_t>(1, options.least_context));
}

class Enumeration {
 public:
  Enumeration(const PlanProblem& problem, const SpaceOptions& options)
      : problem_(problem), options_(options), recompute_(recomputations(problem, options)) {}

  HybridSpace run() {
    const bool layered = problem_.layers.count() > 0;
    for (std::int64_t tp : divisors(problem_.devices, most_tensor_of(problem_, options_))) {
      if (!on_node_boundaries(tp, problem_.per_node) || problem_.heads % tp != 0) {
        ++space_.left_out;
        continue;
      }
      for (std::int64_t cp : divisors(problem_.devices / tp, most_context_of(problem_, options_))) {
        if (!on_node_boundaries(tp * cp, problem_.per_node) || (cp > 1 && problem_.model().seq % (2 * cp * tp) != 0)) {
          ++space_.left_out;
          continue;
        }
        for (std::int64_t pp : divisors(problem_.devices / tp / cp, layered ? most_stages() : 1)) {
          plan_ = {};
          plan_.offload = options_.offload;
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
  // Embedding and head may be stages of their own.
  std::int64_t most_stages() const { return problem_.layers.count() + (options_.uneven_stages ? 2 : 0); }

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
    for (std::int64_t size : divisors(each, options_.most_micro_batch > 0 ? options_.most_micro_batch : each)) {
      plan_.micro_batch = static_cast<std::int32_t>(size);
      plan_.micro_batches = static_cast<std::int32_t>(each / size);
      schedules();
    }
  }

  void schedules() {
    const std::int64_t layers = problem_.layers.count();
    for (PlanSchedule schedule : options_.schedules) {
      plan_.schedule = schedule;
      const bool chunked = schedule == PlanSchedule::Interleaved || is_v(schedule);
      if (schedule != PlanSchedule::OneForwardOneBackward && plan_.pp == 1) continue;
      const PipelineSchedule& needs = *find_schedule(name_of(schedule));
      if ((needs.multiple_of_ranks && plan_.micro_batches % plan_.pp != 0) ||
          (needs.fewest_per_rank > 1 && plan_.micro_batches < needs.fewest_per_rank * plan_.pp)) {
        ++space_.left_out;
        continue;
      }
      const std::int64_t most = !chunked ? 1 : is_v(schedule) ? 2 : most_stages() / plan_.pp;
      for (std::int64_t vpp = chunked ? 2 : 1; vpp <= most; ++vpp) {
        plan_.vpp = static_cast<std::int32_t>(vpp);
        const std::int64_t stages = plan_.pp * vpp;
        const bool even = stages == 1 || layers % stages == 0;
        const bool light = options_.uneven_stages && stages > 1 && (layers + 2) % stages == 0;
        // Chunks of different sizes only with one chunk per rank.
        if (!even && !light && chunked) {
          ++space_.left_out;
          continue;
        }
        const bool cut_evenly = stages == 1 || (layers >= stages && (even || !chunked));
        if (cut_evenly) add_with(StageSplit::Even);
        if (stages == 1 || !options_.uneven_stages) continue;
        const auto cut = [&](StageSplit split) { return considered_stages(problem_, plan_.pp, vpp, split); };
        const auto evenly = cut_evenly ? cut(StageSplit::Even) : std::vector<std::int64_t>{};
        const auto light_ends = light || !even ? cut(StageSplit::LightEnds) : std::vector<std::int64_t>{};
        if (light_ends != evenly && !light_ends.empty()) add_with(StageSplit::LightEnds);
        if (const auto balanced = cut(StageSplit::Balanced); balanced != evenly && balanced != light_ends)
          add_with(StageSplit::Balanced);
      }
    }
  }

  void add_with(StageSplit split) {
    const std::int64_t stages = std::int64_t{plan_.pp} * plan_.vpp;
    if (stages > 1 && considered_stages(problem_, plan_.pp, plan_.vpp, split).empty()) return;
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

  // Every copy inside a node or on whole nodes of its own.
  std::vector<std::int64_t> numbers_of_copies() const {
    if (!options_.hybrid_sharding || plan_.zero != 3 || plan_.pp > 1 || plan_.ep > 1) return {1};
    std::vector<std::int64_t> found;
    for (std::int64_t copies : divisors(plan_.dp, plan_.dp))
      if (copies == 1 || on_node_boundaries(problem_.devices / copies, problem_.per_node)) found.push_back(copies);
    if (found.back() == plan_.dp && plan_.dp > 1) found.pop_back();  // nothing would be sharded
    return found;
  }

  void add_variants() {
    for (ContextMode mode : options_.context) {
      if (plan_.cp == 1 && mode != ContextMode::Gather) continue;
      if (mode == ContextMode::AllToAll && problem_.heads % (std::int64_t{plan_.tp} * plan_.cp) != 0) {
        ++space_.left_out;
        continue;
      }
      plan_.cp_mode = mode;
      for (bool sequence : {true, false}) {  // sequence parallelism cuts the sequence into equal parts
        if (plan_.tp == 1 && sequence) continue;
        if (sequence && problem_.model().seq % (std::int64_t{plan_.tp} * plan_.cp) != 0) {
          ++space_.left_out;
          continue;
        }
        plan_.sequence_parallel = sequence;
        plan_.recompute = recompute_.front();
        if (!options_.allow(parallelism_of(plan_, problem_.layers))) {
          ++space_.not_allowed;
          continue;
        }
        for (PlanRecompute recompute : recompute_) {
          plan_.recompute = recompute;
          space_.plans.push_back(plan_);
        }
      }
    }
  }

  const PlanProblem& problem_;
  const SpaceOptions& options_;
  const std::vector<PlanRecompute> recompute_;
  HybridPlan plan_;
  HybridSpace space_;
};

}  // namespace

SpaceOptions SpaceOptions::whole() {
  SpaceOptions options;
  options.schedules = {PlanSchedule::OneForwardOneBackward, PlanSchedule::Interleaved, PlanSchedule::ZeroBubbleH1,
                       PlanSchedule::ZeroBubbleV, PlanSchedule::GPipe};
  options.recompute = {PlanRecompute::None, PlanRecompute::Selective, PlanRecompute::Full, PlanRecompute::Op};
  options.most_micro_batch = 64;
  options.least_context = 1024;
  options.most_tensor = 64;
  options.pipelined_zero = true;
  return options;
}

std::vector<std::int64_t> considered_stages(const PlanProblem& problem, std::int64_t ranks, std::int64_t chunks,
                                            StageSplit split) {
  const std::int64_t layers = problem.layers.count(), stages = ranks * chunks;
  const bool even = layers % stages == 0, light = (layers + 2) % stages == 0;
  if (chunks > 1 && !(split == StageSplit::Even ? even : split == StageSplit::LightEnds ? light : even || light))
    return {};
  std::vector<std::int64_t> counts = stage_layers(problem.layers, stages, split);
  if (!counts.empty() && counts.front() == 0 && !problem.model().counts_tokens) return {};
  return counts;
}

std::vector<PlanRecompute> recomputations(const PlanProblem& problem, const SpaceOptions& options) {
  std::vector<PlanRecompute> sets = options.recompute;
  if (sets.empty())
    for (const std::uint8_t set : problem.layers.recompute.front) sets.push_back(static_cast<PlanRecompute>(set));
  std::erase_if(sets, [&](PlanRecompute each) {
    const RecomputeSet& set = problem.layers.recompute.sets[static_cast<std::size_t>(each)];
    return !options.constraints.allow_recomputation(set.base, set.full);
  });
  return sets;
}

std::vector<std::string> dimensions_of(const PlanProblem& problem, const SpaceOptions& options) {
  std::vector<std::string> found;
  const auto add = [&](std::string words) { found.push_back(std::move(words)); };
  const std::int64_t tensor = most_tensor_of(problem, options), context = most_context_of(problem, options);
  if (tensor > 1) add(fmt::format("tp up to {}{}, sp", tensor, options.most_tensor > 0 ? "" : " (a node)"));
  if (context > 1) add(fmt::format("cp (parts of {} tokens or more) and cp_mode", options.least_context));
  if (problem.experts > 1) add("ep (with etp=tp)");
  if (problem.layers.count() > 0) {
    std::vector<std::string_view> schedules;
    for (PlanSchedule schedule : options.schedules) schedules.push_back(name_of(schedule));
    add(fmt::format("pp and vpp ({})", fmt::join(schedules, ", ")));
    add(options.uneven_stages ? "stages: equal, embedding and head counted as layers, or balanced by seconds"
                              : "equal stages");
  }
  add(fmt::format("dp with zero={}{}{}", fmt::join(options.zero, ","),
                  options.pipelined_zero || problem.layers.count() == 0 ? "" : " (2 and 3 without pp)",
                  options.hybrid_sharding ? ", fsdp inside nodes or over whole ones" : ""));
  add(options.most_micro_batch > 0 ? fmt::format("mbs up to {}", options.most_micro_batch)
                                   : "mbs, every divisor that memory allows");
  if (const std::size_t sets = recomputations(problem, options).size(); sets > 1)
    add(fmt::format("recompute and full ({} sets of modules), in as many layers of every stage as memory asks for",
                    sets));
  if (options.offload) add("all with offload=optimizer");
  if (!options.constraints.empty())
    add(fmt::format("of all these only what was asked for: {}", fmt::join(options.constraints.words(), ", ")));
  return found;
}

HybridSpace enumerate_space(const PlanProblem& problem, const SpaceOptions& options) {
  return Enumeration(problem, options).run();
}

}  // namespace weft
