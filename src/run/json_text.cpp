#include "run/json_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace weft::runtime {
namespace {

constexpr int kDeepest = 16;  // headers have 3 levels

class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  Result<Json> document() {
    WEFT_TRY(Json value, this->value(0));
    skip_space();
    if (at_ != text_.size()) return wrong("text after the end of the value");
    return value;
  }

 private:
  Error wrong(std::string_view what) const { return error("byte {}: {}", at_, what); }
  char next() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  void skip_space() {
    while (at_ < text_.size() && std::string_view(" \t\r\n").find(text_[at_]) != std::string_view::npos) ++at_;
  }
  bool take(char c) {
    skip_space();
    if (next() != c || at_ == text_.size()) return false;
    ++at_;
    return true;
  }

  Result<Json> value(int depth) {
    skip_space();
    if (depth > kDeepest) return wrong("nested too deeply");
    switch (next()) {
      case '{':
      case '[':
        return nested(depth);
      case '"': {
        WEFT_TRY(std::string characters, string());
        return Json{Json::Kind::String, std::move(characters), {}, {}};
      }
      default:
        for (const std::string_view word : {"true", "false", "null"})
          if (text_.substr(at_, word.size()) == word) {
            at_ += word.size();
            if (word == "null") return Json{};
            return Json{Json::Kind::Boolean, std::string(word), {}, {}};
          }
        return number();
    }
  }

  Result<Json> nested(int depth) {
    const bool object = text_[at_++] == '{';
    const char close = object ? '}' : ']';
    Json made{object ? Json::Kind::Object : Json::Kind::List, {}, {}, {}};
    if (take(close)) return made;
    do {
      if (object) {
        skip_space();
        if (next() != '"') return wrong("a key in quotes is expected");
        WEFT_TRY(std::string key, string());
        made.keys.push_back(std::move(key));
        if (!take(':')) return wrong("':' is expected");
      }
      WEFT_TRY(Json each, value(depth + 1));
      made.values.push_back(std::move(each));
    } while (take(','));
    if (!take(close)) return wrong(object ? "',' or '}' is expected" : "',' or ']' is expected");
    std::vector<std::string_view> sorted(made.keys.begin(), made.keys.end());
    std::sort(sorted.begin(), sorted.end());
    if (const auto twice = std::adjacent_find(sorted.begin(), sorted.end()); twice != sorted.end())
      return wrong(fmt::format("'{}' is there twice", *twice));
    return made;
  }

  Result<Json> number() {
    const std::size_t begin = at_;
    const auto digits = [&] {
      const std::size_t first = at_;
      while (next() >= '0' && next() <= '9') ++at_;
      return at_ - first;
    };
    if (next() == '-') ++at_;
    const std::size_t leading = at_, whole = digits();
    if (whole == 0 || (whole > 1 && text_[leading] == '0')) {
      at_ = begin;
      return wrong("a value is expected");
    }
    if (next() == '.') {
      ++at_;
      if (digits() == 0) return wrong("digits are expected");
    }
    if (next() == 'e' || next() == 'E') {
      ++at_;
      if (next() == '+' || next() == '-') ++at_;
      if (digits() == 0) return wrong("digits are expected");
    }
    return Json{Json::Kind::Number, std::string(text_.substr(begin, at_ - begin)), {}, {}};
  }

  Result<std::uint32_t> hexadecimal() {
    std::uint32_t value = 0;
    const std::string_view four = text_.substr(at_, 4);
    const auto [end, status] = std::from_chars(four.data(), four.data() + four.size(), value, 16);
    if (four.size() < 4 || status != std::errc() || end != four.data() + 4)
      return wrong("four hexadecimal digits are expected");
    at_ += 4;
    return value;
  }

  Result<std::string> escaped() {
    static constexpr std::string_view kNames = "\"\\/bfnrt", kMeant = "\"\\/\b\f\n\r\t";
    const char c = next();
    ++at_;
    if (const std::size_t found = kNames.find(c); found != std::string_view::npos) return std::string(1, kMeant[found]);
    if (c != 'u') return wrong("an escape that JSON does not have");
    WEFT_TRY(std::uint32_t code, hexadecimal());
    if (code >= 0xd800 && code < 0xdc00 && text_.substr(at_, 2) == "\\u") {  // a pair stands for one character
      at_ += 2;
      WEFT_TRY(const std::uint32_t low, hexadecimal());
      if (low < 0xdc00 || low > 0xdfff) return wrong("half of a pair of escapes");
      code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    } else if (code >= 0xd800 && code <= 0xdfff) {
      return wrong("half of a pair of escapes");
    }
    std::string utf8;
    if (code < 0x80) {
      utf8 += static_cast<char>(code);
    } else {
      const int more = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
      static constexpr std::uint32_t kFirst[] = {0, 0xc0, 0xe0, 0xf0};
      utf8 += static_cast<char>(kFirst[more] | (code >> (6 * more)));
      for (int i = more - 1; i >= 0; --i) utf8 += static_cast<char>(0x80 | ((code >> (6 * i)) & 0x3f));
    }
    return utf8;
  }

  Result<std::string> string() {
    ++at_;
    std::string characters;
    while (at_ < text_.size() && text_[at_] != '"') {
      if (static_cast<unsigned char>(text_[at_]) < 0x20) return wrong("a control character in a string");
      if (text_[at_] == '\\') {
        ++at_;
        WEFT_TRY(const std::string meant, escaped());
        characters += meant;
      } else {
        characters += text_[at_++];
      }
    }
    if (at_ == text_.size()) return wrong("a string does not end");
    ++at_;
    return characters;
  }

  const std::string_view text_;
  std::size_t at_ = 0;
};

}  // namespace

const Json* Json::find(std::string_view key) const {
  const auto found = std::find(keys.begin(), keys.end(), key);
  return found == keys.end() ? nullptr : &values[static_cast<std::size_t>(found - keys.begin())];
}

std::optional<std::int64_t> Json::whole_number() const {
  std::int64_t value = 0;
  if (kind != Kind::Number) return std::nullopt;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (status != std::errc() || end != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

Result<Json> parse_json(std::string_view text) { return Reader(text).document(); }

std::string json_string(std::string_view text) {
  std::string out = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (static_cast<unsigned char>(c) < 0x20)
      out += fmt::format("\\u{:04x}", static_cast<int>(c));
    else
      out += c;
  }
  return out + '"';
}

}  // namespace weft::runtime
