// Plays a program on all its ranks in one process, with real numbers.
#pragma once

#include <functional>
#include <map>

#include "program/program.h"
#include "reference/block.h"

namespace weft::reference {

// One step of training: `micro_batches` times forward and backward, then the step.
class Interpreter {
 public:
  // `leaf` gives the whole value of an input (per micro-batch), parameter or state; accumulators start at zero.
  using Leaf = std::function<Block(TensorId, int micro_batch)>;
  Interpreter(const Program& program, const Graph& graph, Leaf leaf)
      : program_(program), graph_(graph), leaf_(std::move(leaf)) {}

  // Throws std::runtime_error when a device reads what it does not hold or a result does not have the layout the
  // program says.
  void run(int micro_batches);

  // The whole tensor, put together from the devices; throws when replicas differ.
  Block whole(BufferId buffer) const;
  // The value a buffer held when it was last written, of the last micro-batch.
  bool written(BufferId buffer) const { return values_.contains(buffer); }

 private:
  void play(const std::vector<InstructionId>& body, int micro_batch, int micro_batches);
  void compute(const Compute& compute, const Mesh& mesh);
  void communicate(const Communicate& communicate, const Mesh& mesh);
  const std::vector<Block>& read(BufferId buffer, int micro_batch);
  void write(BufferId buffer, std::vector<Block> parts);

  const Program& program_;
  const Graph& graph_;
  Leaf leaf_;
  int micro_batch_ = 0;
  std::map<BufferId, std::vector<Block>> values_;  // by storage, one block per position of the mesh
};

// The part of a tensor that each position of the mesh holds, filled with zeros.
std::vector<Block> parts_of(const Layout& layout, const Mesh& mesh);

}  // namespace weft::reference
