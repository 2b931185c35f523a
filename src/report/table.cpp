#include "report/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace weft {

std::size_t columns(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}
std::string padded(std::string_view text, std::size_t width) {
  return std::string(text) + std::string(width - std::min(width, columns(text)), ' ');
}
std::string aligned_right(std::string_view text, std::size_t width) {
  return std::string(width - std::min(width, columns(text)), ' ') + std::string(text);
}
std::string repeated(std::string_view text, std::size_t count) {
  std::string result;
  for (std::size_t i = 0; i < count; ++i) result += text;
  return result;
}

std::string wrapped(const std::vector<std::string>& words, std::string_view separator, std::string_view indent,
                    std::size_t width) {
  std::string text, line;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string piece = words[i] + (i + 1 < words.size() ? std::string(separator) : "");
    std::string_view seen = piece;  // spaces at the end of a line are not printed
    while (seen.ends_with(' ')) seen.remove_suffix(1);
    if (!line.empty() && columns(indent) + columns(line) + columns(seen) > width) {
      while (line.ends_with(' ')) line.pop_back();
      text += std::string(indent) + line + "\n";
      line.clear();
    }
    line += piece;
  }
  if (!line.empty()) text += std::string(indent) + line + "\n";
  return text;
}

namespace {

// Where to cut `text`: at the last space of its first `most` columns, else after the last + there, as
// full=a+b is, else at the first space. The second: where the next line starts.
std::pair<std::size_t, std::size_t> cut_of(std::string_view text, std::size_t most) {
  std::size_t at = text.size();
  while (at > 0 && columns(text.substr(0, at)) > most) --at;
  if (const std::size_t space = text.rfind(' ', at); space != std::string_view::npos && space > 0)
    return {space, space + 1};
  if (const std::size_t plus = text.substr(0, at).rfind('+'); plus != std::string_view::npos)
    return {plus + 1, plus + 1};
  const std::size_t space = text.find(' ', 1);
  return {space, space + 1};
}

// The lines of a cell, none wider than `most` except for single words that are.
std::vector<std::string> lines_of(std::string_view cell, std::size_t most) {
  std::vector<std::string> lines;
  for (;;) {
    const std::size_t end = cell.find('\n');
    std::string_view rest = cell.substr(0, end);
    while (columns(rest) > most) {
      const auto [cut, next] = cut_of(rest, most);
      if (cut == std::string_view::npos) break;
      lines.emplace_back(rest.substr(0, cut));
      rest.remove_prefix(next);
    }
    lines.emplace_back(rest);
    if (end == std::string_view::npos) return lines;
    cell.remove_prefix(end + 1);
  }
}

}  // namespace

std::size_t Table::width(std::size_t column) const {
  std::size_t width = 0;
  for (const std::vector<std::string>& row : rows)
    if (column < row.size())
      for (const std::string& line : lines_of(row[column], columns[column].most))
        width = std::max(width, weft::columns(line));
  return width;
}

std::string Table::print(std::string_view indent) const {
  std::vector<std::size_t> widths;
  for (std::size_t column = 0; column < columns.size(); ++column) widths.push_back(width(column));
  std::vector<std::vector<std::vector<std::string>>> cells;
  for (const std::vector<std::string>& row : rows) {
    auto& lines = cells.emplace_back();
    for (std::size_t c = 0; c < row.size(); ++c) lines.push_back(lines_of(row[c], columns[c].most));
  }
  std::string text;
  for (const auto& row : cells) {
    std::size_t height = 0;
    for (const auto& cell : row) height = std::max(height, cell.size());
    for (std::size_t i = 0; i < height; ++i) {
      std::string line(indent);
      for (std::size_t c = 0; c < row.size(); ++c) {
        const std::string piece = i < row[c].size() ? row[c][i] : "";
        if (c > 0 && widths[c] > 0) line += "  ";
        line += columns[c].right ? aligned_right(piece, widths[c]) : padded(piece, widths[c]);
      }
      while (line.ends_with(' ')) line.pop_back();
      text += line + "\n";
    }
  }
  return text;
}

std::string ranges(const std::vector<std::int64_t>& numbers) {
  std::string text;
  for (std::size_t i = 0; i < numbers.size();) {
    std::size_t end = i + 1;
    while (end < numbers.size() && numbers[end] == numbers[end - 1] + 1) ++end;
    text += text.empty() ? "" : ", ";
    text += end - i == 1   ? fmt::format("{}", numbers[i])
            : end - i == 2 ? fmt::format("{}, {}", numbers[i], numbers[i + 1])
                           : fmt::format("{}–{}", numbers[i], numbers[end - 1]);
    i = end;
  }
  return text;
}

std::string short_list(const std::vector<std::int64_t>& numbers) {
  if (std::string text = ranges(numbers); numbers.size() <= 4 || columns(text) <= 25) return text;
  return fmt::format("{}, {}, {} … {}", numbers[0], numbers[1], numbers[2], numbers.back());
}

}  // namespace weft
