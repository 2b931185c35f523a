#include "soap/layout_choices.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "base/check.h"
#include "layout/axis_decision.h"
#include "strategy/structure.h"

namespace weft {

Layout gradient_made(Layout layout, MeshAxes split) {
  for (std::size_t m = 0; m < layout.partial.size(); ++m)
    if ((split & ~split_axes(layout)) >> m & 1u) layout.partial[m] = Reducer::Sum;
  for (DimLayout& dim : layout.dims)
    for (Factor& factor : dim)
      for (Cut& cut : factor.cuts) cut.halo_sum = cut.halo_low + cut.halo_high > 0;
  return layout;
}
Layout gradient_needed(Layout layout) {
  for (auto& partial : layout.partial) partial.reset();
  return without_halos(std::move(layout));
}

IdVec<OpId, OpId> first_of_sharing(const TrainingGraph& training) {
  const Graph& graph = training.graph;
  std::vector<std::uint32_t> root(training.first_backward.index());
  std::iota(root.begin(), root.end(), 0u);
  const auto find = [&](std::uint32_t i) {
    while (root[i] != i) i = root[i] = root[root[i]];
    return i;
  };
  for (TensorId tensor : graph.tensors().ids()) {
    if (graph.tensors()[tensor].kind != TensorKind::Parameter) continue;
    std::map<SignatureId, std::uint32_t> first;
    for (const Use& use : graph.uses(tensor)) {
      if (use.op >= training.first_backward) continue;
      const auto [found, fresh] = first.try_emplace(graph.ops()[use.op].signature, use.op.index());
      if (fresh) continue;
      const std::uint32_t a = find(found->second), b = find(use.op.index());
      root[std::max(a, b)] = std::min(a, b);
    }
  }
  IdVec<OpId, OpId> first;
  for (std::uint32_t op = 0; op < root.size(); ++op) first.push_back(OpId(find(op)));
  return first;
}

namespace {

std::int64_t plus(std::int64_t a, std::int64_t b) { return std::min(kNever, a + b); }

OpSharding sharding_of(const Signature& signature, const std::vector<std::string>& split, std::int64_t outer) {
  OpSharding sharding{MeshId(0), std::vector<std::vector<Cut>>(signature.axes.size())};
  if (const int columns = signature.axis_named("n"); outer > 1 && columns >= 0) {
    sharding.outer.assign(signature.axes.size(), 1);
    sharding.outer[static_cast<std::size_t>(columns)] = outer;
  }
  for (std::size_t m = 0; m < split.size(); ++m)
    if (!split[m].empty())
      sharding.axes[static_cast<std::size_t>(signature.axis_named(split[m]))].push_back({static_cast<int>(m)});
  return sharding;
}

int parts_of(const std::vector<std::string>& split, const Mesh& mesh) {
  int parts = 1;
  for (std::size_t m = 0; m < split.size(); ++m) parts *= split[m].empty() ? 1 : mesh.axes()[m].size;
  return parts;
}

class Builder {
 public:
  Builder(const TrainingGraph& training, const Mesh& mesh, LayoutPrices& prices, const LayoutProblemOptions& options)
      : training_(training),
        graph_(training.graph),
        mesh_(mesh),
        prices_(prices),
        options_(options),
        variable_(training.first_backward.index()),
        products_(training.first_backward.index()),
        saved_(training.graph.tensors().size(), 0) {}

  LayoutProblem run() {
    if (options_.memory_limit.value > 0) {
      problem_.quantum = options_.quantum.value > 0
                             ? options_.quantum
                             : Bytes{std::max<std::int64_t>(1, options_.memory_limit.value / 4096)};
      problem_.choices.memory_limit = static_cast<std::int32_t>(options_.memory_limit.value / problem_.quantum.value);
    }
    for (OpId op : IdRange<OpId>(training_.first_backward, training_.first_step))
      if (const OpId forward = graph_.ops()[op].forward; forward.valid()) products_[forward].push_back(op);
    for (TensorId tensor : saved_tensors(training_, RecomputeRegions::none(graph_))) saved_[tensor] = 1;
    find_updates();
    find_variables();
    for (VariableId v : problem_.ops.ids())
      if (!stops()) add_own(v);
    if (!stops()) add_edges();
    return std::move(problem_);
  }

 private:
  bool stops() {
    problem_.stopped = problem_.stopped || (options_.clock && options_.clock->after(0) != StoppedBy::Itself);
    return problem_.stopped;
  }

  static IdRange<OpId> forward_ops(const TrainingGraph& training) {
    return IdRange<OpId>(training.first_backward.index());
  }

  void find_updates() {
    for (OpId op : IdRange<OpId>(training_.first_step, OpId(graph_.ops().size())))
      for (TensorId input : graph_.inputs(op))
        if (graph_.tensors()[input].kind == TensorKind::Parameter) updates_[input].push_back(op);
  }

  void find_variables() {
    const IdVec<OpId, OpId> first = first_of_sharing(training_);
    std::map<OpId, std::int64_t> outer;
    for (const TensorParallelOp& found : find_tensor_parallel(graph_, find_layers(graph_)).ops)
      outer[found.op] = found.outer;
    for (OpId op : forward_ops(training_)) {
      if (first[op] == op) {
        variable_[op] = problem_.ops.push_back({op});
        const auto packed = outer.find(op);
        problem_.outer.push_back(packed == outer.end() ? 1 : packed->second);
        std::vector<std::vector<std::string>> splits =
            splits_of(graph_.signature(op), mesh_, problem_.outer.items().back());
        if (prices_.balanced() && !graph_.signature(op).contractions.empty()) keep_most_parts(splits);
        problem_.splits.push_back(std::move(splits));
      } else {
        variable_[op] = variable_[first[op]];
        problem_.ops[variable_[op]].push_back(op);
      }
    }
  }
  void keep_most_parts(std::vector<std::vector<std::string>>& splits) const {
    int most = 1;
    for (const auto& split : splits) most = std::max(most, parts_of(split, mesh_));
    std::erase_if(splits, [&](const auto& split) { return parts_of(split, mesh_) < most; });
  }

  // Layouts are numbered, so that resharding between two of them is priced once.
  std::size_t number(Layout layout, DType dtype) {
    const auto [found, fresh] =
        numbers_.try_emplace(print(layout, mesh_) + std::string(name_of(dtype)), layouts_.size());
    if (fresh) layouts_.emplace_back(std::move(layout), dtype);
    return found->second;
  }
  std::int64_t moved(std::size_t from, std::size_t to) {
    if (from == to) return 0;
    const auto [found, fresh] = moves_.try_emplace({from, to}, 0);
    if (fresh) found->second = price(layouts_[from].first, layouts_[to].first, layouts_[from].second);
    return found->second;
  }
  std::int64_t price(const Layout& from, const Layout& to, DType dtype) {
    const Result<std::vector<ReshardStep>> steps = reshard(from, to, mesh_);
    if (!steps.ok()) return kNever;
    std::int64_t total = 0;
    const Layout* before = &from;
    for (const ReshardStep& step : *steps) {
      if (step.collective != Collective::Slice) total = plus(total, prices_.move(step, *before, mesh_, dtype));
      before = &step.to;
    }
    return total;
  }

  // The busiest device: the first; of causal attention the last, whose part has the most unmasked pairs.
  std::int64_t computed(const Signature& signature, const OpSharding& sharding) {
    const std::int64_t first = prices_.compute(signature, axis_slices(signature, sharding, mesh_, 0));
    if (signature.kind != OpKind::Attention) return first;
    return std::max(first, prices_.compute(signature, axis_slices(signature, sharding, mesh_, mesh_.size() - 1)));
  }

  struct Weight {
    std::int64_t cost = 0, bytes = 0;
  };
  // Gradient reduction and optimizer time of a weight in this layout, and its bytes with optimizer state.
  Weight weight(TensorId tensor, const Layout& layout, MeshAxes split) {
    Weight result;
    const DType dtype = graph_.tensors()[tensor].type.dtype;
    const Layout whole = without_halos(layout);
    const Shape local = local_shape(whole, mesh_, 0);
    std::int64_t elements = 1;
    for (std::int64_t extent : local) elements *= extent;
    result.bytes = bytes_of(dtype, elements);
    const auto update = updates_.find(tensor);
    if (update == updates_.end()) return result;  // frozen
    result.cost = price(gradient_made(whole, split), whole, dtype);
    std::set<TensorId> held = {tensor};
    for (OpId op : update->second) {
      const Signature& signature = graph_.signature(op);
      if (signature.axes.size() == local.size()) {
        AxisSlices slices;
        for (std::int64_t extent : local) slices.push_back({1, 0, extent});
        result.cost = plus(result.cost, prices_.compute(signature, slices));
      }
      for (TensorId input : graph_.inputs(op))
        if (graph_.tensors()[input].type.shape == graph_.tensors()[tensor].type.shape && held.insert(input).second)
          result.bytes += bytes_of(graph_.tensors()[input].type.dtype, elements);
    }
    return result;
  }

  void add_own(VariableId v) {
    // Repeated layers have the same signatures and weights of the same shape.
    const std::vector<OpId>& ops = problem_.ops[v];
    std::vector<ChoiceProblem::Option> own;
    for (const std::vector<std::string>& split : problem_.splits[v]) {
      std::int64_t cost = 0, bytes = 0;
      for (OpId op : ops) {
        const Signature& signature = graph_.signature(op);
        const OpSharding sharding = sharding_of(signature, split, problem_.outer[v]);
        cost = plus(cost, cached_compute(graph_.ops()[op].signature, split, sharding));
        for (OpId product : products_[op]) {
          const Signature& backward = graph_.signature(product);
          if (backward.axes.size() == signature.axes.size())
            cost = plus(cost, cached_compute(graph_.ops()[product].signature, split, sharding));
        }
        for (std::size_t i = 0; i < signature.outputs.size(); ++i)
          if (saved_[graph_.outputs(op)[i]])
            bytes += bytes_of(signature.outputs[i].dtype,
                              largest_local_elements(operand_layout(signature, true, i, sharding, mesh_), mesh_));
      }
      const Signature& signature = graph_.signature(ops.front());
      const OpSharding sharding = sharding_of(signature, split, problem_.outer[v]);
      for (std::size_t i = 0; i < signature.inputs.size(); ++i) {
        const TensorId tensor = graph_.inputs(ops.front())[i];
        if (graph_.tensors()[tensor].kind != TensorKind::Parameter || owner(tensor) != ops.front()) continue;
        const Weight taken = weight(tensor, operand_layout(signature, false, i, sharding, mesh_), axes_of(split));
        cost = plus(cost, taken.cost);
        bytes += taken.bytes;
      }
      const std::int64_t quanta =
          problem_.quantum.value > 0 ? (bytes + problem_.quantum.value / 2) / problem_.quantum.value : 0;
      own.push_back({cost, static_cast<std::int32_t>(std::min<std::int64_t>(quanta, 1 << 28))});
    }
    problem_.choices.own.push_back(std::move(own));
  }
  OpId owner(TensorId parameter) const { return graph_.uses(parameter).front().op; }
  static MeshAxes axes_of(const std::vector<std::string>& split) {
    MeshAxes axes = 0;
    for (std::size_t m = 0; m < split.size(); ++m)
      if (!split[m].empty()) axes |= MeshAxes{1} << m;
    return axes;
  }
  std::int64_t cached_compute(SignatureId id, const std::vector<std::string>& split, const OpSharding& sharding) {
    const auto [found, fresh] = computed_.try_emplace({id, split}, 0);
    if (fresh) found->second = computed(graph_.signatures()[id], sharding);
    return found->second;
  }

  // Layouts of an operand and of its gradient, by option.
  struct Ends {
    std::vector<std::size_t> forward, backward;
  };
  Ends ends(OpId op, bool output, std::size_t operand) {
    Ends result;
    const Signature& signature = graph_.signature(op);
    const DType dtype = (output ? signature.outputs : signature.inputs)[operand].dtype;
    for (const std::vector<std::string>& split : problem_.splits[variable_[op]]) {
      const Layout layout = operand_layout(signature, output, operand,
                                           sharding_of(signature, split, problem_.outer[variable_[op]]), mesh_);
      result.backward.push_back(
          number(output ? gradient_needed(layout) : gradient_made(layout, axes_of(split)), dtype));
      result.forward.push_back(number(layout, dtype));
    }
    return result;
  }
  const Ends& cached_ends(OpId op, bool output, std::size_t operand) {
    const auto [found, fresh] =
        ends_.try_emplace({graph_.ops()[op].signature, problem_.outer[variable_[op]], output, operand});
    if (fresh) found->second = ends(op, output, operand);
    return found->second;
  }

  // Whether a gradient flows back through this edge.
  bool differentiable(OpId reader, std::size_t input) const {
    const Signature& signature = graph_.signature(reader);
    for (const Gradient& gradient : gradients_of(signature))
      for (const std::string& written : gradient.writes)
        if (written == "d" + signature.inputs[input].name) return true;
    return false;
  }

  void add_edges() {
    using Key = std::tuple<std::vector<std::size_t>, std::vector<std::size_t>, std::vector<std::size_t>,
                           std::vector<std::size_t>>;
    std::map<Key, std::size_t> known;
    std::map<std::pair<VariableId, VariableId>, std::vector<std::size_t>> between;
    for (OpId reader : forward_ops(training_)) {
      if (stops()) return;
      const auto inputs = graph_.inputs(reader);
      for (std::size_t i = 0; i < inputs.size(); ++i) {
        const Tensor& tensor = graph_.tensors()[inputs[i]];
        const Ends* from = nullptr;
        OpId maker;
        bool back = true;
        if (tensor.producer.valid()) {
          maker = tensor.producer;
          from = &cached_ends(maker, true, tensor.output);
          back = differentiable(reader, i) && !products_[maker].empty();
        } else if (tensor.kind == TensorKind::Parameter && variable_[owner(inputs[i])] != variable_[reader]) {
          // A weight shared by operators of different kinds.
          maker = owner(inputs[i]);
          from = &cached_ends(maker, false, graph_.uses(inputs[i]).front().input);
        } else {
          continue;
        }
        const Ends& to = cached_ends(reader, false, i);
        // The gradient of a shared weight is resharded to its owner's layout.
        const Ends kept{from->forward, from->forward};
        const Ends& there = tensor.producer.valid() ? *from : kept;
        const VariableId a = variable_[maker], b = variable_[reader];
        if (a == b) {
          for (std::size_t x = 0; x < there.forward.size(); ++x) {
            std::int64_t& cost = problem_.choices.own[a][x].cost;
            cost = plus(cost, moved(there.forward[x], to.forward[x]));
            if (back) cost = plus(cost, moved(to.backward[x], there.backward[x]));
          }
          continue;
        }
        const auto [found, fresh] =
            known.try_emplace({there.forward, to.forward, back ? there.backward : std::vector<std::size_t>{},
                               back ? to.backward : std::vector<std::size_t>{}},
                              problem_.choices.tables.size());
        if (fresh) {
          std::vector<std::int64_t> table;
          for (std::size_t x = 0; x < there.forward.size(); ++x)
            for (std::size_t y = 0; y < to.forward.size(); ++y)
              table.push_back(
                  plus(moved(there.forward[x], to.forward[y]), back ? moved(to.backward[y], there.backward[x]) : 0));
          problem_.choices.tables.push_back(std::move(table));
        }
        between[{a, b}].push_back(found->second);
      }
    }
    // Several edges between two variables are summed into one table.
    std::map<std::vector<std::size_t>, std::size_t> sums;
    for (auto& [ends, tables] : between) {
      std::sort(tables.begin(), tables.end());
      const auto [found, fresh] = sums.try_emplace(tables, tables.front());
      if (fresh && tables.size() > 1) {
        std::vector<std::int64_t> total = problem_.choices.tables[tables.front()];
        for (std::size_t t = 1; t < tables.size(); ++t)
          for (std::size_t i = 0; i < total.size(); ++i)
            total[i] = plus(total[i], problem_.choices.tables[tables[t]][i]);
        found->second = problem_.choices.tables.size();
        problem_.choices.tables.push_back(std::move(total));
      }
      problem_.choices.pairs.push_back({ends.first, ends.second, found->second});
    }
  }

  const TrainingGraph& training_;
  const Graph& graph_;
  const Mesh& mesh_;
  LayoutPrices& prices_;
  const LayoutProblemOptions& options_;
  LayoutProblem problem_;
  IdVec<OpId, VariableId> variable_;
  IdVec<OpId, std::vector<OpId>> products_;
  IdVec<TensorId, char> saved_;
  std::map<TensorId, std::vector<OpId>> updates_;
  std::vector<std::pair<Layout, DType>> layouts_;
  std::map<std::string, std::size_t> numbers_;
  std::map<std::pair<std::size_t, std::size_t>, std::int64_t> moves_;
  std::map<std::pair<SignatureId, std::vector<std::string>>, std::int64_t> computed_;
  std::map<std::tuple<SignatureId, std::int64_t, bool, std::size_t>, Ends> ends_;  // by blocks of outputs too
};

}  // namespace

TimePrices::TimePrices(const Cluster& cluster, const CostModel& cost, const Mesh& mesh)
    : cost_(cost), steps_(cluster, cost) {
  for (DeviceId device : mesh.devices())
    if (const DeviceSpec* spec = &cluster.spec(device); std::find(specs_.begin(), specs_.end(), spec) == specs_.end())
      specs_.push_back(spec);
}

std::int64_t TimePrices::compute(const Signature& signature, const AxisSlices& slices) {
  std::vector<std::int64_t> extents;
  for (const AxisSlice& slice : slices) extents.push_back(slice.size());
  std::int64_t slowest = 0;
  for (const DeviceSpec* spec : specs_)
    slowest = std::max(slowest, cost_.compute({&signature, extents, spec, {}, attended_share(signature, slices)}).time);
  return slowest;
}

std::int64_t TimePrices::move(const ReshardStep& step, const Layout& before, const Mesh& mesh, DType dtype) {
  return steps_.time_of(step, before, mesh, dtype);
}

std::int64_t VolumePrices::compute(const Signature& signature, const AxisSlices& slices) {
  std::int64_t bytes = 0;
  const auto add = [&](const Operand& operand) {
    std::int64_t elements = 1;
    for (std::int64_t extent : local_shape(signature, operand, slices)) elements *= extent;
    bytes += bytes_of(operand.dtype, elements);
  };
  for (const Operand& operand : signature.inputs) add(operand);
  for (const Operand& operand : signature.outputs)
    if (operand.aliases < 0) add(operand);
  return bytes;
}

std::int64_t VolumePrices::move(const ReshardStep& step, const Layout& before, const Mesh& mesh, DType dtype) {
  return kTouched * bytes_of(dtype, static_cast<std::int64_t>(elements_sent(step, before, mesh) + 0.5));
}

std::vector<std::vector<std::string>> splits_of(const Signature& signature, const Mesh& mesh, std::int64_t outer) {
  std::vector<std::vector<std::string>> result = {{}};
  for (const MeshAxis& along : mesh.axes()) {
    std::vector<std::vector<std::string>> longer;
    for (const std::vector<std::string>& begun : result)
      for (int a = -1; a < static_cast<int>(signature.axes.size()); ++a) {
        if (a >= 0 && (along.size == 1 || !splittable(signature, a))) continue;
        std::vector<std::string>& split = longer.emplace_back(begun);
        if (a < 0) {
          split.emplace_back();
          continue;
        }
        const Axis& axis = signature.axes[static_cast<std::size_t>(a)];
        std::int64_t parts = axis.name == "n" ? along.size * outer : along.size;
        bool twice = false;
        for (std::size_t m = 0; m < begun.size(); ++m)
          if (begun[m] == axis.name) parts *= mesh.axes()[m].size, twice = true;
        if (axis.size % parts != 0 || axis.size / parts % axis.granule != 0 || (twice && windowed(signature, a)))
          longer.pop_back();
        else
          split.push_back(axis.name);
      }
    result = std::move(longer);
  }
  return result;
}

LayoutProblem make_layout_problem(const TrainingGraph& training, const Mesh& mesh, LayoutPrices& prices,
                                  const LayoutProblemOptions& options) {
  return Builder(training, mesh, prices, options).run();
}

ShardingChoices sharding_choices(const LayoutProblem& problem, const std::vector<std::uint32_t>& option,
                                 std::size_t mesh_axes) {
  ShardingChoices choices;
  choices.ops.resize(mesh_axes);
  choices.inputs.resize(mesh_axes);
  choices.reduce_onto.resize(mesh_axes);
  for (VariableId v : problem.ops.ids()) {
    const std::vector<std::string>& split = problem.splits[v][option[v.index()]];
    for (OpId op : problem.ops[v])
      for (std::size_t m = 0; m < mesh_axes; ++m) {
        const std::string& axis = split[m];
        choices.ops[m][op] = {axis, axis == "n" ? problem.outer[v] : 1};
      }
  }
  return choices;
}

}  // namespace weft
