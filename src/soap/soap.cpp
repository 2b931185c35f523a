#include "soap/soap.h"

#include <fmt/format.h>

#include <algorithm>

#include "soap/groups.h"
#include "soap/mcmc.h"
#include "soap/proposals.h"
#include "soap/tied.h"

namespace weft {
namespace {

constexpr double kPlanningShare = 0.25;  // of the time that is left, for exact and for symbolic plans before a walk
constexpr double kClose = 1.1;           // candidates within this factor of the best are returned besides it
constexpr std::size_t kExactGrids = 3;   // for exact plans, whose pricing takes time

class SoapSearcher {
 public:
  SoapSearcher(const TrainingGraph& training, const Cluster& cluster, const CostModel& cost, const SoftwareStack& stack,
               const SoapRequest& request)
      : problem_{training, cluster, cost, stack, request.headroom, request.types},
        request_(request),
        devices_(request.devices) {
    if (devices_.empty())
      for (std::int64_t i = 0; i < cluster.device_count(); ++i) devices_.emplace_back(static_cast<std::size_t>(i));
    per_node_ = devices_per_node(cluster, devices_);
  }

  Result<SoapOutcome> run() {
    for (DeviceId device : devices_)
      if (static_cast<std::int64_t>(device.index()) >= problem_.cluster.device_count())
        return error("device {}: the cluster has 0 to {}", device.index(), problem_.cluster.device_count() - 1);
    const int count = static_cast<int>(devices_.size());
    outcome_.bound = lower_bound(problem_, devices_);
    SoapMeshes meshes(grids_of(count, per_node_).front(), devices_);
    consider(data_parallel_strategy(problem_.training, meshes));
    consider(expert_strategy(problem_.training, problem_.cluster, meshes));
    if (request_.search != SoapSearch::Exact && !stops()) plan_by(SoapSearch::Symbolic);
    if (request_.search != SoapSearch::Symbolic && !stops()) plan_by(SoapSearch::Exact);
    if (request_.search == SoapSearch::Mcmc && !stops()) WEFT_TRY_OK(walk());
    return finish();
  }

 private:
  bool stops() {
    if (const StoppedBy reason = clock_.after(0); reason != StoppedBy::Itself) outcome_.stopped_by = reason;
    return outcome_.stopped_by == StoppedBy::Time || outcome_.stopped_by == StoppedBy::Cancelled;
  }

  static std::string print(const Mesh& mesh) { return fmt::format("{}x{}", mesh.axes()[0].size, mesh.axes()[1].size); }

  // Judges a strategy and keeps it if it is the best so far.
  SoapCandidate& consider(const SoapStrategy& given, double seconds = 0) {
    SoapStrategy strategy = as_written(given);
    SoapCandidate candidate{strategy.name, print(strategy.meshes[MeshId(0)]), {}, {}, 0, 0, seconds};
    ++outcome_.counts.considered;
    ++outcome_.counts.simulated;
    Result<SoapJudgement> judged = judge(problem_, strategy);
    if (judged.ok()) {
      candidate.judged = *judged;
      const auto rank = [](const SoapJudgement& each) { return std::pair(each.over_budget.value, each.fair); };
      if (!best_ || rank(*judged) < rank(outcome_.judged)) {
        best_ = strategy;
        outcome_.judged = *judged;
      }
    } else {
      candidate.error = judged.error().message;
    }
    strategies_.push_back(std::move(strategy));
    return outcome_.candidates.emplace_back(std::move(candidate));
  }

  // The memory budget of the smallest device.
  Bytes memory_limit() const {
    Bytes least;
    for (DeviceId device : devices_) {
      const Bytes capacity = capacity_of(problem_.cluster.spec(device));
      if (least.value == 0 || (capacity.value > 0 && capacity < least)) least = capacity;
    }
    return memory_budget(least, problem_.headroom);
  }

  void plan_by(SoapSearch search) {
    struct Planned {
      std::size_t grid;
      SoapStrategy strategy;
      Assignment chosen;
    };
    // Where a walk follows, it gets most of the time.
    SearchBudget budget = left();
    if (request_.search == SoapSearch::Mcmc) budget.seconds *= kPlanningShare;
    const SearchClock clock(budget);
    std::vector<Planned> plans;
    const auto grids = grids_of(static_cast<int>(devices_.size()), per_node_);
    for (std::size_t g = 0; g < grids.size(); ++g) {
      if (search == SoapSearch::Exact && g == kExactGrids) break;
      if (g > 0 && clock.after(0) != StoppedBy::Itself) break;
      const SoapMeshes meshes(grids[g], devices_);
      const Mesh& mesh = meshes.meshes()[MeshId(0)];
      TimePrices times(problem_.cluster, problem_.cost, mesh);
      VolumePrices volumes;
      LayoutPrices& prices = search == SoapSearch::Exact ? static_cast<LayoutPrices&>(times) : volumes;
      const LayoutProblem layouts =
          make_layout_problem(problem_.training, mesh, prices, {.memory_limit = memory_limit(), .clock = &clock});
      if (layouts.stopped) break;
      Assignment chosen = choose_best(layouts.choices, {.clock = &clock});
      if (chosen.stopped) break;
      outcome_.counts.composed += chosen.eliminations;
      if (chosen.option.empty()) {
        ++outcome_.counts.pruned["memory"];
        continue;
      }
      SoapStrategy strategy = strategy_of(layouts, chosen.option, problem_.training, meshes);
      strategy.name = name_of(search);
      plans.push_back({g, std::move(strategy), std::move(chosen)});
    }
    // Of symbolic plans only the one with the least volume is judged; of exact plans all are.
    std::stable_sort(plans.begin(), plans.end(),
                     [](const Planned& a, const Planned& b) { return a.chosen.cost < b.chosen.cost; });
    if (search == SoapSearch::Symbolic && plans.size() > 1) plans.resize(1);
    const double seconds = clock.seconds();
    for (Planned& plan : plans) {
      if (stops()) return;
      SoapCandidate& candidate = consider(plan.strategy, seconds);
      candidate.objective = plan.chosen.cost;
      candidate.objective_bound = plan.chosen.lower_bound;
    }
  }

  Status walk() {
    // Chains share one grid: that of the best exact or symbolic plan.
    std::size_t best_plan = 0;
    for (std::size_t i = 0; i < strategies_.size(); ++i) {
      const auto& judged = outcome_.candidates[i].judged;
      const std::string& name = outcome_.candidates[i].name;
      if (!judged || judged->over_budget.value > 0 || (name != "exact" && name != "symbolic")) continue;
      const auto& than = outcome_.candidates[best_plan].judged;
      const bool first =
          outcome_.candidates[best_plan].name != "exact" && outcome_.candidates[best_plan].name != "symbolic";
      if (first || !than || judged->fair < than->fair) best_plan = i;
    }
    const Mesh& mesh = strategies_[best_plan].meshes[MeshId(0)];
    SoapMeshes meshes({mesh.axes()[0].size, mesh.axes()[1].size, mesh.axes()[2].size}, devices_);
    std::vector<SoapStrategy> seeds;
    for (const SoapStrategy& strategy : strategies_)
      if (strategy.meshes[MeshId(0)] == mesh) seeds.push_back(strategy);
    seeds.push_back(data_parallel_strategy(problem_.training, meshes));
    seeds.push_back(expert_strategy(problem_.training, problem_.cluster, meshes));
    seeds.push_back(random_strategy(meshes));
    // Whole layers first: which devices they share matters most, and no change of a single operator decides it.
    SearchBudget coarse = left();
    coarse.evaluations = (coarse.evaluations + 2) / 3;
    coarse.seconds /= 3;
    std::vector<SoapStrategy> more = seeds;
    for (SoapStrategy& strategy :
         grouped_strategies(problem_.training, Proposals(problem_.training, per_node_), meshes))
      more.push_back(std::move(strategy));
    TiedOptions options{.seed = request_.seed, .threads = request_.threads};
    options.slacks = request_.slacks;
    if (request_.slack > 0) options.slacks.push_back(request_.slack);
    std::sort(options.slacks.begin(), options.slacks.end());
    Result<TiedOutcome> walked_coarsely = search_tied(problem_, more, coarse, options, request_.on_progress);
    // Where nothing fits there is nothing to walk from: what lacks the least memory is returned.
    if (!walked_coarsely.ok() && best_) return Ok{};
    WEFT_TRY(TiedOutcome tied, std::move(walked_coarsely));
    count(tied.counts);
    seeds.push_back(tied.fastest);
    if (stops()) {
      consider(tied.fastest);
      return Ok{};
    }
    tied.fastest.name = "layers";
    consider(tied.fastest);
    for (Thrifty& thrifty : tied.thrifty) {
      thrifty.strategy.name = "thrifty";
      consider(thrifty.strategy);
    }
    WEFT_TRY(McmcOutcome walked,
             search_mcmc(problem_, seeds, left(), {.seed = request_.seed, .threads = request_.threads},
                         request_.on_progress));
    outcome_.stopped_by = walked.stopped_by;
    count(walked.counts);
    walked.best.name = "mcmc";
    consider(walked.best);
    return Ok{};
  }

  // The budget, with the time that is left of it.
  SearchBudget left() const {
    SearchBudget budget = request_.budget;
    if (budget.seconds > 0) budget.seconds = std::max(1e-3, budget.seconds - clock_.seconds());
    return budget;
  }

  void count(const SearchCounts& counts) {
    outcome_.counts.considered += counts.considered;
    outcome_.counts.simulated += counts.simulated;
    for (const auto& [reason, number] : counts.pruned) outcome_.counts.pruned[reason] += number;
  }

  // Data parallelism after one random change per unit of operators.
  SoapStrategy random_strategy(SoapMeshes& meshes) const {
    SoapStrategy strategy = data_parallel_strategy(problem_.training, meshes);
    strategy.name = "random";
    const Proposals proposals(problem_.training, per_node_);
    Rng rng = Rng(request_.seed).split(1000);
    for (std::size_t i = 0; i < proposals.units().size(); ++i)
      for (const auto& [op, config] : proposals.draw(strategy.ops, meshes, rng)) strategy.ops[op] = config;
    strategy.meshes = meshes.meshes();
    return strategy;
  }

  // Of the candidates within the slack, and not slower than data parallelism or the expert strategy: the one that moves
  // the fewest bytes.
  void save_bytes() {
    auto limit = static_cast<Picoseconds>(static_cast<double>(outcome_.judged.fair) * (1 + request_.slack));
    for (const SoapCandidate& each : outcome_.candidates)
      if ((each.name == "data parallel" || each.name == "expert") && each.judged && each.judged->over_budget.value <= 0)
        limit = std::min(limit, each.judged->fair);
    for (std::size_t i = 0; i < strategies_.size(); ++i) {
      const auto& judged = outcome_.candidates[i].judged;
      if (!judged || judged->over_budget.value > 0 || judged->fair > limit ||
          judged->bytes_moved >= outcome_.judged.bytes_moved)
        continue;
      best_ = strategies_[i];
      outcome_.judged = *judged;
    }
  }

  // Candidates are compared without host time and with one time for all networks; whoever judges them by more may find
  // another one to be the fastest.
  void add_close() {
    for (std::size_t i = 0; i < strategies_.size(); ++i) {
      const auto& judged = outcome_.candidates[i].judged;
      if (!judged || judged->over_budget.value > 0 ||
          static_cast<double>(judged->fair) > kClose * static_cast<double>(outcome_.judged.fair))
        continue;
      Strategy tree = to_tree(strategies_[i], problem_.training.graph);
      if (tree != outcome_.tree) outcome_.close.emplace_back(strategies_[i].name, std::move(tree));
    }
  }

  Result<SoapOutcome> finish() {
    stops();  // notes why
    if (!best_) return error("no strategy compiles: {}", outcome_.candidates.front().error);
    if (request_.slack > 0) save_bytes();
    outcome_.strategy = std::move(*best_);
    outcome_.tree = to_tree(outcome_.strategy, problem_.training.graph);
    add_close();
    outcome_.feasible = outcome_.judged.over_budget.value <= 0;
    if (outcome_.bound.value() > 0)
      outcome_.gap = static_cast<double>(outcome_.judged.fair) / static_cast<double>(outcome_.bound.value()) - 1;
    return std::move(outcome_);
  }

  const SoapProblem problem_;
  const SoapRequest& request_;
  std::vector<DeviceId> devices_;
  int per_node_ = 1;
  const SearchClock clock_{request_.budget};
  std::optional<SoapStrategy> best_;
  std::vector<SoapStrategy> strategies_;  // by candidate
  SoapOutcome outcome_;
};

}  // namespace

std::string_view name_of(SoapSearch search) {
  switch (search) {
    case SoapSearch::Exact:
      return "exact";
    case SoapSearch::Symbolic:
      return "symbolic";
    case SoapSearch::Mcmc:
      return "mcmc";
  }
  return "";
}

std::vector<std::array<int, kSoapAxes>> grids_of(int devices, int per_node) {
  std::vector<std::array<int, kSoapAxes>> grids = {{devices, 1, 1}};
  const auto add = [&](int inner) {
    const std::array<int, kSoapAxes> grid = {devices / inner, inner, 1};
    if (inner > 1 && inner < devices && devices % inner == 0 &&
        std::find(grids.begin(), grids.end(), grid) == grids.end())
      grids.push_back(grid);
  };
  add(per_node);
  for (int inner = 2; inner < devices; ++inner) add(inner);
  return grids;
}

Result<SoapOutcome> search_soap(const TrainingGraph& training, const Cluster& cluster, const CostModel& cost,
                                const SoftwareStack& stack, const SoapRequest& request) {
  return SoapSearcher(training, cluster, cost, stack, request).run();
}

}  // namespace weft
