#include "search/soap/optimum.h"

#include <gtest/gtest.h>

#include "cost/analytic.h"
#include "models/models.h"
#include "search/soap/mcmc.h"
#include "search/soap/soap.h"

namespace weft {
namespace {

// A network on four P100, 64 samples each, hosts without time.
struct Small {
  explicit Small(const std::string& model)
      : training(make_training_graph(build_model(model, {.batch = 256, .dtype = DType::F32}).value(),
                                     {.optimizer = OptimizerKind::Momentum, .clip_norm = std::nullopt})
                     .value()),
        cluster(parse_cluster("p100x4:1").value()),
        stack(without_host_time(find_stack("pytorch-ddp").value())),
        cost(stack),
        problem{training, cluster, cost, stack} {
    stack.p2p_overlap.value = true;
    stack.tensor_overlap.value = true;
  }

  TrainingGraph training;
  Cluster cluster;
  SoftwareStack stack;
  AnalyticCost cost;
  SoapProblem problem;
};

// How an operator is split and on which devices, whatever the axes of its grid are called.
using Splits = std::pair<std::vector<std::pair<int, int>>, std::vector<DeviceId>>;
Splits splits_of(const SoapStrategy& strategy, OpId op) {
  const OpConfig& config = strategy.ops[op];
  const Mesh& mesh = strategy.meshes[config.mesh];
  Splits splits{{}, mesh.devices()};
  for (std::size_t m = 0; m < kSoapAxes; ++m)
    if (mesh.axes()[m].size > 1) splits.first.emplace_back(config.split[m], mesh.axes()[m].size);
  return splits;
}

// Grids that differ only in which of their axes has the devices are different meshes to the compiler, whose gradients
// are in buckets of their own: the same splits may take microseconds more by other names.
TEST(Optimum, McmcReachesThatOfLeNetAndOfTwoStepsOfALanguageModel) {
  for (const char* model : {"lenet", "rnnlm:seq=2"}) {
    const Small small(model);
    const SoapOutcome walked = search_soap(small.training, small.cluster, small.cost, small.stack,
                                           {.budget = {.evaluations = 4000}, .slack = 0})
                                   .value();
    const Optimum optimum = find_optimum(small.problem, {.known = walked.judged.fifo, .checks = 100});
    EXPECT_TRUE(optimum.complete) << model;
    for (OpId op : walked.strategy.ops.ids()) {
      const SoapStrategy& best = optimum.better ? *optimum.better : walked.strategy;
      EXPECT_EQ(splits_of(walked.strategy, op), splits_of(best, op)) << small.training.graph.name(op);
    }
    if (std::string_view(model) == "lenet") {
      EXPECT_EQ(optimum.time, walked.judged.fifo);
    }
    EXPECT_LE(static_cast<double>(walked.judged.fifo), 1.0002 * static_cast<double>(optimum.time)) << model;
    EXPECT_GT(optimum.checked, 50) << model;
  }
}

TEST(Optimum, IsTheSameWhateverIsKnownBefore) {
  const Small lenet("lenet");
  SoapMeshes meshes({4, 1, 1}, {DeviceId(0), DeviceId(1), DeviceId(2), DeviceId(3)});
  const Picoseconds parallel = judge(lenet.problem, data_parallel_strategy(lenet.training, meshes)).value().fifo;
  const Optimum from_parallel = find_optimum(lenet.problem, {.known = parallel});
  ASSERT_TRUE(from_parallel.better);
  EXPECT_EQ(judge(lenet.problem, *from_parallel.better).value().fifo, from_parallel.time);
  EXPECT_LT(from_parallel.time, parallel);
  const Optimum again = find_optimum(lenet.problem, {.known = from_parallel.time + 1});
  EXPECT_EQ(again.time, from_parallel.time);
  EXPECT_LE(again.nodes, from_parallel.nodes);
  EXPECT_LE(again.root, again.time);
}

TEST(Optimum, SaysWhatIsOpenWhereItStops) {
  const Small lenet("lenet");
  const Optimum cut = find_optimum(lenet.problem, {.known = Picoseconds{1} << 50, .most_nodes = 100});
  EXPECT_FALSE(cut.complete);
  EXPECT_LE(cut.root, cut.open);
}

}  // namespace
}  // namespace weft
