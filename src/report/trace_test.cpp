// The trace-event format, as viewers read it:
// https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
#include "report/trace.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "cost/analytic.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

struct Played {
  Plan plan;
  PlayedPlan played;
};
Played play(const PlanRequest& request) {
  Plan plan = make_plan(request).value();
  PlayedPlan played = play_plan(plan, AnalyticCost(plan.stack()), {.record = true}).value();
  return {std::move(plan), std::move(played)};
}

std::string read(const fs::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

class Trace : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(::testing::TempDir()) / ("weft_trace_" + std::to_string(::getpid()));
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  std::size_t files() const {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()));
  }
  std::string traced(const Played& of, const TraceOptions& options = {}) const {
    WholeFile file = WholeFile::create(path("t.json")).value();
    EXPECT_TRUE(write_trace(file, of.plan, of.played, options).ok());
    EXPECT_TRUE(file.finish().ok());
    return read(path("t.json"));
  }

  fs::path folder_;
};

// Picoseconds of a time in microseconds, which the text has exactly.
std::int64_t picoseconds(const Json& time) { return std::llround(time.get<double>() * 1e6); }

void check_structure(const Json& trace, const Played& of) {
  ASSERT_TRUE(trace["traceEvents"].is_array());
  std::map<std::pair<int, int>, std::vector<std::pair<std::int64_t, std::int64_t>>> slices;
  std::map<std::pair<int, int>, std::vector<std::pair<double, double>>> as_read;  // by viewers: sums of doubles
  std::map<std::int64_t, std::vector<Json>> flows;
  std::map<int, std::int64_t> counted;
  std::set<std::pair<int, int>> named;
  std::set<int> processes;
  for (const Json& event : trace["traceEvents"]) {
    ASSERT_TRUE(event["ph"].is_string() && event["pid"].is_number_integer() && event["tid"].is_number_integer() &&
                event["name"].is_string())
        << event;
    const std::string phase = event["ph"];
    const int pid = event["pid"], tid = event["tid"];
    if (phase == "M") {
      ASSERT_TRUE(event["args"].is_object()) << event;
      if (event["name"] == "process_name") processes.insert(pid);
      if (event["name"] == "thread_name") named.emplace(pid, tid);
      continue;
    }
    ASSERT_TRUE(event["ts"].is_number()) << event;
    const std::int64_t time = picoseconds(event["ts"]);
    ASSERT_GE(time, 0);
    ASSERT_LE(time, of.played.run.makespan);
    if (phase == "X") {
      ASSERT_TRUE(event["dur"].is_number()) << event;
      const std::int64_t length = picoseconds(event["dur"]);
      ASSERT_GT(length, 0) << event;
      ASSERT_LE(time + length, of.played.run.makespan);
      ASSERT_TRUE(named.contains({pid, tid})) << event;
      slices[{pid, tid}].emplace_back(time, time + length);
      const double start = event["ts"], duration = event["dur"];
      as_read[{pid, tid}].emplace_back(start, start + duration);
    } else if (phase == "s" || phase == "f") {
      ASSERT_TRUE(event["id"].is_number_integer()) << event;
      flows[event["id"]].push_back(event);
    } else {
      ASSERT_EQ(phase, "C") << event;
      ASSERT_GE(time, counted[pid]) << "counters go forward in time";
      counted[pid] = time;
      for (const auto& [kind, bytes] : event["args"].items()) ASSERT_GE(bytes.get<std::int64_t>(), 0) << kind;
    }
  }
  EXPECT_FALSE(slices.empty());
  for (auto& [thread, list] : slices) {
    ASSERT_TRUE(processes.contains(thread.first));
    std::sort(list.begin(), list.end());
    for (std::size_t i = 1; i < list.size(); ++i)  // slices of a stream do not overlap
      ASSERT_GE(list[i].first, list[i - 1].second) << thread.first << " " << thread.second;
  }
  for (auto& [thread, list] : as_read) {
    std::sort(list.begin(), list.end());
    for (std::size_t i = 1; i < list.size(); ++i) ASSERT_GE(list[i].first, list[i - 1].second);
  }
  for (const auto& [id, ends] : flows) {
    ASSERT_EQ(ends.size(), 2u) << id;
    const Json& start = ends[0]["ph"] == "s" ? ends[0] : ends[1];
    const Json& finish = ends[0]["ph"] == "s" ? ends[1] : ends[0];
    EXPECT_EQ(finish["ph"], "f");
    EXPECT_EQ(finish["bp"], "e");
    EXPECT_LE(picoseconds(start["ts"]), picoseconds(finish["ts"]));
    for (const Json& end : ends) {  // must be in a slice of its thread
      const auto& list = slices[{end["pid"], end["tid"]}];
      const std::int64_t time = picoseconds(end["ts"]);
      EXPECT_TRUE(std::any_of(list.begin(), list.end(),
                              [&](const auto& slice) { return slice.first <= time && time < slice.second; }));
    }
  }
}

TEST_F(Trace, IsInTheFormatThatViewersRead) {
  const std::vector<PlanRequest> requests = {
      {.model = "gpt2-124m:layers=4", .cluster = "dgx-a100:1", .strategy = "tp=2,pp=2,dp=2,zero=1,ga=4"},
      {.model = "gpt2-124m:layers=8", .cluster = "dgx-a100:2", .strategy = "pp=4,vpp=2,dp=4,ga=4"},
      {.model = "gpt2-124m:layers=2", .cluster = "dgx1-v100:1+p100x8:1", .strategy = "tp=2,dp=8", .global_batch = 8},
      {.model = "mixtral-8x7b:layers=1", .cluster = "dgx-h100:1", .strategy = "ep=8", .seq = 256},
      {.model = "gpt3-13b", .cluster = "k80x4:1", .strategy = "pp=4,ga=8", .dtype = "fp32"},  // takes minutes
  };
  for (const PlanRequest& request : requests) {
    const Played of = play(request);
    check_structure(Json::parse(traced(of)), of);
    check_structure(Json::parse(traced(of, {.ranks = {0, 3, 2}})), of);
    check_structure(Json::parse(traced(of, {.most_tasks = 100})), of);
  }
}

TEST_F(Trace, HasTheTasksTheFlowsAndThePeakOfMemory) {
  const Played of =
      play({.model = "gpt2-124m:layers=4", .cluster = "dgx-a100:1", .strategy = "tp=2,pp=2,dp=2,zero=1,ga=4"});
  const Json trace = Json::parse(traced(of));
  const std::vector<AgentId> agents = representatives(of.plan, of.played);
  ASSERT_EQ(agents.size(), 2u);  // a stage each
  std::int64_t tasks = 0, written = 0, starts = 0, transfers = 0, peak = 0;
  for (AgentId agent : agents) {
    const Timeline timeline(of.played.priced.workload, of.played.run);
    timeline.for_each(agent, [&](const Span& span) { tasks += span.work < span.end ? 1 : 0; });
  }
  std::set<std::string> names;
  for (const Json& event : trace["traceEvents"]) {
    if (event["ph"] == "M" && event["name"] == "process_name") names.insert(event["args"]["name"]);
    if (event["ph"] == "s") ++starts;
    if (event["ph"] == "X" && event["tid"] != 0 && event["cat"] != "host" && event["cat"] != "wait") {
      ++written;
      ASSERT_TRUE(event["args"]["micro_batch"].is_number_integer()) << event;
      const std::string name = event["name"];
      if (name.starts_with("send ")) ++transfers;
    }
    if (event["ph"] == "C" && event["pid"] == 0) {
      std::int64_t held = 0;
      for (const auto& [kind, bytes] : event["args"].items()) held += bytes.get<std::int64_t>();
      peak = std::max(peak, held);
    }
  }
  EXPECT_EQ(written, tasks);
  EXPECT_EQ(names, (std::set<std::string>{"stage 0 · ranks 0–3 · node 0", "stage 1 · ranks 4–7 · node 0"}));
  EXPECT_GT(transfers, 0);
  EXPECT_GE(starts, transfers);  // every send is connected to its receive
  const Forecast found = judge(of.plan, of.played, {.record = true});
  EXPECT_EQ(peak, found.memory[0].allocated.total().value);
}

TEST_F(Trace, TimesHaveEveryPicosecond) {
  const Played of = play({.model = "gpt2-124m:layers=1", .cluster = "dgx-a100:1", .strategy = "dp=8"});
  const std::string text = traced(of);
  std::set<Picoseconds> starts;
  const Timeline timeline(of.played.priced.workload, of.played.run);
  timeline.for_each(AgentId(0), [&](const Span& span) { starts.insert(span.work); });
  const Json trace = Json::parse(text);
  std::size_t computations = 0, fractions = 0;
  for (const Json& event : trace["traceEvents"]) {
    if (event["ph"] != "X" || event["tid"] != 1) continue;
    ++computations;
    EXPECT_TRUE(starts.contains(picoseconds(event["ts"]))) << event;
    fractions += picoseconds(event["ts"]) % 1000 != 0 ? 1u : 0u;
  }
  EXPECT_GT(computations, 50u);
  EXPECT_GT(fractions, 0u);  // below a nanosecond
}

TEST_F(Trace, IsTheSameTwice) {
  const PlanRequest request{
      .model = "gpt2-124m:layers=4", .cluster = "dgx-a100:1", .strategy = "tp=2,pp=2,dp=2,zero=1,ga=4"};
  EXPECT_EQ(traced(play(request)), traced(play(request)));
}

TEST_F(Trace, BeyondAFewTasksTellsBodies) {
  const Played of = play({.model = "gpt2-124m:layers=4", .cluster = "dgx-a100:1", .strategy = "pp=2,dp=4,ga=16"});
  WholeFile file = WholeFile::create(path("short.json")).value();
  const TraceCounts few = write_trace(file, of.plan, of.played, {.most_tasks = 2000}).value();
  ASSERT_TRUE(file.finish().ok());
  EXPECT_LT(few.detailed_micro_batches, 16);
  EXPECT_GE(few.detailed_micro_batches, 2);  // the first and the last
  std::set<std::string> bodies;
  std::int64_t sends = 0;
  const Json trace = Json::parse(read(path("short.json")));
  for (const Json& event : trace["traceEvents"]) {
    if (event["ph"] != "X" || event["pid"] != 0) continue;
    if (event["tid"] == 0) bodies.insert(event["name"]);
    if (event["cat"] == "pipeline" && event["name"].get<std::string>().starts_with("send layers.")) ++sends;
  }
  EXPECT_EQ(bodies.size(), 2 * 16u + 1);  // forward and backward of every micro-batch, and the step
  EXPECT_EQ(sends, 16);                   // transfers between stages are always written
}

TEST_F(Trace, StopsWhenAsked) {
  const Played of = play({.model = "gpt2-124m:layers=4", .cluster = "dgx-a100:1", .strategy = "pp=2,dp=4,ga=16"});
  {
    WholeFile file = WholeFile::create(path("t.json")).value();
    EXPECT_FALSE(write_trace(file, of.plan, of.played, {.ranks = {8}}).ok());
    EXPECT_FALSE(write_trace(file, of.plan, of.played, {.progress = [](double) { return false; }}).ok());
  }
  EXPECT_EQ(files(), 0u);
}

TEST(TraceRanks, AreNumbersAndRanges) {
  EXPECT_EQ(parse_ranks("0,8,2-4", 16).value(), (std::vector<std::int64_t>{0, 2, 3, 4, 8}));
  EXPECT_EQ(parse_ranks("all", 3).value(), (std::vector<std::int64_t>{0, 1, 2}));
  for (const char* bad : {"", "x", "1-", "-1", "16", "4-2", "1,,2", "0-16"})
    EXPECT_FALSE(parse_ranks(bad, 16).ok()) << bad;
}

}  // namespace
}  // namespace weft
