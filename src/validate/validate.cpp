#include "validate/validate.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "cost/analytic.h"
#include "problem/parallel.h"
#include "validate/planned.h"

namespace weft {
namespace {

constexpr double kGibi = 1024.0 * 1024 * 1024;
constexpr std::size_t kGroupForRegret = 5;

std::string group_of(const MeasuredRow& row) {
  std::string key;
  for (std::string_view column : {"source", "set", "model", "layers", "hidden", "gpu", "gpus", "cluster", "devices",
                                  "stack", "global_batch", "seq", "dtype"})
    key += fmt::format("{}{}", key.empty() ? "" : " · ", row.text(column));
  return key;
}

// The key of weak scaling: rows with the same batch per device.
std::string scaling_of(const MeasuredRow& row) {
  std::string key;
  for (std::string_view column :
       {"source", "set", "model", "layers", "hidden", "gpu", "strategy", "micro_batch", "seq", "dtype", "tp", "pp"})
    key += fmt::format("{}{}", key.empty() ? "" : " · ", row.text(column));
  return key;
}

Bytes memory_of(const Forecast& found, MemoryKind kind) {
  Bytes most;
  for (const ClassForecast& each : found.memory) {
    const Bytes held = kind == MemoryKind::Allocated  ? each.allocated.total()
                       : kind == MemoryKind::Reserved ? each.reserved
                                                      : each.device_total;
    most = std::max(most, held);
  }
  return most;
}

Result<Prediction> predict(const MeasuredRow& row, const ValidateOptions& options, const Calibration& calibration,
                           bool record) {
  WEFT_TRY(PlannedRow planned, plan_row(row, options.rules, options.stack, calibration));
  const Plan& plan = planned.plan;
  const AnalyticCost cost(plan.stack(), plan.job->tuning);
  const ForecastOptions forecasting{.record = record};
  WEFT_TRY(const PlayedPlan played, play_plan(plan, std::move(planned.compiled), cost, forecasting));
  const Forecast found = judge(plan, played, forecasting);
  MappedRow& mapped = planned.mapped;
  Prediction out{.file = row.file,
                 .line = row.line,
                 .source = std::string(row.text(row.typed ? "set" : "source")),
                 .model = std::string(row.text("model")),
                 .gpu = std::string(row.text(row.typed ? "cluster" : "gpu")),
                 .gpus = static_cast<std::int64_t>(plan.ranks().size()),
                 .request = std::move(mapped.request),
                 .overrides = std::move(mapped.overrides),
                 .group = group_of(row),
                 .scaling = scaling_of(row),
                 .set = mapped.set,
                 .publication = publication_of(row),
                 .kind = kind_of(plan),
                 .timed = mapped.timed,
                 .measure = row.measure,
                 .memory = mapped.memory};
  out.measured_s = planned.measured_s;
  out.predicted_s = found.step_s;
  out.error = out.predicted_s / out.measured_s - 1;
  out.interval = found.interval;
  out.feasible = found.feasible;
  out.fit = found.fit();
  out.notes = plan.job->notes;
  out.measured_gib = row.memory_gib;
  if (row.memory_gib) {
    out.predicted_gib = static_cast<double>(memory_of(found, mapped.memory).value) / kGibi;
    out.memory_error = *out.predicted_gib / *row.memory_gib - 1;
  }
  out.breakdown = found.breakdown;
  for (const PathShare& share : found.critical_path) out.path.emplace_back(share.what, seconds_of(share.time));
  return out;
}

// What a prediction depends on: rows with the same key ran the same plan, once with every release of its software, say.
// Empty where the time of a step is not what the row has.
std::string plan_of(const MeasuredRow& row) {
  std::string key;
  if (!row.typed || row.measure != Measure::Time) return key;
  for (std::string_view column :
       {"set", "model", "cluster", "devices", "strategy", "stack", "dtype", "seq", "global_batch", "mem_kind"})
    key += fmt::format("{} · ", row.text(column));
  return key + (row.memory_gib ? "memory" : "");
}

// The same plan, measured once more.
Result<Prediction> measured_anew(const Result<Prediction>& first, const MeasuredRow& row) {
  WEFT_TRY(Prediction out, first);
  out.file = row.file;
  out.line = row.line;
  out.measured_s = row.value;
  out.error = out.predicted_s / out.measured_s - 1;
  out.measured_gib = row.memory_gib;
  out.memory_error = row.memory_gib ? *out.predicted_gib / *row.memory_gib - 1 : 0;
  return out;
}

// Scores the ratios of the time of eight devices to that of one, if both were measured with the same batch per device.
void score_scaling(const std::vector<const Prediction*>& rows, TableScore& score) {
  std::map<std::string, std::map<std::int64_t, const Prediction*>> by_count;
  for (const Prediction* each : rows) by_count[each->file + each->scaling].emplace(each->gpus, each);
  std::vector<double> errors;
  for (const auto& [key, counts] : by_count) {
    const auto one = counts.find(1), eight = counts.find(8);
    if (one == counts.end() || eight == counts.end()) continue;
    const double measured = eight->second->measured_s / one->second->measured_s;
    errors.push_back(std::abs(eight->second->predicted_s / one->second->predicted_s / measured - 1));
  }
  score.scaling_pairs = static_cast<int>(errors.size());
  score.scaling_mape = mean(errors);
}

TableScore score_of(const std::string& name, const std::vector<const Prediction*>& rows) {
  TableScore score;
  score.name = name;
  std::vector<double> errors, untimed, memory, widths;
  std::map<std::string, std::pair<std::vector<double>, std::vector<double>>> groups;  // measured, predicted
  double signed_sum = 0;
  int within = 0;
  for (const Prediction* each : rows) {
    score.called_out += each->fit == Fit::DoesNotFit ? 1 : 0;
    if (each->predicted_gib) memory.push_back(std::abs(each->memory_error));
    if (!each->timed) {
      untimed.push_back(std::abs(each->error));
      continue;
    }
    errors.push_back(std::abs(each->error));
    signed_sum += each->error;
    widths.push_back(each->interval.half_width);
    within += each->within() ? 1 : 0;
    auto& [measured, predicted] = groups[each->file + each->group];
    measured.push_back(each->measured_s);
    predicted.push_back(each->predicted_s);
  }
  score.rows = static_cast<int>(rows.size());
  score.mape = mean(errors);
  score.median_ape = median(errors);
  score.bias = errors.empty() ? 0 : signed_sum / static_cast<double>(errors.size());
  score.within = errors.empty() ? 0 : within / static_cast<double>(errors.size());
  score.half_width = median(widths);
  score.untimed = static_cast<int>(untimed.size());
  score.untimed_mape = mean(untimed);
  score_scaling(rows, score);
  for (const auto& [key, group] : groups) {
    if (group.first.size() < 2) continue;
    ++score.groups;
    score.order += concordance(group.first, group.second);
    if (group.first.size() >= kGroupForRegret)
      score.worst_regret = std::max(score.worst_regret, regret(group.first, group.second));
  }
  score.memory_rows = static_cast<int>(memory.size());
  score.memory_mape = mean(memory);
  score.memory_median_ape = median(memory);
  return score;
}

void score_all(const std::vector<MeasuredFile>& files, Validation& out) {
  const auto rows_where = [&](const auto& belongs) {
    std::vector<const Prediction*> rows;
    for (const Prediction& each : out.predictions)
      if (belongs(each)) rows.push_back(&each);
    return rows;
  };
  for (const MeasuredFile& file : files) {
    out.files.push_back(
        score_of(file.file, rows_where([&](const Prediction& each) { return each.file == file.file; })));
    for (const SkippedRow& each : out.skipped) out.files.back().skipped += each.file == file.file ? 1 : 0;
  }
  std::vector<std::string> sets;
  for (const Prediction& each : out.predictions)
    if (!each.set.empty() && std::find(sets.begin(), sets.end(), each.set) == sets.end()) sets.push_back(each.set);
  for (const std::string& set : sets)
    out.sets.push_back(score_of(set, rows_where([&](const Prediction& each) { return each.set == set; })));
  out.total = score_of("", rows_where([](const Prediction&) { return true; }));
  out.total.skipped = static_cast<int>(out.skipped.size());
}

}  // namespace

Validation validate_measured(const std::vector<MeasuredFile>& files, const ValidateOptions& options) {
  const Calibration calibration = options.calibration ? *options.calibration : Calibration{};
  std::vector<const MeasuredRow*> rows;
  Validation out;
  for (const MeasuredFile& file : files) {
    for (const MeasuredRow& row : file.rows) rows.push_back(&row);
    out.skipped.insert(out.skipped.end(), file.skipped.begin(), file.skipped.end());
  }
  std::vector<std::optional<Result<Prediction>>> found(rows.size());
  const auto cancelled = [&] { return options.cancelled && options.cancelled->load(std::memory_order_relaxed); };
  std::vector<std::size_t> first(rows.size());  // the first row of the same plan
  std::map<std::string, std::size_t> known;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const std::string plan = plan_of(*rows[i]);
    first[i] = plan.empty() ? i : known.emplace(plan, i).first->second;
  }
  for_each_index(rows.size(), options.threads, 1, [&](std::size_t i) {
    if (first[i] != i) return;
    found[i] = cancelled() ? Result<Prediction>(error("cancelled")) : predict(*rows[i], options, calibration, false);
  });
  for (std::size_t i = 0; i < rows.size(); ++i)
    if (first[i] != i) found[i] = measured_anew(*found[first[i]], *rows[i]);
  std::vector<const MeasuredRow*> row_of;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (found[i]->ok()) {
      out.predictions.push_back(std::move(*found[i]).value());
      row_of.push_back(rows[i]);
    } else {
      out.skipped.push_back({rows[i]->file, rows[i]->line, found[i]->error().message});
    }
  }
  std::map<std::string, std::size_t> order;
  for (const MeasuredFile& file : files) order.try_emplace(file.file, order.size());
  std::stable_sort(out.skipped.begin(), out.skipped.end(), [&](const SkippedRow& a, const SkippedRow& b) {
    return std::pair(order[a.file], a.line) < std::pair(order[b.file], b.line);
  });

  out.worst.resize(out.predictions.size());
  for (std::size_t i = 0; i < out.worst.size(); ++i) out.worst[i] = i;
  std::stable_sort(out.worst.begin(), out.worst.end(), [&](std::size_t a, std::size_t b) {
    return std::abs(out.predictions[a].error) > std::abs(out.predictions[b].error);
  });
  out.worst.resize(std::min(out.worst.size(), options.worst));
  for_each_index(out.worst.size(), options.threads, 1, [&](std::size_t i) {
    if (cancelled()) return;
    Result<Prediction> again = predict(*row_of[out.worst[i]], options, calibration, true);
    if (again.ok()) out.predictions[out.worst[i]] = std::move(again).value();
  });

  score_all(files, out);
  return out;
}

}  // namespace weft
