#include "cost/tuning.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <variant>

#include "base/embedded.h"
#include "base/suggest.h"
#include "base/yaml_node.h"

namespace weft {

std::span<const EmbeddedFile> cost_presets();  // written by cmake/embed.cmake

namespace {

// One record per constant: its name in the file, its member, and the bounds that keep a time finite and positive.
struct Field {
  std::string_view name;
  std::variant<Figure<double> DeviceTuning::*, Figure<Seconds> DeviceTuning::*> member;
  double least = 0.001, most = 1;
};

const std::vector<Field>& device_fields() {
  using D = DeviceTuning;
  static const std::vector<Field> fields = {
      {"load_clock", &D::load_clock},
      {"load_delay", &D::load_delay},
      {"grouped", &D::grouped},
      {"grouped_start", &D::grouped_start},
      {"blockwise", &D::blockwise},
      {"convolution_thin", &D::convolution_thin},
      {"winograd", &D::winograd, 0.001, 2},
      {"attention_forward", &D::attention_forward},
      {"attention_backward", &D::attention_backward},
      {"attention_narrow", &D::attention_narrow},
      {"attention_flash1", &D::attention_flash1},
      {"attention_flash2", &D::attention_flash2},
      {"attention_ramp_forward", &D::attention_ramp_forward, 0, 65536},
      {"attention_ramp_backward", &D::attention_ramp_backward, 0, 65536},
      {"attention_tail", &D::attention_tail, 0, 2},
      {"accumulating", &D::accumulating},
      {"stream", &D::stream},
      {"rows", &D::rows},
      {"reduction", &D::reduction},
      {"gather", &D::gather},
      {"scatter", &D::scatter},
      {"windows", &D::windows},
      {"optimizer", &D::optimizer},
      {"kernel", &D::kernel},
      {"collective", &D::collective},
      {"collective_fill", &D::collective_fill, 0, 1},
      {"nvls", &D::nvls, 0, 1},
      {"compute_per_sm", &D::compute_per_sm, 0, 4},
      {"memory_weight", &D::memory_weight, 0, 4},
      {"communication_weight", &D::communication_weight, 0, 4},
      {"wave_loss", &D::wave_loss, 0, 0.9},
      {"wave_weight", &D::wave_weight, 0, 1},
  };
  return fields;
}

// Constants that each arithmetic has of its own.
struct ProductField {
  std::string_view name;
  Figure<double> ProductTuning::*member;
  double least = 0.001, most = 1;
};
constexpr std::array<ProductField, 7> kProductFields = {{{"sustained", &ProductTuning::sustained},
                                                         {"tile_overhead", &ProductTuning::tile_overhead, 0, 4096},
                                                         {"wave_quantisation", &ProductTuning::wave_quantisation, 0},
                                                         {"misaligned", &ProductTuning::misaligned},
                                                         {"half_aligned", &ProductTuning::half_aligned},
                                                         {"turned", &ProductTuning::turned},
                                                         {"convolution", &ProductTuning::convolution, 0.001, 2}}};

constexpr std::array<std::string_view, kPasses> kPassNames = {
    "activation",
    "activation_backward",
    "broadcast",
    "convert",
    "dropout",
    "plain_rotary",
    "turn",
    "transform",
    "transform_windows",
    "glu",
    "glu_backward",
    "column_sums",
    "sums",
    "layer_norm",
    "layer_norm_backward",
    "rms_norm",
    "rms_norm_backward",
    "plain_norm",
    "plain_norm_backward",
    "softmax",
    "softmax_backward",
    "cross_entropy",
    "cross_entropy_backward",
    "plain_cross_entropy",
    "plain_cross_entropy_backward",
    "batch_norm",
    "batch_norm_backward",
    "batch_norm_first",
    "batch_norm_first_backward",
    "pool",
    "pool_backward",
    "pool_first",
    "pool_first_backward",
    "gather_rows",
    "scatter_rows",
    "optimizer_step",
    "plain_optimizer_step",
    "lstm_gates",
    "plain_lstm_gates",
};

constexpr std::array kKinds = {LinkKind::kNvlink, LinkKind::kNvswitch, LinkKind::kXgmi,
                               LinkKind::kC2c,    LinkKind::kMemory,   LinkKind::kPcie,
                               LinkKind::kSocket, LinkKind::kNic,      LinkKind::kFabric};
static_assert(kKinds.size() == kLinkKinds);
constexpr std::array kProtocolList = {Protocol::LL, Protocol::LL128, Protocol::Simple};

class Reader {
 public:
  explicit Reader(Tuning& into) : into_(into) {}

  Status run(const YamlNode& root) {
    static const std::string sections[] = {"sources", "devices", "links", "protocols", "communication", "stacks"};
    WEFT_TRY(const YamlMap file, root.map("cost file", sections));
    if (const YamlNode* node = file.find("sources")) {
      WEFT_TRY(const YamlMap sources, node->map("sources"));
      for (const YamlMap::Entry& entry : sources.entries()) {
        WEFT_TRY(citations_[entry.key], entry.value.text("source"));
      }
    }
    if (const YamlNode* node = file.find("devices")) {
      WEFT_TRY(const YamlMap devices, node->map("devices"));
      for (const YamlMap::Entry& entry : devices.entries()) WEFT_TRY_OK(device(entry));
    }
    if (const YamlNode* node = file.find("links")) WEFT_TRY_OK(links(*node));
    if (const YamlNode* node = file.find("protocols")) WEFT_TRY_OK(protocols(*node));
    if (const YamlNode* node = file.find("communication")) WEFT_TRY_OK(communication(*node));
    return Ok{};
  }

 private:
  DeviceTuning* find(std::string_view name) {
    for (DeviceTuning& tuning : into_.devices)
      if (tuning.name == name) return &tuning;
    return nullptr;
  }

  Status device(const YamlMap::Entry& entry) {
    std::vector<std::string> known = {"like", "tiles", "passes"};
    for (const ProductField& field : kProductFields) known.emplace_back(field.name);
    for (const Field& field : device_fields()) known.emplace_back(field.name);
    WEFT_TRY(const YamlMap fields, entry.value.map(fmt::format("device '{}'", entry.key), known));
    DeviceTuning tuning;
    const DeviceTuning* base = find(entry.key);
    if (const YamlNode* like = fields.find("like")) {
      WEFT_TRY(const std::string name, like->text("like"));
      base = find(name);
      std::vector<std::string> names;
      for (const DeviceTuning& above : into_.devices) names.push_back(above.name);
      if (!base) return like->fail("like '{}', which is not above it{}", name, did_you_mean(name, names));
    }
    if (!base) base = find("default");
    if (base) tuning = *base;
    tuning.name = entry.key;
    for (const Field& field : device_fields()) {
      const YamlNode* node = fields.find(field.name);
      if (!node && base) continue;
      if (!node) return entry.key_node.fail("device '{}': {} missing", entry.key, field.name);
      WEFT_TRY_OK(
          std::visit([&](auto member) { return figure(*node, field.name, field.least, field.most, tuning.*member); },
                     field.member));
    }
    for (const ProductField& field : kProductFields)
      if (const YamlNode* node = fields.find(field.name))
        WEFT_TRY_OK(by_arithmetic(*node, field.name, tuning, [&](const YamlNode& value, ProductTuning& into) {
          return figure(value, field.name, field.least, field.most, into.*field.member);
        }));
    if (const YamlNode* node = fields.find("tiles"))
      WEFT_TRY_OK(by_arithmetic(*node, "tiles", tuning,
                                [&](const YamlNode& value, ProductTuning& into) { return tiles(value, into); }));
    if (const YamlNode* node = fields.find("passes")) WEFT_TRY_OK(passes(*node, tuning));
    if (!base)
      for (const ProductTuning& each : tuning.products)
        if (each.tiles.value.empty() ||
            std::any_of(kProductFields.begin(), kProductFields.end(),
                        [&](const auto& field) { return (each.*field.member).source.empty(); }))
          return entry.key_node.fail("device '{}': tiles or another constant of products missing", entry.key);
    if (DeviceTuning* known_before = find(entry.key))
      *known_before = std::move(tuning);
    else
      into_.devices.push_back(std::move(tuning));
    return Ok{};
  }

  // One value for every arithmetic, or a map from its name.
  template <class ReadOne>
  Status by_arithmetic(const YamlNode& node, std::string_view what, DeviceTuning& tuning, const ReadOne& read_one) {
    if (!node.is_map()) {
      for (ProductTuning& product : tuning.products) WEFT_TRY_OK(read_one(node, product));
      return Ok{};
    }
    std::vector<std::string> names;
    for (Arithmetic arithmetic : kArithmetics) names.emplace_back(name(arithmetic));
    WEFT_TRY(const YamlMap map, node.map(what, names));
    for (Arithmetic arithmetic : kArithmetics)
      if (const YamlNode* value = map.find(name(arithmetic)))
        WEFT_TRY_OK(read_one(*value, tuning.products[static_cast<std::size_t>(arithmetic)]));
    return Ok{};
  }

  // {name: [{share: 0.8, elements: 5e11, units: 2e9, start: 3us, least: 40us}, source], ...}
  Status passes(const YamlNode& node, DeviceTuning& tuning) {
    std::vector<std::string> names(kPassNames.begin(), kPassNames.end());
    WEFT_TRY(const YamlMap map, node.map("passes", names));
    static const std::string known[] = {"share", "elements", "units", "start", "least"};
    for (const YamlMap::Entry& entry : map.entries()) {
      const auto pass = std::find(kPassNames.begin(), kPassNames.end(), entry.key) - kPassNames.begin();
      WEFT_TRY(const std::vector<YamlNode> pair, entry.value.list(entry.key));
      if (pair.size() != 2) return entry.value.fail("{}: write [{{share: ..., ...}}, source]", entry.key);
      WEFT_TRY(const YamlMap fields, pair[0].map(entry.key, known));
      Figure<PassTuning>& into = tuning.passes[static_cast<std::size_t>(pass)];
      into.value = {};
      WEFT_TRY(const YamlNode share, fields.require("share"));
      WEFT_TRY_OK(read(share, "share", 0.0001, 1, into.value.share));
      if (const YamlNode* value = fields.find("elements"))
        WEFT_TRY_OK(read(*value, "elements", 1e3, 1e18, into.value.elements));
      if (const YamlNode* value = fields.find("units")) WEFT_TRY_OK(read(*value, "units", 1, 1e18, into.value.units));
      if (const YamlNode* value = fields.find("start")) WEFT_TRY_OK(read(*value, "start", 0, 1, into.value.start));
      if (const YamlNode* value = fields.find("least")) WEFT_TRY_OK(read(*value, "least", 0, 1, into.value.least));
      WEFT_TRY_OK(source(pair[1], into.source));
    }
    return Ok{};
  }

  // [[[m, n, efficiency], ...], source]
  Status tiles(const YamlNode& node, ProductTuning& tuning) {
    WEFT_TRY(const std::vector<YamlNode> pair, node.list("tiles"));
    if (pair.size() != 2) return node.fail("tiles: write [[[m, n, efficiency], ...], source]");
    WEFT_TRY(const std::vector<YamlNode> list, pair[0].list("tiles"));
    tuning.tiles.value.clear();
    for (const YamlNode& item : list) {
      WEFT_TRY(const std::vector<YamlNode> parts, item.list("tile"));
      if (parts.size() != 3) return item.fail("tile: write [m, n, efficiency]");
      WEFT_TRY(const std::int64_t m, parts[0].integer("tile rows", 1, 4096));
      WEFT_TRY(const std::int64_t n, parts[1].integer("tile columns", 1, 4096));
      WEFT_TRY(const double efficiency, number(parts[2], "tile efficiency", 0.001, 1));
      tuning.tiles.value.push_back({static_cast<int>(m), static_cast<int>(n), efficiency});
    }
    if (tuning.tiles.value.empty()) return node.fail("tiles: none");
    return source(pair[1], tuning.tiles.source);
  }

  Status links(const YamlNode& node) {
    std::vector<std::string> names;
    for (LinkKind kind : kKinds) names.emplace_back(name(kind));
    WEFT_TRY(const YamlMap map, node.map("links", names));
    static const std::string known[] = {"efficiency", "channels"};
    for (LinkKind kind : kKinds) {
      const YamlNode* entry = map.find(name(kind));
      if (!entry) continue;
      WEFT_TRY(const YamlMap fields, entry->map(name(kind), known));
      LinkTuning& link = into_.communication.links[static_cast<std::size_t>(kind)];
      if (const YamlNode* value = fields.find("efficiency"))
        WEFT_TRY_OK(figure(*value, "efficiency", 0.001, 1, link.efficiency));
      if (const YamlNode* value = fields.find("channels"))
        WEFT_TRY_OK(figure(*value, "channels", 0, 1024, link.channels));
    }
    return Ok{};
  }

  Status protocols(const YamlNode& node) {
    std::vector<std::string> names;
    for (Protocol protocol : kProtocolList) names.emplace_back(name_of(protocol));
    WEFT_TRY(const YamlMap map, node.map("protocols", names));
    static const std::string known[] = {"efficiency", "start", "step_inside", "step_between"};
    for (Protocol protocol : kProtocolList) {
      const YamlNode* entry = map.find(name_of(protocol));
      if (!entry) continue;
      WEFT_TRY(const YamlMap fields, entry->map(name_of(protocol), known));
      ProtocolTuning& tuning = into_.communication.protocols[static_cast<std::size_t>(protocol)];
      if (const YamlNode* value = fields.find("efficiency"))
        WEFT_TRY_OK(figure(*value, "efficiency", 0.001, 1, tuning.efficiency));
      WEFT_TRY_OK(seconds(fields, "start", tuning.start));
      WEFT_TRY_OK(seconds(fields, "step_inside", tuning.step_inside));
      WEFT_TRY_OK(seconds(fields, "step_between", tuning.step_between));
    }
    return Ok{};
  }

  Status communication(const YamlNode& node) {
    static const std::string known[] = {"tree",      "grouped", "nvls_step",     "transfer",
                                        "host_copy", "message", "memory_reduce", "memory_move"};
    WEFT_TRY(const YamlMap fields, node.map("communication", known));
    CommunicationTuning& tuning = into_.communication;
    if (const YamlNode* value = fields.find("tree")) WEFT_TRY_OK(figure(*value, "tree", 0.001, 1, tuning.tree));
    if (const YamlNode* value = fields.find("grouped"))
      WEFT_TRY_OK(figure(*value, "grouped", 0.001, 1, tuning.grouped));
    WEFT_TRY_OK(seconds(fields, "nvls_step", tuning.nvls_step));
    WEFT_TRY_OK(seconds(fields, "transfer", tuning.transfer));
    WEFT_TRY_OK(seconds(fields, "host_copy", tuning.host_copy));
    WEFT_TRY_OK(seconds(fields, "message", tuning.message));
    if (const YamlNode* value = fields.find("memory_reduce"))
      WEFT_TRY_OK(figure(*value, "memory_reduce", 0, 16, tuning.memory_reduce));
    if (const YamlNode* value = fields.find("memory_move"))
      WEFT_TRY_OK(figure(*value, "memory_move", 0, 16, tuning.memory_move));
    return Ok{};
  }

  Status seconds(const YamlMap& fields, std::string_view what, Figure<Seconds>& into) {
    if (const YamlNode* node = fields.find(what)) return figure(*node, what, 0, 1, into);
    return Ok{};
  }

  static Result<double> number(const YamlNode& node, std::string_view what, double least, double most) {
    WEFT_TRY(const double value, node.number(what));
    if (!(value >= least && value <= most)) return node.fail("{} {}: from {} to {}", what, value, least, most);
    return value;
  }
  Status read(const YamlNode& node, std::string_view what, double least, double most, double& value) {
    WEFT_TRY(value, number(node, what, least, most));
    return Ok{};
  }
  Status read(const YamlNode& node, std::string_view what, double least, double most, int& value) {
    WEFT_TRY(const std::int64_t whole,
             node.integer(what, static_cast<std::int64_t>(least), static_cast<std::int64_t>(most)));
    value = static_cast<int>(whole);
    return Ok{};
  }
  Status read(const YamlNode& node, std::string_view what, double, double, Seconds& value) {
    WEFT_TRY(const std::string text, node.text(what));
    const Result<Seconds> parsed = parse_seconds(text);
    if (!parsed.ok()) return node.fail("{} {}", what, parsed.error().message);
    if (parsed->value < 0 || parsed->value > 1) return node.fail("{} '{}': from 0 to 1s", what, text);
    value = *parsed;
    return Ok{};
  }
  Status source(const YamlNode& node, std::string& into) {
    WEFT_TRY(into, node.text("source"));
    if (const auto found = citations_.find(into); found != citations_.end()) into = found->second;
    return Ok{};
  }

  // [value, source], or a bare value, whose source is its place in the file.
  template <class T>
  Status figure(const YamlNode& node, std::string_view what, double least, double most, Figure<T>& into) {
    if (!node.is_list()) {
      into.source = node.place();
      return read(node, what, least, most, into.value);
    }
    WEFT_TRY(const std::vector<YamlNode> pair, node.list(what));
    if (pair.size() != 2) return node.fail("{}: write [value, source]", what);
    WEFT_TRY_OK(read(pair[0], what, least, most, into.value));
    return source(pair[1], into.source);
  }

  Tuning& into_;
  std::map<std::string, std::string> citations_;
};

// Parts of a path; a device's name may contain anything but a slash.
std::vector<std::string_view> parts_of(std::string_view path) {
  std::vector<std::string_view> parts;
  while (true) {
    const std::size_t slash = path.find('/');
    parts.push_back(path.substr(0, slash));
    if (slash == std::string_view::npos) return parts;
    path.remove_prefix(slash + 1);
  }
}

TuningConstant constant(Figure<double>& figure, double least, double most) {
  return {&figure.value, &figure.source, least, most, false};
}
TuningConstant constant(Figure<Seconds>& figure, double, double) {
  return {&figure.value.value, &figure.source, 0, 1, true};
}

std::optional<TuningConstant> device_constant(DeviceTuning& tuning, const std::vector<std::string_view>& parts) {
  if (parts.size() == 4) {
    for (const ProductField& field : kProductFields)
      for (Arithmetic arithmetic : kArithmetics)
        if (field.name == parts[2] && name(arithmetic) == parts[3])
          return constant(tuning.products[static_cast<std::size_t>(arithmetic)].*field.member, field.least, field.most);
    return std::nullopt;
  }
  if (parts.size() != 3) return std::nullopt;
  for (const Field& field : device_fields())
    if (field.name == parts[2])
      return std::visit([&](auto member) { return constant(tuning.*member, field.least, field.most); }, field.member);
  return std::nullopt;
}

std::optional<TuningConstant> communication_constant(CommunicationTuning& tuning,
                                                     const std::vector<std::string_view>& parts) {
  if (parts.size() == 3 && parts[0] == "links" && parts[2] == "efficiency")
    for (LinkKind kind : kKinds)
      if (name(kind) == parts[1]) return constant(tuning.links[static_cast<std::size_t>(kind)].efficiency, 0.001, 1);
  if (parts.size() == 3 && parts[0] == "protocols")
    for (Protocol protocol : kProtocolList) {
      if (name_of(protocol) != parts[1]) continue;
      ProtocolTuning& of = tuning.protocols[static_cast<std::size_t>(protocol)];
      if (parts[2] == "efficiency") return constant(of.efficiency, 0.001, 1);
      if (parts[2] == "start") return constant(of.start, 0, 1);
      if (parts[2] == "step_inside") return constant(of.step_inside, 0, 1);
      if (parts[2] == "step_between") return constant(of.step_between, 0, 1);
    }
  if (parts.size() != 2 || parts[0] != "communication") return std::nullopt;
  if (parts[1] == "tree") return constant(tuning.tree, 0.001, 1);
  if (parts[1] == "grouped") return constant(tuning.grouped, 0.001, 1);
  if (parts[1] == "nvls_step") return constant(tuning.nvls_step, 0, 1);
  if (parts[1] == "transfer") return constant(tuning.transfer, 0, 1);
  if (parts[1] == "host_copy") return constant(tuning.host_copy, 0, 1);
  if (parts[1] == "message") return constant(tuning.message, 0, 1);
  if (parts[1] == "memory_reduce") return constant(tuning.memory_reduce, 0, 16);
  if (parts[1] == "memory_move") return constant(tuning.memory_move, 0, 16);
  return std::nullopt;
}

Status read_over(std::string_view text, std::string_view file, Tuning& into) {
  WEFT_TRY(const YamlNode root, YamlNode::load(text, file, {"a cost file", "devices:"}));
  return Reader(into).run(root);
}

}  // namespace

const DeviceTuning& Tuning::of(const DeviceSpec& device) const {
  const DeviceTuning* by_architecture = nullptr;
  for (const DeviceTuning& tuning : devices) {
    if (tuning.name == device.name) return tuning;
    if (tuning.name == device.architecture) by_architecture = &tuning;
  }
  return by_architecture ? *by_architecture : devices.front();
}

std::string_view name_of(Pass pass) { return kPassNames[static_cast<std::size_t>(pass)]; }

double* constant(DeviceTuning& tuning, std::string_view name) {
  const auto starts = [&](std::string_view prefix) {
    if (!name.starts_with(prefix)) return false;
    name.remove_prefix(prefix.size());
    return true;
  };
  const auto product = [&]() -> ProductTuning* {
    for (Arithmetic arithmetic : kArithmetics)
      if (starts(weft::name(arithmetic))) return &tuning.products[static_cast<std::size_t>(arithmetic)];
    return nullptr;
  };
  for (const Field& field : device_fields()) {
    if (field.name != name) continue;
    if (const auto* member = std::get_if<Figure<double> DeviceTuning::*>(&field.member))
      return &(tuning.**member).value;
    return &(tuning.*std::get<Figure<Seconds> DeviceTuning::*>(field.member)).value.value;
  }
  for (const ProductField& field : kProductFields) {
    const std::string_view whole = name;
    if (starts(field.name) && starts("."))
      if (ProductTuning* found = product()) return &(found->*field.member).value;
    name = whole;
  }
  if (starts("tiles.")) {
    ProductTuning* found = product();
    if (!found || !starts(".") || name.size() != 1) return nullptr;
    const auto index = static_cast<std::size_t>(name[0] - '0');
    return index < found->tiles.value.size() ? &found->tiles.value[index].efficiency : nullptr;
  }
  for (std::size_t pass = 0; pass < kPasses; ++pass) {
    const std::string_view whole = name;
    if (starts(kPassNames[pass]) && starts(".")) {
      PassTuning& value = tuning.passes[pass].value;
      if (name == "share") return &value.share;
      if (name == "elements") return &value.elements;
      if (name == "units") return &value.units;
      if (name == "start") return &value.start.value;
      if (name == "least") return &value.least.value;
    }
    name = whole;
  }
  return nullptr;
}

const Tuning& built_in_tuning() {
  static const Tuning tuning = [] {
    Tuning all;
    // A preset that does not parse is a bug in Weft.
    for (const EmbeddedFile& file : cost_presets()) {
      const Status read = read_over(file.text, file.path, all);
      WEFT_CHECK(read.ok(), "{}", read.error().message);
    }
    WEFT_CHECK(!all.devices.empty() && all.devices.front().name == "default", "cost presets begin with the default");
    return all;
  }();
  return tuning;
}

std::optional<TuningConstant> find_constant(Tuning& tuning, std::string_view path) {
  const std::vector<std::string_view> parts = parts_of(path);
  if (parts.front() != "devices") return communication_constant(tuning.communication, parts);
  for (DeviceTuning& device : tuning.devices)
    if (parts.size() > 1 && device.name == parts[1]) return device_constant(device, parts);
  return std::nullopt;
}

Result<Tuning> parse_tuning(std::string_view text, std::string_view file) {
  Tuning tuning = built_in_tuning();
  WEFT_TRY_OK(read_over(text, file, tuning));
  return tuning;
}

Arithmetic arithmetic_of(DType dtype) {
  switch (dtype) {
    case DType::BF16:
      return Arithmetic::kBf16;
    case DType::F16:
      return Arithmetic::kFp16;
    case DType::F8:
      return Arithmetic::kFp8;
    case DType::F4:
      return Arithmetic::kFp4;
    default:
      return Arithmetic::kFp32;
  }
}

ProductRate product_rate(const DeviceSpec& device, Arithmetic wanted) {
  // The arithmetic of a product if the device lacks the wanted one: the next wider one.
  static constexpr std::array<std::array<Arithmetic, 4>, kArithmetics.size()> fallbacks = {{
      {Arithmetic::kFp32, Arithmetic::kTf32, Arithmetic::kBf16, Arithmetic::kFp16},  // fp32
      {Arithmetic::kTf32, Arithmetic::kFp32, Arithmetic::kBf16, Arithmetic::kFp16},  // tf32
      {Arithmetic::kFp16, Arithmetic::kBf16, Arithmetic::kFp32, Arithmetic::kTf32},  // fp16
      {Arithmetic::kBf16, Arithmetic::kFp32, Arithmetic::kTf32, Arithmetic::kFp16},  // bf16
      {Arithmetic::kFp8, Arithmetic::kBf16, Arithmetic::kFp32, Arithmetic::kFp16},   // fp8: its tensors are bf16
      {Arithmetic::kFp4, Arithmetic::kFp8, Arithmetic::kBf16, Arithmetic::kFp32},    // fp4
  }};
  for (Arithmetic arithmetic : fallbacks[static_cast<std::size_t>(wanted)])
    if (const Figure<FlopsPerSecond>* peak = device.peak(arithmetic); peak && peak->value.value > 0)
      return {peak->value, arithmetic,
              arithmetic == wanted ? std::string_view(peak->source)
                                   : std::string_view("fallback: the device lacks the arithmetic; the next wider one")};
  return {{memory_rate(device).peak.value * 16},
          Arithmetic::kFp32,
          "fallback: no peak is given; 16 operations per byte of memory bandwidth"};
}

MemoryRate memory_rate(const DeviceSpec& device) {
  if (device.memory_bandwidth.value.value > 0) return {device.memory_bandwidth.value, device.memory_bandwidth.source};
  for (Arithmetic arithmetic : {Arithmetic::kBf16, Arithmetic::kFp16, Arithmetic::kFp32})
    if (const Figure<FlopsPerSecond>* peak = device.peak(arithmetic); peak && peak->value.value > 0)
      return {{peak->value.value / 200}, "fallback: no memory bandwidth is given; one byte per 200 operations"};
  return {{1e11}, "fallback: neither peaks nor memory bandwidth are given; 100 GB/s"};
}

ComputeUnits compute_units(const DeviceSpec& device) {
  if (device.compute_units.value > 0) return {device.compute_units.value, device.compute_units.source};
  return {100, "fallback: no compute units are given; 100"};
}

}  // namespace weft
