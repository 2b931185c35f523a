#include "cost_check_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <sstream>

#include "cluster/library.h"
#include "graph/operators.h"
#include "profile/event.h"

namespace weft {
namespace {

using Row = std::map<std::string, std::string, std::less<>>;

// One record of a CSV file; quoted fields may hold commas, no line breaks.
std::vector<std::string> split_fields(std::string_view line) {
  std::vector<std::string> fields(1);
  bool quoted = false;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (c == '"' && quoted && i + 1 < line.size() && line[i + 1] == '"')
      fields.back() += line[++i];  // a doubled quote stands for one
    else if (c == '"')
      quoted = !quoted;
    else if (c == ',' && !quoted)
      fields.emplace_back();
    else if (c != '\r')
      fields.back() += c;
  }
  return fields;
}

Result<std::vector<Row>> read_rows(const std::string& path) {
  std::ifstream file(path);
  if (!file) return error("{}: cannot be read", path);
  std::string line;
  std::getline(file, line);
  const std::vector<std::string> columns = split_fields(line);
  std::vector<Row> rows;
  for (int number = 2; std::getline(file, line); ++number) {
    const std::vector<std::string> fields = split_fields(line);
    if (fields.size() != columns.size())
      return error("{} fields where the header has {}", fields.size(), columns.size()).at(path, number);
    Row& row = rows.emplace_back();
    for (std::size_t i = 0; i < fields.size(); ++i) row.emplace(columns[i], fields[i]);
  }
  return rows;
}

// FNV-1a of what the row measures: which share it falls in does not depend on the order of rows or on the times.
bool is_held_out(const Row& row, std::initializer_list<std::string_view> columns, std::uint64_t one_in) {
  std::uint64_t hash = 14695981039346656037u;
  for (std::string_view column : columns)
    if (const auto found = row.find(column); found != row.end())
      for (char c : found->second) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211u;
  return (hash >> 32) % one_in == 0;
}

Result<Signature> make(OpKind kind, const Attrs& attrs, std::vector<TensorType> inputs, std::string_view direction) {
  for (std::size_t i = 1; i < inputs.size(); ++i) inputs[i].weight = has_weights(kind);
  WEFT_TRY(Signature forward, make_signature(kind, attrs, inputs));
  if (direction == "forward") return forward;
  for (const Gradient& gradient : gradients_of(forward))
    if (gradient.name == direction) return gradient_signature(forward, gradient);
  return error("{} has no gradient {}", name_of(kind), direction);
}

// ---- tools/measure_gpu.py ----

Result<Signature> own_signature(const Row& row) {
  const std::optional<OpKind> kind = op_kind_named(row.at("operator"));
  if (!kind) return error("no operator of Weft: {}", row.at("operator"));
  WEFT_TRY(const Attrs attrs, parse_attrs(row.at("attributes")));
  std::vector<TensorType> inputs;
  std::istringstream words(row.at("shapes"));
  for (std::string word; words >> word;) {
    WEFT_TRY(TensorType type, parse_tensor_type(word));
    inputs.push_back(std::move(type));
  }
  return make(*kind, attrs, std::move(inputs), row.at("direction"));
}

// Which kernels are one, as the row's variant says; eager PyTorch fuses no biases and activations.
KernelChoice own_kernels(std::string_view variant) {
  const bool plain = variant.starts_with("unfused");
  KernelChoice kernels{.attention = !plain, .norm = !plain};
  kernels.cross_entropy = variant != "unfused_f32_copy";
  kernels.bias_activation = variant.starts_with("cudnn");
  kernels.optimizer = variant.starts_with("fused");
  kernels.channels_last = !variant.ends_with("nchw");
  kernels.attention_generation = variant == "flash" ? 2 : 3;
  return kernels;
}

Result<MeasuredOperator> own_operator(const Row& row, const std::shared_ptr<const DeviceSpec>& device,
                                      std::string_view device_name) {
  if (row.at("variant") == "grouped_mm_skewed") return error("skewed experts: the caller scales their extents");
  WEFT_TRY(Signature signature, own_signature(row));
  const std::string &variant = row.at("variant"), &dtype = row.at("dtype");
  MeasuredOperator op;
  op.device_name = device_name;
  op.set = "own";
  op.family = row.at("family");
  op.label = fmt::format("{} {} {} {}", row.at("operator"), row.at("direction"), dtype, variant);
  op.shapes = fmt::format("{} {}", row.at("attributes").empty() ? "{}" : row.at("attributes"), row.at("shapes"));
  op.device = device;
  op.signature = std::make_shared<const Signature>(std::move(signature));
  if (dtype == "tf32") op.arithmetic = Arithmetic::kTf32;
  if (dtype == "fp8") op.arithmetic = Arithmetic::kFp8;
  op.kernels = own_kernels(variant);
  // A call between pauses is a burst by itself; products at about three quarters of the peak.
  if (variant != "back_to_back") {
    const ProductRate rate = product_rate(*device, op.arithmetic.value_or(Arithmetic::kBf16));
    op.kernels.burst = 1e-6 + contraction_flops(*op.signature).value / (0.75 * rate.peak.value);
  }
  op.calls = variant == "cudnn_32_steps" ? 32 : 1;
  op.held_out = is_held_out(row, {"operator", "attributes", "shapes", "dtype", "direction", "variant"}, 10);
  return op;
}

Result<MeasuredTable> own_table(const std::vector<Row>& rows, std::string_view device_name) {
  WEFT_TRY(const std::shared_ptr<const DeviceSpec> device, find_device(Library{}, device_name));
  MeasuredTable table;
  double nothing = 0;
  for (const Row& row : rows)
    if (row.at("operator") == "nothing") nothing = std::stod(row.at("us_median")) * 1e-6;
  for (const Row& row : rows) {
    // Calls from a warm cache and host times are other tables.
    if (row.at("family") == "host" || (row.at("cache") != "cold" && row.at("family") != "sustained")) continue;
    Result<MeasuredOperator> op = own_operator(row, device, device_name);
    if (!op.ok()) {
      ++table.skipped[op.error().message];
      continue;
    }
    op->seconds = std::stod(row.at("us_median")) * 1e-6;
    op->overhead = nothing;
    table.rows.push_back(std::move(*op));
  }
  return table;
}

// ---- SimuMax ----

// "m=4096, layout=TN" or "b=1;h=2"
Row parameters_of(std::string_view text) {
  Row found;
  std::string word;
  const auto take = [&] {
    const auto equals = word.find('=');
    if (equals != std::string::npos) found.emplace(word.substr(0, equals), word.substr(equals + 1));
    word.clear();
  };
  for (char c : text) {
    if (c == ',' || c == ';')
      take();
    else if (c != ' ')
      word += c;
  }
  take();
  return found;
}
std::int64_t whole(const Row& row, std::string_view name) { return std::stoll(row.find(name)->second); }

// m × n over k as the product of training that has this layout: TN forward, NN of the input's gradient, NT the
// weight's.
Result<Signature> simumax_product(const Row& p) {
  const std::int64_t m = whole(p, "m"), k = whole(p, "k"), n = whole(p, "n");
  const std::string& layout = p.at("layout");
  const auto linear = [&](std::int64_t rows, std::int64_t in, std::int64_t out, std::string_view direction) {
    return make(OpKind::Linear, {{"transposed", std::int64_t{1}}},
                {{DType::BF16, {rows, in}}, {DType::BF16, {out, in}, true}}, direction);
  };
  if (layout == "TN") return linear(m, k, n, "forward");
  if (layout == "NN") return linear(m, n, k, "grad_input");
  return linear(k, n, m, "grad_weight");
}

Result<Signature> simumax_experts(const Row& p) {
  const std::int64_t groups = whole(p, "ng"), m = whole(p, "M"), n = whole(p, "N"), k = whole(p, "K");
  const std::string& stage = p.at("stage");
  return make(OpKind::ExpertLinear, {}, {{DType::BF16, {groups, m, k}}, {DType::BF16, {groups, k, n}, true}},
              stage == "fwd"          ? "forward"
              : stage == "bwd_grad_w" ? "grad_weight"
                                      : "grad_input");
}

Result<Signature> simumax_attention(const Row& p, bool backward) {
  const std::int64_t b = whole(p, "batch"), s = whole(p, "seq_len"), heads = whole(p, "head_num"),
                     shared = whole(p, "kv_head_num"), e = whole(p, "qk_head_dim"), d = whole(p, "v_head_dim");
  return make(OpKind::Attention, {{"heads", heads}, {"kv_heads", shared}, {"causal", std::int64_t{1}}},
              {{DType::BF16, {b, s, heads * e}}, {DType::BF16, {b, s, shared * e}}, {DType::BF16, {b, s, shared * d}}},
              backward ? "grad" : "forward");
}

Result<MeasuredTable> simumax_table(const std::vector<Row>& rows) {
  MeasuredTable table;
  for (const Row& row : rows) {
    const std::string &system = row.at("system"), &kind = row.at("op");
    const std::string device_name = system.starts_with("a100") ? "a100-80-pcie" : "b200";
    WEFT_TRY(const std::shared_ptr<const DeviceSpec> device, find_device(Library{}, device_name));
    const Row p = parameters_of(row.at("shape"));
    Result<Signature> signature = kind == "matmul"         ? simumax_product(p)
                                  : kind == "group_matmul" ? simumax_experts(p)
                                                           : simumax_attention(p, kind == "sdp_bwd");
    if (!signature.ok()) {
      ++table.skipped[signature.error().message];
      continue;
    }
    MeasuredOperator op;
    const bool accumulates = p.contains("accumulate") && p.at("accumulate") == "True";
    const std::string& out = p.contains("main_grad_dtype") && accumulates ? p.at("main_grad_dtype")
                             : p.contains("out_dtype")                    ? p.at("out_dtype")
                                                                          : system;
    if (out == "fp32") signature->outputs[0].dtype = DType::F32;
    // Its counts: attention in full, causal or not, five products backward for two forward.
    const double flops = contraction_flops(*signature).value * (kind == "sdp_bwd" ? 1.25 : 1);
    op.seconds = flops / (std::stod(row.at("peak_tflops")) * 1e12 * std::stod(row.at("measured_efficiency")));
    op.device_name = device_name;
    op.set = "simumax";
    op.family = kind;
    op.label = kind == "matmul" ? fmt::format("{} {} {}", kind, p.at("layout"), out) : kind;
    if (kind == "group_matmul") op.label = fmt::format("{} {} {}", kind, p.at("stage"), out);
    op.shapes = row.at("shape");
    op.device = device;
    op.signature = std::make_shared<const Signature>(std::move(*signature));
    op.kernels.accumulation = accumulates;
    op.kernels.attention_generation = 2;
    op.kernels.burst = 100 * flops / (0.5 * std::stod(row.at("peak_tflops")) * 1e12);  // a hundred calls in a row
    op.held_out = is_held_out(row, {"system", "op", "shape"}, 3);
    table.rows.push_back(std::move(op));
  }
  return table;
}

// ---- NeuSight ----

Result<Signature> neusight_signature(const Row& row, const Row& p) {
  const std::string& op = row.at("op");
  const auto f32 = [](Shape shape) { return TensorType{DType::F32, std::move(shape)}; };
  // The middle size is the one summed over: 768 of m=2048; n=768; k=30522, BERT's vocabulary.
  if (op == "linear")
    return make(OpKind::Linear, {{"transposed", std::int64_t{1}}},
                {f32({whole(p, "m"), whole(p, "n")}), f32({whole(p, "k"), whole(p, "n")})}, "forward");
  if (op == "bmm")
    return make(
        OpKind::Matmul, {},
        {f32({whole(p, "b"), whole(p, "m"), whole(p, "n")}), f32({whole(p, "b"), whole(p, "n"), whole(p, "k")})},
        "forward");
  if (op == "conv") {
    const std::int64_t kernel = whole(p, "kernel_size"), stride = whole(p, "stride"), pad = whole(p, "padding"),
                       side = whole(p, "input_size"), in = whole(p, "input_channel");
    return make(OpKind::Conv2d, {{"stride", Shape{stride, stride}}, {"pad", Shape{pad, pad}}},
                {f32({whole(p, "b"), in, side, side}), f32({whole(p, "output_channel"), in, kernel, kernel})},
                "forward");
  }
  const TensorType x = f32({whole(p, "b"), whole(p, "h")});
  if (op == "softmax") return make(OpKind::Softmax, {}, {x}, "forward");
  if (op == "ln") return make(OpKind::LayerNorm, {}, {x, f32({whole(p, "h")}), f32({whole(p, "h")})}, "forward");
  if (op == "add" || op == "mul") return make(OpKind::Binary, {{"fn", op}}, {x, x}, "forward");
  return make(OpKind::Unary, {{"fn", op}}, {x}, "forward");
}

Result<std::string> neusight_device(std::string_view gpu) {
  static const std::map<std::string, std::string, std::less<>> names = {{"AMD Instinct MI100", "mi100"},
                                                                        {"AMD Instinct MI210", "mi210"},
                                                                        {"NVIDIA A100 80GB PCIe", "a100-80-pcie"},
                                                                        {"NVIDIA A100-PCIE-40GB", "a100-40-pcie"},
                                                                        {"Tesla P100-PCIE-16GB", "p100-pcie"},
                                                                        {"Tesla P4", "p4"},
                                                                        {"Tesla T4", "t4"},
                                                                        {"Tesla V100-PCIE-32GB", "v100-32"}};
  const auto found = names.find(gpu);
  if (found == names.end()) return error("no device preset for {}", gpu);
  return found->second;
}

// Its times hold the host's. No call of an operator is shorter than the host takes for it: the shortest but one in a
// hundred. And every call begins late by what the line through calls of growing size has at no bytes (least relative
// squares, those that take at least a third longer than the shortest); products as late as sums. Convolutions, for
// which the library chooses an algorithm and its scratch at every call, begin as late as the very shortest of them
// takes: its kernel is a few microseconds. All from rows that are not held out.
void take_out_host_time(std::vector<MeasuredOperator>& rows) {
  using Key = std::pair<std::string, std::string>;  // device, operator
  const auto is_product = [](const MeasuredOperator& op) { return contraction_flops(*op.signature).value > 0; };
  std::map<Key, std::vector<double>> times;
  for (const MeasuredOperator& op : rows)
    if (!op.held_out) times[{op.device_name, op.family}].push_back(op.seconds);
  for (auto& [key, all] : times) std::sort(all.begin(), all.end());
  const auto shortest = [&](const MeasuredOperator& op, std::size_t one_in = 100) {
    const std::vector<double>& all = times[{op.device_name, op.family}];
    return all.empty() ? 0 : all[all.size() / one_in];
  };
  struct Line {
    double weight = 0, x = 0, y = 0, xx = 0, xy = 0;
    double at_nothing() const {
      const double spread = weight * xx - x * x;
      return spread > 0 ? (y * xx - x * xy) / spread : 0;
    }
  };
  std::map<Key, Line> lines;
  for (const MeasuredOperator& op : rows) {
    if (op.held_out || is_product(op) || op.seconds < 4.0 / 3 * shortest(op)) continue;
    Line& line = lines[{op.device_name, op.family}];
    const double w = 1 / (op.seconds * op.seconds), bytes = static_cast<double>(bytes_written(*op.signature).value);
    line.weight += w;
    line.x += w * bytes;
    line.y += w * op.seconds;
    line.xx += w * bytes * bytes;
    line.xy += w * bytes * op.seconds;
  }
  for (MeasuredOperator& op : rows) {
    op.least = shortest(op);
    const double late = op.signature->kind == OpKind::Conv2d
                            ? shortest(op, rows.size() + 1)
                            : lines[{op.device_name, is_product(op) ? "add" : op.family}].at_nothing();
    op.overhead = std::max(0.0, late - built_in_tuning().of(*op.device).kernel.value.value);
  }
}

Result<MeasuredTable> neusight_table(const std::vector<Row>& rows) {
  MeasuredTable table;
  for (const Row& row : rows) {
    const Result<std::string> device_name = neusight_device(row.at("gpu"));
    Result<Signature> signature = neusight_signature(row, parameters_of(row.at("shape")));
    if (!device_name.ok() || !signature.ok()) {
      ++table.skipped[device_name.ok() ? signature.error().message : device_name.error().message];
      continue;
    }
    MeasuredOperator op;
    op.device_name = *device_name;
    op.set = "neusight";
    op.family = op.label = row.at("op");
    op.shapes = row.at("shape");
    WEFT_TRY(op.device, find_device(Library{}, *device_name));
    op.signature = std::make_shared<const Signature>(std::move(*signature));
    op.kernels.channels_last = false;
    op.kernels.bias_activation = false;
    op.kernels.burst = 1e-6;
    op.seconds = std::stod(row.at("forward_ms")) * 1e-3;
    op.held_out = is_held_out(row, {"gpu", "op", "shape"}, 3);
    table.rows.push_back(std::move(op));
  }
  take_out_host_time(table.rows);
  return table;
}

}  // namespace

Result<MeasuredTable> read_measured_operators(const std::string& path, std::string_view device) {
  WEFT_TRY(const std::vector<Row> rows, read_rows(path));
  if (rows.empty()) return error("{}: no rows", path);
  const Row& first = rows.front();
  if (first.contains("us_median") && first.contains("shapes") && !first.contains("beside"))
    return own_table(rows, device);
  if (first.contains("measured_efficiency")) return simumax_table(rows);
  if (first.contains("forward_ms")) return neusight_table(rows);
  return error(
      "{}: no table of operators that is known; its columns are of none of tools/measure_gpu.py, SimuMax, "
      "NeuSight",
      path);
}

Result<std::vector<MeasuredInterference>> read_measured_interference(const std::string& path, std::string_view device) {
  WEFT_TRY(const std::shared_ptr<const DeviceSpec> spec, find_device(Library{}, device));
  WEFT_TRY(const std::vector<Row> rows, read_rows(path));
  std::vector<MeasuredInterference> all;
  for (const Row& row : rows) {
    if (!row.contains("beside") || row.at("beside").starts_with("none")) continue;
    WEFT_TRY(MeasuredOperator op, own_operator(row, spec, device));
    op.seconds = std::stod(row.at("us_alone")) * 1e-6;
    op.held_out =
        is_held_out(row, {"operator", "attributes", "shapes", "direction", "variant", "beside", "beside_units"}, 3);
    const std::string &moved = row.at("beside_alone_gbs"), &beside = row.at("beside_gbs");
    all.push_back({.alone = std::move(op),
                   .beside = row.at("beside"),
                   .units = std::stod(row.at("beside_units")),
                   .bytes_per_second = moved.empty() ? 0 : std::stod(moved) * 1e9,
                   .slowdown = std::stod(row.at("us_median")) / std::stod(row.at("us_alone")),
                   .slowdown_of_other = moved.empty() || beside.empty() ? 0 : std::stod(moved) / std::stod(beside)});
  }
  return all;
}

}  // namespace weft
