#include "report/traffic.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <tuple>

namespace weft {
namespace {

bool same_devices(const Mesh& a, const Mesh& b) { return a.devices() == b.devices(); }

}  // namespace

std::string_view name_of(Cargo cargo) {
  switch (cargo) {
    case Cargo::Activations:
      return "activations";
    case Cargo::Gradients:
      return "gradients";
    case Cargo::Weights:
      return "weights";
    case Cargo::Scalars:
      return "scalars";
  }
  return "?";
}

Cargo cargo_of(const Graph& graph, TensorId id) {
  const Tensor& tensor = graph.tensors()[id];
  if (tensor.type.shape.empty()) return Cargo::Scalars;
  if (tensor.kind == TensorKind::Parameter) return Cargo::Weights;
  if (tensor.kind == TensorKind::State) return Cargo::Gradients;
  if (tensor.kind == TensorKind::Update) return Cargo::Weights;
  if (tensor.kind == TensorKind::Gradient && tensor.producer.valid()) {
    if (graph.kind(tensor.producer) == OpKind::Accumulate) return Cargo::Gradients;
    if (graph.signature(tensor.producer).outputs[tensor.output].weight) return Cargo::Gradients;
  }
  return Cargo::Activations;
}

Bytes bytes_sent(const Program& program, const Graph& graph, const Communicate& communicate) {
  double bits = 0;
  for (std::size_t i = 0; i < communicate.outputs.size(); ++i) {
    const Buffer& from = program.buffers[communicate.inputs[i]];
    const Buffer& to = program.buffers[communicate.outputs[i]];
    const ReshardStep step{communicate.collective, communicate.axes, communicate.reducer, to.layout};
    bits += elements_sent(step, from.layout, program.meshes[from.layout.mesh], communicate.parts) *
            bits_of(sent_type(program, graph, communicate, communicate.inputs[i]));
  }
  return {std::llround(bits / 8)};
}

Bytes bytes_sent(const Program& program, const Graph& graph, const Send& send) {
  const Transfer& transfer = program.transfers[send.transfer];
  const Buffer &from = program.buffers[transfer.from], &to = program.buffers[transfer.to];
  const Mesh &here = program.meshes[from.layout.mesh], &there = program.meshes[to.layout.mesh];
  if (from.layout.mesh == program.world || same_devices(here, there)) return {0};  // to itself
  const DType dtype = stored_type(program, graph, transfer.from);
  if (here.axes() == there.axes()) return {bytes_of(dtype, largest_local_elements(from.layout, here))};
  // Every receiver gets its part once, from a device that has it.
  return {bytes_of(dtype, largest_local_elements(to.layout, there) * there.size() / here.size())};
}

std::vector<std::int32_t> ranks_of_mesh(const CompiledStrategy& compiled, MeshId mesh) {
  const Program& program = compiled.program;
  const Schedule& schedule = compiled.schedule;
  std::vector<std::int32_t> ranks;
  if (mesh == program.world) {
    ranks.resize(static_cast<std::size_t>(schedule.ranks));
    std::iota(ranks.begin(), ranks.end(), 0);
    return ranks;
  }
  for (std::int32_t place = 0; place < schedule.ranks * schedule.chunks; ++place) {
    const StageProgram& stage =
        program.stages[program_stage(program, schedule, {place / schedule.chunks, place % schedule.chunks})];
    const auto on_mesh = [&](InstructionId id) {
      const Instruction& each = program.instructions[id];
      return each.mesh == mesh && !std::holds_alternative<Receive>(each.what);
    };
    if ((std::any_of(stage.forward.begin(), stage.forward.end(), on_mesh) ||
         std::any_of(stage.backward.begin(), stage.backward.end(), on_mesh)) &&
        (ranks.empty() || ranks.back() != place / schedule.chunks))
      ranks.push_back(place / schedule.chunks);
  }
  return ranks;
}

std::vector<StepTraffic> traffic_of(const Plan& plan, const CompiledStrategy& compiled) {
  const Program& program = compiled.program;
  const Schedule& schedule = compiled.schedule;
  const Graph& graph = plan.training().graph;
  using Key = std::tuple<Cargo, std::string, std::string>;  // cargo, group, how
  const auto ranks = static_cast<std::size_t>(schedule.ranks);
  std::map<Key, StepTraffic> found;
  const auto add = [&](Key key, std::size_t rank, std::int64_t times, Bytes bytes) {
    StepTraffic& row = found[key];
    if (row.bytes.empty()) {
      row = {std::get<0>(key), std::get<2>(key), std::get<1>(key), {}, {}};
      row.times.resize(ranks);
      row.bytes.resize(ranks);
    }
    row.times[rank] += times;
    row.bytes[rank] += bytes * times;
  };
  const auto count = [&](const Instruction& instruction, std::size_t rank, std::int64_t times) {
    if (const auto* communicate = std::get_if<Communicate>(&instruction.what)) {
      const Mesh& mesh = program.meshes[instruction.mesh];
      if (communicate->collective == Collective::Slice) return;
      const Cargo cargo = cargo_of(graph, program.buffers[communicate->inputs[0]].tensor);
      add({cargo, mesh.names_of(communicate->axes), std::string(name_of(communicate->collective))}, rank, times,
          bytes_sent(program, graph, *communicate));
    } else if (const auto* send = std::get_if<Send>(&instruction.what)) {
      const Bytes bytes = bytes_sent(program, graph, *send);
      if (bytes.value == 0) return;
      const TensorId tensor = program.buffers[program.transfers[send->transfer].from].tensor;
      add({cargo_of(graph, tensor), std::string(kPipelineAxis), "send"}, rank, times, bytes);
    }
  };
  const std::vector<std::int32_t> counts = micro_batches_by_place(schedule);
  for (std::size_t place = 0; place < counts.size(); ++place) {
    const StageProgram& stage = program.stages[program_stage(
        program, schedule,
        {static_cast<std::int32_t>(place) / schedule.chunks, static_cast<std::int32_t>(place) % schedule.chunks})];
    for (const auto* body : {&stage.forward, &stage.backward})
      for (InstructionId id : *body) {
        const Instruction& instruction = program.instructions[id];
        const std::int64_t times = instruction.guard == Guard::Always ? counts[place] : 1;
        count(instruction, place / static_cast<std::size_t>(schedule.chunks), times);
      }
  }
  std::map<MeshId, std::vector<std::int32_t>> ranks_of;
  for (InstructionId id : program.step) {
    const Instruction& instruction = program.instructions[id];
    const auto [known, fresh] = ranks_of.try_emplace(instruction.mesh);
    if (fresh) known->second = ranks_of_mesh(compiled, instruction.mesh);
    for (std::int32_t rank : known->second) count(instruction, static_cast<std::size_t>(rank), 1);
  }
  std::vector<StepTraffic> rows;
  for (auto& [key, row] : found) rows.push_back(std::move(row));
  return rows;
}

}  // namespace weft
