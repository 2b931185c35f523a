// A plan of the hybrid space in a few numbers, small enough to enumerate hundreds of thousands.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "problem/problem.h"

namespace weft {

enum class PlanSchedule : std::uint8_t { OneForwardOneBackward, Interleaved, ZeroBubbleH1, ZeroBubbleV, GPipe };
inline constexpr int kPlanSchedules = 5;
std::string_view name_of(PlanSchedule schedule);  // "1f1b", "interleaved", "zb-h1", "zb-v", "gpipe"

// What the backward pass computes again: an index into the problem's menu (RecomputeMenu::sets), which begins with those
// that have names.
enum class PlanRecompute : std::uint8_t { None, Selective, Full, Op };
static_assert(static_cast<int>(PlanRecompute::Op) == static_cast<int>(Recompute::Op));

// How layers are assigned to stages.
enum class StageSplit : std::uint8_t {
  Even,       // equal counts; a remainder goes to the middle stages
  LightEnds,  // embedding and head count as a layer each; a stage may have nothing else
};

struct HybridPlan {
  std::int32_t tp = 1, cp = 1, ep = 1, pp = 1, dp = 1, vpp = 1;
  std::int32_t micro_batch = 1, micro_batches = 1;
  std::int8_t zero = 0;
  std::int32_t copies = 1;  // of what ZeRO-3 shards, each over dp / copies replicas (hybrid sharding)
  bool sequence_parallel = false;
  PlanRecompute recompute = PlanRecompute::None;
  ContextMode cp_mode = ContextMode::Gather;
  PlanSchedule schedule = PlanSchedule::OneForwardOneBackward;
  StageSplit split = StageSplit::Even;

  auto operator<=>(const HybridPlan&) const = default;
};

// Layers of every stage, in order; empty where a stage would have none.
std::vector<std::int64_t> stage_layers(std::int64_t layers, std::int64_t stages, StageSplit split);

Parallelism parallelism_of(const HybridPlan& plan, const LayerPattern& layers);
// The plan with this parallelism; none where it is outside of the hybrid space.
std::optional<HybridPlan> hybrid_plan_of(const Parallelism& parallelism, const LayerPattern& layers);

}  // namespace weft
