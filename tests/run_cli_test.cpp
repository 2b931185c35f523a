// `weft run` as a person and as a launcher meets it: processes that train, that are killed, stopped and interrupted.
#include <arpa/inet.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <thread>

#include "json_schema.h"

namespace {

using testing::HasSubstr;

const char* const kModel = "gpt2-124m:layers=2,hidden=32,heads=4,vocab=256,dropout=0.1";  // tables that no stack pads

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

std::vector<std::string> words(const std::string& strategy, int ranks, std::vector<std::string> more = {}) {
  std::vector<std::string> list = {"run",   "--model", kModel, "--strategy", strategy, "--ranks", std::to_string(ranks),
                                   "--seq", "16"};
  for (std::size_t i = 0; i < more.size(); ++i)
    if (more[i] == "--model")
      list[2] = more[++i];
    else
      list.push_back(more[i]);
  return list;
}

bool is_gone(pid_t pid) { return ::kill(pid, 0) != 0 && errno == ESRCH; }

// Trains on and on; its ranks, once they are at it.
std::vector<pid_t> ranks_at_work(const Process& process) {
  EXPECT_TRUE(Process::eventually([&] { return process.text().find("step 2 ") != std::string::npos; }))
      << process.text();
  return process.children();
}
void expect_gone(const std::vector<pid_t>& ranks) {
  for (pid_t rank : ranks) EXPECT_TRUE(Process::eventually([&] { return is_gone(rank); })) << rank;
}

std::vector<double> losses(const std::string& strategy, int ranks, const char* model = kModel) {
  Process process(words(
      strategy, ranks,
      {"--model", model, "--steps", "3", "--global-batch", "8", "--json", "--dtype", "fp64", "--check", "--timing"}));
  EXPECT_EQ(process.wait(), 0) << process.text();
  const nlohmann::json json = nlohmann::json::parse(process.text());
  std::ifstream schema(std::filesystem::path(std::getenv("WEFT_SOURCE_DIR")) / "docs/schema/run.schema.json");
  EXPECT_EQ(weft::departures(json, nlohmann::json::parse(schema)), std::vector<std::string>{});
  EXPECT_EQ(json["ranks"], ranks);
  for (const auto& check : json["check"]) EXPECT_TRUE(check["ok"]) << check;
  EXPECT_EQ(json["check"].size(), 3U);
  std::vector<double> list;
  for (const auto& step : json["steps"]) list.push_back(step["loss"]);
  return list;
}

TEST(RunCommand, EveryStrategyHasOneLossCurve) {
  const std::vector<double> one = losses("dp=1", 1);
  ASSERT_EQ(one.size(), 3U);
  for (const auto& [strategy, ranks] : {std::pair{"tp=2", 2}, {"pp=2,dp=2", 4}, {"dp=2,zero=3", 2}}) {
    const std::vector<double> other = losses(strategy, ranks);
    ASSERT_EQ(other.size(), 3U);
    for (std::size_t i = 0; i < one.size(); ++i) EXPECT_NEAR(other[i], one[i], 1e-9) << strategy << " step " << i + 1;
  }
}

// Tokens lie in zigzag order there, so masks, which go by place, fall on others; without them all is the same.
TEST(RunCommand, ContextParallelismHasTheSameLossCurve) {
  const char* const model = "gpt2-124m:layers=2,hidden=32,heads=4,vocab=256,dropout=0";
  const std::vector<double> one = losses("dp=1", 1, model), other = losses("cp=2", 2, model);
  ASSERT_EQ(other.size(), one.size());
  for (std::size_t i = 0; i < one.size(); ++i) EXPECT_NEAR(other[i], one[i], 1e-9) << "step " << i + 1;
}

// A text of period 7: a model that learns has half of the loss of one that guesses, ln 256, in a few steps.
TEST(RunCommand, TrainsOnTokensOfAFile) {
  const std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("weft-tokens-" + std::to_string(::getpid()));
  std::ofstream file(path, std::ios::binary);
  for (std::uint16_t i = 0; i < 2000; ++i) {
    const std::uint16_t token = i % 7;
    file.write(reinterpret_cast<const char*>(&token), sizeof token);
  }
  file.close();
  Process process(words("dp=2", 2, {"--steps", "20", "--lr", "0.01", "--global-batch", "8", "--json", "--data", path}));
  EXPECT_EQ(process.wait(), 0) << process.text();
  const nlohmann::json json = nlohmann::json::parse(process.text());
  EXPECT_LT(json["steps"].back()["loss"].get<double>(), 0.5 * std::log(256));
  std::ofstream(path, std::ios::binary) << std::string(64, 'z');
  Process beyond(words("dp=2", 2, {"--data", path}));
  EXPECT_EQ(beyond.wait(), 2);
  EXPECT_THAT(beyond.text(), HasSubstr("token 31354 at 0 is beyond the vocabulary of 256"));  // 'z' is 122: 122·257
  std::ofstream(path, std::ios::binary) << std::string(4, '\0');
  Process too_short(words("dp=2", 2, {"--data", path}));
  EXPECT_EQ(too_short.wait(), 2);
  EXPECT_THAT(too_short.text(), HasSubstr("has 2 tokens of 16 bits; a sample takes 16, and one more to predict"));
  std::filesystem::remove(path);
}

// Two stages of two ranks: the trace has a predicted and a measured process of each, with every computation that is predicted.
TEST(RunCommand, ShowsThePredictionBesideWhatRanksMeasured) {
  const std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("weft-trace-" + std::to_string(::getpid()) + ".json");
  Process process(words("tp=2,pp=2", 4, {"--steps", "3", "--global-batch", "4", "--json", "--trace", path}));
  ASSERT_EQ(process.wait(), 0) << process.text();
  const nlohmann::json json = nlohmann::json::parse(process.text());
  std::ifstream schema(std::filesystem::path(std::getenv("WEFT_SOURCE_DIR")) / "docs/schema/run.schema.json");
  EXPECT_EQ(weft::departures(json, nlohmann::json::parse(schema)), std::vector<std::string>{});
  const nlohmann::json& compared = json["comparison"];
  EXPECT_EQ(compared["measured_steps_s"].size(), 2U);  // after the first
  EXPECT_EQ(compared["instructions"].size(), 8U);
  ASSERT_EQ(compared["ranks"].size(), 4U);
  for (const nlohmann::json& rank : compared["ranks"]) {
    for (const char* side : {"predicted", "measured"}) {
      double sum = 0;
      for (const auto& [part, time] : rank[std::string(side) + "_s"].items()) sum += time.get<double>();
      EXPECT_NEAR(sum, compared[std::string(side) + "_step_s"].get<double>(), 1e-9) << side;
    }
    // Processes of one machine have one clock.
    EXPECT_LE(std::abs(rank["clock_ahead_s"].get<double>()), rank["clock_round_trip_s"].get<double>() / 2 + 1e-9);
    const auto predicted = rank["predicted_peak_bytes"].get<double>();
    EXPECT_GE(rank["measured_peak_bytes"].get<double>(), 0.8 * predicted);
    EXPECT_LE(rank["measured_peak_bytes"].get<double>(), 2 * predicted);
  }
  std::ifstream file(path);
  const nlohmann::json trace = nlohmann::json::parse(file);
  std::map<int, std::multiset<std::string>> computed;  // by process
  for (const nlohmann::json& event : trace["traceEvents"])
    if (event["ph"] == "X" && (event["cat"] == "compute" || event["cat"] == "optimizer"))
      computed[event["pid"]].insert(event["name"]);
  EXPECT_EQ(computed.size(), 8U);
  for (int rank = 0; rank < 4; ++rank) {  // some are predicted to take no time and are not drawn
    EXPECT_GT(computed[rank].size(), 100U);
    EXPECT_TRUE(std::includes(computed[rank + 4].begin(), computed[rank + 4].end(), computed[rank].begin(),
                              computed[rank].end()))
        << rank;
  }
  std::filesystem::remove(path);
}

TEST(RunCommand, BadInputIsToldOnceWithExitCode2) {
  struct Case {
    std::vector<std::string> words;
    const char* message;
  };
  for (const Case& each : std::vector<Case>{
           {words("tp=2", 3), "do not divide"},
           {{"run"}, "--model or a plan.json is required"},
           {words("tp=2", 2, {"--steps", "0"}), "--steps 0: at least 1"},
           {words("tp=2", 2, {"--dtype", "fp7"}), "--dtype 'fp7'"},
           {words("tp=2", 2, {"--bundle", "/nowhere/run.weft"}), "--bundle"},
           {{"run", "/nowhere/plan.json", "--ranks", "2"}, "/nowhere/plan.json"},
           {words("tp=2", 2, {"--trace", "/nowhere/t.json"}), "--trace"},
           {words("tp=2", 2, {"--compare", "--cost", "measured"}), "--cost measured: add --db FILE"},
           {words("tp=2", 2, {"--cost", "measured", "--db", "here.db"}), "say how --compare or --trace FILE predicts"},
           {words("tp=2", 2, {"--compare", "--cost", "symbolic"}), "its times are no seconds"},
       }) {
    Process process(each.words);
    EXPECT_EQ(process.wait(), 2) << process.text();
    EXPECT_THAT(process.text(), HasSubstr(each.message));
  }
}

TEST(RunCommand, ARankThatIsKilledEndsTheRunAndIsNamed) {
  Process process(words("tp=2,dp=2", 4, {"--steps", "1000000"}));
  const std::vector<pid_t> ranks = ranks_at_work(process);
  ASSERT_EQ(ranks.size(), 4U);
  ::kill(ranks[2], SIGKILL);
  EXPECT_EQ(process.wait(), 1);
  EXPECT_THAT(process.text(), HasSubstr("rank 2 was ended by signal 9 (Killed) at step"));
  EXPECT_THAT(process.text(), HasSubstr("#"));
  expect_gone(ranks);
}

TEST(RunCommand, ARankThatHangsEndsTheRunAndIsNamed) {
  Process process(words("tp=2", 2, {"--steps", "1000000", "--timeout", "3"}));
  const std::vector<pid_t> ranks = ranks_at_work(process);
  ASSERT_EQ(ranks.size(), 2U);
  ::kill(ranks[1], SIGSTOP);
  EXPECT_EQ(process.wait(), 1);
  EXPECT_THAT(process.text(), HasSubstr("rank 1 made no progress for 3 s at step"));
  expect_gone(ranks);
}

TEST(RunCommand, AnInterruptEndsAllRanks) {
  Process process(words("dp=2", 2, {"--steps", "1000000"}));
  const std::vector<pid_t> ranks = ranks_at_work(process);
  ::kill(process.pid(), SIGINT);
  EXPECT_EQ(process.wait(), 128 + SIGINT);
  EXPECT_THAT(process.text(), HasSubstr("interrupted at step"));
  expect_gone(ranks);
}

TEST(RunCommand, RanksDieWithTheirLauncher) {
  Process process(words("dp=2", 2, {"--steps", "1000000"}));
  const std::vector<pid_t> ranks = ranks_at_work(process);
  ::kill(process.pid(), SIGKILL);
  EXPECT_EQ(process.wait(), 128 + SIGKILL);
  expect_gone(ranks);
}

int free_port() {
  const int listener = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  ::bind(listener, reinterpret_cast<sockaddr*>(&address), size);
  ::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size);
  ::close(listener);
  return ntohs(address.sin_port);
}

TEST(RunCommand, VariablesOfOtherLaunchersAreHonoured) {
  const std::string port = "MASTER_PORT=" + std::to_string(free_port());
  const auto started = [&](const char* rank) {
    return std::make_unique<Process>(
        words("tp=2", 2, {"--steps", "2", "--check"}),
        std::vector<std::string>{std::string("OMPI_COMM_WORLD_RANK=") + rank, "OMPI_COMM_WORLD_SIZE=2", port});
  };
  const auto first = started("0"), second = started("1");
  EXPECT_EQ(first->wait(), 0) << first->text();
  EXPECT_EQ(second->wait(), 0) << second->text();
  EXPECT_THAT(first->text(), HasSubstr("step 2  loss"));
  EXPECT_EQ(second->text(), "");
}

TEST(RunCommand, AWorldOfAnotherSizeIsRefused) {
  Process process(words("tp=2", 2), {"RANK=0", "WORLD_SIZE=3"});
  EXPECT_EQ(process.wait(), 2);
  EXPECT_THAT(process.text(), HasSubstr("--ranks 2: the launcher has started 3"));
}

}  // namespace
