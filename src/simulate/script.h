// An agent's tasks as the engine reads them: guards evaluated, waits resolved to places, one list of steps per body.
//
// A place is (play, position), ordered as the host issues. A stream executes its steps in that order, so "task x of
// that play has ended" is the same as "its stream has passed that place", and a wait is one comparison.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "simulate/block.h"
#include "simulate/step.h"
#include "simulate/workload.h"

namespace weft::engine {

// A body for one kind of micro-batch (first, last, both or neither). It is one flat list or, if the agent will be
// edited, blocks with gaps between steps, which equal agents share (block.h).
struct Script {
  static constexpr std::uint32_t kHop = 8, kLeap = 8;

  // Of a flat list; all but `waits` have the same length.
  std::vector<Step> steps;
  std::vector<TaskId> tasks;
  std::vector<StepWait> waits;
  std::vector<Hop> hops;  // one per kHop steps; in blocks, each block has its own

  std::vector<BlockRef> blocks;
  std::vector<Hop> leaps;                        // one per kLeap hops: consecutive hops joined
  std::array<std::uint32_t, kMaxStreams> first;  // first step of each stream

  bool in_blocks() const { return !blocks.empty(); }
  const Step& step(std::uint32_t position) const {
    if (!in_blocks()) return steps[position];
    const Block& block = *blocks[position / Block::kPlaces];
    return block.steps[block.at(position)];
  }
  TaskId task(std::uint32_t position) const {
    if (!in_blocks()) return tasks[position];
    const Block& block = *blocks[position / Block::kPlaces];
    return block.tasks[block.at(position)];
  }
  // The waits of the step at a position.
  std::span<const StepWait> waits_of(const Step& step, std::uint32_t position) const {
    const StepWait* const list = in_blocks() ? blocks[position / Block::kPlaces]->waits() : waits.data();
    return {list + step.first_wait, step.wait_count};
  }
  std::span<const StepWait> waits_at(std::uint32_t position) const { return waits_of(step(position), position); }
  // Visits every step in order: visit(position, step, task).
  template <class Visit>
  void each(const Visit& visit) const {
    for (std::uint32_t p = 0; p < steps.size(); ++p) visit(p, steps[p], tasks[p]);
    for (std::uint32_t b = 0; b < blocks.size(); ++b)
      for (std::uint32_t i = 0; i < blocks[b]->count; ++i)
        visit(b * Block::kPlaces + blocks[b]->places[i], blocks[b]->steps[i], blocks[b]->tasks[i]);
  }
  // The widest hop or leap from a step for which `fits(hop)`; null if there is none.
  template <class Fits>
  const Hop* hop_from(std::uint32_t position, const Fits& fits) const {
    const std::uint32_t index = position / (in_blocks() ? Block::kPlaces : kHop);
    if (const Hop& leap = leaps[index / kLeap]; leap.first == position && fits(leap)) return &leap;
    if (const Hop& hop = hop_at(index); hop.first == position && fits(hop)) return &hop;
    return nullptr;
  }
  const Hop& hop_at(std::uint32_t index) const { return in_blocks() ? blocks[index]->hop : hops[index]; }
  // An element of `leaps`, computed from the current hops.
  Hop make_leap(std::uint32_t index) const;
  void make_hops();
  // Converts a flat list to blocks.
  void divide(BlockPool& pool);
};

// The position of each task in the scripts of an agent; kNoStep if it is not there.
class TaskPositions {
 public:
  TaskPositions() = default;
  TaskPositions(std::size_t scripts, std::size_t tasks) : scripts_(scripts), at_(scripts * tasks, kNoStep) {}

  std::size_t scripts() const { return scripts_; }
  std::uint32_t& operator()(std::size_t script, TaskId task) { return at_[task.index() * scripts_ + script]; }
  std::uint32_t operator()(std::size_t script, TaskId task) const { return at_[task.index() * scripts_ + script]; }
  bool contains(TaskId task) const {
    const auto from = at_.begin() + static_cast<std::ptrdiff_t>(task.index() * scripts_);
    return std::any_of(from, from + static_cast<std::ptrdiff_t>(scripts_), [](auto at) { return at != kNoStep; });
  }
  void resize(std::size_t tasks) { at_.resize(tasks * scripts_, kNoStep); }

 private:
  std::size_t scripts_ = 0;
  std::vector<std::uint32_t> at_;  // [task][script]
};

// Whether a task is executed for one kind of micro-batch (bit 0: it is the first, bit 1: it is the last).
inline bool is_played(PlayedFor when, std::size_t kind) {
  return weft::is_played(when, (kind & 1) != 0, (kind & 2) != 0);
}
// The step of a task, without waits.
Step make_step(const Workload& workload, const Task& task, std::size_t kind);

// Adds a wait to those of a step, which begin at `from` in the list. Streams execute in order, so of several waits for
// one stream in one play only the last is kept.
inline void add_wait(std::vector<StepWait>& waits, std::size_t from, const StepWait& wait) {
  for (std::size_t i = from; i < waits.size(); ++i)
    if (waits[i].body == wait.body && waits[i].stream == wait.stream) {
      if (wait.position > waits[i].position) waits[i] = wait;
      return;
    }
  waits.push_back(wait);
}

class AgentScript {
 public:
  // Cost: the agent's bodies, times the kinds of micro-batch if a task has a guard, and its plays. With a pool the
  // scripts are in blocks of the pool if the host never delays a task; then there is no ordinal.
  AgentScript(const Workload& workload, const Agent& agent, BlockPool* pool = nullptr);
  // Shares equal blocks with another agent's script.
  void share_with(const AgentScript& other);

  // None if a task is in a body twice.
  std::optional<TaskPositions> positions(std::size_t tasks) const;

  std::uint32_t plays() const { return static_cast<std::uint32_t>(played_.size()); }
  const Script& script(std::uint32_t play) const { return scripts_[played_[play].script]; }
  std::uint32_t script_index(std::uint32_t play) const { return played_[play].script; }
  const std::vector<Script>& scripts() const { return scripts_; }
  const Step& step(Place place) const { return script(place.play).step(place.position); }
  TaskId task(Place place) const { return script(place.play).task(place.position); }
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
  // Moves to the previously issued place; false for the first. `place` may be the end, {plays(), 0}.
  bool previous_issued(Place& place) const;

  // The place of a wait of a step in `play`; false if there is no such play, which counts as complete.
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

  // Index in issue order among all the agent's executed tasks, and their number.
  std::uint64_t ordinal(Place place) const { return played_[place.play].first_ordinal + place.position; }
  std::uint64_t executed() const { return executed_; }

 private:
  friend class ScriptPatch;

  void number();

  struct Played {
    std::uint64_t first_ordinal = 0;
    std::uint32_t script = 0;
    std::uint32_t previous = kNoStep;  // the previous play with the same body and micro-batch
    BodyId body;
    std::int32_t micro_batch = 0;
  };

  std::vector<Script> scripts_;
  // What each script is of: waits lead to scripts of the same moment.
  struct MadeOf {
    BodyId body;
    std::size_t kind = 0;      // of the micro-batch, for this body
    std::uint32_t moment = 0;  // micro-batches that are of the same kind for every body
  };
  std::vector<MadeOf> made_of_;
  std::vector<Played> played_;
  std::vector<std::uint32_t> last_play_;  // [body][micro-batch]
  std::size_t micro_batches_ = 0;
  std::uint64_t executed_ = 0;
  int streams_ = 0;
  bool host_is_free_ = true;
  BlockPool* pool_ = nullptr;
  bool guarded_ = false;  // some task is not executed for every micro-batch
};

}  // namespace weft::engine
