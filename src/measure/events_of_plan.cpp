#include "measure/events_of_plan.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "cost/analytic.h"
#include "cost/measured_points.h"
#include "price/instruction_pricer.h"

namespace weft {
namespace {

// What tells two events apart: of a computation what the measured cost model interpolates over, of a communication its
// traffic, members, nodes, the most of a node, and bytes.
struct EventKey {
  OperatorFamily family = {};
  std::vector<std::int64_t> sizes = {};
  std::string traffic = {};

  auto operator<=>(const EventKey&) const = default;
};

EventKey key_of(const Event& communication) {
  return {{},
          {communication.members, communication.nodes, communication.most_per_node, communication.bytes},
          communication.op};
}

EventKey key_of(const ComputeQuery& query) {
  PlacedShape placed = place(query);
  return {std::move(placed.family), std::move(placed.sizes), {}};
}

Result<EventKey> key_of_any(const Event& event) {
  if (is_communication(event)) return key_of(event);
  WEFT_TRY(const Signature signature, signature_of(event));
  WEFT_TRY(const AxisSlices slices, slices_of(event, signature));
  std::vector<std::int64_t> extents;
  for (const AxisSlice& slice : slices) extents.push_back(slice.size());
  return key_of(
      ComputeQuery{.signature = &signature, .extents = extents, .arithmetic = measured_arithmetic(event.dtype)});
}

// The events of a program's instructions.
class EventsOfProgram {
 public:
  EventsOfProgram(const Program& program, const Graph& graph, const Plan& plan)
      : program_(program),
        graph_(graph),
        cost_(plan.stack(), plan.job->tuning),
        pricer_(program, graph, plan.cluster(), cost_, plan.stack()),
        cluster_(plan.cluster()) {}

  // What the device at a position of its mesh does; none: it takes no time, or is not measured.
  struct Keyed {
    EventKey key;
    Event event;
  };
  std::optional<Keyed> at(const Instruction& instruction, int position) {
    const Mesh& mesh = program_.meshes[instruction.mesh];
    const DeviceId device = mesh.devices()[static_cast<std::size_t>(position)];
    if (const auto* compute = std::get_if<Compute>(&instruction.what)) {
      if (pricer_.compute_cost(*compute, mesh, position).time == 0) return std::nullopt;
      const Signature& signature = graph_.signature(compute->op);
      const OpId forward = graph_.ops()[compute->op].forward;
      const AxisSlices slices = axis_slices(signature, compute->sharding, mesh, position);
      return computation(forward.valid() ? graph_.signature(forward) : signature, signature, slices, compute->products);
    } else if (const auto* combine = std::get_if<Combine>(&instruction.what)) {
      if (pricer_.combine_cost(*combine, mesh, cluster_.spec(device)).time == 0) return std::nullopt;
      const Signature sum = pricer_.combine_signature(*combine, mesh);
      return computation(sum, sum, whole_axes(sum), {});
    } else if (const KindId kind = pricer_.communications().kind_of(instruction); kind.valid()) {
      return communication(instruction, pricer_.group_of(instruction, kind, device, position));
    }
    return std::nullopt;
  }

 private:
  Keyed computation(const Signature& forward, const Signature& signature, const AxisSlices& slices,
                    std::optional<Arithmetic> products) {
    std::vector<std::int64_t> extents;
    for (const AxisSlice& slice : slices) extents.push_back(slice.size());
    Event event = event_of(forward, signature, slices);
    event.dtype = products && !signature.contractions.empty() ? std::string(name(*products))
                  : signature.inputs.empty()                  ? ""
                                                              : std::string(name_of(signature.inputs[0].dtype));
    return {key_of(ComputeQuery{.signature = &signature, .extents = extents, .arithmetic = products}),
            std::move(event)};
  }

  std::optional<Keyed> communication(const Instruction& instruction, CommGroupId id) {
    if (!id.valid()) return std::nullopt;
    const CommGroup& group = pricer_.communications().groups()[id];
    const Communicator& communicator = pricer_.communications().communicators()[group.prototype];
    const Payload payload = pricer_.communications().payload_of(instruction, group);
    if (communicator.routes.empty() || payload.bytes == 0 || payload.parts == Parts::Grouped) return std::nullopt;
    Event event{.op = std::string(name_of(communicator.traffic)),
                .dtype = std::string(name_of(sent_by(instruction))),
                .bytes = payload.bytes,
                .members = static_cast<std::int64_t>(communicator.members.size()),
                .nodes = communicator.nodes,
                .most_per_node = communicator.most_per_node};
    if (communicator.traffic == Traffic::Transfer && event.members != 2)
      return std::nullopt;  // moves of many blocks at once
    return Keyed{key_of(event), event};
  }

  DType sent_by(const Instruction& instruction) const {
    if (const auto* communicate = std::get_if<Communicate>(&instruction.what))
      return sent_type(program_, graph_, *communicate, communicate->inputs[0]);
    const auto type = [&](BufferId buffer) { return stored_type(program_, graph_, buffer); };
    if (const auto* copy = std::get_if<Copy>(&instruction.what)) return type(copy->from);
    const auto* send = std::get_if<Send>(&instruction.what);
    return type(program_.transfers[send ? send->transfer : std::get<Receive>(instruction.what).transfer].from);
  }

  const Program& program_;
  const Graph& graph_;
  const AnalyticCost cost_;
  InstructionPricer pricer_;
  const Cluster& cluster_;
};

void collect(const Program& program, const Graph& graph, const Plan& plan, std::map<EventKey, EventUse>& found) {
  EventsOfProgram events(program, graph, plan);
  for (const Instruction& instruction : program.instructions) {
    std::set<EventKey> counted;  // of this instruction
    for (int position = 0; position < program.meshes[instruction.mesh].size(); ++position)
      if (auto here = events.at(instruction, position)) {
        EventUse& use = found.try_emplace(here->key, EventUse{std::move(here->event), 0}).first->second;
        if (counted.insert(here->key).second) ++use.instructions;
      }
  }
}

std::vector<EventUse> in_order(std::map<EventKey, EventUse>&& found) {
  std::vector<EventUse> uses;
  for (auto& [key, use] : found) uses.push_back(std::move(use));
  std::sort(uses.begin(), uses.end(), [](const EventUse& a, const EventUse& b) {
    return std::pair(is_communication(a.event), a.event) < std::pair(is_communication(b.event), b.event);
  });
  return uses;
}

}  // namespace

Result<std::vector<EventUse>> events_of(const Plan& plan) {
  WEFT_TRY(const CompiledStrategy compiled, compile_plan(plan));
  std::map<EventKey, EventUse> found;
  collect(compiled.program, plan.graph(), plan, found);
  if (compiled.last && plan.model->last) collect(*compiled.last, plan.model->last->graph, plan, found);
  return in_order(std::move(found));
}

namespace {

constexpr std::size_t kWarmUp = 2;  // steps

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace

std::vector<MeasuredEvent> played_events(const Plan& plan, const CompiledStrategy& compiled, DeviceId device,
                                         const runtime::RankTimeline& timeline) {
  struct Times {
    Event event;
    std::vector<double> means;  // by step
  };
  std::map<EventKey, Times> found;
  EventsOfProgram most(compiled.program, plan.graph(), plan);
  std::optional<EventsOfProgram> last;
  if (compiled.last && plan.model->last) last.emplace(*compiled.last, plan.model->last->graph, plan);
  const std::size_t first = timeline.steps.size() > kWarmUp + 1 ? kWarmUp : 0;
  for (std::size_t s = first; s < timeline.steps.size(); ++s) {
    std::map<EventKey, std::pair<double, std::int64_t>> sums;  // seconds and instructions of this step
    for (const runtime::IssuedInstruction& issued : timeline.steps[s].issued) {
      const bool smaller = last && issued.micro_batch + 1 == compiled.schedule.micro_batches;
      const Program& program = smaller ? *compiled.last : compiled.program;
      const Instruction& instruction = program.instructions[issued.instruction];
      if (!std::holds_alternative<Compute>(instruction.what) && !std::holds_alternative<Combine>(instruction.what))
        continue;
      auto here = (smaller ? *last : most).at(instruction, program.meshes[instruction.mesh].position_of(device));
      if (!here) continue;
      auto& [seconds, count] = sums[here->key];
      seconds += static_cast<double>(issued.end - issued.begin) * 1e-9;
      ++count;
      found.try_emplace(here->key, Times{std::move(here->event), {}});
    }
    for (const auto& [key, sum] : sums) found.at(key).means.push_back(sum.first / static_cast<double>(sum.second));
  }
  std::vector<MeasuredEvent> samples;
  for (auto& [key, times] : found) {
    Sample sample;
    sample.mean_s = std::max(median(times.means), 1e-9);
    double squares = 0;
    for (double mean : times.means) squares += (mean - sample.mean_s) * (mean - sample.mean_s);
    sample.spread_s = std::sqrt(squares / static_cast<double>(times.means.size()));
    sample.count = static_cast<std::int64_t>(times.means.size());
    samples.push_back({std::move(times.event), {sample}});
  }
  return samples;
}

std::vector<EventUse> merged(const std::vector<std::vector<EventUse>>& lists) {
  std::map<EventKey, EventUse> found;
  for (const std::vector<EventUse>& list : lists)
    for (const EventUse& use : list) {
      const Result<EventKey> key = key_of_any(use.event);
      WEFT_CHECK(key.ok(), "{}: {}", use.event.op, key.error().message);
      found.try_emplace(*key, EventUse{use.event, 0}).first->second.instructions += use.instructions;
    }
  return in_order(std::move(found));
}

bool has_computation_of(const std::vector<EventUse>& events, const std::vector<EventUse>& others) {
  std::set<EventKey> keys;
  const auto computation = [](const EventUse& use) -> std::optional<EventKey> {
    const Result<EventKey> key = is_communication(use.event) ? error("none") : key_of_any(use.event);
    return key.ok() ? std::optional(*key) : std::nullopt;
  };
  for (const EventUse& use : others)
    if (auto key = computation(use)) keys.insert(std::move(*key));
  return std::any_of(events.begin(), events.end(), [&](const EventUse& use) {
    const auto key = computation(use);
    return key && keys.contains(*key);
  });
}

void drop_measured(std::vector<EventUse>& events, const std::vector<MeasuredEvent>& profile, std::string_view device,
                   std::string_view stack, std::int64_t runs) {
  std::set<EventKey> known;
  for (const MeasuredEvent& measured : profile) {
    if (measured.event.device != device || measured.event.stack != stack) continue;
    const Result<EventKey> key = key_of_any(measured.event);
    if (key.ok() && pooled(measured.samples).count >= runs) known.insert(*key);
  }
  std::erase_if(events, [&](const EventUse& use) {
    const Result<EventKey> key = key_of_any(use.event);
    return key.ok() && known.contains(*key);
  });
}

}  // namespace weft
