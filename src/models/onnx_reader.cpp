#include "models/onnx_reader.h"

#include <fmt/format.h>
#include <google/protobuf/io/zero_copy_stream_impl.h>
#include <google/protobuf/stubs/logging.h>
#include <onnx/onnx_pb.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <queue>

#include "base/checked.h"
#include "base/read_file.h"
#include "models/onnx_shapes.h"

namespace weft {
namespace {

// No real network has operators with more operands; they would make signatures absurdly large.
constexpr int kMaxOperands = 4096;

using onnx::TensorProto;

Result<DType> dtype_of(int onnx_type) {
  if (const auto dtype = onnx_dtype(onnx_type)) return *dtype;
  if (TensorProto::DataType_IsValid(onnx_type))
    return error("elements of type {} are not supported",
                 TensorProto::DataType_Name(static_cast<TensorProto::DataType>(onnx_type)));
  return error("unknown element type {}", onnx_type);
}

double from_half(std::uint16_t bits) {
  const int exponent = (bits >> 10) & 31, mantissa = bits & 1023;
  const double magnitude = exponent == 31  ? (mantissa ? std::nan("") : std::numeric_limits<double>::infinity())
                           : exponent == 0 ? std::ldexp(mantissa, -24)
                                           : std::ldexp(1024 + mantissa, exponent - 25);
  return bits & 0x8000 ? -magnitude : magnitude;
}
double from_bfloat(std::uint16_t bits) { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }

// Raw data is little-endian, as are the machines Weft runs on.
template <class T, class Out, class Convert>
Status read_raw(const std::string& raw, std::size_t count, std::vector<Out>& out, Convert convert) {
  if (raw.size() != count * sizeof(T))
    return error("holds {} bytes of data, but its shape needs {}", raw.size(), count * sizeof(T));
  for (std::size_t i = 0; i < count; ++i) {
    T item;
    std::memcpy(&item, raw.data() + i * sizeof(T), sizeof(T));
    out.push_back(static_cast<Out>(convert(item)));
  }
  return Ok{};
}

template <class Field, class Out, class Convert>
Status read_field(const Field& field, std::size_t count, std::vector<Out>& out, Convert convert) {
  if (static_cast<std::size_t>(field.size()) != count)
    return error("holds {} elements, but its shape needs {}", field.size(), count);
  for (const auto& item : field) out.push_back(static_cast<Out>(convert(item)));
  return Ok{};
}

Status read_elements(const TensorProto& proto, std::size_t count, OnnxTensor& tensor) {
  const auto same = [](auto item) { return item; };
  const auto half = [](auto item) { return from_half(static_cast<std::uint16_t>(item)); };
  const auto bfloat = [](auto item) { return from_bfloat(static_cast<std::uint16_t>(item)); };
  auto& integers = tensor.integers;
  auto& reals = tensor.reals;
  const std::string& raw = proto.raw_data();
  if (proto.has_raw_data()) switch (proto.data_type()) {
      case TensorProto::FLOAT:
        return read_raw<float>(raw, count, reals, same);
      case TensorProto::DOUBLE:
        return read_raw<double>(raw, count, reals, same);
      case TensorProto::FLOAT16:
        return read_raw<std::uint16_t>(raw, count, reals, half);
      case TensorProto::BFLOAT16:
        return read_raw<std::uint16_t>(raw, count, reals, bfloat);
      case TensorProto::INT64:
      case TensorProto::UINT64:
        return read_raw<std::int64_t>(raw, count, integers, same);
      case TensorProto::INT32:
        return read_raw<std::int32_t>(raw, count, integers, same);
      case TensorProto::UINT32:
        return read_raw<std::uint32_t>(raw, count, integers, same);
      case TensorProto::INT16:
        return read_raw<std::int16_t>(raw, count, integers, same);
      case TensorProto::UINT16:
        return read_raw<std::uint16_t>(raw, count, integers, same);
      case TensorProto::INT8:
        return read_raw<std::int8_t>(raw, count, integers, same);
      default:
        return read_raw<std::uint8_t>(raw, count, integers, same);
    }
  switch (proto.data_type()) {
    case TensorProto::FLOAT:
      return read_field(proto.float_data(), count, reals, same);
    case TensorProto::DOUBLE:
      return read_field(proto.double_data(), count, reals, same);
    case TensorProto::FLOAT16:
      return read_field(proto.int32_data(), count, reals, half);
    case TensorProto::BFLOAT16:
      return read_field(proto.int32_data(), count, reals, bfloat);
    case TensorProto::INT64:
      return read_field(proto.int64_data(), count, integers, same);
    case TensorProto::UINT64:
    case TensorProto::UINT32:
      return read_field(proto.uint64_data(), count, integers, same);
    default:
      return read_field(proto.int32_data(), count, integers, same);
  }
}

Result<OnnxTensor> read_tensor(const TensorProto& proto) {
  OnnxTensor tensor;
  WEFT_TRY(tensor.type.dtype, dtype_of(proto.data_type()));
  if (proto.dims_size() > kMaxOperands) return error("has {} dimensions", proto.dims_size());
  for (const std::int64_t extent : proto.dims()) {
    if (extent < 0) return error("has a dimension of {}", extent);
    tensor.type.shape.push_back(extent);
  }
  const auto elements = checked_product(tensor.type.shape);
  if (!elements) return error("has a shape [{}] too large to count", fmt::join(tensor.type.shape, ","));
  const bool stored = proto.data_location() != TensorProto::EXTERNAL && tensor.type.dtype != DType::F8;
  if (!stored || *elements > kMaxKnownElements) return tensor;
  WEFT_TRY_OK(read_elements(proto, static_cast<std::size_t>(*elements), tensor));
  tensor.known = true;
  return tensor;
}

// A constant given as a plain attribute of the node Constant.
template <class Items>
OnnxTensor list_tensor(DType dtype, const Items& items, bool scalar) {
  OnnxTensor tensor{.type = {dtype, {}}};
  if (!scalar) tensor.type.shape = {static_cast<std::int64_t>(items.size())};
  tensor.known = static_cast<std::int64_t>(items.size()) <= kMaxKnownElements;
  for (const auto item : items) {
    if (!tensor.known) break;
    if (is_floating(dtype))
      tensor.reals.push_back(static_cast<double>(item));
    else
      tensor.integers.push_back(static_cast<std::int64_t>(item));
  }
  return tensor;
}

Result<OnnxNode> read_node(const onnx::NodeProto& proto) {
  OnnxNode node;
  const bool standard = proto.domain().empty() || proto.domain() == "ai.onnx";
  node.op = standard ? proto.op_type() : proto.domain() + "::" + proto.op_type();
  node.name = proto.name();
  node.inputs.assign(proto.input().begin(), proto.input().end());
  node.outputs.assign(proto.output().begin(), proto.output().end());
  const auto wrong = [&](const Error& error) { return error.at(describe(node)); };
  if (proto.input_size() > kMaxOperands || proto.output_size() > kMaxOperands)
    return wrong(error("has {} inputs and {} outputs; at most {} each are read", proto.input_size(),
                       proto.output_size(), kMaxOperands));
  for (const onnx::AttributeProto& attribute : proto.attribute()) {
    const std::string& name = attribute.name();
    switch (attribute.type()) {
      case onnx::AttributeProto::INT:
        node.attrs.set(name, std::int64_t{attribute.i()});
        break;
      case onnx::AttributeProto::FLOAT:
        node.attrs.set(name, double{attribute.f()});
        break;
      case onnx::AttributeProto::STRING:
        node.attrs.set(name, attribute.s());
        break;
      case onnx::AttributeProto::INTS:
        node.attrs.set(name, std::vector<std::int64_t>(attribute.ints().begin(), attribute.ints().end()));
        break;
      case onnx::AttributeProto::TENSOR:
        if (name == "value") {
          auto tensor = read_tensor(attribute.t());
          if (!tensor.ok()) return wrong(tensor.error().at("attribute value"));
          node.value = std::move(tensor).value();
        }
        break;
      default:
        break;  // lists of strings, graphs: only unknown operators have them
    }
    if (node.op != "Constant") continue;
    if (name == "value_int") node.value = list_tensor(DType::I64, std::vector{attribute.i()}, true);
    if (name == "value_ints") node.value = list_tensor(DType::I64, attribute.ints(), false);
    if (name == "value_float") node.value = list_tensor(DType::F32, std::vector{attribute.f()}, true);
    if (name == "value_floats") node.value = list_tensor(DType::F32, attribute.floats(), false);
  }
  return node;
}

// The size of one dimension; nothing when it is symbolic and unbound.
Result<std::optional<std::int64_t>> bind(const onnx::TensorShapeProto::Dimension& dim, bool leading,
                                         const OnnxOptions& options) {
  if (dim.has_dim_value()) {
    if (dim.dim_value() <= 0) return error("dimension of {}; sizes must be positive", dim.dim_value());
    return std::optional<std::int64_t>(dim.dim_value());
  }
  const auto bound = options.dims.find(dim.dim_param());
  const bool batch = leading || dim.dim_param().starts_with("batch");
  if (bound == options.dims.end() && !batch) return std::optional<std::int64_t>();
  const std::int64_t size = bound != options.dims.end() ? bound->second : options.batch;
  if (size <= 0)
    return error("symbolic dimension '{}' bound to {}; sizes must be positive", printable(dim.dim_param()), size);
  return std::optional(size);
}

Result<TensorType> read_input_type(const onnx::ValueInfoProto& info, const OnnxOptions& options) {
  if (!info.type().has_tensor_type()) return error("is not a tensor");
  const auto& proto = info.type().tensor_type();
  TensorType type;
  WEFT_TRY(type.dtype, dtype_of(proto.elem_type()));
  if (!proto.has_shape()) return error("has no shape; export the model with input shapes");
  for (int d = 0; d < proto.shape().dim_size(); ++d) {
    WEFT_TRY(const std::optional<std::int64_t> size, bind(proto.shape().dim(d), d == 0, options));
    if (!size) {
      const std::string symbol = printable(proto.shape().dim(d).dim_param());
      return error("dimension {} is symbolic ('{}'); give its size, FILE.onnx:{}=SIZE", d, symbol,
                   symbol.empty() ? "NAME" : symbol);
    }
    type.shape.push_back(*size);
  }
  return type;
}

void declare(const onnx::ValueInfoProto& info, const OnnxOptions& options, OnnxModel& model) {
  const auto type = read_input_type(info, options);
  if (type.ok()) model.declared.emplace(info.name(), *type);
}

// Sorts nodes so that every value is produced before it is read, keeping the file's order where that is so
// already.
Status sort_nodes(OnnxModel& model) {
  std::unordered_map<std::string_view, std::size_t> producer;
  std::unordered_set<std::string_view> given;
  for (const auto& [name, tensor] : model.initializers) given.insert(name);
  for (const auto& [name, type] : model.inputs) given.insert(name);
  for (std::size_t i = 0; i < model.nodes.size(); ++i)
    for (const std::string& output : model.nodes[i].outputs) {
      if (output.empty()) continue;
      if (given.contains(output) || !producer.emplace(output, i).second)
        return error("'{}' is defined twice", printable(output)).at(describe(model.nodes[i]));
    }
  std::vector<std::vector<std::size_t>> readers(model.nodes.size());
  std::vector<std::size_t> waiting(model.nodes.size(), 0);
  for (std::size_t i = 0; i < model.nodes.size(); ++i)
    for (const std::string& input : model.nodes[i].inputs) {
      if (input.empty() || given.contains(input)) continue;
      const auto from = producer.find(input);
      if (from == producer.end())
        return error("reads '{}', which nothing produces", printable(input)).at(describe(model.nodes[i]));
      readers[from->second].push_back(i);
      ++waiting[i];
    }
  for (const std::string& output : model.outputs)
    if (!given.contains(output) && !producer.contains(output))
      return error("output '{}': nothing produces it", printable(output));
  std::priority_queue<std::size_t, std::vector<std::size_t>, std::greater<>> ready;
  for (std::size_t i = 0; i < waiting.size(); ++i)
    if (waiting[i] == 0) ready.push(i);
  std::vector<std::size_t> order;
  while (!ready.empty()) {
    order.push_back(ready.top());
    ready.pop();
    for (const std::size_t reader : readers[order.back()])
      if (--waiting[reader] == 0) ready.push(reader);
  }
  if (order.size() < model.nodes.size()) {
    const auto stuck = std::find_if(waiting.begin(), waiting.end(), [](std::size_t count) { return count > 0; });
    return error("depends on its own output; a graph must have no cycles")
        .at(describe(model.nodes[stuck - waiting.begin()]));
  }
  std::vector<OnnxNode> sorted;
  sorted.reserve(order.size());
  for (const std::size_t i : order) sorted.push_back(std::move(model.nodes[i]));
  model.nodes = std::move(sorted);
  return Ok{};
}

Result<OnnxModel> read_model(const onnx::ModelProto& proto, const OnnxOptions& options) {
  const onnx::GraphProto& graph = proto.graph();
  if (graph.node_size() == 0) return error("holds no nodes; is it an ONNX model?");
  if (graph.output_size() == 0) return error("declares no outputs");
  OnnxModel model;
  for (const auto& import : proto.opset_import())
    if (import.domain().empty() || import.domain() == "ai.onnx") model.opset = import.version();
  for (const auto& property : proto.metadata_props()) {
    if (property.key() != "weft.buffers") continue;
    std::string_view names = property.value();
    while (!names.empty()) {
      const std::size_t end = std::min(names.find('\n'), names.size());
      model.buffers.emplace(names.substr(0, end));
      names.remove_prefix(std::min(end + 1, names.size()));
    }
  }
  for (const TensorProto& initializer : graph.initializer()) {
    auto tensor = read_tensor(initializer);
    const std::string place = fmt::format("initializer '{}'", printable(initializer.name()));
    if (!tensor.ok()) return tensor.error().at(place);
    if (!model.initializers.emplace(initializer.name(), std::move(tensor).value()).second)
      return error("is defined twice").at(place);
  }
  std::unordered_set<std::string_view> seen;
  for (const auto& input : graph.input()) {
    if (model.initializers.contains(input.name())) continue;  // a default value; version 3 files list all weights here
    const std::string place = fmt::format("input '{}'", printable(input.name()));
    if (!seen.insert(input.name()).second) return error("is defined twice").at(place);
    auto type = read_input_type(input, options);
    if (!type.ok()) return type.error().at(place);
    model.inputs.emplace_back(input.name(), std::move(type).value());
  }
  for (const auto& output : graph.output()) {
    model.outputs.push_back(output.name());
    declare(output, options, model);
  }
  for (const auto& info : graph.value_info()) declare(info, options, model);
  for (const onnx::NodeProto& node : graph.node()) {
    WEFT_TRY(OnnxNode read, read_node(node));
    model.nodes.push_back(std::move(read));
  }
  WEFT_TRY_OK(sort_nodes(model));
  return model;
}

// Protobuf's own limit is 2 GiB.
constexpr FileKind kOnnx{"an ONNX file (of a larger model, with its weights as external data)",
                         std::size_t{2047} << 20};
constexpr std::string_view kNotOnnx = "is not an ONNX file, or is cut short: its protobuf encoding does not parse";

}  // namespace

std::string printable(std::string_view name) {
  constexpr std::size_t kLongest = 200;
  std::string text(name.substr(0, kLongest));
  for (char& c : text)
    if (static_cast<unsigned char>(c) < ' ' || c == '\x7f') c = '?';
  return name.size() > kLongest ? text + "…" : text;
}

std::string describe(const OnnxNode& node) {
  if (!node.name.empty()) return fmt::format("node '{}' ({})", printable(node.name), printable(node.op));
  for (const std::string& output : node.outputs)
    if (!output.empty()) return fmt::format("the node of '{}' ({})", printable(output), printable(node.op));
  return fmt::format("a node without a name ({})", printable(node.op));
}

Result<OnnxModel> read_onnx_file(const std::string& path, const OnnxOptions& options) {
  WEFT_TRY(const InputFile file, InputFile::open(path, kOnnx));
  const google::protobuf::LogSilencer silence;
  onnx::ModelProto proto;
  google::protobuf::io::FileInputStream stream(file.descriptor());
  if (!proto.ParseFromZeroCopyStream(&stream)) return error("{}", kNotOnnx).at(path);
  Result<OnnxModel> model = read_model(proto, options);
  return model.ok() ? std::move(model) : model.error().at(path);
}

Result<OnnxModel> read_onnx_bytes(std::string_view bytes, const OnnxOptions& options) {
  const google::protobuf::LogSilencer silence;
  onnx::ModelProto proto;
  if (bytes.size() > static_cast<std::size_t>(std::numeric_limits<int>::max()) ||
      !proto.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())))
    return error("{}", kNotOnnx);
  return read_model(proto, options);
}

void drop_dead_nodes(OnnxModel& model) {
  std::unordered_set<std::string_view> needed(model.outputs.begin(), model.outputs.end());
  std::vector<char> live(model.nodes.size(), 0);
  for (std::size_t i = model.nodes.size(); i-- > 0;) {
    OnnxNode& node = model.nodes[i];
    for (std::string& output : node.outputs) {
      if (!output.empty() && needed.contains(output))
        live[i] = 1;
      else
        output.clear();
    }
    if (live[i]) needed.insert(node.inputs.begin(), node.inputs.end());
  }
  std::vector<OnnxNode> kept;
  for (std::size_t i = 0; i < model.nodes.size(); ++i)
    if (live[i]) kept.push_back(std::move(model.nodes[i]));
  model.nodes = std::move(kept);
}

}  // namespace weft
