// The time of judging a simulated plan in addition to simulating it, without recording (as in searches) and with it.
#include <benchmark/benchmark.h>

#include "cost/analytic.h"
#include "forecast/forecast.h"

namespace weft {
namespace {

void BM_Judge(benchmark::State& state) {
  const bool record = state.range(1) != 0;
  const Plan plan = make_plan({.model = "gpt3-175b",
                               .cluster = "dgx-a100:128",
                               .strategy = "tp=8,pp=16,dp=8",
                               .global_batch = 8 * state.range(0),
                               .seq = 2048})
                        .value();
  const ForecastOptions options{.record = record};
  const PlayedPlan played = play_plan(plan, AnalyticCost(plan.stack()), options).value();
  for (auto _ : state) benchmark::DoNotOptimize(judge(plan, played, options));
}
BENCHMARK(BM_Judge)
    ->ArgNames({"micro_batches", "record"})
    ->Args({48, 0})
    ->Args({192, 0})
    ->Args({192, 1})
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace weft
