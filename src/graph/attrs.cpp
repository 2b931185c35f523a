#include "graph/attrs.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/units.h"

namespace weft {
namespace {

bool is_word(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return std::isalnum(c) || std::string_view("_-.>~[],").find(static_cast<char>(c)) != std::string_view::npos;
  });
}

std::string print_value(const AttrValue& value) {
  if (const auto* integer = std::get_if<std::int64_t>(&value)) return fmt::format("{}", *integer);
  if (const auto* number = std::get_if<double>(&value)) {
    std::string text = fmt::format("{}", *number);
    return text.find_first_of(".en") == std::string::npos ? text + ".0" : text;
  }
  if (const auto* list = std::get_if<std::vector<std::int64_t>>(&value))
    return fmt::format("[{}]", fmt::join(*list, ","));
  return "\"" + std::get<std::string>(value) + "\"";
}

Result<AttrValue> parse_value(std::string_view text) {
  if (text.size() >= 2 && text.front() == '"' && text.back() == '"') {
    const std::string_view body = text.substr(1, text.size() - 2);
    if (body.find('"') != std::string_view::npos) return error("attribute value {}: quote inside a string", text);
    return AttrValue(std::string(body));
  }
  if (text.size() >= 2 && text.front() == '[' && text.back() == ']') {
    std::vector<std::int64_t> list;
    std::string_view body = text.substr(1, text.size() - 2);
    while (!body.empty()) {
      const std::size_t comma = body.find(',');
      WEFT_TRY(const std::int64_t item, parse_integer(body.substr(0, comma), "list item"));
      list.push_back(item);
      if (comma == std::string_view::npos) break;
      body.remove_prefix(comma + 1);
    }
    return AttrValue(std::move(list));
  }
  if (text.find_first_of(".en") == std::string_view::npos) {
    WEFT_TRY(const std::int64_t integer, parse_integer(text, "attribute value"));
    return AttrValue(integer);
  }
  double number = 0;
  const auto [rest, status] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (status != std::errc() || rest != text.data() + text.size() || !std::isfinite(number))
    return error("attribute value '{}': write a number, [a,b] or a \"string\"", text);
  return AttrValue(number);
}

}  // namespace

void Attrs::set(std::string_view name, AttrValue value) {
  const auto at = std::lower_bound(items_.begin(), items_.end(), name,
                                   [](const auto& item, std::string_view key) { return item.first < key; });
  if (at != items_.end() && at->first == name)
    at->second = std::move(value);
  else
    items_.insert(at, {std::string(name), std::move(value)});
}

const AttrValue* Attrs::find(std::string_view name) const {
  for (const auto& [key, value] : items_)
    if (key == name) return &value;
  return nullptr;
}

std::int64_t Attrs::integer(std::string_view name, std::int64_t fallback) const {
  const AttrValue* value = find(name);
  const auto* integer = value ? std::get_if<std::int64_t>(value) : nullptr;
  return integer ? *integer : fallback;
}

double Attrs::number(std::string_view name, double fallback) const {
  const AttrValue* value = find(name);
  if (!value) return fallback;
  if (const auto* number = std::get_if<double>(value)) return *number;
  if (const auto* integer = std::get_if<std::int64_t>(value)) return static_cast<double>(*integer);
  return fallback;
}

std::string_view Attrs::text(std::string_view name, std::string_view fallback) const {
  const AttrValue* value = find(name);
  const auto* text = value ? std::get_if<std::string>(value) : nullptr;
  return text ? std::string_view(*text) : fallback;
}

std::vector<std::int64_t> Attrs::integers(std::string_view name, std::vector<std::int64_t> fallback) const {
  const AttrValue* value = find(name);
  const auto* list = value ? std::get_if<std::vector<std::int64_t>>(value) : nullptr;
  return list ? *list : std::move(fallback);
}

std::string print(const Attrs& attrs) {
  if (attrs.empty()) return "";
  std::string text = "{";
  for (const auto& [name, value] : attrs)
    text += fmt::format("{}{}={}", text.size() > 1 ? ", " : "", name, print_value(value));
  return text + "}";
}

Result<Attrs> parse_attrs(std::string_view text) {
  Attrs attrs;
  if (text.empty()) return attrs;
  if (text.size() < 2 || text.front() != '{' || text.back() != '}')
    return error("attributes '{}': not in braces", text);
  std::string_view body = text.substr(1, text.size() - 2);
  while (!body.empty()) {
    while (!body.empty() && body.front() == ' ') body.remove_prefix(1);
    // An item ends at the next comma outside quotes and brackets.
    std::size_t end = 0;
    bool quoted = false, listed = false;
    for (; end < body.size(); ++end) {
      const char c = body[end];
      if (c == '"') quoted = !quoted;
      if (!quoted && c == '[') listed = true;
      if (!quoted && c == ']') listed = false;
      if (!quoted && !listed && c == ',') break;
    }
    const std::string_view item = body.substr(0, end);
    const std::size_t equals = item.find('=');
    if (equals == std::string_view::npos || !is_word(item.substr(0, equals)))
      return error("attribute '{}': write name=value", item);
    if (attrs.has(item.substr(0, equals))) return error("attribute '{}' is given twice", item.substr(0, equals));
    WEFT_TRY(AttrValue value, parse_value(item.substr(equals + 1)));
    attrs.set(item.substr(0, equals), std::move(value));
    if (end == body.size()) break;
    body.remove_prefix(end + 1);
  }
  return attrs;
}

}  // namespace weft
