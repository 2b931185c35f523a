#include "synthesis/ratios.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "synthesis/linear_program.h"

namespace weft {

double RatioProblem::cost(const std::vector<double>& at) const {
  double total = constant;
  for (const std::vector<Linear>& stage : stages) {
    double slowest = 0;
    for (const Linear& of_class : stage) slowest = std::max(slowest, of_class.at(at));
    total += slowest;
  }
  std::vector<double> largest(padded.size(), 0);
  for (std::size_t s = 0; s < shares.size(); ++s)
    largest[shares[s].segment] = std::max(largest[shares[s].segment], at[s]);
  for (std::size_t g = 0; g < padded.size(); ++g) total += padded[g] * largest[g];
  return total;
}

bool RatioProblem::fits(const std::vector<double>& at) const {
  return std::all_of(memory.begin(), memory.end(),
                     [&](const Limit& limit) { return limit.held.at(at) <= limit.capacity * (1 + 1e-9); });
}

Result<std::vector<double>> best_ratios(const RatioProblem& problem) {
  LinearProgram program;
  for (const RatioProblem::Share& share : problem.shares) program.add_variable(0, share.least, share.most);
  std::vector<std::size_t> largest;
  for (double slope : problem.padded) largest.push_back(program.add_variable(slope));
  for (std::size_t g = 0; g < problem.padded.size(); ++g) {
    LinearProgram::Terms sum;
    for (std::size_t s = 0; s < problem.shares.size(); ++s) {
      if (problem.shares[s].segment != g) continue;
      sum.emplace_back(s, problem.shares[s].count);
      program.add_row({{largest[g], 1}, {s, -1}}, 0, kUnbounded);
    }
    program.add_row(std::move(sum), 1, 1);
  }
  // slowest − Σ slope·share ≥ constant
  const auto above = [&](std::size_t variable, const RatioProblem::Linear& linear) {
    LinearProgram::Terms terms = {{variable, 1}};
    for (const auto& [share, slope] : linear.slopes) terms.emplace_back(share, -slope);
    program.add_row(std::move(terms), linear.constant, kUnbounded);
  };
  for (const std::vector<RatioProblem::Linear>& stage : problem.stages) {
    const std::size_t slowest = program.add_variable(1);
    for (const RatioProblem::Linear& of_class : stage) above(slowest, of_class);
  }
  for (const RatioProblem::Limit& limit : problem.memory) {
    // In parts of the capacity: bytes beside seconds are badly scaled.
    LinearProgram::Terms terms;
    for (const auto& [share, slope] : limit.held.slopes) terms.emplace_back(share, slope / limit.capacity);
    if (!terms.empty()) program.add_row(std::move(terms), -kUnbounded, 1 - limit.held.constant / limit.capacity);
  }
  WEFT_TRY(std::vector<double> values, program.solve());
  values.resize(problem.shares.size());
  return values;
}

namespace {

// What is computed, samples and everything else alike: layouts of the two meet, and stay equal. What is stored.
enum Segment : std::size_t { kComputed, kStored, kSegments };

class Improver {
 public:
  Improver(const TrainingGraph& training, const Cluster& cluster, const CostModel& cost, const ProgramRules& rules,
           const ProgramSpace& space, const SolvedProgram& program, const std::vector<std::int64_t>& capacity)
      : training_(training), cluster_(cluster), cost_(cost), rules_(rules), capacity_(capacity), start_(space.mesh) {
    for (VariableId v : space.ops.ids())
      fixed_.push_back(space.ops[v].empty() ? Distribution{} : space.meaning[v][program.option[v.index()]]);
  }

  std::optional<ImprovedShares> run(const SolvedProgram& before) {
    std::optional<Played> now = play(start_);
    if (!now) return std::nullopt;
    std::optional<ImprovedShares> result;
    auto score = std::pair(bytes_over(before.sum, capacity_), before.sum.total);
    for (int round = 0; round < 3; ++round) {
      const std::optional<Linearised> linear = linearise(*now);
      if (!linear || linear->problem.shares.empty()) break;
      const Result<std::vector<double>> wanted = best_ratios(linear->problem);
      if (!wanted.ok()) break;
      if (!result) result.emplace();
      result->bound = linear->problem.cost(*wanted);
      bool gained = false;
      for (double step : {1.0, 0.75, 0.5, 0.25}) {
        std::vector<double> shares;
        for (std::size_t s = 0; s < wanted->size(); ++s)
          shares.push_back(linear->now[s] + step * ((*wanted)[s] - linear->now[s]));
        std::optional<Played> there = play(mesh_with(linear->groups, shares));
        if (!there) continue;
        const auto reached = std::pair(bytes_over(there->solved.sum, capacity_), there->solved.sum.total);
        if (reached >= score) continue;
        score = reached;
        result->better = ImprovedShares::Better{there->space.mesh, there->solved};
        now = std::move(there);
        gained = true;
        break;
      }
      if (!gained) break;
    }
    return result;
  }

 private:
  struct Played {
    ProgramSpace space;
    SolvedProgram solved;
    std::vector<ProgramChoices::Computation> stages;
  };
  // A share of the linear programme: the coordinates of a mesh axis that have it.
  struct Group {
    std::size_t mesh_axis, segment;
    std::vector<int> coordinates;
  };
  struct Linearised {
    RatioProblem problem;
    std::vector<Group> groups;  // by share
    std::vector<double> now;
  };

  std::optional<Played> play(const SharedMesh& mesh) const {
    Played played{make_program_space(training_, mesh, cluster_, cost_, rules_, &fixed_), {}, {}};
    for (std::uint32_t forms : played.space.choices.forms)
      if (forms == 0) return std::nullopt;  // these shares do not divide
    if (!capacity_.empty() && played.space.classes.size() != capacity_.size()) return std::nullopt;
    played.solved = solve(played.space.choices, {.capacity = capacity_, .rounds = 1});
    if (played.solved.option.empty() || played.solved.sum.total >= kNever) return std::nullopt;
    played.stages = stages_of(played.space.choices, played.solved.option);
    return played;
  }

  // Coordinates with the same devices get the same share.
  std::vector<std::vector<int>> alike(std::size_t mesh_axis) const {
    std::map<std::vector<const DeviceSpec*>, std::vector<int>> groups;
    for (int at = 0; at < start_.mesh.axes()[mesh_axis].size; ++at) {
      std::vector<const DeviceSpec*> specs;
      for (int position = 0; position < start_.mesh.size(); ++position)
        if (start_.mesh.coordinate(position, static_cast<int>(mesh_axis)) == at)
          specs.push_back(&cluster_.spec(start_.mesh.devices()[static_cast<std::size_t>(position)]));
      groups[specs].push_back(at);
    }
    std::vector<std::vector<int>> result;
    for (auto& [specs, coordinates] : groups) result.push_back(std::move(coordinates));
    std::sort(result.begin(), result.end());
    return result;
  }

  // Shares as whole numbers: of the samples there are, those of one group equal if possible; of the others in ten
  // thousandths, which every operator rounds to its own granules.
  SharedMesh mesh_with(const std::vector<Group>& groups, const std::vector<double>& shares) const {
    constexpr double kUnits = 1 << 20;
    SharedMesh mesh = start_;
    for (std::size_t s = 0; s < groups.size(); ++s) {
      SharedMesh::Ratios& ratios = mesh.ratio[groups[s].mesh_axis];
      for (Shares* into : {&ratios.samples, &ratios.others, &ratios.stored}) {
        if ((into == &ratios.stored) != (groups[s].segment == kStored)) continue;
        const auto size = static_cast<std::size_t>(mesh.mesh.axes()[groups[s].mesh_axis].size);
        if (into->size() != size) into->assign(size, 1);
        for (int at : groups[s].coordinates)
          (*into)[static_cast<std::size_t>(at)] = std::max<std::int64_t>(1, std::llround(shares[s] * kUnits));
      }
    }
    return mesh;
  }

  std::optional<Linearised> linearise(const Played& played) const {
    Linearised result;
    const SharedMesh& mesh = played.space.mesh;
    for (std::size_t m = 0; m < mesh.ratio.size(); ++m) {
      const std::vector<std::vector<int>> coordinates = alike(m);
      if (coordinates.size() < 2) continue;
      for (std::size_t segment = 0; segment < kSegments; ++segment) {
        const Shares& present = segment == kStored ? mesh.ratio[m].stored : mesh.ratio[m].samples;
        std::vector<Group> groups;
        std::vector<double> now, other;
        double sum = 0;
        for (const std::vector<int>& of : coordinates) {
          double share = 0;
          for (int at : of) share += present.empty() ? 1 : static_cast<double>(present[static_cast<std::size_t>(at)]);
          sum += share;
          now.push_back(share / static_cast<double>(of.size()));
          groups.push_back({m, segment, of});
        }
        double scale = 0;
        for (std::size_t k = 0; k < now.size(); ++k) {
          now[k] /= sum;
          other.push_back(now[k] * (k % 2 == 0 ? 1.2 : 0.85));
          scale += other[k] * static_cast<double>(coordinates[k].size());
        }
        for (double& each : other) each /= scale;
        const std::optional<Played> moved = play(mesh_with(groups, other));
        if (!moved || moved->stages.size() != played.stages.size()) continue;
        add_segment(played, *moved, groups, now, other, result);
      }
    }
    // What does not depend on these shares.
    for (std::size_t s = 0; s < played.stages.size() && !result.problem.stages.empty(); ++s)
      for (std::size_t c = 0; c < played.space.classes.size(); ++c) {
        RatioProblem::Linear& linear = result.problem.stages[s][c];
        linear.constant = 1e-12 * static_cast<double>(played.stages[s][c]);
        for (const auto& [share, slope] : linear.slopes) linear.constant -= slope * result.now[share];
      }
    result.problem.constant = 1e-12 * static_cast<double>(played.solved.sum.communication);
    std::vector<double> largest(result.problem.padded.size(), 0);
    for (std::size_t s = 0; s < result.now.size(); ++s) {
      double& of = largest[result.problem.shares[s].segment];
      of = std::max(of, result.now[s]);
    }
    for (std::size_t g = 0; g < largest.size(); ++g) result.problem.constant -= result.problem.padded[g] * largest[g];
    for (std::size_t c = 0; c < result.problem.memory.size(); ++c) {
      RatioProblem::Linear& held = result.problem.memory[c].held;
      held.constant = static_cast<double>(played.solved.sum.memory[c]);
      for (const auto& [share, slope] : held.slopes) held.constant -= slope * result.now[share];
    }
    std::erase_if(result.problem.memory, [](const RatioProblem::Limit& limit) { return limit.capacity <= 0; });
    return result;
  }

  // Slopes from two plays; a segment that nothing depends on is left out.
  void add_segment(const Played& from, const Played& to, const std::vector<Group>& groups,
                   const std::vector<double>& now, const std::vector<double>& other, Linearised& result) const {
    const std::vector<DeviceClass>& classes = from.space.classes;
    const Mesh& mesh = from.space.mesh.mesh;
    std::vector<std::size_t> group_of, there;  // by class: its group, and its class in the other play
    for (const DeviceClass& of : classes) {
      const int position = of.positions.front(), at = mesh.coordinate(position, static_cast<int>(groups[0].mesh_axis));
      std::size_t group = 0;
      while (std::find(groups[group].coordinates.begin(), groups[group].coordinates.end(), at) ==
             groups[group].coordinates.end())
        ++group;
      group_of.push_back(group);
      std::size_t same = 0;
      while (std::find(to.space.classes[same].positions.begin(), to.space.classes[same].positions.end(), position) ==
             to.space.classes[same].positions.end())
        ++same;
      there.push_back(same);
    }
    const auto slope = [&](double before, double after, std::size_t c) {
      return std::max(0.0, (after - before) / (other[group_of[c]] - now[group_of[c]]));
    };
    bool matters = from.solved.sum.communication != to.solved.sum.communication;
    std::vector<std::vector<double>> stages, memory(1);
    for (std::size_t s = 0; s < from.stages.size(); ++s) {
      stages.emplace_back();
      for (std::size_t c = 0; c < classes.size(); ++c) {
        stages.back().push_back(slope(1e-12 * static_cast<double>(from.stages[s][c]),
                                      1e-12 * static_cast<double>(to.stages[s][there[c]]), c));
        matters = matters || stages.back().back() > 0;
      }
    }
    for (std::size_t c = 0; c < classes.size(); ++c)
      memory[0].push_back(slope(static_cast<double>(from.solved.sum.memory[c]),
                                static_cast<double>(to.solved.sum.memory[there[c]]), c));
    if (!matters) return;
    const std::size_t first = result.problem.shares.size();
    for (std::size_t k = 0; k < groups.size(); ++k) {
      result.problem.shares.push_back({result.problem.padded.size(), static_cast<double>(groups[k].coordinates.size()),
                                       now[k] / 4, std::min(1.0, now[k] * 4)});
      result.groups.push_back(groups[k]);
      result.now.push_back(now[k]);
    }
    const double larger = *std::max_element(other.begin(), other.end()) - *std::max_element(now.begin(), now.end());
    const double more = 1e-12 * static_cast<double>(to.solved.sum.communication - from.solved.sum.communication);
    result.problem.padded.push_back(std::abs(larger) < 1e-9 ? 0 : std::max(0.0, more / larger));
    result.problem.stages.resize(from.stages.size(), std::vector<RatioProblem::Linear>(classes.size()));
    result.problem.memory.resize(classes.size());
    for (std::size_t c = 0; c < classes.size(); ++c) {
      for (std::size_t s = 0; s < from.stages.size(); ++s)
        result.problem.stages[s][c].slopes.emplace_back(first + group_of[c], stages[s][c]);
      result.problem.memory[c].held.slopes.emplace_back(first + group_of[c], memory[0][c]);
      result.problem.memory[c].capacity = capacity_.empty() ? 0 : static_cast<double>(capacity_[c]);
    }
  }

  const TrainingGraph& training_;
  const Cluster& cluster_;
  const CostModel& cost_;
  const ProgramRules& rules_;
  const std::vector<std::int64_t>& capacity_;
  const SharedMesh start_;
  IdVec<VariableId, Distribution> fixed_;
};

}  // namespace

std::optional<ImprovedShares> improve_shares(const TrainingGraph& training, const Cluster& cluster,
                                             const CostModel& cost, const ProgramRules& rules,
                                             const ProgramSpace& space, const SolvedProgram& program,
                                             const std::vector<std::int64_t>& capacity) {
  return Improver(training, cluster, cost, rules, space, program, capacity).run(program);
}

}  // namespace weft
