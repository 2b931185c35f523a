#include "reference/interpreter.h"

#include <cmath>
#include <limits>
#include <set>
#include <stdexcept>

#include "program/issue_order.h"
#include "reference/kernels.h"
#include "reference/rounding.h"

namespace weft::reference {
namespace {

std::vector<std::int64_t> positions_in(const std::vector<Range>& ranges) {
  std::vector<std::int64_t> list;
  for (const Range& range : ranges)
    for (std::int64_t at = range.begin; at < range.end; ++at) list.push_back(at);
  return list;
}

// Factors of a product are the inputs that have an axis it sums over.
void round_factors(const Signature& signature, Arithmetic to, std::vector<Block>& inputs) {
  AxisSet kept;
  for (const Operand& output : signature.outputs) kept = kept | output.axes();
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    bool factor = false;
    for (const AxisSet& product : signature.contractions)
      for (int axis = 0; axis < static_cast<int>(signature.axes.size()); ++axis)
        factor =
            factor || (signature.inputs[i].axes().contains(axis) && product.contains(axis) && !kept.contains(axis));
    if (!factor) continue;
    for (double& value : inputs[i].values()) value = rounded(value, to);
  }
}

}  // namespace

std::vector<Block> parts_of(const Layout& layout, const Mesh& mesh) {
  std::vector<Block> parts;
  for (int position = 0; position < mesh.size(); ++position) {
    std::vector<std::pair<std::int64_t, std::vector<std::int64_t>>> dims;
    for (const DimLayout& dim : layout.dims) {
      std::int64_t extent = 1;
      for (const Factor& factor : dim) extent *= factor.size;
      dims.emplace_back(extent, positions_in(held_ranges(dim, mesh, position)));
    }
    parts.emplace_back(std::move(dims));
  }
  return parts;
}

Interpreter::Slot Interpreter::slot(BufferId id) const {
  const BufferId storage = program().buffers[id].storage;
  const BufferKind kind = program().buffers[storage].kind;
  return {storage, outlives_micro_batches(kind) ? -1 : micro_batch_};
}

const std::vector<Block>& Interpreter::read(BufferId id) {
  const Buffer& buffer = program().buffers[id];
  const auto found = values_.find(slot(id));
  if (found != values_.end()) return found->second;
  if (buffer.kind == BufferKind::Saved || buffer.kind == BufferKind::Temporary || buffer.kind == BufferKind::Result)
    throw std::runtime_error("buffer " + std::to_string(id.index()) + " of " + graph().name(buffer.tensor) +
                             " is read before it is written");
  std::vector<Block> parts = parts_of(buffer.layout, program().meshes[buffer.layout.mesh]);
  const Block value = leaf_(buffer.tensor, micro_batch_);
  for (Block& part : parts) part.copy_from(value);
  if (begun_.contains(buffer.storage))
    for (Block& part : parts)
      for (double& each : part.values()) each = std::numeric_limits<double>::quiet_NaN();
  return values_[slot(id)] = std::move(parts);
}

void Interpreter::write(BufferId id, std::vector<Block> parts) {
  const Buffer& buffer = program().buffers[id];
  const std::vector<Block> expected = parts_of(buffer.layout, program().meshes[buffer.layout.mesh]);
  for (std::size_t i = 0; i < parts.size(); ++i)
    if (parts[i].held() != expected[i].held())
      throw std::runtime_error("buffer of " + graph().name(buffer.tensor) + " is not laid out as the program says: " +
                               print(buffer.layout, program().meshes[buffer.layout.mesh]));
  values_[slot(id)] = std::move(parts);
}

void Interpreter::compute(const Compute& compute, const Mesh& mesh) {
  const Signature& signature = graph().signature(compute.op);
  std::vector<std::vector<Block>> outputs(compute.outputs.size());
  for (int position = 0; position < mesh.size(); ++position) {
    const AxisSlices slices = axis_slices(signature, compute.sharding, mesh, position);
    std::vector<Block> inputs, made;
    for (BufferId input : compute.inputs) {
      const Mesh& there = program().meshes[program().buffers[input].layout.mesh];  // the world's, for some scalars
      const int at = &there == &mesh ? position : there.position_of(mesh.devices()[static_cast<std::size_t>(position)]);
      inputs.push_back(read(input)[static_cast<std::size_t>(at)]);
    }
    for (const Operand& output : signature.outputs) made.emplace_back(signature, output, slices);
    if (rounds_ && compute.products) round_factors(signature, *compute.products, inputs);
    if (compute.begins && first_)
      made[0].copy_from(inputs[1]);
    else
      run_kernel(signature, slices, inputs, made);
    for (std::size_t i = 0; i < made.size(); ++i) outputs[i].push_back(std::move(made[i]));
  }
  for (std::size_t i = 0; i < outputs.size(); ++i) write(compute.outputs[i], std::move(outputs[i]));
}

// y[b,q,h.d] of every shard, weighted by exp(lse[b,h,q]).
void Interpreter::softmax_merge(const Communicate& communicate, const Mesh& mesh) {
  const std::vector<Block> values = read(communicate.inputs[0]), weights = read(communicate.inputs[1]);
  const std::int64_t heads = graph().tensors()[program().buffers[communicate.inputs[1]].tensor].type.shape[1];
  const std::int64_t size = graph().tensors()[program().buffers[communicate.inputs[0]].tensor].type.shape[2] / heads;
  std::vector<Block> out = parts_of(program().buffers[communicate.outputs[0]].layout, mesh);
  for (int position = 0; position < mesh.size(); ++position)
    out[static_cast<std::size_t>(position)].for_each([&](const std::vector<std::int64_t>& at, std::size_t offset) {
      double total = 0, sum = 0;
      for (int member : mesh.group(position, communicate.axes)) {
        const double weight = std::exp(weights[static_cast<std::size_t>(member)].at({at[0], at[2] / size, at[1]}));
        total += weight;
        sum += weight * values[static_cast<std::size_t>(member)].at(at);
      }
      out[static_cast<std::size_t>(position)].values()[offset] = total > 0 ? sum / total : 0.0;
    });
  write(communicate.outputs[0], std::move(out));
}

void Interpreter::communicate(const Communicate& communicate, const Mesh& mesh) {
  if (communicate.reducer == Reducer::SoftmaxMerge) return softmax_merge(communicate, mesh);
  if (communicate.collective == Collective::AllGather ||
      (communicate.collective == Collective::ReduceScatter && communicate.reducer == Reducer::Sum))
    return gather_or_scatter(communicate, mesh);
  for (std::size_t b = 0; b < communicate.inputs.size(); ++b) {
    const std::vector<Block>& in = read(communicate.inputs[b]);
    std::vector<Block> out = parts_of(program().buffers[communicate.outputs[b]].layout, mesh);
    const bool reduces =
        communicate.collective == Collective::AllReduce || communicate.collective == Collective::ReduceScatter;
    const bool sums = reduces || communicate.collective == Collective::HaloSum;
    for (int position = 0; position < mesh.size(); ++position) {
      const std::vector<int> members = communicate.collective == Collective::Slice
                                           ? std::vector<int>{position}
                                           : mesh.group(position, communicate.axes);
      Block& target = out[static_cast<std::size_t>(position)];
      std::vector<double>& values = target.values();
      target.for_each([&](const std::vector<std::int64_t>& at, std::size_t offset) {
        bool found = false;
        double total = 0;
        for (int member : members) {
          const Block& source = in[static_cast<std::size_t>(member)];
          if (!source.holds(at)) {
            if (reduces) throw std::runtime_error("a member of a reduction does not hold what it must contribute to");
            continue;
          }
          const double value = rounds_ && communicate.wire ? rounded(source.at(at), *communicate.wire) : source.at(at);
          if (!found || !sums) {
            if (!found) total = value;
          } else {
            switch (communicate.reducer) {
              case Reducer::Sum:
                total += value;
                break;
              case Reducer::Max:
                total = std::max(total, value);
                break;
              case Reducer::LogSumExp:
                // −∞ and −∞: neither shard has a key that the mask lets through.
                if (total != value || std::isfinite(total))
                  total = std::max(total, value) + std::log1p(std::exp(-std::fabs(total - value)));
                break;
              case Reducer::SoftmaxMerge:
                throw std::runtime_error("a softmax merge needs its weights");
            }
          }
          found = true;
        }
        if (!found) throw std::runtime_error("a collective does not find an element it must deliver");
        values[offset] = rounds_ && communicate.wire ? rounded(total, *communicate.wire) : total;
      });
    }
    write(communicate.outputs[b], std::move(out));
  }
}

// On each device: a sum, or y[b,q,h.d] weighted by exp(lse[b,h,q]) and the sum of these weights.
void Interpreter::combine(const Combine& combine, const Mesh& mesh) {
  const std::size_t results = combine.outputs.size();
  const auto term = [&](std::size_t i, int position) -> const Block& {
    return read(combine.inputs[i])[static_cast<std::size_t>(position)];
  };
  std::vector<std::vector<Block>> out;
  for (BufferId output : combine.outputs) out.push_back(parts_of(program().buffers[output].layout, mesh));
  for (int position = 0; position < mesh.size(); ++position) {
    const auto p = static_cast<std::size_t>(position);
    if (combine.reducer == Reducer::Sum) {
      for (std::size_t i = 0; i < out[0][p].values().size(); ++i)
        out[0][p].values()[i] = term(0, position).values()[i] + term(1, position).values()[i];
      continue;
    }
    const Block &a = term(1, position), &b = term(1 + results, position);
    Block& lse = out[1][p];
    lse.for_each([&](const std::vector<std::int64_t>& at, std::size_t offset) {
      const double largest = std::max(a.at(at), b.at(at));  // −∞: neither has a key that the mask lets through
      lse.values()[offset] = std::isinf(largest)
                                 ? largest
                                 : largest + std::log(std::exp(a.at(at) - largest) + std::exp(b.at(at) - largest));
    });
    const std::int64_t heads = graph().tensors()[program().buffers[combine.outputs[1]].tensor].type.shape[1];
    const std::int64_t size = graph().tensors()[program().buffers[combine.outputs[0]].tensor].type.shape[2] / heads;
    out[0][p].for_each([&](const std::vector<std::int64_t>& at, std::size_t offset) {
      const std::vector<std::int64_t> row = {at[0], at[2] / size, at[1]};
      const double total = lse.at(row);
      if (std::isinf(total)) return;
      out[0][p].values()[offset] = std::exp(a.at(row) - total) * term(0, position).at(at) +
                                   std::exp(b.at(row) - total) * term(results, position).at(at);
    });
  }
  for (std::size_t i = 0; i < results; ++i) write(combine.outputs[i], std::move(out[i]));
}

// Every element that a device needs, from any device that has it: replicas must be the same, which `whole` checks.
bool Interpreter::receive(const Transfer& transfer, TransferId id) {
  const auto sent = mailbox_.find({id, micro_batch_});
  if (sent == mailbox_.end()) return false;
  const Buffer& to = program().buffers[transfer.to];
  std::vector<Block> parts = parts_of(to.layout, program().meshes[to.layout.mesh]);
  for (Block& part : parts)
    part.for_each([&](const std::vector<std::int64_t>& at, std::size_t offset) {
      for (const Block& source : sent->second)
        if (source.holds(at)) {
          part.values()[offset] = source.at(at);
          return;
        }
      throw std::runtime_error("a transfer of " + graph().name(to.tensor) +
                               " does not find an element it must deliver");
    });
  mailbox_.erase(sent);
  write(transfer.to, std::move(parts));
  return true;
}

void Interpreter::sum_scalars(const SumScalars& sums, const Mesh& world) {
  std::vector<std::vector<Block>> totals;
  for (BufferId output : sums.outputs) totals.push_back(parts_of(program().buffers[output].layout, world));
  std::size_t sum = 0, left = sums.counts[0];
  for (BufferId input : sums.inputs) {
    while (left == 0) left = sums.counts[++sum];
    --left;
    const Layout& layout = program().buffers[input].layout;
    const Mesh& mesh = program().meshes[layout.mesh];
    MeshAxes replicated_along = 0;
    for (std::size_t axis = 0; axis < mesh.axes().size(); ++axis)
      if (!layout.partial[axis]) replicated_along |= MeshAxes{1} << axis;
    for (int position = 0; position < mesh.size(); ++position)
      if (mesh.group_leader(position, replicated_along) == position)
        totals[sum][static_cast<std::size_t>(world.position_of(mesh.devices()[static_cast<std::size_t>(position)]))]
            .values()[0] += read(input)[static_cast<std::size_t>(position)].values()[0];
  }
  for (std::size_t i = 0; i < totals.size(); ++i) write(sums.outputs[i], std::move(totals[i]));
}

bool Interpreter::play(const Instruction& instruction) {
  const Mesh& mesh = program().meshes[instruction.mesh];
  if (const auto* receive_half = std::get_if<Receive>(&instruction.what))
    return receive(program().transfers[receive_half->transfer], receive_half->transfer);
  if (const auto* operation = std::get_if<Compute>(&instruction.what)) compute(*operation, mesh);
  if (const auto* collective = std::get_if<Communicate>(&instruction.what)) communicate(*collective, mesh);
  if (const auto* sum = std::get_if<SumScalars>(&instruction.what)) sum_scalars(*sum, mesh);
  if (const auto* terms = std::get_if<Combine>(&instruction.what)) combine(*terms, mesh);
  if (const auto* copy = std::get_if<Copy>(&instruction.what)) write(copy->to, read(copy->from));
  if (const auto* free = std::get_if<Free>(&instruction.what))
    std::erase_if(values_, [&](const auto& entry) {  // with every view of the memory
      return entry.first.micro_batch == micro_batch_ && program().buffers[entry.first.storage].memory == free->buffer;
    });
  if (const auto* send = std::get_if<Send>(&instruction.what))
    mailbox_[{send->transfer, micro_batch_}] = read(program().transfers[send->transfer].from);
  return true;
}

// Before a step: scalars are set again, results are absent, and accumulators are zero, or absent if a first term
// initialises them.
void Interpreter::begin_step() {
  std::set<TensorId> accumulators;
  for (OpId op : graph().ops().ids())
    if (graph().kind(op) == OpKind::Accumulate || graph().kind(op) == OpKind::AccumulateLoss)
      accumulators.insert(graph().tensors()[graph().inputs(op)[0]].storage);
  begun_.clear();
  for (const Instruction& instruction : program().instructions)
    if (const auto* compute = std::get_if<Compute>(&instruction.what); compute && compute->begins)
      begun_.insert(program().buffers[compute->outputs[0]].storage);
  std::erase_if(values_, [&](const auto& entry) {
    const Buffer& buffer = program().buffers[entry.first.storage];
    return buffer.kind == BufferKind::Scalar || buffer.kind == BufferKind::Result ||
           (buffer.kind == BufferKind::State && accumulators.contains(graph().tensors()[buffer.tensor].storage));
  });
}

void Interpreter::run(const Schedule& schedule) {
  micro_batches_ = schedule.micro_batches;
  begin_step();
  struct Step {
    InstructionId instruction;
    int micro_batch;
    bool first;
  };
  const IdVec<MeshId, std::int32_t> rank_of = ranks_of_meshes(program_, schedule);
  const std::vector<std::vector<IssuedBody>> issued = issue_order(program_, schedule);
  std::vector<std::vector<Step>> queues(issued.size());
  for (std::size_t rank = 0; rank < queues.size(); ++rank)
    for (const IssuedBody& each : issued[rank])
      if (each.action != IssuedBody::kStep)
        for (InstructionId id : body_at(program_, each.body))
          if (const Instruction& instruction = program_.instructions[id];
              rank_of[instruction.mesh] == static_cast<std::int32_t>(rank) && plays(each, instruction))
            queues[rank].push_back({id, each.micro_batch, each.micro_batch == each.visits.first});
  std::vector<std::size_t> next(queues.size(), 0);
  for (bool progress = true; progress;) {
    progress = false;
    for (std::size_t rank = 0; rank < queues.size(); ++rank)
      while (next[rank] < queues[rank].size()) {
        const Step& step = queues[rank][next[rank]];
        micro_batch_ = step.micro_batch;
        first_ = step.first;
        if (!play(program().instructions[step.instruction])) break;
        ++next[rank];
        progress = true;
      }
  }
  for (std::size_t rank = 0; rank < queues.size(); ++rank)
    if (next[rank] < queues[rank].size())
      throw std::runtime_error("deadlock: rank " + std::to_string(rank) + " waits for ever");
  micro_batch_ = schedule.micro_batches - 1;
  for (InstructionId id : program().step)
    if (!play(program().instructions[id])) throw std::runtime_error("the step receives what nobody has sent");
  const auto kept = [&](BufferId id) {  // or a view of what is
    return outlives_micro_batches(program().buffers[program().buffers[id].memory].kind);
  };
  for (const auto& [held, parts] : values_)
    if (held.micro_batch >= 0 && !kept(held.storage))
      throw std::runtime_error("a buffer of " + graph().name(program().buffers[held.storage].tensor) +
                               " is never freed");
}

Block Interpreter::whole(BufferId id) const {
  const Buffer& buffer = program().buffers[id];
  const Mesh& mesh = program().meshes[buffer.layout.mesh];
  const std::vector<Block>& parts = values_.at(slot(id));
  const Shape& shape = graph().tensors()[buffer.tensor].type.shape;
  MeshAxes partial = 0;
  for (std::size_t axis = 0; axis < buffer.layout.partial.size(); ++axis)
    if (buffer.layout.partial[axis]) partial |= MeshAxes{1} << axis;

  // Contributions add up along the partial axes; the sums of all groups that hold an element must agree.
  std::vector<Block> sums = parts;
  Block result(shape), seen(shape);
  for (int position = 0; position < mesh.size(); ++position) {
    const int leader = mesh.group_leader(position, partial);
    if (leader == position) continue;
    std::vector<double>& sum = sums[static_cast<std::size_t>(leader)].values();
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += parts[static_cast<std::size_t>(position)].values()[i];
  }
  for (int position = 0; position < mesh.size(); ++position) {
    if (mesh.group_leader(position, partial) != position) continue;
    const Block& part = sums[static_cast<std::size_t>(position)];
    part.for_each([&](const std::vector<std::int64_t>& at, std::size_t offset) {
      const double value = part.values()[offset];
      const bool same = std::fabs(result.at(at) - value) <= 1e-9 * std::max(1.0, std::fabs(value)) ||
                        (!std::isfinite(value) && !std::isfinite(result.at(at)));
      if (seen.at(at) != 0 && !same)
        throw std::runtime_error("replicas of " + graph().name(buffer.tensor) +
                                 " differ: " + std::to_string(result.at(at)) + " and " + std::to_string(value) +
                                 " at device " + std::to_string(position));
      result.at(at) = value;
      seen.at(at) = 1;
    });
  }
  for (double held : seen.values())
    if (held == 0) throw std::runtime_error("nobody holds a part of " + graph().name(buffer.tensor));
  return result;
}

}  // namespace weft::reference
