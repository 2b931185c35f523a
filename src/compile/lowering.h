// Lowering: what becomes of each group of tensors when its operators are split as the plan says.
//
// A tensor has one or more buffers, each in one layout on one mesh. For every turn that needs a tensor, the group finds
// a buffer in the layout wanted: one that is there, made by the cheapest sequence of collectives, or brought from
// another mesh. All communication of training follows from that one question: tensor-parallel all-reduces,
// sequence-parallel gathers, expert all-to-alls, ZeRO gathers and scatters, halos, stage borders. Backward reads what
// forward saved, in the layout it was made; parameters have homes, where they are kept and their gradients accumulate.
//
// A group is lowered by itself (`lower`), in the order of its events; what it makes is kept per event, and the program
// is put together from that (compilation.h). Not here: buckets, bodies.
#pragma once

#include <optional>
#include <span>
#include <unordered_map>

#include "base/result.h"
#include "compile/compile.h"
#include "compile/group_code.h"
#include "layout/split_memo.h"

namespace weft {

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

  // No group will be lowered again: what that takes is not kept.
  void keep_nothing() { once_ = true; }
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
  const SplitOp& split(TurnId turn);

 private:
  // Where in a turn something is issued.
  static constexpr int kBefore = 0, kMain = 1, kAfter = 2;

  struct LastUse {
    BufferId of;
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
  void reserve(std::size_t count);
  template <class Id, class Matches>
  Id take(std::vector<Owned<Id>>& from, std::uint32_t Passage::At::*at, const Matches& matches);
  void write_over(InstructionId id);
  void forget_adders(BufferId id);
  void remember_origin(BufferId id) {
    overwritten_->origins.push_back({id, {writer_[id], static_cast<char>(readers_[id])}});
  }

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
  bool stays(const OperandUse& event, const Passage& old);
  bool finds_the_same(const OperandUse& event, const Passage& old) const;
  bool term_stays(const OperandUse& event, const Passage& old);
  bool differs(TensorId tensor, MeshId on) const;
  void keep_term(const OperandUse& event, const Passage& old);
  void find_changed_terms(GroupId group);
  bool other_terms(MeshId on) const;
  Home* home_before(TensorId parameter, MeshId on);
  void set_kind(BufferId id, BufferKind kind);
  BufferId elsewhere(TensorId tensor, MeshId on) const;

  BufferId add_buffer(TensorId tensor, Layout layout, BufferKind kind, bool on_host = false);
  BufferId keep(TensorId tensor, Layout layout, BufferKind kind);
  InstructionId emit(MeshId on, What what, InstructionId as = {});  // `as`: one that keeps its number
  Stream stream_of(const What& what) const;
  void settle_sending(Communicate& communicate) const;

  // Who may read a buffer that backward made, where it is split into the input's part and, later, the weights'. What
  // only weight gradients made must not be read by others, which come before it.
  enum class Readers : char {
    All,
    WeightPart,
    InputPart,  // an activation gathered for it: the weights' part gathers again, so that it is not held in between
  };
  bool usable(BufferId id) const {
    return phase_ == Phase::Step || readers_[id] != (weight_part_ ? Readers::InputPart : Readers::WeightPart);
  }
  Result<BufferId> as(TensorId tensor, const Layout& wanted);
  Result<BufferId> make_as(TensorId tensor, Layout wanted);
  struct Route;
  Route cheapest(TensorId tensor, const Layout& wanted, std::optional<Error>& problem);
  bool lies_apart(const ReshardStep& step, const Layout& from) const;
  Result<BufferId> merge_weights(TensorId tensor, Layout contributions);
  Result<bool> bring(TensorId tensor, const Layout& wanted);
  Result<bool> bring_from(BufferId source, const Layout& wanted);
  Layout in_parts(const Layout& layout) const;
  void given(TensorId tensor, const Layout& wanted);
  Status lower_events(GroupId group, GroupCode& code);
  Status lower_event(const OperandUse& event, EventCode& code);
  Status need(const OperandUse& event, EventCode& code);
  void make(const OperandUse& event, EventCode& code);
  void reduce_scalars(const OperandUse& last, EventCode& code);

  // saved.cpp
  BufferId as_read_first(const OperandUse& event, BufferId made);
  void begin_backward(GroupId group, std::size_t from);
  BufferId send_to_host(BufferId buffer, std::span<const OperandUse> events);
  void begin_step(GroupId group);

  // liveness.cpp
  void use(BufferId buffer, InstructionId by, int rank);
  void use_all(InstructionId by);
  void note_use(const UseAt& use);
  LastUse& last_use(BufferId buffer);
  void add_frees();

  // ring.cpp
  bool goes_around(TurnId turn) const;
  InstructionId maker(const OperandUse& event);  // of an output
  void write_ring(TurnId turn, const BufferList& operands);

  // parameters.cpp
  Home& home(TensorId parameter, MeshId on);
  Layout weight_layout(TensorId parameter, const Layout& used) const;
  Layout gradient_layout(const Home& of) const;
  Layout step_layout(const Home& of) const;
  BufferId sum_in(const Home& home, const Layout& layout) const;
  Status reduce_sums(OpId op, Home& kept, BufferId here, Chain& chain, EventCode& code);
  Status accumulate(const OperandUse& event, EventCode& code);
  Status accumulate_parts(const OperandUse& event, Home& kept, BufferId ready, EventCode& code);
  BufferId add_to_sum(OpId op, Home& kept, BufferId term);
  Status sum_tied_gradients();
  struct Tie;
  Status exchange(Tie& tie);
  Status collect(Tie& tie);
  template <class Make>
  Result<BufferId> part(MeshId a, MeshId b, bool may_stay, const Make& make);
  Result<BufferId> bring_term(const Tie& tie, std::size_t to, BufferId held);
  void add_term(const Tie& tie, std::size_t at, BufferId a, BufferId b, BufferId sum);
  Status optimize(const OperandUse& event);
  Status optimize_copy(TurnId turn, const Layout& layout, Home& copy);
  void add_chain(Chain chain, Chain::Purpose purpose);
  bool gathers_in_units(TensorId tensor) const;
  BufferId store(BufferId from, BufferId home);
  void update_in_place(BufferId written, BufferId target);
  bool on_mesh(TensorId tensor, MeshId on) const;
  bool offloads(Stored kind, TensorId parameter) const {
    return options_.memory.of(parameter).offload[static_cast<std::size_t>(kind)];
  }

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
  SplitMemo memo_;
  IdVec<OpId, std::shared_ptr<const SplitOp>> splits_;  // as they were asked for last
  IdVec<OpId, char> changed_;                           // since the groups were lowered
  std::vector<BufferId> free_buffers_;
  std::vector<InstructionId> free_instructions_;
  std::vector<TransferId> free_transfers_;
  IdVec<BufferId, InstructionId> writer_;
  std::unordered_map<BufferId, InstructionList> adders_;  // of gradients with several terms: all that add
  IdVec<InstructionId, InstructionId> joined_;
  IdVec<InstructionId, std::uint64_t> last_waiter_;  // of add_waits: the last call that found it, by number
  std::uint64_t waiter_ = 0;
  IdVec<InstructionId, char> unsettled_;  // written, and not in its place yet
  std::vector<LastUse> last_uses_;        // in the group that is being lowered
  IdVec<BufferId, std::uint32_t> last_use_at_;
  IdVec<BufferId, Readers> readers_;

  bool once_ = false;

  // The group being lowered, and how it was.
  GroupCode* code_ = nullptr;
  GroupCode lowered_code_;
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
  bool in_place_ = false;        // what is made by collectives lies where their source does
  bool adds_reduced_ = false;    // emitting the addition of gradients that were reduced
  bool copies_in_turn_ = false;  // emitting a copy that must keep its turn among those to the host
  bool gathers_parts_ = false;   // emitting what puts the parts of a transfer together
  TurnId turn_;
  Phase phase_ = Phase::Forward;
  bool weight_part_ = false;
  Guard guard_ = Guard::Always;
  InstructionList* sink_ = nullptr;
  IdVec<TensorId, BufferList> available_;        // buffers of each tensor that hold it now
  IdVec<TensorId, std::uint32_t> last_forward_;  // event + 1
  int rank_ = 0;
  bool ahead_ = false;  // what is emitted now is issued ahead of its turn
};

}  // namespace weft
