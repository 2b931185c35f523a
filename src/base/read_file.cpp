#include "base/read_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace weft {
namespace {

std::string_view name_of(mode_t mode) {
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISCHR(mode) || S_ISBLK(mode)) return "a device";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  return "a file";
}

// "512 KiB", "64 MiB"; the largest sizes of kinds are whole KiB or MiB.
std::string rounded(std::size_t bytes) {
  constexpr std::size_t kKi = 1024;
  if (bytes % (kKi * kKi) == 0) return fmt::format("{} MiB", bytes / (kKi * kKi));
  return bytes % kKi == 0 ? fmt::format("{} KiB", bytes / kKi) : fmt::format("{} bytes", bytes);
}

Error unreadable(const std::string& path, int problem, std::string_view kind) {
  return error("{}: cannot be read: {}; name {}", path.empty() ? "''" : path, std::strerror(problem), kind);
}
Error is_no_file(const std::string& path, mode_t mode, std::string_view kind) {
  return error("{}: is {}; name {}", path, name_of(mode), kind);
}
Error too_large(const std::string& path, mode_t mode, const FileKind& kind) {
  return error("{}: {} of more than {}; name {}", path, name_of(mode), rounded(kind.most_bytes), kind.name);
}

}  // namespace

Result<InputFile> InputFile::open(const std::string& path, const FileKind& kind) {
  InputFile file;
  file.descriptor_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY);
  struct stat found {};
  if (file.descriptor_ < 0 || ::fstat(file.descriptor_, &found) != 0) return unreadable(path, errno, kind.name);
  if (S_ISDIR(found.st_mode)) return is_no_file(path, found.st_mode, kind.name);
  file.is_regular_ = S_ISREG(found.st_mode);
  if (file.is_regular_ && static_cast<std::size_t>(found.st_size) > kind.most_bytes)
    return too_large(path, found.st_mode, kind);
  return file;
}

InputFile::InputFile(InputFile&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)), is_regular_(other.is_regular_) {}

InputFile::~InputFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

Result<std::string> read_file(const std::string& path, const FileKind& kind) {
  constexpr std::size_t kChunk = std::size_t{64} * 1024;
  WEFT_TRY(const InputFile file, InputFile::open(path, kind));
  std::string text;
  for (;;) {
    const std::size_t before = text.size(), wanted = std::min(kChunk, kind.most_bytes + 1 - before);
    text.resize(before + wanted);
    const ssize_t got = ::read(file.descriptor(), text.data() + before, wanted);
    text.resize(before + static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
    if (got == 0) return text;
    if (got < 0 && errno != EINTR) return unreadable(path, errno, kind.name);
    if (text.size() > kind.most_bytes) {
      struct stat found {};
      ::fstat(file.descriptor(), &found);
      return too_large(path, found.st_mode, kind);
    }
  }
}

Status check_regular_file(const std::string& path, std::string_view kind) {
  struct stat found {};
  if (::stat(path.c_str(), &found) == 0 && !S_ISREG(found.st_mode)) return is_no_file(path, found.st_mode, kind);
  return Ok{};
}

}  // namespace weft
