#include "run/communicator.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <map>

#include "base/check.h"
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

struct Communicator::Groups {
  struct Group {
    c10::intrusive_ptr<c10d::ProcessGroupGloo> gloo;
  };
  std::map<GroupKey, Group> groups;

  c10d::ProcessGroupGloo& at(const GroupKey& key) {
    const auto found = groups.find(key);
    WEFT_CHECK(found != groups.end(), "no group of {} devices on channel {}", key.devices.size(), key.channel);
    return *found->second.gloo;
  }
};

namespace {

class GlooWork final : public Work {
 public:
  // Keeps what is read and written alive until it is done.
  GlooWork(c10::intrusive_ptr<c10d::Work> work, std::vector<at::Tensor> tensors)
      : work_(std::move(work)), tensors_(std::move(tensors)) {}
  void wait() override { work_->wait(); }
  void when_complete(std::function<void()> tell) override {
    work_->getFuture()->addCallback([tell = std::move(tell)](c10::ivalue::Future&) { tell(); });
  }

 private:
  c10::intrusive_ptr<c10d::Work> work_;
  std::vector<at::Tensor> tensors_;
};

}  // namespace

Communicator::Communicator(const Rendezvous& rendezvous, int device, const std::vector<GroupKey>& groups,
                           Seconds timeout)
    : groups_(std::make_unique<Groups>()) {
  const auto milliseconds = std::chrono::milliseconds(static_cast<std::int64_t>(timeout.value * 1e3));
  std::shared_ptr<::gloo::transport::Device> interface;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const GroupKey& key = groups[i];
    const auto self = std::find(key.devices.begin(), key.devices.end(), device);
    if (self == key.devices.end()) continue;
    if (!interface) {
      const char* const wanted = std::getenv("GLOO_SOCKET_IFNAME");
      interface = wanted ? c10d::ProcessGroupGloo::createDeviceForInterface(wanted)
                         : c10d::ProcessGroupGloo::createDeviceForInterface("lo");
    }
    // What is said between steps may take long: rank 0 trains on one device meanwhile to check the others.
    auto options =
        c10d::ProcessGroupGloo::Options::create(key.channel == kControlChannel ? 100 * milliseconds : milliseconds);
    options->devices = {interface};
    options->threads = 1;  // one stream: its works are done in the order in which they are issued
    auto store = c10::make_intrusive<c10d::PrefixStore>(fmt::format("group{}/", i), rendezvous.store().keys);
    groups_->groups.emplace(
        key, Groups::Group{c10::make_intrusive<c10d::ProcessGroupGloo>(
                 store, static_cast<int>(self - key.devices.begin()), static_cast<int>(key.devices.size()), options)});
  }
}

Communicator::~Communicator() = default;

bool Communicator::sums(at::ScalarType type) {
  return type == at::kFloat || type == at::kDouble || type == at::kHalf || (kGlooSumsBfloat16 && type == at::kBFloat16);
}

std::unique_ptr<Work> Communicator::all_reduce(const GroupKey& group, at::Tensor flat, Reduction reduction) {
  std::vector<at::Tensor> tensors = {flat};
  c10d::AllreduceOptions options;
  options.reduceOp = reduction == Reduction::Sum ? c10d::ReduceOp::SUM : c10d::ReduceOp::MAX;
  auto work = groups_->at(group).allreduce(tensors, options);
  return std::make_unique<GlooWork>(std::move(work), std::move(tensors));
}

std::unique_ptr<Work> Communicator::all_to_all(const GroupKey& group, at::Tensor sent, at::Tensor received,
                                               std::vector<std::int64_t> sent_bytes,
                                               std::vector<std::int64_t> received_bytes) {
  std::vector<at::Tensor> tensors = {sent, received};
  auto work = groups_->at(group).alltoall_base(tensors[1], tensors[0], received_bytes, sent_bytes);
  return std::make_unique<GlooWork>(std::move(work), std::move(tensors));
}

}  // namespace weft::runtime
