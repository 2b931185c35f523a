// The time of compilation, and what it grows with: layers and stages, not ranks.
#include <benchmark/benchmark.h>
#include <sys/resource.h>

#include "base/random.h"
#include "compile/compilation.h"
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
  // The peak of the process so far: run one case alone for its own.
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  state.counters["peak_MiB"] = static_cast<double>(usage.ru_maxrss) / 1024;
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

void BM_Llama405b(benchmark::State& state) {
  compile_case(state,
               make_case("llama3.1-405b", 8, static_cast<int>(state.range(0)), static_cast<int>(state.range(1)), 8192));
}
BENCHMARK(BM_Llama405b)->Args({16, 8})->Args({16, 128})->Unit(benchmark::kMillisecond);

void BM_Gpt2DataParallel(benchmark::State& state) {
  compile_case(state, make_case("gpt2-124m", 1, 1, static_cast<int>(state.range(0)), 1024));
}
BENCHMARK(BM_Gpt2DataParallel)->Arg(8)->Arg(256)->Unit(benchmark::kMillisecond);

// Recompilation of one operator in the SOAP space: 64 devices along one axis, every operator with some split that
// divides.
struct SoapCase {
  TrainingGraph training;
  Placing placing;
  ShardingChoices choices;
};

SoapCase make_soap_case(const std::string& model) {
  SoapCase result{
      make_training_graph(load_model(model, {.batch = 64}).value().graph, {.optimizer = OptimizerKind::Momentum})
          .value(),
      {},
      {}};
  const Graph& graph = result.training.graph;
  std::vector<DeviceId> devices;
  for (std::size_t i = 0; i < 64; ++i) devices.emplace_back(i);
  result.placing = with_world(on_one_mesh(graph, Mesh::make({{"x", 64}}, devices).value())).value();
  result.choices.ops.resize(1);
  result.choices.inputs.resize(1);
  result.choices.reduce_onto.resize(1);
  for (OpId op : IdRange<OpId>(result.training.first_backward.index())) {
    const Signature& signature = graph.signature(op);
    std::string axis;
    for (const Axis& known : signature.axes)
      if (axis.empty() && known.kind == AxisKind::Sample && known.size % 64 == 0) axis = known.name;
    result.choices.ops[0][op] = {axis};
  }
  return result;
}

void BM_CompileFully(benchmark::State& state, const std::string& model) {
  const SoapCase c = make_soap_case(model);
  const ShardingPlan plan = plan_sharding(c.training, c.placing, c.choices).value();
  for (auto _ : state) {
    Compilation compilation(c.training, c.placing, plan, {}, RecomputeRegions::none(c.training.graph));
    if (const Status done = compilation.compile(); !done.ok()) return state.SkipWithError(done.error().message.c_str());
    benchmark::DoNotOptimize(compilation.program());
  }
}

// A random operator is moved to a single device and back; the change of the sharding plan is not timed.
void BM_Recompile(benchmark::State& state, const std::string& model) {
  const SoapCase c = make_soap_case(model);
  const Graph& graph = c.training.graph;
  ShardingPlanner planner = ShardingPlanner::make(c.training, c.placing, c.choices).value();
  Compilation compilation(c.training, planner.placing(), planner.plan(), {}, RecomputeRegions::none(graph));
  if (const Status done = compilation.compile(); !done.ok()) return state.SkipWithError(done.error().message.c_str());
  Rng rng(7);
  double instructions = 0, edits = 0;
  for (auto _ : state) {
    state.PauseTiming();
    const OpId op(rng.below(c.training.first_backward.index()));
    const ShardingDelta delta = planner.change({op, {AxisChoice{}}}).value();
    state.ResumeTiming();
    const Result<ProgramEdit> edit = compilation.recompile(delta.ops);
    compilation.undo();
    state.PauseTiming();
    if (!edit.ok()) return state.SkipWithError(edit.error().message.c_str());
    for (const BodyEdit& body : edit->bodies) instructions += static_cast<double>(body.added.size());
    ++edits;
    if (!planner.change({op, {c.choices.ops[0].at(op)}}).ok()) return state.SkipWithError("no way back");
    state.ResumeTiming();
  }
  state.counters["instructions written"] = instructions / edits;
}
BENCHMARK_CAPTURE(BM_CompileFully, inception_v3, "inception-v3")->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(BM_Recompile, inception_v3, "inception-v3")->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(BM_CompileFully, nmt, "nmt")->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(BM_Recompile, nmt, "nmt")->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace weft
