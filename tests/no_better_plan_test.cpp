// Whether a plan is better than what the search found, or faster than its bound: plans within two knob changes of the
// fastest, plans that recompute in fewer layers, and climbs from random plans that fit, one knob at a time. All of them
// are simulated.
//
// In CI two small problems with few plans each. WEFT_PAIRS=15 takes as many of the problems below, with all plans one
// change away (WEFT_NEAREST: so many), WEFT_PLANS (default 60) of those two away, and WEFT_CLIMBS (50) climbs, drawn
// from WEFT_SEED.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <set>
#include <string>

#include "base/random.h"
#include "cost/analytic.h"
#include "hybrid/enumerate.h"
#include "hybrid/neighbours.h"
#include "problem/parallel.h"
#include "strategy/stages.h"

namespace weft {
namespace {

struct Pair {
  const char *model, *cluster;
  std::int64_t batch, seq;
};
constexpr Pair kSmall[] = {{"llama3-8b:layers=4", "dgx-h100:1", 12, 2048},
                           {"mixtral-8x7b:layers=2", "dgx-h100:1", 16, 2048}};
constexpr Pair kPairs[] = {{"gpt2-124m", "dgx-a100:1", 64, 1024},     {"vit-b-16", "dgx-h100:1", 1024, 0},
                           {"llama3-8b", "dgx-h100:1", 6, 4096},      {"vit-h-14", "dgx-a100:2", 4096, 0},
                           {"bert-large", "a40x4:4", 256, 512},       {"gpt3-13b", "dgx-a100:2", 64, 2048},
                           {"mixtral-8x7b", "dgx-h100:4", 128, 4096}, {"llama3-70b", "dgx-h100:8", 256, 8192},
                           {"qwen3-235b", "dgx-h100:32", 512, 8192},  {"deepseek-v3", "hgx-h800:32", 2048, 4096},
                           {"gpt3-175b", "dgx-a100:128", 1536, 2048}, {"llama3.1-405b", "dgx-h100:256", 512, 8192},
                           {"t5-3b", "dgx-a100:2", 512, 512},         {"resnet50", "dgx-a100:2", 4096, 0},
                           {"dlrm-mlperf", "dgx-a100:1", 65536, 0}};

int number_in(const char* name, int otherwise) {
  const char* const text = std::getenv(name);
  return text ? std::atoi(text) : otherwise;
}

class Checked {
 public:
  Checked(const PlanProblem& problem, const CostModel& cost) : problem_(problem), cost_(cost) {}

  // Step times of these plans, kNever of those that do not fit or compile; each is simulated once.
  std::vector<double> times(const std::vector<Parallelism>& plans) {
    std::vector<std::string> names;
    std::vector<std::size_t> fresh;
    for (const Parallelism& plan : plans) {
      names.push_back(print(shorthand_of(plan)));
      if (known_.emplace(names.back(), kNever).second) fresh.push_back(names.size() - 1);
    }
    std::vector<double> found(fresh.size(), kNever);
    for_each_index(fresh.size(), 0, 1, [&](std::size_t i) {
      const Result<Judged> judged = judge_strategy(problem_, cost_, choose_strategy(plans[fresh[i]]), &graphs_);
      if (judged.ok() && judged->score().fits()) found[i] = judged->forecast.step_s;
    });
    for (std::size_t i = 0; i < fresh.size(); ++i) known_[names[fresh[i]]] = found[i];
    std::vector<double> all;
    for (const std::string& name : names) all.push_back(known_.at(name));
    return all;
  }

  const std::map<std::string, double>& known() const { return known_; }
  static constexpr double kNever = 1e30;

 private:
  const PlanProblem& problem_;
  const CostModel& cost_;
  GraphCache graphs_{8};
  std::map<std::string, double> known_;
};

template <class T>
std::vector<T> drawn(std::vector<T> list, std::size_t most, Rng& rng) {
  for (std::size_t i = 0; i + 1 < list.size() && i < most; ++i)
    std::swap(list[i], list[i + rng.below(list.size() - i)]);
  if (list.size() > most) list.resize(most);
  return list;
}

// Plans that recompute the same in fewer layers: half of those of every stage, one layer less, none in one stage.
std::vector<Parallelism> in_fewer_layers(const PlanProblem& problem, const Parallelism& plan) {
  std::vector<Parallelism> found;
  if (problem.layers.count() == 0) return found;
  const std::vector<std::int64_t> stages =
      plan.stages.empty() ? even_stages(problem.layers.count(), plan.pp * plan.vpp) : plan.stages;
  const auto vary = [&](const auto& layers_of) {
    Parallelism changed = plan;
    std::vector<std::int64_t>& layers = layers_of(changed);
    std::vector<std::int64_t> now = layers.empty() ? stages : layers;
    now.resize(stages.size(), now.front());
    const auto add = [&](auto change) {
      layers = now;
      for (std::size_t stage = 0; stage < layers.size(); ++stage) layers[stage] = change(layers[stage], stage);
      found.push_back(changed);
    };
    add([](std::int64_t each, std::size_t) { return each / 2; });
    add([](std::int64_t each, std::size_t) { return std::max<std::int64_t>(0, each - 1); });
    for (std::size_t last = 0; last < std::min<std::size_t>(stages.size(), 8); ++last)
      add([&](std::int64_t each, std::size_t stage) { return stage == last ? 0 : each; });
  };
  if (plan.recompute != Recompute::None)
    vary([](Parallelism& changed) -> std::vector<std::int64_t>& { return changed.recompute_layers; });
  for (std::size_t i = 0; i < plan.full.size(); ++i)
    vary([i](Parallelism& changed) -> std::vector<std::int64_t>& { return changed.full[i].layers; });
  return found;
}

void expect_none_better(const Pair& pair, std::size_t nearest, std::size_t second, int climbs) {
  PlanRequest request{.model = pair.model, .cluster = pair.cluster, .strategy = "", .global_batch = pair.batch};
  if (pair.seq > 0) request.seq = pair.seq;
  const Result<PlanProblem> problem = pose(request);
  ASSERT_TRUE(problem.ok()) << problem.error().message;
  const AnalyticCost cost(problem->stack());
  const Result<PlanOutcome> outcome = enumerate(*problem, cost);
  ASSERT_TRUE(outcome.ok()) << outcome.error().message;
  ASSERT_FALSE(outcome->best.empty()) << pair.model;
  const Judged& fastest = outcome->fastest();
  Checked checked(*problem, cost);
  Rng rng(number_in("WEFT_SEED", 19));
  const std::vector<Parallelism> near = one_knob_changed(*problem, {}, *fastest.parallelism);
  checked.times(drawn(near, nearest, rng));
  for (const Judged& each : outcome->best)
    if (each.parallelism) checked.times(drawn(in_fewer_layers(*problem, *each.parallelism), nearest, rng));
  std::vector<Parallelism> far;
  for (const Parallelism& each : drawn(near, second, rng))
    for (const Parallelism& other : drawn(one_knob_changed(*problem, {}, each), 4, rng)) far.push_back(other);
  checked.times(drawn(far, second, rng));
  const std::vector<HybridPlan> plans = enumerate_space(*problem, {.recompute = {PlanRecompute::Op}}).plans;
  int climbed = 0;
  for (int tries = 0; climbed < climbs && tries < 20 * climbs; ++tries) {
    Parallelism at = parallelism_of(plans[rng.below(plans.size())], problem->layers);
    double now = checked.times({at}).front();
    if (now == Checked::kNever) continue;
    ++climbed;
    // The first better one of a few neighbours, until none of them is.
    for (bool better = true; better;) {
      better = false;
      const std::vector<Parallelism> around = drawn(one_knob_changed(*problem, {}, at), climbs > 10 ? 12 : 4, rng);
      const std::vector<double> times = checked.times(around);
      for (std::size_t i = 0; i < times.size(); ++i)
        if (times[i] < now) {
          at = around[i];
          now = times[i];
          better = true;
        }
    }
  }
  EXPECT_GT(outcome->lower_bound_s, 0) << pair.model << ": the bound is refuted";
  const double bound = std::min(outcome->lower_bound_s, fastest.forecast.step_s);
  std::string best;
  double least = Checked::kNever;
  std::size_t fit = 0;
  for (const auto& [name, time] : checked.known()) {
    fit += time < Checked::kNever;
    if (time < least) least = time, best = name;
    EXPECT_GE(time, bound) << pair.model << " " << name << ": below the bound";
  }
  fmt::print(
      "{} on {}, {} samples: {:.5g} s, gap {:.1f} %{}, {:.1f} s; {} others simulated ({} fit), {} climbs: {:+.2f} %, "
      "{}\n",
      pair.model, pair.cluster, pair.batch, fastest.forecast.step_s, 100 * outcome->gap().value_or(0),
      outcome->bound_is_estimate ? " (estimate)" : "", outcome->seconds, checked.known().size(), fit, climbed,
      100 * (least / fastest.forecast.step_s - 1), best);
  std::fflush(stdout);
  EXPECT_GT(least, 0.995 * fastest.forecast.step_s) << pair.model << ": " << fastest.strategy << "\n" << best;
}

TEST(NoBetterPlan, IsNearTheFastestOfSmallProblemsNorReachedByClimbing) {
  for (const Pair& pair : kSmall) expect_none_better(pair, 24, 16, 3);
}

TEST(NoBetterPlan, IsNearTheFastestOfLargeProblemsNorReachedByClimbing) {
  const int pairs = number_in("WEFT_PAIRS", 0), first = number_in("WEFT_FIRST_PAIR", 0);
  if (pairs == 0) GTEST_SKIP() << "WEFT_PAIRS: how many of the large problems to check";
  const auto plans = static_cast<std::size_t>(number_in("WEFT_PLANS", 60));
  for (int i = first; i < std::min<int>(first + pairs, std::size(kPairs)); ++i)
    expect_none_better(kPairs[i], static_cast<std::size_t>(number_in("WEFT_NEAREST", 1000)), plans,
                       number_in("WEFT_CLIMBS", 50));
}

}  // namespace
}  // namespace weft
