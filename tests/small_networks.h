// Small networks of kinds of which the zoo has no small model: a convolutional one with a skip connection and batch
// norm, and a recommender with embedding tables.
#pragma once

#include <fmt/format.h>

#include "graph/graph.h"

namespace weft {

inline Graph small_cnn() {
  GraphBuilder b("cnn");
  const auto conv = [&](const std::string& name, TensorId x, std::int64_t out, std::int64_t kernel, std::int64_t stride,
                        std::int64_t pad) {
    auto scope = b.scope(name);
    const TensorId w = b.parameter("weight", DType::F32, {out, b.shape(x)[1], kernel, kernel});
    return b.op1(OpKind::Conv2d, "conv", {x, w},
                 {{"stride", std::vector<std::int64_t>{stride, stride}}, {"pad", std::vector<std::int64_t>{pad, pad}}});
  };
  TensorId x = b.input("image", DType::F32, {4, 2, 12, 8});
  x = b.op1(OpKind::Unary, "relu1", {conv("conv1", x, 4, 3, 1, 1)}, {{"fn", "relu"}});
  {
    auto scope = b.scope("norm");
    const TensorId gamma = b.parameter("weight", DType::F32, {4}), beta = b.parameter("bias", DType::F32, {4});
    x = b.op1(OpKind::BatchNorm, "norm", {x, gamma, beta});
  }
  const TensorId skip = x;
  x = b.op1(OpKind::Unary, "relu2", {conv("conv2", x, 4, 3, 1, 1)}, {{"fn", "relu"}});
  x = b.op1(OpKind::Binary, "add", {x, skip}, {{"fn", "add"}});
  x = b.op1(OpKind::Pool2d, "pool", {x}, {{"fn", "max"}, {"kernel", std::vector<std::int64_t>{2, 2}}});
  x = b.op1(OpKind::Unary, "relu3", {conv("conv3", x, 6, 3, 2, 1)}, {{"fn", "relu"}});
  x = b.op1(OpKind::Reduce, "average", {x}, {{"fn", "mean"}, {"dims", std::vector<std::int64_t>{2, 3}}});
  auto scope = b.scope("head");
  const TensorId w = b.parameter("weight", DType::F32, {6, 8}), bias = b.parameter("bias", DType::F32, {8});
  x = b.op1(OpKind::Bias, "bias", {b.op1(OpKind::Linear, "linear", {x, w}), bias});
  const auto terms = b.op(OpKind::CrossEntropy, "entropy", {x, b.input("labels", DType::I64, {4})});
  b.result(b.op1(OpKind::NllLoss, "loss", {terms[0], terms[1]}));
  return std::move(b).freeze().value();
}

inline Graph small_dlrm() {
  GraphBuilder b("dlrm");
  const auto dense = [&](const std::string& name, TensorId x, std::int64_t out) {
    auto scope = b.scope(name);
    const TensorId w = b.parameter("weight", DType::F32, {b.shape(x)[1], out}),
                   bias = b.parameter("bias", DType::F32, {out});
    return b.op1(OpKind::Bias, "bias", {b.op1(OpKind::Linear, "linear", {x, w}), bias});
  };
  std::vector<TensorId> features = {
      b.op1(OpKind::Unary, "relu", {dense("bottom", b.input("dense", DType::F32, {4, 6}), 4)}, {{"fn", "relu"}})};
  for (int table = 0; table < 3; ++table) {
    auto scope = b.scope(fmt::format("tables.{}", table));
    const TensorId ids = b.input("ids", DType::I64, {4, 2}), rows = b.parameter("weight", DType::F32, {16, 4});
    features.push_back(b.op1(OpKind::Embedding, "lookup", {ids, rows}, {{"pool", "sum"}}));
  }
  const TensorId joined = b.op(OpKind::Concat, "joined", features, {{"dim", std::int64_t{1}}}).front();
  const TensorId grid = b.op1(OpKind::Reshape, "grid", {joined}, {{"shape", std::vector<std::int64_t>{4, 4, 4}}});
  const TensorId pairs = b.op1(OpKind::DotInteraction, "pairs", {grid});
  const TensorId all = b.op(OpKind::Concat, "all", {features[0], pairs}, {{"dim", std::int64_t{1}}}).front();
  const TensorId x = b.op1(OpKind::Unary, "top_relu", {dense("top", all, 6)}, {{"fn", "relu"}});
  b.result(b.op1(OpKind::BceLoss, "loss", {dense("score", x, 1), b.input("clicked", DType::F32, {4, 1})}));
  return std::move(b).freeze().value();
}

}  // namespace weft
