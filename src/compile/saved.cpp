// What crosses from forward to backward, and what is left for the step: which buffer of a tensor is saved, on the
// device or on the host.
#include <algorithm>
#include <limits>
#include <numeric>

#include "compile/lowering.h"

namespace weft {

// Of the forms that forward made on the way, the one from which the least is sent to what is read, if it takes no more
// memory: what was exchanged is kept so, what was exchanged and then gathered as it was before the gather.
BufferId Lowering::as_read_first(const OperandUse& event, BufferId made) {
  const Layout& wanted = split(event.turn).inputs[event.operand];
  if (is_partial(wanted) || wanted != without_halos(wanted)) return made;
  const auto elements = [&](BufferId id) {
    const Layout& layout = program_.buffers[id].layout;
    return largest_local_elements(layout, mesh(layout.mesh));
  };
  BufferId nearest = made;
  double least = std::numeric_limits<double>::infinity();
  for (BufferId each : available_[event.tensor]) {
    const Layout& layout = program_.buffers[each].layout;
    if (layout.mesh != wanted.mesh || is_partial(layout) || layout != without_halos(layout)) continue;
    if (!options_.keep_gathered_input && elements(each) > elements(made)) continue;
    const std::shared_ptr<const Resharding> way = memo_.reshard(layout, wanted, mesh(wanted.mesh));
    const double sent = std::accumulate(way->sent.begin(), way->sent.end(), 0.0);
    if (way->problem || sent >= least) continue;
    nearest = each;
    least = sent;
  }
  return nearest;
}

// What backward reads of forward is saved on the mesh that reads it, as it was made there; what was partial, in the
// first whole form it had. What is computed again is not kept.
void Lowering::begin_backward(GroupId group, std::size_t from) {
  const std::span<const OperandUse> events = sequence_.events(group);
  struct Wanted {
    TensorId tensor;
    MeshId mesh;
    std::size_t event;  // that reads it first
    auto operator<=>(const Wanted&) const = default;
  };
  std::vector<Wanted> wanted;
  std::vector<TensorId> remade;
  for (std::size_t i = from; i < events.size(); ++i) {
    const Turn& turn = sequence_.turns()[events[i].turn];
    if (turn.phase != Phase::Backward || turn.kind != TurnKind::Operator) continue;
    const TensorId tensor = events[i].tensor;
    if (events[i].output) {
      remade.push_back(tensor);
    } else if (std::find(remade.begin(), remade.end(), tensor) == remade.end()) {
      const bool as_before = before_ && !changed_[turn.op];
      wanted.push_back({tensor, as_before ? before_->passages[i].mesh : mesh_of(events[i].turn), i});
    }
  }
  std::sort(wanted.begin(), wanted.end());
  const auto same = [](const Wanted& one, const Wanted& other) {
    return one.tensor == other.tensor && one.mesh == other.mesh;
  };
  wanted.erase(std::unique(wanted.begin(), wanted.end(), same), wanted.end());
  for (TensorId tensor : sequence_.tensors(group)) {
    if (graph_.tensors()[tensor].kind != TensorKind::Activation) {
      if (graph_.tensors()[tensor].kind == TensorKind::Parameter && !options_.parameters.reshard_after_forward) {
        for (BufferId each : available_[tensor])
          if (program_.buffers[each].kind == BufferKind::Temporary) set_kind(each, BufferKind::Saved);
        continue;
      }
      erase_if(available_[tensor], [&](BufferId each) { return program_.buffers[each].kind == BufferKind::Temporary; });
      continue;
    }
    BufferList saved;
    for (auto it = std::lower_bound(wanted.begin(), wanted.end(), Wanted{tensor, MeshId(0), 0});
         it != wanted.end() && it->tensor == tensor; ++it) {
      BufferId chosen;
      std::size_t whole = 0;
      for (BufferId each : available_[tensor]) {
        const Layout& layout = program_.buffers[each].layout;
        if (layout.mesh != it->mesh) continue;
        if (!chosen.valid() || (is_partial(program_.buffers[chosen].layout) && !is_partial(layout)))
          chosen = each;  // one that only ever was partial is reduced again
        whole += !is_partial(layout);
      }
      if (!chosen.valid()) continue;
      if (whole > 1) chosen = as_read_first(events[it->event], chosen);
      if (options_.memory.saves_on_host(graph_.tensors()[tensor].producer)) chosen = send_to_host(chosen, events);
      set_kind(chosen, BufferKind::Saved);
      saved.push_back(chosen);
    }
    for (BufferId each : available_[tensor])
      if (program_.buffers[each].kind == BufferKind::Saved &&
          std::find(saved.begin(), saved.end(), each) == saved.end())
        set_kind(each, BufferKind::Temporary);
    available_[tensor] = std::move(saved);
  }
}

// After the last turn of forward that makes or reads it.
BufferId Lowering::send_to_host(BufferId buffer, std::span<const OperandUse> events) {
  const TensorId tensor = program_.buffers[buffer].tensor;
  const Layout layout = program_.buffers[buffer].layout;
  const BufferId stored = add_buffer(tensor, layout, BufferKind::Saved, true);
  const std::size_t last = last_forward_[tensor] - 1;
  turn_ = events[last].turn;
  rank_ = kAfter;
  sink_ = &code_->events[last].then;
  emit(layout.mesh, Copy{buffer, stored});
  rank_ = kBefore;
  return stored;
}

void Lowering::begin_step(GroupId group) {
  for (TensorId tensor : sequence_.tensors(group))
    erase_if(available_[tensor], [&](BufferId id) {
      const BufferKind kind = program_.buffers[id].kind;
      return kind == BufferKind::Temporary || kind == BufferKind::Saved;
    });
}

}  // namespace weft
