// Links that serve one communication at a time: each has a queue, and a communication starts when it is at the head of
// the queues of all its links. All queues are joined at once, so there is no deadlock.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "simulate/workload.h"

namespace weft {

class FifoQueues {
 public:
  void reset(std::size_t links, std::size_t flows) {
    links_.assign(links, {});
    flows_.resize(flows);
  }

  // Joins the queues of the links; true if the flow is at the head of all.
  bool join(std::uint32_t flow, std::span<const LinkUse> loads) {
    Flow& f = flows_[flow];
    f.loads = loads;
    f.behind.assign(loads.size(), kNobody);
    f.waits = 0;
    for (std::uint32_t i = 0; i < loads.size(); ++i) {
      Link& link = links_[loads[i].link.index()];
      if (link.last == kNobody) {
        link.head = flow;
      } else {
        flows_[link.last].behind[link.load] = flow;
        ++f.waits;
      }
      link.last = flow;
      link.load = i;
    }
    return f.waits == 0;
  }

  // Leaves the heads of its queues; calls `starts(flow)` for each flow that is now at the head of all of its own.
  template <class Starts>
  void leave(std::uint32_t flow, const Starts& starts) {
    const Flow& f = flows_[flow];
    for (std::uint32_t i = 0; i < f.loads.size(); ++i) {
      Link& link = links_[f.loads[i].link.index()];
      link.head = f.behind[i];
      if (link.head == kNobody) {
        link.last = kNobody;
      } else if (--flows_[link.head].waits == 0) {
        starts(link.head);
      }
    }
  }

 private:
  static constexpr std::uint32_t kNobody = 0xffffffff;

  struct Flow {
    std::span<const LinkUse> loads;
    std::vector<std::uint32_t> behind;  // the flow behind it, per load
    std::uint32_t waits = 0;            // queues in which it is not at the head
  };
  struct Link {
    std::uint32_t head = kNobody, last = kNobody;
    std::uint32_t load = 0;  // index of this link in the last flow's loads
  };

  std::vector<Link> links_;
  std::vector<Flow> flows_;
};

}  // namespace weft
