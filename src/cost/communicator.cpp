#include "cost/communicator.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "base/check.h"
#include "cost/ring_packing.h"
#include "simulate/workload.h"

namespace weft {
namespace {

// A larger all-to-all visits a sample of as many pairs as this many members have.
constexpr std::size_t kPairsOf = 128;

// The members in one node, as indices into the communicator's members.
using Block = std::vector<std::uint32_t>;

// The rings through the members of a node: the same for all nodes of a type with members in the same positions.
struct Pattern {
  std::vector<std::vector<int>> rings;    // directed, as positions in the block
  std::vector<int> entries;               // one member per NIC in use, at which a ring enters the node
  std::vector<std::vector<int>> through;  // by entry: the ring's order of members, out over the same NIC if possible
  bool on_switch = false;                 // every member reaches every other through a scale-up switch
  std::vector<std::pair<int, int>> spanning;  // if direct links connect all members but have no ring: a tree
  BytesPerSecond lane;                        // the narrowest direct link
};

class Builder {
 public:
  Builder(const Cluster& cluster, std::span<const DeviceId> members, Traffic traffic) : cluster_(cluster) {
    result_.traffic = traffic;
    result_.members.assign(members.begin(), members.end());
    result_.device = &cluster.spec(members[0]);
    std::map<NodeId, std::size_t> block_of;
    NodeId last;
    std::size_t block = 0;
    for (std::uint32_t i = 0; i < members.size(); ++i) {
      const NodeId node = cluster.node_of(members[i]);
      if (node != last) {  // members of a node are mostly consecutive
        const auto [at, fresh] = block_of.try_emplace(node, blocks_.size());
        if (fresh) blocks_.emplace_back();
        block = at->second;
        last = node;
      }
      blocks_[block].push_back(i);
    }
    result_.nodes = static_cast<int>(blocks_.size());
    result_.fewest_per_node = static_cast<int>(blocks_[0].size());
    for (const Block& members_here : blocks_) {
      const int count = static_cast<int>(members_here.size());
      result_.fewest_per_node = std::min(result_.fewest_per_node, count);
      result_.most_per_node = std::max(result_.most_per_node, count);
    }
    if (result_.nodes > 1) find_network();
  }

  Communicator take() { return std::move(result_); }

  // Must come first: trees and NVLS use the patterns found for rings.
  void add_ring() {
    find_patterns();
    const int n = static_cast<int>(result_.members.size()), nodes = result_.nodes;
    const bool all_reduce = result_.traffic == Traffic::AllReduce;
    const double volume = (all_reduce ? 2.0 : 1.0) * (n - 1) / n;
    std::vector<Hop> hops;
    for (std::size_t b = 0; b < blocks_.size(); ++b) {
      add_inside(b, volume, nodes == 1, hops);
      if (nodes == 1) continue;
      const std::size_t next = b + 1 == blocks_.size() ? 0 : b + 1;
      for (std::size_t ring = 0; ring < rings_; ++ring)
        hops.push_back({leaving(b, ring), blocks_[next][entry(next, ring)], volume / static_cast<double>(rings_)});
    }
    const int passes = all_reduce ? 2 : 1;
    const int between = nodes == 1 ? 0 : passes * (nodes - 1);
    add_route(Algorithm::Ring, std::move(hops), passes * (n - 1) - between, between);
  }

  void add_tree() {
    std::vector<Hop> hops;
    if (result_.nodes == 1) {
      for (const auto& [parent, child] : pattern_of_[0]->spanning) {
        hops.push_back({blocks_[0][parent], blocks_[0][child], 1});
        hops.push_back({blocks_[0][child], blocks_[0][parent], 1});
      }
      if (hops.empty()) return;
      add_route(Algorithm::Tree, std::move(hops), 2 * (result_.most_per_node - 1), 0);
      result_.routes.back().lane = pattern_of_[0]->lane;
      return;
    }
    for (std::size_t b = 0; b < blocks_.size(); ++b) {
      std::vector<Hop> chain;
      add_inside(b, 1, false, chain);
      for (const Hop& hop : chain) {  // up to the node's entry, and down again
        hops.push_back(hop);
        hops.push_back({hop.to, hop.from, hop.bytes});
      }
    }
    add_trees(hops);
    add_route(Algorithm::Tree, std::move(hops), 2 * (result_.most_per_node - 1), 2 * depth());
  }

  void add_nvls() {
    for (const Pattern* pattern : pattern_of_)
      if (!pattern->on_switch) return;
    std::vector<Hop> hops;
    for (const Block& block : blocks_) {
      const double n = static_cast<double>(block.size());
      // To the switch and back once per member: these are the links of a ring.
      for (std::size_t i = 0; i < block.size(); ++i)
        hops.push_back({block[i], block[i + 1 == block.size() ? 0 : i + 1], 1 + 1 / n});
    }
    if (result_.nodes > 1) add_trees(hops);
    add_route(result_.nodes == 1 ? Algorithm::Nvls : Algorithm::NvlsTree, std::move(hops), 2,
              result_.nodes == 1 ? 0 : 2 * depth());
  }

  void add_pairs() {
    const std::size_t n = result_.members.size();
    const std::size_t shifts = n <= kPairsOf ? n - 1 : std::max<std::size_t>(8, kPairsOf * kPairsOf / n);
    const double share = static_cast<double>(n - 1) / static_cast<double>(n) / static_cast<double>(shifts);
    std::vector<Hop> hops;
    for (std::size_t k = 0; k < shifts; ++k) {
      const std::size_t shift = 1 + (2 * k + 1) * (n - 1) / (2 * shifts);  // the middle of each interval of shifts
      for (std::size_t i = 0; i < n; ++i)
        hops.push_back({static_cast<std::uint32_t>(i), static_cast<std::uint32_t>((i + shift) % n), share});
    }
    // Messages do not depend on one another, but a member sends them in turn.
    add_route(Algorithm::Direct, std::move(hops), result_.most_per_node > 1 ? 1 : 0, result_.nodes > 1 ? 1 : 0);
  }

  void add_neighbours() {
    std::vector<Hop> hops;
    for (std::uint32_t i = 0; i + 1 < result_.members.size(); ++i) {
      hops.push_back({i, i + 1, 0.5});
      hops.push_back({i + 1, i, 0.5});
    }
    add_route(Algorithm::Direct, std::move(hops), result_.most_per_node > 1 ? 1 : 0, result_.nodes > 1 ? 1 : 0);
  }

  // Each member sends V to the next, the last to the first.
  void add_next() {
    const auto n = static_cast<std::uint32_t>(result_.members.size());
    std::vector<Hop> hops;
    for (std::uint32_t i = 0; i < n; ++i) hops.push_back({i, (i + 1) % n, 1});
    add_direct(std::move(hops));
  }

  void add_direct(std::vector<Hop> hops) {
    bool inside = false, between = false;
    for (const Hop& hop : hops) (same_node(hop) ? inside : between) = true;
    add_route(Algorithm::Direct, std::move(hops), inside ? 1 : 0, between ? 1 : 0);
  }

  // A route of given links, each carrying V.
  void add_links(std::span<const LinkId> links) {
    for (LinkId link : links) loads_.emplace_back(link, 1.0);
    Route route{.algorithm = Algorithm::Direct, .sent = 1, .steps_inside = 1};
    for (LinkId link : links) route.latency_inside += cluster_.link(link).latency;
    settle(route);
    result_.routes.push_back(std::move(route));
  }

 private:
  void find_network() {
    const NodeType* last = nullptr;
    for (const Block& block : blocks_) {
      const NodeType* type = &cluster_.type_of(cluster_.node_of(result_.members[block[0]]));
      if (type == std::exchange(last, type)) continue;
      const NetworkTraits* found = type->network();
      if (found != nullptr &&
          (result_.network == nullptr || found->collisions.value > result_.network->collisions.value))
        result_.network = found;
    }
  }

  bool same_node(const Hop& hop) const {
    return cluster_.node_of(result_.members[hop.from]) == cluster_.node_of(result_.members[hop.to]);
  }

  void find_patterns() {
    std::map<std::pair<const NodeType*, std::vector<int>>, std::size_t> known;
    std::vector<std::size_t> index;
    for (const Block& block : blocks_) {
      std::vector<int> places;
      for (std::uint32_t member : block) places.push_back(cluster_.index_in_node(result_.members[member]));
      const NodeType* type = &cluster_.type_of(cluster_.node_of(result_.members[block[0]]));
      const auto [at, fresh] = known.try_emplace({type, std::move(places)}, patterns_.size());
      if (fresh) patterns_.push_back(pattern(block));
      index.push_back(at->second);
    }
    rings_ = patterns_[0].entries.size();
    for (const Pattern& found : patterns_) rings_ = std::min(rings_, found.entries.size());
    for (std::size_t i : index) pattern_of_.push_back(&patterns_[i]);
  }

  Pattern pattern(const Block& block) const {
    const int n = static_cast<int>(block.size());
    Pattern pattern;
    std::vector<std::vector<double>> direct(block.size(), std::vector<double>(block.size(), 0));
    double lane = 0;
    pattern.on_switch = n > 1;
    std::vector<LinkId> path;
    for (int a = 0; a < n; ++a)
      for (int b = 0; b < n; ++b) {
        if (a == b) continue;
        path.clear();
        cluster_.append_path(result_.members[block[a]], result_.members[block[b]], path);
        const Link first = cluster_.link(path[0]);
        pattern.on_switch &= path.size() == 2 && first.kind == LinkKind::kNvswitch;
        if (path.size() != 1 || !is_scale_up(first.kind)) continue;
        direct[a][b] = first.bandwidth.value;
        lane = lane == 0 ? first.bandwidth.value : std::min(lane, first.bandwidth.value);
      }
    pattern.lane = {lane};
    if (lane > 0 && n <= 16) {
      std::vector<std::vector<int>> lanes(block.size(), std::vector<int>(block.size(), 0));
      for (int a = 0; a < n; ++a)
        for (int b = 0; b < n; ++b) lanes[a][b] = static_cast<int>(std::min(direct[a][b], direct[b][a]) / lane + 0.5);
      for (std::vector<int>& ring : pack_rings(lanes)) {
        pattern.rings.emplace_back(ring.rbegin(), ring.rend());
        pattern.rings.push_back(std::move(ring));
      }
    }
    if (pattern.rings.empty()) {
      if (lane > 0) pattern.spanning = spanning_tree(direct);
      pattern.rings.emplace_back();
      for (int i = 0; i < n; ++i) pattern.rings[0].push_back(i);
    }
    std::vector<int> rails;
    for (int i = 0; i < n; ++i) {
      const int rail = cluster_.rail_of(result_.members[block[i]]);
      if (std::find(rails.begin(), rails.end(), rail) != rails.end()) continue;
      rails.push_back(rail);
      pattern.entries.push_back(i);
    }
    for (std::size_t ring = 0; ring < pattern.entries.size(); ++ring)
      pattern.through.push_back(way_through(block, pattern, ring));
    return pattern;
  }

  // The order of a ring from its entry. Through a switch any order is possible: a member on the entry's rail comes
  // last.
  std::vector<int> way_through(const Block& block, const Pattern& pattern, std::size_t ring) const {
    std::vector<int> way = pattern.rings[ring % pattern.rings.size()];
    const int entry = pattern.entries[ring];
    std::rotate(way.begin(), std::find(way.begin(), way.end(), entry), way.end());
    if (!pattern.on_switch) return way;
    const auto same_rail = std::find_if(way.begin() + 1, way.end(), [&](int other) {
      return cluster_.rail_of(result_.members[block[other]]) == cluster_.rail_of(result_.members[block[entry]]);
    });
    if (same_rail != way.end()) std::rotate(same_rail, same_rail + 1, way.end());
    return way;
  }

  // The widest tree of direct links, grown from the first member, as (parent, child); empty if they do not connect all.
  static std::vector<std::pair<int, int>> spanning_tree(const std::vector<std::vector<double>>& direct) {
    const int n = static_cast<int>(direct.size());
    std::vector<bool> joined(direct.size(), false);
    joined[0] = true;
    std::vector<std::pair<int, int>> tree;
    while (static_cast<int>(tree.size()) + 1 < n) {
      std::pair<int, int> next;
      double widest = 0;
      for (int a = 0; a < n; ++a)
        for (int b = 0; b < n; ++b)
          if (joined[a] && !joined[b] && direct[a][b] > widest) {
            widest = direct[a][b];
            next = {a, b};
          }
      if (widest == 0) return {};
      joined[next.second] = true;
      tree.push_back(next);
    }
    return tree;
  }

  // The member at which ring number `ring` enters a node, and the one before it in the ring, from which it leaves.
  std::size_t entry(std::size_t block, std::size_t ring) const {
    return static_cast<std::size_t>(pattern_of_[block]->entries[ring]);
  }
  std::uint32_t leaving(std::size_t block, std::size_t ring) const {
    return blocks_[block][pattern_of_[block]->through[ring].back()];
  }

  // Adds the hops inside a node of rings that carry `bytes` in total: closed rings, or open ones that leave the node
  // before returning to their entry.
  void add_inside(std::size_t b, double bytes, bool closed, std::vector<Hop>& hops) const {
    const Block& block = blocks_[b];
    const std::size_t n = block.size();
    if (n == 1) return;
    const std::size_t rings = closed ? pattern_of_[b]->rings.size() : rings_;
    std::vector<double> between(n * n, 0.0);
    for (std::size_t ring = 0; ring < rings; ++ring) {
      const std::vector<int>& around = closed ? pattern_of_[b]->rings[ring] : pattern_of_[b]->through[ring];
      for (std::size_t i = 0; i < n; ++i) {
        const int from = around[i], to = around[i + 1 == n ? 0 : i + 1];
        if (closed || i + 1 < n)
          between[static_cast<std::size_t>(from) * n + static_cast<std::size_t>(to)] +=
              bytes / static_cast<double>(rings);
      }
    }
    for (std::size_t from = 0; from < n; ++from)
      for (std::size_t to = 0; to < n; ++to)
        if (between[from * n + to] > 0) hops.push_back({block[from], block[to], between[from * n + to]});
  }

  int depth() const {
    int depth = 0;
    while ((1 << depth) < result_.nodes) ++depth;
    return depth;
  }

  // Two binary trees in the order of the nodes, inner nodes of one leaves of the other; half of the bytes go up and
  // down each, over every NIC its share (Sanders, Speck, Träff: Two-tree algorithms, 2009).
  void add_trees(std::vector<Hop>& hops) const {
    const std::size_t nodes = blocks_.size();
    for (std::size_t i = 1; i < nodes; ++i) {
      const std::size_t bit = i & ~(i - 1);
      std::size_t parent = (i ^ bit) | (bit << 1);
      if (parent >= nodes) parent = i ^ bit;
      const std::size_t mirror = nodes - 1 - i, mirror_parent = nodes - 1 - parent;
      for (const auto& [child, above] : {std::pair{i, parent}, std::pair{mirror, mirror_parent}})
        for (std::size_t ring = 0; ring < rings_; ++ring) {
          const double bytes = 0.5 / static_cast<double>(rings_);
          const std::uint32_t low = blocks_[child][entry(child, ring)], high = blocks_[above][entry(above, ring)];
          hops.push_back({low, high, bytes});
          hops.push_back({high, low, bytes});
        }
    }
  }

  void add_route(Algorithm algorithm, std::vector<Hop> hops, int inside, int between) {
    Route route{.algorithm = algorithm, .steps_inside = inside, .steps_between = between, .hops = std::move(hops)};
    for (const Hop& hop : route.hops) {
      route.sent += hop.bytes / static_cast<double>(result_.members.size());
      path_.clear();
      cluster_.append_path(result_.members[hop.from], result_.members[hop.to], path_);
      Seconds latency;
      bool leaves = false;
      for (LinkId link : path_) {
        loads_.emplace_back(link, hop.bytes);
        const Link found = cluster_.link(link);
        if (found.kind != LinkKind::kFabric) latency += found.latency;
        leaves |= found.kind == LinkKind::kNic;
      }
      if (leaves) latency += across_fabric();
      Seconds& largest = leaves ? route.latency_between : route.latency_inside;
      largest = std::max(largest, latency);
    }
    settle(route);
    result_.routes.push_back(std::move(route));
  }

  // One latency for all pairs of nodes, the farthest, as in NCCL's own model.
  Seconds across_fabric() {
    if (!across_) {
      across_ = Seconds{0};
      const auto last = static_cast<std::size_t>(cluster_.device_count() - 1);
      for (LinkId link : cluster_.path(DeviceId(0), DeviceId(last)))
        if (const Link found = cluster_.link(link); found.kind == LinkKind::kFabric) *across_ += found.latency;
    }
    return *across_;
  }

  // Sums the loads per link, by link id: in an array over the range of ids if that is not much longer, else by sorting.
  void add_up_loads() {
    if (loads_.empty()) return;
    LinkId first = loads_[0].first, last = first;
    for (const auto& [link, bytes] : loads_) {
      first = std::min(first, link);
      last = std::max(last, link);
    }
    const std::size_t range = last.index() - first.index() + 1;
    std::size_t count = 0;
    if (range <= 64 * loads_.size()) {
      by_link_.assign(range, 0.0);
      for (const auto& [link, bytes] : loads_) by_link_[link.index() - first.index()] += bytes;
      for (std::size_t i = 0; i < range; ++i)
        if (by_link_[i] > 0) loads_[count++] = {LinkId(first.index() + i), by_link_[i]};
    } else {
      std::stable_sort(loads_.begin(), loads_.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
      for (const auto& [link, bytes] : loads_) {
        if (count > 0 && loads_[count - 1].first == link)
          loads_[count - 1].second += bytes;
        else
          loads_[count++] = {link, bytes};
      }
    }
    loads_.resize(count);
  }

  // A leaf of one tree is an inner node of the other, except at the ends: all links of a kind get the load of the
  // busiest, so that equivalent nodes stay equivalent (src/price folds them).
  void level_loads() {
    std::array<double, kLinkKinds> most = {};
    for (const auto& [link, bytes] : loads_) {
      double& largest = most[static_cast<std::size_t>(cluster_.link(link).kind)];
      largest = std::max(largest, bytes);
    }
    for (auto& [link, bytes] : loads_) bytes = most[static_cast<std::size_t>(cluster_.link(link).kind)];
  }

  // Converts the collected loads to coefficients and finds the bottleneck links.
  void settle(Route& route) {
    add_up_loads();
    if (route.algorithm == Algorithm::Tree || route.algorithm == Algorithm::NvlsTree) level_loads();
    for (const auto& [link, bytes] : loads_) route.volume = std::max(route.volume, bytes);
    route.links.reserve(loads_.size());
    for (const auto& [link, bytes] : loads_) {
      // Rounded up, so that no link exceeds its capacity; 1e-9 of slack absorbs rounding errors of sums of shares.
      const double exact = bytes / route.volume * static_cast<double>(kOne);
      auto coefficient = static_cast<std::int64_t>(exact - 1e-9 * static_cast<double>(kOne));
      if (static_cast<double>(coefficient) < exact - 1e-9 * static_cast<double>(kOne)) ++coefficient;
      coefficient = std::max<std::int64_t>(coefficient, 1);
      route.links.push_back({link, coefficient});
      const Link found = cluster_.link(link);
      Route::Narrowest& narrowest = route.narrowest[static_cast<std::size_t>(found.kind)];
      if (narrowest.coefficient == 0 || found.bandwidth.value * static_cast<double>(narrowest.coefficient) <
                                            narrowest.bandwidth.value * static_cast<double>(coefficient))
        narrowest = {found.bandwidth, coefficient};
    }
    loads_.clear();
  }

  const Cluster& cluster_;
  Communicator result_;
  std::vector<Block> blocks_;
  std::vector<Pattern> patterns_;
  std::vector<const Pattern*> pattern_of_;  // by block
  std::size_t rings_ = 1;                   // rings that cross nodes: as many as the NICs that every node has
  std::vector<LinkId> path_;
  std::vector<std::pair<LinkId, double>> loads_;
  std::vector<double> by_link_;
  std::optional<Seconds> across_;
};

Traffic traffic_of(Collective collective) {
  switch (collective) {
    case Collective::AllReduce:
      return Traffic::AllReduce;
    case Collective::ReduceScatter:
      return Traffic::ReduceScatter;
    case Collective::AllGather:
      return Traffic::AllGather;
    case Collective::AllToAll:
      return Traffic::AllToAll;
    case Collective::HaloExchange:
    case Collective::HaloSum:
      return Traffic::Halo;
    case Collective::Shift:
      return Traffic::Shift;
    case Collective::Slice:
      return Traffic::Transfer;
  }
  return Traffic::Transfer;
}

}  // namespace

std::string_view name_of(Traffic traffic) {
  static constexpr std::string_view names[] = {"all-reduce", "reduce-scatter", "all-gather", "all-to-all",
                                               "halo",       "transfer",       "host-copy",  "shift"};
  return names[static_cast<std::size_t>(traffic)];
}
std::string_view name_of(Algorithm algorithm) {
  static constexpr std::string_view names[] = {"ring", "tree", "nvls", "nvls-tree", "direct"};
  return names[static_cast<std::size_t>(algorithm)];
}
std::string_view name_of(Protocol protocol) {
  static constexpr std::string_view names[] = {"ll", "ll128", "simple"};
  return names[static_cast<std::size_t>(protocol)];
}

Communicator make_communicator(const Cluster& cluster, std::span<const DeviceId> members, Collective collective) {
  WEFT_CHECK(!members.empty(), "a {} of nobody", name_of(collective));
  Builder builder(cluster, members, traffic_of(collective));
  if (members.size() == 1 || collective == Collective::Slice) return builder.take();
  switch (collective) {
    case Collective::AllReduce:
      builder.add_ring();
      builder.add_tree();
      builder.add_nvls();
      break;
    case Collective::ReduceScatter:
    case Collective::AllGather:
      builder.add_ring();
      break;
    case Collective::AllToAll:
      builder.add_pairs();
      break;
    case Collective::HaloExchange:
    case Collective::HaloSum:
      builder.add_neighbours();
      break;
    case Collective::Shift:
      builder.add_next();
      break;
    case Collective::Slice:
      break;
  }
  return builder.take();
}

Communicator make_transfer(const Cluster& cluster, DeviceId from, DeviceId to) {
  const BlockMove move{from, to, 1};
  return make_block_moves(cluster, std::span(&move, 1));
}

Communicator make_block_moves(const Cluster& cluster, std::span<const BlockMove> moves) {
  WEFT_CHECK(!moves.empty(), "no blocks to move");
  std::vector<DeviceId> members;
  double total = 0;
  for (const BlockMove& move : moves) {
    members.push_back(move.from);
    members.push_back(move.to);
    total += static_cast<double>(move.bytes);
  }
  std::sort(members.begin(), members.end());
  members.erase(std::unique(members.begin(), members.end()), members.end());
  const auto place = [&](DeviceId device) {
    return static_cast<std::uint32_t>(std::lower_bound(members.begin(), members.end(), device) - members.begin());
  };
  std::vector<Hop> hops;
  for (const BlockMove& move : moves)
    if (move.from != move.to && move.bytes > 0)
      hops.push_back({place(move.from), place(move.to), static_cast<double>(move.bytes) / total});
  Builder builder(cluster, members, Traffic::Transfer);
  if (!hops.empty()) builder.add_direct(std::move(hops));
  return builder.take();
}

Communicator make_host_copy(const Cluster& cluster, DeviceId device, bool to_host) {
  std::vector<LinkId> links;
  cluster.append_host_path(device, links);
  if (!to_host)
    for (LinkId& link : links) link = cluster.reverse(link);
  Builder builder(cluster, std::span(&device, 1), Traffic::HostCopy);
  if (!links.empty()) builder.add_links(links);
  return builder.take();
}

std::vector<LinkShare> links_of_member(const Cluster& cluster, const Communicator& communicator, const Route& route,
                                       std::uint32_t member) {
  if (route.hops.empty()) return route.links;
  std::vector<LinkId> path;
  for (const Hop& hop : route.hops)
    if (hop.from == member || hop.to == member)
      cluster.append_path(communicator.members[hop.from], communicator.members[hop.to], path);
  std::sort(path.begin(), path.end());
  path.erase(std::unique(path.begin(), path.end()), path.end());
  std::vector<LinkShare> links;
  for (LinkId link : path)
    links.push_back(*std::lower_bound(route.links.begin(), route.links.end(), link,
                                      [](const LinkShare& share, LinkId wanted) { return share.link < wanted; }));
  return links;
}

}  // namespace weft
