// Inception-v3 (Szegedy et al., arXiv:1512.00567), module names and shapes as in torchvision, without its
// input transform.
#include <fmt/format.h>

#include "models/layer_builder.h"
#include "models/vision.h"

namespace weft {
namespace {

class InceptionBuilder {
 public:
  InceptionBuilder(GraphBuilder& builder, const VisionConfig& config, const StepShape& step)
      : b_(builder), config_(config), step_(step), net_(builder, step.dtype) {}

  void build() {
    TensorId x = b_.input("image", step_.dtype, {step_.batch, config_.channels, config_.image, config_.image});
    const TensorId labels = b_.input("labels", DType::I64, {step_.batch});
    x = conv("Conv2d_1a_3x3", x, 32, LayerBuilder::square(3, 2));
    x = conv("Conv2d_2a_3x3", x, 32, LayerBuilder::square(3));
    x = conv("Conv2d_2b_3x3", x, 64, LayerBuilder::square(3, 1, 1));
    x = net_.pool2d("maxpool1", x, "max", LayerBuilder::square(3, 2));
    x = conv("Conv2d_3b_1x1", x, 80, LayerBuilder::square(1));
    x = conv("Conv2d_4a_3x3", x, 192, LayerBuilder::square(3));
    x = net_.pool2d("maxpool2", x, "max", LayerBuilder::square(3, 2));
    x = block_a("Mixed_5b", x, 32);
    x = block_a("Mixed_5c", x, 64);
    x = block_a("Mixed_5d", x, 64);
    x = block_b("Mixed_6a", x);
    x = block_c("Mixed_6b", x, 128);
    x = block_c("Mixed_6c", x, 160);
    x = block_c("Mixed_6d", x, 160);
    x = block_c("Mixed_6e", x, 192);
    TensorId side_loss;
    if (config_.auxiliary) side_loss = side_classifier(x, labels);
    x = block_d("Mixed_7a", x);
    x = block_e("Mixed_7b", x);
    x = block_e("Mixed_7c", x);
    x = net_.dropout("dropout", net_.global_mean("avgpool", x), config_.dropout);
    TensorId loss = net_.cross_entropy("loss", net_.linear("fc", x, config_.classes, true), labels);
    if (config_.auxiliary) loss = net_.add("total_loss", loss, side_loss);
    b_.result(loss);
  }

 private:
  static constexpr LayerBuilder::Window rows(std::int64_t size) { return {size, 1, 1, size / 2, 0}; }
  static constexpr LayerBuilder::Window columns(std::int64_t size) { return {1, size, 1, 0, size / 2}; }

  TensorId conv(const std::string& name, TensorId x, std::int64_t out, LayerBuilder::Window window) {
    const auto scope = b_.scope(name);
    x = net_.batch_norm("bn", net_.conv2d("conv", x, out, window, false), 1e-3);
    return net_.unary("relu", x, "relu");
  }
  TensorId pooled(TensorId x, std::int64_t out) {
    return conv("branch_pool", net_.pool2d("pool", x, "avg", LayerBuilder::square(3, 1, 1)), out,
                LayerBuilder::square(1));
  }

  TensorId block_a(const std::string& name, TensorId x, std::int64_t pool_features) {
    const auto scope = b_.scope(name);
    const TensorId one = conv("branch1x1", x, 64, LayerBuilder::square(1));
    const TensorId five =
        conv("branch5x5_2", conv("branch5x5_1", x, 48, LayerBuilder::square(1)), 64, LayerBuilder::square(5, 1, 2));
    TensorId three = conv("branch3x3dbl_1", x, 64, LayerBuilder::square(1));
    three = conv("branch3x3dbl_2", three, 96, LayerBuilder::square(3, 1, 1));
    three = conv("branch3x3dbl_3", three, 96, LayerBuilder::square(3, 1, 1));
    return net_.concat("concat", {one, five, three, pooled(x, pool_features)}, 1);
  }

  TensorId block_b(const std::string& name, TensorId x) {
    const auto scope = b_.scope(name);
    const TensorId three = conv("branch3x3", x, 384, LayerBuilder::square(3, 2));
    TensorId twice = conv("branch3x3dbl_1", x, 64, LayerBuilder::square(1));
    twice = conv("branch3x3dbl_2", twice, 96, LayerBuilder::square(3, 1, 1));
    twice = conv("branch3x3dbl_3", twice, 96, LayerBuilder::square(3, 2));
    return net_.concat("concat", {three, twice, net_.pool2d("pool", x, "max", LayerBuilder::square(3, 2))}, 1);
  }

  TensorId block_c(const std::string& name, TensorId x, std::int64_t inner) {
    const auto scope = b_.scope(name);
    const TensorId one = conv("branch1x1", x, 192, LayerBuilder::square(1));
    TensorId seven = conv("branch7x7_1", x, inner, LayerBuilder::square(1));
    seven = conv("branch7x7_2", seven, inner, columns(7));
    seven = conv("branch7x7_3", seven, 192, rows(7));
    TensorId twice = conv("branch7x7dbl_1", x, inner, LayerBuilder::square(1));
    twice = conv("branch7x7dbl_2", twice, inner, rows(7));
    twice = conv("branch7x7dbl_3", twice, inner, columns(7));
    twice = conv("branch7x7dbl_4", twice, inner, rows(7));
    twice = conv("branch7x7dbl_5", twice, 192, columns(7));
    return net_.concat("concat", {one, seven, twice, pooled(x, 192)}, 1);
  }

  TensorId block_d(const std::string& name, TensorId x) {
    const auto scope = b_.scope(name);
    const TensorId three =
        conv("branch3x3_2", conv("branch3x3_1", x, 192, LayerBuilder::square(1)), 320, LayerBuilder::square(3, 2));
    TensorId seven = conv("branch7x7x3_1", x, 192, LayerBuilder::square(1));
    seven = conv("branch7x7x3_2", seven, 192, columns(7));
    seven = conv("branch7x7x3_3", seven, 192, rows(7));
    seven = conv("branch7x7x3_4", seven, 192, LayerBuilder::square(3, 2));
    return net_.concat("concat", {three, seven, net_.pool2d("pool", x, "max", LayerBuilder::square(3, 2))}, 1);
  }

  TensorId block_e(const std::string& name, TensorId x) {
    const auto scope = b_.scope(name);
    const TensorId one = conv("branch1x1", x, 320, LayerBuilder::square(1));
    const TensorId three = conv("branch3x3_1", x, 384, LayerBuilder::square(1));
    const TensorId three_a = conv("branch3x3_2a", three, 384, columns(3));
    const TensorId three_b = conv("branch3x3_2b", three, 384, rows(3));
    const TensorId twice = conv("branch3x3dbl_2", conv("branch3x3dbl_1", x, 448, LayerBuilder::square(1)), 384,
                                LayerBuilder::square(3, 1, 1));
    const TensorId twice_a = conv("branch3x3dbl_3a", twice, 384, columns(3));
    const TensorId twice_b = conv("branch3x3dbl_3b", twice, 384, rows(3));
    return net_.concat("concat", {one, three_a, three_b, twice_a, twice_b, pooled(x, 192)}, 1);
  }

  TensorId side_classifier(TensorId x, TensorId labels) {
    const auto scope = b_.scope("AuxLogits");
    x = conv("conv0", net_.pool2d("pool", x, "avg", LayerBuilder::square(5, 3)), 128, LayerBuilder::square(1));
    x = net_.global_mean("avgpool", conv("conv1", x, 768, LayerBuilder::square(5)));
    const TensorId loss = net_.cross_entropy("loss", net_.linear("fc", x, config_.classes, true), labels);
    return net_.unary("weighted_loss", loss, "scale", 0.4);
  }

  GraphBuilder& b_;
  const VisionConfig& config_;
  const StepShape& step_;
  LayerBuilder net_;
};

}  // namespace

void build_inception_v3(GraphBuilder& builder, const VisionConfig& config, const StepShape& step) {
  InceptionBuilder(builder, config, step).build();
}

}  // namespace weft
