#include "models/onnx_import.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <onnx/onnx_pb.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/random.h"
#include "graph/training.h"

namespace weft {
namespace {

using ::testing::HasSubstr;

std::string source(const std::string& path) {
  return std::string(std::getenv("WEFT_SOURCE_DIR")) + "/" + path;
}
std::string model_file(const std::string& name) { return source("tests/onnx/" + name + ".onnx"); }

std::string read_bytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

double forward_flops(const Graph& graph) {
  double total = 0;
  for (OpId op : graph.ops().ids()) total += contraction_flops(graph.signature(op)).value;
  return total;
}

// Operators by kind, unary ones by function.
std::map<std::string, int> kinds(const Graph& graph) {
  std::map<std::string, int> counts;
  for (OpId op : graph.ops().ids()) {
    const Signature& signature = graph.signature(op);
    ++counts[std::string(signature.kind == OpKind::Unary ? signature.attrs.text("fn", "")
                                                         : name_of(signature.kind))];
  }
  return counts;
}

const Signature* signature_named(const Graph& graph, const std::string& name) {
  for (OpId op : graph.ops().ids())
    if (graph.name(op) == name) return &graph.signature(op);
  return nullptr;
}

// Notation and attributes of an operator by its full name.
std::string shown(const Graph& graph, const std::string& name) {
  const Signature* signature = signature_named(graph, name);
  return signature ? fmt::format("{} {} {}", name_of(signature->kind), notation_of(*signature),
                                 axis_sizes_of(*signature))
                   : "";
}

Shape result_shape(const Graph& graph, std::size_t i = 0) {
  return graph.tensors()[graph.results()[i]].type.shape;
}

// A small model under construction.
class Model {
 public:
  explicit Model(int opset = 14) { proto_.add_opset_import()->set_version(opset); }

  Model& input(const std::string& name, const std::vector<std::int64_t>& shape,
               int type = onnx::TensorProto::FLOAT) {
    declare(*graph().add_input(), name, shape, type);
    return *this;
  }
  Model& symbolic(const std::string& name, const std::vector<std::string>& dims) {
    auto* type = graph().add_input();
    declare(*type, name, {}, onnx::TensorProto::FLOAT);
    for (const std::string& dim : dims)
      type->mutable_type()->mutable_tensor_type()->mutable_shape()->add_dim()->set_dim_param(dim);
    return *this;
  }
  Model& weight(const std::string& name, const std::vector<std::int64_t>& shape) {
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
  Model& integers(const std::string& name, const std::vector<std::int64_t>& values, bool scalar = false) {
    auto* tensor = graph().add_initializer();
    tensor->set_name(name);
    tensor->set_data_type(onnx::TensorProto::INT64);
    if (!scalar) tensor->add_dims(static_cast<std::int64_t>(values.size()));
    for (const std::int64_t value : values) tensor->add_int64_data(value);
    return *this;
  }
  Model& number(const std::string& name, float value) {
    auto* tensor = graph().add_initializer();
    tensor->set_name(name);
    tensor->set_data_type(onnx::TensorProto::FLOAT);
    tensor->add_float_data(value);
    return *this;
  }
  Model& node(const std::string& op, const std::vector<std::string>& inputs,
              const std::vector<std::string>& outputs, const Attrs& attrs = {},
              const std::string& name = "") {
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
  Model& output(const std::string& name, const std::vector<std::int64_t>& shape = {}) {
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
  static void declare(onnx::ValueInfoProto& info, const std::string& name,
                      const std::vector<std::int64_t>& shape, int type) {
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
constexpr int kInt64 = onnx::TensorProto::INT64;

// ---- the exported files
// -------------------------------------------------------------------------------------------

TEST(ImportOnnx, ParametersAndFlopsAreTheExportersAndEveryParameterIsTrained) {
  std::ifstream file(source("tests/onnx/expected.json"));
  const nlohmann::json expected = nlohmann::json::parse(file);
  EXPECT_EQ(expected.size(), 10u);
  for (const auto& [name, figures] : expected.items()) {
    const auto graph = import_onnx(model_file(name), {.batch = 2});
    ASSERT_TRUE(graph.ok()) << graph.error().message;
    EXPECT_EQ(graph->parameter_count(), figures["parameters"].get<std::int64_t>()) << name;
    EXPECT_EQ(forward_flops(*graph), figures["contraction_flops_forward"].get<double>())
        << name;  // exact, all of them
    int parameters = 0;
    for (const Tensor& tensor : graph->tensors()) parameters += tensor.kind == TensorKind::Parameter;
    EXPECT_EQ(parameters, figures["parameter_tensors"].get<int>()) << name;
    const auto training = make_training_graph(*graph);
    ASSERT_TRUE(training.ok()) << name << ": " << training.error().message;
    EXPECT_EQ(static_cast<int>(training->accumulated.size()), parameters) << name;
  }
}

TEST(ImportOnnx, OutputShapesAreTheExporters) {
  std::ifstream file(source("tests/onnx/expected.json"));
  const nlohmann::json expected = nlohmann::json::parse(file);
  for (const auto& [name, figures] : expected.items()) {
    const auto graph = import_onnx(model_file(name), {.batch = 2, .loss = false});
    ASSERT_TRUE(graph.ok()) << graph.error().message;
    std::multiset<Shape> shapes, wanted;
    for (std::size_t i = 0; i < graph->results().size(); ++i) shapes.insert(result_shape(*graph, i));
    for (const auto& [output, shape] : figures["outputs"].items()) wanted.insert(shape.get<Shape>());
    EXPECT_EQ(shapes, wanted) << name;
  }
}

TEST(ImportOnnx, ModulesFollowTheScopesOfNodeNames) {
  const auto resnet = import_onnx(model_file("resnet50"));
  ASSERT_TRUE(resnet.ok()) << resnet.error().message;
  EXPECT_EQ(
      shown(*resnet, "layer1.0.downsample.0.Conv"),
      "conv2d x[b,g.c,h~kh,w~kw] w[g.o,c,kh,kw] -> y[b,g.o,h,w] g=1 b=2 c=64 h=56 kh=1 w=56 kw=1 o=256");
  std::set<std::string> parameters;
  for (TensorId tensor : resnet->tensors().ids())
    if (resnet->tensors()[tensor].kind == TensorKind::Parameter) parameters.insert(resnet->name(tensor));
  EXPECT_TRUE(parameters.contains("layer1.0.conv1.weight"));
  EXPECT_TRUE(parameters.contains("fc.bias"));
  EXPECT_FALSE(parameters.contains("bn1.running_mean"));
  const auto gpt2 = import_onnx(model_file("gpt2"));
  ASSERT_TRUE(gpt2.ok());
  EXPECT_NE(signature_named(*gpt2, "transformer.h.11.attn.c_attn.Gemm"), nullptr);
}

TEST(ImportOnnx, RecognisesLayerNormAndGelu) {
  for (const std::string name : {"vit_b_16", "vit_b_16_opset17"}) {
    const auto vit = import_onnx(model_file(name));
    ASSERT_TRUE(vit.ok());
    auto counts = kinds(*vit);
    EXPECT_EQ(counts["layer_norm"], 25);  // two in each of 12 layers, one at the end
    EXPECT_EQ(counts["gelu"], 12);
    EXPECT_EQ(counts["reduce"] + counts["erf"] + counts["sqrt"], 0);
  }
  const auto bert = import_onnx(model_file("bert_base"));
  ASSERT_TRUE(bert.ok());
  EXPECT_EQ(kinds(*bert)["layer_norm"], 26);
  EXPECT_EQ(kinds(*bert)["gelu"], 13);
  const auto gpt2 = import_onnx(model_file("gpt2"));
  ASSERT_TRUE(gpt2.ok());
  EXPECT_EQ(kinds(*gpt2)["layer_norm"], 25);
  EXPECT_EQ(kinds(*gpt2)["gelu_tanh"], 12);
  EXPECT_EQ(kinds(*gpt2)["tanh"] + kinds(*gpt2)["pow"], 0);
}

TEST(ImportOnnx, ASymbolicBatchIsBound) {
  // FLOPs are linear in the batch: 57,000,597,504 at 2.
  for (const std::int64_t batch : {1, 2, 6}) {
    const auto graph = import_onnx(model_file("bert_base_dynamic"), {.batch = batch});
    ASSERT_TRUE(graph.ok()) << graph.error().message;
    EXPECT_EQ(forward_flops(*graph), 57'000'597'504.0 / 2 * static_cast<double>(batch));
  }
  const auto named = import_onnx(model_file("bert_base_dynamic"), {.batch = 1, .dims = {{"batch", 3}}});
  ASSERT_TRUE(named.ok());
  EXPECT_EQ(forward_flops(*named), 57'000'597'504.0 / 2 * 3);
}

TEST(ImportOnnx, AnLstmIsOneCellPerStepAndDirection) {
  const auto classifier = import_onnx(model_file("lstm_classifier"));
  ASSERT_TRUE(classifier.ok());
  EXPECT_EQ(kinds(*classifier)["lstm_cell"], 400);  // 200 steps, two directions
  EXPECT_EQ(shown(*classifier, "lstm.LSTM_r199").substr(0, 9), "lstm_cell");
  const auto model = import_onnx(model_file("lstm_lm"));
  ASSERT_TRUE(model.ok());
  EXPECT_EQ(kinds(*model)["lstm_cell"], 80);  // 40 steps, two layers
}

TEST(ImportOnnx, NeverOpensTheExternalData) {
  const auto folder = std::filesystem::temp_directory_path() / fmt::format("weft_onnx_{}", ::getpid());
  std::filesystem::create_directory(folder);
  const std::string model = (folder / "m.onnx").string();
  std::ofstream(model, std::ios::binary)
      << Model().input("x", {2, 3}).weight("w", {3, 4}).node("MatMul", {"x", "w"}, {"y"}).output("y").bytes();
  std::ofstream(folder / "weights.bin") << "secret";
  const int watch = ::inotify_init1(IN_NONBLOCK);
  ASSERT_GE(::inotify_add_watch(watch, folder.c_str(), IN_OPEN | IN_ACCESS), 0);
  const auto graph = import_onnx(model);
  alignas(inotify_event) char events[4096];
  const ssize_t length = ::read(watch, events, sizeof events);
  ::close(watch);
  std::set<std::string> opened;
  for (ssize_t at = 0; at < length;) {
    const auto* event = reinterpret_cast<const inotify_event*>(events + at);
    opened.insert(event->name);
    at += static_cast<ssize_t>(sizeof(inotify_event) + event->len);
  }
  std::filesystem::remove_all(folder);
  EXPECT_TRUE(graph.ok()) << graph.error().message;
  EXPECT_EQ(opened, std::set<std::string>{"m.onnx"});
}

// ---- single operators
// ---------------------------------------------------------------------------------------------

TEST(ImportOnnx, MatMulWithAParameterIsLinearOtherwiseABatchedProduct) {
  const auto graph = Model()
                         .input("x", {2, 5, 3})
                         .input("z", {4, 1, 6, 5})
                         .weight("net.w", {7, 3})
                         .node("Transpose", {"net.w"}, {"t"}, {{"perm", Ints{1, 0}}})
                         .node("MatMul", {"x", "t"}, {"h"}, {}, "/net/first")
                         .node("MatMul", {"z", "h"}, {"y"}, {}, "/net/second")
                         .output("y")
                         .import();
  ASSERT_TRUE(graph.ok()) << graph.error().message;
  EXPECT_EQ(shown(*graph, "net.first"), "linear x[b,s,k] w[n,k] -> y[b,s,n] b=2 s=5 k=3 n=7");
  EXPECT_EQ(shown(*graph, "net.second"), "matmul a[b,1,m,k] b[s,k,n] -> y[b,s,m,n] b=4 m=6 k=5 s=2 n=7");
  EXPECT_EQ(result_shape(*graph), (Shape{4, 2, 6, 7}));
}

TEST(ImportOnnx, EinsumOfTwoOperands) {
  const auto graph = Model()
                         .input("q", {2, 5, 3, 8})
                         .input("k", {2, 7, 3, 8})
                         .node("Einsum", {"q", "k"}, {"y"}, {{"equation", "bqhd,bkhd->bhqk"}})
                         .output("y")
                         .import();
  ASSERT_TRUE(graph.ok()) << graph.error().message;
  EXPECT_EQ(shown(*graph, "net.Einsum"), "matmul a[b,q,h,d] b[b,k,h,d] -> y[b,h,q,k] b=2 q=5 h=3 d=8 k=7");
}

TEST(ImportOnnx, AutomaticPaddingKeepsTheSizeOverTheStride) {
  for (const auto& [mode, stride, size] :
       {std::tuple("SAME_UPPER", 2, 4), {"SAME_LOWER", 2, 4}, {"VALID", 2, 3}}) {
    const auto graph =
        Model()
            .input("x", {1, 6, 8, 8})
            .weight("w", {4, 3, 3, 3})
            .weight("b", {4})
            .node("Conv", {"x", "w", "b"}, {"y"},
                  {{"auto_pad", mode}, {"strides", Ints{stride, stride}}, {"group", std::int64_t{2}}})
            .output("y")
            .import();
    ASSERT_TRUE(graph.ok()) << graph.error().message;
    EXPECT_EQ(result_shape(*graph), (Shape{1, 4, size, size})) << mode;
    EXPECT_EQ(kinds(*graph)["bias"], 1);
  }
}

TEST(ImportOnnx, ShapeComputationsAreEvaluated) {
  // Reshape to [batch, −1] through Shape, Gather, Unsqueeze, Concat, as torch exports x.view(x.size(0), -1).
  const auto graph = Model()
                         .symbolic("x", {"N", "C", "L"})
                         .integers("zero", {0}, true)
                         .integers("front", {0})
                         .integers("rest", {-1})
                         .node("Shape", {"x"}, {"shape"})
                         .node("Gather", {"shape", "zero"}, {"batch"})
                         .node("Unsqueeze", {"batch", "front"}, {"first"})
                         .node("Concat", {"first", "rest"}, {"wanted"}, {{"axis", std::int64_t{0}}})
                         .node("Reshape", {"x", "wanted"}, {"y"})
                         .output("y")
                         .import({.batch = 3, .dims = {{"C", 4}, {"L", 5}}, .loss = false});
  ASSERT_TRUE(graph.ok()) << graph.error().message;
  EXPECT_EQ(graph->ops().size(), 1u);
  EXPECT_EQ(result_shape(*graph), (Shape{3, 20}));
}

TEST(ImportOnnx, MovementAndReductions) {
  const auto graph =
      Model(13)
          .input("x", {2, 3, 1, 8})
          .integers("shape", {2, 3, 4, 8})
          .integers("start", {-5})
          .integers("end", {9223372036854775807})
          .integers("last", {-1})
          .integers("step", {2})
          .node("Expand", {"x", "shape"}, {"a"})                                  // [2,3,4,8]
          .node("Slice", {"a", "start", "end", "last", "step"}, {"b"})            // 3, 5, 7: [2,3,4,3]
          .node("Split", {"b"}, {"c0", "c1", "c2"}, {{"axis", std::int64_t{1}}})  // [2,1,4,3]
          .node("Concat", {"c0", "c2"}, {"d"}, {{"axis", std::int64_t{-1}}})      // [2,1,4,6]
          .node("Squeeze", {"d"}, {"e"})                                          // [2,4,6]
          .node("Softmax", {"e"}, {"f"}, {{"axis", std::int64_t{1}}})             // over 4
          .node("ReduceMax", {"f"}, {"g"}, {{"axes", Ints{1}}, {"keepdims", std::int64_t{0}}})  // [2,6]
          .output("g")
          .import();
  ASSERT_TRUE(graph.ok()) << graph.error().message;
  EXPECT_EQ(result_shape(*graph), (Shape{2, 6}));
  EXPECT_EQ(kinds(*graph), (std::map<std::string, int>{{"expand", 1},
                                                       {"slice", 1},
                                                       {"split", 1},
                                                       {"concat", 1},
                                                       {"reshape", 1},
                                                       {"transpose", 2},
                                                       {"softmax", 1},
                                                       {"reduce", 1}}));
}

TEST(ImportOnnx, WhatNothingReadsIsLeftOut) {
  const auto graph = Model()
                         .input("x", {2, 3})
                         .number("ratio", 0.0f)
                         .node("Dropout", {"x", "ratio"}, {"a", "mask"})
                         .node("Exp", {"mask"}, {"dead"})
                         .node("Relu", {"a"}, {"y"})
                         .output("y")
                         .import();
  ASSERT_TRUE(graph.ok()) << graph.error().message;
  EXPECT_EQ(kinds(*graph), (std::map<std::string, int>{{"relu", 1}}));
}

TEST(ImportOnnx, NodesNeedNotBeInOrder) {
  const auto graph =
      Model().input("x", {2, 3}).node("Exp", {"h"}, {"y"}).node("Relu", {"x"}, {"h"}).output("y").import();
  ASSERT_TRUE(graph.ok()) << graph.error().message;
  EXPECT_EQ(graph->kind(OpId(0)), OpKind::Unary);
  EXPECT_EQ(kinds(*graph), (std::map<std::string, int>{{"exp", 1}, {"relu", 1}}));
}

TEST(ImportOnnx, EqualNamesAreNumberedAndUnfitCharactersReplaced) {
  const auto graph = Model()
                         .input("input:0", {2, 3})
                         .node("Relu", {"input:0"}, {"a"}, {}, "/m/act (1)")
                         .node("Exp", {"a"}, {"b"}, {}, "/m/act (1)")
                         .node("Tanh", {"b"}, {"y"}, {}, "Tanh")
                         .output("y")
                         .import();
  ASSERT_TRUE(graph.ok()) << graph.error().message;
  std::vector<std::string> names;
  for (OpId op : graph->ops().ids()) names.push_back(graph->name(op));
  EXPECT_EQ(names, (std::vector<std::string>{"m.act_1_", "m.act_1__2", "Tanh"}));
}

TEST(ImportOnnx, LogitsGetALossUnlessToldNotTo) {
  const Model model =
      Model().input("x", {2, 3}).weight("w", {3, 4}).node("MatMul", {"x", "w"}, {"y"}).output("y");
  const auto with = model.import({}), without = model.import({.loss = false});
  ASSERT_TRUE(with.ok() && without.ok());
  EXPECT_EQ(result_shape(*with), Shape{});
  EXPECT_EQ(kinds(*with)["cross_entropy"], 1);
  EXPECT_EQ(result_shape(*without), (Shape{2, 4}));
}

TEST(ImportOnnx, AnUnknownOperatorIsOpaqueWhenTheUserSaysSo) {
  const Model model =
      Model().input("x", {2, 3}).node("Det3", {"x"}, {"y"}, {}, "/head/Det3").output("y", {2, 7});
  EXPECT_EQ(model.error(),
            "m.onnx: node '/head/Det3' (Det3): Weft knows no axes for operator Det3; pass --opaque "
            "Det3=FLOPS to plan "
            "around it, with the FLOPs of one call");
  const auto graph = model.import({.opaque = {{"Det3", 5e6}}, .loss = false});
  ASSERT_TRUE(graph.ok()) << graph.error().message;
  EXPECT_EQ(signature_named(*graph, "head.Det3")->attrs.number("flops", 0), 5e6);
  EXPECT_EQ(result_shape(*graph), (Shape{2, 7}));
  EXPECT_TRUE(model.import({.opaque = {{"*", 0}}, .loss = false}).ok());
  EXPECT_EQ(Model()
                .input("x", {2, 3})
                .node("Det3", {"x"}, {"h"})
                .node("Relu", {"h"}, {"y"})
                .output("y")
                .error({.opaque = {{"Det3", 1}}}),
            "m.onnx: node '/net/Det3' (Det3): opaque, but the file does not declare the shape of its output "
            "'h'; run ONNX shape "
            "inference on the file");
}

// ---- bad input
// ----------------------------------------------------------------------------------------------------

TEST(ImportOnnxErrors, FilesThatCannotBeRead) {
  EXPECT_EQ(import_onnx("/nowhere/m.onnx").error().message,
            "/nowhere/m.onnx: cannot be read: No such file or directory");
  EXPECT_EQ(import_onnx("/tmp").error().message, "/tmp: is not a file");
  const auto bytes = [](std::string_view text) { return import_onnx_bytes(text, "m.onnx").error().message; };
  EXPECT_EQ(bytes(""), "m.onnx: holds no nodes; is it an ONNX model?");
  EXPECT_EQ(bytes("model: {name: \"resnet\"}"),
            "m.onnx: is not an ONNX file, or is cut short: its protobuf encoding does not parse");
  const std::string whole = read_bytes(model_file("vgg19"));
  EXPECT_EQ(bytes(whole.substr(0, whole.size() / 2)),
            "m.onnx: is not an ONNX file, or is cut short: its protobuf encoding does not parse");
}

TEST(ImportOnnxErrors, GraphsThatAreNotGraphs) {
  EXPECT_EQ(Model()
                .input("x", {2})
                .node("Add", {"x", "b"}, {"a"}, {}, "/p")
                .node("Relu", {"a"}, {"b"}, {}, "/q")
                .output("b")
                .error(),
            "m.onnx: node '/p' (Add): depends on its own output; a graph must have no cycles");
  EXPECT_EQ(Model().input("x", {2}).node("Relu", {"z"}, {"y"}).output("y").error(),
            "m.onnx: node '/net/Relu' (Relu): reads 'z', which nothing produces");
  EXPECT_EQ(Model().input("x", {2}).node("Relu", {"x"}, {"y"}).node("Exp", {"x"}, {"y"}).output("y").error(),
            "m.onnx: node '/net/Exp' (Exp): 'y' is defined twice");
  EXPECT_EQ(Model().input("x", {2}).node("Relu", {"x"}, {"y"}).output("z").error(),
            "m.onnx: output 'z': nothing produces it");
  EXPECT_EQ(Model().input("x", {2}).node("Relu", {"x"}, {"y"}).error(), "m.onnx: declares no outputs");
  EXPECT_EQ(Model().input("x", {2}).node("Relu", {}, {"y"}).output("y").error(),
            "m.onnx: node '/net/Relu' (Relu): input 0 is missing");
}

TEST(ImportOnnxErrors, ImpossibleShapes) {
  EXPECT_EQ(Model().input("x", {2, -3}).node("Relu", {"x"}, {"y"}).output("y").error(),
            "m.onnx: input 'x': dimension of -3; sizes must be positive");
  EXPECT_EQ(Model().input("x", {1LL << 40, 1LL << 40}).node("Relu", {"x"}, {"y"}).output("y").error(),
            "m.onnx: input x: impossible shape [1099511627776,1099511627776]");
  EXPECT_EQ(Model().symbolic("x", {"batch", "length"}).node("Relu", {"x"}, {"y"}).output("y").error(),
            "m.onnx: input 'x': dimension 1 is symbolic ('length'); give its size, --dim length=SIZE");
  EXPECT_EQ(Model().input("x", {2}).weight("w", {-1}).node("Add", {"x", "w"}, {"y"}).output("y").error(),
            "m.onnx: initializer 'w': has a dimension of -1");
  EXPECT_EQ(
      Model().input("x", {2, 3}).integers("s", {4, 2}).node("Reshape", {"x", "s"}, {"y"}).output("y").error(),
      "m.onnx: node '/net/Reshape' (Reshape): cannot reshape [2,3] to [4,2]");
  EXPECT_EQ(
      Model()
          .input("x", {2, 3})
          .input("s", {2}, kInt64)
          .node("Reshape", {"x", "s"}, {"y"})
          .output("y")
          .error(),
      "m.onnx: node '/net/Reshape' (Reshape): the shape ('s') must be integers known before the model runs");
  EXPECT_EQ(Model().input("x", {2, 3}).input("z", {2, 4}).node("Add", {"x", "z"}, {"y"}).output("y").error(),
            "m.onnx: node '/net/Add' (Add): binary: f32[2,3] and f32[2,4] do not broadcast: 3 against 4");
  EXPECT_EQ(Model()
                .input("x", {2, 3})
                .node("Concat", {"x", "x"}, {"y"}, {{"axis", std::int64_t{2}}})
                .output("y")
                .error(),
            "m.onnx: node '/net/Concat' (Concat): axis 2 of a tensor with 2 dimensions");
}

TEST(ImportOnnxErrors, ImpossibleWindowsAndProducts) {
  const auto conv = [](const Attrs& attrs) {
    return Model()
        .input("x", {1, 3, 8, 8})
        .weight("w", {4, 3, 3, 3})
        .node("Conv", {"x", "w"}, {"y"}, attrs)
        .output("y")
        .error();
  };
  EXPECT_EQ(conv({{"strides", Ints{0, 1}}}),
            "m.onnx: node '/net/Conv' (Conv): strides [0,1] must be at least 1 and below 2^32");
  EXPECT_EQ(
      conv({{"strides", Ints{1}}}),
      "m.onnx: node '/net/Conv' (Conv): has 1 strides, 2 dilations and 4 pads for a window of 2 dimensions");
  EXPECT_EQ(conv({{"pads", Ints{0, 0, 0, -2}}}),
            "m.onnx: node '/net/Conv' (Conv): pads [0,0,0,-2] must be at least 0 and below 2^32");
  EXPECT_EQ(conv({{"dilations", Ints{9, 9}}}),
            "m.onnx: node '/net/Conv' (Conv): conv2d: a kernel of 3 (dilation 9) does not fit 8 elements "
            "padded by 0 and 0");
  EXPECT_EQ(Model()
                .input("x", {1, 3, 8, 8, 8})
                .weight("w", {4, 3, 3, 3, 3})
                .node("Conv", {"x", "w"}, {"y"})
                .output("y")
                .error(),
            "m.onnx: node '/net/Conv' (Conv): convolves [1,3,8,8,8] with weights [4,3,3,3,3]; Weft has 1- "
            "and 2-dimensional "
            "convolutions");
  EXPECT_EQ(
      Model().input("x", {2, 3}).weight("w", {4, 5}).node("MatMul", {"x", "w"}, {"y"}).output("y").error(),
      "m.onnx: node '/net/MatMul' (MatMul): linear: dimension 0 of w is 4, but k = 3");
}

Model lstm(std::int64_t steps) {
  return Model()
      .input("x", {steps, 2, 3})
      .weight("W", {1, 16, 3})
      .weight("R", {1, 16, 4})
      .node("LSTM", {"x", "W", "R"}, {"y"}, {{"hidden_size", std::int64_t{4}}})
      .output("y");
}

TEST(ImportOnnxErrors, AnAbsurdlyLongLstmIsRefused) {
  EXPECT_TRUE(lstm(200).import().ok());
  EXPECT_EQ(lstm(1LL << 40).error(),
            "m.onnx: node '/net/LSTM' (LSTM): unrolls 1099511627776 steps; Weft unrolls at most 4096: export "
            "with a shorter sequence");
}

TEST(ImportOnnxErrors, LyingConstants) {
  Model model =
      Model().input("x", {2, 3}).integers("s", {2, 3}).node("Reshape", {"x", "s"}, {"y"}).output("y");
  model.proto().mutable_graph()->mutable_initializer(0)->set_dims(0, 3);
  EXPECT_EQ(model.error(), "m.onnx: initializer 's': holds 2 elements, but its shape needs 3");
  // Shapes computed from constants that would take terabytes.
  const std::string error = Model()
                                .integers("n", {1LL << 20, 1LL << 20})
                                .node("ConstantOfShape", {"n"}, {"c"})
                                .node("Exp", {"c"}, {"y"})
                                .output("y")
                                .error();
  EXPECT_EQ(error, "");  // a tensor of 2^40 elements is only a shape here
  EXPECT_THAT(Model()
                  .integers("n", {1LL << 40, 1LL << 40})
                  .node("ConstantOfShape", {"n"}, {"c"})
                  .node("Exp", {"c"}, {"y"})
                  .output("y")
                  .error(),
              HasSubstr("makes a shape [1099511627776,1099511627776] too large to count"));
}

TEST(ImportOnnxErrors, DamagedFilesNeverCrash) {
  Rng rng(20240229);
  int imported = 0;
  for (const auto& [name, rounds] :
       {std::pair("vgg19", 2000), {"lstm_lm", 600}, {"resnet50", 400}, {"bert_base_dynamic", 100}}) {
    const std::string whole = read_bytes(model_file(name));
    for (int round = 0; round < rounds; ++round) {
      std::string bytes = whole;
      switch (rng.below(4)) {
        case 0:
          bytes.resize(rng.below(bytes.size()));
          break;
        case 1:
          bytes.erase(rng.below(bytes.size()), rng.below(16) + 1);
          break;
        default:
          for (std::uint64_t flips = rng.below(8) + 1; flips > 0; --flips)
            bytes[rng.below(bytes.size())] = static_cast<char>(rng.below(256));
      }
      const auto graph = import_onnx_bytes(bytes, "damaged");
      EXPECT_TRUE(graph.ok() || graph.error().message.starts_with("damaged: "));
      imported += graph.ok();
    }
  }
  EXPECT_GT(imported, 50);  // some damage is harmless
}

// One thing wrong in an otherwise well-formed file: an operator, an operand, a number or a shape.
void disturb(onnx::GraphProto& graph, Rng& rng) {
  constexpr std::int64_t kOdd[] = {0,
                                   -1,
                                   1,
                                   2,
                                   3,
                                   1 << 20,
                                   1LL << 40,
                                   std::numeric_limits<std::int64_t>::max(),
                                   std::numeric_limits<std::int64_t>::min()};
  const auto below = [&](int bound) {
    return static_cast<int>(rng.below(static_cast<std::uint64_t>(bound)));
  };
  const std::int64_t odd = kOdd[rng.below(std::size(kOdd))];
  onnx::NodeProto& node = *graph.mutable_node(below(graph.node_size()));
  const onnx::NodeProto& other = graph.node(below(graph.node_size()));
  switch (rng.below(7)) {
    case 0:
      node.set_op_type(other.op_type());
      break;
    case 1:
      if (node.input_size() > 0 && other.output_size() > 0)
        node.set_input(below(node.input_size()), other.output(0));
      break;
    case 2:
      if (node.input_size() > 0) node.set_input(below(node.input_size()), "");
      break;
    case 3:
      if (node.input_size() > 0) node.mutable_input()->RemoveLast();
      break;
    case 4: {
      if (node.attribute_size() == 0) break;
      onnx::AttributeProto& attribute = *node.mutable_attribute(below(node.attribute_size()));
      attribute.set_i(odd);
      if (attribute.ints_size() > 0) attribute.set_ints(below(attribute.ints_size()), odd);
      if (attribute.has_t() && attribute.t().raw_data().size() >= 8)
        attribute.mutable_t()->mutable_raw_data()->replace(
            0, 8, std::string(reinterpret_cast<const char*>(&odd), 8));
      break;
    }
    case 5: {
      if (graph.initializer_size() == 0) break;
      onnx::TensorProto& tensor = *graph.mutable_initializer(below(graph.initializer_size()));
      if (tensor.dims_size() > 0) tensor.set_dims(below(tensor.dims_size()), odd);
      break;
    }
    default: {
      auto& shape = *graph.mutable_input(below(graph.input_size()))
                         ->mutable_type()
                         ->mutable_tensor_type()
                         ->mutable_shape();
      if (shape.dim_size() > 0) shape.mutable_dim(below(shape.dim_size()))->set_dim_value(odd);
    }
  }
}

TEST(ImportOnnxErrors, WellFormedNonsenseNeverCrashes) {
  Rng rng(7);
  int imported = 0;
  for (const auto& [name, rounds] : {std::pair("vgg19", 1500),
                                     {"lstm_lm", 400},
                                     {"inception_v3", 200},
                                     {"bert_base_dynamic", 200},
                                     {"gpt2", 100}}) {
    onnx::ModelProto whole;
    ASSERT_TRUE(whole.ParseFromString(read_bytes(model_file(name))));
    for (int round = 0; round < rounds; ++round) {
      onnx::ModelProto model = whole;
      for (std::uint64_t count = rng.below(3) + 1; count > 0; --count) disturb(*model.mutable_graph(), rng);
      const auto graph = import_onnx_bytes(model.SerializeAsString(), "damaged", {.opaque = {{"*", 1}}});
      EXPECT_TRUE(graph.ok() || graph.error().message.starts_with("damaged: "));
      imported += graph.ok();
      if (graph.ok()) (void)make_training_graph(*graph);
    }
  }
  EXPECT_GT(imported, 100);
}

}  // namespace
}  // namespace weft
