// Schedules: their closed forms, what they hold in flight, and the verifier that no broken table passes.
#include "program/schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <optional>

#include "base/random.h"

namespace weft {
namespace {

using ::testing::HasSubstr;

Schedule made(const std::string& name, std::int32_t ranks, std::int32_t micro_batches, std::int32_t chunks = 0) {
  return make_schedule({name, ranks, micro_batches, chunks}).value();
}
Playback played(const Schedule& schedule, StageCost cost, Ticks transfer = 0, Ticks pair_saving = 0) {
  return play(schedule, {{cost}, transfer, pair_saving}).value();
}
std::string error_of(const ScheduleOptions& options) { return make_schedule(options).error().message; }

std::int32_t in_range(std::int32_t low, std::int32_t high) { return *rc::gen::inRange(low, high + 1); }
StageCost any_cost() { return {in_range(1, 9), in_range(1, 9), in_range(1, 9)}; }

// Any schedule make_schedule gives, p ≤ 8, m ≤ 24 where its needs allow, v ≤ 4.
Schedule any_schedule() {
  const std::string name = *rc::gen::elementOf(schedule_names());
  std::int32_t ranks = in_range(1, 8), micro_batches = in_range(1, 24), chunks = 0;
  if (name == "interleaved") {
    chunks = in_range(2, 4);
    micro_batches = ranks * in_range(1, 3);
  } else if (name == "dualpipe") {
    ranks += ranks % 2;
    micro_batches = 2 * (ranks + in_range(0, 8));
  } else if (name == "dualpipe-v") {
    micro_batches = 2 * ranks + in_range(0, 8);
  }
  return made(name, ranks, micro_batches, chunks);
}

TEST(Schedule, OneForwardOneBackwardIsTheTableOfThePaper) {
  // Narayanan et al. 2021, figure 3: rank r starts with p−1−r forwards, then alternates.
  EXPECT_EQ(print(made("1f1b", 3, 4)),
            "schedule 1f1b: 3 ranks, 1 chunk, 4 micro-batches\n"
            "route 0-3: 0 1 2\n"
            "0: F0 F1 F2 B0 F3 B1 B2 B3\n"
            "1: F0 F1 B0 F2 B1 F3 B2 B3\n"
            "2: F0 B0 F1 B1 F2 B2 F3 B3\n");
}

TEST(Schedule, InterleavingIsMegatronsOrder) {
  // Warm-up 2(p−1−r) + (v−1)p: 4 on rank 0, 2 on rank 1; groups of p micro-batches pass all chunks in turn.
  EXPECT_EQ(print(made("interleaved", 2, 4, 2)),
            "schedule interleaved: 2 ranks, 2 chunks, 4 micro-batches\n"
            "route 0-3: 0 1 0.1 1.1\n"
            "0: F0 F1 F0.1 F1.1 F2 B0.1 F3 B1.1 F2.1 B0 F3.1 B1 B2.1 B3.1 B2 B3\n"
            "1: F0 F1 F0.1 B0.1 F1.1 B1.1 F2 B0 F3 B1 F2.1 B2.1 F3.1 B3.1 B2 B3\n");
}

TEST(Schedule, ZeroBubbleHoldsWeightsBackOnLaterRanks) {
  EXPECT_EQ(print(made("zb-h1", 2, 3)),
            "schedule zb-h1: 2 ranks, 1 chunk, 3 micro-batches\n"
            "route 0-2: 0 1\n"
            "0: F0 F1 I0 W0 F2 I1 W1 I2 W2\n"
            "1: F0 I0 F1 I1 W0 F2 I2 W1 W2\n");
}

TEST(Schedule, DualPipeRunsTwoDirectionsOverTwoCopies) {
  const Schedule schedule = made("dualpipe", 2, 4);
  EXPECT_EQ(print(schedule),
            "schedule dualpipe: 2 ranks, 2 chunks, 4 micro-batches\n"
            "route 0-1: 0 1\n"
            "route 2-3: 1.1 0.1\n"
            "0: F0 F2.1 F1&B2.1 F3.1&B0 B3.1 I1 W1\n"
            "1: F2.1 F0 F3.1&B0 F1&B2.1 B1 I3.1 W3.1\n");
  EXPECT_EQ(micro_batches_by_place(schedule), (std::vector<std::int32_t>{2, 2, 2, 2}));
}

TEST(Schedule, PipelinesOfDifferentLengthStandSideBySide) {
  const Schedule both = side_by_side(std::vector{made("1f1b", 2, 2), made("1f1b", 1, 1)});
  EXPECT_EQ(print(both),
            "schedule 1f1b: 3 ranks, 1 chunk, 3 micro-batches\n"
            "route 0-1: 0 1\n"
            "route 2: 2\n"
            "0: F0 F1 B0 B1\n"
            "1: F0 B0 F1 B1\n"
            "2: F2 B2\n");
  EXPECT_TRUE(check_schedule(both).ok());
  EXPECT_EQ(parse_schedule(print(both), "x").value(), both);
  EXPECT_EQ(micro_batches_by_place(both), (std::vector<std::int32_t>{2, 2, 1}));
  // Forward one tick, backward two: the pipeline of two ranks takes (2 + 1) · 3, the other 3.
  const Playback playback = play(both).value();
  EXPECT_EQ(playback.makespan, 9);
  EXPECT_EQ(playback.ranks[2].end, 3);
  // Every order of actions serves every route.
  EXPECT_EQ(total_order(both).size(), 10u);
}

TEST(Schedule, PlacesHoldTheStagesOfTheirRoute) {
  EXPECT_EQ(stages_by_place(made("interleaved", 3, 3, 2)), (std::vector<std::int32_t>{0, 3, 1, 4, 2, 5}));
  EXPECT_EQ(stages_by_place(made("zb-v", 3, 3)), (std::vector<std::int32_t>{0, 5, 1, 4, 2, 3}));
  EXPECT_EQ(stages_by_place(made("dualpipe", 4, 8)), (std::vector<std::int32_t>{0, 3, 1, 2, 2, 1, 3, 0}));
}

TEST(Schedule, ErrorsNameTheViolatedNeed) {
  EXPECT_EQ(error_of({"1f1b", 0, 4}), "1f1b needs at least 1 rank, not 0");
  EXPECT_EQ(error_of({"gpipe", 4, 0}), "gpipe needs at least 1 micro-batch, not 0");
  EXPECT_EQ(error_of({"1f1b", 4, 4, 2}), "1f1b has 1 chunk per rank, not 2; for more take interleaved");
  EXPECT_EQ(error_of({"interleaved", 8, 14, 2}),
            "interleaved needs micro-batches divisible by ranks: 14 by 8; nearest: 8 or 16");
  EXPECT_EQ(error_of({"interleaved", 8, 3, 2}),
            "interleaved needs micro-batches divisible by ranks: 3 by 8; nearest: 8");
  EXPECT_EQ(error_of({"interleaved", 4, 8}),
            "interleaved needs at least 2 chunks per rank (vpp), not 0; for 1 take 1f1b");
  EXPECT_EQ(error_of({"dualpipe", 5, 20}), "dualpipe needs an even number of ranks, not 5; nearest: 4 or 6");
  EXPECT_EQ(error_of({"dualpipe", 8, 13}),
            "dualpipe needs an even number of micro-batches, at least 2 · 8 ranks, not 13; nearest: 16");
  EXPECT_EQ(error_of({"dualpipe", 8, 17}),
            "dualpipe needs an even number of micro-batches, at least 2 · 8 ranks, not 17; nearest: 16 or 18");
  EXPECT_EQ(error_of({"dualpipe-v", 8, 13}), "dualpipe-v needs at least 16 micro-batches, 2 · 8 ranks, not 13");
  EXPECT_THAT(error_of({"1f1b", 1 << 30, 1 << 30}), HasSubstr("a table holds at most 16777216 in all"));
  EXPECT_THAT(error_of({"interleaved", 1 << 30, 1 << 30, 1 << 30}), HasSubstr("a table holds at most"));
  EXPECT_THAT(error_of({"1f1", 4, 8}), HasSubstr("schedule '1f1' is not known; did you mean 1f1b"));
}

RC_GTEST_PROP(Schedule, EveryMadeScheduleIsAccepted, ()) {
  const Status status = check_schedule(any_schedule());
  RC_ASSERT(status.ok());
}

RC_GTEST_PROP(Schedule, GPipeAnd1F1BIdleFor, (bool gpipe)) {
  // Rank 0 is busy m(F+B+W); the last micro-batch's way to the last rank and back costs (p−1)(F+B+W) more.
  const std::int32_t p = in_range(1, 8), m = in_range(1, 24);
  const StageCost c = any_cost();
  const Ticks work = c.forward + c.backward_input + c.backward_weight;
  const Playback result = played(made(gpipe ? "gpipe" : "1f1b", p, m), c);
  RC_ASSERT(result.makespan == (m + p - 1) * work);
  RC_ASSERT(result.bubble() == (p - 1) * work);
  RC_ASSERT(std::abs(result.bubble_share() - double(p - 1) / (m + p - 1)) < 1e-12);
}

RC_GTEST_PROP(Schedule, InterleavingDividesTheBubbleByTheChunks, ()) {
  const std::int32_t p = in_range(1, 8), v = in_range(2, 4), m = p * in_range(1, 3);
  const StageCost c = any_cost();  // of one chunk: the step's work is v times that
  const Ticks work = c.forward + c.backward_input + c.backward_weight;
  const Playback result = played(made("interleaved", p, m, v), c);
  RC_ASSERT(result.makespan == (v * m + p - 1) * work);
  RC_ASSERT(std::abs(result.bubble_share() - double(p - 1) / (v * m + p - 1)) < 1e-12);
}

RC_GTEST_PROP(Schedule, ZeroBubbleH1SavesTwoWeightProductsPerRank, ()) {
  const std::int32_t p = in_range(1, 8), m = in_range(p, 24);
  StageCost c = any_cost();
  c.backward_weight = std::min(c.backward_weight, c.forward);
  const Playback result = played(made("zb-h1", p, m), c);
  // Against 1F1B's (p−1)(F+B+W).
  RC_ASSERT(result.bubble() == (p - 1) * (c.forward + c.backward_input - c.backward_weight));
  for (const RankPlay& rank : result.ranks) RC_ASSERT(rank.in_flight == p);  // 1F1B's on rank 0
}

RC_GTEST_PROP(Schedule, ZeroBubbleH2SavesThreeForTwiceTheMemory, ()) {
  const std::int32_t p = in_range(1, 8), m = in_range(2 * p - 1, 24);
  StageCost c = any_cost();
  c.backward_weight = std::min({c.backward_weight, c.forward, (c.forward + c.backward_input) / 2});
  const Playback result = played(made("zb-h2", p, m), c);
  RC_ASSERT(result.bubble() == (p - 1) * (c.forward + c.backward_input - 2 * c.backward_weight));
  for (const RankPlay& rank : result.ranks) RC_ASSERT(rank.in_flight == 2 * p - 1);
}

RC_GTEST_PROP(Schedule, ZeroBubbleVHasNoBubbleWhenTheThreeProductsTakeTheSame, ()) {
  const std::int32_t p = in_range(1, 8), m = in_range(2 * p - 1, 24);
  const Playback result = played(made("zb-v", p, m), {2, 2, 2});
  RC_ASSERT(result.bubble() == 0);
  // 6m products a rank; rank p−1 starts p−1 later and ends p−1 later: no rank waits within its own time.
  RC_ASSERT(result.makespan == 2 * (6 * m + p - 1));
  for (const RankPlay& rank : result.ranks) RC_ASSERT(rank.in_flight <= 2 * p);  // chunks of half the size: 1F1B's
}

RC_GTEST_PROP(Schedule, ZeroBubbleVPaysOnlyForSlowInputGradients, ()) {
  // A backward goes down and up the V in 2p B where W fills only 2p W. A law found by playing, not the paper's.
  const std::int32_t p = in_range(1, 8), m = in_range(2 * p - 1, 24);
  StageCost c = any_cost();
  c.backward_input = std::max(c.backward_input, c.forward);
  c.backward_weight = std::min(c.backward_weight, (c.forward + c.backward_input) / 2);
  RC_ASSERT(played(made("zb-v", p, m), c).bubble() == 2 * (p - 1) * (c.backward_input - c.backward_weight));
}

Ticks most_idle(const Playback& playback) {
  Ticks most = 0;
  for (const RankPlay& rank : playback.ranks) most = std::max(most, playback.makespan - rank.busy);
  return most;
}

// DeepSeek-V3 report, table 2: (PP/2−1)(F&B+B−3W) with B the fused backward. It holds for every length of the pair,
// from the longer of its parts to their sum, if neither F nor W takes longer than the backward's input part.
RC_GTEST_PROP(Schedule, DualPipeIdlesAsInTheReport, ()) {
  const std::int32_t p = 2 * in_range(1, 4), m = 2 * (p + in_range(0, 4));
  StageCost c = any_cost();
  c.backward_input = std::max({c.forward, c.backward_input, c.backward_weight});
  const Ticks fused = c.backward_input + c.backward_weight;
  const Ticks saving = in_range(0, static_cast<std::int32_t>(std::min(c.forward, fused)));
  const Ticks pair = c.forward + fused - saving;
  const Playback result = played(made("dualpipe", p, m), c, 0, saving);
  RC_ASSERT(most_idle(result) == (p / 2 - 1) * (pair + fused - 3 * c.backward_weight));
  for (const RankPlay& rank : result.ranks) RC_ASSERT(rank.in_flight == p + 1);  // table 2: PP + 1
}

RC_GTEST_PROP(Schedule, DualPipeVIsDualPipeOfTwiceTheRanksFolded, ()) {
  const std::int32_t p = in_range(1, 6), m = 2 * p + in_range(0, 6);
  const StageCost c = any_cost();
  const Schedule folded = made("dualpipe-v", p, m), whole = made("dualpipe", 2 * p, 2 * m);
  const Playback a = played(folded, c), b = played(whole, c);
  RC_ASSERT(a.makespan == b.makespan);
  for (std::int32_t rank = 0; rank < p; ++rank) RC_ASSERT(a.ranks[rank] == b.ranks[rank]);
}

RC_GTEST_PROP(Schedule, InFlightActivationsFollowTheWarmUp, ()) {
  const std::int32_t p = in_range(1, 8), m = in_range(1, 24), v = in_range(2, 4), groups = in_range(1, 3);
  const Playback one = played(made("1f1b", p, m), {}), all = played(made("gpipe", p, m), {});
  const Playback interleaved = played(made("interleaved", p, p * groups, v), {});
  for (std::int32_t r = 0; r < p; ++r) {
    RC_ASSERT(one.ranks[r].in_flight == std::min(m, p - r));
    RC_ASSERT(all.ranks[r].in_flight == m);
    // Megatron's warm-up and the forward before the first backward.
    RC_ASSERT(interleaved.ranks[r].in_flight == std::min(v * p * groups, 2 * (p - 1 - r) + (v - 1) * p + 1));
  }
}

RC_GTEST_PROP(Schedule, MakespanIsNeverBelowTheBusiestRankNorTheLongestChain, ()) {
  const Schedule schedule = any_schedule();
  std::vector<StageCost> costs;
  for (std::int32_t s = 0; s < schedule.stages(); ++s) costs.push_back(any_cost());
  const Ticks transfer = in_range(0, 5);
  const Playback result = play(schedule, {costs, transfer, 0}).value();
  Ticks chain = 0;
  for (std::int32_t s = 0; s < schedule.stages(); ++s) {
    chain += costs[s].forward + costs[s].backward_input;
    if (s > 0 && schedule.routes[0][s].rank != schedule.routes[0][s - 1].rank) chain += 2 * transfer;
  }
  RC_ASSERT(result.makespan >= chain);
  for (const RankPlay& rank : result.ranks) RC_ASSERT(result.makespan >= rank.busy);
}

TEST(Schedule, TransfersAddToEveryHop) {
  // Two ranks, one micro-batch: F 1, hop 5, F 1, B 2, hop 5, B 2.
  EXPECT_EQ(played(made("1f1b", 2, 1), {1, 1, 1}, 5).makespan, 16);
  // On a V the middle hop stays on its rank: p = 1 has no hop at all. F F I I W W.
  EXPECT_EQ(played(made("zb-v", 1, 1), {1, 1, 1}, 5).makespan, 6);
}

TEST(Schedule, CostsThatCannotBeAreErrors) {
  const Schedule schedule = made("1f1b", 4, 4);
  EXPECT_EQ(play(schedule, {{{}, {}}}).error().message,
            "costs of 2 stages, but there are 4; give one for all or one each");
  EXPECT_EQ(play(schedule, {{{1, -1, 1}}}).error().message, "a cost is negative");
  EXPECT_THAT(play(schedule, {{{Ticks{1} << 60, 1, 1}}}).error().message, HasSubstr("does not fit 64 bits"));
}

RC_GTEST_PROP(Verifier, RejectsADroppedOrDuplicatedAction, (bool drop)) {
  Schedule schedule = any_schedule();
  std::vector<Action>& actions = schedule.actions[in_range(0, schedule.ranks - 1)];
  const auto at = actions.begin() + in_range(0, static_cast<std::int32_t>(actions.size()) - 1);
  if (drop)
    actions.erase(at);
  else
    actions.insert(at, *at);
  RC_ASSERT(!check_schedule(schedule).ok());
}

RC_GTEST_PROP(Verifier, RejectsABackwardMovedBeforeItsForward, ()) {
  Schedule schedule = any_schedule();
  std::vector<Action>& actions = schedule.actions[in_range(0, schedule.ranks - 1)];
  for (Action& action : actions) action.with_next = false;
  const auto backward = actions.begin() + in_range(0, static_cast<std::int32_t>(actions.size()) - 1);
  RC_PRE(backward->body == Body::Backward || backward->body == Body::BackwardInput);
  const auto forward =
      std::find(actions.begin(), backward, Action{Body::Forward, backward->micro_batch, backward->chunk});
  RC_ASSERT(forward != backward);
  std::iter_swap(forward, backward);
  const Status status = check_schedule(schedule);
  RC_ASSERT(!status.ok());
  RC_ASSERT(status.error().message.find("blocks") != std::string::npos);
}

// The makespan by relaxation: every action ends no sooner than its duration after all it needs and its predecessor on
// the rank; ends only grow, and past the sum of all work and transfers there must be a cycle. No pairs.
std::optional<Ticks> relaxed_makespan(const Schedule& s, const StageCost& c, Ticks transfer) {
  const std::vector<std::int32_t> stage_at = stages_by_place(s);
  const std::size_t units = std::size_t(s.micro_batches) * s.stages();
  std::vector<Ticks> forward(units), input(units);
  Ticks makespan = 0, limit = Ticks(units) * 2 * (c.forward + c.backward_input + c.backward_weight + transfer);
  for (bool grew = true; grew;) {
    grew = false;
    for (std::int32_t rank = 0; rank < s.ranks; ++rank) {
      Ticks now = 0;
      const auto wait = [&](const std::vector<Ticks>& ends, std::size_t unit, std::int32_t from) {
        now = std::max(now, ends[unit] + (from == rank ? 0 : transfer));
      };
      for (const Action& a : s.actions[rank]) {
        const std::int32_t stage = stage_at[rank * s.chunks + a.chunk];
        const std::size_t unit = std::size_t(a.micro_batch) * s.stages() + stage;
        std::vector<Ticks>& ends = a.body == Body::Forward ? forward : input;
        const bool backward = a.body == Body::Backward || a.body == Body::BackwardInput;
        if (a.body == Body::Forward && stage > 0) wait(forward, unit - 1, s.place_of(a.micro_batch, stage - 1).rank);
        if (backward) wait(forward, unit, rank);
        if (backward && stage + 1 < s.stages()) wait(input, unit + 1, s.place_of(a.micro_batch, stage + 1).rank);
        if (a.body == Body::BackwardWeight) wait(input, unit, rank);
        if (a.body == Body::Forward) now += c.forward;
        if (backward) now += c.backward_input;
        if (a.body == Body::Backward || a.body == Body::BackwardWeight) now += c.backward_weight;
        if (a.body != Body::BackwardWeight && now > ends[unit]) {
          ends[unit] = now;
          grew = true;
        }
      }
      makespan = std::max(makespan, now);
    }
    if (makespan > limit) return std::nullopt;
  }
  return makespan;
}

RC_GTEST_PROP(Verifier, AgreesWithRelaxationOnShuffledTables, (std::uint64_t seed)) {
  // Any order of a rank's actions covers the same work, so only the order can be at fault.
  Rng rng(seed);
  Schedule schedule = any_schedule();
  for (std::vector<Action>& actions : schedule.actions)
    for (Action& action : actions) action.with_next = false;
  for (std::uint64_t swaps = rng.below(4); swaps > 0; --swaps) {
    std::vector<Action>& actions = schedule.actions[rng.below(schedule.ranks)];
    const std::size_t at = rng.below(actions.size());
    std::swap(actions[at], actions[std::min(actions.size() - 1, at + rng.below(6))]);
  }
  const StageCost cost = any_cost();
  const Ticks transfer = in_range(0, 4);
  const std::optional<Ticks> expected = relaxed_makespan(schedule, cost, transfer);
  const Status status = check_schedule(schedule);
  RC_CLASSIFY(!expected, "blocks");
  RC_ASSERT(status.ok() == expected.has_value());
  if (expected)
    RC_ASSERT(played(schedule, cost, transfer).makespan == *expected);
  else
    RC_ASSERT(status.error().message.starts_with("the schedule blocks: "));
}

std::string refusal(std::string_view text) {
  const Result<Schedule> schedule = parse_schedule(text, "s");
  return schedule.ok() ? check_schedule(*schedule).error().message : schedule.error().message;
}

TEST(Verifier, NamesTheCycleOfRanksThatWait) {
  // Rank 0 wants micro-batch 0 back before it sends micro-batch 1; rank 1 wants both before it sends one back.
  EXPECT_EQ(refusal("schedule x: 2 ranks, 1 chunk, 2 micro-batches\nroute 0-1: 0 1\n"
                    "0: F0 B0 F1 B1\n1: F0 F1 B0 B1\n"),
            "the schedule blocks: rank 0 at B0 waits for the backward of micro-batch 0 on rank 1, chunk 0; "
            "rank 1 at F1 waits for the forward of micro-batch 1 on rank 0, chunk 0");
  EXPECT_EQ(refusal("schedule x: 1 rank, 1 chunk, 1 micro-batch\nroute 0: 0\n0: I0 F0 W0\n"),
            "the schedule blocks: rank 0 at I0 waits for the forward of micro-batch 0 on rank 0, chunk 0");
  // A pair starts when both can: a backward cannot go together with its own forward.
  EXPECT_EQ(refusal("schedule x: 1 rank, 1 chunk, 1 micro-batch\nroute 0: 0\n0: F0&B0\n"),
            "the schedule blocks: rank 0 at B0 waits for the forward of micro-batch 0 on rank 0, chunk 0");
}

TEST(Verifier, NamesTheActionAtFault) {
  const std::string head = "schedule x: 2 ranks, 1 chunk, 1 micro-batch\nroute 0: 0 1\n";
  EXPECT_EQ(refusal(head + "0: F0 B0\n1: F0\n"),
            "3 actions for 1 micro-batches at 2 stages: some are missing, each needs a forward and a backward");
  EXPECT_EQ(refusal(head + "0: F0 B0\n1: F0 I0\n"),
            "micro-batch 0, stage 1: the backward's weight part (W) is missing");
  EXPECT_EQ(refusal(head + "0: F0 B0\n1: B0 W0\n"), "rank 1: W0 comes a second time");
  EXPECT_EQ(refusal(head + "0: F0 B0\n1: I0 W0\n"), "micro-batch 0, stage 1: the forward is missing");
  EXPECT_EQ(refusal(head + "0: F0 I0&W0\n1: F0 B0\n"),
            "rank 0: I0& must be joined to one action: a forward to a backward or the reverse");
  EXPECT_EQ(refusal("schedule x: 2 ranks, 2 chunks, 2 micro-batches\nroute 0: 0 1\nroute 1: 1.1 0.1\n"
                    "0: F1 B1 F1.1 B1.1\n1: F0 B0 F1.1 B1.1\n"),
            "rank 0: F1: micro-batch 1 has its stage 0 on rank 1, chunk 1");
}

TEST(Verifier, RejectsRoutesThatDisagreeWithPlaces) {
  EXPECT_EQ(refusal("schedule x: 2 ranks, 1 chunk, 1 micro-batch\nroute 0: 0\n0: F0 B0\n1:\n"),
            "2 places, but the routes pass only 1");
  EXPECT_EQ(
      refusal("schedule x: 2 ranks, 1 chunk, 2 micro-batches\nroute 0: 0 1\nroute 1: 0\n0: F0 F1 B1 B0\n1: F0 B0\n"),
      "rank 0, chunk 0 holds stage 0 both of 2 and of 1");
  EXPECT_EQ(refusal("schedule x: 1 rank, 1 chunk, 1 micro-batch\nroute 0: 0 0\n0: F0 B0\n"),
            "rank 0, chunk 0 holds both stage 0 and stage 1");
  EXPECT_EQ(refusal("schedule x: 2 ranks, 1 chunk, 2 micro-batches\nroute 0: 0\nroute 1: 0\n0: F0 B0\n1:\n"),
            "rank 1, chunk 0 holds no stage");
  Schedule schedule = made("1f1b", 2, 2);
  schedule.route_of[1] = 7;
  EXPECT_EQ(check_schedule(schedule).error().message, "micro-batch 1 follows route 7, which is not there");
  schedule = made("1f1b", 2, 2);
  schedule.routes.push_back(schedule.routes[0]);
  EXPECT_EQ(check_schedule(schedule).error().message, "no micro-batch follows route 1");
  schedule = made("1f1b", 2, 2);
  schedule.routes[0][1].rank = 2;
  EXPECT_EQ(check_schedule(schedule).error().message, "route 0: stage 1 on rank 2, chunk 0, which is not there");
  schedule = made("1f1b", 2, 2);
  schedule.name = "two words";
  EXPECT_EQ(check_schedule(schedule).error().message, "schedule name 'two words': write a word without ':' and '#'");
  EXPECT_FALSE(check_schedule(Schedule{}).ok());
}

}  // namespace
}  // namespace weft
