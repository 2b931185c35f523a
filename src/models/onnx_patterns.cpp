#include "models/onnx_patterns.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace weft {
namespace {

// The name with its last component replaced: "/mlp/Mul_1" → "/mlp/Gelu".
std::string sibling(const std::string& name, std::string_view last) {
  const std::size_t slash = name.rfind('/');
  return slash == std::string::npos ? std::string(last) : name.substr(0, slash + 1) + std::string(last);
}

class Fuser {
 public:
  explicit Fuser(OnnxModel& model) : model_(model) {
    for (std::size_t i = 0; i < model.nodes.size(); ++i)
      for (const std::string& output : model.nodes[i].outputs) producer_.emplace(output, i);
  }

  void run() {
    for (OnnxNode& node : model_.nodes) {
      if (node.op == "Add" || node.op == "Mul") fuse_normalisation(node);
      if (node.op == "Mul") fuse_gelu(node);
      if (node.op == "Mul") fuse_swish(node);
      if (node.op == "LSTM") trace_weights(node);
    }
  }

 private:
  // The node whose first output is `name`, if it is an `op`.
  const OnnxNode* made_by(const std::string& name, std::string_view op) const {
    const auto at = producer_.find(name);
    if (at == producer_.end()) return nullptr;
    const OnnxNode& node = model_.nodes[at->second];
    return node.op == op && !node.inputs.empty() && node.outputs[0] == name ? &node : nullptr;
  }

  std::optional<double> scalar(const std::string& name) const {
    if (const auto at = model_.initializers.find(name); at != model_.initializers.end()) return at->second.scalar();
    const auto at = producer_.find(name);
    if (at == producer_.end()) return std::nullopt;
    const OnnxNode& node = model_.nodes[at->second];
    return node.op == "Constant" && node.value ? node.value->scalar() : std::nullopt;
  }
  bool is_about(const std::string& name, double value) const {
    const auto known = scalar(name);
    return known && std::fabs(*known - value) <= 1e-3 * std::fabs(value);
  }

  // The other operand of a commutative node one of whose operands is accepted; nothing when neither is.
  template <class F>
  const std::string* other_operand(const OnnxNode* node, F&& accept) const {
    if (!node || node->inputs.size() != 2) return nullptr;
    if (accept(node->inputs[1])) return &node->inputs[0];
    if (accept(node->inputs[0])) return &node->inputs[1];
    return nullptr;
  }
  const std::string* other_than(const OnnxNode* node, double value) const {
    return other_operand(node, [&](const std::string& name) { return is_about(name, value); });
  }

  bool is_weight(const std::string& name) const {
    const auto at = model_.initializers.find(name);
    return at != model_.initializers.end() && at->second.floating() && at->second.type.shape.size() == 1;
  }

  // What is averaged over the last dimension; nothing when `name` is no such mean.
  const std::string* mean_of(const std::string& name) const {
    const OnnxNode* mean = made_by(name, "ReduceMean");
    if (!mean || mean->attrs.integer("keepdims", 1) == 0) return nullptr;
    std::vector<std::int64_t> axes = mean->attrs.integers("axes", {});
    if (mean->inputs.size() > 1) {
      if (scalar(mean->inputs[1]) != -1.0) return nullptr;
      axes = {-1};
    }
    return axes == std::vector<std::int64_t>{-1} ? &mean->inputs[0] : nullptr;
  }

  const std::string* square_of(const std::string& name) const {
    if (const OnnxNode* pow = made_by(name, "Pow"))
      return pow->inputs.size() == 2 && is_about(pow->inputs[1], 2) ? &pow->inputs[0] : nullptr;
    const OnnxNode* mul = made_by(name, "Mul");
    return mul && mul->inputs.size() == 2 && mul->inputs[0] == mul->inputs[1] ? &mul->inputs[0] : nullptr;
  }

  struct Root {
    std::string of;
    double epsilon = 0;
  };
  // √(mean of² + ε)
  std::optional<Root> root_of_mean_square(const std::string& name) const {
    const OnnxNode* root = made_by(name, "Sqrt");
    const OnnxNode* shifted = root ? made_by(root->inputs[0], "Add") : nullptr;
    std::optional<double> epsilon;
    const std::string* mean =
        other_operand(shifted, [&](const std::string& operand) { return (epsilon = scalar(operand)).has_value(); });
    const std::string* squares = mean ? mean_of(*mean) : nullptr;
    const std::string* of = squares ? square_of(*squares) : nullptr;
    return of ? std::optional(Root{*of, *epsilon}) : std::nullopt;
  }

  // x − mean x; nothing when `name` is no such difference. Exporters may write it twice over.
  const std::string* centred(const std::string& name) const {
    const OnnxNode* sub = made_by(name, "Sub");
    if (!sub || sub->inputs.size() != 2) return nullptr;
    const std::string* x = mean_of(sub->inputs[1]);
    return x && *x == sub->inputs[0] ? x : nullptr;
  }

  struct Normalised {
    std::string x;
    double epsilon = 0;
    bool mean = true;  // layer normalisation: the mean is subtracted first; RMS normalisation: it is not
  };
  // y / √(mean y² + ε) with y = x − mean x or y = x, also written y · (1 / √…).
  std::optional<Normalised> normalised(const std::string& name) const {
    std::string above, below;
    if (const OnnxNode* div = made_by(name, "Div"); div && div->inputs.size() == 2) {
      above = div->inputs[0];
      below = div->inputs[1];
    } else if (const OnnxNode* mul = made_by(name, "Mul"); mul && mul->inputs.size() == 2) {
      for (const std::size_t inverse : {0, 1}) {
        const OnnxNode* reciprocal = made_by(mul->inputs[inverse], "Reciprocal");
        const OnnxNode* quotient = made_by(mul->inputs[inverse], "Div");
        if (quotient && (quotient->inputs.size() != 2 || !is_about(quotient->inputs[0], 1))) quotient = nullptr;
        if (!reciprocal && !quotient) continue;
        above = mul->inputs[1 - inverse];
        below = reciprocal ? reciprocal->inputs[0] : quotient->inputs[1];
      }
    }
    const auto root = root_of_mean_square(below);
    if (!root) return std::nullopt;
    const std::string *x = centred(above), *squared = centred(root->of);
    if (x && squared && *x == *squared) return Normalised{*x, root->epsilon, true};
    if (above == root->of) return Normalised{above, root->epsilon, false};
    return std::nullopt;
  }

  // gamma · normalised + beta; a Mul that an Add follows is first replaced alone, and again with its Add.
  void fuse_normalisation(OnnxNode& node) {
    const auto weight = [&](const std::string& name) { return is_weight(name); };
    const std::string* rest = other_operand(&node, weight);
    if (!rest) return;
    const std::string last = node.inputs[&node.inputs[0] == rest ? 1 : 0];
    if (node.op == "Mul") {
      if (const auto y = normalised(*rest))
        replace(node, y->mean ? "LayerNormalization" : "RMSNormalization", {y->x, last},
                Attrs{{"axis", std::int64_t{-1}}, {"epsilon", y->epsilon}});
      return;
    }
    const OnnxNode* scaled = made_by(*rest, "LayerNormalization");
    if (!scaled || scaled->inputs.size() != 2) return;
    replace(node, "LayerNormalization", {scaled->inputs[0], scaled->inputs[1], last}, scaled->attrs);
  }

  // x · sigmoid(x)
  void fuse_swish(OnnxNode& node) {
    for (const std::size_t x : {0, 1}) {
      const OnnxNode* gate = node.inputs.size() == 2 ? made_by(node.inputs[1 - x], "Sigmoid") : nullptr;
      if (!gate || gate->inputs[0] != node.inputs[x]) continue;
      replace(node, "Swish", {gate->inputs[0]}, {});
      return;
    }
  }

  // "erf" or "tanh" when `name` is 1 + erf(x/√2) or 1 + tanh(√(2/π)(x + 0.044715 x³)); nothing otherwise.
  const char* gelu_gate(const std::string& name, const std::string& x) const {
    const std::string* gate = other_than(made_by(name, "Add"), 1);
    if (!gate) return nullptr;
    if (const OnnxNode* erf = made_by(*gate, "Erf")) {
      const OnnxNode* div = made_by(erf->inputs[0], "Div");
      if (div && div->inputs.size() == 2 && div->inputs[0] == x && is_about(div->inputs[1], std::numbers::sqrt2))
        return "erf";
      const std::string* scaled = other_than(made_by(erf->inputs[0], "Mul"), 1 / std::numbers::sqrt2);
      return scaled && *scaled == x ? "erf" : nullptr;
    }
    const OnnxNode* tanh = made_by(*gate, "Tanh");
    const std::string* sum =
        tanh ? other_than(made_by(tanh->inputs[0], "Mul"), std::sqrt(2 / std::numbers::pi)) : nullptr;
    const std::string* cubic =
        sum ? other_operand(made_by(*sum, "Add"), [&](const std::string& operand) { return operand == x; }) : nullptr;
    const std::string* cube = cubic ? other_than(made_by(*cubic, "Mul"), 0.044715) : nullptr;
    const OnnxNode* pow = cube ? made_by(*cube, "Pow") : nullptr;
    return pow && pow->inputs.size() == 2 && pow->inputs[0] == x && is_about(pow->inputs[1], 3) ? "tanh" : nullptr;
  }

  // 0.5 · x · gate(x), multiplied in any order.
  void fuse_gelu(OnnxNode& node) {
    if (node.inputs.size() != 2) return;
    for (const std::size_t inner : {0, 1}) {
      const OnnxNode* product = made_by(node.inputs[inner], "Mul");
      if (!product || product->inputs.size() != 2) continue;
      std::vector<std::string> factors = {product->inputs[0], product->inputs[1], node.inputs[1 - inner]};
      const auto half = std::find_if(factors.begin(), factors.end(),
                                     [&](const std::string& factor) { return is_about(factor, 0.5); });
      if (half == factors.end()) continue;
      factors.erase(half);
      for (const std::size_t x : {0, 1}) {
        const char* gate = gelu_gate(factors[1 - x], factors[x]);
        if (!gate) continue;
        replace(node, "Gelu", {factors[x]}, Attrs{{"approximate", std::string(gate[0] == 't' ? "tanh" : "none")}});
        return;
      }
    }
  }

  // Follows W, R and B back through what only rearranges them. Inputs that lead elsewhere are left as they
  // are.
  void trace_weights(OnnxNode& node) {
    for (std::size_t i = 1; i <= 3 && i < node.inputs.size(); ++i) {
      constexpr std::size_t kMostNodes = 1000;
      std::unordered_set<std::string> seen;
      std::vector<std::string> open = {node.inputs[i]}, leaves;
      bool good = !node.inputs[i].empty();
      while (good && !open.empty()) {
        const std::string name = std::move(open.back());
        open.pop_back();
        if (!seen.insert(name).second) continue;
        if (model_.initializers.contains(name)) {
          leaves.push_back(name);
          continue;
        }
        const auto at = producer_.find(name);
        const OnnxNode* from = at == producer_.end() ? nullptr : &model_.nodes[at->second];
        good = from && seen.size() < kMostNodes;
        if (!good) break;
        if (from->op == "Concat")
          open.insert(open.end(), from->inputs.rbegin(), from->inputs.rend());
        else if (from->op == "Slice" || from->op == "Unsqueeze" || from->op == "Squeeze" || from->op == "Reshape" ||
                 from->op == "Split" || from->op == "Identity" || from->op == "Transpose")
          open.push_back(from->inputs.empty() ? "" : from->inputs[0]);
        else
          good = false;
      }
      if (!good || leaves.empty()) continue;
      node.weights[i - 1] = std::move(leaves);
      node.inputs[i].clear();
    }
  }

  static void replace(OnnxNode& node, std::string op, std::vector<std::string> inputs, Attrs attrs) {
    node.name = sibling(node.name, op);
    node.op = std::move(op);
    node.inputs = std::move(inputs);
    node.attrs = std::move(attrs);
  }

  OnnxModel& model_;
  std::unordered_map<std::string, std::size_t> producer_;
};

}  // namespace

void fuse_patterns(OnnxModel& model) { Fuser(model).run(); }

}  // namespace weft
