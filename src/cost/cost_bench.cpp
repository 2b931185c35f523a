// Queries per second, and the time to make a communicator by the size of the group.
#include <benchmark/benchmark.h>

#include "cost/analytic.h"
#include "graph/operators.h"

namespace weft {
namespace {

const AnalyticCost& model() {
  static const AnalyticCost cost(find_stack("megatron-lm").value());
  return cost;
}

const Cluster& large() {
  static const Cluster cluster = parse_cluster("dgx-h100:2048").value();
  return cluster;
}

std::vector<DeviceId> members(std::int64_t count, std::int64_t stride) {
  std::vector<DeviceId> devices;
  for (std::int64_t i = 0; i < count; ++i) devices.emplace_back(static_cast<std::size_t>(i * stride));
  return devices;
}

// The operators of one transformer layer, forward and backward, which a strategy queries once.
void compute_layer(benchmark::State& state) {
  const std::int64_t rows = 2048, hidden = 12288, local = hidden / 8;
  const TensorType x{DType::BF16, {1, rows, hidden}}, heads{DType::BF16, {1, rows, local}};
  std::vector<Signature> forward;
  const auto add = [&](OpKind kind, const Attrs& attrs, std::vector<TensorType> inputs) {
    forward.push_back(make_signature(kind, attrs, inputs).value());
  };
  add(OpKind::LayerNorm, {}, {x, {DType::BF16, {hidden}, true}, {DType::BF16, {hidden}, true}});
  add(OpKind::Linear, {}, {x, {DType::BF16, {hidden, 3 * local}, true}});
  add(OpKind::Attention, {{"heads", 12}, {"causal", 1}}, {heads, heads, heads});
  add(OpKind::Linear, {}, {heads, {DType::BF16, {local, hidden}, true}});
  add(OpKind::Linear, {}, {x, {DType::BF16, {hidden, 4 * local}, true}});
  add(OpKind::Unary, {{"fn", std::string("gelu")}}, {{DType::BF16, {1, rows, 4 * local}}});
  std::vector<Signature> all = forward;
  for (const Signature& op : forward)
    for (const Gradient& gradient : gradients_of(op))
      if (!gradient.name.empty()) all.push_back(gradient_signature(op, gradient));
  const Cluster cluster = parse_cluster("dgx-h100:1").value();
  std::vector<ComputeQuery> queries;
  for (const Signature& op : all) queries.push_back({.signature = &op, .device = &cluster.spec(DeviceId(0))});
  std::vector<ComputeCost> costs(queries.size());
  for (auto _ : state) {
    model().compute(queries, costs);
    benchmark::DoNotOptimize(costs.data());
  }
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(queries.size()));
}
BENCHMARK(compute_layer);

void communicate(benchmark::State& state) {
  const Communicator group = make_communicator(large(), members(state.range(0), 8), Collective::AllReduce);
  std::int64_t bytes = 1;
  for (auto _ : state) {
    benchmark::DoNotOptimize(model().communicate({&group, bytes}));
    bytes = bytes * 3 % 1'000'000'007;
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(communicate)->Arg(8)->Arg(128)->Arg(2048);

// Made once per group and collective; stride 1: whole nodes, stride 8: one device per node.
void make(benchmark::State& state, Collective collective, std::int64_t stride) {
  const std::vector<DeviceId> group = members(state.range(0), stride);
  for (auto _ : state) benchmark::DoNotOptimize(make_communicator(large(), group, collective));
}
BENCHMARK_CAPTURE(make, all_reduce_nodes, Collective::AllReduce, 1)
    ->Arg(8)
    ->Arg(128)
    ->Arg(2048)
    ->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(make, all_reduce_rails, Collective::AllReduce, 8)
    ->Arg(8)
    ->Arg(128)
    ->Arg(2048)
    ->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(make, all_gather_rails, Collective::AllGather, 8)
    ->Arg(8)
    ->Arg(128)
    ->Arg(2048)
    ->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(make, all_to_all_nodes, Collective::AllToAll, 1)
    ->Arg(8)
    ->Arg(128)
    ->Arg(2048)
    ->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace weft
