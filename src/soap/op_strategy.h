// A strategy of the SOAP space (FlexFlow, MLSys'19): every forward operator is placed on its own list of devices and
// split along any of its axes. Also the strategies that searches start from.
//
// All meshes have three axes. Mesh 0 is the grid of all devices, on which exact and symbolic plans are made; there an
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

// Meshes by shape and devices, each with one id.
class SoapMeshes {
 public:
  // `grid`: the shape of mesh 0.
  explicit SoapMeshes(std::array<int, kSoapAxes> grid, std::vector<DeviceId> devices);

  MeshId id_of(std::array<int, kSoapAxes> sizes, const std::vector<DeviceId>& devices);
  // An operator split along `split` into `sizes` parts, in canonical form: axes with more than one device come first,
  // so that equally split operators share a mesh, and their gradients a bucket.
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
  std::map<OpId, std::int64_t> outer = {};  // blocks in which outputs are split, where not 1 (layout_choices.h)
};

// A strategy's configurations with the mesh ids of `meshes`.
IdVec<OpId, OpConfig> renumbered(const SoapStrategy& strategy, SoapMeshes& meshes);

Placing placing_of(const SoapStrategy& strategy, const Graph& graph);
ShardingChoices choices_of(const SoapStrategy& strategy, const Graph& graph);
std::vector<std::optional<AxisChoice>> axes_of(const OpConfig& config, const Signature& signature,
                                               std::int64_t outer = 1);

// The strategy in the form that a tree can express: on meshes other than the grid, mesh axes that split the same axis
// of an operator are merged.
SoapStrategy as_written(const SoapStrategy& strategy);

// The strategy, after as_written, as a strategy tree with one rule per operator.
Strategy to_tree(const SoapStrategy& strategy, const Graph& graph);

// The number of consecutive devices that share a node, if equal for all nodes; else 1.
int devices_per_node(const Cluster& cluster, const std::vector<DeviceId>& devices);

// The first sample axis; −1: none.
int sample_axis(const Signature& signature);
// Whether an operator can be split into `parts` along this axis alone.
bool divides(const Signature& signature, int axis, std::int64_t parts);

// Every operator's samples over all devices; an operator whose samples do not divide is on the first device.
SoapStrategy data_parallel_strategy(const TrainingGraph& training, SoapMeshes& meshes);

// The expert strategies of FlexFlow's comparison: convolutional networks by samples, but fully connected layers by
// outputs ("one weird trick", Krizhevsky 2014); recurrent networks by samples over nodes, with layers on different
// devices of a node (GNMT, Wu et al. 2016); others data parallel.
SoapStrategy expert_strategy(const TrainingGraph& training, const Cluster& cluster, SoapMeshes& meshes);

// The strategy of options chosen for a layout problem on mesh 0.
SoapStrategy strategy_of(const LayoutProblem& problem, const std::vector<std::uint32_t>& option,
                         const TrainingGraph& training, const SoapMeshes& meshes);

}  // namespace weft
