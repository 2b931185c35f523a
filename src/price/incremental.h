// Incremental pricing: the whole program once, then only the changes of each edit (compile/compilation.h makes program
// edits, simulate/delta.h simulates workload edits). Every device is an agent of its own.
//
//   PricedProgram priced(compilation.program(), …);
//   Simulator simulator = Simulator::make(priced.price(), …);
//   edit = compilation.recompile(…);
//   simulator.apply(priced.reprice(edit, simulator.workload()));
//   priced.undo();  or  priced.commit();                          with the compilation's and the simulator's
//
// Invariant: up to numbering, the workload is that of `price` for the edited program without folding.
//
// An instruction is one task on each of its devices; if it is rewritten, the task gets new contents. The compiler
// rewrites all instructions connected with a change, most of them unchanged: a new instruction that does the same as a
// removed one in its place takes over its tasks. Ids of tasks and meetings that are no longer used are reused after
// `commit`.
//
// Cost of `reprice`: the instructions of the edit times their devices; each position in an agent's body is found in
// O(log length of the body). Agents and instructions outside the edit cost nothing.
#pragma once

#include "base/reused.h"
#include "price/instruction_pricer.h"
#include "price/ranks.h"
#include "price/works.h"
#include "program/edit.h"
#include "simulate/delta.h"

namespace weft {

class PricedProgram {
 public:
  // Refers to all arguments. Devices run the bodies of their current pipeline rank.
  PricedProgram(const Program& program, const Schedule& schedule, const TrainingGraph& training, const Cluster& cluster,
                const CostModel& cost, const SoftwareStack& stack);
  PricedProgram(const PricedProgram&) = delete;
  PricedProgram& operator=(const PricedProgram&) = delete;

  // The error names a device that the cluster does not have. Labels of links are the cluster's link ids, of tasks the
  // instructions they were made for.
  Result<Workload> price();

  // The edit from `now`, the workload of the program before the edit, to that of the edited program. An uncommitted
  // earlier change is committed first.
  WorkloadEdit reprice(const ProgramEdit& edit, const Workload& now);
  // Takes back the allocations of a spent edit for the next one.
  void reuse(WorkloadEdit&& spent);
  void undo();
  void commit();

 private:
  // A priced instruction.
  struct Entry {
    MeshId mesh = {};
    std::uint32_t slot = 0;
    std::uint32_t body = 0;  // body of the program
    std::uint8_t stream = 0;
    PlayedFor when = PlayedFor::EveryMicroBatch;
    bool weight_part = false;
    bool sends = false;
    std::vector<TaskId> tasks = {};  // by position in the mesh; empty for instructions without tasks (Free)
    std::vector<std::pair<CommGroupId, MeetingId>> meetings = {};

    // On the same streams of the same devices and in the same body: executed in order.
    bool goes_with(const Entry& other) const {
      return mesh == other.mesh && body == other.body && stream == other.stream && when == other.when &&
             weight_part == other.weight_part;
    }
    void clear() {
      std::vector<TaskId> no_tasks = std::move(tasks);
      auto no_meetings = std::move(meetings);
      no_tasks.clear();
      no_meetings.clear();
      *this = {.tasks = std::move(no_tasks), .meetings = std::move(no_meetings)};
    }
  };
  struct Written {
    InstructionId id;
    Entry entry;

    void clear() { entry.clear(); }
  };
  // The number of tasks of an agent's body in each slot, as of the last commit: a Fenwick tree.
  class Counts {
   public:
    void resize(std::size_t slots) { sums_.resize(slots + 1); }
    void add(std::uint32_t slot, std::int32_t change) {
      for (std::size_t i = slot + 1; i < sums_.size(); i += i & (~i + 1)) sums_[i] += change;
    }
    std::int32_t before(std::uint32_t slot) const {
      std::int32_t sum = 0;
      for (std::size_t i = slot; i > 0; i &= i - 1) sum += sums_[i];
      return sum;
    }

   private:
    std::vector<std::int32_t> sums_;
  };
  struct CountChange {
    std::uint32_t agent = 0;
    BodyId body;
    std::uint32_t slot = 0;
    std::int32_t change = 0;
  };
  struct Journal {
    bool open = false;
    std::size_t works = 0;  // number of works before
    Reused<Written> entries;
    std::vector<std::pair<TransferId, InstructionId>> sent;
    std::vector<CountChange> counts;
    std::vector<std::pair<std::uint32_t, TaskId>> reused_tasks, dead_tasks;
    std::vector<MeetingId> reused_meetings, dead_meetings;

    void clear() {
      open = false;
      entries.clear();
      sent.clear();
      counts.clear();
      for (auto* tasks : {&reused_tasks, &dead_tasks}) tasks->clear();
      for (auto* meetings : {&reused_meetings, &dead_meetings}) meetings->clear();
    }
  };
  // Tasks of an agent's body that are inserted and removed at one place of the program.
  struct Projection {
    std::vector<TaskId> out, in;
    std::uint32_t before = 0;  // tasks in the first slot before the place
    bool touched = false;
    // Since the last commit: changes of counts at and after the last queried slot, and the sum of earlier ones.
    std::vector<std::pair<std::uint32_t, std::int32_t>> behind;
    std::int32_t ahead = 0;
  };

  void adopt_meshes();
  const Entry& entry(InstructionId id) const {
    return next_of_[id] != 0 ? next_[next_of_[id] - 1].entry : entries_[id];
  }
  Entry& writable(InstructionId id);
  void find_successors(const BodyEdit& edit);
  void begin(InstructionId id, InstructionId before, std::uint32_t body);
  std::uint32_t body_of(const BodyEdit& edit) const;
  void assign_slots(const BodyEdit& edit, std::uint32_t stamp);
  std::uint32_t first_slot(const BodyEdit& edit) const;
  void begin_all_after_moved();
  TaskId new_task(std::uint32_t agent);
  MeetingId new_meeting();
  AgentEdit& edit_of(std::uint32_t agent);
  void put(std::uint32_t agent, TaskId id, const Task& task);
  void put_meeting(MeetingId id, const Meeting& meeting);

  void price_tasks(InstructionId id, Entry& entry);
  void find_waits(const Instruction& instruction, const Entry& entry);
  void price_compute(const Instruction& instruction, const Task& blank, const Entry& entry);
  void price_communication(InstructionId id, const Instruction& instruction, KindId kind, const Task& blank,
                           Entry& entry);
  void open_meetings(const Instruction& instruction, KindId kind, Entry& entry);
  void put_with_waits(const Entry& entry, std::size_t position, Task& task, const Instruction& instruction);
  std::int32_t parties(CommGroupId group);
  std::vector<LinkUse> links_of(const CommGroup& group, const CommunicateCost& cost) const;

  void splice(const BodyEdit& edit, std::uint32_t stamp);
  template <class Visit>
  void each_place(const Entry& of, std::size_t source, const Visit& visit) const;
  void count(const CountChange& change);
  // Tasks of the agent's body in earlier slots; queries must not go backwards.
  std::uint32_t tasks_before(std::uint32_t agent, BodyId body, std::uint32_t slot);

  const Program& program_;
  const Schedule& schedule_;
  const Cluster& cluster_;
  const CostModel& cost_;
  const Mesh world_;  // by value: meshes may be added to the program
  InstructionPricer pricer_;
  Ranks ranks_;
  Works works_;
  std::vector<int> rank_;                                 // by agent
  std::vector<std::vector<std::vector<BodyId>>> played_;  // by rank and body of the program: bodies of the agent
  IdVec<MeshId, std::vector<std::uint32_t>> members_;     // agents, by position
  IdVec<MeshId, std::vector<std::int32_t>> at_;           // position, by agent; −1: not in the mesh
  std::vector<FlowLinkId> flow_link_;                     // by link of the cluster; invalid: ample
  IdVec<CommGroupId, std::int32_t> parties_;              // 0: not counted yet

  IdVec<InstructionId, Entry> entries_;
  IdVec<TransferId, InstructionId> sent_;
  std::vector<IdVec<BodyId, Counts>> counts_;  // by agent
  std::vector<std::vector<TaskId>> free_tasks_;
  std::vector<MeetingId> free_meetings_;
  Journal journal_;

  // The change being priced.
  const Workload* now_ = nullptr;
  WorkloadEdit edit_;
  std::vector<AgentEdit> spare_;  // empty, with allocations to reuse
  bool initial_ = false;
  Reused<Written> next_;
  IdVec<InstructionId, std::uint32_t> next_of_;                      // index into next_, + 1
  IdVec<InstructionId, std::uint32_t> removed_, removed_at_, same_;  // stamps
  IdVec<InstructionId, InstructionId> before_;                       // the instruction whose tasks a new one takes over
  std::vector<std::uint32_t> edit_of_;                               // by agent: index into edit_.agents, + 1
  std::vector<std::size_t> tasks_, meetings_;                        // by agent: tasks after the edit; of all: meetings
  IdVec<CommGroupId, MeetingId> meeting_of_;
  std::vector<std::pair<CommGroupId, MeetingId>> met_before_;  // of the instruction being priced
  std::vector<InstructionId> moved_;                           // instructions that stay, but in another slot
  std::vector<std::uint32_t> first_slots_;                     // first slot of each edit of a body, ascending along it
  std::vector<std::uint32_t> reached_;                         // by body: the largest of these so far
  std::vector<const Entry*> waits_;                            // of the instruction being priced
  Task task_;                                                  // being priced
  std::vector<IdVec<BodyId, Projection>> projections_;
  std::vector<std::pair<std::uint32_t, BodyId>> touched_;
};

}  // namespace weft
