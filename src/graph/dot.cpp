#include "graph/dot.h"

#include <fmt/format.h>

#include <vector>

namespace weft {
namespace {

std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c == '\n' ? std::string("\\n") : std::string(1, c);
  }
  return out + "\"";
}

std::string_view colour_of(const Op& op) {
  switch (op.phase) {
    case Phase::Forward:
      return "#dbeafe";
    case Phase::Backward:
      return "#fde68a";
    case Phase::Step:
      return "#dcfce7";
  }
  return "white";
}

}  // namespace

std::string to_dot(const Graph& graph) {
  IdVec<ModuleId, std::vector<ModuleId>> children(graph.modules().size());
  IdVec<ModuleId, std::vector<OpId>> ops(graph.modules().size());
  for (ModuleId module : graph.modules().ids())
    if (graph.modules()[module].parent.valid()) children[graph.modules()[module].parent].push_back(module);
  for (OpId op : graph.ops().ids()) ops[graph.ops()[op].module].push_back(op);

  std::string text = fmt::format(
      "digraph {} {{\n  rankdir=TB; node [shape=box, style=filled, fontname=sans]; edge [fontname=sans, fontsize=9];\n",
      quoted(graph.name()));
  const auto print_module = [&](auto&& self, ModuleId module, const std::string& indent) -> void {
    for (OpId op : ops[module])
      text += fmt::format("{}op{} [label={}, fillcolor=\"{}\"];\n", indent, op.index(),
                          quoted(fmt::format("{}\n{}", graph.ops()[op].name, name_of(graph.kind(op)))),
                          colour_of(graph.ops()[op]));
    for (ModuleId child : children[module]) {
      text += fmt::format("{}subgraph cluster_{} {{ label={};\n", indent, child.index(),
                          quoted(graph.modules()[child].name));
      self(self, child, indent + "  ");
      text += indent + "}\n";
    }
  };
  print_module(print_module, ModuleId(0), "  ");
  for (TensorId id : graph.tensors().ids()) {
    const Tensor& tensor = graph.tensors()[id];
    if (!tensor.producer.valid() && !graph.uses(id).empty())
      text += fmt::format("  t{} [label={}, shape={}, fillcolor=white];\n", id.index(), quoted(graph.name(id)),
                          tensor.kind == TensorKind::Parameter ? "ellipse" : "plain");
    const std::string from =
        tensor.producer.valid() ? fmt::format("op{}", tensor.producer.index()) : fmt::format("t{}", id.index());
    for (const Use& use : graph.uses(id))
      text += fmt::format("  {} -> op{} [label={}];\n", from, use.op.index(), quoted(print(tensor.type)));
  }
  return text + "}\n";
}

}  // namespace weft
