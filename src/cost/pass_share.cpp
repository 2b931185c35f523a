#include "cost/pass_share.h"

namespace weft {

// As a sequence of elementary kernels, an operator reads and writes its tensors several times.
double plain_share(Pass pass, const DeviceTuning& tuning) {
  switch (pass) {
    case Pass::Activation:
    case Pass::ActivationBackward:
    case Pass::Broadcast:
    case Pass::Convert:
    case Pass::Dropout:
    case Pass::Turn:
    case Pass::Transform:
    case Pass::TransformWindows:
    case Pass::LstmGates:
      return tuning.stream.value;
    case Pass::PlainRotary:
      return tuning.stream.value / 5;  // two products, a turned copy in two, and the sum
    case Pass::Glu:
      return tuning.stream.value * 3 / 5;  // read, write; read twice, write
    case Pass::GluBackward:
      return tuning.stream.value * 5 / 9;  // three kernels of three tensors
    case Pass::PlainLstmGates:
      return tuning.stream.value / 3;
    case Pass::ColumnSums:
    case Pass::Sums:
      return tuning.reduction.value;
    case Pass::LayerNorm:
    case Pass::LayerNormBackward:
    case Pass::RmsNorm:
    case Pass::RmsNormBackward:
    case Pass::Softmax:
    case Pass::SoftmaxBackward:
    case Pass::CrossEntropy:
    case Pass::CrossEntropyBackward:
    case Pass::BatchNorm:
    case Pass::BatchNormBackward:
    case Pass::BatchNormFirst:
    case Pass::BatchNormFirstBackward:
      return tuning.rows.value;
    case Pass::PlainNorm:
    case Pass::PlainNormBackward:  // cast, statistics, scale and shift
    case Pass::PlainCrossEntropy:
    case Pass::PlainCrossEntropyBackward:  // fp32 copy, log-softmax, pick
      return tuning.rows.value / 3;
    case Pass::Pool:
    case Pass::PoolBackward:
    case Pass::PoolFirst:
    case Pass::PoolFirstBackward:
      return tuning.windows.value;
    case Pass::Gather:
      return tuning.gather.value;
    case Pass::Scatter:
      return tuning.scatter.value;
    case Pass::Optimizer:
      return tuning.optimizer.value;
    case Pass::PlainOptimizer:
      return tuning.optimizer.value / 3;  // separate kernels for each moment, the update and the weight
  }
  return tuning.stream.value;
}

}  // namespace weft
