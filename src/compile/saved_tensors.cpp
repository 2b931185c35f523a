#include "compile/saved_tensors.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace weft {

// Of the layouts that forward made on the way to its readers, the one from which the least is sent to the first reader
// in backward, if it takes no more memory than `made`: an activation after its all-to-all is kept so; one that was then
// gathered, as it was before the gather.
BufferId SavedTensors::cheapest_to_read(const OperandUse& event, BufferId made) {
  const Layout& wanted = splits_.of(event.turn).inputs[event.operand];
  if (is_partial(wanted) || wanted != without_halos(wanted)) return made;
  const auto elements = [&](BufferId id) {
    const Layout& layout = program_.buffers[id].layout;
    return largest_local_elements(layout, splits_.mesh(layout.mesh));
  };
  BufferId nearest = made;
  double least = std::numeric_limits<double>::infinity();
  for (BufferId each : buffers_.of(event.tensor)) {
    const Layout& layout = program_.buffers[each].layout;
    if (layout.mesh != wanted.mesh || is_partial(layout) || layout != without_halos(layout)) continue;
    if (buffers_.is_factor(each)) continue;
    if (!options_.keep_gathered_input && elements(each) > elements(made)) continue;
    const std::shared_ptr<const Resharding> way = splits_.reshard(layout, wanted);
    const double sent = std::accumulate(way->sent.begin(), way->sent.end(), 0.0);
    if (way->problem || sent >= least) continue;
    nearest = each;
    least = sent;
  }
  return nearest;
}

// What backward reads of forward is saved on the mesh that reads it, in the layout in which it was made there; partial
// sums, in the first layout without them. What is recomputed is not saved.
void SavedTensors::begin_backward(GroupId group, std::size_t from) {
  const std::span<const OperandUse> events = sequence_.events(group);
  struct Wanted {
    TensorId tensor;
    MeshId mesh;
    std::size_t event;  // that reads it first
    auto operator<=>(const Wanted&) const = default;
  };
  std::vector<Wanted> wanted;
  std::vector<TensorId> recomputed;
  for (std::size_t i = from; i < events.size(); ++i) {
    const Turn& turn = sequence_.turns()[events[i].turn];
    if (turn.phase != Phase::Backward || turn.kind != TurnKind::Operator) continue;
    const TensorId tensor = events[i].tensor;
    if (events[i].output) {
      recomputed.push_back(tensor);
    } else if (std::find(recomputed.begin(), recomputed.end(), tensor) == recomputed.end()) {
      const bool as_before = group_.before && !differences_.changed(turn.op);
      wanted.push_back({tensor, as_before ? group_.before->passages[i].mesh : splits_.mesh_of(events[i].turn), i});
    }
  }
  std::sort(wanted.begin(), wanted.end());
  const auto same = [](const Wanted& one, const Wanted& other) {
    return one.tensor == other.tensor && one.mesh == other.mesh;
  };
  wanted.erase(std::unique(wanted.begin(), wanted.end(), same), wanted.end());
  for (TensorId tensor : sequence_.tensors(group)) {
    BufferList& available = buffers_.of(tensor);
    if (graph_.tensors()[tensor].kind != TensorKind::Activation) {
      if (graph_.tensors()[tensor].kind == TensorKind::Parameter && !options_.parameters.reshard_after_forward) {
        for (BufferId each : available)
          if (program_.buffers[each].kind == BufferKind::Temporary) numbering_.set_kind(each, BufferKind::Saved);
        continue;
      }
      erase_if(available, [&](BufferId each) { return program_.buffers[each].kind == BufferKind::Temporary; });
      continue;
    }
    BufferList saved;
    for (auto it = std::lower_bound(wanted.begin(), wanted.end(), Wanted{tensor, MeshId(0), 0});
         it != wanted.end() && it->tensor == tensor; ++it) {
      BufferId chosen;
      std::size_t whole = 0;
      for (BufferId each : available) {
        const Layout& layout = program_.buffers[each].layout;
        if (layout.mesh != it->mesh || buffers_.is_factor(each)) continue;
        if (!chosen.valid() || (is_partial(program_.buffers[chosen].layout) && !is_partial(layout)))
          chosen = each;  // partial sums that forward never reduced are saved as they are, and reduced in backward
        whole += !is_partial(layout);
      }
      if (!chosen.valid()) continue;
      if (whole > 1) chosen = cheapest_to_read(events[it->event], chosen);
      if (options_.memory.saves_on_host(graph_.tensors()[tensor].producer))
        chosen = save_on_host(chosen, events.first(from));
      numbering_.set_kind(chosen, BufferKind::Saved);
      saved.push_back(chosen);
    }
    for (BufferId each : available)
      if (program_.buffers[each].kind == BufferKind::Saved &&
          std::find(saved.begin(), saved.end(), each) == saved.end())
        numbering_.set_kind(each, BufferKind::Temporary);
    available = std::move(saved);
  }
}

// Copies it after the last turn of forward that makes or reads it.
BufferId SavedTensors::save_on_host(BufferId buffer, std::span<const OperandUse> forward) {
  const TensorId tensor = program_.buffers[buffer].tensor;
  const Layout layout = program_.buffers[buffer].layout;
  const BufferId stored = emitter_.add_buffer(tensor, layout, BufferKind::Saved, true);
  std::size_t last = forward.size() - 1;
  while (forward[last].tensor != tensor) --last;
  position_.turn = forward[last].turn;
  position_.sink = &group_.code->events[last].then;
  const Temporarily in_turn(position_.in_turn, InTurn::After);
  emitter_.emit(layout.mesh, Copy{buffer, stored});
  return stored;
}

void SavedTensors::begin_step(GroupId group) {
  for (TensorId tensor : sequence_.tensors(group))
    erase_if(buffers_.of(tensor), [&](BufferId id) {
      const BufferKind kind = program_.buffers[id].kind;
      return kind == BufferKind::Temporary || kind == BufferKind::Saved;
    });
}

}  // namespace weft
