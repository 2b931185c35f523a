// Whether a program trains as one device would.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "graph/training.h"
#include "program/last_micro_batch.h"
#include "program/program.h"
#include "reference/run_graph.h"

namespace weft::reference {

// The scalar inputs of a step.
struct StepNumbers {
  double step = 1, learning_rate = 0.01, loss_scale = 1;
};

// The parts in which the program computes each operator. Refers to both.
Shards shards_of(const Program& program, const Graph& graph);

// Training of the graph on one device, step by step, with seeded samples and weights.
class OneDevice {
 public:
  // `last`: the graph of the last micro-batch, where that has fewer samples.
  OneDevice(const TrainingGraph& training, int micro_batches, Shards shards = {}, const Graph* last = nullptr,
            Shards last_shards = {})
      : training_(training),
        micro_batches_(micro_batches),
        shards_(std::move(shards)),
        last_(last),
        last_shards_(std::move(last_shards)) {}

  // The whole value of a leaf for a micro-batch of the current step: samples, the step's scalars, initial weights.
  // States are zero.
  Block given(TensorId leaf, int micro_batch) const;
  // Sets the scalars of the next step, which `given` then returns; play() executes the step.
  void begin(const StepNumbers& numbers) { numbers_ = numbers; }
  void play();

  // All tensors after the last micro-batch and the step.
  const IdVec<TensorId, Block>& values() const { return values_; }
  // A parameter or state as it is now.
  Block kept(TensorId leaf) const;

 private:
  const Graph& graph_of(int micro_batch) const {
    return last_ && micro_batch + 1 == micro_batches_ ? *last_ : training_.graph;
  }
  // The share of the step's samples that a micro-batch has.
  double share_of(int micro_batch) const;

  const TrainingGraph& training_;
  const int micro_batches_;
  const Shards shards_;
  const Graph* const last_;
  const Shards last_shards_;
  StepNumbers numbers_;
  int played_ = 0;
  IdVec<TensorId, Block> values_;
  std::map<TensorId, Block> kept_;  // values that steps have changed, by storage
};

// Steps on one device and by the program, with the same seeded values: empty, or the first parameter whose gradient or
// update differs by more than 1e-9, a result that does, or what the verifier or the interpreter found. BatchNorm on one
// device groups samples as the program's shards do.
std::string differs_from_one_device(const TrainingGraph& training, const Program& program, const Schedule& schedule,
                                    const std::vector<StepNumbers>& steps = {StepNumbers{}},
                                    std::optional<LastMicroBatch> last = {});

}  // namespace weft::reference
