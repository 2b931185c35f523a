#include "report/simulation.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/units.h"
#include "report/interval.h"
#include "report/strategy.h"
#include "report/table.h"

namespace weft {
namespace {

using Json = nlohmann::json;

std::string human(Picoseconds time) { return weft::human(Seconds{seconds_of(time)}); }
std::string percent(double share) { return fmt::format("{:.1f} %", 100 * share); }

}  // namespace

std::vector<TimePart> time_parts(const StepBreakdown& breakdown) {
  std::vector<TimePart> parts = {{"compute", "compute", breakdown[Activity::Compute]}};
  for (int i = static_cast<int>(Activity::Tensor); i < kActivities; ++i) {
    const auto activity = static_cast<Activity>(i);
    parts.push_back({fmt::format("exposed_{}", name_of(activity)),
                     activity == Activity::Offload ? "exposed copies to and from the host"
                                                   : fmt::format("exposed {} communication", name_of(activity)),
                     breakdown[activity]});
  }
  parts.push_back({"pipeline_bubble", "pipeline bubble", breakdown.bubble});
  parts.push_back({"imbalance", "imbalance of stages", breakdown.imbalance});
  parts.push_back({"optimizer", "optimizer", breakdown[Activity::Optimizer]});
  parts.push_back({"waiting", "waiting for slower devices", breakdown.waiting});
  parts.push_back({"host_bound", "host-bound", breakdown.host_bound});
  return parts;
}

namespace {

std::string_view stage_word(const Schedule& schedule) { return schedule.chunks > 1 ? "pipeline rank" : "stage"; }

std::string figures_text(const Plan& plan, const Forecast& forecast) {
  std::string text;
  const auto line = [&](std::string_view what, const std::string& value) {
    text += fmt::format("  {:<12}{}\n", what, value);
  };
  if (forecast.relative) {
    line("step",
         fmt::format("{} relative units, a byte sent or 1,000 FLOPs each: they order plans", grouped(forecast.step)));
    line("", "no seconds, rates or utilisation are promised; below, a unit stands as a picosecond");
    return text + "\n";
  }
  line("step time", step_text(forecast));
  text += reasons_text(forecast.interval, std::string(14, ' '));
  std::string rate = fmt::format("{} samples/s", human_count(forecast.samples_per_s));
  if (forecast.tokens_per_s > 0)
    rate = fmt::format("{} tokens/s ({} per device), {}", human_count(forecast.tokens_per_s),
                       human_count(forecast.tokens_per_s / static_cast<double>(plan.ranks().size())), rate);
  line("throughput", rate);
  line("MFU", fmt::format("{} · HFU {} · MFU with half of causal attention {}", percent(forecast.mfu),
                          percent(forecast.hfu), percent(forecast.mfu_causal)));
  line("", fmt::format("of the dense {} peak, {} on {} device{}; a step has {}", name(forecast.arithmetic),
                       weft::human(forecast.peak), grouped(static_cast<std::int64_t>(plan.ranks().size())),
                       plan.ranks().size() == 1 ? "" : "s", weft::human(forecast.flops.model)));
  if (forecast.evidence) {
    std::vector<std::string> parts;
    for (std::size_t i = 0; i < forecast.evidence->shares.size(); ++i)
      if (forecast.evidence->shares[i] > 0)
        parts.push_back(fmt::format("{} {}", percent(forecast.evidence->shares[i]),
                                    i == 0 ? "analytic" : name_of(static_cast<Origin>(i))));
    line("times", fmt::format("{}; ± {}", fmt::join(parts, ", "), percent(forecast.evidence->uncertainty)));
  }
  return text + "\n";
}

std::string breakdown_text(const PlayedPlan& played, const Forecast& forecast) {
  if (!forecast.breakdown) return "";
  const Schedule& schedule = played.compiled.schedule;
  std::string ranks_text = fmt::format("rank{} {}", forecast.last.size() == 1 ? "" : "s", short_list(forecast.last));
  if (schedule.ranks > 1) {
    for (const ClassForecast& of : forecast.memory)
      if (std::binary_search(of.ranks.begin(), of.ranks.end(), forecast.last.front()))
        ranks_text += fmt::format(", {} {}", stage_word(schedule), of.pipeline_rank);
  }
  std::string text = fmt::format("where the time goes, on the last to end ({})\n", ranks_text);
  Table table{{{}, {.right = true}, {.right = true}, {}}};
  constexpr double kBar = 50;
  const double step = std::max<double>(1, static_cast<double>(forecast.step));
  for (const TimePart& part : time_parts(*forecast.breakdown)) {
    if (part.time == 0) continue;
    const double share = static_cast<double>(part.time) / step;
    const auto eighths = static_cast<std::size_t>(share * kBar * 8 + 0.5);
    constexpr std::string_view ends[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
    table.add(
        {part.words, human(part.time), percent(share), repeated("█", eighths / 8) + std::string(ends[eighths % 8])});
  }
  return text + table.print() + "\n";
}

std::string_view mark_of(Fit fit) { return fit == Fit::Fits ? "" : fit == Fit::Tight ? "tight" : "✗"; }

std::string memory_text(const Plan& plan, const PlayedPlan& played, const Forecast& forecast) {
  const Schedule& schedule = played.compiled.schedule;
  Table table{{{},
               {.right = true},
               {.right = true},
               {.right = true},
               {.right = true},
               {.right = true},
               {.right = true},
               {.right = true},
               {.right = true},
               {.right = true},
               {}}};
  table.add({"memory at the peak", "weights", "gradients", "optimizer", "activations", "buffers", "allocated",
             "reserved", "device", "of it", ""});
  // The fullest class of each pipeline rank represents it.
  std::vector<const ClassForecast*> rows;
  for (const ClassForecast& of : forecast.memory) {
    if (rows.empty() || rows.back()->pipeline_rank != of.pipeline_rank) {
      rows.push_back(&of);
    } else if (std::pair(of.overshoot(), of.device_total) >
               std::pair(rows.back()->overshoot(), rows.back()->device_total)) {
      rows.back() = &of;
    }
  }
  constexpr std::size_t kMost = 10;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const ClassForecast& of = *rows[i];
    const bool unremarkable = of.fits() || &of == forecast.fullest();
    if (rows.size() > kMost && i >= kMost / 2 && i + 3 < rows.size() && unremarkable && of.fits()) {
      if (i == kMost / 2) table.add({"⋮"});
      continue;
    }
    const HeldBytes& held = of.allocated;
    table.add({schedule.ranks == 1 ? "every device" : fmt::format("{} {}", stage_word(schedule), of.pipeline_rank),
               weft::human(held.parameters), weft::human(held.gradients), weft::human(held.optimizer),
               weft::human(held.activations), weft::human(held.buffers), weft::human(held.total()),
               weft::human(of.reserved), weft::human(of.device_total),
               of.capacity.value > 0 ? percent(of.device_total / of.capacity) : "", std::string(mark_of(of.fit))});
  }
  std::string text = table.print();
  const ClassForecast* full = forecast.fullest();
  if (!full || full->capacity.value == 0) return text + "\n";
  const std::string ranks_text =
      schedule.ranks == 1 ? "" : fmt::format(" of {} {}", stage_word(schedule), full->pipeline_rank);
  const std::string room =
      fmt::format("{} ({})", weft::human(full->budget),
                  plan.job->words.max_memory ? std::string("--max-memory")
                                             : fmt::format("{} less headroom", weft::human(full->capacity)));
  text += forecast.feasible
              ? fmt::format("  {}: the fullest device{} needs {} of {}\n", name_of(forecast.fit()), ranks_text,
                            weft::human(full->device_total), room)
              : fmt::format("  {}: a device{} needs {}, {} more than {}\n", name_of(forecast.fit()), ranks_text,
                            weft::human(full->device_total), weft::human(full->overshoot()), room);
  if (forecast.fit() == Fit::Tight)
    text += fmt::format("    runs that were compared needed what was predicted {} ({:.0f} % of them)\n",
                        half_width_text(forecast.memory_margin), 100 * forecast.interval.level);
  std::vector<std::string> words;
  for (const MemoryOfClass::Alive& alive : full->largest)
    words.push_back(fmt::format("{} {}{} {}", alive.kind, alive.name,
                                alive.count > 1 ? fmt::format(" ×{}", grouped(alive.count)) : "",
                                weft::human(alive.bytes)));
  std::string moment = fmt::format("at its peak, in {}", full->peak_play);
  if (!full->peak_at.empty()) moment += fmt::format(" at {}", full->peak_at);
  if (full->peak_time) moment += fmt::format(", {} into the step", human(*full->peak_time));
  text += wrapped({moment + ", the largest are"}, "", "  ") + wrapped(words, ", ", "    ");
  return text + "\n";
}

std::string links_text(const Forecast& forecast) {
  if (forecast.links.empty()) return "";
  Table table{{{}, {}, {.right = true}, {.right = true}, {.right = true}}};
  table.add({"busiest links", "", "used", "carried", "of"});
  for (const BusiestLink& use : forecast.links)
    table.add({use.kind, use.busiest, percent(use.utilisation), weft::human(Bytes{use.bytes}),
               weft::human(BytesPerSecond{use.capacity})});
  return table.print() + "\n";
}

std::string path_text(const Forecast& forecast) {
  if (forecast.critical_path.empty()) return "";
  std::vector<std::string> words;
  constexpr std::size_t kMost = 8;
  Picoseconds rest = 0;
  for (std::size_t i = 0; i < forecast.critical_path.size(); ++i) {
    const PathShare& share = forecast.critical_path[i];
    if (i >= kMost) {
      rest += share.time;
      continue;
    }
    words.push_back(fmt::format("{} {}", share.what,
                                percent(static_cast<double>(share.time) / static_cast<double>(forecast.step))));
  }
  if (rest > 0)
    words.push_back(fmt::format("other {}", percent(static_cast<double>(rest) / static_cast<double>(forecast.step))));
  return "critical path\n" + wrapped(words, ", ", "  ") + "\n";
}

}  // namespace

std::string describe(const Plan& plan, const PlayedPlan& played, const Forecast& forecast) {
  std::string text = headline(plan);
  text += figures_text(plan, forecast);
  text += breakdown_text(played, forecast);
  text += memory_text(plan, played, forecast);
  if (!forecast.relative) text += links_text(forecast);
  text += path_text(forecast);
  const auto ranks = static_cast<std::int64_t>(plan.ranks().size());
  text += fmt::format("simulated: {} task{}", grouped(forecast.tasks), forecast.tasks == 1 ? "" : "s");
  text += forecast.agents == ranks ? fmt::format(" of {} device{}\n\n", grouped(ranks), ranks == 1 ? "" : "s")
                                   : fmt::format(" of {} device{} that stand for {}\n\n", grouped(forecast.agents),
                                                 forecast.agents == 1 ? "" : "s", grouped(ranks));
  text += "assumed\n";
  for (const std::string& assumption : forecast.assumptions) text += wrapped({assumption}, "", "  ");
  return text;
}

Json to_json(const Plan& plan, const PlayedPlan& played, const Forecast& forecast) {
  Json json = plan_json(plan);
  json["assumptions"] = forecast.assumptions;
  json["step_time_s"] = forecast.step_s;
  if (!forecast.relative) json["interval"] = to_json(forecast.interval);
  json["samples_per_s"] = forecast.samples_per_s;
  if (forecast.tokens_per_s > 0) json["tokens_per_s"] = forecast.tokens_per_s;
  json["mfu"] = forecast.mfu;
  json["mfu_causal"] = forecast.mfu_causal;
  json["hfu"] = forecast.hfu;
  json["mfu_denominator"] = {{"arithmetic", name(forecast.arithmetic)}, {"peak_flops_per_s", forecast.peak.value}};
  json["model_flops"] = forecast.flops.model.value;
  json["recomputed_flops"] = forecast.flops.recomputed.value;
  json["feasible"] = forecast.feasible;
  json["memory_verdict"] = name_of(forecast.fit());
  json["memory_margin"] = forecast.memory_margin;
  json["memory"] = Json::array();
  for (const ClassForecast& of : forecast.memory) {
    Json row = to_json(of.allocated);
    row["ranks"] = of.ranks;
    row["pipeline_rank"] = of.pipeline_rank;
    row["device"] = of.device;
    row["reserved_bytes"] = of.reserved.value;
    row["device_bytes"] = of.device_total.value;
    row["capacity_bytes"] = of.capacity.value > 0 ? Json(of.capacity.value) : Json();
    row["budget_bytes"] = of.capacity.value > 0 ? Json(of.budget.value) : Json();
    row["communicators"] = of.communicators;
    row["fits"] = of.fits();
    row["verdict"] = name_of(of.fit);
    row["overshoot_bytes"] = of.overshoot().value;
    row["peak"] = {
        {"in", of.peak_play}, {"at", of.peak_at}, {"time_s", of.peak_time ? Json(seconds_of(*of.peak_time)) : Json()}};
    row["largest"] = Json::array();
    for (const MemoryOfClass::Alive& alive : of.largest)
      row["largest"].push_back(
          {{"name", alive.name}, {"kind", alive.kind}, {"count", alive.count}, {"bytes", alive.bytes.value}});
    json["memory"].push_back(std::move(row));
  }
  if (forecast.breakdown) {
    json["breakdown_s"] = Json::object();
    for (const TimePart& part : time_parts(*forecast.breakdown)) json["breakdown_s"][part.key] = seconds_of(part.time);
  }
  json["last_ranks"] = forecast.last;
  json["host_bound_s"] = seconds_of(forecast.host_bound);
  json["links"] = Json::array();
  for (const BusiestLink& use : forecast.links)
    json["links"].push_back({{"kind", use.kind},
                             {"busiest", use.busiest},
                             {"utilisation", use.utilisation},
                             {"bytes", use.bytes},
                             {"bytes_per_s", use.capacity}});
  json["critical_path"] = Json::array();
  for (const PathShare& share : forecast.critical_path)
    json["critical_path"].push_back({{"what", share.what}, {"time_s", seconds_of(share.time)}});
  if (forecast.relative) json["units"] = "relative";
  if (forecast.evidence) {
    Json& evidence = json["evidence"];
    for (std::size_t i = 0; i < forecast.evidence->shares.size(); ++i)
      evidence["time_share"][std::string(name_of(static_cast<Origin>(i)))] = forecast.evidence->shares[i];
    evidence["uncertainty"] = forecast.evidence->uncertainty;
  }
  json["simulated"] = {
      {"agents", forecast.agents}, {"tasks", forecast.tasks}, {"events", forecast.events}, {"folded", played.folded}};
  return json;
}

}  // namespace weft
