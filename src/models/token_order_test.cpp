// Tokens in zigzag order (graph/token_order.h): the same training as in their own order, and as much attention for
// every device of context parallelism.
#include "graph/token_order.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "base/random.h"
#include "cost/cost.h"
#include "graph/operators.h"
#include "graph/training.h"
#include "models/models.h"
#include "reference/run_graph.h"

namespace weft {
namespace {

TEST(TokenOrder, EveryPartHasAChunkFromEachEnd) {
  for (const std::int64_t parts : {2, 3, 8}) {
    const std::int64_t chunk = 3, size = 2 * parts * chunk;
    std::vector<int> seen(static_cast<std::size_t>(size), 0);
    for (std::int64_t place = 0; place < size; ++place) {
      const std::int64_t position = token_position(place, size, parts), part = place / (2 * chunk);
      ++seen[static_cast<std::size_t>(position)];
      EXPECT_TRUE(position / chunk == part || position / chunk == 2 * parts - 1 - part) << place;
    }
    EXPECT_EQ(seen, std::vector<int>(static_cast<std::size_t>(size), 1)) << "an order of all tokens";
  }
  EXPECT_EQ(token_position(5, 8, 1), 5);
}

// Loss and gradients of parameters with tokens in their own order, and in zigzag order when they are fed so.
TEST(TokenOrder, TrainsAsInTheirOwnOrder) {
  constexpr std::int64_t kSeq = 8, kParts = 2;
  for (const std::string model : {"llama3-8b:layers=1,hidden=8,heads=2,kv_heads=1,ffn=8,vocab=16",
                                  "gpt2-124m:layers=1,hidden=8,heads=2,vocab=16,dropout=0",
                                  "mistral-7b:layers=1,hidden=8,heads=2,kv_heads=1,ffn=8,vocab=16,window=3"}) {
    const auto train = [&](std::int64_t parts) {
      const TrainingGraph training =
          make_training_graph(
              build_model(model + ",zigzag=" + std::to_string(parts), {.batch = 2, .seq = kSeq}).value())
              .value();
      const Graph& graph = training.graph;
      const auto values = reference::run_graph(graph, [&](TensorId id, reference::Block& block) {
        const Tensor& tensor = graph.tensors()[id];
        const bool tokens = tensor.kind == TensorKind::Input && !tensor.type.shape.empty();
        for (std::size_t i = 0; i < block.values().size(); ++i) {
          // What stands at this place in the tokens' own order.
          const auto place = static_cast<std::int64_t>(i);
          const std::int64_t from = tokens ? place / kSeq * kSeq + token_position(place % kSeq, kSeq, parts) : place;
          const double uniform =
              Rng(std::hash<std::string>()(tensor.name)).split(static_cast<std::uint64_t>(from)).uniform();
          block.values()[i] = tensor.name == "loss_weight"           ? 1
                              : tensor.name == "position_ids"        ? static_cast<double>(from % kSeq)
                              : tokens                               ? std::floor(10 * uniform)
                              : tensor.kind == TensorKind::Parameter ? 0.8 * uniform - 0.4
                                                                     : 0;
        }
      });
      std::map<std::string, std::vector<double>> result;
      for (const auto& [parameter, sum] : training.accumulated) result[graph.name(parameter)] = values[sum].values();
      return result;
    };
    const auto natural = train(1), zigzag = train(kParts);
    ASSERT_FALSE(natural.empty());
    double most = 0;
    for (const auto& [name, gradient] : natural)
      for (const double each : gradient) most = std::max(most, std::abs(each));
    EXPECT_GT(most, 1e-3);
    for (const auto& [name, gradient] : natural)
      for (std::size_t i = 0; i < gradient.size(); ++i)
        ASSERT_NEAR(gradient[i], zigzag.at(name)[i], 1e-12) << model << " " << name << " " << i;
  }
}

// Whole samples cut into parts: queries alone, or keys going around a ring.
TEST(TokenOrder, EveryPartSeesAsMuch) {
  constexpr std::int64_t kTokens = 4096, kParts = 4, kPart = kTokens / kParts;
  const TensorType tensor{DType::BF16, {1, kTokens, 128}};
  const auto shares = [&](std::int64_t zigzag, bool ring) {
    const Signature signature =
        make_signature(OpKind::Attention, {{"heads", std::int64_t{1}}, {"causal", std::int64_t{1}}, {"zigzag", zigzag}},
                       std::vector{tensor, tensor, tensor})
            .value();
    std::vector<double> result;
    for (std::int64_t part = 0; part < kParts; ++part)
      for (std::int64_t keys = 0; keys < (ring ? kParts : 1); ++keys) {
        if (ring && keys == part) continue;  // on the diagonal tokens see themselves too
        AxisSlices slices;
        for (const Axis& axis : signature.axes) slices.push_back(whole_axis(axis));
        slices[static_cast<std::size_t>(signature.axis_named("q"))] = {1, part * kPart, (part + 1) * kPart};
        if (ring) slices[static_cast<std::size_t>(signature.axis_named("t"))] = {1, keys * kPart, (keys + 1) * kPart};
        result.push_back(attended_share(signature, slices));
      }
    return result;
  };
  for (const double share : shares(kParts, false)) EXPECT_DOUBLE_EQ(share, (kTokens + 1) / (2.0 * kTokens));
  for (const double share : shares(kParts, true)) EXPECT_DOUBLE_EQ(share, 0.5);
  const std::vector<double> own = shares(1, false);
  EXPECT_LT(own.front(), 0.13) << "the first tokens see little";
  EXPECT_GT(own.back(), 0.87);
}

}  // namespace
}  // namespace weft
