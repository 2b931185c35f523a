#include "forecast/uncertainty.h"

#include <gmock/gmock.h>

#include <cmath>

#include "cost/analytic.h"
#include "forecast/forecast.h"

namespace weft {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr std::int64_t kGi = std::int64_t{1} << 30;

Spread small_spread() {
  Spread spread;
  spread.time = {{{0.05, "a"}, {0.1, "b"}, {0.2, "c"}, {0.3, "d"}}};
  spread.doubtful = {0.15, "e"};
  spread.memory = {0.1, "m"};
  spread.seen.add({{"h100-sxm"}, "megatron-lm", "bf16", 64});
  spread.seen.add({{"h100-sxm"}, "nemo", "fp8", 8});
  spread.seen.add({{"a100-80-sxm"}, "megatron-lm", "bf16", 16});
  return spread;
}

TEST(Uncertainty, DistanceCountsWhatWasNotSeen) {
  const SeenRuns seen = small_spread().seen;
  EXPECT_EQ(seen.distance({{"h100-sxm"}, "megatron-lm", "fp8", 64}), Distance::AllSeen);
  EXPECT_EQ(seen.distance({{"h100-sxm"}, "pax", "fp8", 64}), Distance::OneUnseen);
  EXPECT_EQ(seen.distance({{"a100-80-sxm"}, "nemo", "fp8", 8}), Distance::OneUnseen);  // fp8 ran on another device
  EXPECT_EQ(seen.distance({{"h100-sxm"}, "megatron-lm", "bf16", 65}), Distance::OneUnseen);
  EXPECT_EQ(seen.distance({{"h100-sxm"}, "pax", "fp4", 1}), Distance::MoreUnseen);
  EXPECT_EQ(seen.distance({{"gb300"}, "megatron-lm", "bf16", 1}), Distance::DeviceUnseen);
  EXPECT_EQ(seen.distance({{"h100-sxm", "gb300"}, "megatron-lm", "bf16", 1}), Distance::DeviceUnseen);
}

TEST(Uncertainty, ReasonsSayWhatWasNotSeenAndNothingElse) {
  const SeenRuns seen = small_spread().seen;
  EXPECT_THAT(seen.unseen({{"h100-sxm"}, "nemo", "fp8", 8}), IsEmpty());
  EXPECT_THAT(seen.unseen({{"gb300"}, "pax", "fp4", 8}),
              ElementsAre("no run on gb300 was compared", "no run of pax was compared"));
  EXPECT_THAT(seen.unseen({{"a100-80-sxm"}, "nemo", "fp8", 32}),
              ElementsAre("no run in fp8 on a100-80-sxm was compared",
                          "32 devices are beyond the 16 of any run on a100-80-sxm that was compared"));
}

TEST(Uncertainty, TheIntervalIsThatOfItsDistance) {
  const TimeInterval near = small_spread().interval({{"h100-sxm"}, "nemo", "fp8", 8}, 10);
  EXPECT_DOUBLE_EQ(near.half_width, 0.05);
  EXPECT_DOUBLE_EQ(near.low_s, 10 * std::exp(-0.05));
  EXPECT_DOUBLE_EQ(near.high_s, 10 * std::exp(0.05));
  EXPECT_DOUBLE_EQ(near.level, 0.8);
  const TimeInterval far = small_spread().interval({{"gb300"}, "nemo", "fp8", 8}, 10);
  EXPECT_DOUBLE_EQ(far.half_width, 0.3);
  EXPECT_THAT(far.reasons, ElementsAre("no run on gb300 was compared"));
}

TEST(Uncertainty, DoubtsWidenAnIntervalAndNarrowNone) {
  const Spread spread = small_spread();
  const TimeInterval near = spread.interval({{"h100-sxm"}, "nemo", "fp8", 8, {"layers of experts"}}, 10);
  EXPECT_DOUBLE_EQ(near.half_width, 0.15);
  EXPECT_THAT(near.reasons, ElementsAre("runs with layers of experts were predicted less well"));
  EXPECT_DOUBLE_EQ(spread.interval({{"gb300"}, "nemo", "fp8", 8, {"layers of experts"}}, 10).half_width, 0.3);
}

TEST(Uncertainty, DoubtsAreExpertsAndOtherNetworksThanInfiniBandBetweenNodes) {
  const auto doubts = [](const char* model, const char* cluster) {
    return kind_of(make_plan({.model = model, .cluster = cluster, .strategy = "mbs=1"}).value()).doubts;
  };
  EXPECT_THAT(doubts("gpt2", "dgx-h100:2"), IsEmpty());
  EXPECT_THAT(doubts("gpt2", "p5:1"), IsEmpty());  // one node
  EXPECT_THAT(doubts("gpt2", "p5:2"), ElementsAre("nodes joined by efa"));
  EXPECT_THAT(doubts("mixtral-8x7b:layers=1", "p5:2"), ElementsAre("layers of experts", "nodes joined by efa"));
}

TEST(Uncertainty, AHalfWidthHoldsItsShareOfTheErrors) {
  EXPECT_DOUBLE_EQ(half_width({0.1, -0.2, 0.3, -0.4, 0.5}, 0.8), 0.4);
  EXPECT_DOUBLE_EQ(half_width({-0.1}, 0.8), 0.1);
  EXPECT_DOUBLE_EQ(half_width({}, 0.8), 0);
}

TEST(Uncertainty, WidthsDoNotShrinkWithDistance) {
  const std::vector<double> wide(10, 0.3), narrow(30, 0.1), wider(5, 0.4);
  // Ten errors of 0.3 and thirty of 0.1 are pooled: four fifths of forty are 0.3 at most.
  EXPECT_THAT(half_widths({wide, narrow, {}, wider}, 0.8), ElementsAre(0.3, 0.3, 0.3, 0.4));
  EXPECT_THAT(half_widths({narrow, wide, {}, wider}, 0.8), ElementsAre(0.1, 0.3, 0.3, 0.4));
  EXPECT_THAT(half_widths({std::vector<double>{}, narrow, {}, {}}, 0.8), ElementsAre(0.1, 0.1, 0.1, 0.1));
  EXPECT_THAT(half_widths({std::vector<double>(2, 0.3), narrow, {}, {}}, 0.8), ElementsAre(0.1, 0.1, 0.1, 0.1));
}

TEST(Uncertainty, MemoryIsTightWhereTheIntervalHoldsTheCapacity) {
  const Spread spread = small_spread();  // a factor of 1.105 either way
  const auto fit = [&](std::int64_t gib) { return spread.fit_of({gib * kGi}, {96 * kGi}, {100 * kGi}); };
  EXPECT_EQ(fit(90), Fit::Fits);
  EXPECT_EQ(fit(91), Fit::Tight);
  EXPECT_EQ(fit(110), Fit::Tight);
  EXPECT_EQ(fit(111), Fit::DoesNotFit);
  EXPECT_EQ(spread.fit_of({111 * kGi}, {}, {}), Fit::Fits);  // unknown capacity
  Spread sure = spread;
  sure.memory.value = 0;
  EXPECT_EQ(sure.fit_of({98 * kGi}, {96 * kGi}, {100 * kGi}), Fit::Tight);  // within the headroom
  EXPECT_EQ(name_of(Fit::DoesNotFit), "does not fit");
}

TEST(Uncertainty, AFileReadsBackToTheSameSpread) {
  const Spread spread = small_spread();
  const Result<Spread> read = parse_spread(print(spread), "s.yaml");
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(read->time, spread.time);
  EXPECT_EQ(read->doubtful, spread.doubtful);
  EXPECT_EQ(read->memory, spread.memory);
  EXPECT_EQ(read->seen, spread.seen);
}

TEST(Uncertainty, AMalformedFileIsToldByLine) {
  const std::string good = print(small_spread());
  const auto message = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    text.replace(text.find(from), from.size(), to);
    const Result<Spread> read = parse_spread(text, "s.yaml");
    return read.ok() ? "" : read.error().message;
  };
  EXPECT_THAT(message("level: 0.8", "level: 80"), HasSubstr("s.yaml:5: level 80: a share between 0 and 1"));
  EXPECT_THAT(message("[0.1000, \"b\"]", "0.1"), HasSubstr("s.yaml:8"));
  EXPECT_THAT(message("[0.2000, \"c\"]", "[0.01, c]"), HasSubstr("s.yaml:9: more_unseen is narrower than one_unseen"));
  EXPECT_THAT(message("memory:", "memroy:"), HasSubstr("memory"));
  EXPECT_THAT(message("most: 16", "most: -1"), HasSubstr("s.yaml:16"));
}

TEST(Uncertainty, EveryForecastHasAnInterval) {
  const Plan plan = make_plan({.model = "gpt2-124m", .cluster = "dgx-h100:1", .strategy = "dp=8"}).value();
  const Forecast found = forecast(plan, AnalyticCost(plan.stack())).value();
  const Spread& spread = built_in_spread();
  EXPECT_DOUBLE_EQ(found.interval.half_width,
                   spread.time[static_cast<std::size_t>(spread.seen.distance(kind_of(plan)))].value);
  EXPECT_LT(found.interval.low_s, found.step_s);
  EXPECT_GT(found.interval.high_s, found.step_s);
  EXPECT_EQ(found.fit(), Fit::Fits);
  // A device that nobody has published runs of.
  const Plan unknown = make_plan({.model = "gpt2-124m", .cluster = "mi355x-node:1", .strategy = "dp=8"}).value();
  const TimeInterval far = forecast(unknown, AnalyticCost(unknown.stack()))->interval;
  EXPECT_THAT(far.reasons, testing::Contains("no run on mi355x was compared"));
  EXPECT_DOUBLE_EQ(far.half_width, spread.time.back().value);
}

}  // namespace
}  // namespace weft
