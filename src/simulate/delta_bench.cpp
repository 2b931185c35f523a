// An operator's tasks are replaced and restored repeatedly: delta against a full run of the same workload.
#include <benchmark/benchmark.h>

#include "base/random.h"
#include "simulate/delta.h"
#include "simulate/test_workload.h"

namespace weft {
namespace {

using testing::Maker;

// `operators` operators, each in one part per agent; after every third, neighbours exchange halos; after every
// twentieth all agents gather. Parts of an operator take about the same time.
Workload operators_on(int agents, int operators, Rng& rng) {
  Maker maker;
  std::vector<FlowLinkId> links;
  for (int i = 0; i < agents; ++i) links.push_back(maker.link(25'000'000'000));
  for (int i = 0; i < agents; ++i) maker.agent();
  std::vector<TaskId> last(static_cast<std::size_t>(agents));
  for (int op = 0; op < operators; ++op) {
    const std::int64_t time = rng.between(20'000'000, 200'000'000);
    for (int i = 0; i < agents; ++i) {
      const AgentId agent(static_cast<std::size_t>(i));
      TaskId& before = last[static_cast<std::size_t>(i)];
      before =
          maker.task(agent, maker.compute(time + rng.between(0, time / 100)), 0, {before.valid() ? before : TaskId(0)});
    }
    if (op % 3 == 2) {
      for (int i = 0; i < agents; ++i) {
        const auto left = static_cast<std::size_t>(i), right = static_cast<std::size_t>((i + 1) % agents);
        const MeetingId meeting = maker.meeting(maker.transfer(500'000, {links[left]}, 5'000'000));
        const TaskId sent = maker.meet(AgentId(left), meeting, 1, {last[left]});
        const TaskId received = maker.meet(AgentId(right), meeting, 2, {last[right]});
        last[left] = op % 2 == 0 ? sent : last[left];
        last[right] = received;
      }
    }
    if (op % 20 == 19) {
      const MeetingId meeting = maker.meeting(maker.transfer(2'000'000, links, 20'000'000), agents);
      for (int i = 0; i < agents; ++i) {
        TaskId& before = last[static_cast<std::size_t>(i)];
        before = maker.meet(AgentId(static_cast<std::size_t>(i)), meeting, 3, {before});
      }
    }
  }
  return std::move(maker.workload);
}

// New times for one operator on some of the agents.
WorkloadEdit exchange_operator(const Workload& workload, Rng& rng) {
  WorkloadEdit edit;
  const std::size_t agents = workload.agents.size();
  const std::size_t position = rng.below(workload.agents[AgentId(0)].bodies[BodyId(0)].size());
  const std::int64_t time = rng.between(20'000'000, 200'000'000);
  for (std::size_t i = rng.below(agents); i < agents; ++i) {
    const Agent& agent = workload.agents[AgentId(i)];
    const TaskId old = agent.bodies[BodyId(0)][position];
    Task task = agent.tasks[old];
    if (task.meeting.valid()) continue;
    task.work = WorkId(workload.works.size() + edit.works.size());
    edit.works.emplace_back(task.work, Work{.fixed = time});
    edit.agents.push_back(
        {AgentId(i), {task}, {{BodyId(0), static_cast<std::uint32_t>(position), 1, {TaskId(agent.tasks.size())}}}});
  }
  return edit;
}

void full(benchmark::State& state) {
  Rng rng(1);
  const Workload workload = operators_on(static_cast<int>(state.range(0)), static_cast<int>(state.range(1)), rng);
  const auto network = static_cast<Network>(state.range(2));
  for (auto _ : state) benchmark::DoNotOptimize(simulate(workload, {.network = network}));
}

void delta(benchmark::State& state) {
  Rng rng(1);
  Workload workload = operators_on(static_cast<int>(state.range(0)), static_cast<int>(state.range(1)), rng);
  Simulator simulator = Simulator::make(std::move(workload), {.network = static_cast<Network>(state.range(2))}).value();
  double replayed = 0, tasks = 0;
  for (auto _ : state) {
    const Outcome outcome = simulator.apply(exchange_operator(simulator.workload(), rng)).value();
    simulator.undo();
    replayed += static_cast<double>(outcome.replayed);
    tasks += static_cast<double>(outcome.tasks);
  }
  state.counters["replayed"] = replayed / tasks;
}

void sizes(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgNames({"agents", "operators", "fifo"})->Unit(benchmark::kMicrosecond);
  for (const int fifo : {0, 1}) benchmark->Args({16, 300, fifo})->Args({64, 300, fifo})->Args({64, 1200, fifo});
}
BENCHMARK(full)->Apply(sizes);
BENCHMARK(delta)->Apply(sizes);

}  // namespace
}  // namespace weft
