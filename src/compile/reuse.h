// Which passages of a group's code stay as they were when the group is lowered again after a change to some operators.
//
// A passage stays if its operator is as it was, if the buffers it finds are those it found (differences.h), and if what
// it brings from another mesh still comes from there. It keeps all that it owns, and its uses of buffers are noted
// again, so that frees come out as if it were lowered anew. What is lowered anew takes over the numbers of what it made
// before (numbering.h). Terms of gradients have conditions of their own (gradient_sums.h).
#pragma once

#include "compile/parameter_homes.h"

namespace weft {

class Reuse {
 public:
  // All are kept by reference.
  Reuse(const Graph& graph, const Sequence& sequence, const Program& program, const CurrentGroup& group,
        const Position& position, const Differences& differences, Passages& passages, Liveness& liveness,
        TensorBuffers& buffers, ParameterHomes& homes)
      : graph_(graph),
        sequence_(sequence),
        program_(program),
        group_(group),
        position_(position),
        differences_(differences),
        passages_(passages),
        liveness_(liveness),
        buffers_(buffers),
        homes_(homes) {}

  // Whether the passage of an event, other than a gradient's term, stays.
  bool stays(const OperandUse& event, const Passage& old) const;
  void keep(const Passage& old);

  // A part of an event in the step.
  struct Part {
    BufferId result;
    InstructionId adder;  // Passage::adder
    bool lowered = true;  // otherwise it stays as it was
  };
  // What one mesh has to do, or two between them: as it was if it may stay, otherwise what `make` emits; that gives the
  // result.
  template <class Make>
  Result<Part> part(MeshId a, MeshId b, bool may_stay, const Make& make) {
    const std::uint32_t number = Passages::part_of(a, b);
    if (group_.keeps && may_stay)
      if (const Passage* const old = passages_.before(number)) {
        keep(*old);
        return Part{old->result, old->adder, false};
      }
    passages_.begin(number, a);
    WEFT_TRY(const BufferId result, make());
    passages_.set_result(result);
    passages_.end();
    return Part{result, passages_.lowered().adder, true};
  }

 private:
  bool finds_the_same(const OperandUse& event, const Passage& old) const;

  const Graph& graph_;
  const Sequence& sequence_;
  const Program& program_;
  const CurrentGroup& group_;
  const Position& position_;
  const Differences& differences_;
  Passages& passages_;
  Liveness& liveness_;
  TensorBuffers& buffers_;
  ParameterHomes& homes_;
};

}  // namespace weft
