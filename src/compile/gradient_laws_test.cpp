// Laws of gradients: how they are reduced does not depend on what the mesh axes are called, a micro-batch reduces each
// of them once, and the first term of a sum takes no time.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "cost/analytic.h"
#include "forecast/forecast.h"
#include "report/traffic.h"

namespace weft {
namespace {

using testing::HasSubstr;

struct Case {
  Plan plan;
  CompiledStrategy compiled;
};
Case compiled(const PlanRequest& request) {
  Plan plan = make_plan(request).value();
  CompiledStrategy compiled = compile_plan(plan).value();
  return {std::move(plan), std::move(compiled)};
}

// Bytes of gradients that a device sends in a step.
std::int64_t gradients_sent(const Case& each) {
  std::int64_t bytes = 0;
  for (const StepTraffic& row : traffic_of(each.plan, each.compiled))
    if (row.cargo == Cargo::Gradients) bytes += row.bytes.front().value;
  return bytes;
}

std::int64_t parameters_of(const Case& each) {
  std::int64_t elements = 0;
  for (const auto& [parameter, gradient] : each.plan.training().accumulated) {
    std::int64_t own = 1;
    for (std::int64_t extent : each.plan.training().graph.tensors()[parameter].type.shape) own *= extent;
    elements += own;
  }
  return elements;
}

PlanRequest llama(std::string strategy) {
  return {.model = "llama3-8b:layers=2",
          .cluster = "dgx-h100:2",
          .strategy = std::move(strategy),
          .global_batch = 16,
          .micro_batch = 1,
          .seq = 2048};
}

// n = dp·cp = 16 in five ways. Megatron-LM sums in f32: an all-reduce sends 2·15/16·4 bytes per parameter, a
// reduce-scatter half of it; ZeRO-2 and 3 scatter what each of the 16/dp micro-batches adds, which is made in bf16 and
// sent in f32 too.
TEST(Gradients, AreReducedInOneGroupHoweverDpAndCpAreFactored) {
  int cases = 0;
  for (int zero = 0; zero <= 3; ++zero)
    for (const int cp : {1, 2, 4, 8, 16}) {
      const Case each = compiled(llama(fmt::format("cp={},zero={}", cp, zero)));
      const std::int64_t parameters = parameters_of(each), times = zero >= 2 ? each.compiled.schedule.micro_batches : 1;
      EXPECT_EQ(gradients_sent(each), times * (zero == 0 ? 2 : 1) * 15 * 4 * parameters / 16)
          << "cp=" << cp << " zero=" << zero;
      ++cases;
    }
  fmt::print("{} of {} cases\n", cases, 20);
}

// fsdp = 8, replicate = 2: 7/8 of the terms are scattered inside, then the part is all-reduced across, 2·1/2 of 1/8;
// all in f32.
TEST(Gradients, OfHybridShardingAreScatteredInsideAndSummedAcross) {
  const Case each = compiled(llama("fsdp=8,replicate=2"));
  EXPECT_EQ(gradients_sent(each), (7 + 1) * 4 * parameters_of(each) / 8);
}

// Every gradient takes one collective over the devices that hold the same: 8 of dense ones, 8/ep of experts'.
TEST(Gradients, OfExpertsAreReducedOverTheDevicesThatHoldTheSameOnes) {
  for (const std::string strategy : {"ep=2", "ep=4", "ep=2,cp=2", "ep=4,cp=2", "ep=4,cp=4", "ep=8,cp=2"}) {
    const Case each = compiled({.model = "mixtral-8x7b:layers=1",
                                .cluster = "dgx-h100:1",
                                .strategy = strategy + ",zero=0",
                                .global_batch = 8,
                                .micro_batch = 1,
                                .seq = 512});
    const Program& program = each.compiled.program;
    const Graph& graph = each.plan.training().graph;
    std::map<TensorId, std::vector<int>> sizes;  // by accumulator, of the groups of its reductions
    for (const Instruction& instruction : program.instructions) {
      const auto* communicate = std::get_if<Communicate>(&instruction.what);
      if (!communicate || communicate->collective == Collective::Slice) continue;
      for (BufferId input : communicate->inputs)
        if (const TensorId tensor = program.buffers[input].tensor; cargo_of(graph, tensor) == Cargo::Gradients)
          sizes[graph.tensors()[tensor].storage].push_back(
              program.meshes[instruction.mesh].group_size(communicate->axes));
    }
    for (const auto& [parameter, gradient] : each.plan.training().accumulated) {
      const bool expert = graph.name(parameter).find("experts") != std::string::npos;
      const int group = expert ? 8 / static_cast<int>(each.plan.parallelism->ep) : 8;
      EXPECT_EQ(sizes[graph.tensors()[gradient].storage], group == 1 ? std::vector<int>{} : std::vector{group})
          << graph.name(parameter) << " with " << strategy;
    }
  }
}

TEST(Gradients, OfADenseModelKnowNoExperts) {
  const Result<Plan> plan = make_plan(llama("ep=8,zero=0"));
  ASSERT_FALSE(plan.ok());
  EXPECT_THAT(plan.error().message, HasSubstr("ep=8"));
  EXPECT_THAT(plan.error().message, HasSubstr("leave"));
  EXPECT_EQ(gradients_sent(compiled(llama("ep=1,zero=0"))), gradients_sent(compiled(llama("zero=0"))));
}

// A weight that is used many times (recurrent ones at every step, a table by embedding and head) is reduced as often as
// any other: ZeRO-2 sends in a micro-batch what ZeRO-1 sends in a step, in the type of the terms.
TEST(Gradients, OfSharedWeightsAreReducedOncePerMicroBatch) {
  struct Model {
    const char* spec;
    std::int64_t seq;
  };
  for (const Model& model : {Model{"nmt:layers=1", 8}, {"rnnlm", 8}, {"gpt2-124m:layers=2", 128}})
    for (const std::int64_t micro_batches : {1, 3}) {
      const auto sent = [&](int zero) {
        return gradients_sent(compiled({.model = model.spec,
                                        .cluster = "dgx-a100:1",
                                        .strategy = fmt::format("dp=4,zero={},ga={}", zero, micro_batches),
                                        .global_batch = 4 * micro_batches,
                                        .seq = model.seq,
                                        .dtype = "fp32",
                                        .devices = {0, 1, 2, 3}}));
      };
      const std::int64_t once = sent(1);
      EXPECT_GT(once, 0) << model.spec;
      for (const int zero : {2, 3}) EXPECT_EQ(sent(zero), micro_batches * once) << model.spec << " zero=" << zero;
    }
}

// Time of additions to gradients, over a step of one device.
Picoseconds adding(const Case& each) {
  const AnalyticCost cost(each.plan.stack());
  const Priced priced = price(each.compiled.program, each.compiled.schedule, each.plan.training(), each.plan.cluster(),
                              cost, each.plan.stack())
                            .value();
  const Agent& agent = priced.workload.agents[AgentId(0)];
  const IdVec<BodyId, PlayedRange> ranges = played_ranges(agent);
  Picoseconds time = 0;
  for (const Play& play : agent.plays)
    for (TaskId id : agent.bodies[play.body]) {
      const Task& task = agent.tasks[id];
      if (task.label >= each.compiled.program.instructions.size() ||
          !works_in(task, ranges[play.body], play.micro_batch))
        continue;
      const auto* compute = std::get_if<Compute>(&each.compiled.program.instructions[InstructionId(task.label)].what);
      if (compute && each.plan.training().graph.kind(compute->op) == OpKind::Accumulate && task.work.valid())
        time += priced.workload.works[task.work].fixed;
    }
  return time;
}

TEST(Gradients, OfTheFirstMicroBatchAreWrittenNotAdded) {
  for (int zero = 0; zero <= 3; ++zero) {
    const auto time = [&](int micro_batches) {
      PlanRequest request = llama(fmt::format("dp=16,zero={},ga={}", zero, micro_batches));
      request.global_batch = 16 * micro_batches;
      request.stack = "torchtitan";
      return adding(compiled(request));
    };
    const Picoseconds second = time(2);
    EXPECT_EQ(time(1), 0) << "zero=" << zero;
    EXPECT_GT(second, 0) << "zero=" << zero;
    EXPECT_EQ(time(5), 4 * second) << "zero=" << zero;
  }
}

}  // namespace
}  // namespace weft
