// An incrementally edited plan equals the plan of the edited strategy, and reports exactly what changed.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/random.h"
#include "layout/sharding.h"
#include "models/models.h"

namespace weft {
namespace {

std::vector<DeviceId> devices(std::size_t first, int count) {
  std::vector<DeviceId> ids;
  for (int i = 0; i < count; ++i) ids.emplace_back(first + static_cast<std::size_t>(i));
  return ids;
}
Mesh mesh_of(int x, int y, std::size_t first = 0) {
  return Mesh::make({{"x", x}, {"y", y}}, devices(first, x * y)).value();
}
ShardingChoices open_choices(std::size_t mesh_axes) {
  ShardingChoices choices;
  choices.ops.resize(mesh_axes);
  choices.inputs.resize(mesh_axes);
  choices.reduce_onto.resize(mesh_axes);
  return choices;
}
OpId named(const Graph& graph, std::string_view name) {
  for (OpId op : graph.ops().ids())
    if (graph.name(op) == name) return op;
  ADD_FAILURE() << "no operator " << name;
  return OpId(0);
}

// Everything that differs between two plans.
ShardingDelta difference(const ShardingPlan& before, const ShardingPlan& after) {
  ShardingDelta delta;
  for (OpId op : before.ops.ids())
    if (!(before.ops[op] == after.ops[op])) delta.ops.push_back(op);
  for (TensorId tensor : before.made.ids())
    if (!(before.made[tensor] == after.made[tensor])) delta.tensors.push_back(tensor);
  return delta;
}

// Any axis of the operator or none, in blocks or by shares here and there; not always possible.
std::optional<AxisChoice> any_choice(const Signature& signature, int degree, Rng& rng) {
  if (rng.below(4) == 0) return std::nullopt;
  if (signature.axes.empty() || rng.below(5) == 0) return AxisChoice{};
  const Axis& axis = signature.axes[rng.below(signature.axes.size())];
  AxisChoice choice{axis.name};
  if (rng.below(10) == 0 && axis.size % 2 == 0) choice.outer = 2;
  if (rng.below(8) == 0 && degree > 1 && axis.size >= 2 * degree) {
    choice.outer = 1;
    choice.shares.assign(static_cast<std::size_t>(degree), 1);
    choice.shares.front() = axis.size - (degree - 1);
  }
  return choice;
}
ShardingEdit any_edit(const Graph& graph, OpId first_step, const ShardingPlanner& planner, Rng& rng) {
  ShardingEdit edit{OpId(rng.below(first_step.index())), {}};
  const bool forward = graph.ops()[edit.op].phase == Phase::Forward;
  if (forward && rng.below(2) == 0) edit.mesh = MeshId(rng.below(planner.placing().meshes.size()));
  const MeshId on = edit.mesh.valid() ? edit.mesh : planner.plan().ops[edit.op].mesh;
  for (const MeshAxis& axis : planner.placing().meshes[on].axes())
    edit.axes.push_back(any_choice(graph.signature(edit.op), axis.size, rng));
  return edit;
}

struct Tally {
  int edits = 0, refused = 0;
  std::size_t ops = 0;
};

void follow_random_edits(const TrainingGraph& training, std::uint64_t seed, int edits, Tally& tally) {
  const Graph& graph = training.graph;
  Rng rng(seed);
  ShardingChoices choices = open_choices(2);
  for (std::size_t m = 0; m < 2; ++m) {
    if (rng.below(2) == 0) choices.reduce_onto[m] = "s";
    for (TensorId id : graph.tensors().ids())
      if (graph.tensors()[id].kind == TensorKind::Input && !graph.tensors()[id].type.shape.empty() && rng.below(2) == 0)
        choices.inputs[m][id] = {0};
  }
  Placing placing = on_one_mesh(graph, mesh_of(2, 2));
  for (int i = 0; i < 2; ++i) {
    placing.meshes.push_back(i == 0 ? mesh_of(2, 1, 3) : mesh_of(1, 1, 2));
    placing.stage_of.push_back(0);
  }
  Result<ShardingPlanner> planner = ShardingPlanner::make(training, placing, choices);
  ASSERT_TRUE(planner.ok()) << planner.error().message;
  for (int i = 0; i < edits; ++i) {
    if (rng.below(6) == 0)
      planner->add_mesh(mesh_of(static_cast<int>(rng.between(1, 3)), static_cast<int>(rng.between(1, 2)), rng.below(9)),
                        0);
    std::vector<ShardingEdit> together;
    for (std::size_t n = 1 + rng.below(2); n > 0; --n)
      together.push_back(any_edit(graph, training.first_step, *planner, rng));
    const ShardingPlan before = planner->plan();
    const Placing placing_before = planner->placing();
    const Result<ShardingDelta> delta = planner->change(together);
    ++tally.edits;
    if (!delta.ok()) {
      // Refused: the edited strategy has no plan either, and nothing has moved.
      ++tally.refused;
      ASSERT_EQ(planner->plan(), before) << delta.error().message;
      ASSERT_EQ(planner->placing().mesh_of, placing_before.mesh_of);
      Placing edited = planner->placing();
      ShardingChoices asked = planner->choices();
      for (const ShardingEdit& edit : together) {
        if (edit.mesh.valid()) edited.mesh_of[edit.op] = edit.mesh;
        for (std::size_t m = 0; m < 2; ++m) {
          asked.ops[m].erase(edit.op);
          if (edit.axes[m]) asked.ops[m][edit.op] = *edit.axes[m];
        }
      }
      ASSERT_FALSE(plan_sharding(training, edited, asked).ok()) << delta.error().message;
      continue;
    }
    const Result<ShardingPlan> full = plan_sharding(training, planner->placing(), planner->choices());
    ASSERT_TRUE(full.ok()) << full.error().message;
    ASSERT_EQ(*full, planner->plan()) << "edit " << i << " of " << graph.name(together[0].op);
    ASSERT_EQ(*delta, difference(before, *full));
    tally.ops += delta->ops.size();
  }
}

TEST(ShardingPlanner, FollowsAnyEditsAsIfPlannedAnew) {
  const char* const models[] = {"alexnet",
                                "gpt2-124m:layers=2,hidden=8,heads=4,vocab=16,dropout=0.1",
                                "gpt2-124m:layers=1,hidden=8,heads=4,vocab=16,fused_attention=0",
                                "llama3-8b:layers=2,hidden=8,heads=4,kv_heads=2,ffn=12,vocab=16",
                                "mixtral-8x7b:layers=1,hidden=8,heads=4,kv_heads=2,ffn=4,vocab=16,experts=4",
                                "rnnlm:hidden=4,vocab=16",
                                "dlrm"};
  Tally tally;
  std::uint64_t seed = 0;
  for (const char* model : models) {
    const bool images = std::string_view(model) == "alexnet" || std::string_view(model) == "dlrm";
    const TrainingGraph training =
        make_training_graph(
            build_model(model, {.batch = 12, .seq = images ? std::nullopt : std::optional<std::int64_t>(4)}).value())
            .value();
    for (int run = 0; run < 6; ++run) follow_random_edits(training, ++seed, 60, tally);
  }
  // Most proposals are possible, and some are not.
  EXPECT_GT(tally.edits - tally.refused, 1000);
  EXPECT_GT(tally.refused, 100);
  fmt::print("{} edits, {} refused, {:.1f} operators changed by one on average\n", tally.edits, tally.refused,
             static_cast<double>(tally.ops) / (tally.edits - tally.refused));
}

TEST(ShardingPlanner, TouchesNothingBeyondAnOperatorWhoseNeighboursAreExplicit) {
  const TrainingGraph training = make_training_graph(build_model("alexnet", {.batch = 4}).value()).value();
  const Graph& graph = training.graph;
  ShardingChoices choices = open_choices(1);
  for (OpId op : graph.ops().ids())
    if (graph.ops()[op].phase == Phase::Forward && graph.signature(op).axis_named("b") >= 0) choices.ops[0][op] = {"b"};
  ShardingPlanner planner =
      ShardingPlanner::make(training, on_one_mesh(graph, Mesh::make({{"x", 4}}, devices(0, 4)).value()), choices)
          .value();
  std::vector<OpId> convolutions;
  for (OpId op : graph.ops().ids())
    if (graph.kind(op) == OpKind::Conv2d && graph.ops()[op].phase == Phase::Forward) convolutions.push_back(op);
  const OpId conv = convolutions.at(2);
  const ShardingDelta delta = planner.change({conv, {AxisChoice{"o"}}}).value();
  // Only the convolution, its two backward products and the accumulation of its weight's gradient.
  for (OpId op : delta.ops) {
    const OpId forward = graph.ops()[op].forward;
    EXPECT_TRUE(op == conv || forward == conv || graph.kind(op) == OpKind::Accumulate) << graph.name(op);
  }
  EXPECT_LE(delta.ops.size(), 4u);
  EXPECT_GE(delta.ops.size(), 3u);
  EXPECT_TRUE(planner.change({conv, {AxisChoice{"o"}}}).value().ops.empty());  // the same again is no change
  EXPECT_EQ(planner.change({conv, {AxisChoice{"b"}}}).value(), delta);         // and back
}

// Samples over the replicas of the second stage, although the first has one replica only.
TEST(PlanSharding, HandsOnThroughASmallerMeshWhatALargerOneSplits) {
  const TrainingGraph training =
      make_training_graph(
          build_model("gpt2-124m:layers=2,hidden=8,heads=4,vocab=16,dropout=0", {.batch = 4, .seq = 4}).value())
          .value();
  const Graph& graph = training.graph;
  Placing placing = on_one_mesh(graph, mesh_of(1, 2));
  const MeshId second = placing.meshes.push_back(mesh_of(4, 1, 2));
  placing.stage_of.push_back(1);
  for (OpId op : graph.ops().ids())
    if (graph.name(op).starts_with("layers.1") || graph.name(op).starts_with("head")) placing.mesh_of[op] = second;
  ShardingChoices choices = open_choices(2);
  for (TensorId id : graph.tensors().ids())
    if (graph.tensors()[id].kind == TensorKind::Input && graph.tensors()[id].type.shape == Shape{4, 4})
      choices.inputs[0][id] = {0};
  const ShardingPlan plan = plan_sharding(training, placing, choices).value();
  const OpId linear = named(graph, "layers.1.mlp.up");
  EXPECT_EQ(plan.ops[linear].axes[static_cast<std::size_t>(graph.signature(linear).axis_named("b"))],
            (std::vector<Cut>{{0}}));
  for (const auto& cuts : plan.ops[named(graph, "layers.0.mlp.up")].axes) EXPECT_TRUE(cuts.empty());
}

// Rows are split along x by the first convolution, and a rule splits the second one's along y. A windowed axis is split
// only once.
TEST(PlanSharding, PropagationLeavesAWindowToTheAxisChosenForIt) {
  const TrainingGraph training = make_training_graph(build_model("lenet", {.batch = 4}).value()).value();
  const Graph& graph = training.graph;
  ShardingChoices choices = open_choices(2);
  std::vector<OpId> convolutions;
  for (OpId op : graph.ops().ids())
    if (graph.kind(op) == OpKind::Conv2d && graph.ops()[op].phase == Phase::Forward) convolutions.push_back(op);
  choices.ops[0][convolutions.at(0)] = {"h"};
  choices.ops[1][convolutions.at(1)] = {"h"};
  const Result<ShardingPlan> plan = plan_sharding(training, on_one_mesh(graph, mesh_of(2, 2)), choices);
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  const auto rows = static_cast<std::size_t>(graph.signature(convolutions[1]).axis_named("h"));
  EXPECT_EQ(plan->ops[convolutions[0]].axes[rows], (std::vector<Cut>{{0}}));
  EXPECT_EQ(plan->ops[convolutions[1]].axes[rows], (std::vector<Cut>{{1}}));
}

}  // namespace
}  // namespace weft
