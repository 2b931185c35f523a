#include "simulate/engine.h"

#include <algorithm>
#include <bit>

#include "simulate/machine.h"
#include "simulate/steady_state.h"

namespace weft::engine {

Run Machine::take_result() {
  Run run;
  run.tasks = tally_.tasks;
  run.events = tally_.events;
  for (std::size_t agent = 0; agent < agents_.size(); ++agent) {
    const AgentState& state = agents_[agent];
    run.makespan = std::max(run.makespan, state.end);
    // A last task without duration occupies no time: until then the agent waited for the host.
    const Picoseconds tail = std::max<Picoseconds>(0, state.end - state.idle_since);
    run.agents.push_back({.busy = state.busy, .host_bound = state.host_bound + tail, .end = state.end});
    if (options_.record) run.agents[AgentId(agent)].tasks = std::move(times_[agent]);
  }
  IdVec<FlowLinkId, Wide> carried(workload_.links.size());
  for (const WorkId id : workload_.works.ids())
    for (const LinkUse& load : workload_.works[id].links)
      carried[load.link] += Wide{tally_.done[id]} * workload_.works[id].bytes * load.coefficient;
  for (const Wide bytes : carried) run.carried.push_back(static_cast<std::int64_t>(bytes / kOne));
  return run;
}

namespace {

std::string name(const AgentScript& script, const Agent& agent, Place place) {
  const TaskId task = script.task(place);
  const Play play = script.play(place.play);
  return fmt::format("task {} (label {}, body {}, micro-batch {})", task.index(), agent.tasks[task].label,
                     play.body.index(), play.micro_batch);
}

}  // namespace

Error Machine::fault() const {
  if (!agenda_.empty()) return error("time runs past {} ps (26 days): scale the workload down", kTimeLimit);

  constexpr std::size_t kMost = 8;
  std::string text;
  std::size_t waiting = 0;
  for (Index agent = 0; agent < agents_.size(); ++agent) {
    const AgentState& state = agents_[leader_[agent]];
    const AgentScript& script = scripts_[leader_[agent]];
    const Agent& source = workload_.agents[AgentId(leader_[agent])];
    for (unsigned mask = static_cast<unsigned>(state.meeting | state.idle); mask != 0; mask &= mask - 1) {
      if (++waiting > kMost) continue;
      const Index stream = layout_.first_stream[leader_[agent]] + static_cast<Index>(std::countr_zero(mask));
      const StreamState& s = streams_[stream];
      const Step& step = *steps_[stream];
      text += fmt::format("\n  agent {}, stream {}: {} waits ", agent, step.stream, name(script, source, s.head));
      if ((state.meeting & (1u << step.stream)) != 0) {
        text += fmt::format("in meeting {} for agent", step.subject);
        const char* separator = " ";
        for (const Layout::Party& party : parties(flow_of(stream, step))) {
          const bool here =
              (agents_[leader_[party.agent]].meeting >> (party.stream - layout_.first_stream[party.agent]) & 1) != 0 &&
              steps_[acting(party.stream)]->subject == step.subject;
          if (here) continue;
          text += fmt::format("{}{}", separator, party.agent);
          separator = ", ";
        }
      } else if (s.waits) {
        text += fmt::format("for {} on stream {}", name(script, source, s.awaited), s.awaited_stream);
      } else {
        text += fmt::format("to be issued: the host stands before {}", name(script, source, state.cursor));
      }
    }
  }
  if (waiting > kMost) text += fmt::format("\n  and {} more", waiting - kMost);
  return error("deadlock at {} ps: nothing can go on{}", now_, text);
}

}  // namespace weft::engine

namespace weft {

Result<Run> simulate(const Workload& workload, const SimulateOptions& options) {
  WEFT_TRY_OK(check(workload));
  engine::Machine machine(workload, options);
  if (!(options.record ? machine.run() : engine::SteadyState(machine).run())) return machine.fault();
  return machine.take_result();
}

}  // namespace weft
