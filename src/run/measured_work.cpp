#include "run/measured_work.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <memory>

#include "base/random.h"
#include "run/kernel.h"
#include "run/tensors.h"

namespace weft::runtime {
namespace {

// Inputs are used in turn, and outputs live on for a while, so that memory is as cold as in a step, where weights were
// last used a pass ago and activations go where nothing was before.
constexpr std::int64_t kWorkingSet = 64 << 20;      // bytes: many times a core's own caches
constexpr std::int64_t kGpuWorkingSet = 256 << 20;  // and a GPU's (H200: 50 MB)
constexpr std::int64_t kMostCopies = 64;

std::int64_t bytes_of(const std::vector<Tensor>& tensors) {
  std::int64_t bytes = 0;
  for (const Tensor& each : tensors) bytes += static_cast<std::int64_t>(each.nbytes());
  return bytes;
}

std::vector<std::vector<Tensor>> copies_of(const std::vector<Tensor>& tensors) {
  const bool on_gpu = std::any_of(tensors.begin(), tensors.end(), [](const Tensor& each) { return each.is_cuda(); });
  const std::int64_t wanted = on_gpu ? kGpuWorkingSet : kWorkingSet;
  const std::int64_t count =
      std::clamp<std::int64_t>(wanted / std::max<std::int64_t>(bytes_of(tensors), 1), 1, kMostCopies);
  std::vector<std::vector<Tensor>> copies(static_cast<std::size_t>(count));
  for (std::vector<Tensor>& copy : copies)
    for (const Tensor& each : tensors) copy.push_back(each.clone());
  return copies;
}

// Positive numbers, which every function of the zoo takes; indices below what they select from.
Tensor input_of(const Signature& signature, const Operand& operand, const Shape& shape, at::ScalarType type, Rng& rng) {
  const Tensor exact = at::empty(shape, at::TensorOptions(at::kDouble));
  auto* const values = static_cast<double*>(exact.data_ptr());
  std::uint64_t below = 2;
  for (const char* selected : {"v", "e"})
    if (const int axis = signature.axis_named(selected); axis >= 0 && below == 2)
      below = static_cast<std::uint64_t>(signature.axes[static_cast<std::size_t>(axis)].size);
  if (operand.dtype == DType::U8) below = 2;
  const bool index = !is_floating(operand.dtype);
  for (std::int64_t i = 0; i < exact.numel(); ++i)
    values[i] = index ? static_cast<double>(rng.below(below)) : 0.1 + 0.9 * rng.uniform();
  return exact.to(type);
}

}  // namespace

Result<std::function<void()>> computation_of(const Event& event, Numbers numbers, at::Device device) {
  struct Prepared {
    Signature signature;
    AxisSlices slices;
    std::vector<std::vector<Tensor>> inputs;
    std::size_t next = 0;
    std::vector<std::vector<Tensor>> outputs;  // of the last runs
  };
  const auto prepared = std::make_shared<Prepared>();
  WEFT_TRY(prepared->signature, signature_of(event));
  const Signature& signature = prepared->signature;
  WEFT_TRY(prepared->slices, slices_of(event, signature));
  if (!kernel_for(signature)) return error("{}: there is no kernel", event.op);
  Rng rng(1);
  std::vector<Tensor> first;
  for (const Operand& operand : signature.inputs) {
    const std::optional<at::ScalarType> type = stored_type(operand.dtype, numbers);
    if (!type) return error("{} cannot be stored here", name_of(operand.dtype));
    const Tensor made = input_of(signature, operand, local_shape(signature, operand, prepared->slices), *type, rng);
    first.push_back(in_host_memory(operand) ? made : made.to(device));
  }
  // Outputs too, so that a run gets memory that has been used before.
  prepared->inputs = copies_of(first);
  prepared->outputs = copies_of(compute(signature, prepared->slices, first, 1, numbers));
  return std::function<void()>([prepared, numbers] {
    const std::vector<Tensor>& inputs = prepared->inputs[prepared->next++ % prepared->inputs.size()];
    prepared->outputs[prepared->next % prepared->outputs.size()] =
        compute(prepared->signature, prepared->slices, inputs, 1, numbers);
  });
}

namespace {

// Bytes that a member sends to and receives from each.
struct Sides {
  std::vector<std::int64_t> sent, received;
  bool adds = false;
};

Sides sides_of(const Event& event, std::size_t members, std::size_t self) {
  const auto padded = [](std::int64_t bytes) { return (bytes + 7) / 8 * 8; };
  Sides sides{std::vector<std::int64_t>(members, 0), std::vector<std::int64_t>(members, 0),
              event.op == "reduce-scatter"};
  const auto both = [&](std::size_t other, std::int64_t bytes) { sides.sent[other] = sides.received[other] = bytes; };
  if (event.op == "transfer") {
    if (self == 0) sides.sent[1] = padded(event.bytes);
    if (self == 1) sides.received[0] = padded(event.bytes);
  } else if (event.op == "halo") {  // a share for each neighbour
    const std::int64_t share = padded(members == 2 ? event.bytes : event.bytes / 2);
    if (self > 0) both(self - 1, share);
    if (self + 1 < members) both(self + 1, share);
  } else if (event.op == "shift") {
    sides.sent[(self + 1) % members] = padded(event.bytes);
    sides.received[(self + members - 1) % members] = padded(event.bytes);
  } else {  // all-gather, reduce-scatter, all-to-all: a share for everybody
    for (std::size_t other = 0; other < members; ++other)
      if (other != self) both(other, padded(event.bytes / static_cast<std::int64_t>(members)));
  }
  return sides;
}

at::ScalarType summed_type(const Event& event) {
  const std::optional<DType> dtype = dtype_named(event.dtype);
  return (dtype ? stored_type(*dtype, Numbers::AsStored) : std::nullopt).value_or(at::kFloat);
}

}  // namespace

std::function<void()> communication_of(const Event& event, Communicator& communicator, const GroupKey& group,
                                       int device) {
  const auto self =
      static_cast<std::size_t>(std::find(group.devices.begin(), group.devices.end(), device) - group.devices.begin());
  const at::ScalarType type = summed_type(event);
  const std::int64_t width = static_cast<std::int64_t>(c10::elementSize(type));
  const std::int64_t elements = std::max<std::int64_t>(1, event.bytes / width);
  const Tensor held = at::zeros({elements}, at::TensorOptions(type));
  if (event.op == "host-copy") return [held] { held.clone(); };
  if (event.op == "all-reduce")
    return [=, &communicator] {
      Tensor flat = at::empty({elements}, at::TensorOptions(type));
      flat.copy_(held);
      if (!communicator.sums(type)) flat = flat.to(at::kFloat);
      communicator.all_reduce(group, flat, Communicator::Reduction::Sum)->wait();
      flat.to(type, false, true);
    };
  const Sides sides = sides_of(event, group.devices.size(), self);
  std::int64_t out = 0, in = 0;
  for (std::size_t i = 0; i < sides.sent.size(); ++i) {
    out += sides.sent[i];
    in += sides.received[i];
  }
  const Tensor whole = at::zeros({std::max(out, in) / width}, at::TensorOptions(type));
  const std::int64_t own = event.bytes / static_cast<std::int64_t>(group.devices.size()) / width;
  const bool keeps = event.op == "all-gather" || event.op == "reduce-scatter" || event.op == "all-to-all";
  return [=, &communicator] {
    const Tensor sent = at::empty({out}, at::TensorOptions(at::kByte)),
                 received = at::empty({in}, at::TensorOptions(at::kByte));
    if (out > 0) sent.view(type).copy_(whole.narrow(0, 0, out / width));
    communicator.all_to_all(group, sent, received, sides.sent, sides.received)->wait();
    if (in == 0) return;
    if (sides.adds) {  // the own part and all others', one after the other
      const Tensor sum = at::zeros({own}, at::TensorOptions(type));
      sum.add_(held.narrow(0, 0, own));
      std::int64_t at = 0;
      for (const std::int64_t bytes : sides.received) {
        if (bytes > 0 && own > 0) sum.add_(received.narrow(0, at, own * width).view(type));
        at += bytes;
      }
      return;
    }
    const std::int64_t kept = keeps ? own : 0;
    const Tensor result = at::empty({in / width + kept}, at::TensorOptions(type));
    std::int64_t at = 0;
    for (const std::int64_t bytes : sides.received) {
      if (bytes > 0) result.narrow(0, at / width, bytes / width).copy_(received.narrow(0, at, bytes).view(type));
      at += bytes;
    }
    if (kept > 0) result.narrow(0, in / width, kept).copy_(held.narrow(0, 0, kept));
  };
}

}  // namespace weft::runtime
