// Checkpoints: a training as it is after a step, in files that any reader of safetensors reads, and from which any
// strategy and number of ranks goes on.
//
//   DIR/step-000010/model.safetensors.index.json      which tensor is in which file; step, samples, seed, model
//   DIR/step-000010/model-00001-of-00002.safetensors  whole tensors: parameters, optimizer states, master weights
//   DIR/latest -> step-000010
//
// Tensors are dealt by size to ranks that hold parts of them; each is put together on the one that writes it, a round of
// one for every rank at a time, so that no rank ever needs memory for the whole model. A checkpoint is written under
// another name, synced and renamed when all ranks are done: a directory step-… is whole, whatever ends a run.
//
// To load is to draw parameters and states from the files instead of from a seed: values remain functions of names and
// indices (values.h), so nothing else knows of it, and a rank reads only the parts that it holds.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "run/executor.h"
#include "run/safetensors.h"
#include "run/values.h"

namespace weft::runtime {

// A tensor that training keeps from step to step. Gradients are not among them: every step begins them at zero.
struct KeptTensor {
  TensorId tensor;
  BufferId buffer;  // one that holds it; there is one on every mesh where it is held
  std::string name;
  DType dtype{};  // it is held in
  Shape shape;
};
// In the order of the graph.
std::vector<KeptTensor> kept_tensors(const Bundle& bundle);

// What tells models apart: a hash of names and shapes of the parameters, 16 hexadecimal digits.
std::string model_digest(const Graph& graph);

class Checkpoint {
 public:
  // `path` is a checkpoint, or a directory of them: then the last. Errors name the file and what is wrong with it, or
  // why it is none of this bundle's model, numbers, optimizer or seed.
  static Result<Checkpoint> open(const std::string& path, const Bundle& bundle);

  // Where training stands: the steps that are done, and the samples they took.
  const TrainingPosition& position() const { return position_; }
  const std::string& path() const { return path_; }
  // Parameters and states as they were saved; everything else as `others` has it. Refers to the bundle.
  LeafValues values(const Bundle& bundle, LeafValues others) const;

 private:
  struct Place {
    std::size_t file = 0;
    FileTensor tensor;
  };
  Checkpoint() = default;
  Status read_index();
  Status check(const Bundle& bundle) const;

  std::string path_, model_, digest_, seed_;
  TrainingPosition position_;
  std::vector<SafetensorsFile> files_;
  std::map<std::string, Place> places_;
};

// The last whole checkpoint in a directory of them; none: there is none, or no such directory.
std::optional<std::string> last_checkpoint(const std::string& directory);

// Makes the directory where it is not there, and removes what a run has left that was ended while it saved. An error
// says why nothing can be written there, or that it has checkpoints of later steps than `done`, which are not overwritten.
Status prepare_saving(const std::string& directory, std::int64_t done);

// All ranks must call it alike, after a step. What comes back: empty, or why it could not be written, the same on all
// ranks; checkpoints that were there are then as they were. The error is that of ranks that do not find together.
Result<std::string> save_checkpoint(Executor& executor, const Bundle& bundle, int device, const std::string& directory,
                                    const TrainingPosition& position);

}  // namespace weft::runtime
