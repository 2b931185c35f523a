// How the symbolic model orders plans.
//
//   symbolic_check random [PLANS] [SLOWER] [FLOPS_PER_BYTE]
//                                               against the simulator with analytic costs, on links SLOWER times slower
//   symbolic_check measured RUNS.csv…         against measured runs, beside the analytic model
//
// Kendall's τ within groups that differ in the plan alone. `random` draws tp, dp and zero at fixed pipeline depth and
// micro-batch, as many plans for each of a few models and clusters.
#include <fmt/format.h>

#include <fstream>
#include <iostream>

#include "base/random.h"
#include "cost/analytic.h"
#include "cost/symbolic.h"
#include "forecast/forecast.h"
#include "validate/validate.h"

namespace weft {
namespace {

// The analytic model on links that carry less.
class SlowLinks final : public CostModel {
 public:
  SlowLinks(const SoftwareStack& stack, double slower) : model_(stack), slower_(slower) {}

  void compute(std::span<const ComputeQuery> queries, std::span<ComputeCost> costs) const override {
    model_.compute(queries, costs);
  }
  void communicate(std::span<const CommunicateQuery> queries, std::span<CommunicateCost> costs) const override {
    model_.communicate(queries, costs);
    for (CommunicateCost& cost : costs)
      cost.cap = std::max<std::int64_t>(cost.cap > 0 ? 1 : 0,
                                        static_cast<std::int64_t>(static_cast<double>(cost.cap) / slower_));
  }
  std::int64_t capacity(const Link& link) const override {
    return std::max<std::int64_t>(1, static_cast<std::int64_t>(static_cast<double>(model_.capacity(link)) / slower_));
  }
  Interference interference(const DeviceSpec& device) const override { return model_.interference(device); }

 private:
  AnalyticCost model_;
  double slower_;
};

Status random_plans(int plans, double slower, double flops_per_byte) {
  struct Setting {
    const char *model, *cluster;
    int devices, pp, batch, seq;  // batch: samples of a step
  };
  const Setting settings[] = {
      {"gpt3-1.3b", "dgx-a100:1", 8, 1, 64, 2048},    {"llama3-8b:layers=16", "dgx-h100:2", 16, 1, 64, 4096},
      {"gpt3-6.7b", "dgx-a100:4", 32, 2, 256, 2048},  {"bert-large", "dgx-a100:2", 16, 1, 256, 512},
      {"llama2-13b", "dgx-h100:8", 64, 2, 256, 4096}, {"gpt3-2.7b", "dgx-a100:2", 16, 1, 128, 2048},
      {"llama2-7b", "dgx-a100:4", 32, 1, 128, 4096},  {"gpt3-13b", "dgx-h100:4", 32, 4, 256, 2048}};
  Concordance all;
  int played = 0;
  fmt::print("{:<24}{:<14}{:>6}{:>8}{:>8}{:>12}\n", "model", "cluster", "plans", "pairs", "tau", "tau, tiers");
  for (std::size_t i = 0; i < std::size(settings); ++i) {
    const Setting& setting = settings[i];
    Rng rng(20260000 + i);
    std::vector<double> simulated, symbolic, tiered;
    const int wanted = plans * static_cast<int>(i + 1) / static_cast<int>(std::size(settings)) - played;
    std::vector<std::string> seen;
    for (int tries = 0; static_cast<int>(simulated.size()) < wanted && tries < 40 * wanted; ++tries) {
      const int tp = 1 << rng.below(4), dp = setting.devices / setting.pp / tp;
      if (dp < 1) continue;
      const std::string strategy =
          fmt::format("tp={},pp={},dp={},zero={},sp={}", tp, setting.pp, dp, rng.below(4), tp > 1 ? rng.below(2) : 0);
      PlanRequest request{.model = setting.model, .cluster = setting.cluster, .strategy = strategy};
      request.micro_batch = 1;
      request.global_batch = setting.batch;
      request.seq = setting.seq;
      const Result<Plan> plan = make_plan(request);
      if (!plan.ok() || std::find(seen.begin(), seen.end(), strategy) != seen.end()) continue;
      seen.push_back(strategy);
      WEFT_TRY(const Forecast slow, forecast(*plan, SlowLinks(plan->stack(), slower)));
      WEFT_TRY(const Forecast relative,
               forecast(*plan, SymbolicCost({.flops_per_byte = flops_per_byte}), {.host = false}));
      WEFT_TRY(const Forecast weighed,
               forecast(*plan, SymbolicCost({.flops_per_byte = flops_per_byte, .between_nodes = 8}), {.host = false}));
      simulated.push_back(slow.step_s);
      symbolic.push_back(relative.step_s);
      tiered.push_back(weighed.step_s);
    }
    played += static_cast<int>(simulated.size());
    const Concordance found = concordance(simulated, symbolic, 0), with_tiers = concordance(simulated, tiered, 0);
    all += found;
    fmt::print("{:<24}{:<14}{:>6}{:>8}{:>8.3f}{:>12.3f}\n", setting.model, setting.cluster, simulated.size(),
               found.pairs(), found.tau(), with_tiers.tau());
  }
  fmt::print("{} plans on links {} times slower: Kendall's tau {:.3f} over {} pairs\n", played, slower, all.tau(),
             all.pairs());
  return Ok{};
}

Status measured_plans(const std::vector<std::string>& paths) {
  WEFT_TRY(const MappingRules rules, read_mapping_rules("tools/published_runs.yaml"));
  for (const std::string& path : paths) {
    if (!std::ifstream(path))
      return error("{}: not there; the table of measured runs is needed, nothing was compared", path);
    WEFT_TRY(const MeasuredFile file, read_measured(path));
    const Validation analytic = validate_measured({file}, {.rules = rules, .worst = 0});
    std::map<std::string, std::array<std::vector<double>, 4>> groups;
    for (const Prediction& row : analytic.predictions) {
      WEFT_TRY(const Plan plan, make_plan(row.request));
      WEFT_TRY(const Forecast plain, forecast(plan, SymbolicCost(), {.host = false}));
      WEFT_TRY(const Forecast tiered, forecast(plan, SymbolicCost({.between_nodes = 8}), {.host = false}));
      auto& group = groups[row.group];
      group[0].push_back(row.measured_s);
      group[1].push_back(plain.step_s);
      group[2].push_back(tiered.step_s);
      group[3].push_back(row.predicted_s);
    }
    std::array<Concordance, 3> all;
    fmt::print("{}\n{:>5}{:>7}{:>10}{:>10}{:>10}\n", path, "rows", "pairs", "symbolic", "8x nodes", "analytic");
    const auto line = [](std::size_t rows, const std::array<Concordance, 3>& by, std::string_view name) {
      fmt::print("{:>5}{:>7}{:>10.3f}{:>10.3f}{:>10.3f}  {}\n", rows, by[2].pairs(), by[0].tau(), by[1].tau(),
                 by[2].tau(), name);
    };
    for (const auto& [name, values] : groups) {
      std::array<Concordance, 3> own;
      for (std::size_t i = 0; i < 3; ++i) all[i] += own[i] = concordance(values[0], values[i + 1]);
      if (own[2].pairs() > 0) line(values[0].size(), own, name);
    }
    line(analytic.predictions.size(), all, "all, Kendall's tau");
  }
  return Ok{};
}

int start(int count, char** words) {
  const std::vector<std::string> arguments(words + 1, words + count);
  Status status =
      error("usage: symbolic_check random [PLANS] [SLOWER] [FLOPS_PER_BYTE] | symbolic_check measured RUNS.csv…");
  if (!arguments.empty() && arguments[0] == "random")
    status = random_plans(arguments.size() > 1 ? std::atoi(arguments[1].c_str()) : 200,
                          arguments.size() > 2 ? std::atof(arguments[2].c_str()) : 10,
                          arguments.size() > 3 ? std::atof(arguments[3].c_str()) : SymbolicOptions{}.flops_per_byte);
  else if (arguments.size() > 1 && arguments[0] == "measured")
    status = measured_plans({arguments.begin() + 1, arguments.end()});
  if (status.ok()) return 0;
  std::cerr << status.error().message << "\n";
  return 1;
}

}  // namespace
}  // namespace weft

int main(int count, char** words) { return weft::start(count, words); }
