#include "search/soap/layerwise.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>

namespace weft {
namespace {

constexpr Picoseconds kNoTime = std::numeric_limits<Picoseconds>::max() / 4;

LayerCost plus(const LayerCost& a, const LayerCost& b) {
  return {a.micro_batch + b.micro_batch, a.step + b.step, a.states + b.states, a.activations + b.activations};
}

}  // namespace

std::string print(const LayerOption& option) {
  std::string text = fmt::format("tp={} dp={}", option.tp, option.dp);
  if (option.zero > 0) text += fmt::format(" zero={}", option.zero);
  if (option.recompute) text += " recompute";
  return text;
}

std::optional<LayerwisePlan> best_layers(const LayerTable& table, const StageRange& range, Bytes limit, Bytes quantum) {
  std::vector<std::size_t> usable;
  for (std::size_t o = 0; o < table.options.size(); ++o)
    if (range.devices == 0 || table.options[o].devices() == range.devices) usable.push_back(o);
  const std::size_t layers = range.last - range.first, options = usable.size();
  const auto quanta = static_cast<std::size_t>(std::max<std::int64_t>(0, limit.value / quantum.value));
  if (layers == 0 || options == 0) return std::nullopt;

  const auto cost_of = [&](std::size_t layer, std::size_t o) {
    LayerCost cost = table.layer[usable[o]];
    if (layer == 0) cost = plus(cost, table.first[usable[o]]);
    if (layer + 1 == table.layers) cost = plus(cost, table.last[usable[o]]);
    return cost;
  };
  const auto weighed = [&](const LayerCost& cost) { return cost.micro_batch * range.micro_batches + cost.step; };
  const auto taken = [&](const LayerCost& cost) {
    const std::int64_t bytes = cost.states.value + range.in_flight * cost.activations.value;
    return static_cast<std::size_t>((bytes + quantum.value - 1) / quantum.value);
  };
  // best[o][q]: the layers so far, the last by option o, in q quanta at most. from: the option before.
  const std::size_t row = quanta + 1;
  std::vector<Picoseconds> best(options * row, kNoTime), next(options * row);
  std::vector<std::vector<std::uint16_t>> from(layers, std::vector<std::uint16_t>(options * row, 0));
  for (std::size_t l = 0; l < layers; ++l) {
    std::fill(next.begin(), next.end(), kNoTime);
    for (std::size_t o = 0; o < options; ++o) {
      const LayerCost cost = cost_of(range.first + l, o);
      const std::size_t own = taken(cost);
      const Picoseconds time = weighed(cost);
      for (std::size_t q = own; q <= quanta; ++q) {
        Picoseconds& least = next[o * row + q];
        if (l == 0) {
          least = time;
          continue;
        }
        for (std::size_t before = 0; before < options; ++before) {
          const Picoseconds sum =
              best[before * row + q - own] + time + table.change[usable[before]][usable[o]] * range.micro_batches;
          if (sum >= least) continue;
          least = sum;
          from[l][o * row + q] = static_cast<std::uint16_t>(before);
        }
      }
    }
    std::swap(best, next);
  }
  std::size_t o = 0, q = quanta;
  for (std::size_t each = 1; each < options; ++each)
    if (best[each * row + quanta] < best[o * row + quanta]) o = each;
  if (best[o * row + quanta] >= kNoTime) return std::nullopt;
  LayerwisePlan plan{std::vector<std::size_t>(layers), 0, 0, {}};
  for (std::size_t l = layers; l-- > 0;) {
    const LayerCost cost = cost_of(range.first + l, o);
    plan.option[l] = usable[o];
    plan.micro_batch += cost.micro_batch;
    plan.step += cost.step;
    plan.memory += quantum * static_cast<std::int64_t>(taken(cost));
    if (l == 0) break;
    const std::size_t before = from[l][o * row + q];
    plan.micro_batch += table.change[usable[before]][usable[o]];
    q -= taken(cost);
    o = before;
  }
  return plan;
}

std::optional<LayerwisePipeline> best_layerwise(const LayerwiseProblem& problem) {
  std::optional<LayerwisePipeline> best;
  for (std::int64_t micro_batches : problem.micro_batches) {
    const LayerTable* table = problem.table_of(micro_batches);
    if (!table) continue;
    // Stages of as many layers, that lie alike, are the same.
    std::map<std::tuple<std::size_t, bool, bool, int, std::int64_t>, std::optional<LayerwisePlan>> known;
    std::vector<int> sizes;
    for (const LayerOption& option : table->options)
      if (std::find(sizes.begin(), sizes.end(), option.devices()) == sizes.end()) sizes.push_back(option.devices());
    const auto plan_of = [&](std::size_t first, std::size_t last, int devices,
                             std::int64_t in_flight) -> const std::optional<LayerwisePlan>& {
      const auto [found, fresh] =
          known.try_emplace({last - first, first == 0, last == table->layers, devices, in_flight});
      if (fresh)
        found->second =
            best_layers(*table, {first, last, devices, in_flight, micro_batches}, problem.limit, problem.quantum);
      return found->second;
    };
    PartitionProblem cut{table->layers, problem.devices, sizes, micro_batches, problem.most_stages, {}};
    cut.stage_time = [&](std::size_t first, std::size_t last, std::size_t mesh,
                         std::int64_t in_flight) -> std::optional<Picoseconds> {
      // What happens once a step is spread over its micro-batches.
      const auto& plan = plan_of(first, last, sizes[mesh], in_flight);
      if (!plan) return std::nullopt;
      return plan->micro_batch + plan->step / micro_batches;
    };
    const std::optional<Partition> partition = best_partition(cut);
    if (!partition || (best && best->time <= partition->step)) continue;
    best = LayerwisePipeline{{}, partition->stages, micro_batches, partition->step};
    for (std::size_t s = 0; s < partition->stages.size(); ++s) {
      const Partition::Stage& stage = partition->stages[s];
      const auto flight =
          std::min<std::int64_t>(micro_batches, static_cast<std::int64_t>(partition->stages.size() - s));
      best->stages.push_back(*plan_of(stage.first, stage.last, sizes[stage.mesh], flight));
    }
  }
  return best;
}

}  // namespace weft
