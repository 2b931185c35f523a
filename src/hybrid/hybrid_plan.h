// A plan of the hybrid space in a few numbers, small enough to enumerate hundreds of thousands.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "problem/problem.h"

namespace weft {

enum class PlanSchedule : std::uint8_t {
  OneForwardOneBackward,
  Interleaved,
  ZeroBubbleH1,
  ZeroBubbleV,
  GPipe,
  ZeroBubbleH2,
  DualPipeV
};
inline constexpr int kPlanSchedules = 7;
std::string_view name_of(PlanSchedule schedule);  // "1f1b", "interleaved", "zb-h1", …
// Into gradients of inputs and, later, of weights.
constexpr bool splits_backward(PlanSchedule schedule) {
  return schedule == PlanSchedule::ZeroBubbleH1 || schedule == PlanSchedule::ZeroBubbleH2 ||
         schedule == PlanSchedule::ZeroBubbleV || schedule == PlanSchedule::DualPipeV;
}
// Two chunks on every rank, down the ranks and back.
constexpr bool is_v(PlanSchedule schedule) {
  return schedule == PlanSchedule::ZeroBubbleV || schedule == PlanSchedule::DualPipeV;
}

// What the backward pass computes again: an index into the problem's menu (RecomputeMenu::sets), which begins with those
// that have names.
enum class PlanRecompute : std::uint8_t { None, Selective, Full, Op };
static_assert(static_cast<int>(PlanRecompute::Op) == static_cast<int>(Recompute::Op));

// How layers are assigned to stages.
enum class StageSplit : std::uint16_t {
  Even,       // equal counts; a remainder goes to the middle stages
  LightEnds,  // embedding and head count as a layer each; a stage may have nothing else
  Balanced,   // by the seconds that layers, embedding and head take (problem/balance.h)
  First,      // the first of LayerPattern::other_stages, and the others after it
};
inline constexpr std::array kStageSplits = {StageSplit::Even, StageSplit::LightEnds, StageSplit::Balanced};

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
  bool offload = false;  // the optimizer's state is in the host's memory

  auto operator<=>(const HybridPlan&) const = default;
};

// Layers of every stage, in order; empty where a stage would have none.
std::vector<std::int64_t> stage_layers(const LayerPattern& layers, std::int64_t stages, StageSplit split);
// The same by numbers of layers alone, without Balanced.
std::vector<std::int64_t> stage_layers(std::int64_t layers, std::int64_t stages, StageSplit split);

Parallelism parallelism_of(const HybridPlan& plan, const LayerPattern& layers);
// The plan with this parallelism; none where it is outside of the hybrid space.
std::optional<HybridPlan> hybrid_plan_of(const Parallelism& parallelism, const LayerPattern& layers);

}  // namespace weft
