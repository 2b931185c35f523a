// The inside of an executor: what a rank holds, what is on its way, and how each instruction is played.
#pragma once

#include <ATen/core/Tensor.h>

#include <list>
#include <map>
#include <memory>
#include <optional>
#include <variant>
#include <vector>

#include "run/communicator.h"
#include "run/executor.h"
#include "run/tensors.h"

namespace weft::runtime {

// Bytes to or from the members of a group: parts one after the other, each at a multiple of 8 bytes.
struct Lane {
  struct Piece {
    const Part* part;
    std::int64_t offset, bytes;
    at::ScalarType type;
  };
  std::vector<Piece> pieces;
  std::vector<std::int64_t> counts;  // by member
  std::int64_t bytes = 0;
};

// What an instruction comes to on this device, found once.
struct PlannedCompute {
  const Signature* signature = nullptr;
  AxisSlices slices;
  // Windows that are further apart than they are wide do not touch all that a device holds: the kernel gets, and gives,
  // what they touch; the rest of an output is zero. By operand; none: it is all.
  struct Touched {
    Runs runs;
    Shape shape, held;
  };
  std::vector<std::optional<Touched>> inputs = {}, outputs = {};
};
struct PlannedExchange {
  Exchange exchange;
  GroupKey group;
  Lane sent, received;
};
struct PlannedReduce {  // an all-reduce, or a reduction that is not a sum and is followed by a slice
  GroupKey group;
  Exchange slice;  // empty for all-reduces
};
struct PlannedTransfer {
  Exchange exchange;
  std::vector<GroupKey> pairs;  // by part sent, or received
};
using Planned = std::variant<std::monostate, PlannedCompute, PlannedExchange, PlannedReduce, PlannedTransfer>;

class Executor::Player {
 public:
  Player(const Bundle& bundle, int device, LeafValues values, ExecutorOptions options);

  Status prepare();
  void meet(const Rendezvous& rendezvous);
  void load();
  void step(const StepNumbers& numbers);
  std::optional<double> result(TensorId tensor);
  std::optional<WholeTensor> gather(BufferId buffer);
  void deliver(std::span<const BufferId> wanted, const BytesOfTensor& take);
  std::string agree_on(const std::string& problem);
  const RankTimeline& timeline() const { return recorder_->timeline(); }

  // What it was at when something was thrown.
  std::string where() const;

 private:
  // Program and graph as most micro-batches have them, and as a smaller last one does.
  struct Variant {
    const Program& program;
    const Graph& graph;
    IdVec<InstructionId, Planned> planned;
    IdVec<InstructionId, char> plays;  // on this device
  };
  struct Played {
    InstructionId instruction;
    std::int32_t micro_batch = 0;
    bool first = false;  // it is the first that comes to the stage
  };
  // A communication that has been issued. `finish` puts what it brings in its place.
  struct InFlight {
    InstructionId instruction;
    std::int32_t micro_batch = 0;
    std::vector<std::unique_ptr<Work>> works;
    std::function<void()> finish;
    bool done = false;
    std::uint32_t issue = 0;             // of the recorder
    std::vector<Nanoseconds> completed;  // by work, where it is recorded: noted by c10d's threads
  };
  using Flight = std::shared_ptr<InFlight>;
  // A value of a buffer: of one micro-batch, or (−1) kept from step to step.
  struct Held {
    std::int32_t micro_batch = 0;
    Tensor tensor;
    Flight from;  // still on its way
  };

  Status plan_instruction(Variant& variant, InstructionId id);
  Lane lane_of(const Variant& variant, const Communicate& communicate, const std::vector<Part>& parts,
               const GroupKey& group) const;
  at::ScalarType type_of(const Variant& variant, BufferId buffer) const;
  at::TensorOptions made_of(at::ScalarType type) const { return at::TensorOptions(type).device(options_.tensors_on); }
  at::ScalarType sent_type_of(const Variant& variant, const Communicate& communicate, BufferId buffer) const;

  const Variant& variant() const;
  const Program& program() const { return variant().program; }
  const Graph& graph() const { return variant().graph; }
  const Buffer& buffer(BufferId id) const { return program().buffers[id]; }

  Held* find(BufferId id);
  Tensor read(BufferId id);
  void write(BufferId id, const Tensor& tensor);
  void write_later(BufferId id, const Flight& flight);
  void play_all();
  void give_way();
  GroupKey control_group() const;
  void compare_clocks();
  void complete(const Flight& flight);
  void complete_all();
  Flight launch(std::vector<std::unique_ptr<Work>> works, std::function<void()> finish);

  void wait_for_earlier(const Instruction& instruction);
  void play(const Played& played);
  void play_compute(const Compute& compute, const PlannedCompute& planned, bool first);
  void play_exchange(const Communicate& communicate, const PlannedExchange& planned);
  void play_reduce(const Communicate& communicate, const PlannedReduce& planned);
  void all_reduce(const Communicate& communicate, const PlannedReduce& planned);
  Tensor reduced_now(Tensor tensor, const PlannedReduce& planned, Communicator::Reduction reduction);
  void play_sum(const SumScalars& sums);
  void play_combine(const Combine& combine);
  void play_send(TransferId id, const PlannedTransfer& planned);
  void play_receive(TransferId id, const PlannedTransfer& planned);
  void play_free(BufferId freed);

  // Between steps, of all devices, in the memory of the host.
  void exchange_bytes(const Tensor& sent, const Tensor& received, std::vector<std::int64_t> sent_bytes,
                      std::vector<std::int64_t> received_bytes);

  const Bundle& bundle_;
  const int device_;
  const LeafValues values_;
  const ExecutorOptions options_;
  std::vector<Variant> variants_;
  std::vector<Played> order_;
  std::vector<BufferId> cleared_;                 // storages that a step begins without
  IdVec<BufferId, std::vector<BufferId>> views_;  // by the root of a memory: the storages that look at it
  std::unique_ptr<Communicator> communicator_;
  IdVec<BufferId, std::vector<Held>> held_;                                        // by storage
  std::list<Flight> in_flight_;                                                    // in the order of issue
  std::map<std::pair<TransferId, std::int32_t>, std::vector<Tensor>> kept_parts_;  // of transfers, on the device itself
  StepNumbers numbers_;
  std::optional<Recorder> recorder_;
  Recorder* recording_ = nullptr;  // while a recorded step is played
  ClockOffset clock_;
  Nanoseconds compared_at_ = 0;
  std::int64_t step_;    // the last one that was begun, from 0
  bool loaded_ = false;  // the samples of the step that comes
  Played at_;
  bool waiting_ = false;
};

}  // namespace weft::runtime
