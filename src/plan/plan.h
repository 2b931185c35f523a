// A plan: one model on one cluster by one strategy, with nothing left open. The way from command-line words to a
// program.
//
//   make_plan({.model = "llama3-8b", .cluster = "dgx-h100:2", .strategy = "tp=4,pp=2,dp=2,zero=1"})
//   compile_plan(plan)                       the program and its schedule
//
// What the request leaves out gets the defaults of SEMANTICS, each told in `assumptions`. An error names the word at
// fault and the remedy; violations of the strategy come all together, one a line.
// Not here: choosing the strategy (search), times (src/simulate), tables (src/report).
// Cost: linear in operators; a few times the model's own build.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "cluster/cluster.h"
#include "compile/from_strategy.h"
#include "graph/training.h"
#include "models/models.h"
#include "plan/batch.h"
#include "plan/precision.h"
#include "strategy/resolve.h"
#include "strategy/shorthand.h"
#include "strategy/stack.h"

namespace weft {

struct PlanRequest {
  std::string model;                                                // zoo name with overrides, config.json or .onnx
  std::string cluster;                                              // preset:nodes, or a file
  std::string strategy;                                             // shorthand, or a YAML file
  std::string tree = {};                                            // the text of that file, where it is at hand
  std::optional<std::int64_t> global_batch = {}, micro_batch = {};  // samples per step; per micro-batch and replica
  std::optional<std::int64_t> seq = {};                             // tokens per sample
  std::string dtype = {};                                           // empty: the stack's
  std::vector<std::int64_t> devices = {};                           // of the cluster, by rank; empty: all of them
  std::string stack = {};   // empty: megatron-lm for language models, pytorch-ddp for others
  std::string freeze = {};  // globs of parameters that are not trained (plan/freeze.h)
};

// The vocabulary as published, and as the stack stores it.
struct Vocabulary {
  std::int64_t published = 0, stored = 0;  // 0: the model has none that a stack would pad

  bool padded() const { return stored != published; }
  bool operator==(const Vocabulary&) const = default;
};

struct Plan {
  PlanRequest request;
  Cluster cluster;
  SoftwareStack stack;
  ModelInfo model;              // `batch` is the graph's: one micro-batch of all replicas
  std::int64_t parameters = 0;  // with the published vocabulary
  Vocabulary vocabulary;
  Precision precision;
  TrainingOptions options;
  BatchPlan batch;
  std::optional<Parallelism> parallelism;  // when the strategy was written in shorthand
  Strategy strategy;
  TrainingGraph training;
  std::optional<TrainingGraph> last;  // of the last micro-batch, where it is smaller than the others
  ResolvedStrategy resolved;
  std::vector<std::string> assumptions;

  std::int64_t stored_parameters() const { return training.graph.parameter_count(); }
  std::int64_t frozen_parameters() const;  // of those, the ones that are not trained
  std::int64_t tokens_per_step() const { return batch.global_batch * model.seq; }  // 0: samples have no tokens
  // The devices in the order of ranks.
  std::vector<DeviceId> ranks() const;
};

Result<Plan> make_plan(const PlanRequest& request);

// With prices at hand, resharding of activations is chosen by them. `split_backward`: as for a schedule that splits the
// backward pass, where the plan's own does not.
Result<CompiledStrategy> compile_plan(const Plan& plan, const StepPrice* prices = nullptr, bool split_backward = false);

}  // namespace weft
