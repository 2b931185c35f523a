#include "compile/parameter_homes.h"

#include <algorithm>

#include "base/check.h"
#include "compile/parameter_layout.h"

namespace weft {

void ParameterHomes::add(TensorId parameter, const Layout& used) {
  BufferId buffer;
  {
    const Temporarily part(position_.weight_part, false);  // all of backward may read it
    buffer = buffers_.add(parameter, weight_layout(parameter, used), BufferKind::Parameter);
  }
  program_.buffers[buffer].on_host = offloads(Stored::Weights, parameter);
  const Home* const was = before(parameter, used.mesh);
  const bool fresh = !was || was->buffer != buffer || was->used != used;
  group_.code->homes[parameter].push_back({.mesh = used.mesh, .buffer = buffer, .used = used, .fresh = fresh});
}

void ParameterHomes::keep(TensorId parameter, BufferId buffer) {
  const auto homes = group_.before->homes.find(parameter);
  if (homes == group_.before->homes.end()) return;
  for (const Home& home : homes->second)
    if (home.buffer == buffer)
      group_.code->homes[parameter].push_back(
          {.mesh = home.mesh, .buffer = home.buffer, .used = home.used, .fresh = false});
}

Home& ParameterHomes::of(TensorId parameter, MeshId on) {
  for (Home& each : of(parameter))
    if (each.mesh == on) return each;
  WEFT_CHECK(false, "{} is not stored on mesh {}", graph_.name(parameter), on.index());
}

const Home* ParameterHomes::before(TensorId parameter, MeshId on) const {
  if (!group_.before) return nullptr;
  const auto found = group_.before->homes.find(parameter);
  if (found == group_.before->homes.end()) return nullptr;
  for (const Home& home : found->second)
    if (home.mesh == on) return &home;
  return nullptr;
}

Layout ParameterHomes::weight_layout(TensorId parameter, const Layout& used) const {
  const ParameterStorage& storage = options_.memory.of(parameter);
  return split_over(used, program_.meshes[used.mesh], storage.weights, storage.ratio);
}

Layout ParameterHomes::gradient_layout(const Home& home) const {
  const TensorId parameter = program_.buffers[home.buffer].tensor;
  const ParameterStorage& storage = options_.memory.of(parameter);
  return split_over(weight_layout(parameter, home.used), program_.meshes[home.mesh], storage.gradients, storage.ratio);
}

Layout ParameterHomes::step_layout(const Home& home) const {
  const ParameterStorage& storage = options_.memory.of(program_.buffers[home.buffer].tensor);
  return split_over(gradient_layout(home), program_.meshes[home.mesh], storage.optimizer, storage.ratio);
}

BufferId ParameterHomes::sum_in(const Home& home, const Layout& layout) const {
  if (home.gradient.valid() && program_.buffers[home.gradient].layout == layout) return home.gradient;
  for (BufferId each : home.others)
    if (program_.buffers[each].layout == layout) return each;
  return BufferId();
}

bool ParameterHomes::gathers_in_units(TensorId tensor) const {
  return options_.memory.of(tensor).weights != 0 && !options_.parameters.unit.empty() &&
         graph_.tensors()[tensor].kind == TensorKind::Parameter && !offloads(Stored::Weights, tensor);
}

Result<BufferId> ParameterHomes::gather(TensorId parameter, TurnId turn, const Layout& wanted) {
  Chain chain{turn, {}, parameter, {}, {}};
  // From the stored parameter, not from what another chain gathers: chains are issued in any order.
  BufferList& available = buffers_.of(parameter);
  BufferList others;
  for (BufferId id : available)
    if (program_.buffers[id].kind != BufferKind::Parameter && program_.buffers[id].layout != wanted)
      others.push_back(id);
  erase_if(available, [&](BufferId id) { return std::find(others.begin(), others.end(), id) != others.end(); });
  const Temporarily sink(position_.sink, &chain.steps);
  const Temporarily part(position_.weight_part, false);
  const Temporarily ahead(position_.ahead, true);
  const ReshardManner manner{.factor = gathered_weight_type(options_.types, graph_, parameter)};
  WEFT_TRY(const BufferId gathered, buffers_.as(parameter, wanted, manner));
  available.append(others.begin(), others.end());
  if (!chain.steps.empty()) emitter_.add_chain(std::move(chain), Chain::Purpose::Gather);
  return gathered;
}

}  // namespace weft
