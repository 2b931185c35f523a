// A strategy of the SOAP space (FlexFlow, MLSys'19): every forward operator by itself on devices of its own, split
// along any of its axes. And the ones that searches start from.
//
// All meshes have three axes. Mesh 0 has all devices, in the grid on which exact and symbolic plans are made; there an
// operator may also be replicated along an axis. On every other mesh each axis with more than one device splits the
// operator: that is FlexFlow's configuration, a degree per axis and a list of devices.
#pragma once

#include <array>
#include <map>

#include "base/random.h"
#include "graph/training.h"
#include "layout/sharding.h"
#include "soap/layout_choices.h"
#include "strategy/tree.h"

namespace weft {

inline constexpr std::size_t kSoapAxes = 3;

struct OpConfig {
  MeshId mesh = MeshId(0);
  std::array<std::int8_t, kSoapAxes> split = {-1, -1, -1};  // by mesh axis: the operator's axis; −1: none

  bool operator==(const OpConfig&) const = default;
};

// Meshes by what they are; ids are never given twice.
class SoapMeshes {
 public:
  // `grid`: of all devices; its product is their number.
  explicit SoapMeshes(std::array<int, kSoapAxes> grid, std::vector<DeviceId> devices);

  MeshId id_of(std::array<int, kSoapAxes> sizes, const std::vector<DeviceId>& devices);
  // An operator cut along `split` into `sizes` parts. One way to say it: axes with more than one device come first, so
  // that operators cut alike share a mesh, and their gradients a bucket.
  OpConfig config(std::array<int, kSoapAxes> sizes, std::array<int, kSoapAxes> split,
                  const std::vector<DeviceId>& devices);
  const IdVec<MeshId, Mesh>& meshes() const { return meshes_; }
  const std::vector<DeviceId>& devices() const { return devices_; }

 private:
  const std::vector<DeviceId> devices_;
  IdVec<MeshId, Mesh> meshes_;
  std::map<std::pair<std::array<int, kSoapAxes>, std::vector<DeviceId>>, MeshId> known_;
};

struct SoapStrategy {
  std::string name;                         // where it comes from: "data parallel"
  IdVec<MeshId, Mesh> meshes;               // 0: all devices
  IdVec<OpId, OpConfig> ops;                // forward operators
  std::map<OpId, std::int64_t> outer = {};  // blocks in which outputs are cut, where not 1 (layout_choices.h)
};

// A strategy's configurations by these numbers of meshes.
IdVec<OpId, OpConfig> adopted(const SoapStrategy& strategy, SoapMeshes& meshes);

Placing placing_of(const SoapStrategy& strategy, const Graph& graph);
ShardingChoices choices_of(const SoapStrategy& strategy, const Graph& graph);
std::vector<std::optional<AxisChoice>> axes_of(const OpConfig& config, const Signature& signature,
                                               std::int64_t outer = 1);

// The strategy as its tree says it: on a mesh of an operator's own, axes that split alike are one.
SoapStrategy as_written(const SoapStrategy& strategy);

// The strategy, as it is written, as a tree, for files and every other use of strategies. One rule per operator.
Strategy to_tree(const SoapStrategy& strategy, const Graph& graph);

// How many devices that follow one another share a node, if it is as many for all; else 1.
int devices_per_node(const Cluster& cluster, const std::vector<DeviceId>& devices);

// The first axis of samples; −1: none.
int sample_axis(const Signature& signature);
// Whether an operator can be split into so many parts along an axis, alone.
bool divides(const Signature& signature, int axis, std::int64_t parts);

// Every operator's samples over all devices; without samples that divide, on the first device.
SoapStrategy data_parallel_strategy(const TrainingGraph& training, SoapMeshes& meshes);

// What FlexFlow compares with: for convolutional networks samples, but fully connected layers by their outputs ("one
// weird trick", Krizhevsky 2014); for recurrent ones samples over nodes, and inside a node layer by layer on its
// devices (GNMT, Wu et al. 2016); for others data parallel.
SoapStrategy expert_strategy(const TrainingGraph& training, const Cluster& cluster, SoapMeshes& meshes);

// A plan on mesh 0.
SoapStrategy strategy_of(const LayoutProblem& problem, const std::vector<std::uint32_t>& option,
                         const TrainingGraph& training, const SoapMeshes& meshes);

}  // namespace weft
