// A line on stderr that says what is going on: only on a terminal, and only once it has taken a second.
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

  // `share` of the part that is done; below 0: nobody knows.
  void now(std::string_view part, double share = -1);
  // Takes the line away.
  void done();

 private:
  void draw_until_done();

  std::mutex mutex_;
  std::condition_variable wake_;
  std::string part_;
  double share_ = -1;
  bool done_ = false;
  std::thread drawing_;  // none where stderr is no terminal
};

}  // namespace weft
