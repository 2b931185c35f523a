#include "export/python_config.h"

#include <fmt/format.h>

#include <cctype>
#include <charconv>
#include <map>

namespace weft {
namespace {

constexpr std::int64_t kMostInteger = std::int64_t{1} << 60;

struct Token {
  enum class Kind : std::uint8_t { Name, Number, Text, Sign, End };

  Kind kind = Kind::End;
  std::string text;
  int line = 0;
};

class Reader {
 public:
  Reader(std::string_view text, std::string_view file) : text_(text), file_(file) {}

  Result<PythonConfig> run() {
    for (;;) {
      WEFT_TRY(const bool more, next_statement());
      if (!more) break;
      if (tokens_.size() > 1) WEFT_TRY_OK(statement());
    }
    if (config_.base.empty())
      return error("{}: no function that makes a configuration, def plan(): config = llama3_8b() ...", file_);
    if (!returned_) return error("{}: the function returns no configuration", file_);
    return std::move(config_);
  }

 private:
  using Kind = PythonValue::Kind;

  Error fail(int line, std::string_view message) const { return Error{std::string(message)}.at(file_, line); }
  Error odd() const {
    return fail(peek().line,
                fmt::format("'{}': a configuration has imports, one function, assignments to fields and return",
                            peek().text.substr(0, 40)));
  }

  // The tokens of the next logical line; false at the end.
  Result<bool> next_statement() {
    tokens_.clear();
    at_ = 0;
    int depth = 0;
    while (pos_ < text_.size()) {
      const char c = text_[pos_];
      if (c == '\n') {
        ++line_, ++pos_;
        if (depth == 0) break;
      } else if (c == ' ' || c == '\t' || c == '\r') {
        ++pos_;
      } else if (c == '\\' && pos_ + 1 < text_.size() && text_[pos_ + 1] == '\n') {
        pos_ += 2, ++line_;
      } else if (c == '#') {
        while (pos_ < text_.size() && text_[pos_] != '\n') ++pos_;
      } else if (c == '"' || c == '\'') {
        WEFT_TRY_OK(quoted(c));
      } else if (std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_') {
        const std::size_t begin = pos_;
        while (pos_ < text_.size() &&
               (std::isalnum(static_cast<unsigned char>(text_[pos_])) != 0 || text_[pos_] == '_'))
          ++pos_;
        tokens_.push_back({Token::Kind::Name, std::string(text_.substr(begin, pos_ - begin)), line_});
      } else if (std::isdigit(static_cast<unsigned char>(c)) != 0) {
        const std::size_t begin = pos_;
        while (pos_ < text_.size() &&
               (std::isalnum(static_cast<unsigned char>(text_[pos_])) != 0 || text_[pos_] == '_' ||
                text_[pos_] == '.' ||
                ((text_[pos_] == '-' || text_[pos_] == '+') && (text_[pos_ - 1] == 'e' || text_[pos_ - 1] == 'E'))))
          ++pos_;
        tokens_.push_back({Token::Kind::Number, std::string(text_.substr(begin, pos_ - begin)), line_});
      } else {
        if (c == '(' || c == '[' || c == '{') ++depth;
        if (c == ')' || c == ']' || c == '}') --depth;
        tokens_.push_back({Token::Kind::Sign, std::string(1, c), line_});
        ++pos_;
        if (c == ';') {
          tokens_.pop_back();
          break;
        }
      }
      if (tokens_.size() > 200'000) return fail(line_, "too much text in one statement");
    }
    tokens_.push_back({Token::Kind::End, "end of line", line_});
    return tokens_.size() > 1 || pos_ < text_.size();
  }

  Status quoted(char quote) {
    const int begun = line_;
    const std::string three(3, quote);
    const bool is_long = text_.substr(pos_, 3) == three;
    pos_ += is_long ? 3 : 1;
    std::string value;
    while (pos_ < text_.size()) {
      if (is_long ? text_.substr(pos_, 3) == three : text_[pos_] == quote) {
        pos_ += is_long ? 3 : 1;
        tokens_.push_back({Token::Kind::Text, std::move(value), begun});
        return Ok{};
      }
      if (text_[pos_] == '\n') {
        if (!is_long) break;
        ++line_;
      }
      if (text_[pos_] == '\\' && pos_ + 1 < text_.size()) ++pos_;
      value += text_[pos_++];
    }
    return fail(begun, "a string is not closed");
  }

  const Token& peek(std::size_t ahead = 0) const { return tokens_[std::min(at_ + ahead, tokens_.size() - 1)]; }
  bool take(std::string_view text) {
    if (peek().text != text || peek().kind == Token::Kind::Text || peek().kind == Token::Kind::End) return false;
    ++at_;
    return true;
  }
  bool ended() const { return peek().kind == Token::Kind::End; }

  Result<std::string> dotted() {
    if (peek().kind != Token::Kind::Name) return odd();
    std::string name = tokens_[at_++].text;
    while (peek().text == "." && peek(1).kind == Token::Kind::Name) {
      name += "." + peek(1).text;
      at_ += 2;
    }
    return name;
  }

  Status statement() {
    if (peek().kind == Token::Kind::Text && peek(1).kind == Token::Kind::End) return Ok{};  // a docstring
    if (take("from")) {
      WEFT_TRY(const std::string module, dotted());
      if (!take("import")) return odd();
      const bool bracket = take("(");
      for (bool more = true; more;) {
        if (bracket && peek().text == ")") break;
        WEFT_TRY(const std::string name, dotted());
        imported_[name] = module;
        if (take("as")) return fail(peek().line, "import the name as it is");
        more = take(",");
      }
      if (bracket && !take(")")) return odd();
      return ended() ? Status(Ok{}) : odd();
    }
    if (take("import")) {
      WEFT_TRY(const std::string module, dotted());
      imported_[module] = module;
      return ended() ? Status(Ok{}) : odd();
    }
    if (take("def")) {
      if (defined_) return fail(peek().line, "a second function; a configuration is one");
      defined_ = true;
      WEFT_TRY_OK(Status(dotted().ok() ? Status(Ok{}) : odd()));
      if (!take("(") || !take(")")) return fail(peek().line, "the function takes no arguments: def plan():");
      if (take("-")) {
        if (!take(">")) return odd();
        WEFT_TRY_OK(Status(dotted().ok() ? Status(Ok{}) : odd()));
      }
      return take(":") && ended() ? Status(Ok{}) : odd();
    }
    if (take("return")) {
      WEFT_TRY(const std::string name, dotted());
      const auto known = aliases_.find(name);
      if (known == aliases_.end() || !known->second.empty())
        return fail(peek().line, fmt::format("{} is no configuration", name));
      returned_ = true;
      return ended() ? Status(Ok{}) : odd();
    }
    return assignment();
  }

  Status assignment() {
    if (!defined_) return odd();
    if (returned_) return fail(peek().line, "after return");
    const int line = peek().line;
    std::vector<std::string> targets;
    do {
      WEFT_TRY(std::string name, dotted());
      targets.push_back(std::move(name));
    } while (take(","));
    if (!take("=")) return odd();
    std::vector<PythonValue> values;
    do {
      WEFT_TRY(PythonValue value, expression(0));
      values.push_back(std::move(value));
    } while (take(","));
    if (!ended()) return odd();
    if (values.size() != targets.size())
      return fail(line, fmt::format("{} names for {} values", targets.size(), values.size()));
    for (std::size_t i = 0; i < targets.size(); ++i) {
      const std::size_t dot = targets[i].find('.');
      const std::string head = targets[i].substr(0, dot);
      if (dot == std::string::npos) {
        WEFT_TRY_OK(bind(head, values[i], line));
        continue;
      }
      const auto alias = aliases_.find(head);
      if (alias == aliases_.end()) return fail(line, fmt::format("{} is not the configuration", head.substr(0, 60)));
      std::string path = alias->second.empty() ? targets[i].substr(dot + 1) : alias->second + targets[i].substr(dot);
      config_.fields.push_back({std::move(path), values[i], line});
    }
    return Ok{};
  }

  // A variable: the configuration itself, a part of it, or nothing that is known.
  Status bind(const std::string& name, const PythonValue& value, int line) {
    if (value.kind == Kind::Call && value.items.empty() && config_.base.empty()) {
      config_.base = value.text;
      config_.base_line = line;
      const auto from = imported_.find(value.text);
      if (from != imported_.end()) config_.module = from->second;
      aliases_[name] = "";
      return Ok{};
    }
    if (value.kind == Kind::Name) {
      const std::size_t dot = value.text.find('.');
      const auto alias = aliases_.find(value.text.substr(0, dot));
      if (alias != aliases_.end()) {
        const std::string rest = dot == std::string::npos ? "" : value.text.substr(dot + 1);
        aliases_[name] = alias->second.empty() ? rest : rest.empty() ? alias->second : alias->second + "." + rest;
        return Ok{};
      }
    }
    return fail(line,
                fmt::format("{} = …: only the configuration and its parts get names here; write the value at its field",
                            name.substr(0, 60)));
  }

  Result<PythonValue> expression(int depth) {
    WEFT_TRY(PythonValue value, term(depth));
    while (peek().text == "*" && peek().kind == Token::Kind::Sign) {
      ++at_;
      WEFT_TRY(const PythonValue factor, term(depth));
      if (value.kind != Kind::Integer || factor.kind != Kind::Integer)
        return fail(factor.line, "only whole numbers are multiplied");
      if (factor.integer != 0 && value.integer > kMostInteger / factor.integer)
        return fail(factor.line, "too large a number");
      value.integer *= factor.integer;
    }
    return value;
  }

  Result<PythonValue> term(int depth) {
    if (depth > 20) return fail(peek().line, "brackets within too many brackets");
    const Token token = peek();
    PythonValue value;
    value.line = token.line;
    if (token.kind == Token::Kind::Text) {
      ++at_;
      value.kind = Kind::Text;
      value.text = token.text;
      return value;
    }
    const bool minus = take("-");
    if (peek().kind == Token::Kind::Number) {
      std::string digits;
      for (const char c : peek().text)
        if (c != '_') digits += c;
      ++at_;
      const char* end = digits.data() + digits.size();
      if (const auto [rest, status] = std::from_chars(digits.data(), end, value.integer);
          status == std::errc() && rest == end && value.integer <= kMostInteger) {
        value.kind = Kind::Integer;
        value.integer = minus ? -value.integer : value.integer;
        return value;
      }
      const auto [rest, status] = std::from_chars(digits.data(), end, value.number);
      if (status != std::errc() || rest != end)
        return fail(token.line, fmt::format("'{}' is no number", digits.substr(0, 40)));
      value.kind = Kind::Number;
      value.number = minus ? -value.number : value.number;
      return value;
    }
    if (minus) return odd();
    if (take("(")) {
      WEFT_TRY(value, expression(depth + 1));
      return take(")") ? Result<PythonValue>(std::move(value)) : Result<PythonValue>(odd());
    }
    if (take("[")) {
      value.kind = Kind::List;
      while (!take("]")) {
        WEFT_TRY(PythonValue item, expression(depth + 1));
        value.items.push_back(std::move(item));
        if (!take(",") && peek().text != "]") return odd();
      }
      return value;
    }
    if (token.kind != Token::Kind::Name) return odd();
    WEFT_TRY(value.text, dotted());
    if (value.text == "True" || value.text == "False") {
      value.kind = Kind::Boolean;
      value.boolean = value.text == "True";
      return value;
    }
    if (value.text == "None") return value;
    value.kind = Kind::Name;
    if (!take("(")) return value;
    value.kind = Kind::Call;
    while (!take(")")) {
      std::string keyword;
      if (peek().kind == Token::Kind::Name && peek(1).text == "=" && peek(1).kind == Token::Kind::Sign) {
        keyword = peek().text;
        at_ += 2;
      }
      WEFT_TRY(PythonValue item, expression(depth + 1));
      value.items.push_back(std::move(item));
      value.keywords.push_back(std::move(keyword));
      if (!take(",") && peek().text != ")") return odd();
    }
    return value;
  }

  std::string_view text_, file_;
  std::size_t pos_ = 0, at_ = 0;
  int line_ = 1;
  std::vector<Token> tokens_;
  std::map<std::string, std::string> imported_, aliases_;
  bool defined_ = false, returned_ = false;
  PythonConfig config_;
};

}  // namespace

Result<PythonConfig> read_python_config(std::string_view text, std::string_view file) {
  return Reader(text, file).run();
}

}  // namespace weft
