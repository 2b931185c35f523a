// The proposals of Metropolis–Hastings: one operator, or several related ones, get other devices and another split.
//
//   unit        a head (a matrix product, or an operator with no or several producers) and the simple operators that
//               only it feeds
//   repeated    the same unit in all steps of a layer (they share a weight), or in all layers (names equal but for
//               numbers)
//   staggered   the same unit of successive layers on disjoint parts of the devices, so that layers run concurrently
//   module      all operators of a module, samples × outputs over the same devices
//   edge        a unit adopts devices and split of a neighbour
//   devices     a unit keeps its split, on other devices
//   usual       a layer as an expert might place it: samples over parts of all nodes, outputs inside nodes
//
// Devices are an aligned range of nodes times an aligned range of places in a node; with at most eight devices any
// list. Only splits that divide are proposed. All layers are equally likely, however many steps they have. Cost: the
// operators changed.
#pragma once

#include <map>

#include "base/random.h"
#include "soap/op_strategy.h"

namespace weft {

using OpChange = std::pair<OpId, OpConfig>;

class Proposals {
 public:
  // The training graph is kept by reference. `per_node`: consecutive devices that share a node.
  explicit Proposals(const TrainingGraph& training, int per_node = 1);

  // Changed operators, ascending; empty if the drawn split does not divide.
  std::vector<OpChange> draw(const IdVec<OpId, OpConfig>& now, SoapMeshes& meshes, Rng& rng) const;

  // The same for whole layers: all steps that share a weight, all layers of one name, or two layers at once.
  std::vector<OpChange> draw_layers(const IdVec<OpId, OpConfig>& now, SoapMeshes& meshes, Rng& rng) const;

  // Changes to try before random ones: layers staggered in all ways; and the largest layers in all usual
  // configurations: samples over some places of all nodes, outputs over the places of a node, a single node or device.
  std::vector<std::vector<OpChange>> staggered(SoapMeshes& meshes) const;
  std::vector<std::vector<OpChange>> openings(SoapMeshes& meshes) const;

  // The configuration in which `to`, which shares a tensor with `from`, needs no communication if possible: the same
  // devices, split along the same dimensions of the tensor, otherwise by samples.
  std::optional<OpConfig> follow(OpId from, const OpConfig& config, OpId to, const IdVec<MeshId, Mesh>& meshes) const;
  // A random split of an operator over random devices.
  std::optional<OpConfig> random_config(OpId op, SoapMeshes& meshes, Rng& rng) const;

  using Unit = std::vector<OpId>;  // the head first, then in topological order
  const std::vector<Unit>& units() const { return units_; }
  const std::vector<std::size_t>& layers() const { return layers_; }  // the first unit of each weight
  // Gives the heads of these units a configuration, which their other operators follow; units that it does not divide
  // are left out.
  std::vector<OpChange> change_units(const std::vector<std::size_t>& units, const OpConfig& head,
                                     const SoapMeshes& meshes) const;
  const std::vector<std::size_t>& repeated(std::size_t unit) const {
    return by_weight_[unit];
  }  // the same unit in all steps
  const std::vector<std::size_t>& alike(std::size_t unit) const {
    return by_name_[unit];
  }  // the same unit in all layers

  // A range of nodes times a range of places in each of them.
  struct Block {
    std::size_t node, nodes, place, places;
  };
  std::size_t inside_of(const SoapMeshes& meshes) const {  // devices per node; 1 if nodes differ
    return meshes.devices().size() % per_node_ == 0 ? per_node_ : 1;
  }
  // Splits by samples, by samples and outputs, by outputs.
  std::vector<OpConfig> usual_configs(OpId op, const Block& block, SoapMeshes& meshes) const;
  // Moves units without weights to the devices of the units that they read.
  void add_followers(std::map<OpId, OpConfig>& changes, const SoapMeshes& meshes) const;

 private:
  // How layers are assigned to groups of devices: parts of every node, or groups of nodes; consecutive layers together,
  // or round-robin.
  struct Staggering {
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
  std::vector<Staggering> staggerings(const SoapMeshes& meshes) const;
  std::vector<OpChange> stagger(std::size_t unit, const Staggering& staggering, SoapMeshes& meshes) const;
  // Usual configurations on parts of all nodes, and of the first node only.
  std::vector<OpConfig> usual_everywhere(OpId op, SoapMeshes& meshes) const;
  std::optional<OpConfig> random_usual(OpId op, SoapMeshes& meshes, Rng& rng) const;
  std::vector<OpId> neighbours(const Unit& unit) const;
  std::vector<OpChange> stagger_any(SoapMeshes& meshes, Rng& rng) const;
  std::vector<OpChange> change_module(const IdVec<OpId, OpConfig>& now, SoapMeshes& meshes, Rng& rng) const;
  // Moves all units on the devices of a random layer to other devices, with similar splits.
  std::vector<OpChange> move_group(const IdVec<OpId, OpConfig>& now, SoapMeshes& meshes, Rng& rng) const;

  const TrainingGraph& training_;
  const Graph& graph_;
  const std::size_t per_node_;
  std::vector<Unit> units_;
  IdVec<OpId, std::size_t> unit_of_;
  std::vector<std::vector<std::size_t>> by_weight_, by_name_;  // by unit: the units that repeat it
  std::vector<std::size_t> layers_;
  IdVec<ModuleId, std::vector<OpId>> in_module_;
};

}  // namespace weft
