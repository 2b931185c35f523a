#include "program/schedule.h"

#include <algorithm>
#include <array>

#include "base/check.h"
#include "base/suggest.h"
#include "program/schedule_families.h"

namespace weft {
namespace {

// Larger tables are refused as typing errors: this is 16,384 micro-batches on 64 ranks with 16 chunks.
constexpr std::int64_t kMostWork = std::int64_t{1} << 24;

using Route = std::vector<Place>;

Route round_robin(std::int32_t ranks, std::int32_t chunks) {
  Route route;
  for (std::int32_t chunk = 0; chunk < chunks; ++chunk)
    for (std::int32_t rank = 0; rank < ranks; ++rank) route.push_back({rank, chunk});
  return route;
}
Route vee(std::int32_t ranks) {
  Route route = round_robin(ranks, 1);
  for (std::int32_t rank = ranks - 1; rank >= 0; --rank) route.push_back({rank, 1});
  return route;
}

using MakeRank = std::vector<Action> (*)(const ScheduleOptions& o, std::int32_t rank);

struct Family {
  std::string_view name;
  std::int32_t chunks;  // per rank; 0: as many as asked for
  std::vector<Route> (*routes)(const ScheduleOptions& o);
  MakeRank actions;
};

std::vector<Route> straight_route(const ScheduleOptions& o) { return {round_robin(o.ranks, o.chunks)}; }
std::vector<Route> vee_route(const ScheduleOptions& o) { return {vee(o.ranks)}; }
std::vector<Route> two_routes(const ScheduleOptions& o) {
  Route there = round_robin(o.ranks, 1), back;
  for (std::int32_t rank = o.ranks - 1; rank >= 0; --rank) back.push_back({rank, 1});
  return {there, back};
}

// DualPipe on one rank: chunk and micro-batches of the direction that is the nearer one from here.
std::vector<Action> dual_pipe_rank(const ScheduleOptions& o, std::int32_t rank) {
  const bool far_half = rank >= o.ranks / 2;
  const std::int32_t per_direction = o.micro_batches / 2;
  std::vector<Action> actions = dual_pipe(o.ranks / 2, per_direction, far_half ? o.ranks - 1 - rank : rank);
  for (Action& action : actions) {
    if (far_half) action.chunk = 1 - action.chunk;
    action.micro_batch += action.chunk * per_direction;
  }
  return actions;
}

const std::array<Family, 8> kFamilies = {{
    {"gpipe", 1, straight_route,
     [](const ScheduleOptions& o, std::int32_t) {
       return one_chunk(o.micro_batches, {o.micro_batches, kFused});
     }},
    {"1f1b", 1, straight_route,
     [](const ScheduleOptions& o, std::int32_t r) {
       return one_chunk(o.micro_batches, {o.ranks - 1 - r, kFused});
     }},
    {"interleaved", 0, straight_route,
     [](const ScheduleOptions& o, std::int32_t r) { return interleaved(o.ranks, o.chunks, o.micro_batches, r); }},
    {"zb-h1", 1, straight_route,
     [](const ScheduleOptions& o, std::int32_t r) {
       return one_chunk(o.micro_batches, {o.ranks - 1 - r, r});
     }},
    {"zb-h2", 1, straight_route,
     [](const ScheduleOptions& o, std::int32_t r) {
       return one_chunk(o.micro_batches, {2 * (o.ranks - 1 - r), 2 * r});
     }},
    {"zb-v", 2, vee_route, [](const ScheduleOptions& o, std::int32_t r) { return zb_v(o.ranks, o.micro_batches, r); }},
    {"dualpipe", 2, two_routes, dual_pipe_rank},
    {"dualpipe-v", 2, vee_route,
     [](const ScheduleOptions& o, std::int32_t r) { return dual_pipe(o.ranks, o.micro_batches, r); }},
}};

// "8 or 16": the multiples of `step`, at least `least`, around `value`.
std::string nearest_multiples(std::int32_t value, std::int32_t step, std::int32_t least) {
  const std::int64_t below = std::int64_t{value} / step * step, above = below + step;
  if (above <= least) return fmt::format("{}", least);
  return below >= least ? fmt::format("{} or {}", below, above) : fmt::format("{}", above);
}

Status check_needs(const ScheduleOptions& o) {
  if (o.ranks < 1) return error("{} needs at least 1 rank, not {}", o.name, o.ranks);
  if (o.micro_batches < 1) return error("{} needs at least 1 micro-batch, not {}", o.name, o.micro_batches);
  const __int128 work = static_cast<__int128>(o.ranks) * std::max(o.chunks, 1) * o.micro_batches;
  if (work > kMostWork)
    return error("{}: {} ranks × {} chunks × {} micro-batches: a table holds at most {} in all", o.name, o.ranks,
                 o.chunks, o.micro_batches, kMostWork);
  if (o.name == "interleaved") {
    if (o.chunks < 2)
      return error("interleaved needs at least 2 chunks per rank (vpp), not {}; for 1 take 1f1b", o.chunks);
    if (o.micro_batches % o.ranks != 0)
      return error("interleaved needs micro-batches divisible by ranks: {} by {}; nearest: {}", o.micro_batches,
                   o.ranks, nearest_multiples(o.micro_batches, o.ranks, o.ranks));
  }
  if (o.name == "dualpipe") {
    if (o.ranks % 2 != 0)
      return error("dualpipe needs an even number of ranks, not {}; nearest: {}", o.ranks,
                   nearest_multiples(o.ranks, 2, 2));
    if (o.micro_batches % 2 != 0 || o.micro_batches < 2 * o.ranks)
      return error("dualpipe needs an even number of micro-batches, at least 2 · {} ranks, not {}; nearest: {}",
                   o.ranks, o.micro_batches, nearest_multiples(o.micro_batches, 2, 2 * o.ranks));
  }
  if (o.name == "dualpipe-v" && o.micro_batches < 2 * o.ranks)
    return error("dualpipe-v needs at least {} micro-batches, 2 · {} ranks, not {}", 2 * o.ranks, o.ranks,
                 o.micro_batches);
  return Ok{};
}

}  // namespace

std::vector<std::string> schedule_names() {
  std::vector<std::string> names;
  for (const Family& family : kFamilies) names.emplace_back(family.name);
  return names;
}

Result<Schedule> make_schedule(const ScheduleOptions& options) {
  const auto family = std::find_if(kFamilies.begin(), kFamilies.end(),
                                   [&](const Family& candidate) { return candidate.name == options.name; });
  if (family == kFamilies.end())
    return error("schedule '{}' is not known{}", options.name, did_you_mean(options.name, schedule_names()));
  ScheduleOptions o = options;
  if (family->chunks != 0) {
    if (o.chunks != 0 && o.chunks != family->chunks)
      return error("{} has {} chunk{} per rank, not {}{}", o.name, family->chunks, family->chunks == 1 ? "" : "s",
                   o.chunks, o.chunks > 1 ? "; for more take interleaved" : "");
    o.chunks = family->chunks;
  }
  WEFT_TRY_OK(check_needs(o));

  Schedule schedule{o.name, o.ranks, o.chunks, o.micro_batches, family->routes(o), {}, {}};
  const auto routes = static_cast<std::int32_t>(schedule.routes.size());
  for (std::int32_t i = 0; i < o.micro_batches; ++i) schedule.route_of.push_back(i / (o.micro_batches / routes));
  for (std::int32_t rank = 0; rank < o.ranks; ++rank) schedule.actions.push_back(family->actions(o, rank));
  return schedule;
}

std::vector<Visits> visits_by_place(const Schedule& schedule) {
  std::vector<Visits> by_place(static_cast<std::size_t>(schedule.ranks * schedule.chunks), {-1, -1});
  for (std::size_t rank = 0; rank < schedule.actions.size(); ++rank)
    for (const Action& action : schedule.actions[rank]) {
      if (action.body != Body::Backward && action.body != Body::BackwardWeight) continue;
      Visits& visits =
          by_place[rank * static_cast<std::size_t>(schedule.chunks) + static_cast<std::size_t>(action.chunk)];
      visits.last = action.micro_batch;
      if (visits.first < 0) visits.first = visits.last;
    }
  return by_place;
}

std::vector<std::int32_t> stages_by_place(const Schedule& schedule) {
  std::vector<std::int32_t> stages(std::size_t(schedule.ranks) * schedule.chunks, -1);
  for (const Route& route : schedule.routes)
    for (std::size_t stage = 0; stage < route.size(); ++stage)
      stages[std::size_t(route[stage].rank) * schedule.chunks + route[stage].chunk] = static_cast<std::int32_t>(stage);
  return stages;
}

std::vector<std::int32_t> micro_batches_by_place(const Schedule& schedule) {
  std::vector<std::int32_t> counts(std::size_t(schedule.ranks) * schedule.chunks, 0);
  for (std::int32_t i = 0; i < schedule.micro_batches; ++i)
    for (const Place& place : schedule.routes[schedule.route_of[i]])
      ++counts[std::size_t(place.rank) * schedule.chunks + place.chunk];
  return counts;
}

Schedule side_by_side(std::span<const Schedule> pipelines) {
  Schedule all = pipelines.front();
  for (const Schedule& next : pipelines.subspan(1)) {
    WEFT_CHECK(next.chunks == all.chunks, "pipelines of {} and {} chunks per rank", all.chunks, next.chunks);
    const auto routes = static_cast<std::int32_t>(all.routes.size());
    for (Route route : next.routes) {
      for (Place& place : route) place.rank += all.ranks;
      all.routes.push_back(std::move(route));
    }
    for (std::int32_t route : next.route_of) all.route_of.push_back(routes + route);
    for (std::vector<Action> actions : next.actions) {
      for (Action& action : actions) action.micro_batch += all.micro_batches;
      all.actions.push_back(std::move(actions));
    }
    all.ranks += next.ranks;
    all.micro_batches += next.micro_batches;
  }
  return all;
}

}  // namespace weft
