// The graph text parser: any bytes give a graph or an error, and what it accepts survives printing.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "graph/text.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto graph = weft::parse_graph({reinterpret_cast<const char*>(data), size}, "fuzz");
  if (graph.ok() && !(weft::parse_graph(weft::print(*graph), "again").value() == *graph)) std::abort();
  return 0;
}
