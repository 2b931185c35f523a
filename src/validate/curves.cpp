#include "validate/curves.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>

#include "cost/analytic.h"
#include "validate/mapping.h"
#include "validate/score.h"

namespace weft {
namespace {

constexpr double kMebi = 1024.0 * 1024;

std::optional<double> number(std::string_view text) {
  double value = 0;
  const auto [rest, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || status != std::errc() || rest != text.data() + text.size() || !std::isfinite(value) || value <= 0)
    return std::nullopt;
  return value;
}

// Letters alone, in lower case: "all reduce", "allreduce" and "AllReduce" are equal.
std::string letters(std::string_view text) {
  std::string out;
  for (char c : text)
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) out += static_cast<char>(c | 0x20);
  return out;
}

class Curves {
 public:
  Curves(const MappingRules& rules, const Calibration* calibration)
      : rules_(rules),
        calibration_(calibration ? *calibration : Calibration{}),
        stack_(plain_stack()),
        cost_(stack_, calibration_.tuning) {}

  Result<CurvePoint> compare(const MeasuredRow& row) {
    if (!row.text("op").empty() && letters(row.text("op")) != "allreduce")
      return error("op '{}': only all-reduces are compared", row.text("op").substr(0, 40));
    const auto count = number(first(row, {"ngpus", "ngpus_single_node"}));
    if (!count || *count != std::floor(*count)) return error("no number of devices");
    auto bytes = number(row.text("size_bytes"));
    if (const auto mebi = number(row.text("size_mb")); !bytes && mebi) bytes = *mebi * kMebi;
    if (!bytes || *bytes > 1e15) return error("no size");
    auto seconds = number(row.text("time_ms"));
    if (seconds) seconds = *seconds * 1e-3;
    if (const auto nano = number(row.text("out_of_place_time_ns")); !seconds && nano) seconds = *nano * 1e-9;
    if (!seconds) return error("no time measured");
    CurvePoint point{row.line,
                     std::string(row.text("gpu")),
                     static_cast<std::int64_t>(*count),
                     static_cast<std::int64_t>(*bytes),
                     *seconds,
                     0,
                     0};
    WEFT_TRY(const Communicator* group, group_of(row, point.devices));
    point.predicted_s = seconds_of(isolated_time(cost_.communicate(CommunicateQuery{group, point.bytes})));
    point.error = point.predicted_s / point.measured_s - 1;
    return point;
  }

 private:
  static SoftwareStack plain_stack() {
    SoftwareStack stack = find_stack("pytorch-ddp").value();
    stack.nvls.value = false;
    return stack;
  }
  static std::string_view first(const MeasuredRow& row, std::initializer_list<std::string_view> columns) {
    for (std::string_view column : columns)
      if (!row.text(column).empty()) return row.text(column);
    return {};
  }

  Result<const Communicator*> group_of(const MeasuredRow& row, std::int64_t devices) {
    const std::string node = rules_.node_of(row);
    if (node.empty()) return error("gpu '{}': no rule names its node", row.text("gpu").substr(0, 40));
    const std::pair key(node, devices);
    if (const auto found = groups_.find(key); found != groups_.end()) return &found->second;
    WEFT_TRY(Cluster cluster, parse_cluster(node));
    if (devices < 2 || devices > cluster.device_count())
      return error("{} devices: {} has {}", devices, node, cluster.device_count());
    const Cluster& kept = clusters_.emplace(key, std::move(cluster)).first->second;
    std::vector<DeviceId> members;
    for (std::int64_t i = 0; i < devices; ++i) members.emplace_back(static_cast<std::size_t>(i));
    return &groups_.emplace(key, make_communicator(kept, members, Collective::AllReduce)).first->second;
  }

  const MappingRules& rules_;
  const Calibration calibration_;
  const SoftwareStack stack_;
  const AnalyticCost cost_;
  std::map<std::pair<std::string, std::int64_t>, Cluster> clusters_;
  std::map<std::pair<std::string, std::int64_t>, Communicator> groups_;
};

}  // namespace

bool is_table_of_curves(const CsvTable& table) {
  const auto has = [&](std::string_view column) {
    return std::find(table.columns.begin(), table.columns.end(), column) != table.columns.end();
  };
  return has("gpu") && (has("ngpus") || has("ngpus_single_node")) && (has("size_bytes") || has("size_mb")) &&
         (has("time_ms") || has("out_of_place_time_ns"));
}

CurveValidation validate_curves(const CsvTable& table, const std::string& file, const MappingRules& rules,
                                const Calibration* calibration) {
  CurveValidation out{file, {}, {}, 0, 0};
  Curves curves(rules, calibration);
  std::vector<double> errors;
  for (const CsvRow& from : table.rows) {
    MeasuredRow row{.file = file, .line = from.line, .cells = {}};
    for (std::size_t i = 0; i < std::min(table.columns.size(), from.cells.size()); ++i)
      if (!from.cells[i].empty()) row.cells[table.columns[i]] = from.cells[i];
    Result<CurvePoint> point = from.fault.empty() ? curves.compare(row) : Result<CurvePoint>(Error{from.fault});
    if (!point.ok()) {
      out.skipped.push_back({file, from.line, point.error().message});
      continue;
    }
    errors.push_back(std::abs(point->error));
    out.points.push_back(std::move(point).value());
  }
  out.mape = mean(errors);
  out.median_ape = median(errors);
  return out;
}

}  // namespace weft
