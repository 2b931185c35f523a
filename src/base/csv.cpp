#include "base/csv.h"

#include <algorithm>
#include <set>

#include "base/read_file.h"

namespace weft {
namespace {

constexpr FileKind kTable{"a table of comma-separated values (.csv)", std::size_t{64} << 20};

std::string trimmed(std::string_view text) {
  const std::size_t from = text.find_first_not_of(" \t"), to = text.find_last_not_of(" \t");
  return from == std::string_view::npos ? "" : std::string(text.substr(from, to - from + 1));
}

class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text) {
    if (text_.starts_with("\xef\xbb\xbf")) text_.remove_prefix(3);
  }

  // The next row that is not blank; none at the end.
  bool next(CsvRow& row) {
    while (at_ < text_.size()) {
      row = {line_, {}, {}};
      bool quoted = false;
      do row.cells.push_back(cell(row, quoted));
      while (row.fault.empty() && at_ < text_.size() && text_[at_] == ',' && ++at_);
      end_of_line();
      if (quoted || row.cells.size() > 1 || !row.cells.front().empty() || !row.fault.empty()) return true;
    }
    return false;
  }

 private:
  bool at_end_of_line() const { return at_ >= text_.size() || text_[at_] == '\n' || text_[at_] == '\r'; }
  void end_of_line() {
    if (at_ < text_.size() && text_[at_] == '\r') ++at_;
    if (at_ < text_.size() && text_[at_] == '\n') ++at_;
    ++line_;
  }

  std::string cell(CsvRow& row, bool& quoted) {
    std::size_t from = at_;
    while (from < text_.size() && text_[from] == ' ') ++from;
    if (from >= text_.size() || text_[from] != '"') {
      while (!at_end_of_line() && text_[at_] != ',') ++at_;
      return trimmed(text_.substr(std::min(from, at_), at_ - std::min(from, at_)));
    }
    quoted = true;
    std::string value;
    for (at_ = from + 1;; ++at_) {
      if (at_ >= text_.size()) {
        row.fault = "a quote is opened and never closed";
        return value;
      }
      if (text_[at_] == '"') {
        if (at_ + 1 < text_.size() && text_[at_ + 1] == '"') {
          ++at_;
        } else {
          break;
        }
      }
      if (text_[at_] == '\n') ++line_;
      value += text_[at_];
    }
    // What follows the closing quote belongs to the cell.
    const std::size_t rest = ++at_;
    while (!at_end_of_line() && text_[at_] != ',') ++at_;
    return value + trimmed(text_.substr(rest, at_ - rest));
  }

  std::string_view text_;
  std::size_t at_ = 0;
  int line_ = 1;
};

}  // namespace

Result<CsvTable> parse_csv(std::string_view text, std::string_view file) {
  Scanner scanner(text);
  CsvTable table;
  CsvRow row;
  if (!scanner.next(row) || !row.fault.empty()) return error("no header: the first row must name the columns").at(file);
  std::set<std::string> seen;
  for (const std::string& cell : row.cells) {
    std::string name = trimmed(cell);
    std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) {
      return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : static_cast<char>(c);
    });
    if (!name.empty() && !seen.insert(name).second)
      return error("column '{}' is there twice", name.substr(0, 60)).at(file, row.line);
    table.columns.push_back(std::move(name));
  }
  while (scanner.next(row)) {
    if (row.fault.empty() && row.cells.size() > table.columns.size())
      row.fault = fmt::format("{} cells, but {} columns", row.cells.size(), table.columns.size());
    row.cells.resize(table.columns.size());
    table.rows.push_back(std::move(row));
  }
  return table;
}

Result<CsvTable> read_csv(const std::string& path) {
  WEFT_TRY(const std::string text, read_file(path, kTable));
  if (text.find('\0') != std::string::npos) return error("not a text file").at(path);
  return parse_csv(text, path);
}

}  // namespace weft
