#include "mixed/routes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "problem/parallel.h"

namespace weft {
namespace {

constexpr std::size_t kMostParted = 4;  // kinds of which every way to part them is tried: 52 with leaving some out
constexpr int kRounds = 2;              // of pipelines for the numbers of micro-batches, and numbers for the pipelines
// A first round with other numbers of micro-batches than the last may take so much longer than what is looked for.
constexpr double kFirstRound = 1.3;

using Block = std::vector<std::size_t>;  // kinds

// Every way to part some of the kinds into two blocks or more.
void part(std::size_t kind, std::size_t kinds, std::vector<Block>& blocks, std::vector<std::vector<Block>>& made) {
  if (kind == kinds) {
    if (blocks.size() > 1) made.push_back(blocks);
    return;
  }
  part(kind + 1, kinds, blocks, made);  // left out
  for (std::size_t b = 0; b < blocks.size(); ++b) {
    blocks[b].push_back(kind);
    part(kind + 1, kinds, blocks, made);
    blocks[b].pop_back();
  }
  blocks.push_back({kind});
  part(kind + 1, kinds, blocks, made);
  blocks.pop_back();
}

std::vector<std::vector<Block>> ways_to_part(std::size_t kinds) {
  std::vector<std::vector<Block>> made;
  std::vector<Block> blocks;
  if (kinds <= kMostParted) {
    part(0, kinds, blocks, made);
  } else {
    for (std::size_t kind = 0; kind < kinds; ++kind) blocks.push_back({kind});
    made.push_back(blocks);
  }
  return made;
}

// Samples that a block's devices process in a second at most.
double speed_of(const Block& block, const MixedPipelines& pipelines, const std::vector<DeviceKind>& kinds,
                std::int64_t all) {
  double speed = 0;
  for (std::size_t kind : block) {
    const double least = pipelines.least_of(kind, all);
    if (std::isfinite(least) && least > 0) speed += static_cast<double>(kinds[kind].count()) / least;
  }
  return speed;
}

// `all` in proportion to weights, at least one each, by largest remainder.
std::vector<std::int64_t> in_proportion(const std::vector<double>& weights, std::int64_t all) {
  double sum = 0;
  for (double weight : weights) sum += weight;
  std::vector<std::int64_t> shares;
  std::int64_t left = all;
  for (double weight : weights) {
    shares.push_back(std::max<std::int64_t>(1, static_cast<std::int64_t>(static_cast<double>(all) * weight / sum)));
    left -= shares.back();
  }
  for (; left != 0; left += left < 0 ? 1 : -1) {
    std::size_t at = 0;
    double most = -std::numeric_limits<double>::infinity();
    for (std::size_t i = 0; i < shares.size(); ++i) {
      const double lacks =
          (static_cast<double>(all) * weights[i] / sum - static_cast<double>(shares[i])) * (left < 0 ? -1 : 1);
      if (lacks > most && (left > 0 || shares[i] > 1)) most = lacks, at = i;
    }
    shares[at] += left < 0 ? -1 : 1;
  }
  return shares;
}

// Seconds to sum gradients between routes: every device of a stage sends its shard, and gets those of the others.
double sums_between(const MixedRoutes& made, const PlanProblem& problem, const CostModel& cost,
                    const std::vector<DeviceKind>& kinds) {
  const NumberTypes types = number_types(problem.job->precision, problem.stack());
  const DType sent = types.sent_gradients.value_or(problem.job->precision.gradients);
  const auto layers = static_cast<double>(problem.layers.count());
  double seconds = 0;
  for (std::size_t r = 0; r < made.routes.size(); ++r) {
    const std::size_t other = r == 0 ? 1 : 0;
    const std::size_t to = made.routes[other].stages.front().kind;
    for (const MixedPipeline::Stage& stage : made.routes[r].stages) {
      const double elements = static_cast<double>(problem.parameters) * static_cast<double>(stage.layers) / layers /
                              static_cast<double>(stage.devices());
      const auto at = [&](std::size_t kind) { return DeviceId(static_cast<std::size_t>(kinds[kind].devices[0])); };
      const DeviceId from = at(stage.kind);
      if (from == at(to)) continue;
      const double way = GroupCost(problem.cluster(), cost, make_transfer(problem.cluster(), from, at(to)), {})
                             .of(cost, bytes_of(sent, static_cast<std::int64_t>(elements)))
                             .seconds;
      seconds = std::max(seconds, 2 * way);
    }
  }
  return seconds;
}

}  // namespace

std::vector<std::int64_t> share_micro_batches(std::span<const MixedPipeline> routes, std::int64_t all) {
  const auto ends = [&](std::size_t r, std::int64_t count) {
    return static_cast<double>(count - 1) * routes[r].cycle + routes[r].way;
  };
  std::vector<std::int64_t> shares(routes.size(), 1);
  for (auto left = all - static_cast<std::int64_t>(routes.size()); left > 0; --left) {
    std::size_t best = 0;
    for (std::size_t r = 1; r < routes.size(); ++r)
      if (ends(r, shares[r] + 1) < ends(best, shares[best] + 1)) best = r;
    ++shares[best];
  }
  return shares;
}

std::vector<MixedRoutes> find_routes(const MixedPipelines& pipelines, const PlanProblem& problem, const CostModel& cost,
                                     const std::vector<DeviceKind>& kinds, int threads, double below, double memory,
                                     std::size_t most) {
  struct Way {
    std::int64_t all = 1;  // micro-batches
    std::vector<Block> blocks;
    double bound = 0;
  };
  std::vector<Way> ways;
  for (std::int64_t all = 2; all <= problem.global_batch; ++all) {
    if (problem.global_batch % all != 0) continue;
    for (std::vector<Block>& blocks : ways_to_part(kinds.size())) {
      if (all < static_cast<std::int64_t>(blocks.size())) continue;
      double speed = 0, slowest = std::numeric_limits<double>::infinity();
      for (const Block& block : blocks) {
        const double own = speed_of(block, pipelines, kinds, all);
        speed += own;
        slowest = std::min(slowest, own);
      }
      // A block that has no groups for micro-batches of this size, or would not finish one of them in time.
      if (slowest <= 0 || static_cast<double>(problem.global_batch / all) / slowest >= below) continue;
      const double bound = static_cast<double>(problem.global_batch) / speed;
      if (bound < below) ways.push_back({all, std::move(blocks), bound});
    }
  }
  std::stable_sort(ways.begin(), ways.end(), [](const Way& a, const Way& b) { return a.bound < b.bound; });
  std::vector<std::optional<MixedRoutes>> solved(ways.size());
  for_each_index(ways.size(), threads, 1, [&](std::size_t i) {
    const Way& way = ways[i];
    std::vector<double> speeds;
    for (const Block& block : way.blocks) speeds.push_back(speed_of(block, pipelines, kinds, way.all));
    std::vector<std::int64_t> shares = in_proportion(speeds, way.all);
    for (int round = 0; round < kRounds; ++round) {
      MixedRoutes made;
      for (std::size_t b = 0; b < way.blocks.size(); ++b) {
        std::optional<MixedPipeline> route =
            pipelines.best_on(way.blocks[b], way.all, shares[b], round == 0 ? below * kFirstRound : below, memory);
        if (!route) return;
        made.routes.push_back(std::move(*route));
      }
      const std::vector<std::int64_t> better = share_micro_batches(made.routes, way.all);
      for (std::size_t r = 0; r < made.routes.size(); ++r) {
        MixedPipeline& route = made.routes[r];
        route.micro_batches = better[r];
        route.seconds = static_cast<double>(better[r] - 1) * route.cycle + route.way;
        made.seconds = std::max(made.seconds, route.seconds);
      }
      made.seconds += sums_between(made, problem, cost, kinds);
      if (made.seconds < below && (!solved[i] || made.seconds < solved[i]->seconds)) solved[i] = made;
      if (better == shares) break;
      shares = better;
    }
  });
  std::vector<MixedRoutes> found;
  for (std::optional<MixedRoutes>& each : solved)
    if (each) found.push_back(std::move(*each));
  std::stable_sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.seconds < b.seconds; });
  if (found.size() > most) found.resize(most);
  return found;
}

std::string print(const MixedRoutes& routes, const std::vector<DeviceKind>& kinds, const LayerPattern& layers) {
  std::vector<std::string> words;
  for (const MixedPipeline& route : routes.routes) words.push_back(print(route, kinds, layers));
  return fmt::format("{}", fmt::join(words, " | "));
}

}  // namespace weft
