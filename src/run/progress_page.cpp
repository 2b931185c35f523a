#include "run/progress_page.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

namespace weft::runtime {
namespace {

Result<ProgressSlot*> mapped(const std::string& path, int ranks, bool create) {
  const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC | (create ? O_CREAT | O_EXCL : 0), 0600);
  if (file < 0) return error("{}: {}", path, std::strerror(errno));
  const std::size_t bytes = sizeof(ProgressSlot) * static_cast<std::size_t>(ranks);
  void* memory = MAP_FAILED;
  if (!create || ::ftruncate(file, static_cast<off_t>(bytes)) == 0)
    memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  const int problem = errno;
  ::close(file);
  if (memory == MAP_FAILED) return error("{}: {}", path, std::strerror(problem));
  return static_cast<ProgressSlot*>(memory);
}

}  // namespace

Result<ProgressPage> ProgressPage::create(const std::string& path, int ranks) {
  WEFT_TRY(ProgressSlot* const slots, mapped(path, ranks, true));
  for (int rank = 0; rank < ranks; ++rank) {
    new (&slots[rank]) ProgressSlot{};
    slots[rank].instruction = ProgressSlot::kNoInstruction;
  }
  return ProgressPage(slots, ranks);
}

Result<ProgressPage> ProgressPage::open(const std::string& path, int ranks) {
  WEFT_TRY(ProgressSlot* const slots, mapped(path, ranks, false));
  return ProgressPage(slots, ranks);
}

ProgressPage::ProgressPage(ProgressPage&& other) noexcept
    : slots_(std::exchange(other.slots_, nullptr)), ranks_(other.ranks_) {}

ProgressPage::~ProgressPage() {
  if (slots_) ::munmap(slots_, sizeof(ProgressSlot) * static_cast<std::size_t>(ranks_));
}

}  // namespace weft::runtime
