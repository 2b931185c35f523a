#include "models/onnx_import.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "graph/training.h"
#include "models/models.h"
#include "models/onnx_test_model.h"

namespace weft {
namespace {

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
    ++counts[std::string(signature.kind == OpKind::Unary ? signature.attrs.text("fn", "") : name_of(signature.kind))];
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
  return signature
             ? fmt::format("{} {} {}", name_of(signature->kind), notation_of(*signature), axis_sizes_of(*signature))
             : "";
}

Shape result_shape(const Graph& graph, std::size_t i = 0) { return graph.tensors()[graph.results()[i]].type.shape; }

// The exported files.

TEST(ImportOnnx, ParametersAndFlopsAreTheExportersAndEveryParameterIsTrained) {
  std::ifstream file(source("tests/onnx/expected.json"));
  const nlohmann::json expected = nlohmann::json::parse(file);
  EXPECT_EQ(expected.size(), 10u);
  for (const auto& [name, figures] : expected.items()) {
    const auto graph = import_onnx(model_file(name), {.batch = 2});
    ASSERT_TRUE(graph.ok()) << graph.error().message;
    EXPECT_EQ(graph->parameter_count(), figures["parameters"].get<std::int64_t>()) << name;
    EXPECT_EQ(forward_flops(*graph), figures["contraction_flops_forward"].get<double>()) << name;  // exact, all of them
    int parameters = 0;
    for (const Tensor& tensor : graph->tensors()) parameters += tensor.kind == TensorKind::Parameter;
    EXPECT_EQ(parameters, figures["parameter_tensors"].get<int>()) << name;
    const auto training = make_training_graph(*graph);
    ASSERT_TRUE(training.ok()) << name << ": " << training.error().message;
    EXPECT_EQ(static_cast<int>(training->accumulated.size()), parameters) << name;
  }
}

// The same network from two independent sources: PyTorch's exporter and the zoo.
TEST(ImportOnnx, FilesAndZooAgreeOnParametersAndFlops) {
  struct Pair {
    std::string file, zoo;
    std::optional<std::int64_t> seq;
    std::int64_t extra_parameters = 0;  // of the file
  };
  const Pair pairs[] = {
      {"resnet50", "resnet50", {}},
      {"vgg19", "vgg19", {}},
      {"inception_v3", "inception-v3:aux=1", {}},
      {"vit_b_16", "vit-b", {}},
      {"bert_base", "bert-base", 512},
      {"gpt2", "gpt2-124m", 1024},
      // PyTorch's LSTM has two biases per layer, the zoo's one: 2 layers of 4·1024.
      {"lstm_lm", "rnnlm:hidden=1024,vocab=10000,layers=2", {}, 2 * 4 * 1024},
  };
  for (const Pair& pair : pairs) {
    const auto file = import_onnx(model_file(pair.file), {.batch = 2});
    const auto zoo = build_model(pair.zoo, {.batch = 2, .seq = pair.seq});
    ASSERT_TRUE(file.ok() && zoo.ok()) << pair.zoo;
    EXPECT_EQ(file->parameter_count() - pair.extra_parameters, zoo->parameter_count()) << pair.zoo;
    EXPECT_NEAR(forward_flops(*file) / forward_flops(*zoo), 1.0, 1e-3) << pair.zoo;
    fmt::print("{}: {} FLOPs, zoo {}\n", pair.file, forward_flops(*file), forward_flops(*zoo));
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
  EXPECT_EQ(shown(*resnet, "layer1.0.downsample.0.Conv"),
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

TEST(ImportOnnx, RecognisesRmsNormAndSilu) {
  // As torch exports w * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)), then silu.
  const auto graph = OnnxFile()
                         .input("x", {2, 5, 8})
                         .weight("net.norm.weight", {8})
                         .number("two", 2)
                         .number("eps", 1e-6f)
                         .number("one", 1)
                         .node("Pow", {"x", "two"}, {"a"})
                         .node("ReduceMean", {"a"}, {"b"}, {{"axes", Ints{-1}}})
                         .node("Add", {"b", "eps"}, {"c"})
                         .node("Sqrt", {"c"}, {"d"})
                         .node("Div", {"one", "d"}, {"e"})
                         .node("Mul", {"x", "e"}, {"f"})
                         .node("Mul", {"net.norm.weight", "f"}, {"g"}, {}, "/net/norm/Mul_1")
                         .node("Sigmoid", {"g"}, {"h"})
                         .node("Mul", {"g", "h"}, {"y"})
                         .output("y")
                         .import();
  ASSERT_TRUE(graph.ok()) << graph.error().message;
  EXPECT_EQ(kinds(*graph), (std::map<std::string, int>{{"rms_norm", 1}, {"silu", 1}}));
  EXPECT_NE(signature_named(*graph, "net.norm.RMSNormalization"), nullptr);
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
      << OnnxFile().input("x", {2, 3}).weight("w", {3, 4}).node("MatMul", {"x", "w"}, {"y"}).output("y").bytes();
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

// Single operators.

TEST(ImportOnnx, MatMulWithAParameterIsLinearOtherwiseABatchedProduct) {
  const auto graph = OnnxFile()
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
  const auto graph = OnnxFile()
                         .input("q", {2, 5, 3, 8})
                         .input("k", {2, 7, 3, 8})
                         .node("Einsum", {"q", "k"}, {"y"}, {{"equation", "bqhd,bkhd->bhqk"}})
                         .output("y")
                         .import();
  ASSERT_TRUE(graph.ok()) << graph.error().message;
  EXPECT_EQ(shown(*graph, "net.Einsum"), "matmul a[b,q,h,d] b[b,k,h,d] -> y[b,h,q,k] b=2 q=5 h=3 d=8 k=7");
}

TEST(ImportOnnx, AutomaticPaddingKeepsTheSizeOverTheStride) {
  for (const auto& [mode, stride, size] : {std::tuple("SAME_UPPER", 2, 4), {"SAME_LOWER", 2, 4}, {"VALID", 2, 3}}) {
    const auto graph = OnnxFile()
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
  const auto graph = OnnxFile()
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
  const auto graph = OnnxFile(13)
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
  const auto graph = OnnxFile()
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
      OnnxFile().input("x", {2, 3}).node("Exp", {"h"}, {"y"}).node("Relu", {"x"}, {"h"}).output("y").import();
  ASSERT_TRUE(graph.ok()) << graph.error().message;
  EXPECT_EQ(graph->kind(OpId(0)), OpKind::Unary);
  EXPECT_EQ(kinds(*graph), (std::map<std::string, int>{{"exp", 1}, {"relu", 1}}));
}

TEST(ImportOnnx, EqualNamesAreNumberedAndUnfitCharactersReplaced) {
  const auto graph = OnnxFile()
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
  const OnnxFile model =
      OnnxFile().input("x", {2, 3}).weight("w", {3, 4}).node("MatMul", {"x", "w"}, {"y"}).output("y");
  const auto with = model.import({}), without = model.import({.loss = false});
  ASSERT_TRUE(with.ok() && without.ok());
  EXPECT_EQ(result_shape(*with), Shape{});
  EXPECT_EQ(kinds(*with)["cross_entropy"], 1);
  EXPECT_EQ(result_shape(*without), (Shape{2, 4}));
}

TEST(ImportOnnx, AnUnknownOperatorIsOpaqueWhenTheUserSaysSo) {
  const OnnxFile model = OnnxFile().input("x", {2, 3}).node("Det3", {"x"}, {"y"}, {}, "/head/Det3").output("y", {2, 7});
  EXPECT_EQ(model.error(),
            "m.onnx: node '/head/Det3' (Det3): Weft knows no axes for operator Det3; pass --opaque "
            "Det3=FLOPS to plan "
            "around it, with the FLOPs of one call");
  const auto graph = model.import({.opaque = {{"Det3", 5e6}}, .loss = false});
  ASSERT_TRUE(graph.ok()) << graph.error().message;
  EXPECT_EQ(signature_named(*graph, "head.Det3")->attrs.number("flops", 0), 5e6);
  EXPECT_EQ(result_shape(*graph), (Shape{2, 7}));
  EXPECT_TRUE(model.import({.opaque = {{"*", 0}}, .loss = false}).ok());
  EXPECT_EQ(OnnxFile()
                .input("x", {2, 3})
                .node("Det3", {"x"}, {"h"})
                .node("Relu", {"h"}, {"y"})
                .output("y")
                .error({.opaque = {{"Det3", 1}}}),
            "m.onnx: node '/net/Det3' (Det3): opaque, but the file does not declare the shape of its output "
            "'h'; run ONNX shape "
            "inference on the file");
}

}  // namespace
}  // namespace weft
