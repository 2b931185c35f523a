// The ONNX importer: any bytes give a graph or an error, in bounded time and memory.
#include <cstdint>
#include <string_view>

#include "models/onnx_import.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const weft::OnnxOptions options{.opaque = {{"*", 1.0}}};
  (void)weft::import_onnx_bytes({reinterpret_cast<const char*>(data), size}, "fuzz", options);
  return 0;
}
