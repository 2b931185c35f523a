#include "mixed/pipelines.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <set>

#include "mixed/stage_pipeline.h"
#include "problem/parallel.h"

namespace weft {
namespace {

constexpr double kUnknown = -1;
constexpr std::size_t kShapesAtOnce = 8;        // solved with one threshold, on any number of threads
constexpr std::size_t kMostStates = 4'000'000;  // of one dynamic programme: 16 MB
constexpr double kSafeBound = 0.99;             // by how much simulated sections may be below composed ones

std::vector<std::int64_t> divisors_of(std::int64_t number) {
  std::vector<std::int64_t> found;
  for (std::int64_t i = 1; i <= number; ++i)
    if (number % i == 0) found.push_back(i);
  return found;
}

}  // namespace

// The devices of a kind, and what their stages cost.
struct MixedPipelines::Kind {
  PlanProblem problem;  // on the devices of this kind
  Composer composer;
  std::int64_t budget = 0;  // bytes of a device
  // The least seconds of a sample on one device by section, of all options: embedding, kinds of layers, head.
  std::vector<double> least;

  Kind(PlanProblem on, const CostModel& cost) : problem(std::move(on)), composer(problem, cost) {
    budget = composer.budget();
  }
};

// A size of a kind's groups and of a micro-batch, with the options of a stage on such a group.
struct MixedPipelines::Group {
  std::size_t kind = 0;
  std::int64_t devices = 0, most = 0, micro_batches = 1;
  std::vector<std::pair<StageOption, StageCosts>> options;
  std::vector<double> least_layer;  // seconds of a micro-batch, by kind of layer
  std::int64_t boundary_bytes = 0;  // of all devices together
};

// A group size of each kind; none: the kind is left out.
struct MixedPipelines::Shape {
  std::vector<const Group*> groups;
  std::int64_t micro_batches = 1;
  double bound = 0;
};

// Times of the stages of a shape, each found once.
class MixedPipelines::Costs {
 public:
  Costs(const MixedPipelines& of, const Shape& shape, double memory)
      : of_(of), shape_(shape), memory_(memory), layers_(of.problem_.layers.count()) {
    for (const Group* group : shape.groups) stages_ += group->most;
    uniform_ = of.problem_.layers.kinds == 1;
    const std::int64_t places = uniform_ ? 4 : layers_;
    known_.assign(shape.groups.size(),
                  std::vector<double>(static_cast<std::size_t>(places * (layers_ + 1) * (stages_ + 1)), kUnknown));
  }

  double stage(std::size_t at, std::int64_t first, std::int64_t count, std::int64_t from_end) {
    const StageEnds ends{first == 0, first + count == layers_};
    const std::int64_t place = uniform_ ? static_cast<std::int64_t>(ends.index()) : first;
    double& known = known_[at][static_cast<std::size_t>((place * (layers_ + 1) + count) * (stages_ + 1) + from_end)];
    if (known == kUnknown) known = option(at, first, count, from_end).second;
    return known;
  }

  // The fastest option that fits, with its seconds.
  std::pair<const StageOption*, double> option(std::size_t at, std::int64_t first, std::int64_t count,
                                               std::int64_t from_end) const {
    const Group& group = *shape_.groups[at];
    const StageEnds ends{first == 0, first + count == layers_};
    const std::int64_t in_flight = std::min(shape_.micro_batches, from_end);
    const auto budget = memory_ * static_cast<double>(of_.kinds_[group.kind]->budget);
    std::pair<const StageOption*, double> best{nullptr, kNoPipeline};
    const double spread = spread_over(shape_.micro_batches);
    for (const auto& [option, costs] : group.options) {
      double seconds = costs.ends[ends.index()] + costs.once_ends[ends.index()] / spread;
      std::int64_t kept = costs.kept_ends[ends.index()], saved = costs.saved_ends[ends.index()];
      for (std::int64_t layer = first; layer < first + count; ++layer) {
        const auto kind = static_cast<std::size_t>(of_.problem_.layers.kind[static_cast<std::size_t>(layer)]);
        if (uniform_) {
          seconds += static_cast<double>(count) * (costs.layer[kind] + costs.once_layer[kind] / spread);
          kept += count * costs.kept_layer[kind];
          saved += count * costs.saved_layer[kind];
          break;
        }
        seconds += costs.layer[kind] + costs.once_layer[kind] / spread;
        kept += costs.kept_layer[kind];
        saved += costs.saved_layer[kind];
      }
      if (seconds < best.second && static_cast<double>(kept + in_flight * saved) <= budget) best = {&option, seconds};
    }
    return best;
  }

 private:
  const MixedPipelines& of_;
  const Shape& shape_;
  const double memory_;
  const std::int64_t layers_;
  std::int64_t stages_ = 0;
  bool uniform_ = true;
  std::vector<std::vector<double>> known_;  // by group, place, layers, stages to the end
};

MixedPipelines::MixedPipelines(const PlanProblem& problem, const CostModel& cost, const std::vector<DeviceKind>& kinds,
                               const SpaceOptions& space, int threads)
    : problem_(problem), cost_(cost), names_(kinds), space_(space), threads_(threads) {
  for (const DeviceKind& kind : kinds) {
    const std::int64_t nodes = kind.count() / kind.per_node;
    kinds_.push_back(std::make_unique<Kind>(on_devices(problem, devices_in_nodes(problem, kind, nodes)), cost));
  }
  make_groups();
  price_groups();
}
MixedPipelines::~MixedPipelines() = default;

// Groups of part of a node that divide it, or of whole nodes.
void MixedPipelines::make_groups() {
  const bool tokens = problem_.model().counts_tokens && problem_.model().seq > 0;
  const std::int64_t most_samples = most_samples_of(problem_);
  for (std::size_t k = 0; k < kinds_.size(); ++k) {
    const PlanProblem& on = kinds_[k]->problem;
    std::vector<std::int64_t> sizes = divisors_of(on.per_node);
    for (std::int64_t nodes = 2; nodes * on.per_node <= on.devices; ++nodes) sizes.push_back(nodes * on.per_node);
    for (std::int64_t micro_batches : divisors_of(problem_.global_batch)) {
      const std::int64_t samples = problem_.global_batch / micro_batches;
      for (std::int64_t size : sizes) {
        Group group{.kind = k,
                    .devices = size,
                    .most = std::min(on.devices / size, problem_.layers.count()),
                    .micro_batches = micro_batches,
                    .options = {},
                    .least_layer = {}};
        for (std::int64_t tp : divisors_of(std::min(size, on.per_node))) {
          const std::int64_t dp = size / tp;
          if (size % tp != 0 || on.per_node % tp != 0 || samples % dp != 0 || samples / dp > most_samples) continue;
          if (tp > 1 && (!on.splits_tensors || on.heads % tp != 0 || (tokens && on.model().seq % tp != 0))) continue;
          for (PlanRecompute recompute : recomputations(problem_, space_)) {
            group.options.push_back({{static_cast<std::int32_t>(tp), static_cast<std::int32_t>(dp),
                                      static_cast<std::int32_t>(samples / dp), recompute},
                                     {}});
          }
        }
        if (!group.options.empty()) groups_.push_back(std::move(group));
      }
    }
  }
}

void MixedPipelines::price_groups() {
  for (std::size_t k = 0; k < kinds_.size(); ++k) {
    std::vector<HybridPlan> plans;
    for (const Group& group : groups_)
      if (group.kind == k)
        for (const auto& [option, costs] : group.options) plans.push_back(plan_of(option, group.micro_batches));
    kinds_[k]->composer.prepare(plans, threads_);
  }
  for_each_index(groups_.size(), threads_, 1, [&](std::size_t i) {
    Group& group = groups_[i];
    Kind& kind = *kinds_[group.kind];
    std::vector<std::pair<StageOption, StageCosts>> compiled;
    for (auto& [option, costs] : group.options) {
      std::optional<StageCosts> found = stage_costs(kind.composer, problem_.layers, option, group.micro_batches);
      if (!found) continue;
      group.least_layer.resize(found->layer.size(), std::numeric_limits<double>::infinity());
      for (std::size_t j = 0; j < found->layer.size(); ++j)
        group.least_layer[j] =
            std::min(group.least_layer[j], found->layer[j] + found->once_layer[j] / spread_over(group.micro_batches));
      group.boundary_bytes = found->boundary_bytes * group.devices;
      compiled.emplace_back(option, std::move(*found));
    }
    group.options = std::move(compiled);
  });
  std::erase_if(groups_, [](const Group& group) { return group.options.empty(); });
  for (const Group& group : groups_) {
    std::vector<double>& least = kinds_[group.kind]->least;
    const double devices_per_sample =
        static_cast<double>(group.devices * group.micro_batches) / static_cast<double>(problem_.global_batch);
    for (const auto& [option, costs] : group.options) {
      least.resize(costs.bare.size(), std::numeric_limits<double>::infinity());
      for (std::size_t i = 0; i < least.size(); ++i)
        least[i] = std::min(least[i], std::max(0.0, costs.bare[i]) * devices_per_sample);
    }
  }
}

double MixedPipelines::bound_alone(std::size_t kind) const {
  const std::vector<double>& least = kinds_[kind]->least;
  if (least.empty()) return 0;
  double sample = least.front() + least.back();
  for (int of : problem_.layers.kind) sample += least[static_cast<std::size_t>(of) + 1];
  return kSafeBound * sample * static_cast<double>(problem_.global_batch);
}

// By the dual of dividing every section's work over the kinds at will: whatever the weights of kinds, a step takes at
// least Σ over sections of their least weighted work / Σ over kinds of weight · devices. Weights are speeds.
double MixedPipelines::bound() const {
  double capacity = 0;
  std::vector<double> weight;
  for (std::size_t k = 0; k < kinds_.size(); ++k) {
    const double alone = bound_alone(k);
    weight.push_back(alone > 0 ? 1 / alone : 0);
    capacity += weight.back() * static_cast<double>(names_[k].count());
  }
  if (capacity <= 0) return 0;
  const auto least = [&](std::size_t section) {
    double work = std::numeric_limits<double>::infinity();
    for (std::size_t k = 0; k < kinds_.size(); ++k)
      if (weight[k] > 0) work = std::min(work, weight[k] * kinds_[k]->least[section]);
    return work;
  };
  double sample = least(0) + least(static_cast<std::size_t>(problem_.layers.kinds) + 1);
  for (int of : problem_.layers.kind) sample += least(static_cast<std::size_t>(of) + 1);
  return kSafeBound * sample * static_cast<double>(problem_.global_batch) / capacity;
}

// Every device of the sending group's first node sends at once; one way, per micro-batch.
double MixedPipelines::transfer(const Group& from, const Group& to) const {
  const Kind &a = *kinds_[from.kind], &b = *kinds_[to.kind];
  const std::int64_t bytes = from.boundary_bytes / std::min(from.devices, to.devices);
  const bool same = from.kind == to.kind;
  const auto pair = [&](std::int64_t i) {
    const std::int64_t at = i % to.devices + (same ? from.devices : 0);
    return make_transfer(problem_.cluster(), a.problem.device_at(i), b.problem.device_at(at % b.problem.devices));
  };
  std::vector<Communicator> concurrent;
  for (std::int64_t i = 1; i < std::min(from.devices, a.problem.per_node); ++i) concurrent.push_back(pair(i));
  return GroupCost(problem_.cluster(), cost_, pair(0), concurrent).of(cost_, bytes).seconds;
}

// Every size of groups of these kinds; a kind that has none is left out.
std::vector<MixedPipelines::Shape> MixedPipelines::shapes_of(std::span<const std::size_t> kinds,
                                                             std::int64_t all) const {
  std::vector<Shape> made = {{.groups = {}, .micro_batches = all}};
  for (std::size_t k : kinds) {
    std::vector<Shape> longer;
    for (const Group& group : groups_) {
      if (group.kind != k || group.micro_batches != all) continue;
      for (const Shape& shape : made) longer.push_back(shape), longer.back().groups.push_back(&group);
    }
    if (!longer.empty()) made = std::move(longer);
  }
  std::erase_if(made, [](const Shape& shape) { return shape.groups.empty(); });
  return made;
}

// All groups at their own speed, and the first micro-batch's way.
double MixedPipelines::bound_of(const Shape& shape) const {
  double capacity = 0;
  std::vector<double> weight;
  for (const Group* group : shape.groups) {
    weight.push_back(1 / *std::max_element(group->least_layer.begin(), group->least_layer.end()));
    capacity += weight.back() * static_cast<double>(group->most);
  }
  double work = 0, way = 0;
  for (int of : problem_.layers.kind) {
    double weighted = std::numeric_limits<double>::infinity(), own = weighted;
    for (std::size_t g = 0; g < shape.groups.size(); ++g) {
      const double layer = shape.groups[g]->least_layer[static_cast<std::size_t>(of)];
      weighted = std::min(weighted, weight[g] * layer);
      own = std::min(own, layer);
    }
    work += weighted;
    way += own;
  }
  return static_cast<double>(shape.micro_batches - 1) * work / capacity + way;
}

std::optional<MixedPipeline> MixedPipelines::solve(const Shape& shape, double below, double memory) const {
  const std::size_t kinds = shape.groups.size();
  const bool waits = !problem_.stack().p2p_overlap.value;  // the sender computes nothing meanwhile
  std::vector<double> sent(kinds * kinds, 0);
  for (std::size_t a = 0; a < kinds; ++a)
    for (std::size_t b = 0; b < kinds; ++b) sent[a * kinds + b] = transfer(*shape.groups[a], *shape.groups[b]);
  Costs costs(*this, shape, memory);
  StagePipelineProblem chain{
      .layers = problem_.layers.count(), .most = {}, .micro_batches = shape.micro_batches, .stage = {}, .transfer = {}};
  for (const Group* group : shape.groups) {
    chain.most.push_back(group->most);
    chain.least_per_layer.push_back(*std::min_element(group->least_layer.begin(), group->least_layer.end()));
  }
  chain.stage = [&](std::size_t kind, std::int64_t first, std::int64_t layers, std::int64_t from_end) {
    const double takes = costs.stage(kind, first, layers, from_end);
    const double sends = (first > 0 ? 1 : 0) + (from_end > 1 ? 1 : 0);
    return waits ? takes + sends * sent[kind * kinds + kind] : takes;
  };
  chain.transfer = [&](std::size_t a, std::size_t b) { return waits ? 0 : sent[a * kinds + b]; };
  const std::optional<StagePipeline> best = best_pipeline(chain, below);
  if (!best) return std::nullopt;
  MixedPipeline made{.stages = {},
                     .micro_batches = shape.micro_batches,
                     .seconds = best->seconds,
                     .cycle = best->cycle,
                     .way = best->way};
  for (std::size_t s = 0; s < best->stages.size(); ++s) {
    const auto& stage = best->stages[s];
    const auto from_end = static_cast<std::int64_t>(best->stages.size() - s);
    made.stages.push_back({shape.groups[stage.kind]->kind, stage.first, stage.count,
                           *costs.option(stage.kind, stage.first, stage.count, from_end).first});
  }
  return made;
}

bool MixedPipelines::has_too_many_states(const Shape& shape) const {
  std::size_t states = static_cast<std::size_t>(problem_.layers.count()) * shape.groups.size();
  for (const Group* group : shape.groups) states *= static_cast<std::size_t>(group->most) + 1;
  return states > kMostStates;
}

std::optional<MixedPipeline> MixedPipelines::best_on(std::span<const std::size_t> kinds, std::int64_t all,
                                                     std::int64_t micro_batches, double below, double memory) const {
  std::vector<Shape> shapes = shapes_of(kinds, all);
  for (Shape& shape : shapes) {
    shape.micro_batches = micro_batches;
    shape.bound = bound_of(shape);
  }
  std::stable_sort(shapes.begin(), shapes.end(), [](const Shape& a, const Shape& b) { return a.bound < b.bound; });
  std::optional<MixedPipeline> best;
  for (const Shape& shape : shapes) {
    if (shape.bound >= below) break;
    if (has_too_many_states(shape)) continue;
    if (std::optional<MixedPipeline> found = solve(shape, below, memory)) {
      below = found->seconds;
      best = std::move(found);
    }
  }
  return best;
}

double MixedPipelines::least_of(std::size_t kind, std::int64_t all) const {
  double least = std::numeric_limits<double>::infinity();
  for (const Group& group : groups_) {
    if (group.kind != kind || group.micro_batches != all) continue;
    double sample = 0;
    for (int of : problem_.layers.kind) sample += group.least_layer[static_cast<std::size_t>(of)];
    least =
        std::min(least, sample * static_cast<double>(group.devices * all) / static_cast<double>(problem_.global_batch));
  }
  return least;
}

std::vector<MixedPipeline> MixedPipelines::find(double doubt, double memory) {
  std::vector<std::size_t> kinds(kinds_.size());
  std::iota(kinds.begin(), kinds.end(), std::size_t{0});
  std::vector<Shape> all;
  for (std::int64_t micro_batches : divisors_of(problem_.global_batch))
    for (Shape& shape : shapes_of(kinds, micro_batches)) all.push_back(std::move(shape));
  counts_.considered = static_cast<std::int64_t>(all.size());
  counts_.solved = counts_.bounded = counts_.too_many = 0;
  for (Shape& shape : all) shape.bound = bound_of(shape);
  std::stable_sort(all.begin(), all.end(), [](const Shape& a, const Shape& b) { return a.bound < b.bound; });
  std::vector<MixedPipeline> found;
  double best = kNoPipeline;
  for (std::size_t from = 0; from < all.size(); from += kShapesAtOnce) {
    if (all[from].bound >= best * doubt) {
      counts_.bounded += static_cast<std::int64_t>(all.size() - from);
      break;
    }
    const std::size_t count = std::min(kShapesAtOnce, all.size() - from);
    std::vector<std::optional<MixedPipeline>> solved(count);
    const double below = best * doubt;
    for_each_index(count, threads_, 1, [&](std::size_t i) {
      if (!has_too_many_states(all[from + i])) solved[i] = solve(all[from + i], below, memory);
    });
    for (std::size_t i = 0; i < count; ++i) {
      has_too_many_states(all[from + i]) ? ++counts_.too_many : ++counts_.solved;
      if (!solved[i]) continue;
      best = std::min(best, solved[i]->seconds);
      found.push_back(std::move(*solved[i]));
    }
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const MixedPipeline& a, const MixedPipeline& b) { return a.seconds < b.seconds; });
  // One stage is a plan of the hybrid space of its kind.
  std::erase_if(found,
                [&](const MixedPipeline& each) { return each.seconds > best * doubt || each.stages.size() == 1; });
  // Groups that a pipeline does not use may have any size: the same pipeline is found with each.
  std::vector<MixedPipeline> distinct;
  for (MixedPipeline& each : found)
    if (std::none_of(distinct.begin(), distinct.end(), [&](const MixedPipeline& other) {
          return other.micro_batches == each.micro_batches && other.stages == each.stages;
        }))
      distinct.push_back(std::move(each));
  found = std::move(distinct);
  return found;
}

std::string print(const MixedPipeline& pipeline, const std::vector<DeviceKind>& kinds, const LayerPattern& layers) {
  std::vector<std::pair<std::string, int>> runs;
  for (const MixedPipeline::Stage& stage : pipeline.stages) {
    std::string text = fmt::format("{} layers {} dp={}", stage.layers, kinds[stage.kind].name, stage.option.dp);
    if (stage.option.tp > 1) text += fmt::format(" tp={}", stage.option.tp);
    text += words_of(stage.option.recompute, layers);
    if (runs.empty() || runs.back().first != text) runs.emplace_back(text, 0);
    ++runs.back().second;
  }
  std::vector<std::string> words;
  for (const auto& [text, times] : runs) words.push_back(times > 1 ? fmt::format("{}×({})", times, text) : text);
  return fmt::format("{} ga={}", fmt::join(words, " + "), pipeline.micro_batches);
}

}  // namespace weft
