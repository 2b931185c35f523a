#include "models/onnx_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace weft {
namespace {

// Deeper or longer than any real network's names; a hostile file's are truncated.
constexpr std::size_t kMaxLength = 100, kMaxPath = 300;

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(separator), text.size());
    if (end > 0) parts.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return parts;
}

// Fit for a graph's names: none of the characters with a meaning in text forms and globs.
std::string clean(std::string_view part) {
  std::string name;
  for (const char c : part.substr(0, kMaxLength)) {
    const bool bad = static_cast<unsigned char>(c) <= ' ' || c == '\x7f' ||
                     std::string_view(".,()[]{}=#\"*?:@").find(c) != std::string_view::npos;
    if (!bad)
      name += c;
    else if (name.empty() || name.back() != '_')
      name += '_';
  }
  return name;
}

PlacedName place(const std::vector<std::string_view>& modules, std::string_view last) {
  PlacedName placed{"", clean(last)};
  for (const std::string_view module : modules) {
    if (placed.module.size() > kMaxPath) break;
    placed.module += (placed.module.empty() ? "" : ".") + clean(module);
  }
  return placed;
}

}  // namespace

PlacedName place_node(std::string_view name) {
  std::vector<std::string_view> scopes = split(name, '/'), modules;
  if (scopes.empty()) return {};
  const std::string_view last = scopes.back();
  scopes.pop_back();
  std::string_view previous;
  for (const std::string_view scope : scopes) {
    const bool repeats = !previous.empty() && scope.size() > previous.size() + 1 && scope.starts_with(previous) &&
                         scope[previous.size()] == '.';
    const std::vector<std::string_view> parts = split(repeats ? scope.substr(previous.size() + 1) : scope, '.');
    modules.insert(modules.end(), parts.begin(), parts.end());
    previous = scope;
  }
  return place(modules, last);
}

PlacedName place_initializer(std::string_view name) {
  std::vector<std::string_view> parts = split(name, '.');
  if (parts.empty()) return {};
  const std::string_view last = parts.back();
  parts.pop_back();
  return place(parts, last);
}

std::string TakenNames::take(const std::string& module, std::string name) {
  const std::string key = module + "/" + name;
  if (taken_.insert(key).second) return name;
  // Each base name remembers its next number, so that a thousand equal names cost a thousand steps.
  for (int& number = next_.try_emplace(key, 2).first->second;; ++number) {
    const std::string numbered = fmt::format("{}_{}", name, number);
    if (taken_.insert(module + "/" + numbered).second) return numbered;
  }
}

}  // namespace weft
