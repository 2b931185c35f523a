// Tables of measurements: any text gives events or errors, and what is read is written and read back the same.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "profile/table.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto table = weft::parse_csv(text, "fuzz.csv");
  if (!table.ok()) return 0;
  const auto rows = weft::profile_rows(*table, "fuzz.csv", {});
  if (!rows.ok()) return 0;
  const auto again = weft::parse_csv(weft::profile_csv(rows->events), "again.csv");
  if (!again.ok()) std::abort();
  const auto same = weft::profile_rows(*again, "again.csv", {});
  if (!same.ok() || !same->skipped.empty() || same->events != rows->events) std::abort();
  return 0;
}
