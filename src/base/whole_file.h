// Output files, written whole or not at all.
#pragma once

#include <cstdio>
#include <string>
#include <string_view>

#include "base/result.h"

namespace weft {

// A file that appears whole or not at all: written under a temporary name and renamed. A pipe or a terminal is written
// directly.
class WholeFile {
 public:
  // The error tells why the path cannot be written; call it before computing the content.
  static Result<WholeFile> create(const std::string& path);
  WholeFile(WholeFile&& other) noexcept;
  WholeFile& operator=(WholeFile&&) = delete;
  ~WholeFile();  // removes the temporary file unless it was finished

  void write(std::string_view text);
  Status finish();
  // The temporary file to remove if the process is interrupted; empty if there is none.
  const std::string& unfinished() const { return partial_; }

 private:
  WholeFile() = default;

  std::string path_, partial_;  // partial_ is empty if the path is written directly
  std::FILE* file_ = nullptr;
  int problem_ = 0;  // errno of the first failure
};

Status write_whole(const std::string& path, std::string_view text);

}  // namespace weft
