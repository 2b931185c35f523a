#include "hybrid/two_streams.h"

#include <algorithm>
#include <array>

#include "base/check.h"

namespace weft {
namespace {

constexpr int kPlayed = 3;  // micro-batches, at most
// Sections of one kind that follow one another, and how many more of them: what these add, all others do.
constexpr std::size_t kAlike = 5, kMore = 2;

// What the streams do in a micro-batch, in order. A count of what the other stream must have done before in this
// micro-batch; 0: nothing.
struct Computing {
  double takes;
  int said;
  double slower, slows;  // beside what is said: how much longer it takes, and makes that take
  double compute, say;   // the inverse of both
};
struct Saying {
  double takes;
  int computed;
};
// What happens in a section's pass, in this order where several things do at once.
enum class What : std::uint8_t { Use, Ready, Done, Turn };
struct Point {
  double at;
  What what;
  double takes;                    // the gather before its use, the reduction after it is ready
  const Beside* beside = nullptr;  // from a turn on
};

void insert(std::vector<Point>& points, const Point& point) {
  const auto sooner = [](const Point& a, const Point& b) { return a.at != b.at ? a.at < b.at : a.what < b.what; };
  points.insert(std::upper_bound(points.begin(), points.end(), point, sooner), point);
}

struct Orders {
  std::vector<Computing> compute;
  std::vector<Saying> say;
  int forward = 0;  // of compute: the forward pass

  // For whoever writes them.
  std::vector<std::vector<Point>> points;  // of each section, in this pass
  std::vector<int> ends;                   // by position: computation until a section is done with its parameters
  std::vector<int> first;                  // by position, of what is said: the first gather
};

// Writes the orders down as the compiler issues them.
class Issue {
 public:
  Issue(std::span<const StreamSection> sections, std::span<const std::int32_t> stage, const StreamRules& rules,
        Orders& orders)
      : sections_(sections), stage_(stage), rules_(rules), orders_(orders) {
    orders_.compute.clear();
    orders_.say.clear();
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
      // Forward there are gathers alone: when each is issued does not matter.
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
        insert(points, {std::min(takes, span.start), What::Turn, 0, &span.beside});
        insert(points, {std::min(takes, span.end), What::Turn, 0, &beside_of(section)});
      }
    }
  }
  void add_computing(double takes, int said, const Beside& beside) {
    orders_.compute.push_back({takes, said, 1 / beside.compute, 1 / beside.say, beside.compute, beside.say});
  }
  const Beside& beside_of(const StreamSection& section) const {
    return backward_ ? section.backward_beside : section.forward_beside;
  }

  // No more sections are gathered than may be in flight: one waits until an earlier one is done with its parameters.
  // What is issued before the section before it does not wait for that.
  void gather(int position, bool ahead) {
    const int limit = std::max(rules_.in_flight, 1), other = position - limit;
    const bool waits = other >= 0 && !(ahead && limit == 1) && !(other == 0 && !backward_ && rules_.first_stays);
    const int computed = waits ? orders_.ends[static_cast<std::size_t>(other)] : 0;
    orders_.first[static_cast<std::size_t>(position)] = static_cast<int>(orders_.say.size());
    for (const Point& point : orders_.points[at(position)])
      if (point.what == What::Use) orders_.say.push_back({point.takes, computed});
  }

  void compute(int position) {
    const StreamSection& section = sections_[at(position)];
    const double takes = backward_ ? section.backward : section.forward;
    const Beside* beside = &beside_of(section);
    double done = 0;
    int gathered = orders_.first[static_cast<std::size_t>(position)], needs = 0;
    const auto go_on = [&](double until) {
      add_computing(until - done, needs, *beside);
      done = until;
      needs = 0;
    };
    for (const Point& point : orders_.points[at(position)]) {
      if (point.at > done || ((point.what == What::Ready || point.what == What::Done) && needs > 0)) go_on(point.at);
      const auto computed = static_cast<int>(orders_.compute.size());
      if (point.what == What::Use) needs = ++gathered;
      if (point.what == What::Ready) orders_.say.push_back({point.takes, computed});
      if (point.what == What::Done) orders_.ends[static_cast<std::size_t>(position)] = computed;
      if (point.what == What::Turn) beside = point.beside;
    }
    if (takes > done || needs > 0) go_on(takes);
    if (backward_ && !rules_.overlap) add_computing(section.adds, static_cast<int>(orders_.say.size()), *beside);
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
      const double c_takes = c_left * compute.slower, s_takes = s_left * compute.slows;
      if (c_takes <= s_takes) {
        now += c_takes;
        s_left -= c_takes * compute.say;
        end_compute();
      } else {
        now += s_takes;
        c_left -= s_takes * compute.compute;
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

}  // namespace

StreamTimes play_streams(std::span<const StreamSection> sections, std::span<const std::int32_t> stage,
                         const StreamRules& rules, int micro_batches) {
  std::size_t longest = 0, at = 0;  // sections of one kind that follow one another
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
