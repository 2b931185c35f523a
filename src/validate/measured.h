// A measured run: one row of a table, checked, and what it measured.
//
// Columns are found by name, in any order; those that are not known are left alone. Two forms:
//  - as one would type it: model, cluster, devices, strategy, stack, dtype, seq, global_batch are the words of the
//    command line, and measured_step_s, measured_mem_gib what came of it. Nothing is guessed: memory of no mem_kind is
//    not compared.
//  - as publications print it: gpu, gpus, model, shapes and degrees, and one measure: iteration time, else tokens per
//    second, else samples per second, else TFLOP/s or MFU. Rules (mapping.h) say what was run.
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
  bool typed = false;                                     // in the words of the command line
  std::map<std::string, std::string, std::less<>> cells;  // by column, the empty ones left out

  Measure measure{};
  double value = 0;                       // seconds; per second, of all devices; TFLOP/s per device; MFU as a share
  std::optional<double> memory_gib = {};  // of the fullest device

  // A cell's text, empty where there is none.
  std::string_view text(std::string_view column) const;
  // A whole number of at least 1; none: the cell is empty. Reading has checked it.
  std::optional<std::int64_t> number(std::string_view column) const;
};

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

// Rows that cannot be used are skipped, each with its reason. An error: the file is none of measured runs.
Result<MeasuredFile> measured_rows(const CsvTable& table, const std::string& file);
Result<MeasuredFile> read_measured(const std::string& path);

}  // namespace weft
