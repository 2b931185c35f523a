#include "report/sweep.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/units.h"
#include "report/money.h"
#include "report/table.h"

namespace weft {
namespace {

std::string share_of_all(double share) { return fmt::format("{:.1f} %", 100 * share); }

std::string room_taken(const Forecast& forecast) {
  const ClassForecast* full = forecast.fullest();
  if (!full || full->capacity.value == 0) return "";
  return share_of_all(full->device_total / full->capacity);
}

std::string plan_words(std::string strategy) {
  std::replace(strategy.begin(), strategy.end(), ',', ' ');
  return strategy;
}

// A bar for every point, as long as its rate; a dot where the rate per device of the first point would be.
std::string rate_curve(const Sweep& sweep) {
  double most = 0;
  std::vector<double> ideal;
  const SweepPoint* first = nullptr;
  for (const SweepPoint& point : sweep.points) {
    if (!first && point.best) first = &point;
    ideal.push_back(first ? first->rate() / static_cast<double>(first->devices) * static_cast<double>(point.devices)
                          : 0);
    most = std::max({most, point.rate(), ideal.back()});
  }
  if (most <= 0) return "";
  constexpr double kWidth = 60;
  std::string text = fmt::format("{} per second; · is the first point's rate per device\n",
                                 sweep.counts_tokens ? "tokens" : "samples");
  Table table{{{.right = true}, {}, {.right = true}}};
  for (std::size_t i = 0; i < sweep.points.size(); ++i) {
    const SweepPoint& point = sweep.points[i];
    const auto eighths = static_cast<std::size_t>(point.rate() / most * kWidth * 8 + 0.5);
    constexpr std::string_view ends[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
    std::string bar = repeated("█", eighths / 8) + std::string(ends[eighths % 8]);
    const auto at = static_cast<std::size_t>(ideal[i] / most * kWidth + 0.5);
    if (at > columns(bar)) bar = padded(bar, at) + "·";
    table.add({point.value, bar, point.best ? human_count(point.rate()) : "—"});
  }
  return text + table.print();
}

}  // namespace

double SweepPoint::rate() const {
  if (!best) return 0;
  return best->forecast.tokens_per_s > 0 ? best->forecast.tokens_per_s : best->forecast.samples_per_s;
}

double SweepPoint::dollars_per_step() const { return best ? dollars(price, devices, best->forecast.step_s) : 0; }

double Sweep::efficiency(std::size_t point) const {
  const SweepPoint &first = points.front(), &here = points[point];
  if (!first.best || !here.best) return 0;
  return here.rate() / static_cast<double>(here.devices) / (first.rate() / static_cast<double>(first.devices));
}

std::optional<std::size_t> Sweep::cheapest() const {
  std::optional<std::size_t> found;
  const auto cost = [&](std::size_t i) {
    return points[i].price * static_cast<double>(points[i].devices) / points[i].rate();
  };
  for (std::size_t i = 0; i < points.size(); ++i)
    if (points[i].best && points[i].price > 0 && (!found || cost(i) < cost(*found))) found = i;
  return found;
}

std::string describe(const Sweep& sweep) {
  const bool priced = sweep.points.front().price > 0;
  const std::string rate = sweep.counts_tokens ? "tokens/s" : "samples/s";
  std::string text = fmt::format(
      "{} over {}{}\n", sweep.model, sweep.over,
      sweep.over == "nodes" || sweep.over == "devices"
          ? (sweep.weak ? ", weak scaling: the batch grows with the devices" : ", strong scaling: the batch stays")
          : "");
  for (const std::string& line : sweep.conventions) text += wrapped({line}, "", "  ");
  text += "\n";
  Table table{{{.right = sweep.over != "cluster"},
               {.right = true},
               {.right = true},
               {.most = 44},
               {.right = true},
               {.right = true},
               {.right = true},
               {.right = true},
               {.right = true},
               {.right = true}}};
  table.add({sweep.over, sweep.over == "devices" ? "" : "devices", "batch", "best plan", "step", rate, "MFU", "memory",
             "per device", priced ? (sweep.counts_tokens ? "$/M tokens" : "$/M samples") : ""});
  for (std::size_t i = 0; i < sweep.points.size(); ++i) {
    const SweepPoint& point = sweep.points[i];
    const std::string devices = sweep.over == "devices" ? "" : grouped(point.devices);
    if (!point.best) {
      table.add({point.value, devices, point.global_batch > 0 ? grouped(point.global_batch) : "", point.why_not});
      continue;
    }
    const Forecast& of = point.best->forecast;
    table.add({point.value, devices, grouped(point.global_batch), plan_words(point.best->strategy),
               human(Seconds{of.step_s}), human_count(point.rate()), share_of_all(of.mfu), room_taken(of),
               sweep.efficiency(i) > 0 ? fmt::format("{:.0f} %", 100 * sweep.efficiency(i)) : "",
               priced ? fmt::format("{:.3g}", point.dollars_per_step() / (point.rate() * of.step_s) * 1e6) : ""});
  }
  text += table.print() + "\n" + rate_curve(sweep);
  if (const auto least = sweep.cheapest()) {
    const SweepPoint& point = sweep.points[*least];
    std::string words =
        fmt::format("cheapest: {}={}, {} per step", sweep.over, point.value, money(point.dollars_per_step()));
    if (sweep.tokens > 0 && point.best->forecast.tokens_per_s > 0)
      words += fmt::format(", {} for {} tokens in {:.1f} days",
                           money(dollars(point.price, point.devices, sweep.tokens / point.rate())),
                           human_count(sweep.tokens), sweep.tokens / point.rate() / 86400);
    text += "\n" + words + "\n";
  }
  if (sweep.cancelled) text += "\nstopped before the last point\n";
  return text;
}

nlohmann::json to_json(const Sweep& sweep) {
  using Json = nlohmann::json;
  Json json = {{"model", sweep.model},
               {"over", sweep.over},
               {"scaling", sweep.weak ? "weak" : "strong"},
               {"points", Json::array()},
               {"stopped", sweep.cancelled}};
  for (std::size_t i = 0; i < sweep.points.size(); ++i) {
    const SweepPoint& point = sweep.points[i];
    Json row = {{"value", point.value},
                {"cluster", point.cluster},
                {"devices", point.devices},
                {"global_batch", point.global_batch},
                {"seq", point.seq > 0 ? Json(point.seq) : Json()},
                {"feasible", point.best.has_value()}};
    if (!point.best) {
      row["why"] = point.why_not;
      json["points"].push_back(std::move(row));
      continue;
    }
    const Forecast& of = point.best->forecast;
    const ClassForecast* full = of.fullest();
    row["strategy"] = point.best->strategy;
    row["step_time_s"] = of.step_s;
    row["samples_per_s"] = of.samples_per_s;
    if (of.tokens_per_s > 0) row["tokens_per_s"] = of.tokens_per_s;
    row["mfu"] = of.mfu;
    row["device_bytes"] = full ? Json(full->device_total.value) : Json();
    row["lower_bound_s"] = point.lower_bound_s > 0 ? Json(point.lower_bound_s) : Json();
    row["efficiency"] = sweep.efficiency(i) > 0 ? Json(sweep.efficiency(i)) : Json();
    if (point.price > 0) {
      row["dollars_per_step"] = point.dollars_per_step();
      if (sweep.tokens > 0 && of.tokens_per_s > 0)
        row["dollars_of_training"] = dollars(point.price, point.devices, sweep.tokens / point.rate());
    }
    json["points"].push_back(std::move(row));
  }
  const auto least = sweep.cheapest();
  json["cheapest"] = least ? Json(*least) : Json();
  return json;
}

}  // namespace weft
