// Delta simulation: a workload under small edits, and its run.
//
// The simulator keeps checkpoints of the run. An edit restores the last one at which no stream (and no host that takes
// time) has reached an edited task, replays from there, and stops when the state equals that of the old run at one of
// its checkpoints, shifted by a constant time: from there to the next edited task both runs are the same. The result is
// that of a full run, bit for bit: time is an integer, so a shifted run is the same run.
//
// `undo` restores what the edit replaced, at the cost of the changes. Most edits of a search are undone, so a replay
// takes no checkpoints; the next edit replays the parts of the run without checkpoints to take them.
//
// Identical agents are edited and simulated as one, as long as edits keep them identical (twins.h).
//
// Not here: times of single tasks; `simulate(simulator.workload())` has them. Cost of `apply`: the tasks replayed, the
// bodies of the edited agents, and the streams of those agents for every checkpoint compared.
#pragma once

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/result.h"
#include "simulate/engine.h"
#include "simulate/workload.h"

namespace weft {

// Replaces `removed` tasks of a body at `position` by others.
struct Splice {
  BodyId body;
  std::uint32_t position = 0;
  std::uint32_t removed = 0;
  ShortVec<TaskId> inserted = {};

  bool operator==(const Splice&) const = default;
};

struct AgentEdit {
  AgentId agent;
  std::vector<Task> added = {};      // get the next TaskIds
  std::vector<Splice> splices = {};  // applied in order
  // New contents of existing tasks. A task that is in a body keeps its stream and guard.
  std::vector<std::pair<TaskId, Task>> changed = {};
};

// An id one past the last adds an entry; a smaller one replaces it.
struct WorkloadEdit {
  std::vector<std::pair<FlowLinkId, FlowLink>> links = {};
  std::vector<std::pair<WorkId, Work>> works = {};
  std::vector<std::pair<MeetingId, Meeting>> meetings = {};
  std::vector<AgentEdit> agents = {};
};

struct DeltaOptions {
  Network network = Network::Fair;
  int checkpoints = 256;  // of a run: more of them shorten replays and take memory
  // Streams to reserve per agent: an edit that uses one beyond them for the first time rebuilds everything.
  int streams = 1;
};

struct Outcome {
  Picoseconds makespan = 0;   // if abandoned, a lower bound
  bool abandoned = false;     // the bound was exceeded: the edit is not applied
  std::int64_t replayed = 0;  // tasks simulated for it; a leader's task counts for every agent it acts for
  std::int64_t tasks = 0;     // of the old run
};

class Simulator {
 public:
  static Result<Simulator> make(Workload workload, const DeltaOptions& options = {});
  Simulator(Simulator&&) noexcept;
  Simulator& operator=(Simulator&&) noexcept;
  ~Simulator();

  // Brings the tasks of agents that follow a leader up to date first: not safe from several threads.
  const Workload& workload() const;
  Picoseconds makespan() const;
  // When each agent's last task ends.
  const std::vector<Picoseconds>& ends() const;

  // After an error (an unknown id, a deadlock) or when abandoned, everything is as before. The edit is abandoned as
  // soon as its run is certain to end after `bound`. `edit` is left valid but unspecified; its allocations can be
  // reused.
  Result<Outcome> apply(WorkloadEdit&& edit, std::optional<Picoseconds> bound = std::nullopt);
  Result<Outcome> apply(const WorkloadEdit& edit, std::optional<Picoseconds> bound = std::nullopt) {
    return apply(WorkloadEdit(edit), bound);
  }
  // Undoes the last applied edit that is not undone yet; can be repeated down to the first.
  void undo();
  // Makes the applied edits permanent: drops their undo records.
  void commit();

 private:
  struct State;
  explicit Simulator(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace weft
