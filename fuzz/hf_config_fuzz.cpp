// Hugging Face configurations: any bytes give an error or a graph.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "models/zoo.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(bytes), size);
  const weft::Result<weft::TransformerConfig> config = weft::import_hf_config(text, "config.json");
  if (!config.ok()) return 0;
  weft::TransformerConfig small = *config;
  small.layers = std::min<std::int64_t>(small.layers, 20);  // more layers are more of the same, only slower
  small.decoder_layers = std::min<std::int64_t>(small.decoder_layers, 20);
  weft::GraphBuilder builder("fuzz");
  weft::build_transformer(builder, small, {.batch = 1, .seq = 16, .dtype = weft::DType::BF16});
  (void)std::move(builder).freeze();
  return 0;
}
