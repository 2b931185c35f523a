// Routes drawn at random, two or three of them: each plan trains as one device does.
#include "mixed_plans.h"

namespace weft {
namespace {

// Pipelines of different shapes beside one another, with micro-batches in unequal numbers.
PlayedMixed play_routes(Rng& rng) {
  std::set<std::string> features = {"routes"};
  const std::vector<DeviceKind> kinds = random_kinds(rng);
  std::vector<std::int64_t> left = counts_of(kinds);
  const std::int64_t layers = rng.below(3) == 0 ? 3 : 2;
  std::vector<MixedPipeline> routes;
  for (int count = rng.below(3) == 0 ? 3 : 2; count > 0; --count)
    routes.push_back(random_pipeline(rng.between(1, layers), layers, kinds, 4, left, rng));
  if (routes.size() > 2) features.insert("three routes");
  const auto differ = [&](const char* feature, auto value) {
    for (const MixedPipeline& route : routes)
      if (value(route) != value(routes.front())) features.insert(feature);
  };
  differ("routes of unequal lengths", [](const MixedPipeline& route) { return route.stages.size(); });
  differ("routes with unequal micro-batches", [](const MixedPipeline& route) { return route.micro_batches; });
  differ("routes of unequal dp", [](const MixedPipeline& route) { return route.stages.front().option.dp; });
  differ("routes of unequal tp", [](const MixedPipeline& route) { return route.stages.front().option.tp; });
  differ("routes of unequal recompute", [](const MixedPipeline& route) { return route.stages[0].option.recompute; });
  for (const MixedPipeline& route : routes)
    if (route.stages.size() > 1) features.insert("pipeline in a route");
  const std::string model = random_model(layers, rng, features);
  const LayerPattern pattern = pattern_of(model);
  const Graph graph = build_model(model, {.batch = 4, .seq = kSequence, .dtype = DType::F32}).value();
  Strategy tree = tree_of(routes, kinds, pattern, graph);
  const auto stage_of_zero = static_cast<int>(rng.below(4));
  set_zero(tree, stage_of_zero);
  features.insert(fmt::format("routes zero={}", stage_of_zero));
  std::vector<std::string> words;
  for (const MixedPipeline& route : routes) words.push_back(print(route, kinds, pattern));
  return play_tree(fmt::format("{} {} zero={}", model, fmt::join(words, " | "), stage_of_zero), tree, model, 4,
                   std::move(features), rng);
}

TEST(MixedPlans, OfRoutesTrainAsOneDevice) {
  play_all(320, 15, [](int, Rng& rng) { return play_routes(rng); });
}

}  // namespace
}  // namespace weft
