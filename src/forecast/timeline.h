// A recorded run for tables, traces and drawings: every agent's tasks in time, and what the agent does at every moment.
#pragma once

#include <algorithm>
#include <array>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "price/price.h"
#include "simulate/engine.h"

namespace weft {

// The category of an instruction in a breakdown of time.
enum class Activity : std::uint8_t {
  Compute,    // of forward and backward
  Optimizer,  // of the step
  Tensor,     // collectives on activations
  Context,    // … over the context axes
  Expert,     // … between experts
  Data,       // on gradients and weights
  Pipeline,   // transfers between stages
  Offload,    // copies to and from the host
};
inline constexpr int kActivities = 8;
std::string_view name_of(Activity activity);  // "compute", "tensor", …
inline bool communicates(Activity activity) { return activity >= Activity::Tensor; }

IdVec<InstructionId, Activity> activities_of(const Program& program, const Graph& graph);

// An executed task.
struct Span {
  TaskId task;
  std::uint32_t instruction = 0;
  std::uint32_t play = 0;
  std::uint32_t occurrence = 0;  // occurrence of its meeting, from 0
  Picoseconds issued = 0;
  Picoseconds start = 0;  // it occupies its stream
  // Its work begins: in a meeting, when the last party has arrived. (A send that was measured may end before that.)
  Picoseconds work = 0;
  Picoseconds end = 0;
};

// Queries on a workload and its recorded run; both must outlive it. Cost: linear in the executed tasks.
class Timeline {
 public:
  Timeline(const Workload& workload, const Run& run);

  const Workload& workload() const { return workload_; }
  const Run& run() const { return run_; }
  // Calls visit(span) for the agent's executed tasks in issue order.
  template <class Visit>
  void for_each(AgentId agent, Visit&& visit) const {
    std::vector<std::uint32_t> held(workload_.meetings.size(), 0);
    walk(agent, [&](std::uint32_t play, TaskId id, const Task& task, const TaskTimes& times) {
      Span span{id, task.label, play, 0, times.issued, times.start, times.start, times.end};
      if (task.meeting.valid()) {
        span.occurrence = held[task.meeting.index()]++;
        span.work = std::min(begun_[task.meeting.index()][span.occurrence], span.end);
      }
      visit(span);
    });
  }
  std::vector<Span> spans(AgentId agent) const;
  // An agent that ends last.
  AgentId last() const;

 private:
  template <class Visit>
  void walk(AgentId id, Visit&& visit) const {
    const Agent& agent = workload_.agents[id];
    const std::vector<TaskTimes>& times = run_.agents[id].tasks;
    const IdVec<BodyId, PlayedRange> ranges = played_ranges(agent);
    std::size_t executed = 0;
    for (std::uint32_t play = 0; play < agent.plays.size(); ++play) {
      const Play& here = agent.plays[play];
      for (TaskId task_id : agent.bodies[here.body])
        if (const Task& task = agent.tasks[task_id]; is_in(task, ranges[here.body], here.micro_batch))
          visit(play, task_id, task, times[executed++]);
    }
  }

  const Workload& workload_;
  const Run& run_;
  std::vector<std::vector<Picoseconds>> begun_;  // per meeting and occurrence
};

// What an agent does during a moment, an interval between two changes.
enum class Doing : std::uint8_t {
  Compute,      // with or without overlapped communication
  Communicate,  // without computation: exposed
  Bubble,       // waits for another stage
  Wait,         // waits in a collective for a slower device
  HostBound,    // the host has not issued a task
  Done,         // no task is left
};
struct Moment {
  Picoseconds from = 0, to = 0;
  Doing doing = Doing::HostBound;
  const Span* span = nullptr;  // the task that computes, communicates or waits
};
// Visits the moments from 0 to `end` in order, without gaps. If several apply, the first of Doing counts, and of
// several streams the lowest. Cost: sorts the spans' ends.
void for_each_moment(std::span<const Span> spans, const Agent& agent, const IdVec<InstructionId, Activity>& activities,
                     const Program& program, Picoseconds agent_end, Picoseconds end,
                     const std::function<void(const Moment&)>& visit);

// Where the time of one agent goes. The parts sum to the step's time, exactly.
struct StepBreakdown {
  std::array<Picoseconds, kActivities> active{};  // computing, and exposed communication, by activity
  Picoseconds bubble = 0, waiting = 0, host_bound = 0, done = 0;
  Picoseconds imbalance = 0;  // waiting for a stage that has more to do; set by forecasts, who know all stages

  Picoseconds& operator[](Activity activity) { return active[static_cast<std::size_t>(activity)]; }
  Picoseconds operator[](Activity activity) const { return active[static_cast<std::size_t>(activity)]; }
  Picoseconds total() const;
  bool operator==(const StepBreakdown&) const = default;
};
StepBreakdown break_down_step(const Timeline& timeline, AgentId agent, const IdVec<InstructionId, Activity>& activities,
                              const Program& program);

}  // namespace weft
