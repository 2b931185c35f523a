#include "report/tree.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/units.h"
#include "report/table.h"

namespace weft {
namespace {

struct Node {
  std::string name;
  std::vector<std::string> settings = {};
  std::vector<Node> children = {};
};

Node& child(Node& node, std::string_view name) {
  const auto found =
      std::find_if(node.children.begin(), node.children.end(), [&](const Node& each) { return each.name == name; });
  if (found != node.children.end()) return *found;
  return node.children.emplace_back(Node{std::string(name)});
}

// " as 3:2:1"; equal shares of many devices counted, " as 16×40:48×8".
std::string as(const std::vector<std::int64_t>& ratio) {
  if (ratio.empty()) return "";
  constexpr std::size_t kFew = 8;
  std::vector<std::string> words;
  for (std::size_t from = 0; from < ratio.size();) {
    std::size_t to = from + 1;
    while (ratio.size() > kFew && to < ratio.size() && ratio[to] == ratio[from]) ++to;
    words.push_back(to - from > 1 ? fmt::format("{}×{}", to - from, ratio[from]) : fmt::format("{}", ratio[from]));
    from = to;
  }
  return fmt::format(" as {}", fmt::join(words, ":"));
}

std::string describe(const Split& split, const std::string& mesh_axis) {
  if (split.axis.empty()) return fmt::format("not split by {}", mesh_axis);
  std::string text = fmt::format("{} over {}", split.axis, mesh_axis);
  if (split.outer > 1) text += fmt::format(" in each of {} blocks", split.outer);
  return text + as(split.ratio);
}

std::vector<std::string> describe(const Rule& rule) {
  std::vector<std::string> settings;
  for (const auto& [axis, split] : rule.inputs)
    settings.push_back(split.dim < 0 ? fmt::format("inputs whole over {}", axis)
                       : split.dim == 0
                           ? fmt::format("samples over {}{}", axis, as(split.ratio))
                           : fmt::format("dimension {} of inputs over {}{}", split.dim, axis, as(split.ratio)));
  for (const auto& [axis, split] : rule.compute) settings.push_back(describe(split, axis));
  for (int kind = 0; kind < kStoredKinds; ++kind) {
    const Storage& storage = rule.stored(static_cast<Stored>(kind));
    const std::string_view name = name_of(static_cast<Stored>(kind));
    if (storage.over) settings.push_back(fmt::format("{} spread over {}", name, fmt::join(*storage.over, ", ")));
    for (const auto& [axis, ratio] : storage.ratio)
      settings.push_back(fmt::format("{} over {}{}", name, axis, as(ratio)));
    if (storage.offload) settings.push_back(fmt::format("{} on the {}", name, *storage.offload ? "host" : "device"));
  }
  if (rule.recompute)
    settings.push_back(fmt::format("recompute {}{}", name_of(*rule.recompute),
                                   rule.route ? fmt::format(" on route {}", *rule.route) : ""));
  if (rule.place) {
    std::vector<std::string> degrees;
    for (const MeshAxis& degree : rule.place->degrees)
      degrees.push_back(fmt::format("{}/{}", degree.name, degree.size));
    settings.push_back(fmt::format("{} on devices {}", fmt::join(degrees, " "), short_list(rule.place->devices)));
  }
  return settings;
}

void add_lines(const Node& node, const std::string& before, const std::string& below, Table& table) {
  table.add({before + node.name, fmt::format("{}", fmt::join(node.settings, " · "))});
  for (std::size_t i = 0; i < node.children.size(); ++i) {
    const bool last = i + 1 == node.children.size();
    add_lines(node.children[i], below + (last ? "└─ " : "├─ "), below + (last ? "   " : "│  "), table);
  }
}

}  // namespace

std::string draw_tree(const Strategy& strategy) {
  std::vector<std::string> axes;
  for (const MeshAxis& axis : strategy.mesh.axes) axes.push_back(fmt::format("{}={}", axis.name, axis.size));
  std::string text =
      fmt::format("mesh       {}", axes.empty() ? "one device" : fmt::format("{}", fmt::join(axes, " · ")));
  std::vector<std::string> order = strategy.mesh.order;
  if (order.empty())
    for (auto axis = strategy.mesh.axes.rbegin(); axis != strategy.mesh.axes.rend(); ++axis)
      order.push_back(axis->name);
  if (order.size() > 1) text += fmt::format("; ranks innermost first: {}", fmt::join(order, ", "));
  if (!strategy.mesh.devices.empty()) text += fmt::format("; devices {}", short_list(strategy.mesh.devices));
  const ScheduleConfig& schedule = strategy.schedule;
  text += fmt::format("\nschedule   {}, {} micro-batch{}", schedule.name, grouped(schedule.micro_batches),
                      schedule.micro_batches == 1 ? "" : "es");
  if (schedule.interleave > 1) text += fmt::format(", {} model chunks per pipeline rank", schedule.interleave);
  std::vector<std::string> stages;
  for (const Stage& stage : schedule.stages) {
    std::string one =
        stage.layers ? fmt::format("{} layers", *stage.layers) : fmt::format("{}", fmt::join(stage.modules, " "));
    if (stage.mesh) one += " on a mesh of its own";
    stages.push_back(std::move(one));
  }
  if (!stages.empty() && schedule.routes.empty()) text += fmt::format("; stages {}", fmt::join(stages, " | "));
  auto next = stages.begin();
  for (std::size_t route = 0; route < schedule.routes.size(); ++route) {
    const auto& [count, micro_batches, line] = schedule.routes[route];
    text += fmt::format("\n  route {}  {} micro-batch{}; stages {}", route, grouped(micro_batches),
                        micro_batches == 1 ? "" : "es", fmt::join(next, next + count, " | "));
    next += count;
  }
  text += "\n";
  for (const auto& [axis, onto] : strategy.reduce_onto)
    text += fmt::format("sums       over {} are scattered along {} (sequence parallelism)\n", axis, onto);
  if (strategy.context != ContextMode::Gather) text += fmt::format("context    {}\n", name_of(strategy.context));
  Node root{"**"};
  for (const Rule& rule : strategy.rules) {
    Node* node = &root;
    if (rule.match != "**")
      for (std::string_view part : components(rule.match)) node = &child(*node, part);
    for (std::string& setting : describe(rule)) node->settings.push_back(std::move(setting));
  }
  Table table{{{}, {.most = 76}}};
  add_lines(root, "", "", table);
  return text + table.print("");
}

std::string summarise_rules(const Strategy& strategy) {
  struct Run {
    std::string first, last, settings;
    std::size_t count = 0;
  };
  std::vector<Run> runs;
  for (const Rule& rule : strategy.rules) {
    std::string settings = fmt::format("{}", fmt::join(describe(rule), " · "));
    if (runs.empty() || runs.back().settings != settings) runs.push_back({rule.match, {}, std::move(settings), 0});
    runs.back().last = rule.match;
    ++runs.back().count;
  }
  Table table{{{}, {.most = 76}}};
  for (const Run& run : runs)
    table.add({run.count == 1 ? run.first : fmt::format("{} … {} ({})", run.first, run.last, run.count), run.settings});
  return table.print();
}

}  // namespace weft
