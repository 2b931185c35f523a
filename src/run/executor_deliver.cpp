// What ranks tell each other between steps: whole tensors, one to each device at a time, and what went wrong.
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "run/player.h"

namespace weft::runtime {
namespace {

// What a device contributes to a tensor: all that it holds, unless one before it in the mesh holds the same.
std::optional<Region> contributed(const Buffer& buffer, const Mesh& mesh, int device) {
  const int self = mesh.position_of(DeviceId(static_cast<std::size_t>(device)));
  if (self < 0) return std::nullopt;
  Region own = region_of(buffer.layout, mesh, self);
  for (int position = 0; position < self; ++position)
    if (region_of(buffer.layout, mesh, position) == own) return std::nullopt;
  return own;
}

std::int64_t padded(std::int64_t bytes) { return (bytes + 7) / 8 * 8; }

std::string in_short(const std::exception& problem) {
  const std::string what = problem.what();
  return what.substr(0, what.find('\n'));
}

}  // namespace

void Executor::Player::exchange_bytes(const Tensor& sent, const Tensor& received, std::vector<std::int64_t> sent_bytes,
                                      std::vector<std::int64_t> received_bytes) {
  if (options_.progress) options_.progress({step_, 0, InstructionId(), true});
  if (bundle_.world_size() == 1)
    received.copy_(sent);
  else
    communicator_->all_to_all(control_group(), sent, received, std::move(sent_bytes), std::move(received_bytes))
        ->wait();
  if (options_.progress) options_.progress({step_, 0, InstructionId(), false});
}

void Executor::Player::deliver(std::span<const BufferId> wanted, const BytesOfTensor& take) {
  at_ = {};
  const at::TensorOptions as_bytes(at::kByte);
  const auto world = static_cast<std::size_t>(bundle_.world_size()), self = static_cast<std::size_t>(device_);
  const auto bytes_of = [&](BufferId id, const Region& part) {
    return part.elements() * static_cast<std::int64_t>(c10::elementSize(type_of(variants_[0], id)));
  };

  std::vector<std::int64_t> sent_bytes(world, 0), received_bytes(world, 0);
  std::vector<Tensor> messages;
  for (std::size_t device = 0; device < world; ++device) {
    const BufferId id = wanted[device];
    if (!id.valid()) continue;
    const Buffer& of = bundle_.program.buffers[id];
    if (const auto part = contributed(of, bundle_.program.meshes[of.layout.mesh], device_)) {
      sent_bytes[device] = padded(bytes_of(id, *part));
      const Tensor message = at::zeros({sent_bytes[device]}, as_bytes);
      message.narrow(0, 0, bytes_of(id, *part)).copy_(read(id).cpu().contiguous().reshape({-1}).view(at::kByte));
      messages.push_back(message);
    }
  }
  Tensor sent = messages.size() == 1 ? messages[0] : at::empty({0}, as_bytes);
  if (messages.size() > 1) {
    std::int64_t all = 0, at = 0;
    for (const Tensor& message : messages) all += message.numel();
    sent = at::empty({all}, as_bytes);
    for (const Tensor& message : messages) {
      sent.narrow(0, at, message.numel()).copy_(message);
      at += message.numel();
    }
  }
  messages.clear();

  // What comes to this device, by sender.
  const BufferId own = wanted[self];
  std::vector<std::optional<Region>> parts(world);
  std::int64_t all = 0;
  if (own.valid()) {
    const Buffer& of = bundle_.program.buffers[own];
    for (std::size_t device = 0; device < world; ++device) {
      parts[device] = contributed(of, bundle_.program.meshes[of.layout.mesh], static_cast<int>(device));
      if (parts[device]) received_bytes[device] = padded(bytes_of(own, *parts[device]));
      all += received_bytes[device];
    }
  }
  const Tensor received = at::empty({all}, as_bytes);
  exchange_bytes(sent, received, sent_bytes, received_bytes);
  if (!own.valid()) return;

  const weft::Tensor& tensor = bundle_.graph.tensors()[bundle_.program.buffers[own].tensor];
  const Region everything = whole_region(tensor.type.shape);
  const at::ScalarType type = type_of(variants_[0], own);
  const Tensor whole = at::empty(tensor.type.shape, at::TensorOptions(type));
  std::int64_t at = 0, elements = 0;
  for (std::size_t device = 0; device < world; ++device) {
    if (!parts[device]) continue;
    const Tensor part = received.narrow(0, at, bytes_of(own, *parts[device])).view(type).view(parts[device]->shape());
    copy_in(whole, runs_of(*parts[device], everything), part);
    at += received_bytes[device];
    elements += parts[device]->elements();
  }
  WEFT_CHECK(elements == everything.elements(), "parts of {} have {} elements of {}", tensor.name, elements,
             everything.elements());
  take({static_cast<const std::byte*>(whole.data_ptr()), static_cast<std::size_t>(bytes_of(own, everything))});
}

std::string Executor::Player::agree_on(const std::string& problem) {
  constexpr std::int64_t kLongest = 512;
  const auto world = static_cast<std::size_t>(bundle_.world_size());
  const Tensor own = at::zeros({kLongest}, at::TensorOptions(at::kByte));
  std::memcpy(own.data_ptr(), problem.data(), std::min<std::size_t>(problem.size(), kLongest - 1));
  const Tensor sent = own.repeat({bundle_.world_size()}), all = at::zeros_like(sent);
  const std::vector<std::int64_t> bytes(world, kLongest);
  exchange_bytes(sent, all, bytes, bytes);
  for (std::size_t rank = 0; rank < world; ++rank)
    if (const char* const said = static_cast<const char*>(all.data_ptr()) + rank * kLongest; *said) return said;
  return {};
}

Status Executor::deliver(std::span<const BufferId> wanted, const BytesOfTensor& take) {
  try {
    player_->deliver(wanted, take);
    return Ok{};
  } catch (const std::exception& problem) {
    return error("putting tensors together: {}", in_short(problem));
  }
}

Result<std::string> Executor::agree_on(const std::string& problem) {
  try {
    return player_->agree_on(problem);
  } catch (const std::exception& fault) {
    return error("hearing from all ranks: {}", in_short(fault));
  }
}

}  // namespace weft::runtime
