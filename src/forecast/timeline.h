// A recorded run as tables, traces and drawings read it: every agent's tasks in time, and what the agent is doing at
// every moment.
#pragma once

#include <array>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "price/price.h"
#include "simulate/engine.h"

namespace weft {

// What an instruction is to a reader of times.
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
  std::uint32_t meeting_time = 0;  // how often its meeting was held before
  Picoseconds issued = 0;
  Picoseconds start = 0;  // takes its stream
  Picoseconds work = 0;   // its work begins: in a meeting, when the last party has come
  Picoseconds end = 0;
};

// The workload and its recorded run, made easy to ask. Both outlive it. Cost: one look at every executed task.
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
        span.meeting_time = held[task.meeting.index()]++;
        span.work = begun_[task.meeting.index()][span.meeting_time];
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
  std::vector<std::vector<Picoseconds>> begun_;  // per meeting and time it is held
};

// What an agent does from one change to the next.
enum class Doing : std::uint8_t {
  Compute,      // whatever else goes on beside it
  Communicate,  // and nothing computes: exposed
  Bubble,       // waits for another stage
  Wait,         // waits in a collective for a slower device
  HostBound,    // nothing is issued
  Done,         // nothing is left
};
struct Moment {
  Picoseconds from = 0, to = 0;
  Doing doing = Doing::HostBound;
  const Span* span = nullptr;  // the task that computes, communicates or waits
};
// From 0 to `end` without gaps, in order. Of several that are true the first of the list counts; of several streams
// the lowest. Cost: sorts the spans' ends.
void for_each_moment(std::span<const Span> spans, const Agent& agent, const IdVec<InstructionId, Activity>& activities,
                     const Program& program, Picoseconds agent_end, Picoseconds end,
                     const std::function<void(const Moment&)>& visit);

// Where the time of one agent goes. The parts sum to the step's time, exactly.
struct StepBreakdown {
  std::array<Picoseconds, kActivities> active{};  // computing, and exposed communication, by activity
  Picoseconds bubble = 0, waiting = 0, host_bound = 0, done = 0;

  Picoseconds& operator[](Activity activity) { return active[static_cast<std::size_t>(activity)]; }
  Picoseconds operator[](Activity activity) const { return active[static_cast<std::size_t>(activity)]; }
  Picoseconds total() const;
  bool operator==(const StepBreakdown&) const = default;
};
StepBreakdown break_down_step(const Timeline& timeline, AgentId agent, const IdVec<InstructionId, Activity>& activities,
                              const Program& program);

}  // namespace weft
