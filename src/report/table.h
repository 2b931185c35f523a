// Text output: columns as a terminal counts them, tables that fit a page.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace weft {

inline constexpr std::size_t kPageColumns = 120;

// Characters as a terminal counts them: bytes that continue a UTF-8 sequence take no column.
std::size_t columns(std::string_view text);
std::string padded(std::string_view text, std::size_t width);
std::string aligned_right(std::string_view text, std::size_t width);
// `text` repeated until it is `count` columns wide; `text` is one column.
std::string repeated(std::string_view text, std::size_t count);

// Words joined with `separator` into lines of at most `width` columns; each line starts with `indent`.
std::string wrapped(const std::vector<std::string>& words, std::string_view separator, std::string_view indent,
                    std::size_t width = kPageColumns);

// A column is as wide as its widest cell, but at most `most`; longer cells are wrapped at spaces, words longer
// than that after a +. A cell may have several lines ('\n').
struct Column {
  bool right = false;
  std::size_t most = kPageColumns;
};
struct Table {
  std::vector<Column> columns;
  std::vector<std::vector<std::string>> rows = {};

  void add(std::vector<std::string> row) { rows.push_back(std::move(row)); }
  std::size_t width(std::size_t column) const;  // of its widest line
  // Every line starts with `indent`; columns are two spaces apart; no spaces at the end.
  std::string print(std::string_view indent = "  ") const;
};

// "0–3, 8, 16–19": ascending numbers.
std::string ranges(const std::vector<std::int64_t>& numbers);
// The same, or with a step, "0, 4, 8 … 28"; at most a few numbers.
std::string short_list(const std::vector<std::int64_t>& numbers);

}  // namespace weft
