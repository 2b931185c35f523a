#include "export/launch_words.h"

#include <fmt/format.h>

#include <cctype>
#include <map>

namespace weft {
namespace {

constexpr std::size_t kMostWords = 1'000'000;
constexpr std::size_t kMostBytes = std::size_t{16} << 20;  // of all words: variables can double from line to line

bool is_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }
bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r'; }

using Words = std::vector<LaunchWord>;

class Reader {
 public:
  Reader(std::string_view text, std::string_view file) : text_(text), file_(file) {}

  Result<LaunchCommand> run() {
    while (at_ < text_.size()) WEFT_TRY_OK(command());
    return std::move(found_);
  }

 private:
  Error fail(int line, std::string_view message) const { return Error{std::string(message)}.at(file_, line); }

  bool done() const { return at_ >= text_.size(); }
  char peek(std::size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }
  char next() {
    if (text_[at_] == '\n') ++line_;
    return text_[at_++];
  }

  // Blanks, continued lines and comments. Whether anything was skipped does not matter: words end before it.
  void skip_blanks(bool lines_too) {
    while (!done()) {
      const char c = peek();
      if (is_blank(c) || (lines_too && c == '\n')) {
        next();
      } else if (c == '\\' && peek(1) == '\n') {
        next(), next();
      } else if (c == '\\' && peek(1) == '\r' && peek(2) == '\n') {
        next(), next(), next();
      } else if (c == '#') {
        while (!done() && peek() != '\n') next();
      } else {
        return;
      }
    }
  }

  // One simple command, up to the end of its line or a separator.
  Status command() {
    Words words;
    bool assigns = true;  // until the first word that is no assignment
    for (;;) {
      skip_blanks(false);
      if (done()) break;
      const char c = peek();
      if (c == '\n' || c == ';' || c == '&' || c == '|' || c == '(' || c == ')' || c == '<' || c == '>') {
        next();
        if (c == '(' || c == ')' || c == '<' || c == '>') continue;
        break;
      }
      if (assigns && assignment_ahead()) {
        WEFT_TRY_OK(assignment());
        continue;
      }
      WEFT_TRY_OK(word(words));
      if (words.size() + found_.arguments.size() > kMostWords || spent_ > kMostBytes)
        return fail(line_, "too many words; is this a launch command?");
      assigns = words.empty() || words.back().text == "export" || words.back().text == "local";
    }
    take(std::move(words));
    return Ok{};
  }

  // The command that calls a script is the launch; before one is found, words of all commands are collected.
  void take(Words words) {
    if (!found_.script.empty()) return;
    for (std::size_t i = 0; i < words.size(); ++i) {
      if (!words[i].text.ends_with(".py")) continue;
      found_.script = words[i].text;
      found_.launcher.assign(words.begin(), words.begin() + static_cast<std::ptrdiff_t>(i));
      found_.arguments.assign(words.begin() + static_cast<std::ptrdiff_t>(i) + 1, words.end());
      return;
    }
    found_.arguments.insert(found_.arguments.end(), words.begin(), words.end());
  }

  bool assignment_ahead() const {
    std::size_t i = at_;
    while (i < text_.size() && is_name(text_[i])) ++i;
    if (i == at_ || std::isdigit(static_cast<unsigned char>(text_[at_])) != 0) return false;
    return text_.substr(i, 1) == "=" || text_.substr(i, 2) == "+=";
  }

  Status assignment() {
    std::string name;
    while (is_name(peek())) name += next();
    const bool adds = peek() == '+';
    if (adds) next();
    next();  // =
    Words value;
    if (peek() == '(') {
      const int opened = line_;
      next();
      for (skip_blanks(true); peek() != ')'; skip_blanks(true)) {
        if (done()) return fail(opened, fmt::format("{}=( is not closed", name.substr(0, 60)));
        const char c = peek();
        if (c == '(' || c == ';' || c == '&' || c == '|' || c == '<' || c == '>')
          return fail(line_, fmt::format("'{}' in the array {}; quote it", c, name.substr(0, 60)));
        WEFT_TRY_OK(word(value));
        if (value.size() > kMostWords || spent_ > kMostBytes) return fail(line_, "too many words");
      }
      next();
    } else if (!done() && !is_blank(peek()) && peek() != '\n' && peek() != ';') {
      whole_ = true;  // the value of a variable is not cut into words until it is used
      const Status read = word(value);
      whole_ = false;
      WEFT_TRY_OK(read);
      if (value.empty()) value.push_back({"", line_});
    } else {
      value.push_back({"", line_});
    }
    Words& known = variables_[name];
    if (!adds) known.clear();
    known.insert(known.end(), value.begin(), value.end());
    return Ok{};
  }

  // What an expansion stands for. Unknown names leave a mark.
  struct Expansion {
    Words words;
    bool known = true;
    std::string shown;  // "$NAME"
  };

  Result<Expansion> expansion() {
    const int line = line_;
    next();  // $
    Expansion made;
    if (peek() == '(') {  // $(command) and $((arithmetic)): not run
      const std::size_t begin = at_;
      int depth = 0;
      do {
        if (done()) return fail(line, "$( is not closed");
        const char c = next();
        depth += c == '(' ? 1 : c == ')' ? -1 : 0;
      } while (depth > 0);
      made.known = false;
      made.shown = fmt::format("${}", text_.substr(begin, std::min<std::size_t>(at_ - begin, 40)));
      return made;
    }
    std::string name, fallback;
    bool has_fallback = false, odd = false;
    if (peek() == '{') {
      next();
      while (is_name(peek())) name += next();
      std::string rest;
      while (!done() && peek() != '}' && peek() != '\n') rest += next();
      if (peek() != '}') return fail(line, "${ is not closed");
      next();
      if (rest.starts_with(":-") || rest.starts_with("-")) {
        fallback = rest.substr(rest[0] == ':' ? 2 : 1);
        has_fallback = fallback.find_first_of("$`") == std::string::npos;
        odd = !has_fallback;
      } else if (!rest.empty() && rest != "[@]" && rest != "[*]") {
        odd = true;
      }
    } else {
      while (is_name(peek())) name += next();
      if (name.empty() && !done() && std::string_view("@*#?$!-").find(peek()) != std::string_view::npos) name += next();
    }
    made.shown = "$" + name;
    const auto known = variables_.find(name);
    if (odd || (known == variables_.end() && !has_fallback)) {
      made.known = false;
    } else if (known != variables_.end()) {
      made.words = known->second;
    } else {
      made.words.push_back({fallback, line});
    }
    for (const LaunchWord& each : made.words) spent_ += each.text.size() + 1;
    if (spent_ > kMostBytes) return fail(line, "variables that expand to too much text");
    return made;
  }

  // The next word, or the several that an unquoted or array expansion makes.
  Status word(Words& into) {
    LaunchWord current{"", line_};
    bool begun = false;  // an empty word counts if it was quoted
    const auto flush = [&] {
      if (begun) into.push_back(current);
      current = {"", line_};
      begun = false;
    };
    const auto expand = [&](bool quoted) -> Status {
      const bool all = text_.substr(at_).starts_with("${") && is_array_use();
      WEFT_TRY(Expansion made, expansion());
      if (!made.known) {
        current.unset = current.unset.empty() ? made.shown : current.unset;
        begun = true;
        return Ok{};
      }
      if ((quoted && !all) || whole_) {
        for (std::size_t i = 0; i < made.words.size(); ++i) {
          current.text += (i > 0 ? " " : "") + made.words[i].text;
          if (current.unset.empty()) current.unset = made.words[i].unset;
        }
        begun = true;
        return Ok{};
      }
      for (std::size_t i = 0; i < made.words.size(); ++i) {
        if (i > 0) flush();
        const LaunchWord& piece = made.words[i];
        if (quoted) {
          if (!begun) current.line = piece.line;
          current.text += piece.text, current.unset = piece.unset, begun = true;
          continue;
        }
        int line = piece.line;
        for (const char c : piece.text) {
          if (is_blank(c) || c == '\n') {
            flush();
            if (c == '\n') ++line;
            continue;
          }
          if (!begun) current.line = line;
          current.text += c;
          begun = true;
        }
        if (!piece.unset.empty()) current.unset = piece.unset, begun = true;
      }
      return Ok{};
    };
    while (!done()) {
      const char c = peek();
      if (is_blank(c) || c == '\n' || c == ';' || c == '&' || c == '|' || c == '<' || c == '>') break;
      if (c == '(' || c == ')') break;
      if (c == '\\') {
        if (peek(1) == '\n' || (peek(1) == '\r' && peek(2) == '\n')) break;
        next();
        if (!done()) current.text += next();
        begun = true;
      } else if (c == '\'') {
        const int line = line_;
        next();
        while (!done() && peek() != '\'') current.text += next();
        if (done()) return fail(line, "a quote ' is not closed");
        next();
        begun = true;
      } else if (c == '"') {
        const int line = line_;
        next();
        begun = begun || !(peek() == '$');  // "${EMPTY[@]}" makes no word
        while (!done() && peek() != '"') {
          if (peek() == '\\' && peek(1) != '\0' &&
              std::string_view("\"\\$`\n").find(peek(1)) != std::string_view::npos) {
            next();
            const char escaped = next();
            current.text += escaped == '\n' ? ' ' : escaped;
            begun = true;
          } else if (peek() == '$' &&
                     (is_name(peek(1)) || std::string_view("{(@*").find(peek(1)) != std::string_view::npos)) {
            WEFT_TRY_OK(expand(true));
          } else {
            current.text += next();
            begun = true;
          }
        }
        if (done()) return fail(line, "a quote \" is not closed");
        next();
      } else if (c == '$' && peek(1) != '\0' &&
                 (is_name(peek(1)) || std::string_view("{(@*#?$!-").find(peek(1)) != std::string_view::npos)) {
        WEFT_TRY_OK(expand(false));
      } else if (c == '`') {
        const int line = line_;
        next();
        while (!done() && peek() != '`') next();
        if (done()) return fail(line, "a quote ` is not closed");
        next();
        current.unset = "`...`";
        begun = true;
      } else {
        current.text += next();
        begun = true;
      }
      ++spent_;
    }
    if (!begun && !done() && (peek() == '(' || peek() == ')')) next();  // never stand still
    flush();
    return Ok{};
  }

  bool is_array_use() const {
    const std::size_t close = text_.find('}', at_);
    return close != std::string_view::npos && text_.substr(at_, close - at_).ends_with("[@]");
  }

  std::string_view text_, file_;
  std::size_t at_ = 0, spent_ = 0;
  int line_ = 1;
  bool whole_ = false;
  std::map<std::string, Words> variables_;
  LaunchCommand found_;
};

}  // namespace

Result<LaunchCommand> read_launch_command(std::string_view text, std::string_view file) {
  return Reader(text, file).run();
}

std::string shell_quoted(std::string_view word) {
  const bool plain = !word.empty() && word.find_first_not_of(
                                          "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
                                          "0123456789_-+=./,:@%") == std::string_view::npos;
  if (plain) return std::string(word);
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? "'\\''" : std::string(1, c);
  return quoted + "'";
}

}  // namespace weft
