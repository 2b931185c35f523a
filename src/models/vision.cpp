#include "models/vision.h"

#include <fmt/format.h>

#include "models/layer_builder.h"

namespace weft {
namespace {

constexpr double kEps = 1e-5;  // torch.nn.BatchNorm2d's default

class VisionBuilder {
 public:
  VisionBuilder(GraphBuilder& builder, const VisionConfig& config, const StepShape& step)
      : b_(builder), config_(config), step_(step), net_(builder, step.dtype) {}

  void build() {
    const TensorId image =
        b_.input("image", step_.dtype, {step_.batch, config_.channels, config_.image, config_.image});
    TensorId logits;
    switch (config_.net) {
      case VisionNet::LeNet:
        logits = lenet(image);
        break;
      case VisionNet::AlexNet:
        logits = alexnet(image);
        break;
      case VisionNet::Vgg:
        logits = vgg(image);
        break;
      default:
        logits = resnet(image);
        break;
    }
    b_.result(net_.cross_entropy("loss", logits, b_.input("labels", DType::I64, {step_.batch})));
  }

 private:
  TensorId conv_relu(const std::string& name, TensorId x, std::int64_t out, LayerBuilder::Window window) {
    return net_.unary(name + "_relu", net_.conv2d(name, x, out, window, true), "relu");
  }
  TensorId linear_relu(const std::string& name, TensorId x, std::int64_t out) {
    return net_.unary(name + "_relu", net_.linear(name, x, out, true), "relu");
  }

  // LeCun et al. 1998, with full connections between C3 and S2 and ReLU, as it is usually taught now.
  TensorId lenet(TensorId x) {
    x = net_.pool2d("pool1", conv_relu("conv1", x, 6, LayerBuilder::square(5)), "max", LayerBuilder::square(2, 2));
    x = net_.pool2d("pool2", conv_relu("conv2", x, 16, LayerBuilder::square(5)), "max", LayerBuilder::square(2, 2));
    x = linear_relu("fc1", net_.flatten("flatten", x), 120);
    return net_.linear("fc3", linear_relu("fc2", x, 84), config_.classes, true);
  }

  // To 6×6 or 7×7 positions whatever the image, as torchvision's adaptive pooling does; nothing to do at the
  // usual size.
  TensorId pool_to(const std::string& name, TensorId x, std::int64_t side) {
    if (net_.shape(x).size() != 4 || net_.shape(x)[2] == side) return x;
    // A single position is repeated (VGG on CIFAR's 32×32 images).
    const auto repeat = [&](const std::string& suffix, TensorId y, std::int64_t dim) {
      return b_.op1(OpKind::Expand, name + suffix, {y}, {{"dim", dim}, {"times", side}});
    };
    const std::int64_t from = net_.shape(x)[2], stride = std::max<std::int64_t>(1, from / side);
    if (from == 1) return repeat("_columns", repeat("_rows", x, 2), 3);
    if (from < side) {
      b_.fail(error("image={}: too small, {}×{} positions are left where {}×{} are needed", config_.image, from, from,
                    side, side));
      return x;
    }
    return net_.pool2d(name, x, "avg", LayerBuilder::square(from - (side - 1) * stride, stride));
  }

  TensorId classifier(TensorId x) {
    const auto scope = b_.scope("classifier");
    x = net_.flatten("flatten", x);
    x = linear_relu("fc1", net_.dropout("dropout1", x, config_.dropout), 4096);
    x = linear_relu("fc2", net_.dropout("dropout2", x, config_.dropout), 4096);
    return net_.linear("fc3", x, config_.classes, true);
  }

  // Krizhevsky's one-column variant (arXiv:1404.5997), as in torchvision.
  TensorId alexnet(TensorId x) {
    {
      const auto scope = b_.scope("features");
      const LayerBuilder::Window pool = LayerBuilder::square(3, 2);
      x = net_.pool2d("pool1", conv_relu("conv1", x, 64, LayerBuilder::square(11, 4, 2)), "max", pool);
      x = net_.pool2d("pool2", conv_relu("conv2", x, 192, LayerBuilder::square(5, 1, 2)), "max", pool);
      x = conv_relu("conv3", x, 384, LayerBuilder::square(3, 1, 1));
      x = conv_relu("conv4", x, 256, LayerBuilder::square(3, 1, 1));
      x = net_.pool2d("pool5", conv_relu("conv5", x, 256, LayerBuilder::square(3, 1, 1)), "max", pool);
      x = pool_to("pool", x, 6);
    }
    return classifier(x);
  }

  TensorId vgg(TensorId x) {
    {
      const auto scope = b_.scope("features");
      std::int64_t channels = 64;
      for (std::size_t stage = 0; stage < config_.blocks.size(); ++stage) {
        for (std::int64_t i = 0; i < config_.blocks[stage]; ++i)
          x = conv_relu(fmt::format("conv{}_{}", stage + 1, i + 1), x, channels, LayerBuilder::square(3, 1, 1));
        x = net_.pool2d(fmt::format("pool{}", stage + 1), x, "max", LayerBuilder::square(2, 2));
        channels = std::min<std::int64_t>(512, channels * 2);
      }
      x = pool_to("pool", x, 7);
    }
    return classifier(x);
  }

  TensorId conv_bn(const std::string& index, TensorId x, std::int64_t out, LayerBuilder::Window window) {
    return net_.batch_norm("bn" + index, net_.conv2d("conv" + index, x, out, window, false), kEps);
  }

  TensorId residual_block(TensorId x, std::int64_t inner, std::int64_t out, std::int64_t stride) {
    const TensorId shortcut_input = x;
    const auto channels = [&] { return net_.shape(shortcut_input).size() > 1 ? net_.shape(shortcut_input)[1] : 0; };
    if (config_.bottleneck) {
      x = net_.unary("relu1", conv_bn("1", x, inner, LayerBuilder::square(1)), "relu");
      x = net_.unary("relu2", conv_bn("2", x, inner, LayerBuilder::square(3, stride, 1)), "relu");
      x = conv_bn("3", x, out, LayerBuilder::square(1));
    } else {
      x = net_.unary("relu1", conv_bn("1", x, out, LayerBuilder::square(3, stride, 1)), "relu");
      x = conv_bn("2", x, out, LayerBuilder::square(3, 1, 1));
    }
    TensorId shortcut = shortcut_input;
    if (stride != 1 || channels() != out) {
      const auto scope = b_.scope("downsample");
      shortcut =
          net_.batch_norm("bn", net_.conv2d("conv", shortcut, out, LayerBuilder::square(1, stride), false), kEps);
    }
    return net_.unary("relu", net_.add("add", x, shortcut), "relu");
  }

  TensorId resnet(TensorId x) {
    x = net_.unary("relu", conv_bn("1", x, config_.base, LayerBuilder::square(7, 2, 3)), "relu");
    x = net_.pool2d("maxpool", x, "max", LayerBuilder::square(3, 2, 1));
    for (std::size_t stage = 0; stage < config_.blocks.size(); ++stage) {
      const std::int64_t base = config_.base << stage, inner = config_.width << stage;
      for (std::int64_t i = 0; i < config_.blocks[stage] && b_.ok(); ++i) {
        const auto scope = b_.scope(fmt::format("layer{}.{}", stage + 1, i));
        x = residual_block(x, inner, config_.bottleneck ? 4 * base : base, i == 0 && stage > 0 ? 2 : 1);
      }
    }
    return net_.linear("fc", net_.global_mean("avgpool", x), config_.classes, true);
  }

  GraphBuilder& b_;
  const VisionConfig& config_;
  const StepShape& step_;
  LayerBuilder net_;
};

}  // namespace

Status check(const VisionConfig& config) {
  if (config.image < 1 || config.image > 100'000) return error("image={}: must be between 1 and 100000", config.image);
  if (config.channels < 1 || config.channels > 1 << 20)
    return error("channels={}: must be between 1 and 1048576", config.channels);
  if (config.classes < 1 || config.classes > 1LL << 30)
    return error("classes={}: must be between 1 and 2^30", config.classes);
  if (config.width < 1 || config.width > 1 << 20) return error("width={}: must be between 1 and 1048576", config.width);
  if (config.base < 1 || config.base > 1 << 16) return error("base_width={}: must be between 1 and 65536", config.base);
  if (config.net != VisionNet::ResNet && (config.width != 64 || config.base != 64))
    return error("width={}: only a ResNet has one", config.width);
  if (config.net == VisionNet::ResNet && !config.bottleneck && config.width != config.base)
    return error("width={}: only ResNets with bottlenecks have inner channels; base_width= widens all", config.width);
  if (!(config.dropout >= 0 && config.dropout < 1))
    return error("dropout={}: must be at least 0 and below 1", config.dropout);
  return Ok{};
}

void build_vision(GraphBuilder& builder, const VisionConfig& config, const StepShape& step) {
  if (config.net == VisionNet::InceptionV3) return build_inception_v3(builder, config, step);
  VisionBuilder(builder, config, step).build();
}

}  // namespace weft
