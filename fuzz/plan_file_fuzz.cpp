// Any bytes as a plan.json: an error, or a value whose text parses back to itself.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "report/plan_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const weft::Result<weft::PlanFile> file = weft::parse_plan_file(text, "fuzz.json"); file.ok()) {
    const std::string printed = weft::print(*file);
    const weft::Result<weft::PlanFile> again = weft::parse_plan_file(printed, "again.json");
    WEFT_CHECK(again.ok() && weft::print(*again) == printed);
    (void)file->request();
    (void)file->predicted_s();
  }
  return 0;
}
