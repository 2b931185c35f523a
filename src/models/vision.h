// Convolutional networks, shaped and named like torchvision's.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "graph/graph.h"
#include "models/transformer.h"

namespace weft {

enum class VisionNet : std::uint8_t { LeNet, AlexNet, Vgg, ResNet, InceptionV3 };

struct VisionConfig {
  VisionNet net = VisionNet::ResNet;
  std::int64_t image = 224, channels = 3, classes = 1000;
  std::vector<std::int64_t> blocks = {};  // ResNet: residual blocks of each stage; VGG: convolutions of each stage
  bool bottleneck = false;  // ResNet: 1×1, 3×3, 1×1 with four times the channels (stride in the 3×3: v1.5)
  std::int64_t width = 64;  // ResNet: inner channels of the first stage's bottlenecks (wide: 128)
  std::int64_t base = 64;   // ResNet: channels of the first stage; all others grow with it
  double dropout = 0;       // AlexNet and VGG: before the first two linears; Inception: before the last
  bool auxiliary = false;   // Inception: the training-time side classifier, its loss weighted by 0.4

  bool operator==(const VisionConfig&) const = default;
};

Status check(const VisionConfig& config);

// Adds the network's forward pass and its cross-entropy loss; the config must have passed `check`.
void build_vision(GraphBuilder& builder, const VisionConfig& config, const StepShape& step);
void build_inception_v3(GraphBuilder& builder, const VisionConfig& config,
                        const StepShape& step);  // called by build_vision

}  // namespace weft
