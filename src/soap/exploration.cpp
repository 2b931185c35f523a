#include "soap/exploration.h"

#include <algorithm>

#include "base/check.h"
#include "compile/compilation.h"
#include "price/incremental.h"

namespace weft {

struct Exploration::State {
  State(ShardingPlanner planned, const TrainingGraph& training, const CompileOptions& options)
      : planner(std::move(planned)),
        compilation(training, planner.placing(), planner.plan(), options, RecomputeRegions::none(training.graph)) {}

  ShardingPlanner planner;
  Compilation compilation;
  std::optional<PricedProgram> priced;
  std::optional<Simulator> simulator;
  std::vector<ShardingEdit> back;  // undo the open proposal; empty: none is open

  void plan_back() { WEFT_CHECK(planner.change(std::exchange(back, {})).ok(), "what was planned divides"); }
};

Result<Exploration> Exploration::make(const TrainingGraph& training, Placing placing, ShardingChoices choices,
                                      const Schedule& schedule, const Cluster& cluster, const CostModel& cost,
                                      const SoftwareStack& stack, const ExploreOptions& options) {
  WEFT_TRY(Placing placed, with_world(std::move(placing)));
  WEFT_TRY(ShardingPlanner planner, ShardingPlanner::make(training, std::move(placed), std::move(choices)));
  auto state = std::make_unique<State>(std::move(planner), training, options.compile);
  WEFT_TRY_OK(state->compilation.compile());
  state->priced.emplace(state->compilation.program(), schedule, training, cluster, cost, stack);
  WEFT_TRY(Workload workload, state->priced->price());
  const auto& offload = options.compile.memory.offload;
  const bool copies = std::find(offload.begin(), offload.end(), true) != offload.end();
  const int streams = copies ? kStreams : static_cast<int>(Stream::CopyOut);  // the streams of copies are the last
  WEFT_TRY(state->simulator, Simulator::make(std::move(workload), {options.network, options.checkpoints, streams}));
  return Exploration(std::move(state));
}

Exploration::Exploration(std::unique_ptr<State> state) : state_(std::move(state)) {}
Exploration::Exploration(Exploration&&) noexcept = default;
Exploration& Exploration::operator=(Exploration&&) noexcept = default;
Exploration::~Exploration() = default;

const ShardingPlanner& Exploration::planner() const { return state_->planner; }
const Program& Exploration::program() const { return state_->compilation.program(); }
const Workload& Exploration::workload() const { return state_->simulator->workload(); }
Picoseconds Exploration::makespan() const { return state_->simulator->makespan(); }
std::vector<int> Exploration::buckets() const { return state_->compilation.buckets(); }

Result<MeshId> Exploration::add_mesh(Mesh mesh, int stage) {
  const Placing& placing = state_->planner.placing();
  const std::vector<MeshAxis>& known = placing.meshes[MeshId(0)].axes();
  const bool alike = std::equal(known.begin(), known.end(), mesh.axes().begin(), mesh.axes().end(),
                                [](const MeshAxis& a, const MeshAxis& b) { return a.name == b.name; });
  if (!alike) return error("a mesh of {} axes: give it the {} axes of the others", mesh.axes().size(), known.size());
  for (DeviceId device : mesh.devices())
    if (placing.meshes[placing.world].position_of(device) < 0)
      return error("device {} is not among those the exploration began with", device.index());
  return state_->planner.add_mesh(std::move(mesh), stage);
}

Result<Outcome> Exploration::propose(std::span<const ShardingEdit> edits, std::optional<Picoseconds> bound) {
  State& state = *state_;
  WEFT_CHECK(state.back.empty(), "a proposal is open: accept or reject it");
  if (edits.empty()) return error("a proposal without a change: name an operator");
  const Placing& placing = state.planner.placing();
  const ShardingChoices& choices = state.planner.choices();
  std::vector<ShardingEdit> back;
  for (const ShardingEdit& edit : edits) {
    if (!placing.mesh_of.contains(edit.op) || edit.axes.size() != choices.ops.size())
      return error("operator {} on {} mesh axes: there are {} operators, and meshes of {} axes", edit.op.index(),
                   edit.axes.size(), placing.mesh_of.size(), choices.ops.size());
    if (edit.mesh.valid() && (!placing.meshes.contains(edit.mesh) || edit.mesh == placing.world))
      return error("mesh {} is not one that operators run on", edit.mesh.index());
    back.push_back({edit.op, {}, placing.mesh_of[edit.op]});
    for (const auto& of_axis : choices.ops) {
      const auto chosen = of_axis.find(edit.op);
      back.back().axes.push_back(chosen == of_axis.end() ? std::nullopt : std::optional(chosen->second));
    }
  }

  WEFT_TRY(const ShardingDelta changed, state.planner.change(edits));
  state.back = std::move(back);
  const Result<ProgramEdit> compiled = state.compilation.recompile(changed.ops);
  if (!compiled.ok()) {
    state.plan_back();
    return compiled.error();
  }
  WorkloadEdit edit = state.priced->reprice(*compiled, state.simulator->workload());
  Result<Outcome> outcome = state.simulator->apply(std::move(edit), bound);
  state.priced->reuse(std::move(edit));
  if (!outcome.ok() || outcome->abandoned) {
    state.priced->undo();
    state.compilation.undo();
    state.plan_back();
  }
  return outcome;
}

void Exploration::accept() {
  WEFT_CHECK(!state_->back.empty(), "no proposal is open");
  state_->back.clear();
  state_->simulator->commit();
  state_->priced->commit();
  state_->compilation.commit();
}

void Exploration::reject() {
  WEFT_CHECK(!state_->back.empty(), "no proposal is open");
  state_->simulator->undo();
  state_->priced->undo();
  state_->compilation.undo();
  state_->plan_back();
}

}  // namespace weft
