// How cost grows with the cluster: building it, asking for a path, asking for the links of a ring.
#include <benchmark/benchmark.h>

#include <numeric>

#include "base/random.h"
#include "cluster/cluster.h"
#include "cluster/group.h"

namespace weft {
namespace {

Cluster dgx(std::int64_t devices) { return parse_cluster(fmt::format("dgx-h100:{}", devices / 8)).value(); }

void build(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(dgx(state.range(0)));
}
BENCHMARK(build)->Arg(64)->Arg(1024)->Arg(16384)->Arg(131072);

// With a node type that must be read and routed each time: what a user's file costs.
void build_from_yaml(benchmark::State& state) {
  const std::string text = to_yaml(dgx(state.range(0)));
  for (auto _ : state) benchmark::DoNotOptimize(parse_cluster_yaml(text, "bench.yaml"));
}
BENCHMARK(build_from_yaml)->Arg(1024)->Arg(16384);

void path(benchmark::State& state) {
  const Cluster cluster = dgx(state.range(0));
  Rng rng(1);
  std::vector<LinkId> links;
  const auto devices = static_cast<std::uint64_t>(cluster.device_count());
  for (auto _ : state) {
    links.clear();
    cluster.append_path(DeviceId(rng.below(devices)), DeviceId(rng.below(devices)), links);
    benchmark::DoNotOptimize(links.data());
  }
}
BENCHMARK(path)->Arg(64)->Arg(1024)->Arg(16384);

void link(benchmark::State& state) {
  const Cluster cluster = dgx(state.range(0));
  Rng rng(1);
  const auto links = static_cast<std::uint64_t>(cluster.link_count());
  for (auto _ : state) benchmark::DoNotOptimize(cluster.link(LinkId(rng.below(links))));
}
BENCHMARK(link)->Arg(64)->Arg(16384);

// Ring over every 8th device: one data-parallel group of a tensor-parallel plan.
void ring(benchmark::State& state) {
  const Cluster cluster = dgx(state.range(0));
  std::vector<DeviceId> group;
  for (std::int64_t d = 0; d < cluster.device_count(); d += 8) group.emplace_back(static_cast<std::size_t>(d));
  std::vector<LinkLoad> uses;
  std::vector<LinkId> scratch;
  for (auto _ : state) {
    ring_links(cluster, group, uses, scratch);
    benchmark::DoNotOptimize(uses.data());
  }
}
BENCHMARK(ring)->Arg(64)->Arg(1024)->Arg(16384);

}  // namespace
}  // namespace weft
