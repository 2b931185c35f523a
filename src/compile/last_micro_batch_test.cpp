// A last micro-batch with fewer samples: executed by the same program on smaller tensors, it trains as one device does
// on the same samples.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "program/memory.h"
#include "program/verify.h"
#include "program_cases.h"
#include "reference/one_device.h"
#include "small_networks.h"

namespace weft {
namespace {

struct Case {
  TrainingGraph training, last;
  Result<CompiledStrategy> compiled;
};

// The model under a strategy in shorthand, with a last micro-batch of so many samples per replica.
Case last_case(const std::string& model, const std::string& text, std::int64_t samples,
               std::optional<std::int64_t> seq = 4) {
  const Shorthand shorthand = parse_shorthand(text).value();
  const Parallelism parallelism = complete(shorthand, devices_named(shorthand)).value();
  const auto training = [&](std::int64_t batch) {
    return make_training_graph(build_model(routed_model(model, parallelism), {.batch = batch, .seq = seq}).value(),
                               {.master_weights = false})
        .value();
  };
  TrainingGraph usual = training(parallelism.graph_batch()), last = training(samples * parallelism.dp);
  const Strategy strategy = expand(parallelism, usual.graph);
  const ResolvedStrategy resolved = resolve(strategy, usual, parse_cluster("dgx-h100:1").value()).value();
  Result<CompiledStrategy> compiled = compile_strategy(usual, resolved, {}, &last.graph);
  return {std::move(usual), std::move(last), std::move(compiled)};
}

TEST(LastMicroBatch, TrainsAsOneDeviceOnItsSamples) {
  struct Played {
    const char *model, *strategy;
    std::int64_t last;
  };
  const Played cases[] = {
      {kSmallLlama, "dp=1,mbs=3,ga=2", 1},
      {kSmallLlama, "dp=2,mbs=3,ga=3", 2},
      {kSmallLlama, "dp=4,mbs=2,ga=2,zero=1", 1},
      {kSmallLlama, "dp=2,mbs=2,ga=3,zero=2", 1},
      {kSmallGpt, "dp=2,mbs=4,ga=2,zero=3,recompute=full", 3},
      {kSmallLlama, "tp=2,dp=2,mbs=3,ga=2", 2},
      {kSmallGpt, "tp=2,cp=2,mbs=2,ga=2", 1},
      {kSmallLlama, "cp=2,dp=2,mbs=2,ga=2,cp_mode=ring", 1},
      {kSmallLlama, "cp=2,dp=2,mbs=2,ga=2,cp_mode=a2a", 1},
      {kSmallLlama, "pp=2,mbs=2,ga=4", 1},
      {kSmallLlama, "tp=2,pp=2,dp=2,mbs=3,ga=3,zero=1,recompute=selective", 1},
      {kSmallLlama, "pp=2,mbs=2,ga=4,schedule=zb-h1", 1},
      {kSmallMoe, "dp=2,ep=2,mbs=2,ga=2", 1},
      {kSmallMoe, "tp=2,dp=2,ep=2,mbs=3,ga=2,zero=1", 2},
      {kSmallLlama, "dp=2,mbs=2,ga=2,zero=3,offload=optimizer+gradients+weights+activations", 1},
  };
  for (const auto& [model, strategy, samples] : cases) {
    const Case of = last_case(model, strategy, samples);
    ASSERT_TRUE(of.compiled.ok()) << strategy << ": " << of.compiled.error().message;
    EXPECT_EQ(reference::differs_from_one_device(of.training, of.compiled->program, of.compiled->schedule,
                                                 {{1, 0.01, 1}, {2, 0.02, 1}},
                                                 LastMicroBatch{*of.compiled->last, of.last.graph}),
              "")
        << model << " " << strategy << ", the last of " << samples;
  }
}

// Samples stand inside in recurrent networks, [t·b, h], and are merged with others in images and tables.
TEST(LastMicroBatch, OtherNetworksTrainAsOneDeviceOnItsSamples) {
  for (const auto& [model, strategy, seq] :
       {std::tuple{"rnnlm:hidden=4,vocab=16", "dp=2,mbs=2,ga=2", 3}, std::tuple{"lenet", "dp=2,mbs=2,ga=2", 0}}) {
    const Case of = last_case(model, strategy, 1, seq > 0 ? std::optional<std::int64_t>(seq) : std::nullopt);
    ASSERT_TRUE(of.compiled.ok()) << model << ": " << of.compiled.error().message;
    EXPECT_EQ(reference::differs_from_one_device(of.training, of.compiled->program, of.compiled->schedule, {{}},
                                                 LastMicroBatch{*of.compiled->last, of.last.graph}),
              "")
        << model;
  }
}

// Two micro-batches under gpipe are held together: 3 + 1 samples take 4/6 of the activations that 3 + 3 do.
TEST(LastMicroBatch, ItHoldsLess) {
  const Case of = last_case(kSmallLlama, "dp=2,mbs=3,ga=2,schedule=gpipe", 1);
  ASSERT_TRUE(of.compiled.ok());
  const CompiledStrategy& compiled = *of.compiled;
  const HeldBytes all = peak_memory(compiled.program, of.training, compiled.schedule)[0];
  const HeldBytes less = peak_memory(compiled.program, of.training, compiled.schedule, compiled.last)[0];
  EXPECT_EQ(less.parameters, all.parameters);
  EXPECT_NEAR(static_cast<double>(less.activations.value) / static_cast<double>(all.activations.value), 4.0 / 6, 0.01);
}

// Of the two ranks that hold a stage only one would execute it.
TEST(LastMicroBatch, IsRefusedWhereStagesAreHeldTwice) {
  const Case of = last_case(kSmallLlama, "pp=2,mbs=2,ga=4,schedule=dualpipe", 1);
  ASSERT_FALSE(of.compiled.ok());
  EXPECT_THAT(of.compiled.error().message,
              testing::HasSubstr("choose a global batch that divides, or another schedule"));
}

TEST(LastMicroBatch, OneThatDoesNotDivideIsRefused) {
  // Two replicas share what the graph of one sample has.
  const TrainingGraph usual = make_training_graph(build_model(kSmallLlama, {.batch = 4, .seq = 4}).value()).value(),
                      odd = make_training_graph(build_model(kSmallLlama, {.batch = 1, .seq = 4}).value()).value();
  const ProgramCase of = program_case(kSmallLlama, "dp=2,mbs=2,ga=2");
  const Result<Program> made = for_last_micro_batch(of.program, usual.graph, odd.graph);
  ASSERT_FALSE(made.ok());
  EXPECT_NE(made.error().message.find("do not divide over the devices that share them"), std::string::npos);
}

}  // namespace
}  // namespace weft
