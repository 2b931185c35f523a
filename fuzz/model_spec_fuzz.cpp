// Model specs: the first byte picks a model of the zoo, the rest are its overrides. (Not the name itself: it
// could name a file.)
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <variant>

#include "models/models.h"
#include "models/zoo.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  if (size == 0) return 0;
  const weft::ZooEntry& entry = weft::zoo()[bytes[0] % weft::zoo().size()];
  weft::ModelConfig config = entry.config;
  weft::ModelOptions options;
  const std::string_view overrides(reinterpret_cast<const char*>(bytes) + 1, size - 1);
  if (!weft::apply_overrides(overrides, config, options).ok()) return 0;
  (void)weft::describe_model(entry.name + ":" + std::string(overrides));
  (void)weft::find_in_zoo(overrides);
  return 0;
}
