// Every model of the zoo compiles for every software stack.
#include <fmt/core.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <set>

#include "plan/plan.h"
#include "program/verify.h"
#include "small_zoo.h"

namespace weft {
namespace {

// What keeps the models from being compiled by this strategy, for any stack.
std::set<std::string> faults(const std::vector<SmallModel>& models, const char* strategy, bool verified) {
  std::set<std::string> found;
  for (const SmallModel& model : models)
    for (const std::string& stack : stack_names()) {
      const auto note = [&](const Error& error) {
        found.insert(fmt::format("{} on {}: {}", model.name, stack, error.message));
      };
      PlanRequest request{.model = model.spec, .cluster = "dgx-a100:1", .strategy = strategy};
      request.seq = model.seq;
      request.stack = stack;
      const Result<Plan> plan = make_plan(request);
      if (!plan.ok()) {
        note(plan.error());
        continue;
      }
      const Result<CompiledStrategy> compiled = compile_plan(*plan);
      if (!compiled.ok()) {
        note(compiled.error());
        continue;
      }
      if (!verified) continue;
      if (const Status status = verify(compiled->program, plan->training().graph, compiled->schedule); !status.ok())
        note(status.error());
    }
  fmt::print("{} models × {} stacks by {}\n", models.size(), stack_names().size(), strategy);
  return found;
}

TEST(ZooStacks, EveryModelCompilesForEveryStack) {
  EXPECT_EQ(faults(small_zoo(), "dp=8,mbs=1,ga=1", false), std::set<std::string>());
}

// Heads, experts and what lies between them over two devices, in two stages. (The 197 tokens of a ViT do not divide.)
TEST(ZooStacks, EveryFamilyOfTransformersIsSplitForEveryStack) {
  std::vector<SmallModel> transformers;
  for (const SmallModel& model : small_families())
    if (std::holds_alternative<TransformerConfig>((*find_in_zoo(model.name).value()).config))
      transformers.push_back(model);
  EXPECT_GT(transformers.size(), 15u);
  EXPECT_EQ(faults(transformers, "tp=2,sp=0,pp=2,dp=2,mbs=1,ga=2,recompute=selective", true), std::set<std::string>());
}

}  // namespace
}  // namespace weft
