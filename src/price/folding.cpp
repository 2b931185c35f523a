#include "price/folding.h"

#include <algorithm>
#include <numeric>

namespace weft {
namespace {

constexpr std::uint32_t kAmple = ~0u;

std::uint64_t mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}
std::uint64_t mix(std::uint64_t a, std::uint64_t b) { return mix(mix(a) ^ b); }

// Renumbers colours from 0 in the order of their first member; returns their number.
std::uint32_t renumber(const std::vector<std::uint64_t>& colours, std::vector<std::uint32_t>& classes) {
  std::unordered_map<std::uint64_t, std::uint32_t> known;
  known.reserve(colours.size());
  for (std::size_t i = 0; i < colours.size(); ++i)
    classes[i] = known.try_emplace(colours[i], static_cast<std::uint32_t>(known.size())).first->second;
  return static_cast<std::uint32_t>(known.size());
}

}  // namespace

FoldedDevices partition(const Communications& communications, const Cluster& cluster, const CostModel& cost,
                        std::vector<std::uint64_t> colour, Fold fold) {
  const IdVec<CommGroupId, CommGroup>& groups = communications.groups();
  FoldedDevices result;
  result.device.resize(colour.size());
  result.group.resize(groups.size());
  result.loads.resize(groups.size());

  // The links in use, numbered, and the groups that load them.
  std::unordered_map<std::uint32_t, std::uint32_t> known;
  for (CommGroupId id : groups.ids()) {
    const CommGroup& group = groups[id];
    for (std::uint32_t route : communications.routes_used()[group.shape])
      for (const LinkShare& share : communications.communicators()[group.prototype].routes[route].links) {
        const LinkId link(static_cast<std::size_t>(share.link.index() + group.shift));
        const auto [found, added] = known.try_emplace(link.index(), static_cast<std::uint32_t>(result.links.size()));
        if (added) {
          const Link described = cluster.link(link);
          if (described.ample)
            found->second = kAmple;
          else
            result.links.push_back({link, cost.capacity(described)});
        }
        if (found->second == kAmple) continue;  // never a bottleneck
        result.loads[id].push_back({route, found->second, share.coefficient});
      }
  }
  const std::size_t links = result.links.size();
  result.link.resize(links);
  std::vector<std::uint32_t> group_class(groups.size());
  if (fold != Fold::Alike) {
    for (CommGroupId id : groups.ids()) result.group[id] = id.index();
    if (fold == Fold::None) {
      std::iota(result.device.begin(), result.device.end(), 0u);
      result.devices = static_cast<std::uint32_t>(colour.size());
    } else {
      for (CommGroupId id : groups.ids()) {
        const CommGroup& group = groups[id];
        // A group in which no data leaves its device is the same whichever it is.
        const std::uint64_t own = group.local ? mix(group.kind.index()) : id.index();
        for (std::size_t m = 0; m < group.members.size(); ++m)
          colour[group.members[m]] += mix(own, m < group.senders ? 1 : 2);
      }
      result.devices = renumber(colour, result.device);
    }
    std::iota(result.link.begin(), result.link.end(), 0u);
    result.groups = static_cast<std::uint32_t>(groups.size());
    result.link_classes = static_cast<std::uint32_t>(links);
    return result;
  }

  // The initial colour of a kind, without its mesh, which is in the devices' colours.
  std::vector<std::uint64_t> group_colour(groups.size()), link_colour(links), next_group(groups.size()),
      next_link(links), next_device(colour.size());
  for (CommGroupId id : groups.ids())
    group_colour[id.index()] = mix(mix(groups[id].kind.index(), groups[id].shape.index()), groups[id].members.size());
  for (std::size_t l = 0; l < links; ++l) link_colour[l] = mix(static_cast<std::uint64_t>(result.links[l].capacity));
  std::uint32_t before = 0;
  for (;;) {
    std::fill(next_link.begin(), next_link.end(), 0);
    std::fill(next_device.begin(), next_device.end(), 0);
    for (CommGroupId id : groups.ids()) {
      const CommGroup& group = groups[id];
      const std::uint64_t own = group_colour[id.index()];
      std::uint64_t sum = 0;
      for (std::size_t m = 0; m < group.members.size(); ++m) {
        const std::uint64_t side = m < group.senders ? 1 : 2;
        sum += mix(colour[group.members[m]], side);
        next_device[group.members[m]] += mix(own, side);
      }
      for (const LinkIncidence& load : result.loads[id]) {
        const std::uint64_t how = mix(load.route, static_cast<std::uint64_t>(load.coefficient));
        sum += mix(link_colour[load.link], how);
        next_link[load.link] += mix(own, how);
      }
      next_group[id.index()] = mix(own, sum);
    }
    for (std::size_t d = 0; d < colour.size(); ++d) colour[d] = mix(colour[d], next_device[d]);
    for (std::size_t l = 0; l < links; ++l) link_colour[l] = mix(link_colour[l], next_link[l]);
    group_colour.swap(next_group);
    result.devices = renumber(colour, result.device);
    result.groups = renumber(group_colour, group_class);
    result.link_classes = renumber(link_colour, result.link);
    const std::uint32_t now = result.devices + result.groups + result.link_classes;
    if (now == before) break;  // fixed point
    before = now;
  }
  for (CommGroupId id : groups.ids()) result.group[id] = group_class[id.index()];
  return result;
}

}  // namespace weft
