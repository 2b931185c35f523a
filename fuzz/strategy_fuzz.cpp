// Any bytes as a strategy, in shorthand and as YAML: an error, or a value whose text parses back to itself and whose
// violations are listed; one without violations gives meshes and a split of every operator.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "strategy/placing.h"
#include "strategy/shorthand.h"
#include "strategy/yaml.h"

namespace {

// An embedding, two layers of column-parallel linear, activation and row-parallel linear, and a loss.
weft::TrainingGraph small_model() {
  using weft::OpKind;
  weft::GraphBuilder b("small");
  weft::TensorId x =
      b.op1(OpKind::Embedding, "embed",
            {b.input("tokens", weft::DType::I64, {8, 4}), b.parameter("table", weft::DType::F32, {16, 4})});
  for (const char* layer : {"layers.0", "layers.1"}) {
    const auto scope = b.scope(layer);
    x = b.op1(OpKind::Linear, "up", {x, b.parameter("up_weight", weft::DType::F32, {4, 8})});
    x = b.op1(OpKind::Unary, "act", {x}, {{"fn", std::string("relu")}});
    x = b.op1(OpKind::Linear, "down", {x, b.parameter("down_weight", weft::DType::F32, {8, 4})});
  }
  b.result(b.op1(OpKind::BceLoss, "loss", {x, b.input("labels", weft::DType::F32, {8, 4, 4})}));
  return weft::make_training_graph(std::move(b).freeze().value()).value();
}

// A convolutional network: windows, and no repeated layers.
weft::TrainingGraph small_images() {
  using weft::OpKind;
  const auto two = [](std::int64_t value) { return std::vector<std::int64_t>{value, value}; };
  weft::GraphBuilder b("images");
  weft::TensorId x =
      b.op1(OpKind::Conv2d, "conv",
            {b.input("image", weft::DType::F32, {8, 2, 8, 8}), b.parameter("kernel", weft::DType::F32, {4, 2, 3, 3})},
            {{"stride", two(1)}, {"pad", two(1)}});
  x = b.op1(OpKind::Pool2d, "pool", {x}, {{"fn", std::string("max")}, {"kernel", two(2)}});
  x = b.op1(OpKind::Reduce, "average", {x}, {{"fn", std::string("mean")}, {"dims", std::vector<std::int64_t>{2, 3}}});
  b.result(b.op1(OpKind::BceLoss, "loss", {x, b.input("labels", weft::DType::F32, {8, 4})}));
  return weft::make_training_graph(std::move(b).freeze().value()).value();
}

// Violations are listed; without any there are meshes and a split of every operator.
void apply(const weft::Strategy& strategy, const weft::TrainingGraph& model) {
  static const weft::Cluster cluster = weft::parse_cluster("dgx-h100:2").value();
  const std::vector<weft::Violation> violations = weft::validate(strategy, model, cluster, "fuzz.yaml");
  for (const weft::Violation& violation : violations) WEFT_CHECK(!violation.message.empty());
  const auto resolved = weft::resolve(strategy, model, cluster, "fuzz.yaml");
  WEFT_CHECK(resolved.ok() == violations.empty());
  if (!resolved.ok()) return;
  if (auto placed = weft::place(*resolved, model.graph); placed.ok())
    for (const weft::PlacedRoute& route : placed->routes) {
      placed->placing.mesh_of = route.mesh_of;
      const auto plan = weft::plan_sharding(model, placed->placing, route.choices);
      WEFT_CHECK(plan.ok(), "{}", plan.error().message);
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const weft::Result<weft::Shorthand> shorthand = weft::parse_shorthand(text); shorthand.ok()) {
    const weft::Result<weft::Shorthand> again = weft::parse_shorthand(weft::print(*shorthand));
    WEFT_CHECK(again.ok() && *again == *shorthand);
    for (std::int64_t devices : {1, 64, 1000})
      if (const auto plan = weft::complete(*shorthand, devices, {.global_batch = 512}); plan.ok())
        WEFT_CHECK(plan->world() == devices && plan->global_batch() == 512);
  }
  if (const weft::Result<weft::Strategy> strategy = weft::parse_strategy(text, "fuzz.yaml"); strategy.ok()) {
    const weft::Result<weft::Strategy> again = weft::parse_strategy(weft::to_yaml(*strategy), "again.yaml");
    // A printed file spells out what aliases abbreviate, so only it may be over the size limit.
    WEFT_CHECK(!again.ok() || *again == *strategy);
    static const weft::TrainingGraph model = small_model(), images = small_images();
    apply(*strategy, model);
    apply(*strategy, images);
  }
  return 0;
}
