// The problem of a search: a training job with a settled global batch, and the repeated layers of its model. Made once,
// never changed, shared by all candidates.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "plan/plan.h"
#include "problem/recompute_menu.h"
#include "problem/sections.h"

namespace weft {

// The repeated layers of a model, by kind: layers of one kind do the same on the same shapes.
struct LayerPattern {
  std::vector<int> kind;  // of every layer, in order
  int kinds = 0;
  // The job with a shorter model that has every kind of section, and the kinds of its layers: costs are read from it.
  // The whole model where none is known that is shorter.
  std::shared_ptr<const TrainingJob> short_job;
  std::vector<int> short_kind;
  // What the backward pass may compute again; unknown sizes, and no sets but the named ones, where `simple` is false.
  RecomputeMenu recompute;
  // One stack of layers between an embedding and a head: it can be cut anywhere and built with fewer layers.
  bool simple = false;
  // Sections of the model and of the short one, which has every kind of section; and the number of kinds.
  std::vector<Section> sections, short_sections;
  int section_kinds = 0;
  // By number of stages: their layers, divided by the seconds that sections take on one device; none where that is
  // unknown.
  std::vector<std::vector<std::int64_t>> balanced;
  std::vector<std::vector<std::int64_t>> other_stages;  // layers of stages that a search tried besides
  bool apart = true;                                    // Sections::apart: pipelines can be cut between layers
  // Most layers read what another layer makes, so that all of them take part in every sample one after another; false
  // for tables that are looked up side by side.
  bool chained = false;

  std::int64_t count() const { return static_cast<std::int64_t>(kind.size()); }
};

struct PlanProblem {
  std::shared_ptr<const TrainingJob> job;  // its global batch is settled; never null
  LayerPattern layers;
  std::int64_t devices = 1;
  std::int64_t per_node = 1;  // used devices of the first node
  bool regular = true;        // every node has the same number of used devices, all nodes and devices are of one kind
  std::int64_t global_batch = 1;
  std::int64_t heads = 1;    // greatest common divisor of the numbers of query heads, which tp must divide
  std::int64_t experts = 1;  // of a layer; 1: dense
  std::int64_t parameters = 0;
  std::int64_t operators = 0;            // of the forward pass
  bool splits_tensors = false;           // whether tensor parallelism applies
  OptimizerKind optimizer{};             // as asked for, or the model's usual one
  std::vector<std::string> assumptions;  // defaults chosen here

  const Cluster& cluster() const { return *job->cluster; }
  const SoftwareStack& stack() const { return job->stack; }
  const ModelInfo& model() const { return job->model; }
  std::int64_t tokens_per_step() const { return model().counts_tokens ? global_batch * model().seq : 0; }
  DeviceId device_at(std::int64_t rank) const { return job->device_at(rank); }
  // The least of all devices; 0: unknown.
  Bytes memory_budget() const;
};

// The request's strategy and micro-batch are ignored. Errors name the word at fault and the remedy.
Result<PlanProblem> pose(const PlanRequest& request, const Calibration& calibration = {});
// The same for a job, whose global batch may still be unset.
Result<PlanProblem> pose(TrainingJob job);
// The same problem on these of the cluster's devices, by rank; at least one.
PlanProblem on_devices(const PlanProblem& problem, std::vector<std::int64_t> devices);

}  // namespace weft
