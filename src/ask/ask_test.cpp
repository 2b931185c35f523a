#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "ask/build.h"
#include "ask/search.h"
#include "ask/simulation.h"
#include "ask/validation.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

const PlanRequest kSmall = {.model = "gpt2-124m:layers=2", .cluster = "dgx-a100:1", .global_batch = 16, .seq = 128};

PlanRequest with_strategy(PlanRequest request, const std::string& strategy) {
  request.strategy = strategy;
  return request;
}

Simulation simulated(SimulationRequest request) {
  return simulate(settle_simulation(std::move(request)).value()).value();
}

TEST(AskSimulation, IsTheForecastOfThePlan) {
  const Simulation asked = simulated({.plan = with_strategy(kSmall, "tp=2,dp=4")});
  const Plan plan = make_plan(with_strategy(kSmall, "tp=2,dp=4")).value();
  const ChosenCost cost = choose_cost({}, *plan.job).value();
  EXPECT_EQ(asked.forecast.step, forecast(plan, *cost.model).value().step);
  EXPECT_EQ(to_json(asked)["network"], "fair");
}

TEST(AskSimulation, NamesTheOptionAtFault) {
  const auto message = [](SimulationRequest request) { return settle_simulation(std::move(request)).error().message; };
  const PlanRequest plan = with_strategy(kSmall, "dp=8");
  EXPECT_THAT(message({.plan = plan, .cost = {"guess", "", ""}}), HasSubstr("--cost 'guess'"));
  EXPECT_THAT(message({.plan = plan, .network = "fast"}), HasSubstr("--network 'fast'"));
  EXPECT_THAT(message({.plan = plan, .headroom = std::nan("")}), HasSubstr("--headroom nan"));
  EXPECT_THAT(message({.plan_file = "/nowhere/plan.json"}), HasSubstr("/nowhere/plan.json"));
  EXPECT_THAT(message({.plan = with_strategy(kSmall, "tp=3")}), HasSubstr("3"));
}

// 72 devices do not divide 64 samples; 64 of them do, and are faster than all with a pipeline of 9 stages.
TEST(AskSearch, LeavesOutDevicesThatDoNotDivideTheWork) {
  const PlanRequest request{
      .model = "llama3-8b", .cluster = "dgx-h100:9", .strategy = "", .global_batch = 64, .seq = 8192};
  const Searched searched = search_plans({.plan = request}).value();
  EXPECT_EQ(searched.problem.devices, 64);
  EXPECT_EQ(searched.request.plan.cluster, "dgx-h100:8");
  EXPECT_EQ(searched.found.outcome.best.front().parallelism->world(), 64);
  EXPECT_THAT(searched.problem.job->notes.back(), HasSubstr("64 of the 72 devices"));
  EXPECT_EQ(simulate_found(searched, 0).value().forecast.step, searched.found.outcome.best.front().forecast.step);
  // Where the number of devices is asked for, it is kept.
  PlanRequest counted = request;
  counted.device_count = 72;
  EXPECT_EQ(search_plans({.plan = counted}).value().problem.devices, 72);
}

TEST(AskSearch, APlanItWritesIsSimulatedToTheSamePicosecond) {
  const fs::path folder = fs::path(::testing::TempDir()) / ("weft_ask_" + std::to_string(::getpid()));
  const Searched searched = search_plans({.plan = kSmall, .budget = "8"}).value();
  ASSERT_FALSE(searched.found.outcome.best.empty());
  const Simulation winner = simulate_found(searched, 0).value();
  EXPECT_EQ(winner.forecast.step, searched.found.outcome.best.front().forecast.step);
  ASSERT_TRUE(make_folder(folder.string()).ok());
  ASSERT_TRUE(write_found(searched, winner, folder.string()).ok());
  const Simulation again = simulated({.plan_file = (folder / "plan.json").string()});
  EXPECT_EQ(again.forecast.step, winner.forecast.step);
  EXPECT_EQ(again.same_program, true);
  fs::remove_all(folder);
}

TEST(AskSearch, PlanBeyondTheLastIsAnError) {
  const Searched searched = search_plans({.plan = kSmall, .budget = "4", .top = 2}).value();
  EXPECT_THAT(simulate_found(searched, 100).error().message, HasSubstr("plan 100"));
}

TEST(AskSearch, IsCancelledBeforeItBegins) {
  const std::atomic<bool> cancelled = true;
  const Searched searched = search_plans({.plan = kSmall}, {.cancelled = &cancelled}).value();
  EXPECT_EQ(searched.found.outcome.stopped_by, StoppedBy::Cancelled);
}

TEST(AskSearch, NamesTheOptionAtFault) {
  const auto message = [](SearchRequest request) { return search_plans(std::move(request)).error().message; };
  EXPECT_THAT(message({.plan = kSmall, .search = "enumerat"}), HasSubstr("did you mean enumerate"));
  EXPECT_THAT(message({.plan = kSmall, .budget = "-3"}), HasSubstr("--budget '-3'"));
  EXPECT_THAT(message({.plan = kSmall, .tokens = "many"}), HasSubstr("--tokens 'many'"));
  EXPECT_THAT(message({.plan = kSmall, .schedules = "1f1b,zb"}), HasSubstr("--schedules 'zb'"));
  EXPECT_THAT(message({.plan = kSmall, .top = 0}), HasSubstr("--top 0"));
  EXPECT_THAT(message({.plan = kSmall, .threads = -1}), HasSubstr("--threads -1"));
}

TEST(AskValidation, RowsAfterACancellationAreSkipped) {
  const fs::path path = fs::path(::testing::TempDir()) / ("weft_ask_" + std::to_string(::getpid()) + ".csv");
  std::ofstream(path) << "model,cluster,strategy,global_batch,seq,measured_step_s\n"
                         "gpt2-124m:layers=2,dgx-a100:1,dp=8,16,128,0.01\n";
  const ValidationRequest request = {.files = {path.string()}};
  const ValidationTables tables = read_tables(request).value();
  EXPECT_EQ(validate_tables(request, tables).predictions.size(), 1u);
  const std::atomic<bool> cancelled = true;
  const Validation stopped = validate_tables(request, tables, &cancelled);
  EXPECT_TRUE(stopped.predictions.empty());
  ASSERT_EQ(stopped.skipped.size(), 1u);
  EXPECT_EQ(stopped.skipped.front().reason, "cancelled");
  fs::remove(path);
}

TEST(Build, SaysItsVersionFirst) {
  const BuildFacts facts = build_facts();
  EXPECT_THAT(describe(facts), ::testing::StartsWith("weft " + facts.version + "\n"));
  EXPECT_FALSE(facts.compiler.empty());
}

}  // namespace
}  // namespace weft
