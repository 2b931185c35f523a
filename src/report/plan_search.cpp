#include "report/plan_search.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/units.h"
#include "report/interval.h"
#include "report/table.h"
#include "strategy/yaml.h"

namespace weft {
namespace {

using Json = nlohmann::json;

std::string percent(double share) { return fmt::format("{:.1f} %", 100 * share); }

constexpr double kSecondsPerDay = 86400;

// The shorthand for display: spaces for commas, and equal stages counted, 15+6×16+15.
std::string spaced(std::string text) {
  if (const std::size_t at = text.find("stages="); at != std::string::npos) {
    const std::size_t from = at + 7, to = std::min(text.find(',', from), text.size());
    std::vector<std::pair<std::string, int>> runs;
    for (std::size_t i = from; i < to;) {
      const std::size_t end = std::min(text.find('+', i), to);
      const std::string count = text.substr(i, end - i);
      if (runs.empty() || runs.back().first != count) runs.emplace_back(count, 0);
      ++runs.back().second;
      i = end + 1;
    }
    std::vector<std::string> words;
    for (const auto& [count, times] : runs) words.push_back(times > 1 ? fmt::format("{}×{}", times, count) : count);
    text.replace(from, to - from, fmt::format("{}", fmt::join(words, "+")));
  }
  std::replace(text.begin(), text.end(), ',', ' ');
  return text;
}

std::string memory_text(const Forecast& forecast) {
  const ClassForecast* full = forecast.fullest();
  if (!full) return "";
  if (full->capacity.value == 0) return human(full->device_total);
  constexpr double kGiB = 1 << 30;
  return fmt::format("{:.1f}/{:.1f} GiB{}", static_cast<double>(full->device_total.value) / kGiB,
                     static_cast<double>(full->capacity.value) / kGiB, forecast.fit() == Fit::Tight ? " tight" : "");
}

std::string headline(const PlanProblem& problem) {
  const DeviceSpec& spec = problem.cluster().spec(DeviceId(0));
  std::vector<std::string> words = {problem.model().name,
                                    fmt::format("{} parameters", human_count(static_cast<double>(problem.parameters)))};
  words.push_back(fmt::format(
      "{} × {}{}", grouped(problem.devices), problem.cluster().homogeneous() ? spec.title : "devices of several kinds",
      problem.cluster().node_count() > 1 ? fmt::format(" in {} nodes", grouped(problem.cluster().node_count())) : ""));
  words.push_back(problem.model().counts_tokens ? fmt::format("{} × {} tokens per step", grouped(problem.global_batch),
                                                              grouped(problem.model().seq))
                                                : fmt::format("{} samples per step", grouped(problem.global_batch)));
  words.push_back(fmt::format("stack {}", problem.stack().name));
  std::string text = wrapped(words, " · ", "");
  for (const std::string& note : problem.job->notes) text += wrapped({note}, "", "  ");
  return text;
}

// The parts of a list, to be joined with commas.
std::vector<std::string> counts_text(const PlanOutcome& outcome, bool with_seconds) {
  const SearchCounts& counts = outcome.counts;
  std::vector<std::string> parts;
  const auto pruned = [&](const char* reason, const char* words) {
    const auto found = counts.pruned.find(reason);
    if (found != counts.pruned.end()) parts.push_back(fmt::format("{} {}", grouped(found->second), words));
  };
  pruned("does not divide", "do not divide");
  pruned("not for the trainer", "the trainer cannot express");
  pruned("does not compile", "do not compile");
  pruned("memory", "out of memory");
  pruned("bound", "bounded away");
  pruned("recomputes more", "recompute more than they need");
  if (counts.composed > 0) parts.push_back(fmt::format("{} composed", grouped(counts.composed)));
  parts.push_back(fmt::format("{} simulated", grouped(counts.simulated)));
  parts.front() = fmt::format("considered {} plans ({}", grouped(counts.considered), parts.front());
  parts.back() += ")";
  if (with_seconds) parts.back() += fmt::format(" in {}", human(Seconds{outcome.seconds}));
  if (outcome.stopped_by != StoppedBy::Itself)
    parts.back() += fmt::format("; stopped by {}", name_of(outcome.stopped_by));
  return parts;
}

std::string loss_text(const Forecast& of, const Forecast& best) {
  if (of.step <= best.step) return "—";
  const std::vector<Loss> all = losses(of, best);
  if (all.empty() || all.front().seconds <= 0) return "";
  return fmt::format("{} +{}", all.front().what, human(Seconds{all.front().seconds}));
}

Json brief(const Judged& judged, const Forecast* best) {
  const Forecast& of = judged.forecast;
  const ClassForecast* full = of.fullest();
  Json json = {{"strategy", judged.strategy},
               {"step_time_s", of.step_s},
               {"samples_per_s", of.samples_per_s},
               {"mfu", of.mfu},
               {"hfu", of.hfu},
               {"interval", to_json(of.interval)},
               {"feasible", of.feasible},
               {"memory_verdict", name_of(of.fit())},
               {"device_bytes", full ? Json(full->device_total.value) : Json()},
               {"overshoot_bytes", full ? full->overshoot().value : 0}};
  if (of.tokens_per_s > 0) json["tokens_per_s"] = of.tokens_per_s;
  json["loses_by_s"] = Json::object();
  if (best)
    for (const Loss& loss : losses(of, *best)) json["loses_by_s"][loss.what] = loss.seconds;
  return json;
}

}  // namespace

std::vector<Loss> losses(const Forecast& of, const Forecast& best) {
  std::vector<Loss> found;
  if (!of.breakdown || !best.breakdown) return found;
  const auto add = [&](std::string what, Picoseconds mine, Picoseconds theirs) {
    if (mine != theirs) found.push_back({std::move(what), seconds_of(mine - theirs)});
  };
  const StepBreakdown &a = *of.breakdown, &b = *best.breakdown;
  // Recomputation is part of computing; its share is that of its FLOPs.
  const auto again = [](const Forecast& each, const StepBreakdown& parts) {
    const double all = (each.flops.model + each.flops.recomputed).value;
    return all > 0 ? static_cast<Picoseconds>(each.flops.recomputed.value / all *
                                              static_cast<double>(parts[Activity::Compute]))
                   : 0;
  };
  const Picoseconds again_a = again(of, a), again_b = again(best, b);
  add("recomputation", again_a, again_b);
  add("slower computation", a[Activity::Compute] - again_a, b[Activity::Compute] - again_b);
  add("exposed tensor-parallel communication", a[Activity::Tensor], b[Activity::Tensor]);
  add("exposed context-parallel communication", a[Activity::Context], b[Activity::Context]);
  add("exposed expert-parallel communication", a[Activity::Expert], b[Activity::Expert]);
  add("exposed data-parallel communication", a[Activity::Data], b[Activity::Data]);
  add("exposed transfers between stages", a[Activity::Pipeline], b[Activity::Pipeline]);
  add("copies to and from the host", a[Activity::Offload], b[Activity::Offload]);
  add("pipeline bubble", a.bubble, b.bubble);
  add("optimizer", a[Activity::Optimizer], b[Activity::Optimizer]);
  add("waiting for slower devices", a.waiting, b.waiting);
  add("host", a.host_bound, b.host_bound);
  std::stable_sort(found.begin(), found.end(), [](const Loss& x, const Loss& y) { return x.seconds > y.seconds; });
  return found;
}

std::string describe(const PlanProblem& problem, const PlanOutcome& outcome, const PlanTableOptions& options) {
  std::string text = headline(problem) + "\n";
  const Forecast& best = outcome.best.front().forecast;
  Table table{{{.right = true}, {.most = 48}, {.right = true}, {.right = true}, {.right = true}, {.most = 34}}};
  table.add({"", "plan", "step", "MFU", "memory, worst stage", "loses to the best by"});
  for (std::size_t i = 0; i < outcome.best.size(); ++i) {
    const Judged& judged = outcome.best[i];
    std::string last = loss_text(judged.forecast, best);
    if (i == 0) last = outcome.lower_bound_s > 0 ? fmt::format("—  gap ≤ {}", percent(outcome.gap())) : "—";
    table.add({fmt::format("{}", i + 1), spaced(judged.strategy), human(Seconds{judged.forecast.step_s}),
               percent(judged.forecast.mfu), memory_text(judged.forecast), last});
  }
  text += table.print();
  Table baselines{{{}, {.most = 44}, {.right = true}, {.right = true}, {.right = true}, {.most = 34}}};
  for (const Baseline& baseline : outcome.baselines) {
    if (!baseline.judged) {
      baselines.add({"baseline", baseline.name, "", "", baseline.why_not, ""});
      continue;
    }
    const Forecast& of = baseline.judged->forecast;
    baselines.add({"baseline", fmt::format("{}: {}", baseline.name, spaced(baseline.judged->strategy)),
                   human(Seconds{of.step_s}), percent(of.mfu), memory_text(of), loss_text(of, best)});
  }
  text += "\n" + baselines.print() + "\n";
  std::vector<std::string> facts = {"step " + step_text(best)};
  if (best.tokens_per_s > 0)
    facts.push_back(fmt::format("{} tokens/s", human_count(best.tokens_per_s)));
  else
    facts.push_back(fmt::format("{} samples/s", human_count(best.samples_per_s)));
  if (options.tokens > 0 && best.tokens_per_s > 0) {
    const double days = options.tokens / best.tokens_per_s / kSecondsPerDay;
    facts.push_back(fmt::format("{} tokens: {:.1f} days, {} GPU-hours", human_count(options.tokens), days,
                                grouped(static_cast<std::int64_t>(days * 24 * static_cast<double>(problem.devices)))));
  }
  text += wrapped(facts, " · ", "  ") + reasons_text(best.interval, "  ");
  if (best.fit() == Fit::Tight)
    text += fmt::format("  memory of the best is tight: runs that were compared needed what was predicted {}\n",
                        half_width_text(best.memory_margin));
  text += wrapped(counts_text(outcome, options.seconds), ", ", "  ");
  return text;
}

std::string describe_miss(const PlanProblem& problem, const PlanOutcome& outcome) {
  std::string text = headline(problem) + "\nno plan fits\n";
  if (outcome.closest) {
    const ClassForecast& full = *outcome.closest->forecast.fullest();
    text += fmt::format("  closest      {}\n", spaced(outcome.closest->strategy));
    text += fmt::format("  it needs     {} on a device of stage {}, {} more than the {} there are ({} less headroom)\n",
                        human(full.device_total), full.pipeline_rank, human(full.overshoot()), human(full.budget),
                        human(full.capacity));
    std::vector<std::string> largest;
    for (const MemoryOfClass::Alive& alive : full.largest)
      largest.push_back(fmt::format("{} {} {}", alive.kind, alive.name, human(alive.bytes)));
    text += wrapped({"of which"}, "", "  ") + wrapped(largest, ", ", "    ");
    text += "what would make it fit\n";
    const double times = static_cast<double>(full.device_total.value) / static_cast<double>(full.budget.value);
    const auto nodes = static_cast<std::int64_t>(static_cast<double>(problem.cluster().node_count()) * times) + 1;
    text += fmt::format("  about {} nodes instead of {}: what is kept is spread over more devices\n", grouped(nodes),
                        grouped(problem.cluster().node_count()));
    text += fmt::format("  devices with {} of memory\n", human(full.device_total * 26 / 25));
    const Parallelism& plan = outcome.closest->parallelism.value_or(Parallelism{});
    if (plan.zero < 3 && plan.dp * plan.cp > 1) text += "  ZeRO 3 (zero=3), which spreads weights too\n";
    if (plan.recompute != Recompute::Full) text += "  recompute=full, which keeps one tensor per layer\n";
    if (plan.micro_batch > 1) text += "  a smaller micro-batch\n";
    if (problem.model().seq > 1024)
      text += fmt::format("  a shorter sequence than {} (--seq)\n", grouped(problem.model().seq));
    text += "  state in the host's memory (offload=optimizer in a strategy for weft simulate)\n";
  }
  return text + "\n" + wrapped(counts_text(outcome, false), ", ", "  ");
}

std::string describe(const std::vector<Sensitivity>& sensitivities, const PlanOutcome& outcome) {
  const Judged& best = outcome.best.front();
  Table table{{{}, {.right = true}, {.right = true}, {.most = 60}}};
  table.add({"what if", "step", "throughput", "the best is then"});
  for (const Sensitivity& each : sensitivities) {
    const double gain = each.samples_per_s / best.forecast.samples_per_s - 1;
    table.add({each.what, each.strategy.empty() ? "" : human(Seconds{each.step_s}),
               each.strategy.empty() ? "" : fmt::format("{:+.1f} %", 100 * gain),
               each.strategy.empty()            ? "nothing fits"
               : each.strategy == best.strategy ? "the same"
                                                : spaced(each.strategy)});
  }
  return table.print("");
}

std::string explain(const PlanOutcome& outcome) {
  const Judged& best = outcome.best.front();
  std::string text = fmt::format("why {} wins\n", spaced(best.strategy));
  const auto against = [&](const std::string& name, const Judged& other) {
    if (other.strategy == best.strategy) return;
    std::vector<std::string> words;
    constexpr std::size_t kMost = 6;
    for (const Loss& loss : losses(other.forecast, best.forecast))
      if (std::abs(loss.seconds) > 0.002 * best.forecast.step_s && words.size() < kMost)
        words.push_back(
            fmt::format("{} {}{}", loss.what, loss.seconds < 0 ? "−" : "+", human(Seconds{std::abs(loss.seconds)})));
    if (words.empty()) words.emplace_back("nothing of weight");
    text += fmt::format("  {} takes {} more\n", name,
                        human(Seconds{std::max(0.0, other.forecast.step_s - best.forecast.step_s)}));
    text += wrapped(words, ", ", "    ");
  };
  for (std::size_t i = 1; i < outcome.best.size(); ++i)
    against(fmt::format("{}: {}", i + 1, spaced(outcome.best[i].strategy)), outcome.best[i]);
  for (const Baseline& baseline : outcome.baselines)
    if (baseline.judged)
      against(fmt::format("{}: {}", baseline.name, spaced(baseline.judged->strategy)), *baseline.judged);

  if (outcome.front.size() > 1) {
    text += "\ntime against memory: no plan is both faster and smaller (by composition)\n";
    Table front{{{}, {.right = true}, {.right = true}}};
    constexpr std::size_t kMost = 8;
    for (std::size_t i = 0; i < outcome.front.size() && i < kMost; ++i)
      front.add({spaced(outcome.front[i].strategy), human(Seconds{outcome.front[i].step_s}),
                 human(Bytes{outcome.front[i].memory})});
    text += front.print();
  }
  text += "\nmemory of the winner\n";
  Table memory{{{}, {.right = true}, {.right = true}, {.right = true}, {.right = true}, {.right = true}}};
  memory.add({"stage", "weights", "gradients", "optimizer", "activations", "device"});
  std::int32_t last = -1;
  for (const ClassForecast& of : best.forecast.memory) {
    if (std::exchange(last, of.pipeline_rank) == of.pipeline_rank) continue;
    memory.add({fmt::format("{}", of.pipeline_rank), human(of.allocated.parameters), human(of.allocated.gradients),
                human(of.allocated.optimizer), human(of.allocated.activations), human(of.device_total)});
  }
  text += memory.print();
  text += "\nits tree (weft show strategy has more)\n";
  const std::string tree = to_yaml(best.tree);
  for (std::size_t at = 0; at < tree.size();) {
    const std::size_t end = std::min(tree.find('\n', at), tree.size());
    text += "  " + tree.substr(at, end - at) + "\n";
    at = end + 1;
  }
  return text;
}

Json to_json(const PlanProblem& problem, const PlanOutcome& outcome, const PlanTableOptions& options) {
  Json json;
  json["model"] = problem.job->words.model;
  json["cluster"] = problem.job->words.cluster;
  json["devices"] = problem.devices;
  json["global_batch"] = problem.global_batch;
  json["seq"] = problem.model().seq > 0 ? Json(problem.model().seq) : Json();
  json["stack"] = problem.stack().name;
  json["feasible"] = !outcome.best.empty();
  const Forecast* best = outcome.best.empty() ? nullptr : &outcome.best.front().forecast;
  json["candidates"] = Json::array();
  for (const Judged& judged : outcome.best) json["candidates"].push_back(brief(judged, best));
  json["baselines"] = Json::object();
  for (const Baseline& baseline : outcome.baselines)
    json["baselines"][baseline.name] =
        baseline.judged ? brief(*baseline.judged, best) : Json{{"feasible", false}, {"why", baseline.why_not}};
  if (outcome.closest && outcome.best.empty()) json["closest"] = brief(*outcome.closest, nullptr);
  json["front"] = Json::array();
  for (const FrontPlan& plan : outcome.front)
    json["front"].push_back({{"strategy", plan.strategy}, {"step_time_s", plan.step_s}, {"device_bytes", plan.memory}});
  json["lower_bound_s"] = outcome.lower_bound_s > 0 ? Json(outcome.lower_bound_s) : Json();
  json["gap"] = outcome.lower_bound_s > 0 && best ? Json(outcome.gap()) : Json();
  Json pruned = Json::object();
  for (const auto& [reason, count] : outcome.counts.pruned) pruned[reason] = count;
  json["counts"] = {{"considered", outcome.counts.considered},
                    {"pruned", pruned},
                    {"composed", outcome.counts.composed},
                    {"simulated", outcome.counts.simulated}};
  json["stopped_by"] = name_of(outcome.stopped_by);
  json["assumptions"] = best ? best->assumptions : problem.job->assumptions;
  for (const std::string& each : problem.assumptions)
    if (!best) json["assumptions"].push_back(each);
  if (options.tokens > 0 && best && best->tokens_per_s > 0) {
    const double days = options.tokens / best->tokens_per_s / kSecondsPerDay;
    json["training"] = {
        {"tokens", options.tokens}, {"days", days}, {"gpu_hours", days * 24 * static_cast<double>(problem.devices)}};
  }
  if (options.seconds) json["timing_s"] = {{"search", outcome.seconds}};
  return json;
}

}  // namespace weft
