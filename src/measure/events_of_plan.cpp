#include "measure/events_of_plan.h"

#include <algorithm>
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

class Collecting {
 public:
  Collecting(const Program& program, const Graph& graph, const Plan& plan, std::map<EventKey, EventUse>& found)
      : program_(program),
        graph_(graph),
        cost_(plan.stack(), plan.job->tuning),
        pricer_(program, graph, plan.cluster(), cost_, plan.stack()),
        cluster_(plan.cluster()),
        found_(found) {}

  void run() {
    for (InstructionId id : program_.instructions.ids()) {
      const Instruction& instruction = program_.instructions[id];
      counted_.clear();
      const Mesh& mesh = program_.meshes[instruction.mesh];
      for (int position = 0; position < mesh.size(); ++position) collect(instruction, mesh, position);
    }
  }

 private:
  void collect(const Instruction& instruction, const Mesh& mesh, int position) {
    const DeviceId device = mesh.devices()[static_cast<std::size_t>(position)];
    if (const auto* compute = std::get_if<Compute>(&instruction.what)) {
      if (pricer_.compute_cost(*compute, mesh, position).time == 0) return;
      const Signature& signature = graph_.signature(compute->op);
      const OpId forward = graph_.ops()[compute->op].forward;
      const AxisSlices slices = axis_slices(signature, compute->sharding, mesh, position);
      computation(forward.valid() ? graph_.signature(forward) : signature, signature, slices, compute->products);
    } else if (const auto* combine = std::get_if<Combine>(&instruction.what)) {
      if (pricer_.combine_cost(*combine, mesh, cluster_.spec(device)).time == 0) return;
      const Signature sum = pricer_.combine_signature(*combine, mesh);
      computation(sum, sum, whole_axes(sum), {});
    } else if (const KindId kind = pricer_.communications().kind_of(instruction); kind.valid()) {
      communication(instruction, pricer_.group_of(instruction, kind, device, position));
    }
  }

  void computation(const Signature& forward, const Signature& signature, const AxisSlices& slices,
                   std::optional<Arithmetic> products) {
    std::vector<std::int64_t> extents;
    for (const AxisSlice& slice : slices) extents.push_back(slice.size());
    Event event = event_of(forward, signature, slices);
    event.dtype = products && !signature.contractions.empty() ? std::string(name(*products))
                  : signature.inputs.empty()                  ? ""
                                                              : std::string(name_of(signature.inputs[0].dtype));
    add(key_of(ComputeQuery{.signature = &signature, .extents = extents, .arithmetic = products}), std::move(event));
  }

  void communication(const Instruction& instruction, CommGroupId id) {
    if (!id.valid()) return;
    const CommGroup& group = pricer_.communications().groups()[id];
    const Communicator& communicator = pricer_.communications().communicators()[group.prototype];
    const Payload payload = pricer_.communications().payload_of(instruction, group);
    if (communicator.routes.empty() || payload.bytes == 0 || payload.parts == Parts::Grouped) return;
    Event event{.op = std::string(name_of(communicator.traffic)),
                .dtype = std::string(name_of(sent_by(instruction))),
                .bytes = payload.bytes,
                .members = static_cast<std::int64_t>(communicator.members.size()),
                .nodes = communicator.nodes,
                .most_per_node = communicator.most_per_node};
    if (communicator.traffic == Traffic::Transfer && event.members != 2) return;  // moves of many blocks at once
    const EventKey key = key_of(event);
    add(key, std::move(event));
  }

  DType sent_by(const Instruction& instruction) const {
    if (const auto* communicate = std::get_if<Communicate>(&instruction.what))
      return sent_type(program_, graph_, *communicate, communicate->inputs[0]);
    const auto type = [&](BufferId buffer) { return graph_.tensors()[program_.buffers[buffer].tensor].type.dtype; };
    if (const auto* copy = std::get_if<Copy>(&instruction.what)) return type(copy->from);
    const auto* send = std::get_if<Send>(&instruction.what);
    return type(program_.transfers[send ? send->transfer : std::get<Receive>(instruction.what).transfer].from);
  }

  void add(const EventKey& key, Event event) {
    EventUse& use = found_.try_emplace(key, EventUse{std::move(event), 0}).first->second;
    if (counted_.insert(key).second) ++use.instructions;
  }

  const Program& program_;
  const Graph& graph_;
  const AnalyticCost cost_;
  InstructionPricer pricer_;
  const Cluster& cluster_;
  std::map<EventKey, EventUse>& found_;
  std::set<EventKey> counted_;  // of the instruction at hand
};

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
  Collecting(compiled.program, plan.graph(), plan, found).run();
  if (compiled.last && plan.model->last) Collecting(*compiled.last, plan.model->last->graph, plan, found).run();
  return in_order(std::move(found));
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
