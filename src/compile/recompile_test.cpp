// Weights shared by many operators, on one mesh and on many: what their gradients cost, and what a change of one of the
// operators leaves unchanged.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/random.h"
#include "compile/compilation.h"
#include "models/models.h"
#include "reference/one_device.h"

namespace weft {
namespace {

Mesh mesh_of(int x, int y, int first) {
  std::vector<DeviceId> devices;
  for (int i = 0; i < x * y; ++i) devices.emplace_back(static_cast<std::size_t>(first + i));
  return Mesh::make({{"x", x}, {"y", y}}, devices).value();
}

// An operator's choice, on both mesh axes.
std::vector<std::optional<AxisChoice>> split(const char* x, const char* y = "") {
  return {AxisChoice{x}, AxisChoice{y}};
}

// A network of LSTM cells over four steps: every weight of a layer is used four times. Samples are split four ways.
class Unrolled {
 public:
  explicit Unrolled(const std::string& model = "rnnlm:hidden=8,vocab=16,layers=2,seq=4", std::int64_t batch = 8)
      : training_(make_training_graph(build_model(model, {.batch = batch}).value(), {.master_weights = false}).value()),
        planner_(ShardingPlanner::make(training_, with_world(on_one_mesh(graph(), mesh_of(4, 2, 0))).value(),
                                       data_parallel(training_))
                     .value()),
        none_(RecomputeRegions::none(graph())) {
    options_.gradients.bucket = Bytes{200};
    compilation_ = std::make_unique<Compilation>(training_, planner_.placing(), planner_.plan(), options_, none_);
    EXPECT_TRUE(compilation_->compile().ok());
    options_.buckets = compilation_->buckets();
  }

  const TrainingGraph& training() const { return training_; }
  const Graph& graph() const { return training_.graph; }
  ShardingPlanner& planner() { return planner_; }
  Compilation& compilation() { return *compilation_; }
  const Program& program() const { return compilation_->program(); }

  // The forward operators that read the parameter with most readers, and it.
  std::pair<TensorId, std::vector<OpId>> shared_weight() const {
    std::pair<TensorId, std::vector<OpId>> most;
    for (TensorId id : graph().tensors().ids()) {
      if (graph().tensors()[id].kind != TensorKind::Parameter) continue;
      std::vector<OpId> readers;
      for (const Use& use : graph().uses(id))
        if (use.op < training_.first_backward) readers.push_back(use.op);
      if (readers.size() > most.second.size()) most = {id, readers};
    }
    return most;
  }

  Result<ProgramEdit> change(std::span<const ShardingEdit> edits) {
    WEFT_TRY(const ShardingDelta delta, planner_.change(edits));
    return compilation_->recompile(delta.ops);
  }
  Result<ProgramEdit> change(const ShardingEdit& edit) { return change(std::span(&edit, 1)); }

  // The program as a full compilation gives it.
  Program anew() const {
    const ShardingPlan plan = plan_sharding(training_, planner_.placing(), planner_.choices()).value();
    return compile(training_, planner_.placing(), plan, options_, none_).value();
  }
  std::string problem() const {
    const Schedule schedule = make_schedule({"gpipe", 1, 2, 0}).value();
    return reference::differs_from_one_device(training_, compacted(program()), schedule);
  }

  // How often the parameter's gradient, accumulated, goes from mesh to mesh, and how often it is reduced.
  int transfers_of_gradient(TensorId parameter) const {
    return count(parameter, [&](const Instruction& each) { return std::holds_alternative<Send>(each.what); });
  }
  int reductions_of_gradient(TensorId parameter) const {
    return count(parameter, [&](const Instruction& each) {
      const auto* step = std::get_if<Communicate>(&each.what);
      return step && step->collective != Collective::Slice;
    });
  }

 private:
  static ShardingChoices data_parallel(const TrainingGraph& training) {
    ShardingChoices choices;
    choices.ops.resize(2);
    choices.inputs.resize(2);
    choices.reduce_onto.resize(2);
    for (OpId op : IdRange<OpId>(training.first_backward.index())) {
      const Signature& signature = training.graph.signature(op);
      const int samples = signature.axis_named("b");
      const bool even = samples >= 0 && splittable(signature, samples) &&
                        signature.axes[static_cast<std::size_t>(samples)].size % 4 == 0;
      choices.ops[0][op] = {even ? "b" : ""};
      choices.ops[1][op] = {};
    }
    return choices;
  }

  // Instructions that read a buffer of the parameter's gradient, in the form of its sum or of a term.
  template <class Counts>
  int count(TensorId parameter, const Counts& counts) const {
    std::set<TensorId> gradients;
    for (const auto& [of, sum] : training_.accumulated) {
      if (of != parameter) continue;
      gradients.insert(graph().tensors()[sum].storage);
      for (OpId op : graph().ops().ids())
        if (graph().kind(op) == OpKind::Accumulate &&
            graph().tensors()[graph().outputs(op)[0]].storage == graph().tensors()[sum].storage)
          gradients.insert(graph().inputs(op)[1]);
    }
    int found = 0;
    const auto add = [&](const std::vector<InstructionId>& body) {
      for (InstructionId id : body) {
        const Instruction& instruction = program().instructions[id];
        const auto reads = reads_of(program(), instruction);
        found += counts(instruction) && std::any_of(reads.begin(), reads.end(), [&](BufferId read) {
                   return gradients.contains(program().buffers[read].tensor);
                 });
      }
    };
    for (const StageProgram& stage : program().stages) {
      add(stage.forward);
      add(stage.backward);
    }
    add(program().step);
    return found;
  }

  TrainingGraph training_;
  ShardingPlanner planner_;
  RecomputeRegions none_;
  CompileOptions options_;
  std::unique_ptr<Compilation> compilation_;
};

TEST(Recompile, TwoMeshesExchangeAGradientAndManyCollectIt) {
  Unrolled net;
  const auto [weight, readers] = net.shared_weight();
  ASSERT_EQ(readers.size(), 4u);
  EXPECT_EQ(net.transfers_of_gradient(weight), 0);
  // One mesh more for every step but the last. Two exchange: a transfer each. Of three, one collects two terms and
  // sends two sums; of four, three and three.
  const int transfers[] = {2, 4, 6};
  for (std::size_t i = 0; i < 3; ++i) {
    const MeshId there = net.planner().add_mesh(mesh_of(1, 2, static_cast<int>(2 * i)), 0);
    ASSERT_TRUE(net.change({readers[i], split("", "b"), there}).ok());
    EXPECT_EQ(net.transfers_of_gradient(weight), transfers[i]);
    EXPECT_EQ(compacted(net.program()), net.anew());
    EXPECT_EQ(net.problem(), "");
  }
}

TEST(Recompile, TermsInAnotherFormHaveASumOfTheirOwn) {
  Unrolled net;
  const auto [weight, readers] = net.shared_weight();
  EXPECT_EQ(net.reductions_of_gradient(weight), 1);  // of the sum of four partial terms
  ASSERT_TRUE(net.change({readers[1], split("")}).ok());
  EXPECT_EQ(net.reductions_of_gradient(weight), 1);  // of three; the fourth is whole everywhere
  EXPECT_EQ(compacted(net.program()), net.anew());
  EXPECT_EQ(net.problem(), "");
  ASSERT_TRUE(net.change({readers[2], split("", "b")}).ok());
  EXPECT_EQ(net.reductions_of_gradient(weight), 2);  // of two over x, one over y
  EXPECT_EQ(compacted(net.program()), net.anew());
  EXPECT_EQ(net.problem(), "");
}

TEST(Recompile, WritesLittleOfAWeightThatManyShare) {
  Unrolled net("rnnlm:hidden=8,vocab=16,layers=1,seq=16", 8);
  const auto [weight, readers] = net.shared_weight();
  ASSERT_EQ(readers.size(), 16u);
  for (std::size_t i = 0; i < 8; ++i) {  // eight steps on eight meshes
    const MeshId there = net.planner().add_mesh(mesh_of(1, 1, static_cast<int>(i)), 0);
    ASSERT_TRUE(net.change({readers[i], split(""), there}).ok());
  }
  // Step 3 goes to where step 5 is: its own instructions, its edges to other meshes and its part of the sum change, not
  // those of the fourteen others.
  const Result<ProgramEdit> edit = net.change({readers[3], split(""), net.planner().placing().mesh_of[readers[5]]});
  ASSERT_TRUE(edit.ok());
  std::size_t written = edit->rewritten.size();
  for (const BodyEdit& body : edit->bodies) written += body.added.size();
  EXPECT_LT(written, net.program().step.size() / 2);
  EXPECT_EQ(compacted(net.program()), net.anew());
}

std::vector<ShardingEdit> random_edits(const Graph& graph, std::size_t operators, const std::vector<MeshId>& meshes,
                                       Rng& rng) {
  std::set<OpId> ops;
  for (std::uint64_t i = rng.below(3) == 0 ? 3 : 1; i > 0; --i) ops.insert(OpId(rng.below(operators)));
  std::vector<ShardingEdit> edits;
  for (OpId op : ops) {
    edits.push_back({op, {}, meshes[rng.below(meshes.size())]});
    const Signature& signature = graph.signature(op);
    std::vector<std::string> possible = {""};
    for (int a = 0; a < static_cast<int>(signature.axes.size()); ++a)
      if (splittable(signature, a)) possible.push_back(signature.axes[static_cast<std::size_t>(a)].name);
    for (int m = 0; m < 2; ++m) edits.back().axes.emplace_back(AxisChoice{possible[rng.below(possible.size())]});
  }
  return edits;
}

// What is in a body before and after, and not named in the edit, is what it was.
std::string untold(const Program& before, const Program& after, const ProgramEdit& edit) {
  std::set<InstructionId> told(edit.rewritten.begin(), edit.rewritten.end());
  for (const BodyEdit& body : edit.bodies) {
    told.insert(body.added.begin(), body.added.end());
    told.insert(body.removed.begin(), body.removed.end());
  }
  const auto find = [&](const std::vector<InstructionId>& body) -> std::string {
    for (InstructionId id : body)
      if (!told.contains(id) && before.instructions[id] != after.instructions[id])
        return fmt::format("instruction {} has changed", id.index());
    return "";
  };
  for (const StageProgram& stage : after.stages)
    for (const auto* body : {&stage.forward, &stage.backward})
      if (std::string problem = find(*body); !problem.empty()) return problem;
  return find(after.step);
}

TEST(Recompile, OfSharedWeightsOnAnyMeshesIsAFullCompilation) {
  Rng rng(11);
  int edits = 0, refused = 0;
  for (const char* model : {"rnnlm:hidden=8,vocab=16,layers=1,seq=4", "nmt:hidden=8,vocab=16,layers=1,seq=2",
                            "gpt2-124m:layers=1,hidden=8,heads=2,vocab=16,seq=4"}) {
    Unrolled net(model, 16);
    std::vector<MeshId> meshes = {MeshId(0)};
    for (const auto& [x, y, first] :
         std::vector<std::array<int, 3>>{{2, 4, 0}, {2, 2, 4}, {4, 1, 2}, {1, 2, 3}, {1, 1, 0}, {1, 1, 7}})
      meshes.push_back(net.planner().add_mesh(mesh_of(x, y, first), 0));
    ASSERT_TRUE(net.compilation().recompile({}).ok());  // the program knows the meshes
    for (int i = 0; i < 60; ++i) {
      const auto proposed = random_edits(net.graph(), net.training().first_backward.index(), meshes, rng);
      std::vector<ShardingEdit> back;
      for (const ShardingEdit& edit : proposed)
        back.push_back({edit.op,
                        {net.planner().choices().ops[0].at(edit.op), net.planner().choices().ops[1].at(edit.op)},
                        net.planner().placing().mesh_of[edit.op]});
      const Program before = net.program();
      const Result<ProgramEdit> edit = net.change(proposed);
      if (!edit.ok()) {
        ++refused;
        ASSERT_TRUE(net.planner().change(back).ok());
        ASSERT_EQ(compacted(net.program()), compacted(before));
        continue;
      }
      ++edits;
      ASSERT_EQ(untold(before, net.program(), *edit), "") << model << ", edit " << i;
      ASSERT_EQ(compacted(net.program()), net.anew()) << model << ", edit " << i;
      if (i % 20 == 0) {
        ASSERT_EQ(net.problem(), "") << model << ", edit " << i;
      }
      if (rng.below(3) != 0) continue;
      net.compilation().undo();
      ASSERT_TRUE(net.planner().change(back).ok());
      ASSERT_EQ(compacted(net.program()), compacted(before)) << model << ", edit " << i << " undone";
    }
  }
  EXPECT_GT(edits, 100);
  EXPECT_LT(refused, edits);
}

}  // namespace
}  // namespace weft
