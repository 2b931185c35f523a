#include "reference/operator_cases.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>

namespace weft::reference {
namespace {

using I = std::int64_t;

I some(Rng& rng, I low, I high) { return rng.between(low, high); }

OperatorCase unary_case(const std::string& fn, Values values = Values::Normal) {
  return {OpKind::Unary, {{"fn", fn}, {"value", 0.7}}, {{"x", {3, 4, 2}, values}}};
}

OperatorCase binary_case(const std::string& fn, Shape a, Shape b, Values values = Values::Normal) {
  return {OpKind::Binary, {{"fn", fn}}, {{"a", std::move(a), values}, {"b", std::move(b), values}}};
}

OperatorCase conv2d(Rng& rng, I groups) {
  const I kernel = some(rng, 1, 3), stride = some(rng, 1, 2), dilation = some(rng, 1, 2),
          pad = some(rng, 0, kernel - 1);
  const I c = some(rng, 1, 2), o = some(rng, 1, 3);
  return {OpKind::Conv2d,
          {{"stride", std::vector<I>{stride, 1}},
           {"dilation", std::vector<I>{dilation, 1}},
           {"pad", std::vector<I>{pad, 1, some(rng, 0, pad), 0}},
           {"groups", groups}},
          {{"x", {2, groups * c, some(rng, 6, 9), 5}}, {"w", {groups * o, c, kernel, 2}}}};
}

OperatorCase attention(Rng& rng, Attrs attrs) {
  const I groups = some(rng, 1, 3), repeat = some(rng, 1, 3), e = some(rng, 1, 3), d = some(rng, 1, 3),
          q = some(rng, 3, 5);
  const I t = attrs.integer("causal", 0) ? q : some(rng, 3, 6);
  attrs.set("heads", groups * repeat);
  attrs.set("kv_heads", groups);
  return {OpKind::Attention,
          std::move(attrs),
          {{"q", {2, q, groups * repeat * e}}, {"k", {2, t, groups * e}}, {"v", {2, t, groups * d}}}};
}

OperatorCase pool(Rng& rng, const std::string& fn) {
  const I kernel = some(rng, 2, 3), stride = some(rng, 1, 3), pad = some(rng, 0, 1);
  return {OpKind::Pool2d,
          {{"fn", fn},
           {"kernel", std::vector<I>{kernel, 2}},
           {"stride", std::vector<I>{stride, 2}},
           {"pad", std::vector<I>{pad, 0, pad, 0}},
           {"ceil", some(rng, 0, 1)},
           {"include_pad", some(rng, 0, 1)}},
          {{"x", {2, 3, some(rng, 7, 9), 6}}}};
}

OperatorCase optimizer(OpKind kind, I master, I scaled, const std::vector<std::string>& states) {
  const Shape shape = {4, 3};
  OperatorCase result{kind, {{"scaled", scaled}, {"weight_decay", 0.1}}, {{"p", shape}, {"g", shape}}};
  if (kind != OpKind::LambUpdate) result.attrs.set("master", master);
  if (kind == OpKind::Adam) result.attrs.set("decoupled", scaled);
  if (master) result.inputs.push_back({"master", shape});
  for (const std::string& state : states) result.inputs.push_back({state, shape, Values::Positive});
  if (scaled) result.inputs.push_back({"scale", {}, Values::Positive});
  if (kind != OpKind::LambUpdate) result.inputs.push_back({"lr", {}, Values::Positive});
  if (states.size() == 2) result.inputs.push_back({"step", {}, Values::Positive});
  return result;
}

std::vector<CaseGenerator> make_cases() {
  std::vector<CaseGenerator> cases;
  const auto add = [&](std::string name, std::function<OperatorCase(Rng&)> make) {
    cases.push_back({std::move(name), std::move(make)});
  };

  for (I transposed : {0, 1})
    add(fmt::format("linear transposed={}", transposed), [=](Rng& rng) {
      const I k = some(rng, 2, 4), n = some(rng, 2, 5);
      return OperatorCase{OpKind::Linear,
                          {{"transposed", transposed}},
                          {{"x", {2, some(rng, 2, 4), k}}, {"w", transposed ? Shape{n, k} : Shape{k, n}}}};
    });
  add("expert_linear", [](Rng& rng) {
    const I e = some(rng, 2, 4), k = some(rng, 2, 3);
    return OperatorCase{
        OpKind::ExpertLinear, {}, {{"x", {e, 2, some(rng, 2, 4), 2, k}}, {"w", {e, k, some(rng, 2, 4)}}}};
  });
  add("batched matmul", [](Rng& rng) {
    const I k = some(rng, 2, 4);
    return OperatorCase{OpKind::Matmul, {}, {{"a", {2, 3, some(rng, 2, 4), k}}, {"b", {2, 3, k, some(rng, 2, 4)}}}};
  });
  add("attention scores by matmul", [](Rng& rng) {
    const I g = some(rng, 2, 3), r = some(rng, 2, 3), e = some(rng, 1, 3);
    return OperatorCase{
        OpKind::Matmul,
        {{"notation", "a[b,q,g.r.e] b[b,t,g.e] -> y[b,g.r,q,t]"}, {"axes", fmt::format("g={} r={}", g, r)}},
        {{"a", {2, 3, g * r * e}}, {"b", {2, 4, g * e}}}};
  });
  add("attention output by matmul", [](Rng& rng) {
    const I g = some(rng, 2, 3), r = some(rng, 2, 3), d = some(rng, 1, 3);
    return OperatorCase{
        OpKind::Matmul,
        {{"notation", "a[b,g.r,q,t] b[b,t,g.d] -> y[b,q,g.r.d]"}, {"axes", fmt::format("g={} r={}", g, r)}},
        {{"a", {2, g * r, 3, 4}}, {"b", {2, 4, g * d}}}};
  });
  add("conv1d", [](Rng& rng) {
    const I kernel = some(rng, 1, 3);
    return OperatorCase{
        OpKind::Conv1d,
        {{"stride", std::vector<I>{some(rng, 1, 2)}}, {"pad", std::vector<I>{some(rng, 0, kernel - 1)}}},
        {{"x", {2, 3, some(rng, 6, 9)}}, {"w", {4, 3, kernel}}}};
  });
  add("conv2d", [](Rng& rng) { return conv2d(rng, 1); });
  add("grouped conv2d", [](Rng& rng) { return conv2d(rng, some(rng, 2, 3)); });
  add("attention", [](Rng& rng) { return attention(rng, {}); });
  add("causal attention", [](Rng& rng) { return attention(rng, {{"causal", I{1}}}); });
  add("causal attention in zigzag order", [](Rng&) {
    const I b = 2, s = 8, heads = 2, width = 3;
    return OperatorCase{OpKind::Attention,
                        {{"heads", heads}, {"causal", I{1}}, {"zigzag", I{2}}},
                        {{"q", {b, s, heads * width}}, {"k", {b, s, heads * width}}, {"v", {b, s, heads * width}}}};
  });
  add("windowed attention with softcap", [](Rng& rng) {
    return attention(rng, {{"causal", I{1}}, {"window", I{2}}, {"softcap", 1.5}});
  });
  add("attention with alibi", [](Rng& rng) {
    return attention(rng, {{"causal", I{1}}, {"alibi", I{1}}, {"scale", 0.4}});
  });
  add("lstm_cell", [](Rng& rng) {
    const I b = 2, i = some(rng, 2, 3), n = some(rng, 2, 4);
    return OperatorCase{
        OpKind::LstmCell,
        {},
        {{"x", {b, i}}, {"h", {b, n}}, {"c", {b, n}}, {"wi", {i, 4 * n}}, {"wh", {n, 4 * n}}, {"bias", {4 * n}}}};
  });
  add("dot_interaction", [](Rng& rng) {
    return OperatorCase{OpKind::DotInteraction, {}, {{"x", {3, some(rng, 2, 4), some(rng, 2, 4)}}}};
  });

  add("batch_norm", [](Rng& rng) {
    const I c = some(rng, 2, 4);
    return OperatorCase{OpKind::BatchNorm, {}, {{"x", {4, c, 3, 2}}, {"gamma", {c}}, {"beta", {c}}}};
  });
  add("batch_norm of rows", [](Rng& rng) {
    const I c = some(rng, 2, 4);
    return OperatorCase{OpKind::BatchNorm, {}, {{"x", {5, c}}, {"gamma", {c}}, {"beta", {c}}}};
  });
  add("layer_norm", [](Rng& rng) {
    const I d = some(rng, 2, 5);
    return OperatorCase{OpKind::LayerNorm, {}, {{"x", {2, 3, d}}, {"gamma", {d}}, {"beta", {d}}}};
  });
  add("layer_norm without bias", [](Rng&) {
    return OperatorCase{OpKind::LayerNorm, {{"bias", I{0}}}, {{"x", {2, 3, 4}}, {"gamma", {4}}}};
  });
  for (I heads : {1, 3})
    add(fmt::format("rms_norm heads={}", heads), [=](Rng& rng) {
      const I d = some(rng, 2, 4);
      return OperatorCase{OpKind::RmsNorm, {{"heads", heads}}, {{"x", {2, 3, heads * d}}, {"gamma", {d}}}};
    });
  for (I causal : {0, 1})
    add(fmt::format("softmax causal={}", causal), [=](Rng& rng) {
      const I t = some(rng, 2, 4);
      return OperatorCase{OpKind::Softmax, {{"causal", causal}, {"scale", 0.5}}, {{"x", {2, 2, t, t}}}};
    });
  add("softmax in a window", [](Rng& rng) {
    const I t = some(rng, 3, 5);
    return OperatorCase{OpKind::Softmax, {{"causal", I{1}}, {"window", I{2}}}, {{"x", {2, 2, t, t}}}};
  });
  add("max pool", [](Rng& rng) { return pool(rng, "max"); });
  add("average pool", [](Rng& rng) { return pool(rng, "avg"); });
  for (const char* fn : {"sum", "mean", "max"})
    add(fmt::format("reduce {}", fn), [=](Rng& rng) {
      return OperatorCase{
          OpKind::Reduce, {{"fn", fn}, {"dims", std::vector<I>{0, 2}}, {"keep", some(rng, 0, 1)}}, {{"x", {3, 2, 4}}}};
    });
  add("cross_entropy", [](Rng& rng) {
    const I v = some(rng, 4, 7);
    return OperatorCase{OpKind::CrossEntropy, {}, {{"x", {2, 3, v}}, {"target", {2, 3}, Values::Below, v}}};
  });
  add("nll_loss", [](Rng&) { return OperatorCase{OpKind::NllLoss, {}, {{"lse", {2, 3}}, {"picked", {2, 3}}}}; });
  add("bce_loss", [](Rng&) {
    return OperatorCase{OpKind::BceLoss, {}, {{"x", {5, 2}}, {"target", {5, 2}, Values::Bits}}};
  });

  for (const char* fn : {"identity", "scale",     "neg",  "relu",      "tanh",        "sigmoid", "exp", "softcap",
                         "gelu",     "gelu_tanh", "silu", "relu2",     "square",      "erf",     "abs", "leaky_relu",
                         "softplus", "sin",       "cos",  "hardswish", "hardsigmoid", "clamp"})
    add(fmt::format("unary {}", fn), [=](Rng&) { return unary_case(fn); });
  for (const char* fn : {"sqrt", "rsqrt", "reciprocal", "log"})
    add(fmt::format("unary {}", fn), [=](Rng&) { return unary_case(fn, Values::Positive); });
  add("unary cast", [](Rng&) { return OperatorCase{OpKind::Unary, {{"fn", "cast"}, {"to", "f32"}}, {{"x", {3, 4}}}}; });
  for (const char* fn : {"add", "sub", "mul", "max", "min"}) {
    add(fmt::format("binary {}", fn), [=](Rng&) { return binary_case(fn, {3, 4, 2}, {3, 4, 2}); });
    add(fmt::format("binary {} broadcast", fn), [=](Rng&) { return binary_case(fn, {3, 4, 2}, {4, 1}); });
    add(fmt::format("binary {} broadcast both", fn), [=](Rng&) { return binary_case(fn, {3, 1}, {2, 1, 4}); });
  }
  for (const char* fn : {"div", "pow"})
    add(fmt::format("binary {}", fn), [=](Rng&) { return binary_case(fn, {3, 4}, {1, 4}, Values::Positive); });
  add("select", [](Rng&) {
    return OperatorCase{OpKind::Select, {}, {{"if", {3, 1}, Values::Bits}, {"a", {3, 4}}, {"b", {2, 3, 4}}}};
  });
  for (I packed : {0, 1})
    add(fmt::format("glu packed={}", packed), [=](Rng& rng) {
      const I f = some(rng, 2, 4);
      if (packed) return OperatorCase{OpKind::Glu, {{"packed", I{1}}}, {{"x", {2, 3, 2 * f}}}};
      return OperatorCase{OpKind::Glu, {{"fn", "gelu"}}, {{"a", {2, 3, f}}, {"b", {2, 3, f}}}};
    });
  add("bias", [](Rng&) { return OperatorCase{OpKind::Bias, {}, {{"x", {2, 3, 4}}, {"bias", {4}}}}; });
  add("bias of channels", [](Rng&) {
    return OperatorCase{OpKind::Bias, {{"dim", I{1}}}, {{"x", {2, 3, 4, 2}}, {"bias", {3}}}};
  });
  add("dropout", [](Rng&) { return OperatorCase{OpKind::Dropout, {{"p", 0.4}}, {{"x", {3, 4, 5}}}}; });
  add("rotary", [](Rng& rng) {
    return OperatorCase{OpKind::Rotary, {{"head_dim", I{6}}, {"rotary_dim", 2 * some(rng, 1, 3)}}, {{"x", {2, 4, 18}}}};
  });

  add("embedding", [](Rng& rng) {
    const I v = some(rng, 4, 7);
    return OperatorCase{OpKind::Embedding, {}, {{"ids", {2, 5}, Values::Below, v}, {"table", {v, 3}}}};
  });
  add("pooled embedding", [](Rng& rng) {
    const I v = some(rng, 4, 7);
    return OperatorCase{OpKind::Embedding, {{"pool", "sum"}}, {{"ids", {3, 4}, Values::Below, v}, {"table", {v, 3}}}};
  });
  for (const char* score : {"softmax", "sigmoid"})
    add(fmt::format("router {}", score), [=](Rng& rng) {
      return OperatorCase{OpKind::Router,
                          {{"top_k", I{2}}, {"score", score}, {"normalize", some(rng, 0, 1)}, {"scale", 1.5}},
                          {{"x", {2, 3, 5}}}};
    });
  add("aux_loss", [](Rng&) {
    return OperatorCase{
        OpKind::AuxLoss, {{"groups", std::vector<I>{2}}}, {{"x", {3, 6, 4}}, {"index", {3, 6, 2}, Values::Below, 4}}};
  });
  for (I capacity : {1, 3, 8})
    add(fmt::format("dispatch capacity={}", capacity), [=](Rng&) {
      return OperatorCase{OpKind::Dispatch,
                          {{"experts", I{4}}, {"capacity", capacity}, {"groups", std::vector<I>{2}}},
                          {{"x", {2, 8, 3}}, {"index", {2, 8, 2}, Values::Below, 4}}};
    });
  for (I capacity : {1, 3, 8})
    add(fmt::format("combine capacity={}", capacity), [=](Rng&) {
      return OperatorCase{
          OpKind::Combine,
          {{"experts", I{4}}, {"capacity", capacity}, {"groups", std::vector<I>{2}}},
          {{"y", {4, 2, 2, capacity, 3}}, {"weights", {2, 8, 2}}, {"index", {2, 8, 2}, Values::Below, 4}}};
    });
  for (I capacity : {1, 3, 8})
    add(fmt::format("dispatch_weights capacity={}", capacity), [=](Rng&) {
      return OperatorCase{OpKind::DispatchWeights,
                          {{"experts", I{4}}, {"capacity", capacity}, {"groups", std::vector<I>{2}}},
                          {{"weights", {2, 8, 2}}, {"index", {2, 8, 2}, Values::Below, 4}}};
    });
  for (I capacity : {1, 3, 8})
    add(fmt::format("combine of weighed rows capacity={}", capacity), [=](Rng&) {
      return OperatorCase{OpKind::Combine,
                          {{"experts", I{4}}, {"capacity", capacity}, {"groups", std::vector<I>{2}}, {"weighed", I{1}}},
                          {{"y", {4, 2, 2, capacity, 3}}, {"index", {2, 8, 2}, Values::Below, 4}}};
    });
  add("weigh_rows", [](Rng& rng) {
    const I rows = some(rng, 2, 5);
    return OperatorCase{OpKind::WeighRows, {}, {{"x", {3, 2, rows, 4}}, {"weights", {3, 2, rows}}}};
  });

  for (I outer : {1, 3}) {
    add(fmt::format("concat outer={}", outer), [=](Rng& rng) {
      return OperatorCase{
          OpKind::Concat,
          {{"dim", I{1}}, {"outer", outer}},
          {{"x0", {2, outer * some(rng, 1, 3), 2}}, {"x1", {2, outer * 2, 2}}, {"x2", {2, outer * 2, 2}}}};
    });
    add(fmt::format("split outer={}", outer), [=](Rng&) {
      return OperatorCase{OpKind::Split,
                          {{"dim", I{1}}, {"outer", outer}, {"sizes", std::vector<I>{1, 2, 2}}},
                          {{"x", {2, outer * 5, 3}}}};
    });
  }
  add("slice", [](Rng& rng) {
    return OperatorCase{
        OpKind::Slice, {{"dim", I{1}}, {"begin", I{1}}, {"end", I{6}}, {"step", some(rng, 1, 2)}}, {{"x", {3, 7, 2}}}};
  });
  add("pad", [](Rng&) {
    return OperatorCase{OpKind::Pad, {{"dim", I{1}}, {"low", I{1}}, {"high", I{2}}}, {{"x", {3, 4, 2}}}};
  });
  const std::pair<Shape, Shape> reshapes[] = {
      {{2, 12}, {2, 3, 4}},         {{2, 3, 4}, {6, 4}},    {{4, 6}, {2, 2, 3, 2}}, {{6, 4}, {4, 6}},
      {{3, 4, 6, 2}, {3, 6, 4, 2}}, {{1, 4, 1, 3}, {4, 3}}, {{4, 3}, {2, 1, 6}}};
  for (const auto& [from, to] : reshapes)
    add(fmt::format("reshape [{}] to [{}]", fmt::join(from, ","), fmt::join(to, ",")), [from = from, to = to](Rng&) {
      return OperatorCase{OpKind::Reshape, {{"shape", std::vector<I>(to)}}, {{"x", from}}};
    });
  add("transpose", [](Rng&) {
    return OperatorCase{OpKind::Transpose, {{"perm", std::vector<I>{2, 0, 1}}}, {{"x", {2, 3, 4}}}};
  });
  add("expand", [](Rng&) {
    return OperatorCase{OpKind::Expand, {{"dim", I{2}}, {"times", I{3}}}, {{"x", {2, 3, 2}}}};
  });
  add("expand of a single element", [](Rng&) {
    return OperatorCase{OpKind::Expand, {{"dim", I{0}}, {"times", I{4}}}, {{"x", {1, 3}}}};
  });

  add("accumulate", [](Rng&) { return OperatorCase{OpKind::Accumulate, {}, {{"acc", {3, 4}}, {"g", {3, 4}}}}; });
  for (I flag : {0, 1}) {
    add(fmt::format("sgd {}", flag), [=](Rng&) { return optimizer(OpKind::Sgd, flag, flag, {}); });
    add(fmt::format("momentum {}", flag), [=](Rng&) { return optimizer(OpKind::Momentum, flag, flag, {"m"}); });
    add(fmt::format("adam {}", flag), [=](Rng&) { return optimizer(OpKind::Adam, flag, flag, {"m", "v"}); });
    add(fmt::format("lamb_update {}", flag), [=](Rng&) { return optimizer(OpKind::LambUpdate, 0, flag, {"m", "v"}); });
  }
  add("lamb_apply", [](Rng&) {
    return OperatorCase{OpKind::LambApply,
                        {{"master", I{1}}},
                        {{"p", {3, 4}},
                         {"u", {3, 4}},
                         {"p2", {}, Values::Positive},
                         {"u2", {}, Values::Positive},
                         {"lr", {}, Values::Positive},
                         {"master", {3, 4}}}};
  });
  add("sum_squares", [](Rng&) { return OperatorCase{OpKind::SumSquares, {}, {{"g", {3, 4}}}}; });
  add("non_finite", [](Rng&) { return OperatorCase{OpKind::NonFinite, {}, {{"g", {3, 4}}}}; });
  add("accumulate_loss", [](Rng&) {
    return OperatorCase{OpKind::AccumulateLoss, {}, {{"acc", {}}, {"loss", {}}, {"weight", {}, Values::Positive}}};
  });
  add("scale_loss", [](Rng&) {
    return OperatorCase{
        OpKind::ScaleLoss, {}, {{"weight", {}, Values::Positive}, {"loss_scale", {}, Values::Positive}}};
  });
  add("add_scalars", [](Rng&) {
    return OperatorCase{OpKind::AddScalars,
                        {{"counts", std::vector<I>{1, 2}}, {"names", "loss squares"}},
                        {{"x0", {}}, {"x1", {}}, {"x2", {}}}};
  });
  add("clip_coefficient", [](Rng&) {
    return OperatorCase{
        OpKind::ClipCoefficient,
        {{"scaled", I{1}}},
        {{"squares", {}, Values::Positive}, {"non_finite", {}, Values::Bits}, {"loss_scale", {}, Values::Positive}}};
  });
  return cases;
}

double normal(Rng& rng) {
  const double u = 1 - rng.uniform(), v = rng.uniform();
  return std::sqrt(-2 * std::log(u)) * std::cos(2 * 3.14159265358979323846 * v);
}

}  // namespace

const std::vector<CaseGenerator>& operator_cases() {
  static const std::vector<CaseGenerator> cases = make_cases();
  return cases;
}

Result<Graph> case_forward_graph(const OperatorCase& operator_case) {
  GraphBuilder builder("case");
  std::vector<TensorId> inputs;
  for (const CaseInput& input : operator_case.inputs) {
    const bool trained = input.values == Values::Normal || input.values == Values::Positive;
    inputs.push_back(
        trained ? builder.parameter(input.name, DType::F64, input.shape)
                : builder.input(input.name, input.values == Values::Bits ? DType::U8 : DType::I64, input.shape));
  }
  const std::vector<TensorId> outputs = builder.op(operator_case.kind, "case", inputs, operator_case.attrs);
  if (!builder.ok()) return builder.error();

  // Only outputs whose gradient some backward product reads are differentiable.
  const Graph& graph = builder.so_far();
  const Signature signature = graph.signature(OpId(0));
  std::set<std::string> read;
  for (const Gradient& gradient : gradients_of(signature)) read.insert(gradient.reads.begin(), gradient.reads.end());
  TensorId loss;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (!read.contains("d" + signature.outputs[i].name)) continue;
    const TensorId weights = builder.input(fmt::format("weights{}", i), DType::F64, builder.shape(outputs[i]));
    const TensorId weighed =
        builder.op1(OpKind::Binary, fmt::format("weigh{}", i), {outputs[i], weights}, {{"fn", "mul"}});
    const TensorId sum = builder.op1(OpKind::Reduce, fmt::format("sum{}", i), {weighed});
    loss = loss.valid() ? builder.op1(OpKind::Binary, fmt::format("add{}", i), {loss, sum}, {{"fn", "add"}}) : sum;
  }
  if (loss.valid()) builder.result(loss);
  return std::move(builder).freeze();
}

void fill_leaf(const OperatorCase& operator_case, const Graph& graph, TensorId id, std::vector<double>& values,
               Rng& rng) {
  const Tensor& tensor = graph.tensors()[id];
  Values how = Values::Normal;
  std::int64_t bound = 0;
  for (const CaseInput& input : operator_case.inputs)
    if (input.name == tensor.name) {
      how = input.values;
      bound = input.bound;
    }
  for (double& value : values) {
    switch (how) {
      case Values::Normal:
        value = normal(rng);
        break;
      case Values::Positive:
        value = 0.5 + rng.uniform();
        break;
      case Values::Bits:
        value = static_cast<double>(rng.below(2));
        break;
      case Values::Below:
        value = static_cast<double>(rng.below(static_cast<std::uint64_t>(bound)));
        break;
    }
  }
  if (tensor.name == "loss_weight" || tensor.kind == TensorKind::Scalar) values.assign(values.size(), 1.0);
  if (tensor.kind == TensorKind::State) values.assign(values.size(), 0.0);
}

}  // namespace weft::reference
