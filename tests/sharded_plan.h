// A training graph sharded over devices, and whether it then trains as on one device.
#pragma once

#include <memory>
#include <string>

#include "compile/compile.h"
#include "reference/one_device.h"

namespace weft {

// A price per call and per byte: grouped parts take one call per member and move all bytes; padded parts take one call
// and move members × the largest part.
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

// How a training graph is sharded over devices.
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

// How a program of this plan differs from training on one device; empty: not at all. Statistics of BatchNorm are local
// to shards, and the run on one device uses the program's shards, so those must be the planned ones.
inline std::string problem_of(const TrainingGraph& training, const ShardedPlan& sharded, const ShardingPlan& plan,
                              const Program& program) {
  for (const Instruction& instruction : program.instructions)
    if (const auto* compute = std::get_if<Compute>(&instruction.what))
      if (training.graph.kind(compute->op) == OpKind::BatchNorm && compute->sharding != plan.ops[compute->op])
        return training.graph.name(compute->op) + " is split otherwise than planned";
  return reference::differs_from_one_device(training, program, sharded.schedule);
}

inline Result<Program> compiled(const TrainingGraph& training, const ShardedPlan& sharded) {
  WEFT_TRY(const ShardingPlan plan, plan_sharding(training, sharded.placing, sharded.choices));
  return compile(training, sharded.placing, plan, sharded.options(), sharded.recompute);
}

// Plans, compiles and compares.
inline std::string problem_of(const TrainingGraph& training, const ShardedPlan& sharded) {
  const Result<ShardingPlan> plan = plan_sharding(training, sharded.placing, sharded.choices);
  if (!plan.ok()) return plan.error().message;
  const Result<Program> program = compile(training, sharded.placing, *plan, sharded.options(), sharded.recompute);
  if (!program.ok()) return program.error().message;
  return problem_of(training, sharded, *plan, *program);
}

// Operators whose operands are passed around rings: a mesh axis splits two of their axes.
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
