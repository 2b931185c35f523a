// What one device computes of an operator: FLOPs of its products, bytes of its operands, their shapes.
#pragma once

#include <vector>

#include "program/program.h"

namespace weft {

struct LocalCompute {
  double flops = 0;           // two per multiply-add
  std::int64_t bytes = 0;     // of all operands, each once
  std::vector<Shape> shapes;  // by operand, inputs first
};

// The part of the device at a position of the mesh.
LocalCompute local_compute(const Signature& signature, const OpSharding& sharding, const Mesh& mesh, int position);

}  // namespace weft
