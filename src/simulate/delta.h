// Delta simulation: a workload that changes a little at a time, and its run.
//
// The simulator keeps checkpoints of the run. An edit restores the last one at which no stream (and no host, where it
// takes time) has come to an edited task, plays on from there, and stops when the state equals that of the old run
// at one of its checkpoints, some constant time earlier or later: from there to the next edited task both runs are the
// same. The result is that of a full run, bit for bit: time is an integer, so a run moved in time is the same run.
//
// `undo` puts back what was there: it costs what the edit changed. So do most edits of a search end; a replay therefore
// takes no checkpoints, and what is missing is made up for by the next edit, which plays that part of the run again.
//
// Agents that are the same are edited and played as one, as long as edits leave them the same (twins.h).
//
// Not here: times of single tasks; `simulate(simulator.workload())` has them. Cost of `apply`: the tasks replayed, the
// bodies of the agents that are edited, and per checkpoint looked at the streams of those agents.
#pragma once

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/result.h"
#include "simulate/engine.h"
#include "simulate/workload.h"

namespace weft {

// Takes `removed` tasks out of a body at `position` and puts others there.
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
  std::vector<Splice> splices = {};  // one after the other
  // New contents of tasks that are there. One that stands in a body keeps its stream and guard.
  std::vector<std::pair<TaskId, Task>> changed = {};
};

// An id that is one past the last adds; a smaller one replaces.
struct WorkloadEdit {
  std::vector<std::pair<FlowLinkId, FlowLink>> links = {};
  std::vector<std::pair<WorkId, Work>> works = {};
  std::vector<std::pair<MeetingId, Meeting>> meetings = {};
  std::vector<AgentEdit> agents = {};
};

struct DeltaOptions {
  Network network = Network::Fair;
  int checkpoints = 256;  // of a run: more of them restore and stop nearer to an edit, and take memory
  // Streams of an agent, at least: where an edit is the first to use a stream that is not counted, all is made anew.
  int streams = 1;
};

struct Outcome {
  Picoseconds makespan = 0;   // if abandoned: what it is at least
  bool abandoned = false;     // the bound was passed: the edit is not in force
  std::int64_t replayed = 0;  // tasks begun to find out; one that acts for several agents counts for all
  std::int64_t tasks = 0;     // of the old run
};

class Simulator {
 public:
  static Result<Simulator> make(Workload workload, const DeltaOptions& options = {});
  Simulator(Simulator&&) noexcept;
  Simulator& operator=(Simulator&&) noexcept;
  ~Simulator();

  // Brings agents that another stands for up to date first: not from several threads at once.
  const Workload& workload() const;
  Picoseconds makespan() const;
  // When each agent's last task ends.
  const std::vector<Picoseconds>& ends() const;

  // After an error (an edit that names what does not exist, a deadlock) and when abandoned, all is as it was. It is
  // abandoned once it is sure to end after `bound`. What is left of the edit has memory to use again, and nothing else.
  Result<Outcome> apply(WorkloadEdit&& edit, std::optional<Picoseconds> bound = std::nullopt);
  Result<Outcome> apply(const WorkloadEdit& edit, std::optional<Picoseconds> bound = std::nullopt) {
    return apply(WorkloadEdit(edit), bound);
  }
  // Takes the last edit back that is in force; all of them can be, one after the other.
  void undo();
  // Edits in force will not be taken back: forgets how.
  void commit();

 private:
  struct State;
  explicit Simulator(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace weft
