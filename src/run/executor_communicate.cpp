// How an executor plays communication: messages packed when it is issued, unpacked when it is complete.
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "run/player.h"

namespace weft::runtime {
namespace {

constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();

Tensor bytes(std::int64_t count, at::Device device) {
  return at::empty({count}, at::TensorOptions(at::kByte).device(device));
}

// A stretch of a message as a dense part.
Tensor piece_of(const Tensor& message, const Lane::Piece& piece) {
  return message.narrow(0, piece.offset, piece.bytes).view(piece.type).view(piece.part->shape);
}

// y[b, q, h.d] and lse[b, h, q]: weights that y is multiplied by, [b, q, h, 1].
Tensor by_rows(const Tensor& weights) { return weights.permute({0, 2, 1}).unsqueeze(-1); }
Tensor in_heads(const Tensor& y, const Tensor& lse) {
  return y.reshape({y.size(0), y.size(1), lse.size(1), y.size(2) / std::max<std::int64_t>(lse.size(1), 1)});
}

// −∞ stands for no key at all; it must not meet itself in a difference.
Tensor finite(const Tensor& lse) { return lse.masked_fill(lse.eq(kMinusInfinity), 0.0); }

}  // namespace

void Executor::Player::play_exchange(const Communicate& communicate, const PlannedExchange& planned) {
  const Exchange& exchange = planned.exchange;
  std::vector<Tensor> inputs;
  for (std::size_t i = 0; i < communicate.outputs.size(); ++i) inputs.push_back(read(communicate.inputs[i]));
  if (communicate.collective == Collective::Slice) {
    for (const OwnPart& own : exchange.own) {
      const BufferId from = communicate.inputs[own.buffer], to = communicate.outputs[own.buffer];
      Tensor part = taken(inputs[own.buffer], own.from, own.shape);
      if (buffer(from).memory != buffer(to).memory && part.is_alias_of(inputs[own.buffer])) part = part.clone();
      write(to, part);
    }
    // A device may be left with nothing at all.
    for (std::size_t i = 0; i < communicate.outputs.size(); ++i)
      if (!find(communicate.outputs[i]))
        write(communicate.outputs[i],
              at::empty(local_shape(buffer(communicate.outputs[i]).layout,
                                    program().meshes[buffer(communicate.outputs[i]).layout.mesh],
                                    program().meshes[buffer(communicate.outputs[i]).layout.mesh].position_of(
                                        DeviceId(static_cast<std::size_t>(device_)))),
                        inputs[i].options()));
    return;
  }
  const Tensor sent = bytes(planned.sent.bytes, options_.tensors_on),
               received = bytes(planned.received.bytes, options_.tensors_on);
  for (const Lane::Piece& piece : planned.sent.pieces)
    copy_out(inputs[piece.part->buffer], piece.part->runs, piece_of(sent, piece));
  std::vector<std::unique_ptr<Work>> works;
  if (planned.group.devices.size() > 1)
    works.push_back(
        communicator_->all_to_all(planned.group, sent, received, planned.sent.counts, planned.received.counts));

  const auto finish = [this, &communicate, &planned, inputs, received] {
    const Mesh& mesh = program().meshes[buffer(communicate.outputs[0]).layout.mesh];
    const int position = mesh.position_of(DeviceId(static_cast<std::size_t>(device_)));
    std::vector<Tensor> outputs;
    for (std::size_t i = 0; i < communicate.outputs.size(); ++i) {
      const Shape shape = local_shape(buffer(communicate.outputs[i]).layout, mesh, position);
      const at::TensorOptions options = made_of(type_of(variant(), communicate.outputs[i]));
      outputs.push_back(planned.exchange.adds ? at::zeros(shape, options) : at::empty(shape, options));
    }
    // Sums are made in the order of devices, so that all who make the same one get the same.
    bool own_added = false;
    const auto add_own = [&] {
      for (const OwnPart& own : planned.exchange.own) {
        const at::ScalarType type =
            sent_type_of(variant(), communicate, communicate.inputs[own.buffer]);  // as if it had been sent
        const Tensor part = taken(inputs[own.buffer], own.from, own.shape).to(type);
        (planned.exchange.adds ? add_in : copy_in)(outputs[own.buffer], own.to, part);
      }
      own_added = true;
    };
    for (const Lane::Piece& piece : planned.received.pieces) {
      if (!own_added && piece.part->device > device_) add_own();
      (planned.exchange.adds ? add_in : copy_in)(outputs[piece.part->buffer], piece.part->runs,
                                                 piece_of(received, piece));
    }
    if (!own_added) add_own();
    for (std::size_t i = 0; i < outputs.size(); ++i) write(communicate.outputs[i], outputs[i]);
  };
  if (works.empty()) return finish();
  const Flight flight = launch(std::move(works), finish);
  for (BufferId output : communicate.outputs) write_later(output, flight);
}

void Executor::Player::play_reduce(const Communicate& communicate, const PlannedReduce& planned) {
  if (communicate.collective == Collective::AllReduce &&
      (communicate.reducer == Reducer::Sum || communicate.reducer == Reducer::Max))
    return all_reduce(communicate, planned);
  // The rest is rare, and takes two reductions one after the other.
  const auto narrowed = [&](const Tensor& whole, std::size_t index) {
    if (communicate.collective == Collective::AllReduce) return whole;
    for (const OwnPart& own : planned.slice.own)
      if (own.buffer == index) return taken(whole, own.from, own.shape).clone();
    WEFT_CHECK(false, "a device is left without a part of what is reduced");
  };
  const auto give = [&](std::size_t index, const Tensor& whole) {
    write(communicate.outputs[index], narrowed(whole, index).to(type_of(variant(), communicate.outputs[index])));
  };
  if (communicate.reducer == Reducer::SoftmaxMerge) {
    const Tensor y = read(communicate.inputs[0]), lse = read(communicate.inputs[1]);
    const Tensor largest = finite(reduced_now(lse, planned, Communicator::Reduction::Max));
    const Tensor weight = (lse - largest).exp();  // of −∞: 0
    const Tensor total = reduced_now(weight, planned, Communicator::Reduction::Sum);
    const Tensor sum =
        reduced_now((in_heads(y, lse) * by_rows(weight)).reshape(y.sizes()), planned, Communicator::Reduction::Sum);
    const Tensor merged = in_heads(sum, lse) / by_rows(total.masked_fill(total.eq(0), 1.0));
    return give(0, merged.reshape(y.sizes()));
  }
  for (std::size_t i = 0; i < communicate.outputs.size(); ++i) {
    const Tensor x = read(communicate.inputs[i]);
    const Tensor largest = reduced_now(x, planned, Communicator::Reduction::Max);
    if (communicate.reducer == Reducer::Max) {
      give(i, largest);
      continue;
    }
    WEFT_CHECK(communicate.reducer == Reducer::LogSumExp, "a reduce-scatter by {}", name_of(communicate.reducer));
    const Tensor base = finite(largest);
    give(i, reduced_now((x - base).exp(), planned, Communicator::Reduction::Sum).log() + base);
  }
}

Tensor Executor::Player::reduced_now(Tensor tensor, const PlannedReduce& planned, Communicator::Reduction reduction) {
  Tensor flat = tensor.contiguous().clone();
  if (planned.group.devices.size() < 2) return flat;
  waiting_ = true;
  if (options_.progress) options_.progress({step_, at_.micro_batch, at_.instruction, true});
  if (recording_) recording_->begin_wait(recording_->issue());
  communicator_->all_reduce(planned.group, flat, reduction)->wait();
  if (recording_) recording_->end_wait();
  waiting_ = false;
  return flat;
}

// A bucket is summed as one tensor for each type that it is sent in.
void Executor::Player::all_reduce(const Communicate& communicate, const PlannedReduce& planned) {
  struct Bucket {
    at::ScalarType sent;
    std::vector<std::size_t> buffers;
    std::int64_t elements = 0;
    Tensor flat;
  };
  std::vector<Bucket> buckets;
  std::vector<Tensor> inputs;
  for (std::size_t i = 0; i < communicate.outputs.size(); ++i) {
    inputs.push_back(read(communicate.inputs[i]));
    const at::ScalarType type = sent_type_of(variant(), communicate, communicate.inputs[i]);
    auto bucket = std::find_if(buckets.begin(), buckets.end(), [&](const Bucket& each) { return each.sent == type; });
    if (bucket == buckets.end()) bucket = buckets.insert(buckets.end(), Bucket{type, {}, 0, {}});
    bucket->buffers.push_back(i);
    bucket->elements += inputs[i].numel();
  }
  std::vector<std::unique_ptr<Work>> works;
  const auto reduction =
      communicate.reducer == Reducer::Max ? Communicator::Reduction::Max : Communicator::Reduction::Sum;
  for (Bucket& bucket : buckets) {
    bucket.flat = at::empty({bucket.elements}, made_of(bucket.sent));
    std::int64_t at = 0;
    for (std::size_t i : bucket.buffers) {
      bucket.flat.narrow(0, at, inputs[i].numel()).view(inputs[i].sizes()).copy_(inputs[i]);
      at += inputs[i].numel();
    }
    if (!communicator_->sums(bucket.sent)) bucket.flat = bucket.flat.to(at::kFloat);
    if (planned.group.devices.size() > 1)
      works.push_back(communicator_->all_reduce(planned.group, bucket.flat, reduction));
  }
  const auto finish = [this, &communicate, buckets] {
    for (const Bucket& bucket : buckets) {
      const Tensor flat = bucket.flat.to(bucket.sent);
      std::int64_t at = 0;
      for (std::size_t i : bucket.buffers) {
        const Mesh& mesh = program().meshes[buffer(communicate.outputs[i]).layout.mesh];
        const Shape shape = local_shape(buffer(communicate.outputs[i]).layout, mesh,
                                        mesh.position_of(DeviceId(static_cast<std::size_t>(device_))));
        std::int64_t elements = 1;
        for (std::int64_t extent : shape) elements *= extent;
        // Each its own memory: they are updated and freed by themselves.
        write(communicate.outputs[i],
              flat.narrow(0, at, elements).view(shape).to(type_of(variant(), communicate.outputs[i]), false, true));
        at += elements;
      }
    }
  };
  if (works.empty()) return finish();
  const Flight flight = launch(std::move(works), finish);
  for (BufferId output : communicate.outputs) write_later(output, flight);
}

void Executor::Player::play_sum(const SumScalars& sums) {
  std::size_t next = 0;
  for (std::size_t s = 0; s < sums.outputs.size(); ++s) {
    Tensor total = at::zeros({}, made_of(type_of(variant(), sums.outputs[s])));
    for (std::uint32_t i = 0; i < sums.counts[s]; ++i) {
      const BufferId input = sums.inputs[next++];
      const Layout& layout = buffer(input).layout;
      const Mesh& mesh = program().meshes[layout.mesh];
      const int position = mesh.position_of(DeviceId(static_cast<std::size_t>(device_)));
      if (position < 0) continue;
      MeshAxes replicated_along = 0;  // of those that hold the same, the first adds it
      for (std::size_t axis = 0; axis < mesh.axes().size(); ++axis)
        if (!layout.partial[axis]) replicated_along |= axis_set(static_cast<int>(axis));
      if (mesh.group_leader(position, replicated_along) == position) total.add_(read(input));
    }
    write(sums.outputs[s], total);
  }
}

void Executor::Player::play_combine(const weft::Combine& combine) {
  if (combine.reducer == Reducer::Sum) {
    write(combine.outputs[0], read(combine.inputs[0]) + read(combine.inputs[1]));
    return;
  }
  const Tensor y = read(combine.inputs[0]), a = read(combine.inputs[1]), other = read(combine.inputs[2]),
               b = read(combine.inputs[3]);
  const Tensor largest = finite(at::maximum(a, b));
  const Tensor left = (a - largest).exp(), right = (b - largest).exp(), total = left + right;
  const Tensor whole = total.masked_fill(total.eq(0), 1.0);  // neither has a key: both y are zero
  write(combine.outputs[0],
        (in_heads(y, a) * by_rows(left / whole) + in_heads(other, a) * by_rows(right / whole)).reshape(y.sizes()));
  write(combine.outputs[1], total.log() + largest);
}

void Executor::Player::play_send(TransferId id, const PlannedTransfer& planned) {
  const Tensor held = read(program().transfers[id].from);
  for (const OwnPart& own : planned.exchange.own)
    kept_parts_[{id, at_.micro_batch}].push_back(taken(held, own.from, own.shape).clone());
  std::vector<std::unique_ptr<Work>> works;
  for (std::size_t i = 0; i < planned.exchange.sent.size(); ++i) {
    const Part& part = planned.exchange.sent[i];
    const Tensor dense = at::empty(part.shape, held.options());
    copy_out(held, part.runs, dense);
    const Tensor message = dense.view({-1}).view(at::kByte);
    const bool first = device_ < part.device;
    const std::vector<std::int64_t> counts =
        first ? std::vector<std::int64_t>{0, message.numel()} : std::vector<std::int64_t>{message.numel(), 0};
    works.push_back(
        communicator_->all_to_all(planned.pairs[i], message, bytes(0, options_.tensors_on), counts, {0, 0}));
  }
  if (!works.empty()) launch(std::move(works), {});
}

void Executor::Player::play_receive(TransferId id, const PlannedTransfer& planned) {
  const BufferId to = program().transfers[id].to;
  const at::ScalarType type = type_of(variant(), to);
  std::vector<std::unique_ptr<Work>> works;
  std::vector<Tensor> messages;
  for (std::size_t i = 0; i < planned.exchange.received.size(); ++i) {
    const Part& part = planned.exchange.received[i];
    messages.push_back(at::empty(part.shape, made_of(type)));
    const Tensor message = messages.back().view({-1}).view(at::kByte);
    const bool first = device_ < part.device;
    const std::vector<std::int64_t> counts =
        first ? std::vector<std::int64_t>{0, message.numel()} : std::vector<std::int64_t>{message.numel(), 0};
    works.push_back(
        communicator_->all_to_all(planned.pairs[i], bytes(0, options_.tensors_on), message, {0, 0}, counts));
  }
  std::vector<Tensor> own;
  if (const auto kept = kept_parts_.find({id, at_.micro_batch}); kept != kept_parts_.end()) {
    own = std::move(kept->second);
    kept_parts_.erase(kept);
  }
  const auto finish = [this, &planned, to, type, messages, own] {
    const Mesh& mesh = program().meshes[buffer(to).layout.mesh];
    const Tensor whole =
        at::empty(local_shape(buffer(to).layout, mesh, mesh.position_of(DeviceId(static_cast<std::size_t>(device_)))),
                  made_of(type));
    for (std::size_t i = 0; i < messages.size(); ++i) copy_in(whole, planned.exchange.received[i].runs, messages[i]);
    for (std::size_t i = 0; i < own.size(); ++i) copy_in(whole, planned.exchange.own[i].to, own[i]);
    write(to, whole);
  };
  if (works.empty()) return finish();
  write_later(to, launch(std::move(works), finish));
}

GroupKey Executor::Player::control_group() const {
  GroupKey all{{}, kControlChannel};
  for (int device = 0; device < bundle_.world_size(); ++device) all.devices.push_back(device);
  return all;
}

// All exchange messages with all, several times. With s when a rank sends and r when it has received all, each by its
// own clock, r(this) − s(0) and r(0) − s(this) are both at least the time under way, more by how far this clock is ahead,
// or less: half of their difference is the offset, off by half of their sum at most. The least sum wins, also of earlier
// steps: clocks drift apart by some 50 ppm at most, so an offset becomes less certain as time passes.
void Executor::Player::compare_clocks() {
  constexpr int kRounds = 16;
  constexpr Nanoseconds kDrift = 10'000;  // 2 · 50 ppm of the time that passes, as a divisor
  const int world = bundle_.world_size();
  if (world == 1 || options_.backend == Backend::None) return;
  const GroupKey all = control_group();
  const std::vector<std::int64_t> bytes_each(static_cast<std::size_t>(world), 2 * sizeof(Nanoseconds));
  const Nanoseconds now = clock_now();
  if (compared_at_ > 0) clock_.round_trip += (now - compared_at_) / kDrift;
  Nanoseconds sent = 0, received = 0;  // of the round before
  if (options_.progress) options_.progress({step_, 0, InstructionId(), true});
  for (int round = 0; round <= kRounds; ++round) {
    const Tensor own = at::empty({world, 2}, at::TensorOptions(at::kLong)), others = at::empty_like(own);
    own.select(1, 0).fill_(sent);
    own.select(1, 1).fill_(received);
    const Nanoseconds begun = clock_now();
    communicator_
        ->all_to_all(all, own.view({-1}).view(at::kByte), others.view({-1}).view(at::kByte), bytes_each, bytes_each)
        ->wait();
    const Nanoseconds ended = clock_now();
    if (round > 0) {
      const auto* const of_first = static_cast<const Nanoseconds*>(others.data_ptr());
      const Nanoseconds here = received - of_first[0], there = of_first[1] - sent;
      if (compared_at_ == 0 || here + there < clock_.round_trip) clock_ = {(here - there) / 2, here + there};
      compared_at_ = now;
    }
    sent = begun;
    received = ended;
  }
}

std::optional<WholeTensor> Executor::Player::gather(BufferId id) {
  at_ = {};
  const Buffer& of = bundle_.program.buffers[id];
  const Mesh& mesh = bundle_.program.meshes[of.layout.mesh];
  const int position = mesh.position_of(DeviceId(static_cast<std::size_t>(device_)));
  const int world = bundle_.world_size();
  const auto part_of = [&](int device) {  // of what it holds, in the order of positions
    const int there = mesh.position_of(DeviceId(static_cast<std::size_t>(device)));
    return there < 0 ? std::int64_t{0} : region_of(of.layout, mesh, there).elements();
  };
  Tensor own = at::empty({0}, at::TensorOptions(at::kDouble));
  if (position >= 0) own = read(id).cpu().to(at::kDouble).contiguous().reshape({-1});
  std::vector<std::int64_t> sent(static_cast<std::size_t>(world), 0), received(static_cast<std::size_t>(world), 0);
  sent[0] = own.numel() * 8;
  std::int64_t all = 0;
  if (device_ == 0)
    for (int device = 0; device < world; ++device) {
      received[static_cast<std::size_t>(device)] = part_of(device) * 8;
      all += part_of(device);
    }
  Tensor parts = own;
  if (world > 1) {
    parts = at::empty({all}, at::TensorOptions(at::kDouble));
    if (options_.progress) options_.progress({step_, 0, InstructionId(), true});
    communicator_->all_to_all(control_group(), own.view(at::kByte), parts.view(at::kByte), sent, received)->wait();
  }
  if (device_ != 0) return std::nullopt;

  // Contributions add up along partial axes; all that should hold the same are compared.
  MeshAxes partial = 0;
  for (std::size_t axis = 0; axis < of.layout.partial.size(); ++axis)
    if (of.layout.partial[axis]) partial |= axis_set(static_cast<int>(axis));
  std::map<int, std::vector<double>> sums;  // by the leaders' positions
  const double* next = static_cast<const double*>(parts.data_ptr());
  for (int device = 0; device < world; ++device) {
    const int there = mesh.position_of(DeviceId(static_cast<std::size_t>(device)));
    if (there < 0) continue;
    const auto count = static_cast<std::size_t>(part_of(device));
    std::vector<double>& sum = sums[mesh.group_leader(there, partial)];
    sum.resize(count, 0.0);
    for (std::size_t i = 0; i < count; ++i) sum[i] += *next++;
  }
  WholeTensor whole{bundle_.graph.tensors()[of.tensor].type.shape, {}, 0};
  std::int64_t elements = 1;
  for (std::int64_t extent : whole.shape) elements *= extent;
  whole.values.assign(static_cast<std::size_t>(elements), 0.0);
  std::vector<char> seen(whole.values.size(), 0);
  double largest = 0;
  for (const auto& [leader, sum] : sums) {
    std::size_t i = 0;
    for_each_index(region_of(of.layout, mesh, leader), whole.shape, [&, &values = sum](std::int64_t index) {
      const auto at = static_cast<std::size_t>(index);
      const double value = values[i++];
      if (seen[at]) whole.spread = std::max(whole.spread, std::fabs(whole.values[at] - value));
      whole.values[at] = value;
      seen[at] = 1;
      if (std::isfinite(value)) largest = std::max(largest, std::fabs(value));
    });
  }
  WEFT_CHECK(std::find(seen.begin(), seen.end(), 0) == seen.end(), "nobody holds a part of {}",
             bundle_.graph.name(of.tensor));
  whole.spread = largest > 0 ? whole.spread / largest : whole.spread;
  return whole;
}

}  // namespace weft::runtime
