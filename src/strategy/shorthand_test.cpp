#include "strategy/shorthand.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <numeric>

namespace weft {
namespace {

Result<Parallelism> completed(std::string_view text, std::int64_t devices, const BatchRequest& batch = {}) {
  WEFT_TRY(const Shorthand shorthand, parse_shorthand(text));
  return complete(shorthand, devices, batch);
}
std::string message(std::string_view text, std::int64_t devices = 64, const BatchRequest& batch = {}) {
  const Result<Parallelism> plan = completed(text, devices, batch);
  return plan.ok() ? "accepted" : plan.error().message;
}

TEST(Shorthand, SettlesEveryDegree) {
  const Parallelism plan =
      completed("tp=8,pp=16,dp=8,vpp=2,zero=1,sp=1,recompute=selective,mbs=1", 1024, {.global_batch = 1536}).value();
  Parallelism expected;
  expected.tp = expected.etp = 8;
  expected.pp = 16;
  expected.dp = expected.fsdp = 8;
  expected.vpp = 2;
  expected.zero = 1;
  expected.sequence_parallel = true;
  expected.recompute = Recompute::Selective;
  expected.micro_batch = 1;
  expected.micro_batches = 192;  // 1536 / (1·8)
  expected.schedule = "interleaved";
  EXPECT_EQ(plan, expected);
  EXPECT_EQ(plan.world(), 1024);
  EXPECT_EQ(plan.graph_batch(), 8);
  EXPECT_EQ(plan.global_batch(), 1536);
}
TEST(Shorthand, InfersTheDegreeThatIsLeftOut) {
  EXPECT_EQ(completed("tp=8,pp=2", 64)->dp, 4);   // 64 / 16
  EXPECT_EQ(completed("tp=2,cp=2", 64)->dp, 16);  // dp excludes cp
  EXPECT_EQ(completed("zero=3", 64)->dp, 64);
  EXPECT_EQ(completed("tp=4,dp=4", 64)->pp, 4);
  EXPECT_EQ(completed("pp=4,dp=4", 64)->tp, 4);
  EXPECT_EQ(completed("fsdp=8,replicate=8", 64)->dp, 64);
  EXPECT_EQ(completed("fsdp=8", 64)->fsdp, 8);
}
TEST(Shorthand, TurnsSequenceParallelismOnWithTensorParallelism) {
  EXPECT_TRUE(completed("tp=2", 8)->sequence_parallel);
  EXPECT_FALSE(completed("tp=2,sp=0", 8)->sequence_parallel);
  EXPECT_FALSE(completed("dp=8", 8)->sequence_parallel);
}
TEST(Shorthand, CountsMicroBatches) {
  EXPECT_EQ(completed("dp=8,mbs=2", 8, {.global_batch = 64})->micro_batches, 4);  // 64 / (2·8)
  EXPECT_EQ(completed("dp=8,ga=4", 8, {.global_batch = 64})->micro_batch, 2);     // 64 / (8·4)
  EXPECT_EQ(completed("dp=8", 8, {.global_batch = 64, .micro_batch = 2})->micro_batches, 4);
  EXPECT_EQ(completed("dp=8,mbs=3", 8, {.global_batch = 64, .smaller_last = true})->last_micro_batch, 2);  // 3+3+2 each
  EXPECT_EQ(completed("pp=8,schedule=dualpipe", 8)->micro_batches, 16);
}

TEST(Shorthand, RejectsWithTheRemedy) {
  const struct {
    const char *text, *message;
  } cases[] = {
      {"", "strategy: empty; write degrees, tp=8,pp=2, or the name of a .yaml file"},
      {"tp", "strategy 'tp': write key=value, tp=8"},
      {"tp=8,,pp=2", "strategy '': write key=value, tp=8"},
      {"tp=0", "strategy: tp=0: a whole number from 1 to 16777216"},
      {"tp=two", "strategy: tp=two: a whole number from 1 to 16777216"},
      {"tp=99999999999999999999", "strategy: tp=99999999999999999999: a whole number from 1 to 16777216"},
      {"zero=4", "strategy: zero=4: a whole number from 0 to 3"},
      {"tp=2,tp=4", "strategy: tp given twice; keep one"},
      {"recompte=full", "strategy: unknown key 'recompte'; did you mean recompute?"},
      {"recompute=some", "strategy: recompute=some: write none, selective, full or op"},
      {"recompute=op:some",
       "strategy: recompute=op:some: behind the colon, write in how many first layers of every stage: op:12, or "
       "op:4+62x3+2"},
      {"recompute=none:2", "strategy: recompute=none:2: nothing is recomputed in no layer; write none"},
      {"full=layers.*.mlp:",
       "strategy: full=layers.*.mlp:: behind the colon, write in how many first layers of every "
       "stage: layers.*.mlp:12, or layers.*.mlp:4+62x3+2"},
      {"full=:4", "strategy: full=:4: write modules, layers.*.mlp, joined by +"},
      {"pp=4,recompute=op:2+1",
       "strategy: recompute=op:2+1: 2 numbers, but pp=4 with schedule 1f1b has 4 stages; write "
       "one for all, recompute=op:2, or one each"},
      {"schedule=1fb1", "strategy: schedule=1fb1: unknown; did you mean 1f1b?"},
      {"cp=2,cp_mode=rings", "strategy: cp_mode=rings: write gather, a2a or ring"},
      {"stages=8+x", "strategy: stages=8+x: write the layers of every stage, 8+8+7+9, or alike ones counted, 1+62x2+1"},
      {"order=tp-xp",
       "strategy: order=tp-xp: 'xp' is none of tp, cp, ep, dp, pp, h, w, replicate, fsdp; write innermost first, "
       "tp-cp-ep-dp-pp"},
      {"offload=disk", "strategy: offload=disk: write weights, gradients, optimizer or activations, joined by +"},
      {"offload=weights:",
       "strategy: offload=weights:: write the modules, weights:layers.*.mlp, or leave the colon out"},
      {"offload=weights:a+weights:a", "strategy: offload=weights:a+weights:a: weights:a given twice"},
      {"tp=3", "strategy: 64 devices do not divide by the degrees given, 3; choose degrees whose product divides 64"},
      {"tp=128", "strategy: tp·cp·pp·dp = 128·1·1·1 is more than the cluster's 64 devices; lower a degree"},
      {"dp=8", "strategy: tp·cp·pp·dp = 1·1·1·8 = 8, but the cluster has 64 devices; change a degree or leave dp out"},
      {"tp=2,pp=2,dp=2",
       "strategy: tp·cp·pp·dp = 2·1·2·2 = 8, but the cluster has 64 devices; change a degree or leave dp out"},
      {"ep=3", "strategy: ep=3 does not divide dp·cp·tp/etp = 64·1·1/1 = 64; choose a divisor of 64"},
      {"tp=4,ep=64", "strategy: ep=64 does not divide dp·cp·tp/etp = 16·1·4/4 = 16; choose a divisor of 16"},
      {"tp=4,etp=3",
       "strategy: etp=3 does not divide tp=4: experts are cut over some of the devices that tp cuts layers over"},
      {"tp=4,etp=2,sp=0",
       "strategy: etp=2 below tp=4 needs sp=1: without it every tp rank has all tokens, and experts that are not cut "
       "over all of tp would compute them more than once; leave out sp or etp"},
      {"vpp=2", "strategy: vpp=2 needs pp > 1: chunks are interleaved over pipeline ranks"},
      {"pp=4,vpp=2,schedule=1f1b",
       "strategy: schedule=1f1b has one model chunk per pipeline rank, not vpp=2; write schedule=interleaved"},
      {"pp=4,schedule=interleaved",
       "strategy: schedule=interleaved needs vpp, model chunks per pipeline rank, of 2 or more"},
      {"pp=4,vpp=2,ga=6", "strategy: schedule interleaved needs micro-batches in multiples of pp=4, not 6; take 8"},
      {"pp=4,ga=4,schedule=dualpipe",
       "strategy: schedule dualpipe needs at least 8 micro-batches on pp=4, not 4; enlarge the global batch"},
      {"pp=4,stages=8+8+8", "strategy: stages=8+8+8 lists 3 stages, but pp=4 with schedule 1f1b has 4"},
      {"sp=1", "strategy: sp=1 needs tp > 1: it splits by sequence what tensor parallelism leaves whole"},
      {"replicate=8", "strategy: replicate=8 needs fsdp, the devices that one copy is spread over: fsdp=8,replicate=8"},
      {"fsdp=8,replicate=4,dp=64", "strategy: dp=64 is not fsdp·replicate = 8·4 = 32; leave dp out"},
      {"fsdp=8,zero=1", "strategy: zero=1 contradicts fsdp=8, which spreads weights too (zero=3); leave one out"},
      {"fsdp=7", "strategy: fsdp=7 does not divide dp=64, what the other degrees leave of 64 devices"},
  };
  for (const auto& [text, expected] : cases) EXPECT_EQ(message(text), expected) << text;
}
TEST(Shorthand, ListsTheNearestBatches) {
  EXPECT_EQ(message("dp=8", 8, {.global_batch = 100}),
            "strategy: global batch 100 does not divide by mbs·dp = 1·8 = 8; the nearest that do: 96 or 104");
  EXPECT_EQ(message("dp=8,mbs=2", 8, {.global_batch = 4}),
            "strategy: global batch 4 does not divide by mbs·dp = 2·8 = 16; the nearest that do: 16");
  EXPECT_EQ(message("dp=8,ga=3", 8, {.global_batch = 64}),
            "strategy: global batch 64 does not divide by dp·ga = 8·3 = 24; the nearest that do: 48 or 72");
  EXPECT_EQ(message("dp=8,mbs=2,ga=3", 8, {.global_batch = 64}),
            "strategy: ga=3 contradicts the global batch: 64 = mbs 2 · dp 8 · 4 micro-batches; leave one out");
  EXPECT_EQ(message("dp=8,mbs=2", 8, {.micro_batch = 4}), "strategy: mbs=2 contradicts --micro-batch 4; keep one");
}

Shorthand random_shorthand() {
  Shorthand made;
  const auto maybe = [](std::optional<std::int64_t>& field, std::int64_t least, std::int64_t most) {
    if (*rc::gen::arbitrary<bool>()) field = *rc::gen::inRange(least, most + 1);
  };
  for (auto field : {&Shorthand::tp, &Shorthand::cp, &Shorthand::pp, &Shorthand::dp, &Shorthand::ep, &Shorthand::etp,
                     &Shorthand::vpp, &Shorthand::fsdp, &Shorthand::replicate, &Shorthand::mbs, &Shorthand::ga,
                     &Shorthand::h, &Shorthand::w})
    maybe(made.*field, 1, 1024);
  maybe(made.zero, 0, 3);
  maybe(made.sp, 0, 1);
  maybe(made.tables, 0, 1);
  if (*rc::gen::arbitrary<bool>()) made.cp_mode = static_cast<ContextMode>(*rc::gen::inRange(0, 3));
  if (*rc::gen::arbitrary<bool>()) made.recompute = static_cast<Recompute>(*rc::gen::inRange(0, 4));
  if (made.recompute && made.recompute != Recompute::None)
    made.recompute_layers = *rc::gen::container<std::vector<std::int64_t>>(rc::gen::inRange<std::int64_t>(0, 4));
  if (*rc::gen::arbitrary<bool>()) made.full = {{"layers.*.mlp", {1, 2, 2, 2}}, {"head"}, {"layers.*.attn", {3}}};
  if (*rc::gen::arbitrary<bool>()) made.schedule = "zb-h1";
  made.stages = *rc::gen::container<std::vector<std::int64_t>>(rc::gen::inRange<std::int64_t>(0, 100));
  if (*rc::gen::arbitrary<bool>()) made.order = {"dp", "tp", "pp"};
  if (*rc::gen::arbitrary<bool>())
    made.offload = {{Stored::Optimizer}, {Stored::Activations}, {Stored::Weights, "layers.*.mlp"}};
  return made;
}
RC_GTEST_PROP(ShorthandLaws, ParseOfPrintIsIdentity, ()) {
  const Shorthand made = random_shorthand();
  const std::string text = print(made);
  if (text.empty()) return;
  const Result<Shorthand> again = parse_shorthand(text);
  RC_ASSERT(again.ok());
  RC_ASSERT(*again == made);
}
RC_GTEST_PROP(ShorthandLaws, WhatIsCompletedFillsTheClusterAndTheBatch, ()) {
  Shorthand made;
  for (auto field : {&Shorthand::tp, &Shorthand::cp, &Shorthand::pp, &Shorthand::ep, &Shorthand::etp, &Shorthand::mbs,
                     &Shorthand::fsdp})
    if (*rc::gen::arbitrary<bool>()) made.*field = *rc::gen::element<std::int64_t>(1, 2, 3, 4);
  const std::int64_t devices = *rc::gen::element<std::int64_t>(1, 8, 48, 96, 576);
  const std::int64_t batch = devices * *rc::gen::inRange(1, 16);
  const Result<Parallelism> plan = complete(made, devices, {.global_batch = batch});
  RC_CLASSIFY(plan.ok());
  if (!plan.ok()) return;
  RC_ASSERT(plan->world() == devices);
  RC_ASSERT(plan->global_batch() == batch);
  RC_ASSERT(plan->tp % plan->etp == 0);
  RC_ASSERT(plan->fsdp * plan->cp * plan->tp / plan->etp % plan->ep == 0);
}
RC_GTEST_PROP(ShorthandLaws, AnyTextIsParsedOrRejected, (const std::string& text)) {
  const Result<Shorthand> parsed = parse_shorthand(text);
  RC_ASSERT(parsed.ok() || !parsed.error().message.empty());
}

// 1 + 62·2 + 1 = 126 layers on 64 stages; a run of three is counted, one of two is written out.
TEST(Shorthand, CountsAlikeStages) {
  const Shorthand counted = parse_shorthand("pp=64,stages=1+62x2+1").value();
  EXPECT_EQ(counted.stages.size(), 64U);
  EXPECT_EQ(std::accumulate(counted.stages.begin(), counted.stages.end(), std::int64_t{0}), 126);
  EXPECT_EQ(parse_shorthand("pp=64,stages=1+62×2+1").value(), counted);
  EXPECT_EQ(print(counted), "pp=64,stages=1+62x2+1");
  EXPECT_EQ(print(parse_shorthand("stages=8+8+7+7+7+9").value()), "stages=8+8+3x7+9");
  for (const char* wrong :
       {"stages=0x2", "stages=x2", "stages=2x", "stages=2xx2", "stages=2x2x2", "stages=9999999999x1"})
    EXPECT_FALSE(parse_shorthand(wrong).ok()) << wrong;
}

TEST(Shorthand, SharesAreSamplesOfEachReplica) {
  const Shorthand words = parse_shorthand("dp=6,zero=1,mbs=2,shares=2x6+4x2").value();
  EXPECT_EQ(words.shares, (std::vector<std::int64_t>{6, 6, 2, 2, 2, 2}));
  EXPECT_EQ(print(words), "dp=6,zero=1,mbs=2,shares=6+6+4x2");
  // 6+6+2+2+2+2 is 3+3+1+1+1+1 = 10 shares, of 2 samples each: 20 samples a micro-batch, 5 of them 100.
  const Parallelism plan = complete(words, 6, {.global_batch = 100}).value();
  EXPECT_EQ(plan.units(), 10);
  EXPECT_EQ(plan.graph_batch(), 20);
  EXPECT_EQ(plan.micro_batches, 5);
  EXPECT_EQ(plan.global_batch(), 100);
  EXPECT_EQ(complete(shorthand_of(plan), 6, {.global_batch = 100}).value(), plan);
  EXPECT_TRUE(complete(parse_shorthand("dp=2,shares=3+3").value(), 2).value().shares.empty());
  const auto fault = [](const char* text, std::int64_t devices) {
    return complete(parse_shorthand(text).value(), devices, {.global_batch = 64}).error().message;
  };
  EXPECT_EQ(fault("dp=2,shares=3+1+1", 2), "strategy: shares=3+1+1 are 3, but there are dp=2 replicas");
  EXPECT_EQ(fault("dp=2,mbs=1,shares=2+1", 2),
            "strategy: global batch 64 does not divide by mbs·shares = 1·3 = 3; the nearest that do: 63 or 66");
  EXPECT_EQ(
      fault("fsdp=2,replicate=2,shares=2+1+1+1", 4),
      "strategy: shares= divides samples over one axis of replicas; leave out replicate, or write a strategy file");
  EXPECT_EQ(parse_shorthand("dp=2,shares=1+0").error().message,
            "strategy: shares=1+0: a replica without samples waits all the time; leave its devices out (--devices)");
  EXPECT_FALSE(parse_shorthand("shares=a+b").ok());
}

// A row of a table of plans, with spaces for commas.
TEST(Shorthand, TakesSpacesForCommas) {
  EXPECT_EQ(parse_shorthand("tp=8 pp=2 zero=1").value(), parse_shorthand("tp=8,pp=2,zero=1").value());
  EXPECT_EQ(parse_shorthand(" tp=8,  pp=2 ").value(), parse_shorthand("tp=8,pp=2").value());
  EXPECT_FALSE(parse_shorthand("tp=8,,pp=2").ok());
}

}  // namespace
}  // namespace weft
