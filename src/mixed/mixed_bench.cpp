// The search for pipelines over 512 devices of three kinds, and over the 48 of two kinds.
#include <benchmark/benchmark.h>

#include "cost/analytic.h"
#include "mixed/pipelines.h"

namespace weft {
namespace {

void pipelines_of(benchmark::State& state, const char* model, const char* cluster, const char* dtype) {
  const PlanProblem problem = pose({.model = model, .cluster = cluster, .strategy = {}, .dtype = dtype}).value();
  const AnalyticCost cost(problem.stack());
  const std::vector<DeviceKind> kinds = kinds_of(problem);
  const SpaceOptions space;
  for (auto _ : state) {
    MixedPipelines search(problem, cost, kinds, space, 1);
    const auto found = search.find(1.03, 1);
    benchmark::DoNotOptimize(found.size());
    state.counters["shapes"] = static_cast<double>(search.counts().considered);
    state.counters["solved"] = static_cast<double>(search.counts().solved);
  }
}
BENCHMARK_CAPTURE(pipelines_of, two_kinds, "llama3-70b", "dgx-h100:2+dgx-a100:4", "")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(pipelines_of, three_kinds, "llama3-8b", "dgx-h100:22+dgx-a100:21+dgx1-v100-32:21", "fp16")
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace weft
