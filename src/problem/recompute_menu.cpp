#include "problem/recompute_menu.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>

#include "base/units.h"
#include "cost/analytic.h"
#include "strategy/glob.h"
#include "strategy/layers.h"
#include "strategy/stages.h"

namespace weft {
namespace {

// A step of a chain that frees less than this share of all that can be saved is left out.
constexpr double kLeastStep = 0.01;

// A set's bytes and seconds in the short model, each layer weighed by the layers that it stands for.
class Scale {
 public:
  Scale(const Plan& plan, const std::vector<double>& times, const std::vector<DeviceId>& experts)
      : training_(plan.training()),
        layers_(find_layers(graph())),
        weight_(graph().ops().size(), 0.0),
        seconds_(graph().ops().size(), 0.0) {
    const AnalyticCost cost(plan.stack(), plan.job->tuning);
    std::optional<Communicator> exchange;
    if (experts.size() > 1) exchange = make_communicator(plan.cluster(), experts, Collective::AllToAll);
    const DeviceSpec& device = plan.cluster().spec(plan.job->device_at(0));
    for (OpId op : graph().ops().ids()) {
      if (graph().ops()[op].phase != Phase::Forward) break;
      if (layers_.of[op] < 0) continue;
      weight_[op] = times[static_cast<std::size_t>(layers_.of[op])];
      const Signature& signature = graph().signature(op);
      seconds_[op] = seconds_of(cost.compute(ComputeQuery{.signature = &signature, .device = &device}).time);
      const OpKind kind = graph().kind(op);
      const bool dispatched = kind == OpKind::Dispatch || kind == OpKind::DispatchWeights || kind == OpKind::Combine;
      if (dispatched && exchange) {
        const CommunicateCost moved =
            cost.communicate(CommunicateQuery{&*exchange, graph().bytes(graph().outputs(op).front()).value});
        seconds_[op] += seconds_of(isolated_time(moved));
      }
    }
    for (TensorId id : graph().tensors().ids())
      of_tensor_.push_back(graph().tensors()[id].producer.valid() ? weight_[graph().tensors()[id].producer] : 0);
  }

  const Graph& graph() const { return training_.graph; }
  const Layers& layers() const { return layers_; }

  void measure(RecomputeSet& set) {
    IdVec<OpId, std::optional<Inherited<Recompute>>> modes(graph().ops().size(), std::nullopt);
    for (OpId op : graph().ops().ids()) {
      if (graph().ops()[op].phase != Phase::Forward) break;
      modes[op] = Inherited<Recompute>{set.base, 0, 0};
    }
    for (const std::string& glob : set.full)
      for (const auto& [op, depth] : covered_by(glob))
        if (modes[op]->value != Recompute::Full || modes[op]->depth < depth || modes[op]->depth == 0)
          modes[op] = Inherited<Recompute>{Recompute::Full, 1, depth};
    const RecomputeRegions regions = assign_recompute(modes, graph(), layers_);
    set.saved = set.seconds = 0;
    for (TensorId id : saved_tensors(training_, regions))
      set.saved += of_tensor_[id.index()] * static_cast<double>(graph().bytes(id).value);
    for (OpId op : graph().ops().ids())
      if (weight_[op] > 0 && regions.again(op)) set.seconds += weight_[op] * seconds_[op];
  }

  // Globs of modules inside layers and of their operators: "layers.*.mlp", "layers.*.mlp.act". `products`: of
  // operators that mode `op` keeps.
  std::vector<std::string> globs(bool products) const {
    std::vector<std::string> found;
    const auto add = [&](std::string glob) {
      if (std::find(found.begin(), found.end(), glob) == found.end()) found.push_back(std::move(glob));
    };
    for (OpId op : graph().ops().ids()) {
      if (graph().ops()[op].phase != Phase::Forward) break;
      if (layers_.of[op] < 0) continue;
      const std::size_t above = layer_glob(layers_.names[static_cast<std::size_t>(layers_.of[op])]).size();
      std::string glob = layer_glob(graph().name(op));
      if (products) {
        add(std::move(glob));
        continue;
      }
      for (; glob.size() > above; glob.resize(glob.rfind('.'))) add(glob);
    }
    return found;
  }

 private:
  const std::vector<std::pair<OpId, int>>& covered_by(const std::string& glob) {
    const auto [known, fresh] = covered_.try_emplace(glob);
    if (!fresh) return known->second;
    const Glob pattern(glob);
    for (OpId op : graph().ops().ids()) {
      if (graph().ops()[op].phase != Phase::Forward) break;
      if (layers_.of[op] < 0) continue;
      if (const std::optional<int> depth = pattern.covers(graph().name(op))) known->second.emplace_back(op, *depth);
    }
    return known->second;
  }

  const TrainingGraph& training_;
  const Layers layers_;
  IdVec<OpId, double> weight_, seconds_;
  std::vector<double> of_tensor_;
  std::map<std::string, std::vector<std::pair<OpId, int>>> covered_;
};

// Whether a glob names a part of what the other names.
bool inside(const std::string& part, const std::string& whole) { return part.starts_with(whole + "."); }

RecomputeSet with(const RecomputeSet& set, const std::string& glob) {
  RecomputeSet larger = set;
  std::erase_if(larger.full, [&](const std::string& each) { return inside(each, glob); });
  larger.full.push_back(glob);
  return larger;
}

// Adds the glob that frees most per second until none frees anything. Gains rarely grow as others are added, so those
// measured before order the candidates, and only the first is measured again.
void add_chain(Scale& scale, RecomputeSet set, const std::vector<std::string>& globs, double all,
               std::vector<RecomputeSet>& sets, std::vector<std::string>& useful) {
  struct Candidate {
    double density;
    std::string glob;
    RecomputeSet made;
  };
  const auto measured = [&](const std::string& glob) {
    Candidate candidate{0, glob, with(set, glob)};
    scale.measure(candidate.made);
    const double freed = set.saved - candidate.made.saved, added = candidate.made.seconds - set.seconds;
    if (freed > kLeastStep * all)
      candidate.density = added > 0 ? freed / added : std::numeric_limits<double>::infinity();
    return candidate;
  };
  std::vector<Candidate> open;
  for (const std::string& glob : globs) open.push_back(measured(glob));
  std::erase_if(open, [](const Candidate& each) { return each.density <= 0; });
  for (const Candidate& each : open)
    if (std::find(useful.begin(), useful.end(), each.glob) == useful.end()) useful.push_back(each.glob);
  const auto denser = [](const Candidate& a, const Candidate& b) {
    return a.density != b.density ? a.density > b.density : a.glob < b.glob;
  };
  while (!open.empty()) {
    std::sort(open.begin(), open.end(), denser);
    open.front() = measured(open.front().glob);
    if (open.front().density <= 0) {
      open.erase(open.begin());
      continue;
    }
    if (open.size() > 1 && open.front().density < open[1].density) continue;
    set = open.front().made;
    sets.push_back(set);
    std::erase_if(open, [&](const Candidate& each) {
      return std::any_of(set.full.begin(), set.full.end(),
                         [&](const std::string& chosen) { return each.glob == chosen || inside(each.glob, chosen); });
    });
  }
}

}  // namespace

RecomputeMenu recompute_menu(const Plan& plan, const std::vector<double>& times, const std::vector<DeviceId>& experts) {
  Scale scale(plan, times, experts);
  RecomputeMenu menu;
  for (RecomputeSet& named : menu.sets) scale.measure(named);
  const RecomputeSet none = menu.sets[0], op = menu.sets[static_cast<std::size_t>(Recompute::Op)];
  const RecomputeSet selective = menu.sets[static_cast<std::size_t>(Recompute::Selective)];
  add_chain(scale, none, scale.globs(false), none.saved, menu.sets, menu.modules);
  if (selective.saved < none.saved)
    add_chain(scale, selective, scale.globs(false), none.saved, menu.sets, menu.modules);
  add_chain(scale, op, scale.globs(true), none.saved, menu.sets, menu.products);
  constexpr std::size_t kMost = std::numeric_limits<std::uint8_t>::max();
  if (menu.sets.size() > kMost) menu.sets.resize(kMost);
  for (std::size_t i = 0; i < menu.sets.size(); ++i) {
    const RecomputeSet& set = menu.sets[i];
    const bool dominated = std::any_of(menu.sets.begin(), menu.sets.end(), [&](const RecomputeSet& other) {
      const bool no_worse = other.saved <= set.saved && other.seconds <= set.seconds;
      const bool better = other.saved < set.saved || other.seconds < set.seconds;
      return no_worse && (better || &other < &set);
    });
    if (!dominated) menu.front.push_back(static_cast<std::uint8_t>(i));
  }
  std::stable_sort(menu.front.begin(), menu.front.end(),
                   [&](std::uint8_t a, std::uint8_t b) { return menu.sets[a].saved > menu.sets[b].saved; });
  return menu;
}

}  // namespace weft
