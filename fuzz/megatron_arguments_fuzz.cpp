// Any bytes as a launch command of Megatron-LM: an error that names the file, or a run whose strategy and stack parse.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "export/export.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto run = weft::import_run(weft::Target::Megatron, text, "args.txt");
  if (!run.ok()) {
    WEFT_CHECK(run.error().message.find("args.txt") != std::string::npos, "{}", run.error().message);
    return 0;
  }
  WEFT_CHECK(weft::parse_shorthand(run->request.strategy).ok(), "{}", run->request.strategy);
  WEFT_CHECK(weft::find_stack(run->request.stack).ok(), "{}", run->request.stack);
  return 0;
}
