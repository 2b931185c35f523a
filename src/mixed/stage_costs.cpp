#include "mixed/stage_costs.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace weft {

std::int64_t most_samples_of(const PlanProblem& problem) {
  constexpr std::int64_t kSamples = 16, kTokens = 1 << 16;
  const bool tokens = problem.model().counts_tokens && problem.model().seq > 0;
  return std::max(kSamples, tokens ? kTokens / problem.model().seq : 0);
}

std::string words_of(PlanRecompute recompute, const LayerPattern& layers) {
  const RecomputeSet& set = layers.recompute.sets[static_cast<std::size_t>(recompute)];
  std::string words;
  if (set.base != Recompute::None) words += fmt::format(" recompute={}", name_of(set.base));
  if (!set.full.empty()) words += fmt::format(" full={}", fmt::join(set.full, "+"));
  return words;
}

HybridPlan plan_of(const StageOption& option, std::int64_t micro_batches) {
  HybridPlan plan;
  plan.tp = option.tp;
  plan.dp = option.dp;
  plan.micro_batch = option.micro_batch;
  plan.micro_batches = static_cast<std::int32_t>(micro_batches);
  plan.zero = option.dp > 1 ? 1 : 0;
  plan.sequence_parallel = option.tp > 1;
  plan.recompute = option.recompute;
  return plan;
}

namespace {

// The kind of section that layers of this kind are.
std::int32_t section_of(const LayerPattern& pattern, std::int32_t layer_kind) {
  const auto layer = std::find(pattern.kind.begin(), pattern.kind.end(), layer_kind) - pattern.kind.begin();
  for (const Section& section : pattern.sections)
    if (section.is_layer && section.layer == layer) return section.kind;
  return -1;
}

}  // namespace

std::optional<StageCosts> stage_costs(const Composer& composer, const LayerPattern& pattern, const StageOption& option,
                                      std::int64_t micro_batches) {
  const HybridPlan plan = plan_of(option, micro_batches);
  struct Read {
    double seconds = 0, once = 0;
    std::int64_t kept = 0, saved = 0, boundary = 0;
  };
  const auto read = [&](StageEnds ends, std::span<const std::int32_t> layers) -> std::optional<Read> {
    std::vector<std::int32_t> sections;
    if (ends.first) sections.push_back(pattern.sections.front().kind);
    for (std::int32_t kind : layers) sections.push_back(section_of(pattern, kind));
    if (ends.last) sections.push_back(pattern.sections.back().kind);
    const auto one = composer.compose_stage(plan, sections, 1), two = composer.compose_stage(plan, sections, 2);
    if (!one || !two) return std::nullopt;
    return Read{one->micro_batch_s, one->once_s, 2 * one->memory - two->memory, two->memory - one->memory,
                one->boundary_bytes};
  };
  StageCosts costs;
  const std::optional<Read> like = read({}, std::array{0});
  if (!like) return std::nullopt;
  costs.boundary_bytes = like->boundary;
  for (std::int32_t kind = 0; kind < pattern.kinds; ++kind) {
    const std::optional<Read> more = read({}, std::array{0, kind});
    if (!more) return std::nullopt;
    costs.layer.push_back(more->seconds - like->seconds);
    costs.once_layer.push_back(more->once - like->once);
    costs.bare.push_back(costs.layer.back());
    costs.kept_layer.push_back(more->kept - like->kept);
    costs.saved_layer.push_back(more->saved - like->saved);
  }
  double embedding = 0, head = 0;
  for (const StageEnds ends : {StageEnds{false, false}, {true, false}, {false, true}, {true, true}}) {
    const std::optional<Read> whole = read(ends, std::array{0});
    if (!whole) return std::nullopt;
    costs.ends[ends.index()] = whole->seconds - costs.layer.front();
    costs.once_ends[ends.index()] = whole->once - costs.once_layer.front();
    if (ends.first && !ends.last) embedding = whole->seconds - like->seconds;
    if (ends.last && !ends.first) head = whole->seconds - like->seconds;
    costs.kept_ends[ends.index()] = whole->kept - costs.kept_layer.front();
    costs.saved_ends[ends.index()] = whole->saved - costs.saved_layer.front();
  }
  costs.bare.insert(costs.bare.begin(), embedding);
  costs.bare.push_back(head);
  return costs;
}

}  // namespace weft
