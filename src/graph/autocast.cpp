#include "graph/autocast.h"

#include <algorithm>
#include <array>

namespace weft {
namespace {

enum class Runs { Narrow, Wide, AsInputs };

Runs runs(const Signature& signature) {
  // Functions whose results leave the range of 16 bits; the rest of the list is not among the graph's functions.
  constexpr std::array<std::string_view, 5> kWideFunctions = {"exp", "log", "reciprocal", "rsqrt", "softplus"};
  const std::string_view fn = signature.attrs.text("fn", "");
  switch (signature.kind) {
    case OpKind::Linear:
    case OpKind::ExpertLinear:
    case OpKind::Matmul:
    case OpKind::Conv1d:
    case OpKind::Conv2d:
    case OpKind::Attention:
    case OpKind::LstmCell:
    case OpKind::DotInteraction:
      return Runs::Narrow;
    case OpKind::LayerNorm:
    case OpKind::RmsNorm:
    case OpKind::Softmax:
    case OpKind::BceLoss:
      return Runs::Wide;
    case OpKind::Unary:
      return std::find(kWideFunctions.begin(), kWideFunctions.end(), fn) == kWideFunctions.end() ? Runs::AsInputs
                                                                                                 : Runs::Wide;
    case OpKind::Binary:
      return fn == "pow" ? Runs::Wide : Runs::AsInputs;
    case OpKind::Reduce:
      return fn == "sum" ? Runs::Wide : Runs::AsInputs;
    default:
      return Runs::AsInputs;
  }
}

class Autocast {
 public:
  Autocast(const Graph& forward, DType narrow)
      : forward_(forward), narrow_(narrow), builder_(forward.name()), now_(forward.tensors().size()) {}

  Result<Graph> run() {
    for (TensorId id : forward_.tensors().ids()) {
      const Tensor& tensor = forward_.tensors()[id];
      if (!tensor.producer.valid())
        now_[id] = leaf(tensor);
      else if (tensor.output == 0)
        add(tensor.producer);
      if (!builder_.ok()) break;
    }
    for (TensorId result : forward_.results()) builder_.result(now_[result]);
    return std::move(builder_).freeze();
  }

 private:
  TensorId leaf(const Tensor& tensor) {
    const auto scope = builder_.scope(forward_.name(tensor.module));
    switch (tensor.kind) {
      case TensorKind::Parameter:
        return builder_.parameter(tensor.name, tensor.type.dtype, tensor.type.shape);
      case TensorKind::Scalar:
        return builder_.scalar(tensor.name, tensor.type.dtype);
      default:
        return builder_.input(tensor.name, tensor.type.dtype, tensor.type.shape);
    }
  }

  bool is_wide(TensorId now) const { return builder_.type(now).dtype == DType::F32; }
  bool is_narrow(TensorId now) const { return builder_.type(now).dtype == narrow_; }

  TensorId cast(const Op& op, const Operand& operand, TensorId from, DType to) {
    return builder_.op1(OpKind::Unary, op.name + "_" + operand.name + "_cast", {from},
                        {{"fn", "cast"}, {"to", std::string(name_of(to))}});
  }

  void add(OpId id) {
    const Op& op = forward_.ops()[id];
    const Signature& signature = forward_.signature(id);
    const auto scope = builder_.scope(forward_.name(op.module));
    std::vector<TensorId> inputs;
    bool wide = signature.kind == OpKind::Embedding;
    for (TensorId input : forward_.inputs(id)) {
      inputs.push_back(now_[input]);
      // A parameter that is read as it is is fp32.
      wide |= is_wide(inputs.back()) || (signature.kind == OpKind::Binary && builder_.type(inputs.back()).weight);
    }
    const Runs how = runs(signature);
    Attrs attrs = signature.attrs;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const bool weight = builder_.type(inputs[i]).weight;
      const bool joins = signature.kind == OpKind::Concat || signature.kind == OpKind::Select;
      if (how == Runs::Narrow && is_wide(inputs[i]))
        inputs[i] = cast(op, signature.inputs[i], inputs[i], narrow_);
      else if ((how == Runs::Wide || (wide && joins)) && is_narrow(inputs[i]) && !weight)
        inputs[i] = cast(op, signature.inputs[i], inputs[i], DType::F32);
    }
    const bool promotes = signature.kind == OpKind::Embedding || signature.kind == OpKind::Binary;
    if (promotes && wide && how == Runs::AsInputs && signature.outputs[0].dtype == narrow_) attrs.set("to", "f32");
    const std::vector<TensorId> outputs = builder_.op(signature.kind, op.name, inputs, attrs, op.phase);
    const auto was = forward_.outputs(id);
    for (std::size_t i = 0; i < was.size() && builder_.ok(); ++i) now_[was[i]] = outputs[i];
  }

  const Graph& forward_;
  DType narrow_;
  GraphBuilder builder_;
  IdVec<TensorId, TensorId> now_;  // of the forward graph's tensors
};

}  // namespace

bool is_cast(const Signature& signature) {
  if (signature.kind == OpKind::Unary) return signature.attrs.text("fn", "") == "cast";
  // The gradient of a sum's term of another type.
  return signature.kind == OpKind::Binary && !signature.gradient.empty() && signature.inputs.size() == 1 &&
         signature.inputs[0].dtype != signature.outputs[0].dtype;
}

bool casts_weight(const Signature& signature) {
  if (runs(signature) != Runs::Narrow && signature.kind != OpKind::Bias) return false;
  const std::vector<Operand>& operands = signature.gradient.empty() ? signature.inputs : signature.outputs;
  return std::any_of(operands.begin(), operands.end(),
                     [](const Operand& operand) { return operand.weight && bits_of(operand.dtype) == 16; });
}

Result<Graph> with_autocast(const Graph& forward, DType narrow) { return Autocast(forward, narrow).run(); }

}  // namespace weft
