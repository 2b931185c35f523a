#include "soap/layerwise.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>

namespace weft {
namespace {

LayerCost plus(const LayerCost& a, const LayerCost& b) {
  return {a.micro_batch + b.micro_batch, a.step + b.step, a.states + b.states, a.activations + b.activations};
}

// Time and memory of the layers of a stage.
struct StageCosts {
  const LayerTable& table;
  const StageRange& range;
  Bytes quantum;

  LayerCost cost(std::size_t layer, std::size_t option, bool last) const {
    LayerCost cost = table.layer[option];
    if (layer == 0) cost = plus(cost, table.first[option]);
    if (last) cost = plus(cost, table.last[option]);
    return cost;
  }
  Picoseconds time(const LayerCost& cost) const { return cost.micro_batch * range.micro_batches + cost.step; }
  std::size_t quanta(const LayerCost& cost) const {
    const std::int64_t bytes = cost.states.value + range.in_flight * cost.activations.value;
    return static_cast<std::size_t>((bytes + quantum.value - 1) / quantum.value);
  }
};

std::vector<std::size_t> usable_options(const LayerTable& table, int devices) {
  std::vector<std::size_t> usable;
  for (std::size_t o = 0; o < table.options.size(); ++o)
    if (devices == 0 || table.options[o].devices() == devices) usable.push_back(o);
  return usable;
}

// The table of the model in reverse order of layers.
LayerTable turned_around(const LayerTable& table) {
  LayerTable turned = table;
  std::swap(turned.first, turned.last);
  for (std::size_t a = 0; a < table.change.size(); ++a)
    for (std::size_t b = 0; b < table.change.size(); ++b) turned.change[a][b] = table.change[b][a];
  return turned;
}

}  // namespace

std::string print(const LayerOption& option) {
  std::string text = fmt::format("tp={} dp={}", option.tp, option.dp);
  if (option.zero > 0) text += fmt::format(" zero={}", option.zero);
  if (option.recompute) text += " recompute";
  return text;
}

std::optional<LayerwisePlan> best_layers(const LayerTable& table, const StageRange& range, Bytes limit, Bytes quantum) {
  const std::vector<std::size_t> usable = usable_options(table, range.devices);
  const std::size_t layers = range.last - range.first, options = usable.size();
  const auto quanta = static_cast<std::size_t>(std::max<std::int64_t>(0, limit.value / quantum.value));
  if (layers == 0 || options == 0) return std::nullopt;

  const StageCosts stage{table, range, quantum};
  const auto cost_of = [&](std::size_t layer, std::size_t o) {
    return stage.cost(layer, usable[o], layer + 1 == table.layers);
  };
  const auto time_of = [&](const LayerCost& cost) { return stage.time(cost); };
  const auto quanta_of = [&](const LayerCost& cost) { return stage.quanta(cost); };
  // best[o][q]: the least time of the layers so far, the last one with option o, in at most q quanta. from: the option
  // of the layer before.
  const std::size_t row = quanta + 1;
  std::vector<Picoseconds> best(options * row, kNoTime), next(options * row);
  std::vector<std::vector<std::uint16_t>> from(layers, std::vector<std::uint16_t>(options * row, 0));
  for (std::size_t l = 0; l < layers; ++l) {
    std::fill(next.begin(), next.end(), kNoTime);
    for (std::size_t o = 0; o < options; ++o) {
      const LayerCost cost = cost_of(range.first + l, o);
      const std::size_t own = quanta_of(cost);
      const Picoseconds time = time_of(cost);
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
    plan.memory += quantum * static_cast<std::int64_t>(quanta_of(cost));
    if (l == 0) break;
    const std::size_t before = from[l][o * row + q];
    plan.micro_batch += table.change[usable[before]][usable[o]];
    q -= quanta_of(cost);
    o = before;
  }
  return plan;
}

TimesByLength best_times(const LayerTable& table, const StageRange& range, Bytes limit, Bytes quantum) {
  const std::vector<std::size_t> usable = usable_options(table, range.devices);
  const std::size_t layers = table.layers - range.first;
  TimesByLength result{std::vector<Picoseconds>(layers + 1, kNoTime), kNoTime};
  const auto quanta = static_cast<std::size_t>(std::max<std::int64_t>(0, limit.value / quantum.value));
  const StageCosts stage{table, range, quantum};
  // Kinds of layout: options between which resharding is free, and with equal costs to and from all others.
  std::vector<std::size_t> kind_of, first_of;
  for (std::size_t o : usable) {
    std::size_t kind = 0;
    const auto alike = [&](std::size_t p) {
      for (std::size_t other : usable)
        if (table.change[o][other] != table.change[p][other] || table.change[other][o] != table.change[other][p])
          return false;
      return table.change[o][p] == 0 && table.change[p][o] == 0;
    };
    while (kind < first_of.size() && !alike(first_of[kind])) ++kind;
    if (kind == first_of.size()) first_of.push_back(o);
    kind_of.push_back(kind);
  }
  // reach[k][q]: the least time before a layer of layout k, with at most q quanta used so far.
  const std::size_t row = quanta + 1, kinds = first_of.size();
  std::vector<std::vector<Picoseconds>> reach(kinds, std::vector<Picoseconds>(row, 0)), least = reach;
  for (std::size_t l = 0; l < layers; ++l) {
    for (auto& of_kind : least) std::fill(of_kind.begin(), of_kind.end(), kNoTime);
    const bool last = l + 1 == layers;
    for (const bool ends : {true, false}) {
      if (ends != last) continue;
      for (std::size_t o = 0; o < usable.size(); ++o) {
        const LayerCost cost = stage.cost(range.first + l, usable[o], ends);
        const std::size_t own = stage.quanta(cost);
        const Picoseconds time = stage.time(cost);
        const Picoseconds* from = reach[kind_of[o]].data();
        Picoseconds* to = least[kind_of[o]].data();
        for (std::size_t q = own; q < row; ++q) to[q] = std::min(to[q], from[q - own] + time);
      }
    }
    Picoseconds best = kNoTime;
    for (const auto& of_kind : least) best = std::min(best, of_kind[quanta]);
    (last ? result.to_the_end : result.inside[l + 1]) = best;
    if (best >= kNoTime) break;
    for (std::size_t to = 0; to < kinds; ++to) {
      reach[to] = least[to];
      for (std::size_t from = 0; from < kinds; ++from) {
        if (from == to) continue;
        const Picoseconds change = table.change[first_of[from]][first_of[to]] * range.micro_batches;
        for (std::size_t q = 0; q < row; ++q) reach[to][q] = std::min(reach[to][q], least[from][q] + change);
      }
      for (Picoseconds& each : reach[to]) each = std::min(each, kNoTime);
    }
  }
  return result;
}

std::optional<LayerwisePipeline> best_layerwise(const LayerwiseProblem& problem) {
  std::optional<LayerwisePipeline> best;
  for (std::int64_t micro_batches : problem.micro_batches) {
    if (problem.clock && problem.clock->after(0) != StoppedBy::Itself) break;
    const LayerTable* table = problem.table_of(micro_batches);
    if (!table) continue;
    std::vector<int> sizes;
    for (const LayerOption& option : table->options)
      if (std::find(sizes.begin(), sizes.end(), option.devices()) == sizes.end()) sizes.push_back(option.devices());
    // Stages of equal length cost the same, unless they contain the first or the last layer; stages at the end are
    // found as stages at the beginning of the reversed model.
    const LayerTable turned = turned_around(*table);
    std::map<std::tuple<bool, std::size_t, std::size_t, std::int64_t>, TimesByLength> known;
    const auto times_from = [&](bool from_the_end, std::size_t first, std::size_t mesh,
                                std::int64_t in_flight) -> const TimesByLength& {
      const auto [found, fresh] = known.try_emplace({from_the_end, first, mesh, in_flight});
      if (fresh)
        found->second =
            best_times(from_the_end ? turned : *table, {first, table->layers, sizes[mesh], in_flight, micro_batches},
                       problem.limit, problem.quantum);
      return found->second;
    };
    PartitionProblem cut{table->layers, problem.devices, sizes, micro_batches, problem.most_stages, {}, problem.clock};
    cut.stage_time = [&](std::size_t first, std::size_t last, std::size_t mesh,
                         std::int64_t in_flight) -> std::optional<Picoseconds> {
      // The time that occurs once per step is divided over its micro-batches.
      const std::size_t length = last - first;
      const Picoseconds time = length == table->layers ? times_from(false, 0, mesh, in_flight).to_the_end
                               : last == table->layers ? times_from(true, 0, mesh, in_flight).inside[length]
                               : first == 0            ? times_from(false, 0, mesh, in_flight).inside[length]
                                                       : times_from(false, 1, mesh, in_flight).inside[length];
      if (time >= kNoTime) return std::nullopt;
      return time / micro_batches;
    };
    const std::optional<StagePartition> partition = best_partition(cut);
    if (!partition || (best && best->time <= partition->step)) continue;
    best = LayerwisePipeline{{}, partition->stages, micro_batches, partition->step};
    for (std::size_t s = 0; s < partition->stages.size(); ++s) {
      const StagePartition::Stage& stage = partition->stages[s];
      const auto flight =
          std::min<std::int64_t>(micro_batches, static_cast<std::int64_t>(partition->stages.size() - s));
      best->stages.push_back(*best_layers(*table, {stage.first, stage.last, sizes[stage.mesh], flight, micro_batches},
                                          problem.limit, problem.quantum));
    }
  }
  return best;
}

}  // namespace weft
