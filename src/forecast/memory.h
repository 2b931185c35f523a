// What the devices of a plan hold, allocation by allocation, and whether it fits.
//
// Memory is counted in issue order, as an allocator that hands freed memory to the next operator of the stream sees it:
// the peak is the program's, whatever the timing, and its moment is when the compute stream comes to it. Devices that
// lie in the same meshes hold the same; where parts are uneven, those with equal shares.
//
// A micro-batch leaves the same traces whenever it is played, so a body is walked once for each kind of micro-batch
// and the schedule only adds up. Cost: the instructions of a class, and its plays.
#pragma once

#include <map>
#include <memory>
#include <optional>

#include "cluster/cluster.h"
#include "compile/from_strategy.h"
#include "program/issue_order.h"
#include "program/memory.h"
#include "strategy/stack.h"

namespace weft {

// Devices that hold the same.
struct MemoryClass {
  std::vector<MeshId> meshes;                                                    // that they lie in, the world left out
  std::vector<DeviceId> devices;                                                 // in the order of ranks
  std::int32_t rank = 0;                                                         // of the pipeline
  std::shared_ptr<const std::vector<std::vector<IssuedBody>>> issued = nullptr;  // by rank: its plays, in order
};
std::vector<MemoryClass> memory_classes(const CompiledStrategy& compiled, const Cluster& cluster,
                                        const std::vector<DeviceId>& ranks);

// A buffer comes or goes with an instruction of a body, or what its kernels hold for themselves (no buffer).
struct MemoryChange {
  std::uint32_t position = 0;  // of the instruction in the body
  BufferId buffer;
  std::int64_t bytes = 0;  // below 0: it goes
  bool activation = false;
};

// A body as one kind of micro-batch plays it.
struct BodyMemory {
  std::vector<MemoryChange> changes;
  std::vector<std::pair<BufferId, int>> left;  // buffers that it leaves behind (+1), or takes away (−1)
  std::int64_t activations = 0, buffers = 0;   // the sums of changes
  std::size_t highest = 0;                     // changes until the most is held, …
  std::int64_t most = 0;                       // … above what was held before; at least 0
};

// The memory of one class of devices through a step. The compiled strategy, the training graph and the stack outlive
// it.
class MemoryOfClass {
 public:
  MemoryOfClass(const CompiledStrategy& compiled, const TrainingGraph& training, const SoftwareStack& stack,
                const MemoryClass& of);

  HeldBytes kept() const { return kept_; }  // from step to step
  // Of all that the rank issues, in order; the last is the step.
  std::size_t plays() const { return plays_.size(); }
  const BodyMemory& body(std::size_t play) const { return *plays_[play]; }
  const IssuedBody& issued(std::size_t play) const { return issued_[play]; }
  bool is_first(std::size_t play) const { return issued(play).micro_batch == issued(play).visits.first; }
  bool is_last(std::size_t play) const { return issued(play).micro_batch == issued(play).visits.last; }
  // The instructions of a play, of which `position` counts.
  const std::vector<InstructionId>& instructions(std::size_t play) const;

  struct Peak {
    HeldBytes held;
    std::size_t play = 0;
    InstructionId at;  // none: before the first
  };
  Peak peak() const;

  // What is alive at the peak: buffers alike but for their layer are one, the largest first.
  struct Alive {
    std::string name;  // "layers.*.attn.core.y"
    std::string kind;  // "parameters", "gradients", "optimizer", "activations", "buffers"
    std::int64_t count = 0;
    Bytes bytes;  // of all of them
  };
  std::vector<Alive> alive_at(const Peak& peak) const;

 private:
  Bytes bytes_of_buffer(BufferId id) const;  // in a smaller last micro-batch while `smaller_`
  std::int64_t scratch_of(const Instruction& instruction) const;
  void play_micro_batch(const std::vector<std::size_t>& plays);
  std::string_view kind_of(BufferId id) const;

  const CompiledStrategy& compiled_;
  const TrainingGraph& training_;
  const SoftwareStack& stack_;
  const MemoryClass& class_;
  const std::vector<IssuedBody>& issued_;
  std::vector<std::vector<InstructionId>> bodies_;  // own instructions, by action kind
  std::vector<std::size_t> body_of_play_;
  std::map<std::pair<std::size_t, Body>, std::size_t> index_;
  std::vector<const BodyMemory*> plays_;
  std::vector<std::unique_ptr<BodyMemory>> made_;
  IdVec<BufferId, char> saved_;
  IdVec<BufferId, char> made_in_sums_;  // in the first micro-batch
  IdVec<TensorId, char> gradient_;
  bool smaller_ = false;
  mutable IdVec<BufferId, std::int64_t> bytes_;
  HeldBytes kept_;
  std::vector<BufferId> kept_buffers_;
};

// Of every parameter, the bytes kept besides for each element: weights of fp8 products are kept in that type too, as
// they are and transposed (Transformer Engine).
IdVec<TensorId, std::int8_t> narrow_copies(const Program& program, const Graph& graph);

// Bytes beyond what a program allocates, each with its source.
struct MemoryOverheads {
  Figure<double> fragmentation;  // of what comes and goes
  Figure<Bytes> segment;         // the allocator asks the driver for multiples of this
  Figure<Bytes> context;         // driver, kernels and libraries
  Figure<Bytes> communicator;    // buffers of each communicator
};
const MemoryOverheads& memory_overheads();

// kept + (activations + buffers) · (1 + fragmentation), in whole segments.
Bytes reserved_estimate(const HeldBytes& held);
// Groups that a device of the class communicates in, each with buffers of its own; transfers between stages are one.
int communicators_of(const CompiledStrategy& compiled, const MemoryClass& of);

}  // namespace weft
