#include "simulate/fair_shares.h"

#include <algorithm>
#include <limits>

namespace weft {
namespace {

constexpr std::int64_t kHighest = std::numeric_limits<std::int64_t>::max();

}  // namespace

FairShares::FairShares(const IdVec<FlowLinkId, FlowLink>& links, std::size_t flows) { reset(links, flows); }

void FairShares::reset(const IdVec<FlowLinkId, FlowLink>& links, std::size_t flows) {
  links_.resize(links.size());
  for (const FlowLinkId id : links.ids()) {
    Link& link = links_[id.index()];
    link.capacity = Wide{links[id].capacity} * kOne;
    link.flows.clear();
    link.weight = 0;
  }
  flows_.resize(flows);
  for (Flow& flow : flows_) flow.loads = {};
  touched_.clear();
  fresh_.clear();
  lowest_ = kHighest;
}

void FairShares::insert(std::uint32_t flow, std::span<const LinkUse> loads, std::int64_t cap, std::int64_t link_limit) {
  Flow& f = flows_[flow];
  f.loads = loads;
  f.cap = cap;
  f.link_limit = link_limit;
  f.place.resize(loads.size());
  for (std::uint32_t i = 0; i < loads.size(); ++i) {
    Link& link = links_[loads[i].link.index()];
    f.place[i] = static_cast<std::uint32_t>(link.flows.size());
    link.flows.push_back({flow, i, loads[i].coefficient});
    link.weight += loads[i].coefficient;
  }
}

void FairShares::add(std::uint32_t flow, std::span<const LinkUse> loads, std::int64_t cap, std::int64_t link_limit) {
  insert(flow, loads, cap, link_limit);
  flows_[flow].rate = 0;
  fresh_.push_back(flow);
}

void FairShares::restore(std::uint32_t flow, std::span<const LinkUse> loads, std::int64_t cap, std::int64_t link_limit,
                         std::int64_t rate) {
  insert(flow, loads, cap, link_limit);
  flows_[flow].rate = rate;
}

void FairShares::touch(std::uint32_t flow, std::int64_t rate) {
  lowest_ = std::min(lowest_, rate);
  for (const LinkUse& load : flows_[flow].loads) touched_.push_back(load.link.index());
}

void FairShares::remove(std::uint32_t flow) {
  Flow& f = flows_[flow];
  bool shared = false;
  for (std::uint32_t i = 0; i < f.loads.size(); ++i) {
    Link& link = links_[f.loads[i].link.index()];
    link.weight -= f.loads[i].coefficient;
    const Entry last = link.flows.back();
    link.flows[f.place[i]] = last;
    flows_[last.flow].place[last.load] = f.place[i];
    link.flows.pop_back();
    shared |= !link.flows.empty();
  }
  // No other flow is affected: no solve is needed.
  if (f.rate == 0) {
    std::erase(fresh_, flow);
  } else if (shared) {
    touch(flow, f.rate);
  }
  f.loads = {};
}

void FairShares::set_cap(std::uint32_t flow, std::int64_t cap) {
  Flow& f = flows_[flow];
  if (f.cap == cap) return;
  f.cap = cap;
  if (f.rate == 0) return;  // new: it will be solved anyway
  touch(flow, f.rate);      // as if removed and added again
  f.rate = 0;
  fresh_.push_back(flow);
}

std::int64_t FairShares::level_of(const Link& link) {
  if (link.left <= 0) return 1;
  const auto left = static_cast<unsigned __int128>(link.left);
  const auto active = static_cast<std::uint64_t>(link.active);
  const unsigned __int128 level = (left >> 64) == 0 ? static_cast<std::uint64_t>(left) / active : left / active;
  constexpr auto kMost = static_cast<unsigned __int128>(kHighest);
  return level < 1 ? 1 : level > kMost ? kHighest : static_cast<std::int64_t>(level);
}

std::span<const std::uint32_t> FairShares::update() {
  changed_.clear();
  std::int64_t lowest = lowest_;
  for (const std::uint32_t flow : fresh_) {
    Flow& f = flows_[flow];
    std::int64_t least = f.cap;
    bool alone = true;
    for (const LinkUse& load : f.loads) {
      const Link& link = links_[load.link.index()];
      alone &= link.flows.size() == 1;
      if (link.flows.size() == 1) continue;
      const Wide share = link.capacity / link.weight;
      if (share < least) least = std::max<std::int64_t>(1, static_cast<std::int64_t>(share));
    }
    if (alone) {
      f.rate = f.cap;
      changed_.push_back(flow);
    } else {
      lowest = std::min(lowest, least);
      for (const LinkUse& load : f.loads) touched_.push_back(load.link.index());
    }
  }
  if (!touched_.empty()) {
    collect(lowest);
    fill();
    for (const std::uint32_t flow : flow_set_) {
      Flow& f = flows_[flow];
      if (f.rate == f.settled) continue;
      f.rate = f.settled;
      changed_.push_back(flow);
    }
  }
  touched_.clear();
  fresh_.clear();
  lowest_ = kHighest;
  return changed_;
}

// The links and flows connected to a change through flows that are new or at `level` or above.
void FairShares::collect(std::int64_t level) {
  ++epoch_;
  link_set_.clear();
  flow_set_.clear();
  caps_.clear();
  for (const std::uint32_t link : touched_) look_at(link);
  for (std::size_t i = 0; i < link_set_.size(); ++i) {
    Link& link = links_[link_set_[i]];
    link.left = link.capacity;
    link.active = 0;
    for (const Entry& entry : link.flows) {
      Flow& flow = flows_[entry.flow];
      if (flow.seen != epoch_) {
        if (flow.rate != 0 && flow.rate < level) {
          link.left -= Wide{entry.coefficient} * flow.rate;
          continue;
        }
        flow.seen = epoch_;
        flow.settled = 0;
        flow_set_.push_back(entry.flow);
        if (flow.cap < flow.link_limit) caps_.push_back({flow.cap, entry.flow});
        for (const LinkUse& load : flow.loads) look_at(load.link.index());
      }
      link.active += entry.coefficient;
    }
  }
}

void FairShares::look_at(std::uint32_t link) {
  if (links_[link].seen == epoch_) return;
  links_[link].seen = epoch_;
  link_set_.push_back(link);
}

void FairShares::fill() {
  link_levels_.clear();
  for (const std::uint32_t link : link_set_)
    if (links_[link].active > 0) link_levels_.push_back({level_of(links_[link]), link});
  std::make_heap(link_levels_.begin(), link_levels_.end());
  std::make_heap(caps_.begin(), caps_.end());
  const auto pop = [](std::vector<Level>& heap) {
    std::pop_heap(heap.begin(), heap.end());
    const Level top = heap.back();
    heap.pop_back();
    return top;
  };

  for (;;) {
    // Levels only rise, so a stale one on the heap is a lower bound: update the top until it is current.
    while (!link_levels_.empty()) {
      const Level top = link_levels_.front();
      const Link& link = links_[top.index];
      if (link.active == 0) {
        pop(link_levels_);
        continue;
      }
      const std::int64_t level = level_of(link);
      if (level == top.rate) break;
      pop(link_levels_);
      link_levels_.push_back({level, top.index});
      std::push_heap(link_levels_.begin(), link_levels_.end());
    }
    while (!caps_.empty() && flows_[caps_.front().index].settled != 0) pop(caps_);
    if (link_levels_.empty() && caps_.empty()) break;
    const std::int64_t link_rate = link_levels_.empty() ? kHighest : link_levels_.front().rate;
    const std::int64_t cap_rate = caps_.empty() ? kHighest : caps_.front().rate;
    const std::int64_t rate = std::min(link_rate, cap_rate);

    // Find all links at this level before any flow is settled.
    binding_.clear();
    while (!link_levels_.empty() && link_levels_.front().rate == rate) {
      const Level top = pop(link_levels_);
      const Link& link = links_[top.index];
      if (link.active == 0) continue;
      const std::int64_t level = level_of(link);
      if (level == rate) {
        binding_.push_back(top.index);
      } else {
        link_levels_.push_back({level, top.index});
        std::push_heap(link_levels_.begin(), link_levels_.end());
      }
    }
    while (!caps_.empty() && caps_.front().rate == rate)
      if (const Level top = pop(caps_); flows_[top.index].settled == 0) settle(top.index, rate);
    for (const std::uint32_t index : binding_)
      for (const Entry& entry : links_[index].flows)
        if (flows_[entry.flow].seen == epoch_ && flows_[entry.flow].settled == 0) settle(entry.flow, rate);
  }
}

void FairShares::settle(std::uint32_t flow, std::int64_t rate) {
  flows_[flow].settled = rate;
  for (const LinkUse& load : flows_[flow].loads) {
    Link& link = links_[load.link.index()];
    link.left -= Wide{load.coefficient} * rate;
    link.active -= load.coefficient;
  }
}

}  // namespace weft
