#include "search/two_streams.h"

#include <algorithm>

namespace weft {
namespace {

constexpr int kPlayed = 3;  // micro-batches, at most

class Streams {
 public:
  Streams(std::span<const StreamSection> sections, std::span<const std::int32_t> stage, const StreamRules& rules)
      : sections_(sections), stage_(stage), rules_(rules), ends_(stage.size()), gathered_(stage.size()) {}

  double computed() const { return compute_; }
  double said() const { return said_; }

  void play(bool backward) {
    const auto count = static_cast<int>(stage_.size());
    const bool ahead = backward ? rules_.ahead_backward : rules_.ahead_forward;
    int issued = 0;
    for (int position = 0; position < count; ++position) {
      // Forward, gathers have the stream for themselves; backward, they are between reductions.
      while (issued < count && (backward ? issued <= position + (ahead ? 1 : 0) : is_known(issued, position, ahead)))
        gather(issued++, backward, ahead);
      compute(position, backward);
      if (backward) reduce(at(position, true));
    }
  }

 private:
  struct Busy {
    double start, end;
  };

  const StreamSection& at(int position, bool backward) const {
    const std::size_t place = static_cast<std::size_t>(position);
    return sections_[static_cast<std::size_t>(stage_[backward ? stage_.size() - 1 - place : place])];
  }
  // The section that must have computed before another is gathered; below 0: none. One that is gathered while the one
  // before it computes does not wait for that.
  int waits_for(int position, bool backward, bool ahead) const {
    const int limit = std::max(rules_.in_flight, 1);
    if (ahead && limit == 1) return -1;
    const int other = position - limit;
    return other == 0 && !backward && rules_.first_stays ? -1 : other;
  }
  bool is_known(int gathered, int position, bool ahead) const { return waits_for(gathered, false, ahead) < position; }

  double say(double ready, double takes) {
    if (takes <= 0) return ready;
    const double start = std::max(said_, ready);
    said_ = start + takes;
    if (!busy_.empty() && start <= busy_.back().end)
      busy_.back().end = said_;
    else
      busy_.push_back({start, said_});
    return said_;
  }

  void gather(int position, bool backward, bool ahead) {
    const StreamSection& section = at(position, backward);
    const int other = waits_for(position, backward, ahead);
    const double ready = other < 0 ? 0 : ends_[static_cast<std::size_t>(other)];
    auto& gathered = gathered_[static_cast<std::size_t>(position)];
    for (const std::size_t piece : in_order(section, backward))
      gathered[piece] =
          say(ready, backward ? section.pieces[piece].gather_backward : section.pieces[piece].gather_forward);
  }

  // Pieces in the order of their first use.
  static std::array<std::size_t, 2> in_order(const StreamSection& section, bool backward) {
    const StreamPiece &a = section.pieces[0], &b = section.pieces[1];
    const bool turned = backward ? b.backward_use < a.backward_use : b.forward_use < a.forward_use;
    return turned ? std::array<std::size_t, 2>{1, 0} : std::array<std::size_t, 2>{0, 1};
  }

  // Computation of `amount` from `now` on.
  double advance(double now, double amount, double slow) {
    while (amount > 0) {
      while (next_ < busy_.size() && busy_[next_].end <= now) ++next_;
      if (next_ == busy_.size()) return now + amount;
      if (const double alone = busy_[next_].start - now; alone > 0) {
        if (amount <= alone) return now + amount;
        now += alone;
        amount -= alone;
      }
      const double beside = busy_[next_].end - now;
      if (amount * slow <= beside) return now + amount * slow;
      amount -= beside / slow;
      now = busy_[next_].end;
    }
    return now;
  }

  void compute(int position, bool backward) {
    const StreamSection& section = at(position, backward);
    const double takes = backward ? section.backward : section.forward;
    const double slow = backward ? section.slow_backward : section.slow_forward;
    double done = 0;
    for (const std::size_t piece : in_order(section, backward)) {
      const StreamPiece& of = section.pieces[piece];
      if ((backward ? of.gather_backward : of.gather_forward) <= 0) continue;
      const double use = std::min(takes, backward ? of.backward_use : of.forward_use);
      compute_ = advance(compute_, use - done, slow);
      compute_ = std::max(compute_, gathered_[static_cast<std::size_t>(position)][piece]);
      done = use;
    }
    compute_ = advance(compute_, takes - done, slow);
    ends_[static_cast<std::size_t>(position)] = compute_;
  }

  void reduce(const StreamSection& section) {
    const StreamPiece &a = section.pieces[0], &b = section.pieces[1];
    const std::array<const StreamPiece*, 2> order =
        b.backward_ready < a.backward_ready ? std::array{&b, &a} : std::array{&a, &b};
    for (const StreamPiece* piece : order)
      say(compute_ - std::max(0.0, section.backward - piece->backward_ready), piece->reduce);
    if (!rules_.overlap) compute_ = std::max(compute_, said_) + section.adds;
  }

  std::span<const StreamSection> sections_;
  std::span<const std::int32_t> stage_;
  const StreamRules& rules_;
  double compute_ = 0, said_ = 0;  // when the streams are free
  std::vector<double> ends_;       // of computation in this pass, by position
  std::vector<std::array<double, 2>> gathered_;
  std::vector<Busy> busy_;  // the stream of replicas
  std::size_t next_ = 0;    // of busy_: the first that does not end before computation is
};

}  // namespace

StreamTimes play_streams(std::span<const StreamSection> sections, std::span<const std::int32_t> stage,
                         const StreamRules& rules, int micro_batches) {
  Streams streams(sections, stage, rules);
  StreamTimes times;
  double lag_grows = 0;
  const int played = std::min(micro_batches, kPlayed);
  for (int i = 0; i < played; ++i) {
    const double start = streams.computed(), lag = streams.said() - start;
    streams.play(false);
    times.forward = streams.computed() - start;
    streams.play(true);
    times.backward = streams.computed() - start - times.forward;
    lag_grows = streams.said() - streams.computed() - lag;
  }
  const int others = micro_batches - played;
  times.all = streams.computed() + others * (times.forward + times.backward);
  times.lag = std::max(0.0, streams.said() - streams.computed() + others * lag_grows);
  return times;
}

}  // namespace weft
