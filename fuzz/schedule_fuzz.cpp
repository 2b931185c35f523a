// Any bytes as a schedule: an error, or a table that survives printing and that the verifier accepts or refuses.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "program/schedule.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto schedule = weft::parse_schedule({reinterpret_cast<const char*>(data), size}, "fuzz");
  if (!schedule.ok()) return 0;
  WEFT_CHECK(weft::parse_schedule(weft::print(*schedule), "again").value() == *schedule);
  WEFT_CHECK(weft::check_schedule(*schedule).ok() == weft::play(*schedule).ok());
  return 0;
}
