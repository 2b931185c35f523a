#include "mixed/kind_use.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/units.h"
#include "strategy/layers.h"

namespace weft {
namespace {

using KindOfDevice = std::map<DeviceId, std::size_t>;

KindOfDevice kind_of_devices(const std::vector<DeviceKind>& kinds) {
  KindOfDevice of;
  for (std::size_t k = 0; k < kinds.size(); ++k)
    for (std::int64_t device : kinds[k].devices) of[DeviceId(static_cast<std::size_t>(device))] = k;
  return of;
}

// How many devices of each kind a judged plan uses.
std::vector<std::int64_t> used_by(const Judged& judged, const PlanProblem& problem, const KindOfDevice& kind_of,
                                  std::size_t kinds) {
  std::set<std::int64_t> devices(judged.tree.mesh.devices.begin(), judged.tree.mesh.devices.end());
  bool own = !judged.tree.mesh.devices.empty();
  for (const Stage& stage : judged.tree.schedule.stages)
    if (stage.mesh) devices.insert(stage.mesh->devices.begin(), stage.mesh->devices.end()), own = true;
  if (!own)
    for (std::int64_t rank = 0; rank < problem.devices; ++rank)
      devices.insert(static_cast<std::int64_t>(problem.device_at(rank).index()));
  std::vector<std::int64_t> used(kinds, 0);
  for (std::int64_t device : devices)
    if (const auto found = kind_of.find(DeviceId(static_cast<std::size_t>(device))); found != kind_of.end())
      ++used[found->second];
  return used;
}

// Of a stage's samples, the part that each kind's devices process; the most of the stages of a route.
void add_batch(const Plan& plan, const Mesh& mesh, const KindOfDevice& kind_of, std::vector<double>& batch) {
  std::map<std::string, std::vector<std::int64_t>> cuts;  // axes that split samples
  for (const Rule& rule : plan.strategy.rules)
    for (const auto& [axis, split] : rule.inputs)
      if (split.dim == 0) cuts[axis] = split.ratio;
  const std::vector<MeshAxis>& axes = mesh.axes();
  std::vector<double> of_stage(batch.size(), 0);
  for (std::size_t position = 0; position < mesh.devices().size(); ++position) {
    double part = 1;
    std::size_t rest = position;
    for (std::size_t a = axes.size(); a-- > 0;) {
      const auto size = static_cast<std::size_t>(axes[a].size);
      const auto cut = cuts.find(axes[a].name);
      if (cut != cuts.end() && cut->second.size() == size) {
        double all = 0;
        for (std::int64_t share : cut->second) all += static_cast<double>(share);
        part *= static_cast<double>(cut->second[rest % size]) / all;
      } else {
        part /= static_cast<double>(size);
      }
      rest /= size;
    }
    of_stage[kind_of.at(mesh.devices()[position])] += part;
  }
  for (std::size_t k = 0; k < batch.size(); ++k) batch[k] = std::max(batch[k], of_stage[k]);
}

// The longest of what devices wait for, with its name.
std::pair<std::string, Picoseconds> longest_wait(const StepBreakdown& of) {
  std::vector<std::pair<std::string, Picoseconds>> waits = {
      {"other stages", of.bubble},
      {"slower devices of its group", of.waiting},
      {"the end of the step", of.done},
      {"the host", of.host_bound},
      {"tensor-parallel communication", of[Activity::Tensor]},
      {"context-parallel communication", of[Activity::Context]},
      {"expert-parallel communication", of[Activity::Expert]},
      {"data-parallel communication", of[Activity::Data]},
      {"transfers between stages", of[Activity::Pipeline]},
      {"copies to and from the host", of[Activity::Offload]},
  };
  return *std::max_element(waits.begin(), waits.end(),
                           [](const auto& a, const auto& b) { return a.second < b.second; });
}

std::string why_left_out(std::size_t kind, std::int64_t used, std::span<const Judged> others, const Judged& plan,
                         const std::function<std::vector<std::int64_t>(const Judged&)>& uses) {
  const Judged* best = nullptr;
  for (const Judged& other : others)
    if (other.score().fits() && uses(other)[kind] > used && (!best || other.score() < best->score())) best = &other;
  if (!best) return used > 0 ? "no plan found with more of them fits" : "no plan found with them fits";
  return fmt::format("the best plan found with {} takes {}, {} longer", used > 0 ? "more of them" : "them",
                     human(Seconds{best->forecast.step_s}),
                     human(Seconds{best->forecast.step_s - plan.forecast.step_s}));
}

}  // namespace

Result<std::vector<KindUse>> use_of_kinds(const PlanProblem& problem, const CostModel& cost, const Judged& judged,
                                          std::span<const Judged> others) {
  const std::vector<DeviceKind> kinds = kinds_of(problem);
  const KindOfDevice kind_of = kind_of_devices(kinds);
  WEFT_TRY(StrategyChoice choice, choice_of(*problem.job, judged));
  WEFT_TRY(const Plan plan, make_plan(problem.job, std::move(choice)));
  constexpr std::int64_t kMostRecorded = 5'000'000;  // as the judge
  WEFT_TRY(const PlayedPlan played, play_plan(plan, cost, {.record = true, .most_recorded = kMostRecorded}));

  std::vector<KindUse> made(kinds.size());
  std::vector<double> batch(kinds.size(), 0);
  const Layers layers = find_layers(plan.graph());
  for (const RouteChoice& route : plan.resolved.routes) {
    std::vector<double> of_route(kinds.size(), 0);
    for (std::int64_t s = 0; s < route.stages; ++s) {
      const Mesh& mesh = plan.resolved.meshes[static_cast<std::size_t>(route.first + s)].mesh;
      std::set<int> of_stage;
      for (OpId op : plan.graph().ops().ids())
        if (layers.of[op] >= 0 && route.stage[op] == s) of_stage.insert(layers.of[op]);
      std::set<std::size_t> here;
      for (DeviceId device : mesh.devices()) here.insert(kind_of.at(device));
      for (std::size_t k : here) made[k].layers += static_cast<std::int64_t>(of_stage.size());
      add_batch(plan, mesh, kind_of, of_route);
    }
    const double share =
        static_cast<double>(route.micro_batches) / static_cast<double>(plan.resolved.schedule.micro_batches);
    for (std::size_t k = 0; k < kinds.size(); ++k) batch[k] += share * of_route[k];
  }
  std::vector<StepBreakdown> parts(kinds.size());
  std::vector<std::int64_t> counted(kinds.size(), 0);
  if (played.recorded) {
    const Timeline timeline(played.priced.workload, played.run);
    const auto activities = activities_of(played.compiled.program, plan.training().graph);
    for (AgentId agent : played.priced.agents.ids()) {
      const StepBreakdown own = break_down_step(timeline, agent, activities, played.compiled.program);
      for (DeviceId device : played.priced.agents[agent].devices) {
        const std::size_t k = kind_of.at(device);
        ++counted[k];
        for (std::size_t a = 0; a < own.active.size(); ++a) parts[k].active[a] += own.active[a];
        parts[k].bubble += own.bubble;
        parts[k].waiting += own.waiting;
        parts[k].host_bound += own.host_bound;
        parts[k].done += own.done;
      }
    }
  }
  const auto uses = [&](const Judged& each) { return used_by(each, problem, kind_of, kinds.size()); };
  const std::vector<std::int64_t> used = uses(judged);
  const std::vector<DeviceId> ranks = plan.ranks();
  for (std::size_t k = 0; k < kinds.size(); ++k) {
    KindUse& use = made[k];
    use.kind = kinds[k].name;
    use.devices = kinds[k].count();
    use.used = used[k];
    use.batch = batch[k];
    if (counted[k] > 0 && played.run.makespan > 0) {
      const double whole = static_cast<double>(played.run.makespan) * static_cast<double>(counted[k]);
      use.busy = static_cast<double>(parts[k][Activity::Compute] + parts[k][Activity::Optimizer]) / whole;
      const auto [what, time] = longest_wait(parts[k]);
      use.waits_for = what;
      use.waits = static_cast<double>(time) / whole;
    }
    for (const ClassForecast& of : judged.forecast.memory) {
      const bool own = std::any_of(of.ranks.begin(), of.ranks.end(), [&](std::int64_t rank) {
        return kind_of.at(ranks[static_cast<std::size_t>(rank)]) == k;
      });
      if (own && of.device_total > use.memory) use.memory = of.device_total, use.capacity = of.capacity;
    }
    if (use.used < use.devices) use.why_left_out = why_left_out(k, use.used, others, judged, uses);
  }
  return made;
}

}  // namespace weft
