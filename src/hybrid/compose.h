// A plan's time and memory without simulating it: costs of its sections (probe.h), combined by the pipeline's schedule
// (pipeline_clock.h), with collectives among replicas (data_parallel_cost.h) and transfers between stages.
//
//   step  = the pipeline's makespan, with its uneven stages and the transfers between them; a stage that communicates
//           with its replicas in every micro-batch (ZeRO-2 and 3) as two streams (two_streams.h)
//         + gradients that are not yet reduced when the last backward pass ends
//         + the optimizer's step and the all-gather of parameters that were updated in shards
//   memory of a rank = parameters, gradients and optimizer state
//         + micro-batches in flight · activations that each saves + the largest temporary memory above these
//
// Sections come from any model; pipelines are cut between layers.
//
// Probes and costs of collectives are found once for all plans that share them (`prepare`), so that a plan takes some
// microseconds. Neglected, because small: contention of stages' transfers with other communication, buckets that span
// layers. compose_test.cpp compares with the simulator. The members are defined in compose.cpp and compose_*.cpp.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <tuple>

#include "forecast/memory.h"
#include "hybrid/data_parallel_cost.h"
#include "hybrid/group_cost.h"
#include "hybrid/hybrid_plan.h"
#include "hybrid/pipeline_clock.h"
#include "hybrid/probe.h"
#include "hybrid/two_streams.h"
#include "problem/budget.h"

namespace weft {

struct Composition {
  double step_s = 0;
  double bound_s = 0;       // lower bound: the busiest rank's work, and the first micro-batch's way to it and back
  std::int64_t memory = 0;  // of the fullest rank's device, context and communicators included
  std::int64_t saved = 0;   // of it: activations of micro-batches in flight, proportional to their size
  std::int64_t budget = 0;  // 0: unknown
  // Where the time goes, on the busiest rank.
  double compute_s = 0, communication_s = 0, bubble_s = 0, data_s = 0, optimizer_s = 0;

  bool fits() const { return memory <= budget; }
};

// One stage among stages on other devices.
struct StageComposition {
  double micro_batch_s = 0;         // forward and backward of a micro-batch
  double once_s = 0;                // once per step: gradients that are reduced after the last one, the optimizer
  std::int64_t memory = 0;          // as Composition::memory
  std::int64_t boundary_bytes = 0;  // that a device sends to the next stage, per micro-batch
};

class Composer {
 public:
  // Both are kept by reference.
  Composer(const PlanProblem& problem, const CostModel& cost);

  // Probes the shapes of these plans on `threads` threads, until the clock stops it. Plans whose shape does not compile
  // cannot be composed.
  void prepare(std::span<const HybridPlan> plans, int threads, const SearchClock* clock = nullptr);
  std::size_t probes() const { return blocks_.size(); }
  // Whether plans like this one are composed: no pipelines of models whose layers take turns (LayerPattern::apart).
  bool composes(const HybridPlan& plan) const { return plan.pp == 1 || problem_.layers.apart; }

  // None where the plan's shape does not compile or its schedule does not exist for these numbers. Safe from several
  // threads. Given `bound_above` (0: none), no time is computed for a plan that does not fit or whose lower bound is
  // above it.
  std::optional<Composition> compose(const HybridPlan& plan, double bound_above = 0) const;
  // A stage of these sections (Section::kind) on tp · cp · dp of the devices, that
  // keeps up to `in_flight` micro-batches; the plan's pipeline is ignored. None as in compose.
  std::optional<StageComposition> compose_stage(const HybridPlan& plan, std::span<const std::int32_t> sections,
                                                std::int32_t in_flight) const;
  // A lower bound on the time of this plan and of every plan that differs from it only in what it recomputes. It needs
  // no probe of this plan's shape, but one without recomputation and with `micro_batch` samples, the largest
  // micro-batch, whose time per sample is least (`relaxed`). None where that was not prepared.
  std::optional<double> bound(const HybridPlan& plan, std::int32_t micro_batch) const;
  // A lower bound on the time of plans that recompute what `fits` does or less, in every stage and layer as memory allows
  // (recompute_by_stage.h): what the linear relaxation leaves of every rank's work. `before` saves more and does not
  // fit, `none` recomputes nothing; a rank gains no more for its room than between these. None where one of them was
  // not prepared.
  std::optional<double> bound_by_stage(const HybridPlan& fits, const HybridPlan& before, const HybridPlan& none) const;
  static HybridPlan relaxed(HybridPlan plan, std::int32_t micro_batch);
  // As Composition::memory.
  std::optional<std::int64_t> memory(const HybridPlan& plan) const;
  // The same of every pipeline rank; empty where `memory` is none.
  std::vector<std::int64_t> memory_by_rank(const HybridPlan& plan) const;
  std::int64_t budget() const { return budget_; }  // bytes of a device; the largest number: no limit

 private:
  using DataKey = std::array<std::int32_t, 7>;  // tp, cp, ep, dp, zero, copies, sequence parallelism
  // The sections of every stage, by kind, and the bytes that a device sends to the next stage.
  struct Stages {
    std::vector<std::vector<std::int32_t>> sections;
    std::vector<std::int64_t> sent;
    std::vector<std::int32_t> part = {};  // the sections, if they are not those of the whole model
  };

  static BlockShape shape_of(const HybridPlan& plan);
  const BlockCosts* block_of(const HybridPlan& plan) const;  // null: does not compile, or was not prepared
  const PipelineClock& clock_of(const HybridPlan& plan) const;
  bool assign_sections(const HybridPlan& plan, const BlockCosts& block, Stages& stages) const;
  const DataParallelCosts& data_of(const HybridPlan& plan, const BlockCosts& block) const;
  // Speeds of a section's passes and of data-parallel communication while they overlap.
  struct SectionOverlap {
    OverlapSpeed forward, backward;
    std::vector<StreamSpan> forward_spans = {}, backward_spans = {};
  };
  const std::vector<SectionOverlap>& device_sharing(const BlockCosts& block, const DataParallelCosts& data) const;
  OverlapSpeed device_sharing(const std::vector<ComputeShare>& shares, const DataParallelCosts& data) const;
  // The same, with links that communication inside the section uses too.
  const std::vector<SectionOverlap>& sharing_of(const BlockCosts& block, const DataParallelCosts& data) const;
  struct Need {
    std::int64_t memory = 0, saved = 0;
  };
  // Of every rank, into `needs`.
  void memory_of_ranks(const HybridPlan& plan, const BlockCosts& block, const Stages& stages,
                       const PipelineTable& table, std::int32_t in_flight, std::vector<Need>& needs) const;
  // `in_flight`: micro-batches that every stage keeps; 0: as the table says.
  Need memory_of(const HybridPlan& plan, const BlockCosts& block, const Stages& stages, const PipelineTable& table,
                 std::int32_t in_flight = 0) const;
  double transfer_time(std::int64_t distance, std::int64_t bytes, const StridedGroup& alike) const;
  // Of a stage's sections, by what they read that no section of the stage makes.
  static void distant_reads(const std::vector<std::int32_t>& stage, const BlockCosts& block,
                            std::vector<DistantRead>& read);
  void add_distant_transfers(const HybridPlan& plan, const BlockCosts& block, const Stages& stages,
                             std::vector<StageTimes>& times) const;
  // Times of sections and stages for one micro-batch, with the communication that recurs in every micro-batch.
  struct StageWork;
  const StageWork& work_of(const HybridPlan& plan, const BlockCosts& block, const DataParallelCosts& data,
                           const Stages& stages) const;
  // Seconds per micro-batch, on average, that the first one saves: it writes gradients instead of adding to them.
  static double skipped_accumulation(const HybridPlan& plan, const SectionCost& cost);
  // Stages with data-parallel communication in every micro-batch (ZeRO-2 and 3), as two streams.
  void play_data_parallel(const HybridPlan& plan, const BlockCosts& block, const DataParallelCosts& data,
                          const Stages& stages, StageWork& work) const;
  // The least time of a micro-batch in a section, without interference; times of the probe are multiplied by `scale`.
  struct MinimumTime {
    double own = 0;            // computation, and communication that it always waits for
    double communication = 0;  // data-parallel communication, one collective after the other
    double waits = 0;          // of own: the communication
  };
  // Seconds of a section's forward and backward pass that no stage can do without.
  std::pair<double, double> least_passes(const HybridPlan& plan, const SectionCost& cost) const;
  MinimumTime minimum_of(const HybridPlan& plan, const SectionCost& cost, const SectionSync& sync, double scale) const;
  // Of a rank: when its first micro-batch can begin and its last end at the earliest, together, and its own work.
  struct RankBound {
    double lead = 0, work = 0;
  };
  double bound_of(const HybridPlan& plan, const BlockCosts& block, const DataParallelCosts& data, const Stages& stages,
                  const PipelineTable& table, double scale, std::vector<RankBound>* ranks = nullptr) const;
  // Of every rank; empty where there are no replicas or gradients are reduced in every micro-batch.
  using RankBuckets = std::vector<std::vector<GradientBucket>>;
  const RankBuckets& buckets_of(const HybridPlan& plan, const DataParallelCosts& data, const Stages& stages,
                                const PipelineTable& table) const;
  // Whether a tied embedding is on two ranks.
  bool shares_table(const PipelineTable& table) const;
  void set_times(const HybridPlan& plan, const BlockCosts& block, const DataParallelCosts& data, const Stages& stages,
                 const PipelineClock& clock, double bound_above, Composition& made) const;

  const PlanProblem& problem_;
  const CostModel& cost_;
  std::int64_t budget_ = 0;
  double host_rate_ = 0;  // bytes per second of every device to its host and back, while all copy
  Interference interference_;
  std::map<BlockShape, std::optional<BlockCosts>> blocks_;
  GraphCache graphs_{64};
  mutable GroupCosts groups_;
  mutable PipelineTables tables_;
  mutable std::mutex mutex_;
  mutable std::map<DataKey, std::unique_ptr<const DataParallelCosts>> data_;
  mutable std::map<std::tuple<const BlockCosts*, std::int32_t, std::int32_t>, std::vector<SectionOverlap>>
      device_sharing_;
  mutable std::map<std::pair<const BlockCosts*, const DataParallelCosts*>, std::vector<SectionOverlap>> sharing_;
  mutable std::map<std::tuple<std::int64_t, std::int64_t, StridedGroup>, double> transfers_;
  mutable std::map<std::tuple<PlanSchedule, int, int, int>, PipelineClock> clocks_;
  mutable std::map<std::tuple<const DataParallelCosts*, PlanSchedule, int, int, StageSplit, std::vector<std::int32_t>>,
                   RankBuckets>
      buckets_;
};

}  // namespace weft
