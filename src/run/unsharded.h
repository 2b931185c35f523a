// The same training on one device, nothing split: what a run of many ranks is checked against.
//
// The training graph is played operator by operator, once per micro-batch, by the same kernels on whole tensors. What a
// part keeps for itself (statistics of a batch norm) is computed part by part, as the program cuts it.
#pragma once

#include <c10/core/Device.h>

#include <functional>
#include <memory>
#include <optional>

#include "run/values.h"

namespace weft::runtime {

class Unsharded {
 public:
  // Refers to the bundle. `mask_seed` as the executors'; `beat` is called before every operator.
  Unsharded(const Bundle& bundle, LeafValues values, std::optional<std::uint64_t> mask_seed = {},
            std::function<void()> beat = {}, at::Device tensors_on = at::kCPU);
  ~Unsharded();

  // An error says what libtorch said, and of which operator.
  Status step(const StepNumbers& numbers);
  // A parameter, a state (by its storage) or a result of the last step.
  std::vector<double> value(TensorId tensor) const;

 private:
  class Player;
  std::unique_ptr<Player> player_;
};

}  // namespace weft::runtime
