// Which changes Metropolis–Hastings proposes: an operator, or several that belong together, to any devices and any
// split.
//
//   unit        an operator that multiplies, joins or begins, with the simple ones that only it feeds
//   repeated    the same unit in all steps of a layer (they share a weight), or in all layers (names alike but for
//               numbers)
//   staggered   the same unit of each layer on a part of the devices, layer after layer: they run side by side
//   module      all operators of a module, samples × outputs over the same devices
//   edge        a unit takes over the devices and the split of a neighbour
//   devices     a unit stays split as it is, on other devices
//   usual       a layer as an expert might: samples over places of all nodes, outputs inside nodes
//
// Devices are an aligned range of nodes times one of places in a node; on eight devices or fewer any list. Only what
// divides is proposed. Layers are drawn alike, however many steps they have. Cost: the operators changed.
#pragma once

#include <map>

#include "base/random.h"
#include "soap/op_strategy.h"

namespace weft {

using OpChange = std::pair<OpId, OpConfig>;

class Proposals {
 public:
  // The training graph is kept by reference. `per_node`: how many devices that follow one another share a node.
  explicit Proposals(const TrainingGraph& training, int per_node = 1);

  // Operators once each, ascending; none where what was drawn does not divide.
  std::vector<OpChange> draw(const IdVec<OpId, OpConfig>& now, SoapMeshes& meshes, Rng& rng) const;

  // The same for whole layers: all steps that share a weight, those beside them of one name, or two layers at once.
  std::vector<OpChange> draw_layers(const IdVec<OpId, OpConfig>& now, SoapMeshes& meshes, Rng& rng) const;

  // Changes worth trying before any random ones: layers staggered in all ways; and the largest layers in all usual
  // configurations: samples over some places of all nodes, outputs over the places of a node, one node or device alone.
  std::vector<std::vector<OpChange>> staggered(SoapMeshes& meshes) const;
  std::vector<std::vector<OpChange>> openings(SoapMeshes& meshes) const;

  // The configuration in which `to`, which shares a tensor with `from`, needs no communication if that is possible: the
  // same devices, split along the same dimensions of the tensor; elsewhere along its samples.
  std::optional<OpConfig> follow(OpId from, const OpConfig& config, OpId to, const IdVec<MeshId, Mesh>& meshes) const;
  // Any split of an operator over some devices.
  std::optional<OpConfig> random_config(OpId op, SoapMeshes& meshes, Rng& rng) const;

  using Unit = std::vector<OpId>;  // the head first, then in order
  const std::vector<Unit>& units() const { return units_; }
  const std::vector<std::size_t>& layers() const { return layers_; }  // the first unit of each weight
  // The configuration for the head of each of some units, the others after it; units that it does not fit stay out.
  std::vector<OpChange> change_units(const std::vector<std::size_t>& units, const OpConfig& head,
                                     const SoapMeshes& meshes) const;
  const std::vector<std::size_t>& repeated(std::size_t unit) const { return by_weight_[unit]; }  // in all steps
  const std::vector<std::size_t>& alike(std::size_t unit) const { return by_name_[unit]; }       // in all layers

  // Nodes that follow one another, and in each of them places that do.
  struct Block {
    std::size_t node, nodes, place, places;
  };
  std::size_t inside_of(const SoapMeshes& meshes) const {  // devices of a node; 1 where nodes are not alike
    return meshes.devices().size() % per_node_ == 0 ? per_node_ : 1;
  }
  // By samples, by samples and outputs, by outputs.
  std::vector<OpConfig> usual_configs(OpId op, const Block& block, SoapMeshes& meshes) const;
  // Units without weights, that only read what others make, where those are that they read.
  void add_followers(std::map<OpId, OpConfig>& changes, const SoapMeshes& meshes) const;

 private:
  // How layers are spread over groups of devices: parts of every node, or groups of nodes; in blocks of layers, or in
  // turn.
  struct Parting {
    std::size_t groups;
    bool by_nodes, blocks;
  };
  Block random_block(const SoapMeshes& meshes, Rng& rng) const;
  std::vector<DeviceId> devices_of(const Block& block, const SoapMeshes& meshes) const;
  std::vector<DeviceId> random_devices(const SoapMeshes& meshes, Rng& rng) const;
  bool fits(OpId op, const OpConfig& config, const Mesh& mesh) const;
  int spare_axis(const Signature& signature, const Operand& shared, const OpConfig& so_far, int parts) const;
  bool change_unit(const Unit& unit, const OpConfig& head, const SoapMeshes& meshes,
                   std::vector<OpChange>& changes) const;
  std::vector<Parting> partings(const SoapMeshes& meshes) const;
  std::vector<OpChange> stagger(std::size_t unit, const Parting& parting, SoapMeshes& meshes) const;
  // On parts of all nodes, and of the first alone.
  std::vector<OpConfig> usual_everywhere(OpId op, SoapMeshes& meshes) const;
  std::optional<OpConfig> random_usual(OpId op, SoapMeshes& meshes, Rng& rng) const;
  std::vector<OpId> neighbours(const Unit& unit) const;
  std::vector<OpChange> stagger_any(SoapMeshes& meshes, Rng& rng) const;
  std::vector<OpChange> change_module(const IdVec<OpId, OpConfig>& now, SoapMeshes& meshes, Rng& rng) const;
  // All that is on the devices of a random layer to other devices, split alike.
  std::vector<OpChange> move_group(const IdVec<OpId, OpConfig>& now, SoapMeshes& meshes, Rng& rng) const;

  const TrainingGraph& training_;
  const Graph& graph_;
  const std::size_t per_node_;
  std::vector<Unit> units_;
  IdVec<OpId, std::size_t> unit_of_;
  std::vector<std::vector<std::size_t>> by_weight_, by_name_;  // units repeated, by unit
  std::vector<std::size_t> layers_;
  IdVec<ModuleId, std::vector<OpId>> in_module_;
};

}  // namespace weft
