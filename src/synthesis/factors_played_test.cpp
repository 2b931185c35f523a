// Sufficient factor broadcasting with everything that trees combine it with: pipelines, replicas with unequal samples, ZeRO
// over all of them, padded and grouped parts. Played by the reference, and compared with one device.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "base/random.h"
#include "compile/from_strategy.h"
#include "models/models.h"
#include "reference/one_device.h"
#include "strategy/presets.h"
#include "strategy/yaml.h"

namespace weft {
namespace {

constexpr const char* kModel = "gpt2-124m:layers=2,hidden=8,heads=4,ffn=8,vocab=12,dropout=0.1";

TrainingGraph training_of(std::int64_t samples) {
  return make_training_graph(build_model(kModel, {.batch = samples, .seq = 2, .dtype = DType::F32}).value(),
                             {.master_weights = false})
      .value();
}

CompiledStrategy compiled(const TrainingGraph& training, const Strategy& tree, CompileOptions options) {
  const Cluster cluster = parse_cluster("dgx-h100:1").value();
  return compile_strategy(training, resolve(tree, training, cluster).value(), std::move(options)).value();
}

std::set<std::string> communicated(const TrainingGraph& training, const Program& program, Collective collective) {
  std::set<std::string> names;
  for (const Instruction& instruction : program.instructions)
    if (const auto* communicate = std::get_if<Communicate>(&instruction.what);
        communicate && communicate->collective == collective)
      for (BufferId input : communicate->inputs) names.insert(training.graph.name(program.buffers[input].tensor));
  return names;
}

// Three replicas of 3, 2 and 1 samples. The weight gradient of one product is not split: its input and the gradient of its
// output are gathered, and no sum of that weight's gradient is left to do. All others are reduced.
TEST(SufficientFactors, AreGatheredInsteadOfReducingAGradient) {
  const TrainingGraph training = training_of(6);
  const Strategy tree = parse_strategy(
                            "mesh:\n  axes: {dp: 3}\nschedule: {name: gpipe, micro_batches: 1}\nrules:\n"
                            "  - {match: \"**\", inputs: {dp: {dim: 0, ratio: [3, 2, 1]}}}\n"
                            "  - {match: layers.0.mlp.up@grad_weight, compute: {dp: none}}\n",
                            "factors.yaml")
                            .value();
  for (const Parts parts : {Parts::Padded, Parts::Grouped}) {
    const CompiledStrategy plan =
        compiled(training, tree, {.gradients = {.overlap = true, .bucket = Bytes{0}}, .uneven_parts = parts});
    const std::set<std::string> gathered = communicated(training, plan.program, Collective::AllGather),
                                reduced = communicated(training, plan.program, Collective::AllReduce);
    EXPECT_TRUE(gathered.contains("layers.0.mlp_norm.y")) << fmt::format("{}", fmt::join(gathered, " "));
    EXPECT_EQ(gathered.size(), 2u) << fmt::format("{}", fmt::join(gathered, " "));
    EXPECT_FALSE(reduced.contains("layers.0.mlp.up.weight_grad"));
    EXPECT_TRUE(reduced.contains("layers.1.mlp.up.weight_grad")) << fmt::format("{}", fmt::join(reduced, " "));
    EXPECT_EQ(reference::differs_from_one_device(training, plan.program, plan.schedule), "");
  }
}

// Draws a tree; every pair of what it may have is played at least ten times.
TEST(SufficientFactors, WithPipelinesUnequalReplicasAndZeroTrainAsOneDevice) {
  constexpr int kTrees = 180;
  const std::vector<std::string> gradients = {"layers.*.mlp.up@grad_weight", "layers.0.mlp.down@grad_weight",
                                              "layers.1.attn.out@grad_weight", "layers.*.attn.qkv@grad_weight"};
  std::map<std::pair<std::string, std::string>, int> pairs;
  for (std::uint64_t number = 0; number < kTrees; ++number) {
    Rng rng = Rng(55).split(number);
    std::set<std::string> features;
    const int stages = rng.below(2) == 0 ? 2 : 1, replicas = static_cast<int>(rng.between(2, 3));
    const std::int64_t micro_batches = stages > 1 ? rng.between(1, 3) : 1;
    Strategy tree;
    if (stages > 1) tree.mesh.axes.push_back({"pp", stages});
    tree.mesh.axes.push_back({"dp", replicas});
    tree.schedule.name = stages > 1 ? "1f1b" : "gpipe";
    tree.schedule.micro_batches = micro_batches;
    if (stages > 1) {
      features.insert("pipeline");
      tree.schedule.stages = {{.layers = 1}, {.layers = 1}};
    }
    Shares shares;
    if (rng.below(3) != 0)
      for (int r = 0; r < replicas; ++r) shares.push_back(rng.between(1, 3));
    const bool uneven = std::set<std::int64_t>(shares.begin(), shares.end()).size() > 1;
    if (!uneven) shares.clear();
    std::int64_t samples = replicas;
    if (uneven) {
      features.insert("uneven");
      samples = 0;
      for (std::int64_t share : shares) samples += share;
    }
    Rule all{.match = "**"};
    all.inputs["dp"] = {0, shares};
    tree.rules.push_back(all);
    if (const int stage = static_cast<int>(rng.below(4)); stage > 0) {
      const std::vector<std::string> over = {"dp"};
      for (Rule& rule : zero(stage, over)) tree.rules.push_back(std::move(rule));
      features.insert("zero");
    }
    if (rng.below(4) != 0) {
      for (const std::string& gradient : gradients)
        if (rng.below(2) == 0) {
          Rule whole{.match = gradient};
          whole.compute["dp"] = {};
          tree.rules.push_back(whole);
          features.insert("factors gathered");
        }
    }
    const TrainingGraph training = training_of(samples);
    const Parts parts = rng.below(2) == 0 ? Parts::Padded : Parts::Grouped;
    const CompiledStrategy plan = compiled(
        training, tree, {.gradients = {.overlap = rng.below(2) == 0, .bucket = Bytes{200}}, .uneven_parts = parts});
    for (const Instruction& instruction : plan.program.instructions)
      if (const auto* communicate = std::get_if<Communicate>(&instruction.what);
          communicate && communicate->parts != Parts::Even)
        features.emplace(name_of(communicate->parts));
    ASSERT_EQ(reference::differs_from_one_device(training, plan.program, plan.schedule), "") << number << "\n"
                                                                                             << to_yaml(tree);
    for (auto a = features.begin(); a != features.end(); ++a)
      for (auto b = std::next(a); b != features.end(); ++b) ++pairs[{*a, *b}];
  }
  const std::vector<std::string> names = {"factors gathered", "grouped", "padded", "pipeline", "uneven", "zero"};
  for (std::size_t a = 0; a < names.size(); ++a)
    for (std::size_t b = a + 1; b < names.size(); ++b) {
      if (names[a] == "grouped" && names[b] == "padded") continue;  // the one or the other
      const int times = pairs[{names[a], names[b]}];
      fmt::print("{} x {}: {}\n", names[a], names[b], times);
      EXPECT_GE(times, 10) << names[a] << " x " << names[b];
    }
}

}  // namespace
}  // namespace weft
