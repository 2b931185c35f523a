// Correctness of the compiler: the program of all ranks, executed with real numbers, trains as a single device does.
#include <gtest/gtest.h>

#include "megatron_rules.h"
#include "program_cases.h"
#include "sharded_plan.h"

namespace weft {
namespace {

// Layers in equal runs over the stages; what comes before them on the first, what comes after on the last.
IdVec<OpId, MeshId> cut_into_stages(const Graph& graph, int layers, int stages) {
  IdVec<OpId, MeshId> mesh_of(graph.ops().size(), MeshId(0));
  std::size_t stage = 0;
  for (OpId op : graph.ops().ids()) {
    if (graph.ops()[op].phase != Phase::Forward) break;
    const std::string name = graph.name(op);
    if (name.starts_with("layers.")) stage = static_cast<std::size_t>(std::stoi(name.substr(7)) * stages / layers);
    if (name.starts_with("head")) stage = static_cast<std::size_t>(stages - 1);
    mesh_of[op] = MeshId(stage);
  }
  return mesh_of;
}

// A model of the zoo under Megatron's rules.
std::string problem_of(const std::string& model, const ModelOptions& options, const Degrees& degrees) {
  Result<Model> loaded = load_model(model, options);
  if (!loaded.ok()) return loaded.error().message;
  const int layers = static_cast<int>(loaded->info.layers);
  const TrainingGraph training = make_training_graph(std::move(loaded->graph), {.master_weights = false}).value();
  const Graph& graph = training.graph;
  const Result<Schedule> schedule =
      make_schedule({degrees.schedule, degrees.pp, degrees.micro_batches, degrees.chunks});
  if (!schedule.ok()) return schedule.error().message;
  Placing placing;
  const int group = degrees.dp * degrees.ep * degrees.cp * degrees.tp;
  for (std::int32_t stage = 0; stage < schedule->stages(); ++stage) {
    std::vector<DeviceId> devices;
    for (int i = 0; i < group; ++i)
      devices.emplace_back(static_cast<std::size_t>(schedule->place_of(0, stage).rank * group + i));
    placing.meshes.push_back(
        Mesh::make({{"dp", degrees.dp}, {"ep", degrees.ep}, {"cp", degrees.cp}, {"tp", degrees.tp}}, devices).value());
    placing.stage_of.push_back(stage);
  }
  placing.mesh_of = cut_into_stages(graph, layers, schedule->stages());
  ShardingChoices choices = megatron(graph, placing.meshes[MeshId(0)], degrees);
  return problem_of(
      training,
      {std::move(placing), std::move(choices), {degrees.zero, 0b111}, regions_of(graph, degrees.recompute), *schedule});
}

void expect_equal(const char* model, const Degrees& degrees) {
  EXPECT_EQ(problem_of(model, {.batch = 4, .seq = 4}, degrees), "")
      << model << " dp=" << degrees.dp << " tp=" << degrees.tp << " cp=" << degrees.cp << " ep=" << degrees.ep
      << " pp=" << degrees.pp << " sp=" << degrees.sequence_parallel << " zero=" << degrees.zero << " "
      << degrees.schedule << " recompute=" << degrees.recompute;
}

TEST(CompiledProgram, DataParallelTrainsAsOneDevice) {
  for (const char* model : {kSmallLlama, kSmallGpt, kSmallMoe}) expect_equal(model, {.dp = 2});
}
TEST(CompiledProgram, ZeroTrainsAsOneDevice) {
  for (int zero : {1, 2, 3})
    for (const char* model : {kSmallLlama, kSmallGpt, kSmallMoe}) expect_equal(model, {.dp = 4, .zero = zero});
}
TEST(CompiledProgram, TensorParallelTrainsAsOneDevice) {
  for (const char* model : {kSmallLlama, kSmallGpt, kSmallMoe})
    for (bool sequence_parallel : {false, true}) expect_equal(model, {.tp = 2, .sequence_parallel = sequence_parallel});
}
TEST(CompiledProgram, ContextParallelTrainsAsOneDevice) {
  for (const char* model : {kSmallLlama, kSmallGpt}) expect_equal(model, {.cp = 2});
}
TEST(CompiledProgram, ExpertParallelTrainsAsOneDevice) { expect_equal(kSmallMoe, {.ep = 2}); }
TEST(CompiledProgram, AllTogetherTrainsAsOneDevice) {
  for (int zero : {0, 1, 2, 3}) {
    expect_equal(kSmallLlama, {.dp = 2, .tp = 2, .cp = 2, .sequence_parallel = true, .zero = zero});
    expect_equal(kSmallMoe, {.dp = 2, .tp = 2, .ep = 2, .sequence_parallel = true, .zero = zero});
  }
}

TEST(CompiledProgram, PipelinesTrainAsOneDeviceUnderEverySchedule) {
  const char* const four_layers = "gpt2-124m:layers=4,hidden=8,heads=2,vocab=16,dropout=0";
  for (const char* schedule : {"gpipe", "1f1b", "zb-h1", "zb-h2"}) {
    expect_equal(four_layers, {.pp = 2, .schedule = schedule, .micro_batches = 4});
    expect_equal(four_layers, {.pp = 4, .schedule = schedule, .micro_batches = 8});
  }
  expect_equal(four_layers, {.pp = 2, .schedule = "interleaved", .chunks = 2, .micro_batches = 4});
  expect_equal(four_layers, {.pp = 2, .schedule = "zb-v", .micro_batches = 4});
}
TEST(CompiledProgram, RecomputationChangesNothing) {
  for (const char* how : {"full", "selective"})
    for (const char* model : {kSmallLlama, kSmallGpt, kSmallMoe}) {
      expect_equal(model, {.recompute = how});
      expect_equal(model, {.dp = 2, .tp = 2, .sequence_parallel = true, .zero = 3, .recompute = how});
    }
}
TEST(CompiledProgram, ThreeDimensionsTrainAsOneDevice) {
  for (const char* model : {kSmallLlama, kSmallGpt, kSmallMoe})
    expect_equal(
        model,
        {.dp = 2, .tp = 2, .pp = 2, .sequence_parallel = true, .zero = 1, .micro_batches = 3, .recompute = "full"});
}

// Strategies as people write them, through shorthand, presets and resolution.
TEST(CompiledProgram, ShorthandStrategiesTrainAsOneDevice) {
  // Adapters beside frozen weights, a module that predicts a further token, norms after the blocks and over all heads.
  const char* const adapted =
      "llama3-8b:layers=2,hidden=16,heads=4,kv_heads=2,ffn=24,vocab=16,lora=2,lora_targets=attn+mlp";
  const char* const further = "llama3-8b:layers=2,hidden=16,heads=4,kv_heads=2,ffn=24,vocab=16,mtp=1";
  const char* const olmo = "olmo-2-7b:layers=2,hidden=16,heads=4,kv_heads=4,ffn=24,vocab=16";
  const char* const zigzag = "llama3-8b:layers=2,hidden=16,heads=4,kv_heads=2,ffn=24,vocab=16,zigzag=2";
  // One image a micro-batch: what the first layer sends back is the gradient of the learned positions, as it is.
  const char* const vision = "vit-b-16:layers=2,hidden=16,heads=4,ffn=24,image=32,patch=16,vocab=8";
  const std::pair<const char*, const char*> cases[] = {
      {vision, "pp=2,stages=0+2,ga=3"},
      {vision, "pp=3,stages=0+1+1,ga=3,schedule=zb-h1"},
      {vision, "tp=2,pp=2,stages=0+2,ga=2,sp=0,recompute=full"},
      {vision, "pp=2,stages=0+2,ga=2,offload=gradients"},
      {vision, "pp=2,dp=2,stages=0+2,ga=2,zero=1"},
      {kSmallLlama, "dp=4"},
      {kSmallLlama, "dp=4,zero=1"},
      {kSmallLlama, "dp=4,zero=3"},
      {kSmallLlama, "fsdp=2,replicate=2,zero=3"},
      {kSmallGpt, "tp=2,dp=2,sp=0"},
      {kSmallGpt, "tp=2,dp=2"},
      {kSmallLlama, "tp=2,pp=2,ga=4"},
      {kSmallLlama, "tp=2,pp=2,dp=2,zero=1,recompute=full,ga=3"},
      {kSmallLlama, "tp=2,pp=2,dp=2,zero=1,recompute=selective,schedule=zb-h1,ga=4"},
      {kSmallLlama, "tp=2,dp=2,zero=1,recompute=op,full=layers.*.mlp.gate_up,ga=2"},
      {kSmallMoe, "ep=2,dp=4,recompute=op"},
      {kSmallLlama, "pp=2,dp=2,zero=1,recompute=op:1+2,full=layers.*.mlp.gate_up:1,ga=2"},
      {kSmallMoe, "ep=2,pp=2,dp=2,schedule=zb-h1,recompute=full:1+0,ga=4"},
      {kSmallLlama, "cp=2,dp=2"},
      {kSmallLlama, "cp=2,dp=2,cp_mode=a2a"},
      {kSmallLlama, "cp=2,dp=2,cp_mode=ring"},
      {kSmallGpt, "cp=2,dp=2,cp_mode=ring"},
      {kSmallLlama, "cp=4,cp_mode=ring"},
      {kSmallGpt, "cp=4,cp_mode=ring,recompute=full"},
      {kSmallLlama, "cp=4,cp_mode=ring,recompute=selective"},
      {kSmallLlama, "tp=2,cp=2,pp=2,cp_mode=ring,ga=4"},
      {kSmallGpt, "tp=2,cp=2,pp=2,cp_mode=ring,ga=4,recompute=selective"},
      {kSmallLlama, "cp=2,dp=2,zero=1,cp_mode=ring"},
      {kSmallLlama, "tp=2,cp=2,dp=2,zero=3,cp_mode=ring,recompute=full"},
      {kSmallGpt, "tp=4,cp=2,sp=0,cp_mode=ring"},
      {kSmallMoe, "dp=2,cp=2,ep=4,cp_mode=ring"},
      {kSmallLlama, "cp=2,pp=2,cp_mode=ring,schedule=dualpipe,ga=4"},
      {kSmallLlama, "cp=2,pp=2,cp_mode=ring,schedule=zb-h1,ga=4"},
      {kSmallLlama, "cp=2,dp=2,cp_mode=ring,offload=activations"},
      // Tokens in zigzag order.
      {zigzag, "cp=2,dp=2"},
      {zigzag, "cp=2,dp=2,cp_mode=ring"},
      {zigzag, "tp=2,cp=2,pp=2,cp_mode=ring,ga=4,recompute=full"},
      {kSmallMoe, "dp=4,ep=2"},
      {kSmallMoe, "tp=2,dp=2,ep=2,zero=1"},
      {kSmallMoe, "dp=2,cp=2,ep=4"},
      {"gpt2-124m:layers=4,hidden=8,heads=2,vocab=16,dropout=0", "pp=2,vpp=2,ga=4"},
      // Every stage held twice, gradients of the two copies summed.
      {kSmallLlama, "pp=2,schedule=dualpipe,ga=4"},
      {"gpt2-124m:layers=4,hidden=8,heads=2,vocab=16,dropout=0", "pp=4,dp=2,zero=1,schedule=dualpipe,ga=8"},
      {"gpt2-124m:layers=4,hidden=8,heads=2,vocab=16,dropout=0", "tp=2,pp=2,schedule=dualpipe-v,ga=4,recompute=full"},
      {adapted, "dp=2,zero=1"},
      {adapted, "tp=2,dp=2"},
      {adapted, "tp=2,pp=2,sp=0,ga=4"},
      {adapted, "dp=2,zero=3,recompute=full"},
      {further, "dp=2,zero=3"},
      {further, "tp=2,dp=2"},
      {further, "pp=2,dp=2,ga=4"},
      {olmo, "tp=2,dp=2"},
      {olmo, "pp=2,ga=4,recompute=op"},
      // On the host: what the optimizer keeps, then everything.
      {kSmallLlama, "dp=2,zero=1,offload=optimizer"},
      {kSmallLlama, "dp=2,zero=3,offload=optimizer+gradients+weights+activations"},
      {kSmallLlama, "tp=2,pp=2,ga=4,recompute=full,offload=activations+gradients"},
  };
  const Cluster cluster = parse_cluster("dgx-h100:1").value();
  for (const auto& [model, text] : cases) {
    const Result<Shorthand> shorthand = parse_shorthand(text);
    ASSERT_TRUE(shorthand.ok()) << text << ": " << shorthand.error().message;
    const Result<Parallelism> parallelism = complete(*shorthand, devices_named(*shorthand));
    ASSERT_TRUE(parallelism.ok()) << text << ": " << parallelism.error().message;
    Graph graph = routed_graph(model, *parallelism, model == vision ? std::nullopt : std::optional<std::int64_t>(4));
    const Strategy strategy = expand(*parallelism, graph);
    TrainingOptions options{.master_weights = false};
    for (TensorId id : graph.tensors().ids())
      if (model == adapted && graph.tensors()[id].kind == TensorKind::Parameter &&
          graph.name(id).find("_lora_") == std::string::npos)
        options.frozen.push_back(id);
    const TrainingGraph training = make_training_graph(std::move(graph), options).value();
    const Result<ResolvedStrategy> resolved = resolve(strategy, training, cluster);
    ASSERT_TRUE(resolved.ok()) << text << ": " << resolved.error().message;
    const Result<CompiledStrategy> compiled = compile_strategy(training, *resolved);
    ASSERT_TRUE(compiled.ok()) << text << ": " << compiled.error().message;
    EXPECT_EQ(reference::differs_from_one_device(training, compiled->program, compiled->schedule), "")
        << model << " " << text;
  }
}

}  // namespace
}  // namespace weft
