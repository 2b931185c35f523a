// Files that users name, read whole. One rule for all of them: a directory is refused, and reading stops with an error
// at the largest size that a file of its kind may have, so that neither a wrong name nor an endless device (/dev/zero)
// costs memory or time. Pipes and devices are otherwise read like files: `weft validate <(zcat runs.csv.gz)`.
//
// Errors name the file, what it is, and what to name instead.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "base/result.h"

namespace weft {

// What a file should be, for error messages, and its largest size.
struct FileKind {
  std::string_view name;  // with its article: "a table of measured runs (.csv)"
  std::size_t most_bytes;
};

// An open file that is not a directory, for libraries that read from descriptors. Other callers use `read_file`.
class InputFile {
 public:
  static Result<InputFile> open(const std::string& path, const FileKind& kind);
  InputFile(InputFile&& other) noexcept;
  InputFile& operator=(InputFile&&) = delete;
  ~InputFile();

  int descriptor() const { return descriptor_; }
  bool is_regular() const { return is_regular_; }  // then its size has been checked against the kind's

 private:
  InputFile() = default;

  int descriptor_ = -1;
  bool is_regular_ = false;
};

// The whole text. Cost: linear in its bytes, at most the largest size of the kind.
Result<std::string> read_file(const std::string& path, const FileKind& kind);

// For libraries that open files by name: an error if the path exists and is not a regular file.
Status check_regular_file(const std::string& path, std::string_view kind);

}  // namespace weft
