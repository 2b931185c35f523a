#include "cluster/fabric.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/checked.h"

namespace weft {
namespace {

constexpr int kAllRails = -1;

}  // namespace

std::string fabric_name(const FabricSpec& spec) {
  const auto* tree = std::get_if<TreeFabric>(&spec);
  if (tree == nullptr) return "dragonfly";
  if (tree->rails) return "rail-optimised";
  return tree->levels.empty() ? "single switch" : "fat tree";
}

Status check(const FabricSpec& spec) {
  if (const auto* dragonfly = std::get_if<DragonflyFabric>(&spec)) {
    if (dragonfly->nodes_per_router < 1) return error("nodes_per_router {}: at least 1", dragonfly->nodes_per_router);
    if (dragonfly->routers_per_group < 1 || dragonfly->routers_per_group > 4096)
      return error("routers_per_group {}: 1 to 4096", dragonfly->routers_per_group);
    if (!(dragonfly->local.value.value > 0)) return error("local bandwidth: must be more than zero");
    if (!(dragonfly->global.value.value > 0)) return error("global bandwidth: must be more than zero");
    return Ok{};
  }
  const auto& tree = std::get<TreeFabric>(spec);
  std::int64_t below = 0;
  for (const TreeFabric::Level& level : tree.levels) {
    if (level.nodes <= below)
      return error("level of {} nodes: must hold more than the level below it ({})", level.nodes, below);
    if (!std::isfinite(level.oversubscription) || level.oversubscription < 1e-3 || level.oversubscription > 1e6)
      return error("oversubscription {}: a factor from 0.001 to 1000000; 1 is full bisection", level.oversubscription);
    below = level.nodes;
  }
  if (tree.rails && tree.levels.empty()) return error("rail-optimised fabric: needs at least one level");
  return Ok{};
}

Fabric::Fabric(FabricSpec spec, std::vector<NodeRun> runs) : spec_(std::move(spec)), runs_(std::move(runs)) {
  std::size_t rails = 1;
  for (const NodeRun& run : runs_) {
    nodes_ += run.nodes;
    rails = std::max(rails, run.nic_rates.size());
  }
  if (const DragonflyFabric* shape = dragonfly()) {
    const std::int64_t routers = ceil_div(nodes_, shape->nodes_per_router);
    groups_ = ceil_div(routers, shape->routers_per_group);
    const std::int64_t local = groups_ * shape->routers_per_group * (shape->routers_per_group - 1);
    link_count_ = local + groups_ * (groups_ - 1);
    return;
  }
  const auto& tree = std::get<TreeFabric>(spec_);
  if (tree.rails) planes_ = static_cast<int>(rails);
  for (const TreeFabric::Level& level : tree.levels) {
    const std::int64_t switches = ceil_div(nodes_, level.nodes);
    // A single switch has no level above it, unless rails must still be joined.
    if (switches == 1 && !tree.rails) break;
    levels_.push_back({level.nodes, switches, level.oversubscription, link_count_});
    link_count_ += 2 * switches * planes_;
    if (switches == 1) break;
  }
}

double Fabric::rate_below(std::int64_t first_node, std::int64_t last_node, int rail) const {
  double rate = 0;
  std::int64_t at = 0;
  for (const NodeRun& run : runs_) {
    const std::int64_t inside = std::min(last_node, at + run.nodes) - std::max(first_node, at);
    at += run.nodes;
    if (inside <= 0) continue;
    double one_node = 0;
    for (std::size_t nic = 0; nic < run.nic_rates.size(); ++nic)
      if (rail == kAllRails || static_cast<int>(nic) == rail) one_node += run.nic_rates[nic].value;
    rate += static_cast<double>(inside) * one_node;
  }
  return rate;
}

Fabric::Capacity Fabric::link(std::int64_t offset) const {
  WEFT_CHECK(offset >= 0 && offset < link_count_, "fabric link {} of {}", offset, link_count_);
  if (const DragonflyFabric* shape = dragonfly()) {
    const std::int64_t local = groups_ * shape->routers_per_group * (shape->routers_per_group - 1);
    return {offset < local ? shape->local.value : shape->global.value, shape->latency.value, false};
  }
  const auto level = std::prev(std::upper_bound(levels_.begin(), levels_.end(), offset,
                                                [](std::int64_t id, const TreeLevel& s) { return id < s.first_link; }));
  const std::int64_t index = (offset - level->first_link) / 2;
  const std::int64_t block = index / planes_;
  const int rail = planes_ == 1 ? kAllRails : static_cast<int>(index % planes_);
  const double below = rate_below(block * level->nodes, (block + 1) * level->nodes, rail);
  return {{below / level->oversubscription}, std::get<TreeFabric>(spec_).latency.value, level->oversubscription <= 1};
}

std::int64_t Fabric::router_link(std::int64_t group, std::int64_t from, std::int64_t to) const {
  const std::int64_t routers = dragonfly()->routers_per_group;
  return (group * routers + from) * (routers - 1) + (to < from ? to : to - 1);
}

void Fabric::append_path(std::int64_t node_a, int rail_a, std::int64_t node_b, int rail_b, LinkId first,
                         std::vector<LinkId>& out) const {
  const auto push = [&](std::int64_t offset) {
    out.push_back(LinkId(first.index() + static_cast<std::size_t>(offset)));
  };
  if (const DragonflyFabric* shape = dragonfly()) {
    const std::int64_t routers = shape->routers_per_group;
    const std::int64_t router_a = node_a / shape->nodes_per_router, router_b = node_b / shape->nodes_per_router;
    const std::int64_t group_a = router_a / routers, group_b = router_b / routers;
    std::int64_t at = router_a % routers;
    const std::int64_t target = router_b % routers;
    if (group_a != group_b) {
      // Global links of a group are assigned to its routers round-robin.
      const std::int64_t port_a = group_b < group_a ? group_b : group_b - 1;
      const std::int64_t port_b = group_a < group_b ? group_a : group_a - 1;
      if (at != port_a % routers) push(router_link(group_a, at, port_a % routers));
      push(groups_ * routers * (routers - 1) + group_a * (groups_ - 1) + port_a);
      at = port_b % routers;
    }
    if (at != target) push(router_link(group_b, at, target));
    return;
  }
  if (levels_.empty()) return;
  const bool change_rail = planes_ > 1 && rail_a != rail_b;
  std::size_t top = 0;
  while (top < levels_.size() && (change_rail || node_a / levels_[top].nodes != node_b / levels_[top].nodes)) ++top;
  const auto plane = [&](int rail) { return planes_ > 1 ? rail : 0; };
  for (std::size_t level = 0; level < top; ++level)
    push(levels_[level].first_link + 2 * (node_a / levels_[level].nodes * planes_ + plane(rail_a)));
  for (std::size_t level = top; level-- > 0;)
    push(levels_[level].first_link + 2 * (node_b / levels_[level].nodes * planes_ + plane(rail_b)) + 1);
}

std::int64_t Fabric::reverse(std::int64_t offset) const {
  const DragonflyFabric* shape = dragonfly();
  if (shape == nullptr) return offset ^ 1;
  const std::int64_t routers = shape->routers_per_group;
  const std::int64_t local = groups_ * routers * (routers - 1);
  if (offset < local) {
    const std::int64_t from = offset / (routers - 1);
    std::int64_t to = offset % (routers - 1);
    if (to >= from % routers) ++to;
    return router_link(from / routers, to, from % routers);
  }
  const std::int64_t from = (offset - local) / (groups_ - 1);
  std::int64_t to = (offset - local) % (groups_ - 1);
  if (to >= from) ++to;
  return local + to * (groups_ - 1) + (from < to ? from : from - 1);
}

std::vector<Fabric::Tier> Fabric::tiers() const {
  std::vector<Tier> tiers;
  if (const DragonflyFabric* shape = dragonfly()) {
    const auto add = [&](std::string name, std::int64_t links, BytesPerSecond rate) {
      if (links > 0) tiers.push_back({std::move(name), links, rate, rate, rate * static_cast<double>(links)});
    };
    add("local", groups_ * shape->routers_per_group * (shape->routers_per_group - 1), shape->local.value);
    add("global", groups_ * (groups_ - 1), shape->global.value);
    return tiers;
  }
  for (const TreeLevel& level : levels_) {
    Tier tier{planes_ > 1 ? "rail switch" : "leaf switch", 2 * level.switches * planes_, {}, {}, {}};
    if (!tiers.empty()) tier.name = tiers.size() == 1 ? "pod switch" : fmt::format("level {} switch", tiers.size() + 1);
    // Blocks between the borders of two runs are identical, so only blocks at a border are inspected.
    std::vector<std::int64_t> blocks = {0, level.switches - 1};
    std::int64_t border = 0;
    for (const NodeRun& run : runs_) {
      border += run.nodes;
      for (std::int64_t near = -1; near <= 1; ++near)
        blocks.push_back(std::clamp<std::int64_t>(border / level.nodes + near, 0, level.switches - 1));
    }
    tier.slowest.value = std::numeric_limits<double>::infinity();
    for (std::int64_t block : blocks)
      for (int plane = 0; plane < planes_; ++plane) {
        const BytesPerSecond rate = link(level.first_link + 2 * (block * planes_ + plane)).bandwidth;
        if (rate.value <= 0) continue;  // a rail that no node of this block has
        tier.slowest = std::min(tier.slowest, rate);
        tier.fastest = std::max(tier.fastest, rate);
      }
    tier.total.value = 2 * rate_below(0, nodes_, kAllRails) / level.oversubscription;
    tiers.push_back(tier);
  }
  return tiers;
}

BytesPerSecond Fabric::bisection() const {
  double least = rate_below(0, nodes_, kAllRails) / 2;
  if (const DragonflyFabric* shape = dragonfly()) {
    const bool one_group = groups_ < 2;
    const std::int64_t parts = one_group ? ceil_div(nodes_, shape->nodes_per_router) : groups_;
    const std::int64_t links = (parts / 2) * ((parts + 1) / 2);  // between two halves, all to all
    if (parts > 1)
      least = std::min(least, static_cast<double>(links) * (one_group ? shape->local : shape->global).value.value);
    return {least};
  }
  for (const TreeLevel& level : levels_)
    if (level.switches > 1) least = std::min(least, rate_below(0, nodes_, kAllRails) / level.oversubscription / 2);
  return {least};
}

}  // namespace weft
