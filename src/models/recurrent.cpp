#include "models/recurrent.h"

#include <fmt/format.h>

#include <vector>

#include "models/layer_builder.h"

namespace weft {
namespace {

class RecurrentBuilder {
 public:
  RecurrentBuilder(GraphBuilder& builder, const RecurrentConfig& config, const StepShape& step)
      : b_(builder), config_(config), step_(step), net_(builder, step.dtype) {}

  void build() {
    const TensorId tokens = b_.input("tokens", DType::I64, {step_.batch, step_.seq});
    switch (config_.net) {
      case RecurrentNet::Classifier: {
        const std::vector<TensorId> states = stack("rnn", embed("embed", tokens), nullptr);
        const TensorId logits = net_.linear("classifier", states.back(), config_.classes, true);
        b_.result(net_.cross_entropy("loss", logits, b_.input("labels", DType::I64, {step_.batch})));
        return;
      }
      case RecurrentNet::LanguageModel: {
        const std::vector<TensorId> states = stack("rnn", embed("embed", tokens), nullptr);
        return predict(sequence("states", states));
      }
      case RecurrentNet::Translator:
        return translator(tokens);
    }
  }

 private:
  // The steps' inputs, each [batch, hidden].
  std::vector<TensorId> embed(const std::string& name, TensorId ids) {
    const auto scope = b_.scope(name);
    const TensorId x = net_.embedding("tokens", ids, config_.vocab, config_.hidden).y;
    const std::vector<TensorId> slices =
        step_.seq > 1 ? net_.split("split", x, 1, std::vector<std::int64_t>(static_cast<std::size_t>(step_.seq), 1))
                      : std::vector<TensorId>{x};
    std::vector<TensorId> steps;
    for (std::int64_t t = 0; t < step_.seq && b_.ok(); ++t)
      steps.push_back(
          net_.reshape(fmt::format("step{}", t), slices[static_cast<std::size_t>(t)], {step_.batch, config_.hidden}));
    if (steps.empty()) steps.push_back({});  // only after an error
    return steps;
  }

  struct State {
    TensorId h, c;
  };

  // Runs all layers over all steps; returns the top layer's outputs. `carried` holds each layer's initial state and
  // receives its last (a decoder starts with its encoder's last states); without it initial states are inputs.
  std::vector<TensorId> stack(const std::string& name, std::vector<TensorId> x, std::vector<State>* carried) {
    const auto stack_scope = b_.scope(name);
    for (std::int64_t layer = 0; layer < config_.layers && b_.ok(); ++layer) {
      const auto layer_scope = b_.scope(std::to_string(layer));
      const Shape state_shape{step_.batch, config_.hidden};
      const TensorId wi = b_.parameter("weight_ih", step_.dtype, {config_.hidden, 4 * config_.hidden});
      const TensorId wh = b_.parameter("weight_hh", step_.dtype, {config_.hidden, 4 * config_.hidden});
      const TensorId bias = b_.parameter("bias", step_.dtype, {4 * config_.hidden});
      const bool continues = carried && static_cast<std::size_t>(layer) < carried->size();
      State state = continues
                        ? (*carried)[static_cast<std::size_t>(layer)]
                        : State{b_.input("h0", step_.dtype, state_shape), b_.input("c0", step_.dtype, state_shape)};
      for (std::size_t t = 0; t < x.size() && b_.ok(); ++t) {
        const auto step_scope = b_.scope(fmt::format("step.{}", t));
        const std::vector<TensorId> out = b_.op(OpKind::LstmCell, "cell", {x[t], state.h, state.c, wi, wh, bias});
        state = {out[0], out[1]};
        x[t] = net_.dropout("dropout", out[0], config_.dropout);
      }
      if (carried && !continues) carried->push_back(state);
    }
    return x;
  }

  // [batch, steps, hidden] of the steps' [batch, hidden].
  TensorId sequence(const std::string& name, const std::vector<TensorId>& steps) {
    const auto scope = b_.scope(name);
    std::vector<TensorId> rows;
    for (std::size_t t = 0; t < steps.size() && b_.ok(); ++t)
      rows.push_back(net_.reshape(fmt::format("step{}", t), steps[t], {step_.batch, 1, config_.hidden}));
    return rows.size() == 1 || !b_.ok() ? rows.empty() ? TensorId() : rows.front() : net_.concat("concat", rows, 1);
  }

  void predict(TensorId states) {
    const auto scope = b_.scope("head");
    const TensorId logits = net_.linear("logits", states, config_.vocab, true);
    b_.result(net_.cross_entropy("loss", logits, b_.input("labels", DType::I64, {step_.batch, step_.seq})));
  }

  // Luong's global attention with dot scores (arXiv:1508.04025), over all decoder steps at once: teacher
  // forcing makes the decoder's inputs known beforehand.
  void translator(TensorId source_tokens) {
    std::vector<State> carried;
    const std::vector<TensorId> source = stack("encoder", embed("source", source_tokens), &carried);
    const TensorId target_tokens = b_.input("target_tokens", DType::I64, {step_.batch, step_.seq});
    const std::vector<TensorId> target = stack("decoder", embed("target", target_tokens), &carried);
    const TensorId memory = sequence("encoder_states", source), queries = sequence("decoder_states", target);
    TensorId attended;
    {
      const auto scope = b_.scope("attention");
      const TensorId scores = b_.op1(OpKind::Matmul, "scores", {queries, memory},
                                     {{"notation", std::string("a[b,q,e] b[b,t,e] -> y[b,q,t]")}});
      const TensorId weights = b_.op1(OpKind::Softmax, "softmax", {scores});
      const TensorId context = b_.op1(OpKind::Matmul, "context", {weights, memory},
                                      {{"notation", std::string("a[b,q,t] b[b,t,e] -> y[b,q,e]")}});
      attended = net_.linear("combine", net_.concat("joined", {context, queries}, 2), config_.hidden, false);
      attended = net_.unary("tanh", attended, "tanh");
    }
    predict(attended);
  }

  GraphBuilder& b_;
  const RecurrentConfig& config_;
  const StepShape& step_;
  LayerBuilder net_;
};

}  // namespace

Status check(const RecurrentConfig& config) {
  if (config.layers < 1 || config.layers > 1000) return error("layers={}: must be between 1 and 1000", config.layers);
  if (config.hidden < 1 || config.hidden > 1 << 20)
    return error("hidden={}: must be between 1 and 1048576", config.hidden);
  if (config.vocab < 1 || config.vocab > 1LL << 30) return error("vocab={}: must be between 1 and 2^30", config.vocab);
  if (config.classes < 1 || config.classes > 1LL << 30)
    return error("classes={}: must be between 1 and 2^30", config.classes);
  if (!(config.dropout >= 0 && config.dropout < 1))
    return error("dropout={}: must be at least 0 and below 1", config.dropout);
  return Ok{};
}

void build_recurrent(GraphBuilder& builder, const RecurrentConfig& config, const StepShape& step) {
  // Every step of every layer is an operator of its own.
  if (step.seq * config.layers > 100'000)
    return builder.fail(
        error("seq={}: {} layers of that many steps are too many cells to unroll", step.seq, config.layers));
  RecurrentBuilder(builder, config, step).build();
}

}  // namespace weft
