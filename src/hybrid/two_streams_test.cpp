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

// Nothing ahead, one in flight: G0 C0 G1 C1 forward, 2·(3 + 2). Backward the first gather waits for nobody, so 2 of its
// 3 are beside the last of forward; then each layer's gather is behind the gradients of the one before: G1 C1 R1 G0 C0,
// 1 + 4 + 5 + 3 + 4; the last reduction is left.
TEST(TwoStreams, ParametersWaitForTheGradientsBeforeThem) {
  const StreamTimes times = play(layer(), 2, {false, false, 1, true, false});
  EXPECT_DOUBLE_EQ(times.forward, 10);
  EXPECT_DOUBLE_EQ(times.backward, 17);
  EXPECT_DOUBLE_EQ(times.lag, 5);
}

// A layer ahead. Forward G0 0–3, G1 3–6, C0 3–5, C1 6–8; backward on the stream G1 G0 R1 R0, at once: G1 6–9, G0 9–12,
// C1 9–13, C0 13–17, R1 13–18, R0 18–23.
TEST(TwoStreams, GathersAheadRunBesideComputation) {
  const StreamTimes times = play(layer(), 2, {true, true, 2, true, false});
  EXPECT_DOUBLE_EQ(times.forward, 8);
  EXPECT_DOUBLE_EQ(times.backward, 9);
  EXPECT_DOUBLE_EQ(times.lag, 6);
}

// Computation that waits for reductions and takes 1 to add what came, beside the next gather: 1 + 4 + 5 + 3 + 4 + 5
// + 1.
TEST(TwoStreams, WithoutOverlapComputationWaitsForReductions) {
  StreamSection section = layer();
  section.adds = 1;
  const StreamTimes times = play(section, 2, {false, false, 1, false, false});
  EXPECT_DOUBLE_EQ(times.backward, 23);
  EXPECT_DOUBLE_EQ(times.lag, 0);
}

// A layer of 4 that is half as fast beside a reduction of 5: the second layer backward has 5 beside it, of which it
// does 2.5; the rest alone.
TEST(TwoStreams, ComputationBesideCommunicationIsSlower) {
  StreamSection section;
  section.backward = 4;
  section.backward_beside.compute = 0.5;
  section.reduces = {{5, 4}};
  const StreamTimes times = play(section, 2, {});
  EXPECT_DOUBLE_EQ(times.backward, 4 + 5 + 1.5);
  EXPECT_DOUBLE_EQ(times.lag, 5);
}

// The same where 2 of the 4 are communication on the same links: in these the reduction is half as fast.
TEST(TwoStreams, CommunicationInsideASectionCountsWhenItIs) {
  const std::vector<StreamSpan> spans{{0, 2, {1, 0.5}}};
  StreamSection section;
  section.backward = 4;
  section.backward_spans = spans;
  section.reduces = {{2, 4}};
  // R1 begins with C0: 1 of it in the span, the other by 3. C0 takes 4.
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
  double said = 0;
  for (int i = 0; i < pieces; ++i) {
    section.gathers.push_back({any(0, 3), any(0, 3), any(0, section.forward), any(0, section.backward)});
    section.reduces.push_back({any(0, 3), any(0, section.backward)});
    said += section.gathers.back().forward + section.gathers.back().backward + section.reduces.back().takes;
  }
  const StreamRules rules{*rc::gen::arbitrary<bool>(), *rc::gen::arbitrary<bool>(), *rc::gen::inRange(1, 4),
                          *rc::gen::arbitrary<bool>(), *rc::gen::arbitrary<bool>()};
  const auto layers = static_cast<std::size_t>(*rc::gen::inRange(1, 9));
  const int micro_batches = *rc::gen::inRange(1, 4);  // all are played
  const StreamTimes times = play(section, layers, rules, micro_batches);
  const double all = static_cast<double>(layers) * micro_batches, computed = section.forward + section.backward;
  RC_ASSERT(times.all + 1e-9 >= all * computed);
  RC_ASSERT(times.all + times.lag + 1e-9 >= all * said);
  RC_ASSERT(times.all + times.lag - 1e-9 <= all * (computed + said));
}

// Thirty layers are played as seven and what two of them add.
RC_GTEST_PROP(TwoStreams, ManyLayersAddWhatAFewDo, ()) {
  StreamSection section = layer();
  section.forward = section.forward_done = any(0.5, 6);
  section.backward = section.backward_done = any(0.5, 12);
  section.reduces.front().ready = section.backward;
  const StreamRules rules{*rc::gen::arbitrary<bool>(), *rc::gen::arbitrary<bool>(), *rc::gen::inRange(1, 3),
                          *rc::gen::arbitrary<bool>(), false};
  const StreamTimes many = play(section, 30, rules, 6);
  // Two kinds that are the same in turns: every layer is played.
  const std::vector<StreamSection> both{section, section};
  std::vector<std::int32_t> turns(30);
  for (std::size_t i = 0; i < turns.size(); ++i) turns[i] = static_cast<std::int32_t>(i % 2);
  const StreamTimes each = play_streams(both, turns, rules, 6);
  RC_ASSERT(std::abs(many.all + many.lag - each.all - each.lag) <= 0.03 * (each.all + each.lag));
}

}  // namespace
}  // namespace weft
