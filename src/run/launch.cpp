#include "run/launch.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>

#include "program/verify.h"
#include "run/busy_loops.h"
#include "run/progress_page.h"
#include "run/rank_process.h"

namespace weft::runtime {
namespace {

using Clock = std::chrono::steady_clock;

volatile std::sig_atomic_t interrupted_by = 0;
void interrupt(int signal) { interrupted_by = signal; }

}  // namespace

CatchInterrupts::CatchInterrupts() {
  interrupted_by = 0;
  struct sigaction action {};
  action.sa_handler = interrupt;
  ::sigaction(SIGINT, &action, &before_[0]);
  ::sigaction(SIGTERM, &action, &before_[1]);
}
CatchInterrupts::~CatchInterrupts() {
  ::sigaction(SIGINT, &before_[0], nullptr);
  ::sigaction(SIGTERM, &before_[1], nullptr);
}
bool CatchInterrupts::came() const { return interrupted_by != 0; }

Result<int> free_port() {
  const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (listener < 0) return error("no socket: {}", std::strerror(errno));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  const bool bound = ::bind(listener, reinterpret_cast<sockaddr*>(&address), size) == 0 &&
                     ::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size) == 0;
  const int problem = errno;
  ::close(listener);
  if (!bound) return error("no free port: {}", std::strerror(problem));
  return static_cast<int>(ntohs(address.sin_port));
}

namespace {

struct Child {
  pid_t pid = -1;
  int reports = -1;    // what it says
  std::string unread;  // of a line that is not complete
  bool ended = false;
  int status = 0;  // of waitpid
  std::string bad, error;
  std::uint64_t beats = 0;
  Clock::time_point moved = Clock::now();  // when it was last seen to make progress
};

class Launch {
 public:
  Launch(const Bundle& bundle, const std::string& directory, const LaunchOptions& options, ProgressPage page)
      : bundle_(bundle), directory_(directory), options_(options), page_(std::move(page)) {}
  ~Launch() {
    end_all();
    for (const Child& child : children_)
      if (child.reports >= 0) ::close(child.reports);
  }
  Launch(const Launch&) = delete;

  Status spawn_all(int port) {
    for (int rank = 0; rank < bundle_.world_size(); ++rank) WEFT_TRY_OK(spawn(rank, port));
    return Ok{};
  }

  LaunchOutcome watch() {
    std::optional<Clock::time_point> trouble;  // when the first sign of it came
    while (true) {
      read_reports(100);
      reap();
      if (interrupted_by != 0) {
        end_all();
        return {LaunchOutcome::Kind::Interrupted, fmt::format("interrupted at {}; all ranks are ended", where(0))};
      }
      for (const Child& child : children_)
        if (!child.bad.empty()) {
          end_all();
          return {LaunchOutcome::Kind::BadInput, child.bad};
        }
      if (std::all_of(children_.begin(), children_.end(), [](const Child& each) { return ended_well(each); })) {
        read_reports(0);
        return {};
      }
      const bool unwell = std::any_of(children_.begin(), children_.end(), [](const Child& each) {
        return !each.error.empty() || (each.ended && !ended_well(each));
      });
      if (unwell && !trouble) trouble = Clock::now();
      // Others fall over one that fell: a moment later it is known who was first.
      const bool settled = trouble && Clock::now() - *trouble > std::chrono::milliseconds(700);
      const std::optional<int> hung = hanging();
      if (!settled && !hung) continue;
      LaunchOutcome outcome{LaunchOutcome::Kind::Failed, diagnosis(hung)};
      end_all();
      return outcome;
    }
  }

 private:
  static bool ended_well(const Child& child) {
    return child.ended && WIFEXITED(child.status) && WEXITSTATUS(child.status) == 0;
  }

  Status spawn(int rank, int port) {
    std::vector<std::string> words = {
        options_.rank_program,          options_.bundle, "--steps",
        std::to_string(options_.steps), "--timeout",     fmt::format("{}", options_.timeout.value)};
    if (options_.check) words.push_back("--check");
    if (!options_.device.empty()) words.insert(words.end(), {"--device", options_.device});
    if (!options_.backend.empty()) words.insert(words.end(), {"--backend", options_.backend});
    if (!options_.data.empty()) words.insert(words.end(), {"--data", options_.data});
    for (std::string& word : options_.files.words()) words.push_back(std::move(word));
    constexpr int kReports = 3;
    WEFT_TRY(const StartedRank started, start({.rank = rank,
                                               .ranks = bundle_.world_size(),
                                               .threads = options_.threads[static_cast<std::size_t>(rank)],
                                               .port = port,
                                               .words = std::move(words),
                                               .variables = {{"WEFT_PROGRESS", progress_file(directory_)},
                                                             {"WEFT_REPORTS", std::to_string(kReports)},
                                                             {"WEFT_TIMELINE", options_.record ? directory_ : ""}},
                                               .cores = options_.pinned[static_cast<std::size_t>(rank)],
                                               .output = error_file(rank),
                                               .heard = kReports}));
    ::fcntl(started.pipe, F_SETFL, O_NONBLOCK);
    Child child;
    child.pid = started.pid;
    child.reports = started.pipe;
    children_.push_back(std::move(child));
    return Ok{};
  }

  std::string error_file(int rank) const { return fmt::format("{}/rank{}.stderr", directory_, rank); }

  void read_reports(int milliseconds) {
    std::vector<pollfd> polled;
    for (const Child& child : children_)
      if (child.reports >= 0) polled.push_back({child.reports, POLLIN, 0});
    ::poll(polled.data(), polled.size(), milliseconds);
    for (Child& child : children_) {
      char text[4096];
      while (child.reports >= 0) {
        const ssize_t count = ::read(child.reports, text, sizeof text);
        if (count > 0) {
          child.unread.append(text, static_cast<std::size_t>(count));
          continue;
        }
        if (count == 0) {
          ::close(child.reports);
          child.reports = -1;
        }
        break;
      }
      for (std::size_t end = child.unread.find('\n'); end != std::string::npos; end = child.unread.find('\n')) {
        hear(child, child.unread.substr(0, end));
        child.unread.erase(0, end + 1);
      }
    }
  }

  void hear(Child& child, const std::string& line) {
    std::istringstream words(line);
    std::string word;
    words >> word;
    if (word == "bad" || word == "error") {
      const std::string message = line.substr(std::min(word.size() + 1, line.size()));
      (word == "bad" ? child.bad : child.error) = message;
    } else if (word == "step") {
      StepReport report;
      words >> report.step >> report.loss >> report.time.value;
      if (options_.on_step) options_.on_step(report);
    } else if (word == "check") {
      CheckReport report;
      words >> report.step >> report.difference >> report.bound >> std::ws;
      std::getline(words, report.name);
      if (options_.on_check) options_.on_check(report);
    }
  }

  void reap() {
    for (Child& child : children_)
      if (!child.ended && ::waitpid(child.pid, &child.status, WNOHANG) == child.pid) child.ended = true;
  }

  // A rank that makes no progress for the timeout though it waits for nobody; ranks that wait end by themselves. All
  // waiting for as long: the one that is furthest behind.
  std::optional<int> hanging() {
    const auto now = Clock::now();
    bool all_still = true;
    int behind = -1;
    for (std::size_t i = 0; i < children_.size(); ++i) {
      Child& child = children_[i];
      const ProgressSlot& slot = page_.of(static_cast<int>(i));
      if (const std::uint64_t beats = slot.beats; beats != child.beats || child.ended) {
        child.beats = beats;
        child.moved = now;
      }
      const std::chrono::duration<double> still = now - child.moved;
      if (child.ended || still.count() < options_.timeout.value + 2) {
        all_still = false;
        continue;
      }
      if (behind < 0 || child.beats < children_[static_cast<std::size_t>(behind)].beats) behind = static_cast<int>(i);
      if (slot.waiting == 0 && slot.instruction != ProgressSlot::kNoInstruction) return static_cast<int>(i);
    }
    return all_still ? std::optional(behind) : std::nullopt;
  }

  std::string where(int rank) const {
    const ProgressSlot& slot = page_.of(rank);
    const std::uint32_t instruction = slot.instruction;
    if (slot.beats == 0) return "the start, before its first instruction";
    if (instruction >= bundle_.program.instructions.size())
      return fmt::format("step {}, saving or comparing", slot.step + 1);
    return fmt::format("step {}, micro-batch {}, {}", slot.step + 1, slot.micro_batch.load(),
                       described(bundle_.program, bundle_.graph, InstructionId(instruction)));
  }

  // The last lines that a rank wrote to stderr.
  std::string last_words(int rank) const {
    std::ifstream file(error_file(rank));
    std::string line, last;
    while (std::getline(file, line))
      if (!line.empty()) last = line;
    return last.empty() ? "" : "\n  it said: " + last.substr(0, 400);
  }

  std::string diagnosis(std::optional<int> hung) const {
    // A rank that aborts may have lost a peer in a thread of c10d, where no error can be told; any other signal, and an
    // exit without a word, is the rank's own end.
    for (const bool aborted : {false, true})
      for (std::size_t i = 0; i < children_.size(); ++i) {
        const Child& child = children_[i];
        const int rank = static_cast<int>(i);
        if (!child.ended || ended_well(child)) continue;
        if (WIFSIGNALED(child.status) && (WTERMSIG(child.status) == SIGABRT) == aborted)
          return fmt::format("rank {} was ended by signal {} ({}) at {}{}", rank, WTERMSIG(child.status),
                             ::strsignal(WTERMSIG(child.status)), where(rank), last_words(rank));
        if (WIFEXITED(child.status) && child.error.empty() && !aborted)
          return fmt::format("rank {} ended with exit code {} at {}{}", rank, WEXITSTATUS(child.status), where(rank),
                             last_words(rank));
      }
    // Ranks that wait in vain say so; the one they wait for says nothing.
    const auto falls_over_another = [](const std::string& message) {
      for (const char* sign : {"Timed out", "timed out", "timeout", "onnection", "reset by peer", "roken pipe"})
        if (message.find(sign) != std::string::npos) return true;
      return false;
    };
    for (std::size_t i = 0; i < children_.size(); ++i)
      if (const std::string& message = children_[i].error; !message.empty() && !falls_over_another(message))
        return fmt::format("rank {}: {}", i, message);
    for (const bool computing : {true, false})
      for (std::size_t i = 0; i < children_.size() && !hung; ++i)
        if (const Child& child = children_[i]; child.error.empty() && !child.ended)
          if (!computing || page_.of(static_cast<int>(i)).waiting == 0) hung = static_cast<int>(i);
    if (hung)
      return fmt::format("rank {} made no progress for {:.0f} s at {}", *hung, options_.timeout.value, where(*hung));
    for (std::size_t i = 0; i < children_.size(); ++i)
      if (!children_[i].error.empty()) return fmt::format("rank {}: {}", i, children_[i].error);
    return "a rank failed";
  }

  void end_all() {
    for (const Child& child : children_)
      if (!child.ended) {
        ::kill(child.pid, SIGTERM);
        ::kill(child.pid, SIGCONT);  // one that is stopped would not hear it
      }
    const auto begun = Clock::now();
    while (std::any_of(children_.begin(), children_.end(), [](const Child& each) { return !each.ended; })) {
      reap();
      if (Clock::now() - begun > std::chrono::seconds(2))
        for (const Child& child : children_)
          if (!child.ended) ::kill(child.pid, SIGKILL);
      ::poll(nullptr, 0, 10);
    }
  }

 public:
  static std::string progress_file(const std::string& directory) { return directory + "/progress"; }

 private:
  const Bundle& bundle_;
  const std::string directory_;
  const LaunchOptions& options_;
  ProgressPage page_;
  std::vector<Child> children_;
};

}  // namespace

Result<LaunchOutcome> launch(const Bundle& bundle, const std::string& directory, const LaunchOptions& options) {
  WEFT_TRY(ProgressPage page, ProgressPage::create(Launch::progress_file(directory), bundle.world_size()));
  WEFT_TRY(const int port, free_port());
  const CatchInterrupts caught;
  const BusyLoops beside(options.beside, options.pinned);
  Launch ranks(bundle, directory, options, std::move(page));
  WEFT_TRY_OK(ranks.spawn_all(port));
  return ranks.watch();
}

Result<std::string> rank_program() {
  char path[4096];
  const ssize_t length = ::readlink("/proc/self/exe", path, sizeof path - 1);
  if (length <= 0) return error("/proc/self/exe: {}", std::strerror(errno));
  std::string found(path, static_cast<std::size_t>(length));
  found = found.substr(0, found.rfind('/') + 1) + "weft-rank";
  if (::access(found.c_str(), X_OK) != 0)
    return error(
        "{} is not there: this weft was built without libtorch; install libtorch-dev and libgloo-dev and build it "
        "again",
        found);
  return found;
}

}  // namespace weft::runtime
