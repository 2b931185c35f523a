#include "hybrid/two_streams.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <numeric>

namespace weft {
namespace {

// A layer that computes 2 forward and 4 backward, gathers 3 and reduces 5; parameters are needed all the time.
StreamSection layer() {
  StreamSection made;
  made.forward = made.forward_done = 2;
  made.backward = made.backward_done = 4;
  made.gathers = {{3, 3, 0, 0}};
  made.reduces = {{5, 4}};
  return made;
}

StreamTimes play(const StreamSection& section, std::size_t layers, const StreamRules& rules, int micro_batches = 1) {
  const std::vector<std::int32_t> stage(layers, 0);
  return play_streams({&section, 1}, stage, rules, micro_batches);
}

// No prefetching, one section in flight: G0 C0 G1 C1 forward, 2·(3 + 2). The first gather of backward waits for
// nothing, so 2 of its 3 overlap the last forward computation; then each layer's gather is queued behind the previous
// layer's reduction: G1 C1 R1 G0 C0, 1 + 4 + 5 + 3 + 4; the last reduction remains.
TEST(TwoStreams, ParametersWaitForTheGradientsBeforeThem) {
  const StreamTimes times = play(layer(), 2, {false, false, 1, true, false});
  EXPECT_DOUBLE_EQ(times.forward, 10);
  EXPECT_DOUBLE_EQ(times.backward, 17);
  EXPECT_DOUBLE_EQ(times.lag, 5);
}

// Gathers one layer ahead. Forward G0 0–3, G1 3–6, C0 3–5, C1 6–8; the backward stream G1 G0 R1 R0 starts at once:
// G1 6–9, G0 9–12, C1 9–13, C0 13–17, R1 13–18, R0 18–23.
TEST(TwoStreams, GathersAheadOverlapComputation) {
  const StreamTimes times = play(layer(), 2, {true, true, 2, true, false});
  EXPECT_DOUBLE_EQ(times.forward, 8);
  EXPECT_DOUBLE_EQ(times.backward, 9);
  EXPECT_DOUBLE_EQ(times.lag, 6);
}

// Computation waits for reductions and takes 1 to accumulate their result, which overlaps the next gather:
// 1 + 4 + 5 + 3 + 4 + 5 + 1.
TEST(TwoStreams, WithoutOverlapComputationWaitsForReductions) {
  StreamSection section = layer();
  section.adds = 1;
  const StreamTimes times = play(section, 2, {false, false, 1, false, false});
  EXPECT_DOUBLE_EQ(times.backward, 23);
  EXPECT_DOUBLE_EQ(times.lag, 0);
}

// A layer of 4 that computes at half speed during a reduction of 5: in the second layer of backward it completes 2.5 in
// those 5 and the remaining 1.5 alone.
TEST(TwoStreams, ComputationThatOverlapsCommunicationIsSlower) {
  StreamSection section;
  section.backward = 4;
  section.backward_overlap.compute = 0.5;
  section.reduces = {{5, 4}};
  const StreamTimes times = play(section, 2, {});
  EXPECT_DOUBLE_EQ(times.backward, 4 + 5 + 1.5);
  EXPECT_DOUBLE_EQ(times.lag, 5);
}

// The same where 2 of the 4 are communication on the same links: during those the reduction has half its speed.
TEST(TwoStreams, CommunicationInsideASectionSlowsReductionsWhileItLasts) {
  const std::vector<StreamSpan> spans{{0, 2, {1, 0.5}}};
  StreamSection section;
  section.backward = 4;
  section.backward_spans = spans;
  section.reduces = {{2, 4}};
  // R1 begins with C0: 1 of its 2 is done in the span, the rest by 3. C0 takes 4.
  const StreamTimes times = play(section, 2, {});
  EXPECT_DOUBLE_EQ(times.backward, 8);
  EXPECT_DOUBLE_EQ(times.lag, 2);
}

double any(double least, double most) { return *rc::gen::inRange(0, 1001) / 1000.0 * (most - least) + least; }

RC_GTEST_PROP(TwoStreams, AreNeverFasterThanEitherStreamNorSlowerThanOneAfterTheOther, ()) {
  StreamSection section;
  section.forward = any(0.1, 3);
  section.backward = any(0.1, 6);
  section.forward_done = any(0, section.forward);
  section.backward_done = any(0, section.backward);
  const int pieces = *rc::gen::inRange(0, 4);
  double communicated = 0;
  for (int i = 0; i < pieces; ++i) {
    section.gathers.push_back({any(0, 3), any(0, 3), any(0, section.forward), any(0, section.backward)});
    section.reduces.push_back({any(0, 3), any(0, section.backward)});
    communicated += section.gathers.back().forward + section.gathers.back().backward + section.reduces.back().takes;
  }
  const StreamRules rules{*rc::gen::arbitrary<bool>(), *rc::gen::arbitrary<bool>(), *rc::gen::inRange(1, 4),
                          *rc::gen::arbitrary<bool>(), *rc::gen::arbitrary<bool>()};
  const auto layers = static_cast<std::size_t>(*rc::gen::inRange(1, 9));
  const int micro_batches = *rc::gen::inRange(1, 4);  // all are simulated
  const StreamTimes times = play(section, layers, rules, micro_batches);
  const double all = static_cast<double>(layers) * micro_batches, computed = section.forward + section.backward;
  RC_ASSERT(times.all + 1e-9 >= all * computed);
  RC_ASSERT(times.all + times.lag + 1e-9 >= all * communicated);
  RC_ASSERT(times.all + times.lag - 1e-9 <= all * (computed + communicated));
}

// Thirty equal layers are extrapolated from five and seven.
RC_GTEST_PROP(TwoStreams, ManyLayersAddWhatAFewDo, ()) {
  StreamSection section = layer();
  section.forward = section.forward_done = any(0.5, 6);
  section.backward = section.backward_done = any(0.5, 12);
  section.reduces.front().ready = section.backward;
  const StreamRules rules{*rc::gen::arbitrary<bool>(), *rc::gen::arbitrary<bool>(), *rc::gen::inRange(1, 3),
                          *rc::gen::arbitrary<bool>(), false};
  const StreamTimes many = play(section, 30, rules, 6);
  // Two identical kinds alternate: every layer is simulated.
  const std::vector<StreamSection> both{section, section};
  std::vector<std::int32_t> turns(30);
  for (std::size_t i = 0; i < turns.size(); ++i) turns[i] = static_cast<std::int32_t>(i % 2);
  const StreamTimes each = play_streams(both, turns, rules, 6);
  RC_ASSERT(std::abs(many.all + many.lag - each.all - each.lag) <= 0.03 * (each.all + each.lag));
}

}  // namespace
}  // namespace weft
