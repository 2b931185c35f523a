// Max-min fair rates of the communications on links, in integers.
//
// Flow i has a cap and loads c_il on links of capacity C_l (in bytes per second; loads in units of 1/kOne). Its rate is
// found by progressive filling. With every flow active, repeat until none is:
//   λ_l = ⌊(C_l·kOne − Σ_settled c_il·r_i) / Σ_active c_il⌋ for every link with active flows, at least 1
//   λ   = the smallest λ_l, or the smallest cap of an active flow if that is smaller
//   every active flow on a link with λ_l = λ, or with cap λ, is settled at rate λ
// All that reach λ are settled at once, so rates depend on the set of flows alone, not on the order of their arrival.
// λ never falls from one round to the next: r ≤ R/W leaves (R − w·r)/(W − w) ≥ R/W. Rates are whole bytes per second,
// at least 1: a link with less capacity than flows carries more than it should.
//
// Nothing below the first rate that changes can change. Take a flow away that has rate r: the rounds with λ < r are
// as before, because its links only fill later. Add one: the same read backwards, and its rate is at least
// min(cap, min_l ⌊C_l·kOne/Σ c_il⌋). So `update` looks only at flows that are connected to a change through flows at or
// above that level. Alone on its links, a flow costs O(links); else O(Σ loads + links·log links) over those flows.
// No allocation once the vectors have grown.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "simulate/wide.h"
#include "simulate/workload.h"

namespace weft {

class FairShares {
 public:
  FairShares() = default;
  FairShares(const IdVec<FlowLinkId, FlowLink>& links, std::size_t flows);

  // Removes every flow. Flows are numbered 0 … `flows`−1.
  void reset(const IdVec<FlowLinkId, FlowLink>& links, std::size_t flows);

  // `loads` must stay valid until the flow is removed; `cap` is at most its isolated rate.
  void add(std::uint32_t flow, std::span<const LinkUse> loads, std::int64_t cap, std::int64_t link_limit);
  void remove(std::uint32_t flow);
  void set_cap(std::uint32_t flow, std::int64_t cap);
  // Adds a flow with its known rate, to restore a state after `update`.
  void restore(std::uint32_t flow, std::span<const LinkUse> loads, std::int64_t cap, std::int64_t link_limit,
               std::int64_t rate);

  bool changed() const { return !touched_.empty() || !fresh_.empty(); }
  // Computes the rates after any number of changes; returns the flows whose rates have changed, in no particular order.
  std::span<const std::uint32_t> update();
  std::int64_t rate(std::uint32_t flow) const { return flows_[flow].rate; }

 private:
  struct Flow {
    std::span<const LinkUse> loads;
    std::vector<std::uint32_t> place;  // in the flow list of each link
    std::int64_t cap = 0;
    std::int64_t link_limit = 0;  // isolated rate by links alone: a cap at or above it never binds
    std::int64_t rate = 0;        // 0: not settled yet
    std::int64_t settled = 0;     // rate in the current solve; 0: active
    std::uint32_t seen = 0;
  };
  struct Entry {
    std::uint32_t flow = 0;
    std::uint32_t load = 0;  // index of the link in the flow's loads
    std::int64_t coefficient = 0;
  };
  struct Link {
    Wide capacity = 0;  // times kOne
    std::vector<Entry> flows;
    std::int64_t weight = 0;  // Σ coefficients
    // In the current solve:
    Wide left = 0;
    std::int64_t active = 0;
    std::uint32_t seen = 0;
  };
  struct Level {
    std::int64_t rate = 0;
    std::uint32_t index = 0;  // index of a link or of a flow

    bool operator<(const Level& other) const { return rate > other.rate; }  // the smallest on top of a std heap
  };

  void insert(std::uint32_t flow, std::span<const LinkUse> loads, std::int64_t cap, std::int64_t link_limit);
  void touch(std::uint32_t flow, std::int64_t rate);
  void collect(std::int64_t level);
  void look_at(std::uint32_t link);
  void fill();
  void settle(std::uint32_t flow, std::int64_t rate);
  static std::int64_t level_of(const Link& link);

  std::vector<Link> links_;
  std::vector<Flow> flows_;
  // Changes since the last update: links of removed flows and of flows with another cap, new flows, lowest rate
  // touched.
  std::vector<std::uint32_t> touched_, fresh_;
  std::int64_t lowest_ = 0;
  // Workspace.
  std::uint32_t epoch_ = 0;
  std::vector<std::uint32_t> link_set_, flow_set_, binding_, changed_;
  std::vector<Level> link_levels_, caps_;
};

}  // namespace weft
