// Model specs: the first byte picks a model of the zoo, the rest are its overrides. (Not the name itself: it
// could name a file.)
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>
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
  // More layers are more of the same, only slower.
  if (auto* transformer = std::get_if<weft::TransformerConfig>(&config))
    transformer->layers = std::min<std::int64_t>(transformer->layers, 4);
  if (auto* recurrent = std::get_if<weft::RecurrentConfig>(&config))
    recurrent->layers = std::min<std::int64_t>(recurrent->layers, 2);
  const weft::StepShape step{.batch = options.batch, .seq = options.seq.value_or(32)};
  weft::GraphBuilder builder("fuzz");
  const auto build = [&](const auto& chosen) {
    if (!check(chosen).ok()) return;
    using Config = std::decay_t<decltype(chosen)>;
    if constexpr (std::is_same_v<Config, weft::TransformerConfig>) build_transformer(builder, chosen, step);
    if constexpr (std::is_same_v<Config, weft::VisionConfig>) build_vision(builder, chosen, step);
    if constexpr (std::is_same_v<Config, weft::RecurrentConfig>) {
      if (step.seq < 2000 || step.seq > 200'000) build_recurrent(builder, chosen, step);
    }
    if constexpr (std::is_same_v<Config, weft::RecommenderConfig>) build_recommender(builder, chosen, step);
  };
  std::visit(build, config);
  (void)std::move(builder).freeze();
  (void)weft::describe_model(entry.name + ":" + std::string(overrides));
  (void)weft::find_in_zoo(overrides);
  return 0;
}
