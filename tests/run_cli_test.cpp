// `weft run` as a person and as a launcher meets it: processes that train, that are killed, stopped and interrupted.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <sys/socket.h>
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
#include "run_process.h"

namespace weft {
namespace {

using testing::HasSubstr;

int times(const std::string& text, const std::string& word) {
  int count = 0;
  for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++count;
  return count;
}

std::vector<double> losses(const std::string& strategy, int ranks, const char* model = kModel) {
  Process process(words(
      strategy, ranks,
      {"--model", model, "--steps", "3", "--global-batch", "8", "--json", "--dtype", "fp64", "--check", "--timing"}));
  EXPECT_EQ(process.wait(), 0) << process.text();
  const nlohmann::json json = nlohmann::json::parse(process.text());
  std::ifstream schema(std::filesystem::path(std::getenv("WEFT_SOURCE_DIR")) / "docs/schema/run.schema.json");
  EXPECT_EQ(departures(json, nlohmann::json::parse(schema)), std::vector<std::string>{});
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

TEST(RunCommand, NarrowNumbersTrainAsOnOneDevice) {
  Process process(words("tp=2", 2, {"--dtype", "bf16", "--cluster", "dgx-a100:1", "--steps", "3", "--check"}));
  EXPECT_EQ(process.wait(), 0) << process.text();
}

TEST(ProfileMeasure, PlaysPlansOnceAndPredictsThemFromWhatItMeasured) {
  const std::filesystem::path directory = std::filesystem::temp_directory_path() / "weft-profile-measure-test";
  std::filesystem::remove_all(directory);
  std::filesystem::create_directories(directory);
  const std::string database = directory / "here.db", cluster = directory / "here.yaml";
  const std::vector<std::string> plan = {"--model", kModel, "--seq", "16", "--global-batch", "4", "--dtype", "fp32"};
  const auto json_of = [](std::vector<std::string> words, const std::vector<std::string>& more) {
    words.insert(words.end(), more.begin(), more.end());
    words.push_back("--json");
    Process process(words);
    EXPECT_EQ(process.wait(), 0) << process.text();
    return nlohmann::json::parse(process.text(), nullptr, false);
  };
  const std::vector<std::string> measure = {"profile",    "measure", "--ranks",       "2",     "--budget",   "8s",
                                            "--db",       database,  "--cluster-out", cluster, "--strategy", "tp=2",
                                            "--strategy", "pp=2"};
  const nlohmann::json first = json_of(measure, plan);
  EXPECT_EQ(first["left"], 0) << first;
  EXPECT_EQ(first["measured"], first["events"]);
  const nlohmann::json again = json_of(measure, plan);
  EXPECT_EQ(again["measured"], 0) << again;
  EXPECT_EQ(again["measured_before"], first["events"]);
  for (const char* strategy : {"tp=2", "pp=2"}) {
    const nlohmann::json simulated = json_of({"simulate", "--strategy", strategy, "--devices", "2", "--cluster",
                                              cluster, "--stack", "weft", "--cost", "measured", "--db", database},
                                             plan);
    EXPECT_EQ(simulated["evidence"]["time_share"]["model"], 0) << strategy << simulated["evidence"];
  }
  std::filesystem::remove_all(directory);
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
           {words("tp=2", 2, {"--dtype", "fp8", "--cluster", "dgx-h100:1"}), "no kernels for fp8 products"},
           {words("tp=2", 2, {"--bundle", "/nowhere/run.weft"}), "--bundle"},
           {{"run", "/nowhere/plan.json", "--ranks", "2"}, "/nowhere/plan.json"},
           {words("tp=2", 2, {"--threads", "1,2,3"}), "--threads 1,2,3: 3 numbers for 2 ranks"},
           {words("tp=2", 2, {"--threads", "0"}), "'0' is not a number from 1 to 1024"},
           {words("tp=2", 2, {"--pin", "first"}), "'first' is no core and no range of cores"},
           {words("tp=2", 2, {"--pin", "0,1000"}), "--pin 0,1000: core"},
           {words("tp=2", 2, {"--save-every", "2"}), "--save-every: --save DIR says where"},
           {words("tp=2", 2, {"--backend", "mpi"}), "--backend"},
           {words("tp=2", 2, {"--data", "/nowhere/tokens"}), "/nowhere/tokens: No such file"},
           {words("tp=2", 2, {"--trace", "/nowhere/t.json"}), "--trace"},
           {words("tp=2", 2, {"--compare", "--cost", "measured"}), "--cost measured: add --db FILE"},
           {words("tp=2", 2, {"--cost", "measured", "--db", "here.db"}), "say how --compare or --trace FILE predicts"},
           {words("tp=2", 2, {"--compare", "--cost", "symbolic"}), "its times are no seconds"},
       }) {
    Process process(each.words);
    EXPECT_EQ(process.wait(), 2) << process.text();
    EXPECT_THAT(process.text(), HasSubstr(each.message));
    EXPECT_EQ(times("\n" + process.text(), "\nweft: "), 1) << process.text();
  }
}

TEST(RunCommand, MoreRanksThanThePlanHasAreRefused) {
  const std::filesystem::path out =
      std::filesystem::temp_directory_path() / ("weft-plan-" + std::to_string(::getpid()));
  Process planned({"plan", "--model", kModel, "--seq", "16", "--global-batch", "8", "--cluster", "cpu-node:1",
                   "--devices", "2", "--out", out});
  ASSERT_EQ(planned.wait(), 0) << planned.text();
  Process process({"run", out / "plan.json", "--ranks", "4"});
  EXPECT_EQ(process.wait(), 2);
  EXPECT_THAT(process.text(), HasSubstr("--ranks 4: the plan is for 2 ranks"));
  EXPECT_EQ(times("\n" + process.text(), "\nweft: "), 1) << process.text();
  std::filesystem::remove_all(out);
}

// Ranks are made by another program, which a weft that was built without libtorch does not have beside it.
TEST(RunCommand, AMissingBackendIsToldWithTheRemedy) {
  const std::filesystem::path alone =
      std::filesystem::temp_directory_path() / ("weft-alone-" + std::to_string(::getpid()));
  std::filesystem::create_directory(alone);
  std::filesystem::copy_file(std::getenv("WEFT_BIN"), alone / "weft");
  Process process(words("tp=2", 2), {}, (alone / "weft").c_str());
  EXPECT_EQ(process.wait(), 2);
  EXPECT_THAT(process.text(), HasSubstr("this weft was built without libtorch; install libtorch-dev and libgloo-dev"));
  std::filesystem::remove_all(alone);
  Process nowhere(words("tp=2", 2), {"GLOO_SOCKET_IFNAME=nowhere"});
  EXPECT_EQ(nowhere.wait(), 2);
  EXPECT_THAT(nowhere.text(), HasSubstr("GLOO_SOCKET_IFNAME=nowhere: this machine has no such network interface"));
  EXPECT_EQ(times("\n" + nowhere.text(), "\nweft: "), 1) << nowhere.text();
}

// Unequal devices on purpose: each rank has its cores and its threads.
TEST(RunCommand, RanksHaveTheCoresAndThreadsTheyAreGiven) {
  cpu_set_t set;
  ASSERT_EQ(::sched_getaffinity(0, sizeof set, &set), 0);
  int core = 0;
  while (!CPU_ISSET(core, &set)) ++core;
  const std::string one = std::to_string(core);
  Process process(words("dp=2", 2, {"--steps", "1000000", "--pin", one + "," + one, "--threads", "1,3"}));
  const std::vector<pid_t> ranks = ranks_at_work(process);
  ASSERT_EQ(ranks.size(), 2U);
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const std::string of = "/proc/" + std::to_string(ranks[rank]);
    std::ifstream status(of + "/status"), environment(of + "/environ");
    EXPECT_THAT(std::string(std::istreambuf_iterator<char>(status), {}),
                HasSubstr("Cpus_allowed_list:\t" + one + "\n"));
    EXPECT_THAT(std::string(std::istreambuf_iterator<char>(environment), {}),
                HasSubstr(rank == 0 ? "OMP_NUM_THREADS=1" : "OMP_NUM_THREADS=3"));
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

  const std::filesystem::path bundle =
      std::filesystem::temp_directory_path() / ("weft-bundle-" + std::to_string(::getpid()));
  Process written(words("tp=2", 2, {"--bundle", bundle}));
  ASSERT_EQ(written.wait(), 0) << written.text();
  const std::string rank = (std::filesystem::path(std::getenv("WEFT_BIN")).parent_path() / "weft-rank").string();
  for (const char* which : {"RANK=0", "RANK=2"}) {  // one of them says it
    Process started({bundle}, {which, "WORLD_SIZE=3"}, rank.c_str());
    EXPECT_EQ(started.wait(), 2);
    EXPECT_EQ(times(started.text(), "is for 2 ranks, and 3 were started"), which == std::string("RANK=0") ? 1 : 0);
  }
  std::filesystem::remove(bundle);
}

TEST(RunCommand, APortInUseIsToldWithTheRemedy) {
  const int listener = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  socklen_t size = sizeof address;
  ASSERT_EQ(::bind(listener, reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size), 0);
  ASSERT_EQ(::listen(listener, 1), 0);
  Process process(words("tp=2", 2),
                  {"RANK=0", "WORLD_SIZE=2", "MASTER_PORT=" + std::to_string(ntohs(address.sin_port))});
  EXPECT_EQ(process.wait(), 2);
  EXPECT_EQ(times(process.text(), "the port is in use; set MASTER_PORT to a free one"), 1) << process.text();
  ::close(listener);
}

}  // namespace
}  // namespace weft
