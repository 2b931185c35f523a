// Attention around a ring (Liu, Zaharia, Abbeel: Ring Attention with Blockwise Transformers, 2023).
//
// Where a mesh axis splits both the queries and the keys, each device has one part of either, and every pair of parts
// must meet. In n steps the keys and values are handed from device to device; a step computes on the parts that are
// there while the next ones are on their way:
//
//   k₁, v₁ = shift(k₀, v₀)     y₀, lse₀ = attention(q, k₀, v₀)
//   k₂, v₂ = shift(k₁, v₁)     y₁, lse₁ = attention(q, k₁, v₁)     y, lse = combine(y₀, lse₀, y₁, lse₁) …
//
// The gradient does the same with the final y and lse. What it adds to the keys travels with them: after each step the
// sum so far is handed on, and one shift after the last step it is home, whole. Several mesh axes are rings in rings:
// the innermost is shifted along until it is around, then once the next (a modular Gray code). Nobody ever holds all
// keys.
#include "base/check.h"
#include "compile/lowering.h"

namespace weft {
namespace {

// The axis whose parts are carried around, and the mesh axes they go along, major first; none where there is no ring.
struct Ring {
  std::size_t axis = 0;
  std::vector<int> along = {};
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

bool Lowering::goes_around(TurnId turn) const {
  const OpId op = sequence_.turns()[turn].op;
  return sequence_.turns()[turn].kind == TurnKind::Operator && graph_.kind(op) == OpKind::Attention &&
         !ring_of(graph_.signature(op), plan_.ops[op]).along.empty();
}

InstructionId Lowering::maker(const OperandUse& event) {
  if (!goes_around(event.turn)) return mains_[event.turn];
  const Signature& signature = graph_.signature(sequence_.turns()[event.turn].op);
  if (!signature.outputs[event.operand].axes().contains(signature.axis_named("t"))) return mains_[event.turn];
  InstructionId& last = homecoming_[event.turn];
  if (!last.valid()) last = new_instruction({.mesh = {}, .what = {}, .stream = Stream::Tensor});
  return last;
}

RingCode Lowering::take_ring(TurnId turn) {
  const auto found = rings_.find(turn);
  if (found == rings_.end()) return {};
  RingCode code = std::move(found->second);
  rings_.erase(found);
  return code;
}

void Lowering::put_ring(TurnId turn, RingCode code) {
  release(take_ring(turn).owned);
  if (!code.order.empty()) rings_[turn] = std::move(code);
}

void Lowering::write_ring(TurnId id, const BufferList& operands) {
  const Turn& turn = sequence_.turns()[id];
  const Signature& signature = graph_.signature(turn.op);
  const OpSharding whole = this->split(id).sharding;
  const Ring ring = ring_of(signature, whole);
  const Mesh& on = mesh(whole.mesh);
  const auto degree = [&](int axis) { return on.axes()[static_cast<std::size_t>(axis)].size; };

  RingCode code;
  code_ = &code.owned;
  last_uses_.clear();
  sink_ = &code.order;
  turn_ = id;
  phase_ = turn.phase;
  guard_ = Guard::Always;
  weight_part_ = turn.weight_part;
  of_parameter_ = false;
  rank_ = 0;

  // Operands by what becomes of them: carried around, made at rest, made for what is carried.
  const std::size_t inputs = signature.inputs.size(), outputs = signature.outputs.size();
  const auto moves = [&](bool output, std::size_t i) {
    return (output ? signature.outputs : signature.inputs)[i].axes().contains(static_cast<int>(ring.axis));
  };
  const auto fresh = [&](std::size_t operand, const Layout& layout) {
    return add_buffer(program_.buffers[operands[operand]].tensor, layout, BufferKind::Temporary);
  };
  const auto handed_on = [&](std::size_t operand, BufferId from, int axis) {
    return fresh(operand, rotated(program_.buffers[from].layout, axis, 1, on));
  };
  const auto shift = [&](int axis, BufferList from, BufferList to, InstructionId as = {}) {
    emit(whole.mesh, Communicate{Collective::Shift, axis_set(axis), Reducer::Sum, std::move(from), std::move(to)}, as);
  };
  std::vector<std::size_t> carried, resting, collecting;
  for (std::size_t i = 0; i < inputs; ++i)
    if (moves(false, i)) carried.push_back(i);
  for (std::size_t i = 0; i < outputs; ++i) (moves(true, i) ? collecting : resting).push_back(inputs + i);
  // What is at rest is made by the turn's main instruction: one combination of all of it.
  const bool merges = signature.outputs[resting.front() - inputs].reducer == Reducer::SoftmaxMerge;
  WEFT_CHECK(resting.size() == (merges ? 2 : 1), "{} has {} outputs at rest", graph_.name(turn.op), resting.size());

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
      for (std::size_t i : carried) {
        next[i] = handed_on(i, here[i], after);
        from.push_back(here[i]);
        to.push_back(next[i]);
      }
      shift(after, std::move(from), std::move(to));
    }
    if (step > 0 && !collecting.empty()) {
      BufferList from, to;
      for (std::size_t i : collecting) {
        from.push_back(sums[i]);
        to.push_back(sums[i] = handed_on(i, sums[i], before));
      }
      shift(before, std::move(from), std::move(to));
    }
    BufferList made;
    for (std::size_t i = 0; i < outputs; ++i)
      made.push_back(fresh(inputs + i, operand_layout(signature, true, i, split, on)));
    emit(whole.mesh, Compute{turn.op, split, here, made, products_of(options_.types, graph_, turn.op)});
    here = std::move(next);
    if (step == 0) {
      for (std::size_t i = 0; i < outputs; ++i) sums[inputs + i] = made[i];
      continue;
    }
    // What is at rest is whole after the last step; what is collected still has its way home to go.
    const auto combine = [&](Reducer reducer, const std::vector<std::size_t>& of, InstructionId as) {
      Combine terms{reducer, {}, {}};
      for (std::size_t i : of) terms.inputs.push_back(sums[i]);
      for (std::size_t i : of) terms.inputs.push_back(made[i - inputs]);
      for (std::size_t i : of) {
        sums[i] = as.valid() ? operands[i] : fresh(i, program_.buffers[made[i - inputs]].layout);
        terms.outputs.push_back(sums[i]);
      }
      emit(whole.mesh, std::move(terms), as);
    };
    for (std::size_t i : collecting) combine(Reducer::Sum, {i}, InstructionId());
    combine(merges ? Reducer::SoftmaxMerge : Reducer::Sum, resting, last ? mains_[id] : InstructionId());
  }
  // Home: on along every axis until it is around.
  if (!collecting.empty()) {
    std::vector<int> way;
    for (const Cut& cut : split.axes[ring.axis])
      for (int rotate = cut.rotate; rotate != 0; rotate = (rotate + 1) % degree(cut.mesh_axis))
        way.push_back(cut.mesh_axis);
    for (std::size_t s = 0; s < way.size(); ++s) {
      const bool arrives = s + 1 == way.size();
      BufferList from, to;
      for (std::size_t i : collecting) {
        from.push_back(sums[i]);
        to.push_back(sums[i] = arrives ? operands[i] : handed_on(i, sums[i], way[s]));
      }
      shift(way[s], std::move(from), std::move(to), arrives ? homecoming_.at(id) : InstructionId());
    }
  }

  add_frees();
  InstructionList order;
  for (InstructionId each : code.order) {
    order.push_back(each);
    for (const FreeAt& free : code.owned.frees) {
      if (free.anchor != each) continue;
      settle_free(free);
      order.push_back(free.free);
    }
  }
  code.order = std::move(order);
  code_ = nullptr;
  put_ring(id, std::move(code));
}

}  // namespace weft
