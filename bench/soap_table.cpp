// FlexFlow's evaluation (Jia, Zaharia, Aiken, MLSys'19) on Weft's simulator: the six networks on its two clusters,
// searched by MCMC, against data parallelism and the experts' strategies.
//
//   soap_table [--seconds 60] [--cluster p100x4:4|k80x4:16] [--model nmt] [--seed 1]
//
// As there: 64 samples per device, AlexNet 256 in all; 40 unrolled steps; fp32; hosts take no time and communication
// runs beside computation. Prints markdown.
#include <fmt/format.h>

#include <cstdlib>
#include <cstring>
#include <string>

#include "cost/analytic.h"
#include "models/models.h"
#include "search/soap/bound.h"
#include "search/soap/mcmc.h"

namespace weft {
namespace {

struct Row {
  const char* title;
  const char* model;
  std::int64_t batch;  // of all; 0: 64 per device
};
constexpr Row kRows[] = {{"AlexNet", "alexnet", 256},    {"Inception-v3", "inception-v3", 0},
                         {"ResNet-101", "resnet101", 0}, {"RNNTC", "rnntc:seq=40", 0},
                         {"RNNLM", "rnnlm:seq=40", 0},   {"NMT", "nmt:seq=40", 0}};

SoftwareStack flexflow_stack() {
  SoftwareStack stack = without_host_time(find_stack("pytorch-ddp").value());
  stack.p2p_overlap.value = true;
  stack.tensor_overlap.value = true;
  return stack;
}

void run(const Row& row, const std::string& cluster_name, double seconds, std::uint64_t seed) {
  const Cluster cluster = parse_cluster(cluster_name).value();
  const auto devices = static_cast<int>(cluster.device_count());
  const TrainingGraph training =
      make_training_graph(
          build_model(row.model, {.batch = row.batch > 0 ? row.batch : 64 * devices, .dtype = DType::F32}).value(),
          {.optimizer = OptimizerKind::Momentum, .master_weights = false, .clip_norm = std::nullopt})
          .value();
  const SoftwareStack stack = flexflow_stack();
  const AnalyticCost cost(stack);
  const SoapProblem problem{training, cluster, cost, stack};
  std::vector<DeviceId> all;
  for (int i = 0; i < devices; ++i) all.emplace_back(static_cast<std::size_t>(i));
  SoapMeshes meshes({devices, 1, 1}, all);
  std::vector<SoapStrategy> seeds = {data_parallel_strategy(training, meshes),
                                     expert_strategy(training, cluster, meshes)};
  const Mesh& mesh = meshes.meshes()[MeshId(0)];
  TimePrices prices(cluster, cost, mesh);
  const LayoutProblem layouts = make_layout_problem(training, mesh, prices);
  const Chosen chosen = choose_best(layouts.choices);
  if (!chosen.option.empty()) {
    seeds.push_back(strategy_of(layouts, chosen.option, training, meshes));
    seeds.back().name = "exact";
  }
  const Result<McmcOutcome> found =
      search_mcmc(problem, seeds, {.evaluations = 1'000'000'000, .seconds = seconds}, {.seed = seed});
  if (!found.ok()) {
    fmt::print("| {} | {} | {} |\n", row.title, cluster_name, found.error().message);
    return;
  }
  const auto ms = [](Picoseconds time) { return static_cast<double>(time) * 1e-9; };
  const SoapJudgement best = judge(problem, found->best).value(), parallel = judge(problem, seeds[0]).value(),
                      expert = judge(problem, seeds[1]).value();
  fmt::print(
      "| {} | {} | {:.1f} | {:.1f} | {:.1f} | {:.1f} ({:.1f}) | {:.2f} | {:.2f} | {:.2f} / {:.2f} / {:.2f} | {:.0f} | "
      "{} of {} |\n",
      row.title, cluster_name, ms(found->seeds[0]), ms(found->seeds[1]), seeds.size() > 2 ? ms(found->seeds[2]) : 0.0,
      ms(best.fifo), ms(found->fifo), static_cast<double>(parallel.fair) / static_cast<double>(best.fair),
      static_cast<double>(expert.fair) / static_cast<double>(best.fair),
      static_cast<double>(parallel.bytes_moved) * 1e-9, static_cast<double>(expert.bytes_moved) * 1e-9,
      static_cast<double>(best.bytes_moved) * 1e-9, static_cast<double>(found->counts.considered) / seconds,
      found->accepted, found->counts.considered);
  const SoapBound bound = lower_bound(problem, all);
  fmt::print("<!-- bound: work {:.1f} path {:.1f} -->\n", ms(bound.work), ms(bound.path));
  for (const auto& [reason, count] : found->counts.pruned) fmt::print("<!-- {} {} -->\n", reason, count);
  std::fflush(stdout);
}

}  // namespace
}  // namespace weft

int main(int argc, char** argv) {
  double seconds = 60;
  std::uint64_t seed = 1;
  std::string cluster, model;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string option = argv[i];
    if (option == "--seconds") seconds = std::atof(argv[i + 1]);
    if (option == "--seed") seed = static_cast<std::uint64_t>(std::atoll(argv[i + 1]));
    if (option == "--cluster") cluster = argv[i + 1];
    if (option == "--model") model = argv[i + 1];
  }
  fmt::print(
      "| network | cluster | data parallel ms | expert ms | exact ms | found ms (in search) | over data parallel | "
      "over expert "
      "| moved GB: dp / expert / found | proposals/s | accepted |\n|---|---|---|---|---|---|---|---|---|---|---|\n");
  for (const std::string& each :
       cluster.empty() ? std::vector<std::string>{"p100x4:4", "k80x4:16"} : std::vector{cluster})
    for (const weft::Row& row : weft::kRows)
      if (model.empty() || std::string(row.model).starts_with(model)) weft::run(row, each, seconds, seed);
}
