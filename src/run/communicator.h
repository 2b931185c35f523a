// Process groups of c10d as the executor needs them: sums and exchanges of bytes, asynchronous, one group per set of
// devices and stream.
//
// Everything but all-reduces is an all-to-all of bytes: Gloo 1.13 has no reduce-scatter, no all-gather of unequal parts,
// and its sends wait for milliseconds where an all-to-all of two takes less than a tenth of one; it moves any type, also
// those it cannot add. One host thread issues, in program order; a group's works are done in that order.
//
// Tensors of a GPU go through NCCL where every rank has a GPU of its own. Where ranks share one, which NCCL refuses, they
// go through Gloo, by way of pinned memory of the host.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>

#include "base/result.h"
#include "run/exchange.h"
#include "run/rendezvous.h"

namespace weft::runtime {

// A communication on its way. `wait` throws what c10d does: a peer that is gone, a timeout.
class Work {
 public:
  virtual ~Work() = default;
  virtual void wait() = 0;
  // Calls `tell` once it is done, from another thread or at once, and before a wait for it ends.
  virtual void when_complete(std::function<void()> tell) = 0;
};

enum class Backend : std::uint8_t {
  Gloo,
  Nccl,
  None,  // nothing is sent, and what others would send is zero: for measuring what one device of many computes
};
// "gloo", "nccl", or "" for NCCL where it is there and every rank of the world has a GPU of its own. An error says why it
// cannot be.
Result<Backend> backend_named(std::string_view name, at::Device tensors_on, int world);

class Communicator {
 public:
  // Meets the other members of every group that this device is in, in the order of `groups`. Throws what c10d does.
  Communicator(const Rendezvous& rendezvous, int device, const std::vector<GroupKey>& groups, Seconds timeout,
               Backend backend = Backend::Gloo);
  ~Communicator();

  enum class Reduction : std::uint8_t { Sum, Max };
  // In place, of a contiguous tensor that lives until the work is done.
  std::unique_ptr<Work> all_reduce(const GroupKey& group, at::Tensor flat, Reduction reduction);
  // Bytes to and from every member, one after the other by number.
  std::unique_ptr<Work> all_to_all(const GroupKey& group, at::Tensor sent, at::Tensor received,
                                   std::vector<std::int64_t> sent_bytes, std::vector<std::int64_t> received_bytes);
  // Whether sums can be made in this type.
  bool sums(at::ScalarType type) const;

 private:
  struct Groups;
  std::unique_ptr<Groups> groups_;
};

}  // namespace weft::runtime
