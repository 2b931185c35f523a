#include "synthesis/synthesis.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "base/check.h"
#include "soap/soap.h"
#include "synthesis/astar.h"
#include "synthesis/ratios.h"

namespace weft {
namespace {

constexpr int kTurns = 4;  // of program and shares, at most

class Synthesiser {
 public:
  Synthesiser(const TrainingGraph& training, const Cluster& cluster, const CostModel& cost,
              const SynthesisRequest& request)
      : training_(training),
        cluster_(cluster),
        cost_(cost),
        request_(request),
        clock_(request.budget),
        rules_(request.rules) {}

  SynthesisOutcome run() {
    for (const std::array<int, kSoapAxes>& grid : grids()) {
      std::vector<MeshAxis> axes = {{"dp", grid[0]}};
      if (grid[1] > 1) axes.push_back({"tp", grid[1]});
      Result<Mesh> mesh = Mesh::make(axes, request_.devices);
      WEFT_CHECK(mesh.ok());
      const SharedMesh even{std::move(mesh).value(), std::vector<SharedMesh::Ratios>(axes.size())};
      for (double exposed : exposures())
        for (bool shards : storages()) {
          rules_.exposed = exposed;
          rules_.shards_stored = shards;
          from_all_starts(even);
        }
    }
    std::stable_sort(outcome_.programs.begin(), outcome_.programs.end(),
                     [](const Synthesised& a, const Synthesised& b) {
                       return std::tuple(!a.program.fits, -a.exposed, a.program.sum.total) <
                              std::tuple(!b.program.fits, -b.exposed, b.program.sum.total);
                     });
    return std::move(outcome_);
  }

 private:
  // Stage sums that overlap nothing, as HAP's, and those of a step that hides most or all reductions of gradients beside
  // backward: the judge says which is nearer.
  std::vector<double> exposures() const {
    if (!request_.overlaps_gradients) return {1};
    return {1, 0.25, 0};
  }

  // With weights, gradients and optimizer state sharded wherever that makes stages shorter, and, as HAP has it, stored as
  // operators use them: a gather that is short in a sum of stages may be what the judge finds exposed.
  std::vector<bool> storages() const {
    if (!request_.rules.shards_stored) return {false};
    return {true, false};
  }

  void from_all_starts(const SharedMesh& even) {
    if (!go_on() || !alternate("equal shares", even)) return;
    const Synthesised first = *last_;
    // Starts of unequal shares, where there are devices of several kinds along an axis.
    if (first.busy.size() < 2) return;
    std::vector<double> speed, memory;
    for (std::size_t c = 0; c < first.busy.size(); ++c) {
      speed.push_back(first.busy[c] > 0 ? 1 / static_cast<double>(first.busy[c]) : 0);
      memory.push_back(static_cast<double>(first.capacity[c]));
    }
    const std::vector<DeviceClass> classes = device_classes(even, cluster_);
    if (go_on()) alternate("by speed", in_proportion(even, classes, speed));
    if (go_on()) alternate("by memory", in_proportion(even, classes, memory));
  }

  bool go_on() {
    outcome_.stopped_by = clock_.after(0);
    return outcome_.stopped_by == StoppedBy::Itself || outcome_.programs.empty();
  }

  // All along one axis, and nodes × devices of a node.
  std::vector<std::array<int, kSoapAxes>> grids() const {
    auto all = grids_of(static_cast<int>(request_.devices.size()), devices_per_node(cluster_, request_.devices));
    if (all.size() > 2) all.resize(2);
    std::erase_if(all, [&](const auto& grid) { return grid[1] > 1 && request_.most_axes < 2; });
    return all;
  }

  // Shares of every axis by what the slowest device of each coordinate does.
  SharedMesh in_proportion(SharedMesh mesh, const std::vector<DeviceClass>& classes,
                           const std::vector<double>& worth) const {
    constexpr double kUnits = 1 << 20;
    const double most = *std::max_element(worth.begin(), worth.end());
    for (std::size_t m = 0; m < mesh.ratio.size(); ++m) {
      std::vector<double> least(static_cast<std::size_t>(mesh.mesh.axes()[m].size), most);
      for (std::size_t c = 0; c < classes.size(); ++c)
        for (int position : classes[c].positions) {
          double& of = least[static_cast<std::size_t>(mesh.mesh.coordinate(position, static_cast<int>(m)))];
          of = std::min(of, worth[c]);
        }
      if (most <= 0 || *std::min_element(least.begin(), least.end()) == *std::max_element(least.begin(), least.end()))
        continue;
      Shares shares;
      for (double each : least)
        shares.push_back(std::max<std::int64_t>(1, static_cast<std::int64_t>(each / most * kUnits + 0.5)));
      mesh.ratio[m] = {shares, shares, {}};
    }
    return mesh;
  }

  // Program and shares in turn, until neither gains; adds the best pair.
  bool alternate(const std::string& start, SharedMesh mesh) {
    const double begun = clock_.seconds();
    std::optional<Synthesised> best;
    for (int turn = 0; turn < kTurns; ++turn) {
      const ProgramSpace space = make_program_space(training_, mesh, cluster_, cost_, rules_);
      ++outcome_.counts.considered;
      if (std::any_of(space.choices.forms.begin(), space.choices.forms.end(), [](std::uint32_t n) { return n == 0; })) {
        ++outcome_.counts.pruned["does not divide"];
        break;
      }
      const std::vector<std::int64_t> capacity = capacity_of_classes(space);
      SolvedProgram solved = solve(space.choices, {.capacity = capacity});
      outcome_.counts.composed += solved.eliminations;
      if (solved.option.empty()) {
        ++outcome_.counts.pruned["does not divide"];
        break;
      }
      if (request_.astar) prove(space.choices, capacity, solved);
      const std::optional<ImprovedShares> improved =
          improve_shares(training_, cluster_, cost_, rules_, space, solved, capacity);
      Synthesised now{.tree = to_tree(space, solved.option, training_),
                      .name = name_of(space.mesh.mesh, start),
                      .mesh = space.mesh,
                      .program = solved,
                      .busy = {},
                      .capacity = capacity};
      now.busy.assign(space.classes.size(), 0);
      for (const ProgramChoices::Computation& stage : stages_of(space.choices, solved.option))
        for (std::size_t c = 0; c < stage.size(); ++c) now.busy[c] += stage[c];
      const bool gained = !best || score(now.program, capacity) < score(best->program, best->capacity);
      if (gained) {
        best = now;
        // Of this program and of shares near these, whether or not others gain.
        best->ratio_bound = improved ? improved->bound : 0;
      }
      if (!improved || !improved->better) break;
      if (!gained && turn > 0) break;
      mesh = improved->better->mesh;
    }
    if (!best) return false;
    best->exposed = rules_.exposed;
    if (rules_.exposed < 1) best->name += fmt::format(" hiding {:.0f} % of gradients", 100 * (1 - rules_.exposed));
    if (rules_.shards_stored != request_.rules.shards_stored) best->name += ", weights stored as used";
    best->seconds = clock_.seconds() - begun;
    const bool known = std::any_of(outcome_.programs.begin(), outcome_.programs.end(),
                                   [&](const Synthesised& other) { return other.tree == best->tree; });
    last_ = *best;
    if (!known) outcome_.programs.push_back(std::move(*best));
    return true;
  }
  void prove(const ProgramChoices& choices, const std::vector<std::int64_t>& capacity, SolvedProgram& solved) {
    constexpr std::int64_t kStates = 100'000;  // seconds, and at most a few hundred MB
    AStarOptions options;
    options.budget.evaluations = request_.budget.evaluations > 0 ? request_.budget.evaluations : kStates;
    options.budget.cancelled = request_.budget.cancelled;
    if (request_.budget.seconds > 0)
      options.budget.seconds = std::max(1e-3, request_.budget.seconds - clock_.seconds());
    AStarOutcome found = search_astar(choices, solved.prices, solved.option, options);
    outcome_.counts.composed += found.expanded;
    if (found.stopped_by != StoppedBy::Itself) outcome_.stopped_by = found.stopped_by;
    // Where memory has a price, the bound of the search is one on the sum and that price.
    if (solved.prices.memory.empty()) solved.lower_bound = std::max(solved.lower_bound, found.lower_bound);
    if (bytes_over(found.sum, capacity) > 0 || found.sum.total >= solved.sum.total) return;
    solved.option = std::move(found.option);
    solved.sum = std::move(found.sum);
  }

  static std::pair<std::int64_t, Picoseconds> score(const SolvedProgram& program,
                                                    const std::vector<std::int64_t>& capacity) {
    return {bytes_over(program.sum, capacity), program.sum.total};
  }
  static std::string name_of(const Mesh& mesh, const std::string& start) {
    std::vector<int> sizes;
    for (const MeshAxis& axis : mesh.axes()) sizes.push_back(axis.size);
    return fmt::format("{} from {}", fmt::join(sizes, " x "), start);
  }

  std::vector<std::int64_t> capacity_of_classes(const ProgramSpace& space) const {
    std::vector<std::int64_t> capacity;
    for (const DeviceClass& of : space.classes) {
      std::int64_t least = 0;
      for (int position : of.positions)
        if (const std::int64_t bytes =
                request_.memory_budget.empty() ? 0 : request_.memory_budget[static_cast<std::size_t>(position)];
            bytes > 0)
          least = least == 0 ? bytes : std::min(least, bytes);
      capacity.push_back(least);
    }
    return capacity;
  }

  const TrainingGraph& training_;
  const Cluster& cluster_;
  const CostModel& cost_;
  const SynthesisRequest& request_;
  const SearchClock clock_;
  ProgramRules rules_;
  std::optional<Synthesised> last_;
  SynthesisOutcome outcome_;
};

}  // namespace

SynthesisOutcome synthesise(const TrainingGraph& training, const Cluster& cluster, const CostModel& cost,
                            const SynthesisRequest& request) {
  return Synthesiser(training, cluster, cost, request).run();
}

}  // namespace weft
