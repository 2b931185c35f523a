// Lowering: what becomes of each group of tensors when its operators are split as the plan says.
//
// A tensor has one or more buffers, each in one layout on one mesh. For every turn that needs a tensor, the group finds
// a buffer in the layout wanted: one that is there, made by the cheapest sequence of collectives, or brought from
// another mesh. All communication of training follows from that one question: tensor-parallel all-reduces,
// sequence-parallel gathers, expert all-to-alls, ZeRO gathers and scatters, halos, stage borders. Backward reads what
// forward saved, in the layout it was made; parameters have homes, where they are kept and their gradients accumulate.
//
// A group is lowered by itself (`lower`), in the order of its events; what it makes is kept per event, and the program
// is put together from that (assembly.h). Not here: buckets, bodies.
#pragma once

#include <array>
#include <map>
#include <optional>
#include <tuple>
#include <unordered_map>

#include "base/result.h"
#include "compile/compile.h"
#include "compile/sequence.h"

namespace weft {

// What a group contributes to one of its events.
struct EventCode {
  BufferId buffer;                          // that the turn reads or writes
  std::vector<InstructionId> before, then;  // issued before the turn's own instruction, and after it
};

// A parameter on a mesh that keeps it.
struct Home {
  MeshId mesh;
  BufferId buffer;    // as it is kept
  Layout used;        // as its operators use it
  BufferId gradient;  // accumulated here
  BufferId reduced;   // the same as the optimizer reads it
};

// Collectives on one parameter or gradient, which buckets join with others' (buckets.h).
struct Chain {
  enum class Purpose : std::uint8_t {
    ReduceSum,   // of a gradient, when all its terms are in
    ReduceTerm,  // of a gradient, each by itself, and then added (ZeRO-2, 3)
    Publish,     // an updated parameter, to all that keep it whole (ZeRO-1, 2)
    Gather,      // a parameter that is kept in parts, before it is used (ZeRO-3)
  };
  // What makes chains alike: the same steps one after the other (reduced over one mesh axis, then another).
  using Step = std::tuple<MeshId, Collective, int, Reducer, DType>;
  struct Key {
    Purpose purpose{};
    std::vector<Step> steps;
    auto operator<=>(const Key&) const = default;
  };
  TurnId turn;
  Key key;
  TensorId tensor;  // the parameter, but for Publish its update
  std::vector<InstructionId> steps;
  std::vector<InstructionId> then;  // issued after them
};

struct FreeAt {
  TurnId turn;
  InstructionId anchor;  // the free follows it; invalid: at the end of the turn
  InstructionId free;
  TensorId tensor;
  std::vector<InstructionId> uses;  // the last on each stream
};

// A buffer, instruction or transfer that a group has in the program.
template <class Id>
struct Owned {
  Id id;
  std::uint32_t event = 0;  // of the group, for which it was made
  std::uint32_t part = 0;   // of what happens there: 0 where there are none
  bool shared = false;      // by the code of the group before a change and after it
};

struct GroupCode {
  std::vector<EventCode> events;
  std::vector<FreeAt> frees;  // by turn
  std::map<TensorId, std::vector<Home>> homes;
  std::vector<Chain> chains;
  // In the order they were made.
  std::vector<Owned<BufferId>> buffers;
  std::vector<Owned<InstructionId>> instructions;
  std::vector<Owned<TransferId>> transfers;
};

// There is no code of the group but this.
void share_nothing(GroupCode& code);

// What stood in the program before it was written over.
struct Overwritten {
  struct OfBuffer {
    BufferId id;
    Buffer buffer;
    InstructionId writer;
    std::vector<InstructionId> adders;
  };
  std::vector<std::pair<InstructionId, Instruction>> instructions;
  std::vector<std::pair<InstructionId, InstructionId>> joined;
  std::vector<OfBuffer> buffers;
};

// A turn that goes around a ring: its instructions and frees, in order, and what of them it owns.
struct RingCode {
  GroupCode owned;
  std::vector<InstructionId> order;
};

class Lowering {
 public:
  // Everything is kept by reference.
  Lowering(const TrainingGraph& training, const Sequence& sequence, const Placing& placing, const ShardingPlan& plan,
           const CompileOptions& options, Program& program);

  // The instruction of a turn that is one operator; of others invalid.
  InstructionId main(TurnId turn) const { return mains_[turn]; }
  // Of a turn that goes around a ring: its instructions, that one among them; null of others. The last shift keeps its
  // number as the main instruction does; invalid where there is none.
  const RingCode* ring(TurnId turn) const {
    const auto found = rings_.find(turn);
    return found == rings_.end() ? nullptr : &found->second;
  }
  InstructionId last_shift(TurnId turn) const {
    const auto found = homecoming_.find(turn);
    return found == homecoming_.end() ? InstructionId() : found->second;
  }
  // Takes a turn's ring out, for the turn to be written anew; puts it back in place of what was written.
  RingCode take_ring(TurnId turn);
  void put_ring(TurnId turn, RingCode code);
  void set_writer(BufferId buffer, InstructionId instruction) { writer_[buffer] = instruction; }
  // A collective of one gradient that a bucket has joined with others.
  void set_joined(InstructionId own, InstructionId joined) { joined_[own] = joined; }
  // What a free waits for, by what has been joined since.
  void settle_free(const FreeAt& free);

  // What the group's events come to, with the plan as it is now. What was made for the same event `before` and is
  // alike keeps its number; what is written over goes to `journal`.
  Result<GroupCode> lower(GroupId group, GroupCode* before = nullptr, Overwritten* journal = nullptr);
  // Gives back what the group owns, but for what is shared.
  void release(const GroupCode& code);
  void put_back(Overwritten& journal);
  // Writes the turn's own instruction, when the groups of its operands are lowered.
  void write_main(TurnId turn, const IdVec<GroupId, GroupCode>& groups);

  InstructionId new_instruction(Instruction instruction);
  void drop_instruction(InstructionId id) { free_instructions_.push_back(id); }
  // Instructions on other streams that the instruction must wait for.
  void add_waits(InstructionId id);

  // How the operators of a turn are split, on the mesh of its route.
  OpSharding sharding(TurnId turn) const;

 private:
  struct LastUse {
    TurnId turn;
    InstructionId anchor;
    int rank = 0;        // within the turn: before its own instruction, that, after it
    bool ahead = false;  // by what is issued ahead of its turn
    Phase phase = Phase::Forward;
    Guard guard = Guard::Always;  // of the first use in the phase: what is made once is freed once
    bool weight_part = false;     // of any use in the phase
    // The last on every stream; those of the weight part, which a split backward plays later, apart.
    std::array<std::array<InstructionId, kStreams>, 2> by_stream = {};
  };
  using What = decltype(Instruction::what);

  const Mesh& mesh(MeshId id) const { return program_.meshes[id]; }
  MeshId mesh_of(TurnId turn) const;

  // numbering.cpp
  BufferId number_of(const Buffer& buffer);
  InstructionId number_of(const Instruction& instruction);
  TransferId number_of(const Transfer& transfer);
  InstructionId number_of_free(const Instruction& instruction);
  InstructionId own(InstructionId id);
  void begin_part(MeshId a, MeshId b);
  void end_parts();
  template <class Id, class Matches>
  Id take(std::vector<Owned<Id>>& from, std::size_t& next, const Matches& matches);
  void write_over(InstructionId id);

  BufferId add_buffer(TensorId tensor, Layout layout, BufferKind kind, bool on_host = false);
  BufferId keep(TensorId tensor, Layout layout, BufferKind kind);
  InstructionId emit(MeshId on, What what, InstructionId as = {});  // `as`: one that keeps its number
  Stream stream_of(const What& what) const;
  void use(BufferId buffer, InstructionId by, int rank);
  void use_all(InstructionId by);

  // What only weight gradients made must not be read by others in backward: where it is split it comes later.
  bool usable(BufferId id) const { return weight_part_ || phase_ == Phase::Step || !weight_only_[id]; }
  Result<BufferId> as(TensorId tensor, Layout wanted);
  struct Route;
  Route cheapest(TensorId tensor, const Layout& wanted, std::optional<Error>& problem) const;
  Result<BufferId> merge_weights(TensorId tensor, Layout contributions);
  Result<bool> bring(TensorId tensor, const Layout& wanted);
  Result<bool> bring_from(BufferId source, const Layout& wanted);
  void given(TensorId tensor, const Layout& wanted);
  Status lower_events(GroupId group, GroupCode& code);
  Status need(const Event& event, EventCode& code);
  void make(const Event& event, EventCode& code);
  void begin_backward(GroupId group, std::size_t from);
  BufferId send_to_host(BufferId buffer, const std::vector<Event>& events);
  void begin_step(GroupId group);
  void add_frees();

  // ring.cpp
  bool goes_around(TurnId turn) const;
  InstructionId maker(const Event& event);  // of an output
  void write_ring(TurnId turn, const std::vector<BufferId>& operands);

  // parameters.cpp
  Home& home(TensorId parameter, MeshId on);
  Layout step_layout(const Home& of) const;
  Layout common_layout(TensorId accumulator, const Home& kept) const;
  Status accumulate(const Event& event, EventCode& code);
  Status sum_tied_gradients();
  Status optimize(const Event& event);
  Status optimize_copy(TurnId turn, const Layout& layout, Home& copy);
  void add_chain(Chain chain, Chain::Purpose purpose);
  bool gathers_in_units(TensorId tensor) const;
  BufferId store(BufferId from, BufferId home);
  void update_in_place(BufferId written, BufferId target);
  bool on_mesh(TensorId tensor, MeshId on) const;
  bool offloads(Stored kind) const { return options_.memory.offload[static_cast<std::size_t>(kind)]; }

  const TrainingGraph& training_;
  const Graph& graph_;
  const Sequence& sequence_;
  const Placing& placing_;
  const ShardingPlan& plan_;
  const CompileOptions& options_;
  Program& program_;
  IdVec<TurnId, InstructionId> mains_;
  std::unordered_map<TurnId, RingCode> rings_;
  std::unordered_map<TurnId, InstructionId> homecoming_;  // the last shift of a ring's gradient
  std::map<TensorId, TensorId> parameter_of_;             // storage of a gradient → its parameter
  std::map<OpId, TensorId> optimized_by_;                 // optimizer operator → its parameter
  std::map<TensorId, std::vector<TurnId>> terms_of_;      // accumulator → turns that add to it
  std::vector<BufferId> free_buffers_;
  std::vector<InstructionId> free_instructions_;
  std::vector<TransferId> free_transfers_;
  IdVec<BufferId, InstructionId> writer_;
  std::unordered_map<BufferId, std::vector<InstructionId>> adders_;  // of gradients with several terms: all that add
  IdVec<InstructionId, InstructionId> joined_;
  IdVec<BufferId, LastUse> last_use_;
  IdVec<BufferId, char> weight_only_;

  // The group being lowered, and how it was.
  GroupCode* code_ = nullptr;
  GroupCode* before_ = nullptr;
  Overwritten* overwritten_ = nullptr;
  std::uint32_t event_ = 0, part_ = 0;
  struct PartBegin {
    std::size_t buffer = 0, instruction = 0, transfer = 0;
  };
  std::unordered_map<std::uint32_t, PartBegin> part_begins_;                // in `before_`, of the event
  std::size_t next_buffer_ = 0, next_instruction_ = 0, next_transfer_ = 0;  // of `before_`, not taken over yet
  IdVec<BufferId, std::uint32_t> free_before_;                              // in before_->instructions, + 1
  bool of_parameter_ = false;
  bool adds_reduced_ = false;  // emitting the addition of gradients that were reduced
  TurnId turn_;
  Phase phase_ = Phase::Forward;
  bool weight_part_ = false;
  Guard guard_ = Guard::Always;
  std::vector<InstructionId>* sink_ = nullptr;
  IdVec<TensorId, std::vector<BufferId>> available_;  // buffers of each tensor that hold it now
  IdVec<TensorId, std::uint32_t> last_forward_;       // event + 1
  int rank_ = 0;
  bool ahead_ = false;  // what is emitted now is issued ahead of its turn
};

}  // namespace weft
