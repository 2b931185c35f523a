#include "simulate/steady_state.h"

#include <algorithm>

namespace weft::engine {
namespace {

// The agent with the most plays, and its stream with the most steps.
std::pair<std::uint32_t, std::uint32_t> busiest(const Machine& machine, std::uint32_t agents) {
  std::uint32_t agent = 0;
  for (std::uint32_t i = 1; i < agents; ++i)
    if (machine.script(i).plays() > machine.script(agent).plays()) agent = i;
  std::array<std::size_t, kMaxStreams> steps{};
  for (const Script& script : machine.script(agent).scripts())
    script.each([&](std::uint32_t, const Step& step, TaskId) { ++steps[step.stream]; });
  return {agent, static_cast<std::uint32_t>(std::max_element(steps.begin(), steps.end()) - steps.begin())};
}

}  // namespace

SteadyState::SteadyState(Machine& machine) : machine_(machine) {
  constexpr std::uint32_t kFew = 8;  // plays: nothing to gain
  if (machine_.agents() == 0) return;
  const auto [agent, stream] = busiest(machine_, machine_.agents());
  if (machine_.script(agent).plays() < kFew) return;
  agent_ = agent;
  stream_ = machine_.layout().first_stream[agent] + stream;
  machine_.watch(stream_);
  plays_.resize(machine_.agents());
}

bool SteadyState::run() {
  while (!machine_.stopped()) {
    machine_.step_time();
    if (!plays_.empty()) look();
  }
  return machine_.finished();
}

void SteadyState::look() {
  const Place head = machine_.stream(stream_).head;
  if (head.play == std::exchange(play_, head.play) || head.play == machine_.script(agent_).plays()) return;
  if (earlier_)
    if (const std::int64_t times = repetitions(); times > 0) {
      repeat(times);
      // The plays go on to something else.
      earlier_.reset();
      play_ = machine_.stream(stream_).head.play;
      looks_ = 0;
      next_save_ = 1;
      return;
    }
  if (++looks_ < next_save_) return;
  next_save_ = 2 * looks_;
  earlier_ = Earlier{machine_.save(), machine_.tally(), progress()};
}

std::vector<Progress> SteadyState::progress() const {
  std::vector<Progress> all(machine_.agents());
  for (std::uint32_t agent = 0; agent < all.size(); ++agent) {
    for (std::uint32_t i = 0; i < machine_.streams_of(agent); ++i) {
      const StreamState& stream = machine_.stream(machine_.layout().first_stream[agent] + i);
      all[agent].heads[i] = stream.head;
      all[agent].done[i] = stream.done;
    }
    all[agent].cursor = machine_.agent(agent).cursor;
  }
  return all;
}

std::int64_t SteadyState::repetitions() {
  const Progress& then = earlier_->progress[agent_];
  const std::uint32_t watched = stream_ - machine_.layout().first_stream[agent_];
  if (const Place head = machine_.stream(stream_).head;
      head.position != then.heads[watched].position ||
      machine_.script(agent_).script_index(head.play) != machine_.script(agent_).script_index(then.heads[watched].play))
    return 0;
  const Picoseconds period = machine_.now() - earlier_->state.now;
  if (!machine_.equals(earlier_->state, period)) return 0;
  const std::vector<Progress> now = progress();
  std::int64_t times = period > 0 ? (kTimeLimit - machine_.now()) / period : kAnyNumber;
  for (std::uint32_t agent = 0; agent < now.size() && times > 0; ++agent) {
    const auto found = repetitions(agent, earlier_->progress[agent], now[agent], plays_[agent]);
    times = std::min(times, found.value_or(0));
  }
  return times == kAnyNumber ? 0 : times;
}

std::optional<std::int64_t> SteadyState::repetitions(std::uint32_t agent, const Progress& then, const Progress& now,
                                                     std::uint32_t& plays) const {
  const AgentScript& script = machine_.script(agent);
  const bool hosted = !machine_.host_is_free(agent);
  plays = 0;
  // Of the plays where streams stood then, the first; of those where they stand now, the last; and the first one where
  // something else may happen.
  std::uint32_t first = script.plays(), last = 0, end = script.plays();
  const auto add = [&](Place before, Place here) {
    if (before == here) {
      end = std::min(end, before.play);
      return true;
    }
    if (before.position != here.position || here.play <= before.play || here.play == script.plays()) return false;
    if (plays != 0 && plays != here.play - before.play) return false;
    plays = here.play - before.play;
    first = std::min(first, before.play);
    last = std::max(last, here.play);
    return true;
  };
  for (std::uint32_t i = 0; i < machine_.streams_of(agent); ++i)
    if (!add(then.heads[i], now.heads[i])) return std::nullopt;
  if (hosted && !add(then.cursor, now.cursor)) return std::nullopt;
  if (plays == 0) return kAnyNumber;  // the agent waits for others, or has ended
  // Streams that stand still begin when what they wait for has ended, also if the host has no say in it.
  for (std::uint32_t i = 0; i < machine_.streams_of(agent) && !hosted; ++i) {
    const StreamState& stream = machine_.stream(machine_.layout().first_stream[agent] + i);
    const bool idle = (machine_.agent(agent).idle >> i & 1) != 0;
    if (!idle || then.heads[i] != now.heads[i]) continue;
    if (!stream.waits) return std::nullopt;
    end = std::min(end, stream.awaited.play);
  }
  const auto later = [&](std::uint32_t play) {
    return script.play(play + plays).micro_batch - script.play(play).micro_batch;
  };
  std::uint32_t play = first;
  while (play + plays < end && script.script_index(play) == script.script_index(play + plays) &&
         later(play) == later(first))
    ++play;
  end = play + plays;  // those before it repeat
  return end > last ? (end - 1 - last) / plays : 0;
}

void SteadyState::repeat(std::int64_t times) {
  std::vector<Progress> to = progress();
  for (std::uint32_t agent = 0; agent < to.size(); ++agent) {
    const Progress& then = earlier_->progress[agent];
    const auto forward = [&](Place& place, Place before) {
      if (place != before) place.play += static_cast<std::uint32_t>(times * plays_[agent]);
    };
    for (std::uint32_t i = 0; i < machine_.streams_of(agent); ++i) {
      forward(to[agent].heads[i], then.heads[i]);
      forward(to[agent].done[i], then.done[i]);
    }
    forward(to[agent].cursor, then.cursor);
  }
  const std::int64_t before = machine_.tasks();
  machine_.repeat(earlier_->state, earlier_->tally, times, to);
  skipped_ += machine_.tasks() - before;
}

}  // namespace weft::engine
