// The distinct works of a workload, each once.
#pragma once

#include <array>
#include <unordered_map>
#include <vector>

#include "base/hash.h"
#include "cost/cost.h"
#include "simulate/workload.h"

namespace weft {

class Works {
 public:
  const IdVec<WorkId, Work>& all() const { return all_; }
  IdVec<WorkId, Work> take() { return std::move(all_); }

  WorkId compute(const ComputeCost& cost);
  // `group`: the group whose links it loads; `add_links(cost, work)` adds them if the work is new.
  template <class AddLinks>
  WorkId communication(std::uint32_t group, const CommunicateCost& cost, const AddLinks& add_links) {
    const auto [found, added] =
        ids_.try_emplace(Key{group, cost.route, cost.latency, cost.bytes, cost.cap}, WorkId(all_.size()));
    if (added) {
      keys_.push_back(found->first);
      Work work{.fixed = cost.latency,
                .bytes = cost.bytes,
                .cap = cost.cap,
                .sm_share = cost.sm_share,
                .memory_share = cost.memory_share};
      add_links(cost, work);
      all_.push_back(std::move(work));
    }
    return found->second;
  }
  // Drops all but the first `count`.
  void shrink(std::size_t count);

 private:
  using Key = std::array<std::int64_t, 5>;
  IdVec<WorkId, Work> all_;
  std::vector<Key> keys_;
  std::unordered_map<Key, WorkId, HashNumbers> ids_;
};

}  // namespace weft
