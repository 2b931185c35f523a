// HAP's testbed (Zhang et al. 2024: 2 x 8 V100 and 6 x 8 P100, 10.4 Gb/s between machines), modelled: the published
// baselines beside their prediction, HAP's plans beside theirs, and Weft's plan. The tables of docs/heterogeneous.md.
//
//   build/release/bin/hap_table [vgg19] [vit] [bert] [moe] [8] [16] [32] [64]       (default: all)
//   build/release/bin/hap_table baselines [vit] [64] ...     of these only what was published, and is predicted
//   build/release/bin/hap_table trees [bert] [16] ...        HAP's plans also as files, hap-bert-16.yaml
//   build/release/bin/hap_table parts      padded and grouped all-gathers of 4 MB by the largest part
//   build/release/bin/hap_table depth      processor seconds of one synthesis, by depth of the model
//
// Run where examples/hap lies: testbed.yaml and constants.yaml there are read. N GPUs are N/8 of each of the eight
// machines, as in the publication. All seconds but the published ones are of one judge: compiled, priced and simulated
// with fp32 weights and Adam, 64 samples a GPU (32 with experts).
#include <fmt/format.h>

#include <cmath>
#include <cstdio>
#include <set>
#include <string>

#include "base/whole_file.h"
#include "cost/analytic.h"
#include "cost/calibration.h"
#include "cost/step_prices.h"
#include "cpu_seconds.h"
#include "models/models.h"
#include "search/find_plan.h"
#include "strategy/yaml.h"
#include "synthesis/astar.h"
#include "synthesis/synthesis.h"

namespace weft {
namespace {

constexpr const char* kTestbed = "examples/hap/testbed.yaml";
constexpr const char* kConstants = "examples/hap/constants.yaml";
// Fitted like the constants there: what the NIC of a machine carries falls with each doubling of the GPUs that use it at
// once. TCP and copies between processes take the host's time.
constexpr double kLostPerDoubling = 0.11;

enum class Baseline { None, Even, Proportional, Experts };

// Seconds per iteration at 8, 16, 32 and 64 GPUs, read off the paper's figures: HAP's own, its best baseline's, and which
// baseline that is, where it is known.
struct Published {
  const char* key;
  const char* model;  // {}: the number of experts, one a GPU
  const char* stack;  // of the baseline
  std::int64_t per_gpu;
  std::array<double, 4> hap, baseline;
  std::array<Baseline, 4> of;
};
constexpr Baseline kNone = Baseline::None, kEven = Baseline::Even, kProp = Baseline::Proportional;
constexpr Baseline kExperts = Baseline::Experts;
// Networks as HAP's released models.py and config.py have them: CIFAR-10's 32 x 32 images, 128 tokens of WikiText-2's
// 33,278 words (rounded up to divide), embedding and decoder of their own.
constexpr Published kPublished[] = {
    {"vgg19",
     "vgg19:image=32,classes=10",
     "pytorch-ddp-1.13",
     64,
     {.204, .298, .401, .664},
     {.660, 1.131, 1.369, 1.506},
     {kNone, kNone, kNone, kProp}},
    {"vit",
     "vit-b:layers=8,image=32,patch=4,classes=10",
     "pytorch-ddp-1.13",
     64,
     {.444, .467, .490, .519},
     {.453, .459, .528, .528},
     {kProp, kProp, kProp, kProp}},
    {"bert",
     "bert-base:layers=8,tied=0,vocab=33280",
     "pytorch-ddp-1.13",
     64,
     {.872, .922, .962, .994},
     {.907, .966, 1.041, 1.272},
     {kEven, kProp, kProp, kProp}},
    {"moe",
     "bert-moe:experts={},tied=0,vocab=33280",
     "deepspeed-moe",
     32,
     {1.35, 1.76, 2.33, 3.79},
     {1.38, 1.88, 2.46, 3.82},
     {kExperts, kExperts, kExperts, kExperts}},
};

std::string shown(const Result<double>& seconds) { return seconds.ok() ? fmt::format("{:.3f}", *seconds) : "-"; }

struct Point {
  PlanProblem problem;
  AnalyticCost cost;

  explicit Point(PlanProblem posed) : problem(std::move(posed)), cost(problem.stack(), problem.job->tuning) {}

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
  Result<double> by_tree(const char* name, const Strategy& tree) const {
    WEFT_TRY(StrategyChoice choice, choose_strategy(*problem.job, name, tree));
    return judged(std::move(choice));
  }
  Result<TrainingGraph> training() const {
    Strategy whole;
    whole.mesh.axes = {{"dp", static_cast<int>(problem.devices)}};
    whole.schedule.name = "gpipe";
    WEFT_TRY(StrategyChoice choice, choose_strategy(*problem.job, "one step", whole));
    WEFT_TRY(const Plan plan, make_plan(problem.job, std::move(choice)));
    return plan.training();
  }

  // Replicas whose batches are equal, or in proportion to the peak of their devices.
  Result<double> replicas(bool proportional) const {
    Strategy tree;
    tree.mesh.axes = {{"dp", static_cast<int>(problem.devices)}};
    tree.schedule.name = "gpipe";
    Shares speeds;
    for (std::int64_t rank = 0; rank < problem.devices; ++rank)
      speeds.push_back(
          proportional ? static_cast<std::int64_t>(
                             problem.cluster().spec(problem.device_at(rank)).peak(Arithmetic::kFp32)->value.value / 1e9)
                       : 1);
    Shares shares = reduced(nearest_shares(problem.global_batch, 1, speeds));
    if (shares.front() == shares.back()) shares.clear();
    Rule rule{.match = "**"};
    rule.inputs["dp"] = {0, shares};
    tree.rules.push_back(rule);
    // What is repeated for every sample is so on the device that has the sample.
    WEFT_TRY(const TrainingGraph graph, training());
    for (OpId op : IdRange<OpId>(graph.first_backward.index())) {
      const Signature& signature = graph.graph.signature(op);
      const int repeats = signature.axis_named("r");
      if (signature.kind != OpKind::Expand || repeats < 0 ||
          signature.axes[static_cast<std::size_t>(repeats)].size != problem.global_batch)
        continue;
      Rule repeated{.match = graph.graph.name(op)};
      repeated.compute["dp"] = {"r", 1, shares};
      tree.rules.push_back(repeated);
    }
    return by_tree(proportional ? "proportional" : "even", tree);
  }
  Result<double> baseline(Baseline which, std::int64_t per_gpu) const {
    if (which == Baseline::Experts) return by_words(fmt::format("dp={0},ep={0},mbs={1}", problem.devices, per_gpu));
    return replicas(which == Baseline::Proportional);
  }
  Result<Judged> best_of(Search search) const {
    WEFT_TRY(const FoundPlan found,
             find_plan(problem, cost, {.search = search, .enumerate = {.budget = {.evaluations = 12}}}));
    if (found.outcome.best.empty()) return error("nothing fits");
    return found.outcome.best.front();
  }

  // HAP's plan: the program that is best by its objective, the sum of stages that overlap nothing, on all devices along
  // one axis, with parameters stored as their operators use them, and shares by linear programming.
  Result<std::pair<double, Synthesised>> of_hap() const {
    WEFT_TRY(const TrainingGraph graph, training());
    SynthesisRequest asked{.devices = {}, .memory_budget = {}};
    asked.rules.bucket = problem.stack().gradient_bucket.value;
    asked.rules.shards_stored = false;
    asked.overlaps_gradients = false;
    asked.most_axes = 1;
    for (std::int64_t rank = 0; rank < problem.devices; ++rank) {
      asked.devices.push_back(problem.device_at(rank));
      asked.memory_budget.push_back(problem.job->memory_budget_of(asked.devices.back()).value);
    }
    SynthesisOutcome found = synthesise(graph, problem.cluster(), cost, asked);
    for (Synthesised& program : found.programs)
      if (const Result<double> seconds = by_tree("HAP", program.tree); seconds.ok())
        return std::pair(*seconds, std::move(program));
    return error("no program fits");
  }
};

// The problem on N GPUs, by the model of the testbed; of a stack.
Result<Point> point_of(const Published& of, std::int64_t gpus, const char* stack) {
  PlanRequest request;
  request.model = fmt::format(fmt::runtime(of.model), gpus);
  request.cluster = kTestbed;
  request.device_count = gpus;
  request.global_batch = of.per_gpu * gpus;
  request.dtype = "fp32";
  request.optimizer = "adam";
  request.stack = stack;
  if (std::string_view(of.model).starts_with("bert")) request.seq = 128;
  WEFT_TRY(Calibration calibration, read_calibration(kConstants));
  WEFT_TRY(const double alone, calibration.value("links/nic/efficiency"));
  const double doublings = std::log2(static_cast<double>(gpus) / 8);
  WEFT_TRY_OK(
      calibration.set("links/nic/efficiency", alone / (1 + kLostPerDoubling * doublings), "GPUs that share it"));
  WEFT_TRY(PlanProblem problem, pose(request, calibration));
  return Point(std::move(problem));
}

double per_cent(double seconds, double published) { return 100 * (seconds / published - 1); }

Status baseline_row(const Published& of, std::size_t size) {
  if (of.of[size] == Baseline::None) return Ok{};
  const std::int64_t gpus = 8 << size;
  WEFT_TRY(const Point point, point_of(of, gpus, of.stack));
  WEFT_TRY(const double seconds, point.baseline(of.of[size], of.per_gpu));
  constexpr const char* kNames[] = {"", "DP, even", "DP, by peak speed", "DeepSpeed (experts over all)"};
  fmt::print("| {} | {} | {} | {:.3f} | {:.3f} | {:+.0f} % |\n", of.key, gpus,
             kNames[static_cast<std::size_t>(of.of[size])], of.baseline[size], seconds,
             per_cent(seconds, of.baseline[size]));
  std::fflush(stdout);
  return Ok{};
}

// What a tree does that one would not expect of data parallelism.
std::string features_of(const Strategy& tree) {
  int gathered = 0, split = 0, stored = 0, uneven = 0;
  for (const Rule& rule : tree.rules) {
    bool samples = false, none = !rule.compute.empty(), others = false;
    for (const auto& [axis, each] : rule.compute) {
      none = none && each.axis.empty();
      samples = samples || each.axis == "b";
      others = others || (!each.axis.empty() && each.axis != "b");
      uneven += !each.ratio.empty() && each.axis != "b" ? 1 : 0;
    }
    const bool of_gradient = rule.match.find("@grad_weight") != std::string::npos;
    gathered += of_gradient && none ? 1 : 0;
    split += !of_gradient && others && !samples ? 1 : 0;
    stored += rule.stored(Stored::Weights).over ? 1 : 0;
  }
  return fmt::format("SFB {}, split otherwise {}, sharded weights {}, uneven beyond samples {}", gathered, split,
                     stored, uneven);
}

std::string collectives_of(const Point& point, const Strategy& tree) {
  Result<StrategyChoice> choice = choose_strategy(*point.problem.job, "tree", tree);
  if (!choice.ok()) return "";
  const Result<Plan> plan = make_plan(point.problem.job, std::move(choice).value());
  if (!plan.ok()) return "";
  const StepPrices prices(point.problem.cluster(), point.cost);
  const Result<CompiledStrategy> compiled = compile_plan(*plan, &prices);
  if (!compiled.ok()) return "";
  int padded = 0, grouped = 0;
  for (const Instruction& instruction : compiled->program.instructions)
    if (const auto* communicate = std::get_if<Communicate>(&instruction.what)) {
      padded += communicate->parts == Parts::Padded ? 1 : 0;
      grouped += communicate->parts == Parts::Grouped ? 1 : 0;
    }
  return fmt::format("padded {}, grouped {}", padded, grouped);
}

Status row(const Published& of, std::size_t size, bool trees) {
  const std::int64_t gpus = 8 << size;
  WEFT_TRY(const Point point, point_of(of, gpus, "pytorch-ddp-1.13"));
  const double begun = cpu_seconds();
  WEFT_TRY(Judged best, point.best_of(Search::Auto));
  const double searched = cpu_seconds() - begun;
  const Result<Judged> even = point.best_of(Search::Enumerate);
  if (even.ok() && even->score() < best.score()) best = *even;  // with more of its budget
  WEFT_TRY(const auto hap, point.of_hap());
  fmt::print("| {} | {} | {:.3f} | {:.3f} ({:+.0f} %) | {:.3f} | {} | {} | {} |\n", of.key, gpus, of.hap[size],
             hap.first, per_cent(hap.first, of.hap[size]), best.forecast.step_s, shown(point.replicas(false)),
             shown(point.replicas(true)), even.ok() ? fmt::format("{:.3f}", even->forecast.step_s) : "-");
  fmt::print(stderr,
             "{} {}: Weft {:.1f} s of processor time; {}\n  Weft: {}; {}\n  HAP: {}, stages {:.3f} s, {:.1f} % above "
             "linear programming; {}; {}\n",
             of.key, gpus, searched, best.strategy, features_of(best.tree), collectives_of(point, best.tree),
             hap.second.name, 1e-12 * static_cast<double>(hap.second.program.sum.total), 100 * hap.second.above_bound(),
             features_of(hap.second.tree), collectives_of(point, hap.second.tree));
  std::fflush(stdout);
  if (trees) return write_whole(fmt::format("hap-{}-{}.yaml", of.key, gpus), to_yaml(hap.second.tree));
  return Ok{};
}

// An all-gather of 4 MB among four GPUs, one in each of four machines, one of which has this many times its even share.
Status parts() {
  WEFT_TRY(const Cluster cluster, parse_cluster("v100x8:4"));
  const AnalyticCost cost(find_stack("pytorch-ddp-1.13").value());
  const std::vector<DeviceId> members = {DeviceId(0), DeviceId(8), DeviceId(16), DeviceId(24)};
  const Communicator group = make_communicator(cluster, members, Collective::AllGather);
  fmt::print("| largest part, of the even share | padded, ms | grouped, ms | cheaper |\n|---|---|---|---|\n");
  constexpr std::int64_t kAll = 4'000'000;
  for (int tenths = 10; tenths <= 26; tenths += 2) {
    const std::int64_t largest = kAll / 4 * tenths / 10, rest = (kAll - largest) / 3;
    const auto time = [&](Parts how) {
      return 1e-9 *
             static_cast<double>(isolated_time(cost.communicate(query_of_parts(group, how, {kAll, largest, rest}))));
    };
    const double padded = time(Parts::Padded), grouped = time(Parts::Grouped);
    fmt::print("| {:.1f} | {:.3f} | {:.3f} | {} |\n", tenths / 10.0, padded, grouped,
               padded <= grouped ? "padded" : "grouped");
  }
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
  const auto say = [](const Status& done) {
    if (!done.ok()) fmt::print("{}\n", done.error().message);
  };
  if (asked.contains("depth")) {
    for (int layers : {3, 6, 12, 24, 48}) say(depth("vit-b", layers, {}));
    for (int layers : {12, 24, 48, 96}) say(depth("gpt3-175b", layers, 1024));
    return 0;
  }
  if (asked.contains("parts")) {
    say(parts());
    return 0;
  }
  const bool trees = asked.erase("trees") > 0;
  const bool only_baselines = asked.erase("baselines") > 0;
  const auto wanted = [&](const std::string& word, bool number) {
    bool any = false;
    for (const std::string& each : asked) any = any || (std::isdigit(each[0]) != 0) == number;
    return !any || asked.contains(word);
  };
  const auto rows = [&](auto&& of_point) {
    for (const Published& of : kPublished)
      for (std::size_t size = 0; size < 4; ++size)
        if (wanted(of.key, false) && wanted(std::to_string(8 << size), true))
          if (const Status done = of_point(of, size); !done.ok())
            fmt::print("{} {}: {}\n", of.key, 8 << size, done.error().message);
  };
  fmt::print("| model | GPUs | baseline | published, s | predicted, s | |\n|---|---|---|---|---|---|\n");
  rows(baseline_row);
  if (only_baselines) return 0;
  fmt::print(
      "\n| model | GPUs | HAP, published | HAP's plan, predicted | Weft's plan | DP, even | DP, by peak speed | best "
      "of "
      "enumeration (ZeRO, TP, pipelines) |\n|---|---|---|---|---|---|---|---|\n");
  rows([&](const Published& of, std::size_t size) { return row(of, size, trees); });
  return 0;
}

}  // namespace
}  // namespace weft

int main(int count, char** words) { return weft::main_of(count, words); }
