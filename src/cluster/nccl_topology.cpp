// Import of NCCL_TOPO_DUMP_FILE dumps: <system> <cpu> <pci> ... <gpu> <nvlink/> and <nic> <net/>.
//
// The dump gives the tree and the widths; what it lacks (bandwidth per NVLink, latency, the device's name) is
// taken from the presets by compute capability.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <optional>
#include <pugixml.hpp>
#include <set>

#include "base/suggest.h"
#include "cluster/cluster.h"
#include "cluster/library.h"

namespace weft {
namespace {

constexpr int kMostDepth = 32;

// The device of a compute capability (or gfx number) unless the user names one.
struct Capability {
  std::string_view id, device, lane;  // `lane`: the preset link of one NVLink or xGMI lane
  double lane_share;                  // of that link's bandwidth
};
constexpr Capability kCapabilities[] = {
    {"37", "k80", "", 1},
    {"60", "p100-sxm", "nvlink1", 1},
    {"61", "titan-xp", "", 1},
    {"70", "v100-32", "nvlink2", 1},
    {"80", "a100-80-sxm", "nvlink3-x12", 1.0 / 12},
    {"86", "a40", "nvlink-bridge-a40", 1.0 / 4},
    {"89", "l40s", "", 1},
    {"90", "h100-sxm", "nvlink4-x18", 1.0 / 18},
    {"100", "b200", "nvlink5-x18", 1.0 / 18},
    {"103", "b300", "nvlink5-x18", 1.0 / 18},
    {"gfx90a", "mi250x", "xgmi-mi250x", 1},
    {"gfx942", "mi300x", "xgmi-mi300x", 1},
    {"gfx950", "mi355x", "xgmi-mi355x", 1},
};

// The device of a PCI id (the public pci.ids list), which newer dumps contain: more specific than the capability.
struct PciDevice {
  std::string_view id, device;
};
constexpr PciDevice kPciDevices[] = {
    {"0x102d", "k80"},         {"0x15f9", "p100-sxm"},     {"0x15f8", "p100-pcie"},    {"0x1b02", "titan-xp"},
    {"0x1db1", "v100-16"},     {"0x1db5", "v100-32"},      {"0x1db8", "v100-32"},      {"0x20b0", "a100-40-sxm"},
    {"0x20b2", "a100-80-sxm"}, {"0x20f1", "a100-40-pcie"}, {"0x20b5", "a100-80-pcie"}, {"0x2236", "a10"},
    {"0x2235", "a40"},         {"0x27b8", "l4"},           {"0x26b9", "l40s"},         {"0x2330", "h100-sxm"},
    {"0x2331", "h100-pcie"},   {"0x2321", "h100-nvl"},     {"0x2324", "h800"},         {"0x2335", "h200"},
    {"0x2901", "b200"},        {"0x3182", "b300"},         {"0x2941", "gb200"},        {"0x7408", "mi250x"},
    {"0x740c", "mi250x"},      {"0x74a1", "mi300x"},       {"0x74a5", "mi325x"},       {"0x75a3", "mi355x"},
};

class Importer {
 public:
  Importer(std::string_view text, std::string_view file, std::string_view device)
      : text_(text), file_(file), wanted_device_(device) {}

  Result<NodeType> run() {
    if (text_.size() > YamlNode::kMostBytes)
      return error("{} bytes: a topology has at most {}", text_.size(), YamlNode::kMostBytes).at(file_);
    pugi::xml_document document;
    const pugi::xml_parse_result parsed =
        document.load_buffer(text_.data(), text_.size(), pugi::parse_default, pugi::encoding_utf8);
    if (!parsed) return error("not XML: {}", parsed.description()).at(file_, line(parsed.offset));
    const pugi::xml_node system = document.child("system");
    if (!system) return error("no <system>; expected a dump written by NCCL_TOPO_DUMP_FILE").at(file_);
    parts_.name = name_of_file(file_);
    parts_.title = parts_.name;
    parts_.source = "NCCL topology dump " + std::string(file_);
    std::vector<int> sockets;
    for (const pugi::xml_node& cpu : system.children("cpu")) {
      WEFT_TRY(const int socket, add_vertex(fmt::format("socket{}", sockets.size()), VertexKind::kSocket, cpu));
      sockets.push_back(socket);
      socket_ = socket;
      WEFT_TRY_OK(read_children(cpu, socket, kMostDepth));
    }
    if (gpus_.empty()) return error("no <gpu> below a <cpu>; run NCCL on at least one GPU to write the dump").at(file_);
    for (std::size_t a = 0; a < sockets.size(); ++a)
      for (std::size_t b = a + 1; b < sockets.size(); ++b) {
        // The dump does not contain the links between sockets.
        const bool amd = std::string_view(system.child("cpu").attribute("vendor").value()) == "AuthenticAMD";
        WEFT_TRY_OK(add_wire(sockets[a], sockets[b], preset_link(amd ? "epyc-xgmi" : "upi"), 1, system));
      }
    WEFT_TRY_OK(connect_gpus());
    Result<NodeType> type = NodeType::make(std::move(parts_));
    if (!type.ok()) return type.error().at(file_);
    return type;
  }

 private:
  struct Gpu {
    int vertex, socket;
    std::string busid;
    const Capability* capability;
    pugi::xml_node node;
  };

  int line(std::ptrdiff_t offset) const {
    const auto end = std::clamp<std::ptrdiff_t>(offset, 0, static_cast<std::ptrdiff_t>(text_.size()));
    return 1 + static_cast<int>(std::count(text_.begin(), text_.begin() + end, '\n'));
  }
  template <class... Args>
  Error fail(const pugi::xml_node& node, fmt::format_string<Args...> format, Args&&... args) const {
    return error(format, std::forward<Args>(args)...).at(file_, line(node.offset_debug()));
  }

  Result<double> number(const pugi::xml_node& node, const char* attribute, double otherwise) const {
    const std::string_view text = node.attribute(attribute).value();
    if (text.empty()) return otherwise;
    double value = 0;
    const auto [rest, status] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (status != std::errc() || rest != text.data() + text.size() || !std::isfinite(value) || value < 0 || value > 1e9)
      return fail(node, "{} '{}': a number from 0 to 1e9", attribute, text.substr(0, 60));
    return value;
  }

  Result<int> add_vertex(std::string name, VertexKind kind, const pugi::xml_node& node, int spec = -1) {
    if (parts_.vertices.size() >= NodeType::kMostVertices)
      return fail(node, "more than {} vertices", NodeType::kMostVertices);
    parts_.vertices.push_back({std::move(name), kind, spec});
    return static_cast<int>(parts_.vertices.size() - 1);
  }

  Status add_wire(int from, int to, LinkType link, int count, const pugi::xml_node& node) {
    if (parts_.wires.size() >= NodeType::kMostWires) return fail(node, "more than {} links", NodeType::kMostWires);
    auto known = std::find_if(parts_.link_types.begin(), parts_.link_types.end(),
                              [&](const LinkType& other) { return other.name == link.name; });
    if (known == parts_.link_types.end()) known = parts_.link_types.insert(known, std::move(link));
    parts_.wires.push_back({from, to, static_cast<int>(known - parts_.link_types.begin()), count});
    return Ok{};
  }

  LinkType preset_link(std::string_view name) const {
    const auto found = preset_library().links.find(name);
    WEFT_CHECK(found != preset_library().links.end(), "no preset link {}", name);
    return found->second;
  }

  // link_speed="16.0 GT/s PCIe" link_width="16"; NCCL takes gen 3 x16 where a virtual machine hides them.
  Result<LinkType> pcie(const pugi::xml_node& pci) const {
    const std::string_view speed = pci.attribute("link_speed").value();
    double rate = 8;
    const auto [rest, status] = std::from_chars(speed.data(), speed.data() + speed.size(), rate);
    if (status != std::errc() || !std::isfinite(rate) || rate <= 0) rate = 8;
    if (rate > 1024) return fail(pci, "link_speed '{}': more than 1024 GT/s", speed.substr(0, 60));
    WEFT_TRY(double width, number(pci, "link_width", 16));
    if (width < 1) width = 16;
    if (width > 64) return fail(pci, "link_width '{}': more than 64 lanes", pci.attribute("link_width").value());
    const double coding = rate < 8 ? 0.8 : rate < 64 ? 128.0 / 130 : 1;
    LinkType link;
    link.name = fmt::format("pcie-{:g}GTs-x{:g}", rate, width);
    link.kind = LinkKind::kPcie;
    link.bandwidth = {{rate * 1e9 / 8 * width * coding}, fmt::format("link_speed and link_width of {}", file_)};
    link.latency = preset_link("pcie4-x16").latency;
    return link;
  }

  Status read_children(const pugi::xml_node& parent, int vertex, int depth) {
    if (depth == 0) return fail(parent, "nested more than {} deep", kMostDepth);
    for (const pugi::xml_node& child : parent.children()) {
      const std::string_view tag = child.name();
      if (tag == "pci") WEFT_TRY_OK(read_pci(child, vertex, depth));
      if (tag == "nic") WEFT_TRY_OK(read_nic(child, vertex, std::nullopt));
    }
    return Ok{};
  }

  Status read_pci(const pugi::xml_node& pci, int parent, int depth) {
    WEFT_TRY(LinkType link, pcie(pci));
    if (const pugi::xml_node gpu = pci.child("gpu")) return read_gpu(pci, gpu, parent, std::move(link));
    if (const pugi::xml_node nic = pci.child("nic")) return read_nic(nic, parent, std::move(link));
    if (!pci.child("pci")) return Ok{};  // NVMe disks and the like
    WEFT_TRY(const int vertex, add_vertex(fmt::format("pcie{}", switches_++), VertexKind::kPcieSwitch, pci));
    WEFT_TRY_OK(add_wire(vertex, parent, std::move(link), 1, pci));
    return read_children(pci, vertex, depth - 1);
  }

  Status read_gpu(const pugi::xml_node& pci, const pugi::xml_node& gpu, int parent, LinkType link) {
    std::string id = gpu.attribute("sm").value();
    if (id.empty() || id == "0") id = gpu.attribute("gcn").value();
    if (!id.empty() && gpu.attribute("gcn") && !id.starts_with("gfx")) id = "gfx" + id;
    const auto capability = std::find_if(std::begin(kCapabilities), std::end(kCapabilities),
                                         [&](const Capability& c) { return c.id == id; });
    const bool known = capability != std::end(kCapabilities);
    const std::string_view pci_id = pci.attribute("device").value();
    const auto listed = std::find_if(std::begin(kPciDevices), std::end(kPciDevices),
                                     [&](const PciDevice& d) { return d.id == pci_id; });
    std::string_view device = wanted_device_;
    if (device.empty() && listed != std::end(kPciDevices)) device = listed->device;
    if (device.empty() && known) device = capability->device;
    if (device.empty())
      return fail(gpu, "sm '{}': device unknown; name it, as in {}:1,device=h100-sxm", id.substr(0, 60), file_);
    Result<std::shared_ptr<const DeviceSpec>> spec = find_device({}, device);
    if (!spec.ok()) return fail(gpu, "{}", spec.error().message);
    auto at = std::find(parts_.specs.begin(), parts_.specs.end(), *spec);
    if (at == parts_.specs.end()) at = parts_.specs.insert(at, *spec);
    WEFT_TRY(const int vertex, add_vertex(fmt::format("gpu{}", gpus_.size()), VertexKind::kDevice, gpu,
                                          static_cast<int>(at - parts_.specs.begin())));
    gpus_.push_back({vertex, socket_, pci.attribute("busid").value(), known ? capability : nullptr, gpu});
    return add_wire(vertex, parent, std::move(link), 1, pci);
  }

  // One vertex per port; ports of one card share the card's PCIe link only if there are several.
  Status read_nic(const pugi::xml_node& nic, int parent, std::optional<LinkType> link) {
    const auto ports = std::distance(nic.children("net").begin(), nic.children("net").end());
    LinkType own = link ? *link : preset_link("pcie3-x16");
    if (ports > 1 && link) {
      WEFT_TRY(const int card, add_vertex(fmt::format("pcie{}", switches_++), VertexKind::kPcieSwitch, nic));
      WEFT_TRY_OK(add_wire(card, parent, own, 1, nic));
      parent = card;
    }
    for (const pugi::xml_node& net : nic.children("net")) {
      // A socket interface that belongs to no PCI tree is listed below every CPU.
      const std::string port_name = net.attribute("name").value();
      if (!port_name.empty() && !ports_seen_.insert(port_name).second) continue;
      WEFT_TRY(double megabits, number(net, "speed", 10000));
      if (megabits <= 0) megabits = 10000;  // what NCCL assumes for an unknown port
      WEFT_TRY(const double microseconds, number(net, "latency", 0));
      if (microseconds > 1e6) return fail(net, "latency '{}': more than 1s", net.attribute("latency").value());
      LinkType port;
      port.name = fmt::format("net-{:g}Gbps", megabits / 1000);
      std::erase(port.name, '+');
      port.kind = LinkKind::kNic;
      port.bandwidth = {{megabits * 1e6 / 8}, fmt::format("speed of <net> in {}", file_)};
      port.latency = preset_link("ib-hdr").latency;
      if (microseconds > 0) {
        port.name += fmt::format("-{:g}us", microseconds);
        std::erase(port.name, '+');
        port.latency = {{microseconds * 1e-6}, fmt::format("latency of <net> in {}", file_)};
      }
      WEFT_TRY(const int vertex, add_vertex(fmt::format("nic{}", nics_++), VertexKind::kNic, net));
      WEFT_TRY_OK(add_wire(vertex, parent, own, 1, net));
      WEFT_TRY_OK(add_wire(vertex, NodeParts::kNetwork, std::move(port), 1, net));
    }
    return Ok{};
  }

  // <nvlink target count tclass>: to another GPU's bus id, to a switch (class 0x0680) or to a CPU.
  Status connect_gpus() {
    std::map<std::string, const Gpu*> by_bus;
    for (const Gpu& gpu : gpus_)
      if (!by_bus.emplace(gpu.busid, &gpu).second)
        return fail(gpu.node, "busid '{}': two GPUs have it", gpu.busid.substr(0, 60));
    int nvswitch = -1;
    for (const Gpu& gpu : gpus_) {
      double to_switch = 0;
      for (const pugi::xml_node& lane : gpu.node.children()) {
        const std::string_view tag = lane.name();
        if (tag == "c2c") WEFT_TRY_OK(connect_host(gpu, lane));
        if (tag != "nvlink" && tag != "xgmi") continue;
        WEFT_TRY(const double count, number(lane, "count", 1));
        if (count < 1 || count > 1000) return fail(lane, "count '{}': from 1 to 1000", lane.attribute("count").value());
        const std::string target = lane.attribute("target").value();
        if (std::string_view(lane.attribute("tclass").value()).starts_with("0x0680")) {
          to_switch += std::floor(count);
          continue;
        }
        const auto other = by_bus.find(target);
        if (other == by_bus.end()) continue;  // a CPU, or a GPU that the dump leaves out
        if (other->second == &gpu) return fail(lane, "target '{}': a GPU linked to itself", target.substr(0, 60));
        // Both ends list the link: keep the one of the lower end.
        if (other->second->vertex > gpu.vertex || !lists(*other->second, gpu.busid))
          WEFT_TRY_OK(add_lanes(gpu, other->second->vertex, count, LinkKind::kNvlink, lane));
      }
      if (to_switch <= 0) continue;
      if (nvswitch < 0) {
        WEFT_TRY(nvswitch, add_vertex("nvswitch", VertexKind::kSwitch, gpu.node));
      }
      WEFT_TRY_OK(add_lanes(gpu, nvswitch, to_switch, LinkKind::kNvswitch, gpu.node));
    }
    return Ok{};
  }

  // <c2c bw count>: NVLink-C2C to the socket, bw in MB/s per link and direction.
  Status connect_host(const Gpu& gpu, const pugi::xml_node& c2c) {
    WEFT_TRY(const double bandwidth, number(c2c, "bw", 0));
    WEFT_TRY(const double count, number(c2c, "count", 1));
    if (bandwidth <= 0) return Ok{};
    if (count < 1 || count > 1000) return fail(c2c, "count '{}': from 1 to 1000", c2c.attribute("count").value());
    LinkType link = preset_link("nvlink-c2c");
    link.name = fmt::format("c2c-{:g}MBps", bandwidth);
    std::erase(link.name, '+');  // from an exponent; not allowed in names
    link.bandwidth = {{bandwidth * 1e6}, fmt::format("bw of <c2c> in {}", file_)};
    return add_wire(gpu.vertex, gpu.socket, std::move(link), static_cast<int>(count), c2c);
  }

  static bool lists(const Gpu& gpu, std::string_view busid) {
    const auto children = gpu.node.children();
    return std::any_of(children.begin(), children.end(),
                       [&](const pugi::xml_node& lane) { return busid == lane.attribute("target").value(); });
  }

  Status add_lanes(const Gpu& gpu, int to, double count, LinkKind kind, const pugi::xml_node& node) {
    if (count > 1000) return fail(node, "{} NVLinks of one GPU: at most 1000", count);
    if (gpu.capability == nullptr || gpu.capability->lane.empty())
      return fail(node, "NVLink of a device whose NVLink bandwidth is unknown; describe the node in YAML");
    LinkType lane = preset_link(gpu.capability->lane);
    lane.bandwidth.value = lane.bandwidth.value * gpu.capability->lane_share;
    if (lane.kind != LinkKind::kXgmi) lane.kind = kind;
    lane.name = fmt::format("{}-lane-{}", gpu.capability->id, weft::name(lane.kind));
    return add_wire(gpu.vertex, to, std::move(lane), static_cast<int>(count), node);
  }

  std::string_view text_, file_, wanted_device_;
  NodeParts parts_;
  std::vector<Gpu> gpus_;
  std::set<std::string> ports_seen_;
  int socket_ = 0;  // the socket whose tree is being read
  int switches_ = 0, nics_ = 0;
};

}  // namespace

Result<NodeType> parse_nccl_topology(std::string_view text, std::string_view name, std::string_view device) {
  return Importer(text, name, device).run();
}

}  // namespace weft
