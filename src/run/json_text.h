// A small strict reader of JSON, for the headers and indices of checkpoints: a rank is built with nothing but a PyTorch
// and fmt.
//
// Strict: one value, no comments, no trailing commas, keys of an object distinct, UTF-8 as it stands, depth limited.
// Cost: linear in the text, and n log n in the keys of an object.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace weft::runtime {

struct Json {
  enum class Kind : std::uint8_t { Null, Boolean, Number, String, List, Object };
  Kind kind = Kind::Null;
  std::string text;               // of a string, its characters; of a number or a boolean, as it stands
  std::vector<std::string> keys;  // of an object, by value
  std::vector<Json> values;       // of a list or an object

  const Json* find(std::string_view key) const;      // in an object; cost: linear
  std::optional<std::int64_t> whole_number() const;  // without fraction and exponent, and not below 0

  bool operator==(const Json&) const = default;
};

// Errors: "byte 17: …".
Result<Json> parse_json(std::string_view text);

// As a JSON string, with its quotes.
std::string json_string(std::string_view text);

}  // namespace weft::runtime
