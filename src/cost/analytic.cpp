#include "cost/analytic.h"

#include <algorithm>

#include "base/check.h"
#include "cost/pass_share.h"
#include "cost/rounding.h"

namespace weft {
namespace {

constexpr std::array kProtocolList = {Protocol::LL, Protocol::LL128, Protocol::Simple};

std::int64_t whole(double bytes_per_second) {
  return std::max<std::int64_t>(1, static_cast<std::int64_t>(std::min(bytes_per_second, 4e18)));
}

std::int64_t round_up(double bytes) {
  const auto down = static_cast<std::int64_t>(std::min(bytes, 4e18));
  return static_cast<double>(down) < bytes ? down + 1 : down;
}

}  // namespace

AnalyticCost::AnalyticCost(const SoftwareStack& stack, const Tuning& tuning)
    : tuning_(tuning),
      fused_(kernels_of(stack)),
      collective_rate_(stack.collective_rate.value),
      nvls_(stack.nvls.value) {}

void AnalyticCost::compute(std::span<const ComputeQuery> queries, std::span<ComputeCost> costs) const {
  WEFT_CHECK(queries.size() == costs.size(), "{} queries, {} costs", queries.size(), costs.size());
  for (std::size_t i = 0; i < queries.size(); ++i) costs[i] = operator_cost(queries[i], tuning_, fused_);
}

void AnalyticCost::communicate(std::span<const CommunicateQuery> queries, std::span<CommunicateCost> costs) const {
  WEFT_CHECK(queries.size() == costs.size(), "{} queries, {} costs", queries.size(), costs.size());
  for (std::size_t i = 0; i < queries.size(); ++i) costs[i] = cheapest(queries[i]);
}

std::int64_t AnalyticCost::capacity(const Link& link) const {
  const LinkTuning& tuning = tuning_.communication.links[static_cast<std::size_t>(link.kind)];
  return whole(link.bandwidth.value * tuning.efficiency.value);
}

Interference AnalyticCost::interference(const DeviceSpec& device) const {
  const DeviceTuning& tuning = tuning_.of(device);
  const auto fixed = [](double value) { return static_cast<std::int64_t>(value * static_cast<double>(kOne) + 0.5); };
  return {.compute_per_sm = fixed(tuning.compute_per_sm.value),
          .memory_weight = fixed(tuning.memory_weight.value),
          .communication_weight = fixed(tuning.communication_weight.value),
          .wave_loss = fixed(tuning.wave_loss.value),
          .wave_weight = fixed(tuning.wave_weight.value)};
}

// time = start + steps · (step + links' latency) + bytes / rate, for every algorithm and protocol. The choice minimises
// the time as NCCL estimates it: from the links inside nodes and the NICs, not from the switches between nodes.
CommunicateCost AnalyticCost::cheapest(const CommunicateQuery& query) const {
  const Communicator& group = *query.communicator;
  const CommunicationTuning& tuning = tuning_.communication;
  const DeviceTuning& device = tuning_.of(*group.device);
  const double members = static_cast<double>(group.members.size());
  CommunicateCost best;
  Picoseconds best_time = 0;
  bool found = false;
  for (std::uint32_t index = 0; index < group.routes.size(); ++index) {
    const Route& route = group.routes[index];
    const bool in_switch = route.algorithm == Algorithm::Nvls || route.algorithm == Algorithm::NvlsTree;
    if (in_switch && (!nvls_ || device.nvls.value <= 0)) continue;

    // The rate that the links allow, in whole bytes per second as the engine computes it, and the algorithm's rate.
    std::int64_t limit = 0;
    double rate = 0, seen_rate = 0;
    LinkKind slowest = LinkKind::kMemory;
    bool scale_up = false;
    for (std::size_t kind = 0; kind < kLinkKinds; ++kind) {
      const Route::Narrowest& narrow = route.narrowest[kind];
      if (narrow.coefficient == 0) continue;
      const auto link_kind = static_cast<LinkKind>(kind);
      const std::int64_t carried = capacity({link_kind, narrow.bandwidth, {}});
      const auto allowed = static_cast<std::int64_t>(static_cast<__int128>(carried) * kOne / narrow.coefficient);
      double reached = static_cast<double>(allowed);
      if (is_scale_up(link_kind)) {
        scale_up = true;
        if (route.lane.value > 0)
          reached = std::min(reached, static_cast<double>(capacity({link_kind, route.lane, {}})));
        if (in_switch)
          reached = narrow.bandwidth.value * static_cast<double>(kOne) / static_cast<double>(narrow.coefficient) *
                    device.nvls.value;
        else if (group.traffic <= Traffic::AllGather)
          reached *= device.collective.value * (1 - device.collective_fill.value / members);
        else if (group.traffic == Traffic::AllToAll)
          reached *= device.collective.value;  // compute units copy here too, but nothing fills along a ring
      } else if (group.network != nullptr && (link_kind == LinkKind::kNic || link_kind == LinkKind::kFabric)) {
        reached /= group.network->crowding(group.nodes);
      }
      if (limit == 0 || allowed < limit) limit = allowed;
      if (link_kind != LinkKind::kFabric && (seen_rate == 0 || reached < seen_rate)) seen_rate = reached;
      if (rate == 0 || reached < rate) {
        rate = reached;
        slowest = link_kind;
      }
    }
    if (limit == 0) continue;
    const bool tree = route.algorithm == Algorithm::Tree || route.algorithm == Algorithm::NvlsTree;
    if (seen_rate == 0) seen_rate = rate;
    if (group.traffic <= Traffic::AllGather) {
      rate *= collective_rate_;
      seen_rate *= collective_rate_;
    }
    if (tree && group.nodes > 1) {
      rate *= tuning.tree.value;
      seen_rate *= tuning.tree.value;
    }
    if (query.parts == Parts::Grouped) {
      rate *= tuning.grouped.value;
      seen_rate *= tuning.grouped.value;
    }

    // What the network between nodes adds: a NIC sends one message for every member of a ring, one for every level of a
    // tree; all wait for the last.
    double added = 0;
    if (group.network != nullptr) {
      const int messages = route.steps_between + (route.algorithm == Algorithm::Ring ? route.steps_inside : 0);
      added = messages * group.network->message.value.value +
              group.network->wait_for_last(static_cast<int>(group.members.size())).value;
    }

    CommunicateCost cost{.bytes = round_up(route.volume * static_cast<double>(query.bytes)), .route = index};
    const bool copied = group.traffic == Traffic::HostCopy;
    const double channels = copied ? 0 : tuning.links[static_cast<std::size_t>(slowest)].channels.value;
    cost.sm_share = share(channels / compute_units(*group.device).count);
    const bool reduces = group.traffic == Traffic::AllReduce || group.traffic == Traffic::ReduceScatter;
    const double traffic =
        (reduces ? tuning.memory_reduce.value : tuning.memory_move.value) * route.sent / route.volume;

    for (Protocol protocol : kProtocolList) {
      const ProtocolTuning& words = tuning.protocols[static_cast<std::size_t>(protocol)];
      double start = words.start.value.value;
      if (protocol == Protocol::LL128 && !scale_up) continue;
      if (protocol != Protocol::Simple && (in_switch || copied)) continue;
      double inside = words.step_inside.value.value;
      const double between = words.step_between.value.value;
      if (in_switch) inside = tuning.nvls_step.value.value;
      if (group.traffic == Traffic::Transfer || group.traffic == Traffic::Halo || group.traffic == Traffic::Shift)
        start = tuning.transfer.value.value;
      if (copied) start = tuning.host_copy.value.value;
      if (group.traffic == Traffic::AllToAll || query.parts == Parts::Grouped)
        start += (members - 1) * tuning.message.value.value;
      const double latency = start + route.steps_inside * (inside + route.latency_inside.value) +
                             route.steps_between * (between + route.latency_between.value) + added;
      cost.latency = picoseconds(latency);
      cost.protocol = protocol;
      cost.cap = std::min(limit, whole(rate * words.efficiency.value));
      cost.memory_share = share(traffic * static_cast<double>(cost.cap) / memory_rate(*group.device).peak.value);
      CommunicateCost seen = cost;
      seen.cap = whole(seen_rate * words.efficiency.value);
      const Picoseconds time = isolated_time(seen);
      if (found && time >= best_time) continue;
      found = true;
      best = cost;
      best_time = time;
    }
  }
  if (query.repacked > 0) {
    const double rate = memory_rate(*group.device).peak.value * plain_share(Pass::Gather, device);
    best.latency += picoseconds(2 * static_cast<double>(query.repacked) / rate);  // read and written
  }
  return best;
}

}  // namespace weft
