// The program: what every rank computes, holds, sends and receives. Simulator and runtime play the same one.
//
// It is written once for all ranks. An instruction belongs to a mesh and is executed by each of its devices, on the
// part of its buffers that the layouts give to that device; the instructions of one rank, in order, are its issue
// order. All ranks agree on one total order of instructions within a body, so collectives meet. Micro-batches are not
// unrolled: a stage has bodies, and the schedule (schedule.h) has the order in which a rank plays them for its
// micro-batches. Ranks that receive something from another's body play their receives of it too (issue_order.h), so that
// all agree on the order of transfers.
//
// Not here: durations (src/cost), the order of bodies (schedule.h).
#pragma once

#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "base/arithmetic.h"
#include "base/id.h"
#include "base/short_vec.h"
#include "graph/training.h"
#include "layout/layout.h"
#include "layout/reshard.h"
#include "program/schedule.h"

namespace weft {

using BufferId = Id<struct BufferTag>;
using InstructionId = Id<struct InstructionTag>;
using BufferList = ShortVec<BufferId>;
using InstructionList = ShortVec<InstructionId>;

// How long a buffer lives.
enum class BufferKind : std::uint8_t {
  Input,      // given with every micro-batch
  Scalar,     // one number, given with every step: learning rate, loss scale
  Parameter,  // kept from step to step
  // Gradient accumulators, optimizer state, master weights: kept from step to step. What accumulations add to, and none
  // begins, is zero when a step begins.
  State,
  Saved,  // made in the forward body of a micro-batch, freed in its backward body: one slot per micro-batch in flight
  Temporary,  // made and freed within a body; what is received, from the sender's body to the reader's
  Result,     // one number that the step leaves with every device, for its player: the mean loss
};
std::string_view name_of(BufferKind kind);
// Whether it has one place for all micro-batches, and is not freed.
constexpr bool outlives_micro_batches(BufferKind kind) {
  return kind == BufferKind::Scalar || kind == BufferKind::Parameter || kind == BufferKind::State ||
         kind == BufferKind::Result;
}

// A tensor in one layout. A tensor may have several buffers: as made, gathered, reduced.
struct Buffer {
  TensorId tensor;
  Layout layout;
  BufferKind kind{};
  BufferId storage;      // the buffer whose value this one updates in place; itself otherwise
  BufferId memory;       // the buffer whose memory this one uses (a view); its storage otherwise
  bool on_host = false;  // in the host's memory; only copies read and write it
  // Held in this type, narrower than its tensor's: the factor of products that round to it (fp8), and of nothing else.
  std::optional<DType> narrow = {};

  bool operator==(const Buffer&) const = default;
};

// Runs one operator on the part of its axes that the sharding gives to each device. Scalars that all devices have may be
// read on any mesh.
struct Compute {
  OpId op;
  OpSharding sharding;
  BufferList inputs, outputs;
  std::optional<Arithmetic> products = {};  // factors of its products are rounded to this; none: as they are stored
  // Of an accumulation: the sum begins with its term. In the stage's first micro-batch the term is made in the sum's own
  // memory, so nothing is read, added or moved; in later ones it is added. (PyTorch's AccumulateGrad takes the first
  // gradient over; Megatron-LM's fused products write instead of adding.)
  bool begins = false;

  bool operator==(const Compute&) const = default;
};

// The type in which factors are held that products round to this; none: they are held as they are.
constexpr std::optional<DType> factor_type(std::optional<Arithmetic> products) {
  if (products == Arithmetic::kFp8) return DType::F8;
  if (products == Arithmetic::kFp4) return DType::F4;
  return std::nullopt;
}

// A collective among the devices that differ in these mesh axes alone, as one group. Several buffers are a bucket, moved
// together. A softmax merge also reads, as its last input, the log-sum-exp that weighs the contributions.
struct Communicate {
  Collective collective{};
  MeshAxes axes = 0;
  Reducer reducer = Reducer::Sum;
  BufferList inputs, outputs;
  std::optional<DType> wire = {};  // what is sent is rounded to this type; none: it is sent as it is stored
  // Of an all-to-all of rows that are routed to experts: a token goes once to a device that has several of its experts,
  // and its rows are made there (DeepEP, HybridEP).
  bool tokens_once = false;
  // Of an all-gather or a reduce-scatter: padded or grouped if and only if the members of the group have parts of
  // different sizes of some buffer. That holds for a whole bucket: its even parts are padded by nothing, or broadcast
  // with the others.
  Parts parts = Parts::Even;
  // What it moves is packed into one contiguous buffer before and unpacked after, because the buffers of a bucket, or
  // the parts of a tensor, are not contiguous in memory. The player allocates that buffer for as long as the collective
  // runs (`staging_bytes`, memory.h).
  bool staged = false;

  bool operator==(const Communicate&) const = default;
};

// A tensor on its way from one mesh to another: block moves between the devices that hold a part and those that need
// it. Played in two halves, Send by the devices of `from`'s mesh and Receive by those of `to`'s, matched by transfer
// and micro-batch. Both stand in the body that sends, so both sides issue transfers in the same order.
struct Transfer {
  BufferId from, to;

  bool operator==(const Transfer&) const = default;
};
using TransferId = Id<struct TransferTag>;
struct Send {
  TransferId transfer;

  bool operator==(const Send&) const = default;
};
struct Receive {
  TransferId transfer;

  bool operator==(const Receive&) const = default;
};

// Adds scalars that live on any meshes into one contribution per device of the world: each device adds those it holds,
// a replicated one only on its first device, so that an all-reduce over the world gives the sum of all, each once.
// Several sums, one after the other: the first has the first counts[0] inputs, and so on.
struct SumScalars {
  BufferList inputs;
  ShortVec<std::uint32_t> counts;
  BufferList outputs;  // partial over the world

  bool operator==(const SumScalars&) const = default;
};

// Adds up what one operator made in several steps, on each device by itself, buffers of one layout: {a, b} → {a + b};
// or merges attention over different keys: {y, lse, y', lse'} → {y, lse}.
struct Combine {
  Reducer reducer = Reducer::Sum;  // or SoftmaxMerge
  BufferList inputs, outputs;

  bool operator==(const Combine&) const = default;
};

// Does nothing itself: what comes after it on its stream waits until all that it is `after` is complete. (A stack that
// does not overlap transfers stops computing until what a body sends has arrived.)
struct Wait {
  bool operator==(const Wait&) const = default;
};

// Moves a buffer between device and host, in the same layout.
struct Copy {
  BufferId from, to;

  bool operator==(const Copy&) const = default;
};

// Gives back the memory of a buffer (the root of its views), after its last use. It is on no stream: it takes effect
// when all instructions it is `after` are complete, and nothing waits for it.
struct Free {
  BufferId buffer;

  bool operator==(const Free&) const = default;
};

// For which micro-batches of a step an instruction is played: the first or the last of those that come to its stage.
enum class Guard : std::uint8_t { Always, FirstMicroBatch, LastMicroBatch };

// A device works on its streams side by side; on each in issue order.
enum class Stream : std::uint8_t {
  Compute,
  Tensor,    // collectives on activations, and on what the step receives: computation waits for them
  Data,      // collectives on parameters and gradients
  Send,      // activations to other meshes
  SendBack,  // gradients of activations, to other receivers than activations, which work at another pace
  Receive,
  ReceiveBack,
  CopyOut,  // from device to host
  CopyIn,   // from host to device; the link to the host carries both directions at once
};
inline constexpr int kStreams = 9;
std::string_view name_of(Stream stream);

struct Instruction {
  MeshId mesh;  // its devices execute it
  Guard guard = Guard::Always;
  // In the backward body: only gradients of weights depend on it, so zero-bubble schedules may play it later.
  bool weight_part = false;
  std::variant<Compute, Communicate, Send, Receive, SumScalars, Copy, Free, Combine, Wait> what;
  Stream stream = Stream::Compute;
  // Instructions on other streams that this one waits for, on its own devices: earlier ones of the body, or of an
  // earlier body of the same micro-batch (CUDA: an event recorded there, waited for here).
  InstructionList after = {};

  bool operator==(const Instruction&) const = default;
};

// The bodies of a pipeline stage. Their instructions may belong to several meshes; those of other stages are receives of
// what the bodies send.
struct StageProgram {
  std::vector<InstructionId> forward, backward;

  bool operator==(const StageProgram&) const = default;
};

struct Program {
  IdVec<MeshId, Mesh> meshes;
  MeshId world;  // the mesh of all devices along one axis, for scalars and for sums over all devices
  IdVec<BufferId, Buffer> buffers;
  IdVec<InstructionId, Instruction> instructions;
  IdVec<TransferId, Transfer> transfers;
  std::vector<StageProgram> stages;
  std::vector<InstructionId> step;  // after the last micro-batch

  bool operator==(const Program&) const = default;
};

// The buffers an instruction reads, and those it writes, as they stand in it. A send reads, a receive writes.
std::span<const BufferId> reads_of(const Program& program, const Instruction& instruction);
std::span<const BufferId> writes_of(const Program& program, const Instruction& instruction);

// Whether a collective gathers or scatters parts of different sizes, of any of its buffers.
bool has_uneven_parts(const Program& program, const Communicate& communicate);
// The parts of an all-gather or a reduce-scatter in bytes on the wire, of all its buffers together.
PartSizes part_bytes(const Program& program, const Graph& graph, const Communicate& communicate);
// The type in which a buffer is held: its tensor's, or a narrower one.
DType stored_type(const Program& program, const Graph& graph, BufferId buffer);
// The type that a collective sends the elements of one of its buffers in: the wire's, or the one they are stored in.
DType sent_type(const Program& program, const Graph& graph, const Communicate& communicate, BufferId buffer);

// The program's stage at a place of the pipeline. Those of each route follow all of the route before.
std::size_t program_stage(const Program& program, const Schedule& schedule, Place place);

// Bodies by number: 2·stage, 2·stage + 1 for backward, last the step.
inline std::size_t body_count(const Program& program) { return 2 * program.stages.size() + 1; }
inline const std::vector<InstructionId>& body_at(const Program& program, std::size_t body) {
  if (body == 2 * program.stages.size()) return program.step;
  const StageProgram& stage = program.stages[body / 2];
  return body % 2 == 0 ? stage.forward : stage.backward;
}
// The body of an action; whether an action on this part of it plays an instruction of the weight part, or of the rest;
// and whether a guard lets the micro-batch through, by the first and last that the action's place has.
std::size_t body_of(const Program& program, const Schedule& schedule, std::size_t rank, const Action& action);
inline bool in_part(Body part, bool weight_part) {
  return part == Body::BackwardInput ? !weight_part : part != Body::BackwardWeight || weight_part;
}
inline bool is_let_through(Guard guard, std::int32_t micro_batch, const Visits& visits) {
  return guard == Guard::FirstMicroBatch ? micro_batch == visits.first
                                         : guard != Guard::LastMicroBatch || micro_batch == visits.last;
}

// Readable text: meshes, buffers and bodies, one instruction a line (program_text.h reads it back).
std::string print(const Program& program, const Graph& graph);

}  // namespace weft
