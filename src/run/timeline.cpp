#include "run/timeline.h"

#include <fmt/format.h>

#include <charconv>
#include <chrono>
#include <iterator>

#include "base/read_file.h"

namespace weft::runtime {

Nanoseconds clock_now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

Recorder::Recorder(int rank, std::size_t instructions, std::size_t most) : instructions_(instructions), most_(most) {
  timeline_.rank = rank;
  timeline_.steps.reserve(most);  // `now_` points into it
}

void Recorder::begin_step(std::int64_t step, ClockOffset clock) {
  const std::size_t waits = timeline_.steps.empty() ? instructions_ : timeline_.steps.back().waits.size();
  now_ = &timeline_.steps.emplace_back();
  now_->step = step;
  now_->clock = clock;
  // Touched now, so that no page is asked for while the step is played.
  now_->issued.resize(instructions_);
  now_->issued.clear();
  now_->waits.resize(waits);
  now_->waits.clear();
  now_->begin = clock_now();
}

void Recorder::end_step(Bytes peak) {
  now_->end = clock_now();
  now_->peak = peak;
  now_ = nullptr;
}

void Recorder::end_wait(Nanoseconds complete) {
  HostWait& wait = now_->waits.back();
  wait.end = wait.unpacked = clock_now();
  IssuedInstruction& issued = now_->issued[wait.issue];
  issued.complete = std::max(issued.end, complete > 0 ? complete : wait.end);
}

namespace {

constexpr std::string_view kFirstLine = "weft timeline 1";
// An instruction takes some 70 bytes.
constexpr FileKind kTimelineFile{"a timeline of a rank", std::size_t{4} << 30};

// A line's word, then whole numbers.
class Line {
 public:
  Line(std::string_view text, std::string_view file, std::size_t number) : rest_(text), file_(file), number_(number) {
    word_ = rest_.substr(0, rest_.find(' '));
    rest_.remove_prefix(word_.size());
  }
  std::string_view word() const { return word_; }
  template <class... Numbers>
  Status read(Numbers&... numbers) {
    if (!(next(numbers) && ...) || !rest_.empty()) return fault();
    return Ok{};
  }
  Error fault() const { return error("{}:{}: not a line of a timeline", file_, number_); }

 private:
  template <class Number>
  bool next(Number& number) {
    if (rest_.empty() || rest_.front() != ' ') return false;
    rest_.remove_prefix(1);
    const auto [end, problem] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), number);
    if (problem != std::errc()) return false;
    rest_.remove_prefix(static_cast<std::size_t>(end - rest_.data()));
    return true;
  }

  std::string_view word_, rest_, file_;
  std::size_t number_;
};

}  // namespace

std::string print(const RankTimeline& timeline) {
  fmt::memory_buffer text;
  const auto out = std::back_inserter(text);
  fmt::format_to(out, "{}\nrank {}\n", kFirstLine, timeline.rank);
  for (const RecordedStep& step : timeline.steps) {
    fmt::format_to(out, "step {} {} {} {} {} {}\n", step.step, step.begin, step.end, step.clock.ahead,
                   step.clock.round_trip, step.peak.value);
    for (const IssuedInstruction& each : step.issued)
      fmt::format_to(out, "i {} {} {} {} {} {}\n", each.instruction.index(), each.micro_batch, each.begin, each.end,
                     each.complete, each.held.value);
    for (const HostWait& each : step.waits)
      fmt::format_to(out, "w {} {} {} {}\n", each.issue, each.begin, each.end, each.unpacked);
  }
  fmt::format_to(out, "end\n");
  return fmt::to_string(text);
}

Result<RankTimeline> parse_timeline(std::string_view text, std::string_view file) {
  RankTimeline timeline;
  bool ended = false;
  for (std::size_t at = 0, number = 1; at < text.size() && !ended; ++number) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view whole = text.substr(at, end - at);
    Line line(whole, file, number);
    at = end + 1;
    if (number == 1) {
      if (whole != kFirstLine) return error("{}:1: '{}': write {}", file, whole, kFirstLine);
    } else if (line.word() == "rank") {
      WEFT_TRY_OK(line.read(timeline.rank));
    } else if (line.word() == "step") {
      RecordedStep& step = timeline.steps.emplace_back();
      WEFT_TRY_OK(line.read(step.step, step.begin, step.end, step.clock.ahead, step.clock.round_trip, step.peak.value));
    } else if (line.word() == "i" && !timeline.steps.empty()) {
      IssuedInstruction& each = timeline.steps.back().issued.emplace_back();
      std::uint32_t instruction = 0;
      WEFT_TRY_OK(line.read(instruction, each.micro_batch, each.begin, each.end, each.complete, each.held.value));
      each.instruction = InstructionId(instruction);
    } else if (line.word() == "w" && !timeline.steps.empty()) {
      HostWait& each = timeline.steps.back().waits.emplace_back();
      WEFT_TRY_OK(line.read(each.issue, each.begin, each.end, each.unpacked));
      if (each.issue >= timeline.steps.back().issued.size()) return line.fault();
    } else if (whole == "end") {
      ended = true;
    } else {
      return line.fault();
    }
  }
  if (!ended) return error("{}: it ends before its end", file);
  return timeline;
}

std::string timeline_file(const std::string& directory, int rank) {
  return fmt::format("{}/timeline.{}", directory, rank);
}

Result<std::vector<RankTimeline>> read_timelines(const std::string& directory, int ranks) {
  std::vector<RankTimeline> timelines;
  for (int rank = 0; rank < ranks; ++rank) {
    const std::string path = timeline_file(directory, rank);
    WEFT_TRY(const std::string text, read_file(path, kTimelineFile));
    WEFT_TRY(RankTimeline timeline, parse_timeline(text, path));
    timelines.push_back(std::move(timeline));
  }
  return timelines;
}

}  // namespace weft::runtime
