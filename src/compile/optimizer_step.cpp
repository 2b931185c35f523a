#include "compile/optimizer_step.h"

#include "base/check.h"

namespace weft {

Status OptimizerStep::optimize(TurnId turn) {
  const OpId op = sequence_.turns()[turn].op;
  const OpKind kind = graph_.kind(op);
  std::vector<Home>& homes = homes_.of(tensors_.optimized_by[op]);
  // Norms and overflow checks count a parameter once, on its first home.
  const bool counts_once = kind == OpKind::SumSquares || kind == OpKind::NonFinite;
  if (counts_once && group_.keeps && group_.before->homes.begin()->second.front().mesh != homes.front().mesh)
    for (Home& home : homes) home.fresh = true;  // later operators read what the home that counts has reduced
  for (Home& home : homes) {
    if (counts_once && &home != &homes.front()) continue;
    const auto make = [&]() -> Result<BufferId> {
      WEFT_TRY_OK(optimize_on(turn, home));
      return BufferId();
    };
    WEFT_TRY(const Reuse::Part part, reuse_.part(home.mesh, MeshId(), !home.fresh, make));
    home.fresh = home.fresh || part.lowered;
  }
  return Ok{};
}

Result<BufferId> OptimizerStep::input(const SplitOp& split, OpId op, std::size_t operand, Home& home) {
  const TensorId id = graph_.inputs(op)[operand];
  const Tensor& tensor = graph_.tensors()[id];
  const Layout& wanted = split.inputs[operand];
  const bool gradient = tensors_.parameter_of[tensor.storage].valid();
  if (gradient) {  // the one that this home has accumulated
    buffers_.of(id) = {home.total};
    if (home.read.valid()) buffers_.of(id).push_back(home.read);
  } else if (tensor.kind == TensorKind::State && !tensor.producer.valid() && !buffers_.on_mesh(id, home.mesh)) {
    const BufferId state = buffers_.add(id, wanted, BufferKind::State);
    program_.buffers[state].on_host = homes_.offloads(Stored::Optimizer, tensors_.optimized_by[op]);
  }
  WEFT_TRY(const BufferId buffer, buffers_.as(id, wanted));
  if (gradient) {
    home.read = buffer;
    buffers_.of(id).clear();
  }
  return buffer;
}

Status OptimizerStep::optimize_on(TurnId turn, Home& home) {
  const OpId op = sequence_.turns()[turn].op;
  const Signature& signature = graph_.signature(op);
  const auto inputs = graph_.inputs(op), outputs = graph_.outputs(op);
  const GroupId own = sequence_.group_of(inputs.front(), 0);
  const std::shared_ptr<const SplitOp> split = splits_.on(op, homes_.step_layout(home));
  Compute compute{op, split->sharding, {}, {}};
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    BufferId buffer;  // of a scalar that all optimizers read: not known yet
    if (sequence_.group_of(inputs[i], 0) == own) {
      WEFT_TRY(buffer, input(*split, op, i, home));
    }
    compute.inputs.push_back(buffer);
  }
  for (std::size_t i = 0; i < outputs.size(); ++i)
    compute.outputs.push_back(buffers_.add(outputs[i], split->outputs[i], BufferKind::Temporary));
  const BufferList made = compute.outputs;
  // States are updated in their own memory, and so is the part of a parameter that the device updates.
  BufferList states(outputs.size());
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const int aliased = signature.outputs[i].aliases;
    if (aliased < 0) continue;
    const TensorId target = inputs[static_cast<std::size_t>(aliased)];
    if (graph_.tensors()[target].kind == TensorKind::Parameter) {
      if (!program_.buffers[home.buffer].on_host)
        program_.buffers[made[i]].memory = program_.buffers[home.buffer].memory;
      continue;
    }
    for (BufferId id : buffers_.of(target))
      if (program_.buffers[id].kind == BufferKind::State && program_.buffers[id].layout.mesh == home.mesh)
        states[i] = id;
    WEFT_CHECK(states[i].valid(), "{} is not stored", graph_.name(target));
    if (program_.buffers[states[i]].on_host) continue;
    program_.buffers[made[i]].kind = BufferKind::State;
    emitter_.update_in_place(made[i], states[i]);
  }
  emitter_.emit(home.mesh, std::move(compute));
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (signature.outputs[i].aliases < 0) continue;
    if (!states[i].valid())
      WEFT_TRY_OK(publish(turn, outputs[i], made[i], home));
    else if (program_.buffers[states[i]].on_host)
      emitter_.store_on_host(made[i], states[i]);
  }
  return Ok{};
}

// An updated parameter returns to the layout and the memory in which it is stored.
Status OptimizerStep::publish(TurnId turn, TensorId updated, BufferId made, const Home& home) {
  buffers_.of(updated) = {made};
  Chain chain{turn, {}, updated, {}, {}};
  BufferId stored;
  {
    const Temporarily sink(position_.sink, &chain.steps);
    WEFT_TRY(stored, buffers_.as(updated, program_.buffers[home.buffer].layout));
  }
  if (program_.buffers[home.buffer].on_host) {
    position_.sink->append(chain.steps.begin(), chain.steps.end());
    emitter_.store_on_host(stored, home.buffer);
    return Ok{};
  }
  if (!chain.steps.empty()) emitter_.add_chain(std::move(chain), Chain::Purpose::Publish);
  emitter_.update_in_place(stored, home.buffer);
  program_.buffers[stored].kind = BufferKind::Parameter;
  return Ok{};
}

}  // namespace weft
