// Schedules as text: parse ∘ print = identity, and no text crashes the parser.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "base/random.h"
#include "program/schedule.h"

namespace weft {
namespace {

Schedule any_schedule(Rng& rng) {
  const std::vector<std::string> names = schedule_names();
  for (;;) {
    const Result<Schedule> schedule =
        make_schedule({names[rng.below(names.size())], static_cast<std::int32_t>(rng.between(1, 5)),
                       static_cast<std::int32_t>(rng.between(1, 16)), static_cast<std::int32_t>(rng.between(0, 4))});
    if (schedule.ok()) return *schedule;
  }
}

RC_GTEST_PROP(ScheduleText, WhatIsPrintedReadsBackTheSame, (std::uint64_t seed)) {
  Rng rng(seed);
  const Schedule schedule = any_schedule(rng);
  RC_ASSERT(parse_schedule(print(schedule), "s").value() == schedule);
}

TEST(ScheduleText, RoutesMayAlternate) {
  const std::string text =
      "schedule crossed: 2 ranks, 2 chunks, 4 micro-batches\n"
      "route 0,2-3: 0 1\n"
      "route 1: 1.1 0.1\n"
      "0: F0 B0 F2 B2 F3 B3 F1.1 B1.1\n"
      "1: F1.1 F0 B0 F2 B2 F3 B3 B1.1\n";
  const Schedule schedule = parse_schedule(text, "s").value();
  EXPECT_EQ(print(schedule), text);
  EXPECT_TRUE(check_schedule(schedule).ok());
}

TEST(ScheduleText, CommentsBlankLinesAndOrderOfRanksAreFree) {
  const Schedule schedule = parse_schedule(
                                "# mine\n\nschedule 1f1b: 2 ranks, 1 chunk, 1 micro-batch # small\r\n"
                                "1:\tF0  B0\n  route 0: 0 1.0\n 0 : F0.0 B0",
                                "s")
                                .value();
  EXPECT_EQ(schedule, make_schedule({"1f1b", 2, 1}).value());
}

TEST(ScheduleText, ErrorsNameTheLine) {
  const auto message = [](const std::string& lines) {
    return parse_schedule("schedule x: 2 ranks, 1 chunk, 4 micro-batches\n" + lines, "x.txt").error().message;
  };
  EXPECT_EQ(parse_schedule("", "x.txt").error().message,
            "x.txt:0: no schedule; begin with 'schedule NAME: 4 ranks, 1 chunk, 8 micro-batches'");
  EXPECT_EQ(parse_schedule("\n0: F0", "x.txt").error().message,
            "x.txt:2: expected 'schedule NAME: 4 ranks, 1 chunk, 8 micro-batches', found '0:'");
  EXPECT_EQ(parse_schedule("schedule x: 2000000000 ranks, 1 chunk, 1 micro-batch", "x.txt").error().message,
            "x.txt:1: 2000000000 ranks: at least 1, and no more than the text can name");
  EXPECT_EQ(parse_schedule("schedule x: 2 ranks, 1 chunk, many", "x.txt").error().message,
            "x.txt:1: expected a number of micro-batches, found 'many'");
  EXPECT_EQ(message("route 0-3: 0 1\n0: F0 G1\n"),
            "x.txt:3: expected an action such as F3, B3.1, I3 or W3, found 'G1'");
  EXPECT_EQ(message("route 0-3: 0 1\n0: F0 F4\n"), "x.txt:3: 'F4': there are 4 micro-batches and 1 chunk");
  EXPECT_EQ(message("route 0-3: 0 1\n0: F0&\n"),
            "x.txt:3: expected an action such as F3, B3.1, I3 or W3, found the end of the line");
  EXPECT_EQ(message("route 0-3: 0 2\n"), "x.txt:2: place 2.0: there are 2 ranks and 1 chunks");
  EXPECT_EQ(message("route 0-4: 0 1\n"), "x.txt:2: micro-batches 0-4: there are 0-3");
  EXPECT_EQ(message("route 0-3: 0 1\nroute 3: 0 1\n"), "x.txt:3: micro-batch 3 has a route already");
  EXPECT_EQ(message("route 0-2: 0 1\n0: F0\n1: F0\n"), "x.txt:4: micro-batch 3 has no route");
  EXPECT_EQ(message("route 0-3: 0 1\n0: F0\n"), "x.txt:3: rank 1 has no line");
  EXPECT_EQ(message("route 0-3: 0 1\n0: F0\n1: F0\n"), "x.txt:4: 4 micro-batches, but 2 actions");
  EXPECT_EQ(parse_schedule("schedule x: 1 rank, 9 chunks, 1 micro-batch\nroute 0: 0\n0: F0", "x").error().message,
            "x:3: 9 chunks, but routes of 1 places");
  EXPECT_EQ(message("0: F0\n0: F0\n"), "x.txt:3: rank 0 has a line already");
  EXPECT_EQ(message("7: F0\n"), "x.txt:2: rank 7: there are 0-1");
  EXPECT_EQ(message("here: F0\n"), "x.txt:2: expected 'route …' or a rank such as '0:', found 'here:'");
}

// Cuts, overwrites, repeats and inserts pieces, seldom leaving the text valid.
std::string mutated(std::string text, Rng& rng) {
  static const std::string pieces[] = {"F",  "W0", "&", ".", "-", ",",      ":",           "\n",
                                       "\0", "#",  " ", "9", "0", "route ", "99999999999", "-1"};
  for (std::int64_t n = rng.between(1, 5); n > 0 && !text.empty(); --n) {
    const std::size_t at = rng.below(text.size());
    const std::size_t length = std::min<std::size_t>(rng.below(12), text.size() - at);
    switch (rng.below(4)) {
      case 0:
        text.erase(at, length);
        break;
      case 1:
        text.insert(at, pieces[rng.below(std::size(pieces))]);
        break;
      case 2:
        text.insert(rng.below(text.size()), text.substr(at, length));
        break;
      default:
        text[at] = static_cast<char>(rng.below(256));
    }
  }
  return text;
}

TEST(ScheduleText, HostileTextGivesATableOrAnError) {
  Rng rng(7);
  int tables = 0, schedules = 0;
  for (int round = 0; round < 4000; ++round) {
    const Result<Schedule> schedule = parse_schedule(mutated(print(any_schedule(rng)), rng), "hostile");
    if (!schedule.ok()) continue;
    ++tables;
    schedules += check_schedule(*schedule).ok();
    ASSERT_EQ(parse_schedule(print(*schedule), "again").value(), *schedule);
  }
  EXPECT_GT(tables, schedules);  // some are refused by the verifier only
  EXPECT_GT(schedules, 0);
}

}  // namespace
}  // namespace weft
