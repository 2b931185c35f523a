// Collectives in chunks beside the products they belong to: which they are, and what is left of them.
#include "price/pipelined.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>

#include "cost/analytic.h"
#include "price/price.h"
#include "program_cases.h"
#include "simulate/engine.h"

namespace weft {
namespace {

TEST(Pipelined, TheLongerOfTheTwoAndAChunkOfTheShorter) {
  const CommunicateCost cost{.latency = 1'000'000, .bytes = 9'000'000, .cap = 1'000'000'000'000};  // 10 us
  const Picoseconds alone = isolated_time(cost);
  ASSERT_EQ(alone, 10'000'000);
  for (const Picoseconds product : {1'000'000, 5'000'000, 10'000'000, 40'000'000})
    for (const int chunks : {1, 2, 4, 8}) {
      const Picoseconds both = product + isolated_time(exposed_beside(cost, product, chunks));
      const Picoseconds expected = std::max(product, alone) + std::min(product, alone) / chunks;
      EXPECT_NEAR(static_cast<double>(both), static_cast<double>(expected), 10.0) << product << " " << chunks;
    }
}

// Of a Llama layer with sequence parallelism Transformer Engine moves in chunks: the inputs of qkv and of gate and up,
// the outputs of the two others, and the gradients that the others' input gradients read.
TEST(Pipelined, PairsTheCollectivesOfALayerWithItsProducts) {
  const ProgramCase each = program_case(kSmallLlama, "tp=2", 4, "dgx-h100:1", {.tensor_overlap = true}, DType::BF16);
  const Graph& graph = each.training.graph;
  const IdVec<InstructionId, InstructionId> pairs = pipelined_products(each.program, graph);
  std::map<std::string, int> found;
  for (InstructionId id : each.program.instructions.ids()) {
    if (!pairs[id].valid()) continue;
    const auto& what = std::get<Communicate>(each.program.instructions[id].what);
    const auto& product = std::get<Compute>(each.program.instructions[pairs[id]].what);
    const std::string name = graph.name(product.op);
    if (name.find("layers.0.") == 0)
      ++found[std::string(what.collective == Collective::AllGather ? "gather for " : "scatter of ") + name.substr(9)];
  }
  const std::map<std::string, int> expected = {{"gather for attn.qkv", 1},
                                               {"scatter of attn.out", 1},
                                               {"gather for mlp.gate_up", 1},
                                               {"scatter of mlp.down", 1},
                                               {"gather for attn.out@grad_input", 1},
                                               {"gather for mlp.down@grad_input", 1}};
  EXPECT_EQ(found, expected);
}

// A stack that moves in chunks is faster than one that only has a stream for collectives.
TEST(Pipelined, HidesCommunicationBehindProducts) {
  const auto seconds = [](bool chunks) {
    const ProgramCase each = program_case(kSmallLlama, "tp=2", 4, "dgx-h100:1", {.tensor_overlap = true}, DType::BF16);
    SoftwareStack stack = find_stack("nemo-24.09").value();
    stack.tensor_chunks.value = chunks;
    stack.graph_capture.value = true;  // so small a model is otherwise bound by the host
    const AnalyticCost cost(stack);
    const Cluster cluster = parse_cluster("dgx-h100:1").value();
    const Priced priced =
        price(each.program, each.schedule, each.training, cluster, cost, stack, {.fold = Fold::None}).value();
    return simulate(priced.workload).value().makespan;
  };
  EXPECT_LT(seconds(true), seconds(false));
}

// Megatron-LM without --tp-comm-overlap: an input is gathered again beside the product of its gradient, and that gradient
// is scattered, or summed, beside the product of the weight's. Collectives of the forward pass stay in the open.
TEST(TensorOverlap, HidesGatheringAndReducingBesideBackwardProducts) {
  const auto seconds = [](const char* strategy, bool overlap) {
    const ProgramCase each =
        program_case(kSmallLlama, strategy, 4, "dgx-h100:1", {.tensor_overlap = overlap}, DType::BF16);
    SoftwareStack stack = find_stack("megatron-lm").value();
    stack.tensor_overlap.value = overlap;
    stack.graph_capture.value = true;  // so small a model is otherwise bound by the host
    const AnalyticCost cost(stack);
    const Cluster cluster = parse_cluster("dgx-h100:1").value();
    const Priced priced =
        price(each.program, each.schedule, each.training, cluster, cost, stack, {.fold = Fold::None}).value();
    return simulate(priced.workload).value().makespan;
  };
  for (const char* strategy : {"tp=2", "tp=2,sp=0"})
    EXPECT_LT(seconds(strategy, true), seconds(strategy, false)) << strategy;
}

}  // namespace
}  // namespace weft
