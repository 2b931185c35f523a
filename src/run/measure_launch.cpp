#include "run/measure_launch.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>

#include "run/pinning.h"

extern char** environ;

namespace weft::runtime {
namespace {

// The variables of a rank, as torchrun sets them, and others.
std::vector<std::string> environment_of(int rank, int ranks, int threads, int port,
                                        const std::map<std::string, std::string>& others) {
  std::map<std::string, std::string> variables;
  for (char** each = environ; *each; ++each) {
    const std::string_view entry = *each;
    const std::size_t equals = std::min(entry.find('='), entry.size());
    variables[std::string(entry.substr(0, equals))] = entry.substr(std::min(equals + 1, entry.size()));
  }
  variables["RANK"] = variables["LOCAL_RANK"] = std::to_string(rank);
  variables["WORLD_SIZE"] = std::to_string(ranks);
  variables["MASTER_ADDR"] = "127.0.0.1";
  variables["MASTER_PORT"] = std::to_string(port);
  variables["TORCH_CPP_LOG_LEVEL"] = "ERROR";
  for (const char* name : {"OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"})
    variables[name] = std::to_string(threads);
  for (const auto& [name, value] : others) variables[name] = value;
  std::vector<std::string> entries;
  for (const auto& [name, value] : variables) entries.push_back(name + "=" + value);
  return entries;
}

// The ranks; those that still run when it ends are killed.
class MeasuringRanks {
 public:
  ~MeasuringRanks() { end(); }

  // Each keeps to cores of its own where there are enough, as the ranks of a run.
  MeasuringRanks(std::string directory, int ranks, int threads)
      : directory_(std::move(directory)),
        pinned_(pinned_cores("auto", std::vector<int>(static_cast<std::size_t>(ranks), threads), allowed_cores())) {}

  Status spawn(int rank, std::vector<std::string> words, std::vector<std::string> entries) {
    int pipes[2];
    if (::pipe2(pipes, O_CLOEXEC) != 0) return error("no pipe: {}", std::strerror(errno));
    const int errors = ::open(error_file(rank).c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    // All that the child needs is made before the fork; after it only system calls are made.
    std::vector<char*> arguments, environment;
    for (std::string& word : words) arguments.push_back(word.data());
    for (std::string& entry : entries) environment.push_back(entry.data());
    arguments.push_back(nullptr);
    environment.push_back(nullptr);
    const Cores cores = pinned_.ok() ? (*pinned_)[static_cast<std::size_t>(rank)] : Cores{};
    const cpu_set_t own = as_set(cores);
    const pid_t launcher = ::getpid(), pid = ::fork();
    if (pid == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (!cores.empty()) ::sched_setaffinity(0, sizeof own, &own);
      if (::getppid() != launcher) ::_exit(127);
      ::signal(SIGINT, SIG_IGN);  // the launcher hears it and ends all
      ::dup2(pipes[1], STDOUT_FILENO);
      ::dup2(errors, STDERR_FILENO);
      ::execve(arguments[0], arguments.data(), environment.data());
      ::_exit(127);
    }
    const int problem = errno;
    ::close(pipes[1]);
    if (errors >= 0) ::close(errors);
    if (pid < 0) {
      ::close(pipes[0]);
      return error("rank {} cannot be started: {}", rank, std::strerror(problem));
    }
    if (rank == 0)
      samples_ = pipes[0];
    else
      ::close(pipes[0]);  // others say nothing
    running_.push_back({pid, rank});
    return Ok{};
  }

  std::string error_file(int rank) const { return fmt::format("{}/rank{}.stderr", directory_, rank); }

  // What a rank that ended badly said last.
  LaunchOutcome failure_of(int rank, int status) const {
    std::ifstream file(error_file(rank));
    std::string said;
    std::getline(file, said);
    if (said.starts_with("weft: ")) said.erase(0, 6);
    if (WIFSIGNALED(status)) said = fmt::format("rank {} died of signal {}", rank, WTERMSIG(status));
    if (said.empty()) said = fmt::format("rank {} ended with {}", rank, WEXITSTATUS(status));
    const bool bad = WIFEXITED(status) && WEXITSTATUS(status) == 2;
    return {bad ? LaunchOutcome::Kind::BadInput : LaunchOutcome::Kind::Failed, said};
  }

  // Lines that rank 0 has said since; waits a tenth of a second for them.
  std::vector<std::string> heard() {
    std::vector<std::string> lines;
    if (samples_ < 0) {
      ::poll(nullptr, 0, 100);
      return lines;
    }
    pollfd polled{samples_, POLLIN, 0};
    if (::poll(&polled, 1, 100) <= 0) return lines;
    char text[4096];
    const ssize_t count = ::read(samples_, text, sizeof text);
    if (count == 0) {
      ::close(samples_);
      samples_ = -1;
    }
    if (count > 0) unread_.append(text, static_cast<std::size_t>(count));
    for (std::size_t end = unread_.find('\n'); end != std::string::npos; end = unread_.find('\n')) {
      lines.push_back(unread_.substr(0, end));
      unread_.erase(0, end + 1);
    }
    return lines;
  }

  // The first rank that has ended badly since, and how.
  std::optional<std::pair<int, int>> fallen() {
    std::optional<std::pair<int, int>> bad;
    std::erase_if(running_, [&](const Child& child) {
      int status = 0;
      if (::waitpid(child.pid, &status, WNOHANG) != child.pid) return false;
      if (!(WIFEXITED(status) && WEXITSTATUS(status) == 0) && !bad) bad = {child.rank, status};
      return true;
    });
    return bad;
  }
  bool all_ended() const { return running_.empty() && samples_ < 0; }
  // Whether none of the first ranks runs any more.
  bool have_ended(int first) const {
    return std::none_of(running_.begin(), running_.end(), [&](const Child& child) { return child.rank < first; });
  }

  void end() {
    for (const Child& child : running_) ::kill(child.pid, SIGKILL);
    for (const Child& child : running_) ::waitpid(child.pid, nullptr, 0);
    running_.clear();
    if (samples_ >= 0) ::close(samples_);
    samples_ = -1;
  }

 private:
  struct Child {
    pid_t pid;
    int rank;
  };
  const std::string directory_;
  const Result<std::vector<Cores>> pinned_;
  std::vector<Child> running_;
  int samples_ = -1;
  std::string unread_;
};

}  // namespace

Result<LaunchOutcome> launch_measuring(const MeasureLaunchOptions& options) {
  const CatchInterrupts interrupts;
  WEFT_TRY(const int port, free_port());
  MeasuringRanks ranks(options.directory, options.ranks, options.threads);
  std::vector<std::string> words = {options.rank_program, "--measure", options.events, "--budget",
                                    fmt::format("{}", options.budget.value)};
  if (!options.device.empty()) words.insert(words.end(), {"--device", options.device});
  for (int rank = 0; rank < options.ranks; ++rank)
    WEFT_TRY_OK(ranks.spawn(rank, words, environment_of(rank, options.ranks, options.threads, port, {})));
  while (true) {
    for (const std::string& line : ranks.heard()) {
      std::istringstream said(line);
      std::string word;
      std::size_t at = 0;
      Sample sample;
      if (said >> word >> at >> sample.mean_s >> sample.spread_s >> sample.count && word == "sample")
        options.on_sample(at, sample);
    }
    if (interrupts.came()) return LaunchOutcome{LaunchOutcome::Kind::Interrupted, "interrupted"};
    if (const auto bad = ranks.fallen()) return ranks.failure_of(bad->first, bad->second);
    if (ranks.all_ended()) return LaunchOutcome{};
  }
}

Result<LaunchOutcome> launch_playing(const PlayLaunchOptions& options) {
  const CatchInterrupts interrupts;
  const int count = static_cast<int>(options.devices.size());
  MeasuringRanks ranks(options.directory, count, options.threads);
  for (int rank = 0; rank < count; ++rank) {
    const bool timed = rank < options.timed;
    const std::vector<std::string> words = {options.rank_program,
                                            options.bundle,
                                            "--alone",
                                            std::to_string(options.devices[static_cast<std::size_t>(rank)]),
                                            "--steps",
                                            "1000000",
                                            "--device",
                                            "cpu",
                                            "--for",
                                            fmt::format("{}", timed ? options.at_most.value : 1e6)};
    std::map<std::string, std::string> variables;
    if (timed) variables["WEFT_TIMELINE"] = options.directory;
    WEFT_TRY_OK(ranks.spawn(rank, words, environment_of(rank, count, options.threads, 1, variables)));
  }
  while (true) {
    ranks.heard();
    if (interrupts.came()) return LaunchOutcome{LaunchOutcome::Kind::Interrupted, "interrupted"};
    if (const auto bad = ranks.fallen()) return ranks.failure_of(bad->first, bad->second);
    if (ranks.have_ended(options.timed)) return LaunchOutcome{};
  }
}

}  // namespace weft::runtime
