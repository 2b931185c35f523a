// Lowering of what belongs to a parameter: where it is kept, how its gradient accumulates, the optimizer's work on it.
#include <algorithm>

#include "base/check.h"
#include "compile/lowering.h"
#include "compile/parameter_layout.h"

namespace weft {

Home& Lowering::home(TensorId parameter, MeshId on) {
  for (Home& each : code_->homes.at(parameter))
    if (each.mesh == on) return each;
  WEFT_CHECK(false, "{} is not kept on mesh {}", graph_.name(parameter), on.index());
}

bool Lowering::on_mesh(TensorId tensor, MeshId on) const {
  return std::any_of(available_[tensor].begin(), available_[tensor].end(),
                     [&](BufferId id) { return program_.buffers[id].layout.mesh == on; });
}

void Lowering::update_in_place(BufferId written, BufferId target) {
  program_.buffers[written].storage = program_.buffers[target].storage;
  program_.buffers[written].memory = program_.buffers[target].memory;
}

// Writes what lives on the host back to it.
BufferId Lowering::store(BufferId from, BufferId target) {
  const Buffer made = program_.buffers[from];
  const BufferId stored = add_buffer(made.tensor, made.layout, program_.buffers[target].kind, true);
  update_in_place(stored, target);
  emit(made.layout.mesh, Copy{from, stored});
  return stored;
}

// How a parameter that operators use in this layout is kept on a mesh; its gradient; its optimizer state. Each is cut
// on from the one before, so that between them only the last cuts are made or gathered.
Layout Lowering::weight_layout(TensorId parameter, const Layout& used) const {
  const ParameterStorage& storage = options_.memory.of(parameter);
  return split_over(used, mesh(used.mesh), storage.weights, storage.ratio);
}
Layout Lowering::gradient_layout(const Home& of) const {
  const TensorId parameter = program_.buffers[of.buffer].tensor;
  const ParameterStorage& storage = options_.memory.of(parameter);
  return split_over(weight_layout(parameter, of.used), mesh(of.mesh), storage.gradients, storage.ratio);
}
Layout Lowering::step_layout(const Home& of) const {
  const ParameterStorage& storage = options_.memory.of(program_.buffers[of.buffer].tensor);
  return split_over(gradient_layout(of), mesh(of.mesh), storage.optimizer, storage.ratio);
}

// Gradients accumulate in place, on each mesh for itself, in the form they are made; terms made in another form have a
// sum of their own, so that each form is reduced once, when all terms of the step are in. Where the sum is kept in
// parts (ZeRO-2, 3), the terms of one micro-batch are added up so, and what they come to is reduced every micro-batch.
Status Lowering::accumulate(const OperandUse& event, EventCode& code) {
  const OpId op = sequence_.turns()[event.turn].op;
  const TensorId gradient = graph_.inputs(op)[1], buffer = graph_.tensors()[graph_.outputs(op)[0]].storage;
  const TensorId parameter = parameter_of_[buffer];
  Home& kept = home(parameter, mesh_of(event.turn));
  kept.fresh = true;
  Layout made = plan_.made[gradient];
  made.mesh = kept.mesh;
  WEFT_TRY(const BufferId ready, as(gradient, made));
  if (options_.memory.of(parameter).gradients != 0) return accumulate_parts(event, kept, ready, code);

  BufferId total = add_to_sum(op, kept, ready);
  const bool tied = code_->homes.at(parameter).size() > 1;
  if (tied || terms_of_[buffer].back() != event.turn) return Ok{};
  Chain chain{event.turn, {}, parameter, {}, {}};
  guard_ = Guard::LastMicroBatch;
  // The last sum that was added to is still here, if it lives on the host.
  const bool on_host = program_.buffers[passage_.result].on_host;
  const Status done = reduce_sums(op, kept, on_host ? total : BufferId(), chain, code);
  guard_ = Guard::Always;
  available_[buffer].clear();
  WEFT_TRY_OK(done);
  if (!chain.steps.empty()) add_chain(std::move(chain), Chain::Purpose::ReduceSum);
  return Ok{};
}

// Adds a term to the sum of its form, on the host or here; a sum that is not there yet begins with it. Gives the total
// as it is here.
BufferId Lowering::add_to_sum(OpId op, Home& kept, BufferId term) {
  const TensorId buffer = graph_.tensors()[graph_.outputs(op)[0]].storage;
  const Layout layout = program_.buffers[term].layout;
  BufferId sum = sum_in(kept, layout);
  const bool begins = !sum.valid();
  if (begins) {
    sum = add_buffer(buffer, layout, BufferKind::State, offloads(Stored::Gradients, parameter_of_[buffer]));
    kept.add_sum(sum);
  }
  passage_.result = sum;
  Compute add{op, memo_.split_as(op, layout, mesh(layout.mesh))->sharding, {sum, term}, {sum}, {}, begins};
  if (program_.buffers[sum].on_host) {
    const BufferId loaded = add_buffer(buffer, layout, BufferKind::Temporary);
    copies_in_turn_ = terms_of_[buffer].size() > 1;  // the next term reads what this one writes
    emit(kept.mesh, Copy{sum, loaded});
    copies_in_turn_ = false;
    const BufferId total = add_buffer(buffer, layout, BufferKind::Temporary);
    add.inputs[0] = loaded;
    add.outputs[0] = total;
    emit(kept.mesh, std::move(add));
    store(total, sum);
    return total;
  }
  const InstructionId by = emit(kept.mesh, std::move(add));
  if (terms_of_[buffer].size() > 1) {  // in whatever order they are issued
    adders_[sum].push_back(by);
    passage_.adder = by;
  }
  return sum;
}

// The terms of a micro-batch are added up as they are made, each form by itself; when the last is in, each is reduced
// onto the parts that are kept.
Status Lowering::accumulate_parts(const OperandUse& event, Home& kept, BufferId ready, EventCode& code) {
  const OpId op = sequence_.turns()[event.turn].op;
  const TensorId buffer = graph_.tensors()[graph_.outputs(op)[0]].storage;
  const Layout made = program_.buffers[ready].layout;
  const auto so_far = std::find_if(kept.terms.begin(), kept.terms.end(),
                                   [&](BufferId each) { return program_.buffers[each].layout == made; });
  if (so_far == kept.terms.end()) {
    kept.terms.push_back(ready);
  } else {
    // In the memory of the first, unless somebody else reads that.
    const TensorId first = program_.buffers[*so_far].tensor;
    const BufferId sum = graph_.uses(first).size() == 1 ? *so_far : add_buffer(first, made, BufferKind::Temporary);
    emit(kept.mesh, Compute{op, memo_.split_as(op, made, mesh(made.mesh))->sharding, {*so_far, ready}, {sum}});
    *so_far = sum;
  }
  const std::vector<TurnId>& turns = terms_of_[buffer];
  const bool more = std::any_of(turns.begin(), turns.end(),
                                [&](TurnId turn) { return turn > event.turn && mesh_of(turn) == kept.mesh; });
  if (more) return Ok{};
  Chain chain{event.turn, {}, parameter_of_[buffer], {}, {}};
  sink_ = &chain.steps;
  BufferList reduced;
  for (BufferId term : std::exchange(kept.terms, {})) {
    const TensorId tensor = program_.buffers[term].tensor;
    available_[tensor] = {term};
    // DeepSpeed's stage 2 reduces in the bucket itself; units (FSDP's reduce-scatter) have a result of their own.
    in_place_ = options_.memory.of(parameter_of_[buffer]).weights == 0 && graph_.uses(tensor).size() == 1;
    const Result<BufferId> part = as(tensor, gradient_layout(kept));
    in_place_ = false;
    if (!part.ok()) return part.error();
    reduced.push_back(*part);
  }
  // What was reduced is added where it was reduced: computation does not wait for it.
  sink_ = chain.steps.empty() ? &code.before : &chain.then;
  adds_reduced_ = options_.gradients.overlap && !offloads(Stored::Gradients, parameter_of_[buffer]);
  for (BufferId part : reduced) add_to_sum(op, kept, part);
  adds_reduced_ = false;
  if (!chain.steps.empty()) add_chain(std::move(chain), Chain::Purpose::ReduceTerm);
  return Ok{};
}

BufferId Lowering::sum_in(const Home& home, const Layout& layout) const {
  if (home.gradient.valid() && program_.buffers[home.gradient].layout == layout) return home.gradient;
  for (BufferId each : home.others)
    if (program_.buffers[each].layout == layout) return each;
  return BufferId();
}

// All terms are in: the sum that takes collectives is reduced with others' (buckets.h); what has been summed in other
// forms is added to it. `here`: the last sum, off the host.
Status Lowering::reduce_sums(OpId op, Home& kept, BufferId here, Chain& chain, EventCode& code) {
  const TensorId buffer = graph_.tensors()[graph_.outputs(op)[0]].storage;
  const Layout wanted = step_layout(kept);
  std::vector<BufferId> sums = {kept.gradient};
  sums.insert(sums.end(), kept.others.begin(), kept.others.end());
  const auto main =
      std::find_if(sums.begin(), sums.end(), [&](BufferId each) { return is_partial(program_.buffers[each].layout); });
  if (main != sums.end()) std::rotate(sums.begin(), main, main + 1);
  // What the step reduces is brought back from the host by the last micro-batch: its own total would have to be kept
  // until then, and so would those of the micro-batches before it, which nothing in the step frees.
  if (here.valid() && !options_.gradients.overlap && program_.buffers[sums.front()].layout != wanted) {
    here = add_buffer(buffer, program_.buffers[here].layout, BufferKind::Temporary);
    sink_ = &code.before;
    copies_in_turn_ = true;  // after it has been stored
    emit(kept.mesh, Copy{passage_.result, here});
    copies_in_turn_ = false;
  }
  if (here.valid())
    sums[static_cast<std::size_t>(std::find(sums.begin(), sums.end(), passage_.result) - sums.begin())] = here;
  const BufferId first = sums.front();
  sink_ = program_.buffers[first].on_host ? &code.before : &chain.steps;
  available_[buffer] = {first};
  WEFT_TRY(BufferId total, as(buffer, wanted));
  const auto in_place = [&](BufferId made) {  // where the device's own contribution was, or its part of that
    if (program_.buffers[first].kind == BufferKind::State && !program_.buffers[first].on_host)
      program_.buffers[made].memory = program_.buffers[first].memory;
  };
  for (InstructionId step : chain.steps)
    for (BufferId made : writes_of(program_, program_.instructions[step])) in_place(made);
  for (std::size_t i = 1; i < sums.size(); ++i) {
    sink_ = chain.steps.empty() ? &code.before : &chain.then;
    available_[buffer] = {sums[i]};
    WEFT_TRY(const BufferId term, as(buffer, wanted));
    const BufferId next = add_buffer(buffer, wanted, BufferKind::Temporary);
    in_place(next);
    adds_reduced_ = options_.gradients.overlap;
    emit(kept.mesh, Compute{op, memo_.split_as(op, wanted, mesh(wanted.mesh))->sharding, {total, term}, {next}});
    adds_reduced_ = false;
    total = next;
  }
  if (total != first) kept.reduced = total;
  return Ok{};
}

void Lowering::add_chain(Chain chain, Chain::Purpose purpose) {
  chain.key.purpose = purpose;
  for (InstructionId id : chain.steps) {
    const Instruction& instruction = program_.instructions[id];
    const auto& step = std::get<Communicate>(instruction.what);
    chain.key.steps.emplace_back(instruction.mesh, step.collective, step.axes, step.reducer,
                                 graph_.tensors()[program_.buffers[step.inputs[0]].tensor].type.dtype);
  }
  code_->chains.push_back(std::move(chain));
}

// Parameters that are kept in parts on the device and gathered a unit at a time.
bool Lowering::gathers_in_units(TensorId tensor) const {
  return options_.memory.of(tensor).weights != 0 && !options_.parameters.unit.empty() &&
         graph_.tensors()[tensor].kind == TensorKind::Parameter && !offloads(Stored::Weights, tensor);
}

// The copies of a parameter that is kept on several meshes, and what each has of its gradient, whole on its mesh.
struct Lowering::Tie {
  std::vector<Home>& copies;
  TensorId gradient;
  OpId op;  // an addition
  std::vector<BufferId> own = {};
};

// A parameter kept on several meshes (tied embeddings, stages held twice, operators placed one by one): every copy gets
// the sum of all. Two copies exchange what they have. Of more, one collects the terms of the others, adds them up and
// sends the sum back: two transfers a copy, where an exchange takes one for every pair.
Status Lowering::sum_tied_gradients() {
  keeping_ = keeping_ && code_->homes.size() == 1 && before_->homes.size() == 1;
  for (auto& [parameter, copies] : code_->homes) {
    const bool tied = copies.size() > 1;
    if (keeping_ && tied != (before_->homes.begin()->second.size() > 1))
      for (Home& copy : copies) copy.fresh = true;
    for (Home& copy : copies) {
      copy.total = copy.others.empty() ? copy.gradient : copy.reduced;
      copy.read = copy.reduced;
    }
    if (!tied) continue;
    const TensorId gradient = gradient_of_[parameter];
    Tie tie{copies, gradient, sequence_.turns()[terms_of_[gradient].front()].op};
    for (Home& copy : copies) {
      const auto reduce = [&]() -> Result<BufferId> {
        Layout whole = program_.buffers[copy.gradient].layout;
        for (auto& reducer : whole.partial) reducer.reset();
        available_[gradient] = {copy.gradient};
        WEFT_TRY(BufferId sum, as(gradient, whole));
        for (BufferId other : copy.others) {
          available_[gradient] = {other};
          WEFT_TRY(const BufferId term, as(gradient, whole));
          const BufferId next = add_buffer(gradient, whole, BufferKind::Temporary);
          emit(copy.mesh,
               Compute{tie.op, memo_.split_as(tie.op, whole, mesh(whole.mesh))->sharding, {sum, term}, {next}});
          sum = next;
        }
        return sum;
      };
      WEFT_TRY(const BufferId own, part(copy.mesh, copy.mesh, !copy.fresh, reduce));
      copy.fresh = copy.fresh || lowered_last_;
      tie.own.push_back(own);
    }
    WEFT_TRY_OK(copies.size() == 2 ? exchange(tie) : collect(tie));
    available_[gradient].clear();
  }
  return Ok{};
}

// What one mesh or two have to do in the step, lowered or as it was.
template <class Make>
Result<BufferId> Lowering::part(MeshId a, MeshId b, bool may_stay, const Make& make) {
  const std::uint32_t number = part_of(a, b);
  lowered_last_ = true;
  if (keeping_ && may_stay)
    if (const Passage* const old = passage_before(number)) {
      keep_passage(*old);
      lowered_last_ = false;
      return old->result;
    }
  begin_passage(number, a);
  WEFT_TRY(passage_.result, make());
  end_passage();
  return passage_.result;
}

// What `held` has of the gradient, as the copy keeps it.
Result<BufferId> Lowering::bring_term(const Tie& tie, std::size_t to, BufferId held) {
  available_[tie.gradient] = {held};
  return as(tie.gradient, program_.buffers[tie.own[to]].layout);
}

void Lowering::add_term(const Tie& tie, std::size_t at, BufferId a, BufferId b, BufferId sum) {
  const Layout& layout = program_.buffers[sum].layout;
  passage_.adder = emit(tie.copies[at].mesh,
                        Compute{tie.op, memo_.split_as(tie.op, layout, mesh(layout.mesh))->sharding, {a, b}, {sum}});
}

Status Lowering::exchange(Tie& tie) {
  Home &first = tie.copies[0], &second = tie.copies[1];
  const bool stay = keeping_ && before_->homes.begin()->second.size() == 2 && !first.fresh && !second.fresh;
  for (std::size_t i = 0; i < 2; ++i) {
    const auto make = [&]() -> Result<BufferId> {
      WEFT_TRY(const BufferId term, bring_term(tie, i, tie.own[1 - i]));
      const BufferId sum = add_buffer(tie.gradient, program_.buffers[tie.own[i]].layout, BufferKind::Temporary);
      add_term(tie, i, tie.own[i], term, sum);
      return sum;
    };
    WEFT_TRY(tie.copies[i].total, part(tie.copies[i].mesh, tie.copies[1 - i].mesh, stay, make));
    tie.copies[i].fresh = tie.copies[i].fresh || lowered_last_;
  }
  return Ok{};
}

Status Lowering::collect(Tie& tie) {
  std::vector<Home>& copies = tie.copies;
  // On the most devices, where the sum is near to all.
  std::size_t at = 0;
  for (std::size_t i = 1; i < copies.size(); ++i)
    if (mesh(copies[i].mesh).size() > mesh(copies[at].mesh).size()) at = i;
  const bool same_collector = keeping_ && before_->collector == copies[at].mesh;
  if (before_ && before_->total.valid()) remember_origin(before_->total);
  BufferId total;
  InstructionId summed;
  for (std::size_t i = 0; i < copies.size(); ++i) {
    if (i == at) continue;
    const bool begins = !total.valid();
    const auto make = [&]() -> Result<BufferId> {
      WEFT_TRY(const BufferId term, bring_term(tie, at, tie.own[i]));
      const BufferId so_far = begins ? tie.own[at] : total;
      if (begins) total = add_buffer(tie.gradient, program_.buffers[so_far].layout, BufferKind::Temporary);
      add_term(tie, at, so_far, term, total);
      return total;
    };
    const bool may_stay = same_collector && !copies[i].fresh &&
                          (begins ? !copies[at].fresh && before_->first_term == copies[i].mesh
                                  : total == before_->total && before_->first_term != copies[i].mesh);
    WEFT_TRY(total, part(copies[at].mesh, copies[i].mesh, may_stay, make));
    summed = lowered_last_ ? passage_.adder : code_->passages.back().adder;
    if (begins) code_->first_term = copies[i].mesh;
  }
  writer_[total] = summed;
  const bool same_sum = same_collector && total == before_->total && summed == before_->summed;
  copies[at].total = total;
  copies[at].fresh = copies[at].fresh || !same_sum;
  for (std::size_t i = 0; i < copies.size(); ++i) {
    if (i == at) continue;
    const auto make = [&] { return bring_term(tie, i, total); };
    WEFT_TRY(copies[i].total, part(copies[i].mesh, copies[at].mesh, same_sum && !copies[i].fresh, make));
    copies[i].fresh = copies[i].fresh || lowered_last_;
  }
  code_->collector = copies[at].mesh;
  code_->total = total;
  code_->summed = summed;
  return Ok{};
}

// Optimizer operators run on every mesh that keeps the parameter, on the layout of its optimizer state.
Status Lowering::optimize(const OperandUse& event) {
  const OpId op = sequence_.turns()[event.turn].op;
  const OpKind kind = graph_.kind(op);
  std::vector<Home>& copies = code_->homes.at(optimized_by_[op]);
  const bool counts_once = kind == OpKind::SumSquares || kind == OpKind::NonFinite;
  if (counts_once && keeping_ && before_->homes.begin()->second.front().mesh != copies.front().mesh)
    for (Home& copy : copies) copy.fresh = true;  // what the one that counts has reduced, later operators read
  for (Home& copy : copies) {
    if (counts_once && &copy != &copies.front()) continue;
    const auto make = [&]() -> Result<BufferId> {
      WEFT_TRY_OK(optimize_copy(event.turn, step_layout(copy), copy));
      return BufferId();
    };
    WEFT_TRY(const BufferId nothing, part(copy.mesh, MeshId(), !copy.fresh, make));
    static_cast<void>(nothing);
    copy.fresh = copy.fresh || lowered_last_;
  }
  return Ok{};
}

Status Lowering::optimize_copy(TurnId turn, const Layout& layout, Home& copy) {
  const OpId op = sequence_.turns()[turn].op;
  const Signature& signature = graph_.signature(op);
  const auto inputs = graph_.inputs(op), outputs = graph_.outputs(op);
  const GroupId own = sequence_.group_of(inputs.front(), 0);
  const std::shared_ptr<const SplitOp> split = memo_.split_as(op, layout, mesh(layout.mesh));
  Compute compute{op, split->sharding, {}, {}};
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (sequence_.group_of(inputs[i], 0) != own) {  // a scalar that everybody has; written in when it is known
      compute.inputs.push_back(BufferId());
      continue;
    }
    const Tensor& tensor = graph_.tensors()[inputs[i]];
    const Layout& wanted = split->inputs[i];
    const bool gradient = parameter_of_[tensor.storage].valid();
    if (gradient) {  // the accumulated gradient of this copy
      available_[inputs[i]] = {copy.total};
      if (copy.read.valid()) available_[inputs[i]].push_back(copy.read);
    } else if (tensor.kind == TensorKind::State && !tensor.producer.valid() && !on_mesh(inputs[i], layout.mesh)) {
      const BufferId state = keep(inputs[i], wanted, BufferKind::State);
      program_.buffers[state].on_host = offloads(Stored::Optimizer, optimized_by_[op]);
    }
    WEFT_TRY(const BufferId input, as(inputs[i], wanted));
    if (gradient) {
      copy.read = input;
      available_[inputs[i]].clear();
    }
    compute.inputs.push_back(input);
  }
  for (std::size_t i = 0; i < outputs.size(); ++i)
    compute.outputs.push_back(keep(outputs[i], split->outputs[i], BufferKind::Temporary));
  const BufferList made = compute.outputs;
  // States are updated in their own memory, and so is the part of a parameter that the device updates.
  BufferList kept(outputs.size());
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const int aliased = signature.outputs[i].aliases;
    if (aliased < 0) continue;
    const TensorId target = inputs[static_cast<std::size_t>(aliased)];
    if (graph_.tensors()[target].kind == TensorKind::Parameter) {
      if (!program_.buffers[copy.buffer].on_host)
        program_.buffers[made[i]].memory = program_.buffers[copy.buffer].memory;
      continue;
    }
    for (BufferId id : available_[target])
      if (program_.buffers[id].kind == BufferKind::State && program_.buffers[id].layout.mesh == layout.mesh)
        kept[i] = id;
    WEFT_CHECK(kept[i].valid(), "{} is not kept", graph_.name(target));
    if (program_.buffers[kept[i]].on_host) continue;
    program_.buffers[made[i]].kind = BufferKind::State;
    update_in_place(made[i], kept[i]);
  }
  emit(layout.mesh, std::move(compute));
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const int aliased = signature.outputs[i].aliases;
    if (aliased < 0) continue;
    if (kept[i].valid()) {
      if (program_.buffers[kept[i]].on_host) store(made[i], kept[i]);
      continue;
    }
    // The parameter goes back to how it is kept.
    available_[outputs[i]] = {made[i]};
    Chain chain{turn, {}, outputs[i], {}, {}};
    InstructionList* const before = std::exchange(sink_, &chain.steps);
    const Result<BufferId> gathered = as(outputs[i], program_.buffers[copy.buffer].layout);
    sink_ = before;
    if (!gathered.ok()) return gathered.error();
    const BufferId whole = *gathered;
    if (program_.buffers[copy.buffer].on_host)
      sink_->append(chain.steps.begin(), chain.steps.end());
    else if (!chain.steps.empty())
      add_chain(std::move(chain), Chain::Purpose::Publish);
    if (program_.buffers[copy.buffer].on_host) {
      store(whole, copy.buffer);
      continue;
    }
    update_in_place(whole, copy.buffer);
    program_.buffers[whole].kind = BufferKind::Parameter;
  }
  return Ok{};
}

}  // namespace weft
