// From words to a step time: how long each part takes, and with what it grows.
#include <benchmark/benchmark.h>
#include <sys/resource.h>

#include <chrono>

#include "cost/analytic.h"
#include "plan/plan.h"
#include "price/price.h"
#include "simulate/engine.h"

namespace weft {
namespace {

struct Parts {
  double compile = 0, price = 0, simulate = 0;
};

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Compile, price and simulate; what the model and the cluster are is settled before.
void step(benchmark::State& state, const PlanRequest& request, bool fold, Network network = Network::Fair) {
  const Result<Plan> plan = make_plan(request);
  if (!plan.ok()) return state.SkipWithError(plan.error().message.c_str());
  const AnalyticCost cost(plan->stack());
  Parts parts;
  double tasks = 0, agents = 0, makespan = 0;
  for (auto _ : state) {
    auto start = std::chrono::steady_clock::now();
    const Result<CompiledStrategy> compiled = compile_plan(*plan);
    if (!compiled.ok()) return state.SkipWithError(compiled.error().message.c_str());
    parts.compile += seconds_since(start);
    start = std::chrono::steady_clock::now();
    const Result<Priced> priced = price(compiled->program, compiled->schedule, plan->training(), plan->cluster(), cost,
                                        plan->stack(), {.fold = fold ? Fold::Alike : Fold::None});
    if (!priced.ok()) return state.SkipWithError(priced.error().message.c_str());
    parts.price += seconds_since(start);
    start = std::chrono::steady_clock::now();
    const Result<Run> run = simulate(priced->workload, {.network = network});
    if (!run.ok()) return state.SkipWithError(run.error().message.c_str());
    parts.simulate += seconds_since(start);
    tasks += static_cast<double>(run->tasks);
    agents = static_cast<double>(priced->agents.size());
    makespan = static_cast<double>(run->makespan) * 1e-12;
  }
  const auto steps = static_cast<double>(state.iterations());
  state.counters["compile_ms"] = parts.compile / steps * 1e3;
  state.counters["price_ms"] = parts.price / steps * 1e3;
  state.counters["simulate_ms"] = parts.simulate / steps * 1e3;
  state.counters["agents"] = agents;
  state.counters["tasks"] = tasks / steps;
  state.counters["Mtasks_per_s"] = tasks / parts.simulate * 1e-6;
  state.counters["step_s"] = makespan;
  // Of the process until now: run one case alone to know its own.
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  state.counters["peak_MiB"] = static_cast<double>(usage.ru_maxrss) / 1024;
}

void BM_Gpt2DataParallel(benchmark::State& state) {
  const auto nodes = std::to_string(state.range(0) / 8);
  step(state,
       {.model = "gpt2-124m",
        .cluster = "dgx-a100:" + nodes,
        .strategy = "dp=" + std::to_string(state.range(0)),
        .global_batch = state.range(0),
        .seq = 1024,
        .stack = "pytorch-ddp"},
       state.range(1) != 0);
}
BENCHMARK(BM_Gpt2DataParallel)
    ->ArgNames({"devices", "fold"})
    ->Args({64, 0})
    ->Args({256, 0})
    ->Args({256, 1})
    ->Unit(benchmark::kMillisecond);

// Layers, micro-batches, stages and ranks, one at a time.
void BM_Gpt3(benchmark::State& state) {
  const std::int64_t layers = state.range(0), pp = state.range(1), dp = state.range(2), micro = state.range(3);
  step(state,
       {.model = "gpt3-175b:layers=" + std::to_string(layers),
        .cluster = "dgx-a100:" + std::to_string(pp * dp),
        .strategy = "tp=8,pp=" + std::to_string(pp) + ",dp=" + std::to_string(dp),
        .global_batch = dp * micro,
        .micro_batch = 1,
        .seq = 2048},
       true);
}
BENCHMARK(BM_Gpt3)
    ->ArgNames({"layers", "pp", "dp", "micro_batches"})
    ->Args({48, 16, 8, 192})
    ->Args({96, 16, 8, 96})
    ->Args({96, 8, 8, 192})
    ->Args({96, 16, 8, 192})
    ->Args({96, 16, 128, 192})
    ->Unit(benchmark::kMillisecond);

void BM_Llama405b(benchmark::State& state) {
  step(state,
       {.model = "llama3.1-405b:layers=128",
        .cluster = "dgx-h100:2048",
        .strategy = "tp=8,pp=16,dp=128,zero=1",
        .global_batch = 2048,
        .micro_batch = 1,
        .seq = 8192},
       true);
}
BENCHMARK(BM_Llama405b)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace weft
