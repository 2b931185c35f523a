#include "synthesis/rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "base/check.h"
#include "graph/operators.h"
#include "layout/axis_decision.h"
#include "soap/layout_choices.h"
#include "strategy/structure.h"
#include "synthesis/parameter_ways.h"
#include "synthesis/priced_layouts.h"

namespace weft {
namespace {

using Axes = std::vector<AxisChoice>;  // by mesh axis

OpSharding as_sharding(const Signature& signature, const Axes& split) {
  OpSharding sharding{MeshId(0), std::vector<std::vector<Cut>>(signature.axes.size())};
  for (std::size_t m = 0; m < split.size(); ++m) {
    if (split[m].axis.empty()) continue;
    const auto axis = static_cast<std::size_t>(signature.axis_named(split[m].axis));
    sharding.axes[axis].push_back({static_cast<int>(m), split[m].shares});
    if (split[m].outer > 1) {
      if (sharding.outer.empty()) sharding.outer.assign(signature.axes.size(), 1);
      sharding.outer[axis] = split[m].outer;
    }
  }
  return sharding;
}

MeshAxes axes_of(const Axes& split) {
  MeshAxes axes = 0;
  for (std::size_t m = 0; m < split.size(); ++m)
    if (!split[m].axis.empty()) axes |= axis_set(static_cast<int>(m));
  return axes;
}

class SpaceBuilder {
 public:
  SpaceBuilder(const TrainingGraph& training, SharedMesh mesh, const Cluster& cluster, const CostModel& cost,
               const ProgramRules& rules, const IdVec<VariableId, Distribution>* only)
      : training_(training),
        graph_(training.graph),
        cost_(cost),
        only_(only),
        space_{std::move(mesh), {}, {}, {}, {}, {}},
        layouts_(cluster, cost, space_.mesh.mesh, rules.bucket),
        parameters_(training, space_.mesh, space_.classes, cost, layouts_, rules) {
    space_.classes = device_classes(space_.mesh, cluster);
    space_.choices.classes = space_.classes.size();
  }

  ProgramSpace run() {
    find_backward();
    find_variables();
    for (VariableId v : space_.ops.ids())
      if (!space_.ops[v].empty()) add_own(v);
    for (VariableId v : space_.ops.ids())
      if (space_.ops[v].empty()) add_fork(v);
    for (VariableId v : space_.ops.ids())
      for (OpId op : space_.ops[v]) add_edges(op);
    for (const auto& [ends, tables] : between_) {
      std::vector<std::size_t> all = tables;
      std::sort(all.begin(), all.end());
      space_.choices.pairs.push_back({ends.first, ends.second, summed(all)});
    }
    return std::move(space_);
  }

 private:
  const Mesh& mesh() const { return space_.mesh.mesh; }

  void find_backward() {
    products_.resize(training_.first_backward.index());
    for (OpId op : IdRange<OpId>(training_.first_backward, training_.first_step))
      if (const OpId forward = graph_.ops()[op].forward; forward.valid()) products_[forward].push_back(op);
    // The gradient of a sum passes through unchanged: there is one, and no operator that makes it.
    has_gradient_.resize(products_.size(), 0);
    for (OpId op : IdRange<OpId>(products_.size())) {
      const std::vector<Gradient> gradients = gradients_of(graph_.signature(op));
      const bool passes = std::any_of(gradients.begin(), gradients.end(),
                                      [](const Gradient& gradient) { return gradient.name.empty(); });
      has_gradient_[op] = !products_[op].empty();
      for (TensorId input : graph_.inputs(op)) {
        const OpId producer = graph_.tensors()[input].producer;
        if (passes && producer.valid() && has_gradient_[producer]) has_gradient_[op] = 1;
      }
    }
    saved_.resize(graph_.tensors().size(), 0);
    for (TensorId tensor : saved_tensors(training_, RecomputeRegions::none(graph_))) saved_[tensor] = 1;
  }

  void find_variables() {
    const std::size_t count = training_.first_backward.index();
    const IdVec<OpId, OpId> first = first_of_sharing(training_);
    for (const TensorParallelOp& found : find_tensor_parallel(graph_, find_layers(graph_)).ops)
      outer_[found.op] = found.outer;
    variable_.resize(count);
    fork_.resize(graph_.tensors().size());
    for (OpId op : IdRange<OpId>(count)) {
      if (first[op] == op) {
        variable_[op] = space_.ops.push_back({op});
        space_.tensor.push_back(TensorId());
      } else {
        variable_[op] = variable_[first[op]];
        space_.ops[variable_[op]].push_back(op);
      }
      for (TensorId output : graph_.outputs(op)) {
        std::set<OpId> readers;
        for (const Use& use : graph_.uses(output))
          if (use.op < training_.first_backward) readers.insert(first[use.op]);
        readers.erase(first[op]);
        if (readers.size() < 2) continue;
        fork_[output] = space_.ops.push_back({});
        space_.tensor.push_back(output);
      }
    }
    space_.meaning.resize(space_.ops.size());
    space_.choices.own.resize(space_.ops.size());
    space_.choices.forms.resize(space_.ops.size());
    ends_.resize(space_.ops.size());
  }

  const Shares& ratio_of(std::size_t mesh_axis, const Axis& axis) const {
    const SharedMesh::Ratios& ratios = space_.mesh.ratio[mesh_axis];
    return axis.kind == AxisKind::Sample ? ratios.samples : ratios.others;
  }

  // Every way to split an operator, per mesh axis along one of its axes or none.
  std::vector<Axes> splits_of(const Signature& signature, std::int64_t outer) const {
    std::vector<Axes> result = {{}};
    const std::vector<MeshAxis>& along = mesh().axes();
    for (std::size_t m = 0; m < along.size(); ++m) {
      std::int64_t inner = 1;
      for (std::size_t later = m + 1; later < along.size(); ++later) inner *= along[later].size;
      std::vector<Axes> longer;
      for (const Axes& begun : result) {
        longer.push_back(begun);
        longer.back().push_back({""});
        if (along[m].size == 1) continue;
        for (int a = 0; a < static_cast<int>(signature.axes.size()); ++a) {
          if (!splittable(signature, a)) continue;
          const Axis& axis = signature.axes[static_cast<std::size_t>(a)];
          const std::int64_t blocks = axis.name == "n" ? outer : 1;
          if (axis.size % blocks != 0) continue;
          std::int64_t left = axis.size / blocks;
          bool fits = true;
          for (std::size_t before = 0; before < m; ++before) {
            if (begun[before].axis != axis.name) continue;
            left /= units_of(begun[before].shares, along[before].size);
            fits = fits && !windowed(signature, a);
          }
          if (!fits) continue;
          const std::optional<Shares> shares =
              rounded_shares(left, axis.granule, inner, along[m].size, ratio_of(m, axis));
          if (!shares) continue;
          longer.push_back(begun);
          longer.back().push_back({axis.name, blocks, *shares});
        }
      }
      result = std::move(longer);
    }
    return result;
  }

  LayoutNumber number(Layout layout, DType dtype) { return layouts_.number(std::move(layout), dtype); }
  Picoseconds moved(LayoutNumber from, LayoutNumber to) { return layouts_.moved(from, to); }

  ProgramChoices::Computation computed(SignatureId id, const Axes& split) {
    std::string key = std::to_string(id.index());
    for (const AxisChoice& choice : split)
      key += '/' + choice.axis + ':' + std::to_string(choice.outer) + (choice.shares.empty() ? "" : "~");
    const auto [found, fresh] = computed_.try_emplace(key);
    if (!fresh) return found->second;
    const Signature& signature = graph_.signatures()[id];
    const OpSharding sharding = as_sharding(signature, split);
    const auto time_at = [&](const DeviceSpec& spec, int position) {
      const AxisSlices slices = axis_slices(signature, sharding, mesh(), position);
      std::vector<std::int64_t> extents;
      for (const AxisSlice& slice : slices) extents.push_back(slice.size());
      return cost_.compute({&signature, extents, &spec, {}, attended_share(signature, slices)}).time;
    };
    for (const DeviceClass& of : space_.classes) {
      // The busiest: the first, which has what is left of rounding; of causal attention the last.
      Picoseconds time = time_at(*of.spec, of.positions.front());
      if (signature.kind == OpKind::Attention) time = std::max(time, time_at(*of.spec, of.positions.back()));
      found->second.push_back(time);
    }
    return found->second;
  }
  ProgramChoices::Computation none() const { return ProgramChoices::Computation(space_.classes.size(), 0); }
  static void accumulate(ProgramChoices::Computation& sum, const ProgramChoices::Computation& more,
                         std::int64_t times = 1) {
    for (std::size_t c = 0; c < sum.size(); ++c) sum[c] += times * more[c];
  }
  std::vector<std::int64_t> held(const Layout& layout, DType dtype) const {
    return held_bytes(mesh(), space_.classes, layout, dtype);
  }

  OpId owner(TensorId parameter) const { return graph_.uses(parameter).front().op; }

  OpId weight_gradient(OpId forward) const {
    for (OpId product : products_[forward])
      if (makes_weight_gradients(graph_.signature(product))) return product;
    return OpId();
  }

  // How neighbours see the options of a variable, by form: layouts of each output with its gradient, and of each input,
  // with its gradient and the layout in which the weight gradient reads it.
  struct Ends {
    std::vector<LayoutNumber> forward, backward, again;
  };
  struct OperatorEnds {
    std::vector<Ends> inputs, outputs;
  };

  void add_own(VariableId v) {
    const OpId leader = space_.ops[v].front();
    // Repeated layers have the same signatures and weights of the same shapes.
    std::string key =
        std::to_string(graph_.ops()[leader].signature.index()) + 'x' + std::to_string(space_.ops[v].size());
    const auto append = [&](OpId op) { key += ',' + std::to_string(graph_.ops()[op].signature.index()); };
    for (OpId product : products_[leader]) append(product);
    for (TensorId input : graph_.inputs(leader)) {
      if (graph_.tensors()[input].kind != TensorKind::Parameter) {
        key += graph_.tensors()[input].producer.valid() ? 'a' : 'i';
        continue;
      }
      key += owner(input) != leader ? 's' : is_shared(input, leader) ? 'O' : 'o';
      for (OpId op : parameters_.updates(input)) append(op);
    }
    for (TensorId output : graph_.outputs(leader)) key += saved_[output] ? 'k' : '-';
    if (const auto packed = outer_.find(leader); packed != outer_.end()) key += '*' + std::to_string(packed->second);
    if (only_) key += print((*only_)[v]);
    const auto [known, fresh] = own_.try_emplace(key, v);
    if (!fresh) {
      space_.choices.own[v] = space_.choices.own[known->second];
      space_.choices.forms[v] = space_.choices.forms[known->second];
      space_.meaning[v] = space_.meaning[known->second];
      ends_[v] = known->second;
      return;
    }
    ends_[v] = v;
    make_own(v, leader);
  }

  static std::string print(const Distribution& only) {
    std::string text;
    for (const AxisChoice& choice : only.split) text += '/' + choice.axis;
    if (only.weight_gradient)
      for (const AxisChoice& choice : *only.weight_gradient) text += '\\' + choice.axis;
    return text + fmt::format("|{},{},{}", only.optimizer, only.gradients, only.weights);
  }
  static bool along_same_axes(const Axes& a, const Axes& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                      [](const AxisChoice& x, const AxisChoice& y) { return x.axis == y.axis; });
  }

  void make_own(VariableId v, OpId op) {
    const Signature& signature = graph_.signature(op);
    const auto packed = outer_.find(op);
    const std::int64_t outer = packed == outer_.end() ? 1 : packed->second;
    const OpId product = weight_gradient(op);
    OperatorEnds& ends = operator_ends_[v];
    ends.inputs.resize(signature.inputs.size());
    ends.outputs.resize(signature.outputs.size());
    std::vector<Axes> product_splits;
    if (product.valid()) product_splits = splits_of(graph_.signature(product), outer);
    const auto count = static_cast<std::int64_t>(space_.ops[v].size());
    const Distribution* const only = only_ ? &(*only_)[v] : nullptr;
    std::vector<ProgramChoices::Option> own;
    std::vector<Distribution> meaning;
    std::uint32_t form = 0;
    for (const Axes& split : splits_of(signature, outer)) {
      if (only && !along_same_axes(split, only->split)) continue;
      const OpSharding sharding = as_sharding(signature, split);
      std::vector<std::optional<Axes>> of_product;
      if (!only || !only->weight_gradient) of_product.emplace_back();  // as its forward operator
      for (const Axes& each : product_splits)
        if (only ? only->weight_gradient && along_same_axes(each, *only->weight_gradient) : each != split)
          of_product.emplace_back(each);
      // Splits of the weight gradient that read the same of the inputs are one form; of its options those stay that no
      // other is as good as.
      std::map<std::vector<LayoutNumber>, std::vector<Way>> forms;
      for (const std::optional<Axes>& own_split : of_product) {
        std::vector<LayoutNumber> again;
        for (std::size_t i = 0; i < signature.inputs.size(); ++i)
          again.push_back(
              shared_weight(op, i)
                  ? number(made_by(op, product, i, without_halos(operand_layout(signature, false, i, sharding, mesh())),
                                   split, own_split),
                           signature.inputs[i].dtype)
                  : read_again(op, product, i, split, own_split));
        std::vector<Way>& ways = forms[std::move(again)];
        for (Way& way : ways_of(v, op, product, split, sharding, own_split, count)) {
          if (std::any_of(ways.begin(), ways.end(), [&](const Way& by) { return no_worse(by.first, way.first); }))
            continue;
          std::erase_if(ways, [&](const Way& other) { return no_worse(way.first, other.first); });
          ways.push_back(std::move(way));
        }
      }
      for (auto& [again, ways] : forms) {
        if (ways.empty()) continue;  // impossible
        for (auto& [option, means] : ways) {
          option.form = form;
          own.push_back(std::move(option));
          meaning.push_back(std::move(means));
        }
        for (std::size_t i = 0; i < signature.inputs.size(); ++i) {
          const DType dtype = signature.inputs[i].dtype;
          const Layout needed = operand_layout(signature, false, i, sharding, mesh());
          ends.inputs[i].forward.push_back(number(needed, dtype));
          ends.inputs[i].backward.push_back(number(gradient_made(needed, axes_of(split)), dtype));
          ends.inputs[i].again.push_back(again[i]);
        }
        for (std::size_t i = 0; i < signature.outputs.size(); ++i) {
          const Layout made = operand_layout(signature, true, i, sharding, mesh());
          ends.outputs[i].forward.push_back(number(made, signature.outputs[i].dtype));
          ends.outputs[i].backward.push_back(number(gradient_needed(made), signature.outputs[i].dtype));
        }
        ++form;
      }
    }
    space_.choices.forms[v] = form;
    space_.choices.own[v] = std::move(own);
    space_.meaning[v] = std::move(meaning);
  }

  using Way = std::pair<ProgramChoices::Option, Distribution>;

  static bool no_worse(const ProgramChoices::Option& by, const ProgramChoices::Option& than) {
    const auto below = [](const auto& a, const auto& b) {
      return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](auto x, auto y) { return x <= y; });
    };
    return by.communication <= than.communication && (by.ends & ~than.ends) == 0 && below(by.memory, than.memory) &&
           std::equal(by.compute.begin(), by.compute.end(), than.compute.begin(), below);
  }

  // Whether the operator owns a weight that operators of other variables read too. Of those, the layout in which the
  // owner makes its gradient stands where other inputs have that in which they are read again.
  bool shared_weight(OpId op, std::size_t input) const { return is_shared(graph_.inputs(op)[input], op); }
  bool is_shared(TensorId tensor, OpId op) const {
    if (graph_.tensors()[tensor].kind != TensorKind::Parameter || owner(tensor) != op) return false;
    const auto uses = graph_.uses(tensor);
    return std::any_of(uses.begin(), uses.end(), [&](const Use& use) {
      return use.op < training_.first_backward && variable_[use.op] != variable_[op];
    });
  }

  // The layout in which the weight gradient reads an input of the operator.
  LayoutNumber read_again(OpId op, OpId product, std::size_t input, const Axes& split,
                          const std::optional<Axes>& own_split) {
    if (!product.valid()) return kNoLayout;
    const Signature& of = graph_.signature(product);
    for (std::size_t p = 0; p < of.inputs.size(); ++p)
      if (graph_.inputs(product)[p] == graph_.inputs(op)[input])
        return number(operand_layout(of, false, p, as_sharding(of, own_split ? *own_split : split), mesh()),
                      of.inputs[p].dtype);
    return kNoLayout;
  }

  // With all ways to store the weights.
  std::vector<Way> ways_of(VariableId v, OpId op, OpId product, const Axes& split, const OpSharding& sharding,
                           const std::optional<Axes>& own_split, std::int64_t count) {
    const Signature& signature = graph_.signature(op);
    ProgramChoices::Option base{0, {none(), none(), none()}, 0, 0, std::vector<std::int64_t>(space_.classes.size(), 0)};
    accumulate(base.compute[0], computed(graph_.ops()[op].signature, split), count);
    for (OpId each : products_[op]) {
      const Signature& backward = graph_.signature(each);
      if (each == product && own_split)
        accumulate(base.compute[1], computed(graph_.ops()[each].signature, *own_split), count);
      else if (backward.axes.size() == signature.axes.size())
        accumulate(base.compute[1], computed(graph_.ops()[each].signature, split), count);
    }
    if (product.valid() && own_split && !gather_factors(op, product, sharding, *own_split, base)) return {};
    for (std::size_t i = 0; i < signature.outputs.size(); ++i) {
      if (!saved_[graph_.outputs(op)[i]]) continue;
      const std::vector<std::int64_t> bytes =
          held(operand_layout(signature, true, i, sharding, mesh()), signature.outputs[i].dtype);
      for (std::size_t c = 0; c < bytes.size(); ++c) base.memory[c] += count * bytes[c];
    }
    // All weights of an operator are stored alike.
    std::vector<Way> options = {{std::move(base), Distribution{split, own_split, 0, 0, 0}}};
    for (std::size_t i = 0; i < signature.inputs.size(); ++i) {
      const TensorId tensor = graph_.inputs(op)[i];
      if (graph_.tensors()[tensor].kind != TensorKind::Parameter || owner(tensor) != op) continue;
      const Layout used = without_halos(operand_layout(signature, false, i, sharding, mesh()));
      const std::vector<Storing>& ways = parameters_.of(tensor, used, made_by(op, product, i, used, split, own_split));
      std::vector<Way> longer;
      const bool first = options.size() == 1 && options.front().second.optimizer == 0;
      for (const auto& [option, meaning] : options)
        for (const Storing& way : ways) {
          if (!first && std::tie(way.optimizer, way.gradients, way.weights) !=
                            std::tie(meaning.optimizer, meaning.gradients, meaning.weights))
            continue;
          auto& [next, said] = longer.emplace_back(option, meaning);
          next.communication = sum_of(next.communication, way.communication);
          accumulate(next.compute[2], way.update);
          for (std::size_t c = 0; c < way.memory.size(); ++c) next.memory[c] += way.memory[c];
          said.optimizer = way.optimizer;
          said.gradients = way.gradients;
          said.weights = way.weights;
        }
      options = std::move(longer);
    }
    const Distribution* const only = only_ ? &(*only_)[v] : nullptr;
    std::erase_if(options, [&](const Way& way) {
      const auto& [option, meaning] = way;
      return option.communication >= kNever ||
             (only && std::tie(only->optimizer, only->gradients, only->weights) !=
                          std::tie(meaning.optimizer, meaning.gradients, meaning.weights));
    });
    return options;
  }

  // The layout in which the gradient of an operator's weight is made.
  Layout made_by(OpId op, OpId product, std::size_t input, const Layout& used, const Axes& split,
                 const std::optional<Axes>& own_split) const {
    if (product.valid() && own_split) {
      const Signature& of = graph_.signature(product);
      for (std::size_t o = 0; o < of.outputs.size(); ++o)
        if (of.outputs[o].name == "d" + graph_.signature(op).inputs[input].name)
          return operand_layout(of, true, o, as_sharding(of, *own_split), mesh());
    }
    return gradient_made(used, axes_of(split));
  }

  // A weight gradient that is split otherwise than its operator needs the output's gradient in a layout of its own, and
  // inputs of the step too.
  bool gather_factors(OpId op, OpId product, const OpSharding& sharding, const Axes& own_split,
                      ProgramChoices::Option& option) {
    const Signature& signature = graph_.signature(op);
    const Signature& of = graph_.signature(product);
    const OpSharding own_sharding = as_sharding(of, own_split);
    for (std::size_t p = 0; p < of.inputs.size(); ++p) {
      const TensorId tensor = graph_.inputs(product)[p];
      const LayoutNumber needed = number(operand_layout(of, false, p, own_sharding, mesh()), of.inputs[p].dtype);
      std::optional<Layout> there;
      for (std::size_t o = 0; o < signature.outputs.size(); ++o) {
        const Layout made = operand_layout(signature, true, o, sharding, mesh());
        if (of.inputs[p].name == "d" + signature.outputs[o].name) there = gradient_needed(made);
        if (graph_.outputs(op)[o] == tensor) there = made;
      }
      for (std::size_t i = 0; i < signature.inputs.size(); ++i)
        if (graph_.inputs(op)[i] == tensor && graph_.tensors()[tensor].kind == TensorKind::Input)
          there = operand_layout(signature, false, i, sharding, mesh());
      if (!there) continue;
      const Picoseconds time = moved(number(*there, of.inputs[p].dtype), needed);
      if (time >= kNever) return false;
      option.communication =
          sum_of(option.communication, time * static_cast<Picoseconds>(space_.ops[variable_[op]].size()));
      if (time > 0) option.ends |= ends_of(Phase::Backward);
    }
    return true;
  }

  // A tensor that several operators read: the layout in which they find it, and along which of the axes that do not
  // split it their gradients are left partial until they are added up.
  void add_fork(VariableId v) {
    const TensorId tensor = space_.tensor[v];
    const DType dtype = graph_.tensors()[tensor].type.dtype;
    std::set<LayoutNumber> forms;
    const auto add = [&](LayoutNumber of) { forms.insert(number(gradient_needed(layouts_.layout(of)), dtype)); };
    const Tensor& made = graph_.tensors()[tensor];
    for (LayoutNumber each : out_ends(made.producer, made.output).forward) add(each);
    for (const Use& use : graph_.uses(tensor))
      if (use.op < training_.first_backward)
        for (LayoutNumber each : in_ends(use.op, use.input).forward) add(each);
    Ends& ends = fork_ends_[v];
    std::string key = "fork";
    for (LayoutNumber form : forms) key += ',' + std::to_string(form);
    if (const auto known = own_.find(key); known != own_.end()) {
      space_.choices.own[v] = space_.choices.own[known->second];
      space_.choices.forms[v] = space_.choices.forms[known->second];
      ends = fork_ends_.at(known->second);
      space_.meaning[v] = space_.meaning[known->second];
      return;
    }
    own_.emplace(key, v);
    const MeshAxes all = axis_set(static_cast<int>(mesh().axes().size())) - 1;
    for (LayoutNumber form : forms) {
      const MeshAxes free = all & ~split_axes(layouts_.layout(form));
      for (MeshAxes partial = 0; partial <= all; ++partial) {
        if ((partial & ~free) != 0) continue;
        Layout gradient = layouts_.layout(form);
        for (std::size_t m = 0; m < gradient.partial.size(); ++m)
          if (partial >> m & 1u) gradient.partial[m] = Reducer::Sum;
        ends.forward.push_back(form);
        ends.backward.push_back(number(std::move(gradient), dtype));
        space_.choices.own[v].push_back(
            {static_cast<std::uint32_t>(ends.forward.size() - 1), {none(), none(), none()}, 0, 0, {}});
      }
    }
    ends.again = ends.forward;
    space_.choices.forms[v] = static_cast<std::uint32_t>(ends.forward.size());
    space_.meaning[v].resize(space_.choices.own[v].size());
  }

  const Ends& out_ends(OpId op, std::size_t output) { return operator_ends_.at(ends_[variable_[op]]).outputs[output]; }
  const Ends& in_ends(OpId op, std::size_t input) { return operator_ends_.at(ends_[variable_[op]]).inputs[input]; }

  bool differentiable(OpId reader, std::size_t input) const {
    const Signature& signature = graph_.signature(reader);
    for (const Gradient& gradient : gradients_of(signature))
      for (const std::string& written : gradient.writes)
        if (written == "d" + signature.inputs[input].name) return true;
    return false;
  }

  void add_edges(OpId reader) {
    const auto inputs = graph_.inputs(reader);
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const Tensor& tensor = graph_.tensors()[inputs[i]];
      if (tensor.producer.valid()) {
        const bool back = differentiable(reader, i) && has_gradient_[tensor.producer];
        const Ends& from = out_ends(tensor.producer, tensor.output);
        if (const VariableId fork = fork_[inputs[i]]; fork.valid()) {
          if (joined_.insert(fork).second)
            connect(variable_[tensor.producer], from, fork, fork_ends_.at(fork), true, false);
          connect(fork, fork_ends_.at(fork), variable_[reader], in_ends(reader, i), back, true);
        } else {
          connect(variable_[tensor.producer], from, variable_[reader], in_ends(reader, i), back, true);
        }
      } else if (tensor.kind == TensorKind::Parameter && variable_[owner(inputs[i])] != variable_[reader]) {
        // A weight shared by operators of different kinds.
        const Ends& used = in_ends(owner(inputs[i]), graph_.uses(inputs[i]).front().input);
        connect(variable_[owner(inputs[i])], {used.forward, used.again, {}}, variable_[reader], in_ends(reader, i),
                true, false, true);
      }
    }
  }

  // What a tensor costs on its way from one variable to another, and its gradient on the way back. `again`: what the
  // weight gradient reads is made from the stored tensor once more, if that is not partial.
  // `weight`: gradients of one layout are added up and reduced once, by the owner; others are brought to the weight's.
  void connect(VariableId a, const Ends& from, VariableId b, const Ends& to, bool back, bool again,
               bool weight = false) {
    const auto move = [&](std::size_t x, std::size_t y) {
      ProgramChoices::Move result;
      const Picoseconds there = moved(from.forward[x], to.forward[y]);
      if (weight) {
        if (there > 0) result.ends |= ends_of(Phase::Forward);
        const bool joined = to.backward[y] == from.backward[x];
        result.time = sum_of(there, joined ? 0 : moved(to.backward[y], from.forward[x]));
        return result;
      }
      if (there > 0) result.ends |= ends_of(Phase::Forward);
      Picoseconds after = back ? moved(to.backward[y], from.backward[x]) : 0;
      if (again && !to.again.empty() && to.again[y] != kNoLayout) {
        const LayoutNumber kept = is_partial(layouts_.layout(from.forward[x])) ? to.forward[y] : from.forward[x];
        after = sum_of(after, moved(kept, to.again[y]));
      }
      if (after > 0) result.ends |= ends_of(Phase::Backward);
      result.time = sum_of(there, after);
      return result;
    };
    if (a == b) {
      for (ProgramChoices::Option& option : space_.choices.own[a]) {
        const ProgramChoices::Move made = move(option.form, option.form);
        option.communication = sum_of(option.communication, made.time);
        option.ends |= made.ends;
      }
      return;
    }
    const bool turned = b < a;
    const std::uint32_t rows = space_.choices.forms[turned ? b : a], columns = space_.choices.forms[turned ? a : b];
    std::vector<LayoutNumber> key = {turned, back, again, weight};
    for (const std::vector<LayoutNumber>* part :
         {&from.forward, &from.backward, &to.forward, &to.backward, &to.again}) {
      key.push_back(static_cast<LayoutNumber>(part->size()));
      key.insert(key.end(), part->begin(), part->end());
    }
    const auto [found, fresh] = edge_tables_.try_emplace(std::move(key), space_.choices.tables.size());
    if (fresh) {
      std::vector<ProgramChoices::Move> table;
      table.reserve(std::size_t{rows} * columns);
      for (std::uint32_t r = 0; r < rows; ++r)
        for (std::uint32_t c = 0; c < columns; ++c) table.push_back(turned ? move(c, r) : move(r, c));
      space_.choices.tables.push_back(std::move(table));
    }
    between_[turned ? std::pair(b, a) : std::pair(a, b)].push_back(found->second);
  }

  // Several tensors between two variables are one table.
  std::size_t summed(const std::vector<std::size_t>& tables) {
    if (tables.size() == 1) return tables.front();
    const auto [found, fresh] = sums_.try_emplace(tables, space_.choices.tables.size());
    if (fresh) {
      std::vector<ProgramChoices::Move> total = space_.choices.tables[tables.front()];
      for (std::size_t t = 1; t < tables.size(); ++t)
        for (std::size_t i = 0; i < total.size(); ++i) {
          total[i].time = sum_of(total[i].time, space_.choices.tables[tables[t]][i].time);
          total[i].ends |= space_.choices.tables[tables[t]][i].ends;
        }
      space_.choices.tables.push_back(std::move(total));
    }
    return found->second;
  }

  const TrainingGraph& training_;
  const Graph& graph_;
  const CostModel& cost_;
  const IdVec<VariableId, Distribution>* const only_;
  ProgramSpace space_;
  PricedLayouts layouts_;
  ParameterWays parameters_;
  IdVec<OpId, std::vector<OpId>> products_;
  IdVec<OpId, char> has_gradient_;
  IdVec<TensorId, char> saved_;
  std::map<OpId, std::int64_t> outer_;
  IdVec<OpId, VariableId> variable_;
  IdVec<TensorId, VariableId> fork_;
  std::set<VariableId> joined_;
  std::map<std::string, VariableId> own_;  // variables alike: the first of them
  IdVec<VariableId, VariableId> ends_;     // whose ends it has
  std::map<VariableId, OperatorEnds> operator_ends_;
  std::map<VariableId, Ends> fork_ends_;
  std::map<std::string, ProgramChoices::Computation> computed_;
  std::map<std::vector<LayoutNumber>, std::size_t> edge_tables_;
  std::map<std::pair<VariableId, VariableId>, std::vector<std::size_t>> between_;
  std::map<std::vector<std::size_t>, std::size_t> sums_;
};

}  // namespace

ProgramSpace make_program_space(const TrainingGraph& training, SharedMesh mesh, const Cluster& cluster,
                                const CostModel& cost, const ProgramRules& rules,
                                const IdVec<VariableId, Distribution>* only) {
  WEFT_CHECK(mesh.ratio.size() == mesh.mesh.axes().size());
  return SpaceBuilder(training, std::move(mesh), cluster, cost, rules, only).run();
}

}  // namespace weft
