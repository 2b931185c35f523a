#include "optimum/optimum.h"

#include <gtest/gtest.h>

#include "cost/analytic.h"
#include "models/models.h"
#include "soap/mcmc.h"
#include "soap/soap.h"

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

TEST(Optimum, McmcReachesThatOfLeNetAndOfTwoStepsOfALanguageModel) {
  for (const char* model : {"lenet", "rnnlm:seq=2"}) {
    const Small small(model);
    const SoapOutcome walked = search_soap(small.training, small.cluster, small.cost, small.stack,
                                           {.budget = {.evaluations = 4000}, .slack = 0})
                                   .value();
    const Optimum optimum = find_optimum(small.problem, {.known = walked.judged.fifo, .checks = 100});
    EXPECT_TRUE(optimum.complete) << model;
    EXPECT_FALSE(optimum.better) << model << ": " << optimum.time << " ps";
    EXPECT_EQ(optimum.time, walked.judged.fifo) << model;
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
