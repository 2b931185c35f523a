#include "price/folding.h"

#include <numeric>
#include <span>

#include "price/refinement.h"

namespace weft {
namespace {

constexpr std::uint32_t kAmple = ~0u;

// Numbers colours from 0 in the order of their first member; returns their number.
template <class Colours, class Classes>
std::uint32_t renumber(const Colours& colours, Classes&& classes) {
  std::unordered_map<std::uint64_t, std::uint32_t> known;
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

  // Devices, groups and links are the nodes of one graph, which groups tie together. The initial colour of a group is of
  // its kind, without its mesh, which is in the devices' colours.
  enum Node : std::uint64_t { kDevice = 1, kGroup, kLink };
  LabelledGraph graph;
  graph.colour.reserve(colour.size() + groups.size() + links);
  for (std::uint64_t each : colour) graph.colour.push_back(mix(kDevice, each));
  for (CommGroupId id : groups.ids())
    graph.colour.push_back(
        mix(kGroup, mix(mix(groups[id].kind.index(), groups[id].shape.index()), groups[id].members.size())));
  for (const LoadedLink& link : result.links)
    graph.colour.push_back(mix(kLink, static_cast<std::uint64_t>(link.capacity)));
  const auto first_group = static_cast<std::uint32_t>(colour.size());
  const auto first_link = static_cast<std::uint32_t>(colour.size() + groups.size());
  for (CommGroupId id : groups.ids()) {
    const CommGroup& group = groups[id];
    const std::uint32_t node = first_group + id.index();
    for (std::size_t m = 0; m < group.members.size(); ++m)
      graph.edges.push_back({node, static_cast<std::uint32_t>(group.members[m]), m < group.senders ? 1u : 2u});
    for (const LinkIncidence& load : result.loads[id])
      graph.edges.push_back(
          {node, first_link + load.link, mix(load.route, static_cast<std::uint64_t>(load.coefficient))});
  }
  const std::vector<std::uint32_t> classes = refined(graph);
  const std::span all(classes);
  result.devices = renumber(all.first(first_group), result.device);
  std::vector<std::uint32_t> group_class(groups.size());
  result.groups = renumber(all.subspan(first_group, groups.size()), group_class);
  for (CommGroupId id : groups.ids()) result.group[id] = group_class[id.index()];
  result.link_classes = renumber(all.subspan(first_link), result.link);
  return result;
}

}  // namespace weft
