#include "price/incremental.h"

#include <algorithm>

#include "base/check.h"

namespace weft {
namespace {

// The fate of an instruction that an edit removes.
constexpr std::uint32_t kGone = 1, kKept = 2, kTakenOver = 3;

bool same_but_for_label(const Task& a, const Task& b) {
  return a.work == b.work && a.meeting == b.meeting && a.stream == b.stream && a.when == b.when &&
         a.host_waits == b.host_waits && a.host == b.host && a.after == b.after;
}

}  // namespace

PricedProgram::PricedProgram(const Program& program, const Schedule& schedule, const TrainingGraph& training,
                             const Cluster& cluster, const CostModel& cost, const SoftwareStack& stack)
    : program_(program),
      schedule_(schedule),
      cluster_(cluster),
      cost_(cost),
      world_(program.meshes[program.world]),
      pricer_(program, training.graph, cluster, cost, stack),
      ranks_(program, schedule, Foreign::All) {}

// Prices the whole program as an edit of a workload whose agents have no tasks.
Result<Workload> PricedProgram::price() {
  for (DeviceId device : world_.devices())
    if (device.index() >= static_cast<std::size_t>(cluster_.device_count()))
      return error("the program uses device {}, the cluster has 0 to {}", device.index(), cluster_.device_count() - 1);
  Workload workload;
  workload.micro_batches = schedule_.micro_batches;
  workload.interference.clear();
  // All links are added at the beginning, so that no edit adds any.
  for (std::int64_t i = 0; i < cluster_.link_count(); ++i) {
    const Link link = cluster_.link(LinkId(static_cast<std::size_t>(i)));
    flow_link_.push_back(link.ample ? FlowLinkId()
                                    : workload.links.push_back({cost_.capacity(link), static_cast<std::uint32_t>(i)}));
  }
  played_.resize(schedule_.actions.size());
  for (std::size_t rank = 0; rank < played_.size(); ++rank) {
    played_[rank].resize(body_count(program_));
    const RankPlays& plays = ranks_.plays(static_cast<int>(rank));
    for (BodyId body : plays.bodies.ids()) played_[rank][plays.bodies[body].source].push_back(body);
  }
  for (DeviceId device : world_.devices()) {
    Agent agent = pricer_.agent(device, workload);
    const RankPlays& plays = ranks_.plays(rank_.emplace_back(ranks_.of(device)));
    agent.plays = plays.plays;
    agent.bodies.resize(plays.bodies.size());
    auto& counts = counts_.emplace_back();
    for (BodyId body : plays.bodies.ids())
      counts[counts.push_back({})].resize(body_at(program_, plays.bodies[body].source).size());
    projections_.emplace_back(plays.bodies.size());
    workload.agents.push_back(std::move(agent));
  }
  free_tasks_.resize(rank_.size());
  edit_of_.resize(rank_.size());

  ProgramEdit all;
  for (std::size_t source = 0; source < body_count(program_); ++source) {
    const bool step = source == 2 * program_.stages.size();
    all.bodies.push_back({step ? -1 : static_cast<int>(source / 2), source % 2 == 1, 0, {}, body_at(program_, source)});
  }
  initial_ = true;
  WorkloadEdit edit = reprice(all, workload);
  initial_ = false;
  commit();
  for (auto& [id, work] : edit.works) workload.works.push_back(std::move(work));
  for (auto& [id, meeting] : edit.meetings) workload.meetings.push_back(meeting);
  for (AgentEdit& each : edit.agents) {
    Agent& agent = workload.agents[each.agent];
    for (Task& task : each.added) agent.tasks.push_back(std::move(task));
    for (auto& [id, task] : each.changed) agent.tasks[id] = std::move(task);
    for (Splice& splice : each.splices)
      agent.bodies[splice.body].insert(agent.bodies[splice.body].begin(), splice.inserted.begin(),
                                       splice.inserted.end());
  }
  return workload;
}

void PricedProgram::adopt_meshes() {
  for (std::size_t i = members_.size(); i < program_.meshes.size(); ++i) {
    auto& members = members_[members_.push_back({})];
    auto& at = at_[at_.push_back(std::vector<std::int32_t>(rank_.size(), -1))];
    for (DeviceId device : program_.meshes[MeshId(i)].devices()) {
      const int position = world_.position_of(device);
      WEFT_CHECK(position >= 0, "device {} is not in the program's world", device.index());
      at[static_cast<std::size_t>(position)] = static_cast<std::int32_t>(members.size());
      members.push_back(static_cast<std::uint32_t>(position));
    }
  }
}

WorkloadEdit PricedProgram::reprice(const ProgramEdit& edit, const Workload& now) {
  commit();
  adopt_meshes();
  for (auto* stamps : {&next_of_, &removed_, &removed_at_, &same_}) stamps->resize(program_.instructions.size());
  entries_.resize(program_.instructions.size());
  before_.resize(program_.instructions.size());
  sent_.resize(program_.transfers.size());
  journal_.open = true;
  journal_.works = works_.all().size();
  now_ = &now;
  tasks_.clear();
  for (const Agent& agent : now.agents) tasks_.push_back(agent.tasks.size());
  meetings_ = {now.meetings.size()};

  // First all tasks are created, then filled, as they refer to one another.
  for (const BodyEdit& body : edit.bodies)
    for (InstructionId id : body.removed) removed_[id] = kGone;
  for (const BodyEdit& body : edit.bodies)
    for (InstructionId id : body.added)
      if (removed_[id] == kGone) removed_[id] = kKept;
  for (const BodyEdit& body : edit.bodies) find_successors(body);
  for (const BodyEdit& body : edit.bodies)
    for (InstructionId id : body.added)
      if (removed_[id] != kKept) begin(id, before_[id], body_of(body));
  for (InstructionId id : edit.rewritten) begin(id, id, entries_[id].body);
  std::uint32_t stamp = 0;
  first_slots_.clear();
  reached_.assign(body_count(program_), 0);
  for (const BodyEdit& body : edit.bodies) assign_slots(body, ++stamp);
  begin_all_after_moved();
  for (const BodyEdit& body : edit.bodies)
    for (InstructionId id : body.removed)
      if (std::exchange(removed_[id], 0) == kGone) {
        const Entry& gone = entries_[id];
        for (std::size_t p = 0; p < gone.tasks.size(); ++p)
          journal_.dead_tasks.emplace_back(members_[gone.mesh][p], gone.tasks[p]);
        for (const auto& [group, meeting] : gone.meetings) journal_.dead_meetings.push_back(meeting);
      }
  for (std::size_t i = 0; i < next_.size(); ++i) price_tasks(next_[i].id, next_[i].entry);

  stamp = 0;
  for (const BodyEdit& body : edit.bodies) splice(body, ++stamp);
  for (const BodyEdit& body : edit.bodies)
    for (const auto* list : {&body.removed, &body.added})
      for (InstructionId id : *list) {
        removed_at_[id] = same_[id] = 0;
        before_[id] = {};
      }
  for (const CountChange& each : journal_.counts) {
    projections_[each.agent][each.body].behind.clear();
    projections_[each.agent][each.body].ahead = 0;
  }

  for (std::size_t i = journal_.works; i < works_.all().size(); ++i)
    edit_.works.emplace_back(WorkId(i), works_.all()[WorkId(i)]);
  for (auto& [id, entry] : next_) {
    next_of_[id] = 0;
    std::swap(entries_[id], entry);
  }
  std::swap(journal_.entries, next_);
  for (const AgentEdit& each : edit_.agents) edit_of_[each.agent.index()] = 0;
  return std::exchange(edit_, {});
}

void PricedProgram::undo() {
  if (!journal_.open) return;
  works_.shrink(journal_.works);
  for (auto& [id, entry] : journal_.entries) std::swap(entries_[id], entry);
  for (auto it = journal_.sent.rbegin(); it != journal_.sent.rend(); ++it) sent_[it->first] = it->second;
  for (auto it = journal_.reused_tasks.rbegin(); it != journal_.reused_tasks.rend(); ++it)
    free_tasks_[it->first].push_back(it->second);
  free_meetings_.insert(free_meetings_.end(), journal_.reused_meetings.rbegin(), journal_.reused_meetings.rend());
  journal_.clear();
}

void PricedProgram::commit() {
  if (!journal_.open) return;
  for (const CountChange& each : journal_.counts) counts_[each.agent][each.body].add(each.slot, each.change);
  for (const auto& [agent, task] : journal_.dead_tasks) free_tasks_[agent].push_back(task);
  free_meetings_.insert(free_meetings_.end(), journal_.dead_meetings.begin(), journal_.dead_meetings.end());
  journal_.clear();
}

// ---- entries ----

PricedProgram::Entry& PricedProgram::writable(InstructionId id) {
  if (next_of_[id] == 0) {
    next_.add() = {id, entries_[id]};
    next_of_[id] = static_cast<std::uint32_t>(next_.size());
  }
  return next_[next_of_[id] - 1].entry;
}

// Matches new instructions with removed ones that do the same, in the same order.
void PricedProgram::find_successors(const BodyEdit& edit) {
  const auto succeeds = [&](const Instruction& a, const Instruction& b) {
    return !std::holds_alternative<Free>(a.what) && alike(program_, a, b);
  };
  constexpr std::size_t kFar = 16;  // limits the search: matches are rarely farther apart
  std::size_t next = 0;
  for (std::size_t i = 0; i < edit.added.size(); ++i) {
    const InstructionId id = edit.added[i];
    if (removed_[id] == kKept) {  // kept instructions are skipped on both sides
      const auto stays = std::find(edit.removed.begin() + static_cast<std::ptrdiff_t>(next), edit.removed.end(), id);
      if (stays != edit.removed.end()) next = static_cast<std::size_t>(stays - edit.removed.begin()) + 1;
      continue;
    }
    const Instruction& instruction = program_.instructions[id];
    for (std::size_t k = next; k < std::min(edit.removed.size(), next + kFar); ++k) {
      if (removed_[edit.removed[k]] == kKept) break;
      if (removed_[edit.removed[k]] != kGone || !succeeds(program_.instructions[edit.removed[k]], instruction))
        continue;
      before_[id] = edit.removed[k];
      removed_[edit.removed[k]] = kTakenOver;
      next = k + 1;
      break;
    }
  }
}

// Creates the instruction's tasks: those of `before_it` (itself or another) on common devices are reused, others new.
void PricedProgram::begin(InstructionId id, InstructionId before_it, std::uint32_t body) {
  if (next_of_[id] != 0) return;
  const Instruction& instruction = program_.instructions[id];
  next_.add().id = id;
  next_of_[id] = static_cast<std::uint32_t>(next_.size());
  Entry& entry = next_.back().entry;
  const Entry* old = before_it.valid() ? &entries_[before_it] : nullptr;
  const Task blank = pricer_.blank(id);
  entry.mesh = instruction.mesh;
  entry.body = body;
  entry.stream = blank.stream;
  entry.when = blank.when;
  entry.weight_part = instruction.weight_part;
  entry.sends = std::holds_alternative<Send>(instruction.what);
  if (entry.sends) {
    const TransferId transfer = std::get<Send>(instruction.what).transfer;
    journal_.sent.emplace_back(transfer, std::exchange(sent_[transfer], id));
  }
  if (old) {
    entry.slot = old->slot;
    entry.meetings = old->meetings;
  }
  const bool is_free = std::holds_alternative<Free>(instruction.what);
  if (!is_free) entry.tasks.reserve(members_[entry.mesh].size());
  if (!is_free)
    for (std::uint32_t agent : members_[entry.mesh]) {
      const std::int32_t before = old && !old->tasks.empty() ? at_[old->mesh][agent] : -1;
      entry.tasks.push_back(before >= 0 ? old->tasks[static_cast<std::size_t>(before)] : new_task(agent));
    }
  if (old && old->mesh != entry.mesh)
    for (std::size_t p = 0; p < old->tasks.size(); ++p)
      if (const std::uint32_t agent = members_[old->mesh][p]; entry.tasks.empty() || at_[entry.mesh][agent] < 0)
        journal_.dead_tasks.emplace_back(agent, old->tasks[p]);
}

TaskId PricedProgram::new_task(std::uint32_t agent) {
  if (free_tasks_[agent].empty()) return TaskId(tasks_[agent]++);
  const TaskId id = free_tasks_[agent].back();
  free_tasks_[agent].pop_back();
  journal_.reused_tasks.emplace_back(agent, id);
  return id;
}

MeetingId PricedProgram::new_meeting() {
  if (free_meetings_.empty()) return MeetingId(meetings_[0]++);
  const MeetingId id = free_meetings_.back();
  free_meetings_.pop_back();
  journal_.reused_meetings.push_back(id);
  return id;
}

void PricedProgram::reuse(WorkloadEdit&& spent) {
  spare_.reserve(spare_.size() + spent.agents.size());
  for (AgentEdit& each : spent.agents) {
    each.added.clear();
    each.splices.clear();
    each.changed.clear();
    spare_.push_back(std::move(each));
  }
  edit_ = std::move(spent);
  edit_.links.clear();
  edit_.works.clear();
  edit_.meetings.clear();
  edit_.agents.clear();
}

AgentEdit& PricedProgram::edit_of(std::uint32_t agent) {
  if (edit_of_[agent] == 0) {
    if (spare_.empty()) spare_.emplace_back();
    edit_.agents.push_back(std::move(spare_.back()));
    edit_.agents.back().agent = AgentId(agent);
    spare_.pop_back();
    edit_of_[agent] = static_cast<std::uint32_t>(edit_.agents.size());
  }
  return edit_.agents[edit_of_[agent] - 1];
}

void PricedProgram::put(std::uint32_t agent, TaskId id, const Task& task) {
  const auto& tasks = now_->agents[AgentId(agent)].tasks;
  if (id.index() < tasks.size()) {
    if (!same_but_for_label(tasks[id], task)) edit_of(agent).changed.emplace_back(id, task);
    return;
  }
  std::vector<Task>& added = edit_of(agent).added;
  const std::size_t index = id.index() - tasks.size();
  if (index >= added.size()) added.resize(tasks_[agent] - tasks.size());
  added[index] = task;
}

void PricedProgram::put_meeting(MeetingId id, const Meeting& meeting) {
  if (id.index() < now_->meetings.size() && now_->meetings[id] == meeting) return;
  edit_.meetings.emplace_back(id, meeting);
}

// ---- prices ----

void PricedProgram::price_tasks(InstructionId id, Entry& entry) {
  if (entry.tasks.empty()) return;
  const Instruction& instruction = program_.instructions[id];
  const Task blank = pricer_.blank(id);
  find_waits(instruction, entry);
  if (std::holds_alternative<Compute>(instruction.what)) {
    price_compute(instruction, blank, entry);
    return;
  }
  if (const auto* combine = std::get_if<Combine>(&instruction.what)) {
    const Mesh& mesh = program_.meshes[entry.mesh];
    for (std::size_t p = 0; p < entry.tasks.size(); ++p) {
      task_ = blank;
      task_.work = works_.compute(pricer_.combine_cost(*combine, mesh, cluster_.spec(mesh.devices()[p])));
      pricer_.add_host(task_, instruction, mesh.devices()[p]);
      put_with_waits(entry, p, task_, instruction);
    }
    return;
  }
  if (const KindId kind = pricer_.communications().kind_of(instruction); kind.valid()) {
    price_communication(id, instruction, kind, blank, entry);
    return;
  }
  for (std::size_t p = 0; p < entry.tasks.size(); ++p) {
    task_ = blank;
    put_with_waits(entry, p, task_, instruction);
  }
}

// The instructions that it waits for. Of several on one stream only the last is kept, and none on its own stream. Slots
// give the order, so of two in one slot both are kept.
void PricedProgram::find_waits(const Instruction& instruction, const Entry& own) {
  waits_.clear();
  // Later in its own body: then it waits for an earlier play of the body.
  const auto is_behind = [&](const Entry& other) { return other.body == own.body && other.slot >= own.slot; };
  for (InstructionId before : instruction.after) {
    const Entry& other = entry(before);
    if (other.tasks.empty() || other.stream == own.stream) continue;
    const auto same = std::find_if(waits_.begin(), waits_.end(), [&](const Entry* each) {
      return each->slot != other.slot && each->goes_with(other) && !is_behind(*each) && !is_behind(other);
    });
    if (same == waits_.end()) {
      waits_.push_back(&other);
    } else if ((*same)->slot < other.slot) {
      *same = &other;
    }
  }
}

void PricedProgram::price_compute(const Instruction& instruction, const Task& blank, const Entry& entry) {
  const auto& compute = std::get<Compute>(instruction.what);
  const Mesh& mesh = program_.meshes[entry.mesh];
  const bool uniform = pricer_.is_uniform(compute, mesh);
  const DeviceSpec* spec = nullptr;
  WorkId work;
  for (std::size_t p = 0; p < entry.tasks.size(); ++p) {
    const DeviceSpec* const here = &cluster_.spec(mesh.devices()[p]);
    if (!uniform || here != spec) work = works_.compute(pricer_.compute_cost(compute, mesh, static_cast<int>(p)));
    spec = here;
    task_ = blank;
    if (works_.all()[work].fixed != 0) {  // not a view
      task_.work = work;
      pricer_.add_host(task_, instruction, mesh.devices()[p]);
    }
    put_with_waits(entry, p, task_, instruction);
  }
}

std::vector<LinkUse> PricedProgram::links_of(const CommGroup& group, const CommunicateCost& cost) const {
  std::vector<LinkUse> links;
  if (cost.bytes <= kNegligibleBytes) return links;
  for (const LinkShare& share : pricer_.communications().communicators()[group.prototype].routes[cost.route].links) {
    const FlowLinkId link = flow_link_[static_cast<std::size_t>(share.link.index() + group.shift)];
    if (link.valid()) links.push_back({link, share.coefficient});
  }
  return links;
}

std::int32_t PricedProgram::parties(CommGroupId group) {
  parties_.resize(std::max(parties_.size(), pricer_.communications().groups().size()));
  if (parties_[group] == 0) {
    std::vector<std::uint32_t> members = pricer_.communications().groups()[group].members;
    std::sort(members.begin(), members.end());
    parties_[group] = static_cast<std::int32_t>(std::unique(members.begin(), members.end()) - members.begin());
  }
  return parties_[group];
}

// Every group of the instruction with data to move gets a meeting, the previous one if it had one.
void PricedProgram::open_meetings(const Instruction& instruction, KindId kind, Entry& entry) {
  Communications& communications = pricer_.communications();
  std::swap(met_before_, entry.meetings);
  entry.meetings.clear();
  for (const auto& [group, meeting] : met_before_) meeting_of_[group] = meeting;
  std::optional<Payload> payload;
  for (std::size_t p = 0; p < entry.tasks.size(); ++p) {
    const CommGroupId id = communications.kinds()[kind].group_at[p];
    if (!id.valid()) continue;
    const CommGroup& group = communications.groups()[id];
    if (group.local || parties(id) == 1) continue;
    if (std::any_of(entry.meetings.rbegin(), entry.meetings.rend(), [&](const auto& each) { return each.first == id; }))
      continue;
    if (entry.sends || !payload) payload = communications.payload_of(instruction, group);
    const CommunicateCost& cost = communications.cost_of(group, *payload);
    if (cost.latency == 0 && cost.bytes == 0) continue;
    MeetingId meeting = std::exchange(meeting_of_[id], {});
    if (!meeting.valid()) meeting = new_meeting();
    const WorkId work = works_.communication(
        id.index(), cost, [&](const CommunicateCost& of, Work& made) { made.links = links_of(group, of); });
    put_meeting(meeting, {work, parties(id)});
    entry.meetings.emplace_back(id, meeting);
  }
  for (const auto& [group, meeting] : met_before_)
    if (std::exchange(meeting_of_[group], {}).valid()) journal_.dead_meetings.push_back(meeting);
}

void PricedProgram::price_communication(InstructionId id, const Instruction& instruction, KindId kind,
                                        const Task& blank, Entry& entry) {
  Communications& communications = pricer_.communications();
  meeting_of_.resize(std::max(meeting_of_.size(), communications.groups().size()));
  const auto* receive = std::get_if<Receive>(&instruction.what);
  if (!receive) open_meetings(instruction, kind, entry);
  const InstructionId opener = receive ? sent_[receive->transfer] : id;
  const auto& meetings = this->entry(opener).meetings;
  for (const auto& [group, meeting] : meetings) meeting_of_[group] = meeting;
  for (std::size_t p = 0; p < entry.tasks.size(); ++p) {
    const std::uint32_t agent = members_[entry.mesh][p];
    Task& task = task_ = blank;
    const CommGroupId group = pricer_.group_of(instruction, kind, world_.devices()[agent], static_cast<int>(p));
    if (group.valid()) {
      if (parties(group) > 1) {
        task.meeting = meeting_of_[group];
      } else if (const CommunicateCost& cost = communications.cost_of(instruction, communications.groups()[group]);
                 cost.latency != 0 || cost.bytes != 0) {
        task.work = works_.communication(group.index(), cost, [&](const CommunicateCost& of, Work& made) {
          made.links = links_of(communications.groups()[group], of);
        });
      }
      pricer_.add_host(task, instruction, world_.devices()[agent]);
    }
    put_with_waits(entry, p, task, instruction);
  }
  for (const auto& [group, meeting] : meetings) meeting_of_[group] = {};
}

void PricedProgram::put_with_waits(const Entry& own, std::size_t position, Task& task, const Instruction& instruction) {
  constexpr std::size_t kAhead = 4;
  const std::vector<std::uint32_t>& members = members_[own.mesh];
  if (position + kAhead < members.size())
    if (const auto& tasks = now_->agents[AgentId(members[position + kAhead])].tasks;
        tasks.contains(own.tasks[position + kAhead]))
      __builtin_prefetch(&tasks[own.tasks[position + kAhead]]);
  const std::uint32_t agent = members[position];
  const auto wait_for = [&](const Entry& other) {
    if (other.tasks.empty()) return;
    if (const std::int32_t there = at_[other.mesh][agent]; there >= 0)
      task.after.push_back(other.tasks[static_cast<std::size_t>(there)]);
  };
  for (const Entry* other : waits_) wait_for(*other);
  // If the device also sends in the transfer, the received data is complete when its send is.
  if (const auto* receive = std::get_if<Receive>(&instruction.what);
      receive && !task.meeting.valid() && !task.work.valid())
    wait_for(entry(sent_[receive->transfer]));
  put(agent, own.tasks[position], task);
}

}  // namespace weft
