#include "mixed/replicas.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <map>
#include <memory>

#include "problem/parallel.h"
#include "strategy/presets.h"

namespace weft {
namespace {

constexpr double kBackward = 2.0 / 3;  // share of a pass: two products backward for one forward

class ReplicaSearch {
 public:
  ReplicaSearch(const PlanProblem& problem, const CostModel& cost, const std::vector<DeviceKind>& kinds,
                const SpaceOptions& space, const std::vector<double>& least, int threads, double below)
      : problem_(problem), cost_(cost), kinds_(kinds), space_(space), least_(least), threads_(threads), below_(below) {
    for (const DeviceKind& kind : kinds) {
      const std::int64_t nodes = kind.count() / kind.per_node;
      parts_.push_back(
          std::make_unique<const PlanProblem>(on_devices(problem, devices_in_nodes(problem, kind, nodes))));
      composers_.push_back(std::make_unique<Composer>(*parts_.back(), cost));
    }
    most_samples_ = most_samples_of(problem);
  }

  std::vector<MixedReplicas> run(std::size_t most) {
    list_all();
    // In order of their bounds, until no bound is below the best.
    std::stable_sort(open_.begin(), open_.end(), [](const auto& a, const auto& b) { return a.seconds < b.seconds; });
    std::vector<MixedReplicas> found;
    double best = below_;
    constexpr std::size_t kAtOnce = 64;
    for (std::size_t from = 0; from < open_.size() && open_[from].seconds < best; from += kAtOnce) {
      const std::size_t to = std::min(open_.size(), from + kAtOnce);
      prepare(from, to);
      for (std::size_t i = from; i < to; ++i) {
        const std::optional<double> seconds = compose(open_[i]);
        if (!seconds || *seconds >= below_) continue;
        best = std::min(best, *seconds);
        found.push_back(open_[i]);
        found.back().seconds = *seconds;
      }
    }
    std::stable_sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.seconds < b.seconds; });
    if (found.size() > most) found.resize(most);
    return found;
  }

  // Whole models on every device, for models that are not composed: what the slowest kind takes at these speeds.
  std::vector<MixedReplicas> in_proportion(std::size_t most) {
    constexpr std::int64_t kMostSamples = 512;  // as the hybrid space of models that are not composed
    most_samples_ = kMostSamples;
    list_all();
    std::erase_if(open_, [](const MixedReplicas& each) {
      return each.tp > 1 || each.zero > 1 || each.recompute != PlanRecompute::None;
    });
    std::stable_sort(open_.begin(), open_.end(), [](const auto& a, const auto& b) { return a.seconds < b.seconds; });
    if (open_.size() > most) open_.resize(most);
    return std::move(open_);
  }

 private:
  // Every assignment of samples whose bound is below the best, with the bound as its time.
  void list_all() {
    std::int64_t narrowest = kinds_.front().per_node;
    for (const DeviceKind& kind : kinds_) narrowest = std::min(narrowest, kind.per_node);
    const bool tokens = problem_.model().counts_tokens && problem_.model().seq > 0;
    for (std::int64_t tp = 1; tp <= narrowest; ++tp) {
      const bool divides =
          std::all_of(kinds_.begin(), kinds_.end(), [&](const DeviceKind& kind) { return kind.per_node % tp == 0; });
      if (!divides || (tp > 1 && (!problem_.splits_tensors || problem_.heads % tp != 0 ||
                                  (tokens && problem_.model().seq % tp != 0))))
        continue;
      for (std::int64_t micro_batches = 1; micro_batches <= problem_.global_batch; ++micro_batches) {
        if (problem_.global_batch % micro_batches != 0) continue;
        MixedReplicas made{.kinds = {}, .tp = tp, .micro_batches = micro_batches};
        assign(made, 0, problem_.global_batch / micro_batches);
      }
    }
  }

  // Samples of a replica of kinds from k on, that make what is left of a micro-batch.
  void assign(MixedReplicas& made, std::size_t k, std::int64_t left) {
    if (k == kinds_.size()) {
      if (left == 0 && made.kinds.size() > 1) add(made);
      return;
    }
    const std::int64_t all = kinds_[k].count() / kinds_[k].per_node;
    const auto power = static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(all)));
    assign(made, k + 1, left);  // without this kind
    for (std::int64_t nodes : {all, power}) {
      const std::int64_t replicas = nodes * kinds_[k].per_node / made.tp;
      const bool last = k + 1 == kinds_.size();
      std::int64_t from = 1, to = std::min(most_samples_, left / replicas);
      if (last && left % replicas != 0) to = 0;
      if (last) from = std::max(from, to == 0 ? 1 : left / replicas);
      for (std::int64_t samples = from; samples <= to; ++samples) {
        const double bound =
            least_[k] * static_cast<double>(samples * made.micro_batches) / static_cast<double>(made.tp);
        if (bound >= below_) break;
        made.kinds.push_back({k, nodes, replicas, samples});
        assign(made, k + 1, left - replicas * samples);
        made.kinds.pop_back();
      }
      if (power == all) break;
    }
  }

  void add(const MixedReplicas& of) {
    MixedReplicas made = of;
    made.seconds = 0;
    for (const MixedReplicas::Kind& kind : made.kinds)
      made.seconds = std::max(made.seconds, least_[kind.kind] * static_cast<double>(kind.samples * made.micro_batches) /
                                                static_cast<double>(made.tp));
    for (int zero : space_.zero)
      for (PlanRecompute recompute : recomputations(problem_, space_)) {
        made.zero = zero;
        made.recompute = recompute;
        open_.push_back(made);
      }
  }

  static HybridPlan plan_of(const MixedReplicas& of, const MixedReplicas::Kind& kind) {
    HybridPlan plan;
    plan.tp = static_cast<std::int32_t>(of.tp);
    plan.dp = static_cast<std::int32_t>(kind.replicas);
    plan.micro_batch = static_cast<std::int32_t>(kind.samples);
    plan.micro_batches = static_cast<std::int32_t>(of.micro_batches);
    plan.zero = static_cast<std::int8_t>(of.zero);
    plan.sequence_parallel = of.tp > 1;
    plan.recompute = of.recompute;
    return plan;
  }

  void prepare(std::size_t from, std::size_t to) {
    for (std::size_t k = 0; k < kinds_.size(); ++k) {
      std::vector<HybridPlan> plans;
      for (std::size_t i = from; i < to; ++i)
        for (const MixedReplicas::Kind& kind : open_[i].kinds)
          if (kind.kind == k) plans.push_back(plan_of(open_[i], kind));
      composers_[k]->prepare(plans, threads_);
    }
  }

  // None where it does not fit on some kind.
  std::optional<double> compose(const MixedReplicas& of) const {
    std::int64_t replicas = 0;
    for (const MixedReplicas::Kind& kind : of.kinds) replicas += kind.replicas;
    double seconds = 0;
    for (const MixedReplicas::Kind& kind : of.kinds) {
      const Composer& composer = *composers_[kind.kind];
      HybridPlan plan = plan_of(of, kind);
      plan.dp = static_cast<std::int32_t>(replicas);  // what is sharded is sharded over all
      const std::optional<std::int64_t> memory = composer.memory(plan);
      if (!memory || *memory > composer.budget()) return std::nullopt;
      plan.dp = static_cast<std::int32_t>(kind.replicas);
      const std::optional<Composition> made = composer.compose(plan);
      if (!made) return std::nullopt;
      // Gradients are summed during the backward pass, where the stack overlaps the two.
      const double pass = (made->compute_s + made->communication_s) / static_cast<double>(of.micro_batches);
      const double hidden = problem_.stack().gradient_overlap.value ? kBackward * pass : 0;
      const Sums sums = sums_of(of, kind, replicas);
      const double longer = std::max(0.0, sums.all - hidden) - std::max(0.0, sums.own - hidden);
      seconds = std::max(
          seconds, made->step_s + std::max(0.0, longer) * static_cast<double>(of.zero >= 2 ? of.micro_batches : 1));
    }
    return seconds;
  }

  // Seconds to sum all gradients over all replicas, and over those of this kind.
  struct Sums {
    double all = 0, own = 0;
  };
  Sums sums_of(const MixedReplicas& of, const MixedReplicas::Kind& kind, std::int64_t replicas) const {
    const NumberTypes types = number_types(problem_.job->precision, problem_.stack());
    const std::int64_t elements = problem_.parameters / of.tp;
    const std::int64_t bytes = bytes_of(types.sent_gradients.value_or(problem_.job->precision.gradients), elements);
    std::vector<std::int64_t> devices;
    for (const MixedReplicas::Kind& each : of.kinds) {
      const std::vector<std::int64_t> own = devices_in_nodes(problem_, kinds_[each.kind], each.nodes);
      devices.insert(devices.end(), own.begin(), own.end());
    }
    const auto summed = [&](const std::vector<std::int64_t>& over, std::int64_t size) {
      auto [known, fresh] = sums_.try_emplace(std::pair(over, of.tp), 0);
      if (fresh) {
        const PlanProblem part = on_devices(problem_, over);
        known->second =
            GroupCosts(part, cost_).collective(Collective::AllReduce, StridedGroup{size, of.tp}, bytes).seconds;
      }
      return known->second;
    };
    return {summed(devices, replicas),
            summed(devices_in_nodes(problem_, kinds_[kind.kind], kind.nodes), kind.replicas)};
  }

  const PlanProblem& problem_;
  const CostModel& cost_;
  const std::vector<DeviceKind>& kinds_;
  const SpaceOptions& space_;
  const std::vector<double>& least_;
  const int threads_;
  const double below_;
  std::int64_t most_samples_ = 1;
  std::vector<std::unique_ptr<const PlanProblem>> parts_;
  std::vector<std::unique_ptr<Composer>> composers_;
  std::vector<MixedReplicas> open_;
  mutable std::map<std::pair<std::vector<std::int64_t>, std::int64_t>, double> sums_;  // by devices and tp
};

}  // namespace

std::vector<MixedReplicas> find_replicas(const PlanProblem& problem, const CostModel& cost,
                                         const std::vector<DeviceKind>& kinds, const SpaceOptions& space,
                                         const std::vector<double>& least, int threads, double below,
                                         std::size_t most) {
  return ReplicaSearch(problem, cost, kinds, space, least, threads, below).run(most);
}

std::vector<MixedReplicas> replicas_in_proportion(const PlanProblem& problem, const CostModel& cost,
                                                  const std::vector<DeviceKind>& kinds,
                                                  const std::vector<double>& seconds, double below, std::size_t most) {
  const SpaceOptions space{.zero = {0, 1}, .recompute = {PlanRecompute::None}};
  return ReplicaSearch(problem, cost, kinds, space, seconds, 1, below).in_proportion(most);
}

std::string print(const MixedReplicas& replicas, const std::vector<DeviceKind>& kinds, const LayerPattern& layers) {
  std::vector<std::string> words;
  for (const MixedReplicas::Kind& kind : replicas.kinds)
    words.push_back(fmt::format("dp={} of {} sample{} {}", kind.replicas, kind.samples, kind.samples == 1 ? "" : "s",
                                kinds[kind.kind].name));
  std::string text = fmt::format("{}", fmt::join(words, " + "));
  if (replicas.tp > 1) text += fmt::format(" tp={}", replicas.tp);
  text += fmt::format(" zero={}{} ga={}", replicas.zero, words_of(replicas.recompute, layers), replicas.micro_batches);
  return text;
}

Strategy tree_of(const MixedReplicas& replicas, const PlanProblem& problem, const std::vector<DeviceKind>& kinds,
                 const Graph& graph) {
  Strategy tree;
  tree.schedule.name = "1f1b";
  tree.schedule.micro_batches = replicas.micro_batches;
  std::vector<std::int64_t> shares;
  for (const MixedReplicas::Kind& kind : replicas.kinds) {
    for (std::int64_t device : devices_in_nodes(problem, kinds[kind.kind], kind.nodes))
      tree.mesh.devices.push_back(device);
    shares.insert(shares.end(), static_cast<std::size_t>(kind.replicas), kind.samples);
  }
  tree.mesh.axes = {{"dp", static_cast<int>(shares.size())}, {"tp", static_cast<int>(replicas.tp)}};
  if (replicas.tp > 1) tree.reduce_onto["tp"] = "s";
  const std::vector<std::string> data = {"dp"};
  const auto append = [&](std::vector<Rule> rules) {
    for (Rule& rule : rules) tree.rules.push_back(std::move(rule));
  };
  append(data_parallel(graph, data));
  const bool even = std::all_of(shares.begin(), shares.end(), [&](std::int64_t share) { return share == shares[0]; });
  if (!even)
    for (Rule& rule : tree.rules)
      for (auto& [axis, split] : rule.inputs)
        if (axis == "dp" && split.dim >= 0) split.ratio = shares;
  if (replicas.tp > 1) append(tensor_parallel(graph, "tp"));
  append(zero(replicas.zero, data));
  const RecomputeSet& set = problem.layers.recompute.sets[static_cast<std::size_t>(replicas.recompute)];
  if (set.base != Recompute::None) append({Rule{.match = "**", .recompute = set.base}});
  for (const std::string& module : set.full) append({Rule{.match = module, .recompute = Recompute::Full}});
  return tree;
}

}  // namespace weft
