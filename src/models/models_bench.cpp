#include <benchmark/benchmark.h>

#include "graph/training.h"
#include "models/models.h"
#include "models/summary.h"

namespace weft {
namespace {

void BM_BuildGpt3(benchmark::State& state) {
  const std::string spec = "gpt3-175b:layers=" + std::to_string(state.range(0));
  std::size_t operators = 0;
  for (auto _ : state) {
    const Result<Graph> graph = build_model(spec);
    operators = graph->ops().size();
    benchmark::DoNotOptimize(graph);
  }
  state.counters["operators"] = static_cast<double>(operators);
}
BENCHMARK(BM_BuildGpt3)->Arg(24)->Arg(48)->Arg(96)->Unit(benchmark::kMillisecond);

// A whole training step as an operator graph: forward, backward, accumulation, clipping, AdamW.
void BM_TrainingGraphGpt3(benchmark::State& state) {
  const std::string spec = "gpt3-175b:layers=" + std::to_string(state.range(0));
  std::size_t operators = 0;
  for (auto _ : state) {
    const Result<TrainingGraph> training = make_training_graph(build_model(spec).value());
    operators = training->graph.ops().size();
    benchmark::DoNotOptimize(training);
  }
  state.counters["operators"] = static_cast<double>(operators);
}
BENCHMARK(BM_TrainingGraphGpt3)->Arg(24)->Arg(48)->Arg(96)->Unit(benchmark::kMillisecond);

void BM_BuildDeepSeekV3(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(build_model("deepseek-v3"));
}
BENCHMARK(BM_BuildDeepSeekV3)->Unit(benchmark::kMillisecond);

// Includes the training graph.
void BM_SummarizeGpt3(benchmark::State& state) {
  const Result<Graph> graph = build_model("gpt3-175b:layers=" + std::to_string(state.range(0)));
  for (auto _ : state) benchmark::DoNotOptimize(summarize(*graph));
}
BENCHMARK(BM_SummarizeGpt3)->Arg(24)->Arg(96)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace weft
