#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>

#include "base/checked.h"
#include "base/suggest.h"
#include "strategy/schedules.h"
#include "strategy/shorthand.h"

namespace weft {
namespace {

constexpr std::int64_t kMostStages = 1 << 20;

// Keys with a whole number, and the range of each.
struct NumberKey {
  std::string_view name;
  std::optional<std::int64_t> Shorthand::*field;
  std::int64_t least, most;
};
constexpr std::array<NumberKey, 16> kNumbers = {{
    {"tp", &Shorthand::tp, 1, kMostDegree},
    {"cp", &Shorthand::cp, 1, kMostDegree},
    {"pp", &Shorthand::pp, 1, kMostDegree},
    {"dp", &Shorthand::dp, 1, kMostDegree},
    {"ep", &Shorthand::ep, 1, kMostDegree},
    {"etp", &Shorthand::etp, 1, kMostDegree},
    {"vpp", &Shorthand::vpp, 1, 1024},
    {"zero", &Shorthand::zero, 0, 3},
    {"fsdp", &Shorthand::fsdp, 1, kMostDegree},
    {"replicate", &Shorthand::replicate, 1, kMostDegree},
    {"sp", &Shorthand::sp, 0, 1},
    {"mbs", &Shorthand::mbs, 1, kMostBatch},
    {"ga", &Shorthand::ga, 1, kMostBatch},
    {"h", &Shorthand::h, 1, kMostDegree},
    {"w", &Shorthand::w, 1, kMostDegree},
    {"tables", &Shorthand::tables, 0, 1},
}};
constexpr std::array<std::string_view, 8> kTexts = {"cp_mode", "recompute", "full",  "schedule",
                                                    "stages",  "shares",    "order", "offload"};
constexpr std::array<std::string_view, 9> kOrderAxes = {"tp", "cp", "ep", "dp", "pp", "h", "w", "replicate", "fsdp"};

std::vector<std::string> known_keys() {
  std::vector<std::string> keys;
  for (const NumberKey& key : kNumbers) keys.emplace_back(key.name);
  keys.insert(keys.end(), kTexts.begin(), kTexts.end());
  return keys;
}

std::string shown(std::string_view text) {
  return text.size() <= 60 ? std::string(text) : std::string(text.substr(0, 57)) + "...";
}

std::vector<std::string_view> split_on(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (;;) {
    const std::size_t end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

// Tables of plans have spaces for commas: "tp=8 pp=2" or "tp=8, pp=2" → "tp=8,pp=2".
std::string with_commas(std::string_view text) {
  std::string items;
  bool space = false;
  for (const char c : text) {
    if (c == ' ') {
      space = true;
      continue;
    }
    if (space && !items.empty() && items.back() != ',' && c != ',') items.push_back(',');
    space = false;
    items.push_back(c);
  }
  return items;
}

// "62x2" or "62×2": 62 stages of 2 layers each; "8": one of 8. No layers: not a number.
std::pair<std::int64_t, std::optional<std::int64_t>> counted(std::string_view part) {
  constexpr std::string_view kTimes = "×";
  std::size_t at = part.find(kTimes), width = kTimes.size();
  if (at == std::string_view::npos) at = part.find('x'), width = 1;
  std::int64_t count = 1;
  if (at != std::string_view::npos) {
    const Result<std::int64_t> times = parse_integer(part.substr(0, at), "");
    count = times.ok() ? *times : 0;
    part.remove_prefix(at + width);
  }
  const Result<std::int64_t> layers = parse_integer(part, "");
  return {count, layers.ok() && *layers >= 0 ? std::optional(*layers) : std::nullopt};
}

// "8+8+7", "1+62x2+1": these parts, each at most `most`; none where one is not such a number.
std::optional<std::vector<std::int64_t>> read_counts(std::span<const std::string_view> parts, std::int64_t most) {
  std::vector<std::int64_t> counts;
  for (std::string_view part : parts) {
    const auto [count, number] = counted(part);
    if (!number || *number > most || count < 1 || count + static_cast<std::int64_t>(counts.size()) > kMostStages)
      return std::nullopt;
    counts.insert(counts.end(), static_cast<std::size_t>(count), *number);
  }
  return counts;
}

// "layers.*.mlp+layers.*.attn.core:4+62x3+2": names, with the layers of a name behind a colon.
Result<std::vector<Recomputed>> parse_recomputed(std::string_view key, std::string_view value) {
  const std::vector<std::string_view> parts = split_on(value, '+');
  const auto is_count = [](std::string_view part) { return read_counts(std::span(&part, 1), kMostDegree).has_value(); };
  std::vector<Recomputed> read;
  for (std::size_t i = 0; i < parts.size();) {
    const std::size_t colon = std::min(parts[i].find(':'), parts[i].size());
    read.push_back({std::string(parts[i].substr(0, colon))});
    Recomputed& made = read.back();
    if (made.modules.empty()) return error("{}={}: write modules, layers.*.mlp, joined by +", key, shown(value));
    if (colon == parts[i++].size()) continue;
    std::vector<std::string_view> counts = {parts[i - 1].substr(colon + 1)};
    while (i < parts.size() && is_count(parts[i])) counts.push_back(parts[i++]);
    const auto layers = read_counts(counts, kMostDegree);
    if (!layers)
      return error("{}={}: behind the colon, write in how many first layers of every stage: {}:12, or {}:4+62x3+2", key,
                   shown(value), made.modules, made.modules);
    made.layers = *layers;
  }
  return read;
}

Status parse_text(std::string_view key, std::string_view value, Shorthand& into) {
  if (key == "cp_mode") {
    into.cp_mode = context_mode_named(value);
    if (!into.cp_mode) return error("cp_mode={}: write gather, a2a or ring", shown(value));
  } else if (key == "recompute") {
    WEFT_TRY(const std::vector<Recomputed> read, parse_recomputed(key, value));
    into.recompute = recompute_named(read.front().modules);
    if (!into.recompute || read.size() > 1)
      return error("recompute={}: write none, selective, full or op", shown(value));
    into.recompute_layers = read.front().layers;
    if (into.recompute == Recompute::None && !into.recompute_layers.empty())
      return error("recompute={}: nothing is recomputed in no layer; write none", shown(value));
  } else if (key == "full") {
    WEFT_TRY(into.full, parse_recomputed(key, value));
  } else if (key == "schedule") {
    if (!find_schedule(value))
      return error("schedule={}: unknown{}", shown(value),
                   did_you_mean_or_list(shown(value), pipeline_schedule_names()));
    into.schedule = value;
  } else if (key == "stages") {
    const auto counts = read_counts(split_on(value, '+'), kMostDegree);
    if (!counts)
      return error("stages={}: write the layers of every stage, 8+8+7+9, or alike ones counted, 1+62x2+1",
                   shown(value));
    into.stages = *counts;
  } else if (key == "shares") {
    const auto counts = read_counts(split_on(value, '+'), kMostBatch);
    if (!counts)
      return error("shares={}: write the share of every replica, 3+3+1+1, or alike ones counted, 2x3+2x1",
                   shown(value));
    if (std::find(counts->begin(), counts->end(), 0) != counts->end())
      return error("shares={}: a replica without samples waits all the time; leave its devices out (--devices)",
                   shown(value));
    into.shares = *counts;
  } else if (key == "order") {
    for (std::string_view part : split_on(value, '-')) {
      if (std::find(kOrderAxes.begin(), kOrderAxes.end(), part) == kOrderAxes.end())
        return error("order={}: '{}' is none of {}; write innermost first, tp-cp-ep-dp-pp", shown(value), shown(part),
                     fmt::join(kOrderAxes, ", "));
      if (std::find(into.order.begin(), into.order.end(), part) != into.order.end())
        return error("order={}: {} given twice", shown(value), part);
      into.order.emplace_back(part);
    }
  } else {
    for (std::string_view part : split_on(value, '+')) {
      const std::size_t colon = std::min(part.find(':'), part.size());
      int kind = 0;
      while (kind < kStoredKinds && name_of(static_cast<Stored>(kind)) != part.substr(0, colon)) ++kind;
      if (kind == kStoredKinds)
        return error("offload={}: write weights, gradients, optimizer or activations, joined by +", shown(value));
      Offload offload{static_cast<Stored>(kind), std::string(part.substr(std::min(colon + 1, part.size())))};
      if (colon + 1 == part.size())
        return error("offload={}: write the modules, {}:layers.*.mlp, or leave the colon out", shown(value),
                     name_of(offload.kind));
      if (std::find(into.offload.begin(), into.offload.end(), offload) != into.offload.end())
        return error("offload={}: {} given twice", shown(value), shown(part));
      into.offload.push_back(std::move(offload));
    }
  }
  return Ok{};
}

}  // namespace

std::string print_counted(const std::vector<std::int64_t>& stages) {
  std::string text;
  for (std::size_t i = 0; i < stages.size();) {
    std::size_t end = i;
    while (end < stages.size() && stages[end] == stages[i]) ++end;
    const std::size_t run = end - i;
    if (run >= 3) {
      text += fmt::format("{}{}x{}", text.empty() ? "" : "+", run, stages[i]);
      i = end;
    } else {
      text += fmt::format("{}{}", text.empty() ? "" : "+", stages[i++]);
    }
  }
  return text;
}

Result<Shorthand> parse_shorthand(std::string_view text) {
  Shorthand shorthand;
  if (text.empty()) return error("strategy: empty; write degrees, tp=8,pp=2, or the name of a .yaml file");
  std::vector<std::string_view> seen;
  const std::string items = with_commas(text);
  for (std::string_view item : split_on(items, ',')) {
    const std::size_t equals = item.find('=');
    if (equals == std::string_view::npos || equals == 0 || equals + 1 == item.size())
      return error("strategy '{}': write key=value, tp=8", shown(item));
    const std::string_view name = item.substr(0, equals), value = item.substr(equals + 1);
    if (std::find(seen.begin(), seen.end(), name) != seen.end())
      return error("strategy: {} given twice; keep one", shown(name));
    seen.push_back(name);
    const auto number =
        std::find_if(kNumbers.begin(), kNumbers.end(), [&](const auto& key) { return key.name == name; });
    if (number != kNumbers.end()) {
      const Result<std::int64_t> parsed = parse_integer(value, name);
      if (!parsed.ok() || *parsed < number->least || *parsed > number->most)
        return error("strategy: {}={}: a whole number from {} to {}", name, shown(value), number->least, number->most);
      shorthand.*number->field = *parsed;
    } else if (std::find(kTexts.begin(), kTexts.end(), name) != kTexts.end()) {
      const Status status = parse_text(name, value, shorthand);
      if (!status.ok()) return status.error().at("strategy");
    } else {
      return error("strategy: unknown key '{}'{}", shown(name), did_you_mean_or_list(shown(name), known_keys()));
    }
  }
  return shorthand;
}

std::vector<Recomputed> in_all_layers(const std::vector<std::string>& modules) {
  std::vector<Recomputed> made;
  for (const std::string& each : modules) made.push_back({each});
  return made;
}

std::string print(const Recomputed& recomputed) {
  return recomputed.modules + (recomputed.layers.empty() ? "" : ":" + print_counted(recomputed.layers));
}

std::string print_modules(const std::vector<Recomputed>& recomputed) {
  std::vector<std::string> modules;
  for (const Recomputed& each : recomputed) modules.push_back(print(each));
  return fmt::format("{}", fmt::join(modules, "+"));
}

std::string print(const Shorthand& shorthand) {
  std::vector<std::string> items;
  for (const NumberKey& key : kNumbers)
    if (const auto& value = shorthand.*key.field) items.push_back(fmt::format("{}={}", key.name, *value));
  if (shorthand.cp_mode) items.push_back(fmt::format("cp_mode={}", name_of(*shorthand.cp_mode)));
  if (shorthand.recompute)
    items.push_back("recompute=" +
                    print(Recomputed{std::string(name_of(*shorthand.recompute)), shorthand.recompute_layers}));
  if (!shorthand.full.empty()) items.push_back("full=" + print_modules(shorthand.full));
  if (!shorthand.schedule.empty()) items.push_back("schedule=" + shorthand.schedule);
  if (!shorthand.stages.empty()) items.push_back("stages=" + print_counted(shorthand.stages));
  if (!shorthand.shares.empty()) items.push_back("shares=" + print_counted(shorthand.shares));
  if (!shorthand.order.empty()) items.push_back(fmt::format("order={}", fmt::join(shorthand.order, "-")));
  std::vector<std::string> offload;
  for (const auto& [kind, modules] : shorthand.offload)
    offload.push_back(std::string(name_of(kind)) + (modules.empty() ? "" : ":") + modules);
  if (!offload.empty()) items.push_back(fmt::format("offload={}", fmt::join(offload, "+")));
  return fmt::format("{}", fmt::join(items, ","));
}

bool names_a_file(std::string_view argument) {
  return argument.ends_with(".yaml") || argument.ends_with(".yml") || argument.find('=') == std::string_view::npos;
}
}  // namespace weft
