#include "compile/ring.h"

#include "base/check.h"

namespace weft {
namespace {

struct Ring {
  std::size_t axis = 0;         // the operator's axis whose parts travel: keys
  std::vector<int> along = {};  // the mesh axes that they are shifted along, major first; none: there is no ring
};

Ring ring_of(const Signature& signature, const OpSharding& sharding) {
  if (signature.kind != OpKind::Attention) return {};
  const auto queries = static_cast<std::size_t>(signature.axis_named("q"));
  Ring ring{static_cast<std::size_t>(signature.axis_named("t"))};
  for (const Cut& cut : sharding.axes[ring.axis])
    for (const Cut& other : sharding.axes[queries])
      if (cut.mesh_axis == other.mesh_axis) ring.along.push_back(cut.mesh_axis);
  return ring;
}

}  // namespace

bool Rings::is_ring(TurnId turn) const {
  const OpId op = sequence_.turns()[turn].op;
  return sequence_.turns()[turn].kind == TurnKind::Operator && graph_.kind(op) == OpKind::Attention &&
         !ring_of(graph_.signature(op), splits_.planned(turn)).along.empty();
}

InstructionId Rings::maker(const OperandUse& output, InstructionId main) {
  if (!is_ring(output.turn)) return main;
  const Signature& signature = graph_.signature(sequence_.turns()[output.turn].op);
  if (!signature.outputs[output.operand].axes().contains(signature.axis_named("t"))) return main;
  InstructionId& last = last_shifts_[output.turn];
  if (!last.valid()) last = numbering_.new_instruction({.mesh = {}, .what = {}, .stream = Stream::Tensor});
  return last;
}

RingCode Rings::take(TurnId turn) {
  const auto found = written_.find(turn);
  if (found == written_.end()) return {};
  RingCode code = std::move(found->second);
  written_.erase(found);
  return code;
}

void Rings::put(TurnId turn, RingCode code) {
  numbering_.release(take(turn).owned);
  if (!code.order.empty()) written_[turn] = std::move(code);
}

void Rings::write(TurnId id, const BufferList& operands, InstructionId main) {
  const Turn& turn = sequence_.turns()[id];
  const Signature& signature = graph_.signature(turn.op);
  const OpSharding whole = splits_.of(id).sharding;
  const Ring ring = ring_of(signature, whole);
  const Mesh& on = splits_.mesh(whole.mesh);
  const auto degree = [&](int axis) { return on.axes()[static_cast<std::size_t>(axis)].size; };

  RingCode code;
  group_.code = &code.owned;
  group_.of_parameter = false;
  liveness_.begin_code();
  position_ = {.turn = id, .phase = turn.phase, .weight_part = turn.weight_part, .sink = &code.order};

  // Operands by what becomes of them: inputs that are shifted, outputs that stay in place, outputs whose sums are shifted
  // along with the inputs.
  const std::size_t inputs = signature.inputs.size(), outputs = signature.outputs.size();
  const auto moves = [&](bool output, std::size_t i) {
    return (output ? signature.outputs : signature.inputs)[i].axes().contains(static_cast<int>(ring.axis));
  };
  const auto fresh = [&](std::size_t operand, const Layout& layout) {
    return emitter_.add_buffer(program_.buffers[operands[operand]].tensor, layout, BufferKind::Temporary);
  };
  const auto shifted_from = [&](std::size_t operand, BufferId from, int axis) {
    return fresh(operand, rotated(program_.buffers[from].layout, axis, 1, on));
  };
  const auto emit = [&](Emitter::What what, InstructionId as = {}) {
    if (as.valid())
      emitter_.emit_as(as, whole.mesh, std::move(what));
    else
      emitter_.emit(whole.mesh, std::move(what));
  };
  const auto shift = [&](int axis, BufferList from, BufferList to, InstructionId as = {}) {
    emit(Communicate{Collective::Shift, axis_set(axis), Reducer::Sum, std::move(from), std::move(to)}, as);
  };
  std::vector<std::size_t> shifted, resting, travelling;
  for (std::size_t i = 0; i < inputs; ++i)
    if (moves(false, i)) shifted.push_back(i);
  for (std::size_t i = 0; i < outputs; ++i) (moves(true, i) ? travelling : resting).push_back(inputs + i);
  // What stays in place is made by the turn's main instruction: one combination of all of it.
  const bool merges = signature.outputs[resting.front() - inputs].reducer == Reducer::SoftmaxMerge;
  WEFT_CHECK(resting.size() == (merges ? 2 : 1), "{} has {} outputs that stay in place", graph_.name(turn.op),
             resting.size());

  int steps = 1;
  for (int axis : ring.along) steps *= degree(axis);
  // The axis along which to shift after a step.
  const auto axis_after = [&](int step) {
    int blocks = step + 1;
    for (std::size_t i = ring.along.size(); i-- > 1;) {
      if (blocks % degree(ring.along[i]) != 0) return ring.along[i];
      blocks /= degree(ring.along[i]);
    }
    return ring.along.front();
  };

  BufferList here(operands.begin(), operands.begin() + static_cast<std::ptrdiff_t>(inputs));
  BufferList sums(operands.size());  // so far, of outputs
  OpSharding split = whole;
  for (int step = 0; step < steps; ++step) {
    const bool last = step + 1 == steps;
    const int before = step == 0 ? -1 : axis_after(step - 1), after = last ? -1 : axis_after(step);
    if (step > 0)
      for (Cut& cut : split.axes[ring.axis])
        if (cut.mesh_axis == before) cut.rotate = (cut.rotate + 1) % degree(before);
    BufferList next = here;
    if (!last) {
      BufferList from, to;
      for (std::size_t i : shifted) {
        next[i] = shifted_from(i, here[i], after);
        from.push_back(here[i]);
        to.push_back(next[i]);
      }
      shift(after, std::move(from), std::move(to));
    }
    if (step > 0 && !travelling.empty()) {
      BufferList from, to;
      for (std::size_t i : travelling) {
        from.push_back(sums[i]);
        to.push_back(sums[i] = shifted_from(i, sums[i], before));
      }
      shift(before, std::move(from), std::move(to));
    }
    BufferList made;
    for (std::size_t i = 0; i < outputs; ++i)
      made.push_back(fresh(inputs + i, operand_layout(signature, true, i, split, on)));
    emit(Compute{turn.op, split, here, made, products_of(options_.types, graph_, turn.op)});
    here = std::move(next);
    if (step == 0) {
      for (std::size_t i = 0; i < outputs; ++i) sums[inputs + i] = made[i];
      continue;
    }
    // After the last step what stays in place is complete; sums that travel are not yet where their keys belong.
    const auto combine = [&](Reducer reducer, const std::vector<std::size_t>& of, InstructionId as) {
      Combine terms{reducer, {}, {}};
      for (std::size_t i : of) terms.inputs.push_back(sums[i]);
      for (std::size_t i : of) terms.inputs.push_back(made[i - inputs]);
      for (std::size_t i : of) {
        sums[i] = as.valid() ? operands[i] : fresh(i, program_.buffers[made[i - inputs]].layout);
        terms.outputs.push_back(sums[i]);
      }
      emit(std::move(terms), as);
    };
    for (std::size_t i : travelling) combine(Reducer::Sum, {i}, InstructionId());
    combine(merges ? Reducer::SoftmaxMerge : Reducer::Sum, resting, last ? main : InstructionId());
  }
  // Shifts them on along every axis until they have been around.
  if (!travelling.empty()) {
    std::vector<int> left;
    for (const Cut& cut : split.axes[ring.axis])
      for (int rotate = cut.rotate; rotate != 0; rotate = (rotate + 1) % degree(cut.mesh_axis))
        left.push_back(cut.mesh_axis);
    for (std::size_t s = 0; s < left.size(); ++s) {
      const bool last = s + 1 == left.size();
      BufferList from, to;
      for (std::size_t i : travelling) {
        from.push_back(sums[i]);
        to.push_back(sums[i] = last ? operands[i] : shifted_from(i, sums[i], left[s]));
      }
      shift(left[s], std::move(from), std::move(to), last ? last_shifts_.at(id) : InstructionId());
    }
  }

  liveness_.add_frees();
  InstructionList order;
  for (InstructionId each : code.order) {
    order.push_back(each);
    for (const FreeAt& free : code.owned.frees) {
      if (free.anchor != each) continue;
      waits_.settle(free);
      order.push_back(free.free);
    }
  }
  code.order = std::move(order);
  group_.code = nullptr;
  put(id, std::move(code));
}

}  // namespace weft
