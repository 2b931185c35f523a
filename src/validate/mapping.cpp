#include "validate/mapping.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <set>

#include "base/read_file.h"
#include "base/units.h"
#include "base/yaml_node.h"

namespace weft {

namespace {

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c + 32);
  return out;
}

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(separator), text.size());
    if (end > 0) parts.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return parts;
}

// Letters, digits and dots only: "Llama 3.1 405B" and "llama3.1-405b" are equal.
std::string spelt(std::string_view name) {
  std::string out;
  for (char c : lower(name))
    if ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.') out += c;
  return out;
}

// Cells of a model's shape, each with its override.
constexpr std::array<std::string_view, 6> kShapes = {"layers", "hidden", "heads", "kv_heads", "ffn", "vocab"};
constexpr std::array<std::string_view, 6> kDegrees = {"tp", "pp", "dp", "cp", "ep", "vpp"};

// Key–value items in which a later value replaces an earlier one.
class ItemList {
 public:
  void set(const std::string& key, const std::string& value) {
    for (auto& [known, text] : items_)
      if (known == key) {
        text = value;
        return;
      }
    items_.emplace_back(key, value);
  }
  std::string get(std::string_view key) const {
    for (const auto& [known, text] : items_)
      if (known == key) return text;
    return {};
  }
  void erase(std::string_view key) {
    std::erase_if(items_, [&](const auto& item) { return item.first == key; });
  }
  bool empty() const { return items_.empty(); }
  std::string print() const {
    std::string text;
    for (const auto& [key, value] : items_) text += fmt::format("{}{}={}", text.empty() ? "" : ",", key, value);
    return text;
  }

 private:
  std::vector<std::pair<std::string, std::string>> items_;
};

}  // namespace

class RuleReader {
 public:
  Result<MappingRules> run(const YamlNode& root) {
    static const std::string sections[] = {"rules"};
    WEFT_TRY(const YamlMap file, root.map("rules file", sections));
    WEFT_TRY(const YamlNode rules, file.require("rules"));
    WEFT_TRY(const std::vector<YamlNode> list, rules.list("rules"));
    MappingRules out;
    for (const YamlNode& node : list) {
      WEFT_TRY(MappingRules::Rule rule, read_rule(node));
      out.rules_.push_back(std::move(rule));
    }
    return out;
  }

 private:
  using Rule = MappingRules::Rule;

  static Result<Rule> read_rule(const YamlNode& node) {
    static const std::string known[] = {
        "if",       "node",          "trays",  "stack", "base", "model", "fill_model", "fill_dtype",
        "strategy", "fill_strategy", "memory", "seq",   "why",  "set",   "score",      "fit"};
    WEFT_TRY(const YamlMap fields, node.map("rule", known));
    Rule rule;
    WEFT_TRY(const YamlNode conditions, fields.require("if"));
    WEFT_TRY(const YamlMap cells, conditions.map("if"));
    for (const YamlMap::Entry& entry : cells.entries()) {
      WEFT_TRY(MappingRules::Condition condition, read_condition(entry));
      rule.conditions.push_back(std::move(condition));
    }
    const std::pair<std::string_view, std::string*> texts[] = {{"node", &rule.node},
                                                               {"trays", &rule.trays},
                                                               {"stack", &rule.stack},
                                                               {"base", &rule.base},
                                                               {"fill_dtype", &rule.fill_dtype},
                                                               {"memory", &rule.memory},
                                                               {"seq", &rule.seq},
                                                               {"why", &rule.why},
                                                               {"set", &rule.set},
                                                               {"score", &rule.score},
                                                               {"fit", &rule.fit}};
    for (const auto& [name, into] : texts)
      if (const YamlNode* value = fields.find(name)) {
        WEFT_TRY(*into, value->text(name));
      }
    const std::pair<std::string_view, MappingRules::Items*> lists[] = {{"model", &rule.model},
                                                                       {"fill_model", &rule.fill_model},
                                                                       {"strategy", &rule.strategy},
                                                                       {"fill_strategy", &rule.fill_strategy}};
    for (const auto& [name, into] : lists)
      if (const YamlNode* value = fields.find(name)) {
        WEFT_TRY(const std::string text, value->text(name));
        for (const std::string& item : split(text, ',')) {
          const std::size_t equals = item.find('=');
          if (equals == std::string::npos || equals == 0) return value->fail("{} '{}': write key=value", name, item);
          into->emplace_back(item.substr(0, equals), item.substr(equals + 1));
        }
      }
    if (!rule.score.empty() && rule.score != "time" && rule.score != "scaling")
      return node.fail("score '{}': write time or scaling", rule.score);
    for (const auto& [name, answer] : {std::pair("fit", rule.fit), std::pair("trays", rule.trays)})
      if (!answer.empty() && answer != "yes" && answer != "no")
        return node.fail("{} '{}': write yes or no", name, answer);
    if (rule.why.empty()) return node.fail("a rule without its source; add why:");
    return rule;
  }

  static Result<MappingRules::Condition> read_condition(const YamlMap::Entry& entry) {
    static const std::set<std::string, std::less<>> numbers = {"gpus", "gpus_per_node", "layers", "seq", "tp",
                                                               "pp",   "micro_batch"};
    MappingRules::Condition condition;
    condition.column = entry.key;
    WEFT_TRY(const std::string text, entry.value.text(entry.key));
    if (!numbers.contains(entry.key)) {
      for (const std::string& word : split(lower(text), ' '))
        if (word.starts_with('!'))
          condition.not_words.push_back(word.substr(1));
        else
          condition.words.push_back(word);
      return condition;
    }
    condition.is_number = true;
    const std::size_t dots = text.find("..");
    const Result<std::int64_t> least = parse_integer(text.substr(0, dots), entry.key);
    if (!least.ok()) return entry.value.fail(least.error());
    condition.least = condition.most = *least;
    if (dots != std::string::npos) {
      const Result<std::int64_t> most = parse_integer(text.substr(dots + 2), entry.key);
      if (!most.ok()) return entry.value.fail(most.error());
      condition.most = *most;
    }
    return condition;
  }
};

bool MappingRules::Condition::holds(const MeasuredRow& row) const {
  if (is_number) {
    const std::optional<std::int64_t> value = row.number(column);
    return value && *value >= least && *value <= most;
  }
  const std::string cell = lower(row.text(column));
  const auto occurs = [&](const std::string& word) { return cell.find(word) != std::string::npos; };
  return std::all_of(words.begin(), words.end(), occurs) && std::none_of(not_words.begin(), not_words.end(), occurs);
}

bool MappingRules::Rule::fits(const MeasuredRow& row) const {
  return std::all_of(conditions.begin(), conditions.end(),
                     [&](const Condition& condition) { return condition.holds(row); });
}

std::string MappingRules::node_of(const MeasuredRow& row) const {
  std::string node;
  for (const Rule& rule : rules_)
    if (!rule.node.empty() && rule.fits(row)) node = rule.node;
  return node;
}

std::string_view name_of(MemoryKind kind) {
  constexpr std::array<std::string_view, 3> names = {"allocated", "reserved", "device"};
  return names[static_cast<std::size_t>(kind)];
}

Result<std::string> dtype_option(std::string_view cell) {
  if (cell.empty()) return std::string();
  const std::string text = lower(cell);
  const auto has = [&](std::string_view word) { return text.find(word) != std::string::npos; };
  if (has("fp8")) return std::string(has("mx") ? "mxfp8" : "fp8");
  if (has("fp4")) return std::string("nvfp4");
  const bool autocast = has("amp");
  for (std::string_view word : {"bf16", "fp16", "tf32", "fp32"})
    if (has(word)) return (autocast && word.substr(0, 2) != "tf" && word != "fp32" ? "amp-" : "") + std::string(word);
  return error("dtype '{}': unknown; write bf16, fp16, tf32, fp32, fp8 or amp_bf16", cell.substr(0, 40));
}

std::string zoo_model_named(std::string_view name) {
  const std::string wanted = spelt(name);
  std::string best, best_spelling;
  for (const std::string& model : model_names()) {
    std::vector<std::string> spellings = aliases_of(model);
    spellings.push_back(model);
    for (const std::string& each : spellings) {
      const std::string spelling = spelt(each);
      const std::size_t at = wanted.find(spelling);
      if (at == std::string::npos || spelling.size() <= best_spelling.size()) continue;
      // A number must end where the spelling's does: gpt3-1.3b is not in "gpt3-1.3billion", nor 7b in 17b.
      const std::size_t end = at + spelling.size();
      const auto digit = [](char c) { return (c >= '0' && c <= '9') || c == '.'; };
      if (end < wanted.size() && digit(wanted[end]) && digit(spelling.back())) continue;
      best = model;
      best_spelling = spelling;
    }
  }
  return best;
}

namespace {

// The usual division of layers that the stages do not divide: the first and the last stage, which have embedding and
// head, get fewer. Empty: they divide.
std::string uneven_stages(const MeasuredRow& row) {
  const std::int64_t layers = row.number("layers").value_or(0),
                     stages = row.number("pp").value_or(1) * row.number("vpp").value_or(1);
  if (stages < 2 || layers < stages || layers % stages == 0) return "";
  std::vector<std::int64_t> counts(static_cast<std::size_t>(stages), layers / stages + 1);
  for (std::int64_t less = stages - layers % stages, i = 0; i < less; ++i)
    --counts[static_cast<std::size_t>(i % 2 == 0 ? stages - 1 - i / 2 : i / 2)];
  return fmt::format("{}", fmt::join(counts, "+"));
}

}  // namespace

namespace {

std::optional<MemoryKind> memory_kind_named(std::string_view name) {
  for (const MemoryKind kind : {MemoryKind::Allocated, MemoryKind::Reserved, MemoryKind::Device})
    if (name_of(kind) == name) return kind;
  return std::nullopt;
}

// What a row with the command line's options says otherwise by a rule for its set: hardware or software that had no name
// when it was written.
void respell_word(std::string_view what, std::string& word, const std::string& as, const std::string& why,
                  MappedRow& row) {
  if (as.empty() || as == word) return;
  row.overrides.push_back(fmt::format("{} {} → {}: {}", what, word, as, why));
  word = as;
}

// A row with the command line's options.
MappedRow typed_row(const MeasuredRow& row) {
  MappedRow mapped;
  PlanRequest& request = mapped.request;
  const std::pair<std::string_view, std::string*> words[] = {
      {"model", &request.model}, {"cluster", &request.cluster}, {"strategy", &request.strategy},
      {"stack", &request.stack}, {"dtype", &request.dtype},     {"set", &mapped.set}};
  for (const auto& [column, word] : words) *word = row.text(column);
  request.device_count = row.number("devices");
  request.seq = row.number("seq");
  request.global_batch = row.number("global_batch");
  mapped.memory = memory_kind_named(row.text("mem_kind")).value_or(mapped.memory);
  return mapped;
}

}  // namespace

bool MappingRules::Rule::names_set() const {
  return std::any_of(conditions.begin(), conditions.end(),
                     [](const Condition& condition) { return condition.column == "set"; });
}

void MappingRules::respell(const Rule& rule, MappedRow& row) {
  std::string& cluster = row.request.cluster;
  const std::string nodes = cluster.substr(std::min(cluster.find(':'), cluster.size()));
  respell_word("cluster", cluster, rule.node.empty() ? std::string() : rule.node + nodes, rule.why, row);
  respell_word("stack", row.request.stack, rule.stack, rule.why, row);
  ItemList strategy;
  for (const std::string& item : split(row.request.strategy, ',')) {
    const std::size_t equals = item.find('=');
    strategy.set(item.substr(0, equals), equals == std::string::npos ? "" : item.substr(equals + 1));
  }
  for (const auto& [key, value] : rule.strategy) strategy.set(key, value);
  if (!rule.strategy.empty()) respell_word("strategy", row.request.strategy, strategy.print(), rule.why, row);
}

Result<MappedRow> MappingRules::map(const MeasuredRow& row, const std::string& stack) const {
  if (row.typed) {
    MappedRow typed = typed_row(row);
    for (const Rule& rule : rules_)
      if (rule.names_set() && rule.fits(row)) respell(rule, typed);
    if (!stack.empty()) typed.request.stack = stack;
    return typed;
  }
  MappedRow mapped;
  PlanRequest& request = mapped.request;
  std::string node, base, memory, seq;
  bool trays = false;  // gpus_per_node counts a tray's devices; nodes are filled
  ItemList model, strategy;
  for (std::string_view column : kShapes)
    if (const auto value = row.number(column)) model.set(std::string(column), fmt::format("{}", *value));
  for (std::string_view column : kDegrees) {
    const std::int64_t value = row.number(column).value_or(1);
    if (value > 1 || column == "tp" || column == "pp" || column == "dp")
      strategy.set(std::string(column), fmt::format("{}", value));
  }
  if (const std::string stages = uneven_stages(row); !stages.empty()) {
    strategy.set("stages", stages);
    mapped.overrides.push_back(
        fmt::format("stages → {}: the layers do not divide; the first and the last have fewer", stages));
  }
  if (!row.text("zero_stage").empty()) strategy.set("zero", std::string(row.text("zero_stage")));
  if (!row.text("recompute").empty()) strategy.set("recompute", lower(row.text("recompute")));
  WEFT_TRY(request.dtype, dtype_option(row.text("dtype")));

  const auto lay = [&](const Items& items, ItemList& over, bool fill, const std::string& why) {
    for (const auto& [key, value] : items) {
      const std::string before = over.get(key);
      if (fill && !before.empty()) continue;
      if (!fill && !before.empty() && before != value)
        mapped.overrides.push_back(fmt::format("{} {} → {}: {}", key, before, value, why));
      over.set(key, value);
    }
  };
  for (const Rule& rule : rules_) {
    if (!rule.fits(row)) continue;
    if (!rule.node.empty()) node = rule.node;
    if (!rule.trays.empty()) trays = rule.trays == "yes";
    if (!rule.stack.empty()) request.stack = rule.stack;
    if (!rule.base.empty()) base = rule.base;
    if (!rule.memory.empty()) memory = rule.memory;
    if (!rule.set.empty()) mapped.set = rule.set;
    if (!rule.score.empty()) mapped.timed = rule.score == "time";
    if (!rule.fit.empty()) mapped.fitted = rule.fit == "yes";
    if (!rule.seq.empty()) {
      mapped.overrides.push_back(fmt::format("seq {} → {}: {}", row.text("seq"), rule.seq, rule.why));
      seq = rule.seq;
    }
    if (request.dtype.empty()) request.dtype = rule.fill_dtype;
    lay(rule.fill_model, model, true, rule.why);
    lay(rule.fill_strategy, strategy, true, rule.why);
    lay(rule.model, model, false, rule.why);
    lay(rule.strategy, strategy, false, rule.why);
  }
  if (!row.text("stack").empty()) request.stack = row.text("stack");
  if (!stack.empty()) request.stack = stack;
  mapped.memory = memory_kind_named(memory).value_or(mapped.memory);

  // The model: by its shapes, else by its name. With shapes, the family determines the operators.
  const std::string named = zoo_model_named(row.text("model"));
  const bool has_shapes = row.number("hidden").has_value() && row.number("layers").has_value();
  request.model = has_shapes && !base.empty() ? base : named;
  if (request.model.empty())
    return error("model '{}': not a name of the zoo, nor of a family with layers and hidden to lay over it",
                 row.text("model").substr(0, 60));
  WEFT_TRY(const ModelInfo info, describe_model(request.model));
  request.seq = row.number("seq");
  if (const Result<std::int64_t> computed = parse_integer(seq, "seq"); computed.ok()) request.seq = *computed;
  if (info.kind == ModelKind::Language) {
    if (request.seq && *request.seq != info.context) model.set("context", fmt::format("{}", *request.seq));
    if (!model.empty()) request.model += ":" + model.print();
  } else {
    request.seq.reset();
  }

  // The cluster: nodes of the preset, enough for the row's devices.
  const std::int64_t gpus = *row.number("gpus");
  if (node.empty()) return error("gpu '{}': no rule names its node", row.text("gpu").substr(0, 40));
  WEFT_TRY(const Cluster one, parse_cluster(node));
  const std::int64_t per_node = one.device_count();
  const std::int64_t used = trays ? per_node : std::min(row.number("gpus_per_node").value_or(per_node), per_node);
  if (row.number("gpus_per_node").value_or(1) > per_node && gpus > per_node)
    return error("{} devices a node, but {} has {}: no node preset is known for it", *row.number("gpus_per_node"), node,
                 per_node);
  const std::int64_t nodes = (gpus + used - 1) / used;
  if (gpus != nodes * per_node) request.device_count = gpus;
  request.cluster = fmt::format("{}:{}", node, nodes);

  std::int64_t world = 1;
  for (std::string_view degree : {"tp", "pp", "dp", "cp"}) world *= row.number(degree).value_or(1);
  if (world != gpus) return error("tp·pp·dp·cp = {}, but the row has {} devices", world, gpus);
  const std::int64_t dp = row.number("dp").value_or(1);
  if (const Result<std::int64_t> fsdp = parse_integer(strategy.get("fsdp"), "fsdp"); fsdp.ok()) {
    strategy.erase("dp");
    strategy.erase("zero");
    strategy.set("fsdp", fmt::format("{}", std::min(*fsdp, dp)));
    if (dp > *fsdp) strategy.set("replicate", fmt::format("{}", dp / *fsdp));
  }
  request.strategy = strategy.print();
  request.global_batch = row.number("global_batch");
  request.micro_batch = row.number("micro_batch");
  return mapped;
}

Result<MappingRules> parse_mapping_rules(std::string_view text, std::string_view file) {
  WEFT_TRY(const YamlNode root, YamlNode::load(text, file, {"a file of rules", "rules: []"}));
  return RuleReader().run(root);
}

Result<MappingRules> read_mapping_rules(const std::string& path) {
  constexpr FileKind kRules{"a file of rules (.yaml)", std::size_t{1} << 20};
  WEFT_TRY(const std::string text, read_file(path, kRules));
  return parse_mapping_rules(text, path);
}

}  // namespace weft
