#include "synthesis/parameter_ways.h"

#include <algorithm>

#include "compile/parameter_layout.h"

namespace weft {

std::vector<std::int64_t> held_bytes(const Mesh& mesh, const std::vector<DeviceClass>& classes, const Layout& layout,
                                     DType dtype) {
  std::vector<std::int64_t> bytes;
  for (const DeviceClass& of : classes) {
    std::int64_t elements = 1;
    for (std::int64_t extent : local_shape(layout, mesh, of.positions.front())) elements *= extent;
    bytes.push_back(bytes_of(dtype, elements));
  }
  return bytes;
}

ParameterWays::ParameterWays(const TrainingGraph& training, const SharedMesh& mesh,
                             const std::vector<DeviceClass>& classes, const CostModel& cost, PricedLayouts& layouts,
                             const ProgramRules& rules)
    : graph_(training.graph), mesh_(mesh), classes_(classes), cost_(cost), layouts_(layouts), rules_(rules) {
  for (OpId op : IdRange<OpId>(training.first_step, OpId(graph_.ops().size())))
    for (TensorId input : graph_.inputs(op))
      if (graph_.tensors()[input].kind == TensorKind::Parameter) updates_[input].push_back(op);
  for (const auto& [parameter, gradient] : training.accumulated) gradient_of_[parameter] = gradient;
}

const std::vector<OpId>& ParameterWays::updates(TensorId parameter) const {
  static const std::vector<OpId> kNone;
  const auto found = updates_.find(parameter);
  return found == updates_.end() ? kNone : found->second;
}

const std::vector<Storing>& ParameterWays::of(TensorId parameter, const Layout& used, const Layout& made) {
  const DType dtype = graph_.tensors()[parameter].type.dtype;
  const auto update = updates_.find(parameter);
  std::vector<std::uint32_t> key = {layouts_.number(used, dtype), layouts_.number(made, dtype)};
  if (update != updates_.end())
    for (OpId op : update->second) key.push_back(graph_.ops()[op].signature.index());
  const auto [found, fresh] = known_.try_emplace(std::move(key));
  if (fresh) found->second = make(parameter, used, made);
  return found->second;
}

std::vector<Storing> ParameterWays::make(TensorId parameter, const Layout& used, const Layout& made) {
  std::vector<Storing> result;
  const DType dtype = graph_.tensors()[parameter].type.dtype;
  const auto update = updates_.find(parameter);
  const auto gradient = gradient_of_.find(parameter);
  const DType gradient_dtype = gradient == gradient_of_.end() ? dtype : graph_.tensors()[gradient->second].type.dtype;
  std::map<int, Shares> ratio;
  for (std::size_t m = 0; m < mesh_.ratio.size(); ++m)
    if (!mesh_.ratio[m].stored.empty()) ratio[static_cast<int>(m)] = mesh_.ratio[m].stored;
  const MeshAxes all = axis_set(static_cast<int>(mesh_.mesh.axes().size())) - 1;
  std::vector<std::string> seen;
  for (MeshAxes over = 0; over <= (rules_.shards_stored ? all : 0); ++over) {
    const Layout step = split_over(used, mesh_.mesh, over, ratio);
    const std::string text = print(step, mesh_.mesh);
    if (std::find(seen.begin(), seen.end(), text) != seen.end()) continue;  // these axes cut it already
    seen.push_back(text);
    for (int stage = over == 0 ? 0 : 1; stage <= (over == 0 ? 0 : 3); ++stage) {
      Storing way{over,
                  stage >= 2 ? over : 0,
                  stage >= 3 ? over : 0,
                  0,
                  ProgramChoices::Computation(classes_.size(), 0),
                  held_bytes(mesh_.mesh, classes_, used, dtype)};
      if (stage >= 3) way.memory = held_bytes(mesh_.mesh, classes_, step, dtype);
      if (update != updates_.end()) {
        way.communication = layouts_.in_bucket(made, step, gradient_dtype);
        if (way.communication < kNever)
          way.communication = static_cast<Picoseconds>(rules_.exposed * static_cast<double>(way.communication));
        way.communication = sum_of(way.communication, (stage >= 3 ? 2 : 1) * layouts_.in_bucket(step, used, dtype));
        add_update(update->second, parameter, step, stage >= 2 ? step : without_halos(made), way);
      } else if (stage >= 3) {
        way.communication = 2 * layouts_.in_bucket(step, used, dtype);
      } else if (stage > 0) {
        continue;  // frozen: there is no gradient and no state
      }
      result.push_back(std::move(way));
    }
  }
  return result;
}

void ParameterWays::add_update(const std::vector<OpId>& ops, TensorId parameter, const Layout& step,
                               const Layout& gradient, Storing& way) {
  std::set<TensorId> counted = {parameter};
  const auto hold = [&](const Layout& layout, DType dtype) {
    const std::vector<std::int64_t> bytes = held_bytes(mesh_.mesh, classes_, layout, dtype);
    for (std::size_t c = 0; c < bytes.size(); ++c) way.memory[c] += bytes[c];
  };
  const Shape& shape = graph_.tensors()[parameter].type.shape;
  if (const auto sum = gradient_of_.find(parameter); sum != gradient_of_.end()) {
    counted.insert(sum->second);
    hold(gradient, graph_.tensors()[sum->second].type.dtype);
  }
  for (OpId op : ops) {
    const Signature& signature = graph_.signature(op);
    for (std::size_t c = 0; c < classes_.size(); ++c) {
      const Shape local = local_shape(step, mesh_.mesh, classes_[c].positions.front());
      if (signature.axes.size() == local.size())
        way.update[c] += cost_.compute({&signature, local, classes_[c].spec, {}, -1}).time;
    }
    for (TensorId input : graph_.inputs(op))
      if (graph_.tensors()[input].kind == TensorKind::State && graph_.tensors()[input].type.shape == shape &&
          counted.insert(input).second)
        hold(step, graph_.tensors()[input].type.dtype);
  }
}

}  // namespace weft
