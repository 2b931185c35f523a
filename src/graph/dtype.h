// Element types of tensors as stored. (TF32 is a way to multiply fp32 tensors, not a storage type: a precision of the
// plan.)
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace weft {

enum class DType : std::uint8_t { F64, F32, BF16, F16, F8, F4, I64, I32, U8 };

std::string_view name_of(DType dtype);                    // "bf16"
std::optional<DType> dtype_named(std::string_view name);  // also accepts "fp32", "float32", "half", …
int bits_of(DType dtype);                                 // 16 for bf16
inline bool is_floating(DType dtype) { return dtype <= DType::F4; }

// Bytes of `elements` elements, rounded up to whole bytes.
inline std::int64_t bytes_of(DType dtype, std::int64_t elements) { return (elements * bits_of(dtype) + 7) / 8; }

}  // namespace weft
