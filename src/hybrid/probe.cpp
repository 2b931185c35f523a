#include "hybrid/probe.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <unordered_map>

#include "base/check.h"
#include "cost/step_prices.h"
#include "forecast/forecast.h"
#include "forecast/memory.h"
#include "price/launches.h"
#include "strategy/layers.h"

namespace weft {
namespace {

constexpr int kMicroBatches = 3;  // of which the middle one is measured

// As many replicas as fill a node, as in the whole plan, and hold all experts.
std::int64_t replicas_of(const PlanProblem& problem, const BlockShape& shape) {
  const std::int64_t one = shape.tp * shape.cp;
  std::int64_t replicas = std::max<std::int64_t>(1, problem.per_node / one);
  if (replicas * shape.cp % shape.ep != 0) replicas = shape.ep / std::gcd(shape.ep, shape.cp);
  return replicas;
}

// The short model on as many devices as the shape takes.
std::shared_ptr<const TrainingJob> job_of(const PlanProblem& problem, const BlockShape& shape, std::int64_t replicas) {
  TrainingJob job = *problem.layers.short_job;
  job.words.global_batch = replicas * shape.micro_batch * kMicroBatches;
  job.devices.resize(static_cast<std::size_t>(replicas * shape.tp * shape.cp));
  for (std::size_t rank = 0; rank < job.devices.size(); ++rank)
    job.devices[rank] = problem.device_at(static_cast<std::int64_t>(rank)).index();
  return std::make_shared<const TrainingJob>(std::move(job));
}

Parallelism parallelism_of(const PlanProblem& problem, const BlockShape& shape, std::int64_t replicas) {
  HybridPlan plan;
  plan.tp = static_cast<std::int32_t>(shape.tp);
  plan.cp = static_cast<std::int32_t>(shape.cp);
  plan.ep = static_cast<std::int32_t>(shape.ep);
  plan.dp = static_cast<std::int32_t>(replicas);
  plan.micro_batch = static_cast<std::int32_t>(shape.micro_batch);
  plan.micro_batches = kMicroBatches;
  plan.sequence_parallel = shape.sequence_parallel;
  plan.recompute = shape.recompute;
  plan.cp_mode = shape.cp_mode;
  return parallelism_of(plan, problem.layers);
}

// Reads the costs from a simulated instance. Sections are numbered in the order of the network.
// Whether the host issues a kernel when the one before has ended: then its time adds to the device's.
bool waits_for_kernels(const SoftwareStack& stack) {
  return stack.blocking_launches.value || stack.host_computes.value;
}

class Reader {
 public:
  Reader(const PlanProblem& problem, const Plan& plan, PlayedPlan played)
      : problem_(problem),
        plan_(plan),
        played_(std::move(played)),
        listed_(problem.layers.short_sections),
        section_of_op_(graph().ops().size(), -1),
        section_of_tensor_(graph().tensors().size(), -1),
        expert_(graph().tensors().size(), 0),
        moments_(graph().tensors().size()),
        owner_(graph().tensors().size()),
        summed_(graph().tensors().size(), 0) {
    settle_sections();
    for (const auto& [parameter, sum] : plan.training().accumulated) owner_[graph().tensors()[sum].storage] = parameter;
    sections_.resize(listed_.size());
    differentiated_.resize(sections_.size(), 0);
  }

  BlockCosts run() {
    read_times();
    read_memory();
    read_kept();
    read_edges();
    BlockCosts costs;
    costs.kinds.resize(static_cast<std::size_t>(problem_.layers.section_kinds));
    // Sections of a kind differ slightly where devices wait for one another; the mean preserves their sum.
    std::vector<int> alike(costs.kinds.size(), 0);
    for (std::size_t i = 0; i < sections_.size(); ++i) {
      const auto kind = static_cast<std::size_t>(listed_[i].kind);
      SectionCost& of = costs.kinds[kind];
      const double forward = of.forward, backward = of.backward;
      of = std::move(sections_[i]);
      of.is_layer = listed_[i].is_layer;
      of.forward += forward;
      of.backward += backward;
      ++alike[kind];
    }
    for (std::size_t kind = 0; kind < costs.kinds.size(); ++kind) {
      costs.kinds[kind].forward /= std::max(1, alike[kind]);
      costs.kinds[kind].backward /= std::max(1, alike[kind]);
    }
    costs.step_fixed = step_fixed_;
    if (!plan_.stack().graph_capture.value)
      costs.host_per_update =
          plan_.stack().host_per_update.value.value * plan_.cluster().host_of(plan_.ranks().front());
    for (const Buffer& buffer : program().buffers)
      if (buffer.kind == BufferKind::Parameter) costs.axes = program().meshes[buffer.layout.mesh].axes();
    return costs;
  }

 private:
  const Graph& graph() const { return plan_.training().graph; }
  const Program& program() const { return played_.compiled.program; }

  // A forward operator belongs to its section, a backward operator to its forward operator's; a parameter and its state
  // belong to the section of the first operator that reads it.
  void settle_sections() {
    const Graph& of = graph();
    SectionKinds kinds;
    const Sections sections = find_sections(of, kinds);
    WEFT_CHECK(sections.list.size() == listed_.size(), "a short model with its sections");
    std::unordered_map<std::string, TensorId> parameters;
    for (OpId op : of.ops().ids()) {
      if (of.ops()[op].phase != Phase::Forward) break;
      section_of_op_[op] = sections.of[op];
      for (TensorId input : of.inputs(op)) {
        if (of.tensors()[input].kind != TensorKind::Parameter || section_of_tensor_[input] >= 0) continue;
        section_of_tensor_[input] = section_of_op_[op];
        expert_[input] = of.kind(op) == OpKind::ExpertLinear;
        parameters.emplace(of.name(input), input);
      }
    }
    for (TensorId id : of.tensors().ids()) {
      if (of.tensors()[id].kind != TensorKind::State) continue;
      const std::string name = of.name(id);  // "<parameter>_grad", "_master", "_m", "_v"
      const auto found = parameters.find(name.substr(0, name.rfind('_')));
      if (found == parameters.end()) continue;
      section_of_tensor_[id] = section_of_tensor_[found->second];
      expert_[id] = expert_[found->second];
    }
    for (OpId op : of.ops().ids()) {
      if (section_of_op_[op] >= 0) continue;
      if (const OpId forward = of.ops()[op].forward; forward.valid()) {
        section_of_op_[op] = section_of_op_[forward];
        continue;
      }
      for (TensorId input : of.inputs(op))
        if (const int section = section_of_tensor_[of.tensors()[input].storage]; section >= 0)
          section_of_op_[op] = section;
    }
  }

  int section_of(OpId op) const { return section_of_op_[op]; }
  // Seconds of the host to issue an operator or another kernel; where it waits for every one, they are in the times
  // played.
  double host_of(const Compute* compute) const {
    const SoftwareStack& stack = plan_.stack();
    if (stack.graph_capture.value || waits_for_kernels(stack)) return 0;
    const Seconds usual = compute ? host_time_of(graph(), compute->op, stack) : stack.host_per_collective.value;
    return usual.value * plan_.cluster().host_of(plan_.ranks().front());
  }
  // The section of a computation; −1: not a computation, or in no section.
  int section_of(InstructionId id) const {
    const auto* compute = std::get_if<Compute>(&program().instructions[id].what);
    return compute ? section_of(compute->op) : -1;
  }

  AgentId agent() const {
    for (AgentId id : played_.priced.agents.ids())
      if (played_.priced.agents[id].devices.front() == plan_.ranks().front()) return id;
    return AgentId(0);
  }

  // Records when parameters are read and when their gradients are ready.
  void note_parameters(const Compute& compute, const Span& span, bool backward) {
    const Graph& of = graph();
    const auto inputs = of.inputs(compute.op);
    if (of.kind(compute.op) == OpKind::Accumulate) {
      const TensorId parameter = owner_[of.tensors()[inputs.front()].storage];
      if (!parameter.valid()) return;
      moments_[parameter].ready = std::max(moments_[parameter].ready, span.start);
      const Layout& sum = program().buffers[compute.inputs.front()].layout;
      const int tensor = program().meshes[sum.mesh].axis_named("tp");
      moments_[parameter].summed_over_tp = tensor >= 0 && sum.partial[static_cast<std::size_t>(tensor)].has_value();
      return;
    }
    for (TensorId input : inputs) {
      if (of.tensors()[input].kind != TensorKind::Parameter || section_of_tensor_[input] < 0) continue;
      Moments& moments = moments_[input];
      if (moments.use[backward] < 0) moments.use[backward] = span.start;
      moments.done[backward] = std::max(moments.done[backward], span.end);
    }
  }

  void note_communication(const Task& task, const Span& span, int section, bool backward) {
    const Workload& workload = played_.priced.workload;
    const WorkId id = task.meeting.valid() ? workload.meetings[task.meeting].work : task.work;
    if (!id.valid()) return;
    const Work& work = workload.works[id];
    const double moving = seconds_of(span.end - span.work - work.fixed);
    if (work.links.empty() || moving <= 0) return;
    LinkLoads loads;
    for (const LinkUse& use : work.links) {
      const FlowLink& link = workload.links[use.link];
      const double load =
          static_cast<double>(use.coefficient) / static_cast<double>(kOne) * static_cast<double>(work.bytes) / moving;
      if (link.capacity > 0) loads.push_back({LinkId(link.label), load / static_cast<double>(link.capacity)});
    }
    SectionCost& of = at(section);
    const auto same = [&](const LinkLoads& each) { return alike(each, loads); };
    const auto known = std::find_if(of.loads.begin(), of.loads.end(), same);
    const auto index = static_cast<std::size_t>(known - of.loads.begin());
    if (known == of.loads.end()) of.loads.push_back(std::move(loads));
    (backward ? of.backward_communication : of.forward_communication)
        .push_back({seconds_of(span.work), seconds_of(span.end - span.work), index});
  }

  void read_times() {
    const AgentId id = agent();
    const Agent& agent = played_.priced.workload.agents[id];
    const Timeline timeline(played_.priced.workload, played_.run);
    // Bodies in order: F0 B0 F1 B1 F2 B2 step.
    constexpr std::uint32_t kForward = 2, kBackward = 3, kStep = 2 * kMicroBatches;
    std::vector<Picoseconds> play_end(kStep + 1, 0);
    std::vector<Picoseconds> section_end[2];
    std::vector<Picoseconds> last_end(sections_.size(), 0);  // backward, collectives too
    current_[1] = last_section();
    for (auto& ends : section_end) ends.assign(sections_.size(), 0);
    timeline.for_each(id, [&](const Span& span) {
      const Instruction& instruction = program().instructions[InstructionId(span.instruction)];
      if (instruction.stream == Stream::Data || span.play > kStep) return;
      play_end[span.play] = std::max(play_end[span.play], span.end);
      const bool backward = span.play == kBackward, looked_at = backward || span.play == kForward;
      int& current = current_[backward];  // a collective belongs to the computation before it
      const int section = section_of(InstructionId(span.instruction));
      if (looked_at) {
        if (section >= 0) current = section;
        // In backward, a section's last collective counts in the next section, which waits for it or recomputes during
        // it.
        Picoseconds& end = section_end[backward][static_cast<std::size_t>(current)];
        if (!backward || section >= 0) end = std::max(end, span.end);
        if (backward) {
          Picoseconds& last = last_end[static_cast<std::size_t>(current)];
          last = std::max(last, span.end);
        }
      }
      const Task& task = agent.tasks[span.task];
      const auto* compute = std::get_if<Compute>(&instruction.what);
      if (looked_at && compute) note_parameters(*compute, span, backward);
      if (looked_at && (task.work.valid() || task.meeting.valid()))
        (backward ? at(current).host_backward : at(current).host_forward) += host_of(compute);
      if (looked_at) note_communication(task, span, current, backward);
      if (!task.work.valid()) return;
      const Work& work = played_.priced.workload.works[task.work];
      if (is_communication(work)) return;
      if (span.play == kStep) {
        if (section < 0) {
          step_fixed_ += std::max(seconds_of(work.fixed), host_of(compute));
        } else {
          at(section).optimizer += seconds_of(work.fixed);
          ++at(section).optimizer_operators;
        }
        return;
      }
      if (!looked_at) return;
      const int own = current;
      const ComputeShare share{seconds_of(work.fixed), work.sm_share, work.memory_share, work.waves};
      if (span.play == kForward) {
        at(own).compute_forward += share.time;
        at(own).forward_shares.push_back(share);
      } else {
        at(own).compute_backward += share.time;
        at(own).backward_shares.push_back(share);
        if (instruction.weight_part) at(own).backward_weight += share.time;
        const bool again = compute && graph().ops()[compute->op].phase == Phase::Forward;
        if (!again) differentiated_[static_cast<std::size_t>(own)] = 1;
        if (again && !differentiated_[static_cast<std::size_t>(own)]) at(own).recompute_head += share.time;
        if (compute && graph().kind(compute->op) == OpKind::Accumulate) {
          const TensorId sum = graph().tensors()[graph().inputs(compute->op).front()].storage;
          if (!std::exchange(summed_[sum], 1)) {
            at(own).accumulate += share.time;
            at(own).host_accumulate += host_of(compute);
          }
        }
      }
    });
    // Where one section ends the next begins.
    Picoseconds from = play_end[kForward - 1];
    for (std::size_t s = 0; s < sections_.size(); ++s) {
      const Picoseconds to = s + 1 == sections_.size() ? play_end[kForward] : std::max(from, section_end[0][s]);
      sections_[s].forward = seconds_of(to - from);
      began_[0].push_back(from);
      for (CommunicationSpan& each : sections_[s].forward_communication) each.start -= seconds_of(from);
      from = to;
    }
    from = play_end[kBackward - 1];
    for (std::size_t s = sections_.size(); s-- > 0;) {
      const Picoseconds to = s == 0 ? std::max(from, play_end[kBackward]) : std::max(from, section_end[1][s]);
      sections_[s].backward = seconds_of(to - from);
      began_[1].insert(began_[1].begin(), from);
      for (CommunicationSpan& each : sections_[s].backward_communication) each.start -= seconds_of(from);
      from = to;
    }
    // A layer waits for the last collective of the section above, except while it has something to recompute. In the
    // probe that may be another kind of section; in the whole network it is mostly a layer of its own kind.
    const auto waits_for = [&](std::size_t above, const SectionCost& layer) {
      return std::max(0.0, seconds_of(last_end[above] - section_end[1][above]) - layer.recompute_head);
    };
    for (std::size_t s = 0; s + 1 < sections_.size(); ++s)
      if (listed_[s].is_layer)
        sections_[s].backward =
            std::max(sections_[s].compute_backward,
                     sections_[s].backward + waits_for(s, sections_[s]) - waits_for(s + 1, sections_[s]));
  }

  // Two micro-batches that are neither first nor last: one with a whole backward pass, one with a split one.
  void read_memory() {
    Schedule& schedule = played_.compiled.schedule;
    schedule.micro_batches = 4;
    schedule.route_of.assign(4, 0);
    schedule.actions.front() = {{Body::Forward, 1},
                                {Body::Backward, 1},
                                {Body::Forward, 2},
                                {Body::BackwardInput, 2},
                                {Body::BackwardWeight, 2}};
    const std::vector<MemoryClass> classes = memory_classes(played_.compiled, plan_.cluster(), plan_.ranks());
    const MemoryOfClass memory(played_.compiled, plan_.training(), plan_.stack(), classes.front());
    read_body(memory, 0, &SectionCost::most_forward, &SectionCost::net_forward);
    read_body(memory, 1, &SectionCost::most_backward, nullptr);
    read_body(memory, 3, &SectionCost::most_input, &SectionCost::net_input);
    read_body(memory, 4, &SectionCost::most_weight, nullptr);
  }

  void read_body(const MemoryOfClass& memory, std::size_t play, std::int64_t SectionCost::*most,
                 std::int64_t SectionCost::*left) {
    const BodyMemory& body = memory.body(play);
    const std::vector<InstructionId>& instructions = memory.instructions(play);
    int section = play == 0 ? 0 : last_section();
    std::vector<std::int64_t> net(sections_.size(), 0);
    std::size_t change = 0;
    for (std::size_t position = 0; position < instructions.size(); ++position) {
      if (const int own = section_of(instructions[position]); own >= 0) section = own;
      std::int64_t& held = net[static_cast<std::size_t>(section)];
      for (; change < body.changes.size() && body.changes[change].position == position; ++change) {
        held += body.changes[change].bytes;
        at(section).*most = std::max(at(section).*most, held);
      }
    }
    if (left)
      for (std::size_t s = 0; s < sections_.size(); ++s) sections_[s].*left = net[s];
  }

  void read_kept() {
    IdVec<TensorId, std::optional<DType>> gradient_type(graph().tensors().size());
    IdVec<TensorId, char> gradient(graph().tensors().size(), 0);
    for (const auto& [parameter, sum] : plan_.training().accumulated) {
      gradient[graph().tensors()[sum].storage] = 1;
      gradient_type[parameter] = graph().tensors()[sum].type.dtype;
    }
    // In the order of the graph, which is the same for all shapes.
    std::vector<BufferId> buffers;
    for (BufferId id : program().buffers.ids()) {
      const Buffer& buffer = program().buffers[id];
      if (buffer.memory == id && (buffer.kind == BufferKind::Parameter || buffer.kind == BufferKind::State))
        buffers.push_back(id);
    }
    std::stable_sort(buffers.begin(), buffers.end(),
                     [&](BufferId a, BufferId b) { return program().buffers[a].tensor < program().buffers[b].tensor; });
    const NumberTypes types = number_types(plan_.job->precision, plan_.stack());
    const IdVec<TensorId, double> narrow = narrow_copies(program(), graph(), plan_.stack());
    for (BufferId id : buffers) {
      const Buffer& buffer = program().buffers[id];
      const Tensor& tensor = graph().tensors()[buffer.tensor];
      const std::int64_t elements = largest_local_elements(buffer.layout, program().meshes[buffer.layout.mesh]);
      const std::int64_t bytes = bytes_of(tensor.type.dtype, elements);
      const int section = section_of_tensor_[buffer.tensor];
      SectionCost& of = at(section < 0 ? 0 : section);
      const bool expert = expert_[buffer.tensor] != 0;
      KeptBytes& kept = expert ? of.expert : of.dense;
      if (buffer.kind == BufferKind::Parameter) {
        kept.parameters += bytes + static_cast<std::int64_t>(static_cast<double>(elements) * narrow[buffer.tensor]);
        (expert ? of.stored_expert_elements : of.stored_elements) += elements;
        if (section < 0) continue;
        ParameterCost& made = add_parameter(buffer, of);
        made.elements = elements;
        made.weights = bytes;
        made.gathered = gathered_weight_type(types, graph(), buffer.tensor);
        made.trained = gradient_type[buffer.tensor].has_value();
        if (made.trained) made.gradients = bytes_of(*gradient_type[buffer.tensor], elements);
      } else {
        (gradient[buffer.tensor] ? kept.gradients : kept.optimizer) += bytes;
      }
    }
  }

  ParameterCost& add_parameter(const Buffer& buffer, SectionCost& of) {
    const auto section = static_cast<std::size_t>(section_of_tensor_[buffer.tensor]);
    const Moments& moments = moments_[buffer.tensor];
    ParameterCost& made = of.parameters.emplace_back();
    made.layout = buffer.layout;
    made.summed_over_tp = moments.summed_over_tp;
    made.used_backward = moments.use[1] >= 0;
    const auto since = [&](Picoseconds moment, bool backward, double never) {
      const double takes = backward ? of.backward : of.forward;
      return moment < 0 ? never : std::clamp(seconds_of(moment - began_[backward][section]), 0.0, takes);
    };
    made.forward_use = since(moments.use[0], false, 0);
    made.backward_use = since(moments.use[1], true, 0);
    made.backward_ready = since(moments.ready, true, of.backward);
    of.forward_done = std::max(of.forward_done, since(moments.done[0], false, 0));
    of.backward_done = std::max(of.backward_done, since(moments.done[1], true, 0));
    return made;
  }

  // Bytes of what sections read of earlier ones, on one device.
  void read_edges() {
    const auto memory_of = [&](TensorId tensor) { return graph().tensors()[tensor].storage; };
    IdVec<TensorId, std::vector<int>> readers_of(graph().tensors().size());
    for (OpId op : graph().ops().ids()) {
      if (graph().ops()[op].phase != Phase::Forward) break;
      for (TensorId input : graph().inputs(op))
        if (std::vector<int>& list = readers_of[memory_of(input)]; list.empty() || list.back() != section_of(op))
          list.push_back(section_of(op));
    }
    IdVec<TensorId, char> seen(graph().tensors().size(), 0);
    for (InstructionId id : program().stages.front().forward) {
      const auto* compute = std::get_if<Compute>(&program().instructions[id].what);
      const int made = compute ? section_of(compute->op) : -1;
      if (made < 0 || graph().ops()[compute->op].phase != Phase::Forward) continue;
      for (BufferId output : compute->outputs) {
        const TensorId tensor = memory_of(program().buffers[output].tensor);
        if (std::exchange(seen[tensor], 1)) continue;
        const Layout& layout = program().buffers[output].layout;
        const std::int64_t bytes = bytes_of(stored_type(program(), graph(), output),
                                            largest_local_elements(layout, program().meshes[layout.mesh]));
        for (int reader : readers_of[tensor]) {
          if (reader == made + 1)
            at(made).sent_bytes += bytes;
          else if (reader > made)
            at(reader).reads.push_back({listed_[static_cast<std::size_t>(made)].kind, bytes});
        }
      }
    }
  }

  int last_section() const { return static_cast<int>(sections_.size()) - 1; }
  SectionCost& at(int section) { return sections_[static_cast<std::size_t>(section)]; }

  const PlanProblem& problem_;
  const Plan& plan_;
  PlayedPlan played_;
  const std::vector<Section>& listed_;  // as sections_
  IdVec<OpId, int> section_of_op_;
  IdVec<TensorId, int> section_of_tensor_;  // of parameters and their state
  IdVec<TensorId, char> expert_;
  std::vector<SectionCost> sections_;
  struct Moments {
    Picoseconds use[2] = {-1, -1}, done[2] = {-1, -1}, ready = -1;  // −1: never
    bool summed_over_tp = false;
  };
  IdVec<TensorId, Moments> moments_;   // of parameters
  IdVec<TensorId, TensorId> owner_;    // by gradient: its parameter
  IdVec<TensorId, char> summed_;       // by gradient: whether its first term was added
  std::vector<Picoseconds> began_[2];  // by section, forward and backward
  std::vector<char> differentiated_;   // by section: whether its first gradient operator has been seen
  double step_fixed_ = 0;
  int current_[2] = {0, 0};  // current section in the forward and in the backward pass
};

}  // namespace

Result<BlockCosts> probe_block(const PlanProblem& problem, const CostModel& cost, const BlockShape& shape,
                               GraphCache& graphs) {
  const std::int64_t replicas = replicas_of(problem, shape);
  WEFT_TRY(const Plan plan, make_plan(job_of(problem, shape, replicas),
                                      choose_strategy(parallelism_of(problem, shape, replicas)), &graphs));
  const StepPrices prices(plan.cluster(), cost, plan.stack().uneven_parts.value);
  WEFT_TRY(CompiledStrategy compiled, compile_plan(plan, &prices, shape.split_backward));
  WEFT_TRY(PlayedPlan played,
           play_plan(plan, std::move(compiled), cost, {.record = true, .host = waits_for_kernels(plan.stack())}));
  return Reader(problem, plan, std::move(played)).run();
}

}  // namespace weft
