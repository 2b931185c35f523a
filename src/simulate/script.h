// An agent's tasks as the engine reads them: guards decided, waits resolved to places, one flat list of steps per body.
//
// A place is (play, position): the order in which the host issues. A stream works through its steps in that order, so
// "task x of that play has ended" is the same as "its stream has come past that place", and a wait is one comparison.
#pragma once

#include <algorithm>
#include <array>
#include <compare>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "simulate/workload.h"

namespace weft::engine {

inline constexpr std::uint32_t kNoStep = 0xffffffff;

struct Place {
  std::uint32_t play = 0;
  std::uint32_t position = 0;

  auto operator<=>(const Place&) const = default;
};
inline constexpr Place kNowhere{kNoStep, kNoStep};

enum class StepKind : std::uint8_t { Compute, Solo, Meet };

struct Step {
  Picoseconds duration = 0;      // of a compute step
  Picoseconds host = 0;          // to issue it
  std::uint32_t subject = 0;     // WorkId (Compute, Solo; kNoStep: a marker) or MeetingId (Meet)
  std::uint32_t first_wait = 0;  // in Script::waits
  std::uint32_t next = kNoStep;  // the next step of the same stream in this script
  std::uint16_t wait_count = 0;
  std::uint8_t stream = 0;
  StepKind kind : 7 = StepKind::Compute;
  bool host_waits : 1 = false;

  bool operator==(const Step&) const = default;
};
static_assert(sizeof(Step) == 32);

// Waits for a step of another stream: of this play, or of the last play before it of `body` for the same micro-batch.
struct StepWait {
  BodyId body;  // none: of this play
  std::uint32_t position = 0;
  TaskId task;
  std::uint8_t stream = 0;

  bool operator==(const StepWait&) const = default;
};

// Steps of a stream that follow one another among so many places and only compute: who goes through a row takes them in
// one hop, once what they wait for lies behind. Of several things to wait for on one stream in one play the last
// counts; steps that would wait for two are not in one hop.
struct Hop {
  Picoseconds duration = 0;
  std::uint32_t first = kNoStep, last = kNoStep;  // kNoStep: there is none
  std::uint32_t next = kNoStep;                   // of the last
  std::uint32_t awaited = kNoStep;                // the position; kNoStep: waits for nothing
  BodyId awaited_body;
  std::uint16_t steps = 0;
  std::uint8_t awaited_stream = 0;
  std::uint8_t stream = 0;
  std::uint8_t streams = 0;  // that have steps at these places, one bit each; perhaps others
  bool noted = false;        // while a patch is finished

  StepWait wait() const { return {awaited_body, awaited, TaskId(), awaited_stream}; }
  // Waits for those too. False, and nothing has changed: it cannot.
  bool add(std::span<const StepWait> waits) {
    if (waits.empty()) return true;
    const StepWait& wait = waits.front();
    if (waits.size() > 1 || (awaited != kNoStep && (awaited_body != wait.body || awaited_stream != wait.stream)))
      return false;
    awaited_body = wait.body;
    awaited_stream = wait.stream;
    awaited = awaited == kNoStep ? wait.position : std::max(awaited, wait.position);
    return true;
  }
};

// A body, as it is played for one kind of micro-batch (first, last, both or neither).
struct Script {
  static constexpr std::uint8_t kEmpty = 0xff, kReserved = 0xfe;  // a place without a step; one that is not to be used
  static constexpr std::uint32_t kLeap = 8;

  std::vector<Step> steps;
  std::vector<TaskId> tasks;          // of each step
  std::vector<std::uint8_t> streams;  // of each step: what is looked for among places is looked for here
  std::vector<StepWait> waits;
  std::vector<Hop> hops;   // of every `hop_places` places
  std::vector<Hop> leaps;  // of every kLeap hops: those that follow one another
  std::uint32_t hop_places = 1;
  std::array<std::uint32_t, kMaxStreams> first;  // step of each stream

  std::span<const StepWait> waits_of(const Step& step) const {
    return {waits.data() + step.first_wait, step.wait_count};
  }
  // The widest one from a step that `fits(hop)`; nothing if there is none.
  template <class Fits>
  const Hop* hop_from(std::uint32_t position, const Fits& fits) const {
    const std::uint32_t index = position / hop_places;
    if (const Hop& leap = leaps[index / kLeap]; leap.first == position && fits(leap)) return &leap;
    if (const Hop& hop = hops[index]; hop.first == position && fits(hop)) return &hop;
    return nullptr;
  }
  // One of `hops`, as the steps are now; one of `leaps`, as the hops are now.
  Hop make_hop(std::uint32_t index) const;
  Hop make_leap(std::uint32_t index) const;
  void make_hops();
};

// Where each task stands in the scripts of an agent: positions[script][task], kNoStep if it does not.
using TaskPositions = std::vector<std::vector<std::uint32_t>>;

// For one kind of micro-batch (bit 0: it is the first, bit 1: it is the last).
bool is_played(PlayedFor when, std::size_t kind);
// Without waits.
Step make_step(const Workload& workload, const Task& task);

// Collects the waits of a step. A stream is in order, so of several waits for one stream in one play the last counts.
class Waits {
 public:
  Waits(Script& script, Step& step) : script_(script), step_(step) {
    step_.first_wait = static_cast<std::uint32_t>(script.waits.size());
  }
  void add(BodyId of, std::uint32_t at, TaskId task, std::uint8_t stream) {
    for (std::size_t i = step_.first_wait; i < script_.waits.size(); ++i)
      if (StepWait& wait = script_.waits[i]; wait.body == of && wait.stream == stream) {
        if (at > wait.position) wait = {of, at, task, stream};
        return;
      }
    script_.waits.push_back({of, at, task, stream});
  }
  void finish() { step_.wait_count = static_cast<std::uint16_t>(script_.waits.size() - step_.first_wait); }

 private:
  Script& script_;
  Step& step_;
};

class AgentScript {
 public:
  // Cost: the agent's bodies, times the kinds of micro-batch where a task has a guard, and its plays. With `room`, so
  // many places for each step, where the host never holds anything up: then `tasks` has none at most of them, and there
  // is no ordinal.
  AgentScript(const Workload& workload, const Agent& agent, std::uint32_t room = 1);

  // Nothing, if a task stands in a body twice.
  std::optional<TaskPositions> positions(std::size_t tasks) const;

  std::uint32_t plays() const { return static_cast<std::uint32_t>(played_.size()); }
  const Script& script(std::uint32_t play) const { return scripts_[played_[play].script]; }
  std::uint32_t script_index(std::uint32_t play) const { return played_[play].script; }
  const std::vector<Script>& scripts() const { return scripts_; }
  const Step& step(Place place) const { return script(place.play).steps[place.position]; }
  TaskId task(Place place) const { return script(place.play).tasks[place.position]; }
  Play play(std::uint32_t index) const { return {played_[index].body, played_[index].micro_batch}; }

  int streams() const { return streams_; }
  // No step takes the host's time or makes it wait.
  bool host_is_free() const { return host_is_free_; }
  // The first step of the stream in `play` or a later one; {plays(), 0} if there is none.
  Place first_from(std::uint32_t play, int stream) const {
    for (; play < plays(); ++play)
      if (const std::uint32_t first = script(play).first[static_cast<std::size_t>(stream)]; first != kNoStep)
        return {play, first};
    return {plays(), 0};
  }
  Place next_in_stream(Place place, const Step& step) const {
    return step.next != kNoStep ? Place{place.play, step.next} : first_from(place.play + 1, step.stream);
  }
  Place next_issued(Place place) const;
  Place first_issued() const;
  // The place issued before; none for the first. `place` may be the end, {plays(), 0}.
  bool previous_issued(Place& place) const;

  // The place a wait of a step in `play` means; nothing before the beginning (always complete) if there is no such
  // play.
  bool find(const StepWait& wait, std::uint32_t play, Place& place) const {
    if (!wait.body.valid()) {
      place = {play, wait.position};
      return true;
    }
    std::uint32_t other = last_play_[wait.body.index() * micro_batches_ + played_[play].micro_batch];
    while (other != kNoStep && other >= play) other = played_[other].previous;
    place = {other, wait.position};
    return other != kNoStep;
  }

  // Place in issue order among all the agent's executed tasks, and how many those are.
  std::uint64_t ordinal(Place place) const { return played_[place.play].first_ordinal + place.position; }
  std::uint64_t executed() const { return executed_; }

 private:
  friend class ScriptPatch;

  void number();
  void spread(std::uint32_t room);

  struct Played {
    std::uint64_t first_ordinal = 0;
    std::uint32_t script = 0;
    std::uint32_t previous = kNoStep;  // the play before with the same body and micro-batch
    BodyId body;
    std::int32_t micro_batch = 0;
  };

  std::vector<Script> scripts_;
  std::vector<std::pair<BodyId, std::size_t>> made_of_;  // body and kind of micro-batch of each script
  std::vector<Played> played_;
  std::vector<std::uint32_t> last_play_;  // [body][micro-batch]
  std::size_t micro_batches_ = 0;
  std::uint64_t executed_ = 0;
  int streams_ = 0;
  bool host_is_free_ = true;
  bool guarded_ = false;  // some task is not played for every micro-batch
};

}  // namespace weft::engine
