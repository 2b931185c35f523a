// The training graph of a job, as its software stack builds it for a strategy: attention in one kernel or several, the
// vocabulary padded, tokens in the order that balances context parallelism.
//
// The graph depends on the strategy through a few numbers only (GraphShape): plans that agree in them share one graph.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "graph/training.h"
#include "plan/job.h"
#include "strategy/shorthand.h"

namespace weft {

// What a job's training graph depends on in addition to the job.
struct GraphShape {
  std::int64_t batch = 1, last_batch = 1;  // samples of a micro-batch of all replicas, and of the last one
  std::int64_t tp = 1;                     // stacks pad the vocabulary to a multiple of it
  std::int64_t zigzag = 1;                 // over how many devices causal attention is balanced by the order of tokens
  std::int64_t expert_devices = 0;         // over which experts of unequal load are spread; 0: their load is equal
  std::vector<std::int64_t> routing = {};  // parts of the sequence that route their own tokens, major first; empty: one

  auto operator<=>(const GraphShape&) const = default;
};

// The vocabulary as published, and as the stack stores it.
struct Vocabulary {
  std::int64_t published = 0, stored = 0;  // 0: the model has none that a stack would pad

  bool padded() const { return stored != published; }
  bool operator==(const Vocabulary&) const = default;
};

struct TrainedModel {
  ModelInfo info;               // `batch` is the graph's: one micro-batch of all replicas
  std::int64_t parameters = 0;  // with the published vocabulary
  Vocabulary vocabulary;
  TrainingOptions options;
  TrainingGraph training;
  std::optional<TrainingGraph> last;     // of the last micro-batch, where it is smaller than the others
  std::vector<std::string> assumptions;  // how the stack and the strategy changed the model
};

// What updates the weights: as asked for, else what such models are usually trained with.
OptimizerKind optimizer_of(const TrainingJob& job, const ModelInfo& info, const Graph& graph);

Result<TrainedModel> build_trained_model(const TrainingJob& job, const GraphShape& shape);

// The most recently built graphs, for jobs that differ only in devices and batch. Safe from several threads.
class GraphCache {
 public:
  explicit GraphCache(std::size_t most) : most_(most) {}

  Result<std::shared_ptr<const TrainedModel>> build(const TrainingJob& job, const GraphShape& shape);

 private:
  const std::size_t most_;
  std::mutex mutex_;
  std::map<GraphShape, std::shared_ptr<const TrainedModel>> known_;
  std::deque<GraphShape> order_;  // oldest first
};

}  // namespace weft
