#include "validate/measured.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <span>

namespace weft {
namespace {

constexpr std::array<std::string_view, 17> kWhole = {
    "gpus",        "gpus_per_node", "layers", "hidden", "heads", "kv_heads", "ffn", "vocab", "seq",
    "micro_batch", "global_batch",  "tp",     "pp",     "dp",    "cp",       "ep",  "vpp"};
constexpr std::array<std::string_view, 6> kNeeded = {"gpu", "gpus", "model", "global_batch", "tp", "dp"};
constexpr std::array<std::string_view, 6> kMeasures = {"iter_time_s",   "tokens_per_s_total", "tokens_per_s_per_gpu",
                                                       "samples_per_s", "tflops_per_gpu",     "mfu_pct"};
constexpr std::array<std::string_view, 5> kTypedNeeded = {"model", "cluster", "strategy", "global_batch",
                                                          "measured_step_s"};
constexpr std::array<std::string_view, 3> kTypedWhole = {"devices", "seq", "global_batch"};
constexpr std::int64_t kMostWhole = std::int64_t{1} << 40;

// A decimal number in any usual form; none: not a number, or not finite.
std::optional<double> parse_number(std::string_view text) {
  double value = 0;
  const auto [rest, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (status != std::errc() || rest != text.data() + text.size() || !std::isfinite(value)) return std::nullopt;
  return value;
}

Result<std::optional<double>> positive(const MeasuredRow& row, std::string_view column) {
  const std::string_view text = row.text(column);
  if (text.empty()) return std::optional<double>();
  const std::optional<double> value = parse_number(text);
  if (!value || *value <= 0) return error("{} '{}': not a number above zero", column, text.substr(0, 40));
  return value;
}

Status read_measures(MeasuredRow& row) {
  const double gpus = static_cast<double>(*row.number("gpus"));
  struct Column {
    std::string_view name;
    Measure measure;
    double factor;
  };
  const Column columns[] = {{"iter_time_s", Measure::Time, 1},
                            {"tokens_per_s_total", Measure::Tokens, 1},
                            {"tokens_per_s_per_gpu", Measure::Tokens, gpus},
                            {"samples_per_s", Measure::Samples, 1},
                            {"tflops_per_gpu", Measure::Tflops, 1},
                            {"mfu_pct", Measure::Mfu, 0.01}};
  for (const Column& column : columns) {
    WEFT_TRY(const std::optional<double> value, positive(row, column.name));
    if (!value) continue;
    if (column.measure == Measure::Tokens && !row.number("seq")) continue;
    row.measure = column.measure;
    row.value = *value * column.factor;
    return Ok{};
  }
  return error("nothing measured: {} are empty", fmt::join(kMeasures, ", "));
}

Status check_whole(const MeasuredRow& row, std::span<const std::string_view> columns) {
  for (std::string_view column : columns) {
    const std::string_view text = row.text(column);
    if (text.empty()) continue;
    const std::optional<double> whole = parse_number(text);
    if (!whole || *whole < 1 || *whole > static_cast<double>(kMostWhole) || std::floor(*whole) != *whole)
      return error("{} '{}': not a whole number of at least 1", column, text.substr(0, 40));
  }
  return Ok{};
}

Status check_typed(MeasuredRow& row) {
  for (std::string_view column : kTypedNeeded)
    if (row.text(column).empty()) return error("{} is empty", column);
  WEFT_TRY_OK(check_whole(row, kTypedWhole));
  WEFT_TRY(const std::optional<double> seconds, positive(row, "measured_step_s"));
  row.measure = Measure::Time;
  row.value = *seconds;
  WEFT_TRY(row.memory_gib, positive(row, "measured_mem_gib"));
  const std::string_view kind = row.text("mem_kind");
  if (kind.empty()) row.memory_gib.reset();  // unknown kind of memory: not compared
  if (row.memory_gib && kind != "allocated" && kind != "reserved" && kind != "device")
    return error("mem_kind '{}': write allocated, reserved or device", kind.substr(0, 40));
  return Ok{};
}

Status check(MeasuredRow& row) {
  for (std::string_view column : kNeeded)
    if (row.text(column).empty() && column != "tp" && column != "dp") return error("{} is empty", column);
  WEFT_TRY_OK(check_whole(row, kWhole));
  WEFT_TRY_OK(read_measures(row));
  WEFT_TRY(row.memory_gib, positive(row, "mem_gb"));
  return Ok{};
}

}  // namespace

std::string_view name_of(Measure measure) {
  constexpr std::array<std::string_view, 5> names = {"iteration time", "tokens per second", "samples per second",
                                                     "TFLOP/s", "MFU"};
  return names[static_cast<std::size_t>(measure)];
}

std::string_view MeasuredRow::text(std::string_view column) const {
  const auto found = cells.find(column);
  return found == cells.end() ? std::string_view() : std::string_view(found->second);
}

std::optional<std::int64_t> MeasuredRow::number(std::string_view column) const {
  const std::optional<double> read = parse_number(text(column));
  if (!read) return std::nullopt;
  return static_cast<std::int64_t>(*read);
}

std::string publication_of(const MeasuredRow& row) {
  if (row.typed && !row.text("set").empty()) return std::string(row.text("set"));
  return row.file.substr(row.file.rfind('/') + 1);
}

Result<MeasuredFile> measured_rows(const CsvTable& table, const std::string& file) {
  const auto has = [&](std::string_view column) {
    return std::find(table.columns.begin(), table.columns.end(), column) != table.columns.end();
  };
  const bool typed = has("cluster") && has("strategy");
  const std::span<const std::string_view> needed =
      typed ? std::span<const std::string_view>(kTypedNeeded) : std::span<const std::string_view>(kNeeded);
  for (std::string_view column : needed)
    if (!has(column))
      return error("no column '{}': not a table of measured runs; it needs {}, or {} and one of {}", column,
                   fmt::join(kTypedNeeded, ", "), fmt::join(kNeeded, ", "), fmt::join(kMeasures, ", "))
          .at(file);
  if (!typed && std::none_of(kMeasures.begin(), kMeasures.end(), has))
    return error("no column of a measure: one of {}", fmt::join(kMeasures, ", ")).at(file);
  MeasuredFile out{file, {}, {}};
  for (const CsvRow& from : table.rows) {
    MeasuredRow row{.file = file, .line = from.line, .typed = typed, .cells = {}};
    for (std::size_t i = 0; i < table.columns.size(); ++i)
      if (!from.cells[i].empty()) row.cells[table.columns[i]] = from.cells[i];
    const Status checked = !from.fault.empty() ? Status(Error{from.fault}) : typed ? check_typed(row) : check(row);
    if (checked.ok())
      out.rows.push_back(std::move(row));
    else
      out.skipped.push_back({file, from.line, checked.error().message});
  }
  return out;
}

Result<MeasuredFile> read_measured(const std::string& path) {
  WEFT_TRY(const CsvTable table, read_csv(path));
  return measured_rows(table, path);
}

}  // namespace weft
