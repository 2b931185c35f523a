#include "strategy/glob.h"

#include <algorithm>
#include <array>

namespace weft {
namespace {

// Greedy, with one point of backtracking: at worst the product of the lengths.
bool matches(std::string_view pattern, std::string_view text) {
  std::size_t p = 0, t = 0, star = std::string_view::npos, resume = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resume = t;
    } else if (p < pattern.size() && pattern[p] == text[t]) {
      ++p;
      ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++resume;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == std::string_view::npos;
}

bool is_number(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

}  // namespace

std::vector<std::string_view> components(std::string_view name) {
  std::vector<std::string_view> parts;
  parts.reserve(static_cast<std::size_t>(std::count(name.begin(), name.end(), '.')) + 1);
  while (!name.empty()) {
    const std::size_t dot = std::min(name.find('.'), name.size());
    parts.push_back(name.substr(0, dot));
    name.remove_prefix(std::min(dot + 1, name.size()));
  }
  return parts;
}

Glob::Glob(std::string_view pattern) : backward_(pattern.find('@') != std::string_view::npos) {
  for (std::string_view part : components(pattern)) {
    parts_.emplace_back(part);
    literals_ += part.find('*') == std::string_view::npos ? 1 : 0;
  }
}

std::optional<int> Glob::covers(const std::vector<std::string_view>& name) const {
  const bool product = !name.empty() && name.back().find('@') != std::string_view::npos;
  if (product != backward_) return std::nullopt;
  // at[i]: the first i parts match the components read so far.
  std::array<char, 16> few;
  std::vector<char> many;
  if (parts_.size() >= few.size()) many.resize(parts_.size() + 1);
  char* const at = many.empty() ? few.data() : many.data();
  std::fill(at, at + parts_.size() + 1, char{0});
  at[0] = 1;
  const char& whole = at[parts_.size()];
  const auto skip_empty_runs = [&] {
    for (std::size_t i = 0; i < parts_.size(); ++i)
      if (at[i] && parts_[i] == "**") at[i + 1] = 1;
  };
  skip_empty_runs();
  for (std::size_t depth = 0; !whole; ++depth) {
    if (depth == name.size()) return std::nullopt;
    bool any = false;
    for (std::size_t i = parts_.size(); i-- > 0;) {  // backwards: a part matched now is not extended in this round
      if (!at[i]) continue;
      const bool run = parts_[i] == "**";
      if (!run) {
        at[i] = 0;
        if (!matches(parts_[i], name[depth])) continue;
        at[i + 1] = 1;
      }
      any = true;
    }
    if (!any) return std::nullopt;
    skip_empty_runs();
    if (whole) return static_cast<int>(depth) + 1;
  }
  return 0;
}

std::string layer_glob(std::string_view name) {
  std::string glob;
  for (std::string_view part : components(name)) {
    if (!glob.empty()) glob += '.';
    glob += is_number(part) ? "*" : part;
  }
  return glob;
}

}  // namespace weft
