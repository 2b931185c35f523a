// Files that people name, read whole. One rule for all of them: a directory is refused, and what has more bytes than a
// file of its kind ever has is given up there, so that neither a wrong name nor a device without an end (/dev/zero)
// costs memory or time. Pipes and devices are otherwise read as files are: `weft validate <(zcat runs.csv.gz)`.
//
// Errors name the file, what it is, and what to name instead.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "base/result.h"

namespace weft {

// What a file should be, for messages, and how large one is at most.
struct FileKind {
  std::string_view name;  // with its article: "a table of measured runs (.csv)"
  std::size_t most_bytes;
};

// An open file that is no directory. For libraries that read from descriptors themselves; others `read_file`.
class InputFile {
 public:
  static Result<InputFile> open(const std::string& path, const FileKind& kind);
  InputFile(InputFile&& other) noexcept;
  InputFile& operator=(InputFile&&) = delete;
  ~InputFile();

  int descriptor() const { return descriptor_; }
  bool is_regular() const { return is_regular_; }  // on a disk, so that its size is known to be within the kind's

 private:
  InputFile() = default;

  int descriptor_ = -1;
  bool is_regular_ = false;
};

// The whole text. Cost: its bytes, or the most that the kind has.
Result<std::string> read_file(const std::string& path, const FileKind& kind);

// For libraries that open files by name: an error where the path is there and is no regular file.
Status check_regular_file(const std::string& path, std::string_view kind);

}  // namespace weft
