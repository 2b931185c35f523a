#include "price/price.h"

#include <algorithm>
#include <bit>
#include <map>

#include "base/check.h"
#include "price/communications.h"
#include "price/folding.h"

namespace weft {
namespace {

Picoseconds picoseconds(Seconds time) { return static_cast<Picoseconds>(time.value * 1e12 + 0.5); }

class Pricer {
 public:
  Pricer(const Program& program, const Schedule& schedule, const TrainingGraph& training, const Cluster& cluster,
         const CostModel& cost, const SoftwareStack& stack, const PriceOptions& options)
      : program_(program),
        schedule_(schedule),
        graph_(training.graph),
        cluster_(cluster),
        cost_(cost),
        stack_(stack),
        options_(options),
        world_(program.meshes[program.world]),
        communications_(program, training.graph, cluster, cost, {options.sent_gradients, options.sent_parameters}),
        rank_of_(program.meshes.size(), -1),
        kind_of_(program.instructions.size()),
        uniform_(program.instructions.size(), -1) {}

  Result<Priced> run() {
    for (DeviceId device : world_.devices())
      if (device.index() >= static_cast<std::size_t>(cluster_.device_count()))
        return error("the program uses device {}, the cluster has 0 to {}", device.index(),
                     cluster_.device_count() - 1);
    find_ranks();
    find_communications();
    classes_ = partition(communications_, cluster_, cost_, initial_colours(), options_.fold);
    add_links();
    priced_.workload.micro_batches = schedule_.micro_batches;
    priced_.workload.interference.clear();
    std::vector<int> seen(classes_.devices, -1);
    for (int position = 0; position < world_.size(); ++position) {
      const std::uint32_t own = classes_.device[static_cast<std::size_t>(position)];
      const DeviceId device = world_.devices()[static_cast<std::size_t>(position)];
      if (seen[own] < 0) {
        seen[own] = static_cast<int>(priced_.agents.size());
        priced_.agents.push_back({{}, rank_of(device)});
        add_agent(position);
      }
      const AgentId agent(static_cast<std::size_t>(seen[own]));
      priced_.agents[agent].devices.push_back(device);
      priced_.workload.agents[agent].stands_for = static_cast<std::int32_t>(priced_.agents[agent].devices.size());
    }
    return std::move(priced_);
  }

 private:
  const std::vector<InstructionId>& body(std::size_t stage, bool backward) const {
    return backward ? program_.stages[stage].backward : program_.stages[stage].forward;
  }
  template <class F>
  void for_each_instruction(F&& visit) const {
    for (std::size_t stage = 0; stage < program_.stages.size(); ++stage)
      for (bool backward : {false, true})
        for (InstructionId id : body(stage, backward)) visit(id);
    for (InstructionId id : program_.step) visit(id);
  }

  // The pipeline rank that plays each mesh's instructions.
  void find_ranks() {
    for (std::size_t rank = 0; rank < schedule_.actions.size(); ++rank)
      for (std::int32_t chunk = 0; chunk < schedule_.chunks; ++chunk) {
        const std::size_t stage = program_stage(program_, schedule_, {static_cast<std::int32_t>(rank), chunk});
        for (bool backward : {false, true})
          for (InstructionId id : body(stage, backward))
            rank_of_[program_.instructions[id].mesh] = static_cast<int>(rank);
      }
  }
  int rank_of(DeviceId device) const {
    for (MeshId mesh : program_.meshes.ids())
      if (rank_of_[mesh] >= 0 && program_.meshes[mesh].position_of(device) >= 0) return rank_of_[mesh];
    return 0;
  }

  // Which kind each instruction is; asking for costs says which routes are taken.
  void find_communications() {
    for_each_instruction([&](InstructionId id) {
      const Instruction& instruction = program_.instructions[id];
      const KindId kind = kind_of_[id] = communications_.kind_of(instruction);
      if (!kind.valid()) return;
      std::vector<ShapeId> asked;
      CommGroupId last;
      for (CommGroupId group : communications_.kinds()[kind].group_at) {
        if (!group.valid() || group == last) continue;
        last = group;
        const CommGroup& described = communications_.groups()[group];
        if (std::find(asked.begin(), asked.end(), described.shape) != asked.end() && described.moved == 0) continue;
        asked.push_back(described.shape);
        communications_.cost_of(instruction, described);
      }
    });
  }

  // Whether every device of the mesh has the same amount of the operator to do.
  bool is_uniform(InstructionId id) {
    std::int8_t& known = uniform_[id];
    if (known >= 0) return known != 0;
    const auto& compute = std::get<Compute>(program_.instructions[id].what);
    const Signature& signature = graph_.signature(compute.op);
    const Mesh& mesh = program_.meshes[program_.instructions[id].mesh];
    bool uniform = true;
    for (std::size_t a = 0; a < compute.sharding.axes.size() && uniform; ++a) {
      std::int64_t left = signature.axes[a].size / (compute.sharding.outer.empty() ? 1 : compute.sharding.outer[a]);
      for (const Cut& cut : compute.sharding.axes[a]) {
        const int parts = mesh.axes()[static_cast<std::size_t>(cut.mesh_axis)].size;
        uniform = uniform && cut.sizes.empty() && left % parts == 0;
        left /= parts;
      }
      // Masks let the last queries see more.
      const bool masked = signature.kind == OpKind::Attention && !compute.sharding.axes[a].empty() &&
                          (signature.axes[a].name == "q" || signature.axes[a].name == "t");
      uniform = uniform && !masked;
    }
    known = uniform ? 1 : 0;
    return uniform;
  }

  std::optional<Arithmetic> products_of(OpId op, const Signature& signature) const {
    if (!options_.products || signature.inputs.empty()) return std::nullopt;
    if (*options_.products == Arithmetic::kTf32)
      return signature.inputs[0].dtype == DType::F32 ? options_.products : std::nullopt;
    if (signature.kind != OpKind::Linear && signature.kind != OpKind::ExpertLinear) return std::nullopt;
    return graph_.name(op).find("layers.") == 0 ? options_.products : std::nullopt;
  }

  ComputeCost compute_cost(const Compute& compute, const Mesh& mesh, int position) {
    const Signature& signature = graph_.signature(compute.op);
    const AxisSlices slices = axis_slices(signature, compute.sharding, mesh, position);
    extents_.clear();
    for (const AxisSlice& slice : slices) extents_.push_back(slice.size());
    return cost_.compute(ComputeQuery{&signature, extents_,
                                      &cluster_.spec(mesh.devices()[static_cast<std::size_t>(position)]),
                                      products_of(compute.op, signature), attended_share(signature, slices)});
  }

  // Devices are alike at first when they are of one kind, in the same meshes, and have equal work where it is uneven.
  std::vector<std::uint64_t> initial_colours() {
    std::vector<std::uint64_t> colours(static_cast<std::size_t>(world_.size()), 0);
    const auto add = [&](std::size_t position, std::uint64_t what) {
      colours[position] = (colours[position] ^ (what + 0x9e3779b97f4a7c15ULL)) * 0xff51afd7ed558ccdULL;
      colours[position] ^= colours[position] >> 33;
    };
    for (std::size_t i = 0; i < colours.size(); ++i)
      add(i, std::bit_cast<std::uintptr_t>(&cluster_.spec(world_.devices()[i])));
    if (!options_.fold) return colours;
    std::vector<std::vector<std::size_t>> positions(program_.meshes.size());
    for (MeshId mesh : program_.meshes.ids()) {
      if (mesh == program_.world) continue;
      for (DeviceId device : program_.meshes[mesh].devices()) {
        positions[mesh.index()].push_back(static_cast<std::size_t>(world_.position_of(device)));
        add(positions[mesh.index()].back(), mesh.index());
      }
    }
    std::map<std::pair<SignatureId, MeshId>, std::vector<const OpSharding*>> done;
    for_each_instruction([&](InstructionId id) {
      const auto* compute = std::get_if<Compute>(&program_.instructions[id].what);
      if (!compute || is_uniform(id)) return;
      const MeshId on = program_.instructions[id].mesh;
      auto& known = done[{graph_.ops()[compute->op].signature, on}];
      if (std::any_of(known.begin(), known.end(), [&](const OpSharding* each) { return *each == compute->sharding; }))
        return;
      known.push_back(&compute->sharding);
      const Mesh& mesh = program_.meshes[on];
      for (int position = 0; position < mesh.size(); ++position)
        add(positions[on.index()][static_cast<std::size_t>(position)],
            static_cast<std::uint64_t>(compute_cost(*compute, mesh, position).time));
    });
    return colours;
  }

  // One link for each class, and what each class of groups loads it with: the sum over the groups of the class that
  // load one link of it.
  void add_links() {
    std::vector<char> made(classes_.link_classes, 0);
    std::vector<char> first(classes_.links.size(), 0);
    for (std::size_t l = 0; l < classes_.links.size(); ++l) {
      if (std::exchange(made[classes_.link[l]], 1)) continue;
      first[l] = 1;
      priced_.workload.links.push_back(
          {classes_.links[l].capacity, static_cast<std::uint32_t>(classes_.links[l].link.index())});
    }
    class_loads_.resize(classes_.groups);
    for (CommGroupId id : classes_.loads.ids())
      for (const LinkIncidence& load : classes_.loads[id]) {
        if (!first[load.link]) continue;
        auto& loads = class_loads_[classes_.group[id]];
        const FlowLinkId link(classes_.link[load.link]);
        const auto same = std::find_if(loads.begin(), loads.end(), [&](const auto& each) {
          return each.first == load.route && each.second.link == link;
        });
        if (same == loads.end()) {
          loads.push_back({load.route, {link, load.coefficient}});
        } else {
          same->second.coefficient += load.coefficient;
          priced_.exact_under_fifo = false;
        }
      }
  }

  WorkId communication_work(std::uint32_t group_class, const CommunicateCost& cost) {
    const auto [found, added] = communication_works_.try_emplace(
        {group_class, cost.route, cost.latency, cost.bytes, cost.cap}, WorkId(priced_.workload.works.size()));
    if (added) {
      Work work{cost.latency, cost.bytes, cost.cap, {}, cost.sm_share, cost.memory_share};
      for (const auto& [route, load] : class_loads_[group_class])
        if (route == cost.route && cost.bytes > kUnfeltBytes) work.links.push_back(load);
      priced_.workload.works.push_back(std::move(work));
    }
    return found->second;
  }

  WorkId compute_work(const ComputeCost& cost) {
    const auto [found, added] = compute_works_.try_emplace({cost.time, cost.sm_share, cost.memory_share},
                                                           WorkId(priced_.workload.works.size()));
    if (added) priced_.workload.works.push_back({cost.time, 0, 0, {}, cost.sm_share, cost.memory_share});
    return found->second;
  }

  // Distinct classes that come to a group's meeting. Who sends and receives comes once, to send.
  std::int32_t parties(const CommGroup& group) {
    std::vector<std::uint32_t> classes;
    for (std::uint32_t member : group.members) classes.push_back(classes_.device[member]);
    std::sort(classes.begin(), classes.end());
    return static_cast<std::int32_t>(std::unique(classes.begin(), classes.end()) - classes.begin());
  }

  void communicate(Task& task, const Instruction& instruction, const CommGroup& group, std::uint32_t group_class,
                   std::uint32_t key) {
    const CommunicateCost& cost = communications_.cost_of(instruction, group);
    if (cost.latency == 0 && cost.bytes == 0) return;
    const WorkId work = communication_work(group_class, cost);
    if (const std::int32_t count = parties(group); count > 1) {
      const auto [found, added] =
          meetings_.try_emplace({group_class, key}, MeetingId(priced_.workload.meetings.size()));
      if (added) priced_.workload.meetings.push_back({work, count});
      task.meeting = found->second;
    } else {
      task.work = work;
    }
  }

  std::uint8_t stream_of(const Instruction& instruction) const {
    Stream stream = instruction.stream;
    if (stream == Stream::Tensor && !stack_.tensor_overlap.value) stream = Stream::Compute;
    return static_cast<std::uint8_t>(stream);
  }

  // The tasks of the device at a position of the world.
  void add_agent(int position) {
    const DeviceId device = world_.devices()[static_cast<std::size_t>(position)];
    const AgentId id = priced_.workload.agents.push_back({});
    Agent& agent = priced_.workload.agents[id];
    agent.run_ahead = stack_.graph_capture.value ? 0 : stack_.run_ahead.value;
    agent.interference = interference_of(cluster_.spec(device));
    std::vector<int> at(program_.meshes.size(), -1);
    for (MeshId mesh : program_.meshes.ids()) at[mesh.index()] = program_.meshes[mesh].position_of(device);

    std::unordered_map<std::uint32_t, TaskId> tasks;  // by instruction
    const auto task_of = [&](InstructionId instruction_id) {
      if (const auto found = tasks.find(instruction_id.index()); found != tasks.end()) return found->second;
      const Instruction& instruction = program_.instructions[instruction_id];
      Task task = make_task(instruction_id, device, at[instruction.mesh.index()]);
      for (InstructionId before : instruction.after)
        if (const auto found = tasks.find(before.index()); found != tasks.end()) task.after.push_back(found->second);
      if (std::holds_alternative<Receive>(instruction.what)) wait_for_own_send(task, instruction, tasks);
      if (const auto* send = std::get_if<Send>(&instruction.what)) sent_[send->transfer.index()] = instruction_id;
      const TaskId made = agent.tasks.push_back(std::move(task));
      tasks.emplace(instruction_id.index(), made);
      return made;
    };
    const auto fill = [&](std::vector<TaskId>& list, const std::vector<InstructionId>& from, const auto& takes) {
      std::vector<TaskId> sends;
      for (InstructionId instruction_id : from) {
        const Instruction& instruction = program_.instructions[instruction_id];
        if (at[instruction.mesh.index()] < 0 || std::holds_alternative<Free>(instruction.what)) continue;
        if (!takes(instruction)) continue;
        list.push_back(task_of(instruction_id));
        if (std::holds_alternative<Send>(instruction.what)) sends.push_back(list.back());
      }
      // Without overlap the device computes nothing while what the body has made is sent.
      if (!sends.empty() && !stack_.p2p_overlap.value) {
        Task wait;
        wait.stream = static_cast<std::uint8_t>(Stream::Compute);
        wait.label = ~0u;
        wait.after = std::move(sends);
        list.push_back(agent.tasks.push_back(std::move(wait)));
      }
    };
    const int rank = priced_.agents[id].rank;
    std::map<std::pair<std::int32_t, Body>, BodyId> bodies;  // by chunk
    for (const Action& action : schedule_.actions[static_cast<std::size_t>(rank)]) {
      const auto [found, added] = bodies.try_emplace({action.chunk, action.body}, BodyId(agent.bodies.size()));
      if (added) {
        agent.bodies.push_back({});
        const std::vector<InstructionId>& from = body_of(program_, schedule_, static_cast<std::size_t>(rank), action);
        fill(agent.bodies[found->second], from, [&](const Instruction& instruction) {
          return action.body == Body::BackwardInput    ? !instruction.weight_part
                 : action.body == Body::BackwardWeight ? instruction.weight_part
                                                       : true;
        });
      }
      agent.plays.push_back({found->second, action.micro_batch});
    }
    const BodyId step = agent.bodies.push_back({});
    fill(agent.bodies[step], program_.step, [](const Instruction&) { return true; });
    agent.plays.push_back({step, schedule_.micro_batches - 1});
  }

  // What comes with the device's own sending, from itself or from others, is there once that is complete.
  void wait_for_own_send(Task& task, const Instruction& instruction,
                         const std::unordered_map<std::uint32_t, TaskId>& tasks) const {
    if (task.meeting.valid() || task.work.valid()) return;
    const auto sent = sent_.find(std::get<Receive>(instruction.what).transfer.index());
    if (sent == sent_.end()) return;
    if (const auto found = tasks.find(sent->second.index()); found != tasks.end()) task.after.push_back(found->second);
  }

  Task make_task(InstructionId id, DeviceId device, int position) {
    const Instruction& instruction = program_.instructions[id];
    Task task;
    task.stream = stream_of(instruction);
    task.label = id.index();
    task.when = instruction.guard == Guard::FirstMicroBatch  ? PlayedFor::FirstMicroBatch
                : instruction.guard == Guard::LastMicroBatch ? PlayedFor::LastMicroBatch
                                                             : PlayedFor::EveryMicroBatch;
    const bool issues = !stack_.graph_capture.value;
    if (const auto* compute = std::get_if<Compute>(&instruction.what)) {
      // What was reduced is added where it was reduced: computation does not wait for it.
      if (stack_.gradient_overlap.value && graph_.kind(compute->op) == OpKind::Accumulate &&
          std::any_of(instruction.after.begin(), instruction.after.end(),
                      [&](InstructionId before) { return program_.instructions[before].stream == Stream::Data; }))
        task.stream = static_cast<std::uint8_t>(Stream::Data);
      WorkId work;
      if (is_uniform(id)) {
        const auto [found, added] = uniform_works_.try_emplace({id, &cluster_.spec(device)});
        if (added) found->second = compute_work(compute_cost(*compute, program_.meshes[instruction.mesh], position));
        work = found->second;
      } else {
        work = compute_work(compute_cost(*compute, program_.meshes[instruction.mesh], position));
      }
      if (priced_.workload.works[work].fixed == 0) return task;  // a view
      task.work = work;
      if (issues) task.host = picoseconds(stack_.host_per_operator.value);
      task.host_waits = stack_.sync_on_norm.value && graph_.kind(compute->op) == OpKind::ClipCoefficient;
      return task;
    }
    const KindId kind = kind_of_[id];
    if (!kind.valid()) return task;
    const CommKind& described = communications_.kinds()[kind];
    const bool receives = std::holds_alternative<Receive>(instruction.what);
    const CommGroupId group_id =
        (receives ? described.received_at : described.group_at)[static_cast<std::size_t>(position)];
    if (!group_id.valid() || communications_.groups()[group_id].local) return task;
    if (receives) {
      const int sending = program_.meshes[described.mesh].position_of(device);
      if (sending >= 0 && described.group_at[static_cast<std::size_t>(sending)] == group_id) return task;
    }
    // Both halves of a transfer meet under its number, collectives under their instruction's.
    std::uint32_t key = id.index();
    if (const auto* send = std::get_if<Send>(&instruction.what)) key = ~send->transfer.index();
    if (receives) key = ~std::get<Receive>(instruction.what).transfer.index();
    communicate(task, instruction, communications_.groups()[group_id], classes_.group[group_id], key);
    if (issues) task.host = picoseconds(stack_.host_per_collective.value);
    return task;
  }

  std::uint32_t interference_of(const DeviceSpec& spec) {
    const auto [found, added] =
        interference_.try_emplace(&spec, static_cast<std::uint32_t>(priced_.workload.interference.size()));
    if (added) priced_.workload.interference.push_back(cost_.interference(spec));
    return found->second;
  }

  const Program& program_;
  const Schedule& schedule_;
  const Graph& graph_;
  const Cluster& cluster_;
  const CostModel& cost_;
  const SoftwareStack& stack_;
  const PriceOptions& options_;
  const Mesh& world_;
  Communications communications_;
  Partition classes_;
  Priced priced_;
  IdVec<MeshId, int> rank_of_;
  IdVec<InstructionId, KindId> kind_of_;
  IdVec<InstructionId, std::int8_t> uniform_;
  std::vector<std::int64_t> extents_;
  std::vector<std::vector<std::pair<std::uint32_t, LinkUse>>> class_loads_;  // by class of groups: route, load
  std::map<std::tuple<std::uint32_t, std::uint32_t, Picoseconds, std::int64_t, std::int64_t>, WorkId>
      communication_works_;
  std::map<std::tuple<Picoseconds, std::int32_t, std::int32_t>, WorkId> compute_works_;
  std::map<std::pair<InstructionId, const DeviceSpec*>, WorkId> uniform_works_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, MeetingId> meetings_;
  std::map<const DeviceSpec*, std::uint32_t> interference_;
  std::unordered_map<std::uint32_t, InstructionId> sent_;  // transfer → its send
};

}  // namespace

Result<Priced> price(const Program& program, const Schedule& schedule, const TrainingGraph& training,
                     const Cluster& cluster, const CostModel& cost, const SoftwareStack& stack,
                     const PriceOptions& options) {
  return Pricer(program, schedule, training, cluster, cost, stack, options).run();
}

}  // namespace weft
