// Gathers and scatters of parts of different sizes: padded or grouped, by the stack or whichever is cheaper; even parts
// are neither.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "cost/analytic.h"
#include "cost/step_prices.h"
#include "price/communications.h"
#include "program_cases.h"
#include "reference/one_device.h"
#include "strategy/yaml.h"

namespace weft {
namespace {

int count(const Program& program, Parts parts) {
  int found = 0;
  for (const Instruction& instruction : program.instructions)
    if (const auto* communicate = std::get_if<Communicate>(&instruction.what)) found += communicate->parts == parts;
  return found;
}

TEST(UnevenParts, ProgramsOfEvenPartsAreTheSameWhateverTheStackSays) {
  for (const char* strategy : {"dp=4,zero=3", "tp=4", "tp=2,dp=2,zero=1", "cp=2,dp=2", "fsdp=2,replicate=2,zero=3"}) {
    const Program settled = program_case(kSmallGpt, strategy).program;
    EXPECT_EQ(count(settled, Parts::Padded) + count(settled, Parts::Grouped), 0) << strategy;
    for (Parts parts : {Parts::Padded, Parts::Grouped})
      EXPECT_EQ(program_case(kSmallGpt, strategy, 4, "dgx-h100:2", {.uneven_parts = parts}).program, settled)
          << strategy;
  }
}

// Samples and storage 5:1:1:1 over replicas, columns 3:1 over tensor-parallel devices, of a network of any size.
struct Uneven {
  TrainingGraph training;
  Cluster cluster;
  ResolvedStrategy resolved;
};
Uneven uneven_case(const std::string& model, const char* cluster_spec, const std::string& memory) {
  Cluster cluster = parse_cluster(cluster_spec).value();
  TrainingGraph training =
      make_training_graph(build_model(model, {.batch = 8, .seq = 12}).value(), {.master_weights = false}).value();
  const Strategy strategy =
      parse_strategy(
          fmt::format("mesh: {{axes: {{dp: 4, tp: 2}}}}\nschedule: {{micro_batches: 2}}\nrules:\n"
                      "  - {{match: '**', inputs: {{dp: {{dim: 0, ratio: [5, 1, 1, 1]}}}}, memory: {{{}}}}}\n"
                      "  - {{match: '**.mlp.up', compute: {{tp: {{axis: n, ratio: [3, 1]}}}}}}\n",
                      memory),
          "plan.yaml")
          .value();
  ResolvedStrategy resolved = resolve(strategy, training, cluster, "plan.yaml").value();
  return {std::move(training), std::move(cluster), std::move(resolved)};
}
constexpr const char* kMemory[] = {
    "optimizer: {over: [dp], ratio: {dp: [5, 1, 1, 1]}}",
    "optimizer: {over: [dp, tp], ratio: {dp: [5, 1, 1, 1]}}, gradients: {over: [dp]}",
    "optimizer: {over: [dp]}, gradients: {over: [dp], ratio: {dp: [9, 1, 1, 1]}}, weights: {over: [dp]}"};

// Whatever was chosen by price takes no longer than the other way, and the choice is not always the same.
TEST(UnevenParts, WhatThePriceChoosesTakesNoLongerThanEitherWay) {
  std::map<Parts, int> chosen;
  for (const char* model :
       {"gpt2-124m:layers=1,hidden=24,heads=4,vocab=24", "gpt2-124m:layers=1,hidden=768,heads=12,vocab=4608"})
    for (const char* cluster : {"dgx-h100:1", "v100x8:1+p100x8:1", "dgx-a100:1"})
      for (const char* memory : kMemory) {
        const Uneven each = uneven_case(model, cluster, memory);
        const AnalyticCost cost(find_stack("megatron-lm").value());
        const StepPrices prices(each.cluster, cost);
        Program program = compile_strategy(each.training, each.resolved, {.prices = &prices}).value().program;
        Communications communications(program, each.training.graph, each.cluster, cost);
        const auto time = [&](const Instruction& instruction) {
          Picoseconds slowest = 0;
          const KindId kind = communications.kind_of(instruction);
          for (CommGroupId group : communications.kinds()[kind].group_at)
            slowest =
                std::max(slowest, isolated_time(communications.cost_of(instruction, communications.groups()[group])));
          return slowest;
        };
        for (Instruction& instruction : program.instructions)
          if (auto* communicate = std::get_if<Communicate>(&instruction.what);
              communicate && communicate->parts != Parts::Even) {
            ++chosen[communicate->parts];
            const Picoseconds taken = time(instruction);
            Instruction other = instruction;
            std::get<Communicate>(other.what).parts =
                communicate->parts == Parts::Padded ? Parts::Grouped : Parts::Padded;
            EXPECT_LE(taken, time(other)) << model << " " << cluster << " " << memory;
          }
      }
  EXPECT_GT(chosen[Parts::Padded], 20);
  EXPECT_GT(chosen[Parts::Grouped], 20);
  fmt::print("{} collectives padded, {} grouped\n", chosen[Parts::Padded], chosen[Parts::Grouped]);
}

TEST(UnevenParts, AreAsTheStackSaysAndTrainAsOneDevice) {
  for (const char* memory : kMemory) {
    const Uneven each = uneven_case("gpt2-124m:layers=1,hidden=8,heads=4,vocab=16", "dgx-h100:1", memory);
    for (Parts parts : {Parts::Padded, Parts::Grouped}) {
      const Parts other = parts == Parts::Padded ? Parts::Grouped : Parts::Padded;
      const CompiledStrategy compiled = compile_strategy(each.training, each.resolved, {.uneven_parts = parts}).value();
      EXPECT_GT(count(compiled.program, parts), 0) << memory;
      EXPECT_EQ(count(compiled.program, other), 0) << memory;
      EXPECT_EQ(reference::differs_from_one_device(each.training, compiled.program, compiled.schedule), "") << memory;
    }
    // By bytes grouped parts are never more.
    const Program by_bytes = compile_strategy(each.training, each.resolved).value().program;
    EXPECT_EQ(by_bytes, compile_strategy(each.training, each.resolved, {.uneven_parts = Parts::Grouped})->program);
  }
}

}  // namespace
}  // namespace weft
