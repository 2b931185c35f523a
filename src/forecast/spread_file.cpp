// presets/cost/spread.yaml: read and written.
#include <fmt/format.h>

#include "base/check.h"
#include "base/embedded.h"
#include "base/yaml_node.h"
#include "forecast/uncertainty.h"

namespace weft {

std::span<const EmbeddedFile> spread_presets();  // written by cmake/embed.cmake

namespace {

constexpr std::array<std::string_view, kDistances> kNames = {"all_seen", "one_unseen", "more_unseen", "device_unseen"};
constexpr double kWidest = 5;  // e⁵: a half-width beyond is a mistake
constexpr std::int64_t kMost = 1'000'000'000;

Result<Figure<double>> read_half_width(const YamlNode& node, std::string_view what) {
  WEFT_TRY(const std::vector<YamlNode> pair, node.list(what));
  if (pair.size() != 2) return node.fail("{}: write [value, source]", what);
  Figure<double> figure;
  WEFT_TRY(figure.value, pair[0].number(what));
  WEFT_TRY(figure.source, pair[1].text("source"));
  if (!(figure.value >= 0 && figure.value <= kWidest))
    return pair[0].fail("{} {}: a half-width in logarithms, from 0 to {}", what, figure.value, kWidest);
  return figure;
}

Result<Figure<double>> required_half_width(const YamlMap& map, std::string_view key) {
  WEFT_TRY(const YamlNode node, map.require(key));
  return read_half_width(node, key);
}

Result<SeenRuns::OnDevice> read_device(const YamlNode& node, const std::string& name) {
  static const std::vector<std::string> keys = {"runs", "most", "arithmetics"};
  WEFT_TRY(const YamlMap map, node.map(fmt::format("device '{}'", name), keys));
  SeenRuns::OnDevice seen;
  WEFT_TRY(const YamlNode runs, map.require("runs"));
  WEFT_TRY(seen.runs, runs.integer("runs", 1, kMost));
  WEFT_TRY(const YamlNode most, map.require("most"));
  WEFT_TRY(seen.most, most.integer("most", 1, kMost));
  WEFT_TRY(const YamlNode arithmetics, map.require("arithmetics"));
  WEFT_TRY(const std::vector<YamlNode> list, arithmetics.list("arithmetics"));
  for (const YamlNode& each : list) {
    WEFT_TRY(std::string text, each.text("arithmetic"));
    seen.arithmetics.insert(std::move(text));
  }
  return seen;
}

Status read_seen(const YamlNode& node, SeenRuns& seen) {
  static const std::vector<std::string> keys = {"devices", "stacks"};
  WEFT_TRY(const YamlMap map, node.map("seen", keys));
  WEFT_TRY(const YamlNode devices, map.require("devices"));
  WEFT_TRY(const YamlMap by_device, devices.map("devices"));
  for (const YamlMap::Entry& entry : by_device.entries()) {
    WEFT_TRY(seen.devices[entry.key], read_device(entry.value, entry.key));
  }
  WEFT_TRY(const YamlNode stacks, map.require("stacks"));
  WEFT_TRY(const YamlMap by_stack, stacks.map("stacks"));
  for (const YamlMap::Entry& entry : by_stack.entries()) {
    WEFT_TRY(seen.stacks[entry.key], entry.value.integer("runs of the stack", 1, kMost));
  }
  return Ok{};
}

std::string printed(const Figure<double>& figure) {
  return fmt::format("[{:.4f}, {}]", figure.value, yaml_quoted(figure.source));
}

}  // namespace

Result<Spread> parse_spread(std::string_view text, std::string_view file) {
  static const std::vector<std::string> sections = {"level", "time", "doubtful", "memory", "seen"};
  static const std::vector<std::string> distances(kNames.begin(), kNames.end());
  WEFT_TRY(const YamlNode root, YamlNode::load(text, file, {"a file of spreads", "level: 0.8"}));
  WEFT_TRY(const YamlMap map, root.map("file of spreads", sections));
  Spread spread;
  WEFT_TRY(const YamlNode level, map.require("level"));
  WEFT_TRY(spread.level, level.number("level"));
  if (!(spread.level > 0 && spread.level < 1)) return level.fail("level {}: a share between 0 and 1", spread.level);
  WEFT_TRY(const YamlNode time, map.require("time"));
  WEFT_TRY(const YamlMap times, time.map("time", distances));
  for (std::size_t i = 0; i < kDistances; ++i) {
    WEFT_TRY(spread.time[i], required_half_width(times, kNames[i]));
    if (i > 0 && spread.time[i].value < spread.time[i - 1].value)
      return times.find(kNames[i])->fail("{} is narrower than {}: a spread does not shrink with distance", kNames[i],
                                         kNames[i - 1]);
  }
  WEFT_TRY(spread.doubtful, required_half_width(map, "doubtful"));
  WEFT_TRY(spread.memory, required_half_width(map, "memory"));
  WEFT_TRY(const YamlNode seen, map.require("seen"));
  WEFT_TRY_OK(read_seen(seen, spread.seen));
  return spread;
}

std::string print(const Spread& spread) {
  std::string text =
      "# How far measured runs were from their predictions: what forecasts print as ± (src/forecast/uncertainty.h).\n"
      "# Written by `weft validate … --spread FILE` (make spread). Half-widths hold the share `level` of\n"
      "# |log(measured / predicted)|, by what was not among the runs that the constants were fitted to, and of runs "
      "with\n"
      "# layers of experts or nodes joined by another network than InfiniBand (doubtful), which are not among the "
      "others.\n";
  text += fmt::format("level: {}\ntime:\n", spread.level);
  for (std::size_t i = 0; i < kDistances; ++i) text += fmt::format("  {}: {}\n", kNames[i], printed(spread.time[i]));
  text += fmt::format("doubtful: {}\nmemory: {}\n", printed(spread.doubtful), printed(spread.memory));
  text +=
      "# The runs compared: how many, on how many devices at most, in which arithmetic of products.\nseen:\n  "
      "devices:\n";
  for (const auto& [name, seen] : spread.seen.devices)
    text += fmt::format("    {}: {{runs: {}, most: {}, arithmetics: [{}]}}\n", yaml_quoted(name), seen.runs, seen.most,
                        fmt::join(seen.arithmetics, ", "));
  text += "  stacks:\n";
  for (const auto& [name, runs] : spread.seen.stacks) text += fmt::format("    {}: {}\n", yaml_quoted(name), runs);
  return text;
}

const Spread& built_in_spread() {
  static const Spread spread = [] {
    const EmbeddedFile& file = spread_presets().front();
    Result<Spread> read = parse_spread(file.text, file.path);
    WEFT_CHECK(read.ok(), "{}", read.error().message);  // a preset that does not parse is a bug in Weft
    return std::move(read).value();
  }();
  return spread;
}

}  // namespace weft
