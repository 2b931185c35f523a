// A training job: what is trained, on which devices, by which software, in which number types. All of a plan except the
// strategy.
//
//   settle({.model = "llama3-8b", .cluster = "dgx-h100:2"}, calibration)
//
// The user's words are read here only; everything after takes typed values. A job is settled once and then shared,
// unchanged, by every plan made for it. What the request leaves out gets its default, listed in `assumptions`.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "cluster/cluster.h"
#include "cost/calibration.h"
#include "graph/training.h"
#include "models/models.h"
#include "plan/memory_budget.h"
#include "plan/precision.h"
#include "strategy/stack.h"

namespace weft {

// What a user asks for, in words. Empty or absent: the default.
struct PlanRequest {
  std::string model;                                                // zoo name with overrides, config.json or .onnx
  std::string cluster;                                              // preset:nodes, or a file
  std::string strategy = {};                                        // shorthand, or a YAML file
  std::string tree = {};                                            // the text of that file, if already read
  std::optional<std::int64_t> global_batch = {}, micro_batch = {};  // samples per step; per micro-batch and replica
  std::optional<std::int64_t> seq = {};                             // tokens per sample
  std::string dtype = {};                                           // empty: the stack's, if devices have it
  std::optional<std::int64_t> device_count = {};                    // of the cluster, evenly over its nodes; none: all
  std::vector<std::int64_t> devices = {};                           // of the cluster, by rank; empty: as counted
  std::string stack = {};                // empty: megatron-lm for language models, pytorch-ddp for others
  std::string freeze = {};               // globs of parameters that are not trained (plan/freeze.h)
  double headroom = kHeadroom;           // share of a device's memory that stays free
  std::optional<Bytes> max_memory = {};  // of every device, less than it has
  std::string optimizer = {};            // plan/optimizer.h; empty: the model's usual one
  std::string reduce_dtype = {};         // type in which gradients are reduced; empty: the stack's
  std::string train = {};                // "lora:r=16,targets=attn" (plan/adapters.h); empty: all but what is frozen
};

struct TrainingJob {
  PlanRequest words;                       // the request without strategy: for messages and files
  std::shared_ptr<const Cluster> cluster;  // never null
  std::vector<std::int64_t> devices;       // of the cluster, by rank; empty: all, in their order
  ModelInfo model;                         // of one sample
  SoftwareStack stack;                     // with the constants of the calibration
  Tuning tuning;                           // constants of devices and links, of the same calibration
  Precision precision;
  std::optional<OptimizerKind> optimizer = {};  // asked for; none: the usual one of the model
  std::vector<std::string> assumptions;         // what was chosen here, and why
  // Those of the assumptions that every result names, short tables too: what stands in for what devices lack, and the
  // networks between nodes.
  std::vector<std::string> notes;

  // Samples per step; none: every strategy has its own default.
  std::optional<std::int64_t> global_batch() const { return words.global_batch; }
  std::int64_t device_count() const {
    return devices.empty() ? cluster->device_count() : static_cast<std::int64_t>(devices.size());
  }
  DeviceId device_at(std::int64_t rank) const {
    return DeviceId(static_cast<std::size_t>(devices.empty() ? rank : devices[static_cast<std::size_t>(rank)]));
  }
  // How much of the device's memory a plan may use; 0: its capacity is unknown.
  Bytes memory_budget_of(DeviceId device) const {
    const Bytes budget = memory_budget(capacity_of(cluster->spec(device)), words.headroom);
    const Bytes most = words.max_memory.value_or(budget);
    return budget.value > 0 ? std::min(budget, most) : most;
  }
};

// Errors name the word at fault and the remedy.
Result<TrainingJob> settle(const PlanRequest& request, const Calibration& calibration = {});

// The same job with another model: a shorter one, from which costs of layers are read.
Result<TrainingJob> with_model(TrainingJob job, const std::string& model);

// The software stack where none is named.
std::string_view default_stack(ModelKind kind);

}  // namespace weft
