// Import of what `nvidia-smi topo -m` prints: a matrix of GPUs and NICs, how each pair is connected.
//
// The matrix has relations, no bandwidths and no names of GPUs. The device is named by the user; the bandwidth of its
// NVLinks, its PCIe link and its NICs are those of the preset nodes that have it.
#include <algorithm>
#include <charconv>
#include <map>
#include <numeric>
#include <optional>

#include "cluster/cluster.h"
#include "cluster/library.h"

namespace weft {
namespace {

constexpr std::size_t kMostColumns = 128, kMostLines = 4096;

// How a pair is connected, the nearest first; NVLinks hide the PCIe relation.
enum class Near : std::uint8_t { Self, Nvlink, OneSwitch, Switches, HostBridge, NumaNode, Sockets };

struct Cell {
  Near near{};
  int nvlinks = 0;
};

std::optional<Cell> cell_of(std::string_view text) {
  constexpr std::pair<std::string_view, Near> kWords[] = {
      {"X", Near::Self},        {"PIX", Near::OneSwitch}, {"PXB", Near::Switches}, {"PHB", Near::HostBridge},
      {"NODE", Near::NumaNode}, {"SYS", Near::Sockets},   {"SOC", Near::Sockets}};  // SOC: drivers before 2017
  for (const auto& [word, near] : kWords)
    if (text == word) return Cell{near};
  if (!text.starts_with("NV")) return {};
  int count = 0;
  const auto [rest, status] = std::from_chars(text.data() + 2, text.data() + text.size(), count);
  if (status != std::errc() || rest != text.data() + text.size() || count < 1 || count > 1000) return {};
  return Cell{Near::Nvlink, count};
}

// A line's words; terminals underline the header by escape sequences.
std::vector<std::string> words_of(std::string_view line) {
  std::vector<std::string> words;
  std::string word;
  const auto end_word = [&] {
    if (!word.empty()) words.push_back(std::exchange(word, {}));
  };
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '\033') {
      while (i < line.size() && line[i] != 'm') ++i;
    } else if (line[i] == ' ' || line[i] == '\t' || line[i] == '\r') {
      end_word();
    } else {
      word += line[i];
    }
  }
  end_word();
  return words;
}

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    lines.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

bool is_gpu(std::string_view name) {
  return name.starts_with("GPU") && name.size() > 3 &&
         name.find_first_not_of("0123456789", 3) == std::string_view::npos;
}

// What preset nodes with a device have at it.
struct Surroundings {
  std::optional<LinkType> lane, pcie, port;
  int lanes = 0;  // NVLinks of a device; 0: unknown
};

// The number of lanes that a link of the presets stands for: 18 of nvlink4-x18.
int lanes_of(const LinkType& link) {
  const std::size_t at = link.name.rfind("-x");
  int count = 1;
  if (at != std::string::npos) std::from_chars(link.name.data() + at + 2, link.name.data() + link.name.size(), count);
  return std::max(count, 1);
}

Surroundings surroundings_of(std::string_view device) {
  Surroundings found;
  for (const auto& [name, node] : preset_library().nodes) {
    const NodeParts& parts = node->parts();
    for (int vertex : node->device_vertices()) {
      if (parts.specs[static_cast<std::size_t>(parts.vertices[static_cast<std::size_t>(vertex)].spec)]->name != device)
        continue;
      int lanes = 0;
      for (const Wire& wire : parts.wires) {
        const LinkType& link = parts.link_types[static_cast<std::size_t>(wire.type)];
        if (wire.from == NodeParts::kNetwork || wire.to == NodeParts::kNetwork) {
          if (!found.port) found.port = link;
        } else if (wire.from != vertex && wire.to != vertex) {
          continue;
        } else if (link.kind == LinkKind::kPcie) {
          if (!found.pcie) found.pcie = link;
        } else if (link.kind == LinkKind::kNvlink || link.kind == LinkKind::kNvswitch) {
          const int each = lanes_of(link);
          lanes += each * wire.count;
          if (!found.lane) {
            found.lane = link;
            found.lane->bandwidth.value = link.bandwidth.value * (1.0 / each);
          }
        }
      }
      found.lanes = std::max(found.lanes, lanes);
      break;
    }
  }
  return found;
}

class Matrix {
 public:
  Matrix(std::string_view text, std::string_view file, std::string_view device)
      : text_(text), file_(file), device_(device) {}

  Result<NodeType> run() {
    WEFT_TRY_OK(read());
    if (device_.empty())
      return error("which GPUs these are does not stand in the matrix; name them, as in {}:1,device=h100-sxm", file_)
          .at(file_);
    Result<std::shared_ptr<const DeviceSpec>> spec = find_device({}, device_);
    if (!spec.ok()) return spec.error().at(file_);
    parts_.specs = {*spec};
    around_ = surroundings_of((*spec)->name);
    parts_.name = name_of_file(file_);
    parts_.title = parts_.name;
    parts_.source = "nvidia-smi topo -m, " + std::string(file_);
    WEFT_TRY_OK(connect_hosts());
    WEFT_TRY_OK(connect_gpus());
    Result<NodeType> type = NodeType::make(std::move(parts_));
    if (!type.ok()) return type.error().at(file_);
    return type;
  }

 private:
  struct Row {
    int line = 0;
    std::vector<Cell> cells;
    std::string affinity;  // its cores; empty: unknown
  };

  template <class... Args>
  Error fail(int line, fmt::format_string<Args...> format, Args&&... args) const {
    return error(format, std::forward<Args>(args)...).at(file_, line);
  }

  Status read() {
    const std::vector<std::string_view> lines = lines_of(text_);
    if (lines.size() > kMostLines)
      return error("{} lines: a matrix has at most {}", lines.size(), kMostLines).at(file_);
    std::size_t header = 0;
    std::vector<std::string> words;
    for (; header < lines.size(); ++header)
      if (words = words_of(lines[header]); !words.empty() && words[0] == "GPU0") break;
    if (header == lines.size())
      return error("no line that begins with GPU0; write the file with nvidia-smi topo -m > topo.txt").at(file_);
    if (words.size() > 1 && cell_of(words[1]))
      return fail(static_cast<int>(header) + 1, "the line above, with the names of the columns, is missing");
    for (const std::string& word : words) {
      if (word == "CPU" || word == "NUMA") break;  // affinities
      if (std::find(names_.begin(), names_.end(), word) != names_.end())
        return fail(static_cast<int>(header) + 1, "'{}': two columns", word.substr(0, 60));
      names_.push_back(word);
    }
    if (names_.size() > kMostColumns)
      return fail(static_cast<int>(header) + 1, "{} columns: at most {}", names_.size(), kMostColumns);
    std::size_t line = header + 1;
    for (const std::string& name : names_) {
      for (; line < lines.size() && words_of(lines[line]).empty(); ++line) {
      }
      const int number = static_cast<int>(line) + 1;
      if (line == lines.size()) return fail(number - 1, "the row of {} is missing", name.substr(0, 60));
      words = words_of(lines[line++]);
      if (words[0] != name)
        return fail(number, "'{}': the row of {} is missing", words[0].substr(0, 60), name.substr(0, 60));
      WEFT_TRY_OK(read_row(words, number));
    }
    // What follows must be the legend, not more of the matrix.
    for (; line < lines.size(); ++line)
      if (words = words_of(lines[line]); !words.empty() && is_gpu(words[0]))
        return fail(static_cast<int>(line) + 1, "{}: a row without a column", words[0].substr(0, 60));
    return check_symmetry();
  }

  Status read_row(const std::vector<std::string>& words, int line) {
    Row row{line, {}, {}};
    if (words.size() <= names_.size()) return fail(line, "{} entries for {} columns", words.size() - 1, names_.size());
    for (std::size_t i = 0; i < names_.size(); ++i) {
      const std::optional<Cell> cell = cell_of(words[i + 1]);
      if (!cell) return fail(line, "'{}': none of X, NV#, PIX, PXB, PHB, NODE and SYS", words[i + 1].substr(0, 60));
      const bool self = i == rows_.size();
      if ((cell->near == Near::Self) != self)
        return fail(line, "'{}' at {}: X stands where a device meets itself, and nowhere else", words[i + 1],
                    names_[i].substr(0, 60));
      if (cell->near == Near::Nvlink && !(is_gpu(names_[i]) && is_gpu(words[0])))
        return fail(line, "'{}' at {}: NVLinks connect GPUs", words[i + 1], names_[i].substr(0, 60));
      row.cells.push_back(*cell);
    }
    if (words.size() > names_.size() + 1 && words[names_.size() + 1] != "N/A") row.affinity = words[names_.size() + 1];
    rows_.push_back(std::move(row));
    return Ok{};
  }

  Status check_symmetry() const {
    for (std::size_t a = 0; a < rows_.size(); ++a)
      for (std::size_t b = 0; b < a; ++b) {
        const Cell &here = rows_[a].cells[b], &there = rows_[b].cells[a];
        if (here.near != there.near || here.nvlinks != there.nvlinks)
          return fail(rows_[a].line, "{} and {}: another entry than on line {}", names_[a].substr(0, 60),
                      names_[b].substr(0, 60), rows_[b].line);
      }
    return Ok{};
  }

  // Sets of rows that are joined by any of these relations; the smallest member names a set.
  template <class Joined>
  std::vector<std::size_t> sets(const Joined& joined) const {
    std::vector<std::size_t> set(rows_.size());
    std::iota(set.begin(), set.end(), std::size_t{0});
    for (std::size_t a = 0; a < rows_.size(); ++a)
      for (std::size_t b = 0; b < a; ++b)
        if (joined(a, b) && set[a] != set[b]) {
          const auto [low, high] = std::minmax(set[a], set[b]);
          std::replace(set.begin(), set.end(), high, low);
        }
    return set;
  }

  int add_vertex(std::string name, VertexKind kind, int spec = -1) {
    parts_.vertices.push_back({std::move(name), kind, spec});
    return static_cast<int>(parts_.vertices.size()) - 1;
  }

  void add_wire(int from, int to, const LinkType& link, int count = 1) {
    auto known = std::find_if(parts_.link_types.begin(), parts_.link_types.end(),
                              [&](const LinkType& other) { return other.name == link.name; });
    if (known == parts_.link_types.end()) known = parts_.link_types.insert(known, link);
    parts_.wires.push_back({from, to, static_cast<int>(known - parts_.link_types.begin()), count});
  }

  static LinkType preset_link(std::string_view name) {
    const auto found = preset_library().links.find(name);
    WEFT_CHECK(found != preset_library().links.end(), "no preset link {}", name);
    return found->second;
  }

  // Sockets, PCIe switches, GPUs and NICs.
  Status connect_hosts() {
    const auto within = [&](std::size_t a, std::size_t b, Near most) {
      const Near near = rows_[a].cells[b].near;
      return near >= Near::OneSwitch && near <= most;
    };
    // Behind NVLinks the cores of a GPU tell its socket; where they are unknown all that is unknown is one.
    const auto same_cores = [&](std::size_t a, std::size_t b) {
      return rows_[a].cells[b].near == Near::Nvlink && rows_[a].affinity == rows_[b].affinity;
    };
    const std::vector<std::size_t> socket =
        sets([&](std::size_t a, std::size_t b) { return within(a, b, Near::NumaNode) || same_cores(a, b); });
    const std::vector<std::size_t> tree =
        sets([&](std::size_t a, std::size_t b) { return within(a, b, Near::Switches); });
    const std::vector<std::size_t> leaf =
        sets([&](std::size_t a, std::size_t b) { return within(a, b, Near::OneSwitch); });
    const LinkType pcie = around_.pcie.value_or(preset_link("pcie4-x16"));
    const LinkType port = around_.port.value_or(preset_link("ib-hdr"));
    std::map<std::size_t, int> sockets, trees, leaves;
    for (std::size_t row = 0; row < rows_.size(); ++row)
      if (socket[row] == row) sockets[row] = add_vertex(fmt::format("socket{}", sockets.size()), VertexKind::kSocket);
    const auto is_set = [&](const std::vector<std::size_t>& of, std::size_t row) {
      return std::count(of.begin(), of.end(), of[row]) > 1;
    };
    int switches = 0;
    const auto switch_below = [&](int above) {
      const int made = add_vertex(fmt::format("pcie{}", switches++), VertexKind::kPcieSwitch);
      add_wire(made, above, pcie);
      return made;
    };
    int gpus = 0, nics = 0;
    for (std::size_t row = 0; row < rows_.size(); ++row) {
      int above = sockets.at(socket[row]);
      // One switch where all below it are on it, else a switch of switches.
      const bool nested = is_set(tree, row) && std::count(tree.begin(), tree.end(), tree[row]) !=
                                                   std::count(leaf.begin(), leaf.end(), leaf[row]);
      if (nested) {
        if (!trees.contains(tree[row])) trees[tree[row]] = switch_below(above);
        above = trees[tree[row]];
      }
      if (is_set(leaf, row)) {
        if (!leaves.contains(leaf[row])) leaves[leaf[row]] = switch_below(above);
        above = leaves[leaf[row]];
      }
      if (is_gpu(names_[row])) {
        vertices_.push_back(add_vertex(fmt::format("gpu{}", gpus++), VertexKind::kDevice, 0));
        add_wire(vertices_.back(), above, pcie);
      } else {
        vertices_.push_back(add_vertex(fmt::format("nic{}", nics++), VertexKind::kNic));
        add_wire(vertices_.back(), above, pcie);
        add_wire(vertices_.back(), NodeParts::kNetwork, port);
      }
    }
    std::vector<int> all;
    for (const auto& [first, vertex] : sockets) all.push_back(vertex);
    for (std::size_t a = 0; a < all.size(); ++a)
      for (std::size_t b = a + 1; b < all.size(); ++b) add_wire(all[a], all[b], preset_link("upi"));
    return Ok{};
  }

  // Through an NVSwitch if a GPU's lanes to all others together are more than it has; else from GPU to GPU.
  Status connect_gpus() {
    bool any = false, switched = false;
    for (std::size_t a = 0; a < rows_.size(); ++a) {
      int sum = 0;
      for (const Cell& cell : rows_[a].cells) sum += cell.nvlinks;
      any = any || sum > 0;
      switched = switched || (around_.lanes > 0 && sum > around_.lanes);
    }
    if (!any) return Ok{};
    if (!around_.lane)
      return fail(rows_[0].line, "NVLink of {}, whose NVLink bandwidth is unknown; describe the node in YAML", device_);
    LinkType lane = *around_.lane;
    lane.kind = switched ? LinkKind::kNvswitch : LinkKind::kNvlink;
    lane.name = fmt::format("{}-lane-{}", parts_.specs[0]->name, weft::name(lane.kind));
    if (switched) {
      const int nvswitch = add_vertex("nvswitch", VertexKind::kSwitch);
      for (std::size_t a = 0; a < rows_.size(); ++a) {
        int count = 0;
        for (std::size_t b = 0; b < rows_.size(); ++b) {
          if (b == a || !is_gpu(names_[b]) || !is_gpu(names_[a])) continue;
          const int here = rows_[a].cells[b].nvlinks;
          if (count > 0 && here != count)
            return fail(rows_[a].line, "{}: NV{} and NV{}, more lanes than {} has, and not alike as through a switch",
                        names_[a], count, here, device_);
          count = here;
        }
        if (count > around_.lanes) return fail(rows_[a].line, "NV{}: {} has {} NVLinks", count, device_, around_.lanes);
        if (count > 0) add_wire(vertices_[a], nvswitch, lane, count);
      }
      return Ok{};
    }
    for (std::size_t a = 0; a < rows_.size(); ++a)
      for (std::size_t b = a + 1; b < rows_.size(); ++b)
        if (const int count = rows_[a].cells[b].nvlinks; count > 0) add_wire(vertices_[a], vertices_[b], lane, count);
    return Ok{};
  }

  std::string_view text_, file_, device_;
  std::vector<std::string> names_;
  std::vector<Row> rows_;
  std::vector<int> vertices_;  // by row
  Surroundings around_;
  NodeParts parts_;
};

}  // namespace

Result<NodeType> parse_smi_topology(std::string_view text, std::string_view name, std::string_view device) {
  return Matrix(text, name, device).run();
}

}  // namespace weft
