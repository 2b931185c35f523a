// What users demand of plans: parsed once, obeyed by the whole space, refused with the reason where nothing has it.
#include "hybrid/constraints.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "cost/analytic.h"
#include "hybrid/enumerate.h"
#include "strategy/stack.h"

namespace weft {
namespace {

using testing::HasSubstr;

Constraints demanded(const ConstraintWords& words) {
  const Result<Constraints> parsed = parse_constraints(words);
  EXPECT_TRUE(parsed.ok()) << parsed.error().message;
  return parsed.ok() ? *parsed : Constraints{};
}
std::string refusal(const ConstraintWords& words) {
  const Result<Constraints> parsed = parse_constraints(words);
  return parsed.ok() ? "" : parsed.error().message;
}

PlanProblem problem_of(const char* model, const char* cluster, std::int64_t batch, std::int64_t seq = 2048,
                       const char* stack = "") {
  PlanRequest request{.model = model, .cluster = cluster, .global_batch = batch};
  if (seq > 0) request.seq = seq;
  request.stack = stack;
  Result<PlanProblem> posed = pose(request);
  EXPECT_TRUE(posed.ok()) << posed.error().message;
  return std::move(posed).value();
}

std::vector<Parallelism> plans_of(const PlanProblem& problem, SpaceOptions options) {
  const Constraints constraints = options.constraints;
  std::vector<Parallelism> plans;
  for (const HybridPlan& plan : enumerate_space(problem, opened(std::move(options), constraints, problem)).plans)
    plans.push_back(parallelism_of(plan, problem.layers));
  return plans;
}

TEST(Constraints, KeepExactlyThePlansOfTheWholeSpaceThatTheyAllow) {
  const PlanProblem problem = problem_of("llama3-8b:layers=8", "dgx-h100:2", 64);
  const std::vector<Parallelism> all = plans_of(problem, {});
  const std::vector<ConstraintWords> cases = {{.fix = "tp=4"},
                                              {.fix = "tp=2,zero=1", .limit = "mbs=2"},
                                              {.without = "zero3,cp,recompute=full"},
                                              {.limit = "vpp=2", .without = "sp"},
                                              {.fix = "recompute=op"},
                                              {.without = "recompute"},
                                              {.without = "vpp uneven full"}};
  for (const ConstraintWords& words : cases) {
    const Constraints constraints = demanded(words);
    std::vector<Parallelism> expected;
    std::copy_if(all.begin(), all.end(), std::back_inserter(expected),
                 [&](const Parallelism& plan) { return constraints.allow(plan); });
    const std::vector<Parallelism> found = plans_of(problem, {.constraints = constraints});
    EXPECT_EQ(found, expected) << words.fix << " | " << words.limit << " | " << words.without;
    EXPECT_FALSE(found.empty());
    EXPECT_LT(found.size(), all.size());
  }
}

TEST(Constraints, SayWhatTheWordsSay) {
  Parallelism plan{.tp = 4, .pp = 2, .dp = 4, .vpp = 2, .zero = 1, .fsdp = 4, .sequence_parallel = true};
  plan.micro_batch = 2;
  plan.schedule = "interleaved";
  plan.recompute = Recompute::Op;
  EXPECT_TRUE(
      demanded({.fix = "tp=4,pp=2,dp=4,vpp=2,zero=1,sp=1,mbs=2,schedule=interleaved,recompute=op"}).allow(plan));
  EXPECT_TRUE(demanded({.limit = "tp=4,vpp=2"}).allow(plan));
  EXPECT_TRUE(demanded({.without = "cp,zero3,recompute=full,offload,uneven,full,hsdp"}).allow(plan));
  for (const char* other : {"tp=8", "zero=0", "mbs=1", "recompute=none", "schedule=1f1b"})
    EXPECT_FALSE(demanded({.fix = other}).allow(plan)) << other;
  for (const char* less : {"tp=2", "vpp=1", "mbs=1"}) EXPECT_FALSE(demanded({.limit = less}).allow(plan)) << less;
  for (const char* what : {"tp", "pp", "vpp", "zero", "zero1", "sp", "recompute", "recompute=op",
                           "schedule=interleaved", "interleaving", "pipeline", "dp"})
    EXPECT_FALSE(demanded({.without = what}).allow(plan)) << what;
}

// Beyond the usual limits: zb-v is not in the default space, 32 samples are above the largest micro-batch, and parts of
// 1,024 tokens are below the shortest of context parallelism.
TEST(Constraints, OpenTheSpaceForWhatIsFixed) {
  const PlanProblem problem = problem_of("llama3-8b:layers=8", "dgx-h100:1", 64, 4096);
  for (const char* words : {"schedule=zb-v", "mbs=64", "cp=4", "zero=3,pp=2"})
    EXPECT_FALSE(plans_of(problem, {.constraints = demanded({.fix = words})}).empty()) << words;
}

TEST(Constraints, RefuseWithTheReasonAndTheNearestPossible) {
  const PlanProblem problem = problem_of("llama3-8b", "dgx-h100:2", 64);
  const AnalyticCost cost(problem.stack());
  const auto why = [&](const ConstraintWords& words) {
    const Result<PlanOutcome> found = enumerate(problem, cost, {.space = {.constraints = demanded(words)}});
    return found.ok() ? "found" : found.error().message;
  };
  EXPECT_EQ(why({.fix = "tp=3"}),
            "--fix tp=3: no plan of llama3-8b on 16 devices has it: it does not divide the 32 heads; the nearest "
            "possible: tp=2 or tp=4");
  EXPECT_EQ(why({.fix = "ep=4"}),
            "--fix ep=4: no plan of llama3-8b on 16 devices has it: the model has no experts; the nearest possible: "
            "ep=1");
  // 8 · 4 = 32 devices are more than the 16 there are; with tp=8 two are left.
  EXPECT_EQ(why({.fix = "tp=8,dp=4"}),
            "--fix dp=4: no plan of llama3-8b on 16 devices with --fix tp=8 has it; the nearest possible: dp=2");
}

TEST(Constraints, KeepToWhatTheStackCanRun) {
  const PlanProblem problem = problem_of("llama3-8b:layers=8", "dgx-h100:2", 64);
  const auto of = [&](const char* stack) {
    return Constraints{.clauses = {}, .stack = stack, .abilities = find_stack(stack)->can.value};
  };
  for (const Parallelism& plan : plans_of(problem, {.constraints = of("pytorch-ddp")}))
    EXPECT_TRUE(plan.tp == 1 && plan.pp == 1 && plan.cp == 1 && plan.dp == 16 && plan.zero <= 1);
  bool shards = false;
  const PlanProblem sharded = problem_of("llama3-8b:layers=8", "dgx-h100:2", 64, 2048, "pytorch-fsdp");
  for (const Parallelism& plan : plans_of(sharded, {.constraints = of("pytorch-fsdp")})) {
    EXPECT_TRUE(plan.tp == 1 && plan.pp == 1 && plan.zero != 1);
    shards = shards || plan.fsdp < plan.dp;
  }
  EXPECT_TRUE(shards);  // HSDP
  bool pipelined = false;
  for (const Parallelism& plan : plans_of(problem, {.constraints = of("torchtitan")}))
    pipelined = pipelined || (plan.zero == 3 && plan.pp > 1);
  EXPECT_TRUE(pipelined);
  // Weft's own executor plays whatever the compiler makes, pipelines with ZeRO 2 and 3 too.
  const std::vector<Parallelism> all = plans_of(problem, {.pipelined_zero = true});
  EXPECT_EQ(plans_of(problem, {.constraints = of("weft")}), all);

  const AnalyticCost cost(problem.stack());
  Constraints both = demanded({.fix = "tp=8"});
  both.stack = "pytorch-ddp";
  both.abilities = find_stack("pytorch-ddp")->can.value;
  const Result<PlanOutcome> refused = enumerate(problem, cost, {.space = {.constraints = both}});
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message,
              HasSubstr("--stack pytorch-ddp: pytorch-ddp cannot run --fix tp=8: it has no tp"));
}

TEST(Constraints, RefuseWordsThatMeanNothing) {
  EXPECT_EQ(refusal({.fix = "tpp=8"}), "--fix tpp=8: no search decides 'tpp'; did you mean tp, pp or vpp?");
  EXPECT_EQ(refusal({.fix = "tp=eight"}), "--fix tp=eight: a whole number from 1 to 16777216");
  EXPECT_EQ(refusal({.fix = "tp"}), "--fix 'tp': write key=value, tp=8");
  EXPECT_EQ(refusal({.limit = "recompute=full"}),
            "--limit recompute=full: recompute is no number; use --fix or --without");
  EXPECT_EQ(refusal({.fix = "tp=8,tp=4"}), "--fix tp=8 contradicts --fix tp=4; leave one out");
  EXPECT_EQ(refusal({.fix = "zero=3", .without = "zero3"}), "--fix zero=3 contradicts --without zero3; leave one out");
  EXPECT_THAT(refusal({.without = "zero4"}), HasSubstr("did you mean zero"));
  EXPECT_THAT(refusal({.without = "elephants"}), HasSubstr("known: tp, cp, ep"));
  EXPECT_EQ(refusal({.without = ","}), "--without ',': names nothing");
  EXPECT_THAT(refusal({.without = "schedule"}), HasSubstr("name the value, schedule=gpipe"));
}

}  // namespace
}  // namespace weft
