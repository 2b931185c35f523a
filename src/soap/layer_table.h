// The table of a model's layers, from the compiler, the cost model and the simulator: instances of one and two layers,
// played with one and two micro-batches, under every option. What the second layer adds is a layer's cost; what the
// second micro-batch adds to that is its cost per micro-batch; the rest is what stands before and after the layers.
#pragma once

#include "cost/cost.h"
#include "forecast/memory.h"
#include "plan/plan.h"
#include "soap/layerwise.h"

namespace weft {

struct LayerTableRequest {
  std::shared_ptr<const TrainingJob> job;  // its global batch is settled
  const CostModel& cost;
  int devices = 0;  // most of a stage; 0: all of the job's
};

// For one number of micro-batches; options that do not divide or compile are left out. An error where none is left.
// Cost: two plans compiled and played twice per option, on all cores.
Result<LayerTable> make_layer_table(const LayerTableRequest& request, std::int64_t micro_batches);

// Memory that the options' layers may take of a device: its budget less what a process needs besides.
Result<Bytes> layer_memory_limit(const LayerTableRequest& request, Bytes budget);

}  // namespace weft
