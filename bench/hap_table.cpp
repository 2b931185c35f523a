// HAP's testbed (Zhang et al. 2024: 2 x 8 V100 and 6 x 8 P100, 10.4 Gb/s between machines): steps of Weft's plan and of
// the usual ones, beside the published seconds. The table of docs/heterogeneous.md.
//
//   build/release/bin/hap_table [vgg19] [vit] [bert] [moe] [8] [16] [32] [64]       (default: all)
//   build/release/bin/hap_table depth      processor seconds of one synthesis, by depth of the model
//
// N GPUs are N/8 of each of the eight machines, as in the publication. All columns but the published ones are of one
// judge: compiled, priced and simulated with fp32 weights, 64 samples a GPU (32 with experts).
#include <fmt/format.h>

#include <cstdio>
#include <cstring>
#include <set>
#include <string>

#include "cost/analytic.h"
#include "cpu_seconds.h"
#include "models/models.h"
#include "search/find_plan.h"
#include "synthesis/astar.h"
#include "synthesis/synthesis.h"

namespace weft {
namespace {

// Seconds per iteration at 8, 16, 32 and 64 GPUs, read off the paper's figures: HAP's own and its best baseline's.
struct Published {
  const char* key;
  const char* model;  // {}: the number of GPUs
  std::int64_t per_gpu;
  std::array<double, 4> hap, baseline;
};
constexpr Published kPublished[] = {
    {"vgg19", "vgg19:image=32,classes=10", 64, {.204, .298, .401, .664}, {.660, 1.131, 1.369, 1.506}},
    {"vit", "vit-b:layers=8,image=32,patch=4,classes=10", 64, {.444, .467, .490, .519}, {.453, .459, .528, .528}},
    {"bert", "bert-base:layers=8", 64, {.872, .922, .962, .994}, {.907, .966, 1.041, 1.272}},
    {"moe", "bert-moe:experts={}", 32, {1.35, 1.76, 2.33, 3.79}, {1.38, 1.88, 2.46, 3.82}},
};

std::string shown(const Result<double>& seconds) { return seconds.ok() ? fmt::format("{:.3f}", *seconds) : "-"; }

struct Point {
  const PlanProblem& problem;
  const CostModel& cost;

  Result<double> judged(StrategyChoice choice) const {
    WEFT_TRY(const Judged plan, judge_strategy(problem, cost, std::move(choice)));
    if (!plan.score().fits()) return error("does not fit");
    return plan.forecast.step_s;
  }
  Result<double> by_words(const std::string& words) const {
    PlanRequest request;
    request.strategy = words;
    WEFT_TRY(StrategyChoice choice, choose_strategy(*problem.job, request));
    return judged(std::move(choice));
  }
  // Replicas whose batches are in proportion to the peak of their devices.
  Result<double> proportional() const {
    Strategy tree;
    tree.mesh.axes = {{"dp", static_cast<int>(problem.devices)}};
    tree.schedule.name = "gpipe";
    Shares speeds;
    for (std::int64_t rank = 0; rank < problem.devices; ++rank)
      speeds.push_back(static_cast<std::int64_t>(
          problem.cluster().spec(problem.device_at(rank)).peak(Arithmetic::kFp32)->value.value / 1e9));
    Rule rule{.match = "**"};
    rule.inputs["dp"] = {0, reduced(nearest_shares(problem.global_batch, 1, speeds))};
    tree.rules.push_back(rule);
    WEFT_TRY(StrategyChoice choice, choose_strategy(*problem.job, "proportional", tree));
    return judged(std::move(choice));
  }
  Result<double> best_of(Search search) const {
    WEFT_TRY(const FoundPlan found,
             find_plan(problem, cost, {.search = search, .enumerate = {.budget = {.evaluations = 24}}}));
    if (found.outcome.best.empty()) return error("nothing fits");
    return found.outcome.best.front().forecast.step_s;
  }
};

Status row(const Published& of, std::size_t size) {
  const std::int64_t gpus = 8 << size;
  PlanRequest request;
  request.model = fmt::format(fmt::runtime(of.model), gpus);
  request.cluster = "dgx1-v100:2+p100x8:6";
  request.device_count = gpus;
  request.global_batch = of.per_gpu * gpus;
  request.dtype = "fp32";
  if (std::strstr(of.model, "bert")) request.seq = 128;
  WEFT_TRY(const PlanProblem problem, pose(request));
  const AnalyticCost cost(problem.stack(), problem.job->tuning);
  const Point point{problem, cost};
  const double begun = cpu_seconds();
  const Result<FoundPlan> found = find_plan(problem, cost, {.search = Search::Hap});
  const double searched = cpu_seconds() - begun;
  if (!found.ok()) return found.error();
  const Judged& best = found->outcome.best.front();
  fmt::print("{:6} {:4}  {:>6.3f} {:>6.3f} |  {:>6.3f}  {:>6} {:>6} {:>6} | {:5.2f} s  {}\n", of.key, gpus,
             of.hap[size], of.baseline[size], best.forecast.step_s,
             shown(point.by_words(fmt::format("dp={},mbs={}", gpus, of.per_gpu))), shown(point.proportional()),
             shown(point.best_of(Search::Enumerate)), searched, best.strategy);
  std::fflush(stdout);
  return Ok{};
}

// One program on equal shares: the choices of the full training graph, elimination, and A* from there.
Status depth(const char* model, int layers, std::optional<std::int64_t> seq) {
  const Cluster cluster = parse_cluster("dgx1-v100:2+p100x8:6").value();
  const AnalyticCost cost(find_stack("pytorch-ddp").value());
  WEFT_TRY(Graph forward, build_model(fmt::format("{}:layers={}", model, layers), {.batch = 4096, .seq = seq}));
  WEFT_TRY(const TrainingGraph training, make_training_graph(std::move(forward)));
  for (const std::vector<MeshAxis>& axes : std::vector<std::vector<MeshAxis>>{{{"dp", 64}}, {{"dp", 8}, {"tp", 8}}}) {
    std::vector<DeviceId> devices;
    for (std::size_t i = 0; i < 64; ++i) devices.emplace_back(i);
    WEFT_TRY(Mesh mesh, Mesh::make(axes, devices));
    const double begun = cpu_seconds();
    const ProgramSpace space =
        make_program_space(training, {std::move(mesh), std::vector<SharedMesh::Ratios>(axes.size())}, cluster, cost);
    const double chosen = cpu_seconds();
    const SolvedProgram solved = solve(space.choices);
    const double eliminated = cpu_seconds();
    const AStarOutcome proven =
        search_astar(space.choices, solved.prices, solved.option, {.budget = {.evaluations = 20000}});
    const double searched = cpu_seconds();
    fmt::print(
        "{:10} {:3} layers, {} ax{}s  {:6} operators | choices {:.3f} + elimination {:.3f} s, gap {:.3f} % | A* "
        "{:.3f} s, {} states, gap {:.3f} %{}\n",
        model, layers, axes.size(), axes.size() == 1 ? "i" : "e", training.graph.ops().size(), chosen - begun,
        eliminated - chosen, 100 * solved.gap(), searched - eliminated, proven.expanded, 100 * proven.gap(),
        proven.sum.total < solved.sum.total ? ", better" : "");
  }
  return Ok{};
}

int main_of(int count, char** words) {
  std::set<std::string> asked(words + 1, words + count);
  if (asked.contains("depth")) {
    for (int layers : {3, 6, 12, 24, 48})
      if (const Status done = depth("vit-b", layers, {}); !done.ok()) fmt::print("{}\n", done.error().message);
    for (int layers : {12, 24, 48, 96})
      if (const Status done = depth("gpt3-175b", layers, 1024); !done.ok()) fmt::print("{}\n", done.error().message);
    return 0;
  }
  const auto wanted = [&](const std::string& word, bool number) {
    bool any = false;
    for (const std::string& each : asked) any = any || (std::isdigit(each[0]) != 0) == number;
    return !any || asked.contains(word);
  };
  fmt::print("                published |  Weft    DP     DP      ZeRO\n");
  fmt::print("model  GPUs     HAP   best |          even   prop.   or TP | search\n");
  for (const Published& of : kPublished)
    for (std::size_t size = 0; size < 4; ++size)
      if (wanted(of.key, false) && wanted(std::to_string(8 << size), true))
        if (const Status done = row(of, size); !done.ok()) fmt::print("{}: {}\n", of.key, done.error().message);
  return 0;
}

}  // namespace
}  // namespace weft

int main(int count, char** words) { return weft::main_of(count, words); }
