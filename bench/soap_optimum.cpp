// The best strategy of a small network on one small node, for certain: branch and bound over configurations of units of
// operators (search/soap/proposals.h), and whether MCMC finds it.
//
//   soap_optimum lenet|rnnlm [--nodes 50000000] [--evaluations 20000] [--checks 2000]
//
// The space: every unit of operators on any 1, 2 or 4 of four devices in ascending order, split into as many parts
// along one or two axes, or whole on all of them; the simple operators of a unit follow its head, or are whole on all
// devices from one of them on. Devices are interchangeable: who comes first
// has the lower number. A branch assigns units in order. Its bound plays all operators, forward, backward and step, in
// their order on the compute streams of their devices, those not assigned yet in the least time that any configuration
// has. Between operators that are assigned, a change of layout takes its time alone, and so does a transfer that all
// receivers wait for; gradients that must be summed are. Everything else, and every wait for links, takes none. Leaves
// are simulated, gradients in the buckets that a full compilation gives them.
#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <limits>
#include <string>

#include "base/check.h"
#include "cost/analytic.h"
#include "models/models.h"
#include "program/slice_moves.h"
#include "search/soap/mcmc.h"
#include "search/soap/proposals.h"
#include "search/soap/soap.h"

namespace weft {
namespace {

constexpr int kDevices = 4;

double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}
double us(Picoseconds time) { return static_cast<double>(time) * 1e-6; }

// One way to run a unit: its operators' configurations, and what each of them and of their backward products takes.
struct Choice {
  std::vector<OpChange> ops;
  unsigned devices = 0;  // bits
};

class Search {
 public:
  Search(const TrainingGraph& training, const Cluster& cluster, const CostModel& cost, const SoftwareStack& stack)
      : training_(training),
        graph_(training.graph),
        problem_{training, cluster, cost, stack},
        proposals_(training, kDevices),
        meshes_({kDevices, 1, 1}, first_devices()) {}

  static std::vector<DeviceId> first_devices() {
    std::vector<DeviceId> devices;
    for (std::size_t i = 0; i < kDevices; ++i) devices.emplace_back(i);
    return devices;
  }

  void run(Picoseconds known, std::int64_t most_nodes, std::int64_t checks) {
    list_choices();
    prepare();
    best_ = known;
    most_nodes_ = most_nodes;
    const double start = cpu_seconds();
    double size = 1;
    for (std::size_t u = 0; u < choices_.size(); ++u) {
      fmt::print("unit {}: {} and {} after it, {} configurations\n", u, graph_.name(proposals_.units()[u].front()),
                 proposals_.units()[u].size() - 1, choices_[u].size());
      size *= static_cast<double>(choices_[u].size());
    }
    chosen_.assign(choices_.size(), nullptr);
    fmt::print("{:.3g} strategies; nothing assigned: at least {:.3f} us; known: {:.3f} us\n", size, us(bound(0)),
               us(known));
    check(checks);
    branch(0, 0);
    fmt::print("{} after {} nodes, {} leaves simulated, {:.0f} CPU s\nbest: {:.3f} us{}\n",
               nodes_ < most_nodes_ ? "complete" : "stopped", nodes_, leaves_, cpu_seconds() - start, us(best_),
               best_ == known ? " (none is better than the known one)" : "");
    fmt::print("least bound of what was not looked into: {:.3f} us\n", us(nodes_ < most_nodes_ ? best_ : open_));
    if (!best_ops_.empty()) print(best_ops_, meshes_.meshes());
  }
  void print(const std::vector<OpChange>& ops, const IdVec<MeshId, Mesh>& meshes) const {
    for (const auto& [op, config] : ops) {
      const auto axes = axes_of(config, graph_.signature(op));
      const Mesh& mesh = meshes[config.mesh];
      fmt::print("  {:24}", graph_.name(op));
      for (std::size_t m = 0; m < kSoapAxes; ++m)
        if (mesh.axes()[m].size > 1)
          fmt::print(" {}{}", axes[m]->axis.empty() ? "whole" : axes[m]->axis, mesh.axes()[m].size);
      fmt::print(" [{}: {} {} {}] on", config.mesh.index(), mesh.axes()[0].size, mesh.axes()[1].size,
                 mesh.axes()[2].size);
      for (DeviceId device : mesh.devices()) fmt::print(" {}", device.index());
      fmt::print("\n");
    }
  }

 private:
  void list_choices() {
    for (std::size_t u = 0; u < proposals_.units().size(); ++u) {
      std::vector<Choice>& of = choices_.emplace_back();
      const OpId head = proposals_.units()[u].front();
      const Signature& signature = graph_.signature(head);
      const auto axes = static_cast<int>(signature.axes.size());
      for (unsigned set = 1; set < 1u << kDevices; ++set) {
        std::vector<DeviceId> devices;
        for (std::size_t i = 0; i < kDevices; ++i)
          if (set >> i & 1u) devices.emplace_back(i);
        const int count = static_cast<int>(devices.size());
        if (count == 3) continue;
        const auto add = [&](std::array<int, kSoapAxes> sizes, int a, int b) {
          const OpConfig config{meshes_.id_of(sizes, devices),
                                {static_cast<std::int8_t>(a), static_cast<std::int8_t>(b), -1}};
          Choice choice{proposals_.change_units({u}, config, meshes_), set};
          if (choice.ops.empty()) return;
          of.push_back(choice);
          // On the grid of all devices the last operators may also be whole on every device.
          const bool whole = a < 0 && b < 0;
          for (std::size_t i = choice.ops.size(); config.mesh == MeshId(0) && !whole && i-- > 1;) {
            choice.ops[i].second = {MeshId(0), {-1, -1, -1}};
            of.push_back(choice);
          }
        };
        if (count == 1) add({1, 1, 1}, -1, -1);
        if (count == kDevices) add({kDevices, 1, 1}, -1, -1);
        for (int a = 0; count > 1 && a < axes; ++a) {
          add({count, 1, 1}, a, -1);
          add({1, count, 1}, -1, a);
          for (int b = a + 1; count == 4 && b < axes; ++b) add({2, 2, 1}, a, b);
        }
      }
    }
  }

  // What the bound reads: which forward operator every operator runs with, and its time by choice.
  void prepare() {
    unit_of_.resize(graph_.ops().size(), -1);
    position_.resize(graph_.ops().size(), 0);
    for (std::size_t u = 0; u < proposals_.units().size(); ++u)
      for (std::size_t i = 0; i < proposals_.units()[u].size(); ++i) {
        unit_of_[proposals_.units()[u][i]] = static_cast<int>(u);
        position_[proposals_.units()[u][i]] = i;
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
      for (const Choice& choice : choices_[static_cast<std::size_t>(unit_of_[with])]) {
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
        WEFT_CHECK(choices_[unit(shared_[op]->first)].size() == choices_[unit(shared_[op]->second)].size(),
                   "readers of one parameter are split alike");
    }
    // Device time that units take at least, from each one to the last.
    left_.assign(choices_.size() + 1, 0);
    std::vector<std::vector<Picoseconds>> work(choices_.size());
    for (std::size_t u = 0; u < choices_.size(); ++u) work[u].resize(choices_[u].size(), 0);
    for (OpId op : graph_.ops().ids()) {
      if (!runs_with_[op].valid() || (shared_[op] && op < training_.first_step)) continue;
      const std::size_t u = unit(runs_with_[op]);
      for (std::size_t i = 0; i < choices_[u].size(); ++i)
        work[u][i] += times_[op][i] * std::popcount(choices_[u][i].devices);
    }
    for (std::size_t u = choices_.size(); u-- > 0;)
      left_[u] = left_[u + 1] + *std::min_element(work[u].begin(), work[u].end());
  }
  std::size_t unit(OpId op) const { return static_cast<std::size_t>(unit_of_[op]); }

  static OpSharding sharding_of(const Signature& signature, const OpConfig& config) {
    OpSharding sharding{config.mesh, std::vector<std::vector<Cut>>(signature.axes.size())};
    for (std::size_t m = 0; m < kSoapAxes; ++m)
      if (config.split[m] >= 0)
        sharding.axes[static_cast<std::size_t>(config.split[m])].push_back({static_cast<int>(m)});
    return sharding;
  }
  Layout parameter_layout(TensorId parameter, OpId with, const OpConfig& config) const {
    const Signature& signature = graph_.signature(with);
    const auto inputs = graph_.inputs(with);
    const auto at = static_cast<std::size_t>(std::find(inputs.begin(), inputs.end(), parameter) - inputs.begin());
    return without_halos(
        operand_layout(signature, false, at, sharding_of(signature, config), meshes_.meshes()[config.mesh]));
  }

  // Of the part on the first device; parts are even.
  Picoseconds time_of(OpId op, OpId with, const OpConfig& config) const {
    const Signature& signature = graph_.signature(op);
    const Mesh& mesh = meshes_.meshes()[config.mesh];
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
  Picoseconds sum_of(OpId op, OpId with, const OpConfig& config, DType dtype) const {
    if (!parameter_of_[op].valid()) return 0;
    const Layout whole = parameter_layout(parameter_of_[op], with, config);
    Layout partial = whole;
    for (std::size_t m = 0; m < kSoapAxes; ++m)
      if (config.split[m] >= 0 && (split_axes(whole) >> m & 1u) == 0) partial.partial[m] = Reducer::Sum;
    return priced(partial, whole, dtype);
  }
  Picoseconds priced(const Layout& from, const Layout& to, DType dtype) const {
    const Mesh& mesh = meshes_.meshes()[from.mesh];
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
  Picoseconds transferred(const Layout& from, const Layout& to, DType dtype) const {
    if (is_partial(from)) return 0;
    const Mesh &senders = meshes_.meshes()[from.mesh], &receivers = meshes_.meshes()[to.mesh];
    std::array<int, 2 * kDevices> group = {};
    for (std::size_t i = 0; i < group.size(); ++i) group[i] = static_cast<int>(i);
    const std::vector<SliceMove> moves = slice_moves(from, senders, to, receivers);
    for (int round = 0; round < 2 * kDevices; ++round)
      for (const SliceMove& move : moves) {
        int &a = group[static_cast<std::size_t>(move.from)], &b = group[static_cast<std::size_t>(kDevices + move.to)];
        a = b = std::min(a, b);
      }
    Picoseconds quickest = std::numeric_limits<Picoseconds>::max();
    for (int receiver = 0; receiver < receivers.size(); ++receiver) {
      std::vector<BlockMove> blocks;
      std::int64_t bytes = 0;
      bool waits = false;
      for (const SliceMove& move : moves) {
        if (group[static_cast<std::size_t>(kDevices + move.to)] != group[static_cast<std::size_t>(kDevices + receiver)])
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
      quickest = std::min(quickest, isolated_time(problem_.cost.communicate({&communicator, bytes, false})));
    }
    return quickest;
  }

  // From an operator to one that reads an output of it, both assigned.
  Picoseconds moved(OpId from, std::size_t a, OpId to, std::size_t b, std::size_t input) {
    const std::vector<Choice>&makers = choices_[static_cast<std::size_t>(unit_of_[runs_with_[from]])],
          &readers = choices_[static_cast<std::size_t>(unit_of_[runs_with_[to]])];
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
    const Layout before = operand_layout(made, true, tensor.output, sharding_of(made, x), meshes_.meshes()[x.mesh]);
    const Layout after = operand_layout(needed, false, input, sharding_of(needed, y), meshes_.meshes()[y.mesh]);
    time = x.mesh == y.mesh ? priced(before, after, tensor.type.dtype) : transferred(before, after, tensor.type.dtype);
    return time;
  }

  const Choice* choice_of(OpId op, std::size_t assigned) const {
    const OpId with = runs_with_[op];
    if (!with.valid()) return nullptr;
    const auto unit = static_cast<std::size_t>(unit_of_[with]);
    return unit < assigned ? chosen_[unit] : nullptr;
  }
  std::size_t index_of(OpId op, const Choice* choice) const {
    return static_cast<std::size_t>(choice - choices_[static_cast<std::size_t>(unit_of_[runs_with_[op]])].data());
  }

  // What a bound plays on: compute streams, and streams of reductions.
  struct Devices {
    std::array<Picoseconds, kDevices> free = {}, busy = {}, reduced_from = {}, reducing = {};

    Devices() { reduced_from.fill(std::numeric_limits<Picoseconds>::max()); }
    // The earliest end on any of the devices.
    Picoseconds compute(unsigned on, Picoseconds start, Picoseconds time) {
      Picoseconds end = std::numeric_limits<Picoseconds>::max();
      for (std::size_t d = 0; d < kDevices; ++d)
        if (on >> d & 1u) {
          free[d] = std::max(free[d], start) + time;
          busy[d] += time;
          end = std::min(end, free[d]);
        }
      return end;
    }
    void reduce(unsigned on, Picoseconds start, Picoseconds time) {
      for (std::size_t d = 0; d < kDevices && time > 0; ++d)
        if (on >> d & 1u) {
          reduced_from[d] = std::min(reduced_from[d], start);
          reducing[d] += time;
        }
    }
    Picoseconds last(Picoseconds work_left) const {
      Picoseconds last = 0, work = work_left;
      for (std::size_t d = 0; d < kDevices; ++d) {
        last = std::max(last, free[d]);
        if (reducing[d] > 0) last = std::max(last, reduced_from[d] + reducing[d]);
        work += busy[d];
      }
      return std::max(last, work / kDevices);
    }
  };

  Picoseconds bound(std::size_t assigned) {
    end_.resize(graph_.ops().size());
    Devices devices;
    Picoseconds last = 0;
    for (OpId op : graph_.ops().ids()) {
      const Choice* const choice = choice_of(op, assigned);
      if (shared_[op] && choice && op >= training_.first_step) {
        end_[op] = step_shared(op, *choice, assigned, devices);
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
        if (const Choice* const other = choice ? choice_of(producer, assigned) : nullptr)
          ready += moved(producer, index_of(producer, other), op, index_of(op, choice), i);
        start = std::max(start, ready);
      }
      if (!choice) {
        end_[op] = start + least_[op];
      } else if (term && !kept_as_read(op, assigned)) {
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
  bool kept_as_read(OpId op, std::size_t assigned) const {
    const Choice *const a = choice_of(shared_[op]->first, assigned), *const b =
                                                                         choice_of(shared_[op]->second, assigned);
    return a && b &&
           (a->ops.front().second.mesh != b->ops.front().second.mesh ||
            index_of(shared_[op]->first, a) == index_of(shared_[op]->second, b));
  }

  // The step of a parameter whose first reader is assigned. On one mesh there is one copy, cut as the first reader has
  // it. On two there are two, each summed by itself, sent to the other, added, and stepped.
  Picoseconds step_shared(OpId op, const Choice& first, std::size_t assigned, Devices& devices) {
    const Shared& shared = *shared_[op];
    const std::size_t a = index_of(shared.first, &first);
    const Picoseconds here = end_[shared.accumulates_first], there = end_[shared.accumulates_second];
    const Choice* const second = choice_of(shared.second, assigned);
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
  const std::pair<Picoseconds, Picoseconds>& tied(OpId op, std::size_t a, std::size_t b) {
    const Shared& shared = *shared_[op];
    const std::size_t count = choices_[unit(shared.second)].size();
    if (tied_[op].empty()) tied_[op].assign(choices_[unit(shared.first)].size() * count, {-1, -1});
    std::pair<Picoseconds, Picoseconds>& known = tied_[op][a * count + b];
    if (known.first < 0) {
      const auto layout = [&](OpId reader, std::size_t at) {
        return parameter_layout(parameter_of_[op], reader, choices_[unit(reader)][at].ops[position_[reader]].second);
      };
      const Layout one = layout(shared.first, a), two = layout(shared.second, b);
      known = {transferred(two, one, DType::F32), transferred(one, two, DType::F32)};
    }
    return known;
  }

  void branch(std::size_t unit, unsigned used) {
    if (nodes_ >= most_nodes_) return;
    if (unit == choices_.size()) return leaf();
    std::vector<std::pair<Picoseconds, const Choice*>> order;
    for (const Choice& choice : choices_[unit]) {
      // New devices come in ascending order: the union is a prefix again.
      const unsigned all = used | choice.devices;
      if ((all & (all + 1)) != 0) continue;
      ++nodes_;
      chosen_[unit] = &choice;
      const Picoseconds least = bound(unit + 1);
      if (least < best_) order.emplace_back(least, &choice);
    }
    std::stable_sort(order.begin(), order.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    for (const auto& [least, choice] : order) {
      if (least >= best_) break;
      if (nodes_ >= most_nodes_) {
        open_ = std::min(open_, least);
        return;
      }
      chosen_[unit] = choice;
      branch(unit + 1, used | choice->devices);
    }
  }

  void leaf() {
    ++leaves_;
    const SoapStrategy strategy = chosen();
    const Result<SoapJudgement> judged = judge(problem_, strategy);
    if (!judged.ok()) return;
    WEFT_CHECK(judged->fifo >= bound(choices_.size()), "the bound is one");
    improve(judged->fifo, strategy);
  }
  // Whether the bound is one: of any strategies, simulated, no prefix may be said to take longer. Half of them have
  // one configuration for all operators alike, as good ones do; the others change some units of the last.
  void check(std::int64_t strategies) {
    Rng rng(1);
    double closest = 0;
    std::int64_t played = 0;
    std::vector<std::size_t> now(choices_.size(), 0);
    for (std::int64_t i = 0; i < strategies; ++i) {
      if (i % 8 == 0) {
        std::map<SignatureId, std::size_t> alike;
        for (std::size_t u = 0; u < choices_.size(); ++u) {
          const SignatureId signature = graph_.ops()[proposals_.units()[u].front()].signature;
          now[u] = alike.try_emplace(signature, rng.below(choices_[u].size())).first->second;
        }
      } else {
        const std::size_t u = rng.below(choices_.size());
        now[u] = rng.below(choices_[u].size());
      }
      for (std::size_t u = 0; u < choices_.size(); ++u) chosen_[u] = &choices_[u][now[u]];
      const Result<SoapJudgement> judged = judge(problem_, chosen());
      if (!judged.ok()) continue;
      ++played;
      for (std::size_t u = 0; u <= choices_.size(); ++u) {
        const Picoseconds least = bound(u);
        WEFT_CHECK(least <= judged->fifo, "the bound of {} units is {} us, the strategy takes {} us", u, us(least),
                   us(judged->fifo));
        if (u == choices_.size())
          closest = std::max(closest, static_cast<double>(least) / static_cast<double>(judged->fifo));
      }
    }
    fmt::print("bound checked on {} strategies: at most {:.4f} of the time\n", played, closest);
  }
  SoapStrategy chosen() const {
    SoapStrategy strategy{"", meshes_.meshes(), IdVec<OpId, OpConfig>(training_.first_backward.index()), {}};
    for (const Choice* choice : chosen_)
      for (const auto& [op, config] : choice->ops) strategy.ops[op] = config;
    return strategy;
  }
  void improve(Picoseconds time, const SoapStrategy& strategy) {
    if (time >= best_) return;
    best_ = time;
    best_ops_.clear();
    for (OpId op : strategy.ops.ids()) best_ops_.emplace_back(op, strategy.ops[op]);
    fmt::print("  {:.3f} us after {} nodes, {} leaves\n", us(time), nodes_, leaves_);
    std::fflush(stdout);
  }

  const TrainingGraph& training_;
  const Graph& graph_;
  const SoapProblem problem_;
  const Proposals proposals_;
  SoapMeshes meshes_;
  std::vector<std::vector<Choice>> choices_;  // by unit
  std::vector<const Choice*> chosen_;
  IdVec<OpId, int> unit_of_;
  IdVec<OpId, std::size_t> position_;
  IdVec<OpId, OpId> runs_with_;
  IdVec<OpId, TensorId> parameter_of_;  // of accumulations and steps
  // Of accumulations and steps of a parameter that two operators read.
  struct Shared {
    OpId first, second;
    OpId accumulates_first, accumulates_second;
  };
  IdVec<OpId, std::optional<Shared>> shared_;
  IdVec<OpId, std::vector<Picoseconds>> times_, sums_, rates_;  // by choice
  IdVec<OpId, std::vector<std::pair<Picoseconds, Picoseconds>>> tied_;
  std::vector<Picoseconds> left_;
  IdVec<OpId, std::vector<std::vector<Picoseconds>>> moves_;  // by input and both choices; −1: not known yet
  IdVec<OpId, Picoseconds> least_;
  IdVec<OpId, Picoseconds> end_;  // of the bound being found
  Picoseconds best_ = 0, open_ = std::numeric_limits<Picoseconds>::max();
  std::vector<OpChange> best_ops_;
  std::int64_t nodes_ = 0, most_nodes_ = 0, leaves_ = 0;
};

int run(const std::string& what, std::int64_t nodes, std::int64_t evaluations, std::int64_t checks) {
  const Cluster cluster = parse_cluster("p100x4:1").value();
  const TrainingGraph training =
      make_training_graph(
          build_model(what == "lenet" ? "lenet" : "rnnlm:seq=2", {.batch = 64 * kDevices, .dtype = DType::F32}).value(),
          {.optimizer = OptimizerKind::Momentum, .master_weights = false, .clip_norm = std::nullopt})
          .value();
  SoftwareStack stack = without_host_time(find_stack("pytorch-ddp").value());
  stack.p2p_overlap.value = true;
  stack.tensor_overlap.value = true;
  const AnalyticCost cost(stack);
  const double start = cpu_seconds();
  const SoapOutcome walked =
      search_soap(training, cluster, cost, stack, {.budget = {.evaluations = evaluations}}).value();
  for (const SoapCandidate& candidate : walked.candidates)
    if (candidate.judged) fmt::print("{}: {:.3f} us\n", candidate.name, us(candidate.judged->fifo));
  fmt::print("MCMC: {:.3f} us, {} simulated, {:.1f} CPU s\n", us(walked.judged.fifo), walked.counts.simulated,
             cpu_seconds() - start);
  Search search(training, cluster, cost, stack);
  std::vector<OpChange> found;
  for (OpId op : walked.strategy.ops.ids()) found.emplace_back(op, walked.strategy.ops[op]);
  search.print(found, walked.strategy.meshes);
  search.run(walked.judged.fifo, nodes, checks);
  return 0;
}

}  // namespace
}  // namespace weft

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "lenet";
  std::int64_t nodes = 50'000'000, evaluations = 20'000, checks = 2'000;
  for (int i = 2; i + 1 < argc; i += 2) {
    if (std::string(argv[i]) == "--nodes") nodes = std::atoll(argv[i + 1]);
    if (std::string(argv[i]) == "--evaluations") evaluations = std::atoll(argv[i + 1]);
    if (std::string(argv[i]) == "--checks") checks = std::atoll(argv[i + 1]);
  }
  return weft::run(what, nodes, evaluations, checks);
}
