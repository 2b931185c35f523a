// `weft run` as a process: started, heard, killed.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace weft {

inline const char* const kModel =
    "gpt2-124m:layers=2,hidden=32,heads=4,vocab=256,dropout=0.1";  // tables that no stack pads

// A process with its output in a file.
class Process {
 public:
  explicit Process(const std::vector<std::string>& words, const std::vector<std::string>& variables = {},
                   const char* program = std::getenv("WEFT_BIN")) {
    std::string path = (std::filesystem::temp_directory_path() / "weft-run-test-XXXXXX").string();
    const int file = ::mkstemp(path.data());
    path_ = path;
    pid_ = ::fork();
    if (pid_ == 0) {
      ::dup2(file, STDOUT_FILENO);
      ::dup2(file, STDERR_FILENO);
      for (const std::string& variable : variables)
        ::setenv(variable.substr(0, variable.find('=')).c_str(), variable.substr(variable.find('=') + 1).c_str(), 1);
      std::vector<char*> argv = {const_cast<char*>(program)};
      for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
      argv.push_back(nullptr);
      ::execv(program, argv.data());
      ::_exit(127);
    }
    ::close(file);
  }
  ~Process() {
    if (!ended_) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
    std::filesystem::remove(path_);
  }
  Process(const Process&) = delete;

  pid_t pid() const { return pid_; }
  std::string text() const {
    std::ifstream file(path_);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  std::vector<pid_t> children() const {
    std::ifstream file("/proc/" + std::to_string(pid_) + "/task/" + std::to_string(pid_) + "/children");
    std::vector<pid_t> list;
    for (pid_t child = 0; file >> child;) list.push_back(child);
    return list;
  }
  // The exit code; −1 where it does not end.
  int wait() {
    int status = 0;
    if (!eventually([&] { return ::waitpid(pid_, &status, WNOHANG) == pid_; })) return -1;
    ended_ = true;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  // Long enough for any machine; it is not what is tested.
  static bool eventually(const std::function<bool()>& holds) {
    for (int i = 0; i < 1200; ++i) {
      if (holds()) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    return false;
  }

 private:
  pid_t pid_ = -1;
  std::string path_;
  bool ended_ = false;
};

inline std::vector<std::string> words(const std::string& strategy, int ranks, std::vector<std::string> more = {}) {
  std::vector<std::string> list = {"run",   "--model", kModel, "--strategy", strategy, "--ranks", std::to_string(ranks),
                                   "--seq", "16"};
  for (std::size_t i = 0; i < more.size(); ++i)
    if (more[i] == "--model")
      list[2] = more[++i];
    else
      list.push_back(more[i]);
  return list;
}

inline bool is_gone(pid_t pid) { return ::kill(pid, 0) != 0 && errno == ESRCH; }

// Trains on and on; its ranks, once they are at it.
inline std::vector<pid_t> ranks_at_work(const Process& process) {
  EXPECT_TRUE(Process::eventually([&] { return process.text().find("step 2 ") != std::string::npos; }))
      << process.text();
  return process.children();
}
inline void expect_gone(const std::vector<pid_t>& ranks) {
  for (pid_t rank : ranks) EXPECT_TRUE(Process::eventually([&] { return is_gone(rank); })) << rank;
}

}  // namespace weft
