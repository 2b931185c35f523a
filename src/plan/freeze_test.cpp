#include "plan/freeze.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "models/models.h"
#include "plan/plan.h"

namespace weft {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

Graph two_layers() { return build_model("llama3-8b:layers=2,hidden=16,heads=4,kv_heads=2,ffn=24,vocab=16").value(); }

std::vector<std::string> named(const std::string& globs) {
  const Graph graph = two_layers();
  std::vector<std::string> names;
  const std::vector<TensorId> frozen = frozen_parameters(graph, globs).value();
  for (TensorId id : frozen) names.push_back(graph.name(id));
  return names;
}

TEST(Freeze, GlobsNameParametersAndTheLastThatCoversOneCounts) {
  EXPECT_THAT(named(""), IsEmpty());
  EXPECT_THAT(named("head.norm"), ElementsAre("head.norm.weight"));
  EXPECT_THAT(named("layers.*.attn.qkv"), ElementsAre("layers.0.attn.qkv.weight", "layers.1.attn.qkv.weight"));
  EXPECT_THAT(named("layers.*.attn.qkv+!layers.1"), ElementsAre("layers.0.attn.qkv.weight"));
  EXPECT_THAT(named("!layers.1+layers.*.attn.qkv"),
              ElementsAre("layers.0.attn.qkv.weight", "layers.1.attn.qkv.weight"));
  EXPECT_EQ(named("**").size(), named("layers+!layers.0+layers.0+embed+head").size());
}

TEST(Freeze, AGlobThatCoversNothingIsAnError) {
  const Graph graph = two_layers();
  EXPECT_THAT(frozen_parameters(graph, "layers.*.atn").error().message,
              HasSubstr("--freeze 'layers.*.atn': covers no parameter of the model; did you mean layers.*.attn"));
  EXPECT_THAT(frozen_parameters(graph, "head+!layers.7").error().message, HasSubstr("--freeze '!layers.7'"));
  EXPECT_THAT(frozen_parameters(graph, "head++head").error().message, HasSubstr("--freeze ''"));
  EXPECT_EQ(freeze_in(graph, "layers.7+head+!layers.*.mlp+!layers.9"), "head+!layers.*.mlp");
}

TEST(Freeze, APlanKeepsNeitherGradientsNorStateOfWhatIsFrozen) {
  PlanRequest request{.model = "llama3-8b:layers=2", .cluster = "dgx-h100:1", .strategy = "dp=8", .freeze = "embed"};
  const Plan plan = make_plan(request).value();
  EXPECT_EQ(plan.frozen_parameters(), std::int64_t{128256} * 4096);
  EXPECT_EQ(plan.model->parameters, build_model(request.model)->parameter_count());
  request.freeze = "**";
  EXPECT_THAT(make_plan(request).error().message,
              HasSubstr("--freeze '**': the loss depends on no parameter that is trained"));
}

}  // namespace
}  // namespace weft
