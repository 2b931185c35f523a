#include "price/price.h"

#include <algorithm>
#include <bit>
#include <map>

#include "base/check.h"
#include "price/folding.h"
#include "price/instruction_pricer.h"
#include "price/pipelined.h"
#include "price/ranks.h"
#include "price/works.h"

namespace weft {
namespace {

class Pricer {
 public:
  Pricer(const Program& program, const Schedule& schedule, const TrainingGraph& training, const Cluster& cluster,
         const CostModel& cost, const SoftwareStack& stack, const PriceOptions& options)
      : program_(program),
        schedule_(schedule),
        graph_(training.graph),
        cluster_(cluster),
        cost_(cost),
        options_(options),
        world_(program.meshes[program.world]),
        pricer_(program, training.graph, cluster, cost, stack),
        communications_(pricer_.communications()),
        ranks_(program, schedule),
        kind_of_(program.instructions.size()),
        uniform_(program.instructions.size(), -1),
        uniform_works_(program.instructions.size()),
        known_(training.graph.signatures().size()),
        task_of_(program.instructions.size()) {
    if (stack.tensor_overlap.value && stack.tensor_chunks.value) beside_ = pipelined_products(program, training.graph);
    pricer_.note_gathers();
    if (options.last) {
      last_pricer_.emplace(options.last->program, options.last->graph, cluster, cost, stack);
      last_pricer_->note_gathers();
      last_task_.resize(program.instructions.size());
    }
  }

  Result<Priced> run() {
    for (DeviceId device : world_.devices())
      if (device.index() >= static_cast<std::size_t>(cluster_.device_count()))
        return error("the program uses device {}, the cluster has 0 to {}", device.index(),
                     cluster_.device_count() - 1);
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
        priced_.agents.push_back({{}, ranks_.of(device)});
        add_agent(position);
      }
      const AgentId agent(static_cast<std::size_t>(seen[own]));
      priced_.agents[agent].devices.push_back(device);
      priced_.workload.agents[agent].stands_for = static_cast<std::int32_t>(priced_.agents[agent].devices.size());
    }
    priced_.workload.works = works_.take();
    priced_.issued = ranks_.issued();
    return std::move(priced_);
  }

 private:
  template <class F>
  void for_each_instruction(F&& visit) const {
    for (std::size_t body = 0; body < body_count(program_); ++body)
      for (InstructionId id : body_at(program_, body)) visit(id);
  }

  // Finds the kind of each instruction; computing costs determines the routes.
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
        if (options_.last) communications_.cost_of(described, last_payload(instruction, described));
      }
    });
  }

  bool is_uniform(InstructionId id) {
    std::int8_t& known = uniform_[id];
    const Instruction& instruction = program_.instructions[id];
    if (known < 0) known = pricer_.is_uniform(std::get<Compute>(instruction.what), program_.meshes[instruction.mesh]);
    return known != 0;
  }

  // Initially devices are equivalent if they are of one kind, in the same meshes, and have equal shares of uneven work.
  std::vector<std::uint64_t> initial_colours() {
    std::vector<std::uint64_t> colours(static_cast<std::size_t>(world_.size()), 0);
    const auto add = [&](std::size_t position, std::uint64_t what) {
      colours[position] = (colours[position] ^ (what + 0x9e3779b97f4a7c15ULL)) * 0xff51afd7ed558ccdULL;
      colours[position] ^= colours[position] >> 33;
    };
    for (std::size_t i = 0; i < colours.size(); ++i) {
      add(i, std::bit_cast<std::uintptr_t>(&cluster_.spec(world_.devices()[i])));
      add(i, std::bit_cast<std::uint64_t>(cluster_.host_of(world_.devices()[i])));
    }
    if (options_.fold == Fold::None) return colours;
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
      std::map<std::pair<std::uint64_t, const DeviceSpec*>, Picoseconds> times;
      for (int position = 0; position < mesh.size(); ++position) {
        const DeviceSpec* const spec = &cluster_.spec(mesh.devices()[static_cast<std::size_t>(position)]);
        const auto [time, added] = times.try_emplace({part_of(*compute, mesh, position), spec}, 0);
        if (added) time->second = pricer_.compute_cost(*compute, mesh, position).time;
        add(positions[on.index()][static_cast<std::size_t>(position)], static_cast<std::uint64_t>(time->second));
      }
    });
    return colours;
  }

  // What a position's part of the operator takes depends on nothing else: the shares of its parts; where causal
  // attention is cut, which part it has.
  std::uint64_t part_of(const Compute& compute, const Mesh& mesh, int position) const {
    const bool places_matter = graph_.signature(compute.op).kind == OpKind::Attention;
    std::uint64_t part = 0;
    for (const auto& cuts : compute.sharding.axes)
      for (const Cut& cut : cuts) {
        const int parts = mesh.axes()[static_cast<std::size_t>(cut.mesh_axis)].size;
        const int own = (mesh.coordinate(position, cut.mesh_axis) + parts - cut.rotate % parts) % parts;
        const bool shared = !cut.shares.empty() && !places_matter;
        part = part * 0x9e3779b97f4a7c15ULL +
               static_cast<std::uint64_t>(shared ? cut.shares[static_cast<std::size_t>(own)] : own);
      }
    return part;
  }

  // One link for each class, and the load of each class of groups on it: the sum over the groups of the class that load
  // one link of it.
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
    std::vector<std::uint32_t> loader(classes_.link_classes, ~0u);  // the only class of groups that loads a link
    for (CommGroupId id : classes_.loads.ids())
      for (const LinkIncidence& load : classes_.loads[id]) {
        if (!first[load.link]) continue;
        auto& loads = class_loads_[classes_.group[id]];
        const FlowLinkId link(classes_.link[load.link]);
        std::uint32_t& only = loader[classes_.link[load.link]];
        if (only == ~0u) only = classes_.group[id];
        if (only != classes_.group[id]) priced_.exact_under_fifo = false;
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

  // The number of distinct classes in a group's meeting. A device that sends and receives counts once, as a sender.
  std::int32_t parties(CommGroupId id) {
    if (parties_.empty()) parties_.resize(communications_.groups().size());
    if (parties_[id] == 0) {
      std::vector<std::uint32_t> classes;
      for (std::uint32_t member : communications_.groups()[id].members) classes.push_back(classes_.device[member]);
      std::sort(classes.begin(), classes.end());
      parties_[id] = static_cast<std::int32_t>(std::unique(classes.begin(), classes.end()) - classes.begin());
    }
    return parties_[id];
  }

  // The payload in a smaller last micro-batch: tensors shrink in proportion.
  Payload last_payload(const Instruction& instruction, const CommGroup& group) const {
    Payload payload = communications_.payload_of(instruction, group);
    const auto reads = reads_of(program_, instruction);
    const BufferId moved = reads.empty() ? writes_of(program_, instruction).front() : reads.front();
    const TensorId tensor = program_.buffers[moved].tensor;
    const std::int64_t usual = graph_.bytes(tensor).value, smaller = options_.last->graph.bytes(tensor).value;
    if (usual == smaller) return payload;
    for (std::int64_t* bytes : {&payload.bytes, &payload.repacked})
      *bytes = static_cast<std::int64_t>(static_cast<__int128>(*bytes) * smaller / usual);
    return payload;
  }

  // `beside`: how long the product takes in chunks of which it moves; 0: it moves by itself.
  void communicate(Task& task, const Instruction& instruction, CommGroupId group, std::uint32_t key, bool last,
                   Picoseconds beside) {
    const CommGroup& described = communications_.groups()[group];
    CommunicateCost cost = last ? communications_.cost_of(described, last_payload(instruction, described))
                                : communications_.cost_of(instruction, described);
    if (beside > 0)
      cost = exposed_beside(cost, beside,
                            chunks_of(std::get<Communicate>(instruction.what).collective, described.members.size()));
    if (cost.latency == 0 && cost.bytes == 0) return;
    const std::uint32_t group_class = classes_.group[group];
    const WorkId work = works_.communication(group_class, cost, [&](const CommunicateCost& of, Work& made) {
      if (of.bytes <= kNegligibleBytes) return;
      for (const auto& [route, load] : class_loads_[group_class])
        if (route == of.route) made.links.push_back(load);
      // Interference scales the rate that one group has alone, not its share when all groups of its class use a link.
      Work single{.links = {}};
      for (const LinkIncidence& load : classes_.loads[group])
        if (load.route == of.route) single.links.push_back({FlowLinkId(classes_.link[load.link]), load.coefficient});
      const std::int64_t alone = isolated_rate(single, priced_.workload.links);
      if (alone != isolated_rate({.links = made.links}, priced_.workload.links)) made.alone = alone;
    });
    if (const std::int32_t count = parties(group); count > 1) {
      const auto [found, added] =
          (last ? last_meetings_ : meetings_)
              .try_emplace(std::uint64_t{group_class} << 32 | key, MeetingId(priced_.workload.meetings.size()));
      if (added) priced_.workload.meetings.push_back({work, count});
      task.meeting = found->second;
    } else {
      task.work = work;
    }
  }

  // Adds the tasks of the device at a position of the world mesh.
  void add_agent(int position) {
    const DeviceId device = world_.devices()[static_cast<std::size_t>(position)];
    const AgentId id = priced_.workload.agents.push_back(pricer_.agent(device, priced_.workload));
    Agent& agent = priced_.workload.agents[id];
    std::vector<int> at(program_.meshes.size(), -1);
    for (MeshId mesh : program_.meshes.ids()) at[mesh.index()] = program_.meshes[mesh].position_of(device);

    // Adds the instruction's task, and a second one for a smaller last micro-batch if that takes less time.
    const auto add_task = [&](InstructionId instruction_id, std::vector<TaskId>& list) {
      if (!known_task(id, instruction_id).valid()) {
        const Instruction& instruction = program_.instructions[instruction_id];
        Task task = make_task(instruction_id, device, at[instruction.mesh.index()]);
        for (InstructionId before : instruction.after) wait_for(task, before, id);
        if (std::holds_alternative<Receive>(instruction.what)) wait_for_own_send(task, instruction, id);
        if (const auto* send = std::get_if<Send>(&instruction.what)) sent_[send->transfer.index()] = instruction_id;
        std::optional<Task> smaller;
        if (options_.last && task.when == PlayedFor::EveryMicroBatch && (task.work.valid() || task.meeting.valid())) {
          smaller = make_task(instruction_id, device, at[instruction.mesh.index()], true);
          smaller->after = task.after;
          smaller->when = PlayedFor::LastMicroBatch;
          task.when = PlayedFor::AllButLastMicroBatch;
        }
        task_of_[instruction_id] = {id, agent.tasks.push_back(std::move(task))};
        if (options_.last) last_task_[instruction_id] = smaller ? agent.tasks.push_back(std::move(*smaller)) : TaskId();
      }
      list.push_back(task_of_[instruction_id].second);
      if (options_.last && last_task_[instruction_id].valid()) list.push_back(last_task_[instruction_id]);
    };
    const RankPlays& plays = ranks_.plays(priced_.agents[id].rank);
    agent.plays = plays.plays;
    for (const RankBody& body : plays.bodies) {
      std::vector<TaskId>& list = agent.bodies[agent.bodies.push_back({})];
      for (InstructionId instruction_id : body_at(program_, body.source)) {
        const Instruction& instruction = program_.instructions[instruction_id];
        if (at[instruction.mesh.index()] < 0 || std::holds_alternative<Free>(instruction.what)) continue;
        if (!body.takes(instruction.weight_part)) continue;
        add_task(instruction_id, list);
      }
    }
  }

  // The agent's task for an instruction, if it has one already.
  TaskId known_task(AgentId agent, InstructionId id) const {
    return task_of_[id].first == agent ? task_of_[id].second : TaskId();
  }

  void wait_for(Task& task, InstructionId before, AgentId agent) const {
    const TaskId known = known_task(agent, before);
    if (!known.valid()) return;
    task.after.push_back(known);
    if (options_.last && last_task_[before].valid()) task.after.push_back(last_task_[before]);
  }

  // If the device also sends in the transfer, the received data is complete when its send is.
  void wait_for_own_send(Task& task, const Instruction& instruction, AgentId agent) const {
    if (task.meeting.valid() || task.work.valid()) return;
    const auto sent = sent_.find(std::get<Receive>(instruction.what).transfer.index());
    if (sent != sent_.end()) wait_for(task, sent->second, agent);
  }

  WorkId last_work(InstructionId id, const Mesh& mesh, int position) {
    const auto& compute = std::get<Compute>(options_.last->program.instructions[id].what);
    return works_.compute(last_pricer_->compute_cost(compute, mesh, position));
  }

  // The work of an operator that is the same on every device of its kind.
  WorkId uniform_work(InstructionId id, const Compute& compute, const Mesh& mesh, int position) {
    const DeviceSpec& spec = cluster_.spec(mesh.devices()[static_cast<std::size_t>(position)]);
    auto& [of, work] = uniform_works_[id];
    if (of == &spec) return work;
    if (of) {  // devices of several kinds
      const auto [found, added] = other_works_.try_emplace({id, &spec});
      if (added) found->second = works_.compute(pricer_.compute_cost(compute, mesh, position));
      return found->second;
    }
    of = &spec;
    return work = known_work(compute, mesh, position, spec);
  }

  // A small cache: layers are equal, so recently priced operators mostly recur.
  WorkId known_work(const Compute& compute, const Mesh& mesh, int position, const DeviceSpec& spec) {
    constexpr std::size_t kLately = 16;
    std::vector<Known>& known = known_[graph_.ops()[compute.op].signature];
    const OpSharding& split = compute.sharding;
    const double cast = pricer_.cast_share(compute);
    for (std::size_t i = known.size(); i-- > 0 && known.size() - i <= kLately;) {
      const Known& each = known[i];
      const OpSharding& other = *each.split;
      if (each.position == position && each.spec == &spec && each.products == compute.products && each.cast == cast &&
          other.axes == split.axes && other.outer == split.outer &&
          (each.mesh == &mesh || each.mesh->axes() == mesh.axes()))
        return each.work;
    }
    const WorkId work = works_.compute(pricer_.compute_cost(compute, mesh, position));
    known.push_back({&split, &mesh, &spec, position, compute.products, cast, work});
    return work;
  }

  // How long the product takes beside which a collective moves in chunks, on the device at that position of the mesh.
  Picoseconds product_beside(InstructionId id, int position, bool last) {
    if (beside_.empty() || !beside_[id].valid()) return 0;
    const Instruction& product = program_.instructions[beside_[id]];
    if (product.mesh != program_.instructions[id].mesh) return 0;
    const auto& compute = std::get<Compute>(product.what);
    const Mesh& mesh = program_.meshes[product.mesh];
    if (last) return works_.all()[last_work(beside_[id], mesh, position)].fixed;
    return is_uniform(beside_[id]) ? works_.all()[uniform_work(beside_[id], compute, mesh, position)].fixed
                                   : pricer_.compute_cost(compute, mesh, position).time;
  }

  // `last`: for a smaller last micro-batch.
  Task make_task(InstructionId id, DeviceId device, int position, bool last = false) {
    const Instruction& instruction = program_.instructions[id];
    Task task = pricer_.blank(id);
    if (const auto* compute = std::get_if<Compute>(&instruction.what)) {
      const Mesh& mesh = program_.meshes[instruction.mesh];
      const WorkId work = last             ? last_work(id, mesh, position)
                          : is_uniform(id) ? uniform_work(id, *compute, mesh, position)
                                           : works_.compute(pricer_.compute_cost(*compute, mesh, position));
      if (works_.all()[work].fixed == 0) return task;  // a view
      task.work = work;
      pricer_.add_host(task, instruction, device);
      return task;
    }
    if (const auto* combine = std::get_if<Combine>(&instruction.what)) {
      task.work = works_.compute((last ? *last_pricer_ : pricer_)
                                     .combine_cost(*combine, program_.meshes[instruction.mesh], cluster_.spec(device)));
      pricer_.add_host(task, instruction, device);
      return task;
    }
    const KindId kind = kind_of_[id];
    if (!kind.valid()) return task;
    const CommGroupId group = pricer_.group_of(instruction, kind, device, position);
    if (!group.valid()) return task;
    // The meeting of a transfer is identified by the transfer, that of a collective by its instruction.
    std::uint32_t key = id.index();
    if (const auto* send = std::get_if<Send>(&instruction.what)) key = ~send->transfer.index();
    if (const auto* receive = std::get_if<Receive>(&instruction.what)) key = ~receive->transfer.index();
    communicate(task, instruction, group, key, last, product_beside(id, position, last));
    pricer_.add_host(task, instruction, device);
    return task;
  }

  const Program& program_;
  const Schedule& schedule_;
  const Graph& graph_;
  const Cluster& cluster_;
  const CostModel& cost_;
  const PriceOptions& options_;
  const Mesh& world_;
  InstructionPricer pricer_;
  std::optional<InstructionPricer> last_pricer_;  // of a smaller last micro-batch
  Communications& communications_;
  Ranks ranks_;
  Works works_;
  FoldedDevices classes_;
  Priced priced_;
  IdVec<InstructionId, KindId> kind_of_;
  IdVec<InstructionId, std::int8_t> uniform_;
  IdVec<InstructionId, InstructionId> beside_;                               // empty: no collective moves in chunks
  std::vector<std::vector<std::pair<std::uint32_t, LinkUse>>> class_loads_;  // by class of groups: route, load
  struct Known {
    const OpSharding* split;
    const Mesh* mesh;
    const DeviceSpec* spec;
    int position;
    std::optional<Arithmetic> products;
    double cast;
    WorkId work;
  };
  IdVec<InstructionId, std::pair<const DeviceSpec*, WorkId>> uniform_works_;  // on the first kind of device
  std::map<std::pair<InstructionId, const DeviceSpec*>, WorkId> other_works_;
  IdVec<SignatureId, std::vector<Known>> known_;
  IdVec<InstructionId, std::pair<AgentId, TaskId>> task_of_;  // the last one made
  IdVec<InstructionId, TaskId> last_task_;                    // that of a smaller last micro-batch, if any
  IdVec<CommGroupId, std::int32_t> parties_;                  // 0: not counted yet
  // By class of groups and transfer or instruction.
  std::unordered_map<std::uint64_t, MeetingId> meetings_, last_meetings_;
  std::unordered_map<std::uint32_t, InstructionId> sent_;  // transfer → its send
};

}  // namespace

Result<Priced> price(const Program& program, const Schedule& schedule, const TrainingGraph& training,
                     const Cluster& cluster, const CostModel& cost, const SoftwareStack& stack,
                     const PriceOptions& options) {
  return Pricer(program, schedule, training, cluster, cost, stack, options).run();
}

}  // namespace weft
