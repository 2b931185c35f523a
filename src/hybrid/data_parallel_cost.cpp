#include "hybrid/data_parallel_cost.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <utility>

#include "base/check.h"
#include "compile/parameter_layout.h"
#include "layout/reshard.h"

namespace weft {

// Ranks are numbered tp, cp, ep, dp, copies, innermost first; ep takes its devices from cp first, then from dp
// (strategy/shorthand.h).
ReplicaGroups replica_groups(const HybridPlan& plan) {
  const std::int64_t ep_of_cp = std::gcd<std::int64_t>(plan.ep, plan.cp), ep_of_dp = plan.ep / ep_of_cp;
  const std::int64_t tp = plan.tp, cp = plan.cp;
  ReplicaGroups groups;
  groups.copies = {plan.copies, tp * cp * plan.dp / plan.copies};
  groups.data = {plan.dp / ep_of_dp / plan.copies, tp * cp * ep_of_dp};
  groups.experts = {ep_of_dp, tp * cp};
  groups.context = {cp / ep_of_cp, tp * ep_of_cp};
  groups.expert_context = {ep_of_cp, tp};
  groups.tensor = {tp, 1};
  return groups;
}

namespace {

// A sequence of collectives over mesh axes.
using Way = std::vector<std::pair<Collective, MeshAxes>>;

class Finder {
 public:
  Finder(const PlanProblem& problem, GroupCosts& costs, const HybridPlan& plan, const BlockCosts& block)
      : problem_(problem),
        costs_(costs),
        plan_(plan),
        block_(block),
        types_(number_types(problem.job->precision, problem.stack())),
        groups_(replica_groups(plan)),
        mesh_(make_mesh()) {}

  DataParallelCosts run() {
    for (const SectionCost& kind : block_.kinds) add_section(kind);
    const SectionCost& first = block_.kinds[static_cast<std::size_t>(problem_.layers.sections.front().kind)];
    if (problem_.model().tied_embeddings && first.dense.gradients > 0) {
      const std::int64_t bytes = width(types_.sent_gradients, first.dense.gradients, first.stored_elements);
      JointShape replicas;
      for (const StridedGroup& axis :
           {groups_.copies, groups_.data, groups_.experts, groups_.context, groups_.expert_context})
        replicas.add(axis);
      data_.tied_reduce = costs_.collective(Collective::AllReduce, replicas, bytes).seconds;
    }
    data_.world_all_reduce = costs_.collective(Collective::AllReduce, StridedGroup{problem_.devices, 1}, 8).seconds;
    double all = 0;
    for (const DataParallelCosts::Step& step : data_.steps) all += step.part;
    for (DataParallelCosts::Step& step : data_.steps) step.part /= all;
    double longest = 0;
    for (const auto& [share, seconds] : time_of_share_)
      if (seconds > longest) {
        longest = seconds;
        data_.sm_share = share.first;
        data_.memory_share = share.second;
      }
    return std::move(data_);
  }

 private:
  // The axes of the strategy tree (strategy/shorthand.cpp), without stages.
  Mesh make_mesh() {
    std::vector<MeshAxis> axes;
    const auto add = [&](const char* name, const StridedGroup& group, bool shards) {
      if (group.size == 1) return;
      if (shards) over_ |= MeshAxes{1} << axes.size();
      axes.push_back({name, static_cast<int>(group.size)});
      shapes_.push_back(group);
    };
    add("replicate", groups_.copies, false);
    add("dp", groups_.data, true);
    add("ep", groups_.experts, true);
    add("cp", groups_.context, true);
    add("ecp", groups_.expert_context, true);
    add("tp", groups_.tensor, false);
    if (axes.empty()) {
      axes.push_back({"dp", 1});
      shapes_.push_back({});
    }
    std::size_t size = 1;
    for (const MeshAxis& axis : axes) size *= static_cast<std::size_t>(axis.size);
    std::vector<DeviceId> devices;
    for (std::size_t i = 0; i < size; ++i) devices.emplace_back(i);
    Result<Mesh> mesh = Mesh::make(std::move(axes), std::move(devices));
    WEFT_CHECK(mesh.ok(), "a mesh of replicas");
    return std::move(mesh).value();
  }

  // The layout in which operators use the parameter, on the plan's mesh.
  Layout wanted(const ParameterCost& parameter) const {
    Layout layout = replicated(parameter.layout.mesh, mesh_, {});
    layout.dims = parameter.layout.dims;
    for (std::size_t dim = 0; dim < layout.dims.size(); ++dim)
      for (Factor& factor : layout.dims[dim]) {
        const std::vector<Cut> cuts = std::exchange(factor.cuts, {});
        for (const Cut& cut : cuts) {
          const std::string& name = block_.axes[static_cast<std::size_t>(cut.mesh_axis)].name;
          if (const int axis = mesh_.axis_named(name); axis >= 0) factor.cuts.push_back({axis, {}});
        }
      }
    return layout;
  }

  Way way(const Layout& from, const Layout& to) const {
    Way made;
    const Result<std::vector<ReshardStep>> steps = reshard(from, to, mesh_);
    WEFT_CHECK(steps.ok(), "a parameter's way to where it is kept");
    for (const ReshardStep& step : *steps)
      if (step.collective != Collective::Slice) made.emplace_back(step.collective, step.axes);
    return made;
  }

  struct Ways {
    Layout layout;
    bool summed_over_tp;
    Way gather, reduce;
  };
  const Ways& ways_of(const ParameterCost& parameter) {
    const Layout used = wanted(parameter);
    for (const Ways& each : known_)
      if (each.layout == used && each.summed_over_tp == parameter.summed_over_tp) return each;
    const Layout kept = plan_.zero > 0 ? split_over(used, mesh_, over_) : used;
    Layout made = used;
    const MeshAxes cut = split_axes(used);
    for (std::size_t axis = 0; axis < mesh_.axes().size(); ++axis) {
      const bool tensor = mesh_.axes()[axis].name == "tp";
      if ((cut >> axis & 1u) == 0 && (!tensor || parameter.summed_over_tp) && mesh_.axes()[axis].size > 1)
        made.partial[axis] = Reducer::Sum;
    }
    return known_.emplace_back(Ways{used, parameter.summed_over_tp, way(kept, used), way(made, kept)});
  }

  static std::int64_t width(const std::optional<DType>& sent, std::int64_t bytes, std::int64_t elements) {
    return sent ? bytes_of(*sent, elements) : bytes;
  }

  // Seconds of a sequence of collectives. `bytes`: of whole parameters; reduce-scatters shrink them, gathers enlarge
  // them.
  double take(const Way& way, std::int64_t bytes) {
    double seconds = 0;
    for (const auto& [collective, axes] : way)
      if (collective == Collective::AllGather) bytes /= mesh_.group_size(axes);
    for (const auto& [collective, axes] : way) {
      const int size = mesh_.group_size(axes);
      if (collective == Collective::AllGather) bytes *= size;
      JointShape shape;
      for (std::size_t axis = 0; axis < shapes_.size(); ++axis)
        if (axes >> axis & 1u) shape.add(shapes_[axis]);
      GroupCost::Taken taken = costs_.collective(collective, shape, bytes);
      if (collective == Collective::ReduceScatter) bytes /= size;
      time_of_share_[{taken.sm_share, taken.memory_share}] += taken.seconds;
      seconds += taken.seconds;
      if (of_layer_ && plan_.zero >= 2 && taken.seconds > 0) add_step(std::move(taken));
    }
    return seconds;
  }

  void add_step(GroupCost::Taken taken) {
    for (DataParallelCosts::Step& step : data_.steps)
      if (step.spare == taken.spare && alike(step.links, taken.links)) {
        step.part += taken.seconds;
        return;
      }
    data_.steps.push_back({taken.seconds, taken.spare, std::move(taken.links)});
  }

  // Bytes of a bucket of gradients that are scattered in every micro-batch (ZeRO-2).
  std::int64_t scatter_bucket() const {
    const SoftwareStack& stack = problem_.stack();
    return (stack.scatter_bucket.value.value > 0 ? stack.scatter_bucket : stack.gradient_bucket).value.value;
  }

  // A section with more gradients than a bucket holds: each bucket is reduced when it is full.
  void add_buckets(const SectionCost& section, const Way& way, std::vector<std::int32_t> parameters,
                   SectionSync& made) {
    const auto cost_of = [&](std::int32_t i) -> const ParameterCost& {
      return section.parameters[static_cast<std::size_t>(i)];
    };
    std::stable_sort(parameters.begin(), parameters.end(), [&](std::int32_t a, std::int32_t b) {
      return cost_of(a).backward_ready < cost_of(b).backward_ready;
    });
    std::int64_t bytes = 0;
    FusedCollective open;
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const ParameterCost& parameter = cost_of(parameters[i]);
      bytes += width(types_.sent_gradients, parameter.gradients, parameter.elements);
      open.parameters.push_back(parameters[i]);
      if (bytes < scatter_bucket() && i + 1 < parameters.size()) continue;
      open.seconds = take(way, bytes);
      made.reduce += open.seconds;
      made.reduces.push_back(std::exchange(open, {}));
      bytes = 0;
    }
  }

  // Small sections share a bucket until it is full; each gets its share of the time. ZeRO-3 has units instead.
  double joined(const Way& way, std::int64_t bytes) {
    const SoftwareStack& stack = problem_.stack();
    const std::int64_t bucket = plan_.zero == 2 ? scatter_bucket() : stack.gradient_bucket.value.value;
    const std::int64_t layers = std::max<std::int64_t>(1, problem_.layers.count() / plan_.pp);
    const std::int64_t together =
        plan_.zero == 3
            ? 1
            : std::clamp<std::int64_t>((bucket > 0 ? bucket : 1LL << 30) / std::max<std::int64_t>(1, bytes), 1, layers);
    return take(way, bytes * together) / static_cast<double>(together);
  }

  void add_section(const SectionCost& section) {
    SectionSync& made = data_.sections.emplace_back();
    of_layer_ = section.is_layer;
    struct Piece {
      Way way;
      std::optional<DType> narrow = {};  // what is cast before is gathered by itself
      std::int64_t bytes = 0;
      std::vector<std::int32_t> parameters = {};
    };
    std::vector<Piece> gathers, reduces;
    const auto add = [](std::vector<Piece>& to, const Way& way, std::int64_t bytes, std::size_t parameter,
                        std::optional<DType> narrow = {}) {
      if (way.empty()) return;
      auto piece = std::find_if(to.begin(), to.end(),
                                [&](const Piece& each) { return each.way == way && each.narrow == narrow; });
      if (piece == to.end()) piece = to.insert(to.end(), {way, narrow});
      piece->bytes += bytes;
      piece->parameters.push_back(static_cast<std::int32_t>(parameter));
    };
    for (std::size_t i = 0; i < section.parameters.size(); ++i) {
      const ParameterCost& parameter = section.parameters[i];
      const Ways& ways = ways_of(parameter);
      if (parameter.trained || plan_.zero >= 3)
        add(gathers, ways.gather,
            width(parameter.gathered ? parameter.gathered : types_.sent_parameters, parameter.weights,
                  parameter.elements),
            i, parameter.gathered);
      if (parameter.trained)
        add(reduces, ways.reduce, width(types_.sent_gradients, parameter.gradients, parameter.elements), i);
    }
    if (plan_.zero < 2) add_parts(section, made);
    for (Piece& piece : gathers) {
      made.gathers.push_back({joined(piece.way, piece.bytes), std::move(piece.parameters)});
      made.gather += made.gathers.back().seconds;
    }
    for (Piece& piece : reduces) {
      if (plan_.zero == 2 && scatter_bucket() > 0 && piece.bytes > scatter_bucket()) {
        add_buckets(section, piece.way, std::move(piece.parameters), made);
      } else {
        made.reduces.push_back({joined(piece.way, piece.bytes), std::move(piece.parameters)});
        made.reduce += made.reduces.back().seconds;
      }
    }
  }

  void add_parts(const SectionCost& section, SectionSync& made) {
    std::vector<std::size_t> order(section.parameters.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return section.parameters[a].backward_ready < section.parameters[b].backward_ready;
    });
    for (std::size_t i : order) {
      const ParameterCost& parameter = section.parameters[i];
      if (!parameter.trained) continue;
      const Way& way = ways_of(parameter).reduce;
      if (way.empty()) continue;
      const auto known = std::find(reductions_.begin(), reductions_.end(), way);
      const auto index = static_cast<std::int32_t>(known - reductions_.begin());
      if (known == reductions_.end()) add_reduction(way);
      made.parts.push_back({index, static_cast<std::int32_t>(i), parameter.gradients,
                            width(types_.sent_gradients, parameter.gradients, parameter.elements)});
    }
  }

  void add_reduction(const Way& way) {
    reductions_.push_back(way);
    CollectiveSequence& made = data_.reductions.emplace_back();
    for (const auto& [collective, axes] : way) {
      CollectiveSequence::Step& step = made.steps.emplace_back();
      step.collective = collective;
      step.size = mesh_.group_size(axes);
      for (std::size_t axis = 0; axis < shapes_.size(); ++axis)
        if (axes >> axis & 1u) step.shape.add(shapes_[axis]);
    }
  }

  const PlanProblem& problem_;
  GroupCosts& costs_;
  const HybridPlan& plan_;
  const BlockCosts& block_;
  const NumberTypes types_;
  const ReplicaGroups groups_;
  MeshAxes over_ = 0;
  std::vector<StridedGroup> shapes_;  // by mesh axis
  const Mesh mesh_;
  std::vector<Ways> known_;
  std::vector<Way> reductions_;  // as DataParallelCosts::reductions
  bool of_layer_ = false;
  std::map<std::pair<std::int32_t, std::int32_t>, double>
      time_of_share_;  // seconds by shares of compute units and memory bandwidth
  DataParallelCosts data_;
};

}  // namespace

bool used_backward(const SectionCost& section, const FusedCollective& gather) {
  return std::any_of(gather.parameters.begin(), gather.parameters.end(), [&](std::int32_t each) {
    return section.parameters[static_cast<std::size_t>(each)].used_backward;
  });
}

double CollectiveSequence::seconds(GroupCosts& groups, std::int64_t bytes) const {
  double seconds = 0;
  for (const Step& step : steps) {
    seconds += groups.collective(step.collective, step.shape, bytes).seconds;
    if (step.collective == Collective::ReduceScatter) bytes /= step.size;
  }
  return seconds;
}

std::vector<GradientBucket> gradient_buckets(const SoftwareStack& stack, GroupCosts& groups,
                                             const DataParallelCosts& data,
                                             const std::vector<const std::vector<std::int32_t>*>& chunks,
                                             std::int32_t left_out) {
  struct Open {
    std::int64_t bytes = 0, sent = 0;
    GradientBucket last;
  };
  const std::int64_t limit = stack.gradient_overlap.value ? stack.gradient_bucket.value.value : 0;
  std::vector<Open> open(data.reductions.size());
  std::map<std::pair<std::int32_t, std::int64_t>, double> known;  // seconds by sequence and bytes
  std::vector<GradientBucket> made;
  const auto close = [&](std::int32_t way) {
    Open& of = open[static_cast<std::size_t>(way)];
    if (of.bytes == 0) return;
    const auto [found, fresh] = known.try_emplace({way, of.sent}, 0);
    if (fresh) found->second = data.reductions[static_cast<std::size_t>(way)].seconds(groups, of.sent);
    of.last.seconds = found->second;
    made.push_back(of.last);
    of = {};
  };
  for (std::size_t chunk = chunks.size(); chunk-- > 0;)
    for (std::size_t position = chunks[chunk]->size(); position-- > 0;) {
      const std::int32_t kind = (*chunks[chunk])[position];
      if (kind == left_out) continue;
      for (const SectionSync::Part& part : data.sections[static_cast<std::size_t>(kind)].parts) {
        Open& of = open[static_cast<std::size_t>(part.way)];
        if (limit > 0 && of.bytes >= limit) close(part.way);
        of.bytes += part.bytes;
        of.sent += part.sent;
        of.last = {static_cast<std::int32_t>(chunk), static_cast<std::int32_t>(position), part.parameter, 0};
      }
    }
  for (std::size_t way = 0; way < open.size(); ++way) close(static_cast<std::int32_t>(way));
  std::stable_sort(made.begin(), made.end(), [](const GradientBucket& a, const GradientBucket& b) {
    return std::pair(-a.chunk, -a.position) < std::pair(-b.chunk, -b.position);
  });
  return made;
}

DataParallelCosts data_parallel_costs(const PlanProblem& problem, GroupCosts& groups, const HybridPlan& plan,
                                      const BlockCosts& block) {
  return Finder(problem, groups, plan, block).run();
}

}  // namespace weft
