// What a rank did and when: the measured side of a timeline (forecast/timeline.h has the predicted one).
//
// A recorder notes, step by step, when the host played each instruction, when communications were complete, and when the
// host waited for them. Times are nanoseconds of the rank's steady clock; `ClockOffset` relates clocks of ranks. Ranks
// write their timelines to files, the launcher reads them. Without libtorch.
//
// Cost: two or three readings of the clock for an instruction, into memory that is set aside when a step begins.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/units.h"
#include "program/program.h"

namespace weft::runtime {

using Nanoseconds = std::int64_t;
Nanoseconds clock_now();  // steady

// How far a rank's clock is ahead of rank 0's: off by half of the round trip at most.
struct ClockOffset {
  Nanoseconds ahead = 0, round_trip = 0;

  bool operator==(const ClockOffset&) const = default;
};

struct IssuedInstruction {
  InstructionId instruction;
  std::int32_t micro_batch = 0;
  Nanoseconds begin = 0, end = 0;  // the host plays it: a computation's kernel; a communication is packed and issued
  Nanoseconds complete = 0;        // of a communication: what it brings has come and is not unpacked yet; else `end`
  Bytes held;                      // memory in use at its end

  bool operator==(const IssuedInstruction&) const = default;
};

// The host waits for a communication that it issued, then unpacks what it brings.
struct HostWait {
  std::uint32_t issue = 0;  // index of the instruction in the step
  Nanoseconds begin = 0, end = 0, unpacked = 0;

  bool operator==(const HostWait&) const = default;
};

struct RecordedStep {
  std::int64_t step = 0;  // from 0
  Nanoseconds begin = 0, end = 0;
  ClockOffset clock;
  Bytes peak;                             // of memory in use
  std::vector<IssuedInstruction> issued;  // in order
  std::vector<HostWait> waits;            // by their ends

  bool operator==(const RecordedStep&) const = default;
};

struct RankTimeline {
  int rank = 0;
  std::vector<RecordedStep> steps;

  bool operator==(const RankTimeline&) const = default;
};

// Of a run: enough for a median. A step of a thousand instructions takes some 80 kB.
inline constexpr int kRecordedSteps = 50;

// Notes what one host thread does. On devices that work by themselves (CUDA), `begin` and `end` of computations are to
// come from events on their streams.
class Recorder {
 public:
  // Steps after the `most`-th are not recorded; a step issues `instructions`.
  Recorder(int rank, std::size_t instructions, std::size_t most);

  bool wants_more() const { return timeline_.steps.size() < most_; }
  void begin_step(std::int64_t step, ClockOffset clock);
  void end_step(Bytes peak);
  // What follows is for a step that has begun.

  // The host begins with an instruction; it begins only now, what it reads had not come; it is done with it.
  void begin(InstructionId instruction, std::int32_t micro_batch) {
    now_->issued.push_back({instruction, micro_batch, clock_now(), 0, 0, {}});
  }
  void begin_again() {
    if (!now_->issued.empty() && now_->issued.back().end == 0) now_->issued.back().begin = clock_now();
  }
  void end(Bytes held) {
    IssuedInstruction& last = now_->issued.back();
    last.end = last.complete = clock_now();
    last.held = held;
  }
  // The instruction that was begun last.
  std::uint32_t issue() const { return static_cast<std::uint32_t>(now_->issued.size() - 1); }

  void begin_wait(std::uint32_t issue) { now_->waits.push_back({issue, clock_now(), 0, 0}); }
  // `complete`: when it was, where that is known; else the end of the wait.
  void end_wait(Nanoseconds complete = 0);
  void unpacked() { now_->waits.back().unpacked = clock_now(); }

  const RankTimeline& timeline() const { return timeline_; }

 private:
  RankTimeline timeline_;
  const std::size_t instructions_, most_;
  RecordedStep* now_ = nullptr;  // the step that is played, if it is recorded
};

// Text, a line for a step, an instruction or a wait; parse∘print = identity.
std::string print(const RankTimeline& timeline);
Result<RankTimeline> parse_timeline(std::string_view text, std::string_view file);
// The file of a rank in the directory of a run.
std::string timeline_file(const std::string& directory, int rank);
Result<std::vector<RankTimeline>> read_timelines(const std::string& directory, int ranks);

}  // namespace weft::runtime
