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

void Simulator::State::come_to(AgentId id, const std::vector<MeetingId>& meetings) {
  if (meetings.empty()) return;
  std::vector<std::vector<Layout::Party>>& parties = machine->layout().parties;
  const Agent& agent = workload.agents[id];
  const std::uint32_t first = machine->layout().first_stream[id.index()];
  for (const std::vector<TaskId>& body : agent.bodies)
    for (const TaskId task_id : body) {
      const Task& task = agent.tasks[task_id];
      if (!task.meeting.valid() || !std::binary_search(meetings.begin(), meetings.end(), task.meeting)) continue;
      const Layout::Party party{id.index(), first + task.stream};
      std::vector<Layout::Party>& column = parties[task.meeting.index()];
      // On another stream than before it is entered again, which `check_parties` finds.
      if (std::none_of(column.begin(), column.end(), [&](const Layout::Party& other) {
            return other.agent == party.agent && other.stream == party.stream;
          }))
        column.push_back(party);
    }
}

void Simulator::State::leave(AgentId id, const std::vector<MeetingId>& meetings) {
  for (const MeetingId meeting : meetings)
    if (meeting.index() < machine->layout().parties.size())
      std::erase_if(machine->layout().parties[meeting.index()],
                    [&](const Layout::Party& party) { return party.agent == id.index(); });
}

Status Simulator::State::check_parties(const Undo& undo) const {
  const auto check_one = [&](MeetingId id) -> Status {
    const std::vector<Layout::Party>& parties = machine->layout().parties[id.index()];
    for (std::size_t i = 0; i < parties.size(); ++i)
      for (std::size_t k = 0; k < i; ++k)
        if (parties[i].agent == parties[k].agent)
          return error("agent {}: comes to meeting {} on two streams: all its times on one", parties[i].agent,
                       id.index());
    if (!parties.empty() && static_cast<std::int32_t>(parties.size()) != workload.meetings[id].parties)
      return error("meeting {}: has {} parties but {} agents come to it", id.index(), workload.meetings[id].parties,
                   parties.size());
    return Ok{};
  };
  for (const Undo::OfAgent& agent : undo.agents)
    for (const MeetingId id : agent.meetings) WEFT_TRY_OK(check_one(id));
  for (const auto& meeting : undo.meetings) WEFT_TRY_OK(check_one(meeting.id));
  return Ok{};
}

Status Simulator::State::change_agent(const AgentEdit& edit, Undo::OfAgent& undo) {
  Agent& agent = workload.agents[edit.agent];
  for (const Task& task : edit.added) agent.tasks.push_back(task);
  for (std::size_t i = undo.tasks; i < agent.tasks.size(); ++i)
    if (const Status status = check_task(workload, agent, agent.tasks[TaskId(i)]); !status)
      return status.error().at(fmt::format("task {}", i));
  const auto meet = [&](TaskId task) {
    if (const MeetingId meeting = agent.tasks[task].meeting; meeting.valid()) undo.meetings.push_back(meeting);
  };
  for (const Splice& splice : edit.splices) {
    if (!agent.bodies.contains(splice.body)) return error("body {} does not exist", splice.body.index());
    std::vector<TaskId>& body = agent.bodies[splice.body];
    if (splice.position > body.size() || splice.removed > body.size() - splice.position)
      return error("body {}: no {} tasks at {} of {}", splice.body.index(), splice.removed, splice.position,
                   body.size());
    for (const TaskId task : splice.inserted)
      if (!agent.tasks.contains(task))
        return error("body {}: task {} does not exist", splice.body.index(), task.index());
    undo.bodies.emplace_back(splice.body, body);
    const auto first = body.begin() + splice.position, last = first + splice.removed;
    std::for_each(first, last, meet);
    std::for_each(splice.inserted.begin(), splice.inserted.end(), meet);
    body.insert(body.erase(first, last), splice.inserted.begin(), splice.inserted.end());
  }
  std::sort(undo.meetings.begin(), undo.meetings.end());
  undo.meetings.erase(std::unique(undo.meetings.begin(), undo.meetings.end()), undo.meetings.end());
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
    const Status status = change_agent(each, of_agent);
    leave(each.agent, of_agent.meetings);
    if (!status) return status.error().at(fmt::format("agent {}", each.agent.index()));
    come_to(each.agent, of_agent.meetings);
  }
  return check_parties(undo);
}

void Simulator::State::take_back(Undo undo) {
  for (auto it = undo.agents.rbegin(); it != undo.agents.rend(); ++it) {
    leave(it->agent, it->meetings);
    Agent& agent = workload.agents[it->agent];
    for (auto body = it->bodies.rbegin(); body != it->bodies.rend(); ++body)
      agent.bodies[body->first] = std::move(body->second);
    agent.tasks.resize(it->tasks);
    come_to(it->agent, it->meetings);
  }
  put_back(workload.meetings, undo.meetings);
  put_back(workload.works, undo.works);
  put_back(workload.links, undo.links);
  if (undo.rebuilt) {
    build();
  } else {
    for (auto it = undo.scripts.rbegin(); it != undo.scripts.rend(); ++it) {
      machine->exchange_script(it->agent, std::move(it->script));
      positions[it->agent] = std::move(it->positions);
    }
    machine->workload_changed(first_changed(undo));
  }
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
  IdVec<MeetingId, char> meeting_replaced(workload.meetings.size());
  for (const auto& meeting : undo.meetings) meeting_replaced[meeting.id] = meeting.before.has_value();
  for (const auto& work : undo.works) anything |= work.before.has_value();
  for (const auto& meeting : undo.meetings) anything |= meeting.before.has_value();
  const auto replaced = [&](const Step& step) {
    if (!anything) return false;
    if (step.kind != StepKind::Meet) return step.subject != kNoStep && work_replaced[WorkId(step.subject)] != 0;
    return meeting_replaced[MeetingId(step.subject)] != 0 ||
           work_replaced[workload.meetings[MeetingId(step.subject)].work] != 0;
  };

  // Where nothing is replaced and only new tasks are put in, the old script is most of the new one.
  std::vector<char> touched(workload.agents.size());
  std::vector<std::uint32_t> first_new(touched.size(), kNoStep);
  for (const Undo::OfAgent& agent : undo.agents) {
    const std::uint32_t id = agent.agent.index();
    if (touched[id] == 0 && !anything) first_new[id] = static_cast<std::uint32_t>(agent.tasks);
    touched[id] = 1;
  }
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
    if (first_new[agent] != kNoStep)
      spliced = AgentScript::respliced(before, workload, source, first_new[agent], *found);
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
