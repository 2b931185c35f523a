#include "price/instruction_pricer.h"

#include <algorithm>

#include "graph/operators.h"
#include "price/launches.h"

namespace weft {
namespace {

Picoseconds picoseconds(Seconds time) { return static_cast<Picoseconds>(time.value * 1e12 + 0.5); }

}  // namespace

Task InstructionPricer::blank(InstructionId id) const {
  const Instruction& instruction = program_.instructions[id];
  Task task;
  task.stream = static_cast<std::uint8_t>(instruction.stream);
  task.label = id.index();
  const auto* compute = std::get_if<Compute>(&instruction.what);
  // A framework leaves the first gradient where it is; Weft's executor copies it into the accumulator.
  const bool copies_first = stack_.weft_kernels.value;
  task.when = instruction.guard == Guard::FirstMicroBatch   ? PlayedFor::FirstMicroBatch
              : instruction.guard == Guard::LastMicroBatch  ? PlayedFor::LastMicroBatch
              : compute && compute->begins && !copies_first ? PlayedFor::AfterFirst
                                                            : PlayedFor::EveryMicroBatch;
  return task;
}

void InstructionPricer::add_host(Task& task, const Instruction& instruction, DeviceId device) const {
  const auto* compute = std::get_if<Compute>(&instruction.what);
  const bool local = compute || std::holds_alternative<Combine>(instruction.what);
  if (!stack_.graph_capture.value) {
    const Seconds usual = compute ? host_time_of(graph_, compute->op, stack_)
                          : local ? stack_.host_per_gradient.value
                                  : stack_.host_per_collective.value;
    task.host = picoseconds({usual.value * cluster_.host_of(device)});
  }
  // A receive is issued when its sender is, long before it is needed: waiting for it there would hold up what stands between.
  const bool transfers =
      std::holds_alternative<Send>(instruction.what) || std::holds_alternative<Receive>(instruction.what);
  if ((stack_.blocking_launches.value && !transfers) || (local && stack_.host_computes.value))
    task.host_waits = true;
  else if (compute)
    task.host_waits = is_read_back(*compute);
}

// The norm that gradients are clipped by; and how many rows every expert has, without a capacity, which all-to-alls and
// grouped products are launched with. Backward knows it from forward.
bool InstructionPricer::is_read_back(const Compute& compute) const {
  const Signature& signature = graph_.signature(compute.op);
  if (signature.kind == OpKind::ClipCoefficient) return stack_.sync_on_norm.value;
  return signature.kind == OpKind::Dispatch && signature.gradient.empty() && stack_.sync_on_counts.value &&
         signature.attrs.integer("dropless", 0) != 0 && stack_.dense_dispatch.value == 0;
}

bool InstructionPricer::is_uniform(const Compute& compute, const Mesh& mesh) const {
  const Signature& signature = graph_.signature(compute.op);
  for (std::size_t a = 0; a < compute.sharding.axes.size(); ++a) {
    std::int64_t left = signature.axes[a].size / (compute.sharding.outer.empty() ? 1 : compute.sharding.outer[a]);
    for (const Cut& cut : compute.sharding.axes[a]) {
      const int parts = mesh.axes()[static_cast<std::size_t>(cut.mesh_axis)].size;
      if (!cut.shares.empty() || left % parts != 0) return false;
      left /= parts;
    }
    // With a causal mask the last queries attend to more keys, unless zigzag order balances it.
    if (signature.kind == OpKind::Attention && !compute.sharding.axes[a].empty() &&
        (signature.axes[a].name == "q" || signature.axes[a].name == "t")) {
      const std::int64_t parts = signature.axes[a].size / left;
      if (parts <= 1 || signature.attrs.integer("zigzag", 1) % parts != 0 || signature.attrs.integer("window", 0) > 0)
        return false;
    }
  }
  return true;
}

void InstructionPricer::note_gathers() {
  gathered_of_.resize(program_.buffers.size(), 0);
  for (const Instruction& instruction : program_.instructions)
    if (const auto* communicate = std::get_if<Communicate>(&instruction.what);
        communicate && communicate->collective == Collective::AllGather)
      for (BufferId output : communicate->outputs)
        if (program_.buffers[output].narrow)
          gathered_of_[output] = program_.meshes[instruction.mesh].group_size(communicate->axes);
}

double InstructionPricer::cast_share(const Compute& compute) const {
  if (!factor_type(compute.products) || gathered_of_.empty() || compute.inputs.empty()) return 1;
  const int parts = gathered_of_[compute.inputs[0]];
  return parts > 1 ? 1.0 / parts : 1;
}

ComputeCost InstructionPricer::compute_cost(const Compute& compute, const Mesh& mesh, int position) {
  const Signature& signature = graph_.signature(compute.op);
  const AxisSlices slices = axis_slices(signature, compute.sharding, mesh, position);
  extents_.clear();
  for (const AxisSlice& slice : slices) extents_.push_back(slice.size());
  return on_the_slowest(cost_.compute(
      ComputeQuery{&signature, extents_, &cluster_.spec(mesh.devices()[static_cast<std::size_t>(position)]),
                   compute.products, cast_share(compute), attended_share(signature, slices)}));
}

double InstructionPricer::slowdown_of(const Cluster& cluster) {
  double slowest = 1;
  for (const NodeGroup& group : cluster.groups())
    if (const NetworkTraits* network = group.type->network())
      slowest = std::max(slowest, network->slowdown(cluster.device_count(), group.type->device_count()));
  return slowest;
}

// Every device stands for the slowest: which one that is changes from step to step, and all wait for it.
ComputeCost InstructionPricer::on_the_slowest(ComputeCost cost) const {
  if (slowdown_ > 1) cost.time = static_cast<Picoseconds>(static_cast<double>(cost.time) * slowdown_ + 0.5);
  return cost;
}

Signature InstructionPricer::combine_signature(const Combine& combine, const Mesh& mesh) const {
  const auto [dtype, elements] = combined(combine, mesh);
  const TensorType term{dtype, {elements}};
  return make_signature(OpKind::Binary, {{"fn", "add"}}, std::vector{term, term}).value();
}

std::pair<DType, std::int64_t> InstructionPricer::combined(const Combine& combine, const Mesh& mesh) const {
  const DType dtype = stored_type(program_, graph_, combine.outputs[0]);
  std::int64_t bytes = 0;
  for (BufferId output : combine.outputs)
    bytes +=
        bytes_of(stored_type(program_, graph_, output), largest_local_elements(program_.buffers[output].layout, mesh));
  return {dtype, std::max<std::int64_t>(1, bytes * 8 / bits_of(dtype))};
}

const ComputeCost& InstructionPricer::combine_cost(const Combine& combine, const Mesh& mesh, const DeviceSpec& device) {
  const auto [dtype, elements] = combined(combine, mesh);
  const auto [found, added] = combine_costs_.try_emplace({&device, dtype, elements});
  if (added) {
    const Signature sum = combine_signature(combine, mesh);
    found->second = on_the_slowest(cost_.compute(ComputeQuery{&sum, {}, &device}));
  }
  return found->second;
}

CommGroupId InstructionPricer::group_of(const Instruction& instruction, KindId kind, DeviceId device,
                                        int position) const {
  const CommKind& described = communications_.kinds()[kind];
  const bool receives = std::holds_alternative<Receive>(instruction.what);
  const CommGroupId group = (receives ? described.received_at : described.group_at)[static_cast<std::size_t>(position)];
  if (!group.valid() || communications_.groups()[group].local) return {};
  if (receives) {
    const int sending = program_.meshes[described.mesh].position_of(device);
    if (sending >= 0 && described.group_at[static_cast<std::size_t>(sending)] == group) return {};
  }
  return group;
}

Agent InstructionPricer::agent(DeviceId device, Workload& workload) {
  const DeviceSpec& spec = cluster_.spec(device);
  const auto [found, added] =
      interference_.try_emplace(&spec, static_cast<std::uint32_t>(workload.interference.size()));
  if (added) workload.interference.push_back(cost_.interference(spec));
  Agent agent;
  agent.run_ahead = stack_.graph_capture.value ? 0 : stack_.run_ahead.value;
  agent.interference = found->second;
  return agent;
}

}  // namespace weft
