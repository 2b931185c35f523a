// The arithmetic a matrix product runs in; each has a dense (not sparse) peak of its own on a device.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace weft {

enum class Arithmetic : std::uint8_t { kFp32, kTf32, kFp16, kBf16, kFp8, kFp4 };
inline constexpr std::array kArithmetics = {Arithmetic::kFp32, Arithmetic::kTf32, Arithmetic::kFp16,
                                            Arithmetic::kBf16, Arithmetic::kFp8,  Arithmetic::kFp4};

constexpr std::string_view name(Arithmetic arithmetic) {
  constexpr std::string_view names[] = {"fp32", "tf32", "fp16", "bf16", "fp8", "fp4"};
  return names[static_cast<std::size_t>(arithmetic)];
}

constexpr std::optional<Arithmetic> arithmetic_named(std::string_view word) {
  for (Arithmetic arithmetic : kArithmetics)
    if (name(arithmetic) == word) return arithmetic;
  return std::nullopt;
}

}  // namespace weft
