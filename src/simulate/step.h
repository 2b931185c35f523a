// A step: a task as the engine reads it; and hops over steps that are executed as one event.
#pragma once

#include <algorithm>
#include <compare>
#include <cstdint>
#include <span>

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
  Picoseconds host = 0;          // host time to issue it
  std::uint32_t subject = 0;     // WorkId (Compute, Solo; kNoStep: a marker) or MeetingId (Meet)
  std::uint32_t first_wait = 0;  // index into Script::waits
  std::uint32_t next = kNoStep;  // the next step of the same stream in this script
  std::uint16_t wait_count = 0;
  std::uint8_t stream = 0;
  StepKind kind : 7 = StepKind::Compute;
  bool host_waits : 1 = false;

  bool operator==(const Step&) const = default;
};
static_assert(sizeof(Step) == 32);

// A wait for a step of another stream: of this play, or of the last earlier play of `body` for the same micro-batch.
struct StepWait {
  BodyId body;  // none: this play
  std::uint32_t position = 0;
  TaskId task;
  std::uint8_t stream = 0;

  bool operator==(const StepWait&) const = default;
};

// Consecutive compute steps of a stream within a range of places, which a row executes as one event once their wait is
// satisfied. A hop has at most one wait: of several for one stream in one play the last counts; steps with waits for
// two streams are not joined.
struct Hop {
  Picoseconds duration = 0;
  std::uint32_t first = kNoStep, last = kNoStep;  // kNoStep: an empty hop
  std::uint32_t next = kNoStep;                   // successor of the last
  std::uint32_t awaited = kNoStep;                // the awaited position; kNoStep: no wait
  BodyId awaited_body;
  std::uint16_t steps = 0;
  std::uint8_t awaited_stream = 0;
  std::uint8_t stream = 0;
  StreamMask streams = 0;  // superset of the streams with steps at these places
  bool noted = false;      // scratch of ScriptPatch::finish

  StepWait wait() const { return {awaited_body, awaited, TaskId(), awaited_stream}; }
  // Adds the waits. False, without a change, if they cannot be joined.
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

}  // namespace weft::engine
