// Matrix products: every contraction is one, batch · (m × k) · (k × n), and runs as tiles on the compute units.
//
// A tile of the output is one thread block's; it walks along k. Tiles run in waves, one per compute unit at a time. The
// time of a wave is that of a tile; the last wave may be part empty. Products with few tiles are split along k, at the
// price of adding up the parts. Memory bounds the whole from below.
#pragma once

#include <span>

#include "cost/tuning.h"
#include "graph/signature.h"

namespace weft {

// Of an operand's rows, in bytes: multiples of 16, of 4, of neither. Tensor cores load 16 at a time.
enum class Alignment : std::uint8_t { Full, Word, None };

struct Product {
  double batch = 1, m = 1, n = 1, k = 1;
  double bytes = 0;                       // of both factors and the result
  Alignment alignment = Alignment::Full;  // the worst of the three operands'
  int turned = 0;                         // factors whose rows do not lie along the sum
  bool splits = true;                     // along k, where tiles are few
  double efficiency = 1;                  // over a plain product of this shape: grouped, implicit

  double flops() const { return 2 * batch * m * n * k; }
};

struct KernelTime {
  double seconds = 0;
  double busy = 0;   // share of the compute units
  double waves = 0;  // of blocks over them; 0: not in blocks
};

// The best of the device's tiles and of splits along k. Cost: tiles × splits, no allocation.
KernelTime product_time(const Product& product, const DeviceSpec& device, const DeviceTuning& tuning,
                        Arithmetic arithmetic);

}  // namespace weft
