// A measured run: one row of a table, checked, and its measurement.
//
// Columns are found by name, in any order; unknown ones are ignored. Two forms:
//  - as one would type it: model, cluster, devices, strategy, stack, dtype, seq, global_batch are the options of the
//    command line, and measured_step_s, measured_mem_gib the measurements. Nothing is guessed: memory without a
//    mem_kind is not compared.
//  - as publications print it: gpu, gpus, model, shapes and degrees, and one measure: iteration time, else tokens per
//    second, else samples per second, else TFLOP/s or MFU. Rules (mapping.h) determine the plan.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/csv.h"

namespace weft {

enum class Measure : std::uint8_t { Time, Tokens, Samples, Tflops, Mfu };
std::string_view name_of(Measure measure);  // "iteration time", …

struct MeasuredRow {
  std::string file;
  int line = 0;
  bool typed = false;                                     // with the command line's options
  std::map<std::string, std::string, std::less<>> cells;  // by column, the empty ones left out

  Measure measure{};
  double value = 0;                       // seconds; per second, of all devices; TFLOP/s per device; MFU as a share
  std::optional<double> memory_gib = {};  // of the fullest device

  // A cell's text, empty if there is none.
  std::string_view text(std::string_view column) const;
  // A whole number of at least 1; none: the cell is empty. Reading has checked it.
  std::optional<std::int64_t> number(std::string_view column) const;
};

// What a row was published in: its set, if the table names one and has the command line's options; else its table.
std::string publication_of(const MeasuredRow& row);

struct SkippedRow {
  std::string file;
  int line = 0;
  std::string reason;

  bool operator==(const SkippedRow&) const = default;
};

struct MeasuredFile {
  std::string file;
  std::vector<MeasuredRow> rows;
  std::vector<SkippedRow> skipped;
};

// Rows that cannot be used are skipped, each with its reason. An error if the file is not a table of measured runs.
Result<MeasuredFile> measured_rows(const CsvTable& table, const std::string& file);
Result<MeasuredFile> read_measured(const std::string& path);

}  // namespace weft
