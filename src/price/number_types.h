// The types that a step computes and sends numbers in, where they are not those the graph stores them in.
#pragma once

#include <optional>

#include "cluster/device.h"
#include "graph/dtype.h"

namespace weft {

struct NumberTypes {
  std::optional<Arithmetic> products = {};  // tf32: of all fp32; narrower types: of the linears of blocks
  std::optional<DType> sent_gradients = {}, sent_parameters = {};
};

}  // namespace weft
