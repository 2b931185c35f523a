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
#include <memory>
#include <optional>
#include <span>
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
  BufferId buffer;                     // as it is kept
  std::shared_ptr<const Layout> used;  // as its operators use it
  BufferId gradient;                   // accumulated here
  std::vector<BufferId> others;        // the same of terms that are made in other forms
  BufferId reduced;                    // the same in backward, reduced; invalid where the step does that
  BufferId total;                      // in the step: the gradient, with the terms of all homes
  BufferId read;                       // the same as the optimizer reads it
  bool fresh = true;                   // something about it is lowered anew

  void add_sum(BufferId sum) { gradient.valid() ? others.push_back(sum) : static_cast<void>(gradient = sum); }
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

// The last use of a buffer on every stream; those of the weight part, which a split backward plays later, apart.
using LastOnStreams = std::array<std::array<InstructionId, kStreams>, 2>;

struct FreeAt {
  TurnId turn;
  InstructionId anchor;  // the free follows it; invalid: at the end of the turn
  InstructionId free;
  BufferId buffer;
  TensorId tensor;
  Guard guard = Guard::Always;
  bool weight_part = false;
  LastOnStreams uses = {};
  std::uint32_t owned = 0;  // the free, in the group's instructions
};

// A buffer, instruction or transfer that a group has in the program.
template <class Id>
struct Owned {
  Id id;
  bool shared = false;  // by the code of the group before a change and after it
  TensorId available;   // of a buffer: to later events that need this tensor; invalid: it is not
};

// A use of a buffer, with all that its last use tells.
struct UseAt {
  BufferId buffer;  // the root of its views
  InstructionId by;
  TurnId turn;
  std::int8_t rank = 0;  // within the turn: before its own instruction, that, after it
  Stream stream = Stream::Compute;
  Phase phase = Phase::Forward;
  Guard guard = Guard::Always;
  bool weight_part = false;
  bool ahead = false;  // by what is issued ahead of its turn
};

// A stretch of a group's code that is lowered, or stays as it was, as a whole (passages.cpp): what happens at an event,
// or of that the part of one mesh or pair of meshes; last, all frees.
struct Passage {
  struct At {
    std::uint32_t buffer = 0, instruction = 0, transfer = 0, use = 0, chain = 0;
  };
  std::uint32_t event = 0, part = 0;
  At begin, end;         // in the lists of the group
  MeshId mesh;           // of the turn
  BufferId source;       // on another mesh, that was brought here
  BufferId result;       // of a part; the sum that a term is added to
  InstructionId adder;   // that added a term of a gradient
  bool depends = false;  // on more than is told here
};

struct GroupCode {
  std::vector<EventCode> events;
  std::vector<FreeAt> frees;  // by turn
  std::map<TensorId, std::vector<Home>> homes;
  std::vector<Chain> chains;
  MeshId collector;      // where the gradients of many homes are added up; invalid: nowhere
  MeshId first_term;     // from where the first comes
  BufferId total;        // their sum there
  InstructionId summed;  // made by
  std::vector<Passage> passages;
  // In the order they were made.
  std::vector<Owned<BufferId>> buffers;
  std::vector<Owned<InstructionId>> instructions;
  std::vector<Owned<TransferId>> transfers;
  std::vector<UseAt> uses;
};

// What lowering a group again has changed.
struct Touched {
  std::vector<TurnId> turns;  // in any order, some perhaps twice
  bool chains = false;
  bool step = false;  // what happens in the step
};

// There is no code of the group but this.
void share_nothing(GroupCode& code);

// What stood in the program before it was written over.
struct Overwritten {
  std::vector<std::pair<InstructionId, Instruction>> instructions;
  std::vector<std::pair<InstructionId, InstructionId>> joined;
  std::vector<std::pair<BufferId, Buffer>> buffers;
  struct Origin {
    InstructionId writer;
    char weight_only = 0;
    bool operator==(const Origin&) const = default;
  };
  std::vector<std::pair<BufferId, Origin>> origins;
  std::vector<std::pair<BufferId, std::vector<InstructionId>>> adders;
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
  // What a free that has been written waits for, by what has been joined since.
  void settle_free(const FreeAt& free);

  // What the group's events come to, with the plan as it is now.
  Result<GroupCode> lower(GroupId group);
  // The same after a change to some operators. What does not depend on them stays; what was made for the same event
  // `before` and is alike keeps its number; what is written over goes to `journal`.
  Result<GroupCode> lower_again(GroupId group, GroupCode& before, Overwritten& journal, Touched& touched);
  void mark_changed(std::span<const OpId> ops, bool changed) {
    for (OpId op : ops) changed_[op] = changed;
  }
  // Gives back what the group owns, but for what is shared.
  void release(const GroupCode& code);
  void put_back(Overwritten& journal);
  // Writes the turn's own instruction, when the groups of its operands are lowered.
  void write_main(TurnId turn, const IdVec<GroupId, GroupCode>& groups);

  InstructionId new_instruction(Instruction instruction);
  void drop_instruction(InstructionId id) { free_instructions_.push_back(id); }
  // Instructions on other streams that the instruction must wait for.
  void add_waits(InstructionId id);
  // The same, of one that has been written since; what it reads may have been joined meanwhile.
  void unsettle(InstructionId id) { unsettled_[id] = 1; }
  void settle_waits(InstructionId id) {
    if (std::exchange(unsettled_[id], 0)) add_waits(id);
  }

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
    LastOnStreams by_stream = {};
  };
  using What = decltype(Instruction::what);

  const Mesh& mesh(MeshId id) const { return program_.meshes[id]; }
  MeshId mesh_of(TurnId turn) const;

  // numbering.cpp
  BufferId number_of(const Buffer& buffer);
  InstructionId number_of(const Instruction& instruction);
  TransferId number_of(const Transfer& transfer);
  InstructionId own(InstructionId id);
  template <class Id, class Matches>
  Id take(std::vector<Owned<Id>>& from, std::uint32_t Passage::At::*at, const Matches& matches);
  void write_over(InstructionId id);
  void forget_adders(BufferId id);
  void remember_origin(BufferId id) { overwritten_->origins.push_back({id, {writer_[id], weight_only_[id]}}); }

  // passages.cpp
  Passage::At here() const;
  static std::uint32_t part_of(MeshId a, MeshId b);
  const Passage* passage_before(std::uint32_t part);
  void begin_event(std::uint32_t event);
  void end_event();
  void begin_passage(std::uint32_t part, MeshId on);
  void end_passage();
  void keep_passage(const Passage& old);
  void note_differences();
  bool stays(const Event& event, const Passage& old);
  bool finds_the_same(const Event& event, const Passage& old) const;
  bool term_stays(const Event& event, const Passage& old);
  bool differs(TensorId tensor, MeshId on) const;
  void keep_term(const Event& event, const Passage& old);
  void find_changed_terms(GroupId group);
  bool other_terms(MeshId on) const;
  Home* home_before(TensorId parameter, MeshId on);
  void set_kind(BufferId id, BufferKind kind);
  BufferId elsewhere(TensorId tensor, MeshId on) const;

  BufferId add_buffer(TensorId tensor, Layout layout, BufferKind kind, bool on_host = false);
  BufferId keep(TensorId tensor, Layout layout, BufferKind kind);
  InstructionId emit(MeshId on, What what, InstructionId as = {});  // `as`: one that keeps its number
  Stream stream_of(const What& what) const;
  void use(BufferId buffer, InstructionId by, int rank);
  void note_use(const UseAt& use);
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
  Status lower_event(const Event& event, EventCode& code);
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
  BufferId sum_in(const Home& home, const Layout& layout) const;
  Status reduce_sums(OpId op, Home& kept, BufferId here, Chain& chain, EventCode& code);
  Status accumulate(const Event& event, EventCode& code);
  Status sum_tied_gradients();
  struct Tie;
  Status exchange(Tie& tie);
  Status collect(Tie& tie);
  template <class Make>
  Result<BufferId> part(MeshId a, MeshId b, bool may_stay, const Make& make);
  Result<BufferId> bring_term(const Tie& tie, std::size_t to, BufferId held);
  void add_term(const Tie& tie, std::size_t at, BufferId a, BufferId b, BufferId sum);
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
  IdVec<TensorId, TensorId> parameter_of_;                // of the storage of a gradient; invalid of others
  IdVec<TensorId, TensorId> gradient_of_;                 // of a parameter: that storage
  IdVec<OpId, TensorId> optimized_by_;                    // optimizer operator → its parameter
  IdVec<TensorId, std::vector<TurnId>> terms_of_;         // accumulator → turns that add to it
  IdVec<OpId, char> changed_;                             // since the groups were lowered
  std::vector<BufferId> free_buffers_;
  std::vector<InstructionId> free_instructions_;
  std::vector<TransferId> free_transfers_;
  IdVec<BufferId, InstructionId> writer_;
  std::unordered_map<BufferId, std::vector<InstructionId>> adders_;  // of gradients with several terms: all that add
  IdVec<InstructionId, InstructionId> joined_;
  IdVec<InstructionId, char> unsettled_;  // written, and not in its place yet
  IdVec<BufferId, LastUse> last_use_;
  IdVec<BufferId, char> weight_only_;

  // The group being lowered, and how it was.
  GroupCode* code_ = nullptr;
  GroupCode* before_ = nullptr;
  Overwritten* overwritten_ = nullptr;
  Touched* touched_ = nullptr;
  bool keeping_ = false;  // what does not depend on a change stays
  std::uint32_t event_ = 0;
  Passage passage_;
  const Passage* old_ = nullptr;                       // the same in `before_`
  std::size_t buffers_begin_ = 0, origins_begin_ = 0;  // of what it writes over
  Passage::At next_, limit_;                           // of `before_`, for the same passage: not taken over yet
  std::size_t event_begin_ = 0, event_end_ = 0;        // the event in before_->passages
  std::size_t part_hint_ = 0;
  bool lowered_last_ = false;                             // the last part
  std::size_t kept_ = 0, lowered_ = 0;                    // passages of the event
  std::vector<std::pair<TensorId, MeshId>> differences_;  // where other buffers are available than before
  std::vector<BufferId> rewritten_;                       // buffers that stayed, with another writer or memory
  std::vector<MeshId> changed_terms_;                     // where other terms are added than before
  IdVec<BufferId, std::uint32_t> free_before_;            // in before_->frees, + 1
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
