// Timelines that are made from a prediction part from it where they were changed, and nowhere else.
#include "validate/run_comparison.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/whole_file.h"
#include "cost/analytic.h"
#include "report/trace.h"

namespace weft {
namespace {

using runtime::RankTimeline;
using testing::HasSubstr;

struct Predicted {
  Plan plan;
  PlayedPlan played;
  Forecast forecast;
};

// Two stages of two ranks each.
Predicted predict() {
  Plan plan = make_plan({.model = "gpt2-124m:layers=2,hidden=32,heads=4,vocab=64",
                         .cluster = "cpu-node:1",
                         .strategy = "tp=2,pp=2",
                         .global_batch = 4,
                         .seq = 16,
                         .dtype = "fp32",
                         .device_count = 4,
                         .stack = "weft"})
                  .value();
  const ForecastOptions options{.fold = false, .record = true};
  PlayedPlan played = play_plan(plan, AnalyticCost(plan.stack()), options).value();
  Forecast forecast = judge(plan, played, options);
  return {std::move(plan), std::move(played), std::move(forecast)};
}

// As if ranks had taken exactly as long as predicted; whole nanoseconds.
std::vector<RankTimeline> as_predicted(const Predicted& of, int steps = 2) {
  const Workload& workload = of.played.priced.workload;
  const Timeline timeline(workload, of.played.run);
  std::vector<RankTimeline> ranks;
  for (AgentId agent : workload.agents.ids()) {
    RankTimeline& rank = ranks.emplace_back();
    rank.rank = static_cast<int>(agent.index());
    runtime::RecordedStep step{
        .begin = 0, .end = of.played.run.makespan / 1000, .clock = {}, .peak = {1000}, .issued = {}, .waits = {}};
    timeline.for_each(agent, [&](const Span& span) {
      const InstructionId id(span.instruction);
      const bool computes = of.played.compiled.program.instructions[id].stream == Stream::Compute;
      const runtime::Nanoseconds begin = span.start / 1000, end = span.end / 1000;
      step.issued.push_back(
          {id, workload.agents[agent].plays[span.play].micro_batch, begin, computes ? end : begin, end, {500}});
      if (!computes) step.waits.push_back({static_cast<std::uint32_t>(step.issued.size() - 1), begin, end, end});
    });
    for (int i = 0; i < steps; ++i) {
      step.step = i;
      rank.steps.push_back(step);
    }
  }
  return ranks;
}

constexpr double kRounding = 1e-9;

TEST(RunComparison, WhatIsAsPredictedPartsNowhere) {
  const Predicted of = predict();
  const RunComparison same = compare_run(of.plan, of.played, of.forecast, as_predicted(of)).value();
  EXPECT_EQ(same.first_step, 1);  // the first is left out
  EXPECT_EQ(same.steps.size(), 1u);
  EXPECT_NEAR(same.measured.value, same.predicted.value, kRounding);
  ASSERT_EQ(same.ranks.size(), 4u);
  for (const RunComparison::Rank& rank : same.ranks) {
    const auto near = [&](Seconds RankParts::*part) {
      // Every task begins and ends up to a nanosecond early.
      EXPECT_NEAR((rank.measured.*part).value, (rank.predicted.*part).value, 1000 * kRounding);
    };
    for (auto part : {&RankParts::busy, &RankParts::communication, &RankParts::waiting, &RankParts::idle}) near(part);
    EXPECT_NEAR(
        (rank.predicted.busy + rank.predicted.communication + rank.predicted.waiting + rank.predicted.idle).value,
        same.predicted.value, kRounding);
    EXPECT_GT(rank.predicted.busy.value, 0);
    EXPECT_GT(rank.predicted_peak.value, 0);
    EXPECT_EQ(rank.measured_peak.value, 1000);
  }
  for (const InstructionTimes& each : same.instructions)
    EXPECT_NEAR(each.difference().value, 0, each.count * kRounding) << each.name << " " << each.sort;
}

TEST(RunComparison, ClocksThatDifferChangeNothing) {
  const Predicted of = predict();
  const std::vector<RankTimeline> plain = as_predicted(of);
  std::vector<RankTimeline> shifted = plain;
  for (RankTimeline& rank : shifted) {
    const runtime::Nanoseconds ahead = 5'000'000 * rank.rank - 3'000'000;
    for (runtime::RecordedStep& step : rank.steps) {
      step.clock.ahead = ahead;
      step.begin += ahead;
      step.end += ahead;
      for (auto& each : step.issued) each.begin += ahead, each.end += ahead, each.complete += ahead;
      for (auto& each : step.waits) each.begin += ahead, each.end += ahead, each.unpacked += ahead;
    }
  }
  EXPECT_EQ(measured_run(of.plan, of.played, shifted, 1).value().run,
            measured_run(of.plan, of.played, plain, 1).value().run);
}

// One operator of stage 0's two ranks takes 1 ms longer, in each of the two layers' … micro-batches.
TEST(RunComparison, TheInstructionThatTookLongerComesFirst) {
  const Predicted of = predict();
  const Program& program = of.played.compiled.program;
  const Graph& graph = of.plan.training().graph;
  std::vector<RankTimeline> slower = as_predicted(of);
  double longer = 0;  // seconds, of all ranks
  std::string name;
  for (RankTimeline& rank : slower) {
    runtime::RecordedStep& step = rank.steps[1];
    runtime::Nanoseconds later = 0;
    for (std::size_t i = 0; i < step.issued.size(); ++i) {
      runtime::IssuedInstruction& each = step.issued[i];
      each.begin += later;
      const std::string title = title_of(program, graph, each.instruction);
      if (title.ends_with(".mlp.up") || title.ends_with(".mlp.fc")) {
        later += 1'000'000;
        longer += 1e-3;
        name = without_numbers(title);
      }
      each.end += later;
      each.complete += later;
      for (auto& wait : step.waits)
        if (wait.issue == i) wait.begin += later, wait.end += later, wait.unpacked += later;
    }
    step.end += later;
  }
  ASSERT_GT(longer, 0);
  const RunComparison compared = compare_run(of.plan, of.played, of.forecast, slower).value();
  EXPECT_EQ(compared.instructions.front().name, name);
  EXPECT_NEAR(compared.instructions.front().difference().value, longer / 4, 1e-6);
  EXPECT_GT(compared.measured.value, compared.predicted.value);
  const std::string text = describe(compared);
  EXPECT_THAT(text, HasSubstr(name));
  for (std::size_t at = 0; at < text.size(); at = text.find('\n', at) + 1)
    EXPECT_LE(text.find('\n', at) - at, 140u);  // 120 columns, some of several bytes
  EXPECT_EQ(to_json(compared, 3)["instructions"].size(), 3u);
}

TEST(RunComparison, ErrorsNameTheInstructionAndTheRank) {
  const Predicted of = predict();
  std::vector<RankTimeline> other = as_predicted(of);
  std::swap(other[2].steps[1].issued[0], other[2].steps[1].issued[1]);
  EXPECT_THAT(compare_run(of.plan, of.played, of.forecast, other).error().message, HasSubstr("rank 2 did not play"));
  other = as_predicted(of);
  other[1].steps.clear();
  EXPECT_THAT(compare_run(of.plan, of.played, of.forecast, other).error().message, HasSubstr("no step was recorded"));
}

TEST(RunComparison, TheTraceHasBothTracksOfEveryRank) {
  const Predicted of = predict();
  const MeasuredRun measured = measured_run(of.plan, of.played, as_predicted(of), 1).value();
  const std::string path = std::filesystem::path(::testing::TempDir()) / ("weft_overlay_" + std::to_string(::getpid()));
  WholeFile file = WholeFile::create(path).value();
  ASSERT_TRUE(write_trace(file, of.plan, of.played, {.ranks = {0, 1, 2, 3}, .most_tasks = 0}, &measured).ok());
  ASSERT_TRUE(file.finish().ok());
  std::ifstream written(path);
  const nlohmann::json trace = nlohmann::json::parse(written);
  std::filesystem::remove(path);
  std::map<int, std::string> names;
  std::map<int, int> order;
  std::map<std::pair<int, int>, std::multiset<std::string>> slices;  // by process and thread
  std::map<int, std::set<std::string>> counted;
  for (const nlohmann::json& event : trace["traceEvents"]) {
    const int pid = event["pid"];
    if (event["name"] == "process_name") names[pid] = event["args"]["name"];
    if (event["name"] == "process_sort_index") order[pid] = event["args"]["sort_index"];
    if (event["ph"] == "X" && event["cat"] != "wait" && event["cat"] != "host")
      slices[{pid, event["tid"]}].insert(event["name"]);
    if (event["ph"] == "C") counted[pid].insert(event["args"].contains("allocated") ? "measured" : "predicted");
  }
  ASSERT_EQ(names.size(), 8u);
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_THAT(names[rank], HasSubstr("rank " + std::to_string(rank) + " · node 0 · predicted"));
    EXPECT_THAT(names[rank + 4], HasSubstr("rank " + std::to_string(rank) + " · node 0 · measured"));
    EXPECT_EQ(order[rank] + 1, order[rank + 4]);
    EXPECT_EQ(counted[rank], std::set<std::string>{"predicted"});
    EXPECT_EQ(counted[rank + 4], std::set<std::string>{"measured"});
    for (int thread = 0; thread <= kStreams; ++thread)  // micro-batches, then the streams
      EXPECT_EQ((slices[{rank, thread}]), (slices[{rank + 4, thread}])) << rank << " " << thread;
    EXPECT_GT((slices[{rank, 0}].size()), 0u);
    EXPECT_GT((slices[{rank, 1}].size()), 0u);
  }
}

}  // namespace
}  // namespace weft
