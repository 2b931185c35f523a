#include "mixed/stage_pipeline.h"

#include <algorithm>

namespace weft {
namespace {

// A way to place the last layers: its objective so far, and how it came about.
struct PlacedEnd {
  double cycle = 0, way = 0;  // C and S
  std::int32_t behind = -1;   // the stages behind the front one
  std::int32_t next = -1;     // of the same state
  std::int32_t kind = 0, count = 0;
};

double cycle_with(double cycle, double way, double stage, std::int64_t from_end, std::int64_t micro_batches) {
  cycle = std::max(cycle, stage);
  if (from_end <= micro_batches) cycle = std::max(cycle, way / static_cast<double>(from_end));
  return cycle;
}

class EndsFirst {
 public:
  EndsFirst(const StagePipelineProblem& problem, double below) : problem_(problem), best_(below) {
    std::size_t size = 1;
    for (std::int64_t most : problem.most) {
      stride_.push_back(size);
      size *= static_cast<std::size_t>(most) + 1;
    }
    heads_.assign(size * static_cast<std::size_t>(problem.layers) * problem.most.size(), -1);
    least_ = problem.least_per_layer;
    least_.resize(problem.most.size(), 0);
  }

  std::optional<StagePipeline> run() {
    std::vector<std::int64_t> used(problem_.most.size(), 0);
    extend(0, used, 0, -1);  // the last stage
    for (std::size_t state = 1; next(used); ++state)
      for (std::int64_t placed = 1; placed < problem_.layers; ++placed)
        for (std::size_t kind = 0; kind < used.size(); ++kind)
          for (std::int32_t at = heads_[index(state, placed, kind)]; at >= 0;
               at = ends_[static_cast<std::size_t>(at)].next)
            extend(state, used, placed, at);
    if (winner_ < 0) return std::nullopt;
    const PlacedEnd& whole = ends_[static_cast<std::size_t>(winner_)];
    StagePipeline found{.stages = {}, .seconds = best_, .cycle = whole.cycle, .way = whole.way};
    std::int64_t first = 0;
    for (std::int32_t at = winner_; at >= 0; at = ends_[static_cast<std::size_t>(at)].behind) {
      const PlacedEnd& end = ends_[static_cast<std::size_t>(at)];
      found.stages.push_back({static_cast<std::size_t>(end.kind), first, end.count});
      first += end.count;
    }
    return found;
  }

 private:
  // The next numbers of used groups, in the order of `state`.
  bool next(std::vector<std::int64_t>& used) const {
    for (std::size_t kind = 0; kind < used.size(); ++kind) {
      if (used[kind]++ < problem_.most[kind]) return true;
      used[kind] = 0;
    }
    return false;
  }

  std::size_t index(std::size_t state, std::int64_t placed, std::size_t kind) const {
    return (state * static_cast<std::size_t>(problem_.layers) + static_cast<std::size_t>(placed)) * stride_.size() +
           kind;
  }

  double total(double cycle, double way) const { return static_cast<double>(problem_.micro_batches - 1) * cycle + way; }

  // No less than the objective of any way to place the layers that are left on the groups that are left.
  double bound(double cycle, double way, std::int64_t left, const std::vector<std::int64_t>& used,
               std::size_t taken) const {
    double rate = 0, least = kNoPipeline;
    for (std::size_t kind = 0; kind < used.size(); ++kind) {
      const std::int64_t groups = problem_.most[kind] - used[kind] - (kind == taken ? 1 : 0);
      if (groups == 0) continue;
      if (least_[kind] <= 0) return total(cycle, way);
      rate += static_cast<double>(groups) / least_[kind];
      least = std::min(least, least_[kind]);
    }
    if (rate == 0) return kNoPipeline;
    const auto layers = static_cast<double>(left);
    return total(std::max(cycle, layers / rate), way + layers * least);
  }

  // Every stage in front of what is placed. (`from` is copied: `ends_` grows.)
  void extend(std::size_t state, const std::vector<std::int64_t>& used, std::int64_t placed, std::int32_t behind) {
    const PlacedEnd from = behind < 0 ? PlacedEnd{} : ends_[static_cast<std::size_t>(behind)];
    std::int64_t from_end = 1;
    for (std::int64_t count : used) from_end += count;
    const std::int64_t left = problem_.layers - placed;
    if (behind >= 0 && bound(from.cycle, from.way, left, used, used.size()) >= best_) return;
    for (std::size_t kind = 0; kind < used.size(); ++kind) {
      if (used[kind] == problem_.most[kind]) continue;
      const double sent = behind < 0 ? 0 : 2 * problem_.transfer(kind, static_cast<std::size_t>(from.kind));
      for (std::int64_t count = 1; count <= left; ++count) {
        if (total(std::max(from.cycle, static_cast<double>(count) * least_[kind]), from.way) >= best_) break;
        const double takes = problem_.stage(kind, left - count, count, from_end);
        if (takes == kNoPipeline) continue;
        const double way = from.way + sent + takes;
        const double cycle = cycle_with(from.cycle, way, takes, from_end, problem_.micro_batches);
        if (count == left) {
          if (total(cycle, way) >= best_) continue;
          best_ = total(cycle, way);
          winner_ = static_cast<std::int32_t>(ends_.size());
          ends_.push_back({cycle, way, behind, -1, static_cast<std::int32_t>(kind), static_cast<std::int32_t>(count)});
        } else if (bound(cycle, way, left - count, used, kind) < best_) {
          keep(index(state + stride_[kind], placed + count, kind),
               {cycle, way, behind, -1, static_cast<std::int32_t>(kind), static_cast<std::int32_t>(count)});
        }
      }
    }
  }

  // Of the ways into a state those that no other is as good as in both.
  void keep(std::size_t state, PlacedEnd made) {
    for (std::int32_t at = heads_[state]; at >= 0; at = ends_[static_cast<std::size_t>(at)].next) {
      const PlacedEnd& known = ends_[static_cast<std::size_t>(at)];
      if (known.cycle <= made.cycle && known.way <= made.way) return;
    }
    std::int32_t* link = &heads_[state];
    while (*link >= 0) {
      PlacedEnd& known = ends_[static_cast<std::size_t>(*link)];
      if (made.cycle <= known.cycle && made.way <= known.way)
        *link = known.next;
      else
        link = &known.next;
    }
    made.next = heads_[state];
    heads_[state] = static_cast<std::int32_t>(ends_.size());
    ends_.push_back(made);
  }

  const StagePipelineProblem& problem_;
  std::vector<std::size_t> stride_;  // of each kind in the number of a state
  std::vector<std::int32_t> heads_;  // by state, layers placed and kind of the front stage
  std::vector<PlacedEnd> ends_;
  std::vector<double> least_;
  double best_;
  std::int32_t winner_ = -1;
};

}  // namespace

double pipeline_seconds(const StagePipelineProblem& problem, const std::vector<StagePipeline::Stage>& stages) {
  double cycle = 0, way = 0;
  for (std::size_t i = stages.size(); i-- > 0;) {
    const auto& [kind, first, count] = stages[i];
    const auto from_end = static_cast<std::int64_t>(stages.size() - i);
    const double takes = problem.stage(kind, first, count, from_end);
    way += takes + (i + 1 < stages.size() ? 2 * problem.transfer(kind, stages[i + 1].kind) : 0);
    cycle = cycle_with(cycle, way, takes, from_end, problem.micro_batches);
  }
  return static_cast<double>(problem.micro_batches - 1) * cycle + way;
}

std::optional<StagePipeline> best_pipeline(const StagePipelineProblem& problem, double below) {
  if (problem.layers < 1 || problem.most.empty()) return std::nullopt;
  return EndsFirst(problem, below).run();
}

}  // namespace weft
