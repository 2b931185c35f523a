// How products of narrow types cast their factors: by which scales, found when, and in which copies.
//
// A factor is read along its rows by one product and along its columns by another, so it is cast twice. One scale for
// the whole tensor, or for square blocks, serves both casts; scales along a row do not, and the copies differ.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace weft {

enum class Recipe : std::uint8_t {
  Delayed,      // one scale, from maxima of earlier steps: cast in one pass (Transformer Engine, DelayedScaling)
  Current,      // one scale, of the tensor itself: its maximum first (Float8CurrentScaling; torchao's tensorwise)
  Blockwise,    // 1 x 128 of activations, 128 x 128 of weights (DeepSeek-V3 report, section 3.3)
  Rowwise,      // one scale a row; kept as it was, and cast again for the weight's gradient (torchao's rowwise)
  RowwiseWide,  // the same with weight gradients as they are stored (torchao's rowwise_with_gw_hp)
  Mx,           // 32 elements, powers of two (OCP Microscaling Formats; MXFP8BlockScaling)
  Nv,           // 16 elements, in fp8, and one for the tensor (NVFP4BlockScaling)
};

struct RecipeTraits {
  Recipe recipe;
  std::string_view word;   // of a stack's `recipe`
  std::string_view dtype;  // of --dtype
  std::string_view what;
  int block = 0;                // elements that share a scale; 0: so many that scales take no memory
  int scale_bytes = 0;          // of such a scale
  bool looks_first = false;     // the tensor is read once before it is cast, for its maximum
  bool one_copy = false;        // a cast weight serves products along its rows and its columns
  bool of_rows = false;         // scales along rows alone: the other copy is cast when it is needed
  bool block_products = false;  // products scale every block of the sum: by their units, or between them
};
inline constexpr std::array<RecipeTraits, 7> kRecipes = {{
    {.recipe = Recipe::Delayed,
     .word = "delayed",
     .dtype = "fp8-delayed",
     .what = "one scale a tensor, from earlier steps",
     .one_copy = true},
    {.recipe = Recipe::Current,
     .word = "current",
     .dtype = "fp8-current",
     .what = "one scale a tensor, of its own maximum",
     .looks_first = true,
     .one_copy = true},
    {.recipe = Recipe::Blockwise,
     .word = "blockwise",
     .dtype = "fp8-blockwise",
     .what = "a scale for 128 elements, of weights for 128 x 128",
     .block = 128,
     .scale_bytes = 4,
     .one_copy = true,
     .block_products = true},
    {.recipe = Recipe::Rowwise,
     .word = "rowwise",
     .dtype = "fp8-rowwise",
     .what = "a scale a row, cast again for the weight's gradient",
     .of_rows = true},
    {.recipe = Recipe::RowwiseWide,
     .word = "rowwise-gw-hp",
     .dtype = "fp8-rowwise-gw-hp",
     .what = "a scale a row, weight gradients in bf16",
     .of_rows = true},
    {.recipe = Recipe::Mx,
     .word = "mx",
     .dtype = "mxfp8",
     .what = "a scale for 32 elements",
     .block = 32,
     .scale_bytes = 1,
     .block_products = true},
    {.recipe = Recipe::Nv,
     .word = "nv",
     .dtype = "nvfp4",
     .what = "a scale for 16 elements and one a tensor",
     .block = 16,
     .scale_bytes = 1,
     .looks_first = true,
     .block_products = true},
}};

constexpr const RecipeTraits& traits_of(Recipe recipe) { return kRecipes[static_cast<std::size_t>(recipe)]; }

// Bytes of scales for an element of a copy.
constexpr double scale_bytes_of(Recipe recipe) {
  const RecipeTraits& traits = traits_of(recipe);
  return traits.block > 0 ? static_cast<double>(traits.scale_bytes) / traits.block : 0;
}

constexpr std::optional<Recipe> recipe_named(std::string_view word) {
  for (const RecipeTraits& each : kRecipes)
    if (each.word == word) return each.recipe;
  return std::nullopt;
}

}  // namespace weft
