// Properties of whole predictions, over models, clusters, stacks and strategies drawn at random: every plan that
// compiles runs to its end, a breakdown sums to its step, folded and unfolded devices give the same times, micro-batches
// that are counted those that are simulated, and more work takes no less time.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <thread>

#include "base/random.h"
#include "cost/analytic.h"
#include "forecast/forecast.h"
#include "program/schedule.h"

namespace weft {
namespace {

struct ModelShape {
  std::string family;  // with all overrides but the layers
  int layers;          // 0: it has none to count
  bool tokens, experts;
};
const ModelShape kModels[] = {
    {"llama3-8b:hidden=512,heads=8,kv_heads=8,ffn=1024,vocab=4096", 8, true, false},
    {"gpt2-124m:hidden=512,heads=8,vocab=4096", 8, true, false},
    {"mixtral-8x7b:hidden=256,heads=8,kv_heads=8,ffn=512,vocab=4096,experts=8,capacity_factor=2", 8, true, true},
    {"t5-11b:hidden=256,heads=8,ffn=512,vocab=4096", 8, true, false},
    {"resnet50", 0, false, false},
    {"nmt:hidden=256,vocab=4096", 0, false, false},
};
// Odd nodes, two kinds of devices, one node.
const std::pair<const char*, int> kClusters[] = {
    {"dgx-h100:1", 8}, {"dgx-a100:2", 16}, {"dgx-a100:3", 24}, {"dgx-h100:1+dgx-a100:1", 16}, {"a40x4:2", 8}};

template <class List>
const auto& any_of(const List& list, Rng& rng) {
  return list[rng.below(std::size(list))];
}

// Degrees each of which divides the devices that the earlier ones leave.
std::string random_strategy(const ModelShape& model, std::int64_t devices, Rng& rng) {
  const auto degree = [&](std::int64_t most, bool wanted) {
    std::int64_t chosen = 1;
    while (wanted && chosen < most && devices % 2 == 0 && rng.below(2) == 0) {
      chosen *= 2;
      devices /= 2;
    }
    return chosen;
  };
  const std::int64_t tp = degree(8, model.tokens), pp = degree(8, rng.below(2) == 0), cp = degree(4, model.tokens);
  std::string text = fmt::format("tp={},pp={},dp={}", tp, pp, devices);
  if (cp > 1) text += fmt::format(",cp={},cp_mode={}", cp, any_of(std::array{"gather", "a2a", "ring"}, rng));
  if (tp > 1 && rng.below(3) == 0) text += ",sp=0";
  if (model.experts && devices % 2 == 0 && rng.below(2) == 0) text += ",ep=2";
  text += fmt::format(",zero={}", rng.below(4));
  if (rng.below(3) == 0) text += fmt::format(",recompute={}", any_of(std::array{"full", "op", "selective"}, rng));
  if (rng.below(4) == 0)
    text += fmt::format(",offload={}", any_of(std::array{"optimizer", "activations", "weights", "gradients"}, rng));
  if (pp > 1) {
    const std::vector<std::string> schedules = schedule_names();
    const std::string& schedule = any_of(schedules, rng);
    text += ",schedule=" + schedule;
    if (schedule == "interleaved") text += ",vpp=2";
  }
  return text;
}

struct Drawn {
  PlanRequest request;
  const ModelShape* shape = nullptr;
  bool many = false;  // micro-batches too are multiplied
};

Drawn draw(Rng& rng) {
  const ModelShape& model = any_of(kModels, rng);
  const auto& [cluster, devices] = any_of(kClusters, rng);
  PlanRequest request{.model = model.family, .cluster = cluster, .strategy = random_strategy(model, devices, rng)};
  if (model.layers > 0) request.model += fmt::format(",layers={}", model.layers);
  request.global_batch = static_cast<std::int64_t>(devices) * (rng.below(2) == 0 ? 2 : 4);
  if (model.tokens) request.seq = 256;
  // Frameworks by one draw; Weft's own executor instead of some of them, by another.
  static const std::vector<std::string> frameworks = [] {
    std::vector<std::string> names = stack_names();
    std::erase_if(names, [](const std::string& name) { return name.starts_with("weft"); });
    return names;
  }();
  Rng own = rng.split(1);
  request.stack = any_of(frameworks, rng);
  if (own.below(16) == 0) request.stack = own.below(2) == 0 ? "weft" : "weft-cuda";
  return {std::move(request), &model, own.below(6) == 0};
}

struct Counts {
  std::atomic<int> refused = 0, played = 0, folded = 0, breakdowns = 0, growths = 0, counted = 0;
};

// Of the plan with many micro-batches, recorded and with those counted that repeat earlier ones.
std::string problem_of_many(const Drawn& drawn, const Plan& plan, Counts& counts) {
  constexpr std::int64_t kTimes = 24;
  PlanRequest request = drawn.request;
  *request.global_batch *= kTimes;
  request.micro_batch = plan.batch.micro_batch;
  const Result<Plan> many = make_plan(request);
  if (!many.ok()) return {};
  const AnalyticCost cost(many->stack());
  const Result<Forecast> all = forecast(*many, cost, {.record = true}), quick = forecast(*many, cost);
  if (!all.ok() || !quick.ok()) return all.ok() ? quick.error().message : all.error().message;
  // A recorded pipeline tells where the time of another rank goes, if the one that ends last is nearly idle.
  if (quick->step != all->step || (quick->last == all->last && quick->host_bound != all->host_bound) ||
      quick->tasks != all->tasks || quick->events != all->events)
    return fmt::format("{} micro-batches take {} ps, the host {} ps, in {} tasks and {} events; counted {}, {}, {}, {}",
                       many->batch.micro_batches, all->step, all->host_bound, all->tasks, all->events, quick->step,
                       quick->host_bound, quick->tasks, quick->events);
  for (std::size_t i = 0; i < all->links.size(); ++i)
    if (quick->links[i].bytes != all->links[i].bytes) return "counted micro-batches carry other bytes";
  ++counts.counted;
  return {};
}

std::string problem_of(const Drawn& drawn, Counts& counts) {
  const Result<Plan> plan = make_plan(drawn.request);
  if (!plan.ok()) {
    ++counts.refused;
    return {};
  }
  const AnalyticCost cost(plan->stack());
  const Result<Forecast> found = forecast(*plan, cost, {.record = true});
  if (!found.ok()) return found.error().message;
  ++counts.played;
  if (found->breakdown->total() != found->step)
    return fmt::format("the breakdown sums to {} ps, the step takes {}", found->breakdown->total(), found->step);
  ++counts.breakdowns;
  const Result<Forecast> unfolded = forecast(*plan, cost, {.fold = false});
  if (!unfolded.ok()) return unfolded.error().message;
  if (unfolded->step != found->step) return fmt::format("folded {} ps, unfolded {}", found->step, unfolded->step);
  ++counts.folded;
  // More micro-batches, tokens or layers.
  const auto grown = [&](const char* what, const PlanRequest& request, bool holds_more) -> std::string {
    const Result<Plan> larger = make_plan(request);
    if (!larger.ok()) return {};
    const Result<Forecast> more = forecast(*larger, cost);
    if (!more.ok()) return more.error().message;
    // Copies to the host and collectives share links with one another: what comes a little later may share them for a
    // shorter time (an anomaly of scheduling, Graham 1969). All else takes at least as long.
    const bool copies = drawn.request.strategy.find("offload=") != std::string::npos;
    // Larger tensors may be moved in fewer steps, which are fewer calls, and the host may be what is waited for.
    const double calls = 2e-3 * static_cast<double>(found->host_bound);
    if (static_cast<double>(more->step) < static_cast<double>(found->step) * (copies ? 1 - 1e-5 : 1) - calls)
      return fmt::format("{}: {} ps, less than {}", what, more->step, found->step);
    if (holds_more && more->fullest()->allocated.total() < found->fullest()->allocated.total())
      return fmt::format("{}: {} bytes, less than {}", what, more->fullest()->allocated.total().value,
                         found->fullest()->allocated.total().value);
    ++counts.growths;
    return {};
  };
  if (std::string problem = drawn.many ? problem_of_many(drawn, *plan, counts) : ""; !problem.empty()) return problem;
  PlanRequest batch = drawn.request, tokens = drawn.request, layers = drawn.request;
  *batch.global_batch *= 2;
  batch.micro_batch = plan->batch.micro_batch;
  std::string problem = grown("twice the micro-batches", batch, false);
  if (problem.empty() && drawn.shape->tokens) {
    *tokens.seq *= 2;
    problem = grown("twice the tokens", tokens, true);
  }
  if (problem.empty() && drawn.shape->layers > 0) {
    layers.model = fmt::format("{},layers={}", drawn.shape->family, 2 * drawn.shape->layers);
    problem = grown("twice the layers", layers, true);
  }
  return problem;
}

// WEFT_RANDOM_PLANS sets how many; sanitizer builds draw fewer.
TEST(Laws, HoldOfPlansDrawnAtRandom) {
  const char* const wanted = std::getenv("WEFT_RANDOM_PLANS");
  const int plans = (wanted ? std::atoi(wanted) : 2100) / 3;
  std::vector<std::string> problems(static_cast<std::size_t>(plans));
  std::atomic<int> next = 0;
  Counts counts;
  const auto play = [&] {
    for (int i = next++; i < plans; i = next++) {
      Rng rng = Rng(2026).split(static_cast<std::uint64_t>(i));
      const Drawn drawn = draw(rng);
      const std::string problem = problem_of(drawn, counts);
      if (!problem.empty())
        problems[static_cast<std::size_t>(i)] = fmt::format(
            "--model {} --cluster {} --strategy {} --global-batch {} --stack {}: {}", drawn.request.model,
            drawn.request.cluster, drawn.request.strategy, *drawn.request.global_batch, drawn.request.stack, problem);
    }
  };
  std::thread other(play);
  play();
  other.join();
  for (const std::string& problem : problems)
    if (!problem.empty()) ADD_FAILURE() << problem;
  EXPECT_GT(counts.played, plans / 3);
  EXPECT_GT(counts.counted, plans / 24);
  fmt::print(
      "{} plans drawn, {} refused; {} breakdowns sum to their step, {} folded as unfolded, {} of many micro-batches, "
      "{} "
      "of more work\n",
      plans, counts.refused.load(), counts.breakdowns.load(), counts.folded.load(), counts.counted.load(),
      counts.growths.load());
}

}  // namespace
}  // namespace weft
