// What a strategy keeps in the host's memory, module by module: it is there and nowhere else, and training is as on one
// device.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/random.h"
#include "compile/from_strategy.h"
#include "models/models.h"
#include "reference/one_device.h"
#include "strategy/shorthand.h"
#include "strategy/yaml.h"

namespace weft {
namespace {

// The first buffer that is on the host and should not be, or the other way round; counts those that are.
std::string misplaced(const TrainingGraph& training, const Strategy& strategy, const Program& program, int& on_host) {
  const Graph& graph = training.graph;
  const Inheritance inheritance(strategy);
  const auto offloads = [&](Stored kind, const std::string& name) {
    const NodeConfig config = inheritance.of(name);
    const auto& offload = config.offload[static_cast<std::size_t>(kind)];
    return offload && offload->value;
  };
  std::map<TensorId, std::pair<Stored, std::string>> kept;  // by storage: what it is, and of what
  for (const auto& [parameter, sum] : training.accumulated)
    kept[graph.tensors()[sum].storage] = {Stored::Gradients, graph.name(parameter)};
  for (OpId op : graph.ops().ids()) {
    TensorId parameter;
    for (TensorId input : graph.inputs(op))
      if (graph.tensors()[input].kind == TensorKind::Parameter) parameter = input;
    for (TensorId input : graph.inputs(op))
      if (parameter.valid() && graph.ops()[op].phase == Phase::Step && graph.tensors()[input].kind == TensorKind::State)
        kept.try_emplace(graph.tensors()[input].storage, Stored::Optimizer, graph.name(parameter));
  }
  for (BufferId id : program.buffers.ids()) {
    const Buffer& buffer = program.buffers[id];
    const Tensor& tensor = graph.tensors()[buffer.tensor];
    std::optional<bool> expected;
    if (buffer.kind == BufferKind::Saved && tensor.kind == TensorKind::Activation)
      expected = offloads(Stored::Activations, graph.name(tensor.producer));
    if (buffer.kind == BufferKind::Parameter) expected = offloads(Stored::Weights, graph.name(tensor.storage));
    if (buffer.kind == BufferKind::State)
      if (const auto found = kept.find(tensor.storage); found != kept.end())
        expected = offloads(found->second.first, found->second.second);
    if (expected && *expected != buffer.on_host)
      return fmt::format("{} is {}on the host", graph.name(buffer.tensor), buffer.on_host ? "" : "not ");
    on_host += buffer.on_host;
  }
  return "";
}

TEST(CompiledOffload, RandomModulesOnTheHostTrainAsOneDevice) {
  const Cluster cluster = parse_cluster("dgx-h100:1").value();
  const int plans = 240;
  int on_host = 0, partly = 0;
  std::vector<TrainingGraph> models;
  for (const char* spec : {"gpt2-124m:layers=4,hidden=8,heads=2,vocab=16,dropout=0.1",
                           "llama3-8b:layers=4,hidden=8,heads=4,kv_heads=2,ffn=12,vocab=16"})
    models.push_back(
        make_training_graph(build_model(spec, {.batch = 4, .seq = 4}).value(), {.master_weights = false}).value());
  for (int i = 0; i < plans; ++i) {
    Rng rng = Rng(5).split(static_cast<std::uint64_t>(i));
    const TrainingGraph& training = models[static_cast<std::size_t>(i % 2)];
    const auto any = [&](auto... words) {
      const std::vector<std::string> all = {words...};
      return all[rng.below(all.size())];
    };
    const std::string degrees =
        any("dp=2,pp=1", "dp=2,tp=2", "pp=2,dp=2", "pp=2,tp=2", "pp=2,vpp=2,dp=2", "pp=2,dp=2,schedule=zb-h1");
    std::string text =
        degrees + ",ga=2,zero=" + any("0", "1", "2", "3") + ",recompute=" + any("none", "full", "selective", "op");
    const Result<Parallelism> parallelism = complete(parse_shorthand(text).value(), degrees == "dp=2,pp=1" ? 2 : 4);
    ASSERT_TRUE(parallelism.ok()) << parallelism.error().message;
    Strategy strategy = expand(*parallelism, training.graph);
    for (std::uint64_t rules = 1 + rng.below(4); rules > 0; --rules) {
      Rule rule;
      rule.match = any("**", "embed", "layers.*", "layers.*.mlp", "layers.*.attn", "layers.0", "layers.3.attn",
                       "layers.2.mlp", "head");
      for (int kind = 0; kind < kStoredKinds; ++kind)
        if (rng.below(2) == 0) rule.memory[static_cast<std::size_t>(kind)].offload = rng.below(4) != 0;
      strategy.rules.push_back(rule);
    }
    text += "\n" + to_yaml(strategy);
    const Result<ResolvedStrategy> resolved = resolve(strategy, training, cluster, "plan.yaml");
    ASSERT_TRUE(resolved.ok()) << resolved.error().message << "\n" << text;
    const Result<CompiledStrategy> compiled =
        compile_strategy(training, *resolved, {.gradients = {.bucket = Bytes{200}}});
    ASSERT_TRUE(compiled.ok()) << compiled.error().message << "\n" << text;
    EXPECT_EQ(reference::differs_from_one_device(training, compiled->program, compiled->schedule), "") << text;
    const int before = on_host;
    EXPECT_EQ(misplaced(training, strategy, compiled->program, on_host), "") << text;
    partly += on_host > before;
  }
  EXPECT_GT(partly, plans / 2);
  fmt::print("{} plans played, {} with something on the host, {} buffers in all\n", plans, partly, on_host);
}

// Sums on the host that the step reduces: what it reads is brought back once, by the last micro-batch. (The totals of
// all micro-batches were once left on the device for it, and only the last one's freed.)
TEST(CompiledOffload, GradientsThatAreReducedAfterBackwardAreBroughtBackOnce) {
  const TrainingGraph training =
      make_training_graph(build_model("gpt2-124m:layers=2,hidden=8,heads=2,vocab=16", {.batch = 4, .seq = 4}).value(),
                          {.master_weights = false})
          .value();
  const Cluster cluster = parse_cluster("dgx-h100:1").value();
  for (const char* text : {"dp=2,ga=3,offload=gradients", "dp=2,ga=3,zero=1,offload=gradients+optimizer",
                           "dp=2,pp=2,ga=3,schedule=zb-h1,offload=gradients", "tp=2,dp=2,ga=2,offload=gradients"}) {
    const Shorthand words = parse_shorthand(text).value();
    const std::int64_t devices = words.dp.value_or(1) * words.tp.value_or(1) * words.pp.value_or(1);
    const Strategy strategy = expand(complete(words, devices).value(), training.graph);
    const CompiledStrategy compiled =
        compile_strategy(training, resolve(strategy, training, cluster, "plan.yaml").value(),
                         {.gradients = {.overlap = false, .bucket = Bytes{200}}})
            .value();
    EXPECT_EQ(reference::differs_from_one_device(training, compiled.program, compiled.schedule), "") << text;
    int reduced = 0;
    for (InstructionId id : compiled.program.step)
      if (const auto* communicate = std::get_if<Communicate>(&compiled.program.instructions[id].what))
        for (BufferId input : communicate->inputs)
          reduced += training.graph.tensors()[compiled.program.buffers[input].tensor].kind == TensorKind::State;
    EXPECT_GT(reduced, 0) << text;
  }
}

// The same in shorthand.
TEST(CompiledOffload, ActivationsOfTheNamedModulesOnly) {
  const TrainingGraph training =
      make_training_graph(
          build_model("llama3-8b:layers=2,hidden=8,heads=4,kv_heads=2,ffn=12,vocab=16", {.batch = 2, .seq = 4}).value(),
          {.master_weights = false})
          .value();
  const Cluster cluster = parse_cluster("dgx-h100:1").value();
  const Strategy strategy = expand(
      complete(parse_shorthand("dp=2,offload=activations:layers.0.mlp+optimizer").value(), 2).value(), training.graph);
  const CompiledStrategy compiled =
      compile_strategy(training, resolve(strategy, training, cluster, "plan.yaml").value()).value();
  int moments = 0, activations = 0;
  for (const Buffer& buffer : compiled.program.buffers) {
    if (!buffer.on_host) continue;
    const Tensor& tensor = training.graph.tensors()[buffer.tensor];
    moments += tensor.kind == TensorKind::State;
    if (tensor.kind != TensorKind::Activation) continue;
    ++activations;
    EXPECT_TRUE(training.graph.name(tensor.producer).starts_with("layers.0.mlp."))
        << training.graph.name(tensor.producer);
  }
  EXPECT_GT(moments, 0);
  EXPECT_GT(activations, 0);
  EXPECT_EQ(reference::differs_from_one_device(training, compiled.program, compiled.schedule), "");
}

}  // namespace
}  // namespace weft
