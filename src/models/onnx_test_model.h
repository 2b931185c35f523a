// Hand-made ONNX models for the importer's tests, and the paths of the exported ones.
#pragma once

#include <onnx/onnx_pb.h>

#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "models/onnx_import.h"

namespace weft {

inline std::string source(const std::string& path) { return std::string(std::getenv("WEFT_SOURCE_DIR")) + "/" + path; }
inline std::string model_file(const std::string& name) { return source("tests/onnx/" + name + ".onnx"); }

inline std::string read_bytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// A small model under construction.
class OnnxFile {
 public:
  explicit OnnxFile(int opset = 14) { proto_.add_opset_import()->set_version(opset); }

  OnnxFile& input(const std::string& name, const std::vector<std::int64_t>& shape,
                  int type = onnx::TensorProto::FLOAT) {
    declare(*graph().add_input(), name, shape, type);
    return *this;
  }
  OnnxFile& symbolic(const std::string& name, const std::vector<std::string>& dims) {
    auto* type = graph().add_input();
    declare(*type, name, {}, onnx::TensorProto::FLOAT);
    for (const std::string& dim : dims)
      type->mutable_type()->mutable_tensor_type()->mutable_shape()->add_dim()->set_dim_param(dim);
    return *this;
  }
  OnnxFile& weight(const std::string& name, const std::vector<std::int64_t>& shape) {
    auto* tensor = graph().add_initializer();
    tensor->set_name(name);
    tensor->set_data_type(onnx::TensorProto::FLOAT);
    for (const std::int64_t extent : shape) tensor->add_dims(extent);
    tensor->set_data_location(onnx::TensorProto::EXTERNAL);
    auto* entry = tensor->add_external_data();
    entry->set_key("location");
    entry->set_value("weights.bin");
    return *this;
  }
  OnnxFile& integers(const std::string& name, const std::vector<std::int64_t>& values, bool scalar = false) {
    auto* tensor = graph().add_initializer();
    tensor->set_name(name);
    tensor->set_data_type(onnx::TensorProto::INT64);
    if (!scalar) tensor->add_dims(static_cast<std::int64_t>(values.size()));
    for (const std::int64_t value : values) tensor->add_int64_data(value);
    return *this;
  }
  OnnxFile& number(const std::string& name, float value) {
    auto* tensor = graph().add_initializer();
    tensor->set_name(name);
    tensor->set_data_type(onnx::TensorProto::FLOAT);
    tensor->add_float_data(value);
    return *this;
  }
  OnnxFile& node(const std::string& op, const std::vector<std::string>& inputs, const std::vector<std::string>& outputs,
                 const Attrs& attrs = {}, const std::string& name = "") {
    auto* node = graph().add_node();
    node->set_op_type(op);
    node->set_name(name.empty() ? "/net/" + op : name);
    for (const std::string& input : inputs) node->add_input(input);
    for (const std::string& output : outputs) node->add_output(output);
    for (const auto& [key, value] : attrs) {
      auto* attribute = node->add_attribute();
      attribute->set_name(key);
      if (const auto* integer = std::get_if<std::int64_t>(&value)) {
        attribute->set_type(onnx::AttributeProto::INT);
        attribute->set_i(*integer);
      } else if (const auto* real = std::get_if<double>(&value)) {
        attribute->set_type(onnx::AttributeProto::FLOAT);
        attribute->set_f(static_cast<float>(*real));
      } else if (const auto* text = std::get_if<std::string>(&value)) {
        attribute->set_type(onnx::AttributeProto::STRING);
        attribute->set_s(*text);
      } else {
        attribute->set_type(onnx::AttributeProto::INTS);
        for (const std::int64_t item : std::get<std::vector<std::int64_t>>(value)) attribute->add_ints(item);
      }
    }
    return *this;
  }
  OnnxFile& output(const std::string& name, const std::vector<std::int64_t>& shape = {}) {
    declare(*graph().add_output(), name, shape, onnx::TensorProto::FLOAT);
    return *this;
  }
  std::string bytes() const { return proto_.SerializeAsString(); }
  onnx::ModelProto& proto() { return proto_; }
  Result<Graph> import(OnnxOptions options = {.loss = false}) const {
    return import_onnx_bytes(bytes(), "m.onnx", options);
  }
  std::string error(const OnnxOptions& options = {.loss = false}) const {
    const auto graph = import(options);
    return graph.ok() ? "" : graph.error().message;
  }

 private:
  static void declare(onnx::ValueInfoProto& info, const std::string& name, const std::vector<std::int64_t>& shape,
                      int type) {
    info.set_name(name);
    auto* tensor = info.mutable_type()->mutable_tensor_type();
    tensor->set_elem_type(type);
    tensor->mutable_shape();
    for (const std::int64_t extent : shape) tensor->mutable_shape()->add_dim()->set_dim_value(extent);
  }
  onnx::GraphProto& graph() { return *proto_.mutable_graph(); }

  onnx::ModelProto proto_;
};

using Ints = std::vector<std::int64_t>;

}  // namespace weft
