// Figures of the enumeration: how many plans a second get time and memory, how long whole searches take, and DistSim's
// use-case judged in full and by composition. Prints wall-clock and processor seconds; asserts nothing.
//
//   build/release/bin/plan_figures [rates] [pruned] [searches] [distsim]       (default: all)
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <set>

#include "base/memory.h"
#include "cost/analytic.h"
#include "cpu_seconds.h"
#include "hybrid/enumerate.h"
#include "problem/parallel.h"

namespace weft {
namespace {

double wall_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

struct Watch {
  double wall = wall_seconds(), processor = cpu_seconds();

  std::string print() const {
    return fmt::format("{:.2f} s wall, {:.2f} s of processors", wall_seconds() - wall, cpu_seconds() - processor);
  }
};

PlanRequest asked(const char* model, const char* cluster, std::int64_t batch, std::int64_t seq) {
  PlanRequest request;
  request.model = model;
  request.cluster = cluster;
  request.global_batch = batch;
  request.seq = seq;
  return request;
}

// Time and memory for every plan of the space, no bounds.
Status rate(const char* model, const char* cluster, std::int64_t batch, std::int64_t seq, bool context) {
  const Watch watch;
  WEFT_TRY(const PlanProblem problem, pose(asked(model, cluster, batch, seq)));
  const AnalyticCost cost(problem.stack());
  SpaceOptions options = SpaceOptions::whole();
  if (!context) options.least_context = seq;
  const HybridSpace space = enumerate_space(problem, options);
  Composer composer(problem, cost);
  composer.prepare(space.plans, 0);
  const Watch composing;
  std::vector<std::optional<Composition>> made(space.plans.size());
  for_each_index(made.size(), 0, 64, [&](std::size_t i) { made[i] = composer.compose(space.plans[i]); });
  std::int64_t composed = 0, fit = 0;
  for (const auto& each : made) composed += each.has_value(), fit += each && each->fits();
  fmt::print("{} on {}{}: {} plans with time and memory ({} fit), {} probes: {}; of which composing {}\n", model,
             cluster, context ? "" : ", no context parallelism", composed, fit, composer.probes(), watch.print(),
             composing.print());
  return Ok{};
}

// The same space, bounds and memory prune; baselines are all that is simulated.
Status pruned_rate(const char* model, const char* cluster, std::int64_t batch, std::int64_t seq) {
  WEFT_TRY(const PlanProblem problem, pose(asked(model, cluster, batch, seq)));
  const AnalyticCost cost(problem.stack());
  EnumerateOptions options;
  options.space = SpaceOptions::whole();
  options.budget.evaluations = 4;
  const Watch watch;
  WEFT_TRY(const PlanOutcome outcome, enumerate(problem, cost, options));
  fmt::print("{} on {}: considered {} with pruning, {} simulated: {}\n", model, cluster, outcome.counts.considered,
             outcome.counts.simulated, watch.print());
  return Ok{};
}

Status whole_search(const char* model, const char* cluster, std::int64_t batch, std::int64_t seq) {
  const Watch watch;
  WEFT_TRY(const PlanProblem problem, pose(asked(model, cluster, batch, seq)));
  const AnalyticCost cost(problem.stack());
  WEFT_TRY(const PlanOutcome outcome, enumerate(problem, cost));
  if (outcome.best.empty()) return error("{} on {}: nothing fits", model, cluster);
  fmt::print(
      "{} on {}: {} · {:.3f} s · MFU {:.1f} % · gap {:.1f} % · composed {:+.2f} % · considered {}, simulated {}: {}\n",
      model, cluster, outcome.best.front().strategy, outcome.best.front().forecast.step_s,
      100 * outcome.best.front().forecast.mfu, 100 * outcome.gap(), 100 * outcome.composition_error,
      outcome.counts.considered, outcome.counts.simulated, watch.print());
  return Ok{};
}

// 48-layer BERT on 16 A40, batch 16: the 15 ways to write 16 = tp · pp · dp (Lu et al., CF'23, section 6).
Status distsim() {
  PlanRequest request = asked("bert-large:layers=48", "a40x4:4", 16, 512);
  WEFT_TRY(const PlanProblem problem, pose(request));
  const AnalyticCost cost(problem.stack());
  Composer composer(problem, cost);
  struct Row {
    std::string strategy;
    double simulated, composed, make_ms, compile_ms, price_ms, simulate_ms, judge_ms, composed_us;

    double all_ms() const { return make_ms + compile_ms + price_ms + simulate_ms + judge_ms; }
  };
  std::vector<Row> rows;
  for (int tp = 1; tp <= 16; tp *= 2)
    for (int pp = 1; tp * pp <= 16; pp *= 2) {
      HybridPlan plan;
      plan.tp = tp;
      plan.pp = pp;
      plan.dp = 16 / tp / pp;
      plan.micro_batches = 16 / plan.dp;
      composer.prepare({&plan, 1}, 1);
      const std::string strategy = print(shorthand_of(parallelism_of(plan, problem.layers)));
      const double start = cpu_seconds();
      PlanRequest own = problem.job->words;
      own.strategy = strategy;
      WEFT_TRY(const Plan whole, make_plan(own));
      const double made_plan = cpu_seconds();
      WEFT_TRY(CompiledStrategy compiled, compile_plan(whole));
      const double made_program = cpu_seconds();
      PlayTimes times;
      WEFT_TRY(PlayedProgram program, play_compiled(whole, whole.stack(), compiled, cost, {}, &times));
      const double simulated = cpu_seconds();
      // Seconds of the processor, in the parts that the clock on the wall has.
      const double pricing = (simulated - made_program) * times.price / (times.price + times.simulate);
      const PlayedPlan played{std::move(compiled), std::move(program.priced), std::move(program.run), program.folded};
      const Forecast found = judge(whole, played);
      const double between = cpu_seconds();
      const std::optional<Composition> made = composer.compose(plan);
      const double end = cpu_seconds();
      rows.push_back({strategy, found.step_s, made ? made->step_s : 0, 1e3 * (made_plan - start),
                      1e3 * (made_program - made_plan), 1e3 * pricing, 1e3 * (simulated - made_program - pricing),
                      1e3 * (between - simulated), 1e6 * (end - between)});
    }
  const auto by = [](double Row::*key) { return [key](const Row& a, const Row& b) { return a.*key < b.*key; }; };
  std::sort(rows.begin(), rows.end(), by(&Row::simulated));
  fmt::print("BERT of 48 layers on 16 A40, batch 16: best to worst\n");
  for (const Row& row : rows)
    fmt::print(
        "  {:<34} {:8.2f} ms simulated in {:5.1f} ms ({:4.1f} planning, {:4.1f} compiling, {:4.1f} pricing, {:4.1f} "
        "playing, {:4.1f} judging)   {:8.2f} ms composed in {:4.0f} us\n",
        row.strategy, 1e3 * row.simulated, row.all_ms(), row.make_ms, row.compile_ms, row.price_ms, row.simulate_ms,
        row.judge_ms, 1e3 * row.composed, row.composed_us);
  std::int64_t agree = 0, pairs = 0;
  for (std::size_t i = 0; i < rows.size(); ++i)
    for (std::size_t j = i + 1; j < rows.size(); ++j) ++pairs, agree += rows[i].composed <= rows[j].composed;
  fmt::print("  worst/best {:.2f} simulated, {:.2f} composed (the paper: 7.37); {} of {} pairs in the same order\n",
             rows.back().simulated / rows.front().simulated,
             std::max_element(rows.begin(), rows.end(), by(&Row::composed))->composed /
                 std::min_element(rows.begin(), rows.end(), by(&Row::composed))->composed,
             agree, pairs);
  return Ok{};
}

Status run(const std::set<std::string>& words) {
  const auto wanted = [&](const char* word) { return words.empty() || words.contains(word); };
  if (wanted("rates")) {
    for (const bool context : {false, true}) {
      WEFT_TRY_OK(rate("gpt3-175b", "dgx-a100:128", 1536, 2048, context));
      WEFT_TRY_OK(rate("mt-nlg-530b", "dgx-a100:280", 2240, 2048, context));
    }
  }
  if (wanted("pruned")) {
    WEFT_TRY_OK(pruned_rate("gpt3-175b", "dgx-a100:128", 1536, 2048));
    WEFT_TRY_OK(pruned_rate("mt-nlg-530b", "dgx-a100:280", 2240, 2048));
  }
  if (wanted("searches")) {
    WEFT_TRY_OK(whole_search("llama3-70b", "dgx-h100:16", 1024, 8192));
    WEFT_TRY_OK(whole_search("gpt3-175b", "dgx-a100:128", 1536, 2048));
    WEFT_TRY_OK(whole_search("mt-nlg-530b", "dgx-a100:280", 2240, 2048));
    WEFT_TRY_OK(whole_search("llama3.1-405b", "dgx-h100:2048", 2048, 8192));
    WEFT_TRY_OK(whole_search("deepseek-v3", "hgx-h800:256", 15360, 4096));
  }
  if (wanted("distsim")) WEFT_TRY_OK(distsim());
  return Ok{};
}

}  // namespace
}  // namespace weft

int main(int argc, char** argv) {
  weft::keep_freed_memory();  // as the command line does
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  const weft::Status done = weft::run({argv + 1, argv + argc});
  if (!done.ok()) fmt::print(stderr, "plan_figures: {}\n", done.error().message);
  return done.ok() ? 0 : 2;
}
