// Logarithms and powers of two that give the same bits on every machine: + − × ÷ only, no library of the system.
// Relative error below 1e-13.
#pragma once

namespace weft {

double log2_of(double positive);  // of a positive, finite number
double exp2_of(double power);     // 0 below −1000; from 1000 on 2^1000

}  // namespace weft
