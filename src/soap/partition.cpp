#include "soap/partition.h"

#include <algorithm>
#include <limits>
#include <set>

namespace weft {
namespace {

constexpr Picoseconds kTooLong = std::numeric_limits<Picoseconds>::max() / 4;  // a stage that does not fit

class Partitioner {
 public:
  explicit Partitioner(const PartitionProblem& problem)
      : problem_(problem),
        layers_(problem.layers),
        stages_(std::min(problem.most_stages, problem.layers)),
        devices_(static_cast<std::size_t>(problem.devices)),
        flights_(static_cast<std::size_t>(
            std::min<std::int64_t>(problem.micro_batches, static_cast<std::int64_t>(stages_)))) {}

  std::optional<StagePartition> run() {
    std::set<Picoseconds> slowest;
    times_.assign(layers_ * (layers_ + 1) * problem_.mesh_sizes.size() * flights_, kTooLong);
    for (std::size_t first = 0; first < layers_; ++first)
      for (std::size_t last = first + 1; last <= layers_ && !stops(); ++last)
        for (std::size_t mesh = 0; mesh < problem_.mesh_sizes.size(); ++mesh)
          for (std::size_t flight = 1; flight <= flights_; ++flight)
            if (const auto time = problem_.stage_time(first, last, mesh, static_cast<std::int64_t>(flight))) {
              this->time(first, last, mesh, flight) = *time;
              slowest.insert(*time);
            }
    std::optional<StagePartition> best;
    if (slowest.empty()) return best;
    // Without a limit on the slowest stage the sum is least. Feasible limits are those above some threshold.
    solve(*slowest.rbegin());
    if (stops()) return best;
    Picoseconds least_sum = kTooLong;
    for (std::size_t s = 1; s <= stages_; ++s) least_sum = std::min(least_sum, least(s, 0, devices_).sum);
    if (least_sum >= kTooLong) return best;
    std::vector<Picoseconds> limits(slowest.begin(), slowest.end());
    auto feasible = std::partition_point(limits.begin(), limits.end(), [&](Picoseconds limit) {
      solve(limit);
      for (std::size_t s = 1; s <= stages_; ++s)
        if (least(s, 0, devices_).sum < kTooLong) return false;
      return true;
    });
    for (; feasible != limits.end(); ++feasible) {
      const Picoseconds limit = *feasible, waiting = limit * (problem_.micro_batches - 1);
      if (best && waiting + least_sum >= best->step) break;
      solve(limit);
      if (stops()) break;
      for (std::size_t s = 1; s <= stages_; ++s) {
        const Picoseconds sum = least(s, 0, devices_).sum;
        if (sum < kTooLong && (!best || sum + waiting < best->step)) best = traced(s, sum + waiting);
      }
    }
    return best;
  }

 private:
  bool stops() const { return problem_.clock && problem_.clock->after(0) != StoppedBy::Itself; }

  struct Cell {
    Picoseconds sum = kTooLong;
    std::size_t last = 0, mesh = 0;
  };

  Picoseconds& time(std::size_t first, std::size_t last, std::size_t mesh, std::size_t flight) {
    return times_[((first * (layers_ + 1) + last) * problem_.mesh_sizes.size() + mesh) * flights_ + flight - 1];
  }
  // The least sum for layers from `first` to the end, in `stages` stages on `devices` devices.
  Cell& least(std::size_t stages, std::size_t first, std::size_t devices) {
    return cells_[(stages * (layers_ + 1) + first) * (devices_ + 1) + devices];
  }
  void solve(Picoseconds limit) {
    cells_.assign((stages_ + 1) * (layers_ + 1) * (devices_ + 1), {});
    least(0, layers_, 0).sum = 0;
    for (std::size_t s = 1; s <= stages_; ++s) {
      const std::size_t flight = std::min(s, flights_);
      for (std::size_t first = 0; first < layers_ && !stops(); ++first)
        for (std::size_t last = first + 1; last <= layers_; ++last)
          for (std::size_t mesh = 0; mesh < problem_.mesh_sizes.size(); ++mesh) {
            const Picoseconds own = time(first, last, mesh, flight);
            if (own > limit) continue;
            const auto size = static_cast<std::size_t>(problem_.mesh_sizes[mesh]);
            for (std::size_t devices = size; devices <= devices_; ++devices) {
              const Picoseconds sum = own + least(s - 1, last, devices - size).sum;
              if (Cell& cell = least(s, first, devices); sum < cell.sum) cell = {sum, last, mesh};
            }
          }
    }
  }
  StagePartition traced(std::size_t stages, Picoseconds step) {
    StagePartition partition{{}, step};
    std::size_t first = 0, devices = devices_;
    for (; stages > 0; --stages) {
      const Cell& cell = least(stages, first, devices);
      partition.stages.push_back({first, cell.last, cell.mesh});
      devices -= static_cast<std::size_t>(problem_.mesh_sizes[cell.mesh]);
      first = cell.last;
    }
    return partition;
  }

  const PartitionProblem& problem_;
  const std::size_t layers_, stages_, devices_, flights_;
  std::vector<Picoseconds> times_;
  std::vector<Cell> cells_;
};

}  // namespace

std::optional<StagePartition> best_partition(const PartitionProblem& problem) {
  if (problem.layers == 0 || problem.devices < 1 || problem.mesh_sizes.empty() || problem.micro_batches < 1 ||
      problem.most_stages == 0)
    return std::nullopt;
  return Partitioner(problem).run();
}

}  // namespace weft
