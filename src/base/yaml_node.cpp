#include "base/yaml_node.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>

#include "base/suggest.h"
#include "base/units.h"

namespace weft {
namespace {

// A value as an error message shows it: whole if short, else truncated.
std::string shown(const std::string& text) {
  std::string start = text;
  if (text.size() > 60) start.replace(57, std::string::npos, "...");
  return start;
}

}  // namespace

YamlNode::YamlNode(const YAML::Node& node, std::shared_ptr<const std::string> file, int line)
    : node_(node), file_(std::move(file)), line_(std::max(line, 1)) {}

Result<YamlNode> YamlNode::load(std::string_view text, std::string_view file, const YamlFileKind& kind) {
  auto name = std::make_shared<const std::string>(file);
  if (text.size() > kMostBytes)
    return error("{} bytes: {} has at most {}", text.size(), kind.name, kMostBytes).at(file);
  try {
    const YAML::Node root = YAML::Load(std::string(text));
    if (!root.IsDefined() || root.IsNull()) return error("empty; write at least '{}'", kind.example).at(file);
    const int line = root.Mark().line + 1;
    return YamlNode(root, std::move(name), line);
  } catch (const YAML::Exception& failure) {
    return error("not YAML: {}", failure.msg).at(file, std::max(failure.mark.line + 1, 1));
  } catch (const std::exception& failure) {  // yaml-cpp lets a few standard exceptions out of its scanner
    return error("not YAML: {}", failure.what()).at(file);
  }
}

Result<std::string> YamlNode::text(std::string_view what) const {
  if (node_.IsNull()) return fail("{}: value missing", what);
  if (!node_.IsScalar()) return fail("{}: expected one value, not a {}", what, node_.IsMap() ? "map" : "list");
  return node_.Scalar();
}

Result<std::int64_t> YamlNode::integer(std::string_view what, std::int64_t least, std::int64_t most) const {
  WEFT_TRY(const std::string written, text(what));
  Result<std::int64_t> value = parse_integer(shown(written), what);
  if (!value.ok()) return fail(value.error());
  if (*value < least || *value > most) return fail("{} '{}': from {} to {}", what, shown(written), least, most);
  return value;
}

Result<double> YamlNode::number(std::string_view what) const {
  WEFT_TRY(const std::string written, text(what));
  double value = 0;
  const auto [rest, status] = std::from_chars(written.data(), written.data() + written.size(), value);
  if (status != std::errc() || rest != written.data() + written.size() || !std::isfinite(value))
    return fail("{} '{}': not a finite number", what, shown(written));
  return value;
}

Result<bool> YamlNode::boolean(std::string_view what) const {
  WEFT_TRY(const std::string written, text(what));
  if (written == "true") return true;
  if (written == "false") return false;
  return fail("{} '{}': write true or false", what, shown(written));
}

Result<std::vector<YamlNode>> YamlNode::list(std::string_view what) const {
  if (!node_.IsSequence()) return fail("{}: expected a list", what);
  std::vector<YamlNode> items;
  try {
    items.reserve(node_.size());
    for (const YAML::Node& item : node_) {
      const int line = item.Mark().line + 1;
      items.push_back(YamlNode(item, file_, line > 0 ? line : line_));
    }
  } catch (const YAML::Exception& failure) {
    return fail("{}: {}", what, failure.msg);
  }
  return items;
}

Result<YamlMap> YamlNode::map(std::string_view what) const {
  if (!node_.IsMap()) return fail("{}: expected a map of 'key: value'", what);
  YamlMap map(*this, std::string(what));
  std::set<std::string> seen;
  try {
    for (const auto& pair : node_) {
      const int line = pair.first.Mark().line + 1;
      const YamlNode key(pair.first, file_, line > 0 ? line : line_);
      if (!pair.first.IsScalar()) return key.fail("{}: a key must be a plain name", what);
      if (!seen.insert(pair.first.Scalar()).second)
        return key.fail("{}: '{}' given twice; keep one", what, shown(pair.first.Scalar()));
      const int value_line = pair.second.Mark().line + 1;
      map.entries_.push_back(
          {pair.first.Scalar(), key, YamlNode(pair.second, file_, value_line > 0 ? value_line : key.line())});
    }
  } catch (const YAML::Exception& failure) {
    return fail("{}: {}", what, failure.msg);
  }
  return map;
}

Result<YamlMap> YamlNode::map(std::string_view what, std::span<const std::string> known) const {
  WEFT_TRY(YamlMap fields, map(what));
  for (const YamlMap::Entry& entry : fields.entries())
    if (std::find(known.begin(), known.end(), entry.key) == known.end())
      return entry.key_node.fail("{}: unknown key '{}'{}", what, shown(entry.key), did_you_mean(entry.key, known));
  return fields;
}

const YamlNode* YamlMap::find(std::string_view key) const {
  for (const Entry& entry : entries_)
    if (entry.key == key) return &entry.value;
  return nullptr;
}

Result<YamlNode> YamlMap::require(std::string_view key) const {
  if (const YamlNode* value = find(key)) return *value;
  return self_.fail("{}: '{}' missing", what_, key);
}

std::string yaml_quoted(std::string_view text) {
  std::string out = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    } else {
      out += c;
    }
  }
  return out + '"';
}

}  // namespace weft
