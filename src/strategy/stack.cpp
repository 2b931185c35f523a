#include "strategy/stack.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/checked.h"
#include "base/embedded.h"
#include "base/suggest.h"
#include "base/yaml_node.h"

namespace weft {

std::span<const EmbeddedFile> stack_presets();  // written by cmake/embed.cmake

namespace {

Status read_value(const YamlNode& node, std::string_view what, Bytes& value) {
  WEFT_TRY(const std::string text, node.text(what));
  const Result<Bytes> parsed = parse_bytes(text);
  if (!parsed.ok()) return node.fail("{} {}", what, parsed.error().message);
  if (parsed->value < 0) return node.fail("{} '{}': not below zero", what, text);
  value = *parsed;
  return Ok{};
}
Status read_value(const YamlNode& node, std::string_view what, Seconds& value) {
  WEFT_TRY(const std::string text, node.text(what));
  const Result<Seconds> parsed = parse_seconds(text);
  if (!parsed.ok()) return node.fail("{} {}", what, parsed.error().message);
  if (parsed->value < 0 || parsed->value > 1) return node.fail("{} '{}': from 0 to 1s", what, text);
  value = *parsed;
  return Ok{};
}
Status read_value(const YamlNode& node, std::string_view what, int& value) {
  WEFT_TRY(const std::int64_t parsed, node.integer(what, 0, 1'000'000));
  value = static_cast<int>(parsed);
  return Ok{};
}
Status read_value(const YamlNode& node, std::string_view what, double& value) {
  WEFT_TRY(value, node.number(what));
  if (!(value > 0 && value <= 1)) return node.fail("{} {}: above 0, at most 1", what, value);
  return Ok{};
}
Status read_value(const YamlNode& node, std::string_view what, bool& value) {
  WEFT_TRY(value, node.boolean(what));
  return Ok{};
}
Status read_value(const YamlNode& node, std::string_view what, std::optional<DType>& value) {
  WEFT_TRY(const std::string text, node.text(what));
  value = dtype_named(text);
  if (text != "none" && (!value || !is_floating(*value)))
    return node.fail("{} '{}': write bf16, f16, f32, f8 or none", what, text.substr(0, 40));
  return Ok{};
}

Status read_value(const YamlNode& node, std::string_view what, std::optional<Parts>& value) {
  WEFT_TRY(const std::string text, node.text(what));
  value.reset();
  for (Parts parts : {Parts::Padded, Parts::Grouped})
    if (text == name_of(parts)) value = parts;
  if (!value && text != "cheaper")
    return node.fail("{} '{}': write padded, grouped or cheaper", what, text.substr(0, 40));
  return Ok{};
}

Status read_value(const YamlNode& node, std::string_view what, Recipe& value) {
  WEFT_TRY(const std::string text, node.text(what));
  const std::optional<Recipe> recipe = recipe_named(text);
  std::vector<std::string_view> words;
  for (const RecipeTraits& each : kRecipes) words.push_back(each.word);
  if (!recipe) return node.fail("{} '{}': write one of {}", what, text.substr(0, 40), fmt::join(words, ", "));
  value = *recipe;
  return Ok{};
}

// Names of abilities, separated by spaces; "all"; "dp": none but data parallelism, which every stack has.
Status read_value(const YamlNode& node, std::string_view what, Abilities& value) {
  WEFT_TRY(const std::string text, node.text(what));
  value = {};
  if (text == "all") {
    value = Abilities::all();
    return Ok{};
  }
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find(' ', at), text.size());
    const std::string word = text.substr(at, end - at);
    at = end + 1;
    if (word == "dp") continue;
    const std::optional<Ability> ability = ability_named(word);
    if (!ability)
      return node.fail("{}: '{}' is no ability; src/strategy/abilities.h has them", what, word.substr(0, 40));
    value.add(*ability);
  }
  return Ok{};
}

using Citations = std::map<std::string, std::string>;

class StackReader {
 public:
  // Overrides knobs of existing stacks.
  Status lay_over(const YamlNode& root, std::vector<SoftwareStack>& stacks) {
    WEFT_TRY(const YamlMap fields, root.map("stacks file"));
    WEFT_TRY_OK(read_sources(fields));
    const YamlNode* section = fields.find("stacks");
    if (!section) return Ok{};
    WEFT_TRY(const YamlMap entries, section->map("stacks"));
    for (const YamlMap::Entry& entry : entries.entries()) {
      const auto known = std::find_if(stacks.begin(), stacks.end(),
                                      [&](const SoftwareStack& stack) { return stack.name == entry.key; });
      if (known == stacks.end()) return entry.key_node.fail("stack '{}': unknown", entry.key);
      WEFT_TRY(const YamlMap values, entry.value.map(fmt::format("stack '{}'", entry.key)));
      for (const Knob& knob : stack_knobs())
        if (const YamlNode* node = values.find(knob.name))
          WEFT_TRY_OK(std::visit([&](auto field) { return figure(*node, knob.name, (*known).*field); }, knob.field));
    }
    return Ok{};
  }

  Result<std::vector<SoftwareStack>> run(const YamlNode& root) {
    static const std::string sections[] = {"sources", "stacks"};
    WEFT_TRY(const YamlMap fields, root.map("stacks file", sections));
    WEFT_TRY_OK(read_sources(fields));
    WEFT_TRY(const YamlNode stacks, fields.require("stacks"));
    WEFT_TRY(const YamlMap entries, stacks.map("stacks"));
    for (const YamlMap::Entry& entry : entries.entries()) {
      WEFT_TRY(SoftwareStack stack, one(entry));
      done_.push_back(std::move(stack));
    }
    for (const SoftwareStack& stack : done_)
      if (!stack.in_bf16.empty() && std::none_of(done_.begin(), done_.end(),
                                                 [&](const SoftwareStack& each) { return each.name == stack.in_bf16; }))
        return stacks.fail("stack '{}': in_bf16 '{}' is no stack of this file", stack.name, stack.in_bf16);
    return std::move(done_);
  }

 private:
  Status read_sources(const YamlMap& fields) {
    const YamlNode* node = fields.find("sources");
    if (!node) return Ok{};
    WEFT_TRY(const YamlMap sources, node->map("sources"));
    for (const YamlMap::Entry& entry : sources.entries()) {
      WEFT_TRY(citations_[entry.key], entry.value.text("source"));
    }
    return Ok{};
  }

  Result<SoftwareStack> one(const YamlMap::Entry& entry) {
    std::vector<std::string> known = {"title", "like", "in_bf16"};
    for (const Knob& knob : stack_knobs()) known.emplace_back(knob.name);
    WEFT_TRY(const YamlMap fields, entry.value.map(fmt::format("stack '{}'", entry.key), known));
    SoftwareStack stack;
    const YamlNode* like = fields.find("like");
    if (like) {
      WEFT_TRY(const std::string base, like->text("like"));
      std::vector<std::string> names;
      for (const SoftwareStack& candidate : done_) {
        names.push_back(candidate.name);
        if (candidate.name == base) stack = candidate;
      }
      if (stack.name.empty())
        return like->fail("stack '{}': like '{}', which is not above it{}", entry.key, base, did_you_mean(base, names));
    }
    stack.name = entry.key;
    stack.title = entry.key;
    if (const YamlNode* title = fields.find("title")) {
      WEFT_TRY(stack.title, title->text("title"));
    }
    stack.in_bf16.clear();
    if (const YamlNode* other = fields.find("in_bf16")) {
      WEFT_TRY(stack.in_bf16, other->text("in_bf16"));
    }
    for (const Knob& knob : stack_knobs()) {
      const YamlNode* node = fields.find(knob.name);
      if (!node && like) continue;
      if (!node)
        return entry.key_node.fail("stack '{}': {} missing; give it, or a stack it is like", entry.key, knob.name);
      WEFT_TRY_OK(std::visit([&](auto field) { return figure(*node, knob.name, stack.*field); }, knob.field));
    }
    return stack;
  }

  template <class T>
  Status figure(const YamlNode& node, std::string_view what, Figure<T>& into) {
    if (!node.is_list()) {
      into.source = node.place();
      return read_value(node, what, into.value);
    }
    WEFT_TRY(const std::vector<YamlNode> pair, node.list(what));
    if (pair.size() != 2) return node.fail("{}: write [value, source]", what);
    WEFT_TRY_OK(read_value(pair[0], what, into.value));
    WEFT_TRY(into.source, pair[1].text("source"));
    if (const auto found = citations_.find(into.source); found != citations_.end()) into.source = found->second;
    return Ok{};
  }

  Citations citations_;
  std::vector<SoftwareStack> done_;
};

Status lay_over(std::string_view text, std::string_view file, std::vector<SoftwareStack>& stacks) {
  WEFT_TRY(const YamlNode root, YamlNode::load(text, file, {"a file of constants", "stacks:"}));
  return StackReader().lay_over(root, stacks);
}

const std::vector<SoftwareStack>& built_in() {
  static const std::vector<SoftwareStack> stacks = [] {
    // The stacks, then constants fitted to runs. A preset that does not parse is a bug in Weft.
    const std::span<const EmbeddedFile> files = stack_presets();
    Result<std::vector<SoftwareStack>> read = parse_stacks(files[0].text, files[0].path);
    WEFT_CHECK(read.ok(), "{}", read.error().message);
    for (const EmbeddedFile& file : files.subspan(1)) {
      const Status laid = lay_over(file.text, file.path, *read);
      WEFT_CHECK(laid.ok(), "{}", laid.error().message);
    }
    return std::move(read).value();
  }();
  return stacks;
}

std::string shown(Bytes bytes) { return bytes.value == 0 ? "all at once" : human(bytes); }
std::string shown(Seconds seconds) { return human(seconds); }
std::string shown(int number) { return fmt::format("{}", number); }
std::string shown(double number) { return fmt::format("{:g}", number); }
std::string shown(bool flag) { return flag ? "true" : "false"; }
std::string shown(const std::optional<Parts>& parts) { return parts ? std::string(name_of(*parts)) : "cheaper"; }
std::string shown(Recipe recipe) { return std::string(traits_of(recipe).word); }
std::string shown(Abilities abilities) { return print(abilities); }
std::string shown(const std::optional<DType>& dtype) { return dtype ? std::string(name_of(*dtype)) : "none"; }

}  // namespace

int SoftwareStack::bytes_per_parameter() const {
  const auto bytes = [](const Figure<std::optional<DType>>& dtype) {
    return dtype.value ? static_cast<int>(bytes_of(*dtype.value, 1)) : 0;
  };
  return bytes(weight_dtype) + bytes(gradient_dtype) + bytes(master_dtype) + 2 * bytes(moment_dtype);
}

Bytes SoftwareStack::kept_for(std::int64_t parameters) const {
  const Bytes kept{parameters * kept_per_parameter.value};
  return kept_most.value.value > 0 ? std::min(kept, kept_most.value) : kept;
}

const std::vector<Knob>& stack_knobs() {
  using S = SoftwareStack;
  static const std::vector<Knob> knobs = {
      {"gradient_bucket", &S::gradient_bucket},
      {"scatter_bucket", &S::scatter_bucket},
      {"flat_gradients", &S::flat_gradients},
      {"gradient_overlap", &S::gradient_overlap},
      {"prefetch_forward", &S::prefetch_forward},
      {"prefetch_backward", &S::prefetch_backward},
      {"gathers_in_flight", &S::gathers_in_flight},
      {"flat_parameters", &S::flat_parameters},
      {"reshard_after_forward", &S::reshard_after_forward},
      {"tensor_overlap", &S::tensor_overlap},
      {"tensor_chunks", &S::tensor_chunks},
      {"p2p_overlap", &S::p2p_overlap},
      {"p2p_in_parts", &S::p2p_in_parts},
      {"uneven_parts", &S::uneven_parts},
      {"tokens_once", &S::tokens_once},
      {"keep_gathered_input", &S::keep_gathered_input},
      {"fused_attention", &S::fused_attention},
      {"softmax_keys", &S::softmax_keys},
      {"fused_norm", &S::fused_norm},
      {"fused_cross_entropy", &S::fused_cross_entropy},
      {"wide_logits", &S::wide_logits},
      {"logit_copies", &S::logit_copies},
      {"fused_bias_activation", &S::fused_bias_activation},
      {"fused_optimizer", &S::fused_optimizer},
      {"fused_rotary", &S::fused_rotary},
      {"fused_pointwise", &S::fused_pointwise},
      {"head_copies", &S::head_copies},
      {"fused_accumulation", &S::fused_accumulation},
      {"fused_batch_norm", &S::fused_batch_norm},
      {"channels_last", &S::channels_last},
      {"passes_between", &S::passes_between},
      {"product_rate", &S::product_rate},
      {"collective_rate", &S::collective_rate},
      {"weft_kernels", &S::weft_kernels},
      {"attention_generation", &S::attention_generation},
      {"vocabulary_multiple", &S::vocabulary_multiple},
      {"kept_per_parameter", &S::kept_per_parameter},
      {"kept_most", &S::kept_most},
      {"autocast", &S::autocast},
      {"held_gradients", &S::held_gradients},
      {"narrow_weights", &S::narrow_weights},
      {"narrow_gathers", &S::narrow_gathers},
      {"recipe", &S::recipe},
      {"keeps_casts", &S::keeps_casts},
      {"dense_dispatch", &S::dense_dispatch},
      {"fused_router", &S::fused_router},
      {"fused_permutation", &S::fused_permutation},
      {"pads_by_copy", &S::pads_by_copy},
      {"sync_on_counts", &S::sync_on_counts},
      {"context", &S::context},
      {"communicator", &S::communicator},
      {"fragmentation", &S::fragmentation},
      {"weight_dtype", &S::weight_dtype},
      {"weight_communication_dtype", &S::weight_communication_dtype},
      {"gradient_dtype", &S::gradient_dtype},
      {"gradient_communication_dtype", &S::gradient_communication_dtype},
      {"master_dtype", &S::master_dtype},
      {"moment_dtype", &S::moment_dtype},
      {"host_per_operator", &S::host_per_operator},
      {"host_per_gradient", &S::host_per_gradient},
      {"host_per_cast", &S::host_per_cast},
      {"host_per_update", &S::host_per_update},
      {"host_per_collective", &S::host_per_collective},
      {"run_ahead", &S::run_ahead},
      {"clip_gradients", &S::clip_gradients},
      {"sync_on_norm", &S::sync_on_norm},
      {"blocking_launches", &S::blocking_launches},
      {"host_computes", &S::host_computes},
      {"graph_capture", &S::graph_capture},
      {"nvls", &S::nvls},
      {"smaller_last_batch", &S::smaller_last_batch},
      {"can", &S::can},
  };
  return knobs;
}

std::vector<std::string> stack_names() {
  std::vector<std::string> names;
  for (const SoftwareStack& stack : built_in()) names.push_back(stack.name);
  return names;
}

namespace {

// The knobs of "key=value,key=value" laid over a stack.
Result<SoftwareStack> with_knobs(SoftwareStack stack, std::string_view items) {
  std::vector<std::string> known;
  for (const Knob& knob : stack_knobs()) known.emplace_back(knob.name);
  std::string text = fmt::format("stacks:\n  {}:\n", stack.name);
  const std::string name = fmt::format("{}:{}", stack.name, items);
  for (std::size_t at = 0; at <= items.size();) {
    const std::size_t end = std::min(items.find(',', at), items.size());
    const std::string_view item = items.substr(at, end - at);
    at = end + 1;
    const std::size_t equals = item.find('=');
    constexpr std::string_view kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    if (equals == std::string_view::npos || equals == 0 || equals + 1 == item.size() ||
        item.substr(equals + 1).find_first_not_of(kPlain) != std::string_view::npos)
      return error("stack '{}': write knob=value after the colon, {}:gradient_overlap=false", name.substr(0, 80),
                   stack.name);
    const std::string key(item.substr(0, equals));
    if (std::find(known.begin(), known.end(), key) == known.end())
      return error("stack '{}': unknown knob '{}'{}", name.substr(0, 80), key.substr(0, 40), did_you_mean(key, known));
    text += fmt::format("    {}: {}\n", key, item.substr(equals + 1));
  }
  std::vector<SoftwareStack> one{std::move(stack)};
  if (const Status laid = lay_over(text, "--stack", one); !laid.ok())
    return error("stack '{}': {}", name.substr(0, 80), laid.error().message);
  one[0].name = name;
  one[0].title += fmt::format(", with {}", items);
  if (!one[0].in_bf16.empty()) one[0].in_bf16 += fmt::format(":{}", items);
  return std::move(one[0]);
}

}  // namespace

Result<SoftwareStack> find_stack(std::string_view name) {
  if (const std::size_t colon = name.find(':'); colon != std::string_view::npos) {
    WEFT_TRY(SoftwareStack base, find_stack(name.substr(0, colon)));
    return with_knobs(std::move(base), name.substr(colon + 1));
  }
  for (const SoftwareStack& stack : built_in())
    if (stack.name == name) return stack;
  const std::vector<std::string> names = stack_names();
  const std::string suggestion = did_you_mean(name, names);
  return error("stack '{}': unknown{}", name.substr(0, 60),
               suggestion.empty() ? fmt::format("; known are {}", fmt::join(names, ", ")) : suggestion);
}

Result<std::vector<SoftwareStack>> parse_stacks(std::string_view text, std::string_view file) {
  WEFT_TRY(const YamlNode root,
           YamlNode::load(text, file, {"a file of stacks", "stacks: {mine: {like: megatron-lm}}"}));
  return StackReader().run(root);
}

std::string print(const SoftwareStack& stack) {
  std::string text =
      fmt::format("{} ({}), {} bytes per parameter\n", stack.name, stack.title, stack.bytes_per_parameter());
  for (const Knob& knob : stack_knobs())
    std::visit(
        [&](auto field) {
          text += fmt::format("  {:<29}{:<12}{}\n", knob.name, shown((stack.*field).value), (stack.*field).source);
        },
        knob.field);
  return text;
}

std::int64_t padded_vocabulary(const SoftwareStack& stack, std::int64_t vocabulary, std::int64_t tp) {
  const std::int64_t unit = stack.vocabulary_multiple.value * tp;
  return unit <= 0 ? vocabulary : ceil_div(vocabulary, unit) * unit;
}

}  // namespace weft
