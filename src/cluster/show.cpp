#include "cluster/show.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "cluster/library.h"

namespace weft {
namespace {

std::string rate(BytesPerSecond bandwidth) { return human(bandwidth); }
// Network rates are given in bits per second.
std::string bits(BytesPerSecond bandwidth) {
  const double gigabits = bandwidth.value * 8 / 1e9;
  return gigabits >= 10000 ? fmt::format("{:.4g} Tb/s", gigabits / 1000) : fmt::format("{:.4g} Gb/s", gigabits);
}

std::string padded(std::string_view text, std::size_t width) {
  // Width in characters, not bytes: continuation bytes of UTF-8 take no column.
  const auto columns = static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
  return std::string(text) + std::string(columns < width ? width - columns : 0, ' ');
}

// "gpu0..7" of consecutive names, else the names in a row.
std::string join_names(const std::vector<std::string>& names) {
  if (names.size() < 3) return fmt::format("{}", fmt::join(names, " "));
  std::size_t digits = names[0].size();
  while (digits > 0 && names[0][digits - 1] >= '0' && names[0][digits - 1] <= '9') --digits;
  const std::string stem = names[0].substr(0, digits);
  const Result<std::int64_t> first = parse_integer(names[0].substr(digits), "");
  if (!first.ok()) return fmt::format("{}", fmt::join(names, " "));
  for (std::size_t i = 0; i < names.size(); ++i)
    if (names[i] != fmt::format("{}{}", stem, *first + static_cast<std::int64_t>(i)))
      return fmt::format("{}", fmt::join(names, " "));
  return fmt::format("{}..{}", names.front(), *first + static_cast<std::int64_t>(names.size()) - 1);
}

// The node drawn in parts: the tree below the sockets, the scale-up switch or the matrix of direct links.
class NodePicture {
 public:
  explicit NodePicture(const NodeType& type) : type_(type), parts_(type.parts()) {
    wires_.resize(parts_.vertices.size());
    for (std::size_t w = 0; w < parts_.wires.size(); ++w) {
      if (parts_.wires[w].to == NodeParts::kNetwork) continue;
      wires_[parts_.wires[w].from].push_back(static_cast<int>(w));
      wires_[parts_.wires[w].to].push_back(static_cast<int>(w));
    }
  }

  std::string draw() const { return host_tree() + switches() + matrix(); }

 private:
  int other(int wire, int vertex) const { return parts_.wires[wire].from + parts_.wires[wire].to - vertex; }
  NodeType::Link link(int wire) const { return type_.link(2 * wire); }
  VertexKind kind(int vertex) const { return parts_.vertices[vertex].kind; }
  std::string vertex_name(int vertex) const { return parts_.vertices[vertex].name; }

  std::string nic_rate(int vertex) const {
    const auto nics = type_.nic_vertices();
    const auto nic = std::find(nics.begin(), nics.end(), vertex) - nics.begin();
    return bits(type_.link(type_.uplink(static_cast<int>(nic))).bandwidth) + " to the network";
  }

  // The wires to the vertices below `vertex`, away from the sockets, each child once; scale-up links are left out.
  std::vector<int> child_wires(int vertex, const std::vector<bool>& seen) const {
    std::vector<int> wires;
    for (int w : wires_[vertex])
      if (!is_scale_up(link(w).kind) && link(w).kind != LinkKind::kSocket && !seen[other(w, vertex)] &&
          kind(other(w, vertex)) != VertexKind::kSocket)
        wires.push_back(w);
    return wires;
  }

  void subtree(int vertex, const std::string& indent, std::vector<bool>& seen, std::string& out) const {
    const std::vector<int> wires = child_wires(vertex, seen);
    for (int w : wires) seen[other(w, vertex)] = true;
    // Consecutive leaves on equal wires share a line.
    std::vector<std::vector<int>> rows;
    const auto leaf = [&](int w) { return child_wires(other(w, vertex), seen).empty(); };
    for (int w : wires) {
      const bool joins = !rows.empty() && leaf(w) && leaf(rows.back().back()) &&
                         kind(other(w, vertex)) == kind(other(rows.back().back(), vertex)) &&
                         link(w).bandwidth == link(rows.back().back()).bandwidth;
      if (joins)
        rows.back().push_back(w);
      else
        rows.push_back({w});
    }
    for (std::size_t r = 0; r < rows.size(); ++r) {
      const bool last = r + 1 == rows.size();
      std::vector<std::string> names;
      for (int w : rows[r]) names.push_back(vertex_name(other(w, vertex)));
      const int child = other(rows[r][0], vertex);
      const NodeType::Link wire = link(rows[r][0]);
      std::string label =
          fmt::format("{} {}{}", name(wire.kind), rate(wire.bandwidth), rows[r].size() > 1 ? " each" : "");
      if (kind(child) == VertexKind::kNic) label += ", " + nic_rate(child);
      out += fmt::format("{}{}{} · {}\n", indent, last ? "└─ " : "├─ ", join_names(names), label);
      if (rows[r].size() == 1) subtree(child, indent + (last ? "   " : "│  "), seen, out);
    }
  }

  // Sockets whose trees look alike (numbers aside) are drawn once.
  std::string host_tree() const {
    std::string out;
    std::vector<std::vector<int>> alike;
    std::vector<std::string> trees, shapes;
    std::vector<bool> seen(parts_.vertices.size(), false);
    for (std::size_t v = 0; v < parts_.vertices.size(); ++v) {
      if (kind(static_cast<int>(v)) != VertexKind::kSocket) continue;
      std::string tree;
      subtree(static_cast<int>(v), "    ", seen, tree);
      std::string shape = blank_numbers(tree);
      if (!shapes.empty() && shapes.back() == shape && socket_count() > 4) {
        alike.back().push_back(static_cast<int>(v));
        continue;
      }
      alike.push_back({static_cast<int>(v)});
      trees.push_back(std::move(tree));
      shapes.push_back(std::move(shape));
    }
    for (std::size_t i = 0; i < trees.size(); ++i) {
      const std::string first = vertex_name(alike[i][0]);
      out += "    " + first;
      if (alike[i].size() > 1)
        out += fmt::format(" (and {} more like it, to {})", alike[i].size() - 1, vertex_name(alike[i].back()));
      out += "\n" + trees[i];
    }
    std::map<std::string, int> between;
    for (std::size_t w = 0; w < parts_.wires.size(); ++w)
      if (parts_.wires[w].to != NodeParts::kNetwork && link(static_cast<int>(w)).kind == LinkKind::kSocket)
        ++between[rate(link(static_cast<int>(w)).bandwidth)];
    for (const auto& [bandwidth, count] : between)
      out += count == 1 ? fmt::format("    socket to socket: {} each way\n", bandwidth)
                        : fmt::format("    socket to socket: {} links of {} each way\n", count, bandwidth);
    return out;
  }

  int socket_count() const {
    return static_cast<int>(std::count_if(parts_.vertices.begin(), parts_.vertices.end(),
                                          [](const Vertex& v) { return v.kind == VertexKind::kSocket; }));
  }

  static std::string blank_numbers(const std::string& tree) {
    // Names are followed by padding, figures by a unit: digits at the end of a word belong to a name.
    std::string out;
    for (std::size_t i = 0; i < tree.size(); ++i) {
      const bool digit = tree[i] >= '0' && tree[i] <= '9';
      const bool in_name =
          digit && i > 0 &&
          (std::isalpha(static_cast<unsigned char>(out.empty() ? ' ' : out.back())) || out.back() == '#');
      if (in_name) {
        if (out.back() != '#') out += '#';
      } else if (!(tree[i] == ' ' && !out.empty() && out.back() == ' ')) {
        out += tree[i];
      }
    }
    return out;
  }

  std::string switches() const {
    std::string out;
    for (std::size_t v = 0; v < parts_.vertices.size(); ++v) {
      if (kind(static_cast<int>(v)) != VertexKind::kSwitch) continue;
      std::map<double, std::vector<std::string>> by_rate;
      for (int w : wires_[v]) by_rate[link(w).bandwidth.value].push_back(vertex_name(other(w, static_cast<int>(v))));
      for (const auto& [bandwidth, names] : by_rate) {
        const std::string members = padded("  " + join_names(names) + "  ", 24);
        out += fmt::format("    ╔{0}╗\n    ║{1}║  {2} each way per device\n    ╚{3}╝\n", repeat("═", members.size()),
                           members, rate({bandwidth}), centred(vertex_name(static_cast<int>(v)), members.size()));
      }
    }
    return out;
  }

  static std::string repeat(std::string_view piece, std::size_t times) {
    std::string out;
    for (std::size_t i = 0; i < times; ++i) out += piece;
    return out;
  }
  static std::string centred(const std::string& text, std::size_t width) {
    const std::size_t inner = text.size() + 2;
    if (inner >= width) return repeat("═", width);
    const std::size_t left = (width - inner) / 2;
    return repeat("═", left) + " " + text + " " + repeat("═", width - inner - left);
  }

  // Direct links between devices in GB/s per direction; a dot where there is none.
  std::string matrix() const {
    const auto devices = type_.device_vertices();
    std::map<std::pair<int, int>, double> direct;
    std::map<LinkKind, int> kinds;
    for (std::size_t w = 0; w < parts_.wires.size(); ++w) {
      const Wire& wire = parts_.wires[w];
      if (wire.to == NodeParts::kNetwork || kind(wire.from) != VertexKind::kDevice ||
          kind(wire.to) != VertexKind::kDevice)
        continue;
      ++kinds[link(static_cast<int>(w)).kind];
      direct[{wire.from, wire.to}] += link(static_cast<int>(w)).bandwidth.value;
      direct[{wire.to, wire.from}] += link(static_cast<int>(w)).bandwidth.value;
    }
    if (direct.empty() || devices.size() > 32) return {};
    std::vector<std::string> kind_names;
    for (const auto& [each, unused] : kinds) kind_names.emplace_back(name(each));
    std::size_t widest = 4;
    for (int v : devices) widest = std::max(widest, vertex_name(v).size());
    std::string out =
        fmt::format("    {} between devices, GB/s each way:\n    {}", fmt::join(kind_names, ", "), padded("", widest));
    for (int b : devices) out += fmt::format("  {:>{}}", vertex_name(b), widest);
    out += "\n";
    for (int a : devices) {
      out += "    " + padded(vertex_name(a), widest);
      for (int b : devices) {
        const auto found = direct.find({a, b});
        out += fmt::format("  {:>{}}",
                           a == b                  ? "-"
                           : found == direct.end() ? "."
                                                   : fmt::format("{:.4g}", found->second / 1e9),
                           widest);
      }
      out += "\n";
    }
    return out;
  }

  const NodeType& type_;
  const NodeParts& parts_;
  std::vector<std::vector<int>> wires_;
};

// Sources are long and shared by many figures: each is printed once, and cited by number.
class Bibliography {
 public:
  std::string cite(const std::string& source) {
    if (source.empty()) return "";
    auto at = std::find(sources_.begin(), sources_.end(), source);
    if (at == sources_.end()) at = sources_.insert(at, source);
    return fmt::format("[{}]", at - sources_.begin() + 1);
  }
  std::string print() const {
    std::string out;
    for (std::size_t i = 0; i < sources_.size(); ++i)
      out += fmt::format("    {:>4} {}\n", fmt::format("[{}]", i + 1), sources_[i]);
    return out;
  }

 private:
  std::vector<std::string> sources_;
};

std::string device_table(const DeviceSpec& device, Bibliography& sources) {
  std::string out = fmt::format("  {} ({})\n", device.title, device.name);
  const auto row = [&](std::string_view what, const std::string& value, const std::string& source) {
    out += fmt::format("    {}  {}  {}\n", padded(what, 17), padded(value, 12), sources.cite(source));
  };
  for (Arithmetic arithmetic : kArithmetics)
    if (const auto* peak = device.peak(arithmetic))
      row(fmt::format("{} peak, dense", name(arithmetic)), human(peak->value), peak->source);
  row("memory", human(device.memory.value), device.memory.source);
  row("memory, usable", human(device.memory_usable.value), device.memory_usable.source);
  row("memory bandwidth", rate(device.memory_bandwidth.value), device.memory_bandwidth.source);
  row("compute units", fmt::format("{}", device.compute_units.value), device.compute_units.source);
  row("copy engines", fmt::format("{}", device.copy_engines.value), device.copy_engines.source);
  return out;
}

std::string fabric_picture(const Cluster& cluster) {
  const Fabric& fabric = cluster.fabric();
  std::string out;
  if (const auto* dragonfly = std::get_if<DragonflyFabric>(&fabric.spec())) {
    out += fmt::format("    nodes ── {} per router ── {} routers per group, all to all ── groups, all to all\n",
                       dragonfly->nodes_per_router, dragonfly->routers_per_group);
  } else {
    const auto& tree = std::get<TreeFabric>(fabric.spec());
    const std::string per_rail = tree.rails ? "one per rail for " : "";
    std::vector<std::string> levels = {tree.levels.empty() ? "[ one switch, every NIC at its own rate ]"
                                       : tree.rails        ? "[ spine: rails meet here ]"
                                                           : "[ core ]"};
    for (std::size_t level = tree.levels.size(); level-- > 0;) {
      const std::string_view what = level > 0 ? "pod switches" : tree.rails ? "rail switches" : "leaf switches";
      levels.push_back(fmt::format("[ {}: {}{} nodes, {} ]", what, per_rail, tree.levels[level].nodes,
                                   tree.levels[level].oversubscription == 1
                                       ? "full bandwidth upwards"
                                       : fmt::format("oversubscribed {:g}:1", tree.levels[level].oversubscription)));
    }
    levels.push_back(fmt::format("[ {} node{} ]", grouped(cluster.node_count()), cluster.node_count() == 1 ? "" : "s"));
    for (std::size_t i = 0; i < levels.size(); ++i) out += (i > 0 ? "        │\n    " : "    ") + levels[i] + "\n";
  }
  for (const Fabric::Tier& tier : fabric.tiers()) {
    const std::string each =
        tier.slowest == tier.fastest ? bits(tier.fastest) : bits(tier.slowest) + " to " + bits(tier.fastest);
    out += fmt::format("    {} links: {} of {} each way\n", tier.name, grouped(tier.links / 2), each);
  }
  return out;
}

nlohmann::json figure_json(double value, const std::string& source) { return {{"value", value}, {"source", source}}; }

// What the networks behind the NICs lose at scale, with sources.
std::string network_tables(const Cluster& cluster, Bibliography& sources) {
  std::vector<const NetworkTraits*> shown;
  std::string out;
  for (const NodeGroup& group : cluster.groups()) {
    const NetworkTraits* network = group.type->network();
    if (network == nullptr) continue;
    if (std::any_of(shown.begin(), shown.end(), [&](const NetworkTraits* other) { return *other == *network; }))
      continue;
    shown.push_back(network);
    if (network->loses_nothing()) {
      out += fmt::format("    network {}{}\n", describe(*network),
                         network->name.empty() ? "" : " " + sources.cite(network->collisions.source));
      continue;
    }
    out += fmt::format("    network {}\n", network->name);
    const auto row = [&](std::string_view what, const std::string& value, const std::string& source) {
      out += fmt::format("      {}  {}  {}\n", padded(what, 33), padded(value, 7), sources.cite(source));
    };
    row("collisions, per doubling of nodes", fmt::format("{:g}", network->collisions.value),
        network->collisions.source);
    row("a message, beyond its bytes", human(network->message.value), network->message.source);
    row("jitter of communications", human(network->jitter.value), network->jitter.source);
    row("jitter of steps", fmt::format("{:g} %", 100 * network->step_jitter.value), network->step_jitter.source);
  }
  return out;
}

nlohmann::json networks_json(const Cluster& cluster) {
  nlohmann::json networks = nlohmann::json::object();
  for (const NodeGroup& group : cluster.groups())
    if (const NetworkTraits* network = group.type->network(); network != nullptr && !network->name.empty())
      networks[network->name] = {{"collisions", figure_json(network->collisions.value, network->collisions.source)},
                                 {"message_s", figure_json(network->message.value.value, network->message.source)},
                                 {"jitter_s", figure_json(network->jitter.value.value, network->jitter.source)},
                                 {"step_jitter", figure_json(network->step_jitter.value, network->step_jitter.source)}};
  return networks;
}

std::string group_bandwidths(const NodeType& type) {
  BytesPerSecond least = type.injection_bandwidth(0), most = least;
  for (int device = 1; device < type.device_count(); ++device) {
    least = std::min(least, type.injection_bandwidth(device));
    most = std::max(most, type.injection_bandwidth(device));
  }
  std::string out = fmt::format("    each way: {} per device inside the node",
                                least == most ? rate(most) : rate(least) + " to " + rate(most));
  if (type.nic_count() > 0) {
    const BytesPerSecond network = type.network_bandwidth();
    out += fmt::format(" · {} per node outside ({} NIC{}, {} per device)", bits(network), type.nic_count(),
                       type.nic_count() == 1 ? "" : "s", bits(network / type.device_count()));
  }
  return out + "\n";
}

std::string plural(std::int64_t count, std::string_view one) {
  return fmt::format("{} {}{}", grouped(count), one, count == 1 ? "" : "s");
}

nlohmann::json device_json(const DeviceSpec& device) {
  nlohmann::json peaks = nlohmann::json::object();
  for (Arithmetic arithmetic : kArithmetics)
    if (const auto* peak = device.peak(arithmetic))
      peaks[std::string(name(arithmetic))] = figure_json(peak->value.value, peak->source);
  const auto bytes = [](const Figure<Bytes>& figure) -> nlohmann::json {
    return {{"value", figure.value.value}, {"source", figure.source}};
  };
  const auto count = [](const Figure<int>& figure) -> nlohmann::json {
    return {{"value", figure.value}, {"source", figure.source}};
  };
  return {{"name", device.name},
          {"title", device.title},
          {"architecture", device.architecture},
          {"memory_bytes", bytes(device.memory)},
          {"memory_usable_bytes", bytes(device.memory_usable)},
          {"memory_bandwidth_bytes_per_s",
           figure_json(device.memory_bandwidth.value.value, device.memory_bandwidth.source)},
          {"compute_units", count(device.compute_units)},
          {"copy_engines", count(device.copy_engines)},
          {"peak_flops", std::move(peaks)}};
}

}  // namespace

std::string describe(const Cluster& cluster) {
  std::string headline;
  for (const NodeGroup& group : cluster.groups()) {
    std::map<int, std::int64_t> kinds;  // devices of each spec in the node
    for (int v : group.type->device_vertices()) ++kinds[group.type->parts().vertices[v].spec];
    if (!headline.empty()) headline += " + ";
    bool first = true;
    for (const auto& [spec, count] : kinds) {
      headline += fmt::format("{}{} × {}", first ? "" : " and ", grouped(count * group.nodes),
                              group.type->parts().specs[spec]->title);
      first = false;
    }
    headline += " in " + plural(group.nodes, "node");
  }
  if (cluster.node_count() > 1) headline += " · " + fabric_name(cluster.fabric().spec());
  std::string out = headline + "\n";
  Bibliography sources;
  std::vector<const DeviceSpec*> shown;
  for (const NodeGroup& group : cluster.groups()) {
    const NodeParts& parts = group.type->parts();
    out += fmt::format("\n{} · {} · {} {}\n", parts.name, plural(group.nodes, "node"), parts.title,
                       sources.cite(parts.source));
    out += NodePicture(*group.type).draw();
    out += group_bandwidths(*group.type);
  }
  out += "\ndevices\n";
  for (const NodeGroup& group : cluster.groups())
    for (const auto& spec : group.type->parts().specs)
      if (std::none_of(shown.begin(), shown.end(), [&](const DeviceSpec* other) { return *other == *spec; })) {
        shown.push_back(spec.get());
        out += device_table(*spec, sources);
      }
  out += "\nlinks (each way)\n";
  std::vector<const LinkType*> links;
  for (const NodeGroup& group : cluster.groups())
    for (const LinkType& link : group.type->parts().link_types) {
      if (std::any_of(links.begin(), links.end(), [&](const LinkType* other) { return *other == link; })) continue;
      links.push_back(&link);
      const std::string bandwidth_source = sources.cite(link.bandwidth.source);
      out +=
          fmt::format("    {}  {}  {}  {} {}\n", padded(link.name, 17),
                      padded(link.kind == LinkKind::kNic ? bits(link.bandwidth.value) : rate(link.bandwidth.value), 12),
                      padded(human(link.latency.value), 9), bandwidth_source, sources.cite(link.latency.source));
    }
  if (cluster.node_count() > 1) {
    out += fmt::format("\nfabric · {}\n", fabric_name(cluster.fabric().spec()));
    out += fabric_picture(cluster);
    out += network_tables(cluster, sources);
    const BytesPerSecond bisection = cluster.fabric().bisection();
    out += fmt::format("    bisection: {} each way ({} per device)\n", bits(bisection),
                       bits(bisection * 2 / static_cast<double>(cluster.device_count())));
  }
  return out + "\nsources\n" + sources.print();
}

nlohmann::json to_json(const Cluster& cluster) {
  nlohmann::json groups = nlohmann::json::array();
  struct Sum {
    std::int64_t count = 0;
    double slowest = 0, fastest = 0;
  };
  std::map<std::string, Sum> sums;
  const auto add = [&](std::string_view kind, std::int64_t count, double slowest, double fastest) {
    Sum& sum = sums[std::string(kind)];
    sum.slowest = sum.count == 0 ? slowest : std::min(sum.slowest, slowest);
    sum.fastest = std::max(sum.fastest, fastest);
    sum.count += count;
  };
  for (const NodeGroup& group : cluster.groups()) {
    const NodeType& type = *group.type;
    nlohmann::json specs = nlohmann::json::array();
    for (const auto& spec : type.parts().specs) specs.push_back(device_json(*spec));
    nlohmann::json one = {{"preset", type.name()},
                          {"title", type.parts().title},
                          {"nodes", group.nodes},
                          {"devices_per_node", type.device_count()},
                          {"nics_per_node", type.nic_count()},
                          {"device_bandwidth_bytes_per_s", type.injection_bandwidth(0).value},
                          {"network_bandwidth_bytes_per_s", type.network_bandwidth().value},
                          {"source", type.parts().source},
                          {"device", specs[0]}};
    if (specs.size() > 1) one["device_kinds"] = std::move(specs);
    groups.push_back(std::move(one));
    for (int link = 0; link < type.link_count(); ++link) {
      const NodeType::Link each = type.link(link);
      add(name(each.kind), group.nodes, each.bandwidth.value, each.bandwidth.value);
    }
  }
  const Fabric& fabric = cluster.fabric();
  nlohmann::json tiers = nlohmann::json::array();
  for (const Fabric::Tier& tier : fabric.tiers()) {
    add(name(LinkKind::kFabric), tier.links, tier.slowest.value, tier.fastest.value);
    tiers.push_back({{"name", tier.name},
                     {"links", tier.links},
                     {"slowest_bytes_per_s", tier.slowest.value},
                     {"fastest_bytes_per_s", tier.fastest.value}});
  }
  nlohmann::json links = nlohmann::json::array();
  for (const auto& [kind, sum] : sums)
    links.push_back({{"kind", kind},
                     {"count", sum.count},
                     {"slowest_bytes_per_s", sum.slowest},
                     {"fastest_bytes_per_s", sum.fastest}});
  return {{"devices", cluster.device_count()},
          {"nodes", cluster.node_count()},
          {"groups", std::move(groups)},
          {"links", std::move(links)},
          {"fabric",
           {{"kind", fabric_name(fabric.spec())},
            {"tiers", std::move(tiers)},
            {"networks", networks_json(cluster)},
            {"bisection_bytes_per_s", fabric.bisection().value}}}};
}

std::string describe_presets() {
  std::string out;
  for (const auto& [name, type] : preset_library().nodes)
    out += fmt::format("{}  {}  {} inside, {} outside\n", padded(name, 14), padded(type->parts().title, 54),
                       rate(type->injection_bandwidth(0)), bits(type->network_bandwidth()));
  return out;
}

}  // namespace weft
