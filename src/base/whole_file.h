// Files that Weft writes.
#pragma once

#include <cstdio>
#include <string>
#include <string_view>

#include "base/result.h"

namespace weft {

// A file that appears whole or not at all. What is not a file (a pipe, a terminal) is written as it is.
class WholeFile {
 public:
  // An error says why the path cannot be written, before anything is computed for it.
  static Result<WholeFile> create(const std::string& path);
  WholeFile(WholeFile&& other) noexcept;
  WholeFile& operator=(WholeFile&&) = delete;
  ~WholeFile();  // removes what was not finished

  void write(std::string_view text);
  Status finish();
  // What to remove should the process end before: empty where there is no such file.
  const std::string& unfinished() const { return partial_; }

 private:
  WholeFile() = default;

  std::string path_, partial_;  // partial: empty where the path is written directly
  std::FILE* file_ = nullptr;
  int problem_ = 0;  // errno of the first failure
};

}  // namespace weft
