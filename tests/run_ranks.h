// Programs played by executors, every rank a thread of this process, and compared with one device of the reference.
#pragma once

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "bundle/bundle.h"
#include "reference/one_device.h"
#include "run/check.h"
#include "run/executor.h"

namespace weft {

// The first of the ranks' problems, by rank.
template <class F>
std::string on_all_ranks(int ranks, const F& f) {
  std::vector<std::string> problems(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] { problems[static_cast<std::size_t>(rank)] = f(rank); });
  for (std::thread& thread : threads) thread.join();
  std::string all;
  for (int rank = 0; rank < ranks; ++rank)
    if (const std::string& problem = problems[static_cast<std::size_t>(rank)]; !problem.empty())
      all += (all.empty() ? "rank " : "; rank ") + std::to_string(rank) + ": " + problem;
  return all;
}

// By norm, of what is finite: a step that overflows does so on both sides.
inline double difference(const std::vector<double>& actual, const std::vector<double>& expected) {
  double off = 0, size = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (!std::isfinite(expected[i])) continue;
    off += (actual[i] - expected[i]) * (actual[i] - expected[i]);
    size += expected[i] * expected[i];
  }
  return std::sqrt(off) / std::max(std::sqrt(size), 1e-3);
}

// What the reference's one device is given, for a player. Refers to both.
inline runtime::LeafValues values_of(const reference::OneDevice& one, const Graph& graph) {
  return [&one, &graph](TensorId leaf, std::int64_t, std::int32_t micro_batch, const runtime::Region& part,
                        std::span<double> filled) {
    const reference::Block whole = one.given(leaf, micro_batch);
    std::size_t next = 0;
    runtime::for_each_index(part, graph.tensors()[leaf].type.shape, [&](std::int64_t index) {
      filled[next++] = whole.values()[static_cast<std::size_t>(index)];
    });
  };
}

// Steps of training by executors, in fp64, on the values of the reference's one device: empty, or what differs from it.
inline std::string run_differs_from_one_device(const TrainingGraph& training, const Program& program,
                                               const Schedule& schedule,
                                               const std::vector<reference::StepNumbers>& steps = {{}},
                                               std::optional<LastMicroBatch> last = {}) {
  Bundle bundle{.model = "test",
                .strategy = "test",
                .numbers = Numbers::Float64,
                .graph = training.graph,
                .program = program,
                .schedule = schedule};
  if (last) bundle.last = Bundle::Last{last->graph, last->program};
  reference::OneDevice one(training, schedule.micro_batches, reference::shards_of(program, training.graph),
                           last ? &last->graph : nullptr,
                           last ? reference::shards_of(last->program, last->graph) : reference::Shards());
  const runtime::LeafValues values = values_of(one, training.graph);
  const int ranks = bundle.world_size();
  const runtime::Rendezvous rendezvous = runtime::Rendezvous::in_process();
  std::vector<std::unique_ptr<runtime::Executor>> executors(static_cast<std::size_t>(ranks));
  one.begin(steps.front());
  if (const std::string problem = on_all_ranks(ranks,
                                               [&](int rank) -> std::string {
                                                 auto made = runtime::Executor::make(bundle, rank, rendezvous, values,
                                                                                     {.timeout = Seconds{20}});
                                                 if (!made.ok()) return made.error().message;
                                                 executors[static_cast<std::size_t>(rank)] = std::move(made).value();
                                                 return {};
                                               });
      !problem.empty())
    return problem;

  // What is compared after every step: gradients, updated parameters, results.
  const Graph& graph = training.graph;
  std::vector<BufferId> compared;
  for (BufferId id : program.buffers.ids()) {
    const Buffer& buffer = program.buffers[id];
    const weft::Tensor& tensor = graph.tensors()[buffer.tensor];
    const bool accumulator =
        buffer.kind == BufferKind::State && buffer.storage == id &&
        std::any_of(training.accumulated.begin(), training.accumulated.end(),
                    [&](const auto& each) { return graph.tensors()[each.second].storage == buffer.tensor; });
    const bool updated = buffer.kind == BufferKind::Parameter && tensor.kind == TensorKind::Update;
    if (accumulator || updated || buffer.kind == BufferKind::Result) compared.push_back(id);
  }
  for (const reference::StepNumbers& numbers : steps) {
    one.begin(numbers);
    std::vector<runtime::WholeTensor> wholes;
    const std::string problem = on_all_ranks(ranks, [&](int rank) -> std::string {
      runtime::Executor& executor = *executors[static_cast<std::size_t>(rank)];
      const Status played = executor.step({numbers.step, numbers.learning_rate, numbers.loss_scale});
      if (!played.ok()) return played.error().message;
      for (BufferId id : compared) {
        auto gathered = executor.gather(id);
        if (!gathered.ok()) return gathered.error().message;
        if (rank == 0) wholes.push_back(std::move(**gathered));
      }
      return {};
    });
    if (!problem.empty()) return problem;
    one.play();
    std::map<TensorId, std::vector<double>> gradients;  // a tied weight has an accumulator on each of its meshes
    for (std::size_t i = 0; i < compared.size(); ++i) {
      const Buffer& buffer = program.buffers[compared[i]];
      if (wholes[i].spread > 1e-9) return "replicas of " + graph.name(buffer.tensor) + " differ";
      if (buffer.kind == BufferKind::State) {
        std::vector<double>& sum = gradients[buffer.tensor];
        sum.resize(wholes[i].values.size(), 0.0);
        for (std::size_t e = 0; e < sum.size(); ++e) sum[e] += wholes[i].values[e];
      } else if (const double off = difference(wholes[i].values, one.values()[buffer.tensor].values());
                 !(off <= 1e-9)) {
        return graph.name(buffer.tensor) + " differs by " + std::to_string(off);
      }
    }
    for (const auto& [parameter, gradient] : training.accumulated) {
      const auto found = gradients.find(graph.tensors()[gradient].storage);
      if (found == gradients.end()) return graph.name(parameter) + " has no gradient";
      if (const double off = difference(found->second, one.values()[gradient].values()); !(off <= 1e-9))
        return "the gradient of " + graph.name(parameter) + " differs by " + std::to_string(off);
    }
  }
  return {};
}

// Steps of training by executors on synthetic values: empty, or what differs from the same on one device, unsharded.
inline std::string run_differs_from_unsharded(const Bundle& bundle, int steps = 2) {
  const runtime::Rendezvous rendezvous = runtime::Rendezvous::in_process();
  const runtime::LeafValues values = runtime::synthetic_values(bundle);
  return on_all_ranks(bundle.world_size(), [&](int rank) -> std::string {
    auto executor = runtime::Executor::make(bundle, rank, rendezvous, values, {.timeout = Seconds{30}, .mask_seed = 7});
    if (!executor.ok()) return executor.error().message;
    std::optional<runtime::Unsharded> one_device;
    if (rank == 0) one_device.emplace(bundle, values, 7);
    std::string problem;
    for (int step = 1; step <= steps; ++step) {
      const runtime::StepNumbers numbers{static_cast<double>(step), bundle.learning_rate, 1};
      if (const Status played = (*executor)->step(numbers); !played.ok()) return played.error().message;
      const auto compared = runtime::check_step(**executor, one_device ? &*one_device : nullptr, bundle, rank, numbers);
      if (!compared.ok()) return compared.error().message;
      for (const runtime::Comparison& each : *compared)
        if (!each.ok() && problem.empty())
          problem = "step " + std::to_string(step) + ": " + each.name + " differs by " +
                    std::to_string(each.difference) + ", replicas by " + std::to_string(each.spread);
    }
    return problem;
  });
}

}  // namespace weft
