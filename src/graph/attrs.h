// Attributes of an operator: a small sorted list of named values (`stride=[2,2]`, `causal=1`, `fn=gelu`).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/result.h"

namespace weft {

using AttrValue = std::variant<std::int64_t, double, std::string, std::vector<std::int64_t>>;

class Attrs {
 public:
  Attrs() = default;
  Attrs(std::initializer_list<std::pair<std::string, AttrValue>> items) {
    for (const auto& [name, value] : items) set(name, value);
  }

  void set(std::string_view name, AttrValue value);
  bool has(std::string_view name) const { return find(name) != nullptr; }
  const AttrValue* find(std::string_view name) const;

  // The value, or `fallback` when the attribute is absent or of another type (make_signature rejects wrong types).
  std::int64_t integer(std::string_view name, std::int64_t fallback) const;
  double number(std::string_view name, double fallback) const;  // integers are numbers too
  std::string_view text(std::string_view name, std::string_view fallback) const;
  std::vector<std::int64_t> integers(std::string_view name, std::vector<std::int64_t> fallback) const;

  auto begin() const { return items_.begin(); }
  auto end() const { return items_.end(); }
  bool empty() const { return items_.empty(); }
  bool operator==(const Attrs&) const = default;

 private:
  std::vector<std::pair<std::string, AttrValue>> items_;  // sorted by name
};

// "{causal=1, fn=gelu, pad=[1,1]}", or "" when empty; parse_attrs reads it back. Doubles always show a point or
// exponent.
std::string print(const Attrs& attrs);
Result<Attrs> parse_attrs(std::string_view text);

}  // namespace weft
