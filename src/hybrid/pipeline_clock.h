// How long a pipeline takes whose stages differ: a schedule's table, turned into one list of actions in an order of
// their dependencies, played for any stage times by one pass over it.
//
// A step has as many micro-batches as the batch wants, but after a few times the pipeline's length every further one
// adds the same (the maximum cycle mean of a max-plus system): longer steps are two short plays and a straight line.
// Cost: some 3 ns per action of a short play, at most 2·(3p)·p·v of them; tables are made once per shape.
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

// What a stage takes for one micro-batch, in any unit.
struct StageTimes {
  double forward = 0, backward_input = 0, backward_weight = 0;  // a fused backward takes both
  double backward_head = 0;  // of backward_input: its beginning, which needs no gradient yet (recomputation)
};

struct PipelineTimes {
  double makespan = 0;
  std::vector<double> rank_end;    // of its last action
  std::vector<double> chunk_end;   // by rank · chunks + chunk: the last micro-batch's backward
  std::vector<double> chunk_last;  // how long that action takes
};

// What a rank holds of micro-batches when an action of a schedule with a split backward pass begins, by chunk.
struct InFlight {
  Body body = Body::Forward;
  std::int32_t chunk = 0;
  std::vector<std::int32_t> whole, half;  // that have come forward; of which gradients of weights are left to compute

  auto operator<=>(const InFlight&) const = default;
};

// A schedule, ready to be played.
class PipelineTable {
 public:
  explicit PipelineTable(const Schedule& schedule);

  int ranks() const { return ranks_; }
  int chunks() const { return chunks_; }
  int micro_batches() const { return micro_batches_; }
  // The stage that a rank holds as its chunk.
  int stage_at(int rank, int chunk) const { return stage_at_[static_cast<std::size_t>(rank * chunks_ + chunk)]; }
  // Micro-batches in flight of each chunk when the rank has most chunks' worth of them: between the forward pass and
  // the end of the backward pass, in issue order.
  const std::vector<std::int32_t>& in_flight(int rank) const { return in_flight_[static_cast<std::size_t>(rank)]; }
  // The same where the backward pass is split, at the beginning of actions, the ones that hold no more than another
  // left out; empty: it is not.
  const std::vector<InFlight>& in_flight_split(int rank) const { return split_[static_cast<std::size_t>(rank)]; }

  // `transfer`: from the end of an action on one rank to the start of the next on another.
  void play(const std::vector<StageTimes>& stages, double transfer, PipelineTimes& times) const;

 private:
  // Ends of actions have places in one list, behind two that are there before: 0, and never.
  static constexpr std::int32_t kStart = 0, kNever = 1, kFirst = 2;
  struct Step {
    std::int32_t before = kStart;  // on its rank
    std::int32_t needs = kNever;   // of the neighbouring stage
    std::int32_t cost = 0;         // by stage, body and whether what it needs is on another rank
  };
  static std::int32_t cost_of(std::int32_t stage, Body body, bool remote) {
    return (stage * 4 + static_cast<std::int32_t>(body)) * 2 + (remote ? 1 : 0);
  }
  int ranks_ = 1, chunks_ = 1, micro_batches_ = 1;
  std::vector<Step> steps_;
  std::vector<std::int32_t> last_of_rank_, last_of_place_;  // actions; of a place, the last micro-batch's backward
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

// A pipeline of one shape and any number of micro-batches.
class PipelineClock {
 public:
  PipelineClock(PipelineTables& tables, const std::string& schedule, int ranks, int chunks, int micro_batches);

  bool valid() const { return first_ != nullptr; }
  const PipelineTable& table() const { return *first_; }
  void play(const std::vector<StageTimes>& stages, double transfer, PipelineTimes& times) const;

 private:
  std::shared_ptr<const PipelineTable> first_, second_;  // second: none where the first is the whole step
  int micro_batches_ = 1;
};

}  // namespace weft
