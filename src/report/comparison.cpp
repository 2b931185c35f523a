#include "report/comparison.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/units.h"
#include "report/interval.h"
#include "report/plan_search.h"
#include "report/simulation.h"
#include "report/table.h"

namespace weft {
namespace {

using Json = nlohmann::json;

std::string part_text(double share) { return fmt::format("{:.1f} %", 100 * share); }

struct DifferingWord {
  std::string key, a, b;
};

// The items of a shorthand: "tp" → "8".
std::vector<std::pair<std::string, std::string>> shorthand_items(const std::string& shorthand) {
  std::vector<std::pair<std::string, std::string>> items;
  for (std::size_t at = 0; at < shorthand.size();) {
    const std::size_t end = std::min(shorthand.find(',', at), shorthand.size());
    const std::string item = shorthand.substr(at, end - at);
    const std::size_t equals = std::min(item.find('='), item.size());
    items.emplace_back(item.substr(0, equals), equals < item.size() ? item.substr(equals + 1) : "");
    at = end + 1;
  }
  return items;
}

// What of problem and strategy differs; a key that one of two shorthands leaves out has its default there, "—".
std::vector<DifferingWord> differences(const ComparedPlan& a, const ComparedPlan& b) {
  std::vector<DifferingWord> found;
  const auto add = [&](std::string key, std::string mine, std::string theirs) {
    if (mine != theirs) found.push_back({std::move(key), std::move(mine), std::move(theirs)});
  };
  const TrainingJob &job = *a.plan.job, &other = *b.plan.job;
  add("model", job.words.model, other.words.model);
  add("cluster", job.words.cluster, other.words.cluster);
  add("devices", grouped(job.device_count()), grouped(other.device_count()));
  add("global batch", grouped(a.plan.batch.global_batch), grouped(b.plan.batch.global_batch));
  add("sequence", grouped(a.plan.model->info.seq), grouped(b.plan.model->info.seq));
  add("stack", job.stack.name, other.stack.name);
  add("dtype", job.precision.name, other.precision.name);
  add("optimizer", std::string(name_of(a.plan.model->options.optimizer)),
      std::string(name_of(b.plan.model->options.optimizer)));
  if (!a.plan.parallelism || !b.plan.parallelism) {
    add("strategy", a.plan.name, b.plan.name);
    return found;
  }
  const auto mine = shorthand_items(print(shorthand_of(*a.plan.parallelism)));
  const auto theirs = shorthand_items(print(shorthand_of(*b.plan.parallelism)));
  const auto value = [](const auto& items, const std::string& key) {
    const auto at = std::find_if(items.begin(), items.end(), [&](const auto& item) { return item.first == key; });
    return at == items.end() ? std::string("—") : at->second;
  };
  for (const auto& [key, text] : mine) add(key, text, value(theirs, key));
  for (const auto& [key, text] : theirs)
    if (value(mine, key) == "—") add(key, "—", text);
  return found;
}

struct ComparedRow {
  std::string key, words;
  double a = 0, b = 0;
};

std::vector<ComparedRow> time_rows(const ComparedPlan& a, const ComparedPlan& b) {
  std::vector<ComparedRow> rows;
  if (!a.forecast.breakdown || !b.forecast.breakdown) return rows;
  const std::vector<TimePart> mine = time_parts(*a.forecast.breakdown), theirs = time_parts(*b.forecast.breakdown);
  for (std::size_t i = 0; i < mine.size(); ++i)
    if (mine[i].time != 0 || theirs[i].time != 0)
      rows.push_back({mine[i].key, mine[i].words, seconds_of(mine[i].time), seconds_of(theirs[i].time)});
  return rows;
}

std::vector<ComparedRow> memory_rows(const ComparedPlan& a, const ComparedPlan& b) {
  std::vector<ComparedRow> rows;
  const ClassForecast *mine = a.forecast.fullest(), *theirs = b.forecast.fullest();
  if (!mine || !theirs) return rows;
  const auto add = [&](const char* key, const char* words, Bytes x, Bytes y) {
    if (x.value != 0 || y.value != 0)
      rows.push_back({key, words, static_cast<double>(x.value), static_cast<double>(y.value)});
  };
  add("parameters", "weights", mine->allocated.parameters, theirs->allocated.parameters);
  add("gradients", "gradients", mine->allocated.gradients, theirs->allocated.gradients);
  add("optimizer", "optimizer", mine->allocated.optimizer, theirs->allocated.optimizer);
  add("activations", "activations", mine->allocated.activations, theirs->allocated.activations);
  add("buffers", "buffers", mine->allocated.buffers, theirs->allocated.buffers);
  add("device", "device in all", mine->device_total, theirs->device_total);
  return rows;
}

// "+12.3 ms", "−4.1 GiB", "=".
template <class Human>
std::string change_text(double a, double b, const Human& human_of) {
  if (a == b) return "=";
  return (b > a ? "+" : "−") + human_of(std::abs(b - a));
}

std::string seconds_text(double seconds) { return seconds > 0 ? human(Seconds{seconds}) : "—"; }
std::string bytes_text(double bytes) { return human(Bytes{static_cast<std::int64_t>(bytes)}); }

}  // namespace

std::string describe(const ComparedPlan& a, const ComparedPlan& b) {
  std::string text;
  text += wrapped({"A  " + a.name}, "", "") + wrapped({"B  " + b.name}, "", "") + "\n";
  const std::vector<DifferingWord> settings = differences(a, b);
  Table differing{{{}, {.most = 42}, {.most = 42}}};
  differing.add({"what differs", "A", "B"});
  for (const DifferingWord& each : settings) differing.add({each.key, each.a, each.b});
  text += settings.empty() ? "nothing differs\n" : differing.print("");

  Table table{{{}, {.right = true}, {.right = true}, {.right = true}, {.right = true}}};
  const auto headed = [&](const std::string& title) { table.add({title, "A", "B", "B − A", ""}); };
  const double step_a = a.forecast.step_s, step_b = b.forecast.step_s;
  const auto share = [](double x, double y) { return x > 0 ? fmt::format("{:+.1f} %", 100 * (y / x - 1)) : ""; };
  headed("result");
  table.add({"  step", seconds_text(step_a), seconds_text(step_b), change_text(step_a, step_b, seconds_text),
             share(step_a, step_b)});
  const bool tokens = a.forecast.tokens_per_s > 0 && b.forecast.tokens_per_s > 0;
  const double rate_a = tokens ? a.forecast.tokens_per_s : a.forecast.samples_per_s;
  const double rate_b = tokens ? b.forecast.tokens_per_s : b.forecast.samples_per_s;
  table.add(
      {tokens ? "  tokens/s" : "  samples/s", human_count(rate_a), human_count(rate_b), "", share(rate_a, rate_b)});
  table.add({"  MFU", part_text(a.forecast.mfu), part_text(b.forecast.mfu), "", ""});
  const auto verdict = [](const Forecast& of) { return std::string(name_of(of.fit())); };
  table.add({"  memory", verdict(a.forecast), verdict(b.forecast), "", ""});
  const std::vector<ComparedRow> times = time_rows(a, b);
  if (!times.empty()) headed("where the time goes");
  for (const ComparedRow& row : times)
    table.add(
        {"  " + row.words, seconds_text(row.a), seconds_text(row.b), change_text(row.a, row.b, seconds_text), ""});
  headed("memory of the fullest device");
  for (const ComparedRow& row : memory_rows(a, b))
    table.add({"  " + row.words, bytes_text(row.a), bytes_text(row.b), change_text(row.a, row.b, bytes_text),
               share(row.a, row.b)});
  text += "\n" + table.print("") + "\n";

  // The verdict: what the slower one loses.
  const bool by_rate = rate_a != rate_b;
  if (!by_rate) return text + "both take the same time\n";
  const bool b_wins = rate_b > rate_a;
  const ComparedPlan &fast = b_wins ? b : a, &slow = b_wins ? a : b;
  std::vector<std::string> words;
  constexpr std::size_t kMost = 4;
  for (const Loss& loss : losses(slow.forecast, fast.forecast))
    if (loss.seconds > 0.002 * fast.forecast.step_s && words.size() < kMost)
      words.push_back(fmt::format("{} {}", loss.what, seconds_text(loss.seconds)));
  text += fmt::format("{} is {:.1f} % faster", b_wins ? "B" : "A",
                      100 * (std::max(rate_a, rate_b) / std::min(rate_a, rate_b) - 1));
  text += words.empty() ? "\n" : fmt::format("; {} loses\n", b_wins ? "A" : "B") + wrapped(words, ", ", "  ");
  for (const ComparedPlan* each : {&a, &b})
    if (!each->forecast.feasible)
      text += fmt::format("{} does not fit: {} more than its devices have\n", each == &a ? "A" : "B",
                          human(each->forecast.fullest()->overshoot()));
  return text;
}

Json to_json(const ComparedPlan& a, const ComparedPlan& b) {
  Json json = {{"a", to_json(a.plan, a.played, a.forecast)}, {"b", to_json(b.plan, b.played, b.forecast)}};
  json["names"] = {a.name, b.name};
  json["differs"] = Json::array();
  for (const DifferingWord& each : differences(a, b))
    json["differs"].push_back({{"what", each.key}, {"a", each.a}, {"b", each.b}});
  json["time_s"] = Json::object();
  for (const ComparedRow& row : time_rows(a, b)) json["time_s"][row.key] = {{"a", row.a}, {"b", row.b}};
  json["memory_bytes"] = Json::object();
  for (const ComparedRow& row : memory_rows(a, b)) json["memory_bytes"][row.key] = {{"a", row.a}, {"b", row.b}};
  const double rate_a = a.forecast.samples_per_s, rate_b = b.forecast.samples_per_s;
  json["faster"] = rate_a == rate_b ? Json() : Json(rate_a > rate_b ? "a" : "b");
  return json;
}

}  // namespace weft
