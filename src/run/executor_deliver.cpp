// What ranks tell each other between steps: whole tensors, one to each device at a time, and what went wrong.
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "base/check.h"
#include "run/player.h"

namespace weft::runtime {
namespace {

// Who gives which part of a tensor to `receiver`, by device: of those that hold the same, the next one from the receiver
// on. So it takes what it holds itself, and others share the sending.
std::map<int, Region> givers(const Buffer& buffer, const Mesh& mesh, int receiver, int world) {
  const auto distance = [&](int device) { return (device - receiver + world) % world; };
  std::map<std::vector<std::int64_t>, std::pair<int, Region>> nearest;  // by what they hold
  for (int position = 0; position < mesh.size(); ++position) {
    Region held = region_of(buffer.layout, mesh, position);
    if (held.elements() == 0) continue;
    std::vector<std::int64_t> key;
    for (const std::vector<Range>& ranges : held.dims) {
      key.push_back(static_cast<std::int64_t>(ranges.size()));
      for (const Range& range : ranges) key.insert(key.end(), {range.begin, range.end});
    }
    const auto device = static_cast<int>(mesh.devices()[static_cast<std::size_t>(position)].index());
    const auto [found, fresh] = nearest.try_emplace(std::move(key), device, std::move(held));
    if (!fresh && distance(device) < distance(found->second.first)) found->second.first = device;
  }
  std::map<int, Region> parts;
  for (auto& [key, each] : nearest) parts.emplace(each.first, std::move(each.second));
  return parts;
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

  const auto parts_for = [&](std::size_t receiver) {
    const Buffer& of = bundle_.program.buffers[wanted[receiver]];
    return givers(of, bundle_.program.meshes[of.layout.mesh], static_cast<int>(receiver), bundle_.world_size());
  };

  std::vector<std::int64_t> sent_bytes(world, 0), received_bytes(world, 0);
  std::vector<Tensor> messages;
  for (std::size_t receiver = 0; receiver < world; ++receiver) {
    if (!wanted[receiver].valid()) continue;
    const std::map<int, Region> parts = parts_for(receiver);
    const auto part = parts.find(device_);
    if (part == parts.end()) continue;
    const std::int64_t bytes = bytes_of(wanted[receiver], part->second);
    sent_bytes[receiver] = padded(bytes);
    messages.push_back(at::zeros({padded(bytes)}, as_bytes));
    messages.back().narrow(0, 0, bytes).copy_(read(wanted[receiver]).cpu().contiguous().view({-1}).view(at::kByte));
  }
  const Tensor sent = messages.empty() ? at::empty({0}, as_bytes) : at::cat(messages);
  messages.clear();

  const BufferId own = wanted[self];
  std::map<int, Region> parts;
  if (own.valid()) parts = parts_for(self);
  std::int64_t all = 0;
  for (const auto& [giver, part] : parts)
    all += received_bytes[static_cast<std::size_t>(giver)] = padded(bytes_of(own, part));
  const Tensor received = at::empty({all}, as_bytes);
  exchange_bytes(sent, received, sent_bytes, received_bytes);
  if (!own.valid()) return;

  const weft::Tensor& tensor = bundle_.graph.tensors()[bundle_.program.buffers[own].tensor];
  const Region everything = whole_region(tensor.type.shape);
  const at::ScalarType type = type_of(variants_[0], own);
  const Tensor whole = at::empty(tensor.type.shape, at::TensorOptions(type));
  std::int64_t at = 0, elements = 0;
  for (const auto& [giver, part] : parts) {
    const Tensor message = received.narrow(0, at, bytes_of(own, part)).view(type).view(part.shape());
    copy_in(whole, runs_of(part, everything), message);
    at += received_bytes[static_cast<std::size_t>(giver)];
    elements += part.elements();
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
