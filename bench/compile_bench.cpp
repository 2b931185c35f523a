// How long compilation takes, and with what it grows: layers and stages, not ranks.
#include <benchmark/benchmark.h>

#include "compile/compile.h"
#include "models/models.h"

namespace weft {
namespace {

// Megatron's rules on a model of the zoo: column- and row-parallel linears, layers cut evenly into stages.
struct Case {
  TrainingGraph training;
  Placing placing;
  ShardingChoices choices;
};

Case make_case(const std::string& model, int tp, int pp, int dp, std::int64_t seq) {
  Result<Model> loaded = load_model(model, {.batch = dp, .seq = seq});
  const int layers = static_cast<int>(loaded->info.layers);
  Case result{make_training_graph(std::move(loaded->graph)).value(), {}, {}};
  const Graph& graph = result.training.graph;
  for (int stage = 0; stage < pp; ++stage) {
    std::vector<DeviceId> devices;
    for (int i = 0; i < dp * tp; ++i) devices.emplace_back(static_cast<std::size_t>(stage * dp * tp + i));
    result.placing.meshes.push_back(Mesh::make({{"dp", dp}, {"tp", tp}}, devices).value());
    result.placing.stage_of.push_back(stage);
  }
  result.placing.mesh_of.resize(graph.ops().size(), MeshId(0));
  result.choices.ops.resize(2);
  result.choices.inputs.resize(2);
  result.choices.reduce_onto = {"", "s"};
  std::size_t stage = 0;
  for (OpId op : graph.ops().ids()) {
    if (graph.ops()[op].phase != Phase::Forward) break;
    const std::string name = graph.name(op);
    if (name.starts_with("layers.")) stage = static_cast<std::size_t>(std::stoi(name.substr(7)) * pp / layers);
    result.placing.mesh_of[op] = MeshId(stage);
    if (name.ends_with("attn.qkv") || name.ends_with("mlp.up") || name.ends_with("logits"))
      result.choices.ops[1][op] = {"n"};
    if (name.ends_with("gate_up")) result.choices.ops[1][op] = {"n", 2};
    if (name.ends_with("attn.out") || name.ends_with("mlp.down")) result.choices.ops[1][op] = {"k"};
    if (name == "embed.tokens") result.choices.ops[1][op] = {"v"};
  }
  for (TensorId id : graph.tensors().ids())
    if (graph.tensors()[id].kind == TensorKind::Input && graph.tensors()[id].type.shape.size() == 2 &&
        graph.tensors()[id].type.shape[0] > 1)
      result.choices.inputs[0][id] = {0};
  return result;
}

void compile_case(benchmark::State& state, const Case& c) {
  std::size_t instructions = 0;
  for (auto _ : state) {
    const Result<ShardingPlan> plan = plan_sharding(c.training, c.placing, c.choices);
    if (!plan.ok()) return state.SkipWithError(plan.error().message.c_str());
    const Result<Program> program =
        compile(c.training, c.placing, *plan, {.memory = {1, 0b01}}, RecomputeRegions::none(c.training.graph));
    if (!program.ok()) return state.SkipWithError(program.error().message.c_str());
    instructions = program->instructions.size();
  }
  state.counters["instructions"] = static_cast<double>(instructions);
}

void BM_Gpt3(benchmark::State& state) {
  compile_case(state, make_case("gpt3-175b:vocab=51200,layers=" + std::to_string(state.range(0)), 8,
                                static_cast<int>(state.range(1)), static_cast<int>(state.range(2)), 2048));
}
BENCHMARK(BM_Gpt3)
    ->Args({24, 4, 8})
    ->Args({96, 4, 8})
    ->Args({96, 16, 8})
    ->Args({96, 16, 128})
    ->Unit(benchmark::kMillisecond);

void BM_Gpt2DataParallel(benchmark::State& state) {
  compile_case(state, make_case("gpt2-124m", 1, 1, static_cast<int>(state.range(0)), 1024));
}
BENCHMARK(BM_Gpt2DataParallel)->Arg(8)->Arg(256)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace weft
