// A training graph spread over devices split by split, and whether it then trains as one device does.
#pragma once

#include <memory>
#include <string>

#include "compile/compile.h"
#include "reference/one_device.h"

namespace weft {

// So much a call and so much a byte: grouped parts take as many calls as there are members and move what there is,
// padded ones one call and members times the largest.
class PricePerCallAndByte final : public StepPrice {
 public:
  PricePerCallAndByte(double call, double byte) : call_(call), byte_(byte) {}
  double of(const ReshardStep& step, const Layout& before, const Mesh& mesh, DType dtype) const override {
    return call_ + byte_ * elements_sent(step, before, mesh) * bits_of(dtype) / 8;
  }
  double of_parts(Collective, MeshAxes axes, Parts parts, const PartSizes& bytes, const Mesh& mesh) const override {
    const double members = mesh.group_size(axes);
    return parts == Parts::Padded ? call_ + byte_ * members * static_cast<double>(bytes.largest)
                                  : call_ * members + byte_ * static_cast<double>(bytes.all);
  }

 private:
  const double call_, byte_;
};

// How a training graph is spread over devices.
struct ShardedPlan {
  Placing placing;
  ShardingChoices choices;
  MemoryPlan memory = {};
  RecomputeRegions recompute;
  Schedule schedule;
  GradientSync gradients = {.bucket = Bytes{200}};
  ParameterSync parameters = {};
  bool keep_gathered_input = false;
  bool tensor_overlap = true;
  NumberTypes types = {};
  TransferSync transfers = {};
  std::optional<Parts> uneven_parts = {};
  std::shared_ptr<const StepPrice> prices = {};

  CompileOptions options() const {
    return {.memory = memory,
            .gradients = gradients,
            .parameters = parameters,
            .keep_gathered_input = keep_gathered_input,
            .tensor_overlap = tensor_overlap,
            .uneven_parts = uneven_parts,
            .types = types,
            .prices = prices.get(),
            .transfers = transfers};
  }
};

// What is wrong with a program of this plan. BatchNorm's statistics are a shard's own and one device takes the
// program's shards, so those must be the planned ones.
inline std::string problem_of(const TrainingGraph& training, const ShardedPlan& spread, const ShardingPlan& plan,
                              const Program& program) {
  for (const Instruction& instruction : program.instructions)
    if (const auto* compute = std::get_if<Compute>(&instruction.what))
      if (training.graph.kind(compute->op) == OpKind::BatchNorm && compute->sharding != plan.ops[compute->op])
        return training.graph.name(compute->op) + " is split otherwise than planned";
  return reference::differs_from_one_device(training, program, spread.schedule);
}

inline Result<Program> compiled(const TrainingGraph& training, const ShardedPlan& spread) {
  WEFT_TRY(const ShardingPlan plan, plan_sharding(training, spread.placing, spread.choices));
  return compile(training, spread.placing, plan, spread.options(), spread.recompute);
}

// The same after planning and compiling it.
inline std::string problem_of(const TrainingGraph& training, const ShardedPlan& spread) {
  const Result<ShardingPlan> plan = plan_sharding(training, spread.placing, spread.choices);
  if (!plan.ok()) return plan.error().message;
  const Result<Program> program = compile(training, spread.placing, *plan, spread.options(), spread.recompute);
  if (!program.ok()) return program.error().message;
  return problem_of(training, spread, *plan, *program);
}

// Operators that a plan sends around rings: a mesh axis splits two of their axes.
inline int ring_turns(const TrainingGraph& training, const ShardingPlan& plan, const Placing& placing) {
  int rings = 0;
  for (OpId op : training.graph.ops().ids()) {
    std::vector<int> used(placing.meshes[plan.ops[op].mesh].axes().size(), 0);
    for (const std::vector<Cut>& cuts : plan.ops[op].axes)
      for (const Cut& cut : cuts) rings += ++used[static_cast<std::size_t>(cut.mesh_axis)] == 2;
  }
  return rings;
}

}  // namespace weft
