// Attention in kernels of its own, as stacks without a fused one have it, trains as the fused operator does: scores,
// scaling, soft cap, mask and window, softmax, values.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "base/random.h"
#include "graph/training.h"
#include "models/models.h"
#include "reference/run_graph.h"

namespace weft {
namespace {

// The loss and the gradients of all parameters, by name, with the same numbers for the same names.
std::map<std::string, std::vector<double>> train(const std::string& model, std::int64_t seq) {
  const TrainingGraph training = make_training_graph(build_model(model, {.batch = 2, .seq = seq}).value()).value();
  const Graph& graph = training.graph;
  const auto values = reference::run_graph(graph, [&](TensorId id, reference::Block& block) {
    const Tensor& tensor = graph.tensors()[id];
    const bool tokens = tensor.kind == TensorKind::Input && !tensor.type.shape.empty();
    for (std::size_t i = 0; i < block.values().size(); ++i) {
      const double uniform = Rng(std::hash<std::string>()(graph.name(id))).split(i).uniform();
      block.values()[i] = tensor.name == "loss_weight"    ? 1
                          : tensor.name == "position_ids" ? static_cast<double>(static_cast<std::int64_t>(i) % seq)
                          : tokens                        ? std::floor(10 * uniform)
                          : tensor.kind == TensorKind::Parameter ? 4 * uniform - 2
                                                                 : 0;
    }
  });
  std::map<std::string, std::vector<double>> result;
  for (const auto& [parameter, sum] : training.accumulated) result[graph.name(parameter)] = values[sum].values();
  return result;
}

TEST(SeparateAttention, TrainsAsTheFusedOperatorDoes) {
  const std::string sizes = ":layers=2,hidden=8,heads=4,ffn=8,vocab=16,dropout=0";
  const std::string models[] = {
      "gpt2-124m" + sizes,
      "llama3-8b" + sizes + ",kv_heads=2",
      // Soft caps on scores and logits, a scale of its own, every other layer in a window.
      "gemma-2-2b" + sizes + ",kv_heads=2,head_dim=2,window=3",
      "mistral-7b" + sizes + ",kv_heads=2,window=3",
      "grok-1" + sizes + ",kv_heads=2,head_dim=2,experts=2,expert_ffn=8",
  };
  for (const std::string& model : models) {
    SCOPED_TRACE(model);
    const auto fused = train(model, 6), separate = train(model + ",fused_attention=0", 6);
    ASSERT_FALSE(fused.empty());
    double most = 0;
    for (const auto& [name, gradient] : fused)
      for (const double each : gradient) most = std::max(most, std::abs(each));
    EXPECT_GT(most, 1e-3);
    for (const auto& [name, gradient] : fused)
      for (std::size_t i = 0; i < gradient.size(); ++i)
        ASSERT_NEAR(gradient[i], separate.at(name)[i], 1e-9 * std::max(1.0, most)) << name << " " << i;
  }
}

// The test above is sensitive: a window changes the gradients. (So does the softcap: it changes a score of 1 by
// 1/(3·50²) ≈ 1e-4.)
TEST(SeparateAttention, AWindowMatters) {
  const std::string model =
      "gemma-2-2b:layers=2,hidden=8,heads=4,kv_heads=2,head_dim=2,ffn=8,vocab=16,fused_attention=0";
  const auto windowed = train(model + ",window=3", 6), wide = train(model + ",window=64", 6);
  double difference = 0;
  for (const auto& [name, gradient] : windowed)
    for (std::size_t i = 0; i < gradient.size(); ++i)
      difference = std::max(difference, std::abs(gradient[i] - wide.at(name)[i]));
  EXPECT_GT(difference, 1e-3);
}

}  // namespace
}  // namespace weft
