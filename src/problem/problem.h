// What a search is asked: a training job with its batch settled, and what of the model repeats. Made once, never
// changed, the same for every plan that is considered.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "plan/plan.h"

namespace weft {

// The repeated layers of a model, by kind: layers of one kind do the same on the same shapes.
struct LayerPattern {
  std::vector<int> kind;  // of every layer, in order
  int kinds = 0;
  // The job with a shorter model that has every kind of layer, and the kinds of its layers: what costs are read from.
  std::shared_ptr<const TrainingJob> short_job;
  std::vector<int> short_kind;
  // Of every kind of layer the product that leaves most behind where all else is computed again, as globs:
  // "layers.*.mlp.gate_up". Empty: not known.
  std::vector<std::string> widest;
  // One stack of layers, with an embedding before and a head after: it can be cut anywhere and built shorter.
  bool simple = false;

  std::int64_t count() const { return static_cast<std::int64_t>(kind.size()); }
};

struct PlanProblem {
  std::shared_ptr<const TrainingJob> job;  // its global batch is settled; never null
  LayerPattern layers;
  std::int64_t devices = 1;
  std::int64_t per_node = 1;  // devices of the first node, of those that are used
  bool regular = true;        // every node has as many of one kind
  std::int64_t global_batch = 1;
  std::int64_t heads = 1;    // query heads that tensor parallelism may split: their greatest common measure
  std::int64_t experts = 1;  // of a layer; 1: dense
  std::int64_t parameters = 0;
  bool splits_tensors = false;           // tensor parallelism finds something to split
  std::vector<std::string> assumptions;  // what was settled here

  const Cluster& cluster() const { return *job->cluster; }
  const SoftwareStack& stack() const { return job->stack; }
  const ModelInfo& model() const { return job->model; }
  std::int64_t tokens_per_step() const { return model().counts_tokens ? global_batch * model().seq : 0; }
  DeviceId device_at(std::int64_t rank) const { return job->device_at(rank); }
  // Of the device with the least; 0: unknown.
  Bytes memory_budget() const;
};

// The request's strategy and micro-batch do not count. Errors name the word at fault and the remedy.
Result<PlanProblem> pose(const PlanRequest& request, const Calibration& calibration = {});
// The same from a job, whose global batch may be open.
Result<PlanProblem> pose(TrainingJob job);

}  // namespace weft
