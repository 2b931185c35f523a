// Tasks per second, on a data-parallel step and on a pipeline, at two sizes each.
#include <benchmark/benchmark.h>

#include "simulate/engine.h"
#include "simulate/test_workload.h"

namespace weft {
namespace {

using testing::Maker;

// Every agent computes 1,000 tasks; every 50th starts an all-reduce of all agents on a stream of its own, over a ring
// of links. Compute times differ a little between agents if `uneven`.
Workload data_parallel(int agents, bool interference) {
  Maker maker;
  std::vector<FlowLinkId> ring;
  for (int i = 0; i < agents; ++i) ring.push_back(maker.link(50'000'000'000));
  std::vector<MeetingId> meetings;
  for (int i = 0; i < 20; ++i) {
    const WorkId work = maker.transfer(25'000'000, ring, 20'000'000);
    if (interference) {
      maker.workload.works[work].sm_share = kOne / 8;
      maker.workload.works[work].memory_share = kOne / 8;
    }
    meetings.push_back(maker.meeting(work, agents));
  }
  std::vector<WorkId> works;
  for (int i = 0; i < 50; ++i)
    works.push_back(maker.work({.fixed = 20'000'000 + 1'000'000 * i,
                                .sm_share = static_cast<std::int32_t>(interference ? kOne : 0),
                                .memory_share = interference ? static_cast<std::int32_t>(kOne * i / 50) : 0}));
  for (int i = 0; i < agents; ++i) {
    const AgentId a = maker.agent();
    TaskId last;
    for (int t = 0; t < 1000; ++t) {
      last = maker.task(a, Task{.work = works[static_cast<std::size_t>(t % 50)], .host = 5'000'000});
      if (t % 50 == 49) maker.meet(a, meetings[static_cast<std::size_t>(t / 50)], 1, {last});
    }
  }
  return std::move(maker.workload);
}

// 1F1B: bodies of 300 tasks, of which every tenth is a collective of the agent alone (it represents a tensor-parallel
// group) on stream 1, and sends to the neighbours.
Workload pipeline(int stages, int micro_batches) {
  Maker maker;
  maker.workload.micro_batches = micro_batches;
  const WorkId send = maker.transfer(10'000'000, {maker.link(25'000'000'000)}, 5'000'000);
  std::vector<MeetingId> down, up;
  for (int i = 0; i + 1 < stages; ++i) {
    down.push_back(maker.meeting(send));
    up.push_back(maker.meeting(send));
  }
  const WorkId compute = maker.compute(50'000'000);
  for (int stage = 0; stage < stages; ++stage) {
    const AgentId a = maker.agent();
    const WorkId collective = maker.transfer(20'000'000, {maker.link(300'000'000'000)}, 10'000'000);
    const auto body = [&](BodyId id, const MeetingId* from, const MeetingId* to, std::uint8_t stream) {
      ShortVec<TaskId> after;
      if (from != nullptr) after = {maker.meet(a, *from, stream, {}, id)};
      for (int t = 0; t < 298; ++t) {
        const bool reduces = t % 10 == 9;
        after = {maker.task(a,
                            Task{.work = reduces ? collective : compute,
                                 .stream = static_cast<std::uint8_t>(reduces ? 1 : 0),
                                 .host = 5'000'000,
                                 .after = after},
                            id)};
      }
      if (to != nullptr) maker.meet(a, *to, static_cast<std::uint8_t>(stream + 1), after, id);
    };
    const auto s = static_cast<std::size_t>(stage);
    body(BodyId(0), stage > 0 ? &down[s - 1] : nullptr, stage + 1 < stages ? &down[s] : nullptr, 2);
    body(BodyId(1), stage + 1 < stages ? &up[s] : nullptr, stage > 0 ? &up[s - 1] : nullptr, 4);
    maker.workload.agents[a].plays = testing::one_forward_one_backward(stages, stage, micro_batches);
  }
  return std::move(maker.workload);
}

void play(benchmark::State& state, const Workload& workload, const SimulateOptions& options) {
  std::int64_t tasks = 0;
  for (auto _ : state) {
    const Run run = simulate(workload, options).value();
    tasks += run.tasks;
  }
  state.counters["tasks/s"] = benchmark::Counter(static_cast<double>(tasks), benchmark::Counter::kIsRate);
}

void data_parallel_step(benchmark::State& state) {
  play(state, data_parallel(static_cast<int>(state.range(0)), false), {.record = state.range(1) != 0});
}
BENCHMARK(data_parallel_step)->ArgNames({"agents", "record"})->Args({64, 0})->Args({256, 0})->Args({256, 1});

void data_parallel_step_with_interference(benchmark::State& state) {
  play(state, data_parallel(static_cast<int>(state.range(0)), true), {});
}
BENCHMARK(data_parallel_step_with_interference)->ArgName("agents")->Arg(64)->Arg(256);

void data_parallel_step_fifo(benchmark::State& state) {
  play(state, data_parallel(static_cast<int>(state.range(0)), false), {.network = Network::Fifo});
}
BENCHMARK(data_parallel_step_fifo)->ArgName("agents")->Arg(64)->Arg(256);

void pipeline_step(benchmark::State& state) {
  play(state, pipeline(static_cast<int>(state.range(0)), static_cast<int>(state.range(1))),
       {.record = state.range(2) != 0});
}
// Without a record, micro-batches that repeat earlier ones are counted only.
BENCHMARK(pipeline_step)
    ->ArgNames({"stages", "micro_batches", "record"})
    ->Args({4, 48, 1})
    ->Args({16, 192, 1})
    ->Args({4, 48, 0})
    ->Args({16, 192, 0});

}  // namespace
}  // namespace weft
