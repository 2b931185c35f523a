#include "report/picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "report/groups.h"
#include "report/table.h"

namespace weft {
namespace {

// Adjacent devices of a node that are drawn as one group.
struct Box {
  std::string label;                // "dp 1"
  std::vector<std::int64_t> ranks;  // −1: the device is unused
};
struct NodeRow {
  std::int64_t node = 0;
  std::string stage;  // of the whole node; empty if its devices have several
  std::vector<Box> boxes;
};

class Drawing {
 public:
  explicit Drawing(const Plan& plan) : plan_(plan) {
    for (DeviceId device : plan.ranks()) rank_of_.emplace(device, static_cast<std::int64_t>(rank_of_.size()));
    for (std::size_t rank = 0; rank < plan.resolved.ranks().size(); ++rank)
      for (DeviceId device : plan.resolved.ranks()[rank].mesh.devices()) pipeline_rank_.emplace(device, rank);
    const std::vector<GroupKind> kinds = group_kinds(plan);
    if (!kinds.empty() && kinds.front().degree != kPipelineAxis) innermost_ = kinds.front();
  }

  std::string draw() {
    constexpr std::int64_t kMostNodes = 4, kShownFirst = 3;
    const std::int64_t nodes = plan_.cluster().node_count();
    std::vector<NodeRow> rows;
    for (std::int64_t node = 0; node < nodes; ++node)
      if (nodes <= kMostNodes || node < kShownFirst || node + 1 == nodes) rows.push_back(row_of(node));
    const bool boxes = boxes_fit(rows);
    std::string text = boxes ? drawn(rows) : listed(rows);
    if (!innermost_.degree.empty())
      text += fmt::format("  {} one {} group; numbers are ranks\n", boxes ? "a box is" : "between bars is",
                          innermost_.degree);
    return text;
  }

 private:
  bool pipelined() const { return plan_.resolved.ranks().size() > 1; }

  // "stage 0"; with several chunks, the stages of the rank are listed elsewhere.
  std::string stage_of(DeviceId device) const {
    const auto found = pipeline_rank_.find(device);
    if (found == pipeline_rank_.end()) return "idle";
    if (!pipelined()) return "";
    return fmt::format("{} {}", plan_.resolved.schedule.chunks > 1 ? "pp rank" : "stage", found->second);
  }
  std::string coordinates(DeviceId device) const {
    const auto found = pipeline_rank_.find(device);
    if (found == pipeline_rank_.end()) return "";
    const Mesh& mesh = plan_.resolved.ranks()[found->second].mesh;
    const int position = mesh.position_of(device);
    std::vector<std::string> parts;
    for (int axis = 0; axis < static_cast<int>(mesh.axes().size()); ++axis) {
      const MeshAxis& described = mesh.axes()[static_cast<std::size_t>(axis)];
      const bool inside =
          std::find(innermost_.over.begin(), innermost_.over.end(), described.name) != innermost_.over.end();
      if (described.size > 1 && !inside)
        parts.push_back(fmt::format("{} {}", described.name, mesh.coordinate(position, axis)));
    }
    return fmt::format("{}", fmt::join(parts, " "));
  }

  NodeRow row_of(std::int64_t node) const {
    NodeRow row{node, "", {}};
    const IdRange<DeviceId> devices = plan_.cluster().devices_of(NodeId(static_cast<std::size_t>(node)));
    row.stage = stage_of(*devices.begin());
    bool one_stage = true;
    for (DeviceId device : devices) one_stage = one_stage && stage_of(device) == row.stage;
    if (!one_stage) row.stage.clear();
    for (DeviceId device : devices) {
      std::string label = coordinates(device);
      if (!one_stage) label = stage_of(device) + (label.empty() ? "" : " ") + label;
      const auto rank = rank_of_.find(device);
      if (row.boxes.empty() || row.boxes.back().label != label) row.boxes.push_back({label, {}});
      row.boxes.back().ranks.push_back(rank == rank_of_.end() ? -1 : rank->second);
    }
    return row;
  }

  std::size_t cell() const { return fmt::format("{}", rank_of_.size()).size() + 3; }
  std::size_t width_of(const Box& box) const { return std::max(cell() * box.ranks.size() + 1, columns(box.label) + 2); }
  std::size_t width_of(const NodeRow& row) const {
    std::size_t width = 1;
    for (const Box& box : row.boxes) width += width_of(box) + 1;
    return width;
  }
  bool boxes_fit(const std::vector<NodeRow>& rows) const {
    return std::all_of(rows.begin(), rows.end(),
                       [&](const NodeRow& row) { return width_of(row) + 26 <= kPageColumns; });
  }

  std::string drawn(const std::vector<NodeRow>& rows) const {
    std::string text;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const NodeRow& row = rows[i];
      const auto border = [&](const char* left, const char* middle, const char* right) {
        std::string line;
        for (std::size_t b = 0; b < row.boxes.size(); ++b)
          line += std::string(b == 0 ? left : middle) + repeated("─", width_of(row.boxes[b]));
        return line + right;
      };
      std::string numbers = "│", labels = "│";
      bool labelled = false;
      for (const Box& box : row.boxes) {
        std::string line = " ";
        for (std::int64_t rank : box.ranks) line += padded(rank < 0 ? " -" : fmt::format(" {}", rank), cell());
        numbers += padded(line, width_of(box)) + "│";
        labels += padded(" " + box.label, width_of(box)) + "│";
        labelled = labelled || !box.label.empty();
      }
      const std::string name = fmt::format("  node {:<5}", row.node), blank(columns(name), ' ');
      if (i > 0 && row.node != rows[i - 1].node + 1) text += blank + "  ⋮\n";
      text += blank + border("┌", "┬", "┐") + "\n";
      text += name + numbers + (row.stage.empty() ? "" : "  " + row.stage) + "\n";
      if (labelled) text += blank + labels + "\n";
      text += blank + border("└", "┴", "┘") + "\n";
    }
    return text;
  }

  // One line per box if nodes are too wide to be drawn.
  std::string listed(const std::vector<NodeRow>& rows) const {
    Table table{{{}, {}, {}}};
    for (std::size_t i = 0; i < rows.size(); ++i) {
      if (i > 0 && rows[i].node != rows[i - 1].node + 1) table.add({"⋮", "", ""});
      std::vector<std::string> boxes;
      for (const Box& box : rows[i].boxes)
        boxes.push_back(fmt::format("{}{}{}", ranges(box.ranks), box.label.empty() ? "" : " ", box.label));
      std::string cellular = wrapped(boxes, " │ ", "", 90);
      while (cellular.ends_with('\n')) cellular.pop_back();
      table.add({fmt::format("node {}", rows[i].node), cellular, rows[i].stage});
    }
    return table.print();
  }

  const Plan& plan_;
  std::map<DeviceId, std::int64_t> rank_of_;
  std::map<DeviceId, std::size_t> pipeline_rank_;
  GroupKind innermost_;
};

}  // namespace

std::string draw_ranks(const Plan& plan) { return Drawing(plan).draw(); }

}  // namespace weft
