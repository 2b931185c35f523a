#include "base/suggest.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <numeric>

namespace weft {
namespace {

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

int edit_distance(std::string_view a, std::string_view b) {
  std::vector<int> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (std::size_t i = 0; i < a.size(); ++i) {
    int diagonal = row[0];
    row[0] = static_cast<int>(i) + 1;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const int substitute = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({substitute, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row[b.size()];
}

}  // namespace

std::vector<std::string> nearest_names(std::string_view name, std::span<const std::string> known, int most) {
  // A very long "name" is not a misspelling, and would make the distance table large.
  if (name.size() > 64) return {};
  const std::string wanted = lower(name);
  struct Candidate {
    double distance;
    std::string name;
  };
  std::vector<Candidate> candidates;
  for (const std::string& candidate : known) {
    const std::string other = lower(candidate);
    const auto [end, unused] = std::mismatch(wanted.begin(), wanted.end(), other.begin(), other.end());
    const auto prefix = static_cast<double>(end - wanted.begin());
    const int distance = edit_distance(wanted, other);
    const auto longest = static_cast<double>(std::max(wanted.size(), other.size()));
    const bool extends = !wanted.empty() && prefix == static_cast<double>(wanted.size());
    if (extends || distance <= std::max(2.0, 0.4 * longest)) candidates.push_back({distance - 0.3 * prefix, candidate});
  }
  std::sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) {
    return std::tie(a.distance, a.name) < std::tie(b.distance, b.name);
  });
  // Spellings that differ in dashes and case only are one suggestion.
  const auto same = [](std::string_view a, std::string_view b) {
    const auto letters = [](std::string_view text) {
      std::string kept = lower(text);
      std::erase_if(kept, [](char c) { return c == '-' || c == '_' || c == ' '; });
      return kept;
    };
    return letters(a) == letters(b);
  };
  std::vector<std::string> names;
  for (const Candidate& candidate : candidates) {
    if (static_cast<int>(names.size()) == most) break;
    if (std::none_of(names.begin(), names.end(),
                     [&](const std::string& before) { return same(before, candidate.name); }))
      names.push_back(candidate.name);
  }
  return names;
}

std::string did_you_mean(std::string_view name, std::span<const std::string> known) {
  const std::vector<std::string> names = nearest_names(name, known);
  if (names.empty()) return "";
  std::string list = names.front();
  for (std::size_t i = 1; i < names.size(); ++i) list += (i + 1 == names.size() ? " or " : ", ") + names[i];
  return fmt::format("; did you mean {}?", list);
}

std::string did_you_mean_or_list(std::string_view name, std::span<const std::string> known) {
  const std::string near = did_you_mean(name, known);
  return near.empty() ? fmt::format("; known: {}", fmt::join(known, ", ")) : near;
}

}  // namespace weft
