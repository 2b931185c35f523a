#include "search/two_streams.h"

#include <algorithm>
#include <array>

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
  // In a section's pass, in this order where several are at once.
  enum class What : std::uint8_t { Use, Ready, Done };
  struct Point {
    double at;
    What what;
    std::size_t piece;
  };

  const StreamSection& at(int position, bool backward) const {
    const auto place = static_cast<std::size_t>(position);
    return sections_[static_cast<std::size_t>(stage_[backward ? stage_.size() - 1 - place : place])];
  }
  static double takes_of(const StreamGather& piece, bool backward) { return backward ? piece.backward : piece.forward; }
  static double use_of(const StreamGather& piece, bool backward) {
    return backward ? piece.backward_use : piece.forward_use;
  }
  void add_point(const Point& point) {
    const auto later = [](const Point& a, const Point& b) { return a.at != b.at ? a.at < b.at : a.what < b.what; };
    points_.insert(std::upper_bound(points_.begin(), points_.end(), point, later), point);
  }

  // No more sections are gathered than may be in flight: one waits until an earlier one has computed. What is issued
  // before the section before it does not wait for that.
  void gather(int position, bool backward, bool ahead) {
    const int limit = std::max(rules_.in_flight, 1), other = position - limit;
    const bool waits = other >= 0 && !(ahead && limit == 1) && !(other == 0 && !backward && rules_.first_stays);
    const StreamSection& section = at(position, backward);
    points_.clear();
    for (std::size_t piece = 0; piece < section.gathers.size(); ++piece)
      if (takes_of(section.gathers[piece], backward) > 0)
        add_point({use_of(section.gathers[piece], backward), What::Use, piece});
    std::vector<int>& places = place_[static_cast<std::size_t>(position)];
    places.assign(section.gathers.size(), 0);
    for (const Point& point : points_) {
      orders_.say.push_back(
          {takes_of(section.gathers[point.piece], backward), waits ? ends_[static_cast<std::size_t>(other)] : 0});
      places[point.piece] = static_cast<int>(orders_.say.size());
    }
  }

  void compute(int position, bool backward) {
    const StreamSection& section = at(position, backward);
    const double takes = backward ? section.backward : section.forward;
    const Beside& beside = backward ? section.backward_beside : section.forward_beside;
    points_.clear();
    for (std::size_t piece = 0; piece < section.gathers.size(); ++piece)
      if (takes_of(section.gathers[piece], backward) > 0)
        add_point({std::min(takes, use_of(section.gathers[piece], backward)), What::Use, piece});
    if (backward)
      for (std::size_t piece = 0; piece < section.reduces.size(); ++piece)
        if (section.reduces[piece].takes > 0)
          add_point({std::min(takes, section.reduces[piece].ready), What::Ready, piece});
    if (!section.gathers.empty())
      add_point({std::min(takes, backward ? section.backward_done : section.forward_done), What::Done, 0});
    double done = 0;
    int needs = 0;
    const auto go_on = [&](double until) {
      orders_.compute.push_back({until - done, needs, beside});
      done = until;
      needs = 0;
    };
    int& end = ends_[static_cast<std::size_t>(position)];
    for (const Point& point : points_) {
      if (point.at > done || (point.what != What::Use && needs > 0)) go_on(point.at);
      if (point.what == What::Use)
        needs = std::max(needs, place_[static_cast<std::size_t>(position)][point.piece]);
      else if (point.what == What::Ready)
        orders_.say.push_back({section.reduces[point.piece].takes, static_cast<int>(orders_.compute.size())});
      else
        end = static_cast<int>(orders_.compute.size());
    }
    if (takes > done || needs > 0) go_on(takes);
    if (backward && !rules_.overlap)
      orders_.compute.push_back({section.adds, static_cast<int>(orders_.say.size()), beside});
  }

  std::span<const StreamSection> sections_;
  std::span<const std::int32_t> stage_;
  const StreamRules& rules_;
  Orders& orders_;
  std::vector<int> ends_;                // computation until a section of this pass needs no parameters
  std::vector<std::vector<int>> place_;  // of its gathers
  std::vector<Point> points_;
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
