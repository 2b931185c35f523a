// What `weft plan` is asked: a model on a cluster, its batch settled, and what of the model repeats. The same for every
// plan that is considered.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plan/plan.h"

namespace weft {

// The repeated layers of a model, by kind: layers of one kind do the same on the same shapes.
struct LayerPattern {
  std::vector<int> kind;  // of every layer, in order
  int kinds = 0;
  // A model with fewer layers that has every kind, and the kinds of its layers: what costs are read from.
  std::string short_model;
  std::string short_freeze;  // of the request's `freeze`, what covers something in it
  std::vector<int> short_kind;
  // Of every kind of layer the product that leaves most behind where all else is computed again, as globs:
  // "layers.*.mlp.gate_up". Empty: not known.
  std::vector<std::string> widest;
  // One stack of layers, with an embedding before and a head after: it can be cut anywhere and built shorter.
  bool simple = false;

  std::int64_t count() const { return static_cast<std::int64_t>(kind.size()); }
};

struct PlanProblem {
  PlanRequest request;  // batch, sequence and type as settled; strategy empty
  Cluster cluster;
  SoftwareStack stack;
  Precision precision;
  ModelInfo model;
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

  std::int64_t tokens_per_step() const { return model.counts_tokens ? global_batch * model.seq : 0; }
  DeviceId device_at(std::int64_t rank) const {
    const auto& chosen = request.devices;
    return DeviceId(static_cast<std::size_t>(chosen.empty() ? rank : chosen[static_cast<std::size_t>(rank)]));
  }
};

// The request's strategy and micro-batch do not count. Errors name the word at fault and the remedy.
Result<PlanProblem> pose(const PlanRequest& request);

// The model with other layers: "llama3-70b" → "llama3-70b:layers=3".
std::string with_layers(const std::string& model, std::int64_t layers);

}  // namespace weft
