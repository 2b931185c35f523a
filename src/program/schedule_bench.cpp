// How cost grows with the table: making, checking, and the text.
#include <benchmark/benchmark.h>

#include "program/schedule.h"

namespace weft {
namespace {

// Arguments: index into schedule_names(), ranks p, micro-batches m, chunks v (0: the schedule's own).
ScheduleOptions options(const benchmark::State& state) {
  return {schedule_names()[static_cast<std::size_t>(state.range(0))], static_cast<std::int32_t>(state.range(1)),
          static_cast<std::int32_t>(state.range(2)), static_cast<std::int32_t>(state.range(3))};
}

void sizes(benchmark::internal::Benchmark* bench) {
  for (std::int64_t name = 0; name < static_cast<std::int64_t>(schedule_names().size()); ++name)
    for (std::int64_t p : {4, 16, 64}) bench->Args({name, p, 12 * p, schedule_names()[name] == "interleaved" ? 6 : 0});
}

void make(benchmark::State& state) {
  const ScheduleOptions asked = options(state);
  state.SetLabel(asked.name);
  for (auto _ : state) benchmark::DoNotOptimize(make_schedule(asked));
}
BENCHMARK(make)->Apply(sizes)->Unit(benchmark::kMicrosecond);

void check(benchmark::State& state) {
  const Schedule schedule = make_schedule(options(state)).value();
  state.SetLabel(schedule.name);
  for (auto _ : state) benchmark::DoNotOptimize(check_schedule(schedule).ok());
}
BENCHMARK(check)->Apply(sizes)->Unit(benchmark::kMicrosecond);

void print_and_parse(benchmark::State& state) {
  const Schedule schedule = make_schedule(options(state)).value();
  state.SetLabel(schedule.name);
  for (auto _ : state) benchmark::DoNotOptimize(parse_schedule(print(schedule), "bench"));
}
BENCHMARK(print_and_parse)
    ->Args({1, 4, 48, 0})
    ->Args({1, 16, 192, 0})
    ->Args({2, 16, 192, 6})
    ->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace weft
