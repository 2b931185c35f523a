#include "hybrid/two_streams.h"

#include <algorithm>
#include <array>

#include "base/check.h"

namespace weft {
namespace {

constexpr int kPlayed = 3;  // most micro-batches that are simulated one by one
// Of a long run of equal sections, kAlike and kAlike + kMore are simulated; the others are extrapolated linearly.
constexpr std::size_t kAlike = 5, kMore = 2;

// The items of both streams in one micro-batch, in issue order. `communicated` and `computed` count the items of the
// other stream, of the same micro-batch, that must have ended before this one starts; 0: none.
struct Computation {
  double takes;
  int communicated;
  double slower, slows;         // overlapped: the factors by which it takes longer and makes communication take longer
  double compute, communicate;  // the inverse of both
};
struct Communication {
  double takes;
  int computed;
};
// Events of a section's pass; simultaneous ones are in this order. Turn: the overlap speeds change.
enum class What : std::uint8_t { Use, Ready, Done, Turn };
struct Point {
  double at;
  What what;
  double takes;                         // of the gather before a use, or of the reduction of a ready gradient
  const OverlapSpeed* speed = nullptr;  // from a turn on
};

void insert(std::vector<Point>& points, const Point& point) {
  const auto sooner = [](const Point& a, const Point& b) { return a.at != b.at ? a.at < b.at : a.what < b.what; };
  points.insert(std::upper_bound(points.begin(), points.end(), point, sooner), point);
}

struct Orders {
  std::vector<Computation> compute;
  std::vector<Communication> communicate;
  int forward = 0;  // how many of `compute` are the forward pass

  // Workspace of Issue.
  std::vector<std::vector<Point>> points;  // by section, of the current pass
  std::vector<int> ends;   // by position: index of the computation after which the section needs no parameters
  std::vector<int> first;  // by position: index of the section's first gather in `communicate`
};

// Lists the items of both streams in the order in which the compiler issues them.
class Issue {
 public:
  Issue(std::span<const StreamSection> sections, std::span<const std::int32_t> stage, const StreamRules& rules,
        Orders& orders)
      : sections_(sections), stage_(stage), rules_(rules), orders_(orders) {
    orders_.compute.clear();
    orders_.communicate.clear();
    orders_.ends.resize(stage.size());
    orders_.first.resize(stage.size());
  }

  void pass(bool backward) {
    backward_ = backward;
    set_points();
    const auto count = static_cast<int>(stage_.size());
    const bool ahead = backward ? rules_.ahead_backward : rules_.ahead_forward;
    int issued = 0;
    for (int position = 0; position < count; ++position) {
      // The forward pass has gathers only, so the moment of issue does not matter there.
      while (issued < count && issued <= position + (backward && ahead ? 1 : 0)) gather(issued++, ahead);
      compute(position);
    }
    if (!backward) orders_.forward = static_cast<int>(orders_.compute.size());
  }

 private:
  std::size_t at(int position) const {
    const auto place = static_cast<std::size_t>(position);
    return static_cast<std::size_t>(stage_[backward_ ? stage_.size() - 1 - place : place]);
  }

  void set_points() {
    orders_.points.resize(std::max(orders_.points.size(), sections_.size()));
    for (std::size_t i = 0; i < sections_.size(); ++i) {
      const StreamSection& section = sections_[i];
      std::vector<Point>& points = orders_.points[i];
      points.clear();
      const double takes = backward_ ? section.backward : section.forward;
      for (const StreamGather& piece : section.gathers)
        if (const double gather = backward_ ? piece.backward : piece.forward; gather > 0)
          insert(points, {std::min(takes, backward_ ? piece.backward_use : piece.forward_use), What::Use, gather});
      if (backward_)
        for (const StreamReduce& piece : section.reduces)
          if (piece.takes > 0) insert(points, {std::min(takes, piece.ready), What::Ready, piece.takes});
      if (!section.gathers.empty())
        insert(points, {std::min(takes, backward_ ? section.backward_done : section.forward_done), What::Done, 0});
      for (const StreamSpan& span : backward_ ? section.backward_spans : section.forward_spans) {
        insert(points, {std::min(takes, span.start), What::Turn, 0, &span.speed});
        insert(points, {std::min(takes, span.end), What::Turn, 0, &speed_of(section)});
      }
    }
  }
  void add_computation(double takes, int communicated, const OverlapSpeed& speed) {
    orders_.compute.push_back(
        {takes, communicated, 1 / speed.compute, 1 / speed.communicate, speed.compute, speed.communicate});
  }
  const OverlapSpeed& speed_of(const StreamSection& section) const {
    return backward_ ? section.backward_overlap : section.forward_overlap;
  }

  // At most `in_flight` sections are gathered at once: a gather waits until an earlier section needs its parameters no
  // more. One that is issued ahead of the preceding section does not wait for that section.
  void gather(int position, bool ahead) {
    const int limit = std::max(rules_.in_flight, 1), other = position - limit;
    const bool waits = other >= 0 && !(ahead && limit == 1) && !(other == 0 && !backward_ && rules_.keep_first);
    const int computed = waits ? orders_.ends[static_cast<std::size_t>(other)] : 0;
    orders_.first[static_cast<std::size_t>(position)] = static_cast<int>(orders_.communicate.size());
    for (const Point& point : orders_.points[at(position)])
      if (point.what == What::Use) orders_.communicate.push_back({point.takes, computed});
  }

  void compute(int position) {
    const StreamSection& section = sections_[at(position)];
    const double takes = backward_ ? section.backward : section.forward;
    const OverlapSpeed* speed = &speed_of(section);
    double done = 0;
    int gathered = orders_.first[static_cast<std::size_t>(position)], needs = 0;
    const auto go_on = [&](double until) {
      add_computation(until - done, needs, *speed);
      done = until;
      needs = 0;
    };
    for (const Point& point : orders_.points[at(position)]) {
      if (point.at > done || ((point.what == What::Ready || point.what == What::Done) && needs > 0)) go_on(point.at);
      const auto computed = static_cast<int>(orders_.compute.size());
      if (point.what == What::Use) needs = ++gathered;
      if (point.what == What::Ready) orders_.communicate.push_back({point.takes, computed});
      if (point.what == What::Done) orders_.ends[static_cast<std::size_t>(position)] = computed;
      if (point.what == What::Turn) speed = point.speed;
    }
    if (takes > done || needs > 0) go_on(takes);
    if (backward_ && !rules_.overlap)
      add_computation(section.adds, static_cast<int>(orders_.communicate.size()), *speed);
  }

  std::span<const StreamSection> sections_;
  std::span<const std::int32_t> stage_;
  const StreamRules& rules_;
  Orders& orders_;
  bool backward_ = false;
};

StreamTimes play_all(std::span<const StreamSection> sections, std::span<const std::int32_t> stage,
                     const StreamRules& rules, int micro_batches) {
  thread_local Orders orders;
  Issue issue(sections, stage, rules, orders);
  issue.pass(false);
  issue.pass(true);

  StreamTimes times;
  const int played = std::min(micro_batches, kPlayed);
  const auto computes = static_cast<int>(orders.compute.size()),
             communications = static_cast<int>(orders.communicate.size());
  double now = 0, start = 0, lag = 0, lag_grows = 0;
  std::array<double, kPlayed> computed = {}, communicated = {};
  int c = 0, s = 0, c_round = 0,
      s_round = 0;  // next item and its micro-batch: c computation, s data-parallel communication
  double c_left = 0, s_left = 0;
  const auto load_compute = [&] { c_left = orders.compute[static_cast<std::size_t>(c)].takes; };
  const auto load_communication = [&] { s_left = orders.communicate[static_cast<std::size_t>(s)].takes; };
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
  const auto end_communication = [&] {
    if (++s == communications) {
      communicated[static_cast<std::size_t>(s_round)] = now;
      s = 0;
      ++s_round;
    }
    if (communications > 0) load_communication();
  };
  WEFT_CHECK(computes > 0, "a stage without computation");
  load_compute();
  if (communications > 0)
    load_communication();
  else
    s_round = played;
  while (c_round < played || s_round < played) {
    const Computation& compute = orders.compute[static_cast<std::size_t>(c)];
    const bool may_compute = c_round < played && (compute.communicated == 0 || s_round > c_round ||
                                                  (s_round == c_round && s >= compute.communicated));
    bool may_communicate = s_round < played;
    if (may_communicate) {
      const int needs = orders.communicate[static_cast<std::size_t>(s)].computed;
      may_communicate = needs == 0 || c_round > s_round || (c_round == s_round && c >= needs);
    }
    if (may_compute && may_communicate) {
      const double c_takes = c_left * compute.slower, s_takes = s_left * compute.slows;
      if (c_takes <= s_takes) {
        now += c_takes;
        s_left -= c_takes * compute.communicate;
        end_compute();
      } else {
        now += s_takes;
        c_left -= s_takes * compute.compute;
        end_communication();
      }
    } else if (may_compute) {
      now += c_left;
      end_compute();
    } else {
      WEFT_CHECK(may_communicate, "two streams wait for one another");
      now += s_left;
      end_communication();
    }
  }
  const auto last = static_cast<std::size_t>(played - 1);
  lag = communications > 0 ? communicated[last] - computed[last] : 0;
  if (communications > 0 && played > 1) lag_grows = lag - (communicated[last - 1] - computed[last - 1]);
  const int others = micro_batches - played;
  times.all = computed[last] + others * (times.forward + times.backward);
  times.lag = std::max(0.0, lag + others * lag_grows);
  return times;
}

}  // namespace

StreamTimes play_streams(std::span<const StreamSection> sections, std::span<const std::int32_t> stage,
                         const StreamRules& rules, int micro_batches) {
  std::size_t longest = 0, at = 0;  // the longest run of equal sections
  for (std::size_t first = 0, i = 0; i < stage.size(); ++i) {
    if (stage[i] != stage[first]) first = i;
    if (i + 1 - first > longest) longest = i + 1 - first, at = first;
  }
  if (longest <= 2 * kAlike + kMore) return play_all(sections, stage, rules, micro_batches);
  thread_local std::vector<std::int32_t> fewer;
  const auto play_with = [&](std::size_t count) {
    fewer.assign(stage.begin(), stage.begin() + static_cast<std::ptrdiff_t>(at + count));
    fewer.insert(fewer.end(), stage.begin() + static_cast<std::ptrdiff_t>(at + longest), stage.end());
    return play_all(sections, fewer, rules, micro_batches);
  };
  const StreamTimes some = play_with(kAlike), more = play_with(kAlike + kMore);
  const double times = static_cast<double>(longest - kAlike) / static_cast<double>(kMore);
  const auto go_on = [&](double StreamTimes::*of) { return some.*of + times * (more.*of - some.*of); };
  return {go_on(&StreamTimes::forward), go_on(&StreamTimes::backward), go_on(&StreamTimes::all),
          std::max(0.0, go_on(&StreamTimes::lag))};
}

}  // namespace weft
