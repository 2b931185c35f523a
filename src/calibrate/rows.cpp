#include "calibrate/rows.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "base/check.h"
#include "problem/parallel.h"

namespace weft {

FitRows::FitRows(const std::vector<MeasuredFile>& files, const MappingRules& rules,
                 const std::vector<std::string>& held_out, bool keep_unfitted, int threads,
                 std::vector<SkippedRow>& skipped)
    : threads_(threads) {
  std::vector<const MeasuredRow*> rows;
  for (const MeasuredFile& file : files) {
    skipped.insert(skipped.end(), file.skipped.begin(), file.skipped.end());
    for (const MeasuredRow& row : file.rows) rows.push_back(&row);
  }
  std::vector<std::optional<Result<PlannedRow>>> planned(rows.size());
  for_each_index(rows.size(), threads, 1, [&](std::size_t i) { planned[i] = plan_row(*rows[i], rules); });
  const Tuning& tuning = built_in_tuning();
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (!planned[i]->ok()) {
      skipped.push_back({rows[i]->file, rows[i]->line, planned[i]->error().message});
      continue;
    }
    FitRow row{rows[i], std::move(*planned[i]).value(), {}, 1};
    const std::string name = rows[i]->file.substr(rows[i]->file.rfind('/') + 1);
    row.fitted = row.planned.mapped.fitted && std::find(held_out.begin(), held_out.end(), name) == held_out.end();
    if (!row.planned.mapped.timed || !(row.fitted || keep_unfitted)) continue;
    const Plan& plan = row.planned.plan;
    const std::vector<DeviceId> ranks = plan.ranks();
    row.device = tuning.of(plan.cluster().spec(ranks.front())).name;
    std::set<NodeId> nodes;
    for (DeviceId device : ranks) nodes.insert(plan.cluster().node_of(device));
    row.nodes = static_cast<int>(nodes.size());
    rows_.push_back(std::move(row));
  }
}

std::vector<std::size_t> FitRows::touched_by(const FittedConstant& constant) const {
  std::vector<std::size_t> touched;
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    const FitRow& row = rows_[i];
    const auto touches = [&](const std::string& place) {
      if (place.starts_with("devices/" + row.device + "/")) return true;
      if (place.starts_with("stacks/" + row.planned.plan.stack().name + "/")) return true;
      if (place.starts_with("devices/") || place.starts_with("stacks/")) return false;
      if (place.starts_with("links/nic/") || place.starts_with("links/fabric/")) return row.nodes > 1;
      return row.planned.plan.ranks().size() > 1;
    };
    if (row.fitted && std::any_of(constant.places.begin(), constant.places.end(), touches)) touched.push_back(i);
  }
  return touched;
}

std::vector<double> FitRows::errors(const std::vector<Try>& tries) const {
  std::vector<double> out(tries.size());
  for_each_index(tries.size(), threads_, 1, [&](std::size_t i) {
    const PlannedRow& planned = rows_[tries[i].row].planned;
    const Result<double> predicted = predicted_seconds(planned, *tries[i].with);
    // A compiled row can be simulated with any constants.
    WEFT_CHECK(predicted.ok(), "{}", predicted.error().message);
    out[i] = std::log(*predicted / planned.measured_s);
  });
  return out;
}

}  // namespace weft
