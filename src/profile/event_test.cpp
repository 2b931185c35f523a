// Events of parts of operators, and lists of events.
#include "profile/event.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "profile/event_list.h"

namespace weft {
namespace {

using ::testing::HasSubstr;

Event product() {
  return {.device = "here", .op = "linear", .shapes = "f32[8,64] f32[64,256]", .dtype = "f32", .direction = "forward"};
}

TEST(Event, OfAPartGivesBackOperatorAndSlices) {
  Event event = product();
  event.direction = "grad_weight";
  event.part = "k=32:64 n=0:64/2";
  const Result<Signature> signature = signature_of(event);
  ASSERT_TRUE(signature.ok()) << signature.error().message;
  const Result<AxisSlices> slices = slices_of(event, *signature);
  ASSERT_TRUE(slices.ok()) << slices.error().message;
  Event whole = product();
  Event again = event_of(*signature_of(whole), *signature, *slices);
  again.device = event.device;
  again.dtype = event.dtype;
  EXPECT_EQ(again, event);
}

TEST(Event, SaysWhatIsWrongWithAPart) {
  const auto problem = [](const char* part) {
    Event event = product();
    event.part = part;
    const Status checked = check(event);
    return checked.ok() ? "" : checked.error().message;
  };
  EXPECT_EQ(problem("n=0:128"), "");
  EXPECT_THAT(problem("z=0:1"), HasSubstr("part 'z=0:1': linear has no such axis"));
  EXPECT_THAT(problem("n=0:300"), HasSubstr("write n=begin:end within 256"));
  EXPECT_THAT(problem("n=5"), HasSubstr("write n=begin:end"));
  EXPECT_THAT(problem("n=0:4/7"), HasSubstr("write n=begin:end"));
  EXPECT_THAT(problem("n"), HasSubstr("part 'n'"));
}

TEST(EventList, ReadsBackWhatItPrints) {
  Event part = product();
  part.part = "n=0:128";
  const Event sum{
      .device = "here", .op = "all-reduce", .dtype = "f32", .bytes = 4096, .members = 4, .most_per_node = 4};
  const std::vector<Event> events = {part, sum};
  Result<std::vector<Event>> read = parse_events(print_events(events), "events");
  ASSERT_TRUE(read.ok()) << read.error().message;
  for (Event& event : *read) event.device = "here";
  EXPECT_EQ(*read, events);
  EXPECT_THAT(parse_events("nonsense\n", "list").error().message, HasSubstr("list:1: begins with 'nonsense'"));
  EXPECT_THAT(parse_events("weft events 1\na\tb\n", "list").error().message, HasSubstr("list:2: 2 cells, not 8"));
  EXPECT_THAT(parse_events("weft events 1\n", "list").error().message, HasSubstr("no events"));
}

}  // namespace
}  // namespace weft
