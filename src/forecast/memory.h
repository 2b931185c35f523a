// The memory of a plan's devices, allocation by allocation, and whether it fits.
//
// Memory is counted in issue order, as a stream-ordered allocator reuses freed memory for the next operator of the
// stream: the peak does not depend on times, and its moment is when the compute stream reaches it. Devices in the same
// meshes hold the same; if parts are uneven, those with equal shares.
//
// A micro-batch makes the same allocations whenever it runs, so a body is visited once for each kind of micro-batch
// and the schedule only sums them up. Cost: the instructions of a class, and its plays.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "cluster/cluster.h"
#include "compile/from_strategy.h"
#include "program/issue_order.h"
#include "program/memory.h"
#include "strategy/stack.h"

namespace weft {

// The name that equal layers have in common: "layers.12.mlp.up.y" → "layers.*.mlp.up.y".
std::string without_numbers(std::string_view name);

// Devices that hold the same.
struct MemoryClass {
  std::vector<MeshId> meshes;                                                    // that contain them, but the world
  std::vector<DeviceId> devices;                                                 // in the order of ranks
  std::int32_t rank = 0;                                                         // of the pipeline
  std::shared_ptr<const std::vector<std::vector<IssuedBody>>> issued = nullptr;  // by rank: its plays, in order
};
std::vector<MemoryClass> memory_classes(const CompiledStrategy& compiled, const Cluster& cluster,
                                        const std::vector<DeviceId>& ranks);

// An instruction of a body allocates or frees a buffer, or the workspace of its kernels (no buffer).
struct MemoryChange {
  std::uint32_t position = 0;  // of the instruction in the body
  BufferId buffer;
  std::int64_t bytes = 0;  // below 0: freed
  bool activation = false;
};

// The allocations of a body for one kind of micro-batch.
struct BodyMemory {
  std::vector<MemoryChange> changes;
  std::vector<std::pair<BufferId, int>> left;  // buffers that it leaves allocated (+1), or frees (−1)
  std::int64_t activations = 0, buffers = 0;   // the sums of changes
  std::size_t highest = 0;                     // the number of changes until the peak, …
  std::int64_t most = 0;                       // … and the peak above the level before the body; at least 0
};

// The memory of one class of devices through a step. The compiled strategy, the training graph and the stack outlive
// it.
class MemoryOfClass {
 public:
  MemoryOfClass(const CompiledStrategy& compiled, const TrainingGraph& training, const SoftwareStack& stack,
                const MemoryClass& of);

  HeldBytes kept() const { return kept_; }  // from step to step
  // The number of plays of the rank, in order; the last is the optimizer step.
  std::size_t plays() const { return plays_.size(); }
  const BodyMemory& body(std::size_t play) const { return *plays_[play]; }
  const IssuedBody& issued(std::size_t play) const { return issued_[play]; }
  bool is_first(std::size_t play) const { return issued(play).micro_batch == issued(play).visits.first; }
  bool is_last(std::size_t play) const { return issued(play).micro_batch == issued(play).visits.last; }
  // The instructions of a play, to which `position` refers.
  const std::vector<InstructionId>& instructions(std::size_t play) const;

  struct Peak {
    HeldBytes held;
    std::size_t play = 0;
    InstructionId at;  // invalid: before the first
  };
  Peak peak() const;

  // Buffers alive at the peak, those of all layers joined, the largest first.
  struct Alive {
    std::string name;  // "layers.*.attn.core.y"
    std::string kind;  // "parameters", "gradients", "optimizer", "activations", "buffers"
    std::int64_t count = 0;
    Bytes bytes;  // of all of them
  };
  std::vector<Alive> alive_at(const Peak& peak) const;

 private:
  Bytes bytes_of_buffer(BufferId id) const;  // in a smaller last micro-batch while `smaller_`
  void find_passing_gradients();
  bool keeps(BufferId root) const;  // from step to step
  bool is_flat(const Communicate& communicate) const;
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
  IdVec<BufferId, char> passing_;  // gradients that are there from the backward pass to the step
  bool smaller_ = false;
  mutable IdVec<BufferId, std::int64_t> bytes_;
  HeldBytes kept_;
  std::vector<BufferId> kept_buffers_;
};

// For every parameter, the additional bytes per element: weights of fp8 products are also kept in fp8, in both layouts,
// with the scales of their blocks (Transformer Engine). With the stack's `narrow_weights` those two take the place of the
// 16-bit weight; where casts are not kept, they are made for every product.
IdVec<TensorId, double> narrow_copies(const Program& program, const Graph& graph, const SoftwareStack& stack);

// Bytes beyond what a program allocates, each with its source.
struct MemoryOverheads {
  Figure<double> fragmentation;  // of transient memory
  Figure<Bytes> segment;         // the allocator requests multiples of this from the driver
  Figure<Bytes> context;         // driver, kernels and libraries
  Figure<Bytes> communicator;    // buffers of each communicator
};
MemoryOverheads memory_overheads(const SoftwareStack& stack);

// kept + (activations + buffers) · (1 + fragmentation), in whole segments.
Bytes reserved_estimate(const HeldBytes& held, const SoftwareStack& stack);
// The number of groups in which a device of the class communicates, each with buffers of its own; all transfers between
// stages count as one.
int communicators_of(const CompiledStrategy& compiled, const MemoryClass& of);

}  // namespace weft
