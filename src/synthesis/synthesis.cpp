#include "synthesis/synthesis.h"

#include <fmt/format.h>

#include <algorithm>

#include "soap/soap.h"

namespace weft {
namespace {

class Synthesiser {
 public:
  Synthesiser(const TrainingGraph& training, const Cluster& cluster, const CostModel& cost,
              const SynthesisRequest& request)
      : training_(training), cluster_(cluster), cost_(cost), request_(request), clock_(request.budget) {}

  SynthesisOutcome run() {
    for (const std::array<int, kSoapAxes>& grid :
         grids_of(static_cast<int>(request_.devices.size()), devices_per_node(cluster_, request_.devices))) {
      if (outcome_.programs.size() >= 2) break;
      std::vector<MeshAxis> axes = {{"dp", grid[0]}};
      if (grid[1] > 1) axes.push_back({"tp", grid[1]});
      SharedMesh mesh{Mesh::make(axes, request_.devices).value(), std::vector<SharedMesh::Ratios>(axes.size())};
      add("even", std::move(mesh));
    }
    std::stable_sort(outcome_.programs.begin(), outcome_.programs.end(), [](const Synthesised& a, const Synthesised& b) {
      return std::pair(!a.program.fits, a.program.sum.total) < std::pair(!b.program.fits, b.program.sum.total);
    });
    return std::move(outcome_);
  }

 private:
  void add(const std::string& start, SharedMesh mesh) {
    const double begun = clock_.seconds();
    const ProgramSpace space = make_program_space(training_, std::move(mesh), cluster_, cost_, request_.rules);
    SolvedProgram solved = solve(space.choices, {.capacity = capacity_of_classes(space)});
    ++outcome_.counts.considered;
    if (solved.option.empty()) {
      ++outcome_.counts.pruned["does not divide"];
      return;
    }
    outcome_.counts.composed += solved.eliminations;
    std::vector<int> sizes;
    for (const MeshAxis& axis : space.mesh.mesh.axes()) sizes.push_back(axis.size);
    outcome_.programs.push_back({to_tree(space, solved.option, training_),
                                 fmt::format("{}, {}", fmt::join(sizes, " x "), start), space.mesh, std::move(solved),
                                 clock_.seconds() - begun});
  }

  std::vector<std::int64_t> capacity_of_classes(const ProgramSpace& space) const {
    std::vector<std::int64_t> capacity;
    for (const DeviceClass& of : space.classes) {
      std::int64_t least = 0;
      for (int position : of.positions)
        if (const std::int64_t bytes = request_.memory_budget.empty() ? 0 : request_.memory_budget[static_cast<std::size_t>(position)]; bytes > 0)
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
  SynthesisOutcome outcome_;
};

}  // namespace

SynthesisOutcome synthesise(const TrainingGraph& training, const Cluster& cluster, const CostModel& cost,
                            const SynthesisRequest& request) {
  return Synthesiser(training, cluster, cost, request).run();
}

}  // namespace weft
