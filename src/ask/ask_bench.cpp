// A simulation from a user's words to its forecast. bench/python_overhead.py compares Python's with it.
#include <benchmark/benchmark.h>

#include "ask/simulation.h"

namespace weft {
namespace {

void simulate_words(benchmark::State& state, const PlanRequest& request) {
  for (auto _ : state) {
    Result<SettledSimulation> settled = settle_simulation({.plan = request});
    benchmark::DoNotOptimize(simulate(std::move(settled).value()).value().forecast.step);
  }
}

BENCHMARK_CAPTURE(simulate_words, small,
                  {.model = "gpt2-124m", .cluster = "dgx-a100:1", .strategy = "tp=2,dp=4", .global_batch = 64})
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(
    simulate_words, large,
    {.model = "llama3-70b", .cluster = "dgx-h100:16", .strategy = "tp=8,pp=4,dp=4,zero=1", .global_batch = 128})
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace weft
