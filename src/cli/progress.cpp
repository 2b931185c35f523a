#include "cli/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>

namespace weft {

Progress::Progress() {
  if (::isatty(STDERR_FILENO)) drawing_ = std::thread([this] { draw_until_done(); });
}

void Progress::now(std::string_view part, double share) {
  const std::lock_guard lock(mutex_);
  part_ = part;
  share_ = share;
}

void Progress::done() {
  {
    const std::lock_guard lock(mutex_);
    done_ = true;
  }
  wake_.notify_all();
  if (drawing_.joinable()) drawing_.join();
}

void Progress::draw_until_done() {
  using namespace std::chrono_literals;
  std::unique_lock lock(mutex_);
  bool drawn = false;
  for (auto wait = 1000ms; !wake_.wait_for(lock, wait, [this] { return done_; }); wait = 100ms) {
    std::string line = fmt::format("\r\033[Kweft: {}", part_);
    if (share_ >= 0) {
      constexpr int kWidth = 30;
      const int full = static_cast<int>(share_ * kWidth);
      line += fmt::format(" [{:=<{}}{: <{}}] {:.0f} %", "", full, "", kWidth - full, 100 * share_);
    }
    std::fputs(line.c_str(), stderr);
    std::fflush(stderr);
    drawn = true;
  }
  if (drawn) std::fputs("\r\033[K", stderr);
}

}  // namespace weft
