#include "graph/text.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/suggest.h"

namespace weft {
namespace {

std::string_view keyword(const Op& op) {
  if (op.forward.valid()) return "grad";
  return op.phase == Phase::Forward ? "op" : op.phase == Phase::Backward ? "back" : "step";
}

std::string print_op(const Graph& graph, OpId op, const PrintOptions& options) {
  const Op& described = graph.ops()[op];
  const Signature& signature = graph.signature(op);
  std::vector<std::string> inputs, outputs;
  for (std::size_t i = 0; i < signature.inputs.size(); ++i) {
    const std::string name = graph.name(graph.inputs(op)[i]);
    inputs.push_back(described.forward.valid() ? signature.inputs[i].name + ": " + name : name);
  }
  for (TensorId output : graph.outputs(op)) outputs.push_back(print(graph.tensors()[output].type));
  std::string line = fmt::format("{} {} = {}", keyword(described), graph.name(op), name_of(signature.kind));
  if (described.forward.valid()) {
    std::vector<std::string> writes;
    for (const Operand& output : signature.outputs) writes.push_back(output.name);
    line += fmt::format("@{}({}) of {} -> {}", signature.gradient, fmt::join(inputs, ", "),
                        graph.name(described.forward), fmt::join(writes, ", "));
  } else {
    const std::string attrs = print(signature.attrs);
    line += fmt::format("({}){}{} -> {}", fmt::join(inputs, ", "), attrs.empty() ? "" : " ", attrs,
                        fmt::join(outputs, ", "));
  }
  if (options.axes) line += fmt::format("  # {}; {}", notation_of(signature), axis_sizes_of(signature));
  return line;
}

}  // namespace

std::string print(const Graph& graph, const PrintOptions& options) {
  std::string text = fmt::format("graph {}\n", graph.name());
  OpId last;
  for (TensorId id : graph.tensors().ids()) {
    const Tensor& tensor = graph.tensors()[id];
    if (!tensor.producer.valid()) {
      text += fmt::format("{} {} {}\n", name_of(tensor.kind), graph.name(id), print(tensor.type));
    } else if (tensor.producer != last) {
      last = tensor.producer;
      text += print_op(graph, last, options) + "\n";
    }
  }
  for (TensorId result : graph.results()) text += fmt::format("result {}\n", graph.name(result));
  return text;
}

namespace {

std::string_view trim(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t' || text.front() == '\r')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t' || text.back() == '\r')) text.remove_suffix(1);
  return text;
}

// Up to the first space; the rest stays in `text`.
std::string_view take_word(std::string_view& text) {
  text = trim(text);
  const std::size_t end = std::min(text.find(' '), text.size());
  const std::string_view word = text.substr(0, end);
  text = trim(text.substr(end));
  return word;
}

// Items separated by commas outside brackets.
std::vector<std::string_view> split_list(std::string_view text) {
  std::vector<std::string_view> items;
  int depth = 0;
  std::size_t start = 0;
  for (std::size_t i = 0; i <= text.size(); ++i) {
    if (i == text.size() || (text[i] == ',' && depth == 0)) {
      if (i > start || i < text.size()) items.push_back(trim(text.substr(start, i - start)));
      start = i + 1;
    } else if (text[i] == '[') {
      ++depth;
    } else if (text[i] == ']') {
      --depth;
    }
  }
  return items;
}

class GraphParser {
 public:
  Result<Graph> parse(std::string_view text, std::string_view file) {
    int line_number = 0;
    while (!text.empty()) {
      const std::size_t end = std::min(text.find('\n'), text.size());
      std::string_view line = text.substr(0, end);
      text.remove_prefix(std::min(end + 1, text.size()));
      ++line_number;
      line = trim(line.substr(0, std::min(comment_start(line), line.size())));
      if (line.empty()) continue;
      if (Status status = parse_line(line); !status.ok()) return status.error().at(file, line_number);
      if (!builder_.ok()) return builder_.error().at(file, line_number);
    }
    if (!named_) return error("no 'graph NAME' line").at(file, line_number);
    return std::move(builder_).freeze();
  }

 private:
  // The first '#' outside a string.
  static std::size_t comment_start(std::string_view line) {
    bool quoted = false;
    for (std::size_t i = 0; i < line.size(); ++i) {
      if (line[i] == '"') quoted = !quoted;
      if (line[i] == '#' && !quoted) return i;
    }
    return line.size();
  }

  Status parse_line(std::string_view line) {
    const std::string_view word = take_word(line);
    if (!named_) {
      if (word != "graph" || line.empty()) return error("the first line must be 'graph NAME'");
      builder_ = GraphBuilder(std::string(line));
      named_ = true;
      return Ok{};
    }
    if (word == "input" || word == "scalar" || word == "param" || word == "state") return parse_leaf(word, line);
    if (word == "op" || word == "back" || word == "step") return parse_op(word, line);
    if (word == "grad") return parse_gradient(line);
    if (word == "result") {
      WEFT_TRY(const TensorId tensor, tensor_named(line));
      builder_.result(tensor);
      return Ok{};
    }
    return error("'{}': a line starts with input, scalar, param, state, op, grad, back, step or result", word);
  }

  Result<TensorId> tensor_named(std::string_view name) const {
    const auto at = tensors_.find(std::string(name));
    if (at == tensors_.end()) return error("tensor '{}' is not defined above", name);
    return at->second;
  }

  // Opens the module of a dotted name and returns what follows the last dot ('@' ends the search).
  std::string enter(std::string_view full, std::optional<GraphBuilder::Scope>& scope) {
    const std::size_t dot = full.substr(0, full.find('@')).rfind('.');
    if (dot == std::string_view::npos) return std::string(full);
    scope.emplace(builder_.scope(full.substr(0, dot)));
    return std::string(full.substr(dot + 1));
  }

  Status parse_leaf(std::string_view word, std::string_view line) {
    const std::string_view full = take_word(line);
    WEFT_TRY(const TensorType type, parse_tensor_type(line));
    if (word == "scalar" && !type.shape.empty()) return error("scalar {}: one number has no dimensions", full);
    std::optional<GraphBuilder::Scope> scope;
    const std::string name = enter(full, scope);
    const TensorId id = word == "input"    ? builder_.input(name, type.dtype, type.shape)
                        : word == "scalar" ? builder_.scalar(name, type.dtype)
                        : word == "param"  ? builder_.parameter(name, type.dtype, type.shape)
                                           : builder_.state(name, type.dtype, type.shape);
    if (!tensors_.emplace(full, id).second) return error("tensor '{}' is defined twice", full);
    return Ok{};
  }

  void define_outputs(std::string_view full, OpId op) {
    const Graph& graph = builder_.so_far();
    const auto outputs = graph.outputs(op);
    for (std::size_t i = 0; i < outputs.size(); ++i)
      tensors_.emplace(fmt::format("{}.{}", full, graph.signature(op).outputs[i].name), outputs[i]);
    ops_.emplace(full, op);
  }

  // "NAME = KIND(INPUTS) REST": the parts, with trim applied.
  struct Call {
    std::string_view name, kind, inputs, rest;
  };
  static Result<Call> parse_call(std::string_view line) {
    const std::size_t equals = line.find(" = "), open = line.find('(', equals), close = line.find(')', open);
    if (equals == std::string_view::npos || open == std::string_view::npos || close == std::string_view::npos)
      return error("expected NAME = KIND(INPUTS) …");
    return Call{trim(line.substr(0, equals)), trim(line.substr(equals + 3, open - equals - 3)),
                trim(line.substr(open + 1, close - open - 1)), trim(line.substr(close + 1))};
  }

  Status parse_op(std::string_view word, std::string_view line) {
    WEFT_TRY(const Call call, parse_call(line));
    const auto kind = op_kind_named(call.kind);
    if (!kind) {
      const std::vector<std::string> names = op_kind_names();
      return error("unknown operator '{}'{}", call.kind, did_you_mean(call.kind, names));
    }
    std::vector<TensorId> inputs;
    for (std::string_view item : split_list(call.inputs)) {
      WEFT_TRY(const TensorId input, tensor_named(item));
      inputs.push_back(input);
    }
    // Attributes may hold an arrow in a string; the types follow the last one.
    const std::size_t arrow = call.rest.rfind("-> ");
    if (arrow == std::string_view::npos) return error("expected '-> TYPES' after {}", call.kind);
    WEFT_TRY(Attrs attrs, parse_attrs(trim(call.rest.substr(0, arrow))));
    const Phase phase = word == "op" ? Phase::Forward : word == "back" ? Phase::Backward : Phase::Step;
    {
      std::optional<GraphBuilder::Scope> scope;
      const std::string name = enter(call.name, scope);
      builder_.op(*kind, name, inputs, std::move(attrs), phase);
    }
    if (!builder_.ok()) return builder_.error();
    const OpId op(builder_.so_far().ops().size() - 1);
    std::vector<std::string> types;
    for (TensorId output : builder_.so_far().outputs(op)) types.push_back(print(builder_.type(output)));
    const std::string inferred = fmt::format("{}", fmt::join(types, ", "));
    const std::string_view written = trim(call.rest.substr(arrow + 3));
    if (inferred != written) return error("{} makes {}, but the line says {}", call.name, inferred, written);
    define_outputs(call.name, op);
    return Ok{};
  }

  Status parse_gradient(std::string_view line) {
    WEFT_TRY(const Call call, parse_call(line));
    Gradient gradient;
    std::vector<TensorId> inputs;
    for (std::string_view item : split_list(call.inputs)) {
      const std::size_t colon = item.find(": ");
      if (colon == std::string_view::npos) return error("'{}': write operand: tensor", item);
      WEFT_TRY(const TensorId input, tensor_named(trim(item.substr(colon + 2))));
      gradient.reads.emplace_back(item.substr(0, colon));
      inputs.push_back(input);
    }
    std::string_view rest = call.rest;
    if (take_word(rest) != "of") return error("expected 'of FORWARD' after the operands");
    const std::string forward_name(take_word(rest));
    const auto forward = ops_.find(forward_name);
    if (forward == ops_.end()) return error("operator '{}' is not defined above", forward_name);
    if (take_word(rest) != "->") return error("expected '-> GRADIENTS'");
    for (std::string_view item : split_list(rest)) gradient.writes.emplace_back(item);
    const std::size_t at = call.name.find('@');
    gradient.name = at == std::string_view::npos ? "" : std::string(call.name.substr(at + 1));
    WEFT_TRY_OK(check_gradient(forward->second, gradient, inputs));
    builder_.gradient_op(forward->second, gradient, inputs);
    if (!builder_.ok()) return builder_.error();
    const OpId op(builder_.so_far().ops().size() - 1);
    if (builder_.so_far().name(op) != call.name)
      return error("a backward product of {} is named {}", forward_name, builder_.so_far().name(op));
    define_outputs(call.name, op);
    return Ok{};
  }

  // A backward product must be one that the forward operator declares, its operands of the forward shapes.
  Status check_gradient(OpId forward, const Gradient& gradient, const std::vector<TensorId>& inputs) const {
    const Signature& signature = builder_.so_far().signature(forward);
    if (!signature.gradient.empty()) return error("a backward product has no backward products");
    const std::vector<Gradient> known = gradients_of(signature);
    const bool declared = std::any_of(known.begin(), known.end(), [&](const Gradient& candidate) {
      const std::string name = candidate.name.empty() ? "grad_" + candidate.writes[0].substr(1) : candidate.name;
      if (name != gradient.name || candidate.writes != gradient.writes) return false;
      // Reads may lack gradients of unused outputs, but keep their order.
      std::size_t at = 0;
      for (const std::string& read : candidate.reads)
        if (at < gradient.reads.size() && gradient.reads[at] == read) ++at;
      return at == gradient.reads.size() && at > 0;
    });
    if (!declared)
      return error("{} has no backward product '{}' of these operands", name_of(signature.kind), gradient.name);
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const std::string& read = gradient.reads[i];
      for (int o = 0; o < signature.operand_count(); ++o) {
        const Operand& operand = signature.operand(o);
        const bool named = operand.name == read || "d" + operand.name == read;
        if (named && operand.shape() != builder_.shape(inputs[i]))
          return error("operand {} is {}, not of shape [{}]", read, print(builder_.type(inputs[i])),
                       fmt::join(operand.shape(), ","));
        if (named) break;
      }
    }
    return Ok{};
  }

  GraphBuilder builder_{""};
  bool named_ = false;
  std::unordered_map<std::string, TensorId> tensors_;
  std::unordered_map<std::string, OpId> ops_;
};

}  // namespace

Result<Graph> parse_graph(std::string_view text, std::string_view file) { return GraphParser().parse(text, file); }

}  // namespace weft
