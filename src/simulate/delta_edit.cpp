// Applying and undoing edits of a Simulator's workload.
#include <span>

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
Status put(IdVec<Id, Value>& column, std::vector<std::pair<Id, Value>>& values, std::vector<Replaced<Id, Value>>& log,
           std::string_view what) {
  for (auto& [id, value] : values) {
    if (!id.valid() || id.index() > column.size())
      return error("{} {}: add it as {}, or replace one before", what, id.index(), column.size());
    if (id.index() == column.size()) {
      log.push_back({id, std::nullopt});
      column.push_back(std::move(value));
    } else {
      log.push_back({id, std::exchange(column[id], std::move(value))});
    }
  }
  return Ok{};
}

// Replaces `removed` tasks of a body.
void replace(std::vector<TaskId>& body, std::uint32_t position, std::uint32_t removed,
             std::span<const TaskId> inserted) {
  const auto both = static_cast<std::ptrdiff_t>(std::min<std::size_t>(removed, inserted.size()));
  const auto from = std::copy_n(inserted.begin(), both, body.begin() + position);
  if (static_cast<std::ptrdiff_t>(removed) > both) {
    body.erase(from, body.begin() + position + removed);
  } else {
    body.insert(from, inserted.begin() + both, inserted.end());
  }
}

}  // namespace

void Simulator::State::add_party(MeetingId meeting, const Layout::Party& party) {
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

void Simulator::State::remove_party(MeetingId meeting, const Layout::Party& party) {
  std::vector<Layout::Party>& parties = machine->layout().parties[meeting.index()];
  const auto at = std::find_if(parties.begin(), parties.end(), [&](const Layout::Party& each) {
    return each.agent == party.agent && each.stream == party.stream;
  });
  WEFT_CHECK(at != parties.end(), "agent {} leaves meeting {}, to which it did not come", party.agent, meeting.index());
  if (--at->tasks == 0) parties.erase(at);
}

bool Simulator::State::is_in_a_body(AgentId agent, TaskId task) const {
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

Status Simulator::State::change_agent(AgentEdit& edit, ScriptPatch*& patch, const ScriptPatch* first,
                                      Undo::OfAgent& undo) {
  Agent& agent = workload.agents[edit.agent];
  AgentScript& script = machine->script(edit.agent.index());
  ScriptIndex& of = index[edit.agent.index()];
  const auto give_up = [&] {
    patch->undo(script, of);
    patch = nullptr;
  };
  const bool patches = patch != nullptr && first == nullptr;
  const std::uint32_t first_stream = machine->layout().first_stream[edit.agent.index()];
  const auto note = [&](auto& list, TaskId id) {
    const Task& task = agent.tasks[id];
    if (task.meeting.valid())
      list.emplace_back(task.meeting, Layout::Party{edit.agent.index(), first_stream + task.stream, 1});
  };
  for (Task& task : edit.added) agent.tasks.push_back(std::move(task));
  of.resize(agent.tasks.size());
  for (auto& [id, task] : edit.changed) {
    if (id.index() >= undo.tasks) return error("task {} does not exist", id.index());
    if (const Status status = check_task(workload, agent, task); !status)
      return status.error().at(fmt::format("task {}", id.index()));
    const bool standing = patch ? of.positions.contains(id) : is_in_a_body(edit.agent, id);
    if (standing && (agent.tasks[id].stream != task.stream || agent.tasks[id].when != task.when))
      return error("task {}: its stream or guard is another now: take it out, and put in a new one", id.index());
    if (standing) note(undo.left, id);
    undo.changed.emplace_back(id, std::exchange(agent.tasks[id], std::move(task)));
    if (patches && patch && !patch->change(script, of, workload, id, agent.tasks[id])) give_up();
    if (standing) note(undo.came, id);
  }
  for (std::size_t i = undo.tasks; i < agent.tasks.size(); ++i)
    if (const Status status = check_task(workload, agent, agent.tasks[TaskId(i)]); !status)
      return status.error().at(fmt::format("task {}", i));
  for (Splice& splice : edit.splices) {
    if (!agent.bodies.contains(splice.body)) return error("body {} does not exist", splice.body.index());
    std::vector<TaskId>& body = agent.bodies[splice.body];
    if (splice.position > body.size() || splice.removed > body.size() - splice.position)
      return error("body {}: no {} tasks at {} of {}", splice.body.index(), splice.removed, splice.position,
                   body.size());
    for (const TaskId task : splice.inserted)
      if (!agent.tasks.contains(task))
        return error("body {}: task {} does not exist", splice.body.index(), task.index());
    const auto from = body.begin() + splice.position, to = from + splice.removed;
    const auto inserted = static_cast<std::uint32_t>(splice.inserted.size());
    of.list.assign(from, to);
    for (const TaskId task : of.list) note(undo.left, task);
    for (const TaskId task : splice.inserted) note(undo.came, task);
    replace(body, splice.position, splice.removed, splice.inserted);
    splice.inserted = ShortVec<TaskId>(of.list.begin(), of.list.end());
    splice.removed = inserted;
    undo.splices.push_back(std::move(splice));
    const Splice& back = undo.splices.back();
    if (patches && patch &&
        !patch->splice(script, of, workload, agent, back.body, back.position, back.inserted, inserted))
      give_up();
  }
  of.list.clear();
  if (first != nullptr)
    patch->follow(*first, script, of, machine->script(first->agent()), index[first->agent()]);
  else if (patch && !patch->finish(script, of, agent))
    give_up();
  return Ok{};
}

Status Simulator::State::change(WorkloadEdit& edit, Undo& undo) {
  WEFT_TRY_OK(put(workload.links, edit.links, undo.links, "link"));
  WEFT_TRY_OK(put(workload.works, edit.works, undo.works, "work"));
  WEFT_TRY_OK(put(workload.meetings, edit.meetings, undo.meetings, "meeting"));
  for (const auto& [id, given] : edit.links)
    if (const FlowLink& link = workload.links[id]; link.capacity < 0)
      return error("link {}: capacity {} B/s: not below 0", id.index(), link.capacity);
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
  const bool in_place =
      std::none_of(undo.works.begin(), undo.works.end(), [](const auto& work) { return work.before; }) &&
      std::none_of(undo.links.begin(), undo.links.end(), [](const auto& link) { return link.before; });
  // Leaders come before the agents identical to them.
  const auto in_order = [](const AgentEdit& a, const AgentEdit& b) { return a.agent < b.agent; };
  if (!std::is_sorted(edit.agents.begin(), edit.agents.end(), in_order))
    std::stable_sort(edit.agents.begin(), edit.agents.end(), in_order);
  const std::vector<std::uint32_t> same_as = twins.edit(edit.agents, workload.works);
  std::vector<const ScriptPatch*> patch_of(edit.agents.size());
  IdVec<AgentId, std::uint32_t> done(workload.agents.size(), kNoStep);  // by leader: index into undo.agents
  undo.patches.reserve(edit.agents.size());                             // patches point at one another
  const auto update_parties = [&](const Undo::OfAgent& of) {
    each_party(
        undo, of, [&](MeetingId meeting, const Party& party) { add_party(meeting, party); },
        [&](MeetingId meeting, const Party& party) { remove_party(meeting, party); });
  };
  for (std::size_t i = 0; i < edit.agents.size(); ++i) {
    AgentEdit& each = edit.agents[i];
    if (!workload.agents.contains(each.agent)) return error("agent {} does not exist", each.agent.index());
    Undo::OfAgent& of_agent = undo.agents.add();
    of_agent.agent = each.agent;
    if (const AgentId leader = twins.leaders()[each.agent]; leader != each.agent) {
      of_agent.same_as = done[leader];
      update_parties(of_agent);
      continue;
    }
    of_agent.tasks = workload.agents[each.agent].tasks.size();
    // If only tasks of the agent change, its script is patched in place.
    ScriptPatch* patch = nullptr;
    const ScriptPatch* first = nullptr;
    const auto is_other_part = [&](std::size_t other) {
      return other < edit.agents.size() && edit.agents[other].agent == each.agent;
    };
    const bool patched = named && in_place && !is_other_part(i - 1) && !is_other_part(i + 1) &&
                         machine->host_is_free(each.agent.index());
    if (patched) {
      patch = &undo.patches.add();
      patch->begin(machine->script(each.agent.index()), index[each.agent.index()], each.agent.index());
      first = patch_of[same_as[i]];
      if (first != nullptr &&
          !patch->can_follow(*first, machine->script(each.agent.index()), index[each.agent.index()],
                             workload.agents[each.agent], workload.agents[AgentId(first->agent())], each.changed))
        first = nullptr;
    }
    const Status status = change_agent(each, patch, first, of_agent);
    update_parties(of_agent);
    if (patched && patch == nullptr) undo.patches.drop_last();
    if (patch == nullptr) twins.separate(each.agent);
    if (same_as[i] == i) patch_of[i] = patch;
    done[each.agent] = static_cast<std::uint32_t>(undo.agents.size() - 1);
    if (!status) return status.error().at(fmt::format("agent {}", each.agent.index()));
  }
  return check_parties(undo);
}

void Simulator::State::settle(Undo& undo) {
  std::vector<const ScriptPatch*> patch_of(workload.agents.size());
  for (const ScriptPatch& patch : undo.patches) patch_of[patch.agent()] = &patch.first();
  for (Undo::OfAgent& of : undo.agents) {
    if (of.same_as == kNoStep || std::exchange(of.settled, true)) continue;
    const Undo::OfAgent& twin = undo.agents[of.same_as];
    const Agent& like = workload.agents[twin.agent];
    Agent& agent = workload.agents[of.agent];
    of.tasks = agent.tasks.size();
    for (const auto& [id, task] : twin.changed)
      of.changed.emplace_back(id, std::exchange(agent.tasks[id], like.tasks[id]));
    for (std::size_t i = of.tasks; i < like.tasks.size(); ++i) agent.tasks.push_back(like.tasks[TaskId(i)]);
    for (const Splice& splice : twin.splices) agent.bodies[splice.body] = like.bodies[splice.body];
    of.splices = twin.splices;

    const ScriptPatch& first = *patch_of[twin.agent.index()];
    AgentScript& script = machine->script(of.agent.index());
    ScriptIndex& own = index[of.agent.index()];
    ScriptPatch& patch = undo.patches.add();
    own.resize(agent.tasks.size());
    patch.begin(script, own, of.agent.index());
    patch.follow(first, script, own, machine->script(first.agent()), index[first.agent()]);
  }
}

void Simulator::State::put_scripts_back(Undo& undo) {
  for (auto it = undo.scripts.rbegin(); it != undo.scripts.rend(); ++it) {
    machine->exchange_script(it->agent, std::move(it->script));
    index[it->agent] = std::move(it->index);
  }
  for (std::size_t i = undo.patches.size(); i-- > 0;)
    undo.patches[i].undo(machine->script(undo.patches[i].agent()), index[undo.patches[i].agent()]);
  undo.scripts.clear();
  undo.patches.clear();
}

void Simulator::State::take_back(Undo undo) {
  if (undo.machine != nullptr) {
    machine = std::move(undo.machine);
    index = std::move(undo.index);
    named = undo.named;
  }
  for (std::size_t i = undo.agents.size(); i-- > 0;) {
    Undo::OfAgent* const it = &undo.agents[i];
    Agent& agent = workload.agents[it->agent];
    each_party(
        undo, *it, [](MeetingId, const Party&) {},
        [&](MeetingId meeting, const Party& party) { add_party(meeting, party); });
    each_party(
        undo, *it, [&](MeetingId meeting, const Party& party) { remove_party(meeting, party); },
        [](MeetingId, const Party&) {});
    if (it->same_as != kNoStep && !it->settled) continue;
    for (auto splice = it->splices.rbegin(); splice != it->splices.rend(); ++splice) {
      replace(agent.bodies[splice->body], splice->position, splice->removed, splice->inserted);
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
  std::swap(twins, undo.twins);
  entries = std::move(undo.entries);
  ends = std::move(undo.ends);
  tasks = undo.tasks;
  undo.clear();
  spare = std::move(undo);
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

  // Scripts patched in place also get the changes of their meetings; all others are rebuilt.
  std::vector<char> rebuilt(workload.agents.size());
  std::vector<Edited> edited;
  std::vector<std::uint32_t> edited_of(rebuilt.size(), kNoStep);
  for (const Undo::OfAgent& agent : undo.agents) rebuilt[agent.agent.index()] = agent.same_as == kNoStep;
  for (const ScriptPatch& patch : undo.patches) {
    const AgentScript& script = machine->script(patch.agent());
    if (static_cast<std::uint32_t>(script.streams()) > machine->streams_of(patch.agent())) return std::nullopt;
    rebuilt[patch.agent()] = 0;
    edited_of[patch.agent()] = static_cast<std::uint32_t>(edited.size());
    edited.push_back({patch.agent(), ScriptDiff(script, patch), {script, index[patch.agent()].positions, &patch}});
  }
  if (anything)
    for (std::uint32_t agent = 0; agent < rebuilt.size(); ++agent)
      for (const Script& script : machine->script(agent).scripts())
        script.each([&](std::uint32_t, const Step& step, TaskId) {
          if (replaced(step)) rebuilt[agent] = 1;
        });
  // A reused meeting number has no earlier parties.
  IdVec<MeetingId, std::uint32_t> came(meeting_replaced.size());
  for (const Undo::OfAgent& agent : undo.agents) {
    each_party(
        undo, agent, [&](MeetingId meeting, const Party&) { came.contains(meeting) ? ++came[meeting] : 0; },
        [&](MeetingId meeting, const Party&) { came.contains(meeting) ? --came[meeting] : 0; });
  }
  const auto is_met_before = [&](MeetingId id) {
    std::uint32_t coming = 0;
    for (const Layout::Party& party : machine->layout().parties[id.index()]) coming += party.tasks;
    return came[id] != coming;
  };
  for (const auto& meeting : undo.meetings)
    if (meeting.before.has_value() && is_met_before(meeting.id))
      for (const Layout::Party& party : machine->layout().parties[meeting.id.index()]) {
        if (rebuilt[party.agent] != 0 || !twins.leads(AgentId(party.agent))) continue;
        const AgentScript& script = machine->script(party.agent);
        if (edited_of[party.agent] == kNoStep) {
          edited_of[party.agent] = static_cast<std::uint32_t>(edited.size());
          edited.push_back({party.agent, ScriptDiff(script), {script, index[party.agent].positions}});
        }
        const std::uint32_t stream = party.stream - machine->layout().first_stream[party.agent];
        for (std::uint32_t i = 0; i < script.scripts().size(); ++i)
          for (std::uint32_t q = script.scripts()[i].first[stream]; q != kNoStep;) {
            const Step& step = script.scripts()[i].step(q);
            if (step.kind == StepKind::Meet && step.subject == meeting.id.index())
              edited[edited_of[party.agent]].diff.note_changed(i, q, static_cast<int>(stream));
            q = step.next;
          }
      }

  undo.scripts.reserve(static_cast<std::size_t>(std::count(rebuilt.begin(), rebuilt.end(), 1)));
  for (std::uint32_t agent = 0; agent < rebuilt.size(); ++agent) {
    if (rebuilt[agent] == 0) continue;
    const Agent& source = workload.agents[AgentId(agent)];
    const AgentScript& before = machine->script(agent);
    AgentScript script(workload, source, &pool);
    std::optional<TaskPositions> found = script.positions(source.tasks.size());
    if (!found || static_cast<std::uint32_t>(script.streams()) > machine->streams_of(agent) ||
        script.scripts().size() != before.scripts().size() || script.host_is_free() != before.host_is_free())
      return std::nullopt;
    for (std::uint32_t play = 0; play < script.plays(); ++play)
      if (script.script_index(play) != before.script_index(play)) return std::nullopt;
    ScriptDiff diff(before, script, replaced);
    twins.separate(AgentId(agent));
    undo.scripts.push_back({agent, machine->exchange_script(agent, std::move(script)),
                            std::exchange(index[agent], ScriptIndex(source, std::move(*found)))});
    // The vector was reserved, so pointers into it stay valid.
    const Undo::OfScript& old = undo.scripts.back();
    diff.rebase(old.script);
    edited.push_back({agent, std::move(diff), {old.script, old.index.positions}});
  }
  std::erase_if(edited, [](const Edited& each) { return each.diff.empty(); });
  std::sort(edited.begin(), edited.end(), [](const Edited& a, const Edited& b) { return a.agent < b.agent; });
  return edited;
}

}  // namespace weft
