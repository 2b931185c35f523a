// Tables in comma-separated values, as spreadsheets and people write them: quoted cells with commas, doubled quotes and
// line breaks, CRLF, a byte-order mark, blank lines, short lines.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace weft {

struct CsvRow {
  int line = 0;  // line of the file on which the row begins
  std::vector<std::string> cells;
  std::string fault;  // why the row cannot be read; empty when it can
};

struct CsvTable {
  std::vector<std::string> columns;
  std::vector<CsvRow> rows;  // as many cells as columns, unless the row has a fault
};

// The first row names the columns; names are trimmed and in lower case. Missing cells at the end of a row are empty.
// A row with more cells than columns, or with a quote that is never closed, has a fault. A missing header, or one that
// names a column twice, is an error.
Result<CsvTable> parse_csv(std::string_view text, std::string_view file);
// The same for a file of at most 64 MiB.
Result<CsvTable> read_csv(const std::string& path);

}  // namespace weft
