// Specs and files to clusters: `NAME:COUNT,option=value+...`, cluster YAML, and node types from files.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <optional>

#include "base/read_file.h"
#include "base/suggest.h"
#include "cluster/cluster.h"
#include "cluster/library.h"

namespace weft {
namespace {

constexpr std::string_view kFileEndings[] = {".yaml", ".yml", ".xml", ".txt"};

struct GroupSpec {
  NodeGroup group;
  std::optional<FabricSpec> fabric;  // asked for, not the node's default
};

std::vector<std::string_view> split(std::string_view text, std::string_view separators) {
  std::vector<std::string_view> parts;
  for (;;) {
    const std::size_t at = text.find_first_of(separators);
    parts.push_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + 1);
  }
}

// Files that describe a node and nothing else.
bool is_topology(std::string_view path) { return path.ends_with(".xml") || path.ends_with(".txt"); }

bool ends_with_any(std::string_view text) {
  return std::any_of(std::begin(kFileEndings), std::end(kFileEndings),
                     [&](std::string_view ending) { return text.ends_with(ending); });
}

// Splits a group into its name (or path) and its options: a ':' inside a path does not count.
std::pair<std::string_view, std::optional<std::string_view>> name_and_options(std::string_view text) {
  for (std::string_view ending : kFileEndings) {
    const std::size_t at = text.find(ending);
    if (at == std::string_view::npos) continue;
    const std::size_t end = at + ending.size();
    if (end == text.size()) return {text, std::nullopt};
    if (text[end] == ':' || text[end] == ',') return {text.substr(0, end), text.substr(end + 1)};
  }
  const std::size_t at = text.find_first_of(":,");
  if (at == std::string_view::npos) return {text, std::nullopt};
  return {text.substr(0, at), text.substr(at + 1)};
}

Result<std::string> read_cluster_file(std::string_view path) {
  constexpr FileKind kCluster{"a cluster file (.yaml, .xml of NCCL, or .txt of nvidia-smi topo -m)",
                              YamlNode::kMostBytes};
  return read_file(std::string(path), kCluster);
}

// The node type with another device in every place, other NIC rates and another network behind them, another host. Its
// name tells what changed.
Result<std::shared_ptr<const NodeType>> changed(const std::shared_ptr<const NodeType>& type,
                                                const std::shared_ptr<const DeviceSpec>& device,
                                                std::optional<BytesPerSecond> nic, const std::string& option,
                                                const std::optional<NetworkTraits>& network,
                                                std::optional<double> host) {
  if (!device && !nic && !network && !host) return type;
  NodeParts parts = type->parts();
  if (device) {
    parts.specs = {device};
    for (Vertex& vertex : parts.vertices)
      if (vertex.kind == VertexKind::kDevice) vertex.spec = 0;
    parts.name += "." + device->name;
    parts.title += " with " + device->title;
  }
  if (host) {
    parts.host = {*host, fmt::format("option host={:g}", *host)};
    parts.name += fmt::format(".host{:g}", *host);
    std::erase(parts.name, '+');  // from an exponent: '+' separates groups
    parts.title += fmt::format(", host {:g} times as slow", *host);
  }
  std::string tag;
  if (nic) {
    tag = fmt::format(".{:g}Gbps", nic->value * 8 / 1e9);
    std::erase(tag, '+');  // from an exponent: '+' separates groups
    parts.title += fmt::format(", NICs of {:g} Gb/s", nic->value * 8 / 1e9);
  }
  if (network) {
    tag += "." + network->name;
    parts.title += ", network " + network->name;
  }
  parts.name += tag;
  for (Wire& wire : parts.wires)
    if (wire.to == NodeParts::kNetwork && !tag.empty()) {
      LinkType link = parts.link_types[wire.type];
      link.name += tag;
      if (nic) link.bandwidth = {*nic, "option " + option};
      if (network) link.network = *network;
      const auto known = std::find(parts.link_types.begin(), parts.link_types.end(), link);
      wire.type = static_cast<int>(known - parts.link_types.begin());
      if (nic) wire.count = 1;
      if (known == parts.link_types.end()) parts.link_types.push_back(std::move(link));
    }
  WEFT_TRY(NodeType made, NodeType::make(std::move(parts)));
  return std::make_shared<const NodeType>(std::move(made));
}

Figure<Seconds> default_hop() { return {{1e-6}, "estimate: one switch and cable, to be fitted"}; }

Result<FabricSpec> fabric_option(std::optional<std::string> kind, std::optional<std::int64_t> leaf,
                                 std::optional<double> factor, const FabricSpec& preset) {
  static const std::vector<std::string> kinds = {"switch", "fat-tree", "rail", "dragonfly"};
  FabricSpec spec = preset;
  if (kind == "switch") spec = TreeFabric{};
  if (kind == "fat-tree") spec = TreeFabric{false, {{16, 1}}, default_hop()};
  if (kind == "rail") spec = TreeFabric{true, {{32, 1}}, default_hop()};
  if (kind == "dragonfly") spec = DragonflyFabric{16, 16, {{100e9}, "estimate"}, {{100e9}, "estimate"}, default_hop()};
  if (kind && std::find(kinds.begin(), kinds.end(), *kind) == kinds.end())
    return error("fabric '{}': one of {}{}", *kind, fmt::join(kinds, ", "), did_you_mean(*kind, kinds));
  if (leaf || factor) {
    auto* tree = std::get_if<TreeFabric>(&spec);
    if (tree == nullptr) return error("leaf and oversubscription go with fabric=fat-tree or fabric=rail");
    if (tree->levels.empty()) {
      if (kind == "switch") return error("fabric 'switch' has no leaves; write fabric=fat-tree");
      *tree = TreeFabric{false, {{16, 1}}, default_hop()};
    }
    if (leaf) tree->levels.resize(1);
    if (leaf) tree->levels[0].nodes = *leaf;
    if (factor) tree->levels.back().oversubscription = *factor;
  }
  WEFT_TRY_OK(check(spec));
  return spec;
}

// What follows a name in a spec: "16,net=800Gbps,fabric=rail".
struct GroupOptions {
  std::int64_t nodes = 1;
  std::optional<BytesPerSecond> net, nic;
  std::string rate_option;  // the one of net= and nic= that was given, as written
  std::string device, network;
  std::optional<std::string> fabric;
  std::optional<std::int64_t> leaf;
  std::optional<double> oversubscription, host;
};

Result<double> parse_factor(std::string_view key, std::string_view value) {
  double factor = 0;
  const auto [rest, status] = std::from_chars(value.data(), value.data() + value.size(), factor);
  if (status != std::errc() || rest != value.data() + value.size()) return error("{} '{}': not a number", key, value);
  return factor;
}

Status read_option(std::string_view key, std::string_view value, GroupOptions& options) {
  static const std::vector<std::string> known = {"net",     "nic",    "device", "host",
                                                 "network", "fabric", "leaf",   "oversubscription"};
  if (key == "net" || key == "nic") {
    const Result<BytesPerSecond> rate = parse_bandwidth(value);
    if (!rate.ok()) return error("{} {}", key, rate.error().message);
    if (rate->value <= 0 || rate->value > 1e18)
      return error("{} '{}': must be more than zero and below 1EB/s", key, value);
    (key == "net" ? options.net : options.nic) = *rate;
    options.rate_option = fmt::format("{}={}", key, value);
  } else if (key == "device") {
    options.device = value;
  } else if (key == "network") {
    options.network = value;
  } else if (key == "fabric") {
    options.fabric = value;
  } else if (key == "leaf") {
    WEFT_TRY(options.leaf, parse_integer(value, "leaf"));
  } else if (key == "oversubscription") {
    WEFT_TRY(options.oversubscription, parse_factor(key, value));
  } else if (key == "host") {
    WEFT_TRY(options.host, parse_factor(key, value));
    if (!(*options.host > 0 && *options.host <= kSlowestHost))
      return error("host '{}': more than 0, at most {:g} times as slow as a usual one", value, kSlowestHost);
  } else {
    return error("unknown option '{}'{}", key.substr(0, 60), did_you_mean(key, known));
  }
  return Ok{};
}

Result<GroupOptions> parse_options(std::optional<std::string_view> text) {
  GroupOptions options;
  if (!text) return options;
  bool first = true;
  for (std::string_view option : split(*text, ":,")) {
    const std::size_t equals = option.find('=');
    if (equals != std::string_view::npos) {
      WEFT_TRY_OK(read_option(option.substr(0, equals), option.substr(equals + 1), options));
    } else {
      WEFT_TRY(options.nodes, parse_integer(option, "count of nodes"));
      if (!first) return error("count of nodes '{}': comes right after the name", option);
      if (options.nodes < 1 || options.nodes > Cluster::kMostDevices)
        return error("count of nodes '{}': from 1 to {}", option, grouped(Cluster::kMostDevices));
    }
    first = false;
  }
  if (options.net && options.nic) return error("net and nic: give one of them");
  return options;
}

// A node type with the count and options of its spec applied.
Result<GroupSpec> with_options(const std::shared_ptr<const NodeType>& type, std::optional<std::string_view> text,
                               const Library& own) {
  WEFT_TRY(const GroupOptions options, parse_options(text));
  std::shared_ptr<const DeviceSpec> device;
  if (!options.device.empty()) {
    WEFT_TRY(device, find_device(own, options.device));
  }
  std::optional<BytesPerSecond> nic = options.nic;
  if (!options.rate_option.empty() && type->nic_count() == 0)
    return error("{}: '{}' has no NIC", options.rate_option, type->name());
  if (options.net) nic = *options.net / type->nic_count();
  GroupSpec group{{type, options.nodes}, std::nullopt};
  std::optional<NetworkTraits> network;
  if (!options.network.empty()) {
    WEFT_TRY(network, find_network(own, options.network));
    if (type->nic_count() == 0) return error("network={}: '{}' has no NIC", options.network, type->name());
  }
  WEFT_TRY(group.group.type, changed(type, device, nic, options.rate_option, network, options.host));
  if (options.fabric || options.leaf || options.oversubscription) {
    WEFT_TRY(group.fabric, fabric_option(options.fabric, options.leaf, options.oversubscription, type->parts().fabric));
  }
  return group;
}

// The fabric asked for, else the one that all groups have by default, else a single switch.
Result<Cluster> join(std::vector<GroupSpec> specs) {
  std::vector<NodeGroup> groups;
  std::optional<FabricSpec> asked;
  bool alike = true;
  for (GroupSpec& spec : specs) {
    if (spec.fabric && asked && !(*asked == *spec.fabric))
      return error("two groups ask for different fabrics; keep one");
    if (spec.fabric) asked = spec.fabric;
    alike &= spec.group.type->parts().fabric == specs[0].group.type->parts().fabric;
    groups.push_back(spec.group);
  }
  FabricSpec fabric = asked ? *asked : alike ? groups[0].type->parts().fabric : FabricSpec(TreeFabric{});
  return Cluster::make(std::move(groups), std::move(fabric));
}

Result<GroupSpec> preset_group(std::string_view text, const Library& own) {
  const auto [name, options] = name_and_options(text);
  if (name.empty()) return error("'{}': a name is missing; write NAME:COUNT, several joined by '+'", text);
  WEFT_TRY(const std::shared_ptr<const NodeType> type, find_node(own, name));
  Result<GroupSpec> group = with_options(type, options, own);
  if (!group.ok()) return group.error().at(text);
  return group;
}

Result<Cluster> joined_presets(std::string_view spec, const Library& own) {
  std::vector<GroupSpec> groups;
  for (std::string_view part : split(spec, "+")) {
    WEFT_TRY(GroupSpec group, preset_group(part, own));
    groups.push_back(std::move(group));
    if (groups.size() > Cluster::kMostGroups) return error("more than {} groups", Cluster::kMostGroups);
  }
  return join(std::move(groups));
}

// The content of a YAML file: its definitions and, if it has that section, a cluster.
struct FileContents {
  Library own;
  std::optional<Cluster> cluster;
};

Result<Cluster> read_cluster(const YamlNode& node, const Library& own,
                             const std::map<std::string, std::string>& citations) {
  if (node.is_scalar()) {
    WEFT_TRY(const std::string spec, node.text("cluster"));
    Result<Cluster> cluster = joined_presets(spec, own);
    if (!cluster.ok()) return node.fail(cluster.error());
    return cluster;
  }
  static const std::string keys[] = {"groups", "fabric"};
  static const std::string group_keys[] = {"node", "count"};
  WEFT_TRY(const YamlMap fields, node.map("cluster", keys));
  WEFT_TRY(const YamlNode list, fields.require("groups"));
  WEFT_TRY(const std::vector<YamlNode> items, list.list("groups"));
  std::vector<GroupSpec> groups;
  for (const YamlNode& item : items) {
    WEFT_TRY(const YamlMap group, item.map("group", group_keys));
    WEFT_TRY(const YamlNode name_node, group.require("node"));
    WEFT_TRY(const std::string name, name_node.text("node"));
    Result<GroupSpec> spec = preset_group(name, own);
    if (!spec.ok()) return name_node.fail(spec.error());
    if (const YamlNode* count = group.find("count")) {
      WEFT_TRY(spec->group.nodes, count->integer("count", 1, Cluster::kMostDevices));
    }
    groups.push_back(std::move(spec).value());
    if (groups.size() > Cluster::kMostGroups) return item.fail("more than {} groups", Cluster::kMostGroups);
  }
  if (groups.empty()) return list.fail("groups: empty; write at least {{node: dgx-h100, count: 2}}");
  if (const YamlNode* fabric = fields.find("fabric")) {
    WEFT_TRY(const FabricSpec spec, read_fabric(*fabric, citations, Sources::kOptional));
    for (GroupSpec& group : groups) group.fabric = spec;
  }
  Result<Cluster> cluster = join(std::move(groups));
  if (!cluster.ok()) return node.fail(cluster.error());
  return cluster;
}

Result<FileContents> read_yaml(std::string_view text, std::string_view name) {
  WEFT_TRY(const YamlNode root, YamlNode::load(text, name, kClusterFile));
  WEFT_TRY(const YamlMap file, root.map("file", file_sections()));
  FileContents contents;
  WEFT_TRY_OK(read_library(file, &preset_library(), Sources::kOptional, contents.own));
  if (const YamlNode* cluster = file.find("cluster")) {
    WEFT_TRY(const auto citations, read_citations(file));
    WEFT_TRY(contents.cluster, read_cluster(*cluster, contents.own, citations));
  }
  return contents;
}

Result<std::shared_ptr<const NodeType>> only_node(const FileContents& contents, std::string_view name) {
  if (contents.own.nodes.size() == 1) return contents.own.nodes.begin()->second;
  return error("{} node types and no 'cluster'; add one, such as 'cluster: {}:2'", contents.own.nodes.size(),
               contents.own.nodes.empty() ? "dgx-h100" : contents.own.nodes.begin()->first)
      .at(name);
}

Result<GroupSpec> file_group(std::string_view text) {
  const auto [path, options] = name_and_options(text);
  WEFT_TRY(const std::string content, read_cluster_file(path));
  std::shared_ptr<const NodeType> type;
  Library own;
  if (is_topology(path)) {
    // `device=` is needed while reading: some dumps do not say which device it is.
    std::string device;
    for (std::string_view option : split(options.value_or(""), ":,"))
      if (option.starts_with("device=")) device = option.substr(7);
    WEFT_TRY(NodeType node, path.ends_with(".xml") ? parse_nccl_topology(content, path, device)
                                                   : parse_smi_topology(content, path, device));
    type = std::make_shared<const NodeType>(std::move(node));
  } else {
    WEFT_TRY(const FileContents contents, read_yaml(content, path));
    if (contents.cluster) return error("has a 'cluster' of its own and cannot be joined or counted").at(path);
    WEFT_TRY(type, only_node(contents, path));
    own = contents.own;
  }
  Result<GroupSpec> group = with_options(type, options, own);
  if (!group.ok()) return group.error().at(text);
  return group;
}

bool is_file(std::string_view text) {
  // Only the name is examined: an option may contain a '/' (net=50GB/s).
  const std::string_view name = name_and_options(text).first;
  return ends_with_any(name) || name.find('/') != std::string_view::npos;
}

// The names that complete what was written, if any do: 'h100' means h100-sxm rather than h200. Else the
// nearest.
std::string nearest(std::string_view name, std::vector<std::string> known) {
  std::vector<std::string> longer;
  for (const std::string& other : known)
    if (other.starts_with(name)) longer.push_back(other);
  return did_you_mean(name, longer.empty() ? known : longer);
}

template <class Map>
auto find_named(const Map& own, const Map& presets, std::string_view name) -> decltype(own.begin()->second) {
  if (const auto found = own.find(name); found != own.end()) return found->second;
  if (const auto found = presets.find(name); found != presets.end()) return found->second;
  return nullptr;
}

}  // namespace

std::string name_of_file(std::string_view path) {
  std::string_view name =
      path.substr(path.find_last_of('/') == std::string_view::npos ? 0 : path.find_last_of('/') + 1);
  if (const std::size_t dot = name.rfind('.'); dot != std::string_view::npos && dot > 0) name = name.substr(0, dot);
  std::string clean;
  for (char c : name.substr(0, 40)) clean += std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '-';
  return clean.empty() ? "node" : clean;
}

Result<std::shared_ptr<const NodeType>> find_node(const Library& own, std::string_view name) {
  const Library& presets = preset_library();
  std::string_view real = name;
  if (const auto alias = own.aliases.find(name); alias != own.aliases.end())
    real = alias->second;
  else if (const auto preset = presets.aliases.find(name); preset != presets.aliases.end())
    real = preset->second;
  if (auto found = find_named(own.nodes, presets.nodes, real)) return found;
  std::vector<std::string> known;
  for (const Library* library : {&own, &presets}) {
    for (const auto& [other, unused] : library->nodes) known.push_back(other);
    for (const auto& [other, unused] : library->aliases) known.push_back(other);
  }
  std::string remedy = nearest(name, std::move(known));
  if (remedy.empty()) remedy = "; `weft show clusters` lists the presets";
  return error("cluster '{}': no such preset{}", name.substr(0, 60), remedy);
}

Result<std::shared_ptr<const DeviceSpec>> find_device(const Library& own, std::string_view name) {
  if (auto found = find_named(own.devices, preset_library().devices, name)) return found;
  std::vector<std::string> known;
  for (const Library* library : {&own, &preset_library()})
    for (const auto& [other, unused] : library->devices) known.push_back(other);
  return error("device '{}': no such device{}", name.substr(0, 60), nearest(name, std::move(known)));
}

Result<Cluster> parse_cluster_yaml(std::string_view text, std::string_view name) {
  WEFT_TRY(FileContents contents, read_yaml(text, name));
  if (contents.cluster) return std::move(*contents.cluster);
  WEFT_TRY(auto type, only_node(contents, name));
  return join({{{std::move(type), 1}, std::nullopt}});
}

Result<Cluster> parse_cluster(std::string_view spec) {
  if (spec.size() > 4096) return error("cluster spec of {} characters: at most 4096; write a YAML file", spec.size());
  if (spec.empty()) return error("cluster spec: empty; write NAME:COUNT such as dgx-h100:16");
  const std::vector<std::string_view> parts = split(spec, "+");
  // A file alone may describe a whole cluster.
  if (is_file(spec) && ends_with_any(spec) && !is_topology(spec)) {
    std::error_code unknown;
    if (parts.size() == 1 || std::filesystem::exists(spec, unknown)) {
      WEFT_TRY(const std::string text, read_cluster_file(spec));
      return parse_cluster_yaml(text, spec);
    }
  }
  std::vector<GroupSpec> groups;
  const Library none;
  for (std::string_view part : parts) {
    WEFT_TRY(GroupSpec group, is_file(part) ? file_group(part) : preset_group(part, none));
    groups.push_back(std::move(group));
  }
  Result<Cluster> cluster = join(std::move(groups));
  if (!cluster.ok()) return cluster.error().at(spec);
  return cluster;
}

}  // namespace weft
