#include "report/plan_search.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/units.h"
#include "report/interval.h"
#include "report/money.h"
#include "report/table.h"
#include "strategy/yaml.h"

namespace weft {
namespace {

using Json = nlohmann::json;

std::string percent(double share) { return fmt::format("{:.1f} %", 100 * share); }

constexpr double kSecondsPerDay = 86400;

// The shorthand for display: spaces for commas, which --strategy reads too.
std::string spaced(std::string text) {
  std::replace(text.begin(), text.end(), ',', ' ');
  return text;
}

// What is counted as useful work, and by what it is divided.
std::string utilisation_text(const PlanProblem& problem, const PlanOutcome& outcome) {
  const Forecast* any = !outcome.best.empty() ? &outcome.best.front().forecast
                        : outcome.closest     ? &outcome.closest->forecast
                                              : nullptr;
  return fmt::format("MFU: model FLOPs without recomputation{} over the dense {} peak",
                     problem.model().counts_tokens ? ", attention in full" : "",
                     any ? name(any->arithmetic) : std::string_view(problem.job->precision.name));
}

// As --dtype and --reduce-dtype take them.
std::string_view word_of(DType dtype) {
  return dtype == DType::F32 ? "fp32" : dtype == DType::F16 ? "fp16" : name_of(dtype);
}

// "adamw, fp32 moments, fp32 masters, gradients reduced in fp32"
std::string training_text(const PlanProblem& problem) {
  const Precision& precision = problem.job->precision;
  std::string text(name_of(problem.optimizer));
  if (problem.optimizer != OptimizerKind::Sgd) text += fmt::format(", {} moments", word_of(precision.moments));
  if (precision.masters) text += ", fp32 masters";
  const NumberTypes types = number_types(precision, problem.stack());
  text += fmt::format(", gradients reduced in {}", word_of(types.sent_gradients.value_or(precision.gradients)));
  return text;
}

// Of what there is, or of what --max-memory leaves of it.
std::string memory_text(const PlanProblem& problem, const Forecast& forecast) {
  const ClassForecast* full = forecast.fullest();
  if (!full) return "";
  const Bytes all = problem.job->words.max_memory ? full->budget : full->capacity;
  if (all.value == 0) return human(full->device_total);
  constexpr double kGiB = 1 << 30;
  return fmt::format("{:.1f}/{:.1f} GiB{}", static_cast<double>(full->device_total.value) / kGiB,
                     static_cast<double>(all.value) / kGiB, forecast.fit() == Fit::Tight ? " tight" : "");
}

// "16 × H100 SXM 80 GB + 32 × A100 SXM 80 GB".
std::string devices_text(const PlanProblem& problem) {
  std::vector<std::pair<std::string, std::int64_t>> counts;
  for (std::int64_t rank = 0; rank < problem.devices; ++rank) {
    const std::string& title = problem.cluster().spec(problem.device_at(rank)).title;
    const auto same = std::find_if(counts.begin(), counts.end(), [&](const auto& each) { return each.first == title; });
    if (same == counts.end())
      counts.emplace_back(title, 1);
    else
      ++same->second;
  }
  std::vector<std::string> words;
  for (const auto& [title, count] : counts) words.push_back(fmt::format("{} × {}", grouped(count), title));
  return fmt::format("{}", fmt::join(words, " + "));
}

std::string headline(const PlanProblem& problem, const PlanOutcome& outcome, const PlanTableOptions& options) {
  std::vector<std::string> words = {problem.model().name,
                                    fmt::format("{} parameters", human_count(static_cast<double>(problem.parameters)))};
  words.push_back(fmt::format(
      "{}{}", devices_text(problem),
      problem.cluster().node_count() > 1 ? fmt::format(" in {} nodes", grouped(problem.cluster().node_count())) : ""));
  words.push_back(problem.model().counts_tokens ? fmt::format("{} × {} tokens per step", grouped(problem.global_batch),
                                                              grouped(problem.model().seq))
                                                : fmt::format("{} samples per step", grouped(problem.global_batch)));
  words.push_back(problem.job->precision.name);
  words.push_back(fmt::format("stack {}", problem.stack().name));
  std::string text = wrapped(words, " · ", "");
  for (const std::string& line : conventions(problem, outcome, options)) text += wrapped({line}, "", "  ");
  return text;
}

// What each kind of device does in the winner.
std::string kinds_text(const PlanOutcome& outcome) {
  if (outcome.kinds.empty()) return "";
  Table table{{{}, {.right = true}, {.right = true}, {.right = true}, {.right = true}, {.right = true}, {.most = 40}}};
  table.add({"devices", "used", "layers", "of the batch", "busy", "memory", "waits most for"});
  std::string left_out;
  for (const KindUse& use : outcome.kinds) {
    constexpr double kGiB = 1 << 30;
    if (use.used < use.devices)
      left_out += wrapped(
          {fmt::format("{} {} left out: {}", grouped(use.devices - use.used), use.kind, use.why_left_out)}, "", "  ");
    if (use.used == 0) continue;
    table.add({use.kind, fmt::format("{} of {}", grouped(use.used), grouped(use.devices)),
               fmt::format("{}", use.layers), percent(use.batch), percent(use.busy),
               use.capacity.value > 0 ? fmt::format("{:.1f}/{:.1f} GiB", static_cast<double>(use.memory.value) / kGiB,
                                                    static_cast<double>(use.capacity.value) / kGiB)
                                      : human(use.memory),
               fmt::format("{} {}", use.waits_for, percent(use.waits))});
  }
  return table.print() + left_out + "\n";
}

Json kinds_json(const PlanOutcome& outcome) {
  Json kinds = Json::array();
  for (const KindUse& use : outcome.kinds)
    kinds.push_back({{"kind", use.kind},
                     {"devices", use.devices},
                     {"used", use.used},
                     {"layers", use.layers},
                     {"batch", use.batch},
                     {"busy", use.busy},
                     {"waits_for", use.waits_for},
                     {"waits", use.waits},
                     {"device_bytes", use.memory.value},
                     {"why_left_out", use.why_left_out}});
  return kinds;
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
  pruned("not allowed", "not as demanded");
  pruned("memory", "out of memory");
  pruned("bound", "bounded away");
  pruned("too many groups", "have too many groups");
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
  if (of.step == best.step) return "—";
  // Within a hundredth the simplest plan is first.
  if (of.step < best.step) {
    const double faster = 100 * (1 - of.step_s / best.step_s);
    return faster < 0.05 ? "a tie: less simple" : fmt::format("a tie: less simple, −{:.1f} %", faster);
  }
  const std::vector<Loss> all = losses(of, best);
  if (all.empty() || all.front().seconds <= 0) return fmt::format("{} in all", human(Seconds{of.step_s - best.step_s}));
  return fmt::format("{} +{}", all.front().what, human(Seconds{all.front().seconds}));
}

// "$12.3 per step, $0.45 per M tokens, $1.2 M for 15 T tokens at $2.50 per GPU-hour"
std::string price_text(const PlanProblem& problem, const Forecast& best, const PlanTableOptions& options) {
  const auto cost = [&](double seconds) { return money(dollars(options.price, problem.devices, seconds)); };
  std::string text = fmt::format("{} per step", cost(best.step_s));
  const bool tokens = best.tokens_per_s > 0;
  text += fmt::format(", {} per M {}", cost(1e6 / (tokens ? best.tokens_per_s : best.samples_per_s)),
                      tokens ? "tokens" : "samples");
  if (options.tokens > 0 && tokens)
    text += fmt::format(", {} for {} tokens", cost(options.tokens / best.tokens_per_s), human_count(options.tokens));
  return text + fmt::format(" at ${:.2f} per GPU-hour", options.price);
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

// What the fastest plan needs and the stack, whose costs were taken, has no code for.
std::string beyond_stack_text(const PlanProblem& problem, const Judged& best) {
  if (!best.parallelism) return "";
  const SoftwareStack& stack = problem.stack();
  const Abilities missing = needed_by(*best.parallelism).without(stack.can.value);
  if (missing.count() == 0) return "";
  return fmt::format("  {} has no code for {}; --stack {} asks only for plans that it runs\n", stack.name,
                     print(missing), stack.name);
}

std::string gap_text(const PlanOutcome& outcome) {
  if (outcome.beyond_bound) return "  beyond the bound";
  const std::optional<double> gap = outcome.gap();
  return gap ? fmt::format("  gap {} {}", outcome.bound_is_estimate ? "about" : "≤", percent(*gap)) : "";
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
  add("imbalance of stages", a.imbalance, b.imbalance);
  add("optimizer", a[Activity::Optimizer], b[Activity::Optimizer]);
  add("waiting for slower devices", a.waiting, b.waiting);
  add("host", a.host_bound, b.host_bound);
  std::stable_sort(found.begin(), found.end(), [](const Loss& x, const Loss& y) { return x.seconds > y.seconds; });
  return found;
}

std::vector<std::string> conventions(const PlanProblem& problem, const PlanOutcome& outcome,
                                     const PlanTableOptions& options) {
  std::vector<std::string> lines = {training_text(problem), utilisation_text(problem, outcome)};
  const PlanRequest& asked = problem.job->words;
  if (!asked.train.empty())
    lines.push_back(fmt::format("trained: {} (--train)", asked.train));
  else if (!asked.freeze.empty())
    lines.push_back(fmt::format("frozen: {} (--freeze)", asked.freeze));
  if (!options.constraints.empty())
    lines.push_back(fmt::format("only plans with {}", fmt::join(options.constraints, ", ")));
  const std::vector<std::string>& notes = problem.job->notes;
  lines.insert(lines.end(), notes.begin(), notes.end());
  return lines;
}

std::string describe(const PlanProblem& problem, const PlanOutcome& outcome, const PlanTableOptions& options) {
  std::string text = headline(problem, outcome, options) + "\n";
  const Forecast& best = outcome.best.front().forecast;
  Table table{
      {{.right = true}, {.most = 48}, {.right = true}, {.right = true}, {.right = true, .most = 19}, {.most = 27}}};
  table.add({"", "plan", "step", "MFU", "memory, worst stage", "loses to the best by"});
  for (std::size_t i = 0; i < outcome.best.size(); ++i) {
    const Judged& judged = outcome.best[i];
    std::string last = loss_text(judged.forecast, best);
    if (i == 0) last = "—" + gap_text(outcome);
    table.add({fmt::format("{}", i + 1), spaced(judged.strategy), human(Seconds{judged.forecast.step_s}),
               percent(judged.forecast.mfu), memory_text(problem, judged.forecast), last});
  }
  text += table.print();
  Table baselines{{{}, {.most = 42}, {.right = true}, {.right = true}, {.right = true, .most = 19}, {.most = 27}}};
  for (const Baseline& baseline : outcome.baselines) {
    if (!baseline.judged) {
      baselines.add({"baseline", baseline.name, "", "", "", baseline.why_not});
      continue;
    }
    const Forecast& of = baseline.judged->forecast;
    // Plans of one kind alone have its name already.
    const std::string shown = spaced(baseline.judged->strategy);
    baselines.add({"baseline", shown.starts_with(baseline.name) ? shown : fmt::format("{}: {}", baseline.name, shown),
                   human(Seconds{of.step_s}), percent(of.mfu), memory_text(problem, of), loss_text(of, best)});
  }
  text += "\n" + baselines.print() + "\n";
  text += kinds_text(outcome);
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
  if (options.price > 0) facts.push_back(price_text(problem, best, options));
  text += wrapped(facts, " · ", "  ") + reasons_text(best.interval, "  ");
  text += beyond_stack_text(problem, outcome.best.front());
  if (best.fit() == Fit::Tight)
    text += fmt::format("  memory of the best is tight: runs that were compared needed what was predicted {}\n",
                        half_width_text(best.memory_margin));
  text += wrapped(counts_text(outcome, options.seconds), ", ", "  ");
  if (outcome.lower_bound_s > 0 && !outcome.dimensions.empty()) {
    std::vector<std::string> over = outcome.dimensions;
    over.front() = outcome.beyond_bound
                       ? fmt::format("the best is outside of these dimensions, in which {}no plan is as fast: {}",
                                     outcome.bound_is_estimate ? "probably " : "", over.front())
                       : "the gap is over " + over.front();
    text += wrapped(over, ", ", "  ");
  }
  return text;
}

std::string describe_miss(const PlanProblem& problem, const PlanOutcome& outcome, const PlanTableOptions& options) {
  std::string text = headline(problem, outcome, options) + "\nno plan fits\n";
  if (outcome.closest) {
    const ClassForecast& full = *outcome.closest->forecast.fullest();
    Table closest{{{}, {.most = 100}}};
    closest.add({"closest    ", spaced(outcome.closest->strategy)});
    text += closest.print();
    text += fmt::format("  it needs     {} on a device of stage {}, {} more than the {} there are ({})\n",
                        human(full.device_total), full.pipeline_rank, human(full.overshoot()), human(full.budget),
                        problem.job->words.max_memory ? std::string("--max-memory")
                                                      : fmt::format("{} less headroom", human(full.capacity)));
    std::vector<std::string> largest;
    for (const MemoryOfClass::Alive& alive : full.largest)
      largest.push_back(fmt::format("{} {} {}", alive.kind, alive.name, human(alive.bytes)));
    text += wrapped({"of which"}, "", "  ") + wrapped(largest, ", ", "    ");
    text += "what would make it fit\n";
    if (!options.constraints.empty())
      text += fmt::format("  fewer demands than {}\n", fmt::join(options.constraints, ", "));
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
    const double more = other.forecast.step_s - best.forecast.step_s;
    text += fmt::format("  {} takes {} {}\n", name, human(Seconds{std::abs(more)}),
                        more < 0 ? "less, a tie: it is less simple" : "more");
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
  json["dtype"] = problem.job->precision.name;
  json["optimizer"] = name_of(problem.optimizer);
  json["constraints"] = options.constraints;
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
  json["gap"] = outcome.gap() ? Json(*outcome.gap()) : Json();
  json["beyond_bound"] = outcome.beyond_bound;
  json["bound_is_estimate"] = outcome.bound_is_estimate;
  json["dimensions"] = outcome.dimensions;
  json["kinds"] = kinds_json(outcome);
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
  if (options.price > 0 && best) {
    json["cost"] = {{"dollars_per_gpu_hour", options.price},
                    {"dollars_per_step", dollars(options.price, problem.devices, best->step_s)}};
    if (options.tokens > 0 && best->tokens_per_s > 0)
      json["cost"]["dollars_of_training"] =
          dollars(options.price, problem.devices, options.tokens / best->tokens_per_s);
  }
  if (options.seconds) json["timing_s"] = {{"search", outcome.seconds}};
  return json;
}

}  // namespace weft
