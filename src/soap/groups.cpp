#include "soap/groups.h"

#include <algorithm>
#include <set>

namespace weft {
namespace {

constexpr std::size_t kMostGroups = 8;

struct Grouping {
  std::size_t parts;  // groups that similar layers are divided into
  bool blocks;        // consecutive layers share a group; otherwise round-robin
  bool heavy_alone;   // a unique layer with a large part of the FLOPs is a group of its own
};

class Grouper {
 public:
  Grouper(const TrainingGraph& training, const Proposals& proposals)
      : graph_(training.graph), first_backward_(training.first_backward), proposals_(proposals) {
    layer_of_.resize(training.first_backward.index(), kNone);
    for (std::size_t u : proposals.layers()) {
      if (!has_weights(u)) continue;
      double flops = 0;
      for (std::size_t unit : proposals.repeated(u))
        for (OpId op : proposals.units()[unit]) {
          flops += static_cast<double>(contraction_flops(graph_.signature(op)).value);
          layer_of_[op] = layers_.size();
        }
      layers_.push_back({u, flops, kNone});
      all_flops_ += flops;
    }
  }

  // False: fewer than two groups.
  bool group(const Grouping& by) {
    groups_.assign(by.parts, {});
    for (Layer& layer : layers_) {
      const std::vector<std::size_t> alike = first_units(layer.unit);
      const auto place = static_cast<std::size_t>(std::find(alike.begin(), alike.end(), layer.unit) - alike.begin());
      layer.group = kNone;
      if (alike.size() > 1 && alike.size() >= by.parts)
        layer.group = by.blocks ? place * by.parts / alike.size() : place % by.parts;
    }
    for (Layer& layer : layers_)
      if (by.heavy_alone && layer.group == kNone &&
          layer.flops * static_cast<double>(2 * (by.parts + 1)) > all_flops_) {
        layer.group = groups_.size();
        groups_.emplace_back();
      }
    for (Layer& layer : layers_)
      if (layer.group == kNone) layer.group = group_of_neighbour(layer.unit);
    for (const Layer& layer : layers_) {
      groups_[layer.group].flops += layer.flops;
      ++groups_[layer.group].layers;
    }
    return std::count_if(groups_.begin(), groups_.end(), [](const Group& group) { return group.layers > 0; }) > 1;
  }

  // On the first `nodes` nodes; an empty strategy if a group would get no devices.
  SoapStrategy place(bool by_nodes, std::size_t nodes, SoapMeshes& meshes, SoapStrategy strategy) const {
    const std::size_t inside = proposals_.inside_of(meshes);
    const std::vector<std::pair<std::size_t, std::size_t>> ranges = shares(by_nodes ? nodes : inside);
    if (ranges.empty()) return {};
    std::map<OpId, OpConfig> changes;
    for (const Layer& layer : layers_) {
      const auto [first, count] = ranges[layer.group];
      const Proposals::Block block =
          by_nodes ? Proposals::Block{first, count, 0, inside} : Proposals::Block{0, nodes, first, count};
      const std::optional<OpConfig> config = least_moved(layer.unit, block, meshes);
      if (!config) continue;
      for (const auto& [op, each] : proposals_.change_units(proposals_.repeated(layer.unit), *config, meshes))
        changes[op] = each;
    }
    proposals_.add_followers(changes, meshes);
    for (const auto& [op, config] : changes) strategy.ops[op] = config;
    strategy.meshes = meshes.meshes();
    return strategy;
  }

  std::size_t most_alike() const {
    std::size_t most = 1;
    for (const Layer& layer : layers_) most = std::max(most, first_units(layer.unit).size());
    return most;
  }

 private:
  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);
  struct Layer {
    std::size_t unit;  // its first unit
    double flops;
    std::size_t group;
  };

  struct Group {
    double flops = 0;  // 0 for embeddings, which need devices nevertheless
    std::size_t layers = 0;
  };

  bool has_weights(std::size_t u) const {
    for (TensorId input : graph_.inputs(proposals_.units()[u].front()))
      if (graph_.tensors()[input].kind == TensorKind::Parameter) return true;
    return false;
  }
  std::vector<std::size_t> first_units(std::size_t u) const {
    std::vector<std::size_t> firsts;
    for (std::size_t each : proposals_.alike(u))
      if (proposals_.repeated(each).front() == each) firsts.push_back(each);
    return firsts;
  }

  // The group of the nearest layer that has one: upstream first, then downstream.
  std::size_t group_of_neighbour(std::size_t u) const {
    for (bool backwards : {true, false}) {
      std::vector<OpId> queue = proposals_.units()[u];
      std::set<OpId> seen(queue.begin(), queue.end());
      for (std::size_t i = 0; i < queue.size(); ++i) {
        const std::size_t layer = layer_of_[queue[i]];
        if (layer != kNone && layers_[layer].unit != u && layers_[layer].group != kNone) return layers_[layer].group;
        const auto visit = [&](OpId op) {
          if (op.valid() && op < first_backward_ && seen.insert(op).second) queue.push_back(op);
        };
        if (backwards)
          for (TensorId input : graph_.inputs(queue[i])) visit(graph_.tensors()[input].producer);
        else
          for (TensorId output : graph_.outputs(queue[i]))
            for (const Use& use : graph_.uses(output)) visit(use.op);
      }
    }
    return 0;
  }

  // For each group with layers a range (first, size) of `count` places: sizes divide `count` and are roughly in
  // proportion to FLOPs; each range begins at a multiple of its size.
  std::vector<std::pair<std::size_t, std::size_t>> shares(std::size_t count) const {
    std::vector<std::size_t> size(groups_.size(), 0);
    std::size_t taken = 0;
    const auto larger = [&](std::size_t now) {
      std::size_t next = now + 1;
      while (next <= count && count % next != 0) ++next;
      return next;
    };
    for (std::size_t g = 0; g < groups_.size(); ++g)
      if (groups_[g].layers > 0) taken += size[g] = 1;
    while (true) {
      std::size_t neediest = kNone;
      for (std::size_t g = 0; g < groups_.size(); ++g)
        if (size[g] > 0 && taken - size[g] + larger(size[g]) <= count &&
            (neediest == kNone || groups_[g].flops * static_cast<double>(size[neediest]) >
                                      groups_[neediest].flops * static_cast<double>(size[g])))
          neediest = g;
      if (neediest == kNone) break;
      taken += larger(size[neediest]) - size[neediest];
      size[neediest] = larger(size[neediest]);
    }
    if (taken > count) return {};
    std::vector<std::size_t> order(groups_.size());
    for (std::size_t g = 0; g < order.size(); ++g) order[g] = g;
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return size[a] > size[b]; });
    std::vector<std::pair<std::size_t, std::size_t>> ranges(groups_.size());
    std::size_t first = 0;
    for (std::size_t g : order) {
      if (size[g] == 0) continue;
      first = (first + size[g] - 1) / size[g] * size[g];
      if (first + size[g] > count) return {};
      ranges[g] = {first, size[g]};
      first += size[g];
    }
    return ranges;
  }

  // Bytes that a layer moves in a step: the all-reduce of its weights' gradients, copies of its inputs for every part
  // of its outputs and their gradients, and outputs of the unit that are gathered, forward and backward.
  double moved(std::size_t u, const OpConfig& config, const SoapMeshes& meshes) const {
    const Mesh& mesh = meshes.meshes()[config.mesh];
    double total = 0;
    for (std::size_t unit : proposals_.repeated(u)) {
      const std::vector<OpId>& ops = proposals_.units()[unit];
      const Signature& signature = graph_.signature(ops.front());
      double samples = 1, outputs = 1;
      for (std::size_t m = 0; m < kSoapAxes; ++m) {
        if (config.split[m] < 0) continue;
        const bool parts = signature.axes[static_cast<std::size_t>(config.split[m])].kind == AxisKind::Parameter;
        (parts ? outputs : samples) *= mesh.axes()[m].size;
      }
      for (const Operand& operand : signature.inputs) {
        const auto bytes = static_cast<double>(operand.bytes().value);
        if (!operand.weight)
          total += 2 * (outputs - 1) * bytes;
        else if (unit == u)
          total += 2 * (samples - 1) * bytes;
      }
      for (OpId op : ops)
        for (std::size_t o = 0; o < graph_.outputs(op).size(); ++o)
          if (leaves(graph_.outputs(op)[o], ops))
            total += 2 * (outputs - 1) / outputs * static_cast<double>(graph_.signature(op).outputs[o].bytes().value);
    }
    return total;
  }
  bool leaves(TensorId tensor, const std::vector<OpId>& unit) const {
    for (const Use& use : graph_.uses(tensor))
      if (use.op < first_backward_ && std::find(unit.begin(), unit.end(), use.op) == unit.end()) return true;
    return false;
  }
  std::optional<OpConfig> least_moved(std::size_t u, const Proposals::Block& block, SoapMeshes& meshes) const {
    std::optional<OpConfig> best;
    double least = 0;
    for (const OpConfig& config : proposals_.usual_configs(proposals_.units()[u].front(), block, meshes)) {
      const double bytes = moved(u, config, meshes);
      if (best && bytes >= least) continue;
      best = config;
      least = bytes;
    }
    return best;
  }

  const Graph& graph_;
  const OpId first_backward_;
  const Proposals& proposals_;
  std::vector<Layer> layers_;  // layers with weights
  IdVec<OpId, std::size_t> layer_of_;
  std::vector<Group> groups_;
  double all_flops_ = 0;
};

}  // namespace

std::vector<SoapStrategy> grouped_strategies(const TrainingGraph& training, const Proposals& proposals,
                                             SoapMeshes& meshes) {
  std::vector<SoapStrategy> result;
  const SoapStrategy parallel = data_parallel_strategy(training, meshes);
  Grouper grouper(training, proposals);
  const std::size_t all = meshes.devices().size() / proposals.inside_of(meshes);
  const auto add = [&](SoapStrategy strategy) {
    strategy.name = "groups";
    const auto same = [&](const SoapStrategy& other) { return other.ops == strategy.ops; };
    if (!strategy.ops.empty() && std::none_of(result.begin(), result.end(), same))
      result.push_back(std::move(strategy));
  };
  for (std::size_t parts = 1; parts <= std::min(kMostGroups, grouper.most_alike()); ++parts)
    for (bool blocks : {true, false})
      for (bool heavy_alone : {true, false}) {
        if (parts == 1 && !blocks) continue;
        if (!grouper.group({parts, blocks, heavy_alone})) continue;
        for (bool by_nodes : {false, true})
          for (std::size_t nodes = all; nodes > 0 && 4 * nodes >= all; nodes /= 2)
            add(grouper.place(by_nodes, nodes, meshes, parallel));
      }
  for (SoapStrategy& strategy : result) strategy.meshes = meshes.meshes();
  return result;
}

}  // namespace weft
