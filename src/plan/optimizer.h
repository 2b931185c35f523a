// The optimizer as --optimizer gives it: which states every trained parameter has, and in which type.
//
//   adamw                      two moments, fp32 unless the stack keeps them otherwise
//   adamw:moments=bf16         two moments in bf16
//   adam, lamb                 as adamw
//   momentum                   one moment
//   sgd                        none
#pragma once

#include <optional>
#include <string_view>

#include "base/result.h"
#include "graph/training.h"

namespace weft {

struct OptimizerChoice {
  OptimizerKind kind = OptimizerKind::AdamW;
  std::optional<DType> moments = {};  // none: the stack's
};

Result<OptimizerChoice> parse_optimizer(std::string_view text);

}  // namespace weft
