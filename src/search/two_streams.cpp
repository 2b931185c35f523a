#include "search/two_streams.h"

#include <algorithm>

#include "base/check.h"

namespace weft {
namespace {

constexpr int kPlayed = 3;  // micro-batches, at most

// What the streams do in a micro-batch, in order. A count of what the other stream must have done before in this
// micro-batch; 0: nothing.
struct Computing {
  double takes;
  int said;
  Beside beside;
};
struct Saying {
  double takes;
  int computed;
};
struct Orders {
  std::vector<Computing> compute;
  std::vector<Saying> say;
  int forward = 0;  // of compute: the forward pass
};

// Writes the orders down as the compiler issues them.
class Issue {
 public:
  Issue(std::span<const StreamSection> sections, std::span<const std::int32_t> stage, const StreamRules& rules,
        Orders& orders)
      : sections_(sections), stage_(stage), rules_(rules), orders_(orders), ends_(stage.size()), place_(stage.size()) {
    orders_.compute.clear();
    orders_.say.clear();
  }

  void pass(bool backward) {
    const auto count = static_cast<int>(stage_.size());
    const bool ahead = backward ? rules_.ahead_backward : rules_.ahead_forward;
    int issued = 0;
    for (int position = 0; position < count; ++position) {
      // Forward there are gathers alone: when each is issued does not matter.
      while (issued < count && issued <= position + (backward && ahead ? 1 : 0)) gather(issued++, backward, ahead);
      compute(position, backward);
    }
    if (!backward) orders_.forward = static_cast<int>(orders_.compute.size());
  }

 private:
  struct Point {  // in a section's pass
    double at;
    std::size_t piece;
    bool ready;  // its gradients are there; otherwise it is used
  };

  const StreamSection& at(int position, bool backward) const {
    const auto place = static_cast<std::size_t>(position);
    return sections_[static_cast<std::size_t>(stage_[backward ? stage_.size() - 1 - place : place])];
  }
  static double gather_of(const StreamPiece& piece, bool backward) {
    return backward ? piece.gather_backward : piece.gather_forward;
  }
  static double use_of(const StreamPiece& piece, bool backward) {
    return backward ? piece.backward_use : piece.forward_use;
  }

  // No more sections are gathered than may be in flight: one waits until an earlier one has computed. What is issued
  // before the section before it does not wait for that.
  void gather(int position, bool backward, bool ahead) {
    const int limit = std::max(rules_.in_flight, 1), other = position - limit;
    const bool waits = other >= 0 && !(ahead && limit == 1) && !(other == 0 && !backward && rules_.first_stays);
    const StreamSection& section = at(position, backward);
    const bool turned = use_of(section.pieces[1], backward) < use_of(section.pieces[0], backward);
    for (const std::size_t piece : {std::size_t{turned}, std::size_t{!turned}}) {
      const double takes = gather_of(section.pieces[piece], backward);
      if (takes <= 0) continue;
      orders_.say.push_back({takes, waits ? ends_[static_cast<std::size_t>(other)] : 0});
      place_[static_cast<std::size_t>(position)][piece] = static_cast<int>(orders_.say.size());
    }
  }

  void compute(int position, bool backward) {
    const StreamSection& section = at(position, backward);
    const double takes = backward ? section.backward : section.forward;
    const Beside& beside = backward ? section.backward_beside : section.forward_beside;
    std::array<Point, 4> points;  // in order; of two at once, the use first
    std::size_t count = 0;
    const auto add = [&](const Point& point) {
      std::size_t place = count++;
      for (; place > 0; --place) {
        const Point& before = points[place - 1];
        if (before.at < point.at || (before.at == point.at && (point.ready || !before.ready))) break;
        points[place] = before;
      }
      points[place] = point;
    };
    for (std::size_t piece = 0; piece < 2; ++piece) {
      const StreamPiece& of = section.pieces[piece];
      if (gather_of(of, backward) > 0) add({std::min(takes, use_of(of, backward)), piece, false});
      if (backward && of.reduce > 0) add({std::min(takes, of.backward_ready), piece, true});
    }
    double done = 0;
    int needs = 0;
    const auto go_on = [&](double until) {
      orders_.compute.push_back({until - done, needs, beside});
      done = until;
      needs = 0;
    };
    for (std::size_t i = 0; i < count; ++i) {
      const Point& point = points[i];
      if (point.at > done || (point.ready && needs > 0)) go_on(point.at);
      if (point.ready)
        orders_.say.push_back({section.pieces[point.piece].reduce, static_cast<int>(orders_.compute.size())});
      else
        needs = std::max(needs, place_[static_cast<std::size_t>(position)][point.piece]);
    }
    if (takes > done || needs > 0) go_on(takes);
    if (backward && !rules_.overlap)
      orders_.compute.push_back({section.adds, static_cast<int>(orders_.say.size()), beside});
    ends_[static_cast<std::size_t>(position)] = static_cast<int>(orders_.compute.size());
  }

  std::span<const StreamSection> sections_;
  std::span<const std::int32_t> stage_;
  const StreamRules& rules_;
  Orders& orders_;
  std::vector<int> ends_;                  // computation until a section of this pass is done
  std::vector<std::array<int, 2>> place_;  // of its gathers
};

}  // namespace

StreamTimes play_streams(std::span<const StreamSection> sections, std::span<const std::int32_t> stage,
                         const StreamRules& rules, int micro_batches) {
  thread_local Orders orders;
  Issue issue(sections, stage, rules, orders);
  issue.pass(false);
  issue.pass(true);

  StreamTimes times;
  const int played = std::min(micro_batches, kPlayed);
  const auto computes = static_cast<int>(orders.compute.size()), says = static_cast<int>(orders.say.size());
  double now = 0, start = 0, lag = 0, lag_grows = 0;
  std::array<double, kPlayed> computed = {}, said = {};
  int c = 0, s = 0, c_round = 0, s_round = 0;  // what comes next, and the micro-batch it is of
  double c_left = 0, s_left = 0;
  const auto load_compute = [&] { c_left = orders.compute[static_cast<std::size_t>(c)].takes; };
  const auto load_say = [&] { s_left = orders.say[static_cast<std::size_t>(s)].takes; };
  const auto end_compute = [&] {
    if (++c == orders.forward) times.forward = now - start;
    if (c == computes) {
      times.backward = now - start - times.forward;
      computed[static_cast<std::size_t>(c_round)] = start = now;
      c = 0;
      ++c_round;
    }
    load_compute();
  };
  const auto end_say = [&] {
    if (++s == says) {
      said[static_cast<std::size_t>(s_round)] = now;
      s = 0;
      ++s_round;
    }
    if (says > 0) load_say();
  };
  WEFT_CHECK(computes > 0, "a stage without computation");
  load_compute();
  if (says > 0)
    load_say();
  else
    s_round = played;
  while (c_round < played || s_round < played) {
    const Computing& compute = orders.compute[static_cast<std::size_t>(c)];
    const bool may_compute =
        c_round < played && (compute.said == 0 || s_round > c_round || (s_round == c_round && s >= compute.said));
    bool may_say = s_round < played;
    if (may_say) {
      const int needs = orders.say[static_cast<std::size_t>(s)].computed;
      may_say = needs == 0 || c_round > s_round || (c_round == s_round && c >= needs);
    }
    if (may_compute && may_say) {
      const double c_takes = c_left / compute.beside.compute, s_takes = s_left / compute.beside.say;
      if (c_takes <= s_takes) {
        now += c_takes;
        s_left -= c_takes * compute.beside.say;
        end_compute();
      } else {
        now += s_takes;
        c_left -= s_takes * compute.beside.compute;
        end_say();
      }
    } else if (may_compute) {
      now += c_left;
      end_compute();
    } else {
      WEFT_CHECK(may_say, "two streams wait for one another");
      now += s_left;
      end_say();
    }
  }
  const auto last = static_cast<std::size_t>(played - 1);
  lag = says > 0 ? said[last] - computed[last] : 0;
  if (says > 0 && played > 1) lag_grows = lag - (said[last - 1] - computed[last - 1]);
  const int others = micro_batches - played;
  times.all = computed[last] + others * (times.forward + times.backward);
  times.lag = std::max(0.0, lag + others * lag_grows);
  return times;
}

}  // namespace weft
