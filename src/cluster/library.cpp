#include "cluster/library.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "base/suggest.h"

namespace weft {
namespace {

using Citations = std::map<std::string, std::string>;
const std::string kSwitchKinds[] = {"switch", "pcie-switch", "socket", "nic"};

template <class Map>
std::vector<std::string> keys(const Map& map) {
  std::vector<std::string> names;
  names.reserve(map.size());
  for (const auto& [name, unused] : map) names.push_back(name);
  return names;
}

// A figure as written: `80GB` or `[80GB, source]`, where the source is a citation or a key of the section
// `sources`.
class FigureReader {
 public:
  FigureReader(const Citations& citations, Sources sources) : citations_(citations), sources_(sources) {}

  template <class T, class Parse>
  Result<Figure<T>> read(const YamlNode& node, std::string_view what, Parse parse) const {
    if (!node.is_list()) {
      if (sources_ == Sources::kRequired) return node.fail("{}: source missing; write [value, source]", what);
      WEFT_TRY(const T value, parsed<T>(node, what, parse));
      return Figure<T>{value, node.place()};
    }
    WEFT_TRY(const std::vector<YamlNode> pair, node.list(what));
    if (pair.size() != 2) return node.fail("{}: expected [value, source]", what);
    WEFT_TRY(const T value, parsed<T>(pair[0], what, parse));
    WEFT_TRY(std::string source, pair[1].text("source"));
    if (const auto found = citations_.find(source); found != citations_.end()) {
      source = found->second;
    } else if (sources_ == Sources::kRequired) {
      const std::vector<std::string> known = keys(citations_);
      return pair[1].fail("source '{}': not in the section 'sources'{}", source, did_you_mean(source, known));
    }
    return Figure<T>{value, std::move(source)};
  }

  Result<Figure<BytesPerSecond>> bandwidth(const YamlNode& node, std::string_view what) const {
    return read<BytesPerSecond>(node, what, [](std::string_view text) -> Result<BytesPerSecond> {
      WEFT_TRY(const BytesPerSecond rate, parse_bandwidth(text));
      if (rate.value <= 0) return error("'{}': must be more than zero", text);
      if (rate.value > 1e18) return error("'{}': more than 1 EB/s", text);
      return rate;
    });
  }
  Result<Figure<Seconds>> latency(const YamlNode& node, std::string_view what) const {
    return read<Seconds>(node, what, [](std::string_view text) -> Result<Seconds> {
      WEFT_TRY(const Seconds latency, parse_seconds(text));
      if (latency.value > 1) return error("'{}': more than 1s", text);
      return latency;
    });
  }
  Result<Figure<double>> factor(const YamlNode& node, std::string_view what, double most) const {
    return read<double>(node, what, [&](std::string_view text) -> Result<double> {
      double value = 0;
      const auto [rest, status] = std::from_chars(text.data(), text.data() + text.size(), value);
      if (status != std::errc() || rest != text.data() + text.size() || !(value >= 0 && value <= most))
        return error("'{}': a number from 0 to {:g}", text, most);
      return value;
    });
  }
  Result<Figure<Bytes>> bytes(const YamlNode& node, std::string_view what) const {
    return read<Bytes>(node, what, [](std::string_view text) -> Result<Bytes> {
      WEFT_TRY(const Bytes size, parse_bytes(text));
      if (size.value <= 0) return error("'{}': must be more than zero", text);
      return size;
    });
  }
  Result<Figure<FlopsPerSecond>> flop_rate(const YamlNode& node, std::string_view what) const {
    return read<FlopsPerSecond>(node, what, [](std::string_view text) -> Result<FlopsPerSecond> {
      WEFT_TRY(const FlopsPerSecond rate, parse_flop_rate(text));
      if (rate.value <= 0) return error("'{}': must be more than zero", text);
      if (rate.value > 1e24) return error("'{}': more than 1 YFLOPS", text);
      return rate;
    });
  }
  Result<Figure<int>> count(const YamlNode& node, std::string_view what, int least) const {
    return read<int>(node, what, [&](std::string_view text) -> Result<int> {
      const Result<std::int64_t> value = parse_integer(text, "");
      if (!value.ok() || *value < least || *value > 1'000'000)
        return error("'{}': a whole number from {} to 1000000", text, least);
      return static_cast<int>(*value);
    });
  }

  Sources sources() const { return sources_; }

 private:
  template <class T, class Parse>
  Result<T> parsed(const YamlNode& node, std::string_view what, Parse parse) const {
    WEFT_TRY(const std::string text, node.text(what));
    if (text.size() > 60)
      return node.fail("{}: {} characters where a number with its unit is expected", what, text.size());
    Result<T> value = parse(text);
    if (!value.ok()) return node.fail("{} {}", what, value.error().message);
    return value;
  }

  const Citations& citations_;
  Sources sources_;
};

// "gpu0..7" is gpu0, gpu1, ... gpu7; any other text is itself.
Result<std::vector<std::string>> expand_names(const std::string& text) {
  const auto plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' ||
           c == ':' || c == '.';
  };
  if (text.empty() || text.size() > 64 || !std::all_of(text.begin(), text.end(), plain))
    return error("name '{}': up to 64 letters, digits and - _ : . only", text.substr(0, 64));
  const std::size_t dots = text.find("..");
  if (dots == std::string::npos) return std::vector<std::string>{text};
  std::size_t digits = dots;
  while (digits > 0 && text[digits - 1] >= '0' && text[digits - 1] <= '9') --digits;
  const Result<std::int64_t> first = parse_integer(text.substr(digits, dots - digits), "first");
  const Result<std::int64_t> last = parse_integer(text.substr(dots + 2), "last");
  if (!first.ok() || !last.ok() || *first < 0 || *last < *first)
    return error("name '{}': a range is written gpu0..7", text);
  if (*last - *first >= static_cast<std::int64_t>(NodeType::kMostVertices))
    return error("name '{}': more than {} names", text, NodeType::kMostVertices);
  std::vector<std::string> names;
  for (std::int64_t i = *first; i <= *last; ++i) names.push_back(fmt::format("{}{}", text.substr(0, digits), i));
  return names;
}

Result<DeviceSpec> read_device(const std::string& name, const YamlNode& node, const FigureReader& figures) {
  static const std::string known[] = {"title",         "architecture", "memory", "memory_usable", "memory_bandwidth",
                                      "compute_units", "copy_engines", "peak"};
  WEFT_TRY(const YamlMap fields, node.map(fmt::format("device '{}'", name), known));
  DeviceSpec device;
  device.name = name;
  device.title = name;
  if (const YamlNode* title = fields.find("title")) {
    WEFT_TRY(device.title, title->text("title"));
  }
  if (const YamlNode* architecture = fields.find("architecture")) {
    WEFT_TRY(device.architecture, architecture->text("architecture"));
  }
  WEFT_TRY(const YamlNode memory, fields.require("memory"));
  WEFT_TRY(device.memory, figures.bytes(memory, "memory"));
  device.memory_usable = device.memory;
  if (const YamlNode* usable = fields.find("memory_usable")) {
    WEFT_TRY(device.memory_usable, figures.bytes(*usable, "memory_usable"));
  }
  WEFT_TRY(const YamlNode bandwidth, fields.require("memory_bandwidth"));
  WEFT_TRY(device.memory_bandwidth, figures.bandwidth(bandwidth, "memory_bandwidth"));
  WEFT_TRY(const YamlNode units, fields.require("compute_units"));
  WEFT_TRY(device.compute_units, figures.count(units, "compute_units", 1));
  WEFT_TRY(const YamlNode engines, fields.require("copy_engines"));
  WEFT_TRY(device.copy_engines, figures.count(engines, "copy_engines", 0));
  WEFT_TRY(const YamlNode peak_node, fields.require("peak"));
  std::vector<std::string> dtypes;
  for (Arithmetic arithmetic : kArithmetics) dtypes.emplace_back(weft::name(arithmetic));
  WEFT_TRY(const YamlMap peaks, peak_node.map("peak", dtypes));
  if (peaks.entries().empty()) return peak_node.fail("peak: empty; give at least fp32");
  for (Arithmetic arithmetic : kArithmetics)
    if (const YamlNode* peak = peaks.find(weft::name(arithmetic))) {
      WEFT_TRY(device.peaks[static_cast<std::size_t>(arithmetic)], figures.flop_rate(*peak, weft::name(arithmetic)));
    }
  return device;
}

Result<NetworkTraits> named_network(const Library& own, const Library* base, std::string_view name) {
  std::vector<std::string> known;
  for (const Library* library : {&own, base}) {
    if (library == nullptr) continue;
    if (const auto found = library->networks.find(name); found != library->networks.end()) return found->second;
    for (const auto& [other, unused] : library->networks) known.push_back(other);
  }
  return error("network '{}': none of that name{}", name.substr(0, 60), did_you_mean(name, known));
}

Result<NetworkTraits> read_network(const std::string& name, const YamlNode& node, const FigureReader& figures) {
  static const std::string known[] = {"collisions", "message", "jitter", "step_jitter"};
  WEFT_TRY(const YamlMap fields, node.map(fmt::format("network '{}'", name), known));
  NetworkTraits network{.name = name, .collisions = {}, .message = {}, .jitter = {}, .step_jitter = {}};
  WEFT_TRY(const YamlNode collisions, fields.require("collisions"));
  WEFT_TRY(network.collisions, figures.factor(collisions, "collisions", 10));
  WEFT_TRY(const YamlNode message, fields.require("message"));
  WEFT_TRY(network.message, figures.latency(message, "message"));
  WEFT_TRY(const YamlNode jitter, fields.require("jitter"));
  WEFT_TRY(network.jitter, figures.latency(jitter, "jitter"));
  WEFT_TRY(const YamlNode step_jitter, fields.require("step_jitter"));
  WEFT_TRY(network.step_jitter, figures.factor(step_jitter, "step_jitter", 1));
  return network;
}

// The network of a link is looked up in `into`, then among the presets.
Result<LinkType> read_link(const std::string& name, const YamlNode& node, const FigureReader& figures,
                           const Library& into, const Library* base) {
  static const std::string known[] = {"kind", "bandwidth", "latency", "network"};
  static const std::vector<std::string> kinds = {"nvlink", "nvswitch", "xgmi",   "c2c",
                                                 "memory", "pcie",     "socket", "nic"};
  WEFT_TRY(const YamlMap fields, node.map(fmt::format("link '{}'", name), known));
  LinkType link;
  link.name = name;
  WEFT_TRY(const YamlNode kind_node, fields.require("kind"));
  WEFT_TRY(const std::string kind, kind_node.text("kind"));
  const auto found = std::find(kinds.begin(), kinds.end(), kind);
  if (found == kinds.end()) return kind_node.fail("kind '{}': one of {}", kind.substr(0, 60), fmt::join(kinds, ", "));
  link.kind = static_cast<LinkKind>(found - kinds.begin());
  WEFT_TRY(const YamlNode bandwidth, fields.require("bandwidth"));
  WEFT_TRY(link.bandwidth, figures.bandwidth(bandwidth, "bandwidth"));
  WEFT_TRY(const YamlNode latency, fields.require("latency"));
  WEFT_TRY(link.latency, figures.latency(latency, "latency"));
  if (const YamlNode* network = fields.find("network")) {
    if (link.kind != LinkKind::kNic) return network->fail("network: of links of the kind nic only");
    WEFT_TRY(const std::string wanted, network->text("network"));
    const Result<NetworkTraits> traits = named_network(into, base, wanted);
    if (!traits.ok()) return network->fail(traits.error());
    link.network = *traits;
  } else if (link.kind == LinkKind::kNic && figures.sources() == Sources::kRequired) {
    return node.fail("link '{}': 'network' missing", name);
  }
  return link;
}

// Reads one node type; names of devices and links are looked up in `into`, then in `base`.
class NodeReader {
 public:
  NodeReader(const Library& into, const Library* base) : into_(into), base_(base) {}

  Status vertices(const YamlNode& node) {
    WEFT_TRY(const YamlMap map, node.map("vertices"));
    for (const YamlMap::Entry& entry : map.entries()) {
      Result<std::vector<std::string>> names = expand_names(entry.key);
      if (!names.ok()) return entry.key_node.fail(names.error());
      WEFT_TRY(const std::string kind, entry.value.text("kind of vertex"));
      Vertex vertex;
      const auto known = std::find(std::begin(kSwitchKinds), std::end(kSwitchKinds), kind);
      if (known != std::end(kSwitchKinds)) {
        vertex.kind = static_cast<VertexKind>(known - std::begin(kSwitchKinds) + 1);
      } else {
        WEFT_TRY(vertex.spec, device(kind, entry.value));
      }
      for (const std::string& name : *names) {
        if (name == "network" || name == "mesh" || name == "pairs")
          return entry.key_node.fail("name '{}': has a meaning of its own in wires", name);
        if (!index_.emplace(name, static_cast<int>(parts.vertices.size())).second)
          return entry.key_node.fail("vertex '{}': named twice; give each vertex its own name", name);
        if (index_.size() > NodeType::kMostVertices)
          return entry.key_node.fail("more than {} vertices", NodeType::kMostVertices);
        vertex.name = name;
        parts.vertices.push_back(vertex);
      }
    }
    return Ok{};
  }

  // [from, to, link] or [from, to, link, count]. The longer of two ranges is divided over the shorter in equal
  // blocks; `mesh` wires the first range all to all, `pairs` two by two, `network` wires NICs to the fabric.
  // A list of wires may stand for one wire (once), so that files can share them through an anchor.
  Status wire(const YamlNode& node, bool nested = false) {
    WEFT_TRY(const std::vector<YamlNode> items, node.list("wire"));
    if (!nested && !items.empty() && items[0].is_list()) {
      for (const YamlNode& item : items) WEFT_TRY_OK(wire(item, true));
      return Ok{};
    }
    if (items.size() != 3 && items.size() != 4)
      return node.fail("wire: expected [from, to, link] or [from, to, link, count]");
    WEFT_TRY(const std::vector<int> from, find(items[0]));
    WEFT_TRY(const std::string to_text, items[1].text("wire"));
    WEFT_TRY(const int type, link(items[2]));
    std::int64_t count = 1;
    if (items.size() == 4) {
      WEFT_TRY(count, items[3].integer("count", 1, 1000));
    }
    const auto add = [&](int a, int b) -> Status {
      if (a == b) return node.fail("'{}': wired to itself", parts.vertices[a].name);
      if (parts.wires.size() >= NodeType::kMostWires) return node.fail("more than {} wires", NodeType::kMostWires);
      parts.wires.push_back({a, b, type, static_cast<int>(count)});
      return Ok{};
    };
    if (to_text == "network") {
      for (int nic : from) WEFT_TRY_OK(add(nic, NodeParts::kNetwork));
      return Ok{};
    }
    if (to_text == "mesh") {
      for (std::size_t a = 0; a < from.size(); ++a)
        for (std::size_t b = a + 1; b < from.size(); ++b) WEFT_TRY_OK(add(from[a], from[b]));
      return Ok{};
    }
    if (to_text == "pairs") {
      if (from.size() % 2 != 0) return node.fail("wire: {} vertices do not make pairs", from.size());
      for (std::size_t a = 0; a < from.size(); a += 2) WEFT_TRY_OK(add(from[a], from[a + 1]));
      return Ok{};
    }
    WEFT_TRY(const std::vector<int> to, find(items[1]));
    const std::size_t longer = std::max(from.size(), to.size()), shorter = std::min(from.size(), to.size());
    if (longer % shorter != 0)
      return node.fail("wire: {} ends on one side cannot be dealt evenly over {} on the other", longer, shorter);
    for (std::size_t i = 0; i < longer; ++i)
      WEFT_TRY_OK(add(from[i * from.size() / longer], to[i * to.size() / longer]));
    return Ok{};
  }

  NodeParts parts;

 private:
  Result<int> device(const std::string& name, const YamlNode& place) {
    std::shared_ptr<const DeviceSpec> spec;
    if (const auto own = into_.devices.find(name); own != into_.devices.end()) spec = own->second;
    if (!spec && base_ != nullptr)
      if (const auto preset = base_->devices.find(name); preset != base_->devices.end()) spec = preset->second;
    if (!spec) {
      std::vector<std::string> known = keys(into_.devices);
      if (base_ != nullptr)
        for (const auto& [other, unused] : base_->devices) known.push_back(other);
      known.insert(known.end(), std::begin(kSwitchKinds), std::end(kSwitchKinds));
      return place.fail("'{}': no such device or kind of vertex{}", name.substr(0, 60), did_you_mean(name, known));
    }
    for (std::size_t i = 0; i < parts.specs.size(); ++i)
      if (parts.specs[i] == spec) return static_cast<int>(i);
    parts.specs.push_back(spec);
    return static_cast<int>(parts.specs.size() - 1);
  }

  Result<int> link(const YamlNode& node) {
    WEFT_TRY(const std::string name, node.text("link"));
    const LinkType* type = nullptr;
    if (const auto own = into_.links.find(name); own != into_.links.end()) type = &own->second;
    if (type == nullptr && base_ != nullptr)
      if (const auto preset = base_->links.find(name); preset != base_->links.end()) type = &preset->second;
    if (type == nullptr) {
      std::vector<std::string> known = keys(into_.links);
      if (base_ != nullptr)
        for (const auto& [other, unused] : base_->links) known.push_back(other);
      return node.fail("link '{}': no such link{}", name.substr(0, 60), did_you_mean(name, known));
    }
    for (std::size_t i = 0; i < parts.link_types.size(); ++i)
      if (parts.link_types[i].name == name) return static_cast<int>(i);
    parts.link_types.push_back(*type);
    return static_cast<int>(parts.link_types.size() - 1);
  }

  Result<std::vector<int>> find(const YamlNode& node) const {
    WEFT_TRY(const std::string text, node.text("wire"));
    Result<std::vector<std::string>> names = expand_names(text);
    if (!names.ok()) return node.fail(names.error());
    std::vector<int> vertices;
    for (const std::string& name : *names) {
      const auto found = index_.find(name);
      if (found == index_.end()) {
        const std::vector<std::string> known = keys(index_);
        return node.fail("'{}': no such vertex{}", name, did_you_mean(name, known));
      }
      vertices.push_back(found->second);
    }
    return vertices;
  }

  const Library& into_;
  const Library* base_;
  std::map<std::string, int> index_;
};

Status read_node(const std::string& name, const YamlNode& node, const Library* base, const Citations& citations,
                 Sources sources, Library& into) {
  static const std::string known[] = {"title", "aliases",         "source", "vertices",
                                      "wires", "devices_forward", "host",   "fabric"};
  WEFT_TRY(const YamlMap fields, node.map(fmt::format("node '{}'", name), known));
  NodeReader reader(into, base);
  reader.parts.name = name;
  reader.parts.title = name;
  if (const YamlNode* title = fields.find("title")) {
    WEFT_TRY(reader.parts.title, title->text("title"));
  }
  if (const YamlNode* source = fields.find("source")) {
    WEFT_TRY(reader.parts.source, source->text("source"));
    if (const auto found = citations.find(reader.parts.source); found != citations.end())
      reader.parts.source = found->second;
  } else if (sources == Sources::kRequired) {
    return node.fail("node '{}': 'source' missing", name);
  }
  if (const YamlNode* forward = fields.find("devices_forward")) {
    WEFT_TRY(reader.parts.devices_forward, forward->boolean("devices_forward"));
  }
  if (const YamlNode* host = fields.find("host")) {
    WEFT_TRY(reader.parts.host, FigureReader(citations, sources).factor(*host, "host", kSlowestHost));
    if (reader.parts.host.value <= 0) return host->fail("host {}: must be more than zero", reader.parts.host.value);
  }
  WEFT_TRY(const YamlNode vertices, fields.require("vertices"));
  WEFT_TRY_OK(reader.vertices(vertices));
  if (const YamlNode* wires = fields.find("wires")) {
    WEFT_TRY(const std::vector<YamlNode> list, wires->list("wires"));
    for (const YamlNode& wire : list) WEFT_TRY_OK(reader.wire(wire));
  }
  if (const YamlNode* fabric = fields.find("fabric")) {
    WEFT_TRY(reader.parts.fabric, read_fabric(*fabric, citations, sources));
  }
  Result<NodeType> type = NodeType::make(std::move(reader.parts));
  if (!type.ok()) return node.fail("node '{}': {}", name, type.error().message);
  if (const YamlNode* aliases = fields.find("aliases")) {
    WEFT_TRY(const std::vector<YamlNode> list, aliases->list("aliases"));
    for (const YamlNode& alias : list) {
      WEFT_TRY(const std::string text, alias.text("alias"));
      if (!into.aliases.emplace(text, name).second) return alias.fail("alias '{}': given twice", text);
    }
  }
  into.nodes[name] = std::make_shared<const NodeType>(std::move(type).value());
  return Ok{};
}

Result<std::string> checked_name(const YamlMap::Entry& entry) {
  Result<std::vector<std::string>> names = expand_names(entry.key);
  if (!names.ok()) return entry.key_node.fail(names.error());
  if (names->size() != 1) return entry.key_node.fail("name '{}': one name, not a range", entry.key);
  return entry.key;
}

}  // namespace

const std::vector<std::string>& file_sections() {
  static const std::vector<std::string> sections = {"sources", "devices", "networks", "links", "nodes", "cluster"};
  return sections;
}

Result<NetworkTraits> find_network(const Library& own, std::string_view name) {
  return named_network(own, &preset_library(), name);
}

Result<std::map<std::string, std::string>> read_citations(const YamlMap& file) {
  Citations citations;
  if (const YamlNode* section = file.find("sources")) {
    WEFT_TRY(const YamlMap map, section->map("sources"));
    for (const YamlMap::Entry& entry : map.entries()) {
      WEFT_TRY(citations[entry.key], entry.value.text(entry.key));
    }
  }
  return citations;
}

Result<FabricSpec> read_fabric(const YamlNode& node, const Citations& citations, Sources sources) {
  static const std::string known[] = {"kind",  "levels", "latency", "nodes_per_router", "routers_per_group",
                                      "local", "global", "relays"};
  const FigureReader figures(citations, sources);
  WEFT_TRY(const YamlMap fields, node.map("fabric", known));
  WEFT_TRY(const YamlNode kind_node, fields.require("kind"));
  WEFT_TRY(const std::string kind, kind_node.text("kind"));
  Figure<Seconds> latency;
  if (kind != "switch") {
    WEFT_TRY(const YamlNode latency_node, fields.require("latency"));
    WEFT_TRY(latency, figures.latency(latency_node, "latency"));
  }
  FabricSpec spec;
  if (kind == "dragonfly") {
    DragonflyFabric dragonfly;
    dragonfly.latency = latency;
    WEFT_TRY(const YamlNode nodes, fields.require("nodes_per_router"));
    WEFT_TRY(dragonfly.nodes_per_router, nodes.integer("nodes_per_router", 1, 1'000'000));
    WEFT_TRY(const YamlNode routers, fields.require("routers_per_group"));
    WEFT_TRY(dragonfly.routers_per_group, routers.integer("routers_per_group", 1, 4096));
    WEFT_TRY(const YamlNode local, fields.require("local"));
    WEFT_TRY(dragonfly.local, figures.bandwidth(local, "local"));
    WEFT_TRY(const YamlNode global, fields.require("global"));
    WEFT_TRY(dragonfly.global, figures.bandwidth(global, "global"));
    spec = dragonfly;
  } else if (kind == "switch" || kind == "fat-tree" || kind == "rail-optimised") {
    TreeFabric tree;
    tree.rails = kind == "rail-optimised";
    tree.latency = latency;
    if (kind != "switch") {
      WEFT_TRY(const YamlNode levels, fields.require("levels"));
      WEFT_TRY(const std::vector<YamlNode> list, levels.list("levels"));
      if (list.empty() || list.size() > 8) return levels.fail("levels: from 1 to 8 of them");
      static const std::string level_keys[] = {"nodes", "oversubscription"};
      for (const YamlNode& item : list) {
        WEFT_TRY(const YamlMap level, item.map("level", level_keys));
        WEFT_TRY(const YamlNode nodes, level.require("nodes"));
        TreeFabric::Level read;
        WEFT_TRY(read.nodes, nodes.integer("nodes", 1, 1'000'000'000));
        if (const YamlNode* factor = level.find("oversubscription")) {
          WEFT_TRY(read.oversubscription, factor->number("oversubscription"));
        }
        tree.levels.push_back(read);
      }
      if (const YamlNode* relays = fields.find("relays")) {
        WEFT_TRY(tree.relays, relays->boolean("relays"));
      }
    }
    spec = tree;
  } else {
    return kind_node.fail("kind '{}': one of switch, fat-tree, rail-optimised, dragonfly", kind.substr(0, 60));
  }
  if (const Status status = check(spec); !status.ok()) return node.fail("fabric: {}", status.error().message);
  return spec;
}

Status read_library(const YamlMap& file, const Library* base, Sources sources, Library& into) {
  WEFT_TRY(const Citations citations, read_citations(file));
  const FigureReader figures(citations, sources);
  if (const YamlNode* section = file.find("devices")) {
    WEFT_TRY(const YamlMap devices, section->map("devices"));
    for (const YamlMap::Entry& entry : devices.entries()) {
      WEFT_TRY(const std::string name, checked_name(entry));
      WEFT_TRY(DeviceSpec device, read_device(name, entry.value, figures));
      into.devices[name] = std::make_shared<const DeviceSpec>(std::move(device));
    }
  }
  if (const YamlNode* section = file.find("networks")) {
    WEFT_TRY(const YamlMap networks, section->map("networks"));
    for (const YamlMap::Entry& entry : networks.entries()) {
      WEFT_TRY(const std::string name, checked_name(entry));
      WEFT_TRY(into.networks[name], read_network(name, entry.value, figures));
    }
  }
  if (const YamlNode* section = file.find("links")) {
    WEFT_TRY(const YamlMap links, section->map("links"));
    for (const YamlMap::Entry& entry : links.entries()) {
      WEFT_TRY(const std::string name, checked_name(entry));
      WEFT_TRY(into.links[name], read_link(name, entry.value, figures, into, base));
    }
  }
  if (const YamlNode* section = file.find("nodes")) {
    WEFT_TRY(const YamlMap nodes, section->map("nodes"));
    std::size_t vertices = 0;
    for (const YamlMap::Entry& entry : nodes.entries()) {
      WEFT_TRY(const std::string name, checked_name(entry));
      WEFT_TRY_OK(read_node(name, entry.value, base, citations, sources, into));
      // Routes cost the square of a node's vertices; a file full of huge nodes must not take minutes.
      vertices += into.nodes[name]->parts().vertices.size();
      if (vertices > 4 * NodeType::kMostVertices)
        return entry.key_node.fail("node '{}': more than {} vertices in one file", name, 4 * NodeType::kMostVertices);
    }
  }
  return Ok{};
}

}  // namespace weft
