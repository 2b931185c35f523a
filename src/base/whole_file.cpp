#include "base/whole_file.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace weft {
namespace {

Error unwritable(const std::string& path, int problem) {
  return error("{}: cannot be written: {}", path.empty() ? "''" : path, std::strerror(problem));
}

}  // namespace

Result<WholeFile> WholeFile::create(const std::string& path) {
  if (path.empty()) return unwritable(path, ENOENT);
  struct stat found {};
  const bool exists = ::stat(path.c_str(), &found) == 0;
  if (exists && S_ISDIR(found.st_mode)) return unwritable(path, EISDIR);
  // Renaming needs write permission on the directory only, so it would replace a read-only file.
  if (exists && ::access(path.c_str(), W_OK) != 0) return unwritable(path, errno);
  WholeFile file;
  file.path_ = path;
  if (!exists || S_ISREG(found.st_mode)) file.partial_ = fmt::format("{}.{}.partial", path, ::getpid());
  file.file_ = std::fopen((file.partial_.empty() ? path : file.partial_).c_str(), "wbe");
  if (!file.file_) return unwritable(path, errno);
  return file;
}

WholeFile::WholeFile(WholeFile&& other) noexcept
    : path_(std::move(other.path_)),
      partial_(std::exchange(other.partial_, {})),
      file_(std::exchange(other.file_, nullptr)),
      problem_(other.problem_) {}

WholeFile::~WholeFile() {
  if (!file_) return;
  std::fclose(file_);
  if (!partial_.empty()) ::unlink(partial_.c_str());
}

void WholeFile::write(std::string_view text) {
  if (problem_ == 0 && std::fwrite(text.data(), 1, text.size(), file_) != text.size()) problem_ = errno;
}

Status WholeFile::finish() {
  if (std::fclose(std::exchange(file_, nullptr)) != 0 && problem_ == 0) problem_ = errno;
  if (problem_ == 0 && !partial_.empty() && std::rename(partial_.c_str(), path_.c_str()) != 0) problem_ = errno;
  if (problem_ == 0) return Ok{};
  if (!partial_.empty()) ::unlink(partial_.c_str());
  return unwritable(path_, problem_);
}

Status write_whole(const std::string& path, std::string_view text) {
  WEFT_TRY(WholeFile file, WholeFile::create(path));
  file.write(text);
  return file.finish();
}

}  // namespace weft
