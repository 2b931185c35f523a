#include "price/pipelined.h"

#include <algorithm>

namespace weft {

IdVec<InstructionId, InstructionId> pipelined_products(const Program& program, const Graph& graph) {
  const auto is_product = [&](const Compute& compute) {
    const Signature& signature = graph.signature(compute.op);
    return signature.kind == OpKind::Linear && signature.gradient != "grad_weight";
  };
  IdVec<InstructionId, InstructionId> pairs(program.instructions.size());
  IdVec<BufferId, InstructionId> made_by(program.buffers.size()), gathered_by(program.buffers.size());
  for (std::size_t body = 0; body < body_count(program); ++body)
    for (InstructionId id : body_at(program, body)) {
      const Instruction& instruction = program.instructions[id];
      if (const auto* compute = std::get_if<Compute>(&instruction.what)) {
        const bool product = is_product(*compute);
        for (BufferId input : compute->inputs) {
          const InstructionId gather = gathered_by[input];
          if (gather.valid() && product) pairs[gather] = id;
          gathered_by[input] = InstructionId();  // its first reader decides
        }
        if (product && graph.ops()[compute->op].phase == Phase::Forward)
          for (BufferId output : compute->outputs) made_by[output] = id;
      }
      const auto* communicate = std::get_if<Communicate>(&instruction.what);
      if (!communicate || instruction.stream != Stream::Tensor || communicate->inputs.size() != 1) continue;
      if (communicate->collective == Collective::AllGather) gathered_by[communicate->outputs[0]] = id;
      if (communicate->collective == Collective::ReduceScatter) pairs[id] = made_by[communicate->inputs[0]];
    }
  return pairs;
}

CommunicateCost exposed_beside(const CommunicateCost& cost, Picoseconds product, int chunks) {
  const double whole = static_cast<double>(isolated_time(cost)), other = static_cast<double>(product);
  if (whole <= 0 || chunks <= 1) return cost;
  const double left = (std::max(whole, other) + std::min(whole, other) / chunks - other) / whole;
  CommunicateCost exposed = cost;
  exposed.latency = static_cast<Picoseconds>(static_cast<double>(cost.latency) * left);
  exposed.bytes = static_cast<std::int64_t>(static_cast<double>(cost.bytes) * left);
  return exposed;
}

int chunks_of(Collective collective, std::size_t members) {
  constexpr int kScatterChunks = 4;
  return collective == Collective::AllGather ? static_cast<int>(members) : kScatterChunks;
}

}  // namespace weft
