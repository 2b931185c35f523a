// Pipelines of unequal stages on unequal meshes and replicas with unequal samples, drawn at random: each trains as one
// device does.
#include "mixed_plans.h"

namespace weft {
namespace {

PlayedMixed play_pipeline(Rng& rng) {
  std::set<std::string> features;
  const std::vector<DeviceKind> kinds = random_kinds(rng);
  std::vector<std::int64_t> left = counts_of(kinds);
  const std::int64_t stages = rng.between(2, 4), layers = rng.between(stages, 2 * stages);
  const MixedPipeline pipeline = random_pipeline(stages, layers, kinds, 8, left, rng);
  const auto differ = [&](const char* feature, auto value) {
    for (const auto& stage : pipeline.stages)
      if (value(stage) != value(pipeline.stages.front())) features.insert(feature);
  };
  differ("unequal layers", [](const auto& stage) { return stage.layers; });
  differ("unequal dp", [](const auto& stage) { return stage.option.dp; });
  differ("unequal tp", [](const auto& stage) { return stage.option.tp; });
  differ("unequal recompute", [](const auto& stage) { return stage.option.recompute; });
  differ("several kinds", [](const auto& stage) { return stage.kind; });
  for (std::size_t s = 2; s < pipeline.stages.size(); ++s)
    if (pipeline.stages[s].kind == pipeline.stages[s - 2].kind &&
        pipeline.stages[s].kind != pipeline.stages[s - 1].kind)
      features.insert("kind between others");
  const std::string model = random_model(layers, rng, features);
  const LayerPattern pattern = pattern_of(model);
  const Graph graph = build_model(model, {.batch = 4, .seq = kSequence, .dtype = DType::F32}).value();
  Strategy tree = tree_of(pipeline, kinds, pattern, graph);
  const auto stage_of_zero = static_cast<int>(rng.below(4));
  set_zero(tree, stage_of_zero);
  features.insert(fmt::format("zero={}", stage_of_zero));
  if (pipeline.micro_batches < stages) features.insert("fewer micro-batches than stages");
  return play_tree(fmt::format("{} {} zero={}", model, print(pipeline, kinds, pattern), stage_of_zero), tree, model, 4,
                   std::move(features), rng);
}

PlayedMixed play_replicas(Rng& rng) {
  std::set<std::string> features = {"unequal samples"};
  std::vector<DeviceKind> kinds = random_kinds(rng);
  MixedReplicas replicas;
  replicas.tp = std::int64_t{1} << rng.below(2);
  replicas.micro_batches = rng.between(1, 3);
  replicas.zero = static_cast<int>(rng.below(4));
  const PlanRecompute again[] = {PlanRecompute::None, PlanRecompute::Full, PlanRecompute::Op};
  replicas.recompute = again[rng.below(3)];
  std::int64_t samples = 0;
  // A kind is whole nodes of four devices, here one or two.
  PlanProblem problem;
  TrainingJob job;
  job.cluster = std::make_shared<const Cluster>(parse_cluster("p100x4:24").value());
  problem.job = std::make_shared<const TrainingJob>(std::move(job));
  for (std::size_t k = 0; k < kinds.size(); ++k) {
    const std::int64_t nodes = kinds.size() == 2 ? rng.between(1, 2) : 1;
    replicas.kinds.push_back({k, nodes, nodes * 4 / replicas.tp, k == 0 ? rng.between(2, 3) : rng.between(1, 2)});
    samples += replicas.kinds.back().replicas * replicas.kinds.back().samples;
  }
  features.insert(fmt::format("zero={}", replicas.zero));
  if (replicas.tp > 1) features.insert("tp");
  const std::string model = random_model(rng.between(1, 2), rng, features);
  const Graph graph = build_model(model, {.batch = samples, .seq = kSequence, .dtype = DType::F32}).value();
  const Strategy tree = tree_of(replicas, problem, kinds, graph);
  return play_tree(fmt::format("{} {}", model, print(replicas, kinds, problem.layers)), tree, model, samples,
                   std::move(features), rng);
}

TEST(MixedPlans, TrainAsOneDevice) {
  play_all(360, 16, [](int i, Rng& rng) { return i % 6 == 5 ? play_replicas(rng) : play_pipeline(rng); });
}

}  // namespace
}  // namespace weft
