// Numbers as narrower types hold them.
#pragma once

#include "base/arithmetic.h"
#include "graph/dtype.h"

namespace weft::reference {

// The nearest value that the type has, ties to even; beyond its largest that one (fp8 e4m3, fp4 e2m1) or infinity.
double rounded(double value, DType to);
// The same of a factor of a product.
double rounded(double value, Arithmetic to);

}  // namespace weft::reference
