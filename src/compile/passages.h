// The code of a group as a sequence of passages (group_code.h): the one that is open, and its counterpart in the
// group's code before a change, whose numbers it takes over. Which passages stay is decided in reuse.h.
#pragma once

#include "compile/differences.h"
#include "compile/numbering.h"
#include "compile/position.h"

namespace weft {

class Passages {
 public:
  // All are kept by reference.
  Passages(const CurrentGroup& group, const Position& position, Numbering& numbering, Differences& differences)
      : group_(group), position_(position), numbering_(numbering), differences_(differences) {}

  // The number of a part of an event in the step, on one mesh or between two. It does not depend on what other parts
  // there are, so that one more or less leaves their passages as they are.
  static std::uint32_t part_of(MeshId a, MeshId b);

  void begin_group() { event_ = {}; }
  void begin_event(std::uint32_t event);
  // Records the event's turn as touched if one of its passages was lowered or is gone.
  void end_event();
  std::uint32_t event() const { return event_.number; }

  // The counterpart of a part before the change; null: there is none.
  const Passage* before(std::uint32_t part);
  // Of an event that is one passage.
  const Passage& before() const { return group_.before->passages[event_.begin]; }

  // What is made in between is one passage, lowered anew.
  void begin(std::uint32_t part, MeshId on);
  void end();
  // The passage that was lowered last; it may still be open.
  const Passage& lowered() const { return passage_; }
  // It found all that it needs where it was before: it counts as one that stays.
  void count_as_kept();
  // What it makes, or what it adds to.
  void set_result(BufferId result) { passage_.result = result; }
  void set_adder(InstructionId adder) { passage_.adder = adder; }
  // It brings a buffer from another mesh. Only one source is recorded.
  void add_source(BufferId source) {
    passage_.anew = passage_.anew || passage_.source.valid();
    passage_.source = source;
  }

  // The end of the group's code so far.
  Passage::At here() const;
  // A passage stays; its code has been added to the group's from `begin` on.
  void keep(const Passage& old, const Passage::At& begin);

 private:
  struct Event {
    std::uint32_t number = 0;
    std::size_t begin = 0, end = 0, next = 0;  // in group_.before->passages; the one to look at first
    std::size_t kept = 0, lowered = 0;         // passages that stay, and that were lowered anew
  };

  const CurrentGroup& group_;
  const Position& position_;
  Numbering& numbering_;
  Differences& differences_;
  Event event_;
  Passage passage_;
  const Passage* old_ = nullptr;  // its counterpart
};

}  // namespace weft
