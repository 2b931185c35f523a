#include "strategy/structure.h"

#include <algorithm>
#include <map>

namespace weft {
namespace {

bool is_linear(OpKind kind) { return kind == OpKind::Linear || kind == OpKind::ExpertLinear; }

std::int64_t axis_size(const Signature& signature, std::string_view name) {
  const int axis = signature.axis_named(name);
  return axis < 0 ? 1 : signature.axes[static_cast<std::size_t>(axis)].size;
}

// The linears whose output features are still unmixed in a tensor.
struct Flow {
  std::vector<OpId> sources;  // sorted
  bool crossed = false;       // an activation or attention is on the path
  bool foreign = false;       // has another source: the residual stream
};

class PairFinder {
 public:
  PairFinder(const Graph& graph, const Layers& layers)
      : graph_(graph), layers_(layers), flow_(graph.tensors().size()), source_(graph.ops().size()) {}

  TensorParallel run() {
    for (OpId op : graph_.ops().ids()) {
      if (graph_.ops()[op].phase != Phase::Forward) break;
      pass(op);
    }
    for (TensorId result : graph_.results()) spoil(flow_[result]);
    for (OpId op : source_.ids()) settle(op);
    add_embeddings();
    std::sort(found_.ops.begin(), found_.ops.end(),
              [](const TensorParallelOp& a, const TensorParallelOp& b) { return a.op < b.op; });
    return std::move(found_);
  }

 private:
  struct Source {
    bool spoilt = false, row = false, head = false;
    std::int64_t outer = 1;
    std::vector<OpId> rows;
  };

  void spoil(const Flow& flow) {
    for (OpId source : flow.sources) source_[source].spoilt = true;
  }

  void pass(OpId op) {
    const OpKind kind = graph_.kind(op);
    const auto inputs = graph_.inputs(op);
    if (is_linear(kind)) {
      for (TensorId input : inputs) {
        const Flow& flow = flow_[input];
        for (OpId source : flow.sources) {
          if (!flow.crossed || flow.foreign)
            source_[source].spoilt = true;
          else if (auto& rows = source_[source].rows; rows.empty() || rows.back() != op)
            rows.push_back(op);
        }
      }
      set_outputs(op, {{op}, false, false});
      return;
    }
    Flow joined = join(op);
    switch (kind) {
      case OpKind::Bias:
      case OpKind::Dropout:
      case OpKind::Rotary:
      case OpKind::Split:
      case OpKind::Slice:
      case OpKind::Concat:
      case OpKind::Reshape:
      case OpKind::Transpose:
      case OpKind::Expand:
        break;
      case OpKind::Binary:
      case OpKind::Select:
      case OpKind::WeighRows:
        if (joined.foreign) end(joined);
        break;
      case OpKind::Unary:
      case OpKind::Softmax:
        joined.crossed = true;
        break;
      case OpKind::Glu:
        if (inputs.size() == 1)
          for (OpId source : joined.sources) source_[source].outer = 2;
        joined.crossed = true;
        break;
      case OpKind::Attention:
      case OpKind::Matmul:
        if (!joined.sources.empty()) found_.heads.push_back({op, joined.sources});
        joined.crossed = true;
        break;
      case OpKind::RmsNorm:  // over each head, or over all features
        if (axis_size(graph_.signature(op), "h") == 1) end(joined);
        break;
      case OpKind::CrossEntropy:
        if (!joined.crossed && !joined.foreign && joined.sources.size() == 1) {
          Source& source = source_[joined.sources.front()];
          source.head = true;
          joined = {{}, false, true};
        } else {
          end(joined);
        }
        break;
      case OpKind::Embedding:
        joined = {{}, false, true};
        break;
      default:
        end(joined);
    }
    set_outputs(op, joined);
  }

  // The union of the inputs' flows. A foreign operand that is broadcast is a mask or a bias by head, not a residual.
  Flow join(OpId op) {
    Flow joined;
    const Signature& signature = graph_.signature(op);
    const Operand& output = signature.outputs.front();
    bool any = false;
    for (std::size_t i = 0; i < graph_.inputs(op).size(); ++i) {
      const Flow& flow = flow_[graph_.inputs(op)[i]];
      const Operand& input = signature.inputs[i];
      any = any || flow.foreign;
      joined.crossed = joined.crossed || flow.crossed;
      // Axes are compared too: with a single sample a bias has as many elements as the scores it is added to.
      const bool broadcast = input.elements() < output.elements() ||
                             (input.axes() != output.axes() && (input.axes() | output.axes()) == output.axes());
      if (flow.foreign && !broadcast) joined.foreign = true;
      joined.sources.insert(joined.sources.end(), flow.sources.begin(), flow.sources.end());
    }
    std::sort(joined.sources.begin(), joined.sources.end());
    joined.sources.erase(std::unique(joined.sources.begin(), joined.sources.end()), joined.sources.end());
    if (joined.sources.empty()) joined.foreign = any;
    return joined;
  }
  void end(Flow& flow) {
    spoil(flow);
    flow = {{}, false, true};
  }
  void set_outputs(OpId op, const Flow& flow) {
    for (TensorId output : graph_.outputs(op)) flow_[output] = flow;
  }

  bool eligible(OpId op) const { return layers_.names.empty() || layers_.of[op] >= 0; }

  void settle(OpId op) {
    Source& source = source_[op];
    if (!is_linear(graph_.kind(op)) || source.spoilt || source.row) return;
    if (source.head) {
      const Signature& signature = graph_.signature(op);
      const std::int64_t n = axis_size(signature, "n");
      if (source.rows.empty() && n >= axis_size(signature, "k")) {
        found_.ops.push_back({op, TensorRole::Head, 1});
        vocabulary_.push_back(n);
      }
      return;
    }
    if (source.rows.empty() || !eligible(op)) return;
    for (OpId row : source.rows)
      if (!eligible(row)) return;
    found_.ops.push_back({op, TensorRole::Column, source.outer});
    for (OpId row : source.rows) {
      if (!source_[row].row) found_.ops.push_back({row, TensorRole::Row, 1});
      source_[row].row = true;
    }
  }

  // Embeddings with as many rows as the head has outputs; without a head, the largest embedding if it is large.
  void add_embeddings() {
    std::vector<OpId> embeddings;
    std::int64_t largest = 4096;
    for (OpId op : graph_.ops().ids()) {
      if (graph_.ops()[op].phase != Phase::Forward) break;
      if (graph_.kind(op) != OpKind::Embedding || graph_.signature(op).attrs.has("pool")) continue;
      embeddings.push_back(op);
      largest = std::max(largest, axis_size(graph_.signature(op), "v"));
    }
    for (OpId op : embeddings) {
      const std::int64_t v = axis_size(graph_.signature(op), "v");
      const bool shared = std::find(vocabulary_.begin(), vocabulary_.end(), v) != vocabulary_.end();
      if (vocabulary_.empty() ? v == largest : shared) found_.ops.push_back({op, TensorRole::Vocabulary, 1});
    }
  }

  const Graph& graph_;
  const Layers& layers_;
  IdVec<TensorId, Flow> flow_;
  IdVec<OpId, Source> source_;
  std::vector<std::int64_t> vocabulary_;
  TensorParallel found_;
};

}  // namespace

TensorParallel find_tensor_parallel(const Graph& graph, const Layers& layers) {
  return PairFinder(graph, layers).run();
}

IdVec<OpId, int> find_attention_cores(const Graph& graph) {
  IdVec<OpId, int> core(graph.ops().size(), -1);
  IdVec<TensorId, int> carries(graph.tensors().size(), -1);  // the unfused core that made the tensor
  std::vector<char> has_softmax;
  const auto weight = [&](TensorId tensor) { return graph.tensors()[tensor].kind == TensorKind::Parameter; };
  for (OpId op : graph.ops().ids()) {
    if (graph.ops()[op].phase != Phase::Forward) break;
    const OpKind kind = graph.kind(op);
    if (kind == OpKind::Attention) {
      core[op] = static_cast<int>(has_softmax.size());
      has_softmax.push_back(1);
      continue;
    }
    int entered = -1;
    bool reads_weight = false;
    for (TensorId input : graph.inputs(op)) {
      entered = std::max(entered, carries[input]);
      reads_weight = reads_weight || weight(input);
    }
    const bool product = kind == OpKind::Matmul && !reads_weight;
    if (entered < 0 && product) {
      entered = static_cast<int>(has_softmax.size());
      has_softmax.push_back(0);
    } else if (entered < 0 || reads_weight) {
      continue;
    } else if (product) {  // the product with the values, the last operator of the core
      core[op] = entered;
      continue;
    }
    core[op] = entered;
    if (kind == OpKind::Softmax) has_softmax[static_cast<std::size_t>(entered)] = 1;
    for (TensorId output : graph.outputs(op)) carries[output] = entered;
  }
  for (int& member : core)
    if (member >= 0 && !has_softmax[static_cast<std::size_t>(member)]) member = -1;
  return core;
}

IdVec<TensorId, InputDims> find_input_dims(const Graph& graph) {
  IdVec<TensorId, InputDims> dims(graph.tensors().size());
  std::int64_t samples = 0, tokens = 0;
  for (TensorId id : graph.tensors().ids()) {
    const Tensor& tensor = graph.tensors()[id];
    const Shape& shape = tensor.type.shape;
    if (tensor.kind != TensorKind::Input || shape.empty()) continue;
    if (samples == 0) {
      samples = shape[0];
      tokens = shape.size() > 1 ? shape[1] : 0;
    }
    const bool per_sample = shape[0] == samples;
    if (per_sample && samples > 1) dims[id].sample = 0;
    if (shape.size() > 1 && tokens > 1 && shape[1] == tokens && (per_sample || shape[0] == 1)) dims[id].sequence = 1;
  }
  return dims;
}

}  // namespace weft
