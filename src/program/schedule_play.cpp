// The player, and the verifier: a table is a schedule if it can be played, with any durations.
#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <tuple>

#include "base/check.h"
#include "base/checked.h"
#include "program/schedule.h"

namespace weft {
namespace {

// What has been seen of one micro-batch at one stage.
enum Seen : std::uint8_t { kForward = 1, kInput = 2, kWeight = 4, kAll = 7 };

std::uint8_t seen_by(Body body) {
  switch (body) {
    case Body::Forward:
      return kForward;
    case Body::Backward:
      return kInput | kWeight;
    case Body::BackwardInput:
      return kInput;
    case Body::BackwardWeight:
      return kWeight;
  }
  return 0;
}

bool is_name(std::string_view name) {
  return !name.empty() &&
         std::all_of(name.begin(), name.end(), [](char c) { return c > ' ' && c <= '~' && c != ':' && c != '#'; });
}

Status check_routes(const Schedule& s) {
  if (!is_name(s.name)) return error("schedule name '{}': write a word without ':' and '#'", s.name);
  if (s.ranks < 1 || s.chunks < 1 || s.micro_batches < 1)
    return error("{} ranks, {} chunks, {} micro-batches: at least one of each is needed", s.ranks, s.chunks,
                 s.micro_batches);
  if (s.actions.size() != std::size_t(s.ranks))
    return error("actions of {} ranks, but there are {}", s.actions.size(), s.ranks);
  if (s.route_of.size() != std::size_t(s.micro_batches))
    return error("routes of {} micro-batches, but there are {}", s.route_of.size(), s.micro_batches);
  if (s.stages() == 0) return error("no route, or one without stages");

  const std::int64_t places = std::int64_t{s.ranks} * s.chunks;
  std::int64_t named = 0;
  for (const std::vector<Place>& route : s.routes) named += static_cast<std::int64_t>(route.size());
  if (named < places) return error("{} places, but the routes pass only {}", places, named);

  std::vector<std::int32_t> held(places, -1), of(places, -1);  // the stage, and of how many
  for (std::size_t k = 0; k < s.routes.size(); ++k) {
    const auto stages = static_cast<std::int32_t>(s.routes[k].size());
    if (stages == 0) return error("route {} has no stages", k);
    for (std::int32_t stage = 0; stage < stages; ++stage) {
      const Place place = s.routes[k][stage];
      if (place.rank < 0 || place.rank >= s.ranks || place.chunk < 0 || place.chunk >= s.chunks)
        return error("route {}: stage {} on rank {}, chunk {}, which is not there", k, stage, place.rank, place.chunk);
      std::int32_t& holds = held[std::int64_t{place.rank} * s.chunks + place.chunk];
      if (holds != -1 && holds != stage)
        return error("rank {}, chunk {} holds both stage {} and stage {}", place.rank, place.chunk, holds, stage);
      holds = stage;
      std::int32_t& among = of[std::int64_t{place.rank} * s.chunks + place.chunk];
      if (among != -1 && among != stages)
        return error("rank {}, chunk {} holds stage {} both of {} and of {}", place.rank, place.chunk, stage, among,
                     stages);
      among = stages;
    }
  }
  for (std::int64_t at = 0; at < places; ++at)
    if (held[at] == -1) return error("rank {}, chunk {} holds no stage", at / s.chunks, at % s.chunks);

  std::vector<bool> used(s.routes.size());
  for (std::int32_t i = 0; i < s.micro_batches; ++i) {
    if (s.route_of[i] < 0 || std::size_t(s.route_of[i]) >= s.routes.size())
      return error("micro-batch {} follows route {}, which is not there", i, s.route_of[i]);
    used[s.route_of[i]] = true;
  }
  for (std::size_t k = 0; k < used.size(); ++k)
    if (!used[k]) return error("no micro-batch follows route {}", k);
  return Ok{};
}

// An action may hide another's communication: one forward, one backward, and only two at a time.
bool is_pair(std::span<const Action> actions, std::size_t at) {
  if (at + 1 >= actions.size() || actions[at + 1].with_next) return false;
  const auto backward = [](Body body) { return body == Body::Backward || body == Body::BackwardInput; };
  const Body first = actions[at].body, second = actions[at + 1].body;
  return (first == Body::Forward && backward(second)) || (backward(first) && second == Body::Forward);
}

// Every micro-batch, at every stage, at its place: one forward, one backward.
Status check_coverage(const Schedule& s, std::span<const std::int32_t> stage_at) {
  std::int64_t count = 0;
  for (const std::vector<Action>& actions : s.actions) count += static_cast<std::int64_t>(actions.size());
  std::vector<std::int64_t> first_unit = {0};  // by micro-batch: one for each of its stages
  for (std::int32_t i = 0; i < s.micro_batches; ++i) first_unit.push_back(first_unit.back() + s.stages_of(i));
  const std::int64_t units = first_unit.back();
  if (count / 2 < units) {  // also keeps the table below no larger than the schedule
    const bool alike = units == std::int64_t{s.micro_batches} * s.stages();
    return error("{} actions for {} micro-batches at {}: some are missing, each needs a forward and a backward", count,
                 s.micro_batches, alike ? fmt::format("{} stages", s.stages()) : "the stages of their routes");
  }

  std::vector<std::uint8_t> seen(units);
  for (std::int32_t rank = 0; rank < s.ranks; ++rank) {
    const std::vector<Action>& actions = s.actions[rank];
    for (std::size_t at = 0; at < actions.size(); ++at) {
      const Action& a = actions[at];
      if (a.micro_batch < 0 || a.micro_batch >= s.micro_batches || a.chunk < 0 || a.chunk >= s.chunks)
        return error("rank {}: {}: there are {} micro-batches and {} chunks", rank, name_of(a), s.micro_batches,
                     s.chunks);
      const std::int32_t stage = stage_at[std::int64_t{rank} * s.chunks + a.chunk];
      if (stage >= s.stages_of(a.micro_batch))
        return error("rank {}: {}: micro-batch {} has no stage {}", rank, name_of(a), a.micro_batch, stage);
      const Place place = s.place_of(a.micro_batch, stage);
      if (place != Place{rank, a.chunk})
        return error("rank {}: {}: micro-batch {} has its stage {} on rank {}, chunk {}", rank, name_of(a),
                     a.micro_batch, stage, place.rank, place.chunk);
      std::uint8_t& done = seen[first_unit[a.micro_batch] + stage];
      if (done & seen_by(a.body)) return error("rank {}: {} comes a second time", rank, name_of(a));
      done |= seen_by(a.body);
      if (a.with_next && !is_pair(actions, at))
        return error("rank {}: {}& must be joined to one action: a forward to a backward or the reverse", rank,
                     name_of(a));
    }
  }
  for (std::int32_t i = 0; i < s.micro_batches; ++i)
    for (std::int64_t unit = first_unit[i]; unit < first_unit[i + 1]; ++unit)
      if (seen[unit] != kAll)
        return error("micro-batch {}, stage {}: the {} is missing", i, unit - first_unit[i],
                     !(seen[unit] & kForward) ? "forward"
                     : !(seen[unit] & kInput) ? "backward"
                                              : "backward's weight part (W)");
  return Ok{};
}

std::int32_t most_stages(const Schedule& s) {
  std::size_t most = 0;
  for (const std::vector<Place>& route : s.routes) most = std::max(most, route.size());
  return static_cast<std::int32_t>(most);
}

class Player {
 public:
  Player(const Schedule& schedule, std::span<const std::int32_t> stage_at, const PlayCosts& costs)
      : s_(schedule),
        stage_at_(stage_at),
        costs_(costs),
        stages_(most_stages(schedule)),
        forward_end_(std::size_t(schedule.micro_batches) * stages_, kNever),
        backward_end_(forward_end_),
        next_(schedule.ranks),
        queued_(schedule.ranks, true),
        held_(std::size_t(schedule.ranks) * schedule.chunks),
        held_by_rank_(schedule.ranks) {
    playback_.ranks.resize(schedule.ranks);
    for (RankPlay& rank : playback_.ranks) rank.by_chunk.resize(schedule.chunks);
  }

  // An end of F or I frees at most one action on another rank, so each rank is looked at again only when such an end
  // concerns it: linear in the actions.
  void run() {
    for (std::int32_t rank = s_.ranks - 1; rank >= 0; --rank) queue_.push_back(rank);
    while (!queue_.empty()) {
      const std::int32_t rank = queue_.back();
      queue_.pop_back();
      while (issue(rank)) {
      }
      queued_[rank] = false;
    }
    for (const RankPlay& rank : playback_.ranks) playback_.makespan = std::max(playback_.makespan, rank.end);
  }

  Status finished() const {
    for (std::int32_t rank = 0; rank < s_.ranks; ++rank)
      if (next_[rank] < s_.actions[rank].size()) return blocked(rank);
    return Ok{};
  }
  Playback take() { return std::move(playback_); }

  // Actions that went together, and when.
  struct Unit {
    Ticks start = 0, end = 0;
    std::int32_t behind = 0;  // how far its stage is from where its direction leads
    std::int32_t rank = 0;
    std::size_t first = 0, count = 0;  // of the rank's actions
  };
  void note_units(std::vector<Unit>& units) { units_ = &units; }
  // Moves each as late as those that need it, and the rank's next, allow. Cost: sorts them.
  void delay(std::vector<Unit>& units) const {
    std::sort(units.begin(), units.end(), [](const Unit& a, const Unit& b) { return a.start < b.start; });
    // The latest end of what has not been moved yet is given by those after it, which have.
    std::vector<Ticks> next(next_.size(), playback_.makespan);  // by rank: when its next unit starts
    std::vector<Ticks> forward(forward_end_.size(), playback_.makespan), backward = forward;  // must have ended then
    for (auto unit = units.rbegin(); unit != units.rend(); ++unit) {
      const auto rank = static_cast<std::size_t>(unit->rank);
      const std::span<const Action> together(&s_.actions[rank][unit->first], unit->count);
      Ticks end = next[rank];
      for (const Action& a : together) {
        const std::size_t at = this->unit(a.micro_batch, stage_of(unit->rank, a));
        if (a.body == Body::Forward) end = std::min(end, forward[at]);
        if (a.body == Body::Backward || a.body == Body::BackwardInput) end = std::min(end, backward[at]);
      }
      unit->start += end - unit->end;
      unit->end = end;
      next[rank] = unit->start;
      for (const Action& a : together)
        for_each_need(a, stage_of(unit->rank, a), [&](const Need& need) {
          Ticks& by = (need.body == Body::Forward ? forward : backward)[this->unit(need.micro_batch, need.stage)];
          by = std::min(by, unit->start);
        });
    }
  }

 private:
  static constexpr Ticks kNever = -1;
  static constexpr std::size_t kMostNamed = 8;

  struct Need {
    Body body;  // Forward or BackwardInput (which a fused backward fulfils too)
    std::int32_t micro_batch, stage;
  };

  std::int32_t stage_of(std::int32_t rank, const Action& a) const {
    return stage_at_[std::int64_t{rank} * s_.chunks + a.chunk];
  }
  std::size_t unit(std::int32_t micro_batch, std::int32_t stage) const {
    return std::size_t(micro_batch) * stages_ + stage;
  }
  const StageCost& cost(std::int32_t stage) const { return costs_.stages[costs_.stages.size() == 1 ? 0 : stage]; }

  // Calls `visit` with what the action needs, at most two things.
  template <class Visit>
  void for_each_need(const Action& a, std::int32_t stage, Visit&& visit) const {
    if (a.body == Body::Forward) {
      if (stage > 0) visit(Need{Body::Forward, a.micro_batch, stage - 1});
    } else if (a.body == Body::BackwardWeight) {
      visit(Need{Body::BackwardInput, a.micro_batch, stage});
    } else {
      visit(Need{Body::Forward, a.micro_batch, stage});
      if (stage + 1 < s_.stages_of(a.micro_batch)) visit(Need{Body::BackwardInput, a.micro_batch, stage + 1});
    }
  }
  Ticks end_of(const Need& need) const {
    return (need.body == Body::Forward ? forward_end_ : backward_end_)[unit(need.micro_batch, need.stage)];
  }
  // When everything the action needs has come to its rank; kNever if something is still to be done.
  Ticks ready(std::int32_t rank, const Action& a) const {
    Ticks time = 0;
    for_each_need(a, stage_of(rank, a), [&](const Need& need) {
      const Ticks end = end_of(need);
      if (end == kNever || time == kNever)
        time = kNever;
      else
        time = std::max(time, end + (s_.place_of(need.micro_batch, need.stage).rank == rank ? 0 : costs_.transfer));
    });
    return time;
  }
  Ticks duration(std::int32_t stage, Body body) const {
    const StageCost& c = cost(stage);
    switch (body) {
      case Body::Forward:
        return c.forward;
      case Body::Backward:
        return c.backward_input + c.backward_weight;
      case Body::BackwardInput:
        return c.backward_input;
      case Body::BackwardWeight:
        return c.backward_weight;
    }
    return 0;
  }

  // The actions that go together next on this rank.
  std::span<const Action> head(std::int32_t rank) const {
    const std::vector<Action>& actions = s_.actions[rank];
    if (next_[rank] == actions.size()) return {};
    return {actions.data() + next_[rank], actions[next_[rank]].with_next ? std::size_t{2} : std::size_t{1}};
  }

  bool issue(std::int32_t rank) {
    const std::span<const Action> together = head(rank);
    if (together.empty()) return false;
    RankPlay& mine = playback_.ranks[rank];
    Ticks start = mine.end, sum = 0, longest = 0;
    for (const Action& a : together) {
      const Ticks when = ready(rank, a);
      if (when == kNever) return false;
      const Ticks lasts = duration(stage_of(rank, a), a.body);
      start = std::max(start, when);
      sum += lasts;
      longest = std::max(longest, lasts);
    }
    const Ticks lasts = together.size() == 1 ? sum : std::max(longest, sum - costs_.pair_saving);
    if (next_[rank] == 0) mine.start = start;
    if (units_) {
      const std::int32_t stage = stage_of(rank, together.front()), stages = s_.stages_of(together.front().micro_batch);
      units_->push_back({start, start + lasts, together.front().body == Body::Forward ? stages - stage : stage, rank,
                         next_[rank], together.size()});
    }
    next_[rank] += together.size();
    mine.end = start + lasts;
    mine.busy += lasts;
    for (const Action& a : together) finish(rank, a, mine.end);
    return true;
  }

  void finish(std::int32_t rank, const Action& a, Ticks end) {
    const std::int32_t stage = stage_of(rank, a);
    if (a.body == Body::Forward) {
      forward_end_[unit(a.micro_batch, stage)] = end;
      if (stage + 1 < s_.stages_of(a.micro_batch)) look_at(s_.place_of(a.micro_batch, stage + 1).rank);
    } else if (a.body != Body::BackwardWeight) {
      backward_end_[unit(a.micro_batch, stage)] = end;
      if (stage > 0) look_at(s_.place_of(a.micro_batch, stage - 1).rank);
    }
    count_in_flight(rank, a);
  }
  void look_at(std::int32_t rank) {
    if (queued_[rank]) return;
    queued_[rank] = true;
    queue_.push_back(rank);
  }
  void count_in_flight(std::int32_t rank, const Action& a) {
    RankPlay& mine = playback_.ranks[rank];
    std::int32_t* const held = &held_[std::size_t(rank) * s_.chunks];
    if (a.body == Body::Backward || a.body == Body::BackwardWeight) {
      --held[a.chunk];
      --held_by_rank_[rank];
    } else if (a.body == Body::Forward) {
      mine.by_chunk[a.chunk] = std::max(mine.by_chunk[a.chunk], ++held[a.chunk]);
      mine.in_flight = std::max(mine.in_flight, ++held_by_rank_[rank]);
    }
  }

  // From a rank that cannot go on to the one it waits for, until a rank comes again: that is the cycle.
  Error blocked(std::int32_t rank) const {
    std::vector<std::int32_t> order(s_.ranks, -1);
    std::vector<std::string> lines;
    while (order[rank] == -1) {
      order[rank] = static_cast<std::int32_t>(lines.size());
      Need missing{};
      const Action* waiting = nullptr;
      for (const Action& a : head(rank))
        for_each_need(a, stage_of(rank, a), [&](const Need& need) {
          if (waiting || end_of(need) != kNever) return;
          waiting = &a;
          missing = need;
        });
      WEFT_CHECK(waiting, "rank {} stopped without a reason", rank);
      const Place holder = s_.place_of(missing.micro_batch, missing.stage);
      lines.push_back(fmt::format("rank {} at {} waits for the {} of micro-batch {} on rank {}, chunk {}", rank,
                                  name_of(*waiting), missing.body == Body::Forward ? "forward" : "backward",
                                  missing.micro_batch, holder.rank, holder.chunk));
      rank = holder.rank;
    }
    lines.erase(lines.begin(), lines.begin() + order[rank]);
    if (lines.size() > kMostNamed) {
      const std::size_t more = lines.size() - kMostNamed;
      lines.resize(kMostNamed);
      lines.push_back(fmt::format("and {} more", more));
    }
    return error("the schedule blocks: {}", fmt::join(lines, "; "));
  }

  const Schedule& s_;
  std::span<const std::int32_t> stage_at_;
  const PlayCosts& costs_;
  std::int32_t stages_;                            // of the longest route
  std::vector<Ticks> forward_end_, backward_end_;  // by unit; backward: of the input part
  std::vector<std::size_t> next_;                  // by rank, into its actions
  std::vector<std::int32_t> queue_;                // ranks to look at
  std::vector<std::uint8_t> queued_;               // by rank
  std::vector<std::int32_t> held_;                 // chunk activations now, by place
  std::vector<std::int32_t> held_by_rank_;
  Playback playback_;
  std::vector<Unit>* units_ = nullptr;
};

Status check_costs(const Schedule& s, const PlayCosts& costs) {
  if (costs.stages.size() != 1 && costs.stages.size() != std::size_t(most_stages(s)))
    return error("costs of {} stages, but there are {}; give one for all or one each", costs.stages.size(),
                 most_stages(s));
  Ticks longest = costs.transfer;
  bool negative = costs.transfer < 0 || costs.pair_saving < 0;
  for (const StageCost& cost : costs.stages) {
    negative |= cost.forward < 0 || cost.backward_input < 0 || cost.backward_weight < 0;
    longest = std::max({longest, cost.forward, cost.backward_input, cost.backward_weight});
  }
  if (negative) return error("a cost is negative");
  // Nothing ends later than if every product and every transfer came one after the other.
  const std::int64_t products = std::int64_t{6} * s.micro_batches * most_stages(s);
  if (!checked_mul(longest, products)) return error("costs of up to {}: the sum does not fit 64 bits", longest);
  return Ok{};
}

}  // namespace

Result<Playback> play(const Schedule& schedule, const PlayCosts& costs) {
  WEFT_TRY_OK(check_routes(schedule));
  const std::vector<std::int32_t> stage_at = stages_by_place(schedule);
  WEFT_TRY_OK(check_coverage(schedule, stage_at));
  WEFT_TRY_OK(check_costs(schedule, costs));
  Player player(schedule, stage_at, costs);
  player.run();
  WEFT_TRY_OK(player.finished());
  return player.take();
}

std::vector<RankedAction> total_order(const Schedule& schedule) {
  const PlayCosts costs;
  const std::vector<std::int32_t> stage_at = stages_by_place(schedule);
  std::vector<Player::Unit> units;
  Player player(schedule, stage_at, costs);
  player.note_units(units);
  player.run();
  static_cast<void>(player.finished().value());
  player.delay(units);
  std::sort(units.begin(), units.end(), [](const Player::Unit& a, const Player::Unit& b) {
    return std::tie(a.end, a.start, a.behind, a.rank) < std::tie(b.end, b.start, b.behind, b.rank);
  });
  std::vector<RankedAction> order;
  for (const Player::Unit& unit : units)
    for (std::size_t i = 0; i < unit.count; ++i)
      order.push_back({unit.rank, static_cast<std::int32_t>(unit.first + i)});
  return order;
}

Status check_schedule(const Schedule& schedule) {
  WEFT_TRY_OK(play(schedule, {.stages = {{0, 0, 0}}}));
  return Ok{};
}

Ticks Playback::bubble() const {
  Ticks most = 0;
  for (const RankPlay& rank : ranks) most = std::max(most, rank.end - rank.start - rank.busy);
  return most;
}

double Playback::bubble_share() const {
  if (makespan == 0) return 0;
  double busy = 0;
  for (const RankPlay& rank : ranks) busy += static_cast<double>(rank.busy) / static_cast<double>(makespan);
  return 1 - busy / static_cast<double>(ranks.size());
}

}  // namespace weft
