#include "optimum/optimum_bound.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>

#include "base/check.h"
#include "program/slice_moves.h"

namespace weft {
namespace {

OpSharding sharding_of(const Signature& signature, const OpConfig& config) {
  OpSharding sharding{config.mesh, std::vector<std::vector<Cut>>(signature.axes.size())};
  for (std::size_t m = 0; m < kSoapAxes; ++m)
    if (config.split[m] >= 0) sharding.axes[static_cast<std::size_t>(config.split[m])].push_back({static_cast<int>(m)});
  return sharding;
}
}  // namespace

// What a bound plays on: compute streams, and streams of reductions.
struct OptimumBound::Devices {
  std::array<Picoseconds, kOptimumDevices> free = {}, busy = {}, reduced_from = {}, reducing = {};

  Devices() { reduced_from.fill(std::numeric_limits<Picoseconds>::max()); }
  // The earliest end on any of the devices.
  Picoseconds compute(unsigned on, Picoseconds start, Picoseconds time) {
    Picoseconds end = std::numeric_limits<Picoseconds>::max();
    for (std::size_t d = 0; d < kOptimumDevices; ++d)
      if (on >> d & 1u) {
        free[d] = std::max(free[d], start) + time;
        busy[d] += time;
        end = std::min(end, free[d]);
      }
    return end;
  }
  void reduce(unsigned on, Picoseconds start, Picoseconds time) {
    for (std::size_t d = 0; d < kOptimumDevices && time > 0; ++d)
      if (on >> d & 1u) {
        reduced_from[d] = std::min(reduced_from[d], start);
        reducing[d] += time;
      }
  }
  Picoseconds last(Picoseconds work_left) const {
    Picoseconds last = 0, work = work_left;
    for (std::size_t d = 0; d < kOptimumDevices; ++d) {
      last = std::max(last, free[d]);
      if (reducing[d] > 0) last = std::max(last, reduced_from[d] + reducing[d]);
      work += busy[d];
    }
    return std::max(last, work / kOptimumDevices);
  }
};

OptimumBound::OptimumBound(const SoapProblem& problem, const OptimumSpace& space)
    : problem_(problem), training_(problem.training), graph_(problem.training.graph), space_(space) {
  end_.resize(graph_.ops().size(), 0);
  find_readers();
  price_choices();
  find_work_left();
}

const OpConfig& OptimumBound::config(OpId reader, std::size_t choice) const {
  return space_.choices[unit(reader)][choice].ops[position_[reader]].second;
}
const UnitChoice* OptimumBound::choice_of(OpId op) const {
  const OpId with = runs_with_[op];
  return with.valid() && unit(with) < assigned_ ? (*chosen_)[unit(with)] : nullptr;
}
std::size_t OptimumBound::index_of(OpId op, const UnitChoice* choice) const {
  return static_cast<std::size_t>(choice - space_.choices[unit(runs_with_[op])].data());
}

void OptimumBound::find_readers() {
  unit_of_.resize(graph_.ops().size(), -1);
  position_.resize(graph_.ops().size(), 0);
  for (std::size_t u = 0; u < space_.proposals.units().size(); ++u)
    for (std::size_t i = 0; i < space_.proposals.units()[u].size(); ++i) {
      unit_of_[space_.proposals.units()[u][i]] = static_cast<int>(u);
      position_[space_.proposals.units()[u][i]] = i;
    }
  // Accumulations and steps run where the operator that reads their parameter does. A parameter of two readers is
  // kept by each of them, or by both together; of one with more nothing is known.
  std::map<TensorId, std::vector<OpId>> readers;
  std::map<TensorId, TensorId> summed;  // a gradient to its parameter
  for (const auto& [parameter, gradient] : training_.accumulated)
    summed[graph_.tensors()[gradient].storage] = parameter;
  for (TensorId tensor : graph_.tensors().ids())
    if (graph_.tensors()[tensor].kind == TensorKind::Parameter)
      for (const Use& use : graph_.uses(tensor))
        if (use.op < training_.first_backward) readers[tensor].push_back(use.op);
  runs_with_.resize(graph_.ops().size());
  parameter_of_.resize(graph_.ops().size());
  shared_.resize(graph_.ops().size());
  std::map<TensorId, std::map<OpId, OpId>> accumulates;  // by parameter and reader
  for (OpId op : graph_.ops().ids()) {
    if (op < training_.first_backward)
      runs_with_[op] = op;
    else if (graph_.ops()[op].forward.valid())
      runs_with_[op] = graph_.ops()[op].forward;
    TensorId parameter;
    OpId reader;
    if (op >= training_.first_step) {
      for (TensorId input : graph_.inputs(op))
        if (graph_.tensors()[input].kind == TensorKind::Parameter) parameter = input;
    } else if (graph_.kind(op) == OpKind::Accumulate) {
      const auto found = summed.find(graph_.tensors()[graph_.outputs(op).front()].storage);
      if (found != summed.end()) parameter = found->second;
      if (const OpId term = graph_.tensors()[graph_.inputs(op)[1]].producer; term.valid())
        reader = graph_.ops()[term].forward;
    }
    const auto of = readers.find(parameter);
    if (!parameter.valid() || of == readers.end() || of->second.size() > 2) continue;
    if (of->second.size() == 1) reader = of->second.front();
    if (op < training_.first_step) accumulates[parameter][reader] = op;
    if (of->second.size() == 2) {
      if (op >= training_.first_step)
        shared_[op] = {of->second[0], of->second[1], accumulates[parameter][of->second[0]],
                       accumulates[parameter][of->second[1]]};
      else
        shared_[op] = {of->second[0], of->second[1], {}, {}};
      if (op >= training_.first_step) reader = of->second[0];
    }
    if (!reader.valid()) continue;
    parameter_of_[op] = parameter;
    runs_with_[op] = reader;
  }
}

void OptimumBound::price_choices() {
  times_.resize(graph_.ops().size());
  sums_.resize(graph_.ops().size());
  rates_.resize(graph_.ops().size());
  tied_.resize(graph_.ops().size());
  least_.resize(graph_.ops().size(), 0);
  moves_.resize(graph_.ops().size());
  for (OpId op : graph_.ops().ids()) {
    moves_[op].resize(graph_.inputs(op).size());
    const OpId with = runs_with_[op];
    if (!with.valid()) continue;
    least_[op] = std::numeric_limits<Picoseconds>::max();
    for (const UnitChoice& choice : space_.choices[unit(with)]) {
      const OpConfig& config = choice.ops[position_[with]].second;
      times_[op].push_back(time_of(op, with, config));
      sums_[op].push_back(op >= training_.first_step ? sum_of(op, with, config, DType::F32) : 0);
      // What a reduction adds to one that is under way: buckets join them.
      rates_[op].push_back(
          op >= training_.first_step
              ? std::clamp<Picoseconds>(sum_of(op, with, config, DType::F64) - sums_[op].back(), 0, sums_[op].back())
              : 0);
      // Of a shared one perhaps half: scattered before it is added, if the other reader wants it so.
      const Picoseconds sum = shared_[op] ? sums_[op].back() / 2 : sums_[op].back();
      const Picoseconds own = shared_[op] && op < training_.first_step ? 0 : times_[op].back();
      least_[op] = std::min(least_[op], own + sum);
    }
    if (shared_[op])
      WEFT_CHECK(space_.choices[unit(shared_[op]->first)].size() == space_.choices[unit(shared_[op]->second)].size(),
                 "readers of one parameter are split alike");
  }
}

void OptimumBound::find_work_left() {
  // Device time that units take at least, from each one to the last.
  left_.assign(space_.choices.size() + 1, 0);
  std::vector<std::vector<Picoseconds>> work(space_.choices.size());
  for (std::size_t u = 0; u < space_.choices.size(); ++u) work[u].resize(space_.choices[u].size(), 0);
  for (OpId op : graph_.ops().ids()) {
    if (!runs_with_[op].valid() || (shared_[op] && op < training_.first_step)) continue;
    const std::size_t u = unit(runs_with_[op]);
    for (std::size_t i = 0; i < space_.choices[u].size(); ++i)
      work[u][i] += times_[op][i] * std::popcount(space_.choices[u][i].devices);
  }
  for (std::size_t u = space_.choices.size(); u-- > 0;)
    left_[u] = left_[u + 1] + *std::min_element(work[u].begin(), work[u].end());
}

Layout OptimumBound::parameter_layout(TensorId parameter, OpId with, const OpConfig& config) const {
  const Signature& signature = graph_.signature(with);
  const auto inputs = graph_.inputs(with);
  const auto at = static_cast<std::size_t>(std::find(inputs.begin(), inputs.end(), parameter) - inputs.begin());
  return without_halos(
      operand_layout(signature, false, at, sharding_of(signature, config), space_.meshes.meshes()[config.mesh]));
}

// Of the part on the first device; parts are even.
Picoseconds OptimumBound::time_of(OpId op, OpId with, const OpConfig& config) const {
  const Signature& signature = graph_.signature(op);
  if (signature.kind == OpKind::Accumulate) return 0;  // of one micro-batch: a sum begins with its term
  const Mesh& mesh = space_.meshes.meshes()[config.mesh];
  const DeviceSpec& device = problem_.cluster.spec(DeviceId(0));
  if (parameter_of_[op].valid()) {
    const Shape local = local_shape(parameter_layout(parameter_of_[op], with, config), mesh, 0);
    return local.size() == signature.axes.size() ? problem_.cost.compute({&signature, local, &device}).time : 0;
  }
  if (signature.axes.size() != graph_.signature(with).axes.size()) return 0;
  const AxisSlices slices = axis_slices(signature, sharding_of(signature, config), mesh, 0);
  std::vector<std::int64_t> extents;
  for (const AxisSlice& slice : slices) extents.push_back(slice.size());
  return problem_.cost.compute({&signature, extents, &device, {}, attended_share(signature, slices)}).time;
}
// The reduction of a gradient before the step.
Picoseconds OptimumBound::sum_of(OpId op, OpId with, const OpConfig& config, DType dtype) const {
  if (!parameter_of_[op].valid()) return 0;
  const Layout whole = parameter_layout(parameter_of_[op], with, config);
  Layout partial = whole;
  for (std::size_t m = 0; m < kSoapAxes; ++m)
    if (config.split[m] >= 0 && (split_axes(whole) >> m & 1u) == 0) partial.partial[m] = Reducer::Sum;
  return priced(partial, whole, dtype);
}
Picoseconds OptimumBound::priced(const Layout& from, const Layout& to, DType dtype) const {
  const Mesh& mesh = space_.meshes.meshes()[from.mesh];
  const Result<std::vector<ReshardStep>> steps = reshard(from, to, mesh);
  if (!steps.ok()) return 0;
  TimePrices prices(problem_.cluster, problem_.cost, mesh);
  Picoseconds time = 0;
  const Layout* now = &from;
  for (const ReshardStep& step : *steps) {
    if (step.collective != Collective::Slice) time += prices.move(step, *now, mesh, dtype);
    now = &step.to;
  }
  return time;
}
// Senders and receivers that are joined by moves communicate together: the quickest of these groups.
Picoseconds OptimumBound::transferred(const Layout& from, const Layout& to, DType dtype) const {
  if (is_partial(from)) return 0;
  const Mesh &senders = space_.meshes.meshes()[from.mesh], &receivers = space_.meshes.meshes()[to.mesh];
  std::array<int, 2 * kOptimumDevices> group = {};
  for (std::size_t i = 0; i < group.size(); ++i) group[i] = static_cast<int>(i);
  const std::vector<SliceMove> moves = slice_moves(from, senders, to, receivers);
  for (int round = 0; round < 2 * kOptimumDevices; ++round)
    for (const SliceMove& move : moves) {
      int &a = group[static_cast<std::size_t>(move.from)],
          &b = group[static_cast<std::size_t>(kOptimumDevices + move.to)];
      a = b = std::min(a, b);
    }
  Picoseconds quickest = std::numeric_limits<Picoseconds>::max();
  for (int receiver = 0; receiver < receivers.size(); ++receiver) {
    std::vector<BlockMove> blocks;
    std::int64_t bytes = 0;
    bool waits = false;
    for (const SliceMove& move : moves) {
      if (group[static_cast<std::size_t>(kOptimumDevices + move.to)] !=
          group[static_cast<std::size_t>(kOptimumDevices + receiver)])
        continue;
      const DeviceId a = senders.devices()[static_cast<std::size_t>(move.from)],
                     b = receivers.devices()[static_cast<std::size_t>(move.to)];
      if (a == b) continue;
      waits = waits || move.to == receiver;
      blocks.push_back({a, b, bytes_of(dtype, move.elements)});
      bytes += blocks.back().bytes;
    }
    if (!waits) return 0;
    const Communicator communicator = make_block_moves(problem_.cluster, blocks);
    quickest = std::min(quickest, isolated_time(problem_.cost.communicate({&communicator, bytes})));
  }
  return quickest;
}

// From an operator to one that reads an output of it, both assigned.
Picoseconds OptimumBound::moved(OpId from, std::size_t a, OpId to, std::size_t b, std::size_t input) {
  const std::vector<UnitChoice>&makers = space_.choices[unit(runs_with_[from])],
        &readers = space_.choices[unit(runs_with_[to])];
  std::vector<Picoseconds>& known = moves_[to][input];
  if (known.empty()) known.assign(makers.size() * readers.size(), -1);
  Picoseconds& time = known[a * readers.size() + b];
  if (time >= 0) return time;
  time = 0;
  const Tensor& tensor = graph_.tensors()[graph_.inputs(to)[input]];
  const Signature &made = graph_.signature(from), &needed = graph_.signature(to);
  const OpId maker = runs_with_[from], reader = runs_with_[to];
  if (made.axes.size() != graph_.signature(maker).axes.size() || parameter_of_[from].valid() ||
      needed.axes.size() != graph_.signature(reader).axes.size() || parameter_of_[to].valid())
    return time;
  const OpConfig &x = makers[a].ops[position_[maker]].second, &y = readers[b].ops[position_[reader]].second;
  const Layout before = operand_layout(made, true, tensor.output, sharding_of(made, x), space_.meshes.meshes()[x.mesh]);
  const Layout after = operand_layout(needed, false, input, sharding_of(needed, y), space_.meshes.meshes()[y.mesh]);
  time = x.mesh == y.mesh ? priced(before, after, tensor.type.dtype) : transferred(before, after, tensor.type.dtype);
  return time;
}

Picoseconds OptimumBound::of(const std::vector<const UnitChoice*>& chosen, std::size_t assigned) {
  chosen_ = &chosen;
  assigned_ = assigned;
  Devices devices;
  Picoseconds last = 0;
  for (OpId op : graph_.ops().ids()) {
    const UnitChoice* const choice = choice_of(op);
    if (shared_[op] && choice && op >= training_.first_step) {
      end_[op] = step_shared(op, *choice, devices);
      last = std::max(last, end_[op]);
      continue;
    }
    Picoseconds start = 0;
    const auto inputs = graph_.inputs(op);
    // Terms of a shared parameter's gradient are added in any order, or each to a copy of its own.
    const bool term = shared_[op] && op < training_.first_step;
    for (std::size_t i = term ? 1 : 0; i < inputs.size(); ++i) {
      const OpId producer = graph_.tensors()[inputs[i]].producer;
      if (!producer.valid()) continue;
      Picoseconds ready = end_[producer];
      if (const UnitChoice* const other = choice ? choice_of(producer) : nullptr)
        ready += moved(producer, index_of(producer, other), op, index_of(op, choice), i);
      start = std::max(start, ready);
    }
    if (!choice) {
      end_[op] = start + least_[op];
    } else if (term && !kept_as_read(op)) {
      end_[op] = start;
    } else {
      const std::size_t at = index_of(op, choice);
      devices.reduce(choice->devices, start, rates_[op][at]);
      end_[op] = devices.compute(choice->devices, start + sums_[op][at], times_[op][at]);
    }
    last = std::max(last, end_[op]);
  }
  return std::max(last, devices.last(left_[assigned]));
}

// Whether both readers of a parameter are assigned, and each has it as it reads it.
bool OptimumBound::kept_as_read(OpId op) const {
  const UnitChoice *const a = choice_of(shared_[op]->first), *const b = choice_of(shared_[op]->second);
  return a && b &&
         (a->ops.front().second.mesh != b->ops.front().second.mesh ||
          index_of(shared_[op]->first, a) == index_of(shared_[op]->second, b));
}

// The step of a parameter whose first reader is assigned. On one mesh there is one copy, cut as the first reader has
// it. On two there are two, each summed by itself, sent to the other, added, and stepped.
Picoseconds OptimumBound::step_shared(OpId op, const UnitChoice& first, Devices& devices) {
  const Shared& shared = *shared_[op];
  const std::size_t a = index_of(shared.first, &first);
  const Picoseconds here = end_[shared.accumulates_first], there = end_[shared.accumulates_second];
  const UnitChoice* const second = choice_of(shared.second);
  const bool apart = second && first.ops.front().second.mesh != second->ops.front().second.mesh;
  const std::size_t b = second ? index_of(shared.second, second) : a;
  if (!second || (!apart && a != b)) {
    const Picoseconds other = second ? sums_[op][b] / 2 : 0;
    return devices.compute(first.devices, std::max(here + sums_[op][a] / 2, there + other), times_[op][a]);
  }
  if (!apart) {
    const Picoseconds start = std::max(here, there);
    devices.reduce(first.devices, start, rates_[op][a]);
    return devices.compute(first.devices, start + sums_[op][a], times_[op][a]);
  }
  const auto& [to_first, to_second] = tied(op, a, b);
  devices.reduce(first.devices, here, rates_[op][a]);
  devices.reduce(second->devices, there, rates_[op][b]);
  const Picoseconds sum_here = here + sums_[op][a], sum_there = there + sums_[op][b];
  const Picoseconds one = devices.compute(first.devices, std::max(sum_here, sum_there + to_first), times_[op][a]);
  const Picoseconds two = devices.compute(second->devices, std::max(sum_there, sum_here + to_second), times_[op][b]);
  return std::max(one, two);
}
// A summed gradient's way from the second reader's copy to the first's, and back.
const std::pair<Picoseconds, Picoseconds>& OptimumBound::tied(OpId op, std::size_t a, std::size_t b) {
  const Shared& shared = *shared_[op];
  const std::size_t count = space_.choices[unit(shared.second)].size();
  if (tied_[op].empty()) tied_[op].assign(space_.choices[unit(shared.first)].size() * count, {-1, -1});
  std::pair<Picoseconds, Picoseconds>& known = tied_[op][a * count + b];
  if (known.first < 0) {
    const auto layout = [&](OpId reader, std::size_t at) {
      return parameter_layout(parameter_of_[op], reader, config(reader, at));
    };
    const Layout one = layout(shared.first, a), two = layout(shared.second, b);
    known = {transferred(two, one, DType::F32), transferred(one, two, DType::F32)};
  }
  return known;
}

}  // namespace weft
