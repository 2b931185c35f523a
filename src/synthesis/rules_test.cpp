#include "synthesis/rules.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/random.h"
#include "cost/analytic.h"
#include "models/models.h"
#include "strategy/resolve.h"
#include "synthesis/astar.h"
#include "synthesis/synthesis.h"

namespace weft {
namespace {

TrainingGraph trained(Graph graph) {
  return make_training_graph(std::move(graph), {.master_weights = false, .clip_norm = std::nullopt}).value();
}

// Linears of these widths over a batch, an activation between them, a loss at the end.
Graph perceptron(std::int64_t batch, const std::vector<std::int64_t>& widths, bool skip = false) {
  GraphBuilder b("perceptron");
  TensorId x = b.input("x", DType::F32, {batch, widths.front()});
  for (std::size_t i = 1; i < widths.size(); ++i) {
    auto scope = b.scope(fmt::format("layers.{}", i));
    const TensorId before = x;
    x = b.op1(OpKind::Linear, "linear", {x, b.parameter("weight", DType::F32, {widths[i - 1], widths[i]})});
    if (i + 1 < widths.size()) x = b.op1(OpKind::Unary, "act", {x}, {{"fn", "relu"}});
    if (skip && i > 1 && widths[i] == widths[i - 1]) x = b.op1(OpKind::Binary, "add", {x, before}, {{"fn", "add"}});
  }
  const auto terms = b.op(OpKind::CrossEntropy, "entropy", {x, b.input("labels", DType::I64, {batch})});
  b.result(b.op1(OpKind::NllLoss, "loss", {terms[0], terms[1]}));
  return std::move(b).freeze().value();
}

SharedMesh line(std::vector<std::size_t> devices, Shares samples = {}, Shares others = {}) {
  std::vector<DeviceId> ids;
  for (std::size_t device : devices) ids.emplace_back(device);
  const int size = static_cast<int>(ids.size());
  return {Mesh::make({{"dp", size}}, ids).value(), {{std::move(samples), std::move(others), {}}}};
}

struct Testbed {
  Cluster cluster = parse_cluster("dgx1-v100:1+p100x8:1").value();
  AnalyticCost cost{find_stack("pytorch-ddp").value()};

  ProgramSpace space(const TrainingGraph& training, SharedMesh mesh) const {
    return make_program_space(training, std::move(mesh), cluster, cost);
  }
};

VariableId variable_of(const ProgramSpace& space, const Graph& graph, const std::string& name) {
  for (VariableId v : space.ops.ids())
    for (OpId op : space.ops[v])
      if (graph.name(op) == name) return v;
  return {};
}

// 12 elements in the ratio 3:2:1 are 6 + 4 + 2; in granules of 2, three, two and one of them. In granules of 6 there are
// two for three devices. Equal shares must divide: 12 does over 3, not over 5.
TEST(RoundedShares, AreWholeGranulesForEveryDevice) {
  EXPECT_EQ(rounded_shares(12, 1, 1, 3, {3, 2, 1}), (Shares{3, 2, 1}));
  EXPECT_EQ(rounded_shares(12, 2, 1, 3, {30, 20, 10}), (Shares{3, 2, 1}));
  EXPECT_EQ(rounded_shares(12, 6, 1, 3, {3, 2, 1}), std::nullopt);
  EXPECT_EQ(rounded_shares(12, 1, 1, 3, {}), Shares{});
  EXPECT_EQ(rounded_shares(12, 1, 1, 5, {}), std::nullopt);
  // A device that would get nothing: 100 : 1 of 12.
  EXPECT_EQ(rounded_shares(12, 1, 1, 2, {100, 1}), std::nullopt);
  // A later axis of 2 devices cuts the parts again: 16 as 5 : 3 of 16 are 10 + 6, whole multiples of 2.
  EXPECT_EQ(rounded_shares(16, 1, 2, 2, {5, 3}), (Shares{5, 3}));
}

// A linear of 4,096 × 4,096 weights with its samples over a V100 and a P100, 10.4 Gb/s apart. For 8 samples the factors
// x and dy are 2 · 8 · 4,096 floats = 262 kB, the gradient is 67 MB: gathering the factors and computing all of the
// gradient everywhere is cheaper than reducing it. For 65,536 samples the factors are 2.1 GB.
TEST(ProgramRules, GatherFactorsWhereTheyAreSmallerThanTheGradient) {
  const Testbed bed;
  for (const std::int64_t batch : {8, 65536}) {
    const TrainingGraph training = trained(perceptron(batch, {4096, 4096, 8}));
    const ProgramSpace space = bed.space(training, line({0, 8}));
    const VariableId linear = variable_of(space, training.graph, "layers.1.linear");
    std::map<std::string, Picoseconds> least;
    for (std::size_t o = 0; o < space.meaning[linear].size(); ++o) {
      const Distribution& way = space.meaning[linear][o];
      if (way.split[0].axis != "b" || way.optimizer != 0) continue;
      const std::string how = !way.weight_gradient                     ? "reduced"
                              : (*way.weight_gradient)[0].axis.empty() ? "gathered"
                                                                       : "other";
      const Picoseconds cost = own_cost(space.choices.own[linear][o], even_prices(space.classes.size()));
      Picoseconds& of = least.try_emplace(how, cost).first->second;
      of = std::min(of, cost);
    }
    // Where gathering is dear, another split that reads the same has taken its place.
    ASSERT_TRUE(least.contains("reduced"));
    const bool gathers = least.contains("gathered") && least["gathered"] < least["reduced"];
    EXPECT_EQ(gathers, batch == 8) << least["gathered"] << " " << least["reduced"];
  }
}

// Every program of the space is what its tree says: the sharding that the tree leads to splits each operator as the
// option means.
TEST(ProgramRules, TreesSayWhatOptionsMean) {
  const Testbed bed;
  const TrainingGraph training = trained(perceptron(12, {12, 24, 24, 12}, true));
  const ProgramSpace space = bed.space(training, line({0, 8, 9}, {3, 2, 1}, {2, 1, 1}));
  Rng rng(5);
  int checked = 0;
  for (int i = 0; i < 50; ++i) {
    std::vector<std::uint32_t> option;
    for (VariableId v : space.choices.own.ids())
      option.push_back(static_cast<std::uint32_t>(rng.below(space.choices.own[v].size())));
    if (stage_sum(space.choices, option).total >= kNever) continue;
    const Result<ResolvedStrategy> resolved = resolve(to_tree(space, option, training), training, bed.cluster);
    ASSERT_TRUE(resolved.ok()) << resolved.error().message;
    for (VariableId v : space.ops.ids())
      for (OpId op : space.ops[v]) {
        EXPECT_EQ(resolved->choices[0].sharding.ops[0].at(op), space.meaning[v][option[v.index()]].split[0])
            << training.graph.name(op);
        ++checked;
      }
  }
  EXPECT_GT(checked, 100);
}

// Random small networks on two to four devices of two kinds: A*, elimination and all combinations agree.
TEST(ProgramRules, SmallNetworksAreSolvedAsByBruteForce) {
  const Testbed bed;
  int compared = 0, exact = 0;
  for (std::uint64_t i = 0; i < 60; ++i) {
    Rng rng = Rng(77).split(i);
    std::vector<std::int64_t> widths = {std::int64_t{48} << rng.below(5)};
    for (std::uint64_t layer = 0; layer < 1 + rng.below(2); ++layer) widths.push_back(std::int64_t{48} << rng.below(6));
    const TrainingGraph training = trained(perceptron(std::int64_t{48} << rng.below(6), widths));
    const std::vector<std::vector<std::size_t>> devices = {{0, 8}, {0, 1, 8}, {0, 8, 9, 10}};
    const std::vector<std::size_t>& some = devices[rng.below(3)];
    Shares samples;
    for (std::size_t device : some) samples.push_back(device < 8 ? 2 : 1);
    const ProgramSpace space = bed.space(training, rng.below(2) == 0 ? line(some) : line(some, samples, samples));
    ProgramChoices choices = space.choices;
    double combinations = 1;
    for (const SharedVec<ProgramChoices::Option>& options : choices.own)
      combinations *= static_cast<double>(options.size());
    if (combinations > 1.5e5) continue;
    Picoseconds least = kNever;
    std::vector<std::uint32_t> option(choices.own.size(), 0);
    for (bool more = true; more;) {
      least = std::min(least, stage_sum(choices, option).total);
      std::size_t v = 0;
      while (v < option.size() && ++option[v] == choices.own[VariableId(v)].size()) option[v++] = 0;
      more = v < option.size();
    }
    const SolvedProgram solved = solve(space.choices);
    const AStarOutcome found = search_astar(space.choices, solved.prices);
    EXPECT_EQ(found.sum.total, least) << i;
    EXPECT_LE(solved.lower_bound, least) << i;
    EXPECT_GE(solved.sum.total, least) << i;
    exact += solved.sum.total == least;
    ++compared;
  }
  fmt::print("{} small networks compared; elimination found the optimum of {}\n", compared, exact);
  EXPECT_GE(compared, 20);
}

// With too little memory for whole copies of the weights something is sharded, and then it fits.
TEST(Synthesise, ShardsWhatDoesNotFit) {
  const Testbed bed;
  const TrainingGraph training = trained(perceptron(48, {768, 3072, 768, 96}));
  SynthesisRequest request{.devices = {DeviceId(0), DeviceId(1), DeviceId(8), DeviceId(9)},
                           .memory_budget = {},
                           .overlaps_gradients = false};
  const SynthesisOutcome free = synthesise(training, bed.cluster, bed.cost, request);
  ASSERT_FALSE(free.programs.empty());
  std::int64_t held = 0;
  for (std::int64_t bytes : free.programs.front().program.sum.memory) held = std::max(held, bytes);
  request.memory_budget.assign(4, held * 3 / 4);
  const SynthesisOutcome tight = synthesise(training, bed.cluster, bed.cost, request);
  ASSERT_FALSE(tight.programs.empty());
  EXPECT_TRUE(tight.programs.front().program.fits);
  for (std::int64_t bytes : tight.programs.front().program.sum.memory) EXPECT_LE(bytes, held * 3 / 4);
  EXPECT_GE(tight.programs.front().program.sum.total, free.programs.front().program.sum.total);
}

// A V100 beside a P100 gets more of the samples, and no start of shares is worse than equal ones.
TEST(Synthesise, GivesFasterDevicesMore) {
  const Testbed bed;
  const TrainingGraph training = trained(perceptron(16384, {256, 256, 256, 16}));
  const SynthesisOutcome found =
      synthesise(training, bed.cluster, bed.cost,
                 {.devices = {DeviceId(0), DeviceId(8)}, .memory_budget = {}, .overlaps_gradients = false});
  ASSERT_FALSE(found.programs.empty());
  const Synthesised& best = found.programs.front();
  const Shares& samples = best.mesh.ratio[0].samples;
  ASSERT_EQ(samples.size(), 2u);
  EXPECT_GT(samples[0], samples[1]);
  for (const Synthesised& other : found.programs) EXPECT_LE(best.program.sum.total, other.program.sum.total);
  // The same again.
  const SynthesisOutcome again =
      synthesise(training, bed.cluster, bed.cost,
                 {.devices = {DeviceId(0), DeviceId(8)}, .memory_budget = {}, .overlaps_gradients = false});
  EXPECT_EQ(again.programs.front().tree, best.tree);
}

}  // namespace
}  // namespace weft
