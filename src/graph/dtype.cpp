#include "graph/dtype.h"

#include <utility>

namespace weft {

std::string_view name_of(DType dtype) {
  switch (dtype) {
    case DType::F64:
      return "f64";
    case DType::F32:
      return "f32";
    case DType::BF16:
      return "bf16";
    case DType::F16:
      return "f16";
    case DType::F8:
      return "f8";
    case DType::F4:
      return "f4";
    case DType::I64:
      return "i64";
    case DType::I32:
      return "i32";
    case DType::U8:
      return "u8";
  }
  return "?";
}

int bits_of(DType dtype) {
  switch (dtype) {
    case DType::F64:
    case DType::I64:
      return 64;
    case DType::F32:
    case DType::I32:
      return 32;
    case DType::BF16:
    case DType::F16:
      return 16;
    case DType::F8:
    case DType::U8:
      return 8;
    case DType::F4:
      return 4;
  }
  return 0;
}

std::optional<DType> dtype_named(std::string_view name) {
  constexpr std::pair<std::string_view, DType> names[] = {
      {"f64", DType::F64},     {"f32", DType::F32},  {"bf16", DType::BF16},     {"f16", DType::F16},
      {"f8", DType::F8},       {"f4", DType::F4},    {"i64", DType::I64},       {"i32", DType::I32},
      {"u8", DType::U8},       {"fp64", DType::F64}, {"fp32", DType::F32},      {"fp16", DType::F16},
      {"fp8", DType::F8},      {"fp4", DType::F4},   {"float64", DType::F64},   {"float32", DType::F32},
      {"float16", DType::F16}, {"half", DType::F16}, {"bfloat16", DType::BF16}, {"int64", DType::I64},
      {"int32", DType::I32},   {"uint8", DType::U8}, {"bool", DType::U8}};
  for (const auto& [known, dtype] : names)
    if (known == name) return dtype;
  return std::nullopt;
}

}  // namespace weft
