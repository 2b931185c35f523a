#include "cost/calibration.h"

#include <fmt/format.h>

#include "base/read_file.h"
#include "base/suggest.h"
#include "base/yaml_node.h"

namespace weft {
namespace {

// A stack's knob as a number; the member of another type is null.
struct KnobNumber {
  double* value = nullptr;
  std::string* source = nullptr;
  bool is_time = false;
};

std::optional<KnobNumber> knob_number(SoftwareStack& stack, std::string_view knob) {
  for (const Knob& each : stack_knobs()) {
    if (each.name != knob) continue;
    if (const auto* share = std::get_if<Figure<double> SoftwareStack::*>(&each.field))
      return KnobNumber{&(stack.**share).value, &(stack.**share).source, false};
    if (const auto* time = std::get_if<Figure<Seconds> SoftwareStack::*>(&each.field))
      return KnobNumber{&(stack.**time).value.value, &(stack.**time).source, true};
  }
  return std::nullopt;
}

std::vector<std::string> number_knobs() {
  SoftwareStack any;
  std::vector<std::string> names;
  for (const Knob& each : stack_knobs())
    if (knob_number(any, each.name)) names.emplace_back(each.name);
  return names;
}

struct StackPath {
  std::string stack, knob;
};
std::optional<StackPath> stack_path(std::string_view path) {
  constexpr std::string_view prefix = "stacks/";
  const std::size_t slash = path.rfind('/');
  if (!path.starts_with(prefix) || slash < prefix.size()) return std::nullopt;
  return StackPath{std::string(path.substr(prefix.size(), slash - prefix.size())), std::string(path.substr(slash + 1))};
}

Error unknown(std::string_view path) {
  return error(
      "no constant '{}'; constants are devices/NAME/KEY, devices/NAME/sustained/TYPE, links/KIND/efficiency, "
      "protocols/NAME/KEY, communication/KEY and stacks/NAME/KEY with KEY {}",
      path.substr(0, 120), fmt::join(number_knobs(), ", "));
}

using Citations = std::map<std::string, std::string>;

Result<double> read_number(const YamlNode& node, std::string_view knob, bool time) {
  if (!time) return node.number(knob);
  WEFT_TRY(const std::string text, node.text(knob));
  const Result<Seconds> parsed = parse_seconds(text);
  if (!parsed.ok()) return node.fail("{} {}", knob, parsed.error().message);
  return parsed->value;
}

// [value, source], or a bare value, whose source is its place in the file.
Result<Figure<double>> read_figure(const YamlNode& node, std::string_view knob, bool time, const Citations& citations) {
  Figure<double> figure{0, node.place()};
  if (!node.is_list()) {
    WEFT_TRY(figure.value, read_number(node, knob, time));
    return figure;
  }
  WEFT_TRY(const std::vector<YamlNode> pair, node.list(knob));
  if (pair.size() != 2) return node.fail("{}: write [value, source]", knob);
  WEFT_TRY(figure.value, read_number(pair[0], knob, time));
  WEFT_TRY(figure.source, pair[1].text("source"));
  if (const auto found = citations.find(figure.source); found != citations.end()) figure.source = found->second;
  return figure;
}

Status read_stacks(const YamlNode& node, const Citations& citations, Calibration& into) {
  WEFT_TRY(const YamlMap stacks, node.map("stacks"));
  for (const YamlMap::Entry& stack : stacks.entries()) {
    WEFT_TRY(const YamlMap knobs, stack.value.map(fmt::format("stack '{}'", stack.key), number_knobs()));
    for (const YamlMap::Entry& knob : knobs.entries()) {
      const std::string path = "stacks/" + stack.key + "/" + knob.key;
      WEFT_TRY(const Figure<double> figure, read_figure(knob.value, knob.key, is_time(path), citations));
      const Status set = into.set(path, figure.value, figure.source);
      if (!set.ok()) return knob.value.fail(set.error());
    }
  }
  return Ok{};
}

}  // namespace

bool is_time(std::string_view path) {
  SoftwareStack any;
  if (const auto place = stack_path(path)) {
    const auto number = knob_number(any, place->knob);
    return number && number->is_time;
  }
  Tuning tuning = built_in_tuning();
  const auto found = find_constant(tuning, path);
  return found && found->is_time;
}

SoftwareStack Calibration::over(SoftwareStack stack) const {
  // A stack with some knobs set ("megatron-lm:nvls=false") has the constants of the stack it is made of.
  if (const auto found = stacks.find(stack.name.substr(0, stack.name.find(':'))); found != stacks.end())
    for (const auto& [knob, figure] : found->second)
      if (const auto number = knob_number(stack, knob)) {
        *number->value = figure.value;
        *number->source = figure.source;
      }
  return stack;
}

Result<double> Calibration::value(std::string_view path) const {
  if (const auto place = stack_path(path)) {
    WEFT_TRY(SoftwareStack stack, find_stack(place->stack));
    stack = over(std::move(stack));
    if (const auto number = knob_number(stack, place->knob)) return *number->value;
    return unknown(path);
  }
  Tuning copy = tuning;
  if (const auto found = find_constant(copy, path)) return *found->value;
  return unknown(path);
}

Status Calibration::set(std::string_view path, double value, const std::string& source) {
  if (const auto place = stack_path(path)) {
    WEFT_TRY(SoftwareStack stack, find_stack(place->stack));
    const auto number = knob_number(stack, place->knob);
    if (!number) return unknown(path);
    if (!(value >= 0 && value <= 1) || (!number->is_time && value == 0))
      return error("{} {}: {} 0, at most 1", path, value, number->is_time ? "not below" : "above");
    stacks[place->stack][place->knob] = {value, source};
    return Ok{};
  }
  const auto found = find_constant(tuning, path);
  if (!found) return unknown(path);
  if (!(value >= found->least && value <= found->most))
    return error("{} {}: from {} to {}", path, value, found->least, found->most);
  *found->value = value;
  *found->source = source;
  return Ok{};
}

Result<Calibration> parse_calibration(std::string_view text, std::string_view file) {
  WEFT_TRY(const YamlNode root, YamlNode::load(text, file, {"a calibration file", "devices:"}));
  Calibration calibration;
  WEFT_TRY(calibration.tuning, parse_tuning(text, file));
  WEFT_TRY(const YamlMap sections, root.map("calibration file"));
  Citations citations;
  if (const YamlNode* sources = sections.find("sources")) {
    WEFT_TRY(const YamlMap map, sources->map("sources"));
    for (const YamlMap::Entry& entry : map.entries()) {
      WEFT_TRY(citations[entry.key], entry.value.text("source"));
    }
  }
  if (const YamlNode* stacks = sections.find("stacks")) WEFT_TRY_OK(read_stacks(*stacks, citations, calibration));
  return calibration;
}

Result<Calibration> read_calibration(const std::string& path) {
  constexpr FileKind kCalibration{"a calibration file (.yaml), as weft calibrate writes it", YamlNode::kMostBytes};
  WEFT_TRY(const std::string text, read_file(path, kCalibration));
  return parse_calibration(text, path);
}

}  // namespace weft
