// The state of a Simulator. `delta_edit.cpp` applies and undoes edits of the workload, `delta_replay.cpp` finds the new
// run from the old one.
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

// A checkpoint of the current run, at its time plus `shift`.
struct Entry {
  std::shared_ptr<const Checkpoint> state;
  Picoseconds shift = 0;
  bool gap = false;  // checkpoints between this one and the next are missing
};

// An agent's script, now or before an edit.
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
  // The place of a (play, task) pair, as which checkpoints store places.
  Place place_of(Place key) const {
    if (key == kNowhere) return kNowhere;
    const std::uint32_t script = script_->script_index(key.play);
    const auto before = patch_ != nullptr ? patch_->position_before(script, TaskId(key.position)) : std::nullopt;
    return {key.play, before ? *before : (*positions_)(script, TaskId(key.position))};
  }
  // Whether all waits of the head of the stream are satisfied.
  bool can_begin(const Progress& progress, std::uint32_t stream) const {
    const Place head = progress.heads[stream];
    if (head.play == plays()) return false;
    for (const StepWait& wait : waits_at(head)) {
      Place place;
      if (script_->find(wait, head.play, place) && !(place < progress.heads[wait.stream])) return false;
    }
    return true;
  }
  // The script as the host issues it; only for scripts that are not patched.
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
  std::optional<Value> before;  // none: it was added
};

// The undo record of an edit.
struct Undo {
  struct OfAgent {
    AgentId agent;
    // The index of an identical agent with the same edit: that entry has the lists, and this agent's tasks are changed
    // only when needed (`settle`).
    std::uint32_t same_as = kNoStep;
    bool settled = false;
    std::size_t tasks = 0;
    std::vector<std::pair<TaskId, Task>> changed;  // with their old contents
    std::vector<Splice> splices;                   // that revert the edit
    std::vector<std::pair<MeetingId, Layout::Party>> came, left;

    void clear() {
      same_as = kNoStep;
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
  // If everything was rebuilt: the old objects.
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

// An agent whose steps have changed.
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
  using Progress = engine::Progress;
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
  bool named = true;  // every task is in a body at most once; else every edit is a full run
  std::vector<Entry> entries;
  std::vector<Picoseconds> ends;
  std::int64_t tasks = 0;
  std::vector<Undo> log;
  Undo spare;  // its allocations are reused by the next edit
  std::int64_t commits = 0;

  // ---- full run ----

  void build();

  std::int64_t executed() const;

  std::int64_t interval() const { return std::max<std::int64_t>(1, tasks / std::max(1, options.checkpoints)); }

  // Whether some task is going to end after the bound.
  bool passes(std::optional<Picoseconds> bound) const {
    return bound && machine->now() > *bound && !machine->finished();
  }

  // Simulates from the beginning and takes checkpoints. False: a fault, or the bound was exceeded.
  bool play_all(std::optional<Picoseconds> bound);

  // Takes the checkpoints that replays have left out; the number of tasks simulated again.
  std::int64_t fill_gaps();

  Picoseconds makespan() const { return ends.empty() ? 0 : *std::max_element(ends.begin(), ends.end()); }

  // ---- the workload ----

  // Visits the meetings that an edited agent joined or left.
  template <class Came, class Left>
  void each_party(const Undo& undo, const Undo::OfAgent& of, const Came& came, const Left& left) const {
    const Undo::OfAgent& lists = of.same_as == engine::kNoStep ? of : undo.agents[of.same_as];
    const std::vector<std::uint32_t>& first = machine->layout().first_stream;
    const std::uint32_t agent = of.agent.index(), away = first[agent] - first[lists.agent.index()];
    for (const auto& [meeting, party] : lists.came) came(meeting, Party{agent, party.stream + away, 1});
    for (const auto& [meeting, party] : lists.left) left(meeting, Party{agent, party.stream + away, 1});
  }
  // Adds or removes one task by which the agent takes part in a meeting.
  void add_party(MeetingId meeting, const Party& party);
  void remove_party(MeetingId meeting, const Party& party);
  bool is_in_a_body(AgentId agent, TaskId task) const;

  Status check_parties(const Undo& undo) const;

  // `patch`, if given, follows the splices; if that is impossible it is undone and set to null. `first`, if given, is
  // the patch of a twin, which is copied.
  Status change_agent(AgentEdit& edit, ScriptPatch*& patch, const ScriptPatch* first, Undo::OfAgent& undo);

  // Applies the edit up to the first error; `undo` records what was done, also after an error.
  Status change(WorkloadEdit& edit, Undo& undo);

  // Applies the deferred changes of agents identical to edited ones. Only the last applied edit has such.
  void settle(Undo& undo);
  void settle() {
    if (!log.empty()) settle(log.back());
  }

  void put_scripts_back(Undo& undo);
  void take_back(Undo undo);

  // The first work whose isolated rate must be computed again.
  std::uint32_t first_changed(const Undo& undo) const;

  // ---- the edit ----

  // Installs the new scripts of leaders (twins.h) and returns those whose steps change. None if the scripts are not
  // comparable: then a full run is needed.
  std::optional<std::vector<Edited>> exchange_scripts(Undo& undo);

  // The progress of an agent at a checkpoint of the run of this script.
  Progress progress_at(const ScriptView& script, std::uint32_t agent, const Checkpoint& at) const;

  // The progress of streams and host, as marks of the old script.
  struct Reach {
    std::array<Mark, kMaxStreams + 1> marks;
  };
  Reach reach_at(const Edited& edited, const Progress& progress, const Checkpoint& at) const;

  bool edit_between(const Edited& edited, const Reach& from, const Reach* to) const;

  // A point of the old run at which both runs are known to be in the same state: the beginning, or a checkpoint.
  // `all_progress` is that of the edited agents in the new run.
  struct SyncPoint {
    const Checkpoint* at = nullptr;  // null: the beginning
    std::vector<Progress> all_progress;
  };

  // The progress of the edited agents in the new run when the old one is at a checkpoint after `since`. None: one of
  // them has reached an edit by then.
  std::optional<std::vector<Progress>> all_progress_at(const std::vector<Edited>& all, const Checkpoint& at,
                                                       const SyncPoint& since) const;

  // The progress that an edited agent, or all of them, must have for the new run to be in the state of a checkpoint of
  // the old one. None: impossible.
  std::optional<Progress> progress_to_sync(const Edited& edited, const Checkpoint& at) const;
  std::optional<std::vector<Progress>> all_progress_to_sync(const std::vector<Edited>& all, const Checkpoint& at) const;

  static const Edited* find(const std::vector<Edited>& all, std::uint32_t agent) {
    const auto it = std::lower_bound(all.begin(), all.end(), agent,
                                     [](const Edited& edited, std::uint32_t id) { return edited.agent < id; });
    return it != all.end() && it->agent == agent ? &*it : nullptr;
  }

  // For `restore` and `is_at`: the given progress of edited agents, that of the checkpoint for others.
  auto progress_of(const std::vector<Edited>& all, const std::vector<Progress>& all_progress,
                   const Checkpoint& at) const {
    return [this, &all, &all_progress, &at](std::uint32_t agent) {
      if (const Edited* edited = find(all, agent)) return all_progress[static_cast<std::size_t>(edited - all.data())];
      return progress_at({machine->script(agent), index[agent].positions}, agent, at);
    };
  }

  // A cheap test on one occupied stream that the new run is not yet, or no longer, at a checkpoint of the old one.
  struct Probe {
    std::uint32_t stream = 0;
    Place head;
    bool computes = false;
  };
  std::optional<Probe> make_probe(const std::vector<Edited>& all, const Checkpoint& at) const;

  // ---- replay ----

  // Simulates from the last checkpoint before the edit to the end. False: a fault, or the bound was exceeded.
  bool replay(const std::vector<Edited>& all, const std::vector<Entry>& old, std::optional<Picoseconds> bound,
              std::int64_t& replayed);

  // The new run equals the old one's checkpoint `candidate`, shifted by `shift`. Continues at the last checkpoint
  // before the next edit, and sets `candidate` past it. True: there is no next edit, and the rest of the run is known.
  bool skip(const std::vector<Edited>& all, const std::vector<Entry>& old, const std::vector<Picoseconds>& old_ends,
            std::size_t& candidate, Picoseconds shift);

  // A checkpoint stores the last ended task of each stream, and the last task the host issued. If the edit removed that
  // task, it is replaced by the new run's.
  std::shared_ptr<const Checkpoint> rename(const std::vector<Edited>& all, const SyncPoint& sync,
                                           const std::shared_ptr<const Checkpoint>& state) const;

  Result<Outcome> apply(WorkloadEdit& edit, std::optional<Picoseconds> bound);
};

}  // namespace weft
