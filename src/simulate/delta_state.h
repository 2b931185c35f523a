// Inside delta: what a Simulator keeps. `delta_edit.cpp` changes the workload and takes changes back,
// `delta_replay.cpp` finds the new run from the old one.
#pragma once

#include <algorithm>
#include <bit>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/reused.h"
#include "simulate/delta.h"
#include "simulate/machine.h"
#include "simulate/script_diff.h"
#include "simulate/twins.h"

namespace weft {

namespace engine {

// A checkpoint of the run in force, at another time than it was taken.
struct Entry {
  std::shared_ptr<const Checkpoint> state;
  Picoseconds shift = 0;
  bool gap = false;  // of what follows, up to the next one, no checkpoints have been taken yet
};

// An agent's script, as it is or as it was before an edit.
class ScriptView {
 public:
  ScriptView(const AgentScript& script, const TaskPositions& positions, const ScriptPatch* patch = nullptr)
      : script_(&script), positions_(&positions), patch_(patch) {}

  std::uint32_t plays() const { return script_->plays(); }
  const Step& step(Place place) const {
    const Block* const before = block_before(place);
    return before != nullptr ? before->steps[before->at(place.position)] : script_->step(place);
  }
  std::span<const StepWait> waits_at(Place place) const {
    const Block* const before = block_before(place);
    return before != nullptr ? before->waits_of(before->steps[before->at(place.position)])
                             : script_->script(place.play).waits_at(place.position);
  }
  Place first_from(std::uint32_t play, int stream) const {
    if (patch_ == nullptr) return script_->first_from(play, stream);
    for (; play < plays(); ++play) {
      const std::uint32_t script = script_->script_index(play);
      const auto first = patch_->first_before(script, stream);
      const std::uint32_t step = first ? *first : script_->scripts()[script].first[static_cast<std::size_t>(stream)];
      if (step != kNoStep) return {play, step};
    }
    return {plays(), 0};
  }
  Place next_in_stream(Place place) const {
    const Step& here = step(place);
    return here.next != kNoStep ? Place{place.play, here.next} : first_from(place.play + 1, here.stream);
  }
  // Of a place written as (play, task), as in checkpoints.
  Place place_of(Place key) const {
    if (key == kNowhere) return kNowhere;
    const std::uint32_t script = script_->script_index(key.play);
    const auto before = patch_ != nullptr ? patch_->position_before(script, TaskId(key.position)) : std::nullopt;
    return {key.play, before ? *before : (*positions_)(script, TaskId(key.position))};
  }
  // Do all waits of the head of the stream lie behind?
  bool can_begin(const Stand& stand, std::uint32_t stream) const {
    const Place head = stand.heads[stream];
    if (head.play == plays()) return false;
    for (const StepWait& wait : waits_at(head)) {
      Place place;
      if (script_->find(wait, head.play, place) && !(place < stand.heads[wait.stream])) return false;
    }
    return true;
  }
  // The host's order: of scripts that are not patched.
  const AgentScript& issue() const { return *script_; }

 private:
  const Block* block_before(Place place) const {
    return patch_ != nullptr ? patch_->block_before({script_->script_index(place.play), place.position}) : nullptr;
  }

  const AgentScript* script_;
  const TaskPositions* positions_;
  const ScriptPatch* patch_;
};

template <class Id, class Value>
struct Replaced {
  Id id;
  std::optional<Value> before;  // nothing: it was added
};

// How to take an edit back.
struct Undo {
  struct OfAgent {
    AgentId agent;
    // It is as one of those before, the same edit: who it meets is there, and the rest is done when somebody asks.
    std::uint32_t as = kNoStep;
    bool settled = false;
    std::size_t tasks = 0;
    std::vector<std::pair<TaskId, Task>> changed;  // as they were
    std::vector<Splice> splices;                   // that take back
    std::vector<std::pair<MeetingId, Layout::Party>> came, left;

    void clear() {
      as = kNoStep;
      settled = false;
      changed.clear();
      splices.clear();
      came.clear();
      left.clear();
    }
  };
  struct OfScript {
    std::uint32_t agent = 0;
    AgentScript script;
    ScriptIndex index;
  };
  std::vector<Replaced<FlowLinkId, FlowLink>> links;
  std::vector<Replaced<WorkId, Work>> works;
  std::vector<Replaced<MeetingId, Meeting>> meetings;
  Reused<OfAgent> agents;
  std::vector<OfScript> scripts;
  Reused<ScriptPatch> patches;
  Twins twins;
  std::vector<Entry> entries;
  std::vector<Picoseconds> ends;
  std::int64_t tasks = 0;
  // Where everything was made anew: as it was.
  std::unique_ptr<Machine> machine;
  std::vector<ScriptIndex> index;
  bool named = true;

  void clear() {
    links.clear();
    works.clear();
    meetings.clear();
    agents.clear();
    scripts.clear();
    patches.clear();
    entries.clear();
    ends.clear();
    machine.reset();
    index.clear();
    named = true;
  }
};

// An agent whose steps are others now.
struct Edited {
  std::uint32_t agent = 0;
  ScriptDiff diff;
  ScriptView before;
};

inline constexpr Mark kBeginning{0, 0};
inline constexpr Mark kEnd{kNoStep, kNoStep};

}  // namespace engine

struct Simulator::State {
  using AgentScript = engine::AgentScript;
  using Checkpoint = engine::Checkpoint;
  using Edited = engine::Edited;
  using Entry = engine::Entry;
  using Machine = engine::Machine;
  using Mark = engine::Mark;
  using Party = engine::Layout::Party;
  using Place = engine::Place;
  using Stand = engine::Stand;
  using ScriptIndex = engine::ScriptIndex;
  using ScriptPatch = engine::ScriptPatch;
  using ScriptView = engine::ScriptView;
  using Twins = engine::Twins;
  using Undo = engine::Undo;

  engine::BlockPool pool;  // outlives the scripts in it
  Workload workload;
  DeltaOptions options;
  std::unique_ptr<Machine> machine;
  std::vector<ScriptIndex> index;  // per agent
  Twins twins;
  bool named = true;  // steps have names: else every edit is a full run
  std::vector<Entry> entries;
  std::vector<Picoseconds> ends;
  std::int64_t tasks = 0;
  std::vector<Undo> log;
  Undo spare;  // its memory is for the next edit
  std::int64_t commits = 0;

  // ---- the whole run ----

  void build();

  std::int64_t executed() const;

  std::int64_t interval() const { return std::max<std::int64_t>(1, tasks / std::max(1, options.checkpoints)); }

  // Something is still to end, later than the bound.
  bool passes(std::optional<Picoseconds> bound) const {
    return bound && machine->now() > *bound && !machine->finished();
  }

  // Plays from the beginning and takes checkpoints. False: fault, or the bound was passed.
  bool play_all(std::optional<Picoseconds> bound);

  // A replay takes no checkpoints, since most edits are taken back: they are taken when another edit needs them. How
  // many tasks that plays again.
  std::int64_t fill_gaps();

  Picoseconds makespan() const { return ends.empty() ? 0 : *std::max_element(ends.begin(), ends.end()); }

  // ---- the workload ----

  // Every time one of the edited agents came to a meeting, or left it.
  template <class Came, class Left>
  void each_party(const Undo& undo, const Undo::OfAgent& of, const Came& came, const Left& left) const {
    const Undo::OfAgent& lists = of.as == engine::kNoStep ? of : undo.agents[of.as];
    const std::vector<std::uint32_t>& first = machine->layout().first_stream;
    const std::uint32_t agent = of.agent.index(), away = first[agent] - first[lists.agent.index()];
    for (const auto& [meeting, party] : lists.came) came(meeting, Party{agent, party.stream + away, 1});
    for (const auto& [meeting, party] : lists.left) left(meeting, Party{agent, party.stream + away, 1});
  }
  // One task more, or less, that brings the agent to a meeting.
  void come(MeetingId meeting, const Party& party);
  void leave(MeetingId meeting, const Party& party);
  bool stands_in_a_body(AgentId agent, TaskId task) const;

  Status check_parties(const Undo& undo) const;

  // `patch`, where given, is kept up with the splices; it is taken back, and nothing, if that cannot be done. `first`,
  // where given, is that of a twin, which it follows.
  Status change_agent(AgentEdit& edit, ScriptPatch*& patch, const ScriptPatch* first, Undo::OfAgent& undo);

  // Makes the edit, as far as it is one; what was done is in `undo`, also after an error.
  Status change(WorkloadEdit& edit, Undo& undo);

  // Agents that are as others are changed as those were. Only the last edit in force has such.
  void settle(Undo& undo);
  void settle() {
    if (!log.empty()) settle(log.back());
  }

  void put_scripts_back(Undo& undo);
  void take_back(Undo undo);

  // Isolated rates are computed again from this work on.
  std::uint32_t first_changed(const Undo& undo) const;

  // ---- the edit ----

  // Of agents that lead (twins.h), those whose steps change, with their new scripts in place. Nothing: not comparable,
  // so play everything.
  std::optional<std::vector<Edited>> exchange_scripts(Undo& undo);

  // Where an agent stands at a checkpoint of the run of this script.
  Stand stand_at(const ScriptView& script, std::uint32_t agent, const Checkpoint& at) const;

  // How far streams and host have come, in marks of the old script.
  struct Reach {
    std::array<Mark, kMaxStreams + 1> marks;
  };
  Reach reach_at(const Edited& edited, const Stand& stand, const Checkpoint& at) const;

  bool edit_between(const Edited& edited, const Reach& from, const Reach* to) const;

  // A point of the old run at which both runs are known to be the same: the beginning, or where they met. `stands` are
  // the edited agents' there, in the new run.
  struct Meet {
    const Checkpoint* at = nullptr;  // nothing: the beginning
    std::vector<Stand> stands;
  };

  // Where the edited agents stand in the new run when the old one is at a checkpoint after `since`. Nothing: somebody
  // has come to an edit by then.
  std::optional<std::vector<Stand>> stands_at(const std::vector<Edited>& all, const Checkpoint& at,
                                              const Meet& since) const;

  // Where an edited agent, or all of them, must stand for the new run to be at a checkpoint of the old one, edits
  // behind it or before it. Nothing: it cannot be.
  std::optional<Stand> stand_to_meet(const Edited& edited, const Checkpoint& at) const;
  std::optional<std::vector<Stand>> stands_to_meet(const std::vector<Edited>& all, const Checkpoint& at) const;

  static const Edited* find(const std::vector<Edited>& all, std::uint32_t agent) {
    const auto it = std::lower_bound(all.begin(), all.end(), agent,
                                     [](const Edited& edited, std::uint32_t id) { return edited.agent < id; });
    return it != all.end() && it->agent == agent ? &*it : nullptr;
  }

  // For `restore` and `equals`: edited agents where they are said to stand, others where they stood.
  auto stand_of(const std::vector<Edited>& all, const std::vector<Stand>& stands, const Checkpoint& at) const {
    return [this, &all, &stands, &at](std::uint32_t agent) {
      if (const Edited* edited = find(all, agent)) return stands[static_cast<std::size_t>(edited - all.data())];
      return stand_at({machine->script(agent), index[agent].positions}, agent, at);
    };
  }

  // Cheap signs that the new run is not yet, or no longer, at a checkpoint of the old one: one occupied stream.
  struct Probe {
    std::uint32_t stream = 0;
    Place head;
    bool computes = false;
  };
  std::optional<Probe> make_probe(const std::vector<Edited>& all, const Checkpoint& at) const;

  // ---- replay ----

  // From the last checkpoint that knows nothing of the edit to the end. False: fault, or the bound was passed.
  bool replay(const std::vector<Edited>& all, const std::vector<Entry>& old, std::optional<Picoseconds> bound,
              std::int64_t& replayed);

  // The new run is `shift` after the old one's checkpoint `candidate`. Goes on to the last checkpoint before the next
  // edit, and sets `candidate` past it. True: there is no next edit, and the run is known to its end.
  bool skip(const std::vector<Edited>& all, const std::vector<Entry>& old, const std::vector<Picoseconds>& old_ends,
            std::size_t& candidate, Picoseconds shift);

  // A checkpoint names the last task of a stream that ended, and the last the host issued. Where the edit took that
  // one out, the new run's takes its place.
  std::shared_ptr<const Checkpoint> rename(const std::vector<Edited>& all, const Meet& meet,
                                           const std::shared_ptr<const Checkpoint>& state) const;

  Result<Outcome> apply(WorkloadEdit& edit, std::optional<Picoseconds> bound);
};

}  // namespace weft
