#include "simulate/delta.h"

#include <algorithm>
#include <bit>

#include "simulate/machine.h"
#include "simulate/script_diff.h"
#include "simulate/workload_check.h"

namespace weft {
namespace {

// A checkpoint of the run in force, at another time than it was taken.
struct Entry {
  std::shared_ptr<const Checkpoint> state;
  Picoseconds shift = 0;
};

// Where each task stands in the scripts of an agent: positions[script][task].
using Positions = std::vector<std::vector<std::uint32_t>>;

// Nothing, if a task stands in a body twice: then (play, task) is no name for a step.
std::optional<Positions> find_positions(const AgentScript& script, std::size_t tasks) {
  Positions positions;
  for (const Script& each : script.scripts()) {
    std::vector<std::uint32_t>& column = positions.emplace_back(tasks, kNoStep);
    for (std::uint32_t i = 0; i < each.tasks.size(); ++i)
      if (std::exchange(column[each.tasks[i].index()], i) != kNoStep) return std::nullopt;
  }
  return positions;
}

Place place_of(const AgentScript& script, const Positions& positions, Place key) {
  return key == kNowhere ? kNowhere : Place{key.play, positions[script.script_index(key.play)][key.position]};
}

template <class Id, class Value>
struct Replaced {
  Id id;
  std::optional<Value> before;  // nothing: it was added
};

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

// How to take an edit back.
struct Undo {
  struct OfAgent {
    AgentId agent;
    std::size_t tasks = 0;
    std::vector<std::pair<BodyId, std::vector<TaskId>>> bodies;
    std::vector<MeetingId> meetings;  // that it may come to or not any more
  };
  struct OfScript {
    std::uint32_t agent = 0;
    AgentScript script;
    Positions positions;
  };
  std::vector<Replaced<FlowLinkId, FlowLink>> links;
  std::vector<Replaced<WorkId, Work>> works;
  std::vector<Replaced<MeetingId, Meeting>> meetings;
  std::vector<OfAgent> agents;
  std::vector<OfScript> scripts;
  std::vector<Entry> entries;
  std::vector<Picoseconds> ends;
  std::int64_t tasks = 0;
  bool rebuilt = false;
};

// An agent whose steps are others now.
struct Edited {
  std::uint32_t agent = 0;
  ScriptDiff diff;
  const AgentScript* before = nullptr;
  const Positions* positions = nullptr;  // before
};

constexpr Mark kBeginning{0, 0};
constexpr Mark kEnd{kNoStep, kNoStep};

}  // namespace

struct Simulator::State {
  Workload workload;
  DeltaOptions options;
  std::unique_ptr<Machine> machine;
  std::vector<Positions> positions;
  bool named = true;  // steps have names: else every edit is a full run
  std::vector<Entry> entries;
  std::vector<Picoseconds> ends;
  std::int64_t tasks = 0;
  std::vector<Undo> log;

  // ---- the whole run ----

  void build() {
    machine = std::make_unique<Machine>(workload, SimulateOptions{.network = options.network});
    positions.clear();
    named = true;
    for (const AgentId agent : workload.agents.ids()) {
      auto found = find_positions(machine->script(agent.index()), workload.agents[agent].tasks.size());
      named &= found.has_value();
      positions.push_back(found ? std::move(*found) : Positions{});
    }
  }

  std::int64_t executed() const {
    std::int64_t count = 0;
    for (std::uint32_t agent = 0; agent < workload.agents.size(); ++agent)
      count += static_cast<std::int64_t>(machine->script(agent).executed());
    return count;
  }

  std::int64_t interval() const { return std::max<std::int64_t>(1, tasks / std::max(1, options.checkpoints)); }

  // Something is still to end, later than the bound.
  bool passes(std::optional<Picoseconds> bound) const {
    return bound && machine->now() > *bound && !machine->finished();
  }

  // Plays from the beginning and takes checkpoints. False: fault, or the bound was passed.
  bool play_all(std::optional<Picoseconds> bound) {
    machine->reset();
    tasks = executed();
    entries = {{std::make_shared<const Checkpoint>(machine->save()), 0}};
    const std::int64_t before = machine->tasks();
    std::int64_t saved = before;
    while (!machine->stopped()) {
      machine->step_time();
      if (passes(bound)) return false;
      if (named && machine->tasks() - saved >= interval()) {
        entries.push_back({std::make_shared<const Checkpoint>(machine->save()), 0});
        saved = machine->tasks();
      }
    }
    if (!machine->finished()) return false;
    for (std::uint32_t agent = 0; agent < ends.size(); ++agent) ends[agent] = machine->agent(agent).end;
    return true;
  }

  Picoseconds makespan() const { return ends.empty() ? 0 : *std::max_element(ends.begin(), ends.end()); }

  // ---- the workload ----

  // Enters the agent among the parties of those of `meetings` it comes to, or takes it out of all.
  void come_to(AgentId id, const std::vector<MeetingId>& meetings) {
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
  void leave(AgentId id, const std::vector<MeetingId>& meetings) {
    for (const MeetingId meeting : meetings)
      if (meeting.index() < machine->layout().parties.size())
        std::erase_if(machine->layout().parties[meeting.index()],
                      [&](const Layout::Party& party) { return party.agent == id.index(); });
  }

  Status check_parties(const Undo& undo) const {
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

  Status change_agent(const AgentEdit& edit, Undo::OfAgent& undo) {
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

  // Makes the edit, as far as it is one; what was done is in `undo`, also after an error.
  Status change(const WorkloadEdit& edit, Undo& undo) {
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

  void take_back(Undo undo) {
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

  // Isolated rates are computed again from this work on.
  std::uint32_t first_changed(const Undo& undo) const {
    if (!undo.links.empty()) return 0;
    std::uint32_t first = static_cast<std::uint32_t>(workload.works.size());
    for (const auto& work : undo.works) first = std::min(first, work.id.index());
    return first;
  }

  // ---- the edit ----

  // The agents whose steps change, with their new scripts in place. Nothing: not comparable, so play everything.
  std::optional<std::vector<Edited>> exchange_scripts(Undo& undo) {
    IdVec<WorkId, char> work_replaced(workload.works.size());
    for (const auto& work : undo.works) work_replaced[work.id] = work.before.has_value();
    IdVec<FlowLinkId, char> link_replaced(workload.links.size());
    bool anything = false;
    for (const auto& link : undo.links) anything |= link_replaced[link.id] = link.before.has_value();
    if (anything)
      for (const WorkId id : workload.works.ids())
        for (const LinkLoad& load : workload.works[id].links) work_replaced[id] |= link_replaced[load.link];
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

    std::vector<char> touched(workload.agents.size());
    for (const Undo::OfAgent& agent : undo.agents) touched[agent.agent.index()] = 1;
    if (anything)
      for (std::uint32_t agent = 0; agent < touched.size(); ++agent)
        for (const Script& script : machine->script(agent).scripts())
          for (const Step& step : script.steps) touched[agent] |= replaced(step);

    undo.scripts.reserve(touched.size());
    std::vector<Edited> edited;
    for (std::uint32_t agent = 0; agent < touched.size(); ++agent) {
      if (touched[agent] == 0) continue;
      const Agent& source = workload.agents[AgentId(agent)];
      AgentScript script(workload, source);
      auto found = find_positions(script, source.tasks.size());
      const AgentScript& before = machine->script(agent);
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

  // Where an agent stands at a checkpoint of the run of this script.
  Stand stand_at(const AgentScript& script, const Positions& where, std::uint32_t agent, const Checkpoint& at) const {
    Stand stand;
    const AgentState& state = at.agents[agent];
    const unsigned occupied = static_cast<unsigned>(state.computing | state.meeting | state.communicating);
    const std::uint32_t first = machine->layout().first_stream[agent];
    for (std::uint32_t i = 0; i < machine->streams_of(agent); ++i) {
      const StreamState& stream = at.streams[first + i];
      const Place done = place_of(script, where, stream.done);
      stand.done[i] = done;
      stand.heads[i] = (occupied >> i & 1) != 0 ? place_of(script, where, stream.head)
                       : done == kNowhere       ? script.first_from(0, static_cast<int>(i))
                                                : script.next_in_stream(done, script.step(done));
    }
    const Place issued = place_of(script, where, state.cursor);
    stand.cursor = machine->host_is_free(agent) ? Place{script.plays(), 0}
                   : issued == kNowhere         ? script.first_issued()
                                                : script.next_issued(issued);
    return stand;
  }

  // How far streams and host have come, in marks of the old script.
  struct Reach {
    std::array<Mark, kMaxStreams + 1> marks;
  };
  Reach reach_at(const Edited& edited, const Stand& stand, const Checkpoint& at) const {
    Reach reach;
    const AgentState& state = at.agents[edited.agent];
    const unsigned occupied = static_cast<unsigned>(state.computing | state.meeting | state.communicating);
    for (std::uint32_t i = 0; i < machine->streams_of(edited.agent); ++i)
      reach.marks[i] = (occupied >> i & 1) != 0    ? mark_of(stand.heads[i])
                       : stand.done[i] == kNowhere ? kBeginning
                                                   : mark_of(stand.done[i]);
    Place issued = stand.cursor;
    reach.marks[kMaxStreams] = edited.before->previous_issued(issued) ? mark_of(issued) : kBeginning;
    return reach;
  }

  bool edit_between(const Edited& edited, const Reach& from, const Reach* to) const {
    for (std::uint32_t i = 0; i < machine->streams_of(edited.agent); ++i)
      if (edited.diff.edit_between(static_cast<int>(i), from.marks[i], to != nullptr ? to->marks[i] : kEnd))
        return true;
    return !machine->host_is_free(edited.agent) &&
           edited.diff.edit_between(ScriptDiff::kHost, from.marks[kMaxStreams],
                                    to != nullptr ? to->marks[kMaxStreams] : kEnd);
  }

  static bool can_begin(const AgentScript& script, const Stand& stand, std::uint32_t stream) {
    const Place head = stand.heads[stream];
    if (head.play == script.plays()) return false;
    for (const StepWait& wait : script.script(head.play).waits_of(script.step(head))) {
      Place place;
      if (script.find(wait, head.play, place) && !(place < stand.heads[wait.stream])) return false;
    }
    return true;
  }

  // A point of the old run at which both runs are known to be the same: the beginning, or where they met. `stands` are
  // the edited agents' there, in the new run.
  struct Meet {
    const Checkpoint* at = nullptr;  // nothing: the beginning
    std::vector<Stand> stands;
  };

  // Where the edited agents stand in the new run when the old one is at a checkpoint after `since`. Nothing: somebody
  // has come to an edit by then.
  std::optional<std::vector<Stand>> stands_at(const std::vector<Edited>& all, const Checkpoint& at,
                                              const Meet& since) const {
    std::vector<Stand> stands;
    for (std::size_t k = 0; k < all.size(); ++k) {
      const Edited& edited = all[k];
      const AgentScript& script = machine->script(edited.agent);
      const Stand old = stand_at(*edited.before, *edited.positions, edited.agent, at);
      Reach reach = reach_at(edited, old, at);
      Reach from;
      from.marks.fill(kBeginning);
      if (since.at != nullptr)
        from = reach_at(edited, stand_at(*edited.before, *edited.positions, edited.agent, *since.at), *since.at);
      const AgentState& state = at.agents[edited.agent];
      const unsigned occupied = static_cast<unsigned>(state.computing | state.meeting | state.communicating);
      // A host with a limit is at work on its next step: when that is issued decides what the next begin lets it do.
      if (workload.agents[AgentId(edited.agent)].run_ahead > 0)
        reach.marks[kMaxStreams] =
            old.cursor.play == edited.before->plays() ? Mark{old.cursor.play, 0} : mark_of(old.cursor);
      // A step that waits for its issue alone has been promised a time, which counts on all the host issues until then.
      for (std::uint32_t i = 0; i < machine->streams_of(edited.agent); ++i)
        if ((occupied >> i & 1) == 0 && can_begin(*edited.before, old, i))
          reach.marks[kMaxStreams] = std::max(reach.marks[kMaxStreams], mark_of(old.heads[i]));
      if (edit_between(edited, from, &reach)) return std::nullopt;

      Stand& stand = stands.emplace_back();
      unsigned fresh = 0;
      for (std::uint32_t i = 0; i < machine->streams_of(edited.agent); ++i) {
        // Taken out since, so that it ended before the runs met: what ended last in the new run stands for it.
        stand.done[i] = old.done[i] == kNowhere ? kNowhere : edited.diff.now(old.done[i]);
        if (old.done[i] != kNowhere && stand.done[i] == kNowhere) stand.done[i] = since.stands[k].done[i];
        if ((occupied >> i & 1) != 0) {
          stand.heads[i] = edited.diff.now(old.heads[i]);
          continue;
        }
        stand.heads[i] = stand.done[i] == kNowhere ? script.first_from(0, static_cast<int>(i))
                                                   : script.next_in_stream(stand.done[i], script.step(stand.done[i]));
        const bool same = old.heads[i].play == edited.before->plays()
                              ? stand.heads[i].play == script.plays()
                              : stand.heads[i] == edited.diff.now(old.heads[i]) &&
                                    !edited.diff.is_edited(static_cast<int>(i), old.heads[i]);
        if (!same) fresh |= 1u << i;
      }
      stand.cursor = {script.plays(), 0};
      if (!machine->host_is_free(edited.agent)) {
        Place issued = old.cursor;
        if (!edited.before->previous_issued(issued)) {
          stand.cursor = script.first_issued();
        } else if (const Place now = edited.diff.now(issued); now != kNowhere) {
          stand.cursor = script.next_issued(now);
        } else {
          stand.cursor = since.stands[k].cursor;
        }
      }
      // Nothing is left to do for the agent now, but was: when its last task ended is not known.
      const bool left = std::any_of(stand.heads.begin(), stand.heads.begin() + machine->streams_of(edited.agent),
                                    [&](Place head) { return head.play != script.plays(); });
      if (!left && !state.finished()) return std::nullopt;
      // A step that was not there before must still have to wait, or it would have begun.
      for (; fresh != 0; fresh &= fresh - 1)
        if (can_begin(script, stand, static_cast<std::uint32_t>(std::countr_zero(fresh)))) return std::nullopt;
    }
    return stands;
  }

  // Where the edited agents must stand for the new run to be at a checkpoint of the old one, edits behind it or before
  // it. Nothing: it cannot be.
  std::optional<std::vector<Stand>> stands_to_meet(const std::vector<Edited>& all, const Checkpoint& at) const {
    std::vector<Stand> stands;
    for (const Edited& edited : all) {
      const AgentScript& script = machine->script(edited.agent);
      const Stand old = stand_at(*edited.before, *edited.positions, edited.agent, at);
      const AgentState& state = at.agents[edited.agent];
      const unsigned occupied = static_cast<unsigned>(state.computing | state.meeting | state.communicating);
      Stand& stand = stands.emplace_back();
      // The next of `stream` after `last`, if that is kept; else `next` if nothing came between them.
      const auto follow = [&](int stream, Place last, Place next, const auto& next_of, Place& result) {
        if (const Place now = edited.diff.now(last); now != kNowhere) {
          result = next_of(now);
          return true;
        }
        const bool at_end = next.play == edited.before->plays();
        if (edited.diff.edit_between(stream, mark_of(last), at_end ? kEnd : Mark{next.play, 2 * next.position + 1}))
          return false;
        result = at_end ? Place{script.plays(), 0} : edited.diff.now(next);
        return result != kNowhere;
      };
      for (std::uint32_t i = 0; i < machine->streams_of(edited.agent); ++i) {
        const int stream = static_cast<int>(i);
        if ((occupied >> i & 1) != 0) {
          if (edited.diff.is_edited(stream, old.heads[i])) return std::nullopt;
          stand.heads[i] = edited.diff.now(old.heads[i]);
        } else if (old.done[i] == kNowhere) {
          stand.heads[i] = script.first_from(0, stream);
        } else if (!follow(
                       stream, old.done[i], old.heads[i],
                       [&](Place now) { return script.next_in_stream(now, script.step(now)); }, stand.heads[i])) {
          return std::nullopt;
        }
      }
      stand.cursor = {script.plays(), 0};
      if (machine->host_is_free(edited.agent)) continue;
      Place issued = old.cursor;
      if (!edited.before->previous_issued(issued)) {
        stand.cursor = script.first_issued();
      } else if (!follow(
                     ScriptDiff::kHost, issued, old.cursor, [&](Place now) { return script.next_issued(now); },
                     stand.cursor)) {
        return std::nullopt;
      }
    }
    return stands;
  }

  // For `restore` and `equals`: edited agents where they are said to stand, others where they stood.
  auto stand_of(const std::vector<Edited>& all, const std::vector<Stand>& stands, const Checkpoint& at) const {
    return [this, &all, &stands, &at](std::uint32_t agent) {
      const auto it = std::lower_bound(all.begin(), all.end(), agent,
                                       [](const Edited& edited, std::uint32_t id) { return edited.agent < id; });
      if (it != all.end() && it->agent == agent) return stands[static_cast<std::size_t>(it - all.begin())];
      return stand_at(machine->script(agent), positions[agent], agent, at);
    };
  }

  // Cheap signs that the new run is not yet, or no longer, at a checkpoint of the old one: one occupied stream.
  struct Probe {
    std::vector<Stand> stands;
    std::uint32_t stream = 0;
    Place head;
    bool computes = false;
  };
  std::optional<Probe> make_probe(const std::vector<Edited>& all, const Checkpoint& at) const {
    auto stands = stands_to_meet(all, at);
    if (!stands) return std::nullopt;
    Probe probe{std::move(*stands), 0, kNowhere, false};
    const auto where = stand_of(all, probe.stands, at);
    for (std::uint32_t agent = 0; agent < at.agents.size() && !probe.computes; ++agent) {
      const AgentState& state = at.agents[agent];
      const unsigned occupied = static_cast<unsigned>(state.meeting | state.communicating);
      if (state.computing == 0 && (occupied == 0 || probe.head != kNowhere)) continue;
      const auto i =
          static_cast<std::uint32_t>(std::countr_zero(state.computing != 0 ? unsigned{state.computing} : occupied));
      probe.stream = machine->layout().first_stream[agent] + i;
      probe.head = where(agent).heads[i];
      probe.computes = state.computing != 0;
    }
    if (probe.head == kNowhere) return std::nullopt;
    return probe;
  }

  // ---- replay ----

  // From the last checkpoint that knows nothing of the edit to the end. False: fault, or the bound was passed.
  bool replay(const std::vector<Edited>& all, std::optional<Picoseconds> bound, std::int64_t& replayed) {
    const std::vector<Entry> old = std::move(entries);
    const std::vector<Picoseconds> old_ends = ends;
    // Who has come to an edit has come to it later too.
    Meet meet;
    std::size_t low = 0, high = old.size();
    std::vector<Stand> stands;
    while (high - low > 1) {
      const std::size_t middle = (low + high) / 2;
      if (auto found = stands_at(all, *old[middle].state, meet)) {
        low = middle;
        stands = std::move(*found);
      } else {
        high = middle;
      }
    }
    if (low == 0) {
      machine->reset();
    } else {
      machine->restore(*old[low].state, old[low].shift, stand_of(all, stands, *old[low].state));
    }
    for (std::uint32_t agent = 0; agent < ends.size(); ++agent)
      if (low > 0 && machine->agent(agent).finished()) machine->set_end(agent, old_ends[agent]);
    entries.assign(old.begin(), old.begin() + static_cast<std::ptrdiff_t>(low) + 1);

    const std::int64_t start = machine->tasks();
    std::int64_t saved = start;
    std::size_t candidate = low + 1;
    std::optional<Probe> probe;
    while (!machine->stopped()) {
      machine->step_time();
      replayed = machine->tasks() - start;
      if (passes(bound)) return false;
      while (candidate < old.size()) {
        const Checkpoint& at = *old[candidate].state;
        if (!probe) {
          probe = make_probe(all, at);
          if (!probe) {
            ++candidate;
            continue;
          }
        }
        const StreamState& stream = machine->stream(probe->stream);
        if (probe->head < stream.head) {  // past it, and never was there
          probe.reset();
          ++candidate;
          continue;
        }
        const Picoseconds shift = machine->now() - at.now;
        if (stream.head != probe->head || (probe->computes && stream.end != at.streams[probe->stream].end + shift) ||
            !machine->equals(at, shift, stand_of(all, probe->stands, at)))
          break;
        if (skip(all, old, old_ends, candidate, shift)) return true;
        saved = machine->tasks();
        probe.reset();
      }
      if (machine->tasks() - saved >= interval()) {
        entries.push_back({std::make_shared<const Checkpoint>(machine->save()), 0});
        saved = machine->tasks();
      }
    }
    if (!machine->finished()) return false;
    for (std::uint32_t agent = 0; agent < ends.size(); ++agent) ends[agent] = machine->agent(agent).end;
    return true;
  }

  // The new run is `shift` after the old one's checkpoint `candidate`. Goes on to the last checkpoint before the next
  // edit, and sets `candidate` past it. True: there is no next edit, and the run is known to its end.
  bool skip(const std::vector<Edited>& all, const std::vector<Entry>& old, const std::vector<Picoseconds>& old_ends,
            std::size_t& candidate, Picoseconds shift) {
    Meet meet{old[candidate].state.get(), {}};
    bool more = false;
    for (const Edited& edited : all) {
      Stand& stand = meet.stands.emplace_back();
      const std::uint32_t first = machine->layout().first_stream[edited.agent];
      for (std::uint32_t i = 0; i < machine->streams_of(edited.agent); ++i) {
        stand.heads[i] = machine->stream(first + i).head;
        stand.done[i] = machine->stream(first + i).done;
      }
      stand.cursor = machine->agent(edited.agent).cursor;
      const Stand there = stand_at(*edited.before, *edited.positions, edited.agent, *meet.at);
      more |= edit_between(edited, reach_at(edited, there, *meet.at), nullptr);
    }
    // What this checkpoint is moved by from the time it was taken; others may have been moved by something else before.
    const Picoseconds further = shift - old[candidate].shift;
    std::size_t last = old.size() - 1;
    std::vector<Stand> stands;
    if (more) {
      std::size_t low = candidate, high = old.size();
      while (high - low > 1) {
        const std::size_t middle = (low + high) / 2;
        if (auto found = stands_at(all, *old[middle].state, meet)) {
          low = middle;
          stands = std::move(*found);
        } else {
          high = middle;
        }
      }
      last = low;
    }
    for (std::size_t i = candidate; i <= last; ++i)
      entries.push_back({rename(all, meet, old[i].state), old[i].shift + further});
    std::vector<Picoseconds> new_ends = old_ends;
    for (std::uint32_t agent = 0; agent < new_ends.size(); ++agent)
      new_ends[agent] = machine->agent(agent).finished() ? machine->agent(agent).end : new_ends[agent] + further;
    if (!more) {
      ends = std::move(new_ends);
      return true;
    }
    if (last > candidate) {
      machine->restore(*old[last].state, old[last].shift + further, stand_of(all, stands, *old[last].state));
      for (std::uint32_t agent = 0; agent < new_ends.size(); ++agent)
        if (machine->agent(agent).finished()) machine->set_end(agent, new_ends[agent]);
    }
    candidate = last + 1;
    return false;
  }

  // A checkpoint names the last task of a stream that ended, and the last the host issued. Where the edit took that
  // one out, the new run's takes its place.
  std::shared_ptr<const Checkpoint> rename(const std::vector<Edited>& all, const Meet& meet,
                                           const std::shared_ptr<const Checkpoint>& state) const {
    std::shared_ptr<Checkpoint> copy;
    const auto mutable_copy = [&]() -> Checkpoint& {
      if (!copy) copy = std::make_shared<Checkpoint>(*state);
      return *copy;
    };
    for (std::size_t k = 0; k < all.size(); ++k) {
      const Edited& edited = all[k];
      const AgentScript& script = machine->script(edited.agent);
      const auto key = [&](Place place) {
        return place == kNowhere ? kNowhere : Place{place.play, script.task(place).index()};
      };
      const auto is_gone = [&](Place old_key) {
        const Place place = place_of(*edited.before, *edited.positions, old_key);
        return place != kNowhere && edited.diff.now(place) == kNowhere;
      };
      const std::uint32_t first = machine->layout().first_stream[edited.agent];
      for (std::uint32_t i = 0; i < machine->streams_of(edited.agent); ++i)
        if (is_gone(state->streams[first + i].done))
          mutable_copy().streams[first + i].done = key(meet.stands[k].done[i]);
      if (!machine->host_is_free(edited.agent) && is_gone(state->agents[edited.agent].cursor)) {
        Place issued = meet.stands[k].cursor;
        mutable_copy().agents[edited.agent].cursor = script.previous_issued(issued) ? key(issued) : kNowhere;
      }
    }
    return copy ? std::shared_ptr<const Checkpoint>(std::move(copy)) : state;
  }

  Result<Outcome> apply(const WorkloadEdit& edit, std::optional<Picoseconds> bound) {
    Undo undo;
    undo.entries = entries;
    undo.ends = ends;
    undo.tasks = tasks;
    if (const Status status = change(edit, undo); !status) {
      take_back(std::move(undo));
      return status.error();
    }
    Outcome outcome{.tasks = tasks};
    bool done = false;
    std::optional<std::vector<Edited>> edited;
    if (named) edited = exchange_scripts(undo);
    if (edited) {
      machine->workload_changed(first_changed(undo));
      tasks = executed();
      done = replay(*edited, bound, outcome.replayed);
    } else {
      // The scripts that were exchanged go with the machine.
      undo.scripts.clear();
      undo.rebuilt = true;
      build();
      const std::int64_t before = machine->tasks();
      done = play_all(bound);
      outcome.replayed = machine->tasks() - before;
    }
    outcome.makespan = done ? makespan() : machine->now();
    if (!done && !passes(bound)) {
      const Error fault = machine->fault();
      take_back(std::move(undo));
      return fault;
    }
    outcome.abandoned = bound && outcome.makespan > *bound;
    if (outcome.abandoned) {
      take_back(std::move(undo));
    } else {
      log.push_back(std::move(undo));
    }
    return outcome;
  }
};

Simulator::Simulator(std::unique_ptr<State> state) : state_(std::move(state)) {}
Simulator::Simulator(Simulator&&) noexcept = default;
Simulator& Simulator::operator=(Simulator&&) noexcept = default;
Simulator::~Simulator() = default;

Result<Simulator> Simulator::make(Workload workload, const DeltaOptions& options) {
  WEFT_TRY_OK(check(workload));
  auto state = std::make_unique<State>();
  state->workload = std::move(workload);
  state->options = options;
  state->ends.resize(state->workload.agents.size());
  state->build();
  if (!state->play_all(std::nullopt)) return state->machine->fault();
  return Simulator(std::move(state));
}

const Workload& Simulator::workload() const { return state_->workload; }
Picoseconds Simulator::makespan() const { return state_->makespan(); }
const std::vector<Picoseconds>& Simulator::ends() const { return state_->ends; }

Result<Outcome> Simulator::apply(const WorkloadEdit& edit, std::optional<Picoseconds> bound) {
  return state_->apply(edit, bound);
}

void Simulator::undo() {
  WEFT_CHECK(!state_->log.empty(), "no edit is in force");
  Undo undo = std::move(state_->log.back());
  state_->log.pop_back();
  state_->take_back(std::move(undo));
}

void Simulator::commit() { state_->log.clear(); }

}  // namespace weft
