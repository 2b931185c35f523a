// Flows started together over links, against SimGrid on the same flows: `simgrid_s` is the time of one SimGrid run.
#include <benchmark/benchmark.h>

#include <algorithm>

#include "base/random.h"
#include "simulate/engine.h"
#include "simulate/simgrid_oracle.h"
#include "simulate/test_workload.h"

namespace weft {
namespace {

void flows_started_together(benchmark::State& state) {
  const std::int64_t flows = state.range(0), links = state.range(1);
  Rng rng(1);
  testing::Maker maker;
  std::vector<double> bandwidths;
  for (std::int64_t i = 0; i < links; ++i) {
    const std::int64_t capacity = rng.between(10, 1000) * 100'000'000;
    maker.link(capacity);
    bandwidths.push_back(static_cast<double>(capacity));
  }
  std::vector<testing::SimGridFlow> theirs;
  for (std::int64_t i = 0; i < flows; ++i) {
    const std::int64_t bytes = rng.between(1'000'000, 1'000'000'000);
    testing::SimGridFlow flow{0, static_cast<std::uint64_t>(bytes), {}};
    std::vector<FlowLinkId> path;
    while (path.size() < 3) {
      const auto link = static_cast<std::uint32_t>(rng.below(static_cast<std::uint64_t>(links)));
      if (std::find(flow.links.begin(), flow.links.end(), link) != flow.links.end()) continue;
      flow.links.push_back(link);
      path.emplace_back(link);
    }
    theirs.push_back(flow);
    maker.task(maker.agent(), maker.transfer(bytes, path));
  }
  Run run;
  for (auto _ : state) run = simulate(maker.workload).value();
  const testing::SimGridAnswer answer = testing::simgrid_finish_times(bandwidths, theirs);
  double error = 0;
  for (std::size_t i = 0; i < theirs.size(); ++i)
    error = std::max(error, std::abs(static_cast<double>(run.agents[AgentId(i)].end) * 1e-12 / answer.finish[i] - 1));
  state.counters["simgrid_s"] = answer.wall_seconds;
  state.counters["greatest_difference"] = error;
}
BENCHMARK(flows_started_together)
    ->ArgNames({"flows", "links"})
    ->Args({1000, 50})
    ->Args({10000, 500})
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace weft
