#include "strategy/reshard.h"

#include <algorithm>
#include <limits>

#include "base/check.h"

namespace weft {

std::string_view name_of(Collective collective) {
  switch (collective) {
    case Collective::AllReduce:
      return "all-reduce";
    case Collective::ReduceScatter:
      return "reduce-scatter";
    case Collective::AllGather:
      return "all-gather";
    case Collective::AllToAll:
      return "all-to-all";
    case Collective::Slice:
      return "slice";
    case Collective::HaloExchange:
      return "halo-exchange";
    case Collective::HaloSum:
      return "halo-sum";
    case Collective::Shift:
      return "shift";
  }
  return "?";
}

double elements_sent(const ReshardStep& step, const Layout& before, const Mesh& mesh) {
  const double n = mesh.axes()[static_cast<std::size_t>(step.mesh_axis)].size;
  const auto local = static_cast<double>(largest_local_elements(before, mesh)),
             after = static_cast<double>(largest_local_elements(step.to, mesh));
  switch (step.collective) {
    case Collective::AllReduce:
      return 2 * (n - 1) / n * local;
    case Collective::ReduceScatter:
    case Collective::AllGather:
      return (n - 1) / n * std::max(local, after);
    case Collective::AllToAll:
      return (n - 1) / n * local;
    case Collective::Slice:
      return 0;
    case Collective::HaloExchange:
      return after - local;
    case Collective::HaloSum:
      return local - after;
    case Collective::Shift:
      return local;
  }
  return 0;
}

namespace {

bool has_halo(const Cut& cut) { return cut.halo_low != 0 || cut.halo_high != 0 || cut.halo_sum; }

// Layouts without halos are moved between by taking cuts away from the end of each dimension's list and adding others
// there.
class Planner {
 public:
  Planner(const Layout& from, const Layout& to, const Mesh& mesh)
      : to_(to), mesh_(mesh), best_cost_(std::numeric_limits<double>::infinity()) {
    for (std::size_t d = 0; d < from.dims.size(); ++d) keep_.push_back(common_cuts(from.dims[d], to.dims[d]));
    plan_.reserve(8);
    search(from, 0);
  }
  bool found() const { return best_cost_ < std::numeric_limits<double>::infinity(); }
  std::vector<ReshardStep> take() { return std::move(best_); }

 private:
  static std::size_t cut_count(const DimLayout& dim) {
    std::size_t count = 0;
    for (const Factor& factor : dim) count += factor.cuts.size();
    return count;
  }
  static const Cut& cut_at(const DimLayout& dim, std::size_t index) {
    for (const Factor& factor : dim) {
      if (index < factor.cuts.size()) return factor.cuts[index];
      index -= factor.cuts.size();
    }
    WEFT_CHECK(false, "cut {} does not exist", index);
  }
  // The dimension with only its first `count` cuts, canonical.
  DimLayout prefix(const DimLayout& dim, std::size_t count) const {
    Layout single{MeshId(), {dim}, PartialAxes(mesh_.axes().size()), 0};
    for (Factor& factor : single.dims[0]) {
      if (factor.cuts.size() > count) factor.cuts.resize(count);
      count -= factor.cuts.size();
    }
    canonicalize(single, mesh_);
    return single.dims[0];
  }
  // How many leading cuts of both sides are the same: these stay.
  std::size_t common_cuts(const DimLayout& a, const DimLayout& b) const {
    std::size_t count = 0;
    while (count < cut_count(a) && count < cut_count(b) && prefix(a, count + 1) == prefix(b, count + 1)) ++count;
    return count;
  }

  bool is_split(const Layout& layout, int axis) const { return split_axes(layout) >> axis & 1u; }

  void try_step(const Layout& now, double cost, Collective collective, int axis, Reducer reducer, Layout next) {
    ReshardStep step{collective, axis, reducer, std::move(next)};
    // A tiny fee per step prefers fewer of equal volume.
    const double total = cost + elements_sent(step, now, mesh_) + 1e-6;
    if (total >= best_cost_) return;
    plan_.push_back(std::move(step));
    const Layout after = plan_.back().to;
    search(after, total);
    plan_.pop_back();
  }

  // Depth-first over the order of steps; each step settles at least one cut or partial sum, so the depth is bounded.
  void search(const Layout& now, double cost) {
    if (now == to_) {
      if (cost < best_cost_) {
        best_cost_ = cost;
        best_ = plan_;
      }
      return;
    }
    if (plan_.size() >= 8) return;
    // Where the next cut of a dimension may be added: it has lost what it must lose.
    std::vector<std::pair<std::size_t, const Cut*>> wanted;
    for (std::size_t d = 0; d < now.dims.size(); ++d) {
      const std::size_t count = cut_count(now.dims[d]);
      if (count < cut_count(to_.dims[d]) && now.dims[d] == prefix(to_.dims[d], count))
        wanted.emplace_back(d, &cut_at(to_.dims[d], count));
    }
    const auto with_cut_added = [&](std::size_t d) {
      Layout next = now;
      next.dims[d] = prefix(to_.dims[d], cut_count(now.dims[d]) + 1);
      return next;
    };
    for (int axis = 0; axis < static_cast<int>(mesh_.axes().size()); ++axis) {
      const auto& reducer = now.partial[static_cast<std::size_t>(axis)];
      if (!reducer || to_.partial[static_cast<std::size_t>(axis)]) continue;
      Layout reduced = now;
      reduced.partial[static_cast<std::size_t>(axis)].reset();
      try_step(now, cost, Collective::AllReduce, axis, *reducer, reduced);
      if (*reducer != Reducer::Sum) continue;
      for (const auto& [d, cut] : wanted)
        if (cut->mesh_axis == axis) {
          Layout next = with_cut_added(d);
          next.partial[static_cast<std::size_t>(axis)].reset();
          try_step(now, cost, Collective::ReduceScatter, axis, Reducer::Sum, std::move(next));
        }
    }
    for (const auto& [d, cut] : wanted) {
      const int axis = cut->mesh_axis;
      if (!is_split(now, axis) && !now.partial[static_cast<std::size_t>(axis)])
        try_step(now, cost, Collective::Slice, axis, Reducer::Sum, with_cut_added(d));
    }
    for (std::size_t d = 0; d < now.dims.size(); ++d) {
      const std::size_t count = cut_count(now.dims[d]);
      if (count <= keep_[d] || now.dims[d] == prefix(to_.dims[d], count)) continue;
      const int axis = cut_at(now.dims[d], count - 1).mesh_axis;
      Layout gathered = now;
      gathered.dims[d] = prefix(now.dims[d], count - 1);
      try_step(now, cost, Collective::AllGather, axis, Reducer::Sum, gathered);
      for (const auto& [other, cut] : wanted)
        if (other != d && cut->mesh_axis == axis) {
          Layout next = gathered;
          next.dims[other] = prefix(to_.dims[other], cut_count(now.dims[other]) + 1);
          try_step(now, cost, Collective::AllToAll, axis, Reducer::Sum, std::move(next));
        }
    }
  }

  const Layout& to_;
  const Mesh& mesh_;
  std::vector<std::size_t> keep_;
  std::vector<ReshardStep> plan_, best_;
  double best_cost_;
};

// One halo step per cut that has one: sums leave the halo of `from`, exchanges fill that of `to`.
void add_halo_steps(const Layout& layout, Collective collective, std::vector<ReshardStep>& steps) {
  Layout now = collective == Collective::HaloSum ? layout : without_halos(layout);
  for (std::size_t d = 0; d < layout.dims.size(); ++d)
    for (std::size_t f = 0; f < layout.dims[d].size(); ++f)
      for (std::size_t c = 0; c < layout.dims[d][f].cuts.size(); ++c) {
        const Cut& cut = layout.dims[d][f].cuts[c];
        if (!has_halo(cut)) continue;
        Cut& changing = now.dims[d][f].cuts[c];
        changing = cut;
        if (collective == Collective::HaloSum) {
          changing.halo_low = changing.halo_high = 0;
          changing.halo_sum = false;
        }
        steps.push_back({collective, cut.mesh_axis, Reducer::Sum, now});
      }
}

}  // namespace

Result<std::vector<ReshardStep>> reshard(const Layout& from, const Layout& to, const Mesh& mesh) {
  std::vector<ReshardStep> steps;
  if (from == to) return steps;
  if (from.local != to.local) return error("a value local to each device cannot be moved");
  for (std::size_t axis = 0; axis < mesh.axes().size(); ++axis)
    if (to.partial[axis] && to.partial[axis] != from.partial[axis])
      return error("nothing becomes partial along {}", mesh.axes()[axis].name);
  if (from.dims.size() != to.dims.size()) return error("layouts of different ranks");
  if (is_rotated(from) || is_rotated(to)) return error("a block on its way around a ring is in no other layout");
  const Layout plain_from = without_halos(from), plain_to = without_halos(to);
  const auto sums = [](const Layout& layout) {
    for (const DimLayout& dim : layout.dims)
      for (const Factor& factor : dim)
        for (const Cut& cut : factor.cuts)
          if (cut.halo_sum) return true;
    return false;
  };
  if (sums(to)) return error("nothing becomes a halo sum");
  if (sums(from)) add_halo_steps(from, Collective::HaloSum, steps);
  Planner planner(plain_from, plain_to, mesh);
  if (!planner.found()) return error("no sequence of collectives leads from one layout to the other");
  for (ReshardStep& step : planner.take()) steps.push_back(std::move(step));
  if (plain_to != to) add_halo_steps(to, Collective::HaloExchange, steps);
  return steps;
}

}  // namespace weft
