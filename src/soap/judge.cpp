#include "soap/judge.h"

#include <algorithm>

#include "compile/compilation.h"
#include "forecast/memory.h"
#include "price/price.h"
#include "program/slice_moves.h"

namespace weft {

std::int64_t bytes_sent(const Program& program, const Graph& graph) {
  double total = 0;
  const auto dtype_of = [&](BufferId id) { return graph.tensors()[program.buffers[id].tensor].type.dtype; };
  const auto add = [&](InstructionId id) {
    const Instruction& instruction = program.instructions[id];
    const Mesh& mesh = program.meshes[instruction.mesh];
    if (const auto* communicate = std::get_if<Communicate>(&instruction.what)) {
      for (std::size_t i = 0; i < communicate->outputs.size(); ++i) {
        const ReshardStep step{communicate->collective, communicate->axes, communicate->reducer,
                               program.buffers[communicate->outputs[i]].layout};
        const double elements =
            elements_sent(step, program.buffers[communicate->inputs[i]].layout, mesh, communicate->parts);
        total += elements * mesh.size() * bits_of(communicate->wire.value_or(dtype_of(communicate->outputs[i]))) / 8;
      }
    } else if (const auto* send = std::get_if<Send>(&instruction.what)) {
      const Transfer& transfer = program.transfers[send->transfer];
      const Layout &from = program.buffers[transfer.from].layout, &to = program.buffers[transfer.to].layout;
      const Mesh &senders = program.meshes[from.mesh], &receivers = program.meshes[to.mesh];
      for (const SliceMove& move : slice_moves(from, senders, to, receivers))
        if (senders.devices()[static_cast<std::size_t>(move.from)] !=
            receivers.devices()[static_cast<std::size_t>(move.to)])
          total += static_cast<double>(bytes_of(dtype_of(transfer.from), move.elements));
    }
  };
  for (const StageProgram& stage : program.stages) {
    for (InstructionId id : stage.forward) add(id);
    for (InstructionId id : stage.backward) add(id);
  }
  for (InstructionId id : program.step) add(id);
  return static_cast<std::int64_t>(total);
}

MemoryNeed memory_need(const SoapProblem& problem, const Program& program, const Schedule& schedule) {
  const CompiledStrategy compiled{program, schedule};
  MemoryNeed need;
  for (const MemoryClass& of : memory_classes(compiled, problem.cluster, program.meshes[program.world].devices())) {
    const HeldBytes held = MemoryOfClass(compiled, problem.training, problem.stack, of).peak().held;
    const MemoryOverheads overheads = memory_overheads(problem.stack);
    const Bytes total = reserved_estimate(held, problem.stack) + overheads.context.value +
                        overheads.communicator.value * communicators_of(compiled, of);
    need.most_held = std::max(need.most_held, total);
    const Bytes capacity = capacity_of(problem.cluster.spec(of.devices.front()));
    if (capacity.value == 0) continue;
    need.over_budget = std::max(need.over_budget, total - memory_budget(capacity, problem.headroom));
  }
  return need;
}

namespace {

// Without meshes that no operator uses, so that no communicators are made for them.
SoapStrategy trimmed(const SoapStrategy& strategy) {
  SoapStrategy result{strategy.name, {}, {}, strategy.outer};
  IdVec<MeshId, MeshId> now(strategy.meshes.size());
  now[MeshId(0)] = result.meshes.push_back(strategy.meshes[MeshId(0)]);
  for (const OpConfig& config : strategy.ops) {
    if (!now[config.mesh].valid()) now[config.mesh] = result.meshes.push_back(strategy.meshes[config.mesh]);
    result.ops.push_back({now[config.mesh], config.split});
  }
  return result;
}

Result<Priced> price_folded(const SoapProblem& problem, const Program& program, const Schedule& schedule, Fold fold) {
  return price(program, schedule, problem.training, problem.cluster, problem.cost, problem.stack, {.fold = fold});
}

Result<Run> play(const SoapProblem& problem, const Program& program, const Schedule& schedule, Fold fold,
                 Network network) {
  WEFT_TRY(const Priced priced, price_folded(problem, program, schedule, fold));
  return simulate(priced.workload, {.network = network});
}

}  // namespace

namespace {

Result<Program> compile_with(const SoapProblem& problem, const SoapStrategy& given, const CompileOptions& options) {
  const SoapStrategy strategy = trimmed(given);
  const Graph& graph = problem.training.graph;
  WEFT_TRY(const Placing placing, with_world(placing_of(strategy, graph)));
  WEFT_TRY(const ShardingPlan plan, plan_sharding(problem.training, placing, choices_of(strategy, graph)));
  return compile(problem.training, placing, plan, options, RecomputeRegions::none(graph));
}

}  // namespace

Result<Program> compile_strategy(const SoapProblem& problem, const SoapStrategy& strategy) {
  return compile_with(problem, strategy, compile_options(problem.stack, problem.cluster, problem.types));
}

Result<Picoseconds> play_fifo(const SoapProblem& problem, const SoapStrategy& strategy, std::vector<int> buckets,
                              std::optional<Picoseconds> bound) {
  CompileOptions options = compile_options(problem.stack, problem.cluster, problem.types);
  options.buckets = std::move(buckets);
  WEFT_TRY(const Program program, compile_with(problem, strategy, options));
  WEFT_TRY(const Schedule schedule, make_schedule({"gpipe", 1, 1, 0}));
  WEFT_TRY(const Priced priced, price_folded(problem, program, schedule, Fold::Same));
  if (const Picoseconds least = busiest_stream(priced.workload); bound && least > *bound) return least;
  WEFT_TRY(const Run fifo, simulate(priced.workload, {.network = Network::Fifo}));
  return fifo.makespan;
}

Result<SoapJudgement> judge(const SoapProblem& problem, const SoapStrategy& strategy) {
  WEFT_TRY(const Program program, compile_strategy(problem, strategy));
  WEFT_TRY(const Schedule schedule, make_schedule({"gpipe", 1, 1, 0}));
  // Fold::Alike is exact under fair sharing only; with fifo links devices must be the same.
  WEFT_TRY(const Run fifo, play(problem, program, schedule, Fold::Same, Network::Fifo));
  WEFT_TRY(const Run fair, play(problem, program, schedule, Fold::Alike, Network::Fair));
  const MemoryNeed need = memory_need(problem, program, schedule);
  return SoapJudgement{fifo.makespan, fair.makespan, need.over_budget, need.most_held,
                       bytes_sent(program, problem.training.graph)};
}

Result<Picoseconds> play_fair(const SoapProblem& problem, const Program& program) {
  WEFT_TRY(const Schedule schedule, make_schedule({"gpipe", 1, 1, 0}));
  WEFT_TRY(const Run fair, play(problem, program, schedule, Fold::Alike, Network::Fair));
  return fair.makespan;
}

Result<FairPlay> play_fair(const SoapProblem& problem, const SoapStrategy& strategy) {
  WEFT_TRY(Program program, compile_strategy(problem, strategy));
  WEFT_TRY(const Picoseconds time, play_fair(problem, program));
  return FairPlay{std::move(program), time};
}

}  // namespace weft
