// Strategies drawn at random: every operator of a few small models split and placed in any legal way.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/random.h"
#include "models/models.h"
#include "sharded_plan.h"
#include "small_networks.h"

namespace weft {

struct RandomlySplit {
  const char* name;
  TrainingGraph training;
};
inline std::vector<RandomlySplit> randomly_split_models() {
  const auto train = [](Graph graph) {
    return make_training_graph(std::move(graph), {.master_weights = false}).value();
  };
  const auto zoo = [&](const char* spec, std::optional<std::int64_t> seq) {
    return train(build_model(spec, {.batch = 4, .seq = seq}).value());
  };
  std::vector<RandomlySplit> models;
  models.push_back({"cnn", train(small_cnn())});
  models.push_back({"gpt", zoo("gpt2-124m:layers=1,hidden=8,heads=4,vocab=16,dropout=0.1", 4)});
  models.push_back({"gqa", zoo("llama3-8b:layers=1,hidden=8,heads=4,kv_heads=2,ffn=12,vocab=16", 4)});
  models.push_back({"unfused", zoo("gpt2-124m:layers=1,hidden=8,heads=4,vocab=16,fused_attention=0", 4)});
  models.push_back(
      {"moe", zoo("mixtral-8x7b:layers=1,hidden=8,heads=4,kv_heads=2,ffn=4,vocab=16,experts=4,capacity_factor=2", 4)});
  models.push_back({"moe of weighed rows", zoo("mixtral-8x7b:layers=1,hidden=8,heads=4,kv_heads=2,ffn=4,vocab=16,"
                                               "experts=4,capacity_factor=2,weigh_rows=1",
                                               4)});
  models.push_back({"rnn", zoo("rnnlm:hidden=4,vocab=16", 3)});
  models.push_back({"dlrm", train(small_dlrm())});
  return models;
}

// Every operator on a mesh of its own choice among a few, of different devices and shapes: FlexFlow's placement.
inline Placing random_placing(const Graph& graph, Rng& rng) {
  Placing placing;
  const auto add = [&](int x, int y, std::vector<std::size_t> devices) {
    std::vector<DeviceId> ids;
    for (std::size_t device : devices) ids.emplace_back(device);
    placing.meshes.push_back(Mesh::make({{"x", x}, {"y", y}}, ids).value());
    placing.stage_of.push_back(0);
  };
  add(2, 2, {0, 1, 2, 3});
  add(2, 1, {3, 0});
  add(1, 2, {1, 2});
  add(1, 1, {2});
  placing.mesh_of.resize(graph.ops().size(), MeshId(0));
  for (MeshId& mesh : placing.mesh_of) mesh = MeshId(rng.below(4));
  return placing;
}

// Shares of four units in all, one device with more than the others: they divide what small models have.
inline Shares random_shares(int parts, Rng& rng) {
  Shares shares(static_cast<std::size_t>(parts), 1);
  shares[rng.below(shares.size())] += 4 - parts;
  return shares;
}

// Some of what a plan splits, in uneven shares instead: operators and inputs wherever that divides; what is stored; and
// how uneven parts are gathered and scattered.
inline void make_uneven(const TrainingGraph& training, ShardedPlan& plan, const std::vector<MeshAxis>& axes, Rng& rng) {
  const Graph& graph = training.graph;
  const auto divides = [&](const ShardedPlan& changed) {
    return plan_sharding(training, changed.placing, changed.choices).ok();
  };
  for (std::size_t m = 0; m < 2; ++m) {
    if (axes[m].size == 1) continue;
    ShardedPlan changed = plan;
    for (auto& [op, choice] : changed.choices.ops[m])
      if (!choice.axis.empty() && graph.ops()[op].phase == Phase::Forward && rng.below(3) == 0)
        choice.shares = random_shares(axes[m].size, rng);
    if (divides(changed)) plan = changed;
    changed = plan;
    const Shares shares = random_shares(axes[m].size, rng);
    for (auto& [id, choice] : changed.choices.inputs[m]) choice.shares = shares;
    if (rng.below(2) == 0 && divides(changed)) plan = changed;
    if (rng.below(2) == 0)
      for (int i = 0; i < axes[m].size; ++i) plan.memory.ratio[static_cast<int>(m)].push_back(rng.between(1, 4));
  }
  switch (rng.below(4)) {
    case 0:
      plan.uneven_parts = Parts::Padded;
      break;
    case 1:
      plan.uneven_parts = Parts::Grouped;
      break;
    default:
      plan.prices = std::make_shared<PricePerCallAndByte>(static_cast<double>(rng.below(200)), 1);
  }
}

// A mesh of up to two axes, and for some operators any axis that divides; inputs split here and there.
inline ShardedPlan random_plan(const TrainingGraph& training, Rng& rng, bool placed) {
  const Graph& graph = training.graph;
  std::vector<MeshAxis> axes = {{"x", static_cast<int>(rng.between(1, 3))}, {"y", static_cast<int>(rng.between(1, 2))}};
  std::vector<DeviceId> devices;
  for (int i = 0; i < axes[0].size * axes[1].size; ++i) devices.emplace_back(static_cast<std::size_t>(i));
  ShardedPlan plan{on_one_mesh(graph, Mesh::make(axes, devices).value()),
                   {},
                   {static_cast<int>(rng.between(0, 3)), 0b01},
                   RecomputeRegions::none(graph),
                   make_schedule({"gpipe", 1, 2, 0}).value()};
  if (placed) {
    axes = {{"x", 2}, {"y", 2}};
    plan.placing = random_placing(graph, rng);
  }
  plan.keep_gathered_input = rng.below(4) == 0;
  if (plan.memory.zero() == 3 && rng.below(2) == 0) {  // gathered in units of three parameters, ahead of their use
    plan.parameters.unit.resize(graph.tensors().size(), -1);
    int parameters = 0;
    for (TensorId id : graph.tensors().ids())
      if (graph.tensors()[id].kind == TensorKind::Parameter) plan.parameters.unit[id] = parameters++ / 3;
    plan.parameters.prefetch_backward = rng.below(2) == 0;
    plan.parameters.reshard_after_forward = rng.below(2) == 0;
  }
  plan.gradients.overlap = rng.below(4) != 0;
  plan.choices.ops.resize(2);
  plan.choices.inputs.resize(2);
  plan.choices.reduce_onto.resize(2);
  for (std::size_t m = 0; m < 2; ++m) {
    if (rng.below(2) == 0) plan.choices.reduce_onto[m] = "s";
    for (TensorId id : graph.tensors().ids()) {
      const Tensor& tensor = graph.tensors()[id];
      if (tensor.kind == TensorKind::Input && !tensor.type.shape.empty() && rng.below(2) == 0 &&
          tensor.type.shape[0] % (axes[0].size * axes[1].size) == 0)
        plan.choices.inputs[m][id] = {0};
    }
    for (OpId op : graph.ops().ids()) {
      if (graph.ops()[op].phase != Phase::Forward) break;
      if (rng.below(3) != 0) continue;
      const Signature& signature = graph.signature(op);
      std::vector<std::string> possible = {""};
      for (int a = 0; a < static_cast<int>(signature.axes.size()); ++a) {
        const bool windowed_twice = graph.kind(op) == OpKind::Conv2d || graph.kind(op) == OpKind::Pool2d;
        if (splittable(signature, a) &&
            signature.axes[static_cast<std::size_t>(a)].size % (axes[0].size * axes[1].size) == 0 &&
            !(windowed_twice && m == 1 &&
              (signature.axes[static_cast<std::size_t>(a)].name == "h" ||
               signature.axes[static_cast<std::size_t>(a)].name == "w")))
          possible.push_back(signature.axes[static_cast<std::size_t>(a)].name);
      }
      plan.choices.ops[m][op] = {possible[rng.below(possible.size())]};
    }
  }
  // What the stack settles: streams of collectives and types on the wire and of products; a source of its own.
  Rng stack = rng.split(2);
  plan.tensor_overlap = stack.below(3) != 0;
  if (stack.below(2) == 0) plan.types.sent_gradients = DType::BF16;
  if (stack.below(2) == 0) plan.types.sent_parameters = DType::F8;
  if (stack.below(2) == 0) plan.types.products = Arithmetic::kFp8;
  // Spread over any axes, for one to three micro-batches; again a source of its own.
  Rng memory = rng.split(3);
  plan.memory = {plan.memory.zero(), static_cast<MeshAxes>(memory.between(1, 3))};
  plan.schedule = make_schedule({"gpipe", 1, static_cast<std::int32_t>(memory.between(1, 3)), 0}).value();
  // Attention around rings, some of them in one another; a source of its own, so that nothing else depends on it.
  Rng rings = rng.split(1);
  plan.choices.ring = static_cast<MeshAxes>(rings.below(4));
  for (OpId op : graph.ops().ids())
    if (graph.kind(op) == OpKind::Attention && graph.ops()[op].phase == Phase::Forward)
      for (std::size_t m = 0; m < 2; ++m)
        if ((plan.choices.ring >> m & 1u) != 0 && 4 % (axes[0].size * axes[1].size) == 0 && rings.below(3) != 0)
          plan.choices.ops[m][op] = {"q"};
  Rng uneven = rng.split(4);
  if (uneven.below(3) != 0) make_uneven(training, plan, axes, uneven);
  return plan;
}

}  // namespace weft
