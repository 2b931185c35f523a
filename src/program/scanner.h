// Reads tokens off the front of a line of text, inside the folder.
#pragma once

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace weft {

class Scanner {
 public:
  explicit Scanner(std::string_view text) : rest_(text) {}

  void skip_blanks() {
    while (!rest_.empty() && (rest_.front() == ' ' || rest_.front() == '\t' || rest_.front() == '\r'))
      rest_.remove_prefix(1);
  }
  bool at_end() {
    skip_blanks();
    return rest_.empty();
  }
  bool take(std::string_view word) {
    if (!rest_.starts_with(word)) return false;
    rest_.remove_prefix(word.size());
    return true;
  }
  bool at(std::string_view word) const { return rest_.starts_with(word); }
  bool take_after_blanks(std::string_view word) {
    skip_blanks();
    return take(word);
  }
  std::string_view word(std::string_view ends = " \t\r:") {
    skip_blanks();
    const std::string_view found = rest_.substr(0, std::min(rest_.find_first_of(ends), rest_.size()));
    rest_.remove_prefix(found.size());
    return found;
  }
  template <class T = std::int32_t>
  std::optional<T> number() {  // without a sign
    if (rest_.empty() || rest_.front() < '0' || rest_.front() > '9') return std::nullopt;
    T value = 0;
    const auto [end, status] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
    if (status != std::errc()) return std::nullopt;
    rest_.remove_prefix(static_cast<std::size_t>(end - rest_.data()));
    return value;
  }
  std::optional<char> letter() {
    if (rest_.empty()) return std::nullopt;
    const char c = rest_.front();
    rest_.remove_prefix(1);
    return c;
  }
  // What has not been read yet, for a caller that reads on by other means and removes what it has read.
  std::string_view& rest() { return rest_; }
  // What stands here, for an error message: a few characters, printable.
  std::string here() const {
    Scanner ahead = *this;
    if (ahead.at_end()) return "the end of the line";
    std::string shown = "'";
    for (char c : ahead.rest_.substr(0, std::min<std::size_t>(ahead.rest_.find_first_of(" \t\r"), 16)))
      shown += c > ' ' && c <= '~' ? c : '?';
    return shown + "'";
  }

 private:
  std::string_view rest_;
};

}  // namespace weft
