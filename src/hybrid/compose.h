// A plan's time and memory without simulating it: costs of its sections (probe.h), put together by the pipeline's
// schedule (pipeline_clock.h), with what replicas and stages say to one another (group_cost.h).
//
//   step  = the pipeline, its stages as uneven as they are, transfers between them; a stage whose replicas talk in
//   every
//           micro-batch as two streams (two_streams.h)
//         + gradients that are not yet reduced when the last backward pass ends
//         + the optimizer's step and the gathering of what was updated in parts
//   memory of a rank = what it keeps + micro-batches in flight · what each leaves behind + the most above it
//
// Probes and groups are found once for all plans that share them (`prepare`), so that a plan costs some microseconds.
// What is left out is small: links that stages share with the rest, buckets across layers.
// compose_test.cpp holds it to the simulator.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <tuple>

#include "forecast/memory.h"
#include "hybrid/group_cost.h"
#include "hybrid/hybrid_plan.h"
#include "hybrid/pipeline_clock.h"
#include "hybrid/probe.h"
#include "hybrid/replica_data.h"
#include "hybrid/two_streams.h"

namespace weft {

struct Composition {
  double step_s = 0;
  double bound_s = 0;       // the busiest rank's work and the way to it and back: no plan of these stages is faster
  std::int64_t memory = 0;  // of the fullest rank's device, context and communicators included
  std::int64_t saved = 0;   // of it, what micro-batches in flight leave behind: grows as they do
  std::int64_t budget = 0;  // 0: unknown
  // Where the time goes, on the busiest rank.
  double compute_s = 0, communication_s = 0, bubble_s = 0, data_s = 0, optimizer_s = 0;

  bool fits() const { return memory <= budget; }
};

class Composer {
 public:
  // All are kept by reference.
  Composer(const PlanProblem& problem, const CostModel& cost);

  // Probes the shapes of these plans, on so many threads. Plans whose shape does not compile cannot be composed.
  void prepare(std::span<const HybridPlan> plans, int threads);
  std::size_t probes() const { return blocks_.size(); }

  // None where the plan's shape does not compile or the schedule does not take it. Safe from several threads.
  // A plan that does not fit or whose bound is above `bound_above` (0: none) gets no time.
  std::optional<Composition> compose(const HybridPlan& plan, double bound_above = 0) const;
  // What no plan beats that differs from this one in what it recomputes, nor this one itself, found without a probe of
  // its own: from one without recomputation and of so large a micro-batch, which takes the least per sample. None where
  // that was not prepared (`relaxed`).
  std::optional<double> bound(const HybridPlan& plan, std::int32_t micro_batch) const;
  static HybridPlan relaxed(HybridPlan plan, std::int32_t micro_batch);
  // Its memory alone.
  std::optional<std::int64_t> memory(const HybridPlan& plan) const;
  std::int64_t budget() const { return budget_; }  // of a device; no limit: the largest number

 private:
  using DataKey = std::array<std::int32_t, 7>;  // tp, cp, ep, dp, zero, copies, sequence parallelism
  // The sections of every stage. Indices: 0 before the layers, 1 + kind, the last after them.
  struct Stages {
    std::vector<std::vector<std::int32_t>> sections;
  };

  static BlockShape shape_of(const HybridPlan& plan);
  const BlockCosts* block_of(const HybridPlan& plan) const;  // null: does not compile, or was not prepared
  const PipelineClock& clock_of(const HybridPlan& plan) const;
  bool deal_sections(const HybridPlan& plan, Stages& stages) const;
  const ReplicaData& data_of(const HybridPlan& plan, const BlockCosts& block) const;
  // How sections compute beside data-parallel communication, and how fast that is beside their computation.
  struct BesideData {
    Beside forward, backward;
    std::vector<StreamSpan> forward_spans = {}, backward_spans = {};
  };
  const std::vector<BesideData>& device_sharing(const BlockCosts& block, const ReplicaData& data) const;
  Beside device_sharing(const std::vector<ComputeShare>& shares, const ReplicaData& data) const;
  // The same with links that communication of the section loads too.
  const std::vector<BesideData>& sharing_of(const BlockCosts& block, const ReplicaData& data) const;
  struct Need {
    std::int64_t memory = 0, saved = 0;
  };
  Need memory_of(const HybridPlan& plan, const BlockCosts& block, const Stages& stages,
                 const PipelineTable& table) const;
  double sent(std::int64_t distance, std::int64_t bytes, const StridedGroup& alike) const;
  // Sections with the communication that every micro-batch has, and stages made of them.
  struct StageWork;
  const StageWork& work_of(const HybridPlan& plan, const BlockCosts& block, const ReplicaData& data,
                           const Stages& stages) const;
  // Stages whose replicas talk in every micro-batch (ZeRO-2 and 3).
  static double begun(const HybridPlan& plan, const SectionCost& cost);
  void play_replicas(const HybridPlan& plan, const BlockCosts& block, const ReplicaData& data, const Stages& stages,
                     StageWork& work) const;
  // What a micro-batch takes at least of a section, without what runs beside it; its times are multiplied by `scale`.
  struct Least {
    double own = 0;    // computation, and communication it always waits for
    double said = 0;   // what replicas say, one after the other
    double waits = 0;  // of own: communication
  };
  Least least_of(const HybridPlan& plan, const SectionCost& cost, const SectionData& said, double scale) const;
  double bound_of(const HybridPlan& plan, const BlockCosts& block, const ReplicaData& data, const Stages& stages,
                  const PipelineTable& table, double scale) const;
  void set_times(const HybridPlan& plan, const BlockCosts& block, const ReplicaData& data, const Stages& stages,
                 const PipelineClock& clock, double bound_above, Composition& made) const;

  const PlanProblem& problem_;
  const CostModel& cost_;
  std::int64_t budget_ = 0;
  Interference interference_;
  std::map<BlockShape, std::optional<BlockCosts>> blocks_;
  GraphCache graphs_{64};
  mutable GroupCosts groups_;
  mutable PipelineTables tables_;
  mutable std::mutex mutex_;
  mutable std::map<DataKey, std::unique_ptr<const ReplicaData>> data_;
  mutable std::map<std::tuple<const BlockCosts*, std::int32_t, std::int32_t>, std::vector<BesideData>> device_sharing_;
  mutable std::map<std::pair<const BlockCosts*, const ReplicaData*>, std::vector<BesideData>> sharing_;
  mutable std::map<std::tuple<std::int64_t, std::int64_t, StridedGroup>, double> transfers_;
  mutable std::map<std::tuple<PlanSchedule, int, int, int>, PipelineClock> clocks_;
};

}  // namespace weft
