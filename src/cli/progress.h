// A progress line on stderr: only on a terminal, and only after a second.
#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

namespace weft {

class Progress {
 public:
  Progress();
  ~Progress() { done(); }
  Progress(const Progress&) = delete;

  // `share`: the fraction of this part that is done; below 0: unknown.
  void now(std::string_view part, double share = -1);
  // Removes the line.
  void done();

 private:
  void draw_until_done();

  std::mutex mutex_;
  std::condition_variable wake_;
  std::string part_;
  double share_ = -1;
  bool done_ = false;
  std::thread drawing_;  // not started if stderr is not a terminal
};

}  // namespace weft
