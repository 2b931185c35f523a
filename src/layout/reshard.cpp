#include "layout/reshard.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <numeric>

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

std::string_view name_of(Parts parts) {
  return parts == Parts::Even ? "even" : parts == Parts::Padded ? "padded" : "grouped";
}

bool has_uneven_parts(const Layout& layout, MeshAxes axes) {
  for (const DimLayout& dim : layout.dims)
    for (const Factor& factor : dim)
      for (const Cut& cut : factor.cuts)
        if (!cut.shares.empty() && (axes & axis_set(cut.mesh_axis)) != 0) return true;
  return false;
}

// A part is the product of its shares along the axes, times what the other cuts leave. Coordinates along different axes
// are independent, so largest parts and sums multiply.
PartSizes part_sizes(const Layout& layout, MeshAxes axes, const Mesh& mesh) {
  const std::int64_t largest = largest_local_elements(layout, mesh);
  PartSizes sizes{largest, largest, largest};
  for (const DimLayout& dim : layout.dims)
    for (const Factor& factor : dim)
      for (const Cut& cut : factor.cuts) {
        if ((axes & axis_set(cut.mesh_axis)) == 0) continue;
        if (cut.shares.empty()) {
          sizes.all *= mesh.axes()[static_cast<std::size_t>(cut.mesh_axis)].size;
          continue;
        }
        const auto [least, most] = std::minmax_element(cut.shares.begin(), cut.shares.end());
        sizes.smallest = sizes.smallest / *most * *least;
        sizes.all = sizes.all / *most * std::accumulate(cut.shares.begin(), cut.shares.end(), std::int64_t{0});
      }
  return sizes;
}

double elements_sent(const ReshardStep& step, const Layout& before, const Mesh& mesh, Parts parts) {
  const double n = mesh.group_size(step.axes);
  if (parts == Parts::Padded)
    return (n - 1) * static_cast<double>(largest_local_elements(*cut_side(step.collective, before, step.to), mesh));
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

// Searches the sequences of steps between two layouts without halos: a step removes cuts from the end of a dimension's
// list, adds cuts there, or reduces partial sums.
class Planner {
 public:
  // Minimises bytes; the price is used only if the fewest bytes take more than one step.
  Planner(const Layout& from, const Layout& to, const Mesh& mesh, const StepPrice* price, DType dtype)
      : to_(to), to_splits_(split_axes(to)), mesh_(mesh), dtype_(dtype) {
    for (std::size_t d = 0; d < from.dims.size(); ++d) keep_.push_back(common_cuts(from.dims[d], to.dims[d]));
    plan_.reserve(8);
    search(from, 0);
    if (!price || best_.size() < 2) return;
    price_ = price;
    best_cost_ = kNone;
    search(from, 0);
  }
  bool found() const { return best_cost_ < kNone; }
  std::vector<ReshardStep> take() { return std::move(best_); }

 private:
  static constexpr double kNone = std::numeric_limits<double>::infinity();

  struct Planned {
    ReshardStep step;
    Layout before;
    double price = 0;
  };

  // Whether successive collectives of this kind send as much as one joint collective.
  bool joins(Collective collective) const {
    return !plan_.empty() && plan_.back().step.collective == collective &&
           (collective == Collective::AllGather || collective == Collective::ReduceScatter ||
            collective == Collective::Slice);
  }

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
  // The number of leading cuts that both have in common: these stay.
  std::size_t common_cuts(const DimLayout& a, const DimLayout& b) const {
    std::size_t count = 0;
    while (count < cut_count(a) && count < cut_count(b) && prefix(a, count + 1) == prefix(b, count + 1)) ++count;
    return count;
  }
  // Whether the cuts of the dimension are a prefix of the wanted ones.
  bool in_line(const DimLayout& now, std::size_t d) const {
    const std::size_t count = cut_count(now);
    return count <= cut_count(to_.dims[d]) && now == prefix(to_.dims[d], count);
  }
  // The next cut to add to the dimension; none if cuts must be removed first, or none is missing.
  const Cut* next_cut(const DimLayout& now, std::size_t d) const {
    const std::size_t count = cut_count(now);
    return count < cut_count(to_.dims[d]) && in_line(now, d) ? &cut_at(to_.dims[d], count) : nullptr;
  }
  void add_next_cut(Layout& layout, std::size_t d) const {
    layout.dims[d] = prefix(to_.dims[d], cut_count(layout.dims[d]) + 1);
  }

  void try_step(const Layout& now, double cost, Collective collective, MeshAxes axes, Reducer reducer, Layout next) {
    const ReshardStep step{collective, axes, reducer, std::move(next)};
    if (joins(collective)) {  // joined with the previous step
      const Planned alone = plan_.back();
      Planned& joint = plan_.back();
      joint.step.axes |= axes;
      joint.step.to = step.to;
      joint.price = priced(joint.step, joint.before);
      go_on(step.to, price_ ? cost - alone.price + joint.price : cost + elements_sent(step, now, mesh_));
      plan_.back() = alone;
      if (!price_) return;
    }
    const double price = priced(step, now);
    plan_.push_back({step, now, price});
    // A tiny cost per step prefers fewer steps at equal volume.
    go_on(step.to, cost + (price_ ? price : elements_sent(step, now, mesh_) + 1e-6));
    plan_.pop_back();
  }
  double priced(const ReshardStep& step, const Layout& before) const {
    return price_ && step.collective != Collective::Slice ? price_->of(step, before, mesh_, dtype_) : 0;
  }
  void go_on(const Layout& after, double cost) {
    if (cost < best_cost_) search(after, cost);
  }

  // Depth-first over the order of steps; each settles at least one cut or partial sum, so the depth is bounded.
  void search(const Layout& now, double cost) {
    if (now == to_) {
      best_cost_ = cost;
      best_.clear();
      for (const Planned& each : plan_) best_.push_back(each.step);
      return;
    }
    try_reductions(now, cost);
    if (awaits_merge(now)) return;
    for (std::size_t d = 0; d < now.dims.size(); ++d)
      if (const Cut* const cut = next_cut(now.dims[d], d)) {
        const int axis = cut->mesh_axis;
        if ((split_axes(now) & axis_set(axis)) != 0 || now.partial[static_cast<std::size_t>(axis)]) continue;
        Layout next = now;
        add_next_cut(next, d);
        try_step(now, cost, Collective::Slice, axis_set(axis), Reducer::Sum, std::move(next));
      }
    MeshAxes movable = 0;  // axes whose cuts some dimension must lose
    for (std::size_t d = 0; d < now.dims.size(); ++d) {
      if (in_line(now.dims[d], d)) continue;
      const std::size_t count = cut_count(now.dims[d]);
      for (std::size_t c = keep_[d]; c < count; ++c) movable |= axis_set(cut_at(now.dims[d], c).mesh_axis);
      Layout gathered = now;
      gathered.dims[d] = prefix(now.dims[d], count - 1);
      try_step(now, cost, Collective::AllGather, axis_set(cut_at(now.dims[d], count - 1).mesh_axis), Reducer::Sum,
               std::move(gathered));
    }
    movable &= to_splits_;
    for (MeshAxes axes = movable; axes != 0; axes = (axes - 1) & movable) try_all_to_all(now, cost, axes);
  }

  // Averages are merged where they were made, before they move: their weights lie as the operator left them, a weight
  // for many elements, and could not follow every cut.
  bool awaits_merge(const Layout& now) const {
    for (std::size_t axis = 0; axis < now.partial.size(); ++axis)
      if (now.partial[axis] == Reducer::SoftmaxMerge && !to_.partial[axis]) return true;
    return false;
  }

  void try_reductions(const Layout& now, double cost) {
    MeshAxes left = 0;
    for (int axis = 0; axis < static_cast<int>(mesh_.axes().size()); ++axis)
      if (now.partial[static_cast<std::size_t>(axis)] && !to_.partial[static_cast<std::size_t>(axis)])
        left |= axis_set(axis);
    while (left != 0) {
      const Reducer reducer = *now.partial[static_cast<std::size_t>(std::countr_zero(left))];
      MeshAxes alike = 0;
      for (int axis = 0; axis < static_cast<int>(mesh_.axes().size()); ++axis)
        if ((left >> axis & 1u) != 0 && now.partial[static_cast<std::size_t>(axis)] == reducer) alike |= axis_set(axis);
      left &= ~alike;
      // Axes that do not cut the target are all-reduced jointly: separately they send more. Axes that cut it are
      // reduce-scattered, or all-reduced if other cuts would have to be removed first that are worth keeping.
      const MeshAxes whole = alike & ~to_splits_, scattered = alike & to_splits_;
      for (MeshAxes some = scattered;; some = (some - 1) & scattered) {
        if (whole != 0) try_all_reduce(now, cost, whole | some, reducer);
        if (some == 0) break;
        try_all_reduce(now, cost, some, reducer);
      }
      if (reducer == Reducer::Sum) try_reduce_scatters(now, cost, alike);
    }
  }

  void try_all_reduce(const Layout& now, double cost, MeshAxes axes, Reducer reducer) {
    Layout reduced = now;
    for (std::size_t axis = 0; axis < mesh_.axes().size(); ++axis)
      if (axes >> axis & 1u) reduced.partial[axis].reset();
    try_step(now, cost, Collective::AllReduce, axes, reducer, std::move(reduced));
  }

  void try_reduce_scatters(const Layout& now, double cost, MeshAxes partial) {
    for (std::size_t d = 0; d < now.dims.size(); ++d) {
      const Cut* const cut = next_cut(now.dims[d], d);
      if (!cut || (partial & axis_set(cut->mesh_axis)) == 0) continue;
      Layout next = now;
      add_next_cut(next, d);
      next.partial[static_cast<std::size_t>(cut->mesh_axis)].reset();
      try_step(now, cost, Collective::ReduceScatter, axis_set(cut->mesh_axis), Reducer::Sum, std::move(next));
    }
  }

  // Moves all cuts by these axes to where the target has them, if they are the last of their dimensions and the next to
  // add.
  void try_all_to_all(const Layout& now, double cost, MeshAxes axes) {
    Layout next = now;
    MeshAxes taken = 0, added = 0;
    for (std::size_t d = 0; d < now.dims.size(); ++d) {
      if (in_line(now.dims[d], d)) continue;
      std::size_t count = cut_count(now.dims[d]);
      for (; count > keep_[d]; --count) {
        const MeshAxes last = axis_set(cut_at(now.dims[d], count - 1).mesh_axis);
        if ((axes & last) == 0) break;
        taken |= last;
      }
      next.dims[d] = prefix(now.dims[d], count);
    }
    if (taken != axes) return;
    for (std::size_t d = 0; d < now.dims.size(); ++d)
      for (const Cut* cut = next_cut(next.dims[d], d); cut && (axes & axis_set(cut->mesh_axis)) != 0;
           cut = next_cut(next.dims[d], d)) {
        added |= axis_set(cut->mesh_axis);
        add_next_cut(next, d);
      }
    if (added == axes) try_step(now, cost, Collective::AllToAll, axes, Reducer::Sum, std::move(next));
  }

  const Layout& to_;
  const MeshAxes to_splits_;
  const Mesh& mesh_;
  const DType dtype_;
  const StepPrice* price_ = nullptr;
  std::vector<std::size_t> keep_;
  std::vector<Planned> plan_;
  std::vector<ReshardStep> best_;
  double best_cost_ = kNone;
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
        steps.push_back({collective, axis_set(cut.mesh_axis), Reducer::Sum, now});
      }
}

}  // namespace

Result<std::vector<ReshardStep>> reshard(const Layout& from, const Layout& to, const Mesh& mesh, const StepPrice* price,
                                         DType dtype) {
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
  Planner planner(plain_from, plain_to, mesh, price, dtype);
  if (!planner.found()) return error("no sequence of collectives leads from one layout to the other");
  for (ReshardStep& step : planner.take()) steps.push_back(std::move(step));
  if (plain_to != to) add_halo_steps(to, Collective::HaloExchange, steps);
  return steps;
}

}  // namespace weft
