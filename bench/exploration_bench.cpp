// What a search pays for a proposal: one operator's change followed through plan, program, price and run, against doing
// all of it anew.
//
// Proposals are uniformly random in the SOAP space (FlexFlow, MLSys'19): any forward operator, to any contiguous
// aligned 1, 2, 4, … 64 of 64 devices in any grid of two axes, each axis splitting any axis of the operator that it
// divides, or none. It is accepted when it is better, and one in fifty of those that are up to 2 % worse. Hosts take no
// time, as in FlexFlow's simulator. The full way gets only the meshes that are in use.
//
// One walk follows changes, another over the same proposals does everything anew: as a search would do the one or the
// other, so neither finds its caches full of what the other left.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <cstdlib>

#include "base/random.h"
#include "compile/compilation.h"
#include "cost/analytic.h"
#include "cpu_seconds.h"
#include "models/models.h"
#include "price/price.h"
#include "soap/exploration.h"

namespace weft {
namespace {

constexpr int kDevices = 64;

double since(double start) { return cpu_seconds() - start; }

// WEFT_FULL_EVERY=n: every n-th proposal only is done anew as well.
int full_every() {
  const char* const wanted = std::getenv("WEFT_FULL_EVERY");
  return wanted != nullptr ? std::max(1, std::atoi(wanted)) : 1;
}

Mesh mesh_of(int x, int y, int first) {
  std::vector<DeviceId> devices;
  for (int i = 0; i < x * y; ++i) devices.emplace_back(static_cast<std::size_t>(first + i));
  return Mesh::make({{"x", x}, {"y", y}}, std::move(devices)).value();
}

struct Problem {
  TrainingGraph training;
  Placing placing;  // everything data-parallel
  ShardingChoices choices;
  Schedule schedule = make_schedule({"gpipe", 1, 1, 0}).value();
  Cluster cluster = parse_cluster("p100x4:16").value();
  SoftwareStack stack = find_stack("pytorch-ddp").value();
};

Problem make_problem(const std::string& model) {
  Problem problem{make_training_graph(build_model(model, {.batch = 64 * kDevices}).value(),
                                      {.optimizer = OptimizerKind::Momentum, .clip_norm = std::nullopt})
                      .value(),
                  {},
                  {}};
  const Graph& graph = problem.training.graph;
  problem.placing = with_world(on_one_mesh(graph, mesh_of(kDevices, 1, 0))).value();
  problem.choices.ops.resize(2);
  problem.choices.inputs.resize(2);
  problem.choices.reduce_onto.resize(2);
  for (OpId op : IdRange<OpId>(problem.training.first_backward.index())) {
    const int samples = graph.signature(op).axis_named("b");
    problem.choices.ops[0][op] = {samples >= 0 && splittable(graph.signature(op), samples) ? "b" : ""};
    problem.choices.ops[1][op] = {};
  }
  problem.stack.graph_capture.value = true;
  problem.stack.p2p_overlap.value = true;
  problem.stack.sync_on_norm.value = false;
  return problem;
}

std::vector<Mesh> all_meshes() {
  std::vector<Mesh> meshes;
  for (int size = 1; size <= kDevices; size *= 2)
    for (int first = 0; first < kDevices; first += size)
      for (int y = 1; y <= size; y *= 2) meshes.push_back(mesh_of(size / y, y, first));
  return meshes;
}

ShardingEdit random_edit(const Problem& problem, const IdVec<MeshId, Mesh>& meshes, const std::vector<MeshId>& usable,
                         Rng& rng) {
  ShardingEdit edit{OpId(rng.below(problem.training.first_backward.index())), {}, usable[rng.below(usable.size())]};
  const Signature& signature = problem.training.graph.signature(edit.op);
  std::vector<std::int64_t> left;
  for (const Axis& axis : signature.axes) left.push_back(axis.size);
  for (const MeshAxis& along : meshes[edit.mesh].axes()) {
    std::vector<std::size_t> possible;
    for (std::size_t a = 0; along.size > 1 && a < signature.axes.size(); ++a)
      if (splittable(signature, static_cast<int>(a)) && left[a] % along.size == 0) possible.push_back(a);
    const std::size_t draw = rng.below(possible.size() + 1);
    edit.axes.emplace_back(AxisChoice{});
    if (draw == possible.size()) continue;
    edit.axes.back()->axis = signature.axes[possible[draw]].name;
    left[possible[draw]] /= along.size;
  }
  return edit;
}

// The placing without meshes that nobody is on.
Placing trimmed(const Placing& placing, OpId first_backward) {
  Placing result;
  IdVec<MeshId, MeshId> now(placing.meshes.size());
  const auto keep = [&](MeshId mesh) {
    if (!now[mesh].valid()) {
      now[mesh] = result.meshes.push_back(placing.meshes[mesh]);
      result.stage_of.push_back(placing.stage_of[mesh]);
    }
    return now[mesh];
  };
  for (OpId op : placing.mesh_of.ids())
    result.mesh_of.push_back(op < first_backward ? keep(placing.mesh_of[op]) : MeshId(0));
  result.world = keep(placing.world);
  return result;
}

struct Parts {
  double plan = 0, compile = 0, price = 0, simulate = 0;
  double sum() const { return plan + compile + price + simulate; }
};

// Everything anew. The makespan.
Picoseconds play_fully(const Problem& problem, const ShardingPlanner& planner, const CompileOptions& options,
                       const AnalyticCost& cost, Network network, Parts& parts) {
  const Placing placing = trimmed(planner.placing(), problem.training.first_backward);
  const RecomputeRegions none = RecomputeRegions::none(problem.training.graph);
  auto start = cpu_seconds();
  const ShardingPlan plan = plan_sharding(problem.training, placing, planner.choices()).value();
  parts.plan += since(start);
  start = cpu_seconds();
  Compilation compilation(problem.training, placing, plan, options, none);
  if (!compilation.compile().ok()) return -1;
  parts.compile += since(start);
  start = cpu_seconds();
  const Priced priced = price(compilation.program(), problem.schedule, problem.training, problem.cluster, cost,
                              problem.stack, {.fold = Fold::None})
                            .value();
  parts.price += since(start);
  start = cpu_seconds();
  const Run run = simulate(priced.workload, {.network = network}).value();
  parts.simulate += since(start);
  return run.makespan;
}

// A proposal, what takes it back, and what came of it.
struct Proposal {
  ShardingEdit edit, back;
  Picoseconds makespan = 0;
  bool accepted = false;
};

ShardingEdit way_back(const ShardingPlanner& planner, OpId op) {
  return {op, {planner.choices().ops[0].at(op), planner.choices().ops[1].at(op)}, planner.placing().mesh_of[op]};
}

void BM_Proposals(benchmark::State& state, const char* model, Network network) {
  const Problem problem = make_problem(model);
  const AnalyticCost cost(problem.stack);
  ExploreOptions options{.network = network};
  for (auto _ : state) {
    std::vector<Proposal> walk;
    CompileOptions full_options = options.compile;
    double delta = 0, settle = 0, replayed = 0, tasks = 0;
    std::int64_t accepted = 0, refused = 0;
    {
      Exploration exploration = Exploration::make(problem.training, problem.placing, problem.choices, problem.schedule,
                                                  problem.cluster, cost, problem.stack, options)
                                    .value();
      full_options.buckets = exploration.buckets();
      std::vector<MeshId> usable;
      for (Mesh& mesh : all_meshes()) usable.push_back(exploration.add_mesh(std::move(mesh)).value());
      const Picoseconds first = exploration.makespan();
      Rng rng(1);
      while (static_cast<std::int64_t>(walk.size()) < state.range(0)) {
        const ShardingEdit edit = random_edit(problem, exploration.planner().placing().meshes, usable, rng);
        const ShardingEdit back = way_back(exploration.planner(), edit.op);
        const Picoseconds before = exploration.makespan();
        auto start = cpu_seconds();
        const Result<Outcome> outcome = exploration.propose(edit);
        delta += since(start);
        if (!outcome.ok()) {
          if (refused++ == 0) fmt::print("refused: {}\n", outcome.error().message);
          continue;
        }
        const bool accept =
            outcome->makespan < before || (outcome->makespan < before + before / 50 && rng.below(50) == 0);
        start = cpu_seconds();
        accept ? exploration.accept() : exploration.reject();
        settle += since(start);
        accepted += accept;
        replayed += static_cast<double>(outcome->replayed);
        tasks += static_cast<double>(outcome->tasks);
        walk.push_back({edit, back, outcome->makespan, accept});
      }
      state.counters["gain"] = static_cast<double>(first) / static_cast<double>(exploration.makespan());
    }

    Parts parts;
    double fully = 0;
    ShardingPlanner planner = ShardingPlanner::make(problem.training, problem.placing, problem.choices).value();
    for (Mesh& mesh : all_meshes()) planner.add_mesh(std::move(mesh), 0);
    for (std::size_t i = 0; i < walk.size(); ++i) {
      if (!planner.change(walk[i].edit).ok()) return state.SkipWithError("was planned before");
      if (i % static_cast<std::size_t>(full_every()) == 0) {
        ++fully;
        if (play_fully(problem, planner, full_options, cost, network, parts) != walk[i].makespan)
          return state.SkipWithError("delta and full differ");
      }
      if (!walk[i].accepted && !planner.change(walk[i].back).ok()) return state.SkipWithError("no way back");
    }

    const auto count = static_cast<double>(walk.size());
    state.counters["speedup"] = parts.sum() / fully / ((delta + settle) / count);
    state.counters["full_ms"] = parts.sum() / fully * 1e3;
    state.counters["full_plan_ms"] = parts.plan / fully * 1e3;
    state.counters["full_compile_ms"] = parts.compile / fully * 1e3;
    state.counters["full_price_ms"] = parts.price / fully * 1e3;
    state.counters["full_simulate_ms"] = parts.simulate / fully * 1e3;
    state.counters["delta_ms"] = (delta + settle) / count * 1e3;
    state.counters["settle_ms"] = settle / count * 1e3;
    state.counters["replayed"] = replayed / tasks;
    state.counters["tasks"] = tasks / count;
    state.counters["accepted"] = static_cast<double>(accepted);
    state.counters["refused"] = static_cast<double>(refused);
  }
}
BENCHMARK_CAPTURE(BM_Proposals, inception_v3_fifo, "inception-v3", Network::Fifo)
    ->Arg(1000)
    ->Iterations(1)
    ->Unit(benchmark::kSecond);
BENCHMARK_CAPTURE(BM_Proposals, nmt_fifo, "nmt", Network::Fifo)->Arg(1000)->Iterations(1)->Unit(benchmark::kSecond);
BENCHMARK_CAPTURE(BM_Proposals, inception_v3_fair, "inception-v3", Network::Fair)
    ->Arg(1000)
    ->Iterations(1)
    ->Unit(benchmark::kSecond);
BENCHMARK_CAPTURE(BM_Proposals, nmt_fair, "nmt", Network::Fair)->Arg(1000)->Iterations(1)->Unit(benchmark::kSecond);

// The same proposals, plan and program alone, each taken back.
void BM_Recompile(benchmark::State& state, const char* model) {
  const Problem problem = make_problem(model);
  const RecomputeRegions none = RecomputeRegions::none(problem.training.graph);
  for (auto _ : state) {
    ShardingPlanner planner = ShardingPlanner::make(problem.training, problem.placing, problem.choices).value();
    std::vector<MeshId> usable;
    for (Mesh& mesh : all_meshes()) usable.push_back(planner.add_mesh(std::move(mesh), 0));
    Compilation compilation(problem.training, planner.placing(), planner.plan(), {}, none);
    if (!compilation.compile().ok()) return state.SkipWithError("does not compile");
    CompileOptions options;
    options.buckets = compilation.buckets();
    Rng rng(1);
    double full = 0, delta = 0, written = 0, fully = 0;
    for (std::int64_t made = 0; made < state.range(0);) {
      const ShardingEdit edit = random_edit(problem, planner.placing().meshes, usable, rng);
      const ShardingEdit back = way_back(planner, edit.op);
      auto start = cpu_seconds();
      const Result<ShardingDelta> changed = planner.change(edit);
      if (!changed.ok()) continue;
      const Result<ProgramEdit> edited = compilation.recompile(changed->ops);
      double taken = since(start);
      if (edited.ok()) {
        for (const BodyEdit& body : edited->bodies) written += static_cast<double>(body.added.size());
        if (made++ % full_every() == 0) {
          const Placing placing = trimmed(planner.placing(), problem.training.first_backward);
          start = cpu_seconds();
          const ShardingPlan plan = plan_sharding(problem.training, placing, planner.choices()).value();
          Compilation anew(problem.training, placing, plan, options, none);
          if (!anew.compile().ok()) return state.SkipWithError("does not compile");
          full += since(start);
          ++fully;
        }
        delta += taken;
      }
      // A search keeps some and takes others back; here half and half.
      if (edited.ok() && rng.below(2) == 0) continue;
      if (edited.ok()) compilation.undo();
      if (!planner.change(back).ok()) return state.SkipWithError("no way back");
    }
    const auto count = static_cast<double>(state.range(0));
    state.counters["speedup"] = full / fully / (delta / count);
    state.counters["full_us"] = full / fully * 1e6;
    state.counters["recompile_us"] = delta / count * 1e6;
    state.counters["written"] = written / count;
    state.counters["instructions"] = static_cast<double>(compilation.program().instructions.size());
  }
}
BENCHMARK_CAPTURE(BM_Recompile, inception_v3, "inception-v3")->Arg(1000)->Iterations(1)->Unit(benchmark::kSecond);
BENCHMARK_CAPTURE(BM_Recompile, nmt, "nmt")->Arg(1000)->Iterations(1)->Unit(benchmark::kSecond);

}  // namespace
}  // namespace weft
