// Strategies drawn at random, every operator split and placed in any legal way: the program trains as one device does,
// and an edited program is the one that a full compilation gives.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <thread>

#include "compile/compilation.h"
#include "random_plans.h"

namespace weft {
namespace {

// Changes how one forward operator is split (and sometimes where it runs), any legal way.
void change_one_operator(const TrainingGraph& training, ShardedPlan& plan, Rng& rng) {
  const Graph& graph = training.graph;
  const OpId op(rng.below(training.first_backward.index()));
  const Signature& signature = graph.signature(op);
  for (std::size_t m = 0; m < plan.choices.ops.size(); ++m) {
    std::vector<std::string> possible = {""};
    for (int a = 0; a < static_cast<int>(signature.axes.size()); ++a)
      if (splittable(signature, a)) possible.push_back(signature.axes[static_cast<std::size_t>(a)].name);
    plan.choices.ops[m][op] = {possible[rng.below(possible.size())]};
    const int parts = plan.placing.meshes[MeshId(0)].axes()[m].size;
    if (!plan.choices.ops[m][op].axis.empty() && parts > 1 && rng.below(3) == 0)
      plan.choices.ops[m][op].shares = random_shares(parts, rng);
  }
  if (plan.placing.meshes.size() > 2) plan.placing.mesh_of[op] = MeshId(rng.below(plan.placing.meshes.size() - 1));
}

struct EditCounts {
  std::atomic<int> edits = 0, instructions = 0, all = 0;
};

// Whether it gathers or scatters some uneven parts so.
bool has_parts(const Program& program, Parts parts) {
  for (const Instruction& instruction : program.instructions)
    if (const auto* communicate = std::get_if<Communicate>(&instruction.what);
        communicate && communicate->parts == parts)
      return true;
  return false;
}

// Collectives over several mesh axes at once.
int joint_collectives(const Program& program) {
  int joint = 0;
  for (const Instruction& instruction : program.instructions)
    if (const auto* communicate = std::get_if<Communicate>(&instruction.what))
      joint += std::popcount(communicate->axes) > 1 && communicate->collective != Collective::Slice;
  return joint;
}

// The law of recompilation: after any edit the program equals that of a full compilation; after undo, the previous one.
// The edited program is then executed.
std::string problem_of_edits(const TrainingGraph& training, ShardedPlan plan, Rng& rng, EditCounts& counts) {
  plan.placing = with_world(plan.placing).value();
  Result<ShardingPlan> planned = plan_sharding(training, plan.placing, plan.choices);
  if (!planned.ok()) return planned.error().message;
  ShardingPlan current = std::move(planned).value();
  CompileOptions options = plan.options();
  Compilation compilation(training, plan.placing, current, options, plan.recompute);
  if (const Status done = compilation.compile(); !done.ok()) return done.error().message;
  options.buckets = compilation.buckets();
  for (int edit = 0; edit < 3; ++edit) {
    const Program before = compacted(compilation.program());
    const ShardedPlan plan_before = plan;
    const ShardingPlan current_before = current;
    change_one_operator(training, plan, rng);
    Result<ShardingPlan> next = plan_sharding(training, plan.placing, plan.choices);
    if (!next.ok()) {  // does not divide
      plan = plan_before;
      continue;
    }
    std::vector<OpId> changed;
    for (OpId op : next->ops.ids())
      if (next->ops[op] != current.ops[op]) changed.push_back(op);
    current = std::move(next).value();
    const Result<Program> full = compile(training, plan.placing, current, options, plan.recompute);
    const Result<ProgramEdit> edited = compilation.recompile(changed);
    if (full.ok() != edited.ok())
      return "full and incremental compilation differ in whether they succeed: " +
             (full.ok() ? edited.error().message : full.error().message);
    if (edited.ok() && compacted(compilation.program()).instructions != full->instructions)
      return "a recompiled program differs from a full compilation in its instructions";
    if (edited.ok() && compacted(compilation.program()) != *full)
      return "a recompiled program differs from a full compilation";
    if (edited.ok()) {
      ++counts.edits;
      counts.all += static_cast<int>(full->instructions.size());
      for (const BodyEdit& body : edited->bodies) counts.instructions += static_cast<int>(body.added.size());
    }
    if (!edited.ok() || edit == 1) {
      compilation.undo();
      plan = plan_before;
      current = current_before;
      if (compacted(compilation.program()) != before) return "an undone edit leaves another program";
    }
  }
  return problem_of(training, plan, current, compacted(compilation.program()));
}

// WEFT_RANDOM_PLANS sets how many; sanitizer builds run fewer.
TEST(CompiledProgram, RandomStrategiesTrainAsOneDevice) {
  const char* const wanted = std::getenv("WEFT_RANDOM_PLANS");
  const int plans = wanted ? std::atoi(wanted) : 2100;
  const std::vector<RandomlySplit> models = randomly_split_models();
  std::vector<std::string> problems(static_cast<std::size_t>(plans));
  std::atomic<int> next = 0, rings = 0, joint = 0, padded = 0, grouped = 0;
  EditCounts counts;
  const auto play = [&] {
    for (int i = next++; i < plans; i = next++) {
      const RandomlySplit& model = models[static_cast<std::size_t>(i) % models.size()];
      Rng rng = Rng(99).split(static_cast<std::uint64_t>(i));
      const ShardedPlan plan = random_plan(model.training, rng, i % 2 == 1);
      if (const Result<ShardingPlan> sharding = plan_sharding(model.training, plan.placing, plan.choices);
          sharding.ok() && ring_turns(model.training, *sharding, plan.placing) > 0)
        ++rings;
      if (const Result<Program> program = compiled(model.training, plan); program.ok()) {
        joint += joint_collectives(*program) > 0;
        padded += has_parts(*program, Parts::Padded);
        grouped += has_parts(*program, Parts::Grouped);
      }
      problems[static_cast<std::size_t>(i)] =
          i % 4 < 2 ? problem_of(model.training, plan) : problem_of_edits(model.training, plan, rng, counts);
    }
  };
  std::thread other(play);
  play();
  other.join();
  int mismatches = 0;
  for (std::size_t i = 0; i < problems.size(); ++i) {
    mismatches += problems[i].empty() ? 0 : 1;
    EXPECT_EQ(problems[i], "") << models[i % models.size()].name << " plan " << i;
  }
  EXPECT_GT(rings, plans / 20);
  EXPECT_GT(joint, plans / 4);
  EXPECT_GT(padded, plans / 20);
  EXPECT_GT(grouped, plans / 20);
  fmt::print(
      "{} random strategies played, {} of them with rings, {} with collectives over several axes, {} with padded "
      "parts, "
      "{} with grouped ones, {} mismatches; {} edits recompiled, {} of {} instructions written anew\n",
      plans, rings.load(), joint.load(), padded.load(), grouped.load(), mismatches, counts.edits.load(),
      counts.instructions.load(), counts.all.load());
}

}  // namespace
}  // namespace weft
