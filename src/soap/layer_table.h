// The table of costs of a model's layers, by the compiler, the cost model and the simulator: models of one and two
// layers are simulated with one and two micro-batches under every option. The difference between two layers and one is
// the cost of a layer; its difference between two micro-batches and one is the cost per micro-batch; the rest belongs
// to embedding and head.
#pragma once

#include "cost/cost.h"
#include "forecast/memory.h"
#include "plan/plan.h"
#include "soap/layerwise.h"

namespace weft {

struct LayerTableRequest {
  std::shared_ptr<const TrainingJob> job;  // with a global batch
  const CostModel& cost;
  int devices = 0;                     // most devices of a stage; 0: all of the job's
  const SearchClock* clock = nullptr;  // an error where it stops the table
};

// For one number of micro-batches; options that do not divide or compile are left out. An error where none is left.
// Cost: per option two plans compiled and simulated twice, on all cores.
Result<LayerTable> make_layer_table(const LayerTableRequest& request, std::int64_t micro_batches);

// The memory of a device that layers may use: its budget less what every process needs (context, fragmentation).
Result<Bytes> layer_memory_limit(const LayerTableRequest& request, Bytes budget);

}  // namespace weft
