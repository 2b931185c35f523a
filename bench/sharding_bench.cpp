// Replanning after a change of one operator against planning everything, for searches over placements (FlexFlow's):
// every operator individually placed, its samples over 64 devices.
#include <benchmark/benchmark.h>

#include "layout/sharding.h"
#include "models/models.h"

namespace weft {
namespace {

constexpr int kDevices = 64;

Mesh mesh_of(int samples, int channels, int first = 0) {
  std::vector<DeviceId> devices;
  for (int i = 0; i < samples * channels; ++i) devices.emplace_back(static_cast<std::size_t>(first + i));
  return Mesh::make({{"place0", samples}, {"place1", channels}}, std::move(devices)).value();
}

struct Case {
  TrainingGraph training;
  Placing placing;
  ShardingChoices choices;
};
Case make_case(const std::string& model, std::optional<std::int64_t> steps) {
  const ModelOptions options{.batch = 64 * kDevices, .seq = steps};
  Case result{make_training_graph(build_model(model, options).value()).value(), {}, {}};
  const Graph& graph = result.training.graph;
  result.placing = on_one_mesh(graph, mesh_of(kDevices, 1));
  result.placing.meshes.push_back(mesh_of(kDevices / 4, 2, 8));
  result.placing.stage_of.push_back(0);
  result.choices.ops.resize(2);
  result.choices.inputs.resize(2);
  result.choices.reduce_onto.resize(2);
  for (OpId op : graph.ops().ids()) {
    if (graph.ops()[op].phase != Phase::Forward) break;
    const int samples = graph.signature(op).axis_named("b");
    result.choices.ops[0][op] = {samples >= 0 && splittable(graph.signature(op), samples) ? "b" : ""};
    result.choices.ops[1][op] = {};
  }
  return result;
}

void BM_PlanAll(benchmark::State& state, const char* model, std::optional<std::int64_t> steps) {
  const Case c = make_case(model, steps);
  for (auto _ : state) benchmark::DoNotOptimize(plan_sharding(c.training, c.placing, c.choices).value());
  state.counters["operators"] = static_cast<double>(c.training.first_step.index());
}

// Each operator with weights in turn is split 4 ways by samples and 2 ways by channels on other devices, then restored.
void BM_ChangeOne(benchmark::State& state, const char* model, std::optional<std::int64_t> steps) {
  const Case c = make_case(model, steps);
  const Graph& graph = c.training.graph;
  std::vector<std::pair<OpId, std::string>> proposals;
  for (OpId op : graph.ops().ids()) {
    if (graph.ops()[op].phase != Phase::Forward) break;
    const Signature& signature = graph.signature(op);
    for (int axis = 0; axis < static_cast<int>(signature.axes.size()); ++axis)
      if (const Axis& described = signature.axes[static_cast<std::size_t>(axis)];
          described.kind == AxisKind::Parameter && splittable(signature, axis) && described.size % 2 == 0 &&
          signature.axis_named("b") >= 0) {
        proposals.emplace_back(op, described.name);
        break;
      }
  }
  ShardingPlanner planner = ShardingPlanner::make(c.training, c.placing, c.choices).value();
  std::size_t changed = 0, changes = 0;
  for (auto _ : state) {
    const auto& [op, axis] = proposals[changes / 2 % proposals.size()];
    const bool there = changes++ % 2 == 0;
    changed += planner.change({op, {AxisChoice{"b"}, AxisChoice{there ? axis : ""}}, MeshId(there ? 1 : 0)})
                   .value()
                   .ops.size();
  }
  state.counters["changed"] = static_cast<double>(changed) / static_cast<double>(changes);
  state.counters["proposals"] = static_cast<double>(proposals.size());
}

// Twice as many unrolled steps double the plan, but not the change.
BENCHMARK_CAPTURE(BM_PlanAll, inception, "inception-v3", std::nullopt)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(BM_ChangeOne, inception, "inception-v3", std::nullopt)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(BM_PlanAll, nmt_20_steps, "nmt", 20)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(BM_ChangeOne, nmt_20_steps, "nmt", 20)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(BM_PlanAll, nmt_40_steps, "nmt", 40)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(BM_ChangeOne, nmt_40_steps, "nmt", 40)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace weft
