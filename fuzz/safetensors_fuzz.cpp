// Any bytes as a file of tensors: an error, or a header that survives printing, with tensors that lie in the file.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "run/json_text.h"
#include "run/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace weft::runtime;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  (void)parse_json(text);  // an index is text alone
  const auto header = parse_safetensors(text, static_cast<std::int64_t>(size));
  if (!header.ok()) return 0;
  std::int64_t bytes = 0;
  for (const FileTensor& tensor : header->tensors) {
    WEFT_CHECK(tensor.begin == bytes && tensor.end <= static_cast<std::int64_t>(size));
    bytes = tensor.end;
  }
  const std::string again = print(*header);
  WEFT_CHECK(parse_safetensors(again, static_cast<std::int64_t>(again.size()) + bytes).value() == *header);
  return 0;
}
