#include "run/timeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace weft::runtime {
namespace {

using testing::HasSubstr;

RankTimeline two_steps() {
  RankTimeline timeline{.rank = 3, .steps = {}};
  for (std::int64_t step : {0, 1})
    timeline.steps.push_back(
        {.step = step,
         .begin = 100,
         .end = 900,
         .clock = {.ahead = -7, .round_trip = 20},
         .peak = {4096},
         .issued = {{InstructionId(5), 0, 110, 120, 120, {64}}, {InstructionId(6), 1, 130, 140, 600, {128}}},
         .waits = {{1, 500, 610, 650}}});
  return timeline;
}

TEST(RankTimeline, IsReadAsItIsWritten) {
  EXPECT_EQ(parse_timeline(print(two_steps()), "t").value(), two_steps());
  EXPECT_EQ(parse_timeline(print(RankTimeline{}), "t").value(), RankTimeline{});
}

TEST(RankTimeline, ErrorsNameTheLine) {
  const auto problem = [](const std::string& text) { return parse_timeline(text, "t").error().message; };
  EXPECT_THAT(problem("weft timeline 9\n"), HasSubstr("t:1: 'weft timeline 9': write weft timeline 1"));
  EXPECT_THAT(problem("weft timeline 1\nrank 0\nstep 0 1\nend\n"), HasSubstr("t:3: not a line"));
  EXPECT_THAT(problem("weft timeline 1\nrank 0\ni 1 0 1 2 2 0\nend\n"), HasSubstr("t:3:"));  // of no step
  EXPECT_THAT(problem("weft timeline 1\nrank 0\nstep 0 1 9 0 0 0\nw 0 1 2 3\nend\n"),
              HasSubstr("t:4:"));  // for nothing
  EXPECT_THAT(problem("weft timeline 1\nrank 0\n"), HasSubstr("ends before its end"));
  const std::string whole = print(two_steps());
  for (std::size_t size = 0; size + 1 < whole.size(); ++size)
    EXPECT_FALSE(parse_timeline(std::string_view(whole).substr(0, size), "t").ok()) << size;
}

TEST(Recorder, NotesWhatTheHostDoesInOrder) {
  Recorder recorder(0, 2, 1);
  ASSERT_TRUE(recorder.wants_more());
  recorder.begin_step(0, {});
  recorder.begin(InstructionId(4), 0);  // a communication
  const std::uint32_t issue = recorder.issue();
  recorder.end({10});
  recorder.begin(InstructionId(5), 0);  // reads what it brings
  recorder.begin_wait(issue);
  recorder.end_wait();
  recorder.unpacked();
  recorder.begin_again();
  recorder.end({20});
  recorder.end_step({30});
  EXPECT_FALSE(recorder.wants_more());

  const RecordedStep& step = recorder.timeline().steps.front();
  ASSERT_EQ(step.issued.size(), 2u);
  ASSERT_EQ(step.waits.size(), 1u);
  const HostWait& wait = step.waits.front();
  EXPECT_EQ(step.issued[0].complete, wait.end);  // nobody has told when it was complete
  EXPECT_EQ(step.issued[1].complete, step.issued[1].end);
  const std::vector<Nanoseconds> order = {step.begin,    step.issued[0].begin, step.issued[0].end, wait.begin, wait.end,
                                          wait.unpacked, step.issued[1].begin, step.issued[1].end, step.end};
  EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
  EXPECT_EQ(step.peak, Bytes{30});
}

}  // namespace
}  // namespace weft::runtime
