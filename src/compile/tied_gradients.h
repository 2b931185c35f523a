// The gradient of a parameter with several homes (tied embeddings, stages held twice, operators placed one by one):
// every home gets the sum of all. Two homes exchange what they have. Of more, one collects the terms of the others,
// adds them up and sends the sum back: two transfers for each home, where an exchange takes one for every pair.
#pragma once

#include <vector>

#include "compile/parameter_tensors.h"
#include "compile/reuse.h"

namespace weft {

class TiedGradients {
 public:
  // All are kept by reference.
  TiedGradients(const Sequence& sequence, Program& program, CurrentGroup& group, Origins& origins, Numbering& numbering,
                Passages& passages, TurnSplits& splits, Emitter& emitter, TensorBuffers& buffers,
                const ParameterTensors& tensors, const ParameterHomes& homes, Reuse& reuse)
      : sequence_(sequence),
        program_(program),
        group_(group),
        origins_(origins),
        numbering_(numbering),
        passages_(passages),
        splits_(splits),
        emitter_(emitter),
        buffers_(buffers),
        tensors_(tensors),
        homes_(homes),
        reuse_(reuse) {}

  // At the beginning of the step: settles Home::total of every home of the group's parameters.
  Status sum();

 private:
  struct Tie {
    std::vector<Home>& homes;
    TensorId gradient;
    OpId op;                         // an addition of its terms
    std::vector<BufferId> own = {};  // of each home: its own gradient, reduced on its mesh
  };
  Result<BufferId> reduce_own(const Tie& tie, const Home& home);
  Status exchange(Tie& tie);
  Status collect(Tie& tie);
  Result<BufferId> bring_term(const Tie& tie, std::size_t to, BufferId held);
  InstructionId add(const Tie& tie, MeshId on, BufferId a, BufferId b, BufferId sum);

  const Sequence& sequence_;
  Program& program_;
  CurrentGroup& group_;
  Origins& origins_;
  Numbering& numbering_;
  Passages& passages_;
  TurnSplits& splits_;
  Emitter& emitter_;
  TensorBuffers& buffers_;
  const ParameterTensors& tensors_;
  const ParameterHomes& homes_;
  Reuse& reuse_;
};

}  // namespace weft
