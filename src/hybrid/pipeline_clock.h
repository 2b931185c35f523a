// The makespan of a pipeline whose stages take different times: a schedule's table becomes one list of actions in
// topological order, and one pass over it gives their end times for any stage times.
//
// After a few times the pipeline's length, every further micro-batch adds the same time (the maximum cycle mean of a
// max-plus system): longer steps are extrapolated linearly from two short ones.
// Cost: some 3 ns per action of a short step, at most 2·(3p)·p·v of them; tables are made once per shape.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include "base/result.h"
#include "program/schedule.h"

namespace weft {

// The times of a stage for one micro-batch, in any unit.
struct StageTimes {
  double forward = 0, backward_input = 0, backward_weight = 0;  // a fused backward takes both
  double backward_head = 0;  // of backward_input: its beginning, which needs no gradient yet (recomputation)
  double sends = 0;          // from the end of its forward to the start of the next stage's on another rank, and back
};

struct PipelineTimes {
  double makespan = 0;
  std::vector<double> rank_end;    // the end of its last action
  std::vector<double> chunk_end;   // by rank · chunks + chunk: the end of the last micro-batch's backward
  std::vector<double> chunk_last;  // the duration of that action
};

// The micro-batches that a rank holds, by chunk, when an action of a schedule with a split backward pass begins.
struct InFlight {
  Body body = Body::Forward;
  std::int32_t chunk = 0;
  std::vector<std::int32_t> whole, half;  // before backward; with only gradients of weights left

  auto operator<=>(const InFlight&) const = default;
};

// A schedule as a list of actions in topological order.
class PipelineTable {
 public:
  explicit PipelineTable(const Schedule& schedule);

  int ranks() const { return ranks_; }
  int chunks() const { return chunks_; }
  int micro_batches() const { return micro_batches_; }
  // The stage that a rank holds as its chunk.
  int stage_at(int rank, int chunk) const {
    return stage_at_[static_cast<std::size_t>(rank) * static_cast<std::size_t>(chunks_) +
                     static_cast<std::size_t>(chunk)];
  }
  // Micro-batches in flight of each chunk, from forward to the end of backward, at the moment when the rank has the
  // most over all its chunks.
  const std::vector<std::int32_t>& in_flight(int rank) const { return in_flight_[static_cast<std::size_t>(rank)]; }
  // The same at the beginning of every action where the backward pass is split, without moments dominated by another;
  // empty where it is not split.
  const std::vector<InFlight>& in_flight_split(int rank) const { return split_[static_cast<std::size_t>(rank)]; }

  void play(const std::vector<StageTimes>& stages, PipelineTimes& times) const;

 private:
  // End times of actions are in one list, after two constants: 0 and minus infinity.
  static constexpr std::int32_t kStart = 0, kNever = 1, kFirst = 2;
  struct Step {
    std::int32_t before = kStart;  // the previous action on its rank
    std::int32_t needs = kNever;   // the action of the neighbouring stage
    std::int32_t cost = 0;         // index by stage, body and whether `needs` is on another rank
  };
  static std::int32_t cost_of(std::int32_t stage, Body body, bool remote) {
    return (stage * 4 + static_cast<std::int32_t>(body)) * 2 + (remote ? 1 : 0);
  }
  int ranks_ = 1, chunks_ = 1, micro_batches_ = 1;
  std::vector<Step> steps_;
  std::vector<std::int32_t> last_of_rank_, last_of_place_;  // last actions; of a chunk, the last micro-batch's backward
  std::vector<std::int32_t> stage_at_;
  std::vector<std::vector<std::int32_t>> in_flight_;
  std::vector<std::vector<InFlight>> split_;
};

// Tables by shape. Safe from several threads.
class PipelineTables {
 public:
  // Null where the schedule has no such shape.
  std::shared_ptr<const PipelineTable> find(const std::string& schedule, int ranks, int chunks, int micro_batches);

 private:
  using Key = std::tuple<std::string, int, int, int>;
  std::mutex mutex_;
  std::map<Key, std::shared_ptr<const PipelineTable>> known_;
};

// A pipeline of one shape with any number of micro-batches.
class PipelineClock {
 public:
  PipelineClock(PipelineTables& tables, const std::string& schedule, int ranks, int chunks, int micro_batches);

  bool valid() const { return first_ != nullptr; }
  const PipelineTable& table() const { return *first_; }
  void play(const std::vector<StageTimes>& stages, PipelineTimes& times) const;

 private:
  std::shared_ptr<const PipelineTable> first_, second_;  // second: null where the first is the whole step
  int micro_batches_ = 1;
};

}  // namespace weft
