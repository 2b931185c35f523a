// What lowering makes of a group of tensors: its part of the program, in passages that stay or are lowered anew.
#pragma once

#include <array>
#include <map>
#include <tuple>

#include "compile/sequence.h"
#include "program/program.h"

namespace weft {

// What a group contributes to one of its events.
struct EventCode {
  BufferId buffer;               // that the turn reads or writes
  InstructionList before, then;  // issued before the turn's own instruction, and after it
};

// A parameter on a mesh that keeps it.
struct Home {
  MeshId mesh;
  BufferId buffer;         // as it is kept
  Layout used;             // as its operators use it
  BufferId gradient = {};  // accumulated here
  BufferList others = {};  // the same of terms that are made in other forms
  BufferList terms = {};   // of the micro-batch, added up by form and not yet reduced onto the parts that are kept
  BufferId reduced = {};   // the same in backward, reduced; invalid where the step does that
  BufferId total = {};     // in the step: the gradient, with the terms of all homes
  BufferId read = {};      // the same as the optimizer reads it
  bool fresh = true;       // something about it is lowered anew

  void add_sum(BufferId sum) { gradient.valid() ? others.push_back(sum) : static_cast<void>(gradient = sum); }
};

// Collectives on one parameter or gradient, which buckets join with others' (buckets.h).
struct Chain {
  enum class Purpose : std::uint8_t {
    ReduceSum,   // of a gradient, when all its terms are in
    ReduceTerm,  // of what a micro-batch adds to a gradient, before it is added (ZeRO-2, 3)
    Publish,     // an updated parameter, to all that keep it whole (ZeRO-1, 2)
    Gather,      // a parameter that is kept in parts, before it is used (ZeRO-3)
  };
  // What makes chains alike: the same steps one after the other (reduced over some mesh axes, then others).
  using Step = std::tuple<MeshId, Collective, MeshAxes, Reducer, DType>;
  struct Key {
    Purpose purpose{};
    std::vector<Step> steps;
    auto operator<=>(const Key&) const = default;
  };
  TurnId turn;
  Key key;
  TensorId tensor;  // the parameter, but for Publish its update
  InstructionList steps;
  InstructionList then;  // issued after them
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
  BufferId total = {};   // their sum there
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
    char readers = 0;  // Lowering::Readers
    bool operator==(const Origin&) const = default;
  };
  std::vector<std::pair<BufferId, Origin>> origins;
  std::vector<std::pair<BufferId, InstructionList>> adders;

  void clear() {
    instructions.clear();
    joined.clear();
    buffers.clear();
    origins.clear();
    adders.clear();
  }
};

// A turn that goes around a ring: its instructions and frees, in order, and what of them it owns.
struct RingCode {
  GroupCode owned;
  InstructionList order;
};

}  // namespace weft
