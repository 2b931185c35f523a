// Plays a program on all its ranks in one process, with real numbers.
#pragma once

#include <functional>
#include <map>
#include <set>

#include "program/last_micro_batch.h"
#include "program/program.h"
#include "reference/block.h"

namespace weft::reference {

// Steps of training, one after the other. Every pipeline rank executes its instructions in issue order
// (program/issue_order.h), all its devices together. A receive waits for its send; if no rank can continue, the program
// is deadlocked.
class Interpreter {
 public:
  // `leaf` gives the whole value of an input (for every micro-batch), a scalar (for every step), a parameter or state.
  using Leaf = std::function<Block(TensorId, int micro_batch)>;
  // `last`: the program of a smaller last micro-batch.
  Interpreter(const Program& program, const Graph& graph, Leaf leaf, std::optional<LastMicroBatch> last = {})
      : program_(program), graph_(graph), last_(last), leaf_(std::move(leaf)) {}

  // Numbers that the program sends or multiplies in narrower types are rounded to them; otherwise they stay exact, so
  // that a program can be compared with one device whatever its types.
  void round_as_typed() { rounds_ = true; }

  // Throws std::runtime_error when a device reads what it does not hold, a result does not have the layout the program
  // states, or ranks are deadlocked.
  void run(const Schedule& schedule);

  // The whole tensor of a buffer that outlives the step, assembled from the devices; throws if replicas differ or it
  // was never written.
  Block whole(BufferId buffer) const;

 private:
  struct Slot {
    BufferId storage;
    int micro_batch;  // −1: kept from step to step
    auto operator<=>(const Slot&) const = default;
  };
  // Of the current micro-batch.
  bool plays_last() const { return last_ && micro_batch_ + 1 == micro_batches_; }
  const Program& program() const { return plays_last() ? last_->program : program_; }
  const Graph& graph() const { return plays_last() ? last_->graph : graph_; }
  Slot slot(BufferId buffer) const;
  void begin_step();
  bool play(const Instruction& instruction);  // false: it must wait
  void compute(const Compute& compute, const Mesh& mesh);
  void communicate(const Communicate& communicate, const Mesh& mesh);
  void gather_or_scatter(const Communicate& communicate, const Mesh& mesh);
  void softmax_merge(const Communicate& communicate, const Mesh& mesh);
  void combine(const Combine& combine, const Mesh& mesh);
  void sum_scalars(const SumScalars& sums, const Mesh& world);
  bool receive(const Transfer& transfer, TransferId id);
  const std::vector<Block>& read(BufferId buffer);
  void write(BufferId buffer, std::vector<Block> parts);

  const Program& program_;
  const Graph& graph_;
  const std::optional<LastMicroBatch> last_;
  Leaf leaf_;
  bool rounds_ = false;
  int micro_batch_ = 0, micro_batches_ = 0;
  bool first_ = false;                                                // it is the stage's first micro-batch
  std::set<BufferId> begun_;                                          // accumulators that this term initialises
  std::map<Slot, std::vector<Block>> values_;                         // one block per position of the buffer's mesh
  std::map<std::pair<TransferId, int>, std::vector<Block>> mailbox_;  // sent and not yet received
};

// The part of a tensor that each position of the mesh holds, filled with zeros.
std::vector<Block> parts_of(const Layout& layout, const Mesh& mesh);

}  // namespace weft::reference
