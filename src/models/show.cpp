#include "models/show.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>

namespace weft {
namespace {

struct Row {
  std::string name, parameters, flops, share;
};

// "0…79 (80×)"
std::string name_of_run(const ModuleSummary& module) {
  if (module.copies == 1) return module.name;
  return fmt::format("{}…{} ({}×)", module.name, std::stol(module.name) + module.copies - 1, module.copies);
}

// Characters as a terminal counts them: bytes that continue a UTF-8 sequence take no column.
std::size_t columns(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}
std::string padded(const std::string& text, std::size_t width) {
  return text + std::string(width - std::min(width, columns(text)), ' ');
}
std::string aligned_right(const std::string& text, std::size_t width) {
  return std::string(width - std::min(width, columns(text)), ' ') + text;
}

constexpr int kMostDepth = 4;
constexpr std::size_t kMostRows = 40;  // a screenful; deeper modules are left out beyond it

void add_rows(const ModuleSummary& module, const std::string& prefix, int depth, int most_depth, double copies,
              double all_flops, std::vector<Row>& rows) {
  // A module whose only contents is numbered children needs no line of its own: "layers" and "0…79" are one.
  const bool only_numbers =
      !module.children.empty() && std::all_of(module.children.begin(), module.children.end(), [](const auto& c) {
        return std::isdigit(static_cast<unsigned char>(c.name[0])) != 0;
      });
  std::int64_t inner = 0;
  for (const ModuleSummary& child : module.children) inner += child.operators * child.copies;
  if (only_numbers && inner == module.operators && module.copies == 1) {
    for (const ModuleSummary& child : module.children)
      add_rows(child, prefix + module.name + ".", depth, most_depth, copies, all_flops, rows);
    return;
  }
  copies *= static_cast<double>(module.copies);
  const double share = all_flops > 0 ? 100 * copies * module.flops_forward.value / all_flops : 0;
  rows.push_back({std::string(static_cast<std::size_t>(2 * depth), ' ') + prefix + name_of_run(module),
                  module.parameters > 0 ? human_count(static_cast<double>(module.parameters)) : "-",
                  module.flops_forward.value > 0 ? human(module.flops_forward) : "-",
                  module.flops_forward.value > 0 ? fmt::format("{:.1f} %", share) : "-"});
  if (depth + 1 < most_depth)
    for (const ModuleSummary& child : module.children)
      add_rows(child, "", depth + 1, most_depth, copies, all_flops, rows);
}

std::string module_table(const Graph& graph, Flops all) {
  const ModuleSummary root = module_tree(graph);
  std::vector<Row> rows;
  for (int depth = kMostDepth; depth >= 1; --depth) {
    rows = {{"module (figures of one copy)", "parameters", "FLOPs forward", "of all"}};
    for (const ModuleSummary& child : root.children) add_rows(child, "", 0, depth, 1, all.value, rows);
    if (rows.size() <= kMostRows) break;
  }
  // Operators directly in the root module: a CNN's stem and classifier.
  ModuleSummary rest{.name = "(others)",
                     .parameters = root.parameters,
                     .operators = root.operators,
                     .flops_forward = root.flops_forward};
  for (const ModuleSummary& child : root.children) {
    rest.parameters -= child.copies * child.parameters;
    rest.operators -= child.copies * child.operators;
    rest.flops_forward.value -= static_cast<double>(child.copies) * child.flops_forward.value;
  }
  if (rest.operators > 0) add_rows(rest, "", 0, 1, 1, all.value, rows);
  std::size_t widths[4] = {};
  for (const Row& row : rows) {
    widths[0] = std::max(widths[0], columns(row.name));
    widths[1] = std::max(widths[1], columns(row.parameters));
    widths[2] = std::max(widths[2], columns(row.flops));
    widths[3] = std::max(widths[3], columns(row.share));
  }
  std::string text;
  for (const Row& row : rows)
    text += fmt::format("  {}  {}  {}  {}\n", padded(row.name, widths[0]), aligned_right(row.parameters, widths[1]),
                        aligned_right(row.flops, widths[2]), aligned_right(row.share, widths[3]));
  return text;
}

// A whole number is written as an integer: FLOPs are exact below 2^53.
nlohmann::json count_of(Flops flops) {
  if (flops.value < 9e18) return static_cast<std::int64_t>(flops.value);
  return flops.value;
}

nlohmann::json to_json(const ModuleSummary& module) {
  nlohmann::json children = nlohmann::json::array();
  for (const ModuleSummary& child : module.children) children.push_back(to_json(child));
  return {{"name", module.name},
          {"copies", module.copies},
          {"parameters", module.parameters},
          {"operators", module.operators},
          {"flops_forward", count_of(module.flops_forward)},
          {"modules", std::move(children)}};
}

}  // namespace

std::string describe(const Model& model) {
  const ModelInfo& info = model.info;
  const ModelSummary summary = summarize(model.graph);
  std::string text = fmt::format("{}: {} model", info.name, name_of(info.kind));
  if (info.layers > 0) text += fmt::format(", {} layers", info.layers);
  if (info.context > 0) text += fmt::format(", context {}", grouped(info.context));
  if (info.tied_embeddings) text += ", tied embeddings";
  text += fmt::format("\n  shapes from {}\n", info.source);
  for (const std::string& note : info.notes) text += fmt::format("  {}\n", note);
  text += info.seq > 0 ? fmt::format("  figures for {} sample{} of {} tokens\n\n", grouped(info.batch),
                                     info.batch == 1 ? "" : "s", grouped(info.seq))
                       : fmt::format("  figures for {} sample{}\n\n", grouped(info.batch), info.batch == 1 ? "" : "s");

  const auto line = [&](std::string_view what, const std::string& value) {
    text += fmt::format("  {:<20} {}\n", what, value);
  };
  line("parameters", fmt::format("{} ({}, {})", grouped(summary.parameters),
                                 human_count(static_cast<double>(summary.parameters)), human(summary.parameter_bytes)));
  if (summary.active_parameters != summary.parameters)
    line("active per token", fmt::format("{} ({})", grouped(summary.active_parameters),
                                         human_count(static_cast<double>(summary.active_parameters))));
  line("FLOPs forward",
       fmt::format("{} (contractions; {} besides)", human(summary.flops_forward), human(summary.pointwise_forward)));
  line("FLOPs training", summary.flops_training
                             ? fmt::format("{} (forward and backward)", human(*summary.flops_training))
                             : "not trainable");
  line("activations", summary.activation_bytes
                          ? fmt::format("{} kept for backward, without recompute", human(*summary.activation_bytes))
                          : "-");
  line("operators", fmt::format("{}, {} of them different; {} tensors", grouped(summary.operators),
                                summary.unique_operators, grouped(summary.tensors)));
  // Kinds, wrapped.
  std::string kinds = "   ";
  for (const auto& [kind, count] : summary.operators_by_kind) {
    const std::string item = fmt::format(" {} {}", count, kind);
    if (columns(kinds) + columns(item) > 100) {
      text += kinds + "\n";
      kinds = "   ";
    }
    kinds += item + (kind == summary.operators_by_kind.back().first ? "" : ",");
  }
  text += kinds + "\n\n";
  return text + module_table(model.graph, summary.flops_forward);
}

nlohmann::json to_json(const Model& model) {
  const ModelInfo& info = model.info;
  const ModelSummary summary = summarize(model.graph);
  nlohmann::json kinds = nlohmann::json::object();
  for (const auto& [kind, count] : summary.operators_by_kind) kinds[kind] = count;
  nlohmann::json json = {{"name", info.name},
                         {"kind", name_of(info.kind)},
                         {"source", info.source},
                         {"layers", info.layers},
                         {"context", info.context > 0 ? nlohmann::json(info.context) : nlohmann::json()},
                         {"seq", info.seq > 0 ? nlohmann::json(info.seq) : nlohmann::json()},
                         {"batch", info.batch},
                         {"tied_embeddings", info.tied_embeddings},
                         {"parameters", summary.parameters},
                         {"active_parameters", summary.active_parameters},
                         {"parameter_bytes", summary.parameter_bytes.value},
                         {"flops_forward", count_of(summary.flops_forward)},
                         {"flops_training", nlohmann::json()},
                         {"pointwise_flops_forward", count_of(summary.pointwise_forward)},
                         {"activation_bytes", nlohmann::json()},
                         {"operators", summary.operators},
                         {"tensors", summary.tensors},
                         {"unique_operators", summary.unique_operators},
                         {"operators_by_kind", std::move(kinds)}};
  if (summary.flops_training) json["flops_training"] = count_of(*summary.flops_training);
  if (summary.activation_bytes) json["activation_bytes"] = summary.activation_bytes->value;
  json["modules"] = to_json(module_tree(model.graph))["modules"];
  return json;
}

std::string list_models() {
  std::string text, family;
  for (const std::string& name : model_names()) {
    // A family is what stands before the first digit or dash: "llama", "gpt", "resnet".
    const std::string stem = name.substr(0, std::min(name.find_first_of("-0123456789"), name.size()));
    text += text.empty() ? "" : stem == family ? "  " : "\n";
    text += name;
    family = stem;
  }
  return text + "\n";
}

}  // namespace weft
