#include "soap/proposals.h"

#include <algorithm>
#include <map>
#include <set>

#include "layout/axis_decision.h"

namespace weft {
namespace {

// "layers.*.step.*.cell"
std::string without_numbers(const std::string& name) {
  std::string result;
  for (char c : name) {
    const bool digit = c >= '0' && c <= '9';
    if (digit && !result.empty() && result.back() == '*') continue;
    result += digit ? '*' : c;
  }
  return result;
}

bool by_operator(const OpChange& a, const OpChange& b) { return a.first < b.first; }

// Distinct, non-empty changes, each sorted by operator.
std::vector<std::vector<OpChange>> in_order(std::vector<std::vector<OpChange>> all) {
  std::erase_if(all, [](const std::vector<OpChange>& changes) { return changes.empty(); });
  for (std::vector<OpChange>& changes : all) std::sort(changes.begin(), changes.end(), by_operator);
  std::vector<std::vector<OpChange>> once;
  for (std::vector<OpChange>& changes : all)
    if (std::find(once.begin(), once.end(), changes) == once.end()) once.push_back(std::move(changes));
  return once;
}

std::vector<std::size_t> divisors_of(std::size_t count) {
  std::vector<std::size_t> result;
  for (std::size_t n = 1; n <= count; ++n)
    if (count % n == 0) result.push_back(n);
  return result;
}

}  // namespace

Proposals::Proposals(const TrainingGraph& training, int per_node)
    : training_(training),
      graph_(training.graph),
      per_node_(static_cast<std::size_t>(std::max(1, per_node))),
      unit_of_(training.first_backward.index()),
      in_module_(training.graph.modules().size()) {
  for (OpId op : unit_of_.ids()) {
    std::set<std::size_t> fed_by;
    for (TensorId input : graph_.inputs(op))
      if (const OpId producer = graph_.tensors()[input].producer; producer.valid()) fed_by.insert(unit_of_[producer]);
    if (graph_.signature(op).contractions.empty() && fed_by.size() == 1) {
      units_[*fed_by.begin()].push_back(op);
      unit_of_[op] = *fed_by.begin();
    } else {
      unit_of_[op] = units_.size();
      units_.push_back({op});
    }
    for (ModuleId module = graph_.ops()[op].module; module.valid(); module = graph_.modules()[module].parent)
      in_module_[module].push_back(op);
  }
  std::map<std::pair<TensorId, SignatureId>, std::vector<std::size_t>> weights;
  std::map<std::pair<std::string, SignatureId>, std::vector<std::size_t>> names;
  std::vector<std::pair<TensorId, SignatureId>> weight_of;
  std::vector<std::pair<std::string, SignatureId>> name_of;
  for (std::size_t u = 0; u < units_.size(); ++u) {
    const OpId head = units_[u].front();
    TensorId weight;
    for (TensorId input : graph_.inputs(head))
      if (graph_.tensors()[input].kind == TensorKind::Parameter && !weight.valid()) weight = input;
    const SignatureId signature = graph_.ops()[head].signature;
    weight_of.emplace_back(weight, signature);
    name_of.emplace_back(without_numbers(graph_.name(head)), signature);
    if (weight.valid()) weights[weight_of.back()].push_back(u);
    names[name_of.back()].push_back(u);
  }
  for (std::size_t u = 0; u < units_.size(); ++u) {
    by_weight_.push_back(weight_of[u].first.valid() ? weights[weight_of[u]] : std::vector{u});
    by_name_.push_back(names[name_of[u]]);
    if (by_weight_[u].front() == u) layers_.push_back(u);
  }
}

bool Proposals::fits(OpId op, const OpConfig& config, const Mesh& mesh) const {
  const Signature& signature = graph_.signature(op);
  std::vector<std::int64_t> parts(signature.axes.size(), 1);
  for (std::size_t m = 0; m < kSoapAxes; ++m) {
    const int size = mesh.axes()[m].size, axis = config.split[m];
    if (size == 1) {
      if (axis >= 0) return false;
      continue;
    }
    if (axis < 0) {
      if (config.mesh != MeshId(0)) return false;
      continue;
    }
    std::int64_t& cut = parts[static_cast<std::size_t>(axis)];
    if (cut > 1 && windowed(signature, axis)) return false;
    cut *= size;
    if (!divides(signature, axis, cut)) return false;
  }
  return true;
}

// Where neither side determines a split: a free axis of the shared tensor, samples first.
int Proposals::spare_axis(const Signature& signature, const Operand& shared, const OpConfig& so_far, int parts) const {
  const int samples = sample_axis(signature);
  const auto free = [&](int a) {
    return std::find(so_far.split.begin(), so_far.split.end(), a) == so_far.split.end() &&
           divides(signature, a, parts) && operand_split(signature, shared, a);
  };
  if (samples >= 0 && free(samples)) return samples;
  for (int a = 0; a < static_cast<int>(signature.axes.size()); ++a)
    if (free(a)) return a;
  return samples;
}

std::optional<OpConfig> Proposals::follow(OpId from, const OpConfig& config, OpId to,
                                          const IdVec<MeshId, Mesh>& meshes) const {
  const Signature &made = graph_.signature(from), &needed = graph_.signature(to);
  const Operand *here = nullptr, *there = nullptr;
  const auto find = [&](OpId producer, OpId reader, const Operand*& output, const Operand*& input) {
    for (std::size_t i = 0; i < graph_.inputs(reader).size() && !output; ++i) {
      const Tensor& tensor = graph_.tensors()[graph_.inputs(reader)[i]];
      if (tensor.producer != producer) continue;
      output = &graph_.signature(producer).outputs[tensor.output];
      input = &graph_.signature(reader).inputs[i];
    }
  };
  find(from, to, here, there);
  if (!here) find(to, from, there, here);
  if (!here) return std::nullopt;
  const Mesh& mesh = meshes[config.mesh];
  OpConfig result{config.mesh, {-1, -1, -1}};
  for (std::size_t m = 0; m < kSoapAxes; ++m) {
    if (mesh.axes()[m].size == 1) continue;
    const auto split = config.split[m] < 0 ? std::nullopt : operand_split(made, *here, config.split[m]);
    for (int a = 0; split && a < static_cast<int>(needed.axes.size()) && result.split[m] < 0; ++a) {
      const auto same = splittable(needed, a) ? operand_split(needed, *there, a) : std::nullopt;
      if (!same || same->dim != split->dim || same->outer != split->outer) continue;
      OpConfig with = result;
      with.split[m] = static_cast<std::int8_t>(a);
      const std::int64_t parts = mesh.axes()[m].size;
      if (divides(needed, a, parts)) result = with;
    }
    // No common dimension: by samples or replicated on the grid of all devices; on other meshes every axis must split.
    if (result.split[m] < 0 && config.split[m] >= 0)
      result.split[m] = static_cast<std::int8_t>(
          config.mesh == MeshId(0) ? sample_axis(needed) : spare_axis(needed, *there, result, mesh.axes()[m].size));
  }
  return fits(to, result, mesh) ? std::optional(result) : std::nullopt;
}

std::vector<DeviceId> Proposals::random_devices(const SoapMeshes& meshes, Rng& rng) const {
  const std::size_t count = meshes.devices().size();
  if (count <= 8 && rng.below(4) == 0) {
    std::vector<DeviceId> devices, left = meshes.devices();
    const std::vector<std::size_t> numbers = divisors_of(count);
    for (std::size_t n = numbers[rng.below(numbers.size())]; n > 0; --n) {
      const std::size_t at = rng.below(left.size());
      devices.push_back(left[at]);
      left.erase(left.begin() + static_cast<std::ptrdiff_t>(at));
    }
    return devices;
  }
  return devices_of(random_block(meshes, rng), meshes);
}

Proposals::Block Proposals::random_block(const SoapMeshes& meshes, Rng& rng) const {
  const std::size_t count = meshes.devices().size(), inside = inside_of(meshes);
  const std::vector<std::size_t> of_nodes = divisors_of(count / inside), of_places = divisors_of(inside);
  // All nodes, and all places, half of the time: using the whole cluster is mostly best.
  const std::size_t nodes = rng.below(2) == 0 ? of_nodes.back() : of_nodes[rng.below(of_nodes.size())];
  const std::size_t places = rng.below(2) == 0 ? of_places.back() : of_places[rng.below(of_places.size())];
  const std::size_t node = rng.below(count / inside / nodes) * nodes, place = rng.below(inside / places) * places;
  return {node, nodes, place, places};
}

std::vector<DeviceId> Proposals::devices_of(const Block& block, const SoapMeshes& meshes) const {
  const std::vector<DeviceId>& all = meshes.devices();
  const std::size_t inside = inside_of(meshes);
  std::vector<DeviceId> devices;
  for (std::size_t i = 0; i < block.nodes; ++i)
    for (std::size_t j = 0; j < block.places; ++j) devices.push_back(all[(block.node + i) * inside + block.place + j]);
  return devices;
}

std::vector<Proposals::Staggering> Proposals::staggerings(const SoapMeshes& meshes) const {
  const std::size_t count = meshes.devices().size(), inside = inside_of(meshes);
  std::vector<Staggering> result;
  for (std::size_t groups : divisors_of(inside))
    for (bool blocks : {true, false})
      if (groups > 1) result.push_back({groups, false, blocks});
  for (std::size_t groups : divisors_of(count / inside))
    for (bool blocks : {true, false})
      if (groups > 1) result.push_back({groups, true, blocks});
  return result;
}

std::vector<OpChange> Proposals::stagger(std::size_t u, const Staggering& staggering, SoapMeshes& meshes) const {
  std::vector<std::size_t> layers;
  for (std::size_t each : by_name_[u])
    if (by_weight_[each].front() == each) layers.push_back(each);
  if (layers.size() < 2) return {};
  const std::size_t inside = inside_of(meshes), nodes = meshes.devices().size() / inside;
  std::vector<OpChange> changes;
  for (std::size_t l = 0; l < layers.size(); ++l) {
    const std::size_t groups = staggering.groups, group = staggering.blocks ? l * groups / layers.size() : l % groups;
    const Block block = staggering.by_nodes ? Block{group * (nodes / groups), nodes / groups, 0, inside}
                                            : Block{0, nodes, group * (inside / groups), inside / groups};
    const std::vector<DeviceId> devices = devices_of(block, meshes);
    const Signature& signature = graph_.signature(units_[layers[l]].front());
    const int samples = sample_axis(signature), parts = static_cast<int>(devices.size());
    if (samples < 0 || !divides(signature, samples, parts)) return {};
    const OpConfig head = meshes.config({parts, 1, 1}, {samples, -1, -1}, devices);
    for (const OpChange& change : change_units(by_weight_[layers[l]], head, meshes)) changes.push_back(change);
  }
  return changes;
}

std::vector<OpConfig> Proposals::usual_configs(OpId op, const Block& block, SoapMeshes& meshes) const {
  const Signature& signature = graph_.signature(op);
  int outputs = -1;
  for (int a = 0; a < static_cast<int>(signature.axes.size()) && outputs < 0; ++a)
    if (signature.axes[static_cast<std::size_t>(a)].kind == AxisKind::Parameter && splittable(signature, a))
      outputs = a;
  const int samples = sample_axis(signature);
  const std::vector<DeviceId> devices = devices_of(block, meshes);
  std::vector<OpConfig> configs;
  const auto add = [&](std::size_t outer, std::size_t inner, int by_outer, int by_inner) {
    const OpConfig config =
        meshes.config({static_cast<int>(outer), static_cast<int>(inner), 1}, {by_outer, by_inner, -1}, devices);
    if (fits(op, config, meshes.meshes()[config.mesh]) &&
        std::find(configs.begin(), configs.end(), config) == configs.end())
      configs.push_back(config);
  };
  add(devices.size(), 1, samples, -1);
  for (std::size_t parts : divisors_of(block.places)) add(devices.size() / parts, parts, samples, outputs);
  // By samples on the grid used for outputs: resharding from one to the other stays inside nodes.
  add(block.nodes, block.places, samples, samples);
  add(devices.size(), 1, outputs, -1);
  return configs;
}

std::vector<OpConfig> Proposals::usual_everywhere(OpId op, SoapMeshes& meshes) const {
  const std::size_t inside = inside_of(meshes), nodes = meshes.devices().size() / inside;
  std::vector<OpConfig> configs;
  for (std::size_t over : {nodes, std::size_t{1}})
    for (std::size_t places : divisors_of(inside))
      for (std::size_t place = 0; place < inside; place += places)
        for (const OpConfig& config : usual_configs(op, {0, over, place, places}, meshes))
          if (std::find(configs.begin(), configs.end(), config) == configs.end()) configs.push_back(config);
  return configs;
}

std::optional<OpConfig> Proposals::random_usual(OpId op, SoapMeshes& meshes, Rng& rng) const {
  // Parts of all nodes, or sometimes of some nodes only.
  const std::vector<OpConfig> usual =
      rng.below(4) == 0 ? usual_configs(op, random_block(meshes, rng), meshes) : usual_everywhere(op, meshes);
  return usual.empty() ? std::nullopt : std::optional(usual[rng.below(usual.size())]);
}

std::vector<OpChange> Proposals::change_units(const std::vector<std::size_t>& units, const OpConfig& head,
                                              const SoapMeshes& meshes) const {
  std::vector<OpChange> changes;
  for (std::size_t each : units) {
    std::vector<OpChange> of_unit;
    if (change_unit(units_[each], head, meshes, of_unit)) changes.insert(changes.end(), of_unit.begin(), of_unit.end());
  }
  return changes;
}

std::vector<std::vector<OpChange>> Proposals::staggered(SoapMeshes& meshes) const {
  std::vector<std::vector<OpChange>> result;
  std::set<std::size_t> seen;
  for (std::size_t u : layers_)
    if (seen.insert(by_name_[u].front()).second)
      for (const Staggering& staggering : staggerings(meshes)) result.push_back(stagger(u, staggering, meshes));
  return in_order(std::move(result));
}

std::vector<std::vector<OpChange>> Proposals::openings(SoapMeshes& meshes) const {
  std::vector<std::vector<OpChange>> result;
  // The layers with the most weights.
  constexpr std::size_t kLargest = 12;
  std::vector<std::pair<std::int64_t, std::size_t>> by_size;
  for (std::size_t u : layers_) {
    std::int64_t elements = 0;
    for (const Operand& operand : graph_.signature(units_[u].front()).inputs)
      if (operand.weight) elements += operand.elements();
    if (elements > 0) by_size.emplace_back(-elements, u);
  }
  std::sort(by_size.begin(), by_size.end());
  for (std::size_t i = 0; i < by_size.size() && i < kLargest; ++i)
    for (const OpConfig& config : usual_everywhere(units_[by_size[i].second].front(), meshes))
      result.push_back(change_units(by_weight_[by_size[i].second], config, meshes));
  return in_order(std::move(result));
}

std::optional<OpConfig> Proposals::random_config(OpId op, SoapMeshes& meshes, Rng& rng) const {
  const Signature& signature = graph_.signature(op);
  const bool everywhere = rng.below(8) == 0;  // mesh 0, perhaps replicated
  if (everywhere) {
    const Mesh& mesh = meshes.meshes()[MeshId(0)];
    OpConfig config;
    for (std::size_t m = 0; m < kSoapAxes; ++m)
      if (mesh.axes()[m].size > 1)
        config.split[m] = static_cast<std::int8_t>(static_cast<int>(rng.below(signature.axes.size() + 1)) - 1);
    return fits(op, config, mesh) ? std::optional(config) : std::nullopt;
  }
  const std::vector<DeviceId> devices = random_devices(meshes, rng);
  std::array<int, kSoapAxes> sizes = {1, 1, 1};
  std::array<int, kSoapAxes> split = {-1, -1, -1};
  auto left = static_cast<std::int64_t>(devices.size());
  std::vector<char> taken(signature.axes.size(), 0);
  for (std::size_t m = 0; m < kSoapAxes && left > 1; ++m) {
    // All remaining devices along one axis, or a part of them; samples first half of the time.
    std::vector<std::int64_t> degrees = {left};
    if (m + 1 < kSoapAxes)
      for (std::int64_t d = 2; d < left; ++d)
        if (left % d == 0) degrees.push_back(d);
    const std::int64_t degree = rng.below(2) == 0 ? left : degrees[rng.below(degrees.size())];
    std::vector<int> possible;
    for (int a = 0; a < static_cast<int>(signature.axes.size()); ++a)
      if (!taken[static_cast<std::size_t>(a)] && divides(signature, a, degree)) possible.push_back(a);
    if (possible.empty()) return std::nullopt;
    const int samples = sample_axis(signature);
    const bool by_samples = std::find(possible.begin(), possible.end(), samples) != possible.end() && rng.below(2) == 0;
    const int axis = by_samples ? samples : possible[rng.below(possible.size())];
    taken[static_cast<std::size_t>(axis)] = 1;
    sizes[m] = static_cast<int>(degree);
    split[m] = axis;
    left /= degree;
  }
  if (left > 1) return std::nullopt;
  const OpConfig config = meshes.config(sizes, split, devices);
  return fits(op, config, meshes.meshes()[config.mesh]) ? std::optional(config) : std::nullopt;
}

bool Proposals::change_unit(const Unit& unit, const OpConfig& head, const SoapMeshes& meshes,
                            std::vector<OpChange>& changes) const {
  const std::size_t first = changes.size();
  if (!fits(unit.front(), head, meshes.meshes()[head.mesh])) return false;
  changes.emplace_back(unit.front(), head);
  for (std::size_t i = 1; i < unit.size(); ++i) {
    for (TensorId input : graph_.inputs(unit[i])) {
      const OpId producer = graph_.tensors()[input].producer;
      if (!producer.valid()) continue;
      for (std::size_t j = first; j < changes.size(); ++j) {
        if (changes[j].first != producer) continue;
        const std::optional<OpConfig> follows = follow(producer, changes[j].second, unit[i], meshes.meshes());
        if (!follows) return false;
        changes.emplace_back(unit[i], *follows);
        break;
      }
      break;
    }
  }
  return true;
}

std::vector<OpChange> Proposals::change_module(const IdVec<OpId, OpConfig>& now, SoapMeshes& meshes, Rng& rng) const {
  std::vector<ModuleId> modules;
  for (ModuleId module = graph_.ops()[OpId(rng.below(now.size()))].module; module.valid();
       module = graph_.modules()[module].parent)
    modules.push_back(module);
  if (modules.empty()) return {};
  const std::vector<OpId>& ops = in_module_[modules[rng.below(modules.size())]];
  const std::vector<DeviceId> devices = random_devices(meshes, rng);
  const auto count = static_cast<int>(devices.size());
  int outputs = 1;  // parts of the output axis
  while (outputs * 2 <= count && count % (outputs * 2) == 0 && rng.below(3) == 0) outputs *= 2;
  std::vector<OpChange> changes;
  for (OpId op : ops) {
    const Signature& signature = graph_.signature(op);
    int inside = -1;
    for (AxisKind kind : {AxisKind::Parameter, AxisKind::Attribute})
      for (int a = 0; outputs > 1 && inside < 0 && a < static_cast<int>(signature.axes.size()); ++a)
        if (signature.axes[static_cast<std::size_t>(a)].kind == kind && divides(signature, a, outputs)) inside = a;
    const OpConfig config = meshes.config({count / outputs, outputs, 1}, {sample_axis(signature), inside, -1}, devices);
    if (fits(op, config, meshes.meshes()[config.mesh])) changes.emplace_back(op, config);
  }
  return changes;
}

std::vector<OpChange> Proposals::move_group(const IdVec<OpId, OpConfig>& now, SoapMeshes& meshes, Rng& rng) const {
  const MeshId from = now[units_[layers_[rng.below(layers_.size())]].front()].mesh;
  const std::vector<DeviceId> devices =
      meshes.meshes()[from].devices();  // a copy: adding meshes invalidates references
  const Block block = random_block(meshes, rng);
  std::vector<OpChange> changes;
  for (const Unit& unit : units_) {
    const OpConfig& is = now[unit.front()];
    if (is.mesh != from && meshes.meshes()[is.mesh].devices() != devices) continue;
    const Signature& signature = graph_.signature(unit.front());
    bool by_outputs = false;
    for (std::int8_t axis : is.split)
      by_outputs =
          by_outputs || (axis >= 0 && signature.axes[static_cast<std::size_t>(axis)].kind == AxisKind::Parameter);
    // Split as before: by samples, or by outputs inside nodes.
    const std::vector<OpConfig> usual = usual_configs(unit.front(), block, meshes);
    const auto alike = std::find_if(usual.begin(), usual.end(), [&](const OpConfig& config) {
      return by_outputs == std::any_of(config.split.begin(), config.split.end(), [&](std::int8_t axis) {
               return axis >= 0 && signature.axes[static_cast<std::size_t>(axis)].kind == AxisKind::Parameter;
             });
    });
    if (alike != usual.end()) change_unit(unit, *alike, meshes, changes);
  }
  return changes;
}

void Proposals::add_followers(std::map<OpId, OpConfig>& changes, const SoapMeshes& meshes) const {
  for (const Unit& unit : units_) {
    if (changes.contains(unit.front())) continue;
    std::optional<OpConfig> head;
    bool has_weights = false;
    for (TensorId input : graph_.inputs(unit.front())) {
      const Tensor& tensor = graph_.tensors()[input];
      has_weights = has_weights || tensor.kind == TensorKind::Parameter;
      const auto found = head || !tensor.producer.valid() ? changes.end() : changes.find(tensor.producer);
      if (found != changes.end()) head = follow(tensor.producer, found->second, unit.front(), meshes.meshes());
    }
    std::vector<OpChange> of_unit;
    if (!has_weights && head && change_unit(unit, *head, meshes, of_unit))
      changes.insert(of_unit.begin(), of_unit.end());
  }
}

std::vector<OpId> Proposals::neighbours(const Unit& unit) const {
  std::vector<OpId> result;
  for (TensorId input : graph_.inputs(unit.front()))
    if (const OpId producer = graph_.tensors()[input].producer; producer.valid()) result.push_back(producer);
  for (TensorId output : graph_.outputs(unit.front()))
    for (const Use& use : graph_.uses(output))
      if (use.op < training_.first_backward) result.push_back(use.op);
  return result;
}

std::vector<OpChange> Proposals::stagger_any(SoapMeshes& meshes, Rng& rng) const {
  const std::vector<Staggering> all = staggerings(meshes);
  if (all.empty()) return {};
  const Staggering& staggering = all[rng.below(all.size())];
  return stagger(layers_[rng.below(layers_.size())], staggering, meshes);
}

std::vector<OpChange> Proposals::draw_layers(const IdVec<OpId, OpConfig>& now, SoapMeshes& meshes, Rng& rng) const {
  const std::uint64_t kind = rng.below(14);
  std::vector<OpChange> changes;
  if (kind < 2) {
    changes = kind == 0 ? change_module(now, meshes, rng) : stagger_any(meshes, rng);
  } else if (kind == 12) {
    changes = move_group(now, meshes, rng);
  } else if (kind == 13) {  // units without weights move to a layer that stays
    std::map<OpId, OpConfig> all;
    for (std::size_t unit : by_weight_[layers_[rng.below(layers_.size())]])
      for (OpId op : units_[unit]) all[op] = now[op];
    add_followers(all, meshes);
    changes.assign(all.begin(), all.end());
  } else {
    std::map<OpId, OpConfig> all;
    for (std::uint64_t layer = 0; layer < (kind >= 9 ? 2u : 1u); ++layer) {
      const std::size_t u = layers_[rng.below(layers_.size())];
      const Unit& unit = units_[u];
      std::optional<OpConfig> head;
      if (kind <= 3) {
        const std::vector<OpId> adjacent = neighbours(unit);
        if (adjacent.empty()) return {};
        const OpId from = adjacent[rng.below(adjacent.size())];
        head = follow(from, now[from], unit.front(), meshes.meshes());
      } else if (kind == 4) {
        head = random_config(unit.front(), meshes, rng);
      } else {
        head = random_usual(unit.front(), meshes, rng);
      }
      if (!head) return {};
      for (const auto& [op, config] : change_units(rng.below(6) == 0 ? by_name_[u] : by_weight_[u], *head, meshes))
        all[op] = config;
    }
    if (rng.below(2) == 0) add_followers(all, meshes);
    changes.assign(all.begin(), all.end());
  }
  std::erase_if(changes, [&](const OpChange& change) { return now[change.first] == change.second; });
  std::sort(changes.begin(), changes.end(), by_operator);
  return changes;
}

std::vector<OpChange> Proposals::draw(const IdVec<OpId, OpConfig>& now, SoapMeshes& meshes, Rng& rng) const {
  const std::uint64_t kind = rng.below(16);
  std::vector<OpChange> changes;
  if (kind < 2) {
    changes = kind == 0 ? change_module(now, meshes, rng) : stagger_any(meshes, rng);
  } else {
    const std::vector<std::size_t>& steps = by_weight_[layers_[rng.below(layers_.size())]];
    const std::size_t u = steps[rng.below(steps.size())];
    const Unit& unit = units_[u];
    std::optional<OpConfig> head;
    if (kind <= 4) {  // along an edge
      const std::vector<OpId> adjacent = neighbours(unit);
      if (adjacent.empty()) return {};
      const OpId from = adjacent[rng.below(adjacent.size())];
      head = follow(from, now[from], unit.front(), meshes.meshes());
    } else if (kind <= 6) {  // other devices
      const OpConfig& is = now[unit.front()];
      const Mesh& mesh = meshes.meshes()[is.mesh];
      const std::vector<DeviceId> devices = random_devices(meshes, rng);
      if (devices.size() == mesh.devices().size()) {
        const std::array<int, kSoapAxes> sizes = {mesh.axes()[0].size, mesh.axes()[1].size, mesh.axes()[2].size};
        head = OpConfig{meshes.id_of(sizes, devices), is.split};
      }
    } else if (kind <= 10) {
      head = random_usual(unit.front(), meshes, rng);
    } else {
      head = random_config(unit.front(), meshes, rng);
    }
    if (!head) return {};
    const std::uint64_t alike = rng.below(6);
    const std::vector<std::size_t> one = {u};
    changes = change_units(alike == 0 ? by_name_[u] : alike <= 3 ? by_weight_[u] : one, *head, meshes);
    // Only the head, or also some of the operators after it; on the grid the others may be replicated.
    if (alike >= 4 && rng.below(2) == 0) {
      const auto some = unit.begin() + static_cast<std::ptrdiff_t>(1 + rng.below(unit.size()));
      changes.clear();
      if (!change_unit({unit.begin(), some}, *head, meshes, changes))
        changes.clear();
      else if (head->mesh == MeshId(0) && rng.below(2) == 0)
        for (auto rest = some; rest != unit.end(); ++rest) changes.emplace_back(*rest, OpConfig{});
    }
  }
  std::erase_if(changes, [&](const OpChange& change) { return now[change.first] == change.second; });
  std::sort(changes.begin(), changes.end(), by_operator);
  return changes;
}

}  // namespace weft
