// An executor's preparation, the values it holds, and the loop over its instructions.
#include "run/executor.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <sched.h>

#include <algorithm>
#include <set>

#include "base/check.h"
#include "program/issue_order.h"
#include "program/rank_classes.h"
#include "program/verify.h"
#include "run/device.h"
#include "run/kernel.h"
#include "run/player.h"

namespace weft::runtime {

Status check_kernels(const Graph& graph, Numbers numbers) {
  for (OpId op : graph.ops().ids())
    if (!kernel_for(graph.signature(op)))
      return error("{}: there is no kernel for {}; the plan cannot be run", graph.name(op), name_of(graph.kind(op)));
  for (TensorId id : graph.tensors().ids())
    if (!stored_type(graph.tensors()[id].type.dtype, numbers))
      return error("{}: {} cannot be stored here; choose another --dtype", graph.name(id),
                   name_of(graph.tensors()[id].type.dtype));
  return Ok{};
}

Executor::Executor(std::unique_ptr<Player> player) : player_(std::move(player)) {}
Executor::~Executor() = default;

Result<std::unique_ptr<Executor>> Executor::make(const Bundle& bundle, int device, const Rendezvous& rendezvous,
                                                 LeafValues values, ExecutorOptions options) {
  WEFT_TRY_OK(check_kernels(bundle.graph, bundle.numbers));
  auto player = std::make_unique<Player>(bundle, device, std::move(values), std::move(options));
  WEFT_TRY_OK(player->prepare());
  try {
    player->meet(rendezvous);
  } catch (const std::exception& problem) {
    return error("meeting the other ranks: {}", std::string_view(problem.what()).substr(0, 400));
  }
  return std::unique_ptr<Executor>(new Executor(std::move(player)));
}

namespace {

// The first line of what libtorch says; the rest is a stack of its own calls.
std::string first_line(const std::exception& problem) {
  const std::string what = problem.what();
  return what.substr(0, what.find('\n'));
}

}  // namespace

Status Executor::load() {
  try {
    player_->load();
    return Ok{};
  } catch (const std::exception& problem) {
    return error("the samples of a step: {}", first_line(problem));
  }
}

Status Executor::step(const StepNumbers& numbers) {
  try {
    player_->step(numbers);
    return Ok{};
  } catch (const std::exception& problem) {
    return error("{}: {}", player_->where(), first_line(problem));
  }
}

std::optional<double> Executor::result(TensorId tensor) const { return player_->result(tensor); }

const RankTimeline& Executor::timeline() const { return player_->timeline(); }

Result<std::optional<WholeTensor>> Executor::gather(BufferId buffer) {
  try {
    return player_->gather(buffer);
  } catch (const std::exception& problem) {
    return error("gathering b{}: {}", buffer.index(), first_line(problem));
  }
}

Executor::Player::Player(const Bundle& bundle, int device, LeafValues values, ExecutorOptions options)
    : bundle_(bundle),
      device_(device),
      values_(std::move(values)),
      options_(std::move(options)),
      views_(bundle.program.buffers.size()),
      held_(bundle.program.buffers.size()),
      step_(options_.steps_done - 1) {
  const auto add = [&](const Program& program, const Graph& graph) {
    variants_.push_back({program, graph, IdVec<InstructionId, Planned>(program.instructions.size()),
                         IdVec<InstructionId, char>(program.instructions.size(), 0)});
  };
  add(bundle.program, bundle.graph);
  if (bundle.last) add(bundle.last->program, bundle.last->graph);
}

Status Executor::Player::prepare() {
  const Program& program = bundle_.program;
  const DeviceId self(static_cast<std::size_t>(device_));
  for (Variant& each : variants_)
    for (InstructionId id : each.program.instructions.ids())
      if (each.program.meshes[each.program.instructions[id].mesh].position_of(self) >= 0) {
        each.plays[id] = 1;
        WEFT_TRY_OK(plan_instruction(each, id));
      }

  // What it issues in a step, in order.
  WEFT_TRY(const std::vector<RankClass> classes, rank_classes(program, bundle_.schedule));
  std::int32_t rank = -1;
  for (const RankClass& each : classes)
    if (std::find(each.devices.begin(), each.devices.end(), self) != each.devices.end()) rank = each.rank;
  const auto issue = [&](const IssuedBody& body) {
    for (InstructionId id : body_at(program, body.body))
      if (variants_[0].plays[id] && (body.action == IssuedBody::kStep || plays(body, program.instructions[id])))
        order_.push_back({id, body.micro_batch, body.micro_batch == body.visits.first});
  };
  const auto issued = issue_order(program, bundle_.schedule);
  for (const IssuedBody& body : issued[static_cast<std::size_t>(std::max(rank, 0))])
    if (rank >= 0 || body.action == IssuedBody::kStep) issue(body);
  recorder_.emplace(device_, order_.size(), static_cast<std::size_t>(options_.recorded_steps));

  // What is given anew with every step, or zero when it begins.
  std::set<TensorId> sums;
  for (OpId op : bundle_.graph.ops().ids())
    if (bundle_.graph.kind(op) == OpKind::Accumulate || bundle_.graph.kind(op) == OpKind::AccumulateLoss)
      sums.insert(bundle_.graph.tensors()[bundle_.graph.inputs(op)[0]].storage);
  for (BufferId id : program.buffers.ids()) {
    const Buffer& each = program.buffers[id];
    if (each.storage != id) continue;
    if (each.kind == BufferKind::Scalar || each.kind == BufferKind::Result ||
        (each.kind == BufferKind::State && sums.contains(bundle_.graph.tensors()[each.tensor].storage)))
      cleared_.push_back(id);
    views_[each.memory].push_back(id);
  }
  return Ok{};
}

Status Executor::Player::plan_instruction(Variant& variant, InstructionId id) {
  const Program& program = variant.program;
  const Instruction& instruction = program.instructions[id];
  const Mesh& mesh = program.meshes[instruction.mesh];
  const int position = mesh.position_of(DeviceId(static_cast<std::size_t>(device_)));
  Planned& planned = variant.planned[id];
  if (const auto* compute = std::get_if<Compute>(&instruction.what)) {
    const Signature& signature = variant.graph.signature(compute->op);
    PlannedCompute plan{&signature, axis_slices(signature, compute->sharding, mesh, position)};
    const auto touches = [&](const Operand& operand, BufferId of) -> std::optional<PlannedCompute::Touched> {
      if (std::none_of(operand.dims.begin(), operand.dims.end(), [](const DimIndex& dim) { return dim.windowed(); }))
        return std::nullopt;
      const Region held = region_of(program.buffers[of].layout, mesh, position),
                   part = touched(signature, operand, plan.slices);
      if (held == part) return std::nullopt;
      return PlannedCompute::Touched{runs_of(part, held), part.shape(), held.shape()};
    };
    for (std::size_t i = 0; i < signature.inputs.size(); ++i)
      plan.inputs.push_back(touches(signature.inputs[i], compute->inputs[i]));
    for (std::size_t i = 0; i < signature.outputs.size(); ++i)
      plan.outputs.push_back(touches(signature.outputs[i], compute->outputs[i]));
    planned = std::move(plan);
  } else if (const auto* communicate = std::get_if<Communicate>(&instruction.what)) {
    if (communicate->wire && !stored_type(*communicate->wire, bundle_.numbers))
      return error("{}: {} cannot be sent here", described(program, variant.graph, id), name_of(*communicate->wire));
    const GroupKey group = group_of(instruction, *communicate, mesh, position);
    const bool reduces = communicate->collective == Collective::AllReduce ||
                         (communicate->collective == Collective::ReduceScatter && communicate->reducer != Reducer::Sum);
    if (communicate->collective == Collective::AllReduce) {
      planned = PlannedReduce{group, {}};
    } else if (reduces) {
      Communicate slice = *communicate;
      slice.collective = Collective::Slice;
      planned = PlannedReduce{group, exchange_of(program, slice, mesh, position)};
    } else {
      PlannedExchange exchange{exchange_of(program, *communicate, mesh, position), group, {}, {}};
      planned = std::move(exchange);
      auto& kept = std::get<PlannedExchange>(planned);  // lanes point into it
      kept.sent = lane_of(variant, *communicate, kept.exchange.sent, group);
      kept.received = lane_of(variant, *communicate, kept.exchange.received, group);
    }
  } else if (std::holds_alternative<Send>(instruction.what) || std::holds_alternative<Receive>(instruction.what)) {
    const auto* send = std::get_if<Send>(&instruction.what);
    const TransferId transfer = send ? send->transfer : std::get<Receive>(instruction.what).transfer;
    PlannedTransfer moves{exchange_of(program, program.transfers[transfer], device_), {}};
    for (const Part& part : send ? moves.exchange.sent : moves.exchange.received)
      moves.pairs.push_back(pair_of(program, transfer, send ? device_ : part.device, send ? part.device : device_));
    planned = std::move(moves);
  }
  return Ok{};
}

at::ScalarType Executor::Player::type_of(const Variant& variant, BufferId id) const {
  return *stored_type(variant.graph.tensors()[variant.program.buffers[id].tensor].type.dtype, bundle_.numbers);
}

at::ScalarType Executor::Player::sent_type_of(const Variant& variant, const Communicate& communicate,
                                              BufferId id) const {
  const DType type = sent_type(variant.program, variant.graph, communicate, id);
  return *stored_type(type, bundle_.numbers);
}

Lane Executor::Player::lane_of(const Variant& variant, const Communicate& communicate, const std::vector<Part>& parts,
                               const GroupKey& group) const {
  Lane lane{{}, std::vector<std::int64_t>(group.devices.size(), 0), 0};
  for (const Part& part : parts) {
    const at::ScalarType type = sent_type_of(variant, communicate, communicate.inputs[part.buffer]);
    std::int64_t elements = 1;
    for (std::int64_t extent : part.shape) elements *= extent;
    const std::int64_t bytes = elements * static_cast<std::int64_t>(c10::elementSize(type));
    lane.pieces.push_back({&part, lane.bytes, bytes, type});
    const auto member = std::lower_bound(group.devices.begin(), group.devices.end(), part.device);
    const std::int64_t padded = (bytes + 7) / 8 * 8;
    lane.counts[static_cast<std::size_t>(member - group.devices.begin())] += padded;
    lane.bytes += padded;
  }
  return lane;
}

void Executor::Player::meet(const Rendezvous& rendezvous) {
  communicator_ = std::make_unique<Communicator>(rendezvous, device_, groups_of(bundle_.program), options_.timeout,
                                                 options_.backend);
}

const Executor::Player::Variant& Executor::Player::variant() const {
  const bool last = variants_.size() > 1 && at_.micro_batch + 1 == bundle_.schedule.micro_batches;
  return variants_[last ? 1 : 0];
}

std::string Executor::Player::where() const {
  if (!at_.instruction.valid()) return fmt::format("step {}", step_ + 1);
  return fmt::format("step {}, micro-batch {}, {}{}", step_ + 1, at_.micro_batch, waiting_ ? "waiting for " : "",
                     described(program(), graph(), at_.instruction));
}

Executor::Player::Held* Executor::Player::find(BufferId id) {
  const BufferId storage = buffer(id).storage;
  const std::int32_t micro_batch = outlives_micro_batches(buffer(storage).kind) ? -1 : at_.micro_batch;
  for (Held& held : held_[storage])
    if (held.micro_batch == micro_batch) return &held;
  return nullptr;
}

Tensor Executor::Player::read(BufferId id) {
  if (Held* held = find(id)) {
    if (held->from) {
      const Flight flight = held->from;
      complete(flight);
      if (recording_) recording_->begin_again();
      held = find(id);
    }
    return held->tensor;
  }
  const Buffer& of = buffer(id);
  WEFT_CHECK(of.kind == BufferKind::Input || of.kind == BufferKind::Scalar || of.kind == BufferKind::Parameter ||
                 of.kind == BufferKind::State,
             "b{} of {} is read before it is written", id.index(), graph().name(of.tensor));
  const at::ScalarType type = type_of(variant(), id);
  const weft::Tensor& tensor = graph().tensors()[of.tensor];
  if (of.kind == BufferKind::Scalar) {
    const double value = tensor.name == "step"            ? numbers_.step
                         : tensor.name == "learning_rate" ? numbers_.learning_rate
                                                          : numbers_.loss_scale;
    write(id, at::zeros({}, at::TensorOptions(type)).fill_(value));
  } else {
    const Mesh& mesh = program().meshes[of.layout.mesh];
    const Region part = region_of(of.layout, mesh, mesh.position_of(DeviceId(static_cast<std::size_t>(device_))));
    const bool given = of.kind == BufferKind::Input;
    write(id, leaf_tensor(values_, tensor.storage, given ? step_ : 0, given ? at_.micro_batch : 0, part, type)
                  .to(options_.tensors_on));
  }
  return find(id)->tensor;
}

void Executor::Player::write(BufferId id, const Tensor& tensor) {
  if (Held* held = find(id)) {
    if (held->from) {
      const Flight flight = held->from;
      complete(flight);
      held = find(id);
    }
    held->tensor = tensor;
    held->from = {};
    return;
  }
  const BufferId storage = buffer(id).storage;
  held_[storage].push_back({outlives_micro_batches(buffer(storage).kind) ? -1 : at_.micro_batch, tensor, {}});
}

void Executor::Player::write_later(BufferId id, const Flight& flight) {
  if (!flight) return;
  write(id, {});
  find(id)->from = flight;
}

void Executor::Player::complete(const Flight& flight) {
  if (flight->done) return;
  const Played before = at_;
  at_ = {flight->instruction, flight->micro_batch, false};
  waiting_ = true;
  if (options_.progress) options_.progress({step_, at_.micro_batch, at_.instruction, true});
  if (recording_) recording_->begin_wait(flight->issue);
  for (const std::unique_ptr<Work>& work : flight->works) work->wait();
  waiting_ = false;
  flight->done = true;
  if (recording_) recording_->end_wait(*std::max_element(flight->completed.begin(), flight->completed.end()));
  if (flight->finish) flight->finish();
  if (recording_) recording_->unpacked();
  flight->works.clear();
  flight->finish = {};
  in_flight_.remove(flight);
  at_ = before;
}

void Executor::Player::complete_all() {
  while (!in_flight_.empty()) {
    const Flight first = in_flight_.front();
    complete(first);
  }
}

Executor::Player::Flight Executor::Player::launch(std::vector<std::unique_ptr<Work>> works,
                                                  std::function<void()> finish) {
  const auto flight = std::make_shared<InFlight>();
  flight->instruction = at_.instruction;
  flight->micro_batch = at_.micro_batch;
  flight->works = std::move(works);
  flight->finish = std::move(finish);
  if (recording_) {
    flight->issue = recording_->issue();
    flight->completed.assign(flight->works.size(), 0);
    for (std::size_t i = 0; i < flight->works.size(); ++i)
      flight->works[i]->when_complete([flight, i] { flight->completed[i] = clock_now(); });
  }
  in_flight_.push_back(flight);
  return flight;
}

void Executor::Player::load() {
  if (loaded_) return;
  ++step_;
  for (BufferId id : cleared_) held_[id].clear();
  std::set<std::pair<BufferId, std::int32_t>> seen;
  for (const Played& played : order_) {
    at_ = played;
    if (const auto* compute = std::get_if<Compute>(&program().instructions[played.instruction].what))
      for (BufferId input : compute->inputs)
        if (buffer(input).kind == BufferKind::Input && seen.emplace(input, played.micro_batch).second) read(input);
  }
  at_ = {};
  if (recorder_->wants_more()) compare_clocks();
  loaded_ = true;
}

void Executor::Player::step(const StepNumbers& numbers) {
  numbers_ = numbers;
  at_ = {};
  load();
  loaded_ = false;
  if (recorder_->wants_more()) {
    restart_peak(options_.tensors_on);
    recording_ = &*recorder_;
    recording_->begin_step(step_, clock_);
  }
  play_all();
  finish(options_.tensors_on);
  if (recording_) std::exchange(recording_, nullptr)->end_step(memory_of(options_.tensors_on).peak);
  for (BufferId id : held_.ids())
    for (const Held& held : held_[id])
      WEFT_CHECK(held.micro_batch < 0 || outlives_micro_batches(buffer(buffer(id).memory).kind),
                 "b{} of {} is never freed", id.index(), graph().name(buffer(id).tensor));
}

void Executor::Player::play_all() {
  for (const Played& played : order_) {
    at_ = played;
    if (options_.progress) options_.progress({step_, played.micro_batch, played.instruction, false});
    play(played);
    if (recording_) recording_->end(memory_of(options_.tensors_on).held);
    if (!options_.overlaps && !in_flight_.empty()) give_way();
  }
  complete_all();
}

// The other half of a send may come later, so nobody waits for it: what carries it gets the core for a moment.
void Executor::Player::give_way() {
  const Flight last = in_flight_.back();
  const bool just_issued = last->instruction == at_.instruction && last->micro_batch == at_.micro_batch;
  if (just_issued && !std::holds_alternative<Send>(program().instructions[at_.instruction].what))
    complete(last);
  else
    ::sched_yield();
}

// Computing is done when it is issued; only communication can be on its way still. The host may wait for what has all
// its halves before this place in the order of all ranks: collectives and receives. The other half of a send may come
// after it, so nobody waits for a send but a Wait, which has both halves before it; that costs nothing, as a send takes a
// copy. A free waits for nothing: what is on its way holds its own memory.
void Executor::Player::wait_for_earlier(const Instruction& instruction) {
  if (std::holds_alternative<Free>(instruction.what)) return;
  for (InstructionId before : instruction.after) {
    if (std::holds_alternative<Send>(program().instructions[before].what) &&
        !std::holds_alternative<Wait>(instruction.what))
      continue;
    const auto found = std::find_if(in_flight_.begin(), in_flight_.end(), [&](const Flight& flight) {
      return flight->instruction == before && flight->micro_batch == at_.micro_batch;
    });
    if (found != in_flight_.end()) complete(Flight(*found));
  }
}

void Executor::Player::play(const Played& played) {
  const Instruction& instruction = program().instructions[played.instruction];
  const Planned& planned = variant().planned[played.instruction];
  if (!in_flight_.empty()) wait_for_earlier(instruction);
  if (recording_) recording_->begin(played.instruction, played.micro_batch);
  if (const auto* compute = std::get_if<Compute>(&instruction.what)) {
    play_compute(*compute, std::get<PlannedCompute>(planned), played.first);
  } else if (const auto* communicate = std::get_if<Communicate>(&instruction.what)) {
    if (const auto* reduce = std::get_if<PlannedReduce>(&planned))
      play_reduce(*communicate, *reduce);
    else
      play_exchange(*communicate, std::get<PlannedExchange>(planned));
  } else if (const auto* send = std::get_if<Send>(&instruction.what)) {
    play_send(send->transfer, std::get<PlannedTransfer>(planned));
  } else if (const auto* receive = std::get_if<Receive>(&instruction.what)) {
    play_receive(receive->transfer, std::get<PlannedTransfer>(planned));
  } else if (const auto* sums = std::get_if<SumScalars>(&instruction.what)) {
    play_sum(*sums);
  } else if (const auto* combine = std::get_if<weft::Combine>(&instruction.what)) {
    play_combine(*combine);
  } else if (const auto* copy = std::get_if<Copy>(&instruction.what)) {
    const Tensor from = read(copy->from);
    const bool to_host = buffer(copy->to).on_host;
    const Tensor to = at::empty(
        from.sizes(), to_host ? at::TensorOptions(from.scalar_type()).pinned_memory(options_.tensors_on.is_cuda())
                              : made_of(from.scalar_type()));
    write(copy->to, to.copy_(from));
  } else if (const auto* free = std::get_if<Free>(&instruction.what)) {
    play_free(free->buffer);
  }
}

void Executor::Player::play_compute(const Compute& compute, const PlannedCompute& planned, bool first) {
  const Signature& signature = *planned.signature;
  if (compute.begins && first) {
    write(compute.outputs[0], read(compute.inputs[1]).to(type_of(variant(), compute.outputs[0]), false, true));
    return;
  }
  std::vector<Tensor> inputs;
  inputs.reserve(compute.inputs.size());
  for (std::size_t i = 0; i < compute.inputs.size(); ++i) {
    inputs.push_back(read(compute.inputs[i]));
    if (const auto& part = planned.inputs[i]) inputs[i] = taken(inputs[i], part->runs, part->shape);
  }
  // Kernels of operators that update an input write into it; a program may want the old value besides.
  for (std::size_t i = 0; i < signature.outputs.size(); ++i)
    if (const int aliased = signature.outputs[i].aliases; aliased >= 0 && training_kernel(signature.kind))
      if (const auto input = static_cast<std::size_t>(aliased);
          buffer(compute.outputs[i]).storage != buffer(compute.inputs[input]).storage)
        inputs[input] = inputs[input].clone();
  std::uint64_t salt = 0;
  if (options_.mask_seed) salt = mask_salt(*options_.mask_seed, bundle_.graph, compute.op, step_, at_.micro_batch);
  std::vector<Tensor> outputs = runtime::compute(signature, planned.slices, inputs, salt, bundle_.numbers);
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (const auto& part = planned.outputs[i]) {
      const Tensor whole = at::zeros(part->held, outputs[i].options());
      copy_in(whole, part->runs, outputs[i]);
      outputs[i] = whole;
    }
    // A view is one where the program knows it as one: others may be freed or updated by themselves.
    for (std::size_t j = 0; j < inputs.size(); ++j)
      if (buffer(compute.outputs[i]).memory != buffer(compute.inputs[j]).memory && outputs[i].is_alias_of(inputs[j])) {
        outputs[i] = outputs[i].clone();
        break;
      }
    write(compute.outputs[i], outputs[i]);
  }
}

void Executor::Player::play_free(BufferId freed) {
  for (BufferId storage : views_[freed]) {
    if (Held* held = find(storage); held && held->from) complete(Flight(held->from));
    std::erase_if(held_[storage], [&](const Held& held) { return held.micro_batch == at_.micro_batch; });
  }
}

std::optional<double> Executor::Player::result(TensorId tensor) {
  for (BufferId id : bundle_.program.buffers.ids())
    if (const Buffer& each = bundle_.program.buffers[id];
        each.kind == BufferKind::Result && each.tensor == tensor && each.storage == id && !held_[id].empty())
      return held_[id].front().tensor.item().toDouble();
  return std::nullopt;
}

}  // namespace weft::runtime
