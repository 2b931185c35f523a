#include "calibrate/constants.h"

#include <fmt/format.h>

#include <map>

#include "base/check.h"
#include "base/embedded.h"
#include "base/suggest.h"
#include "base/yaml_node.h"

namespace weft {

std::span<const EmbeddedFile> calibration_presets();  // written by cmake/embed.cmake

namespace {

// A share as a number, a time with its unit.
Result<double> read_number(const YamlNode& node, std::string_view what, bool time) {
  if (!time) return node.number(what);
  WEFT_TRY(const std::string text, node.text(what));
  const Result<Seconds> parsed = parse_seconds(text);
  if (!parsed.ok()) return node.fail("{} {}", what, parsed.error().message);
  return parsed->value;
}

Result<FittedConstant> read_constant(const YamlMap::Entry& entry, const std::map<std::string, std::string>& sources) {
  static const std::string known[] = {"places", "least", "most", "prior", "spread"};
  WEFT_TRY(const YamlMap fields, entry.value.map(fmt::format("constant '{}'", entry.key), known));
  FittedConstant out;
  out.name = entry.key;
  WEFT_TRY(const YamlNode places, fields.require("places"));
  WEFT_TRY(const std::vector<YamlNode> list, places.list("places"));
  const Calibration built_in;
  for (const YamlNode& node : list) {
    WEFT_TRY(const std::string path, node.text("place"));
    if (const Result<double> value = built_in.value(path); !value.ok()) return node.fail(value.error());
    out.places.push_back(path);
  }
  if (out.places.empty()) return places.fail("constant '{}': no places", out.name);
  const bool time = is_time(out.places.front());
  const std::pair<std::string_view, double*> bounds[] = {{"least", &out.least}, {"most", &out.most}};
  for (const auto& [name, into] : bounds) {
    WEFT_TRY(const YamlNode node, fields.require(name));
    WEFT_TRY(*into, read_number(node, name, time));
  }
  WEFT_TRY(const YamlNode spread, fields.require("spread"));
  WEFT_TRY(out.spread, spread.number("spread"));
  WEFT_TRY(const YamlNode prior, fields.require("prior"));
  WEFT_TRY(const std::vector<YamlNode> pair, prior.list("prior"));
  if (pair.size() != 2) return prior.fail("prior: write [value, source]");
  WEFT_TRY(out.prior.value, read_number(pair[0], "prior", time));
  WEFT_TRY(out.prior.source, pair[1].text("source"));
  if (const auto found = sources.find(out.prior.source); found != sources.end()) out.prior.source = found->second;
  if (!(out.least > 0 && out.least <= out.prior.value && out.prior.value <= out.most && out.spread > 0))
    return entry.key_node.fail("constant '{}': 0 < least ≤ prior ≤ most and spread > 0", out.name);
  return out;
}

}  // namespace

Result<std::vector<FittedConstant>> parse_fitted_constants(std::string_view text, std::string_view file) {
  static const std::string sections[] = {"sources", "constants"};
  WEFT_TRY(const YamlNode root, YamlNode::load(text, file, {"a list of constants to fit", "constants: {}"}));
  WEFT_TRY(const YamlMap fields, root.map("list of constants", sections));
  std::map<std::string, std::string> sources;
  if (const YamlNode* node = fields.find("sources")) {
    WEFT_TRY(const YamlMap map, node->map("sources"));
    for (const YamlMap::Entry& entry : map.entries()) {
      WEFT_TRY(sources[entry.key], entry.value.text("source"));
    }
  }
  WEFT_TRY(const YamlNode constants, fields.require("constants"));
  WEFT_TRY(const YamlMap map, constants.map("constants"));
  std::vector<FittedConstant> out;
  for (const YamlMap::Entry& entry : map.entries()) {
    WEFT_TRY(FittedConstant constant, read_constant(entry, sources));
    out.push_back(std::move(constant));
  }
  return out;
}

const std::vector<FittedConstant>& built_in_fitted_constants() {
  static const std::vector<FittedConstant> constants = [] {
    const EmbeddedFile& file = calibration_presets().front();
    Result<std::vector<FittedConstant>> read = parse_fitted_constants(file.text, file.path);
    WEFT_CHECK(read.ok(), "{}", read.error().message);  // a preset that does not parse is a bug in Weft
    return std::move(read).value();
  }();
  return constants;
}

Result<std::vector<FittedConstant>> chosen_constants(const std::vector<FittedConstant>& all,
                                                     const std::vector<std::string>& words) {
  if (words.empty()) return all;
  std::vector<char> taken(all.size(), 0);
  for (const std::string& word : words) {
    const bool star = word.ends_with('*');
    const std::string_view stem = std::string_view(word).substr(0, word.size() - (star ? 1 : 0));
    bool found = false;
    std::vector<std::string> names;
    for (std::size_t i = 0; i < all.size(); ++i) {
      names.push_back(all[i].name);
      if (star ? !all[i].name.starts_with(stem) : all[i].name != stem) continue;
      taken[i] = found = true;
    }
    if (!found) {
      const std::string near = did_you_mean(stem, names);
      return error("--only '{}': no such constant{}", word.substr(0, 60),
                   near.empty() ? fmt::format("; there are {}", fmt::join(names, ", ")) : near);
    }
  }
  std::vector<FittedConstant> out;
  for (std::size_t i = 0; i < all.size(); ++i)
    if (taken[i]) out.push_back(all[i]);
  return out;
}

}  // namespace weft
