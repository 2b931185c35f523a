#include "run/communicator.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <map>

#include "base/check.h"
#include "run/device.h"
#include "run/torch_version.h"

namespace weft::runtime {

struct Rendezvous::Store {
  c10::intrusive_ptr<c10d::Store> keys;
};

Rendezvous Rendezvous::in_process() {
  return Rendezvous(std::make_shared<Store>(Store{c10::make_intrusive<c10d::HashStore>()}));
}

Result<Rendezvous> Rendezvous::over_tcp(const std::string& host, int port, int rank, int world, Seconds timeout) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<std::uint16_t>(port);
  options.isServer = rank == 0;
  options.numWorkers = static_cast<std::size_t>(world);
  options.waitWorkers = false;
  options.timeout = std::chrono::milliseconds(static_cast<std::int64_t>(timeout.value * 1e3));
  try {
    return Rendezvous(std::make_shared<Store>(Store{c10::make_intrusive<c10d::TCPStore>(host, options)}));
  } catch (const std::exception& problem) {
    const std::string what = problem.what();
    return error("{}:{}: {}", host, port,
                 what.find("in use") != std::string::npos || what.find("EADDRINUSE") != std::string::npos
                     ? "the port is in use; set MASTER_PORT to a free one"
                     : what.substr(0, what.find('\n')));
  }
}

Result<Backend> backend_named(std::string_view name, at::Device tensors_on, int world) {
  const bool alone = tensors_on.is_cuda() && world <= gpu_count();  // ranks of other machines: their launcher's to say
  if (name == "gloo" || (name.empty() && !(kHasNccl && alone))) return Backend::Gloo;
  if (!name.empty() && name != "nccl") return error("--backend '{}': gloo or nccl", name);
  if (!kHasNccl) return error("--backend nccl: weft-rank was built without it; --backend gloo works everywhere");
  if (!tensors_on.is_cuda()) return error("--backend nccl: needs --device cuda");
  return Backend::Nccl;
}

struct Communicator::Groups {
  Backend backend;
  std::map<GroupKey, c10::intrusive_ptr<GroupBackend>> groups;
  c10::intrusive_ptr<GroupBackend> everyone;  // by NCCL

  GroupBackend& at(const GroupKey& key) {
    const auto found = groups.find(key);
    WEFT_CHECK(found != groups.end(), "no group of {} devices on channel {}", key.devices.size(), key.channel);
    return *found->second;
  }
  // What is sent of a tensor: itself, or a copy in the host's memory.
  at::Tensor near(const at::Tensor& tensor) const {
    if (backend == Backend::Nccl || tensor.is_cpu()) return tensor;
    at::Tensor copy = pinned(tensor);
    copy.copy_(tensor);
    return copy;
  }
  at::Tensor pinned(const at::Tensor& like) const {
    if (backend == Backend::Nccl || like.is_cpu()) return like;
    return at::empty(like.sizes(), at::TensorOptions(like.scalar_type()).pinned_memory(true));
  }
};

namespace {

class GroupWork final : public Work {
 public:
  // Keeps what is read and written alive until it is done. `received` is then copied to `place`, where that is another.
  GroupWork(c10::intrusive_ptr<c10d::Work> work, std::vector<at::Tensor> tensors, at::Tensor received, at::Tensor place)
      : work_(std::move(work)),
        tensors_(std::move(tensors)),
        received_(std::move(received)),
        place_(std::move(place)) {}
  void wait() override {
    work_->wait();
    if (!place_.is_same(received_)) place_.copy_(received_);
  }
  void when_complete(std::function<void()> tell) override {
    work_->getFuture()->addCallback([tell = std::move(tell)](c10::ivalue::Future&) { tell(); });
  }

 private:
  c10::intrusive_ptr<c10d::Work> work_;
  std::vector<at::Tensor> tensors_;
  at::Tensor received_, place_;
};

class NoWork final : public Work {
 public:
  void wait() override {}
  void when_complete(std::function<void()> tell) override { tell(); }
};

std::shared_ptr<::gloo::transport::Device> gloo_interface() {
  const char* const wanted = std::getenv("GLOO_SOCKET_IFNAME");
  return c10d::ProcessGroupGloo::createDeviceForInterface(wanted ? wanted : "lo");
}

c10::intrusive_ptr<GroupBackend> gloo_group(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                            std::chrono::milliseconds timeout,
                                            const std::shared_ptr<::gloo::transport::Device>& interface) {
  auto options = c10d::ProcessGroupGloo::Options::create(timeout);
  options->devices = {interface};
  options->threads = 1;  // one stream: its works are done in the order in which they are issued
  return c10::make_intrusive<c10d::ProcessGroupGloo>(store, rank, size, options);
}

// Says hello: NCCL connects when it is first used, and what is wrong is better known before training begins.
c10::intrusive_ptr<GroupBackend> nccl_group([[maybe_unused]] const c10::intrusive_ptr<c10d::Store>& store,
                                            [[maybe_unused]] int rank, [[maybe_unused]] int size,
                                            [[maybe_unused]] std::chrono::milliseconds timeout) {
#ifdef USE_C10D_NCCL
  auto options = c10d::ProcessGroupNCCL::Options::create();
  options->timeout = timeout;
  auto group = c10::make_intrusive<c10d::ProcessGroupNCCL>(store, rank, size, options);
  std::vector<at::Tensor> hello = {at::zeros({1}, at::TensorOptions(at::kFloat).device(at::kCUDA))};
  group->allreduce(hello)->wait();
  return group;
#else
  WEFT_CHECK(false, "weft-rank was built without NCCL");
#endif
}

}  // namespace

Communicator::Communicator(const Rendezvous& rendezvous, int device, const std::vector<GroupKey>& groups,
                           Seconds timeout, Backend backend)
    : groups_(std::make_unique<Groups>(Groups{backend, {}, {}})) {
  if (backend == Backend::None) return;
  const auto milliseconds = std::chrono::milliseconds(static_cast<std::int64_t>(timeout.value * 1e3));
  const auto interface = groups.empty() ? nullptr : gloo_interface();
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const GroupKey& key = groups[i];
    const auto self = std::find(key.devices.begin(), key.devices.end(), device);
    if (self == key.devices.end()) continue;
    const auto store = c10::make_intrusive<c10d::PrefixStore>(fmt::format("group{}/", i), rendezvous.store().keys);
    const int rank = static_cast<int>(self - key.devices.begin()), size = static_cast<int>(key.devices.size());
    const bool control = key.channel == kControlChannel;
    // What is said between steps may take long: rank 0 trains on one device meanwhile to check the others.
    const auto patience = control ? 100 * milliseconds : milliseconds;
    // What is said between steps is in the host's memory, so that group is Gloo's. All ranks also meet by NCCL, to see
    // that it works before training begins.
    groups_->groups.emplace(key, backend == Backend::Nccl && !control
                                     ? nccl_group(store, rank, size, patience)
                                     : gloo_group(store, rank, size, patience, interface));
    if (backend == Backend::Nccl && control)
      groups_->everyone = nccl_group(c10::make_intrusive<c10d::PrefixStore>("everyone/", rendezvous.store().keys), rank,
                                     size, patience);
  }
}

Communicator::~Communicator() = default;

bool Communicator::sums(at::ScalarType type) const {
  const bool narrow = groups_->backend == Backend::Nccl || kGlooSumsBfloat16;
  return type == at::kFloat || type == at::kDouble || type == at::kHalf || (narrow && type == at::kBFloat16);
}

std::unique_ptr<Work> Communicator::all_reduce(const GroupKey& group, at::Tensor flat, Reduction reduction) {
  if (groups_->backend == Backend::None) return std::make_unique<NoWork>();
  std::vector<at::Tensor> tensors = {groups_->near(flat)};
  c10d::AllreduceOptions options;
  options.reduceOp = reduction == Reduction::Sum ? c10d::ReduceOp::SUM : c10d::ReduceOp::MAX;
  auto work = groups_->at(group).allreduce(tensors, options);
  const at::Tensor reduced = tensors[0];
  return std::make_unique<GroupWork>(std::move(work), std::move(tensors), reduced, flat);
}

std::unique_ptr<Work> Communicator::all_to_all(const GroupKey& group, at::Tensor sent, at::Tensor received,
                                               std::vector<std::int64_t> sent_bytes,
                                               std::vector<std::int64_t> received_bytes) {
  if (groups_->backend == Backend::None) {
    received.zero_();
    return std::make_unique<NoWork>();
  }
  std::vector<at::Tensor> tensors = {groups_->near(sent), groups_->pinned(received)};
  auto work = groups_->at(group).alltoall_base(tensors[1], tensors[0], received_bytes, sent_bytes);
  const at::Tensor brought = tensors[1];
  return std::make_unique<GroupWork>(std::move(work), std::move(tensors), brought, received);
}

}  // namespace weft::runtime
