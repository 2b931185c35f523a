#include "run/measure_launch.h"

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <fstream>
#include <sstream>

#include "run/busy_loops.h"
#include "run/rank_process.h"

namespace weft::runtime {
namespace {

// The ranks; those that still run when it ends are killed.
class MeasuringRanks {
 public:
  ~MeasuringRanks() { end(); }

  // Each keeps to cores of its own where there are enough, as the ranks of a run.
  MeasuringRanks(std::string directory, int ranks, int threads, int beside)
      : directory_(std::move(directory)),
        pinned_(pinned_cores("auto", std::vector<int>(static_cast<std::size_t>(ranks), threads), allowed_cores())),
        beside_(std::vector<int>(pinned_.ok() ? pinned_->size() : 0, beside),
                pinned_.ok() ? *pinned_ : std::vector<Cores>()) {}

  // Only what rank 0 says is heard.
  Status spawn(RankProcess process) {
    process.output = error_file(process.rank);
    if (pinned_.ok()) process.cores = (*pinned_)[static_cast<std::size_t>(process.rank)];
    WEFT_TRY(const StartedRank started, start(process));
    if (process.rank == 0)
      samples_ = started.pipe;
    else
      ::close(started.pipe);
    running_.push_back({started.pid, process.rank});
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
  const BusyLoops beside_;
  std::vector<Child> running_;
  int samples_ = -1;
  std::string unread_;
};

}  // namespace

Result<LaunchOutcome> launch_measuring(const MeasureLaunchOptions& options) {
  const CatchInterrupts interrupts;
  WEFT_TRY(const int port, free_port());
  MeasuringRanks ranks(options.directory, options.ranks, options.threads, options.beside);
  std::vector<std::string> words = {options.rank_program, "--measure", options.events, "--budget",
                                    fmt::format("{}", options.budget.value)};
  if (!options.device.empty()) words.insert(words.end(), {"--device", options.device});
  for (int rank = 0; rank < options.ranks; ++rank)
    WEFT_TRY_OK(
        ranks.spawn({.rank = rank, .ranks = options.ranks, .threads = options.threads, .port = port, .words = words}));
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
  MeasuringRanks ranks(options.directory, count, options.threads, options.beside);
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
    WEFT_TRY_OK(ranks.spawn({.rank = rank,
                             .ranks = count,
                             .threads = options.threads,
                             .words = words,
                             .variables = {{"WEFT_TIMELINE", timed ? options.directory : ""}}}));
  }
  while (true) {
    ranks.heard();
    if (interrupts.came()) return LaunchOutcome{LaunchOutcome::Kind::Interrupted, "interrupted"};
    if (const auto bad = ranks.fallen()) return ranks.failure_of(bad->first, bad->second);
    if (ranks.have_ended(options.timed)) return LaunchOutcome{};
  }
}

}  // namespace weft::runtime
