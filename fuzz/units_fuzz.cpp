// Quantities with units: any text gives a value or an error, and a value printed exactly reads back the same.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/units.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto bytes = weft::parse_bytes(text);
  if (bytes.ok() && weft::parse_bytes(weft::exact(*bytes)).value() != *bytes) std::abort();
  const auto rate = weft::parse_bandwidth(text);
  if (rate.ok() && weft::parse_bandwidth(weft::exact(*rate)).value() != *rate) std::abort();
  (void)weft::parse_seconds(text);
  (void)weft::parse_flop_rate(text);
  (void)weft::parse_integer(text, "number");
  return 0;
}
