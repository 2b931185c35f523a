// The best strategy of a small network on one small node, for certain (soap/optimum.h), and whether MCMC finds
// it.
//
//   soap_optimum lenet|rnnlm [--nodes 50000000] [--evaluations 20000] [--checks 2000]
#include <fmt/format.h>

#include <cstdlib>
#include <string>

#include "cost/analytic.h"
#include "cpu_seconds.h"
#include "models/models.h"
#include "optimum/optimum.h"
#include "soap/mcmc.h"
#include "soap/soap.h"

namespace weft {
namespace {

double us(Picoseconds time) { return static_cast<double>(time) * 1e-6; }

void print(const SoapStrategy& strategy, const Graph& graph) {
  for (OpId op : strategy.ops.ids()) {
    const OpConfig& config = strategy.ops[op];
    const auto axes = axes_of(config, graph.signature(op));
    const Mesh& mesh = strategy.meshes[config.mesh];
    fmt::print("  {:24}", graph.name(op));
    for (std::size_t m = 0; m < kSoapAxes; ++m)
      if (mesh.axes()[m].size > 1)
        fmt::print(" {} {} by {}", axes[m]->axis.empty() ? "whole" : axes[m]->axis, mesh.axes()[m].size,
                   mesh.axes()[m].name);
    fmt::print(" on");
    for (DeviceId device : mesh.devices()) fmt::print(" {}", device.index());
    fmt::print("\n");
  }
}

int run(const std::string& what, std::int64_t nodes, std::int64_t evaluations, std::int64_t checks) {
  const Cluster cluster = parse_cluster("p100x4:1").value();
  const std::int64_t batch = 64 * cluster.device_count();
  const TrainingGraph training =
      make_training_graph(
          build_model(what == "lenet" ? "lenet" : "rnnlm:seq=2", {.batch = batch, .dtype = DType::F32}).value(),
          {.optimizer = OptimizerKind::Momentum, .master_weights = false, .clip_norm = std::nullopt})
          .value();
  SoftwareStack stack = without_host_time(find_stack("pytorch-ddp").value());
  stack.p2p_overlap.value = true;
  stack.tensor_overlap.value = true;
  const AnalyticCost cost(stack);
  double start = cpu_seconds();
  const SoapOutcome walked =
      search_soap(training, cluster, cost, stack, {.budget = {.evaluations = evaluations}}).value();
  for (const SoapCandidate& candidate : walked.candidates)
    if (candidate.judged) fmt::print("{}: {:.3f} us\n", candidate.name, us(candidate.judged->fifo));
  fmt::print("MCMC: {:.3f} us, {} simulated, {:.1f} CPU s\n", us(walked.judged.fifo), walked.counts.simulated,
             cpu_seconds() - start);
  print(walked.strategy, training.graph);
  start = cpu_seconds();
  const Optimum found = find_optimum({training, cluster, cost, stack},
                                     {.known = walked.judged.fifo, .most_nodes = nodes, .checks = checks});
  for (const auto& [name, configurations] : found.units) fmt::print("{}: {} configurations\n", name, configurations);
  fmt::print("{:.3g} strategies; nothing assigned: at least {:.3f} us; known: {:.3f} us\n", found.strategies,
             us(found.root), us(walked.judged.fifo));
  fmt::print("bound checked on {} strategies: at most {:.4f} of the time\n", found.checked, found.closest);
  fmt::print("{} after {} nodes, {} leaves simulated, {:.0f} CPU s\nbest: {:.3f} us{}\n",
             found.complete ? "complete" : "stopped", found.nodes, found.leaves, cpu_seconds() - start, us(found.time),
             found.better ? "" : " (none is better than the known one)");
  fmt::print("least bound of what was not looked into: {:.3f} us\n", us(found.open));
  if (found.better) print(*found.better, training.graph);
  return 0;
}

}  // namespace
}  // namespace weft

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "lenet";
  std::int64_t nodes = 50'000'000, evaluations = 20'000, checks = 2'000;
  for (int i = 2; i + 1 < argc; i += 2) {
    if (std::string(argv[i]) == "--nodes") nodes = std::atoll(argv[i + 1]);
    if (std::string(argv[i]) == "--evaluations") evaluations = std::atoll(argv[i + 1]);
    if (std::string(argv[i]) == "--checks") checks = std::atoll(argv[i + 1]);
  }
  return weft::run(what, nodes, evaluations, checks);
}
