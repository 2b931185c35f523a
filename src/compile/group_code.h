// What lowering makes of one group of tensors (sequence.h): its part of the program, and what it takes to lower the
// group again after a change to some operators.
#pragma once

#include <array>
#include <map>
#include <tuple>

#include "compile/sequence.h"
#include "program/program.h"

namespace weft {

// What a group contributes to one of its events.
struct EventCode {
  BufferId buffer;               // the buffer that the turn reads or writes
  InstructionList before, then;  // issued before the turn's own instruction, and after it
};

// A mesh that stores a parameter and accumulates its gradient; a tied weight that is used on two stages has two.
struct Home {
  MeshId mesh;
  BufferId buffer;         // the stored parameter
  Layout used;             // the layout in which the operators of this mesh use it
  BufferId gradient = {};  // the first sum of gradient terms; its layout is that of the first term
  BufferList others = {};  // sums of terms that are made in other layouts, one per layout
  BufferList terms = {};   // ZeRO-2, 3: terms of this micro-batch, one sum per layout, not reduce-scattered yet
  BufferId reduced = {};   // the gradient after its reduction in the backward body; invalid where the step reduces it
  BufferId total = {};     // in the step: the gradient summed over all homes
  BufferId read = {};      // in the step: `total` in the layout in which the optimizer read it last
  bool fresh = true;       // something here was lowered anew, so later passages of this home are lowered anew too

  void add_sum(BufferId sum) { gradient.valid() ? others.push_back(sum) : static_cast<void>(gradient = sum); }
};

// Successive collectives on one parameter or gradient, which buckets join with those of others (buckets.h).
struct Chain {
  enum class Purpose : std::uint8_t {
    ReduceSum,   // reduces a gradient when all its terms have been added
    ReduceTerm,  // reduces what a micro-batch adds to a gradient, before it is added (ZeRO-2, 3)
    Publish,     // gathers an updated parameter on all devices that store it whole (ZeRO-1, 2)
    Gather,      // gathers a sharded parameter before it is used (ZeRO-3)
  };
  // Chains with equal keys are joined: the same collectives in the same order (over some mesh axes, then others), in the
  // same types.
  using Step = std::tuple<MeshId, Collective, MeshAxes, Reducer, DType>;
  struct Key {
    Purpose purpose{};
    std::vector<Step> steps;
    auto operator<=>(const Key&) const = default;
  };
  TurnId turn;
  Key key;
  TensorId tensor;        // the parameter; of Publish the updated parameter
  InstructionList steps;  // the collectives
  InstructionList then;   // issued after them
};

// The last use of a buffer on every stream: [0] outside, [1] inside the weight part of backward, which a schedule with
// a split backward plays later.
using LastOnStreams = std::array<std::array<InstructionId, kStreams>, 2>;

// The free of a buffer, and where in its turn it stands.
struct FreeAt {
  TurnId turn;
  InstructionId anchor;  // the free follows this instruction; invalid: it stands at the end of the turn
  InstructionId free;
  BufferId buffer;
  TensorId tensor;
  Guard guard = Guard::Always;
  bool weight_part = false;
  LastOnStreams uses = {};
  std::uint32_t owned = 0;  // index of the free in GroupCode::instructions
};

// A buffer, instruction or transfer of the program that belongs to a group.
template <class Id>
struct Owned {
  Id id;
  bool shared = false;  // belongs to the code of the group both before and after the open change
  TensorId available;   // of a buffer: the tensor whose later events may use it; invalid: none may
};

// Where in a turn an instruction is issued, relative to the turn's own.
enum class InTurn : std::int8_t { Before, Own, After };

// A use of a buffer, with all that follows from it if it is the last.
struct UseAt {
  BufferId buffer;  // the one whose memory is used: Buffer::memory
  InstructionId by;
  TurnId turn;
  InTurn in_turn = InTurn::Before;
  Stream stream = Stream::Compute;
  Phase phase = Phase::Forward;
  Guard guard = Guard::Always;
  bool weight_part = false;
  bool ahead = false;  // `by` is issued in an earlier turn (a prefetched gather)
};

// A passage is the stretch of a group's code that is either lowered anew or stays as a whole when the group is lowered
// again: the code of one event; in the step, the part of an event on one mesh or between two; last, all frees.
struct Passage {
  // A place in the lists of GroupCode.
  struct At {
    std::uint32_t buffer = 0, instruction = 0, transfer = 0, use = 0, chain = 0;
  };
  std::uint32_t event = 0;
  std::uint32_t part = 0;  // Passages::part_of its meshes; 0 where an event is one passage
  At begin, end;
  MeshId mesh;          // the mesh of the turn
  BufferId source;      // the buffer on another mesh that was sent to this one
  BufferId result;      // of a part: what it makes; of a gradient term: the sum that it is added to
  InstructionId adder;  // the instruction that adds a gradient term
  bool anew = false;    // depends on more than is recorded here: always lowered anew
};

struct GroupCode {
  std::vector<EventCode> events;
  std::vector<FreeAt> frees;  // by turn
  std::map<TensorId, std::vector<Home>> homes;
  std::vector<Chain> chains;
  // Of a parameter with more than two homes:
  MeshId collector;      // the home that adds up the gradients of all; invalid: none
  MeshId first_term;     // the home whose gradient is added first
  BufferId total = {};   // the sum on `collector`
  InstructionId summed;  // the last addition to it
  std::vector<Passage> passages;
  // In the order they were made.
  std::vector<Owned<BufferId>> buffers;
  std::vector<Owned<InstructionId>> instructions;
  std::vector<Owned<TransferId>> transfers;
  std::vector<UseAt> uses;
};

// What lowering a group again has changed.
struct Touched {
  std::vector<TurnId> turns;  // in any order, possibly repeated
  bool chains = false;
  bool step = false;  // code of the step
};

// Marks the code as the only one of its group: no change is open.
void share_nothing(GroupCode& code);

// Who may read a buffer that backward made, where a schedule plays backward in two parts: the input gradients', and
// later the weight gradients'. What the weight part made must not be read by the input part, which runs before it.
enum class Readers : std::uint8_t {
  All,
  WeightPart,
  InputPart,  // an activation gathered for the input part; the weight part gathers it again rather than holding it
};

// Where the contents of a buffer come from.
struct BufferOrigin {
  InstructionId writer;
  Readers readers = Readers::All;
  bool operator==(const BufferOrigin&) const = default;
};

// What stood in the program before a change wrote over it, in the order of writing.
struct Overwritten {
  std::vector<std::pair<InstructionId, Instruction>> instructions;
  std::vector<std::pair<InstructionId, InstructionId>> joined;
  std::vector<std::pair<BufferId, Buffer>> buffers;
  std::vector<std::pair<BufferId, BufferOrigin>> origins;
  std::vector<std::pair<BufferId, InstructionList>> adders;

  void clear() {
    instructions.clear();
    joined.clear();
    buffers.clear();
    origins.clear();
    adders.clear();
  }
};

// A turn of ring attention: its instructions and frees in order, and which of them it owns.
struct RingCode {
  GroupCode owned;
  InstructionList order;
};

}  // namespace weft
