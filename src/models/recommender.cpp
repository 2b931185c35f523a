#include "models/recommender.h"

#include <fmt/format.h>

#include "models/layer_builder.h"

namespace weft {

Status check(const RecommenderConfig& config) {
  const auto positive = [](std::string_view what, std::int64_t value, std::int64_t most) -> Status {
    if (value < 1 || value > most) return error("{}={}: must be between 1 and {}", what, value, most);
    return Ok{};
  };
  WEFT_TRY_OK(positive("tables", static_cast<std::int64_t>(config.tables.size()), 10'000));
  for (std::int64_t rows : config.tables) WEFT_TRY_OK(positive("rows", rows, 1LL << 40));
  WEFT_TRY_OK(positive("width", config.width, 1 << 20));
  WEFT_TRY_OK(positive("lookups", config.lookups, 1 << 20));
  if (config.bottom.size() < 2 || config.top.empty()) return error("bottom and top need layers");
  if (config.bottom.back() != config.width)
    return error("width={}: the bottom MLP ends with {}; they must be equal", config.width, config.bottom.back());
  return Ok{};
}

void build_recommender(GraphBuilder& b, const RecommenderConfig& config, const StepShape& step) {
  LayerBuilder net(b, step.dtype);
  std::vector<TensorId> features;
  {
    const auto scope = b.scope("bottom");
    TensorId x = b.input("dense", step.dtype, {step.batch, config.bottom.front()});
    for (std::size_t i = 1; i < config.bottom.size(); ++i) {
      const std::string name = fmt::format("fc{}", i);
      x = net.unary(name + "_relu", net.linear(name, x, config.bottom[i], true), "relu");
    }
    features.push_back(x);
  }
  for (std::size_t i = 0; i < config.tables.size() && b.ok(); ++i) {
    const auto scope = b.scope(fmt::format("tables.{}", i));
    const TensorId ids = b.input("ids", DType::I64, {step.batch, config.lookups});
    const TensorId table = b.parameter("weight", step.dtype, {config.tables[i], config.width});
    features.push_back(b.op1(OpKind::Embedding, "lookup", {ids, table}, {{"pool", std::string("sum")}}));
  }
  TensorId x;
  {
    const auto scope = b.scope("interaction");
    x = net.concat("joined", features, 1);
    if (config.dot_interaction) {
      const auto count = static_cast<std::int64_t>(features.size());
      const TensorId vectors = net.reshape("vectors", x, {step.batch, count, config.width});
      x = net.concat("with_dense", {features.front(), b.op1(OpKind::DotInteraction, "dots", {vectors})}, 1);
    }
  }
  {
    const auto scope = b.scope("top");
    for (std::size_t i = 0; i < config.top.size(); ++i) {
      const std::string name = fmt::format("fc{}", i + 1);
      x = net.linear(name, x, config.top[i], true);
      if (i + 1 < config.top.size()) x = net.unary(name + "_relu", x, "relu");
    }
  }
  const TensorId clicks = b.input("clicks", step.dtype, {step.batch, config.top.back()});
  b.result(b.op1(OpKind::BceLoss, "loss", {x, clicks}));
}

}  // namespace weft
