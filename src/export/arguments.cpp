#include "export/arguments.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "base/embedded.h"
#include "base/suggest.h"
#include "base/units.h"

namespace weft {

std::span<const EmbeddedFile> target_tables();  // written by cmake/embed.cmake

namespace {

// "read --recompute-granularity full|selective": one argument a line; of two roles several.
std::vector<KnownArgument> parse_table(std::string_view text) {
  std::vector<KnownArgument> table;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = text.substr(at, end - at);
    at = end + 1;
    if (line.empty() || line[0] == '#') continue;
    std::vector<std::string> words;
    for (std::size_t i = 0; i < line.size();) {
      const std::size_t stop = std::min(line.find(' ', i), line.size());
      words.emplace_back(line.substr(i, stop - i));
      i = stop + 1;
    }
    const auto rest = [&](std::size_t from) {
      return fmt::format("{}", fmt::join(words.begin() + static_cast<std::ptrdiff_t>(from), words.end(), " "));
    };
    const std::string role = words[0];
    if (role == "unmodelled" || role == "elsewhere") {
      for (std::size_t i = 1; i < words.size(); ++i)
        table.push_back({words[i], role == "elsewhere" ? ArgumentRole::Elsewhere : ArgumentRole::Unmodelled});
      continue;
    }
    WEFT_CHECK(words.size() >= 3, "table of arguments: '{}'", line);
    KnownArgument known{words[1], ArgumentRole::Read};
    if (role == "read") {
      known.several = words.back() == "...";
      known.type = words[2];
      const auto is_type = [&](const char* type) { return known.type == type; };
      constexpr std::array kTypes = {"switch", "int", "number", "word", "bool", "list", "policy", "model"};
      if (std::none_of(kTypes.begin(), kTypes.end(), is_type)) {
        for (std::size_t i = 0; i <= known.type.size();) {
          const std::size_t stop = std::min(known.type.find('|', i), known.type.size());
          known.choices.push_back(known.type.substr(i, stop - i));
          i = stop + 1;
        }
        known.type = "word";
      }
    } else {
      known.role = role == "refused" ? ArgumentRole::Refused : ArgumentRole::Gone;
      known.remark = rest(2);
    }
    table.push_back(std::move(known));
  }
  std::sort(table.begin(), table.end(), [](const auto& a, const auto& b) { return a.flag < b.flag; });
  return table;
}

template <class Number>
std::optional<Number> parsed(std::string_view text) {
  Number value{};
  const auto [rest, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (status != std::errc() || rest != text.data() + text.size()) return {};
  return value;
}

bool is_flag(std::string_view text) { return text.size() > 2 && text.starts_with("--"); }

}  // namespace

std::string misfit(const KnownArgument& known, const std::vector<std::string>& values) {
  if (known.type == "switch") return values.empty() ? "" : fmt::format("takes no value, not '{}'", values[0]);
  if (values.empty()) return "its value is missing";
  if (values.size() > 1 && !known.several) return fmt::format("takes one value; '{}' is another", values[1]);
  for (const std::string& value : values) {
    if (known.type == "bool" && value != "true" && value != "false")
      return fmt::format("'{}' is not true or false", value);
    if (known.type == "int" && !parsed<std::int64_t>(value)) return fmt::format("'{}' is no whole number", value);
    if (known.type == "number") {
      const auto number = parsed<double>(value);
      if (!number || !(*number >= -1e30 && *number <= 1e30)) return fmt::format("'{}' is no number", value);
    }
    if (!known.choices.empty() && std::find(known.choices.begin(), known.choices.end(), value) == known.choices.end())
      return fmt::format("'{}' is none of {}", value, fmt::join(known.choices, ", "));
  }
  return "";
}

const std::vector<KnownArgument>& deepspeed_keys() {
  static const std::vector<KnownArgument> table = parse_table(target_tables()[1].text);
  return table;
}

const std::vector<KnownArgument>& torchtitan_fields() {
  static const std::vector<KnownArgument> table = parse_table(target_tables()[2].text);
  return table;
}

const std::vector<KnownArgument>& megatron_arguments() {
  static const std::vector<KnownArgument> table = parse_table(target_tables()[0].text);
  return table;
}

const KnownArgument* find_megatron_argument(std::string_view flag) {
  const auto& table = megatron_arguments();
  const auto found = std::lower_bound(table.begin(), table.end(), flag,
                                      [](const auto& known, auto name) { return known.flag < name; });
  return found != table.end() && found->flag == flag ? &*found : nullptr;
}

Result<Arguments> Arguments::read(const std::vector<LaunchWord>& words, std::string_view file) {
  Arguments arguments;
  arguments.file_ = file;
  const auto fail = [&](int line, const std::string& message) { return Error{message}.at(file, line); };
  std::vector<std::string> names;
  for (std::size_t i = 0; i < words.size();) {
    const LaunchWord& word = words[i++];
    std::string flag = word.text;
    if (!is_flag(flag)) {
      // A whole word that is unknown ("$@", "$DATA_ARGS") stands for arguments that are not here.
      if (flag.empty() && !word.unset.empty()) continue;
      return fail(word.line, fmt::format("'{}': an argument begins with --", flag.substr(0, 60)));
    }
    Argument argument{flag, {}, word.line};
    std::string unset = word.unset;
    if (const std::size_t equals = flag.find('='); equals != std::string::npos) {
      argument.flag = flag.substr(0, equals);
      argument.values.push_back(flag.substr(equals + 1));
    }
    const KnownArgument* known = find_megatron_argument(argument.flag);
    while (i < words.size() && !is_flag(words[i].text)) {
      if (words[i].text.empty() && !words[i].unset.empty() && known && known->type == "switch") break;
      if (unset.empty()) unset = words[i].unset;
      argument.values.push_back(words[i++].text);
    }
    if (known == nullptr) {
      if (names.empty())
        for (const KnownArgument& each : megatron_arguments()) names.push_back(each.flag);
      return fail(word.line, fmt::format("{}: no argument of Megatron-LM core 0.20.0{}", argument.flag.substr(0, 60),
                                         did_you_mean(argument.flag.substr(0, 60), names)));
    }
    if (const Argument* before = arguments.find(argument.flag))
      return fail(word.line, fmt::format("{}: given twice, on line {} too; keep one", argument.flag, before->line));
    if (known->role == ArgumentRole::Refused)
      return fail(word.line, fmt::format("{}: {}", argument.flag, known->remark));
    if (known->role == ArgumentRole::Gone)
      return fail(word.line, fmt::format("{}: removed from or deprecated in Megatron-LM core 0.20.0; instead: {}",
                                         argument.flag, known->remark));
    if (known->role == ArgumentRole::Read) {
      if (!unset.empty())
        return fail(word.line, fmt::format("{}: its value is {}, which this file does not set; write the value",
                                           argument.flag, unset));
      if (const std::string why = misfit(*known, argument.values); !why.empty())
        return fail(word.line, fmt::format("{}: {}", argument.flag, why));
    } else if (!unset.empty()) {
      argument.values.clear();  // unknown, and of no consequence
      argument.values.push_back(unset);
    }
    arguments.all_.push_back(std::move(argument));
  }
  return arguments;
}

void Arguments::add(std::string flag, std::vector<std::string> values) {
  const KnownArgument* known = find_megatron_argument(flag);
  WEFT_CHECK(known && known->role == ArgumentRole::Read, "{} is not in the table of arguments", flag);
  const std::string why = misfit(*known, values);
  WEFT_CHECK(why.empty() && !has(flag), "{}: {}", flag, why.empty() ? "written twice" : why);
  all_.push_back({std::move(flag), std::move(values), 0});
}

const Argument* Arguments::find(std::string_view flag) const {
  const auto found = std::find_if(all_.begin(), all_.end(), [&](const Argument& each) { return each.flag == flag; });
  return found == all_.end() ? nullptr : &*found;
}

std::int64_t Arguments::integer(std::string_view flag, std::int64_t otherwise) const {
  const Argument* found = find(flag);
  return found ? parsed<std::int64_t>(found->values[0]).value_or(otherwise) : otherwise;
}
double Arguments::number(std::string_view flag, double otherwise) const {
  const Argument* found = find(flag);
  return found ? parsed<double>(found->values[0]).value_or(otherwise) : otherwise;
}
std::string Arguments::word(std::string_view flag, std::string_view otherwise) const {
  const Argument* found = find(flag);
  return found ? found->values[0] : std::string(otherwise);
}

Error Arguments::fail(std::string_view flag, std::string_view message) const {
  const Argument* found = find(flag);
  const Error error{fmt::format("{}: {}", flag, message)};
  return found ? error.at(file_, found->line) : error.at(file_);
}

}  // namespace weft
