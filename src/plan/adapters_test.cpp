#include "plan/adapters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/plan.h"

namespace weft {
namespace {

using testing::HasSubstr;

std::string refusal(const char* words) {
  const auto parsed = parse_train(words);
  return parsed.ok() ? "" : parsed.error().message;
}

TEST(Adapters, AreParsedWithTheirRankAndTargets) {
  EXPECT_FALSE(parse_train("")->has_value());
  EXPECT_FALSE(parse_train("all")->has_value());
  EXPECT_EQ((*parse_train("lora"))->rank, 16);
  EXPECT_EQ((*parse_train("lora:r=8,targets=attn+mlp"))->rank, 8);
  EXPECT_EQ((*parse_train("lora:targets=mlp"))->targets, "mlp");
  EXPECT_EQ(refusal("qlora"), "--train 'qlora': write all, or lora:r=16,targets=attn");
  EXPECT_EQ(refusal("lora:r=0"), "--train lora:r=0: r=0: a rank from 1 to 65536");
  EXPECT_EQ(refusal("lora:targets=q"), "--train lora:targets=q: targets=q: write targets=attn, mlp or attn+mlp");
  EXPECT_EQ(refusal("lora:rank=4"), "--train lora:rank=4: 'rank=4': write r=16 and targets=attn");
}

// GPT-2's linears of attention are 768 → 2304 and 768 → 768: r·(768 + 2304) + r·(768 + 768) parameters per layer.
TEST(Adapters, AreAllThatIsTrained) {
  const PlanRequest request{.model = "gpt2-124m:layers=2",
                            .cluster = "dgx-a100:1",
                            .strategy = "tp=2,dp=4",
                            .train = "lora:r=8,targets=attn"};
  const Plan plan = make_plan(request).value();
  const std::int64_t adapters = 2 * (8 * (768 + 2304) + 8 * (768 + 768));
  EXPECT_EQ(plan.stored_parameters() - plan.frozen_parameters(), adapters);
  EXPECT_EQ(static_cast<std::int64_t>(plan.training().accumulated.size()), 2 * 2 * 2);
  // Frozen weights have no gradient; their inputs have one where an adapter is before them, in the second layer alone.
  std::vector<std::string> backward;
  for (OpId op : plan.graph().ops().ids())
    if (plan.graph().ops()[op].phase == Phase::Backward) backward.push_back(plan.graph().name(op));
  const auto any = [&](const char* part) {
    return std::any_of(backward.begin(), backward.end(),
                       [&](const std::string& name) { return name.find(part) != std::string::npos; });
  };
  EXPECT_FALSE(any("attn.qkv@grad_weight"));
  EXPECT_FALSE(any("mlp.up@grad_weight"));
  EXPECT_TRUE(any("layers.1.attn.qkv_lora_a@grad_weight"));
  EXPECT_TRUE(any("layers.1.mlp.up@grad"));
  EXPECT_FALSE(any("embed"));
}

TEST(Adapters, ContradictOtherFrozenParametersAndOtherModels) {
  PlanRequest request{
      .model = "gpt2-124m", .cluster = "dgx-a100:1", .strategy = "dp=8", .freeze = "embed", .train = "lora"};
  EXPECT_THAT(make_plan(request).error().message,
              HasSubstr("--freeze: --train lora freezes everything but the adapters"));
  request = {.model = "resnet50", .cluster = "dgx-a100:1", .strategy = "dp=8", .train = "lora"};
  EXPECT_THAT(make_plan(request).error().message, HasSubstr("--train lora: resnet50 has no layers of a transformer"));
}

}  // namespace
}  // namespace weft
