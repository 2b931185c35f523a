// Changing the workload of a Simulator, and taking changes back.
#include "simulate/delta_state.h"
#include "simulate/workload_check.h"

namespace weft {

using namespace engine;
namespace {

template <class Id, class Value>
void put_back(IdVec<Id, Value>& column, std::vector<Replaced<Id, Value>>& log) {
  for (auto it = log.rbegin(); it != log.rend(); ++it) {
    if (it->before) {
      column[it->id] = std::move(*it->before);
    } else {
      column.resize(it->id.index());
    }
  }
}

template <class Id, class Value>
Status put(IdVec<Id, Value>& column, const std::vector<std::pair<Id, Value>>& values,
           std::vector<Replaced<Id, Value>>& log, std::string_view what) {
  for (const auto& [id, value] : values) {
    if (!id.valid() || id.index() > column.size())
      return error("{} {}: add it as {}, or replace one before", what, id.index(), column.size());
    if (id.index() == column.size()) {
      log.push_back({id, std::nullopt});
      column.push_back(value);
    } else {
      log.push_back({id, std::exchange(column[id], value)});
    }
  }
  return Ok{};
}

}  // namespace

void Simulator::State::come(MeetingId meeting, const Layout::Party& party) {
  std::vector<Layout::Party>& parties = machine->layout().parties[meeting.index()];
  const auto at = std::lower_bound(parties.begin(), parties.end(), party, [](const auto& a, const auto& b) {
    return std::pair(a.agent, a.stream) < std::pair(b.agent, b.stream);
  });
  if (at != parties.end() && at->agent == party.agent && at->stream == party.stream) {
    ++at->tasks;
  } else {
    parties.insert(at, {party.agent, party.stream, 1});
  }
}

void Simulator::State::leave(MeetingId meeting, const Layout::Party& party) {
  std::vector<Layout::Party>& parties = machine->layout().parties[meeting.index()];
  const auto at = std::find_if(parties.begin(), parties.end(), [&](const Layout::Party& each) {
    return each.agent == party.agent && each.stream == party.stream;
  });
  if (--at->tasks == 0) parties.erase(at);
}

bool Simulator::State::stands_in_a_body(AgentId agent, TaskId task) const {
  const auto& bodies = workload.agents[agent].bodies;
  return std::any_of(bodies.begin(), bodies.end(),
                     [&](const auto& body) { return std::find(body.begin(), body.end(), task) != body.end(); });
}

Status Simulator::State::check_parties(const Undo& undo) const {
  const auto check_one = [&](MeetingId id) -> Status {
    const std::vector<Layout::Party>& parties = machine->layout().parties[id.index()];
    for (std::size_t i = 1; i < parties.size(); ++i)
      if (parties[i].agent == parties[i - 1].agent)
        return error("agent {}: comes to meeting {} on two streams: all its times on one", parties[i].agent,
                     id.index());
    if (!parties.empty() && static_cast<std::int32_t>(parties.size()) != workload.meetings[id].parties)
      return error("meeting {}: has {} parties but {} agents come to it", id.index(), workload.meetings[id].parties,
                   parties.size());
    return Ok{};
  };
  std::vector<MeetingId> touched;
  for (const Undo::OfAgent& agent : undo.agents)
    for (const auto* list : {&agent.came, &agent.left})
      for (const auto& [id, party] : *list) touched.push_back(id);
  for (const auto& meeting : undo.meetings) touched.push_back(meeting.id);
  std::sort(touched.begin(), touched.end());
  touched.erase(std::unique(touched.begin(), touched.end()), touched.end());
  for (const MeetingId id : touched) WEFT_TRY_OK(check_one(id));
  return Ok{};
}

Status Simulator::State::change_agent(const AgentEdit& edit, bool known, Undo::OfAgent& undo) {
  Agent& agent = workload.agents[edit.agent];
  const std::uint32_t first = machine->layout().first_stream[edit.agent.index()];
  const auto note = [&](auto& list, TaskId id) {
    const Task& task = agent.tasks[id];
    if (task.meeting.valid())
      list.emplace_back(task.meeting, Layout::Party{edit.agent.index(), first + task.stream, 1});
  };
  for (const Task& task : edit.added) agent.tasks.push_back(task);
  for (const auto& [id, task] : edit.changed) {
    if (id.index() >= undo.tasks) return error("task {} does not exist", id.index());
    if (const Status status = check_task(workload, agent, task); !status)
      return status.error().at(fmt::format("task {}", id.index()));
    const TaskPositions& at = positions[edit.agent.index()];
    const bool standing =
        known ? std::any_of(at.begin(), at.end(), [&](const auto& script) { return script[id.index()] != kNoStep; })
              : stands_in_a_body(edit.agent, id);
    if (standing && (agent.tasks[id].stream != task.stream || agent.tasks[id].when != task.when))
      return error("task {}: its stream or guard is another now: take it out, and put in a new one", id.index());
    if (standing) note(undo.left, id);
    undo.changed.emplace_back(id, std::exchange(agent.tasks[id], task));
    if (standing) note(undo.came, id);
  }
  for (std::size_t i = undo.tasks; i < agent.tasks.size(); ++i)
    if (const Status status = check_task(workload, agent, agent.tasks[TaskId(i)]); !status)
      return status.error().at(fmt::format("task {}", i));
  for (const Splice& splice : edit.splices) {
    if (!agent.bodies.contains(splice.body)) return error("body {} does not exist", splice.body.index());
    std::vector<TaskId>& body = agent.bodies[splice.body];
    if (splice.position > body.size() || splice.removed > body.size() - splice.position)
      return error("body {}: no {} tasks at {} of {}", splice.body.index(), splice.removed, splice.position,
                   body.size());
    for (const TaskId task : splice.inserted)
      if (!agent.tasks.contains(task))
        return error("body {}: task {} does not exist", splice.body.index(), task.index());
    const auto from = body.begin() + splice.position, to = from + splice.removed;
    undo.splices.push_back(
        {splice.body, splice.position, static_cast<std::uint32_t>(splice.inserted.size()), {from, to}});
    for (auto it = from; it != to; ++it) note(undo.left, *it);
    for (const TaskId task : splice.inserted) note(undo.came, task);
    body.insert(body.erase(from, to), splice.inserted.begin(), splice.inserted.end());
  }
  return Ok{};
}

Status Simulator::State::change(const WorkloadEdit& edit, Undo& undo) {
  WEFT_TRY_OK(put(workload.links, edit.links, undo.links, "link"));
  WEFT_TRY_OK(put(workload.works, edit.works, undo.works, "work"));
  WEFT_TRY_OK(put(workload.meetings, edit.meetings, undo.meetings, "meeting"));
  for (const auto& [id, link] : edit.links)
    if (link.capacity < 0) return error("link {}: capacity {} B/s: not below 0", id.index(), link.capacity);
  IdVec<FlowLinkId, WorkId> named_by(workload.links.size());
  if (edit.links.empty()) {
    std::vector<WorkId> works;
    for (const auto& [id, work] : edit.works) works.push_back(id);
    std::sort(works.begin(), works.end());
    works.erase(std::unique(works.begin(), works.end()), works.end());
    for (const WorkId id : works) WEFT_TRY_OK(check_work(id, workload.works[id], workload.links, named_by));
  } else {
    for (const WorkId id : workload.works.ids())
      WEFT_TRY_OK(check_work(id, workload.works[id], workload.links, named_by));
  }
  for (const auto& [id, meeting] : edit.meetings) WEFT_TRY_OK(check_meeting(workload, id));
  machine->layout().parties.resize(workload.meetings.size());
  for (const AgentEdit& each : edit.agents) {
    if (!workload.agents.contains(each.agent)) return error("agent {} does not exist", each.agent.index());
    Undo::OfAgent& of_agent = undo.agents.emplace_back();
    of_agent.agent = each.agent;
    of_agent.tasks = workload.agents[each.agent].tasks.size();
    const bool known = named && std::none_of(undo.agents.begin(), undo.agents.end() - 1,
                                             [&](const auto& other) { return other.agent == each.agent; });
    const Status status = change_agent(each, known, of_agent);
    for (const auto& [meeting, party] : of_agent.came) come(meeting, party);
    for (const auto& [meeting, party] : of_agent.left) leave(meeting, party);
    if (!status) return status.error().at(fmt::format("agent {}", each.agent.index()));
  }
  return check_parties(undo);
}

void Simulator::State::put_scripts_back(Undo& undo) {
  for (auto it = undo.scripts.rbegin(); it != undo.scripts.rend(); ++it) {
    machine->exchange_script(it->agent, std::move(it->script));
    positions[it->agent] = std::move(it->positions);
  }
  undo.scripts.clear();
}

void Simulator::State::take_back(Undo undo) {
  if (undo.machine != nullptr) {
    machine = std::move(undo.machine);
    positions = std::move(undo.positions);
    named = undo.named;
  }
  for (auto it = undo.agents.rbegin(); it != undo.agents.rend(); ++it) {
    Agent& agent = workload.agents[it->agent];
    for (const auto& [meeting, party] : it->left) come(meeting, party);
    for (const auto& [meeting, party] : it->came) leave(meeting, party);
    for (auto splice = it->splices.rbegin(); splice != it->splices.rend(); ++splice) {
      std::vector<TaskId>& body = agent.bodies[splice->body];
      const auto from = body.begin() + splice->position;
      body.insert(body.erase(from, from + splice->removed), splice->inserted.begin(), splice->inserted.end());
    }
    for (auto task = it->changed.rbegin(); task != it->changed.rend(); ++task)
      agent.tasks[task->first] = std::move(task->second);
    agent.tasks.resize(it->tasks);
  }
  put_back(workload.meetings, undo.meetings);
  put_back(workload.works, undo.works);
  put_back(workload.links, undo.links);
  put_scripts_back(undo);
  machine->workload_changed(first_changed(undo));
  entries = std::move(undo.entries);
  ends = std::move(undo.ends);
  tasks = undo.tasks;
}

std::uint32_t Simulator::State::first_changed(const Undo& undo) const {
  if (!undo.links.empty()) return 0;
  std::uint32_t first = static_cast<std::uint32_t>(workload.works.size());
  for (const auto& work : undo.works) first = std::min(first, work.id.index());
  return first;
}

std::optional<std::vector<Edited>> Simulator::State::exchange_scripts(Undo& undo) {
  IdVec<WorkId, char> work_replaced(workload.works.size());
  for (const auto& work : undo.works) work_replaced[work.id] = work.before.has_value();
  IdVec<FlowLinkId, char> link_replaced(workload.links.size());
  bool anything = false;
  for (const auto& link : undo.links) anything |= link_replaced[link.id] = link.before.has_value();
  if (anything)
    for (const WorkId id : workload.works.ids())
      for (const LinkUse& load : workload.works[id].links) work_replaced[id] |= link_replaced[load.link];
  for (const auto& work : undo.works) anything |= work.before.has_value();
  IdVec<MeetingId, char> meeting_replaced(undo.meetings.empty() ? 0 : workload.meetings.size());
  for (const auto& meeting : undo.meetings) meeting_replaced[meeting.id] = meeting.before.has_value();
  const auto replaced = [&](const Step& step) {
    if (step.kind != StepKind::Meet)
      return anything && step.subject != kNoStep && work_replaced[WorkId(step.subject)] != 0;
    return (!meeting_replaced.empty() && meeting_replaced[MeetingId(step.subject)] != 0) ||
           (anything && work_replaced[workload.meetings[MeetingId(step.subject)].work] != 0);
  };

  // Where no work is replaced, the old script is most of the new one.
  std::vector<char> touched(workload.agents.size());
  std::vector<std::vector<TaskId>> changed_of(touched.size());
  for (const Undo::OfAgent& agent : undo.agents) {
    touched[agent.agent.index()] = 1;
    for (const auto& [id, task] : agent.changed) changed_of[agent.agent.index()].push_back(id);
  }
  for (const auto& meeting : undo.meetings)
    if (meeting.before.has_value())
      for (const Layout::Party& party : machine->layout().parties[meeting.id.index()]) touched[party.agent] = 1;
  if (anything)
    for (std::uint32_t agent = 0; agent < touched.size(); ++agent)
      for (const Script& script : machine->script(agent).scripts())
        for (const Step& step : script.steps) touched[agent] |= replaced(step);

  undo.scripts.reserve(touched.size());
  std::vector<Edited> edited;
  for (std::uint32_t agent = 0; agent < touched.size(); ++agent) {
    if (touched[agent] == 0) continue;
    const Agent& source = workload.agents[AgentId(agent)];
    const AgentScript& before = machine->script(agent);
    std::optional<TaskPositions> found = TaskPositions{};
    std::optional<AgentScript> spliced;
    if (!anything)
      spliced = AgentScript::respliced(before, positions[agent], workload, source, changed_of[agent], *found);
    AgentScript script = spliced ? std::move(*spliced) : AgentScript(workload, source);
    if (!spliced) found = script.positions(source.tasks.size());
    if (!found || static_cast<std::uint32_t>(script.streams()) > machine->streams_of(agent) ||
        script.scripts().size() != before.scripts().size() || script.host_is_free() != before.host_is_free())
      return std::nullopt;
    for (std::uint32_t play = 0; play < script.plays(); ++play)
      if (script.script_index(play) != before.script_index(play)) return std::nullopt;
    ScriptDiff diff(before, script, replaced);
    undo.scripts.push_back({agent, machine->exchange_script(agent, std::move(script)),
                            std::exchange(positions[agent], std::move(*found))});
    if (!diff.empty()) edited.push_back({agent, std::move(diff)});
  }
  // The vector does not grow any more: point into it.
  for (Edited& each : edited)
    for (const Undo::OfScript& of : undo.scripts)
      if (of.agent == each.agent) {
        each.before = &of.script;
        each.positions = &of.positions;
        each.diff.rebase(of.script);
      }
  return edited;
}

}  // namespace weft
