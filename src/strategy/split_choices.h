// The splits of operators, of the model's inputs and of partial sums that the rules request, for one mesh after
// another. An impossible one is a violation.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "layout/sharding.h"
#include "strategy/structure.h"
#include "strategy/violations.h"

namespace weft {

// A model with the rules' configuration of each operator.
struct ModelRules {
  const Strategy& strategy;
  const Graph& graph;
  const TensorParallel& structure;
  const Inheritance& inheritance;
  const IdVec<OpId, std::string>& names;
  const IdVec<OpId, const NodeConfig*>& configs;
  const std::vector<std::string>& mesh_names;  // of all axes of all meshes, sorted
};

struct OperatorMesh {
  const std::vector<MeshAxis>& axes;  // major first
  std::function<bool(OpId)> runs;     // whether an operator runs on it
};

class SplitChooser {
 public:
  SplitChooser(const ModelRules& rules, Violations& violations) : rules_(rules), violations_(violations) {}

  ShardingChoices choose(const OperatorMesh& mesh);
  // To be called after all meshes: reports rules with an operator axis that no operator they cover has.
  void check_axes() const;
  // The heads of attention between column- and row-parallel linears must divide, or its layouts do not follow.
  void check_heads(const OperatorMesh& mesh, const ShardingChoices& choices) const;

 private:
  void choose_ops(const OperatorMesh& mesh, ShardingChoices& choices);
  void choose_axis(OpId op, int axis, const Split& split, std::size_t rule, const MeshAxis& mesh_axis,
                   std::int64_t& cut, std::map<OpId, AxisChoice>& into) const;
  void choose_inputs(const OperatorMesh& mesh, ShardingChoices& choices) const;
  void choose_reduction(const OperatorMesh& mesh, ShardingChoices& choices);
  std::string does_not_divide(OpId op, std::string_view axis, std::int64_t size, const MeshAxis& mesh_axis,
                              std::int64_t cut) const;
  bool is_vocabulary(OpId op, std::string_view axis) const;

  const ModelRules rules_;
  Violations& violations_;
  std::set<std::pair<std::size_t, std::string>> applied_;  // rules with the mesh axes that they have split on
  bool first_mesh_ = true;                                 // sequence parallelism is reported for it only
};

// Whether the axis is splittable or has a single element, which one part holds whole.
bool splittable_or_single(const Signature& signature, int axis);

}  // namespace weft
