// The splits that rules ask for, on one mesh after another: of operators, of the model's inputs, of sums. What cannot
// be is a fault.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "layout/sharding.h"
#include "strategy/faults.h"
#include "strategy/structure.h"

namespace weft {

// A model, and what the rules say of its operators.
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
  SplitChooser(const ModelRules& rules, Faults& faults) : rules_(rules), faults_(faults) {}

  ShardingChoices choose(const OperatorMesh& mesh);
  // After all meshes: rules whose operator axis none of the operators they cover has.
  void check_axes() const;
  // Attention between split columns and rows must divide by heads, or its layouts do not follow.
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
  Faults& faults_;
  std::set<std::pair<std::size_t, std::string>> applied_;  // rules and mesh axes
  bool first_mesh_ = true;                                 // faults of sums are the same on all of them
};

// Splitting a single element leaves all of it to one part, which any operator allows.
bool splittable_or_single(const Signature& signature, int axis);

}  // namespace weft
