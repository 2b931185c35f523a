#include "report/program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace weft {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

struct Shown {
  Plan plan;
  CompiledStrategy compiled;
};
Shown shown(const std::string& strategy) {
  PlanRequest request{.model = "llama3-8b:layers=4", .cluster = "dgx-h100:2", .strategy = strategy};
  request.global_batch = 16;
  Plan plan = make_plan(request).value();
  CompiledStrategy compiled = compile_plan(plan).value();
  return {std::move(plan), std::move(compiled)};
}

// One class per pipeline rank: tensor- and data-parallel ranks execute the same instructions.
TEST(ShowProgram, RanksOfAStageAreOneClass) {
  const Shown one = shown("tp=4,pp=2,dp=2");
  const std::vector<ProgramClass> classes = program_classes(one.plan, one.compiled);
  ASSERT_EQ(classes.size(), 2u);
  EXPECT_EQ(classes[1].ranks, (std::vector<std::int64_t>{8, 9, 10, 11, 12, 13, 14, 15}));
  EXPECT_EQ(classes[1].stages, std::vector<std::int64_t>{1});
  const Shown interleaved = shown("tp=4,pp=2,dp=2,vpp=2");
  EXPECT_EQ(program_classes(interleaved.plan, interleaved.compiled)[1].stages, (std::vector<std::int64_t>{1, 3}));
}

TEST(ShowProgram, TheTextOfARankHasItsShapesGroupsAndPeers) {
  const Shown one = shown("tp=4,pp=2,dp=2,zero=1");
  const std::string text = rank_text(one.plan, one.compiled, 1).value();
  EXPECT_THAT(text, HasSubstr("rank 1 of 16; ranks 0–7 play the same code"));
  EXPECT_THAT(text, HasSubstr("bf16[4096,1536] parameter layers.0.attn.qkv.weight"));
  EXPECT_THAT(text, HasSubstr("bf16[1,8192,4096] = all-gather over tp {0–3}"));
  EXPECT_THAT(text, HasSubstr("# sends 48 MiB"));
  EXPECT_THAT(text, HasSubstr("to 9 ("));  // its counterpart in stage 1
  EXPECT_THAT(text, Not(HasSubstr("layers.3.")));
  EXPECT_THAT(stage_text(one.plan, one.compiled, 1).value(), HasSubstr("layers.3.mlp.down"));
}

TEST(ShowProgram, RanksAndStagesThatAreNotThereAreErrors) {
  const Shown one = shown("tp=4,pp=2,dp=2");
  EXPECT_EQ(rank_text(one.plan, one.compiled, 16).error().message, "--rank 16: the plan has ranks 0 to 15");
  EXPECT_EQ(rank_text(one.plan, one.compiled, -1).error().message, "--rank -1: the plan has ranks 0 to 15");
  EXPECT_EQ(stage_text(one.plan, one.compiled, 2).error().message, "--stage 2: the plan has stages 0 to 1");
}

}  // namespace
}  // namespace weft
