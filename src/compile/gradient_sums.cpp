#include "compile/gradient_sums.h"

#include <algorithm>

namespace weft {

GradientSums::Term GradientSums::term_of(const OperandUse& event) const {
  const OpId op = sequence_.turns()[event.turn].op;
  const TensorId sum = graph_.tensors()[graph_.outputs(op)[0]].storage;
  return {op, graph_.inputs(op)[1], sum, tensors_.parameter_of[sum], tensors_.terms_of[sum].back() == event.turn};
}

InstructionId GradientSums::add(OpId op, BufferId a, BufferId b, BufferId sum, Stream stream) {
  const Layout& layout = program_.buffers[sum].layout;
  const MeshId on = layout.mesh;
  return emitter_.emit(on, Compute{op, splits_.on(op, layout)->sharding, {a, b}, {sum}}, stream);
}

Status GradientSums::accumulate(const OperandUse& event, EventCode& code) {
  const Term term = term_of(event);
  Home& home = homes_.of(term.parameter, splits_.mesh_of(event.turn));
  home.fresh = true;
  WEFT_TRY(const BufferId ready, buffers_.as(term.gradient, splits_.made(term.gradient, home.mesh)));
  if (options_.memory.of(term.parameter).gradients != 0) return accumulate_sharded(event, term, home, ready, code);

  const Sum last = add_to_sum(term, home, ready, Stream::Compute);
  if (homes_.tied(term.parameter) || !term.last) return Ok{};
  Chain chain{event.turn, {}, term.parameter, {}, {}};
  {
    const Temporarily guard(position_.guard, Guard::LastMicroBatch);
    WEFT_TRY_OK(reduce_sums(term, home, last, chain, code));
  }
  buffers_.of(term.sum).clear();
  if (!chain.steps.empty()) emitter_.add_chain(std::move(chain), Chain::Purpose::ReduceSum);
  return Ok{};
}

// Adds to the sum in the term's layout; a sum that has not begun begins with it.
GradientSums::Sum GradientSums::add_to_sum(const Term& term, Home& home, BufferId added, Stream stream) {
  const Layout layout = program_.buffers[added].layout;
  BufferId sum = homes_.sum_in(home, layout);
  const bool begins = !sum.valid();
  if (begins) {
    sum = emitter_.add_buffer(term.sum, layout, BufferKind::State, homes_.offloads(Stored::Gradients, term.parameter));
    home.add_sum(sum);
  }
  passages_.set_result(sum);
  const bool several = tensors_.terms_of[term.sum].size() > 1;
  Compute add{term.op, splits_.on(term.op, layout)->sharding, {sum, added}, {sum}, {}, begins};
  if (program_.buffers[sum].on_host) {
    const BufferId loaded = emitter_.add_buffer(term.sum, layout, BufferKind::Temporary);
    // The next term reads what this one stores: on one stream the copies keep their order.
    emitter_.emit(home.mesh, Copy{sum, loaded}, several ? Stream::CopyOut : Stream::CopyIn);
    const BufferId total = emitter_.add_buffer(term.sum, layout, BufferKind::Temporary);
    add.inputs[0] = loaded;
    add.outputs[0] = total;
    emitter_.emit(home.mesh, std::move(add), stream);
    emitter_.store_on_host(total, sum);
    return {sum, total};
  }
  const InstructionId by = emitter_.emit(home.mesh, std::move(add), stream);
  if (several) {  // whoever reads the sum waits for all of them, in whatever order they are issued
    origins_.add_adder(sum, by);
    passages_.set_adder(by);
  }
  return {sum, sum};
}

// The terms of a micro-batch are added up as they are made, one sum per layout; with the last of this home each sum is
// reduce-scattered onto the shards that are stored.
Status GradientSums::accumulate_sharded(const OperandUse& event, const Term& term, Home& home, BufferId ready,
                                        EventCode& code) {
  const Layout made = program_.buffers[ready].layout;
  const auto so_far = std::find_if(home.terms.begin(), home.terms.end(),
                                   [&](BufferId each) { return program_.buffers[each].layout == made; });
  if (so_far == home.terms.end()) {
    home.terms.push_back(ready);
  } else {
    // In the memory of the first term, unless another operator reads that too.
    const TensorId first = program_.buffers[*so_far].tensor;
    const BufferId sum =
        graph_.uses(first).size() == 1 ? *so_far : emitter_.add_buffer(first, made, BufferKind::Temporary);
    add(term.op, *so_far, ready, sum, Stream::Compute);
    *so_far = sum;
  }
  const std::vector<TurnId>& turns = tensors_.terms_of[term.sum];
  const bool more = std::any_of(turns.begin(), turns.end(),
                                [&](TurnId turn) { return turn > event.turn && splits_.mesh_of(turn) == home.mesh; });
  if (more) return Ok{};
  Chain chain{event.turn, {}, term.parameter, {}, {}};
  position_.sink = &chain.steps;
  BufferList reduced;
  for (BufferId each : std::exchange(home.terms, {})) {
    const TensorId tensor = program_.buffers[each].tensor;
    buffers_.of(tensor) = {each};
    // DeepSpeed's stage 2 reduces in the bucket itself; units (FSDP's reduce-scatter) have a result of their own.
    const bool in_place = options_.memory.of(term.parameter).weights == 0 && graph_.uses(tensor).size() == 1;
    WEFT_TRY(const BufferId shard, buffers_.as(tensor, homes_.gradient_layout(home), {.in_place = in_place}));
    reduced.push_back(shard);
  }
  // What was reduced is added on the stream that reduced it: computation does not wait for it.
  position_.sink = chain.steps.empty() ? &code.before : &chain.then;
  const bool overlapped = options_.gradients.overlap && !homes_.offloads(Stored::Gradients, term.parameter);
  for (BufferId shard : reduced) add_to_sum(term, home, shard, overlapped ? Stream::Data : Stream::Compute);
  if (!chain.steps.empty()) emitter_.add_chain(std::move(chain), Chain::Purpose::ReduceTerm);
  return Ok{};
}

// All terms are in: the sum that takes collectives is reduced, in a bucket with others (buckets.h); sums in other
// layouts are added to it. `last`: the sum that was added to last.
Status GradientSums::reduce_sums(const Term& term, Home& home, Sum last, Chain& chain, EventCode& code) {
  const Layout wanted = homes_.step_layout(home);
  std::vector<BufferId> sums = {home.gradient};
  sums.insert(sums.end(), home.others.begin(), home.others.end());
  const auto main =
      std::find_if(sums.begin(), sums.end(), [&](BufferId each) { return is_partial(program_.buffers[each].layout); });
  if (main != sums.end()) std::rotate(sums.begin(), main, main + 1);
  if (program_.buffers[last.stored].on_host) {
    // What the step reduces is copied back from the host by the last micro-batch: its own total would have to be kept
    // until then, and so would those of the micro-batches before it, which nothing in the step frees.
    if (!options_.gradients.overlap && program_.buffers[sums.front()].layout != wanted) {
      const Layout layout = program_.buffers[last.on_device].layout;
      last.on_device = emitter_.add_buffer(term.sum, layout, BufferKind::Temporary);
      position_.sink = &code.before;
      emitter_.emit(home.mesh, Copy{last.stored, last.on_device}, Stream::CopyOut);  // after it has been stored
    }
    *std::find(sums.begin(), sums.end(), last.stored) = last.on_device;
  }
  const BufferId first = sums.front();
  position_.sink = program_.buffers[first].on_host ? &code.before : &chain.steps;
  buffers_.of(term.sum) = {first};
  WEFT_TRY(BufferId total, buffers_.as(term.sum, wanted));
  const auto in_place = [&](BufferId made) {  // in the memory of the device's own contribution
    if (program_.buffers[first].kind == BufferKind::State && !program_.buffers[first].on_host)
      program_.buffers[made].memory = program_.buffers[first].memory;
  };
  for (InstructionId step : chain.steps)
    for (BufferId made : writes_of(program_, program_.instructions[step])) in_place(made);
  for (std::size_t i = 1; i < sums.size(); ++i) {
    position_.sink = chain.steps.empty() ? &code.before : &chain.then;
    buffers_.of(term.sum) = {sums[i]};
    WEFT_TRY(const BufferId other, buffers_.as(term.sum, wanted));
    const BufferId next = emitter_.add_buffer(term.sum, wanted, BufferKind::Temporary);
    in_place(next);
    add(term.op, total, other, next, options_.gradients.overlap ? Stream::Data : Stream::Compute);
    total = next;
  }
  if (total != first) home.reduced = total;
  return Ok{};
}

void GradientSums::begin_change(GroupId group) {
  changed_terms_.clear();
  if (!sequence_.is_parameter(group)) return;
  const std::span<const OperandUse> events = sequence_.events(group);
  for (std::size_t i = 0; i < events.size(); ++i) {
    const Turn& turn = sequence_.turns()[events[i].turn];
    if (turn.kind != TurnKind::Accumulate) continue;
    const OpId maker = graph_.tensors()[graph_.inputs(turn.op)[1]].producer;
    if (!differences_.changed(turn.op) && !(maker.valid() && differences_.changed(maker))) continue;
    for (MeshId on : {group_.before->passages[i].mesh, splits_.mesh_of(events[i].turn)}) changed_terms_.push_back(on);
  }
}

bool GradientSums::gets_other_terms(MeshId home) const {
  return std::find(changed_terms_.begin(), changed_terms_.end(), home) != changed_terms_.end();
}

namespace {

bool has_sum(const Home& home, BufferId sum) {
  return home.gradient == sum || std::find(home.others.begin(), home.others.end(), sum) != home.others.end();
}

}  // namespace

bool GradientSums::stays(const OperandUse& event, const Passage& old) {
  const Term term = term_of(event);
  if (differences_.changed(term.op) || old.anew) return false;
  const OpId maker = graph_.tensors()[term.gradient].producer;
  const Home* const was = homes_.before(term.parameter, old.mesh);
  if (!was || (maker.valid() && differences_.changed(maker)) || differences_.at(term.gradient, old.mesh)) return false;
  const Home& is = homes_.of(term.parameter, old.mesh);
  if (!has_sum(is, old.result)) {
    const std::vector<Owned<BufferId>>& before = group_.before->buffers;
    std::uint32_t at = old.begin.buffer;
    while (at < old.end.buffer && before[at].id != old.result) ++at;
    if (at == old.end.buffer) return false;  // a term before this one had begun the sum
    if (homes_.sum_in(is, program_.buffers[old.result].layout).valid()) return false;
  }
  if (!term.last) return true;
  // Here the sum is reduced, unless the parameter is tied.
  const bool tied = homes_.tied(term.parameter), was_tied = group_.before->homes.at(term.parameter).size() > 1;
  return tied == was_tied && (tied || !gets_other_terms(old.mesh));
}

void GradientSums::keep(const OperandUse& event, const Passage& old) {
  const Term term = term_of(event);
  Home& is = homes_.of(term.parameter, old.mesh);
  if (!has_sum(is, old.result)) {
    is.add_sum(old.result);
    origins_.forget_adders(old.result, group_.journal);
  }
  if (old.adder.valid()) origins_.add_adder(old.result, old.adder);
  if (gets_other_terms(old.mesh)) is.fresh = true;
  if (term.last) is.reduced = homes_.before(term.parameter, old.mesh)->reduced;
}

}  // namespace weft
