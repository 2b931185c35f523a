// Any bytes as a strategy, in shorthand and as YAML: an error, or a value whose text parses back to itself.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "strategy/shorthand.h"
#include "strategy/yaml.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const weft::Result<weft::Shorthand> shorthand = weft::parse_shorthand(text); shorthand.ok()) {
    const weft::Result<weft::Shorthand> again = weft::parse_shorthand(weft::print(*shorthand));
    WEFT_CHECK(again.ok() && *again == *shorthand);
    for (std::int64_t devices : {1, 64, 1000})
      if (const auto plan = weft::complete(*shorthand, devices, {.global_batch = 512}); plan.ok())
        WEFT_CHECK(plan->world() == devices && plan->global_batch() == 512);
  }
  if (const weft::Result<weft::Strategy> strategy = weft::parse_strategy(text, "fuzz.yaml"); strategy.ok()) {
    const weft::Result<weft::Strategy> again = weft::parse_strategy(weft::to_yaml(*strategy), "again.yaml");
    // A printed file spells out what aliases abbreviate, so only it may be over the size limit.
    WEFT_CHECK(!again.ok() || *again == *strategy);
  }
  return 0;
}
