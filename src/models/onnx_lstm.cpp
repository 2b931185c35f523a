// LSTM: unrolled into one lstm_cell per step and direction.
#include <fmt/format.h>

#include <algorithm>

#include "models/onnx_operators.h"

namespace weft {
namespace {

constexpr std::int64_t kMaxSteps = 4096;

struct Sizes {
  std::int64_t steps, batch, input, hidden, directions;
  DType dtype;
};

// The parameters of one direction.
struct CellWeights {
  TensorId wi, wh, bias;  // [input, 4·hidden], [hidden, 4·hidden], [4·hidden]
};

// Input 1 (W [directions, 4·hidden, input]) or 2 (R [directions, 4·hidden, hidden]) for one direction, as
// [rows, 4·hidden]. The order of gates does not matter for shapes and cost, so the initializer is used unchanged: one
// per direction, or one for all.
Result<TensorId> weight(OnnxEmitter& e, const Sizes& sizes, std::size_t input, std::int64_t rows,
                        std::int64_t direction) {
  const std::vector<std::string>& from = e.node().weights[input - 1];
  const std::int64_t gates = 4 * sizes.hidden;
  const auto all = static_cast<std::size_t>(sizes.directions);
  const auto fails = [&] {
    return error("its weights (input {}) must come from initializers of {} elements per direction", input,
                 rows * gates);
  };
  if (from.size() != all && from.size() != 1) return fails();
  const std::string& name = from.size() == all ? from[static_cast<std::size_t>(direction)] : from[0];
  const OnnxValue* value = e.find(name);
  const std::int64_t shared = from.size() == all ? 1 : sizes.directions;
  std::int64_t elements = 1;
  for (const std::int64_t extent : value->type.shape)
    if (__builtin_mul_overflow(elements, extent, &elements)) return fails();
  if (elements != shared * rows * gates) return fails();
  if (shared == 1 && !value->tensor.valid()) return e.parameter_as(name, {rows, gates});
  if (shared == 1 && value->tensor.valid() && e.type(value->tensor).shape == Shape{rows, gates}) return value->tensor;
  WEFT_TRY(TensorId x, e.tensor_of(name));
  WEFT_TRY(x, e.reshape(x, {shared, gates, rows}, "stacked"));
  if (shared > 1) {
    WEFT_TRY(x, e.op1(OpKind::Slice, {x}, {{"dim", std::int64_t{0}}, {"begin", direction}, {"end", direction + 1}},
                      "direction"));
  }
  WEFT_TRY(x, e.reshape(x, {gates, rows}, "matrix"));
  return e.transpose(x, {1, 0}, "transposed");
}

// Input 3 (B [directions, 8·hidden]): the biases of input and state, which add up.
Result<TensorId> bias(OnnxEmitter& e, const Sizes& sizes, std::int64_t direction) {
  const std::int64_t gates = 4 * sizes.hidden;
  const std::vector<std::string>& from = e.node().weights[2];
  if (from.empty() && !e.given(3)) return e.implicit_input("zero_bias", sizes.dtype, {gates});
  TensorId halves[2];
  if (from.size() == static_cast<std::size_t>(2 * sizes.directions)) {
    for (std::size_t i = 0; i < 2; ++i) {
      WEFT_TRY(const TensorId x, e.tensor_of(from[static_cast<std::size_t>(2 * direction) + i]));
      WEFT_TRY(halves[i], e.reshape(x, {gates}, "bias_flat"));
    }
  } else if (from.size() == 1 || from.size() == static_cast<std::size_t>(sizes.directions)) {
    const bool own = from.size() == static_cast<std::size_t>(sizes.directions);
    const std::int64_t first = own ? 0 : 8 * sizes.hidden * direction;
    WEFT_TRY(TensorId x, e.tensor_of(from[own ? static_cast<std::size_t>(direction) : 0]));
    WEFT_TRY(x, e.reshape(x, {own ? 2 * gates : 2 * gates * sizes.directions}, "bias_flat"));
    for (std::size_t i = 0; i < 2; ++i) {
      const std::int64_t begin = first + static_cast<std::int64_t>(i) * gates;
      WEFT_TRY(halves[i], e.op1(OpKind::Slice, {x},
                                {{"dim", std::int64_t{0}}, {"begin", begin}, {"end", begin + gates}}, "bias_half"));
    }
  } else {
    return error("its biases (input 3) must come from one or two initializers per direction, not {}", from.size());
  }
  return e.op1(OpKind::Binary, {halves[0], halves[1]}, {{"fn", "add"}}, "bias");
}

// Input 5 or 6 ([directions, batch, hidden]) for one direction; zeros when it is left out.
Result<TensorId> initial(OnnxEmitter& e, const Sizes& sizes, std::size_t input, std::string_view name,
                         std::int64_t direction) {
  if (!e.given(input)) return e.implicit_input(name, sizes.dtype, {sizes.batch, sizes.hidden});
  WEFT_TRY(TensorId x, e.tensor(input));
  if (sizes.directions > 1) {
    WEFT_TRY(x,
             e.op1(OpKind::Slice, {x}, {{"dim", std::int64_t{0}}, {"begin", direction}, {"end", direction + 1}}, name));
  }
  return e.reshape(x, {sizes.batch, sizes.hidden}, name);
}

Result<Sizes> sizes_of(OnnxEmitter& e) {
  WEFT_TRY(const OnnxValue* x, e.value(0));
  const Shape& shape = x->type.shape;
  if (shape.size() != 3) return error("reads {}; it must be [steps, batch, size]", print(x->type));
  if (e.attrs().integer("layout", 0) != 0)
    return error("layout 1 (batch first) is not supported; export with layout 0");
  const std::string_view direction = e.attrs().text("direction", "forward");
  if (direction != "forward" && direction != "reverse" && direction != "bidirectional")
    return error("direction '{}' is unknown", printable(direction));
  Sizes sizes{.steps = shape[0],
              .batch = shape[1],
              .input = shape[2],
              .hidden = e.attrs().integer("hidden_size", 0),
              .directions = direction == "bidirectional" ? 2 : 1,
              .dtype = x->type.dtype};
  if (sizes.hidden <= 0 || sizes.hidden > (1LL << 24) || sizes.input > (1LL << 24))
    return error("hidden_size {} on inputs of {} is out of range", sizes.hidden, sizes.input);
  if (sizes.steps > kMaxSteps)
    return error("unrolls {} steps; Weft unrolls at most {}: export with a shorter sequence", sizes.steps, kMaxSteps);
  if (e.given(7)) return error("has peepholes (input 7), which are not supported");
  if (e.node().inputs.size() < 3 || e.given(1) || e.given(2) || e.given(3) || e.node().weights[0].empty() ||
      e.node().weights[1].empty())
    return error("its weights must come from initializers");
  return sizes;
}

bool wanted(const OnnxNode& node, std::size_t output) {
  return output < node.outputs.size() && !node.outputs[output].empty();
}

Result<TensorId> join(OnnxEmitter& e, const std::vector<TensorId>& parts, std::string_view part) {
  if (parts.size() == 1) return parts[0];
  WEFT_TRY(const std::vector<TensorId> joined, e.op(OpKind::Concat, parts, {{"dim", std::int64_t{0}}}, part));
  return joined[0];
}

Status import_lstm(OnnxEmitter& e) {
  WEFT_TRY(const Sizes sizes, sizes_of(e));
  WEFT_TRY(const TensorId x, e.tensor(0));
  const TensorId input[] = {x};
  std::vector<TensorId> steps = {x};
  if (sizes.steps > 1) {
    const std::vector<std::int64_t> ones(static_cast<std::size_t>(sizes.steps), 1);
    WEFT_TRY(steps, e.op(OpKind::Split, input, {{"dim", std::int64_t{0}}, {"sizes", ones}}, "steps"));
  }
  for (TensorId& step : steps) {
    WEFT_TRY(step, e.reshape(step, {sizes.batch, sizes.input}, "step"));
  }
  const std::int64_t batch = sizes.batch, hidden = sizes.hidden;
  std::vector<TensorId> sequences, last_h, last_c;  // per direction
  for (std::int64_t direction = 0; direction < sizes.directions; ++direction) {
    const bool reverse = direction == 1 || e.attrs().text("direction", "forward") == "reverse";
    CellWeights cell;
    WEFT_TRY(cell.wi, weight(e, sizes, 1, sizes.input, direction));
    WEFT_TRY(cell.wh, weight(e, sizes, 2, sizes.hidden, direction));
    WEFT_TRY(cell.bias, bias(e, sizes, direction));
    WEFT_TRY(TensorId h, initial(e, sizes, 5, "h0", direction));
    WEFT_TRY(TensorId c, initial(e, sizes, 6, "c0", direction));
    std::vector<TensorId> outputs(steps.size());
    for (std::size_t i = 0; i < steps.size(); ++i) {
      const std::size_t t = reverse ? steps.size() - 1 - i : i;
      const TensorId inputs[] = {steps[t], h, c, cell.wi, cell.wh, cell.bias};
      WEFT_TRY(const std::vector<TensorId> made,
               e.op(OpKind::LstmCell, inputs, {}, fmt::format("{}{}", reverse ? "r" : "t", t)));
      h = made[0];
      c = made[1];
      outputs[t] = h;
    }
    if (wanted(e.node(), 0)) {
      for (TensorId& output : outputs) {
        WEFT_TRY(output, e.reshape(output, {1, 1, batch, hidden}, "row"));
      }
      WEFT_TRY(const TensorId sequence, join(e, outputs, "sequence"));
      sequences.push_back(sequence);
    }
    if (wanted(e.node(), 1)) {
      WEFT_TRY(h, e.reshape(h, {1, batch, hidden}, "last_h"));
      last_h.push_back(h);
    }
    if (wanted(e.node(), 2)) {
      WEFT_TRY(c, e.reshape(c, {1, batch, hidden}, "last_c"));
      last_c.push_back(c);
    }
  }
  if (wanted(e.node(), 0)) {
    if (sizes.directions == 1) {
      e.define(0, sequences[0]);
    } else {
      WEFT_TRY(const std::vector<TensorId> y, e.op(OpKind::Concat, sequences, {{"dim", std::int64_t{1}}}, "both"));
      e.define(0, y[0]);
    }
  }
  if (wanted(e.node(), 1)) {
    WEFT_TRY(const TensorId h, join(e, last_h, "h"));
    e.define(1, h);
  }
  if (wanted(e.node(), 2)) {
    WEFT_TRY(const TensorId c, join(e, last_c, "c"));
    e.define(2, c);
  }
  return Ok{};
}

}  // namespace

std::span<const OnnxOperator> onnx_recurrent() {
  static constexpr OnnxOperator kOperators[] = {{"LSTM", import_lstm}};
  return kOperators;
}

}  // namespace weft
