// Events of a small plan measured for real, ranks as threads of this process. How long anything takes is not tested.
#include "run/measure.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "measure/events_of_plan.h"
#include "profile/database.h"
#include "profile/event_list.h"
#include "run_ranks.h"

namespace weft {
namespace {

using runtime::MeasureOptions;

std::vector<Event> events_of_words(const char* model, const char* strategy, std::int64_t ranks,
                                   std::optional<std::int64_t> seq = {}) {
  const Result<Plan> plan = make_plan({.model = model,
                                       .cluster = "cpu-node:1",
                                       .strategy = strategy,
                                       .global_batch = 4,
                                       .seq = seq,
                                       .dtype = "fp32",
                                       .device_count = ranks,
                                       .stack = "weft"});
  WEFT_CHECK(plan.ok(), "{}", plan.error().message);
  std::vector<Event> events;
  const std::vector<EventUse> uses = events_of(*plan).value();
  for (const EventUse& use : uses) events.push_back(use.event);
  return events;
}

// By way of the list's text, as ranks read it.
std::vector<MeasuredEvent> measured(const std::vector<Event>& events, int ranks, const MeasureOptions& options,
                                    std::size_t expected) {
  const Result<std::vector<Event>> read = parse_events(print_events(events), "events");
  EXPECT_TRUE(read.ok()) << read.error().message;
  const runtime::Rendezvous rendezvous = runtime::Rendezvous::in_process();
  std::vector<MeasuredEvent> found;
  const std::string problem = on_all_ranks(ranks, [&](int rank) -> std::string {
    const Result<std::size_t> done =
        runtime::measure_events(*read, rank, ranks, rendezvous, options, [&](std::size_t at, const Sample& sample) {
          EXPECT_TRUE(check(sample).ok());
          EXPECT_EQ(at, found.size());
          found.push_back({events[at], {sample}});
          found.back().event.device = found.back().event.stack = found.back().event.variant = kWeftVariant;
        });
    if (!done.ok()) return done.error().message;
    return *done == expected ? "" : fmt::format("{} events measured, not {}", *done, expected);
  });
  EXPECT_EQ(problem, "");
  return found;
}

constexpr MeasureOptions kQuick{.budget = Seconds{100}, .precision = 1, .least_runs = 2, .most_runs = 2};

TEST(Measure, EveryEventOfAPlanHasASampleThatTheDatabaseKeeps) {
  for (const char* strategy : {"dp=2", "tp=2", "pp=2", "dp=2,zero=3", "cp=2"}) {
    const std::vector<Event> events =
        events_of_words("gpt2-124m:layers=2,hidden=16,heads=2,vocab=32,dropout=0.1", strategy, 2, 8);
    const std::vector<MeasuredEvent> found = measured(events, 2, kQuick, events.size());
    ASSERT_EQ(found.size(), events.size()) << strategy;
    const std::string path = (std::filesystem::temp_directory_path() / "weft-measure-test.db").string();
    std::filesystem::remove(path);
    {
      Result<ProfileDatabase> database = ProfileDatabase::to_write(path);
      ASSERT_TRUE(database.ok()) << database.error().message;
      EXPECT_EQ(database->add(found).value(), static_cast<std::int64_t>(found.size()));
    }
    const Result<std::vector<MeasuredEvent>> kept = read_profile(path);
    ASSERT_TRUE(kept.ok()) << kept.error().message;
    EXPECT_EQ(kept->size(), found.size());
    std::vector<EventUse> left;
    for (const Event& event : events) left.push_back({event, 1});
    drop_measured(left, *kept, kWeftVariant, kWeftVariant, 2);
    EXPECT_TRUE(left.empty()) << strategy;
    std::filesystem::remove(path);
  }
}

TEST(Measure, OperatorsOfEveryKindOfNetwork) {
  for (const auto& [model, strategy] :
       {std::pair("lenet", "dp=2"), std::pair("dlrm:rows=64,tables=4", "dp=2,tables=1")}) {
    const std::vector<Event> events = events_of_words(model, strategy, 2);
    EXPECT_EQ(measured(events, 2, kQuick, events.size()).size(), events.size()) << model;
  }
  for (const auto& [model, strategy] :
       {std::pair("rnnlm:hidden=16,vocab=32", "dp=2"),
        std::pair("mixtral-8x7b:layers=1,hidden=16,heads=2,kv_heads=2,ffn=16,vocab=32,experts=2,capacity_factor=2",
                  "dp=2,ep=2")}) {
    const std::vector<Event> events = events_of_words(model, strategy, 2, 8);
    EXPECT_EQ(measured(events, 2, kQuick, events.size()).size(), events.size()) << model;
  }
}

TEST(Measure, ASpentBudgetEndsIt) {
  const std::vector<Event> events = events_of_words("lenet", "dp=1", 1);
  MeasureOptions options = kQuick;
  options.budget = Seconds{0};
  EXPECT_TRUE(measured(events, 1, options, 0).empty());
}

TEST(Measure, GroupsLargerThanTheRanksAreRefused) {
  const std::vector<Event> events = events_of_words("lenet", "dp=2", 2);
  const Result<std::size_t> done = runtime::measure_events(events, 0, 1, runtime::Rendezvous::in_process(), kQuick,
                                                           [](std::size_t, const Sample&) {});
  ASSERT_FALSE(done.ok());
  EXPECT_NE(done.error().message.find("needs 2 ranks, and 1 measure"), std::string::npos) << done.error().message;
}

}  // namespace
}  // namespace weft
