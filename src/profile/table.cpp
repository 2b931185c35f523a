#include "profile/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

namespace weft {
namespace {

constexpr std::array<std::string_view, 18> kColumns = {
    "device", "stack",   "operator", "variant",       "cache",  "attributes", "shapes", "dtype", "direction",
    "bytes",  "members", "nodes",    "most_per_node", "mean_s", "spread_s",   "count",  "date",  "source"};
constexpr double kDeciles = 2.5631031310892007;  // from the first to the last decile of a normal distribution, in σ

class Columns {
 public:
  explicit Columns(const CsvTable& table) : table_(table) {}

  bool has(std::string_view name) const { return index(name).has_value(); }
  std::string_view text(const CsvRow& row, std::string_view name) const {
    const auto at = index(name);
    return at ? std::string_view(row.cells[*at]) : std::string_view();
  }
  Result<double> real(const CsvRow& row, std::string_view name) const {
    const std::string_view cell = text(row, name);
    double value = 0;
    const auto [rest, status] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
    if (cell.empty() || status != std::errc() || rest != cell.data() + cell.size())
      return error("{} '{}': not a number", name, cell.substr(0, 40));
    return value;
  }
  Result<std::int64_t> whole(const CsvRow& row, std::string_view name) const {
    const std::string_view cell = text(row, name);
    std::int64_t value = 0;
    const auto [rest, status] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
    if (cell.empty() || status != std::errc() || rest != cell.data() + cell.size())
      return error("{} '{}': not a whole number", name, cell.substr(0, 40));
    return value;
  }

 private:
  std::optional<std::size_t> index(std::string_view name) const {
    const auto found = std::find(table_.columns.begin(), table_.columns.end(), name);
    if (found == table_.columns.end()) return std::nullopt;
    return static_cast<std::size_t>(found - table_.columns.begin());
  }
  const CsvTable& table_;
};

Result<MeasuredEvent> own_row(const Columns& columns, const CsvRow& row) {
  const auto text = [&](std::string_view name) { return std::string(columns.text(row, name)); };
  Event event{.device = text("device"),
              .stack = text("stack"),
              .op = text("operator"),
              .variant = text("variant"),
              .cache = text("cache"),
              .attributes = text("attributes"),
              .shapes = text("shapes"),
              .dtype = text("dtype"),
              .direction = text("direction")};
  WEFT_TRY(event.bytes, columns.whole(row, "bytes"));
  WEFT_TRY(event.members, columns.whole(row, "members"));
  WEFT_TRY(event.nodes, columns.whole(row, "nodes"));
  WEFT_TRY(event.most_per_node, columns.whole(row, "most_per_node"));
  Sample sample{.date = text("date"), .source = text("source")};
  WEFT_TRY(sample.mean_s, columns.real(row, "mean_s"));
  WEFT_TRY(sample.spread_s, columns.real(row, "spread_s"));
  WEFT_TRY(sample.count, columns.whole(row, "count"));
  return MeasuredEvent{std::move(event), {std::move(sample)}};
}

// Rejects rows that do not time one operator alone on a device.
Status check_family(std::string_view family, std::string_view op, std::string_view variant,
                    std::string_view concurrent) {
  if (!concurrent.empty() && concurrent != "none") return error("measured beside other work");
  if (family == "host") return error("host time: no event of a device");
  if (variant.find("_steps") != std::string_view::npos || variant.find("_tensors") != std::string_view::npos)
    return error("variant '{}': several operators in one call", variant);
  if (op == "nothing" || op == "zero" || op == "copy_on_device") return error("{}: no operator of Weft", op);
  return Ok{};
}

Result<MeasuredEvent> measure_gpu_row(const Columns& columns, const CsvRow& row) {
  const auto text = [&](std::string_view name) { return std::string(columns.text(row, name)); };
  WEFT_TRY_OK(check_family(columns.text(row, "family"), columns.text(row, "operator"), columns.text(row, "variant"),
                           columns.text(row, "beside")));
  Event event{.device = text("device"),
              .stack = fmt::format("torch {}", text("torch")),
              .op = text("operator"),
              .variant = text("variant"),
              .cache = text("cache"),
              .attributes = text("attributes"),
              .shapes = text("shapes"),
              .dtype = text("dtype"),
              .direction = text("direction")};
  if (event.op == "copy_to_host" || event.op == "copy_from_host") {
    WEFT_TRY(const TensorType type, parse_tensor_type(event.shapes));
    event.bytes = bytes_of(type.dtype, 1);
    for (std::int64_t size : type.shape)
      if (__builtin_mul_overflow(event.bytes, size, &event.bytes)) return error("shapes '{}': too large", event.shapes);
    event.direction = event.op == "copy_to_host" ? "to_host" : "from_host";
    event.op = "host-copy";
    event.shapes.clear();
  }
  Sample sample;
  WEFT_TRY(const double median, columns.real(row, "us_median"));
  WEFT_TRY(const double low, columns.real(row, "us_p10"));
  WEFT_TRY(const double high, columns.real(row, "us_p90"));
  WEFT_TRY(sample.count, columns.whole(row, "repeats"));
  if (!(low <= median && median <= high))
    return error("us_p10 {}, us_median {}, us_p90 {}: not in order", low, median, high);
  sample.mean_s = median / 1e6;
  sample.spread_s = (high - low) / kDeciles / 1e6;
  return MeasuredEvent{std::move(event), {std::move(sample)}};
}

std::string quoted(std::string_view cell) {
  if (cell.find_first_of(",\"\n\r ") == std::string_view::npos) return std::string(cell);
  std::string text = "\"";
  for (char c : cell) text += c == '"' ? std::string("\"\"") : std::string(1, c);
  return text + '"';
}

}  // namespace

Result<ProfileTable> profile_rows(const CsvTable& table, std::string_view file, const ProfileTableOptions& options) {
  const Columns columns(table);
  const bool measure_gpu = columns.has("us_median");
  static constexpr std::array<std::string_view, 12> kMeasured = {"family",    "operator", "attributes", "shapes",
                                                                 "dtype",     "variant",  "us_median",  "us_p10",
                                                                 "direction", "us_p90",   "repeats",    "device"};
  const auto need = [&](std::string_view name) -> Status {
    if (!columns.has(name))
      return error("no column '{}': neither a profile ({}) nor a table of tools/measure_gpu.py", name,
                   fmt::join(kColumns, ","))
          .at(file);
    return Ok{};
  };
  if (measure_gpu)
    for (std::string_view name : kMeasured) WEFT_TRY_OK(need(name));
  else
    for (std::string_view name : kColumns) WEFT_TRY_OK(need(name));

  ProfileTable found;
  for (const CsvRow& row : table.rows) {
    Result<MeasuredEvent> event = !row.fault.empty() ? Result<MeasuredEvent>(Error{row.fault})
                                  : measure_gpu      ? measure_gpu_row(columns, row)
                                                     : own_row(columns, row);
    if (event.ok()) {
      Sample& sample = event->samples.front();
      if (sample.date.empty()) sample.date = options.date;
      if (sample.source.empty()) sample.source = options.source;
      Status fine = check(event->event);
      if (fine.ok()) fine = check(sample);
      if (!fine.ok()) event = fine.error();
    }
    if (event.ok())
      found.events.push_back(std::move(event).value());
    else
      found.skipped.push_back({row.line, event.error().message});
  }
  return found;
}

std::string profile_csv(const std::vector<MeasuredEvent>& events) {
  std::string text = fmt::format("{}\n", fmt::join(kColumns, ","));
  for (const MeasuredEvent& measured : events)
    for (const Sample& sample : measured.samples) {
      const Event& event = measured.event;
      for (const std::string* cell : {&event.device, &event.stack, &event.op, &event.variant, &event.cache,
                                      &event.attributes, &event.shapes, &event.dtype, &event.direction})
        text += quoted(*cell) + ",";
      text += fmt::format("{},{},{},{},{},{},{},{},{}\n", event.bytes, event.members, event.nodes, event.most_per_node,
                          sample.mean_s, sample.spread_s, sample.count, quoted(sample.date), quoted(sample.source));
    }
  return text;
}

}  // namespace weft
