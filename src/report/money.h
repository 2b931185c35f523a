// What device time costs.
#pragma once

#include <cstdint>
#include <string>

namespace weft {

// Dollars for `devices` devices over `seconds` at a price per GPU-hour.
double dollars(double price, std::int64_t devices, double seconds);
// "$0.12", "$1,234", "$5.6 M"
std::string money(double dollars);

}  // namespace weft
