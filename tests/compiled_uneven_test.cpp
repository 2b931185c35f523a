// Parts of different sizes: samples, heads, experts, tokens around a ring and rows of images in uneven shares train as
// one device does.
#include <gtest/gtest.h>

#include "models/models.h"
#include "small_networks.h"
#include "spread_plan.h"

namespace weft {
namespace {

// One mesh axis of three devices that get 3, 2 and 1 shares.
SpreadPlan uneven_plan(const TrainingGraph& training, int zero) {
  std::vector<DeviceId> devices = {DeviceId(0), DeviceId(1), DeviceId(2)};
  SpreadPlan plan{on_one_mesh(training.graph, Mesh::make({{"x", 3}}, devices).value()),
                  {},
                  {zero, 0b1},
                  RecomputeRegions::none(training.graph),
                  make_schedule({"gpipe", 1, 2, 0}).value()};
  plan.choices.ops.resize(1);
  plan.choices.inputs.resize(1);
  plan.choices.reduce_onto.resize(1);
  return plan;
}

TEST(CompiledProgram, UnevenSharesTrainAsOneDevice) {
  const auto load = [](const char* spec, std::int64_t batch) {
    return make_training_graph(build_model(spec, {.batch = batch, .seq = 4}).value(), {.master_weights = false})
        .value();
  };
  for (int zero : {0, 1, 2, 3}) {
    // Samples 3:2:1 of six.
    for (const char* model :
         {"gpt2-124m:layers=1,hidden=8,heads=4,vocab=16,dropout=0.1",
          "mixtral-8x7b:layers=1,hidden=8,heads=4,kv_heads=2,ffn=4,vocab=16,experts=4,capacity_factor=2",
          "mixtral-8x7b:layers=1,hidden=8,heads=4,kv_heads=2,ffn=4,vocab=16,experts=4,capacity_factor=2,weigh_rows="
          "1"}) {
      const TrainingGraph training = load(model, 6);
      SpreadPlan plan = uneven_plan(training, zero);
      for (TensorId id : training.graph.tensors().ids())
        if (training.graph.tensors()[id].kind == TensorKind::Input &&
            training.graph.tensors()[id].type.shape.size() == 2 && training.graph.tensors()[id].type.shape[0] == 6)
          plan.choices.inputs[0][id] = {0, {3, 2, 1}};
      EXPECT_EQ(problem_of(training, plan), "") << model << " zero=" << zero;
    }
    // Heads and columns 3:2:1 (six heads of 2, twelve columns of the MLP), experts 3:2:1 of six.
    const TrainingGraph training =
        load("mixtral-8x7b:layers=1,hidden=12,heads=6,kv_heads=6,ffn=4,vocab=12,experts=6,capacity_factor=2", 2);
    SpreadPlan plan = uneven_plan(training, zero);
    for (OpId op : training.graph.ops().ids()) {
      const std::string name = training.graph.name(op);
      if (name.ends_with("attn.qkv")) plan.choices.ops[0][op] = {"n", 1, {18, 12, 6}};  // a head has 3 · 2 columns
      if (name.ends_with("attn.out")) plan.choices.ops[0][op] = {"k", 1, {6, 4, 2}};
      if (name.ends_with("head.logits")) plan.choices.ops[0][op] = {"n", 1, {6, 4, 2}};
      if (training.graph.kind(op) == OpKind::ExpertLinear && training.graph.ops()[op].phase == Phase::Forward)
        plan.choices.ops[0][op] = {"e", 1, {3, 2, 1}};
    }
    EXPECT_EQ(problem_of(training, plan), "") << "heads and experts, zero=" << zero;
    // Tokens 3:2:1 of six, keys around a ring: parts of all sizes pass every device.
    const TrainingGraph tokens =
        make_training_graph(
            build_model("llama3-8b:layers=1,hidden=8,heads=4,kv_heads=2,ffn=12,vocab=16", {.batch = 2, .seq = 6})
                .value(),
            {.master_weights = false})
            .value();
    SpreadPlan ring = uneven_plan(tokens, zero);
    ring.choices.ring = 0b1;
    for (TensorId id : tokens.graph.tensors().ids())
      if (const Tensor& tensor = tokens.graph.tensors()[id];
          tensor.kind == TensorKind::Input && tensor.type.shape.size() == 2 && tensor.type.shape[1] == 6)
        ring.choices.inputs[0][id] = {1, {3, 2, 1}};
    EXPECT_EQ(problem_of(tokens, ring), "") << "tokens around a ring, zero=" << zero;
    EXPECT_GT(ring_turns(tokens, plan_sharding(tokens, ring.placing, ring.choices).value(), ring.placing), 0);
    // Rows of an image 6:4:2 of twelve: windows with halos over uneven parts.
    const TrainingGraph cnn = make_training_graph(small_cnn(), {.master_weights = false}).value();
    SpreadPlan rows = uneven_plan(cnn, zero);
    for (OpId op : cnn.graph.ops().ids())
      if (cnn.graph.name(op) == "conv1.conv" || cnn.graph.name(op) == "conv2.conv")
        rows.choices.ops[0][op] = {"h", 1, {6, 4, 2}};
    EXPECT_EQ(problem_of(cnn, rows), "") << "rows, zero=" << zero;
  }
}

}  // namespace
}  // namespace weft
