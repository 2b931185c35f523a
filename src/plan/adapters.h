// What is trained, as --train gives it: everything, or low-rank adapters beside frozen weights.
//
//   all                          every parameter (but those of --freeze)
//   lora:r=16,targets=attn       adapters of rank 16 beside the linears of attention; targets=mlp, attn+mlp
//
// Adapters are operators of the model's graph (models/transformer.h: LoraConfig), and all other parameters are frozen:
// they have no gradients, states or communication, and backward products that only they need are left out.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace weft {

struct Adapters {
  std::int64_t rank = 16;
  std::string targets = "attn";
};
// None: everything is trained.
Result<std::optional<Adapters>> parse_train(std::string_view text);

// The model with them, and the globs that freeze everything else.
std::string with_adapters(std::string_view model, const Adapters& adapters);
inline constexpr std::string_view kAllButAdapters = "**+!**.*_lora_*";

}  // namespace weft
