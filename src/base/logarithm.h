// Logarithms and powers of two that give the same bits on every machine: they use + − × ÷ only, not the system's libm.
// Relative error below 1e-13.
#pragma once

namespace weft {

double log2_of(double positive);  // the argument must be positive and finite
double exp2_of(double power);     // 0 below −1000, 2^1000 from 1000 on

}  // namespace weft
