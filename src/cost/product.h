// Matrix products: every contraction is one, batch · (m × k) · (k × n), and runs as tiles on the compute units.
//
// A thread block computes one tile of the output, iterating along k. Tiles run in waves, one per compute unit at a
// time. The time of a wave is that of a tile; the last wave may be partly empty. Products with few tiles are split
// along k, at the cost of summing the parts. Memory traffic bounds the whole from below.
#pragma once

#include <span>

#include "cost/tuning.h"
#include "graph/signature.h"

namespace weft {

// Alignment of an operand's rows: multiples of 16 bytes, of 4, or neither. Tensor cores load 16 bytes at a time.
enum class Alignment : std::uint8_t { Full, Word, None };

struct Product {
  double batch = 1, m = 1, n = 1, k = 1;
  double bytes = 0;                       // of both factors and the result
  Alignment alignment = Alignment::Full;  // the worst of the three operands'
  int turned = 0;                         // transposed factors: k is not their contiguous dimension
  bool splits = true;                     // may be split along k if tiles are few
  double efficiency = 1;                  // rate relative to an ordinary product of this shape: grouped, implicit

  double flops() const { return 2 * batch * m * n * k; }
};

struct KernelTime {
  double seconds = 0;
  double busy = 0;   // share of the compute units
  double waves = 0;  // waves of tiles; 0: not tiled
};

// The best of the device's tiles and of splits along k. Cost: tiles × splits, no allocation.
KernelTime product_time(const Product& product, const DeviceSpec& device, const DeviceTuning& tuning,
                        Arithmetic arithmetic);

}  // namespace weft
