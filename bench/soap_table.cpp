// Figures of the searches over operator graphs (docs/searches.md), each by a command; all print markdown.
//
//   soap_table flexflow [--cpu-seconds 120] [--cluster k80x4:16] [--model nmt] [--seed 1] [--out DIR] [--trace]
//     FlexFlow's evaluation (Jia, Zaharia, Aiken, MLSys'19) on Weft's simulator: six networks on two clusters, searched
//     by MCMC, against data parallelism and the experts' strategies. As there: 64 samples per device, AlexNet 256 in
//     all; 40 unrolled steps; fp32; hosts take no time and communication runs beside computation. --out: the strategies
//     found, as files. --trace: the best so far, after every round.
//     --slack 0.02: how much longer a step may take than the fastest found, to move fewer bytes (0.002).
//     --price flexflow: gradients are summed as slowly as FlexFlow's own simulator has it (soap_flexflow.h).
//   soap_table front [--cpu-seconds 120] [--cluster k80x4:16] [--model nmt:seq=40] [--price flexflow]
//     Time against bytes: the fewest bytes for little more time than the fastest takes, and for more of it.
//   soap_table exposed
//     What data parallelism has to gain: its step, that of one device with its share of the samples, all gradients in
//     one ring, and the same by the rule of FlexFlow's simulator: one parameter after another, (devices of a node − 1)
//     · bytes / 4 GB/s + (nodes − 1) · bytes / 1 GB/s (scripts/simulator.cc of its repository).
//   soap_table long [--model nmt] [--cluster k80x4:16] [--seconds 60] [--minutes 30] [--threads 2]
//     What a longer search gains: the same search for 60 seconds and for 30 minutes, both by the clock.
//   soap_table speed [--cpu-seconds 10]      proposals per second at 4, 16 and 64 devices, on one thread
//   soap_table symbolic                      symbolic plans against experts' on 8 V100; gaps to exact
//   soap_table layerwise [--gib 36] [--out DIR]
//     Llama-2-7B on 8 devices of 36 GB, every layer by itself; and the best that a strategy tree can say, as a file
//     that is then simulated.
//
// Time is of the processor, unless a clock is named: 120 seconds are a minute of two cores.
#include <fmt/format.h>
#include <fmt/ostream.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <map>
#include <string>

#include "cost/analytic.h"
#include "cpu_seconds.h"
#include "forecast/forecast.h"
#include "models/layer_builder.h"
#include "models/models.h"
#include "soap/layer_table.h"
#include "soap/layerwise_tree.h"
#include "soap/mcmc.h"
#include "soap/soap.h"
#include "soap_flexflow.h"
#include "strategy/yaml.h"

namespace weft {
namespace {

double ms(Picoseconds time) { return static_cast<double>(time) * 1e-9; }
double over(Picoseconds a, Picoseconds b) { return static_cast<double>(a) / static_cast<double>(b); }

struct Arguments {
  std::map<std::string, std::string> named;

  std::string text(const std::string& name, const std::string& otherwise) const {
    const auto found = named.find(name);
    return found == named.end() ? otherwise : found->second;
  }
  double number(const std::string& name, double otherwise) const {
    const auto found = named.find(name);
    return found == named.end() ? otherwise : std::atof(found->second.c_str());
  }
};

SoftwareStack flexflow_stack() {
  SoftwareStack stack = without_host_time(find_stack("pytorch-ddp").value());
  stack.p2p_overlap.value = true;
  stack.tensor_overlap.value = true;
  stack.keep_gathered_input.value = true;  // what an operator was sent stays until its backward pass
  return stack;
}

TrainingGraph flexflow_graph(const std::string& model, std::int64_t batch) {
  return make_training_graph(build_model(model, {.batch = batch, .dtype = DType::F32}).value(),
                             {.optimizer = OptimizerKind::Momentum, .master_weights = false, .clip_norm = std::nullopt})
      .value();
}

// What communication costs: links as they are, or as FlexFlow's own simulator has it.
std::unique_ptr<CostModel> cost_of(const Arguments& arguments, const SoftwareStack& stack) {
  if (arguments.text("price", "") == "flexflow") return std::make_unique<FlexFlowCost>(stack);
  return std::make_unique<AnalyticCost>(stack);
}

struct Row {
  const char* title;
  const char* model;
  std::int64_t batch;  // of all; 0: 64 per device
  const char* paper;   // over data parallelism or the expert
};
constexpr Row kRows[] = {{"AlexNet", "alexnet", 256, "1.3 to 3.3"},  {"Inception-v3", "inception-v3", 0, "1.3 to 3.3"},
                         {"ResNet-101", "resnet101", 0, "1.0"},      {"RNNTC", "rnntc:seq=40", 0, "1.3 to 3.3"},
                         {"RNNLM", "rnnlm:seq=40", 0, "1.3 to 3.3"}, {"NMT", "nmt:seq=40", 0, "1.3 to 3.3"}};
// The only ones whose bytes the paper has: NMT on 64 K80.
constexpr const char* kPaperBytes = "65.8 / 24.2 / 12.1 = 5.4";

void compare(const Row& row, const std::string& cluster_name, const Arguments& arguments) {
  const Cluster cluster = parse_cluster(cluster_name).value();
  const TrainingGraph training = flexflow_graph(row.model, row.batch > 0 ? row.batch : 64 * cluster.device_count());
  const SoftwareStack stack = flexflow_stack();
  const std::unique_ptr<CostModel> priced = cost_of(arguments, stack);
  const CostModel& cost = *priced;
  const double limit = arguments.number("cpu-seconds", 120), start = cpu_seconds();
  std::atomic<bool> spent = false;
  SoapRequest request{.search = SoapSearch::Mcmc,
                      .budget = {.evaluations = 1'000'000'000, .seconds = 0, .cancelled = &spent},
                      .seed = static_cast<std::uint64_t>(arguments.number("seed", 1)),
                      .slack = arguments.number("slack", 0.002)};
  request.on_progress = [&](const SearchProgress& progress) {
    const double used = cpu_seconds() - start;
    if (arguments.named.contains("trace"))
      fmt::print(stderr, "{} {} {:.1f} s {} proposals {:.3f} ms\n", row.title, cluster_name, used, progress.done,
                 progress.best_s * 1e3);
    spent = used > limit;
  };
  const Result<SoapOutcome> found = search_soap(training, cluster, cost, stack, request);
  if (!found.ok()) {
    fmt::print("| {} | {} | {} |\n", row.title, cluster_name, found.error().message);
    return;
  }
  const auto named = [&](std::string_view name) {
    for (const SoapCandidate& candidate : found->candidates)
      if (candidate.name == name && candidate.judged) return *candidate.judged;
    return SoapJudgement{};
  };
  const SoapJudgement parallel = named("data parallel"), expert = named("expert"), exact = named("exact");
  const SoapJudgement& best = found->judged;
  const double gb = 1e-9;
  fmt::print(
      "| {} | {} | {:.1f} | {:.1f} | {:.1f} | {:.1f} | {:.2f} | {:.2f} | {} | {:.1f} | {:.1f} / {:.1f} / {:.1f} = "
      "{:.1f} "
      "| {} | {} | {:.0f} |\n",
      row.title, cluster_name + (arguments.text("price", "") == "flexflow" ? ", gradients at FlexFlow's price" : ""),
      ms(parallel.fair), ms(expert.fair), ms(exact.fair), ms(best.fair), over(parallel.fair, best.fair),
      over(expert.fair, best.fair), row.paper, ms(found->bound.value()), gb * static_cast<double>(parallel.bytes_moved),
      gb * static_cast<double>(expert.bytes_moved), gb * static_cast<double>(best.bytes_moved),
      over(parallel.bytes_moved, best.bytes_moved),
      std::string_view(row.title) == "NMT" && cluster_name.starts_with("k80x4:16") ? kPaperBytes : "",
      found->counts.simulated, cpu_seconds() - start);
  std::fflush(stdout);
  if (arguments.named.contains("trace"))
    for (const SoapCandidate& each : found->candidates)
      if (each.judged)
        fmt::print(stderr, "  {:14} {:6} {:9.3f} ms {:7.2f} GB\n", each.name, each.grid, ms(each.judged->fair),
                   gb * static_cast<double>(each.judged->bytes_moved));
  if (const std::string folder = arguments.text("out", ""); !folder.empty())
    std::ofstream(fmt::format("{}/{}-{}.yaml", folder, row.title, cluster.device_count())) << to_yaml(found->tree);
}

void flexflow(const Arguments& arguments) {
  fmt::print(
      "| network | cluster | data parallel, ms | expert, ms | exact, ms | found, ms | over data parallel | over expert "
      "| paper | lower bound, ms | GB moved: data parallel / expert / found = times fewer | paper | simulated | CPU s "
      "|\n|---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n");
  const std::string cluster = arguments.text("cluster", ""), model = arguments.text("model", "");
  for (const std::string& each :
       cluster.empty() ? std::vector<std::string>{"p100x4:4", "k80x4:16"} : std::vector{cluster})
    for (const Row& row : kRows)
      if (std::string(row.model).starts_with(model)) compare(row, each, arguments);
}

// Time against bytes: what is found for the least time, and the fewest bytes for a little more of it, and more.
void front(const Arguments& arguments) {
  const Cluster cluster = parse_cluster(arguments.text("cluster", "k80x4:16")).value();
  const TrainingGraph training = flexflow_graph(arguments.text("model", "nmt:seq=40"), 64 * cluster.device_count());
  const SoftwareStack stack = flexflow_stack();
  const std::unique_ptr<CostModel> cost = cost_of(arguments, stack);
  const double start = cpu_seconds(), limit = arguments.number("cpu-seconds", 120);
  std::atomic<bool> spent = false;
  SoapRequest request{.search = SoapSearch::Mcmc,
                      .budget = {.evaluations = 1'000'000'000, .seconds = 0, .cancelled = &spent},
                      .seed = static_cast<std::uint64_t>(arguments.number("seed", 1)),
                      .slacks = {0.002, 0.01, 0.03, 0.1, 0.2, 0.3, 0.5, 0.8, 1.2, 2}};
  request.on_progress = [&](const SearchProgress&) { spent = cpu_seconds() - start > limit; };
  const SoapOutcome found = search_soap(training, cluster, *cost, stack, request).value();
  std::vector<const SoapCandidate*> all;
  for (const SoapCandidate& each : found.candidates)
    if (each.judged && each.judged->over_budget.value <= 0) all.push_back(&each);
  std::stable_sort(all.begin(), all.end(),
                   [](const auto* a, const auto* b) { return a->judged->fair < b->judged->fair; });
  const SoapJudgement parallel = found.candidates.front().judged.value();
  fmt::print(
      "| plan | ms | data parallel / it | GB moved | data parallel / it | on the front |\n|---|---|---|---|---|---|\n");
  std::int64_t least = kNever;
  for (const SoapCandidate* each : all) {
    const SoapJudgement& judged = *each->judged;
    fmt::print("| {} {} | {:.1f} | {:.2f} | {:.1f} | {:.2f} | {} |\n", each->name, each->grid, ms(judged.fair),
               over(parallel.fair, judged.fair), 1e-9 * static_cast<double>(judged.bytes_moved),
               over(parallel.bytes_moved, judged.bytes_moved), judged.bytes_moved < least ? "yes" : "");
    least = std::min(least, judged.bytes_moved);
  }
  fmt::print("{:.0f} CPU s, {} simulated\n", cpu_seconds() - start, found.counts.simulated);
}

Picoseconds data_parallel_time(const TrainingGraph& training, const Cluster& cluster, std::size_t devices) {
  const SoftwareStack stack = flexflow_stack();
  const AnalyticCost cost(stack);
  std::vector<DeviceId> first;
  for (std::size_t i = 0; i < devices; ++i) first.emplace_back(i);
  SoapMeshes meshes({static_cast<int>(devices), 1, 1}, first);
  return judge({training, cluster, cost, stack}, data_parallel_strategy(training, meshes)).value().fair;
}

void exposed() {
  fmt::print(
      "| network | cluster | data parallel, ms | one device alone, ms | ratio | gradients, MB | in one ring, ms | by "
      "FlexFlow's rule, ms |\n|---|---|---|---|---|---|---|---|\n");
  for (const char* cluster_name : {"p100x4:4", "k80x4:16", "k80x4:16,nic=8Gbps"})
    for (const Row& row : kRows) {
      const Cluster cluster = parse_cluster(cluster_name).value();
      const std::int64_t devices = cluster.device_count(), batch = row.batch > 0 ? row.batch : 64 * devices;
      const TrainingGraph training = flexflow_graph(row.model, batch);
      const Picoseconds all = data_parallel_time(training, cluster, static_cast<std::size_t>(devices)),
                        one = data_parallel_time(flexflow_graph(row.model, batch / devices), cluster, 1);
      std::int64_t bytes = 0;
      for (const Tensor& tensor : training.graph.tensors())
        if (tensor.kind == TensorKind::Parameter) {
          std::int64_t elements = 1;
          for (std::int64_t extent : tensor.type.shape) elements *= extent;
          bytes += bytes_of(tensor.type.dtype, elements);
        }
      std::vector<DeviceId> members;
      for (std::int64_t i = 0; i < devices; ++i) members.emplace_back(static_cast<std::size_t>(i));
      const AnalyticCost cost(flexflow_stack());
      const Communicator ring = make_communicator(cluster, members, Collective::AllReduce);
      const int per_node = devices_per_node(cluster, members);
      const double nodes = static_cast<double>(devices) / per_node;
      fmt::print("| {} | {} | {:.1f} | {:.1f} | {:.3f} | {:.0f} | {:.1f} | {:.0f} |\n", row.title, cluster_name,
                 ms(all), ms(one), over(all, one), 1e-6 * static_cast<double>(bytes),
                 ms(isolated_time(cost.communicate({.communicator = &ring, .bytes = bytes}))),
                 1e-6 * static_cast<double>(bytes) * ((per_node - 1) / 4.0 + nodes - 1));
      std::fflush(stdout);
    }
}

// One search, for so many seconds by the clock.
SoapOutcome search_for(const TrainingGraph& training, const Cluster& cluster, double seconds,
                       const Arguments& arguments) {
  const SoftwareStack stack = flexflow_stack();
  const std::unique_ptr<CostModel> cost = cost_of(arguments, stack);
  return search_soap(training, cluster, *cost, stack,
                     {.search = SoapSearch::Mcmc,
                      .budget = {.evaluations = 1'000'000'000, .seconds = seconds},
                      .seed = static_cast<std::uint64_t>(arguments.number("seed", 1)),
                      .threads = static_cast<int>(arguments.number("threads", 2))})
      .value();
}

void long_runs(const Arguments& arguments) {
  using Clock = std::chrono::steady_clock;
  fmt::print(
      "| network | cluster | short run, ms | clock s | CPU s | proposals | long run, ms | clock s | CPU s | proposals "
      "| short / long |\n|---|---|---|---|---|---|---|---|---|---|---|\n");
  const std::string model = arguments.text("model", "");
  const std::string cluster_name = arguments.text("cluster", "k80x4:16");
  for (const char* each : {"inception-v3", "nmt:seq=40"}) {
    if (!std::string(each).starts_with(model)) continue;
    const Cluster cluster = parse_cluster(cluster_name).value();
    const TrainingGraph training = flexflow_graph(each, 64 * cluster.device_count());
    std::vector<Picoseconds> found;
    fmt::print("| {} | {}", each, cluster_name);
    for (double seconds : {arguments.number("seconds", 60), 60 * arguments.number("minutes", 30)}) {
      const double start = cpu_seconds();
      const auto began = Clock::now();
      const SoapOutcome outcome = search_for(training, cluster, seconds, arguments);
      found.push_back(outcome.judged.fair);
      fmt::print(" | {:.2f} | {:.0f} | {:.0f} | {}", ms(found.back()),
                 std::chrono::duration<double>(Clock::now() - began).count(), cpu_seconds() - start,
                 outcome.counts.considered);
      std::fflush(stdout);
    }
    fmt::print(" | {:.4f} |\n", over(found[0], found[1]));
    std::fflush(stdout);
  }
}

void speed(const Arguments& arguments) {
  fmt::print("| network | devices | proposals per second | simulated per second |\n|---|---|---|---|\n");
  for (const char* model : {"inception-v3", "nmt:seq=40"})
    for (const char* cluster_name : {"p100x4:1", "p100x4:4", "p100x4:16"}) {
      const Cluster cluster = parse_cluster(cluster_name).value();
      const TrainingGraph training = flexflow_graph(model, 64 * cluster.device_count());
      const SoftwareStack stack = flexflow_stack();
      const AnalyticCost cost(stack);
      std::vector<DeviceId> devices;
      for (std::int64_t i = 0; i < cluster.device_count(); ++i) devices.emplace_back(static_cast<std::size_t>(i));
      SoapMeshes meshes({static_cast<int>(devices.size()), 1, 1}, devices);
      const double start = cpu_seconds();
      std::atomic<bool> spent = false;
      const McmcOutcome found =
          search_mcmc(
              {training, cluster, cost, stack}, {data_parallel_strategy(training, meshes)},
              {.evaluations = 1'000'000'000, .seconds = 0, .cancelled = &spent}, {.threads = 1},
              [&](const SearchProgress&) { spent = cpu_seconds() - start > arguments.number("cpu-seconds", 10); })
              .value();
      const double used = cpu_seconds() - start;
      fmt::print("| {} | {} | {:.0f} | {:.0f} |\n", model, devices.size(),
                 static_cast<double>(found.counts.considered) / used,
                 static_cast<double>(found.counts.simulated) / used);
      std::fflush(stdout);
    }
}

struct Planned {
  SoapStrategy strategy;
  std::string grid;
};

// The plan that sends least, over all grids of the devices.
Planned plan_by_volume(const TrainingGraph& training, int devices) {
  std::vector<DeviceId> all;
  for (int i = 0; i < devices; ++i) all.emplace_back(static_cast<std::size_t>(i));
  Planned best;
  std::int64_t least = kNever;
  for (const auto& grid : grids_of(devices, devices)) {
    const SoapMeshes meshes(grid, all);
    VolumePrices volumes;
    const LayoutProblem problem = make_layout_problem(training, meshes.meshes()[MeshId(0)], volumes);
    const Assignment chosen = choose_best(problem.choices);
    if (chosen.cost >= least) continue;
    least = chosen.cost;
    best = {strategy_of(problem, chosen.option, training, meshes), fmt::format("{}x{}", grid[0], grid[1])};
  }
  return best;
}

// What the volumes' plan costs on the clock of the exact search, over what exact finds, on one grid.
double gap_of(const TrainingGraph& training, const Cluster& cluster, const CostModel& cost,
              std::array<int, kSoapAxes> grid) {
  std::vector<DeviceId> all;
  for (int i = 0; i < grid[0] * grid[1]; ++i) all.emplace_back(static_cast<std::size_t>(i));
  const SoapMeshes meshes(grid, all);
  const Mesh& mesh = meshes.meshes()[MeshId(0)];
  TimePrices times(cluster, cost, mesh);
  VolumePrices volumes;
  const LayoutProblem timed = make_layout_problem(training, mesh, times),
                      by_volume = make_layout_problem(training, mesh, volumes);
  const Assignment exact = choose_best(timed.choices), symbolic = choose_best(by_volume.choices);
  std::vector<std::uint32_t> same;
  for (VariableId v : timed.ops.ids()) {
    const auto& split = by_volume.splits[v][symbolic.option[v.index()]];
    same.push_back(static_cast<std::uint32_t>(std::find(timed.splits[v].begin(), timed.splits[v].end(), split) -
                                              timed.splits[v].begin()));
  }
  return over(judge_choice(timed.choices, same).cost, exact.cost);
}

// Linear layers of random widths with an activation between them.
TrainingGraph random_chain(Rng& rng) {
  GraphBuilder builder("chain");
  LayerBuilder net(builder, DType::F32);
  const std::int64_t batch = std::int64_t{64} << rng.below(6);
  TensorId x = builder.input("x", DType::F32, {batch, std::int64_t{64} << rng.below(7)});
  const int layers = static_cast<int>(rng.between(3, 10));
  for (int i = 0; i < layers; ++i)
    x = net.unary(fmt::format("relu{}", i),
                  net.linear(fmt::format("fc{}", i), x, std::int64_t{64} << rng.below(7), false), "relu");
  builder.result(net.cross_entropy("loss", x, builder.input("labels", DType::I64, {batch})));
  return make_training_graph(std::move(builder).freeze().value(),
                             {.optimizer = OptimizerKind::Momentum, .clip_norm = std::nullopt})
      .value();
}

void gaps() {
  const Cluster cluster = parse_cluster("dgx1-v100-32:1").value();
  const SoftwareStack stack = find_stack("pytorch-ddp").value();
  const AnalyticCost cost(stack);
  fmt::print("\n| graphs | grid | symbolic / exact, mean | worst |\n|---|---|---|---|\n");
  for (const std::array<int, kSoapAxes> grid : {std::array<int, kSoapAxes>{8, 1, 1}, {4, 2, 1}}) {
    Rng rng(17);
    double sum = 0, worst = 0;
    for (int i = 0; i < 50; ++i) {
      const double gap = gap_of(random_chain(rng), cluster, cost, grid);
      sum += gap;
      worst = std::max(worst, gap);
    }
    fmt::print("| 50 random chains of linear layers | {}x{} | {:.3f} | {:.3f} |\n", grid[0], grid[1], sum / 50, worst);
    for (const char* model : {"gpt2-124m:layers=4", "bert-large:layers=4", "t5-small"}) {
      const TrainingGraph training =
          make_training_graph(build_model(model, {.batch = 64, .seq = 512, .dtype = DType::F16}).value()).value();
      const double gap = gap_of(training, cluster, cost, grid);
      fmt::print("| {} | {}x{} | {:.3f} | {:.3f} |\n", model, grid[0], grid[1], gap, gap);
    }
  }
}

// The best that people write for eight devices of one node: data parallel, Megatron's tensor parallelism, and mixes.
void symbolic(const Arguments& arguments) {
  struct Case {
    const char *title, *model;
    std::int64_t batch;
    std::optional<std::int64_t> seq;
  };
  const Case cases[] = {{"ResNet-50", "resnet50", 256, {}},
                        {"BERT-large", "bert-large", 64, 512},
                        {"GPT-2", "gpt2-124m", 64, 1024},
                        {"T5", "t5-base", 64, 512}};
  fmt::print(
      "| network | best expert | expert, ms | symbolic, ms | symbolic / expert | grid | CPU s to plan |\n"
      "|---|---|---|---|---|---|---|\n");
  const std::string on = arguments.text("cluster", "dgx1-v100-32:1");
  for (const Case& each : cases) {
    std::string best_name;
    std::optional<Forecast> best;
    std::optional<Plan> plan;
    for (const char* strategy : {"dp=8", "tp=2,dp=4", "tp=4,dp=2", "tp=8"}) {
      PlanRequest request{.model = each.model,
                          .cluster = on,
                          .strategy = strategy,
                          .global_batch = each.batch,
                          .seq = each.seq,
                          .dtype = "fp16",
                          .stack = "pytorch-ddp"};
      Result<Plan> made = make_plan(request);
      if (!made.ok()) continue;
      // One micro-batch, as the searches over operators have it.
      request.micro_batch = each.batch / made->batch.replicas;
      made = make_plan(request);
      if (!made.ok()) continue;
      const AnalyticCost cost(made->stack());
      Result<Forecast> forecast = weft::forecast(*made, cost);
      if (!forecast.ok() || !forecast->feasible) continue;
      if (best && best->step <= forecast->step) continue;
      best = std::move(*forecast);
      best_name = strategy;
      plan.emplace(std::move(*made));
    }
    if (!best) {
      fmt::print("| {} | no expert plan fits |\n", each.title);
      continue;
    }
    const AnalyticCost cost(plan->stack());
    const double start = cpu_seconds();
    const Planned found = plan_by_volume(plan->training(), 8);
    const double taken = cpu_seconds() - start;
    const Result<SoapJudgement> judged =
        judge({plan->training(), plan->cluster(), cost, plan->stack()}, found.strategy);
    if (!judged.ok()) {
      fmt::print("| {} | {} | {:.1f} | {} |\n", each.title, best_name, ms(best->step), judged.error().message);
      continue;
    }
    fmt::print("| {} | {} | {:.1f} | {:.1f} | {:.3f} | {} | {:.2f} |\n", each.title, best_name, ms(best->step),
               ms(judged->fair), over(judged->fair, best->step), found.grid, taken);
    std::fflush(stdout);
  }
  gaps();
}

void print_layerwise(const LayerwisePipeline& plan, const LayerTable& table) {
  fmt::print("{:.3f} s per step, {} micro-batches\n", ms(plan.time) * 1e-3, plan.micro_batches);
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    std::map<std::string, int> counts;
    for (std::size_t option : plan.stages[s].option) ++counts[print(table.options[option])];
    fmt::print("stage {}: layers {} to {}, {}:", s, plan.cut[s].first, plan.cut[s].last - 1,
               human(plan.stages[s].memory));
    for (const auto& [name, count] : counts) fmt::print(" {} × [{}]", count, name);
    fmt::print("\n");
  }
}

void layerwise(const Arguments& arguments) {
  const auto job = std::make_shared<const TrainingJob>(
      settle({.model = "llama2-7b", .cluster = "dgx-a100-40:1", .global_batch = 64, .seq = 4096}).value());
  const AnalyticCost cost(job->stack);
  const LayerTableRequest request{job, cost};
  const Bytes capacity{static_cast<std::int64_t>(arguments.number("gib", 36)) << 30};
  using Clock = std::chrono::steady_clock;
  const auto began = Clock::now();
  double start = cpu_seconds();
  std::map<std::int64_t, LayerTable> tables;
  std::vector<std::int64_t> micro_batches;
  for (std::int64_t m = 1; m <= *job->global_batch(); m *= 2) {
    Result<LayerTable> table = make_layer_table(request, m);
    if (!table.ok()) continue;
    tables.emplace(m, std::move(table).value());
    micro_batches.push_back(m);
  }
  const Bytes limit = layer_memory_limit(request, memory_budget(capacity, kHeadroom)).value();
  const double tabled = cpu_seconds() - start;
  start = cpu_seconds();
  const LayerwiseProblem problem{8,     micro_batches,   [&](std::int64_t m) { return &tables.at(m); },
                                 limit, Bytes{64 << 20}, 8};
  const auto found = best_layerwise(problem);
  fmt::print("{} tables of {} options: {:.2f} CPU s; search: {:.2f} CPU s; {:.2f} s by the clock\n", tables.size(),
             tables.begin()->second.options.size(), tabled, cpu_seconds() - start,
             std::chrono::duration<double>(Clock::now() - began).count());
  if (!found) {
    fmt::print("nothing fits\n");
    return;
  }
  print_layerwise(*found, tables.at(found->micro_batches));
  start = cpu_seconds();
  const std::optional<SaidPlan> said = best_said(problem);
  if (!said) {
    fmt::print("no plan of one ZeRO stage and one mesh per pipeline stage fits\n");
    return;
  }
  const LayerTable& table = said->tables.at(said->pipeline.micro_batches);
  fmt::print("the best that a strategy tree can say: {:.2f} CPU s\n", cpu_seconds() - start);
  print_layerwise(said->pipeline, table);
  const Graph graph = build_model(job->words.model, {.batch = 1, .seq = job->words.seq}).value();
  const Result<Strategy> tree = to_tree(said->pipeline, table, graph);
  if (!tree.ok()) {
    fmt::print("{}\n", tree.error().message);
    return;
  }
  const std::string file = arguments.text("out", "/tmp") + "/layerwise.yaml";
  std::ofstream(file) << to_yaml(*tree);
  PlanRequest played = job->words;
  played.strategy = file;
  const Result<Plan> plan = make_plan(played);
  const Result<Forecast> forecast =
      plan.ok() ? weft::forecast(*plan, AnalyticCost(plan->stack())) : Result<Forecast>(plan.error());
  if (forecast.ok())
    fmt::print("{} simulated: {:.3f} s per step, {} on the fullest device\n", file, forecast->step_s,
               human(forecast->fullest()->device_total));
  else
    fmt::print("{}\n", forecast.error().message);
}

}  // namespace
}  // namespace weft

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  weft::Arguments arguments;
  for (int i = 2; i < argc; ++i) {
    const std::string name = argv[i];
    const bool has_value = i + 1 < argc && std::string(argv[i + 1]).rfind("--", 0) != 0;
    if (name.rfind("--", 0) == 0) arguments.named[name.substr(2)] = has_value ? argv[++i] : "";
  }
  if (what == "flexflow") return weft::flexflow(arguments), 0;
  if (what == "front") return weft::front(arguments), 0;
  if (what == "exposed") return weft::exposed(), 0;
  if (what == "long") return weft::long_runs(arguments), 0;
  if (what == "speed") return weft::speed(arguments), 0;
  if (what == "symbolic") return weft::symbolic(arguments), 0;
  if (what == "layerwise") return weft::layerwise(arguments), 0;
  fmt::print(stderr, "soap_table flexflow|front|exposed|long|speed|symbolic|layerwise [--option value]...\n");
  return 2;
}
