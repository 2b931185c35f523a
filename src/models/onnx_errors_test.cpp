#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "base/random.h"
#include "graph/training.h"
#include "models/onnx_import.h"
#include "models/onnx_test_model.h"

namespace weft {
namespace {

using ::testing::HasSubstr;

TEST(ImportOnnxErrors, FilesThatCannotBeRead) {
  EXPECT_EQ(
      import_onnx("/nowhere/m.onnx").error().message,
      "/nowhere/m.onnx: cannot be read: No such file or directory; name an ONNX file (of a larger model, with its "
      "weights as external data)");
  EXPECT_EQ(import_onnx("/tmp").error().message,
            "/tmp: is a directory; name an ONNX file (of a larger model, with its weights as external data)");
  const auto bytes = [](std::string_view text) { return import_onnx_bytes(text, "m.onnx").error().message; };
  EXPECT_EQ(bytes(""), "m.onnx: holds no nodes; is it an ONNX model?");
  EXPECT_EQ(bytes("model: {name: \"resnet\"}"),
            "m.onnx: is not an ONNX file, or is cut short: its protobuf encoding does not parse");
  // protobuf would complain on stderr by itself.
  const std::string whole = read_bytes(model_file("vgg19"));
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(bytes(whole.substr(0, whole.size() / 2)),
            "m.onnx: is not an ONNX file, or is cut short: its protobuf encoding does not parse");
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

TEST(ImportOnnxErrors, GraphsThatAreNotGraphs) {
  EXPECT_EQ(OnnxFile()
                .input("x", {2})
                .node("Add", {"x", "b"}, {"a"}, {}, "/p")
                .node("Relu", {"a"}, {"b"}, {}, "/q")
                .output("b")
                .error(),
            "m.onnx: node '/p' (Add): depends on its own output; a graph must have no cycles");
  EXPECT_EQ(OnnxFile().input("x", {2}).node("Relu", {"z"}, {"y"}).output("y").error(),
            "m.onnx: node '/net/Relu' (Relu): reads 'z', which nothing produces");
  EXPECT_EQ(OnnxFile().input("x", {2}).node("Relu", {"x"}, {"y"}).node("Exp", {"x"}, {"y"}).output("y").error(),
            "m.onnx: node '/net/Exp' (Exp): 'y' is defined twice");
  EXPECT_EQ(OnnxFile().input("x", {2}).node("Relu", {"x"}, {"y"}).output("z").error(),
            "m.onnx: output 'z': nothing produces it");
  EXPECT_EQ(OnnxFile().input("x", {2}).node("Relu", {"x"}, {"y"}).error(), "m.onnx: declares no outputs");
  EXPECT_EQ(OnnxFile().input("x", {2}).node("Relu", {}, {"y"}).output("y").error(),
            "m.onnx: node '/net/Relu' (Relu): input 0 is missing");
}

TEST(ImportOnnxErrors, ComputedShapesThatAreNoIntegers) {
  const auto reshaped_to = [](const std::string& op, std::vector<std::int64_t> of, std::vector<std::string> inputs) {
    return OnnxFile()
        .input("x", {2, 3})
        .integers("n", of)
        .integers("m", {40})
        .node(op, inputs, {"s"})
        .node("Reshape", {"x", "s"}, {"y"})
        .output("y")
        .error();
  };
  for (const char* op : {"Sqrt", "Log", "Exp", "Reciprocal", "Floor", "Ceil"})
    EXPECT_THAT(reshaped_to(op, {-1, 0}, {"n"}), HasSubstr("takes floating-point numbers, not ")) << op;
  EXPECT_THAT(reshaped_to("Pow", {1000}, {"n", "m"}), HasSubstr("the shape computation divides by zero or overflows"));
  EXPECT_THAT(reshaped_to("Neg", {std::numeric_limits<std::int64_t>::min()}, {"n"}), HasSubstr("overflows"));
}

TEST(ImportOnnxErrors, ImpossibleShapes) {
  EXPECT_EQ(OnnxFile().input("x", {2, -3}).node("Relu", {"x"}, {"y"}).output("y").error(),
            "m.onnx: input 'x': dimension of -3; sizes must be positive");
  EXPECT_EQ(OnnxFile().input("x", {1LL << 40, 1LL << 40}).node("Relu", {"x"}, {"y"}).output("y").error(),
            "m.onnx: input x: impossible shape [1099511627776,1099511627776]");
  EXPECT_EQ(OnnxFile().symbolic("x", {"batch", "length"}).node("Relu", {"x"}, {"y"}).output("y").error(),
            "m.onnx: input 'x': dimension 1 is symbolic ('length'); give its size, FILE.onnx:length=SIZE");
  EXPECT_EQ(OnnxFile().input("x", {2}).weight("w", {-1}).node("Add", {"x", "w"}, {"y"}).output("y").error(),
            "m.onnx: initializer 'w': has a dimension of -1");
  EXPECT_EQ(OnnxFile().input("x", {2, 3}).integers("s", {4, 2}).node("Reshape", {"x", "s"}, {"y"}).output("y").error(),
            "m.onnx: node '/net/Reshape' (Reshape): cannot reshape [2,3] to [4,2]");
  EXPECT_EQ(OnnxFile()
                .input("x", {2, 3})
                .input("s", {2}, onnx::TensorProto::INT64)
                .node("Reshape", {"x", "s"}, {"y"})
                .output("y")
                .error(),
            "m.onnx: node '/net/Reshape' (Reshape): the shape ('s') must be integers known before the model runs");
  EXPECT_EQ(OnnxFile().input("x", {2, 3}).input("z", {2, 4}).node("Add", {"x", "z"}, {"y"}).output("y").error(),
            "m.onnx: node '/net/Add' (Add): binary: f32[2,3] and f32[2,4] do not broadcast: 3 against 4");
  EXPECT_EQ(
      OnnxFile().input("x", {2, 3}).node("Concat", {"x", "x"}, {"y"}, {{"axis", std::int64_t{2}}}).output("y").error(),
      "m.onnx: node '/net/Concat' (Concat): axis 2 of a tensor with 2 dimensions");
}

TEST(ImportOnnxErrors, ImpossibleWindowsAndProducts) {
  const auto conv = [](const Attrs& attrs) {
    return OnnxFile()
        .input("x", {1, 3, 8, 8})
        .weight("w", {4, 3, 3, 3})
        .node("Conv", {"x", "w"}, {"y"}, attrs)
        .output("y")
        .error();
  };
  EXPECT_EQ(conv({{"strides", Ints{0, 1}}}),
            "m.onnx: node '/net/Conv' (Conv): strides [0,1] must be at least 1 and below 2^32");
  EXPECT_EQ(conv({{"strides", Ints{1}}}),
            "m.onnx: node '/net/Conv' (Conv): has 1 strides, 2 dilations and 4 pads for a window of 2 dimensions");
  EXPECT_EQ(conv({{"pads", Ints{0, 0, 0, -2}}}),
            "m.onnx: node '/net/Conv' (Conv): pads [0,0,0,-2] must be at least 0 and below 2^32");
  EXPECT_EQ(conv({{"dilations", Ints{9, 9}}}),
            "m.onnx: node '/net/Conv' (Conv): conv2d: a kernel of 3 (dilation 9) does not fit 8 elements "
            "padded by 0 and 0");
  EXPECT_EQ(OnnxFile()
                .input("x", {1, 3, 8, 8, 8})
                .weight("w", {4, 3, 3, 3, 3})
                .node("Conv", {"x", "w"}, {"y"})
                .output("y")
                .error(),
            "m.onnx: node '/net/Conv' (Conv): convolves [1,3,8,8,8] with weights [4,3,3,3,3]; Weft has 1- "
            "and 2-dimensional "
            "convolutions");
  EXPECT_EQ(OnnxFile().input("x", {2, 3}).weight("w", {4, 5}).node("MatMul", {"x", "w"}, {"y"}).output("y").error(),
            "m.onnx: node '/net/MatMul' (MatMul): linear: dimension 0 of w is 4, but k = 3");
}

OnnxFile lstm(std::int64_t steps) {
  return OnnxFile()
      .input("x", {steps, 2, 3})
      .weight("W", {1, 16, 3})
      .weight("R", {1, 16, 4})
      .node("LSTM", {"x", "W", "R"}, {"y"}, {{"hidden_size", std::int64_t{4}}})
      .output("y");
}

TEST(ImportOnnxErrors, WrongTypes) {
  EXPECT_EQ(OnnxFile().input("x", {2, 3}).input("i", {2}).node("Gather", {"x", "i"}, {"y"}).output("y").error(),
            "m.onnx: node '/net/Gather' (Gather): gathers with indices f32[2]; they must be integers");
  EXPECT_EQ(OnnxFile().input("x", {2, 3}).node("Cast", {"x"}, {"y"}, {{"to", std::int64_t{8}}}).output("y").error(),
            "m.onnx: node '/net/Cast' (Cast): casts to element type 8, which is not supported");
  EXPECT_EQ(OnnxFile().input("x", {2, 3}, 8).node("Relu", {"x"}, {"y"}).output("y").error(),
            "m.onnx: input 'x': elements of type STRING are not supported");
}

TEST(ImportOnnxErrors, AnAbsurdlyLongLstmIsRefused) {
  EXPECT_TRUE(lstm(200).import().ok());
  EXPECT_EQ(lstm(1LL << 40).error(),
            "m.onnx: node '/net/LSTM' (LSTM): unrolls 1099511627776 steps; Weft unrolls at most 4096: export "
            "with a shorter sequence");
}

TEST(ImportOnnxErrors, LyingConstants) {
  OnnxFile model = OnnxFile().input("x", {2, 3}).integers("s", {2, 3}).node("Reshape", {"x", "s"}, {"y"}).output("y");
  model.proto().mutable_graph()->mutable_initializer(0)->set_dims(0, 3);
  EXPECT_EQ(model.error(), "m.onnx: initializer 's': holds 2 elements, but its shape needs 3");
  // Shapes computed from constants that would take terabytes.
  const std::string error = OnnxFile()
                                .integers("n", {1LL << 20, 1LL << 20})
                                .node("ConstantOfShape", {"n"}, {"c"})
                                .node("Exp", {"c"}, {"y"})
                                .output("y")
                                .error();
  EXPECT_EQ(error, "");  // a tensor of 2^40 elements is only a shape here
  EXPECT_THAT(OnnxFile()
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
  const auto below = [&](int bound) { return static_cast<int>(rng.below(static_cast<std::uint64_t>(bound))); };
  const std::int64_t odd = kOdd[rng.below(std::size(kOdd))];
  onnx::NodeProto& node = *graph.mutable_node(below(graph.node_size()));
  const onnx::NodeProto& other = graph.node(below(graph.node_size()));
  switch (rng.below(7)) {
    case 0:
      node.set_op_type(other.op_type());
      break;
    case 1:
      if (node.input_size() > 0 && other.output_size() > 0) node.set_input(below(node.input_size()), other.output(0));
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
        attribute.mutable_t()->mutable_raw_data()->replace(0, 8, std::string(reinterpret_cast<const char*>(&odd), 8));
      break;
    }
    case 5: {
      if (graph.initializer_size() == 0) break;
      onnx::TensorProto& tensor = *graph.mutable_initializer(below(graph.initializer_size()));
      if (tensor.dims_size() > 0) tensor.set_dims(below(tensor.dims_size()), odd);
      break;
    }
    default: {
      auto& shape =
          *graph.mutable_input(below(graph.input_size()))->mutable_type()->mutable_tensor_type()->mutable_shape();
      if (shape.dim_size() > 0) shape.mutable_dim(below(shape.dim_size()))->set_dim_value(odd);
    }
  }
}

TEST(ImportOnnxErrors, WellFormedNonsenseNeverCrashes) {
  Rng rng(7);
  int imported = 0;
  for (const auto& [name, rounds] :
       {std::pair("vgg19", 500), {"lstm_lm", 100}, {"inception_v3", 50}, {"bert_base_dynamic", 50}, {"gpt2", 20}}) {
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
