// Frozen parameters: programs train the others as one device does, and have no gradients of frozen ones.
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "plan/freeze.h"
#include "program_cases.h"
#include "reference/one_device.h"
#include "reference/run_graph.h"

namespace weft {
namespace {

struct Frozen {
  TrainingGraph training;
  std::vector<TensorId> frozen;
};

Frozen freeze(Graph graph, const std::string& globs) {
  std::vector<TensorId> frozen = frozen_parameters(graph, globs).value();
  TrainingGraph training = make_training_graph(std::move(graph), {.master_weights = false, .frozen = frozen}).value();
  return {std::move(training), std::move(frozen)};
}

// What is wrong with training on as many devices as the shorthand names.
std::string problem_of(const char* model, const std::string& text, const std::string& globs) {
  const Shorthand shorthand = parse_shorthand(text).value();
  const Parallelism parallelism = complete(shorthand, devices_named(shorthand)).value();
  Graph graph = routed_graph(model, parallelism, 4);
  const Strategy strategy = expand(parallelism, graph);
  const auto [training, frozen] = freeze(std::move(graph), globs);
  const Result<ResolvedStrategy> resolved = resolve(strategy, training, parse_cluster("dgx-h100:1").value());
  if (!resolved.ok()) return resolved.error().message;
  const Result<CompiledStrategy> compiled = compile_strategy(training, *resolved);
  if (!compiled.ok()) return compiled.error().message;
  // Nothing is kept for them and nothing writes them.
  const std::set<TensorId> fixed(frozen.begin(), frozen.end());
  for (const auto& [parameter, sum] : training.accumulated)
    if (fixed.contains(parameter)) return training.graph.name(parameter) + " has a gradient";
  for (const Instruction& instruction : compiled->program.instructions)
    for (BufferId id : writes_of(compiled->program, instruction)) {
      const Buffer& written = compiled->program.buffers[compiled->program.buffers[id].storage];
      if (written.kind == BufferKind::Parameter && fixed.contains(training.graph.tensors()[written.tensor].storage))
        return training.graph.name(written.tensor) + " is written";
    }
  return reference::differs_from_one_device(training, compiled->program, compiled->schedule);
}

TEST(FrozenParameters, TheRestTrainsAsOnOneDeviceUnderEveryStrategy) {
  const char* const strategies[] = {
      "dp=1",
      "dp=4,zero=1",
      "dp=4,zero=2",
      "dp=4,zero=3",
      "fsdp=2,replicate=2,zero=3",
      "tp=2,dp=2",
      "cp=2,dp=2,cp_mode=ring",
      "pp=2,ga=4",
      "tp=2,pp=2,dp=2,zero=1,recompute=full,ga=3",
      "pp=2,schedule=zb-h1,ga=4,recompute=selective",
      "pp=2,schedule=dualpipe,ga=4",
      "dp=2,zero=3,offload=optimizer+gradients+weights+activations",
  };
  const char* const globs[] = {
      "embed",                         // gradients stop at the first layer
      "layers.0",                      // a stage of it may have nothing to train
      "layers.*.mlp",                  // products of inputs stay, those of weights go
      "**+!head",                      // only what comes last: no backward below
      "**+!layers.1.attn+!head.norm",  // the last item counts
  };
  int played = 0;
  for (const char* model : {kSmallLlama, kSmallGpt})
    for (const char* strategy : strategies)
      for (const char* each : globs) {
        EXPECT_EQ(problem_of(model, strategy, each), "") << model << " " << strategy << " --freeze " << each;
        ++played;
      }
  EXPECT_EQ(played, 2 * 12 * 5);
  for (const char* strategy : {"ep=2,dp=4", "tp=2,dp=2,ep=2,zero=1", "dp=4,ep=2,zero=3"})
    EXPECT_EQ(problem_of(kSmallMoe, strategy, "layers.*.moe.experts"), "") << strategy;
}

// Gradients of trained parameters do not depend on which others are frozen: they equal those of the whole network.
TEST(FrozenParameters, GradientsOfTheRestAreThoseOfTheWholeNetwork) {
  const auto leaf = [](const Graph& graph) {
    return [&graph](TensorId id, reference::Block& block) {
      const Tensor& tensor = graph.tensors()[id];
      const auto number = static_cast<double>(std::hash<std::string>()(graph.name(id)) % 1000);
      for (std::size_t i = 0; i < block.values().size(); ++i) {
        const double wave = std::sin(0.7 * static_cast<double>(i) + number);
        block.values()[i] = tensor.kind == TensorKind::State ? 0
                            : tensor.type.shape.empty()      ? 1
                            : tensor.kind == TensorKind::Input && !is_floating(tensor.type.dtype)
                                ? std::floor(5 + 5 * wave)
                                : 0.4 * wave;
      }
    };
  };
  const Graph forward = build_model(kSmallLlama, {.batch = 2, .seq = 4}).value();
  const TrainingGraph all = make_training_graph(forward, {.master_weights = false}).value();
  const auto expected = reference::run_graph(all.graph, leaf(all.graph));
  for (const char* globs : {"embed", "layers.0", "layers.*.mlp", "**+!head"}) {
    const TrainingGraph some = freeze(forward, globs).training;
    EXPECT_LT(some.accumulated.size(), all.accumulated.size());
    const auto values = reference::run_graph(some.graph, leaf(some.graph));
    for (const auto& [parameter, sum] : some.accumulated)
      for (const auto& [other, whole] : all.accumulated)
        if (parameter == other) {
          EXPECT_EQ(values[sum].values(), expected[whole].values()) << globs;
        }
  }
}

// Llama of two layers, the embedding and the first layer frozen: the second layer's products of inputs that only those
// would read are not there, nor any of the first's.
TEST(FrozenParameters, NothingIsDifferentiatedBelowTheLowestTrainedParameter) {
  const TrainingGraph training =
      freeze(build_model(kSmallLlama, {.batch = 2, .seq = 4}).value(), "embed+layers.0").training;
  int products = 0;
  for (OpId op : training.graph.ops().ids()) {
    if (training.graph.ops()[op].phase != Phase::Backward) continue;
    const std::string name = training.graph.name(op);
    EXPECT_FALSE(name.starts_with("layers.0") || name.starts_with("embed")) << name;
    ++products;
  }
  EXPECT_GT(products, 0);
  // A region without backward products is not computed again, and nothing is saved for it.
  RecomputeRegions regions = RecomputeRegions::none(training.graph);
  for (OpId op : IdRange<OpId>(training.first_backward.index()))
    if (training.graph.name(op).starts_with("layers.0")) regions.region[op] = 0;
  for (TensorId id : saved_tensors(training, regions))
    EXPECT_FALSE(training.graph.name(id).starts_with("embed")) << training.graph.name(id);
}

}  // namespace
}  // namespace weft
