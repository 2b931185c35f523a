#include "strategy/yaml.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/read_file.h"
#include "base/units.h"
#include "base/yaml_node.h"

namespace weft {
namespace {

constexpr std::int64_t kMostNumber = std::int64_t{1} << 24;

class Reader {
 public:
  Result<Strategy> strategy(const YamlNode& root) {
    static const std::string known[] = {"mesh", "schedule", "sequence_parallel", "context", "rules"};
    WEFT_TRY(const YamlMap fields, root.map("strategy", known));
    Strategy read;
    WEFT_TRY(const YamlNode mesh_node, fields.require("mesh"));
    WEFT_TRY(read.mesh, mesh(mesh_node));
    if (const YamlNode* node = fields.find("schedule")) {
      WEFT_TRY(read.schedule, schedule(*node));
    }
    if (const YamlNode* node = fields.find("sequence_parallel")) {
      WEFT_TRY(const YamlMap axes, map(*node, "sequence_parallel"));
      read.reduce_onto_line = {node->line()};
      for (const YamlMap::Entry& entry : axes.entries()) {
        WEFT_TRY_OK(check_name(entry.key_node, entry.key, "mesh axis"));
        WEFT_TRY(read.reduce_onto[entry.key], name(entry.value, "sequence_parallel"));
      }
    }
    if (const YamlNode* node = fields.find("context")) {
      WEFT_TRY(const std::string mode, node->text("context"));
      const std::optional<ContextMode> known_mode = context_mode_named(mode);
      if (!known_mode) return node->fail("context: write gather, a2a or ring");
      read.context = *known_mode;
      read.context_line = {node->line()};
    }
    if (const YamlNode* node = fields.find("rules")) {
      WEFT_TRY(const std::vector<YamlNode> rules, list(*node, "rules"));
      for (const YamlNode& item : rules) {
        WEFT_TRY(Rule one, rule(item));
        read.rules.push_back(std::move(one));
      }
    }
    return read;
  }

 private:
  // Aliases can make a short file expand to a huge one; the expanded size is bounded here.
  Status spend(const YamlNode& node, std::size_t items) {
    if (items > items_left_) return node.fail("more than {} entries in all", kMostItems);
    items_left_ -= items;
    return Ok{};
  }
  Result<std::vector<YamlNode>> list(const YamlNode& node, std::string_view what) {
    WEFT_TRY(std::vector<YamlNode> items, node.list(what));
    WEFT_TRY_OK(spend(node, items.size()));
    return items;
  }
  Result<YamlMap> map(const YamlNode& node, std::string_view what) {
    WEFT_TRY(YamlMap fields, node.map(what));
    WEFT_TRY_OK(spend(node, fields.entries().size()));
    return fields;
  }
  Result<YamlMap> map(const YamlNode& node, std::string_view what, std::span<const std::string> known) {
    WEFT_TRY(YamlMap fields, node.map(what, known));
    WEFT_TRY_OK(spend(node, 1 + fields.entries().size()));
    return fields;
  }
  static Status check_name(const YamlNode& node, const std::string& text, std::string_view what) {
    const bool printable = std::all_of(text.begin(), text.end(), [](char c) { return c > 0x20 && c < 0x7f; });
    if (text.empty() || text.size() > 512 || !printable)
      return node.fail("{}: a name of 1 to 512 printable characters without spaces", what);
    return Ok{};
  }
  static Result<std::string> name(const YamlNode& node, std::string_view what) {
    WEFT_TRY(std::string text, node.text(what));
    WEFT_TRY_OK(check_name(node, text, what));
    return text;
  }
  Result<std::vector<std::string>> names(const YamlNode& node, std::string_view what) {
    WEFT_TRY(const std::vector<YamlNode> items, list(node, what));
    std::vector<std::string> read;
    for (const YamlNode& item : items) {
      WEFT_TRY(std::string text, name(item, what));
      read.push_back(std::move(text));
    }
    return read;
  }
  // [0, 1, 4..7]
  Result<std::vector<std::int64_t>> devices(const YamlNode& node) {
    WEFT_TRY(const std::vector<YamlNode> items, list(node, "devices"));
    std::vector<std::int64_t> read;
    for (const YamlNode& item : items) {
      WEFT_TRY(const std::string text, item.text("devices"));
      const std::size_t dots = text.find("..");
      const Result<std::int64_t> first = parse_integer(text.substr(0, dots), "");
      const Result<std::int64_t> last = dots == std::string::npos ? first : parse_integer(text.substr(dots + 2), "");
      if (text.size() > 40 || !first.ok() || !last.ok() || *first < 0 || *last < *first || *last > kMostNumber)
        return item.fail("devices: write numbers and ranges, [0, 1, 4..7]");
      WEFT_TRY_OK(spend(item, static_cast<std::size_t>(*last - *first)));
      for (std::int64_t device = *first; device <= *last; ++device) read.push_back(device);
    }
    return read;
  }
  Result<std::vector<MeshAxis>> axes(const YamlNode& node, std::string_view what) {
    WEFT_TRY(const YamlMap fields, map(node, what));
    std::vector<MeshAxis> read;
    for (const YamlMap::Entry& entry : fields.entries()) {
      WEFT_TRY_OK(check_name(entry.key_node, entry.key, what));
      WEFT_TRY(const std::int64_t size, entry.value.integer(entry.key, 1, kMostNumber));
      read.push_back({entry.key, static_cast<int>(size)});
    }
    return read;
  }
  Result<MeshDeclaration> mesh(const YamlNode& node) {
    static const std::string known[] = {"axes", "order", "devices"};
    WEFT_TRY(const YamlMap fields, map(node, "mesh", known));
    MeshDeclaration read;
    read.line = {node.line()};
    WEFT_TRY(const YamlNode axes_node, fields.require("axes"));
    WEFT_TRY(read.axes, axes(axes_node, "axes"));
    if (const YamlNode* order = fields.find("order")) {
      WEFT_TRY(read.order, names(*order, "order"));
    }
    if (const YamlNode* list_node = fields.find("devices")) {
      WEFT_TRY(read.devices, devices(*list_node));
    }
    return read;
  }
  Result<Stage> stage(const YamlNode& node) {
    Stage read;
    read.line = {node.line()};
    if (node.is_list()) {
      WEFT_TRY(read.modules, names(node, "stage"));
      return read;
    }
    if (node.is_scalar()) {
      WEFT_TRY(read.layers, node.integer("layers of a stage", 0, kMostNumber));
      return read;
    }
    static const std::string known[] = {"layers", "modules", "mesh"};
    WEFT_TRY(const YamlMap fields, map(node, "stage", known));
    if (const YamlNode* layers = fields.find("layers")) {
      WEFT_TRY(read.layers, layers->integer("layers", 0, kMostNumber));
    }
    if (const YamlNode* modules = fields.find("modules")) {
      WEFT_TRY(read.modules, names(*modules, "modules"));
    }
    if (const YamlNode* own = fields.find("mesh")) {
      WEFT_TRY(read.mesh, mesh(*own));
    }
    return read;
  }
  Result<ScheduleConfig> schedule(const YamlNode& node) {
    static const std::string known[] = {"name", "micro_batches", "interleave", "stages", "routes"};
    WEFT_TRY(const YamlMap fields, map(node, "schedule", known));
    ScheduleConfig read;
    read.line = {node.line()};
    if (const YamlNode* text = fields.find("name")) {
      WEFT_TRY(read.name, name(*text, "schedule name"));
    }
    if (const YamlNode* count = fields.find("micro_batches")) {
      WEFT_TRY(read.micro_batches, count->integer("micro_batches", 1, kMostNumber));
    }
    if (const YamlNode* chunks = fields.find("interleave")) {
      WEFT_TRY(read.interleave, chunks->integer("interleave", 1, 1024));
    }
    if (const YamlNode* stages = fields.find("stages")) {
      WEFT_TRY_OK(add_stages(*stages, read));
    }
    if (const YamlNode* routes = fields.find("routes")) {
      for (const char* other : {"micro_batches", "stages"})
        if (const YamlNode* given = fields.find(other))
          return given->fail("{}: each route says its own, since there are routes; leave it out", other);
      read.micro_batches = 0;
      WEFT_TRY(const std::vector<YamlNode> items, list(*routes, "routes"));
      if (items.empty()) return routes->fail("routes: at least one");
      for (const YamlNode& item : items) WEFT_TRY_OK(add_route(item, read));
      if (read.micro_batches > kMostNumber)
        return routes->fail("routes: {} micro-batches are too many", read.micro_batches);
    }
    return read;
  }
  Status add_stages(const YamlNode& node, ScheduleConfig& into) {
    WEFT_TRY(const std::vector<YamlNode> items, list(node, "stages"));
    for (const YamlNode& item : items) {
      WEFT_TRY(Stage one, stage(item));
      into.stages.push_back(std::move(one));
    }
    return Ok{};
  }
  // {micro_batches: 5, stages: [{layers: 8, mesh: …}, …]}
  Status add_route(const YamlNode& node, ScheduleConfig& into) {
    static const std::string known[] = {"micro_batches", "stages"};
    WEFT_TRY(const YamlMap fields, map(node, "route", known));
    WEFT_TRY(const YamlNode count, fields.require("micro_batches"));
    WEFT_TRY(const YamlNode stages, fields.require("stages"));
    RouteConfig route;
    route.line = {node.line()};
    WEFT_TRY(route.micro_batches, count.integer("micro_batches", 1, kMostNumber));
    const std::size_t before = into.stages.size();
    WEFT_TRY_OK(add_stages(stages, into));
    route.stages = static_cast<std::int64_t>(into.stages.size() - before);
    if (route.stages == 0) return stages.fail("stages: a route has at least one");
    into.micro_batches += route.micro_batches;
    into.routes.push_back(route);
    return Ok{};
  }
  Result<Split> split(const YamlNode& node) {
    Split read;
    if (node.is_scalar()) {
      WEFT_TRY(read.axis, name(node, "operator axis"));
      if (read.axis == "none") read.axis.clear();
      return read;
    }
    static const std::string known[] = {"axis", "outer", "ratio"};
    WEFT_TRY(const YamlMap fields, map(node, "split", known));
    WEFT_TRY(const YamlNode axis, fields.require("axis"));
    WEFT_TRY(read.axis, name(axis, "axis"));
    if (read.axis == "none") return axis.fail("axis none: leave outer and ratio out");
    if (const YamlNode* outer = fields.find("outer")) {
      WEFT_TRY(read.outer, outer->integer("outer", 1, kMostNumber));
    }
    if (const YamlNode* shares = fields.find("ratio")) {
      WEFT_TRY(read.ratio, ratio(*shares));
    }
    return read;
  }
  Result<std::vector<std::int64_t>> ratio(const YamlNode& node) {
    WEFT_TRY(const std::vector<YamlNode> items, list(node, "ratio"));
    std::vector<std::int64_t> read;
    for (const YamlNode& item : items) {
      WEFT_TRY(const std::int64_t share, item.integer("share", 1, 1'000'000));
      read.push_back(share);
    }
    return read;
  }
  Result<InputSplit> input_split(const YamlNode& node) {
    const auto dimension = [](const YamlNode& of) { return of.integer("dimension", -1, 63); };
    InputSplit read;
    if (node.is_scalar()) {
      WEFT_TRY(const std::int64_t dim, dimension(node));
      read.dim = static_cast<int>(dim);
      return read;
    }
    static const std::string known[] = {"dim", "ratio"};
    WEFT_TRY(const YamlMap fields, map(node, "inputs", known));
    WEFT_TRY(const YamlNode dim_node, fields.require("dim"));
    WEFT_TRY(const std::int64_t dim, dimension(dim_node));
    read.dim = static_cast<int>(dim);
    if (const YamlNode* shares = fields.find("ratio")) {
      WEFT_TRY(read.ratio, ratio(*shares));
      if (dim < 0) return dim_node.fail("dim -1 leaves inputs whole: leave the ratio out");
    }
    return read;
  }
  Result<Storage> storage(const YamlNode& node) {
    static const std::string known[] = {"over", "offload", "ratio"};
    WEFT_TRY(const YamlMap fields, map(node, "memory", known));
    Storage read;
    if (const YamlNode* over = fields.find("over")) {
      WEFT_TRY(read.over, names(*over, "over"));
    }
    if (const YamlNode* offload = fields.find("offload")) {
      WEFT_TRY(const std::string where, offload->text("offload"));
      if (where != "cpu" && where != "none") return offload->fail("offload: write cpu or none");
      read.offload = where == "cpu";
    }
    if (const YamlNode* ratios = fields.find("ratio")) {
      WEFT_TRY(const YamlMap axes, map(*ratios, "ratio"));
      for (const YamlMap::Entry& entry : axes.entries()) {
        WEFT_TRY_OK(check_name(entry.key_node, entry.key, "mesh axis"));
        WEFT_TRY(read.ratio[entry.key], ratio(entry.value));
      }
    }
    return read;
  }
  Result<Rule> rule(const YamlNode& node) {
    static const std::string known[] = {"match", "route", "compute", "inputs", "memory", "recompute", "place"};
    WEFT_TRY(const YamlMap fields, map(node, "rule", known));
    Rule read;
    read.line = {node.line()};
    WEFT_TRY(const YamlNode match, fields.require("match"));
    WEFT_TRY(read.match, name(match, "match"));
    if (const YamlNode* route = fields.find("route")) {
      WEFT_TRY(read.route, route->integer("route", 0, kMostNumber));
    }
    if (const YamlNode* compute = fields.find("compute")) {
      WEFT_TRY(const YamlMap splits, map(*compute, "compute"));
      for (const YamlMap::Entry& entry : splits.entries()) {
        WEFT_TRY_OK(check_name(entry.key_node, entry.key, "mesh axis"));
        WEFT_TRY(read.compute[entry.key], split(entry.value));
      }
    }
    if (const YamlNode* inputs = fields.find("inputs")) {
      WEFT_TRY(const YamlMap dims, map(*inputs, "inputs"));
      for (const YamlMap::Entry& entry : dims.entries()) {
        WEFT_TRY_OK(check_name(entry.key_node, entry.key, "mesh axis"));
        WEFT_TRY(read.inputs[entry.key], input_split(entry.value));
      }
    }
    if (const YamlNode* memory = fields.find("memory")) {
      static const std::string kinds[] = {"weights", "gradients", "optimizer", "activations"};
      WEFT_TRY(const YamlMap stored, map(*memory, "memory", kinds));
      for (std::size_t kind = 0; kind < kStoredKinds; ++kind)
        if (const YamlNode* one = stored.find(kinds[kind])) {
          WEFT_TRY(read.memory[kind], storage(*one));
        }
    }
    if (const YamlNode* recompute = fields.find("recompute")) {
      WEFT_TRY(const std::string mode, recompute->text("recompute"));
      read.recompute = recompute_named(mode);
      if (!read.recompute) return recompute->fail("recompute: write none, selective, full or op");
    }
    if (const YamlNode* place = fields.find("place")) {
      static const std::string parts[] = {"degrees", "devices"};
      WEFT_TRY(const YamlMap placed, map(*place, "place", parts));
      OpPlacement placement;
      if (const YamlNode* degrees = placed.find("degrees")) {
        WEFT_TRY(placement.degrees, axes(*degrees, "degrees"));
      }
      WEFT_TRY(const YamlNode where, placed.require("devices"));
      WEFT_TRY(placement.devices, devices(where));
      read.place = std::move(placement);
    }
    return read;
  }

  static constexpr std::size_t kMostItems = std::size_t{1} << 22;
  std::size_t items_left_ = kMostItems;
};

// Plain where YAML reads it back as the same text, quoted otherwise.
std::string written(const std::string& text) {
  const auto letter = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; };
  const bool plain = !text.empty() && letter(text[0]) && text != "null" && text != "Null" && text != "NULL" &&
                     std::all_of(text.begin(), text.end(), [&](char c) {
                       return letter(c) || c == '_' || c == '.' || c == '-' || c == '*' || c == '@';
                     });
  return plain ? text : yaml_quoted(text);
}
std::string written(const std::vector<std::string>& names) {
  std::vector<std::string> items;
  for (const std::string& name : names) items.push_back(written(name));
  return fmt::format("[{}]", fmt::join(items, ", "));
}
std::string written_devices(const std::vector<std::int64_t>& devices) {
  std::vector<std::string> items;
  for (std::size_t i = 0; i < devices.size();) {
    std::size_t end = i + 1;
    while (end < devices.size() && devices[end] == devices[end - 1] + 1) ++end;
    if (end - i < 3) end = i + 1;
    items.push_back(end - i > 1 ? fmt::format("{}..{}", devices[i], devices[end - 1]) : fmt::format("{}", devices[i]));
    i = end;
  }
  return fmt::format("[{}]", fmt::join(items, ", "));
}
std::string written(const std::vector<MeshAxis>& axes) {
  std::vector<std::string> items;
  for (const MeshAxis& axis : axes) items.push_back(fmt::format("{}: {}", written(axis.name), axis.size));
  return fmt::format("{{{}}}", fmt::join(items, ", "));
}
std::string written(const MeshDeclaration& mesh) {
  std::string text = "{axes: " + written(mesh.axes);
  if (!mesh.order.empty()) text += ", order: " + written(mesh.order);
  if (!mesh.devices.empty()) text += ", devices: " + written_devices(mesh.devices);
  return text + "}";
}
std::string written(const Stage& stage) {
  if (stage.layers && stage.modules.empty() && !stage.mesh) return fmt::format("{}", *stage.layers);
  if (!stage.layers && !stage.mesh) return written(stage.modules);
  std::vector<std::string> items;
  if (stage.layers) items.push_back(fmt::format("layers: {}", *stage.layers));
  if (!stage.modules.empty()) items.push_back("modules: " + written(stage.modules));
  if (stage.mesh) items.push_back("mesh: " + written(*stage.mesh));
  return fmt::format("{{{}}}", fmt::join(items, ", "));
}
std::string written(const std::vector<std::int64_t>& ratio) { return fmt::format("[{}]", fmt::join(ratio, ", ")); }
std::string written(const Split& split) {
  if (split.axis.empty()) return "none";
  if (split.outer == 1 && split.ratio.empty()) return written(split.axis);
  std::string text = "{axis: " + written(split.axis);
  if (split.outer != 1) text += fmt::format(", outer: {}", split.outer);
  if (!split.ratio.empty()) text += ", ratio: " + written(split.ratio);
  return text + "}";
}
std::string written(const InputSplit& split) {
  if (split.ratio.empty()) return fmt::format("{}", split.dim);
  return fmt::format("{{dim: {}, ratio: {}}}", split.dim, written(split.ratio));
}
std::string written(const Storage& storage);
template <class Values>
std::string written_map(const Values& values) {
  std::vector<std::string> items;
  for (const auto& [key, value] : values) items.push_back(fmt::format("{}: {}", written(key), written(value)));
  return fmt::format("{{{}}}", fmt::join(items, ", "));
}
std::string written(const Storage& storage) {
  std::vector<std::string> items;
  if (storage.over) items.push_back("over: " + written(*storage.over));
  if (storage.offload) items.emplace_back(*storage.offload ? "offload: cpu" : "offload: none");
  if (!storage.ratio.empty()) items.push_back("ratio: " + written_map(storage.ratio));
  return fmt::format("{{{}}}", fmt::join(items, ", "));
}

}  // namespace

Result<Strategy> parse_strategy(std::string_view text, std::string_view file) {
  WEFT_TRY(const YamlNode root, YamlNode::load(text, file, {"a strategy file", "mesh: {axes: {dp: 8}}"}));
  return Reader().strategy(root);
}

Result<Strategy> read_strategy(const std::string& path) {
  constexpr FileKind kStrategy{"a strategy file (.yaml), or write degrees, tp=8,pp=2", YamlNode::kMostBytes};
  WEFT_TRY(const std::string text, read_file(path, kStrategy));
  return parse_strategy(text, path);
}

std::string to_yaml(const Strategy& strategy) {
  std::string text = "mesh:\n  axes: " + written(strategy.mesh.axes) + "\n";
  if (!strategy.mesh.order.empty()) text += "  order: " + written(strategy.mesh.order) + "\n";
  if (!strategy.mesh.devices.empty()) text += "  devices: " + written_devices(strategy.mesh.devices) + "\n";
  const ScheduleConfig& schedule = strategy.schedule;
  text += fmt::format("schedule:\n  name: {}\n", written(schedule.name));
  if (schedule.routes.empty()) text += fmt::format("  micro_batches: {}\n", schedule.micro_batches);
  if (schedule.interleave != 1) text += fmt::format("  interleave: {}\n", schedule.interleave);
  std::vector<std::string> stages;
  for (const Stage& stage : schedule.stages) stages.push_back(written(stage));
  auto next = stages.begin();
  if (!schedule.routes.empty()) text += "  routes:\n";
  for (const RouteConfig& route : schedule.routes) {
    text += fmt::format("    - {{micro_batches: {}, stages: [{}]}}\n", route.micro_batches,
                        fmt::join(next, next + route.stages, ", "));
    next += route.stages;
  }
  if (schedule.routes.empty() && !stages.empty()) text += fmt::format("  stages: [{}]\n", fmt::join(stages, ", "));
  if (!strategy.reduce_onto.empty()) text += "sequence_parallel: " + written_map(strategy.reduce_onto) + "\n";
  if (strategy.context != ContextMode::Gather) text += fmt::format("context: {}\n", name_of(strategy.context));
  if (!strategy.rules.empty()) text += "rules:\n";
  for (const Rule& rule : strategy.rules) {
    text += "  - match: " + written(rule.match) + "\n";
    if (rule.route) text += fmt::format("    route: {}\n", *rule.route);
    if (!rule.inputs.empty()) text += "    inputs: " + written_map(rule.inputs) + "\n";
    if (!rule.compute.empty()) text += "    compute: " + written_map(rule.compute) + "\n";
    std::map<std::string, Storage> memory;
    for (int kind = 0; kind < kStoredKinds; ++kind)
      if (const Storage& storage = rule.stored(static_cast<Stored>(kind)); storage != Storage{})
        memory[std::string(name_of(static_cast<Stored>(kind)))] = storage;
    if (!memory.empty()) text += "    memory: " + written_map(memory) + "\n";
    if (rule.recompute) text += fmt::format("    recompute: {}\n", name_of(*rule.recompute));
    if (rule.place)
      text += fmt::format("    place: {{degrees: {}, devices: {}}}\n", written(rule.place->degrees),
                          written_devices(rule.place->devices));
  }
  return text;
}

}  // namespace weft
