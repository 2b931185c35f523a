// The number of collectives per layer of a compiled program, compared with what frameworks issue.
#include <gtest/gtest.h>

#include <array>
#include <map>

#include "cluster/cluster.h"
#include "compile/from_strategy.h"
#include "megatron_rules.h"
#include "models/models.h"
#include "strategy/shorthand.h"

namespace weft {
namespace {

// Collectives of one layer and micro-batch over the tensor-parallel axis, by kind.
std::map<Collective, int> layer_collectives(const char* model, const Degrees& degrees,
                                            const CompileOptions& options = {}) {
  Result<Model> loaded = load_model(model, {.batch = 2, .seq = 4});
  const TrainingGraph training = make_training_graph(std::move(loaded->graph)).value();
  std::vector<DeviceId> devices;
  for (int i = 0; i < degrees.tp; ++i) devices.emplace_back(static_cast<std::size_t>(i));
  const Mesh mesh = Mesh::make({{"dp", 1}, {"ep", 1}, {"cp", 1}, {"tp", degrees.tp}}, devices).value();
  const Placing placing = on_one_mesh(training.graph, mesh);
  const ShardingPlan plan = plan_sharding(training, placing, megatron(training.graph, mesh, degrees)).value();
  const Program program =
      compile(training, placing, plan, options, regions_of(training.graph, degrees.recompute)).value();
  std::map<Collective, int> counts;
  for (const auto* body : {&program.stages[0].forward, &program.stages[0].backward})
    for (InstructionId id : *body)
      if (const auto* collective = std::get_if<Communicate>(&program.instructions[id].what))
        // Tensors of the second of three layers, and what its neighbours hand it: activations only.
        for (BufferId output : collective->outputs) {
          const Tensor& tensor = training.graph.tensors()[program.buffers[output].tensor];
          if (training.graph.name(program.buffers[output].tensor).starts_with("layers.1.") &&
              tensor.type.shape.size() == 3)
            ++counts[collective->collective];
        }
  return counts;
}

// Korthikanti et al. 2022, and how frameworks count: two all-reduces forward and two backward per layer; a full
// recomputation repeats the forward ones. With sequence parallelism each all-reduce is a reduce-scatter and an
// all-gather, and column-parallel linears gather their input again for the weight gradient.
TEST(CompiledProgram, TensorParallelCollectivesPerLayerAreMegatrons) {
  const char* const model = "gpt2-124m:layers=3,hidden=16,heads=4,vocab=16,dropout=0";
  using Counts = std::map<Collective, int>;
  EXPECT_EQ(layer_collectives(model, {.tp = 2}), (Counts{{Collective::AllReduce, 4}}));
  EXPECT_EQ(layer_collectives(model, {.tp = 2, .recompute = "selective"}), (Counts{{Collective::AllReduce, 4}}));
  EXPECT_EQ(layer_collectives(model, {.tp = 2, .recompute = "full"}), (Counts{{Collective::AllReduce, 6}}));
  EXPECT_EQ(layer_collectives(model, {.tp = 2, .sequence_parallel = true}),
            (Counts{{Collective::AllGather, 6}, {Collective::ReduceScatter, 4}}));
  // Unless the stack keeps the gathered input.
  EXPECT_EQ(layer_collectives(model, {.tp = 2, .sequence_parallel = true}, {.keep_gathered_input = true}),
            (Counts{{Collective::AllGather, 4}, {Collective::ReduceScatter, 4}}));
}

// Ulysses beside tensor parallelism: a layer's forward pass has Megatron's two gathers and two scatters over tp, and an
// all-to-all for each of queries, keys, values and outputs. Tokens are never gathered over cp, and heads never over tp.
TEST(CompiledProgram, AllToAllsOfHeadsLeaveTensorParallelismAsItIs) {
  const Cluster cluster = parse_cluster("dgx-h100:1").value();
  const Parallelism parallelism = complete(parse_shorthand("tp=2,cp=2,dp=1,cp_mode=a2a").value(), 4).value();
  Graph graph = build_model("gpt2-124m:layers=3,hidden=16,heads=4,vocab=16,dropout=0", {.batch = 2, .seq = 8}).value();
  const Strategy strategy = expand(parallelism, graph);
  const TrainingGraph training = make_training_graph(std::move(graph)).value();
  const ResolvedStrategy resolved = resolve(strategy, training, cluster).value();
  const Program program = compile_strategy(training, resolved, {}).value().program;
  std::map<Collective, int> counts;
  for (InstructionId id : program.stages[0].forward)
    if (const auto* each = std::get_if<Communicate>(&program.instructions[id].what))
      for (BufferId output : each->outputs)
        if (training.graph.name(program.buffers[output].tensor).starts_with("layers.1.")) ++counts[each->collective];
  EXPECT_EQ(counts, (std::map<Collective, int>{
                        {Collective::AllGather, 2}, {Collective::ReduceScatter, 2}, {Collective::AllToAll, 4}}));
}

// FSDP: a layer is gathered once in forward and once in backward, its gradients leave together; no more than two layers
// are gathered at a time.
TEST(CompiledProgram, ShardedParametersAreGatheredLayerByLayer) {
  const Cluster cluster = parse_cluster("dgx-h100:1").value();
  const Parallelism parallelism = complete(parse_shorthand("fsdp=4").value(), 4).value();
  Graph graph = build_model("gpt2-124m:layers=4,hidden=16,heads=4,vocab=16,dropout=0", {.batch = 4, .seq = 4}).value();
  const Strategy strategy = expand(parallelism, graph);
  const TrainingGraph training = make_training_graph(std::move(graph)).value();
  const ResolvedStrategy resolved = resolve(strategy, training, cluster).value();
  const auto count = [&](const ParameterSync& sync) {
    const Program program = compile_strategy(training, resolved, {.parameters = sync}).value().program;
    const auto in = [&](const std::vector<InstructionId>& body, Collective collective) {
      int found = 0;
      for (InstructionId id : body)
        if (const auto* each = std::get_if<Communicate>(&program.instructions[id].what))
          found += each->collective == collective ? 1 : 0;
      return found;
    };
    const StageProgram& stage = program.stages[0];
    return std::array{in(stage.forward, Collective::AllGather), in(stage.backward, Collective::AllGather),
                      in(stage.backward, Collective::ReduceScatter)};
  };
  // Four layers and the rest.
  EXPECT_EQ(count({}), (std::array{5, 5, 5}));
  EXPECT_EQ(count({.reshard_after_forward = false}), (std::array{5, 0, 5}));
}

}  // namespace
}  // namespace weft
